"""Rows go through Spark, both ways, and come out as they went in."""

from __future__ import annotations

import datetime as dt
import decimal
from typing import Any

import deltalake
import pyarrow as pa
import pytest

from sluice.storage.schema.conform import adapt
from sluice.storage.schema.schema import ArrayType, MapType, PrimitiveType, StructField, StructType, to_arrow
from tests.storage.strategies import rows_of

from ..conftest import Place, arrow, is_native

pytestmark = pytest.mark.spark

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


def test_rows_of_all_types_are_read_as_they_were_written(place: Place) -> None:
    schema, rows = everything()
    place.create(schema).append(rows)
    loaded = place.load()
    assert loaded.schema["id"].nullable is False
    assert rows_of(arrow(loaded, schema)) == rows_of(rows)
    scanned = place.scan()
    assert is_native(scanned)
    assert rows_of(arrow(scanned, schema)) == rows_of(rows)


def test_rows_of_all_types_are_written_as_they_are_in_spark(place: Place, zookeeper_address: str, tmp_path: Any) -> None:
    schema, rows = everything()
    place.create(schema).append(rows)
    copy = Place(place.spark, str(tmp_path / "copy"), zookeeper_address)
    copy.write(place.load())
    copied = copy.table().snapshot()
    assert [(f.name, str(f.type)) for f in copied.struct.fields] == [(f.name, str(f.type).replace(" NOT NULL", "")) for f in schema.fields]
    assert all(f.nullable for f in copied.struct.fields), "nullability of data is an accident"
    assert rows_of(adapt(copied.to_arrow(), schema)) == rows_of(rows)
    foreign = deltalake.DeltaTable(copy.location).to_pyarrow_table()
    assert rows_of(adapt(foreign, schema)) == rows_of(rows)


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


def test_sparks_own_scan_gives_partition_values_of_each_type(place: Place) -> None:
    schema, rows = table_of({name: column for name, column in PRIMITIVE.items() if name != "string"}, 6)
    columns = [field.name for field in schema.fields][1:]
    place.create(schema, partition_by=columns).append(rows)
    scanned = place.scan()
    assert is_native(scanned)
    assert rows_of(arrow(scanned, schema)) == rows_of(rows, empty_is_null=("c7",))


def test_a_text_that_spells_null_is_a_text_in_sparks_own_scan(place: Place) -> None:
    schema = pa.schema([("id", pa.int64()), ("p", pa.string())])
    place.create(schema, partition_by=["p"]).append(pa.table([[1, 2], ["__HIVE_DEFAULT_PARTITION__", None]], schema=schema))
    scanned = place.scan()
    assert is_native(scanned)
    assert sorted(scanned.collect()) == [(1, "__HIVE_DEFAULT_PARTITION__"), (2, None)]


def test_no_rows_make_a_table_and_are_read(place: Place) -> None:
    place.write(place.spark.range(3).where("id > 5"))
    assert place.table().version == 0
    assert place.load().collect() == []
    assert place.scan().collect() == []
    place.write(place.spark.range(3).where("id > 5"))
    assert place.table().version == 0, "an append of no rows makes no version"
