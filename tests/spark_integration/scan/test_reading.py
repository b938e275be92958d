"""Reading through Spark: versions, columns, filters, and Spark's own scan next to the data source."""

from __future__ import annotations

import datetime as dt
import json
import uuid
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import Any
from urllib.parse import quote

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

import sluice
from sluice.spark_integration.data_source.reader import SluiceReader, balanced
from sluice.spark_integration.options import ReadOptions
from sluice.storage.actions import Action, AddFile, Metadata, Protocol, encode_all
from sluice.storage.schema.schema import from_arrow
from tests.storage.strategies import rows_of

from ..conftest import Place, arrow, configured, is_native, refused

pytestmark = pytest.mark.spark

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("k", pa.string()),
        ("n", pa.int32()),
        ("d", pa.float64()),
        ("f", pa.float32()),
        ("t", pa.timestamp("us", "UTC")),
        ("day", pa.date32()),
        ("m", pa.decimal128(10, 2)),
        ("b", pa.binary()),
        ("s", pa.struct([("x", pa.int64())])),
    ]
)
START = dt.datetime(2013, 1, 1, tzinfo=dt.timezone.utc)


def rows(first: int, last: int) -> pa.Table:
    """One row for each number, every seventh full of nulls; NaN and infinities among the floats."""
    special = [float("nan"), float("inf"), -0.0, 0.5]
    made: list[dict[str, Any]] = []
    for i in range(first, last):
        if i % 7 == 6:
            made.append({"id": i})
            continue
        made.append(
            {
                "id": i,
                "k": ["a", "b%", "é_", "", "A"][i % 5],
                "n": i % 4,
                "d": special[i % 4] if i % 3 else i / 4,
                "f": special[i % 4],
                "t": START + dt.timedelta(hours=i),
                "day": START.date() + dt.timedelta(days=i),
                "m": i,
                "b": bytes([i]),
                "s": None if i % 5 == 0 else {"x": i},
            }
        )
    return pa.Table.from_pylist(made, schema=SCHEMA)


@pytest.fixture
def filled(place: Place) -> Place:
    """Four files of ten rows, in four versions, partitioned by n."""
    table = place.create(SCHEMA, partition_by=["n"])
    for number in range(4):
        table.append(rows(number * 10, number * 10 + 10))
    return place


def ids(frame: DataFrame) -> list[int]:
    return sorted(row["id"] for row in frame.select("id").collect())


FILTERS = [
    "id = 5",
    "id <=> null",
    "id > 5 AND id <= 12",
    "NOT (id = 5)",
    "id IN (1, 2, 35, 99)",
    "id IN (1, null)",
    "id NOT IN (1, 2)",
    "id NOT IN (1, null)",
    "k IS NULL",
    "k IS NOT NULL AND n = 2",
    "n IS NULL",
    "n <> 1",
    "k LIKE 'b%'",
    "k LIKE '%_'",
    "k LIKE '%\\\\%'",
    "startswith(k, 'é')",
    "k > 'A'",
    "d = double('NaN')",
    "d > 1e300",
    "d <= 0",
    "f = 0.5",
    "f >= float('NaN')",
    "d <> double('NaN')",
    "t > TIMESTAMP '2013-01-01 12:00:00Z'",
    "t = TIMESTAMP '2013-01-01T05:00:00Z'",
    "day BETWEEN DATE '2013-01-05' AND DATE '2013-01-09'",
    "m = 7.00",
    "m < 3.5",
    "b = X'05'",
    "s.x = 8",
    "s IS NULL",
    "NOT (s.x > 8)",
    "id + 1 = 5",
    "id = 3 OR n = 1",
    "n = 1 AND id % 2 = 1 AND k = 'a'",
]


@pytest.mark.parametrize("filters", [FILTERS[::3], pytest.param(FILTERS, marks=pytest.mark.long)], ids=["some", "all"])
def test_the_option_where_selects_what_spark_selects(filled: Place, filters: list[str]) -> None:
    everything = filled.spark.createDataFrame(filled.load().collect(), filled.load().schema)
    rows = everything.select("id", *map(F.expr, filters)).collect()  # all in one query, on either side
    selected = [filled.load(where=text).select(F.lit(number), "id") for number, text in enumerate(filters)]
    found = {tuple(row) for row in reduce(DataFrame.union, selected).collect()}
    assert found == {(number, row[0]) for row in rows for number in range(len(filters)) if row[1 + number]}


@pytest.mark.parametrize("pushdown", ["true", "false"])
def test_a_frame_is_used_several_times(filled: Place, pushdown: str) -> None:
    """What was selected of a DataFrame once does not stick to it, whatever the session says of filters."""
    with configured(filled.spark, {"spark.sql.python.filterPushdown.enabled": pushdown}):
        frame = filled.load()
        assert ids(frame.where("n = 1 AND id > 25")) == [29, 33, 37]
        assert frame.count() == 40
        assert ids(frame.where("id = 3")) == [3]
        assert frame.count() == 40


def test_a_condition_with_or_skips_files_too(filled: Place) -> None:
    options = {"path": filled.location, "coordinator": filled.coordinator, "where": "id = 3 OR id = 30"}
    reader = SluiceReader(ReadOptions.parse(options), filled.load().schema)
    files = [part.value.num_rows for part in reader.partitions()]
    assert sum(files) == 4, "of sixteen: those whose bounds do not exclude it"
    assert ids(filled.load(where="id = 3 OR id = 30")) == [3, 30]
    assert isinstance(refused(lambda: filled.load(where="nix = 3").collect()), sluice.errors.PredicateError)


def test_versions_and_times(filled: Place) -> None:
    times = [filled.table().snapshot(version).timestamp for version in range(5)]
    assert ids(filled.load(versionAsOf=0)) == []
    assert ids(filled.load(versionAsOf=2)) == list(range(20))
    assert ids(filled.load(timestampAsOf=times[1])) == list(range(10))
    utc = dt.datetime.fromtimestamp(times[3] / 1000, dt.timezone.utc)
    assert ids(filled.load(timestampAsOf=utc.strftime("%Y-%m-%d %H:%M:%S.%f"))) == list(range(30))
    assert ids(filled.scan(version=2)) == list(range(20))
    assert ids(filled.scan(timestamp=times[1])) == list(range(10))
    assert ids(filled.scan(timestamp=utc.isoformat())) == list(range(30))
    assert isinstance(refused(lambda: filled.load(versionAsOf=9)), sluice.errors.VersionNotFound)
    assert isinstance(refused(lambda: filled.load(timestampAsOf="2001-01-01")), sluice.errors.VersionNotFound)
    assert isinstance(refused(lambda: filled.load(timestampAsOf="9000-01-01")), sluice.errors.VersionNotFound)


def test_a_schema_chooses_columns(filled: Place) -> None:
    chosen = filled.load("N int, id bigint").where("id < 4")
    assert sorted(chosen.collect()) == [(0, 0), (1, 1), (2, 2), (3, 3)]
    for schema, named in {"id int": "id", "nix string": "nix", "id bigint NOT NULL": "id", "s struct<x: int>": "s"}.items():
        error = refused(lambda schema=schema: filled.load(schema).collect())  # type: ignore[misc]
        assert isinstance(error, sluice.errors.SchemaMismatch)
        assert named in error.message


def test_errors_of_reading(place: Place, tmp_path: Path) -> None:
    assert isinstance(refused(place.load), sluice.errors.TableNotFound)
    with pytest.raises(sluice.errors.TableNotFound):
        place.scan()
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").write_text("x")
    assert isinstance(refused(Place(place.spark, str(tmp_path / "folder"), place.coordinator).load), sluice.errors.NotATable)
    assert isinstance(refused(Place(place.spark, "ftp://x/y", place.coordinator).load), sluice.errors.UnknownScheme)


def test_a_missing_data_file_is_named(filled: Place) -> None:
    [gone, *_] = sorted(Path(filled.location).rglob("*.parquet"))
    gone.unlink()
    error = refused(lambda: filled.load().collect())
    assert isinstance(error, sluice.errors.MissingObject)
    assert gone.name in error.message
    error = refused(lambda: filled.scan().collect())
    assert isinstance(error, sluice.errors.MissingObject)
    assert gone.name in error.message


READS: list[tuple[list[str] | None, str | None]] = [
    (None, None),
    (["t", "n", "id"], None),
    (["n"], None),
    (["ID"], "k = 'a' OR n = 2 AND id > 30"),
    (None, "n IS NULL"),
    (["id"], "day > DATE '2013-01-20' AND d > 1e300"),
    (["id"], "id > 1000"),
]


@pytest.mark.costly
def test_sparks_own_scan_reads_what_arrow_reads(filled: Place) -> None:
    snapshot = filled.table().snapshot()
    for columns, where in READS:
        expected = snapshot.to_arrow(columns, where)
        scanned = filled.scan(columns=columns, where=where)
        assert rows_of(arrow(scanned, from_arrow(expected.schema))) == rows_of(expected), (columns, where)
        assert is_native(scanned)


@pytest.mark.costly
def test_a_condition_on_times_means_utc_whatever_the_sessions_zone(filled: Place) -> None:
    plain = filled.scan(where="t >= TIMESTAMP '2013-01-02 00:00:00'")
    where = "CAST(t AS DATE) >= DATE '2013-01-02'"
    expected = [i for i in range(24, 40) if i % 7 != 6]
    assert is_native(plain)
    assert ids(plain) == expected
    elsewhere = filled.scan(where=where)
    assert not is_native(elsewhere)
    assert ids(elsewhere) == expected == ids(filled.load(where=where))
    with configured(filled.spark, {"spark.sql.session.timeZone": "UTC"}):
        here = filled.scan(where=where)
        assert is_native(here)
        assert ids(here) == expected


@pytest.mark.costly
@pytest.mark.parametrize("folder", ["with space 100%25 é=1", "a[b]*{c}?"])
def test_locations_with_special_characters(place: Place, tmp_path: Path, folder: str) -> None:
    odd = Place(place.spark, str(tmp_path / folder / "t"), place.coordinator)
    odd.write(place.spark.createDataFrame([(1, "x/y"), (2, None)], "id long, p string"), partitionBy="p")
    assert sorted(odd.load().collect()) == [(1, "x/y"), (2, None)]
    scanned = odd.scan()
    assert sorted(scanned.collect()) == [(1, "x/y"), (2, None)]
    assert is_native(scanned)


def test_a_table_of_another_writer_is_read_without_a_coordinator(place: Place) -> None:
    data = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "p": ["é b", "x", None]})
    deltalake.write_deltalake(place.location, data, partition_by=["p"])
    expected = [(1, "é b"), (2, "x"), (3, None)]
    assert sorted(place.load(consistency="published").collect()) == expected
    assert sorted(place.scan(consistency="published").collect()) == expected
    assert isinstance(refused(place.load), sluice.errors.NotATable)


@pytest.mark.costly
def test_every_level_shows_what_was_acknowledged(filled: Place) -> None:
    for number, level in enumerate(("latest", "published", "serial", "session"), 41):
        filled.table().append(rows(number - 1, number))
        assert ids(filled.load(consistency=level)) == list(range(number)), level
        assert ids(filled.scan(consistency=level)) == list(range(number)), level


@pytest.mark.costly
def test_columns_that_came_later_are_null_in_older_files(place: Place) -> None:
    place.write(place.spark.sql("SELECT 1L AS id, named_struct('x', 1L) AS s"))
    place.write(place.spark.sql("SELECT 2L AS id, named_struct('x', 2L, 'y', 'new') AS s, 'z' AS w"), mergeSchema="true")
    expected = [(1, (1, None), None), (2, (2, "new"), "z")]
    assert sorted(place.load().collect()) == expected
    assert sorted(place.scan().collect()) == expected


def test_files_are_dealt_out_by_size() -> None:
    mib = 1024 * 1024
    files = pa.table({"path": [str(i) for i in range(9)], "size": pa.array([200, 1, 1, 90, 100, 1, 190, 1, 10], pa.int64())})
    files = files.set_column(1, "size", pa.array([size * mib for size in files["size"].to_pylist()], pa.int64()))
    parts = balanced(files)
    assert sorted(path for part in parts for path in part["path"].to_pylist()) == sorted(files["path"].to_pylist())
    assert max(sum(part["size"].to_pylist()) for part in parts) == 200 * mib
    assert all(part["path"].to_pylist() == sorted(part["path"].to_pylist()) for part in parts)
    assert len(balanced(files.slice(0, 0))) == 1


def foreign(place: Place, *adds: AddFile, **types: str) -> sluice.Table:
    """A table of another engine's making at the place, attached."""
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in types.items()]
    start: list[Action] = [Protocol(1, 2), Metadata(uuid.uuid4().hex, json.dumps({"type": "struct", "fields": fields}), (), {})]
    log = Path(place.location) / "_delta_log"
    log.mkdir(parents=True)
    (log / f"{0:020d}.json").write_bytes(encode_all([*start, *adds]))
    return sluice.Table.attach(place.location, coordinator=place.coordinator)


def one_file(folder: Path, *numbers: int) -> AddFile:
    """A file of a column `a`, named by its absolute path."""
    folder.mkdir()
    path = folder / "one.parquet"
    pq.write_table(pa.table({"a": list(numbers)}), path)
    return AddFile(f"file:{quote(str(path))}", {}, path.stat().st_size, 1, True)


def test_a_shallow_clone_is_read_by_both_ways(place: Place, tmp_path: Path) -> None:
    foreign(place, one_file(tmp_path / "the source", 1, 2, 3), a="long")
    for frame in (place.load(), place.scan(), place.scan(where="a > 0")):
        assert sorted(row.a for row in frame.collect()) == [1, 2, 3]
    assert is_native(place.scan())
    place.table().delete("a = 2")
    assert sorted(row.a for row in place.scan().collect()) == [1, 3]
    assert (tmp_path / "the source" / "one.parquet").exists()


def test_an_absolute_path_inside_the_table_is_read_by_sparks_own_scan(place: Place) -> None:
    foreign(place, one_file(Path(place.location), 1, 2, 3), a="long")
    frame = place.scan()
    assert is_native(frame)
    assert sorted(row.a for row in frame.collect()) == [1, 2, 3]


def test_a_void_column_is_null_in_spark(place: Place) -> None:
    foreign(place, replace(one_file(Path(place.location), 1), path="one.parquet"), a="long", v="void")
    for frame in (place.load(), place.scan()):
        assert frame.schema["v"].dataType.typeName() == "void"
        assert [tuple(row) for row in frame.collect()] == [(1, None)]
    place.write(place.spark.sql("SELECT 2L AS a, NULL AS v"))
    assert place.rows() == [{"a": 1, "v": None}, {"a": 2, "v": None}]


def test_a_coordinator_in_memory_is_refused_where_other_processes_would_read(place: Place) -> None:
    name = f"memory://{uuid.uuid4().hex}"
    sluice.Table.create(name, pa.schema([("id", pa.int64())]), coordinator=name).append(pa.table({"id": [1]}))
    with pytest.raises(
        sluice.errors.UnsupportedFeature, match=f"no file system for it.*coordinator {name} is in this one's memory.*embedded://"
    ):
        sluice.read(place.spark, name, coordinator=name)
