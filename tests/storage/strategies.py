"""Random schemas, and tables of them, for property tests."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from sluice.storage.schema.schema import ArrayType, DataType, MapType, PrimitiveType, StructField, StructType, to_arrow

UTC = dt.timezone.utc

# For properties: a machine that is busy is no failure.
unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def examples(count: int) -> settings:
    """For a property that takes as many examples to be tried; in proportion fewer where a profile asks for few."""
    return settings(unhurried, max_examples=max(1, count * unhurried.max_examples // 100))


def naive(year: int, month: int, day: int, hour: int = 0, minute: int = 0, second: int = 0, microsecond: int = 0) -> dt.datetime:
    """A moment without a zone."""
    return dt.datetime(year, month, day, hour, minute, second, microsecond, UTC).replace(tzinfo=None)


# Text that trips parsers, truncation and paths, beside whatever hypothesis thinks of.
NASTY = ["", " ", "a/b", "100%", "%2F", "a=b", "é ü", "x" * 33, "\x01\n\t", "#?[]", "__HIVE_DEFAULT_PARTITION__"]
NASTY += ["\U0001f600" * 40, "\U0010ffff" * 40, "퟿" * 40]

TEXT = st.sampled_from(NASTY) | st.text(st.characters(exclude_categories=["Cs"]), max_size=40)

PRIMITIVES = ["string", "long", "integer", "short", "byte", "float", "double", "boolean", "binary", "date", "timestamp", "timestamp_ntz"]
PRIMITIVES += ["decimal(1,0)", "decimal(9,9)", "decimal(18,4)", "decimal(38,0)", "decimal(38,18)", "decimal(38,38)"]


def primitive_types() -> st.SearchStrategy[PrimitiveType]:
    return st.sampled_from(PRIMITIVES).map(PrimitiveType)


def values(dtype: DataType) -> st.SearchStrategy[Any]:
    """Values (never null) of a type, as Python sees them."""
    match dtype:
        case ArrayType(element, nulls):
            return st.lists(_maybe_null(element, nulls), max_size=3)
        case MapType(key, value, nulls):
            return st.lists(st.tuples(values(key), _maybe_null(value, nulls)), max_size=3, unique_by=lambda entry: repr(entry[0]))
        case StructType(fields):
            return st.fixed_dictionaries({each.name: _maybe_null(each.type, each.nullable) for each in fields})
        case PrimitiveType():
            return primitive_values(dtype)


def primitive_values(dtype: PrimitiveType) -> st.SearchStrategy[Any]:
    bits = {"byte": 8, "short": 16, "integer": 32, "long": 64}
    if dtype.name in bits:
        bound = 2 ** (bits[dtype.name] - 1)
        return st.integers(-bound, bound - 1)
    if dtype.is_decimal:
        largest = 10**dtype.precision - 1
        return st.integers(-largest, largest).map(lambda unscaled: Decimal(f"{unscaled}E-{dtype.scale}"))
    return {
        "string": TEXT,
        "float": st.floats(width=32),
        "double": st.floats(),
        "boolean": st.booleans(),
        "binary": st.binary(max_size=8),
        "date": st.dates(),
        "timestamp": st.datetimes(timezones=st.just(UTC)),
        "timestamp_ntz": st.datetimes(),
    }[dtype.name]


def _maybe_null(dtype: DataType, nullable: bool) -> st.SearchStrategy[Any]:
    return st.none() | values(dtype) if nullable else values(dtype)


def data_types() -> st.SearchStrategy[DataType]:
    """Any type, nested ones too."""

    def nested(inner: st.SearchStrategy[DataType]) -> st.SearchStrategy[DataType]:
        arrays = st.builds(ArrayType, inner, st.booleans())
        maps = st.builds(MapType, primitive_types(), inner, st.booleans())
        structs = st.lists(st.tuples(inner, st.booleans()), min_size=1, max_size=3).map(_struct)
        return arrays | maps | structs

    return st.recursive(primitive_types(), nested, max_leaves=4)


def _struct(parts: list[tuple[DataType, bool]]) -> StructType:
    return StructType(StructField(f"f{index}", dtype, nullable) for index, (dtype, nullable) in enumerate(parts))


@st.composite
def schemas(draw: st.DrawFn, min_partitions: int = 0, max_partitions: int = 2) -> tuple[StructType, list[str]]:
    """A schema, and the names of its partition columns."""
    stored = draw(st.lists(st.tuples(data_types(), st.booleans()), min_size=1, max_size=3))
    split = draw(st.lists(primitive_types(), min_size=min_partitions, max_size=max_partitions))
    fields = [StructField(f"c{index}", dtype, nullable) for index, (dtype, nullable) in enumerate(stored)]
    partitions = [StructField(f"p {index}=", dtype) for index, dtype in enumerate(split)]
    return StructType(draw(st.permutations([*fields, *partitions]))), [each.name for each in partitions]


@st.composite
def tables(draw: st.DrawFn, schema: StructType, max_rows: int = 12) -> pa.Table:
    """Rows of a schema; partition columns (named p...) take few values, and binary ones only text."""
    rows = draw(st.integers(0, max_rows))
    columns = []
    for each, field in zip(schema.fields, to_arrow(schema), strict=True):
        pool = _maybe_null(each.type, each.nullable)
        if each.name.startswith("p"):
            if each.type == PrimitiveType("binary"):
                pool = st.none() | TEXT.map(str.encode)
            pool = st.sampled_from(draw(st.lists(pool, min_size=1, max_size=3)))
        columns.append(pa.array(draw(st.lists(pool, min_size=rows, max_size=rows)), field.type))
    return pa.Table.from_arrays(columns, schema=to_arrow(schema))


def comparable(value: Any) -> Any:
    """A value that equals another exactly when both are the same, NaN and nested ones included."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else (value, math.copysign(1.0, value))
    if isinstance(value, dict):
        return {name: comparable(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [comparable(inner) for inner in value]
    return value


def rows_of(table: pa.Table, empty_is_null: tuple[str, ...] = ()) -> list[str]:
    """The rows as texts in a fixed order; columns in `empty_is_null` have null for empty text, as partitions do."""
    rows = table.to_pylist()
    for row in rows:
        for name in empty_is_null:
            row[name] = None if row[name] in ("", b"") else row[name]
    return sorted(repr(comparable(row)) for row in rows)
