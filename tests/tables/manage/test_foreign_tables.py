"""Tables as other engines write them, which sluice takes over: clones, odd spellings, columns without a type.

CONVERT: a folder of Parquet files becomes a table in place.
Creating or replacing a table beside other clients: who was slower tries again, and only where that cannot hurt.
"""

from __future__ import annotations

import datetime as dt
import json
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sluice
from sluice.coordinator.errors import ConcurrentAppendException, LeaseHeld
from sluice.dev import S3DevServer
from sluice.storage.actions import Action, AddFile, Metadata, Protocol, encode, encode_all
from sluice.storage.actions.filetable import add_rows
from sluice.storage.errors import InvalidRequest, SchemaMismatch, TableExists, TableNotFound
from sluice.storage.schema.schema import parse_schema
from sluice.storage.stores.location import open_store
from sluice.tables.manage.creation import beside_others
from tests.storage.data.reading import read_files
from tests.tables.conftest import Place, rows_of

LONG = {"type": "long", "nullable": True, "metadata": {}}
VECTORS = Protocol(3, 7, ("deletionVectors",), ("deletionVectors",))
WITH_VECTORS = {"delta.enableDeletionVectors": "true"}


def metadata(*names: str, configuration: dict[str, str] | None = None, **types: str) -> Metadata:
    fields = [{**LONG, "name": name, "type": types.get(name, "long")} for name in names]
    return Metadata(str(uuid.uuid4()), json.dumps({"type": "struct", "fields": fields}), (), configuration or {})


def add(path: str, file: Path) -> AddFile:
    return AddFile(path, {}, file.stat().st_size, 1, True, json.dumps({"numRecords": pq.read_metadata(file).num_rows}))


def write_log(folder: Path, *commits: Sequence[bytes]) -> str:
    log = folder / "_delta_log"
    log.mkdir(parents=True, exist_ok=True)
    for version, lines in enumerate(commits):
        (log / f"{version:020d}.json").write_bytes(b"\n".join(lines) + b"\n")
    return str(folder)


def attach(location: str) -> sluice.Table:
    return sluice.Table.attach(location, coordinator=f"memory://{uuid.uuid4().hex}")


def numbers(file: Path, *values: int) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"a": pa.array(values, pa.int64())}), file)
    return file


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """The folder of a table of two files, with a name that a URI cannot have as it is."""
    folder = tmp_path / "the source 100%"
    numbers(folder / "one.parquet", 1, 2, 3)
    numbers(folder / "two.parquet", 4, 5)
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {str(each.relative_to(folder)): each.read_bytes() for each in folder.rglob("*") if each.is_file()}


@pytest.mark.parametrize("vectors", [False, True])
def test_a_shallow_clone_is_read_and_changed_and_its_source_stays_as_it_is(tmp_path: Path, source: Path, vectors: bool) -> None:
    adds = [add("file:" + quote(str(source / name)), source / name) for name in ("one.parquet", "two.parquet")]
    protocol = VECTORS if vectors else Protocol(1, 2)
    described = metadata("a", configuration=WITH_VECTORS if vectors else {})
    location = write_log(tmp_path / "clone", [encode_all([protocol, described, *adds]).rstrip()])
    before = contents(source)

    table = attach(location)
    assert rows_of(table.snapshot().to_arrow()) == [(1,), (2,), (3,), (4,), (5,)]
    assert rows_of(table.snapshot().to_arrow(where="a > 3")) == [(4,), (5,)]
    table.delete("a = 2")
    assert rows_of(table.snapshot().to_arrow()) == [(1,), (3,), (4,), (5,)]
    table.update({"a": "a + 10"}, "a = 1")
    table.append(pa.table({"a": [6]}))
    assert rows_of(table.snapshot().to_arrow()) == [(3,), (4,), (5,), (6,), (11,)]
    table.compact()
    table.delete("a = 5")
    changes = table.changes(0).to_pylist()
    assert {row["a"] for row in changes if row["_change_type"] == "delete"} == {1, 2, 5}
    report = table.vacuum(retain_hours=0, force=True)
    assert not [each.key for each in report.garbage if each.key.endswith(("one.parquet", "two.parquet"))]
    assert rows_of(table.snapshot().to_arrow()) == [(3,), (4,), (6,), (11,)]
    assert contents(source) == before


def test_a_clone_in_a_bucket_reads_another_place_of_it(s3_server: S3DevServer, s3_options: dict[str, str], s3_location: str) -> None:
    source, clone = open_store(f"{s3_location}/source 1%", s3_options), f"{s3_location}/clone"
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"a": [1, 2, 3]}), sink)
    source.put("one.parquet", sink.getvalue().to_pybytes())
    uri = "s3a://" + quote(s3_location.removeprefix("s3://") + "/source 1%/one.parquet")
    start: list[Action] = [Protocol(1, 2), metadata("a"), AddFile(uri, {}, 1, 1, True)]
    open_store(clone, s3_options).put(f"_delta_log/{0:020d}.json", encode_all(start))
    table = sluice.Table.attach(clone, coordinator=f"memory://{uuid.uuid4().hex}", storage_options=s3_options)
    assert rows_of(table.snapshot().to_arrow()) == [(1,), (2,), (3,)]
    table.delete("a = 2")
    table.vacuum(retain_hours=0, force=True)
    assert rows_of(table.snapshot().to_arrow()) == [(1,), (3,)]
    assert source.head("one.parquet").size > 0
    with pytest.raises(sluice.errors.UnsupportedFeature, match="where sluice does not reach it"):
        read_files(
            open_store(clone, s3_options),
            add_rows([AddFile("file:///etc/one.parquet", {}, 1, 1, True)]),
            schema=parse_schema(metadata("a").schema_string),
            partition_columns=[],
        )


def test_what_a_clone_needs_and_cannot_reach_is_named(tmp_path: Path, source: Path) -> None:
    file = source / "one.parquet"
    location = write_log(tmp_path / "clone", [encode_all([Protocol(1, 2), metadata("a"), add("abfss://c@h/x.parquet", file)]).rstrip()])
    with pytest.raises(sluice.errors.UnsupportedFeature, match=r"abfss://c@h/x\.parquet' lies outside of the table .* does not reach it"):
        attach(location).snapshot().to_arrow()


SPELLINGS: dict[str, Callable[[Path], str]] = {
    "file": lambda file: "file:" + quote(str(file)),
    "three slashes": lambda file: "file://" + quote(str(file)),
    "a path": lambda file: quote(str(file)),
}


@pytest.mark.parametrize("spelled", SPELLINGS)
def test_a_file_of_the_table_is_that_file_however_it_is_spelt(tmp_path: Path, spelled: str) -> None:
    folder = tmp_path / "a table 100%25"
    one, two = numbers(folder / "p=1 %" / "one.parquet", 1, 2), numbers(folder / "two.parquet", 3)
    adds = [add(SPELLINGS[spelled](each), each) for each in (one, two)]
    table = attach(write_log(folder, [encode_all([Protocol(1, 2), metadata("a"), *adds]).rstrip()]))
    assert rows_of(table.snapshot().to_arrow()) == [(1,), (2,), (3,)]
    table.vacuum(retain_hours=0, force=True)
    assert rows_of(table.snapshot().to_arrow()) == [(1,), (2,), (3,)]
    table.delete("a = 3")
    report = table.vacuum(retain_hours=0, force=True)
    assert [each.key for each in report.garbage] == ["two.parquet"]
    assert not two.exists()
    assert rows_of(table.snapshot().to_arrow()) == [(1,), (2,)]


def test_a_void_column_is_null_and_nothing_else(tmp_path: Path) -> None:
    folder = tmp_path / "t"
    one = numbers(folder / "one.parquet", 1, 2)
    table = attach(write_log(folder, [encode_all([Protocol(1, 2), metadata("a", "v", v="void"), add("one.parquet", one)]).rstrip()]))
    nulls = pa.table({"a": [1, 2], "v": pa.nulls(2)})
    assert table.snapshot().to_arrow().sort_by("a") == nulls
    assert rows_of(table.snapshot().to_arrow(columns=["v"], where="a = 1")) == [(None,)]
    assert rows_of(table.snapshot().to_arrow(where="v IS NULL AND a = 2")) == [(2, None)]
    assert table.snapshot().to_arrow(where="v IS NOT NULL").num_rows == 0
    for where in ("v <=> NULL", "v <=> v", "v IS NOT DISTINCT FROM NULL", "nullif(v, v) IS NULL"):
        assert table.snapshot().to_arrow(where=where).num_rows == 2
    assert table.snapshot().to_arrow(where="v = v OR v <> v OR v <=> a").num_rows == 0
    table.append(pa.table({"a": [3], "v": pa.nulls(1)}))
    with pytest.raises(sluice.errors.SchemaMismatch, match="column 'v' is void in the table and int64 in the data"):
        table.append(pa.table({"a": [4], "v": [1]}))
    table.update({"a": "a * 10"}, "a < 3")
    table.compact()
    assert rows_of(table.snapshot().to_arrow()) == [(3, None), (10, None), (20, None)]
    written = [each for each in folder.glob("*.parquet") if each != one]
    assert {tuple(pq.read_schema(each).names) for each in written} == {("a",)}, "Parquet has no such type"


def test_metadata_without_a_schema_counts_until_it_is_replaced(tmp_path: Path) -> None:
    folder = tmp_path / "t"
    one = numbers(folder / "one.parquet", 1)
    empty = replace(metadata("a"), schema_string="")
    start = [encode(Protocol(1, 2)), encode(empty)]
    location = write_log(folder, start)
    with pytest.raises(sluice.errors.NotATable, match="the table has no columns yet"):
        attach(location)
    write_log(folder, start, [encode(metadata("a")), encode(add("one.parquet", one))])
    assert rows_of(attach(location).snapshot().to_arrow()) == [(1,)]


def test_unknown_keys_beside_an_action_change_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "t"
    lines = [encode(each) for each in (Protocol(1, 2), metadata("a"), add("one.parquet", numbers(folder / "one.parquet", 1)))]
    with_more = [json.dumps({"extension": {"by": "somebody"}, **json.loads(line), "note": 7}).encode() for line in lines]
    table = attach(write_log(folder, with_more))
    assert rows_of(table.snapshot().to_arrow()) == [(1,)]
    table.append(pa.table({"a": [2]}))
    assert rows_of(table.snapshot(0).to_arrow()) == [(1,)]
    assert table.history()


PARTS = pa.schema([("origin", pa.string()), ("month", pa.int32())])


def put(place: Place, name: str, rows: pa.Table, **options: Any) -> None:
    path = Path(place.location) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, path, **options)


def convert(place: Place, *given: Any, **options: Any) -> sluice.Table:
    return sluice.Table.convert(place.location, *given, coordinator=place.coordinator, **options)


def delays(*values: int | None) -> pa.Table:
    return pa.table({"delay": pa.array(values, pa.int64())})


def test_a_folder_of_files_becomes_a_table(place: Place) -> None:
    put(place, "a.parquet", delays(1, None, 3))
    put(place, "b.parquet", pa.table({"delay": pa.array([4], pa.int64()), "gate": ["B4"]}))
    (Path(place.location) / "_SUCCESS").write_text("")
    (Path(place.location) / ".a.parquet.crc").write_text("x")
    table = convert(place, properties={"owner": "ops", "delta.enableRowTracking": "true"})
    assert rows_of(table.snapshot().to_arrow()) == [(None, None), (1, None), (3, None), (4, "B4")]
    assert table.properties["owner"] == "ops"
    (told,) = table.history()
    assert (told.operation, told.metrics) == ("CONVERT", {"numConvertedFiles": "2"})
    adds = {add.path: add for add in table.snapshot().raw.add_files()}
    assert json.loads(adds["a.parquet"].stats or "") == {
        "numRecords": 3,
        "minValues": {"delay": 1},
        "maxValues": {"delay": 3},
        "nullCount": {"delay": 1, "gate": 3},
    }
    assert sorted(str(add.base_row_id) for add in adds.values()) == ["0", "3"]
    assert deltalake.DeltaTable(place.location).to_pyarrow_table().num_rows == 4
    table.update({"delay": "0"}, where="delay = 4")
    assert table.refresh().snapshot().to_arrow(where="delay = 0").num_rows == 1
    with pytest.raises(TableExists):
        convert(place)


def test_folders_name_partitions(place: Place) -> None:
    put(place, "origin=JFK/month=1/a.parquet", delays(1))
    put(place, "origin=New%20York/month=02/a b.parquet", delays(2))
    put(place, "origin=__HIVE_DEFAULT_PARTITION__/month=3/a.parquet", delays(3))
    table = convert(place, PARTS)
    assert table.partition_columns == ("origin", "month")
    assert rows_of(table.snapshot().to_arrow(["origin", "month", "delay"])) == [(None, 3, 3), ("JFK", 1, 1), ("New York", 2, 2)]
    found = deltalake.DeltaTable(place.location).to_pyarrow_table()
    assert sorted(found["delay"].to_pylist()) == [1, 2, 3]
    table.delete("origin = 'JFK'")
    assert table.refresh().snapshot().num_files == 2
    assert table.vacuum(retain_hours=0, force=True).size_bytes > 0
    assert table.snapshot().to_arrow().num_rows == 2


def test_bounds_hold_for_every_type(place: Place) -> None:
    at = dt.datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=dt.timezone.utc)
    rows = pa.table(
        {
            "d": pa.array([dt.date(1969, 12, 31), dt.date(2026, 1, 2)]),
            "t": pa.array([at, at], pa.timestamp("us", "UTC")),
            "s": ["a" * 40, "ä" * 40],
            "f": [1.0, float("nan")],
            "n": pa.array([None, None], pa.int32()),
        }
    )
    put(place, "a.parquet", rows, row_group_size=1)
    put(place, "b.parquet", rows.select(["t"]), use_deprecated_int96_timestamps=True)
    table = convert(place)
    assert table.schema.field("t").type == pa.timestamp("us", "UTC")
    stats = {add.path: json.loads(add.stats or "") for add in table.snapshot().raw.add_files()}
    assert stats["a.parquet"]["minValues"] == {"d": "1969-12-31", "t": "2026-01-02T03:04:05.678Z", "s": "a" * 32}
    assert stats["a.parquet"]["maxValues"] == {"d": "2026-01-02", "t": "2026-01-02T03:04:05.679Z", "s": "ä" * 31 + "å"}
    assert stats["a.parquet"]["nullCount"]["n"] == 2
    assert stats["b.parquet"]["minValues"] == {}
    assert table.snapshot().to_arrow(["t"], where="t = timestamp'2026-01-02 03:04:05.678901Z'")["t"].to_pylist() == [at] * 4


@pytest.mark.parametrize(
    ("name", "partitions", "says"),
    [
        ("origin=JFK/a.parquet", None, "partition_schema"),
        ("origin=JFK/a.parquet", PARTS, "origin=.../month=..."),
        ("month=1/origin=JFK/a.parquet", PARTS, "in their order"),
        ("origin=JFK/month=May/a.parquet", PARTS, "'May' is no value"),
        ("a.csv", None, "no Parquet file by its name"),
        ("inner/_delta_log/x.parquet", None, "another table"),
    ],
)
def test_files_that_do_not_fit_are_named(place: Place, name: str, partitions: pa.Schema | None, says: str) -> None:
    put(place, name, delays(1))
    with pytest.raises(InvalidRequest) as refused:
        convert(place, partitions)
    assert says in refused.value.message
    assert not (Path(place.location) / "_delta_log").exists()


def test_types_that_do_not_fit_together_are_named(place: Place) -> None:
    put(place, "a.parquet", delays(1))
    put(place, "b.parquet", pa.table({"delay": ["late"]}))
    with pytest.raises(SchemaMismatch, match=r"'b\.parquet' does not fit"):
        convert(place)
    (Path(place.location) / "b.parquet").write_bytes(b"PAR1 is not enough")
    with pytest.raises(SchemaMismatch, match=r"b\.parquet"):
        convert(place)


def test_what_nobody_can_check_is_refused(place: Place) -> None:
    put(place, "a.parquet", delays(1))
    with pytest.raises(InvalidRequest, match="set_properties"):
        convert(place, properties={"delta.constraints.late": "delay > 5"})
    (Path(place.location) / "a.parquet").unlink()
    with pytest.raises(TableNotFound):
        convert(place)


LOSSES = [ConcurrentAppendException("another client was faster"), LeaseHeld("another client has a reserved turn 'after 1 loss'")]


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
def test_a_replacement_that_lost_is_tried_again(loss: Exception) -> None:
    losses = [loss]

    def attempt() -> str:
        if losses:
            raise losses.pop()
        return "replaced"

    assert beside_others(attempt, lambda: True, replaces=True) == "replaced"


@pytest.mark.parametrize("loss", [*LOSSES, TableExists("a table exists")], ids=lambda loss: type(loss).__name__)
def test_nothing_else_is(loss: Exception) -> None:
    def attempt() -> None:
        raise loss

    with pytest.raises(type(loss)):
        beside_others(attempt, lambda: False)


def test_a_replacement_gives_up_in_time() -> None:
    def attempt() -> None:
        raise LOSSES[1]

    with pytest.raises(LeaseHeld):
        beside_others(attempt, lambda: True, replaces=True, timeout_s=0.2)
