"""What bad input gets through the Python API: the class of error, a message with the value and the remedy, and nothing written."""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import deltalake
import pyarrow as pa
import pytest

import sluice

from .conftest import FLIGHTS, Place, Refused, flights, rows_of


@pytest.fixture
def table(place: Place) -> sluice.Table:
    """A table with two rows, in version 1."""
    table = place.create()
    table.append(flights(("JFK", 1, 5), ("EWR", 2, None)))
    return table


def ways_in(place: Place) -> list[Callable[[], object]]:
    """The calls that need a table to be there."""
    return [
        place.open,
        lambda: place.open(consistency="published"),
        lambda: sluice.Table.attach(place.location, coordinator=place.coordinator),
    ]


# -- where ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["gs", "hdfs", "wasbs", "http"])
def test_a_location_with_an_unknown_scheme(place: Place, refused: Refused, scheme: str) -> None:
    location = f"{scheme}://bucket/flights"
    ways: list[Callable[[], object]] = [
        lambda: sluice.Table.create(location, FLIGHTS, coordinator=place.coordinator),
        lambda: sluice.Table.open(location, coordinator=place.coordinator),
        lambda: sluice.Table.open(location, consistency="published"),
        lambda: sluice.Table.attach(location, coordinator=place.coordinator),
    ]
    for way in ways:
        with refused(sluice.errors.UnknownScheme, repr(location), repr(scheme), "s3://", "file://", "plain paths"):
            way()


def test_a_table_that_does_not_exist(place: Place, refused: Refused) -> None:
    for way in ways_in(place):
        with refused(sluice.errors.TableNotFound, place.location, "check the location, or create the table"):
            way()


def test_a_folder_that_is_no_table(place: Place, refused: Refused) -> None:
    folder = Path(place.location)
    folder.mkdir()
    (folder / "notes.txt").write_text("no table")
    for way in ways_in(place):
        with refused(sluice.errors.NotATable, place.location, "notes.txt", "check the location"):
            way()


def test_a_table_of_another_coordinator(place: Place, table: sluice.Table, refused: Refused) -> None:
    for way in (sluice.Table.open, sluice.Table.attach):
        with refused(sluice.errors.WrongCoordinator, place.location, place.coordinator, "Use the coordinator of the table's other writers"):
            way(place.location, coordinator=place.coordinator + "-other")


@pytest.mark.parametrize("open_it", [sluice.Table.open, sluice.Table.named])
def test_opening_ends_in_its_time_when_the_coordinator_does_not_answer(tmp_path: Path, open_it: Callable[..., sluice.Table]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"zk://127.0.0.1:{silent.getsockname()[1]}/?connect_timeout_s=30"
        began = time.monotonic()
        with pytest.raises(sluice.errors.CoordinatorUnavailable):
            open_it(str(tmp_path / "t") if open_it == sluice.Table.open else "sales.orders", coordinator=address, timeout_s=1)
    assert time.monotonic() - began < 10


# -- one call ------------------------------------------------------------------------------------------------------------


ROW: Final = flights(("JFK", 1, 1))
NOTHING: Any = None
NUMBER: Any = 5
CALLS: dict[str, tuple[Callable[[sluice.Table, Place], object], str, list[str]]] = {
    "a location": (lambda *_: sluice.Table.create(NUMBER, FLIGHTS), "InvalidRequest", ["5", "give a path or a URI"]),
    "a schema": (lambda _, p: sluice.Table.create(f"{p.location}-2", NUMBER), "InvalidRequest", ["schema is 5", "pyarrow.schema"]),
    "a transaction": (
        lambda t, _: t.append(ROW, transaction=("loader", "7")),  # type: ignore[arg-type]
        "InvalidRequest",
        ["('loader', '7')", "application id", "whole number"],
    ),
    "a version": (lambda t, _: t.snapshot(version=NUMBER / 2), "InvalidRequest", ["2.5", "give a whole number"]),
    "a version read": (lambda t, _: t.overwrite(ROW, read_version=NUMBER / 2), "InvalidRequest", ["2.5", "give a whole number"]),
    "a time": (lambda t, _: t.snapshot(timestamp="2013-13-01"), "InvalidRequest", ["'2013-13-01'", "ISO 8601", "milliseconds"]),
    "a coordinator's scheme": (
        lambda _, p: sluice.Table.create(f"{p.location}-2", FLIGHTS, coordinator="etcd://host"),
        "UnknownScheme",
        ["'etcd://host'", "embedded://", "zk://"],
    ),
    "a constraint": (
        lambda _, p: Place(f"{p.location}-2", p.coordinator).create(properties={"delta.constraints.odd": "my_function(delay) = 1"}),
        "UnsupportedFeature",
        ["odd", "my_function", "drop the constraint"],
    ),
    "create again": (lambda _, p: p.create(), "TableExists", ["/flights", "open it, or choose another location"]),
    "ack": (lambda _, p: p.open(ack="written"), "InvalidRequest", ["'written'", "published, ratified"]),
    "consistency": (lambda _, p: p.open(consistency="eventual"), "InvalidRequest", ["'eventual'", "latest, serial, session, published"]),
    "an option": (lambda _, p: p.open(storage_options={"acces_key_id": "x"}), "InvalidRequest", ["'acces_key_id'", "access_key_id"]),
    "a mode": (lambda t, _: t.plan_write(FLIGHTS, mode="replace"), "InvalidRequest", ["'replace'", "append, overwrite, dynamic"]),
    "rows outside the condition": (
        lambda t, _: t.overwrite(flights(("JFK", 1, 1), ("EWR", 1, 1)), where="origin = 'JFK'"),
        "ConstraintViolated",
        ["origin = 'JFK'", "1 of the rows", "filter the data, or widen the condition"],
    ),
    "dynamic and where": (
        lambda t, _: t.overwrite(ROW, where="month = 1", dynamic=True),
        "InvalidRequest",
        ["month = 1", "dynamic=True", "give one of them"],
    ),
    "version and time": (
        lambda t, _: t.snapshot(version=1, timestamp=5),
        "InvalidRequest",
        ["version=1", "timestamp=5", "give one of them"],
    ),
    "a condition": (lambda t, _: t.delete(NUMBER), "PredicateError", ["5", "which is no text"]),
    "a snapshot's condition": (lambda t, _: t.snapshot().to_arrow(where=NUMBER), "PredicateError", ["5", "which is no text"]),
    "delete nothing": (lambda t, _: t.delete(NOTHING), "PredicateError", ["where is None", "give a condition"]),
    "set nothing": (lambda t, _: t.update(NOTHING), "InvalidRequest", ["set is None", "a mapping"]),
    "on a number": (lambda t, _: t.upsert(ROW, on=NUMBER), "InvalidRequest", ["on is 5"]),
    "columns: a text": (lambda t, _: t.snapshot().to_arrow(columns="delay"), "InvalidRequest", ["columns is 'delay'", "a list of names"]),
    "columns: another": (lambda t, _: t.snapshot().to_arrow(columns=["carrier"]), "InvalidRequest", ["'carrier'", "origin, month, delay"]),
}


@pytest.mark.parametrize("case", CALLS)
def test_a_call_that_means_nothing(place: Place, table: sluice.Table, refused: Refused, case: str) -> None:
    call, error, words = CALLS[case]
    with refused(getattr(sluice.errors, error), *words):
        call(table, place)


@pytest.mark.parametrize("made", ["file", "deltalake"])
def test_a_place_that_is_taken_by_something_else(place: Place, refused: Refused, made: str) -> None:
    if made == "file":
        Path(place.location).write_text("a file")
        with refused(sluice.errors.InvalidRequest, place.location, "a part of the path is a file"):
            place.create()
        return
    deltalake.write_deltalake(place.location, flights(("JFK", 1, 1)))
    with refused(sluice.errors.NotATable, place.location, "sluice.Table.attach", "consistency='published'"):
        place.open()
    with refused(sluice.errors.TableExists, place.location):
        place.create()


# -- making a table ------------------------------------------------------------------------------------------------------

NESTED = pa.struct([pa.field("code", pa.string(), nullable=False)])


@pytest.mark.parametrize(
    ("fields", "partition_by", "error", "words"),
    [
        ([("a", pa.int64())], ["nowhere"], sluice.errors.InvalidRequest, ["'nowhere'", "its columns are a"]),
        (
            [("a", pa.int64()), ("b", pa.int64())],
            ["a", "b"],
            sluice.errors.InvalidRequest,
            ["every column is a partition column", "at least one"],
        ),
        ([("a", NESTED), ("b", pa.int64())], ["a"], sluice.errors.InvalidRequest, ["'a'", "primitive types"]),
        ([("a", NESTED), ("b", pa.int64())], ["a.code"], sluice.errors.InvalidRequest, ["'a.code'", "is not in the schema"]),
        ([("a", pa.int64()), ("b", pa.int64())], ["a", "a"], sluice.errors.InvalidRequest, ["named twice", "name each once"]),
        ([("a", pa.int64()), ("A", pa.int64())], [], sluice.errors.SchemaMismatch, ["'a'", "'A'", "ignores case", "rename one"]),
        ([("a", pa.struct([("x", pa.int8()), ("X", pa.int8())]))], [], sluice.errors.SchemaMismatch, ["'a.x'", "'a.X'", "rename one"]),
        ([("a b", pa.int64())], [], sluice.errors.SchemaMismatch, ["'a b'", "rename it"]),
        ([("a", pa.time64("us"))], [], sluice.errors.SchemaMismatch, ["'a'", "time64", "cast it"]),
        ([], [], sluice.errors.SchemaMismatch, ["no column", "give at least one"]),
        ([("a", pa.list_(pa.struct([])))], [], sluice.errors.SchemaMismatch, ["'a.element'", "without fields"]),
    ],
)
def test_a_schema_that_can_be_no_tables(
    place: Place, refused: Refused, fields: list[Any], partition_by: list[str], error: type[sluice.errors.SluiceError], words: list[str]
) -> None:
    with refused(error, *words):
        sluice.Table.create(place.location, pa.schema(fields), partition_by=partition_by, coordinator=place.coordinator)


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        ({"owner": 5}, ["'owner'", "5", "properties are text"]),
        ({"owner": None}, ["'owner'", "None", "properties are text"]),
        ({"delta.checkpointInterval": 10}, ["'delta.checkpointInterval'", "10", "properties are text"]),
        ({"delta.checkpointInterval": "often"}, ["delta.checkpointInterval", "'often'", "whole number"]),
        ({"delta.isolationLevel": "ReadCommitted"}, ["'ReadCommitted'", "Serializable, WriteSerializable, SnapshotIsolation"]),
        ({"delta.targetFileSize": "huge"}, ["'huge'", "134217728 or 128mb"]),
        ({"delta.dataSkippingNumIndexedCols": "many"}, ["delta.dataSkippingNumIndexedCols", "'many'", "whole number"]),
    ],
)
def test_properties_that_mean_nothing(place: Place, refused: Refused, properties: dict[str, Any], words: list[str]) -> None:
    with refused(sluice.errors.InvalidRequest, *words):
        place.create(properties=properties)


@pytest.mark.parametrize(
    ("properties", "feature"),
    [
        ({"delta.enableIcebergCompatV2": "true"}, "icebergCompatV2"),
        ({"delta.feature.variantShredding": "supported"}, "variantShredding"),
    ],
)
def test_properties_that_ask_for_what_sluice_lacks(place: Place, refused: Refused, properties: dict[str, str], feature: str) -> None:
    with refused(sluice.errors.UnsupportedFeature, feature, "sluice does not support") as caught:
        place.create(properties=properties)
    assert caught.value.access == "write"


# -- data ----------------------------------------------------------------------------------------------------------------


def test_data_that_does_not_fit_the_schema(table: sluice.Table, refused: Refused) -> None:
    good = flights(("JFK", 1, 1))
    cases: list[tuple[pa.Table, list[str]]] = [
        (good.append_column("carrier", pa.array(["UA"])), ["'carrier'"]),
        (good.append_column("ORIGIN", pa.array(["EWR"])), ["'ORIGIN' twice", "leave one out"]),
        (good.drop_columns(["origin"]), ["'origin'", "add it"]),
        (good.set_column(2, "delay", pa.array(["late"])), ["'delay'", "string"]),
        (good.set_column(2, "delay", pa.array([0.5])), ["'delay'", "double"]),
        (pa.table({"origin": [None], "month": pa.array([1], pa.int32()), "delay": [1]}), ["'origin'", "NOT NULL"]),
    ]
    for rows, words in cases:
        for write in (table.append, table.overwrite):
            with refused(sluice.errors.NullNotAllowed if "NOT NULL" in words else sluice.errors.SchemaMismatch, *words):
                write(rows)
    with refused(sluice.errors.SchemaMismatch, "'delay'", "give all their values"):
        table.upsert(good.drop_columns(["delay"]), on=["origin", "month"])


DATES = pa.schema(
    [
        ("id", pa.int64()),
        ("d", pa.date32()),
        ("t", pa.timestamp("us", "UTC")),
        ("n", pa.struct([("x", pa.list_(pa.timestamp("us")))])),
        ("m", pa.map_(pa.string(), pa.date32())),
    ]
)


def test_values_that_readers_stumble_over(place: Place, refused: Refused) -> None:
    table = sluice.Table.create(place.location, DATES, coordinator=place.coordinator)

    def row(**values: pa.Array) -> pa.Table:
        return pa.table([values.get(each.name, pa.nulls(1, each.type)) for each in DATES], schema=DATES)

    day, instant = 24 * 3600 * 10**6, pa.timestamp("us", "UTC")
    late, early = pa.array([2932897], pa.int32()).cast(pa.date32()), pa.array([-719163], pa.int32()).cast(pa.date32())
    moments = pa.array([2932897 * day, None], pa.int64()).cast(pa.timestamp("us"))
    nested = pa.StructArray.from_arrays([pa.ListArray.from_arrays(pa.array([0, 2]), moments)], fields=list(DATES.field("n").type))
    cases = {
        "'d' has the date": row(d=late),
        "column 'd' has the date": row(d=early),
        "'t' has the timestamp": row(t=pa.array([-719162 * day - 1], pa.int64()).cast(instant)),
        "'n.x.element' has the timestamp_ntz": row(n=nested),
        "'m.value' has the date": row(m=pa.MapArray.from_arrays(pa.array([0, 1]), pa.array(["a"]), late)),
        "'m' has a map with a duplicate key": row(m=pa.array([[("a", None), ("a", None)]], DATES.field("m").type)),
    }
    for words, rows in cases.items():
        for write in (table.append, table.overwrite):
            with refused(sluice.errors.SchemaMismatch, words):
                write(rows)
        with refused(sluice.errors.SchemaMismatch, words):
            table.upsert(rows.set_column(0, "id", pa.array([1])), on="id")
    assert table.snapshot().version == 0
    first, last = (pa.array([each], pa.int32()).cast(pa.date32()) for each in (-719162, 2932896))
    table.append(row(d=first, t=pa.array([2932897 * day - 1], pa.int64()).cast(instant)))
    table.append(row(d=last, m=pa.array([[("a", None), ("b", None)]], DATES.field("m").type)))
    assert {value["d"].year for value in table.snapshot().to_arrow().to_pylist()} == {1, 9999}


def test_messages_in_python_name_pythons_parameters(table: sluice.Table, refused: Refused) -> None:
    wider = flights(("JFK", 1, 1)).append_column("carrier", pa.array(["UA"]))
    with refused(sluice.errors.SchemaMismatch, "merge_schema=True") as caught:
        table.append(wider)
    assert "mergeSchema" not in caught.value.message
    with refused(sluice.errors.SchemaMismatch, "merge_schema adds columns") as caught:
        table.append(wider.set_column(2, "delay", pa.array(["late"])), merge_schema=True)
    assert "mergeSchema" not in caught.value.message


def test_keys_of_maps_that_are_structs(place: Place, refused: Refused) -> None:
    kind = pa.map_(pa.struct([("x", pa.int64())]), pa.int64())
    table = sluice.Table.create(place.location, pa.schema([("m", kind)]), coordinator=place.coordinator)
    table.append(pa.table({"m": pa.array([[({"x": 1}, 1), ({"x": 2}, 1)], [({"x": 1}, 1)]], kind)}))
    with refused(sluice.errors.SchemaMismatch, "'m'", "a duplicate key"):
        table.append(pa.table({"m": pa.array([[({"x": 1}, 1), ({"x": 1}, 2)]], kind)}))


@pytest.mark.parametrize("name", ["_change_type", "_commit_version", "_commit_timestamp", "_Change_Type"])
def test_columns_named_like_those_of_the_change_feed(place: Place, refused: Refused, name: str) -> None:
    with refused(sluice.errors.SchemaMismatch, repr(name), "rename it"):
        sluice.Table.create(place.location, pa.schema([("a", pa.int64()), (name, pa.string())]), coordinator=place.coordinator)
    table = place.create()
    with refused(sluice.errors.SchemaMismatch, repr(name), "rename it"):
        table.append(flights(("JFK", 1, 1)).append_column(name, pa.array(["x"])), merge_schema=True)


def test_data_that_does_not_fit_a_nested_schema(place: Place, refused: Refused) -> None:
    schema = pa.schema([("id", pa.int64()), ("airport", NESTED), ("stops", pa.list_(pa.field("element", pa.int32(), nullable=False)))])
    table = sluice.Table.create(place.location, schema, coordinator=place.coordinator)

    def rows(airport: pa.Array, stops: pa.Array) -> pa.Table:
        return pa.table({"id": [1], "airport": airport, "stops": stops})

    codes = pa.array([{"code": "JFK"}])
    numbers = pa.array([[1]], pa.list_(pa.int32()))
    cases: list[tuple[pa.Table, list[str]]] = [
        (rows(pa.array([{"code": None}], NESTED), numbers), ["airport.code", "NOT NULL"]),
        (rows(pa.array([{"code": "JFK", "city": "NY"}]), numbers), ["airport.city"]),
        (rows(pa.array([{"code": 5}]), numbers), ["airport.code"]),
        (rows(pa.array([{"city": "NY"}]), numbers), ["airport.city"]),
        (rows(codes, pa.array([[1, None]], pa.list_(pa.int32()))), ["stops.element", "NOT NULL"]),
        (rows(pa.array(["JFK"]), numbers), ["'airport'"]),
    ]
    for data, words in cases:
        with refused(sluice.errors.NullNotAllowed if "NOT NULL" in words else sluice.errors.SchemaMismatch, *words):
            table.append(data)
    assert table.append(rows(codes, numbers)) is not None


def test_a_later_batch_that_does_not_fit_leaves_nothing_of_the_earlier_ones(table: sluice.Table, refused: Refused) -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield from flights(("JFK", 1, 1), ("LGA", 1, 2)).to_batches()
        yield pa.record_batch({"origin": [None], "month": pa.array([1], pa.int32()), "delay": [1]})

    with refused(sluice.errors.NullNotAllowed, "'origin'", "NOT NULL"):
        table.append(batches())


@pytest.mark.parametrize("rows", ["JFK,1,5", b"JFK", {"origin": ["JFK"]}, [{"origin": "JFK"}], [1, 2], None, 5])
def test_data_of_the_wrong_python_type(table: sluice.Table, refused: Refused, rows: Any) -> None:
    kind = "rows is 5" if rows == 5 else type(rows[0] if isinstance(rows, list) else rows).__name__
    with refused(sluice.errors.InvalidRequest, kind, "pyarrow"):
        table.append(rows)


def test_an_empty_append_makes_no_version(table: sluice.Table, caplog: pytest.LogCaptureFixture) -> None:
    before = table.refresh().version
    for nothing in (flights(), flights().to_batches(), iter(())):
        caplog.clear()
        with caplog.at_level(logging.WARNING, logger="sluice"):
            assert table.append(nothing) is None
        said = [record for record in caplog.records if table.location in record.getMessage()]
        assert [record.levelname for record in said] == ["WARNING"]
        assert "no version was made" in said[0].getMessage()
    assert table.overwrite(flights(), where="origin = 'nowhere'") is None
    assert table.refresh().version == before


def test_rows_that_break_a_constraint(place: Place, refused: Refused) -> None:
    table = place.create(properties={"delta.constraints.sane": "delay > -1000"})
    for rows in (flights(("JFK", 1, 1), ("EWR", 1, -5000)), flights(("JFK", 1, None)), flights(("JFK", 1, 1)).drop_columns(["delay"])):
        with refused(sluice.errors.ConstraintViolated, "sane", "delay > -1000", "correct or leave out"):
            table.append(rows)
    assert table.append(flights(("JFK", 1, 1))) is not None


def test_dynamic_overwrite_of_a_table_without_partitions(place: Place, refused: Refused) -> None:
    table = place.create(partition_by=[])
    with refused(sluice.errors.InvalidRequest, place.location, "not partitioned"):
        table.overwrite(flights(("JFK", 1, 1)), dynamic=True)


@pytest.mark.parametrize("value", ["true", "TRUE"])
def test_an_append_only_table(place: Place, refused: Refused, value: str) -> None:
    table = place.create(properties={"delta.appendOnly": value})
    table.append(flights(("JFK", 1, 1)))
    ways: list[Callable[[], object]] = [
        lambda: table.delete("month = 1"),
        lambda: table.overwrite(flights(("JFK", 1, 2))),
        lambda: table.overwrite(flights(("JFK", 1, 2)), where="month = 1"),
        lambda: table.overwrite(flights(("JFK", 1, 2)), dynamic=True),
        lambda: table.begin().update({"delay": "1"}),
        lambda: table.begin().upsert(flights(("JFK", 1, 1)), on="delay"),
        lambda: table.begin().truncate(),
    ]
    for way in ways:
        with refused(sluice.errors.UnsupportedFeature, place.location, "delta.appendOnly", "append"):
            way()


# -- conditions and columns ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ("month = ", ["month = "]),
        ("", ["''", "exactly one expression"]),
        ("mnth = 1", ["mnth", "origin", "month", "delay"]),
        ("nope(month) = 1", ["nope"]),
        ("origin", ["'origin'", "BOOLEAN", "compare it"]),
        ("month = 1; DROP TABLE flights", ["DROP"]),
    ],
)
def test_a_condition_that_does_not_parse_or_names_an_unknown_column(
    table: sluice.Table, refused: Refused, where: str, words: list[str]
) -> None:
    ways: list[Callable[[], object]] = [
        lambda: table.delete(where),
        lambda: table.overwrite(flights(("JFK", 1, 1)), where=where),
        lambda: table.snapshot().to_arrow(where=where),
        lambda: list(table.snapshot().to_batches(where=where)),
    ]
    for way in ways:
        with refused(sluice.errors.PredicateError, *words):
            way()


# -- versions and times --------------------------------------------------------------------------------------------------


def test_a_version_beyond_the_latest(place: Place, table: sluice.Table, refused: Refused) -> None:
    with refused(sluice.errors.VersionNotFound, "version 99", place.location, "versions 0 to 1 are"):
        place.open(consistency="published").snapshot(version=99)
    with refused(sluice.errors.VersionNotFound, "version 99", place.location, "the latest version is 1"):
        table.snapshot(version=99)
    with refused(sluice.errors.VersionNotFound, "version 99", "the latest version is 1"):
        table.overwrite(flights(("JFK", 1, 1)), read_version=99)


def test_a_negative_version(place: Place, table: sluice.Table, refused: Refused) -> None:
    for each in (table, place.open(consistency="published")):
        with refused(sluice.errors.VersionNotFound, "version -1", place.location, "versions 0 to 1 are"):
            each.snapshot(version=-1)


def test_a_version_that_was_cleaned_up(place: Place, table: sluice.Table, refused: Refused) -> None:
    table.checkpoint()
    table.append(flights(("LGA", 3, 3)))
    (Path(place.location) / "_delta_log" / f"{0:020d}.json").unlink()
    (Path(place.location) / "_delta_log" / f"{1:020d}.json").unlink()
    for each in (place.open(), place.open(consistency="published")):
        assert each.snapshot(version=1).to_arrow().num_rows == 2
        with refused(sluice.errors.VersionNotFound, "version 0", place.location, "versions 1 to 2 are"):
            each.snapshot(version=0)


def test_times_before_the_first_version_and_after_the_last(place: Place, table: sluice.Table, refused: Refused) -> None:
    now = time.time_ns() // 1_000_000
    for each in (table, place.open(consistency="published")):
        with refused(sluice.errors.VersionNotFound, place.location, "1970-01-01T00:00:00.001", "earliest available version is 0"):
            each.snapshot(timestamp=1)
        with refused(sluice.errors.VersionNotFound, place.location, "latest version is 1"):
            each.snapshot(timestamp=now + 3_600_000)


def test_writing_to_what_was_opened_to_read(place: Place, table: sluice.Table, refused: Refused) -> None:
    reader = place.open(consistency="published")
    ways: list[Callable[[], object]] = [
        lambda: reader.append(flights(("JFK", 1, 1))),
        lambda: reader.upsert(flights(), on="delay"),
        lambda: reader.delete("month = 1"),
        lambda: reader.update({"delay": "1"}),
        *(reader.truncate, reader.detach, reader.begin),
    ]
    for way in ways:
        with refused(sluice.errors.InvalidRequest, place.location, "consistency='published'", "open it without that"):
            way()
    assert rows_of(reader.snapshot().to_arrow()) == rows_of(table.snapshot().to_arrow())


# -- what lies in the place of something else ------------------------------------------------------------------------------


def test_a_folder_in_the_place_of_a_log_file(place: Place, table: sluice.Table) -> None:
    folder = Path(place.location) / "_delta_log" / f"{2:020}.json"
    folder.mkdir()
    with pytest.raises(sluice.errors.ForeignCommit, match="is no file, though its name is taken: move the folder"):
        table.append(flights(("LGA", 3, 3)))
    folder.rmdir()
    table.append(flights(("LGA", 3, 4)))
    assert rows_of(place.open(consistency="published").snapshot().to_arrow())[-2:] == [("LGA", 3, 3), ("LGA", 3, 4)]
