"""Table schemas: checks of new ones, stored columns, and merging in new columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Final

from ..constants import CHANGE_COLUMN_NAMES
from ..errors import InvalidRequest, SchemaMismatch, UnsupportedFeature
from .arrow_schema import ACCEPTS, arrow_type, from_arrow, kind, to_arrow
from .conform import conform
from .datatypes import (
    ArrayType,
    DataType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    as_nullable,
    parse_schema,
    require_nesting,
    schema_to_json,
    types_inside,
)

__all__ = [
    "VOID",
    "ArrayType",
    "DataType",
    "MapType",
    "PrimitiveType",
    "StructField",
    "StructType",
    "arrow_type",
    "check_new_schema",
    "conform",
    "from_arrow",
    "merge",
    "parse_schema",
    "schema_to_json",
    "stored_schema",
    "to_arrow",
    "void_columns",
]

VOID: Final = PrimitiveType("void")

# Delta refuses these in column names unless names are mapped: older Parquet readers fail on them.
_NOT_IN_NAMES: Final = frozenset(" ,;{}()\n\t=")


def check_new_schema(schema: StructType, partition_columns: Sequence[str]) -> None:
    """Raise SchemaMismatch or InvalidRequest, with the reason, unless a table can have this schema and partitioning."""
    if not schema.fields:
        raise SchemaMismatch("the schema has no column; give at least one")
    for each in schema.fields:
        require_nesting(each.type)
    _check_names(schema)
    to_arrow(schema)
    _refuse_void(schema, "")
    _refuse_change_columns(schema)
    for name in partition_columns:
        column = next((each for each in schema.fields if each.name == name), None)
        if column is None:
            raise InvalidRequest(f"partition column {name!r} is not in the schema; its columns are {', '.join(schema.names)}", column=name)
        if not isinstance(column.type, PrimitiveType):
            raise InvalidRequest(f"column {name!r} is {column.type}; only columns of primitive types can be partition columns", column=name)
    if len(set(partition_columns)) != len(partition_columns):
        raise InvalidRequest(f"a partition column is named twice in {list(partition_columns)}; name each once")
    if len(partition_columns) == len(schema.fields):
        raise InvalidRequest("every column is a partition column; at least one must remain for the data files")


def _check_names(schema: StructType) -> None:
    for path, dtype in types_inside(schema):
        if path and isinstance(dtype, StructType) and not dtype.fields:
            raise SchemaMismatch(
                f"column {path!r} has a struct without fields, which Parquet cannot hold; give it at least one", column=path
            )
        seen: dict[str, str] = {}
        for each in dtype.fields if isinstance(dtype, StructType) else ():
            name = f"{path}.{each.name}" if path else each.name
            if not each.name:
                raise SchemaMismatch(f"a column of {path or 'the table'} has an empty name; name it", column=name)
            if bad := _NOT_IN_NAMES.intersection(each.name):
                raise SchemaMismatch(f"the column name {name!r} contains {sorted(bad)}, which Delta does not allow; rename it", column=name)
            if other := seen.get(each.name.lower()):
                raise SchemaMismatch(
                    f"the columns {other!r} and {name!r} are the same for Delta, which ignores case; rename one", column=name
                )
            seen[each.name.lower()] = name


def _refuse_change_columns(schema: StructType) -> None:
    for each in schema.fields:
        if each.name.lower() in CHANGE_COLUMN_NAMES:
            raise SchemaMismatch(
                f"the column name {each.name!r} is reserved: readers of the table's changes get {', '.join(CHANGE_COLUMN_NAMES)} beside "
                "its own columns; rename it",
                column=each.name,
            )


def void_columns(schema: StructType) -> Iterator[str]:
    """The paths of all `void` types in a schema."""
    return (path for path, dtype in types_inside(schema) if dtype == VOID)


def _refuse_void(schema: StructType, path: str) -> None:
    for each in void_columns(schema):
        raise SchemaMismatch(
            f"column {path + each!r} has no type (void), so that only null could be in it; give it a type", column=path + each
        )


@lru_cache(maxsize=256)
def stored_schema(schema: StructType, partition_columns: tuple[str, ...]) -> StructType:
    """A table's schema without `void` columns, which contain nulls only and are not in data files.

    Raises UnsupportedFeature if dropping one would lose something: in arrays and maps, or if no column is left.
    """
    kept = [each for field in schema.fields if (each := field if field.name in partition_columns else _stored_field(field, "")) is not None]
    if all(each.name in partition_columns for each in kept):
        raise _no_place_for_void(", ".join(schema.names))
    return schema if kept == list(schema.fields) else StructType(kept)


def _stored_field(field: StructField, path: str) -> StructField | None:
    stored = _stored_type(field.type, f"{path}{field.name}")
    return None if stored is None else field if stored is field.type else replace(field, type=stored)


def _stored_type(dtype: DataType, path: str) -> DataType | None:
    match dtype:
        case PrimitiveType():
            return None if dtype == VOID else dtype
        case StructType(fields):
            kept = [each for field in fields if (each := _stored_field(field, f"{path}.")) is not None]
            if not kept:
                raise _no_place_for_void(path)
            return dtype if kept == list(fields) else StructType(kept)
        case ArrayType(element, _):
            parts = [(element, "element")]
        case MapType(key, value, _):
            parts = [(key, "key"), (value, "value")]
    for part, name in parts:
        if _stored_type(part, f"{path}.{name}") != part:
            raise _no_place_for_void(f"{path}.{name}")
    return dtype


def _no_place_for_void(path: str) -> UnsupportedFeature:
    return UnsupportedFeature(
        f"column {path!r} is void, or contains a void, which Parquet cannot represent; change the column's type with Spark",
        features=("void",),
        access="write",
        column=path,
    )


def merge(table: StructType, data: StructType) -> StructType:
    """The table's schema with the data's new columns at the end, in nested structs, too.

    New columns are nullable, since older rows lack them. A common column keeps the table's type; data that cannot be stored
    in it is refused with SchemaMismatch.
    """
    merged = _merge_struct(table, data, "")
    for each in merged.fields if merged is not table else ():
        require_nesting(each.type)
    added = StructType(merged.fields[len(table.fields) :])
    _check_names(added)
    _refuse_change_columns(added)
    return merged


def _merge_struct(table: StructType, data: StructType, path: str) -> StructType:
    fields = [_merge_field(each, data.get(each.name), path) for each in table.fields]
    added = [as_nullable(each) for each in data.fields if table.get(each.name) is None]
    _refuse_void(StructType(added), path)
    return table if not added and all(a is b for a, b in zip(fields, table.fields, strict=True)) else StructType([*fields, *added])


def _merge_field(mine: StructField, theirs: StructField | None, path: str) -> StructField:
    if theirs is None:
        return mine
    merged = _merge_type(mine.type, theirs.type, f"{path}{mine.name}")
    return mine if merged is mine.type else replace(mine, type=merged)


def _merge_type(mine: DataType, theirs: DataType, path: str) -> DataType:
    match mine, theirs:
        case _, PrimitiveType("void"):
            return mine
        case PrimitiveType(), PrimitiveType() if kind(theirs) in ACCEPTS.get(kind(mine), ()):
            return mine
        case StructType(), StructType():
            return _merge_struct(mine, theirs, f"{path}.")
        case ArrayType(), ArrayType():
            element = _merge_type(mine.element_type, theirs.element_type, f"{path}.element")
            return mine if element is mine.element_type else replace(mine, element_type=element)
        case MapType(), MapType():
            key = _merge_type(mine.key_type, theirs.key_type, f"{path}.key")
            value = _merge_type(mine.value_type, theirs.value_type, f"{path}.value")
            return mine if key is mine.key_type and value is mine.value_type else replace(mine, key_type=key, value_type=value)
    raise SchemaMismatch(
        f"column {path!r} is {mine} in the table and {theirs} in the data; merge_schema adds columns and changes no type: cast the data",
        column=path,
    )
