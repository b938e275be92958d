"""Data files against engines that are not ours: what we write they read, what they write we read."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import polars as pl
import pyarrow as pa
import pytest

from sluice.storage.actions import AddFile
from sluice.storage.actions.filetable import add_rows
from sluice.storage.data.datafiles import FileFormat, write_files
from sluice.storage.schema.schema import StructType, from_arrow, parse_schema, schema_to_json, to_arrow
from sluice.storage.stores.local import LocalStore
from sluice.storage.stores.location import normalise
from tests.storage.data.reading import read_files
from tests.storage.strategies import comparable, naive

UTC = dt.timezone.utc

INNER = pa.struct([pa.field("a", pa.int32()), pa.field("b", pa.string(), nullable=False)])
TYPES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "string": (pa.string(), ["é ü \U0001f600" * 20, "", None, "a/b=c%20"]),
    "long": (pa.int64(), [2**63 - 1, -(2**63), None, 0]),
    "integer": (pa.int32(), [2**31 - 1, -(2**31), None, 0]),
    "short": (pa.int16(), [2**15 - 1, -(2**15), None, 0]),
    "byte": (pa.int8(), [127, -128, None, 0]),
    "float": (pa.float32(), [0.10000000149011612, float("inf"), None, float("nan")]),
    "double": (pa.float64(), [0.1, float("-inf"), None, float("nan")]),
    "boolean": (pa.bool_(), [True, False, None, True]),
    "binary": (pa.binary(), [b"\x00\xff", b"", None, b"abc"]),
    "date": (pa.date32(), [dt.date(1, 1, 1), dt.date(9999, 12, 31), None, dt.date(2020, 2, 29)]),
    "timestamp": (
        pa.timestamp("us", "UTC"),
        [
            dt.datetime(1900, 1, 1, 0, 0, 0, 1, UTC),
            dt.datetime(2262, 5, 1, tzinfo=UTC),
            None,
            dt.datetime(2020, 1, 1, 0, 0, 0, 999999, UTC),
        ],
    ),
    "timestamp_ntz": (
        pa.timestamp("us"),
        [naive(1900, 1, 1, 0, 0, 0, 1), naive(9999, 12, 31, 23, 59, 59, 999999), None, naive(2020, 1, 1)],
    ),
    "decimal_9": (pa.decimal128(9, 2), [Decimal("1.50"), Decimal("-9999999.99"), None, Decimal("0.00")]),
    "decimal_38": (pa.decimal128(38, 18), [Decimal("1E-18"), Decimal("9" * 20 + "." + "9" * 18), None, Decimal("-1.000000000000000001")]),
    "array": (pa.list_(pa.field("element", pa.int64())), [[1, None], [], None, [2]]),
    "map": (pa.map_(pa.string(), pa.int64()), [[("a", 1), ("b", None)], [], None, [("c", 3)]]),
    "struct": (INNER, [{"a": 1, "b": "x"}, {"a": None, "b": ""}, None, {"a": 2, "b": "y"}]),
    "deep": (
        pa.list_(pa.field("element", pa.struct([pa.field("s", INNER)]))),
        [[{"s": {"a": 1, "b": "x"}}], [None, {"s": None}], None, []],
    ),
}

# Values of partition columns; texts that fare badly in paths, and what is no text in JSON.
PARTITIONS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "string": (
        pa.string(),
        ["a b", "a/b", "100%", "%41", "k=v", "é ü", "\U0001f600", "#?&+;:@", "'\"\\", "[x]^{y}", None, " lead", "~!$()*,", "2020-01-01"],
    ),
    "long": (pa.int64(), [2**63 - 1, -1, None]),
    "integer": (pa.int32(), [-(2**31), 7, None]),
    "short": (pa.int16(), [1, None]),
    "byte": (pa.int8(), [-128, None]),
    "float": (pa.float32(), [0.5, 0.10000000149011612, None]),
    "double": (pa.float64(), [0.1, 1e300, None]),
    "boolean": (pa.bool_(), [True, False, None]),
    "date": (pa.date32(), [dt.date(2020, 2, 29), dt.date(1, 1, 1), None]),
    "timestamp": (pa.timestamp("us", "UTC"), [dt.datetime(2020, 1, 1, 1, 2, 3, 456789, UTC), dt.datetime(2020, 1, 1, tzinfo=UTC), None]),
    "timestamp_ntz": (pa.timestamp("us"), [naive(2020, 1, 1, 1, 2, 3, 456789), naive(2020, 1, 1), None]),
    "decimal": (pa.decimal128(10, 2), [Decimal("1.50"), Decimal("-0.01"), None]),
    "binary": (pa.binary(), [b"ab", None]),
}

# deltalake 1.6 itself cannot write these: the folder's name gets too long, and the text becomes "0.-1".
NOT_WRITTEN_BY_DELTALAKE = [1e300, Decimal("-0.01")]


def all_types() -> pa.Table:
    return pa.table({name: pa.array(values, dtype) for name, (dtype, values) in TYPES.items()})


def partitioned(name: str) -> pa.Table:
    dtype, values = PARTITIONS[name]
    return pa.table({"p": pa.array(values, dtype), "x": pa.array(range(len(values)), pa.int64())})


def write_table(folder: Path, data: pa.Table, partition_columns: list[str]) -> tuple[StructType, list[AddFile]]:
    """A Delta table of one commit, its log written by hand."""
    schema = from_arrow(data.schema)
    adds = write_files(LocalStore(normalise(folder)), [data], FileFormat(schema, tuple(partition_columns)), transaction_id="tx")
    ntz = "timestamp_ntz" in schema_to_json(schema)
    protocol: dict[str, Any] = {"minReaderVersion": 1, "minWriterVersion": 2}
    if ntz:
        protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["timestampNtz"], "writerFeatures": ["timestampNtz"]}
    metadata = {
        "id": "11111111-2222-3333-4444-555555555555",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": schema_to_json(schema),
        "partitionColumns": partition_columns,
        "configuration": {},
        "createdTime": 0,
    }
    lines: list[dict[str, Any]] = [{"protocol": protocol}, {"metaData": metadata}]
    for add in adds:
        body = {"path": add.path, "partitionValues": dict(add.partition_values), "size": add.size, "stats": add.stats}
        lines.append({"add": {**body, "modificationTime": add.modification_time, "dataChange": True}})
    log = folder / "_delta_log"
    log.mkdir(parents=True)
    (log / f"{0:020d}.json").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return schema, adds


def read_by_deltalake(folder: Path) -> pa.Table:
    return pa.table(deltalake.QueryBuilder().register("t", deltalake.DeltaTable(str(folder))).execute("SELECT * FROM t").read_all())


def same(found: pa.Table, expected: pa.Table, key: str | None = None) -> None:
    """Whether both hold the same rows, types of another width (large_string, ...) aside."""
    assert sorted(found.column_names) == sorted(expected.column_names)
    left, right = (_rows(table.select(expected.column_names), key) for table in (found, expected))
    assert left == right


def _rows(table: pa.Table, key: str | None) -> list[Any]:
    rows = [comparable(row) for row in table.to_pylist()]
    return rows if key is None else sorted(rows, key=lambda row: row[key])


def read_by_polars(folder: Path) -> pa.Table:
    return pl.read_delta(str(folder)).to_arrow()


# Polars has no maps in its data frames, and no binary partition columns; what it lacks, it cannot be asked for.
@pytest.mark.parametrize(("read", "lacking"), [(read_by_deltalake, []), (read_by_polars, ["map"])])
def test_others_read_every_type_we_write(tmp_path: Path, read: Callable[[Path], pa.Table], lacking: list[str]) -> None:
    data = all_types().drop_columns(lacking)
    write_table(tmp_path, data, [])
    same(read(tmp_path), data)


@pytest.mark.parametrize("name", PARTITIONS)
def test_others_read_the_partition_values_we_write(tmp_path: Path, name: str) -> None:
    data = partitioned(name)
    write_table(tmp_path, data, ["p"])
    for read in (read_by_deltalake, read_by_polars) if name != "binary" else (read_by_deltalake,):
        same(read(tmp_path), data, "x")


def test_others_find_rows_by_our_statistics(tmp_path: Path) -> None:
    data = all_types().slice(0, 1).drop_columns(["map", "array", "struct", "deep", "binary", "boolean"])
    write_table(tmp_path, data, [])
    table = deltalake.DeltaTable(str(tmp_path))
    conditions = [
        f"string = '{TYPES['string'][1][0]}'",
        "long = 9223372036854775807",
        "byte = 127",
        "date = DATE '0001-01-01'",
        "timestamp >= TIMESTAMP '1900-01-01T00:00:00.000001Z'",
        "decimal_9 = 1.50",
        "double = 0.1",
    ]
    for condition in conditions:
        found = deltalake.QueryBuilder().register("t", table).execute(f"SELECT count(*) AS n FROM t WHERE {condition}").read_all()
        assert pa.table(found).column("n").to_pylist() == [1], condition
    lazy = pl.scan_delta(str(tmp_path))
    for column in data.column_names:
        wanted = pl.lit(data.column(column)[0].as_py(), dtype=lazy.collect_schema()[column])
        assert lazy.filter(pl.col(column) == wanted).collect().height == 1, column


def read_of_deltalake(folder: Path) -> pa.Table:
    """Our reading of the files of a table that deltalake wrote."""
    table = deltalake.DeltaTable(str(folder))
    schema = parse_schema(table.schema().to_json())
    actions = [json.loads(line) for file in sorted((folder / "_delta_log").glob("*.json")) for line in file.read_text().splitlines()]
    bodies = [action["add"] for action in actions if "add" in action]
    adds = [AddFile(each["path"], each["partitionValues"], each["size"], each["modificationTime"], True, each["stats"]) for each in bodies]
    partition_columns = table.metadata().partition_columns
    found = read_files(LocalStore(normalise(folder)), add_rows(adds), schema=schema, partition_columns=partition_columns)
    assert found.schema.equals(to_arrow(schema), check_metadata=True)
    return found


def test_we_read_every_type_that_others_write(tmp_path: Path) -> None:
    data = all_types()
    deltalake.write_deltalake(str(tmp_path / "deltalake"), data)
    same(read_of_deltalake(tmp_path / "deltalake"), data)
    pl.DataFrame(data.drop_columns(["map"])).write_delta(str(tmp_path / "polars"))
    same(read_of_deltalake(tmp_path / "polars"), data.drop_columns(["map"]))


@pytest.mark.parametrize("name", PARTITIONS)
def test_we_read_the_partition_values_deltalake_writes(tmp_path: Path, name: str) -> None:
    data = pa.Table.from_pylist([row for row in partitioned(name).to_pylist() if row["p"] not in NOT_WRITTEN_BY_DELTALAKE])
    data = data.cast(partitioned(name).schema)
    deltalake.write_deltalake(str(tmp_path), data, partition_by=["p"])
    found = read_of_deltalake(tmp_path)
    same(found, read_by_deltalake(tmp_path), "x")
    if name != "binary":  # of which deltalake writes an escaped form that it reads back as it stands
        same(found, data, "x")
