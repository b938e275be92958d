"""Upserts: rows found again by their key, tables with a primary key, and which files are looked at.

Updates: which rows get which values, what of it is refused, and what becomes of the files.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

import sluice
from sluice.storage.schema.schema import from_arrow
from sluice.tables.write.merging import Keys, newest_rows
from tests.tables.conftest import FLIGHTS, Place, flights, present, rows_of
from tests.tables.pictures import files_below

VECTORS = {"delta.enableDeletionVectors": "true"}
POLICY = {"sluice.conflictPolicy": "maxcompute-delta"}
KEY = {**POLICY, "sluice.primaryKey": "origin, month"}
BOTH = pytest.mark.parametrize("properties", [{}, VECTORS], ids=["copies", "vectors"])


def now(table: sluice.Table) -> list[tuple[Any, ...]]:
    return rows_of(table.refresh().snapshot().to_arrow())


# -- any key -------------------------------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("partition_by", [[], ["origin"], ["origin", "month"]], ids=str)
def test_rows_replace_those_with_their_key_and_the_others_are_added(
    place: Place, properties: dict[str, str], partition_by: list[str]
) -> None:
    table = place.filled(("JFK", 1, 1), ("JFK", 2, 2), ("EWR", 1, 3), properties=properties, partition_by=partition_by)
    table.upsert(flights(("JFK", 2, 20), ("LGA", 1, 30)), on=["origin", "month"])
    assert now(table) == [("EWR", 1, 3), ("JFK", 1, 1), ("JFK", 2, 20), ("LGA", 1, 30)]
    metrics = table.history(1)[0].metrics
    assert [metrics[f"numTargetRows{name}"] for name in ("Inserted", "Updated", "Deleted")] == ["1", "1", "0"]
    assert table.history(1)[0].operation == "MERGE"


@BOTH
def test_a_partition_column_may_change_by_upsert(place: Place, properties: dict[str, str]) -> None:
    table = place.filled(("JFK", 1, 1), ("JFK", 2, 2), properties=properties)
    table.upsert(flights(("EWR", 9, 2)), on="delay")
    assert now(table) == [("EWR", 9, 2), ("JFK", 1, 1)]


def test_a_null_equals_nothing(place: Place) -> None:
    table = place.filled(("JFK", 1, None), ("JFK", 1, 2))
    table.upsert(flights(("EWR", 1, None), ("EWR", 1, None), ("EWR", 1, 2)), on="delay")
    assert now(table) == [("EWR", 1, None), ("EWR", 1, None), ("EWR", 1, 2), ("JFK", 1, None)]


def test_several_rows_of_a_key_in_the_table_become_one(place: Place) -> None:
    table = place.filled(("JFK", 1, 1), ("JFK", 2, 1), properties=VECTORS)
    table.append(flights(("EWR", 1, 1)))
    table.upsert(flights(("LGA", 3, 1)), on="delay")
    assert now(table) == [("LGA", 3, 1)]
    metrics = table.history(1)[0].metrics
    assert (metrics["numTargetRowsUpdated"], metrics["numTargetRowsInserted"]) == ("3", "0")


@pytest.mark.parametrize(
    ("on", "words"),
    [
        (None, ["sluice.primaryKey", r"on=\[...\]"]),
        ([], ["on="]),
        (["nowhere"], ["'nowhere'", "origin, month, delay"]),
        (["month", "MONTH"], ["'month'", "twice"]),
        ("month", ["month = 1", "2 times", "each key once"]),
        (["origin", "month"], ["origin = 'JFK', month = 1", "2 times"]),
    ],
)
def test_keys_that_cannot_be_used_are_refused(tmp_path: Path, place: Place, on: Any, words: list[str]) -> None:
    table = place.create()
    before = files_below(tmp_path)
    for word in words:
        with pytest.raises(sluice.errors.InvalidRequest, match=word):
            table.upsert(flights(("JFK", 1, 1), ("JFK", 1, 2), ("EWR", 3, 3)), on=on)
    assert files_below(tmp_path) == before


def test_a_key_of_a_nested_type_is_refused(place: Place) -> None:
    schema = pa.schema([("id", pa.int64()), ("tags", pa.list_(pa.string()))])
    table = sluice.Table.create(place.location, schema, coordinator=place.coordinator)
    with pytest.raises(sluice.errors.InvalidRequest, match="'tags' is of type"):
        table.upsert(pa.table({"id": [1], "tags": [["a"]]}), on="tags")


@pytest.mark.notices("upserts-bring-every-column")
def test_data_that_does_not_fit_is_refused(tmp_path: Path, place: Place) -> None:
    table = place.create(properties={"delta.constraints.sane": "delay >= 0"})
    before = files_below(tmp_path)
    good = flights(("JFK", 1, 1))
    for error, rows in (
        (sluice.errors.SchemaMismatch, good.drop_columns(["delay"])),
        (sluice.errors.SchemaMismatch, good.append_column("carrier", pa.array(["UA"]))),
        (sluice.errors.ConstraintViolated, flights(("JFK", 1, -1))),
        (sluice.errors.InvalidRequest, [1, 2]),
    ):
        with pytest.raises(error):
            table.upsert(rows, on="month")
    assert files_below(tmp_path) == before


@pytest.mark.parametrize("inside", [lambda kind: kind, pa.list_, lambda kind: pa.map_(pa.string(), kind)], ids=["struct", "list", "map"])
def test_a_field_inside_of_a_struct_is_not_replaced_by_nulls(tmp_path: Path, inside: Callable[[pa.DataType], pa.DataType]) -> None:
    whole, part = pa.struct([("a", pa.int64()), ("b", pa.int64())]), pa.struct([("a", pa.int64())])
    schema = pa.schema([("id", pa.int64()), ("s", inside(whole))])
    table = sluice.Table.create(tmp_path / "t", schema, coordinator=f"memory://{tmp_path.name}")
    value: Any = {"a": 1, "b": 2}
    value = value if inside(whole) is whole else [value] if pa.types.is_list(inside(whole)) else [("k", value)]
    table.append(pa.table({"id": [1], "s": pa.array([value], inside(whole))}))
    before = table.refresh().snapshot().to_arrow()
    with pytest.raises(sluice.errors.SchemaMismatch, match=r"the data lacks column 's.*\.b' of the table; rows are replaced as a whole"):
        table.upsert(pa.table({"id": [1], "s": pa.nulls(1, inside(part))}), on="id")
    assert table.refresh().snapshot().to_arrow() == before


def test_an_append_that_replaces_rows_brings_every_column(place: Place) -> None:
    table = place.filled(("JFK", 1, 1), properties=KEY)
    more = flights(("JFK", 1, 2)).append_column("carrier", pa.array(["UA"]))
    with pytest.raises(sluice.errors.SchemaMismatch, match="lacks column 'delay' of the table; rows are replaced as a whole"):
        table.append(more.drop_columns(["delay"]), merge_schema=True)
    table.append(more, merge_schema=True)
    assert now(table) == [("JFK", 1, 2, "UA")]


def test_nothing_to_upsert_makes_no_version(place: Place) -> None:
    table = place.create()
    assert table.upsert(flights(), on="month") is None
    assert table.upsert(iter(()), on="month") is None


def test_files_that_cannot_hold_a_key_are_not_read(place: Place) -> None:
    table = place.create(partition_by=["origin"])
    for month in range(1, 6):
        table.append(flights(("JFK", month, month), ("EWR", month, month)))
    kept = {f"month={month}" for month in range(1, 6)}
    files = table.snapshot().files()
    for add in table.snapshot().raw.add_files():
        if '"month":3' not in str(add.stats) or add.partition_values["origin"] != "JFK":
            Path(place.location, add.path).unlink()
    table.upsert(flights(("JFK", 3, 33)), on=["origin", "month"])
    assert (len(kept), files.num_rows, table.snapshot().num_files) == (5, 10, 10)
    assert table.snapshot().to_arrow(where="origin = 'JFK' AND month = 3")["delay"].to_pylist() == [33]


def test_many_keys_are_looked_for_in_their_range(place: Place) -> None:
    table = place.filled(*(("JFK", 1, n) for n in range(1000)), partition_by=[], properties=VECTORS)
    table.append(flights(*(("EWR", 1, n) for n in range(5000, 5100))))
    Path(place.location, table.snapshot().files("delay >= 5000")["path"][0].as_py()).unlink()
    table.upsert(flights(*(("LGA", 2, n) for n in range(900, 1100))), on="delay")
    assert table.snapshot().to_arrow(where="delay < 5000").num_rows == 1100
    assert table.snapshot().to_arrow(where="origin = 'LGA'").num_rows == 200


# -- keys as such --------------------------------------------------------------------------------------------------------


VALUES: list[tuple[pa.DataType, list[Any]]] = [
    (pa.int8(), [1, -128, None]),
    (pa.int64(), [2**63 - 1, -(2**63), 0, None]),
    (pa.string(), ["", "a'b\\", "ü", None]),
    (pa.binary(), [b"", b"\x00\xff", None]),
    (pa.bool_(), [True, False, None]),
    (pa.date32(), [dt.date(2024, 2, 29), dt.date(1, 1, 1), None]),
    (pa.timestamp("us", "UTC"), [dt.datetime(2024, 1, 1, 1, 2, 3, 456789, dt.timezone.utc), None]),
    (pa.timestamp("us"), [dt.datetime.fromisoformat("2024-01-01T01:02:03.456789"), None]),
    (pa.decimal128(20, 2), [Decimal("100000000000000000.01"), Decimal("100000000000000000.02"), None]),
    (pa.float64(), [0.1, math.inf, math.nan, 0.0, None]),
    (pa.float32(), [0.5, math.nan, None]),
]


@pytest.mark.parametrize(("kind", "values"), VALUES, ids=[str(kind) for kind, _ in VALUES])
@pytest.mark.parametrize("alone", [True, False])
def test_keys_of_every_type_are_found_again(place: Place, kind: pa.DataType, values: list[Any], alone: bool) -> None:
    schema = pa.schema([("key", kind), ("part", pa.int64()), ("value", pa.int64())])
    table = sluice.Table.create(place.location, schema, coordinator=place.coordinator, properties=VECTORS)
    rows = pa.table([pa.array(values, kind), pa.array([1] * len(values)), pa.array(range(len(values)))], schema=schema)
    table.append(rows)
    table.upsert(rows.set_column(2, "value", pa.array([100] * len(values))), on="key" if alone else ["key", "part"])
    # All of them but the null, which equals nothing.
    assert sorted(table.snapshot().to_arrow()["value"].to_pylist()) == [len(values) - 1, *[100] * len(values)]


def test_equal_numbers_are_one_key_whatever_their_bits() -> None:
    rows = pa.table({"x": [0.0, -0.0, math.nan, -math.nan, 1.0], "n": [1, 2, 3, 4, 5]})
    assert newest_rows(rows, Keys.of(rows, ["x"]))["n"].to_pylist() == [2, 4, 5]
    assert len(Keys.of(rows, ["x"])) == 3


def test_a_condition_holds_for_every_key() -> None:
    schema = from_arrow(FLIGHTS)
    for count in (1, 3, 40, 400):
        rows = flights(*((f"{n % 7}", n, n * n) for n in range(count)))
        for names in (["month"], ["origin", "delay"], ["origin", "month", "delay"]):
            keys = Keys.of(rows, names)
            assert present(keys.condition(rows, schema)).mask(rows).to_pylist() == [True] * count
            assert keys.find(rows).null_count == 0
            assert len(keys) == count


# -- primary keys --------------------------------------------------------------------------------------------------------


@BOTH
def test_an_append_to_a_table_with_a_primary_key_keeps_the_newest_row(place: Place, properties: dict[str, str]) -> None:
    table = place.filled(("JFK", 1, 1), ("JFK", 1, 2), ("EWR", 1, 3), properties={**properties, **KEY}, partition_by=["origin"])
    assert now(table) == [("EWR", 1, 3), ("JFK", 1, 2)]
    table.append(flights(("JFK", 1, 10), ("LGA", 1, 20), ("JFK", 1, 11)))
    assert now(table) == [("EWR", 1, 3), ("JFK", 1, 11), ("LGA", 1, 20)]
    assert table.history(1)[0].kind == "append"
    table.upsert(flights(("LGA", 1, 21), ("LGA", 1, 22)))
    assert table.history(1)[0].kind == "change"
    with table.begin() as begun:
        begun.append(flights(("LGA", 1, 23)))
        begun.append(flights(("LGA", 1, 24)))
    assert now(table) == [("EWR", 1, 3), ("JFK", 1, 11), ("LGA", 1, 24)]


def test_another_key_of_such_a_table_must_be_distinct(place: Place) -> None:
    table = place.create(properties=KEY)
    with pytest.raises(sluice.errors.InvalidRequest, match="delay = 5 2 times"):
        table.upsert(flights(("JFK", 1, 5), ("EWR", 1, 5)), on="delay")


def test_overwrites_of_a_table_with_a_primary_key(place: Place) -> None:
    table = place.filled(("JFK", 1, 1), ("JFK", 2, 2), ("EWR", 1, 3), properties=KEY, partition_by=["origin"])
    table.overwrite(flights(("JFK", 1, 10), ("JFK", 1, 11)), dynamic=True)
    assert now(table) == [("EWR", 1, 3), ("JFK", 1, 11)]
    table.overwrite(flights(("EWR", 2, 20), ("EWR", 2, 21)), where="origin = 'EWR'")
    assert now(table) == [("EWR", 2, 21), ("JFK", 1, 11)]
    with pytest.raises(sluice.errors.InvalidRequest, match=r"'delay'.*delete those rows and upsert"):
        table.overwrite(flights(("JFK", 1, 11)), where="delay = 11")
    table.overwrite(flights(("LGA", 1, 1), ("LGA", 1, 2)))
    assert now(table) == [("LGA", 1, 2)]


@BOTH
def test_a_key_tells_rows_of_one_partition_apart(place: Place, properties: dict[str, str]) -> None:
    """Also where the partition is null, which an empty text is too."""
    schema = pa.schema([("part", pa.string()), pa.field("id", pa.int64(), nullable=False), ("n", pa.int64())])
    table = sluice.Table.create(
        place.location,
        schema,
        partition_by=["part"],
        coordinator=place.coordinator,
        properties={**POLICY, **properties, "sluice.primaryKey": "id"},
    )

    def rows(*given: tuple[str | None, int, int]) -> pa.Table:
        return pa.table([pa.array(c, t) for c, t in zip(zip(*given, strict=True), schema.types, strict=True)], schema=schema)

    table.append(rows(("a", 1, 1), ("b", 1, 2), (None, 1, 3), ("", 1, 4), ("a", 2, 5)))
    assert now(table) == [(None, 1, 4), ("a", 1, 1), ("a", 2, 5), ("b", 1, 2)]
    table.append(rows(("", 1, 10), ("a", 1, 20), ("c", 1, 30)))
    table.upsert(rows(("b", 1, 40), ("b", 1, 41)), on="id")
    assert now(table) == [(None, 1, 10), ("a", 1, 20), ("a", 2, 5), ("b", 1, 41), ("c", 1, 30)]
    table.overwrite(rows(("a", 7, 1), ("a", 7, 2)), dynamic=True)
    assert now(table) == [(None, 1, 10), ("a", 7, 2), ("b", 1, 41), ("c", 1, 30)]


def test_a_primary_key_is_not_updated(place: Place) -> None:
    table = place.filled(("JFK", 1, 1), properties={**POLICY, "sluice.primaryKey": "month"}, partition_by=["origin"])
    for name in ("MONTH", "origin"):
        with pytest.raises(sluice.errors.InvalidRequest, match=f"'{name}'.*primary key"):
            table.update({name: "'2'"})
    assert table.update({"delay": "2"}) is not None


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_a_plan_for_a_table_with_a_primary_key_is_refused(place: Place, mode: str) -> None:
    table = place.create(properties=KEY)
    with pytest.raises(
        sluice.errors.InvalidRequest, match=r"primary key \(origin, month\).*use append, overwrite or upsert of sluice.Table"
    ):
        table.plan_write(FLIGHTS, mode=mode)


PRIMARY = {**KEY, **VECTORS}
"""The primary key is origin and month, and a partition an origin."""


@pytest.mark.parametrize(
    ("properties", "before", "mine", "theirs", "after"),
    [
        pytest.param(PRIMARY, [("JFK", 1, 1)], [("EWR", 5, 1)], [("EWR", 5, 2)], None, id="one new primary key"),
        pytest.param(
            PRIMARY,
            [("JFK", 1, 1), ("EWR", 1, 2)],
            [("JFK", 1, 10), ("JFK", 2, 11)],
            [("EWR", 1, 20), ("EWR", 2, 21)],
            [("EWR", 1, 20), ("EWR", 2, 21), ("JFK", 1, 10), ("JFK", 2, 11)],
            id="different partitions",
        ),
        pytest.param(VECTORS, [("JFK", 1, 1)], [("EWR", 5, 0)], [("EWR", 5, 1)], None, id="one new key of any columns"),
        pytest.param(
            VECTORS,
            [("JFK", 1, 1), ("JFK", 2, 2), ("JFK", 3, 3)],
            [("JFK", 1, 10), ("EWR", 1, 10)],
            [("JFK", 3, 30), ("EWR", 3, 30)],
            [("EWR", 1, 10), ("EWR", 3, 30), ("JFK", 1, 10), ("JFK", 2, 2), ("JFK", 3, 30)],
            id="different keys of any columns",
        ),
    ],
)
def test_of_two_who_upsert_at_once_both_succeed_unless_they_bring_one_key(
    place: Place, properties: dict[str, str], before: list[Any], mine: list[Any], theirs: list[Any], after: list[Any] | None
) -> None:
    keyed = properties is PRIMARY
    table = place.filled(*before, properties=properties, partition_by=["origin"] if keyed else [])
    one, other = table.begin(), place.open().begin()
    for begun, new in ((one, mine), (other, theirs)):
        begun.append(flights(*new)) if keyed else begun.upsert(flights(*new), on=["origin", "month"])
    assert one.commit() is not None
    if after is not None:
        assert other.commit() is not None
        assert now(table) == after
        return
    with pytest.raises(sluice.errors.ConcurrentModification if keyed else sluice.errors.ConcurrentAppendException):
        other.commit()
    assert now(table) == sorted([*before, *mine])


@pytest.fixture(params=[{}, VECTORS], ids=["copies", "vectors"])
def table(place: Place, request: pytest.FixtureRequest) -> sluice.Table:
    """Four rows in three partitions, in version 1."""
    return place.filled(("JFK", 1, 1), ("JFK", 1, None), ("JFK", 2, 3), ("EWR", 2, 4), properties=request.param)


@pytest.mark.parametrize(
    ("assigned", "where", "expected"),
    [
        ({"delay": "delay + 10"}, "origin = 'JFK'", [("EWR", 2, 4), ("JFK", 1, None), ("JFK", 1, 11), ("JFK", 2, 13)]),
        ({"delay": "0"}, None, [("EWR", 2, 0), ("JFK", 1, 0), ("JFK", 1, 0), ("JFK", 2, 0)]),
        ({"delay": "NULL"}, "delay > 3", [("EWR", 2, None), ("JFK", 1, None), ("JFK", 1, 1), ("JFK", 2, 3)]),
        ({"origin": "'LGA'"}, "month = 2", [("JFK", 1, None), ("JFK", 1, 1), ("LGA", 2, 3), ("LGA", 2, 4)]),
        ({"month": "delay", "delay": "month"}, "delay IS NOT NULL", [("EWR", 4, 2), ("JFK", 1, None), ("JFK", 1, 1), ("JFK", 3, 2)]),
        ({"DELAY": "CASE WHEN month = 1 THEN 1 ELSE delay END"}, None, [("EWR", 2, 4), ("JFK", 1, 1), ("JFK", 1, 1), ("JFK", 2, 3)]),
        ({"delay": "delay"}, "delay = 1", [("EWR", 2, 4), ("JFK", 1, None), ("JFK", 1, 1), ("JFK", 2, 3)]),
        ({"delay": "99"}, "delay <> 1", [("EWR", 2, 99), ("JFK", 1, None), ("JFK", 1, 1), ("JFK", 2, 99)]),
    ],
)
def test_rows_get_the_values_of_expressions_over_the_old_row(
    place: Place, table: sluice.Table, assigned: dict[str, str], where: str | None, expected: list[tuple[Any, ...]]
) -> None:
    assert present(table.update(assigned, where)).version == 2
    assert now(table) == expected
    found = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(place.location)).execute("SELECT * FROM t").read_all()
    assert rows_of(pa.table(found).select(["origin", "month", "delay"])) == expected


def test_the_history_tells_the_condition_and_the_numbers(table: sluice.Table) -> None:
    table.update({"delay": "delay + 10"}, "month = 1 AND delay = 1")
    entry = table.history(1)[0]
    copies = "delta.enableDeletionVectors" not in table.properties
    assert (entry.operation, entry.parameters, entry.kind) == ("UPDATE", {"predicate": "month = 1 AND delay = 1"}, "change")
    assert entry.metrics["numUpdatedRows"] == "1"
    assert entry.metrics["numCopiedRows"] == ("1" if copies else "0")
    assert entry.metrics["numAddedFiles"] == ("2" if copies else "1")
    assert entry.metrics["numDeletionVectorsAdded"] == ("0" if copies else "1")


def test_no_row_makes_no_version(table: sluice.Table) -> None:
    assert table.update({"delay": "1"}, "origin = 'LGA'") is None
    assert table.update({"delay": "1"}, "delay = 12345") is None
    assert table.refresh().version == 1


@pytest.mark.parametrize(
    ("assigned", "where", "error", "words"),
    [
        ({}, None, sluice.errors.InvalidRequest, "nothing to set"),
        ({"nowhere": "1"}, None, sluice.errors.InvalidRequest, "nowhere"),
        ({"delay": "1", "DELAY": "2"}, None, sluice.errors.InvalidRequest, "twice"),
        ({"delay": "my_function(delay)"}, None, sluice.errors.PredicateError, "my_function"),
        ({"delay": "delay +"}, None, sluice.errors.PredicateError, r"delay \+"),
        ({"delay": "'late'"}, None, sluice.errors.SluiceError, "delay"),
        ({"delay": "1"}, "nowhere = 1", sluice.errors.PredicateError, "nowhere"),
        ({"origin": "NULL"}, None, sluice.errors.NullNotAllowed, "NOT NULL"),
        ({"month": "delay * 1000000000000"}, "delay = 4", sluice.errors.SluiceError, "month"),
        ({"delay": "10 div (delay - 3)"}, None, sluice.errors.PredicateError, "delay"),
    ],
)
def test_what_cannot_be_done_is_refused_and_leaves_nothing(
    tmp_path: Path, table: sluice.Table, assigned: dict[str, str], where: str | None, error: type[sluice.errors.SluiceError], words: str
) -> None:
    before = files_below(tmp_path)
    with pytest.raises(error, match=words):
        table.update(assigned, where)
    assert files_below(tmp_path) == before
    assert table.refresh().version == 1


@pytest.mark.parametrize("properties", [{}, VECTORS], ids=["copies", "vectors"])
def test_constraints_hold_for_the_new_rows(place: Place, tmp_path: Path, properties: dict[str, str]) -> None:
    table = place.filled(("JFK", 1, 1), ("JFK", 1, 60), properties={**properties, "delta.constraints.sane": "delay BETWEEN 0 AND 100"})
    before = files_below(tmp_path)
    with pytest.raises(sluice.errors.ConstraintViolated, match="sane"):
        table.update({"delay": "delay * 2"})
    assert files_below(tmp_path) == before
    assert table.update({"delay": "delay * 2"}, "delay < 50") is not None
    assert now(table) == [("JFK", 1, 2), ("JFK", 1, 60)]


def test_rows_that_others_append_meanwhile_stay_as_they_are(place: Place, table: sluice.Table) -> None:
    begun = table.begin()
    begun.update({"delay": "-1"})
    place.open().append(flights(("LGA", 3, 10)))
    assert begun.commit() is not None
    assert now(table) == [("EWR", 2, -1), ("JFK", 1, -1), ("JFK", 1, -1), ("JFK", 2, -1), ("LGA", 3, 10)]


def test_an_update_of_nested_and_wide_types_keeps_the_other_columns(place: Place) -> None:
    schema = pa.schema(
        [("id", pa.int64()), ("tags", pa.list_(pa.string())), ("at", pa.timestamp("us", "UTC")), ("price", pa.decimal128(20, 4))]
    )
    table = sluice.Table.create(place.location, schema, coordinator=place.coordinator, properties=VECTORS)
    rows = pa.table(
        [
            pa.array([1, 2]),
            pa.array([["a"], None]),
            pa.array([0, None], schema.types[2]),
            pa.array([Decimal(1), Decimal(2)], schema.types[3]),
        ],
        schema=schema,
    )
    table.append(rows)
    table.update({"price": "price + 0.5", "at": "TIMESTAMP '2024-01-01 00:00:00'"}, "id = 2")
    after = table.snapshot().to_arrow().sort_by("id").to_pylist()
    assert after[0] == rows.to_pylist()[0]
    assert (after[1]["tags"], str(after[1]["price"]), after[1]["at"].isoformat()) == (None, "2.5000", "2024-01-01T00:00:00+00:00")
