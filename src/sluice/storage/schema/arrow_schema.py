"""Converts Delta schemas to Arrow and back.

A Delta table has timestamps in microseconds and no unsigned numbers, so the way back widens: uint8 becomes short, uint16
integer, uint32 long, uint64 decimal(20,0), half floats float. No value is lost.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import pyarrow as pa

from ..errors import SchemaMismatch, UnsupportedFeature
from .datatypes import ArrayType, DataType, MapType, PrimitiveType, StructField, StructType, too_nested

_TO_ARROW: Final = {
    "string": pa.string(),
    "long": pa.int64(),
    "integer": pa.int32(),
    "short": pa.int16(),
    "byte": pa.int8(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "void": pa.null(),
}
_FROM_ARROW: Final = {
    pa.int8(): "byte",
    pa.int16(): "short",
    pa.int32(): "integer",
    pa.int64(): "long",
    pa.uint8(): "short",
    pa.uint16(): "integer",
    pa.uint32(): "long",
    pa.uint64(): "decimal(20,0)",
    pa.float16(): "float",
    pa.float32(): "float",
    pa.float64(): "double",
}
_PRECISION_MAX: Final = 38

# The kinds of values that a column of each kind takes, as long as each value survives unchanged.
ACCEPTS: Final = {
    "integer": frozenset({"integer", "decimal"}),
    "float": frozenset({"integer", "float"}),
    "decimal": frozenset({"integer", "decimal"}),
    "string": frozenset({"string"}),
    "binary": frozenset({"binary"}),
    "boolean": frozenset({"boolean"}),
    "date": frozenset({"date"}),
    "timestamp": frozenset({"timestamp"}),
    "timestamp_ntz": frozenset({"timestamp_ntz"}),
    "void": frozenset[str](),
}


def kind(dtype: PrimitiveType) -> str:
    """The kind of a primitive type's values; see ACCEPTS."""
    if dtype.is_decimal:
        return "decimal"
    if dtype.name in {"byte", "short", "integer", "long"}:
        return "integer"
    return "float" if dtype.name in {"float", "double"} else dtype.name


def arrow_kind(dtype: pa.DataType) -> str | None:
    """The kind of a plain Arrow type's values; None for types that Delta lacks."""
    types = pa.types
    if types.is_integer(dtype):
        return "integer"
    if types.is_floating(dtype):
        return "float"
    if types.is_decimal(dtype):
        return "decimal"
    if types.is_string(dtype) or types.is_large_string(dtype) or types.is_string_view(dtype):
        return "string"
    if types.is_binary(dtype) or types.is_large_binary(dtype) or types.is_fixed_size_binary(dtype) or types.is_binary_view(dtype):
        return "binary"
    if types.is_boolean(dtype):
        return "boolean"
    if types.is_date(dtype):
        return "date"
    if types.is_timestamp(dtype):
        return "timestamp_ntz" if dtype.tz is None else "timestamp"
    return None


@lru_cache(maxsize=256)
def to_arrow(schema: StructType) -> pa.Schema:
    """The Arrow schema of a table's rows. Raises UnsupportedFeature for a type that sluice cannot represent."""
    return pa.schema([_arrow_field(each) for each in schema.fields])


def arrow_type(dtype: DataType, path: str = "") -> pa.DataType:
    """The Arrow type of the column at `path`. Raises UnsupportedFeature, naming the column, for a type that sluice cannot represent."""
    match dtype:
        case PrimitiveType():
            return _arrow_primitive(dtype, path)
        case ArrayType(element, nulls):
            return pa.list_(pa.field("element", arrow_type(element, f"{path}.element"), nulls))
        case MapType(key, value, nulls):
            keys = pa.field("key", arrow_type(key, f"{path}.key"), False)
            return pa.map_(keys, pa.field("value", arrow_type(value, f"{path}.value"), nulls))
        case StructType(fields):
            return pa.struct([_arrow_field(each, f"{path}.") for each in fields])


def _arrow_field(each: StructField, path: str = "") -> pa.Field:
    return pa.field(each.name, arrow_type(each.type, path + each.name), each.nullable)


def _arrow_primitive(dtype: PrimitiveType, path: str) -> pa.DataType:
    found = _TO_ARROW.get(dtype.name)
    if found is not None:
        return found
    if dtype.is_decimal and 1 <= dtype.precision <= _PRECISION_MAX and dtype.scale <= dtype.precision:
        return pa.decimal128(dtype.precision, dtype.scale)
    what = f"column {path!r} has the type {dtype.name!r}" if path else f"the type is {dtype.name!r}"
    raise UnsupportedFeature(
        f"{what}, which sluice does not support; it knows {', '.join(_TO_ARROW)}, decimal(p,s) with p <= 38, arrays, maps and structs",
        features=(dtype.name,),
        access="read",
        column=path or None,
    )


def from_arrow(schema: pa.Schema) -> StructType:
    """The Delta schema for such data without loss; a column of nulls without a type is void.

    Raises SchemaMismatch for a type that Delta lacks.
    """
    try:
        return StructType(_delta_field(each, each.name) for each in schema)
    except RecursionError:
        raise too_nested() from None


def _delta_field(each: pa.Field, path: str) -> StructField:
    return StructField(each.name, _delta_type(each.type, path), each.nullable)


def _delta_type(dtype: pa.DataType, path: str) -> DataType:
    types = pa.types
    if isinstance(dtype, pa.BaseExtensionType):
        return _delta_type(dtype.storage_type, path)
    if types.is_dictionary(dtype) or types.is_run_end_encoded(dtype):
        return _delta_type(dtype.value_type, path)
    if types.is_map(dtype):
        key = _delta_type(dtype.key_type, f"{path}.key")
        return MapType(key, _delta_type(dtype.item_type, f"{path}.value"), dtype.item_field.nullable)
    if is_list(dtype):
        return ArrayType(_delta_type(dtype.value_type, f"{path}.element"), dtype.value_field.nullable)
    if types.is_struct(dtype):
        return StructType(_delta_field(each, f"{path}.{each.name}") for each in dtype.fields)
    return _delta_primitive(dtype, path)


def _delta_primitive(dtype: pa.DataType, path: str) -> PrimitiveType:
    if pa.types.is_null(dtype):
        return PrimitiveType("void")
    if dtype in _FROM_ARROW:
        return PrimitiveType(_FROM_ARROW[dtype])
    found = arrow_kind(dtype)
    if found == "decimal" and 0 <= dtype.scale <= dtype.precision <= _PRECISION_MAX:
        return PrimitiveType(f"decimal({dtype.precision},{dtype.scale})")
    if found is None or found == "decimal":
        raise SchemaMismatch(
            f"column {path!r} has the Arrow type {dtype}, which no Delta type can represent; cast it, to int64 or string for instance",
            column=path,
        )
    return PrimitiveType(found)


def is_list(dtype: pa.DataType) -> bool:
    """Whether an Arrow type is one of the list types (a map is not)."""
    types = pa.types
    return bool(
        types.is_list(dtype)
        or types.is_large_list(dtype)
        or types.is_fixed_size_list(dtype)
        or types.is_list_view(dtype)
        or types.is_large_list_view(dtype)
    )
