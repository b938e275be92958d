"""Changes read through Spark: what Delta's options name, as the Python API tells it.

Streams of changes: each change once, whatever the limits are; versions that alone exceed them become several batches.
Rows go through Spark, both ways, and come out as they went in.
"""

from __future__ import annotations

import datetime as dt
import decimal
import uuid
from collections.abc import Iterator, Mapping
from typing import Any, cast

import deltalake
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame

import sluice
from sluice.spark_integration.data_source.source import SluiceDataSource
from sluice.spark_integration.data_source.stream_reader import SluiceStreamReader
from sluice.storage.actions import Action, actions_of
from sluice.storage.log.timetravel import read_commit
from sluice.storage.schema.conform import adapt
from sluice.storage.schema.schema import ArrayType, MapType, PrimitiveType, StructField, StructType, from_arrow, to_arrow
from sluice.storage.stores.memory import MemoryStore
from sluice.tables.read.versions import ChangedFiles
from tests.spark_integration.conftest import Place, arrow, is_native, refused
from tests.spark_integration.data_source.without_spark import Query
from tests.storage.strategies import rows_of

SCHEMA = pa.schema([("id", pa.int64()), ("n", pa.int32()), ("k", pa.string())])


def rows(*ids: int) -> pa.Table:
    return pa.Table.from_pylist([{"id": i, "n": i % 2, "k": None if i % 5 == 0 else f"k{i}"} for i in ids], schema=SCHEMA)


VECTORS = {"delta.enableDeletionVectors": "true"}
KINDS = {"copies": {}, "vectors": VECTORS, "files": VECTORS | {"delta.enableChangeDataFeed": "true"}}
of_every_kind = pytest.mark.parametrize(
    "changed", [pytest.param(kind, marks=[pytest.mark.long] * (kind != "files")) for kind in KINDS], indirect=True
)


@pytest.fixture
def changed(place: Place, request: pytest.FixtureRequest) -> Place:
    """Versions 0 to 6: created, appended to twice, deleted from, updated, compacted, overwritten in part."""
    table = place.create(SCHEMA, partition_by=["n"], properties=KINDS[getattr(request, "param", "vectors")])
    table.append(rows(*range(10)))
    table.append(rows(*range(10, 20)))
    table.delete("id IN (3, 12)")
    table.update({"k": "concat(k, '!')"}, where="id BETWEEN 6 AND 8")
    table.compact("minor")
    table.overwrite(rows(1, 101), where="n = 1")
    return place


def feed(place: Place, schema: str | None = None, **options: Any) -> DataFrame:
    return place.load(schema, readChangeFeed="true", **options)


RANGES: list[tuple[Mapping[str, Any], int, int | None]] = [
    ({"startingVersion": 0}, -1, None),
    ({"startingVersion": 3}, 2, None),
    ({"startingVersion": 2, "endingVersion": 4}, 1, 4),
    ({"startingVersion": 4, "endingVersion": 4}, 3, 4),
    ({"startingVersion": 5, "endingVersion": 5}, 4, 5),
]


@pytest.mark.costly
@pytest.mark.spark
@of_every_kind
def test_changes_are_those_of_the_table(changed: Place) -> None:
    for told, after, up_to in RANGES:
        expected = changed.table().changes(after, up_to)
        found = feed(changed, **told)
        assert found.columns == ["id", "n", "k", "_change_type", "_commit_version", "_commit_timestamp"]
        assert rows_of(arrow(found, from_arrow(expected.schema))) == rows_of(expected), told
        assert bool(expected.num_rows) == (told != {"startingVersion": 5, "endingVersion": 5}), "a compaction changes no row"


@pytest.mark.spark
def test_changes_by_time_include_both_ends(changed: Place) -> None:
    times = [changed.table().snapshot(version).timestamp for version in range(7)]
    found = feed(changed, startingTimestamp=times[2], endingTimestamp=times[3])
    assert {row["_commit_version"] for row in found.collect()} == {2, 3}


@pytest.mark.spark
def test_columns_and_conditions_of_changes(changed: Place) -> None:
    expected = changed.table().changes(0, columns=["id"], where="_change_type = 'delete' AND id < 10")
    found = feed(changed, "id long, _change_type string", startingVersion=1, where="_change_type = 'delete' AND id < 10")
    assert sorted(map(tuple, found.collect())) == sorted((row["id"], row["_change_type"]) for row in expected.to_pylist())
    assert found.where("id > 3").count() == sum(row["id"] > 3 for row in expected.to_pylist())


@pytest.mark.spark
def test_published_changes_need_no_coordinator(changed: Place) -> None:
    expected = changed.table().changes(-1)
    reader = changed.spark.read.format("sluice").options(readChangeFeed="true", startingVersion=0, consistency="published")
    assert reader.option("coordinator", "zk://127.0.0.1:1/away").load(changed.location).count() == expected.num_rows


@pytest.mark.costly
@pytest.mark.spark
def test_changes_across_a_new_column(place: Place) -> None:
    place.write(place.spark.sql("SELECT 1L AS id"))
    place.write(place.spark.sql("SELECT 2L AS id, 'z' AS w"), mergeSchema="true")
    found = feed(place, startingVersion=0).select("id", "w", "_change_type", "_commit_version")
    assert sorted(map(tuple, found.collect())) == [(1, None, "insert", 0), (2, "z", "insert", 1)]


@pytest.mark.spark
def test_changes_that_are_not_there_are_refused(changed: Place) -> None:
    for first, last in ((99, 99), (2, 99)):
        error = refused(lambda first=first, last=last: feed(changed, startingVersion=first, endingVersion=last))  # type: ignore[misc]
        assert isinstance(error, sluice.errors.VersionNotFound)
    assert isinstance(refused(lambda: feed(changed, startingVersion=3, endingVersion=1)), sluice.errors.InvalidRequest)


@pytest.fixture(params=[{}, VECTORS, {**VECTORS, "delta.enableChangeDataFeed": "true"}])
def table(request: pytest.FixtureRequest) -> Iterator[sluice.Table]:
    """A version of six files, one that changed rows in each of them, one that deleted files, and small ones."""
    name, schema = f"changes-{uuid.uuid4().hex}", pa.schema([("id", pa.int64()), ("p", pa.int64())])
    made = sluice.Table.create(f"memory://{name}", schema, coordinator=f"memory://{name}", partition_by=["p"], properties=request.param)
    made.append(pa.table({"id": list(range(24)), "p": [n % 6 for n in range(24)]}))
    made.update({"id": "id + 100"}, "id < 6")
    made.delete("p < 2")
    for number in range(3):
        made.append(pa.table({"id": [200 + number], "p": [2]}))
    yield made
    MemoryStore.open(name).forget()


@pytest.mark.parametrize("files", [1, 4, 1000])
def test_changes_come_once_whatever_a_batch_takes(table: sluice.Table, files: int) -> None:
    options = {"path": table.location, "coordinator": str(table.access.address.coordinator), "readChangeFeed": "true"}
    query = Query({**options, "startingVersion": "0", "maxFilesPerTrigger": str(files)})
    query.run()
    assert query.error is None
    assert query.rows == sorted(table.changes(-1).to_pylist(), key=repr)
    of = [ChangedFiles(version, read_actions(table, version)) for version in range(table.version + 1)]
    apart = {1: 6, 2: 1 if "UPDATE" in together(table) else 18, 3: of[3].total}
    assert query.batches == {1: sum(apart.values()) + 3, 1000: 1}.get(files, query.batches)


@pytest.mark.parametrize("changes", ["true", "false"])
def test_a_batch_that_was_planned_before_a_restart_is_read_though_nothing_came_after_it(table: sluice.Table, changes: str) -> None:
    options = {"path": table.location, "coordinator": str(table.access.address.coordinator), "readChangeFeed": changes}
    source = SluiceDataSource({**options, "startingVersion": "0" if changes == "true" else "4"})
    schema = source.schema()
    planned, again = (cast("SluiceStreamReader", source.streamReader(schema)) for _ in range(2))
    start = planned.initialOffset()
    end = planned.latestOffset(start, planned.getDefaultReadLimit())
    rows = [sum(batch.num_rows for part in each.partitions(start, end) for batch in each.read(part)) for each in (planned, again)]
    planned.stop()
    again.stop()
    assert rows[0] == rows[1] > 0


def together(table: sluice.Table) -> set[str]:
    """The operations whose changes cannot be divided: files were copied, or change data files have old and new values."""
    by_vectors = table.properties.get("delta.enableDeletionVectors") == "true"
    records = table.properties.get("delta.enableChangeDataFeed") == "true"
    return set() if by_vectors and not records else {"UPDATE"}


def read_actions(table: sluice.Table, version: int) -> list[Action]:
    return list(actions_of(read_commit(table.access.store, version), name=str(version)))


UTC = dt.timezone.utc
NESTED = StructType([StructField("x", PrimitiveType("long"), nullable=False), StructField("when", PrimitiveType("timestamp"))])

# For each primitive type: values at its edges, and text of them that would trip a path.
VALUES: dict[str, list[Any]] = {
    "string": ["", "JFK", "é ü/%2F=#?*:'\"\\{}[]", "__HIVE_DEFAULT_PARTITION__", "\U0001f600" * 30, " "],
    "long": [0, 2**63 - 1, -(2**63)],
    "integer": [0, 2**31 - 1, -(2**31)],
    "short": [0, 2**15 - 1, -(2**15)],
    "byte": [0, 127, -128],
    "float": [0.0, -1.5, float("inf"), float("nan"), 3.4028234663852886e38],
    "double": [0.1, -2.5e-300, float("-inf"), float("nan"), 1.7976931348623157e308],
    "boolean": [True, False],
    "binary": [b"", b"abc", b"a/b=%41"],
    "date": [dt.date(1970, 1, 1), dt.date(1582, 10, 4), dt.date(9999, 12, 31), dt.date(1, 1, 1)],
    "timestamp": [
        dt.datetime(2013, 3, 10, 7, 30, 0, 123456, UTC),
        dt.datetime(1900, 1, 1, tzinfo=UTC),
        dt.datetime(9999, 12, 1, tzinfo=UTC),
    ],
    "timestamp_ntz": [
        dt.datetime.fromisoformat(text) for text in ("2013-03-10T02:30:00.000001", "1900-01-01", "9999-12-31T23:59:59.999999")
    ],
    "decimal(5,2)": [decimal.Decimal("0.00"), decimal.Decimal("-999.99"), decimal.Decimal("1.50")],
    "decimal(38,18)": [decimal.Decimal("0.000000000000000001"), decimal.Decimal("-12345678901234567890.500000000000000000")],
}

DEEP: dict[str, tuple[Any, list[Any]]] = {
    "numbers": (ArrayType(PrimitiveType("integer")), [[1, None, 3], [], None]),
    "strict": (ArrayType(PrimitiveType("string"), False), [["a"], [], None]),
    "people": (ArrayType(NESTED), [[{"x": 1, "when": dt.datetime(2020, 1, 1, tzinfo=UTC)}, None], [], None]),
    "words": (MapType(PrimitiveType("string"), NESTED), [[("k", {"x": 2, "when": None})], [], None]),
    "one": (NESTED, [{"x": 3, "when": dt.datetime(2020, 7, 1, tzinfo=UTC)}, None]),
}


def cycled(values: list[Any], dtype: pa.DataType, rows: int) -> pa.Array:
    """The values and a null, over and over."""
    return pa.array([([*values, None])[row % (len(values) + 1)] for row in range(rows)], dtype)


def table_of(columns: dict[str, tuple[Any, list[Any]]], rows: int) -> tuple[StructType, pa.Table]:
    """Columns c0, c1, ... of these types and values, beside a number for each row."""
    names = {f"c{number}": column for number, column in enumerate(columns.values())}
    schema = StructType(
        [StructField("id", PrimitiveType("long"), nullable=False), *(StructField(name, dtype) for name, (dtype, _) in names.items())]
    )
    fields = to_arrow(schema)
    arrays = [pa.array(range(rows), pa.int64()), *(cycled(values, fields.field(name).type, rows) for name, (_, values) in names.items())]
    return schema, pa.Table.from_arrays(arrays, schema=fields)


PRIMITIVE: dict[str, tuple[Any, list[Any]]] = {name: (PrimitiveType(name), values) for name, values in VALUES.items()}


def everything() -> tuple[StructType, pa.Table]:
    return table_of(PRIMITIVE | DEEP, 12)


def partitions() -> tuple[StructType, pa.Table]:
    return table_of(PRIMITIVE, 14)


@pytest.mark.spark
def test_rows_of_all_types_are_read_and_written_as_they_are(place: Place, zookeeper_address: str, tmp_path: Any) -> None:
    schema, rows = everything()
    place.create(schema).append(rows)
    loaded, scanned = place.load(), place.scan()
    assert loaded.schema["id"].nullable is False
    assert is_native(scanned)
    assert rows_of(arrow(loaded, schema)) == rows_of(arrow(scanned, schema)) == rows_of(rows)
    copy = Place(place.spark, str(tmp_path / "copy"), zookeeper_address)
    copy.write(loaded)
    copied = copy.table().snapshot()
    assert [(f.name, str(f.type)) for f in copied.struct.fields] == [(f.name, str(f.type).replace(" NOT NULL", "")) for f in schema.fields]
    assert all(f.nullable for f in copied.struct.fields), "nullability of data is an accident"
    assert rows_of(adapt(copied.to_arrow(), schema)) == rows_of(rows)
    foreign = deltalake.DeltaTable(copy.location).to_pyarrow_table()
    assert rows_of(adapt(foreign, schema)) == rows_of(rows)


@pytest.mark.costly
@pytest.mark.spark
def test_partitions_of_all_types_nulls_and_special_characters(place: Place, zookeeper_address: str, tmp_path: Any) -> None:
    schema, rows = partitions()
    columns = [f.name for f in schema.fields][1:]
    place.create(schema, partition_by=columns).append(rows)
    expected = rows_of(place.table().snapshot().to_arrow())
    assert expected == rows_of(rows, empty_is_null=("c0", "c8"))
    assert rows_of(arrow(place.load(), schema)) == expected
    assert rows_of(arrow(place.scan(), schema)) == expected
    copy = Place(place.spark, str(tmp_path / "copy"), zookeeper_address)
    copy.write(place.load(), partitionBy=",".join(columns))
    assert copy.table().partition_columns == tuple(columns)
    assert rows_of(copy.table().snapshot().to_arrow()) == expected


@pytest.mark.spark
def test_sparks_own_scan_gives_partition_values_of_each_type(place: Place) -> None:
    schema, rows = table_of({name: column for name, column in PRIMITIVE.items() if name != "string"}, 6)
    columns = [field.name for field in schema.fields][1:]
    place.create(schema, partition_by=columns).append(rows)
    scanned = place.scan()
    assert is_native(scanned)
    assert rows_of(arrow(scanned, schema)) == rows_of(rows, empty_is_null=("c7",))


@pytest.mark.spark
def test_a_text_that_spells_null_is_a_text_in_sparks_own_scan(place: Place) -> None:
    schema = pa.schema([("id", pa.int64()), ("p", pa.string())])
    place.create(schema, partition_by=["p"]).append(pa.table([[1, 2], ["__HIVE_DEFAULT_PARTITION__", None]], schema=schema))
    scanned = place.scan()
    assert is_native(scanned)
    assert sorted(scanned.collect()) == [(1, "__HIVE_DEFAULT_PARTITION__"), (2, None)]


@pytest.mark.spark
def test_no_rows_make_a_table_and_are_read(place: Place) -> None:
    place.write(place.spark.range(3).where("id > 5"))
    assert place.table().version == 0
    assert place.load().collect() == []
    assert place.scan().collect() == []
    place.write(place.spark.range(3).where("id > 5"))
    assert place.table().version == 0, "an append of no rows makes no version"
