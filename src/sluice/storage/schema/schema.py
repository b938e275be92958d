"""Table schemas: checks of new ones, stored columns, merging in new columns, and columns added or changed at any depth."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Final, NoReturn, TypeAlias, cast

from ..constants import CHANGE_COLUMN_NAMES
from ..dataclass import dataclass
from ..errors import InvalidRequest, SchemaMismatch, UnsupportedFeature
from .conform import conform
from .datatypes import (
    ACCEPTS,
    VARIANT,
    ArrayType,
    DataType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    arrow_type,
    as_nullable,
    from_arrow,
    kind,
    parse_schema,
    parts_of,
    require_nesting,
    schema_to_json,
    to_arrow,
    types_inside,
)
from .identity import check_identities
from .mapping import MODE_KEY, is_mapped

__all__ = [
    "VOID",
    "ArrayType",
    "DataType",
    "MapType",
    "Place",
    "PrimitiveType",
    "StructField",
    "StructType",
    "added",
    "arrow_type",
    "changed",
    "check_new_schema",
    "conform",
    "field_at",
    "from_arrow",
    "merge",
    "parse_schema",
    "removed",
    "retyped",
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
    _check_names(schema, is_mapped=is_mapped(schema))
    to_arrow(schema)
    _refuse_void(schema, "")
    for name in partition_columns:
        column = next((each for each in schema.fields if each.name == name), None)
        if column is None:
            raise InvalidRequest(f"partition column {name!r} is not in the schema; its columns are {', '.join(schema.names)}", column=name)
        # check: no-partitions-by-variants
        if not isinstance(column.type, PrimitiveType) or column.type == VARIANT:
            raise InvalidRequest(f"column {name!r} is {column.type}; only columns of primitive types can be partition columns", column=name)
    if len(set(partition_columns)) != len(partition_columns):
        raise InvalidRequest(f"a partition column is named twice in {list(partition_columns)}; name each once")
    if len(partition_columns) == len(schema.fields):
        raise InvalidRequest("every column is a partition column; at least one must remain for the data files")
    check_identities(schema, partition_columns)


def _check_names(schema: StructType, *, is_mapped: bool = False) -> None:
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
            if (bad := _NOT_IN_NAMES.intersection(each.name)) and not is_mapped:
                raise SchemaMismatch(
                    f"the column name {name!r} contains {sorted(bad)}, which Delta allows with column mapping only: rename it, or set "
                    f"{MODE_KEY} to 'name'",
                    column=name,
                )
            if other := seen.get(each.name.lower()):
                raise SchemaMismatch(
                    f"the columns {other!r} and {name!r} are the same for Delta, which ignores case; rename one", column=name
                )
            seen[each.name.lower()] = name
            if not path and each.name.lower() in CHANGE_COLUMN_NAMES:
                raise SchemaMismatch(
                    f"the column name {each.name!r} is reserved: readers of the table's changes get {', '.join(CHANGE_COLUMN_NAMES)} "
                    "beside its own columns; rename it",
                    column=each.name,
                )


def void_columns(schema: StructType) -> list[str]:
    """The paths of all `void` types in a schema."""
    return [path for path, dtype in types_inside(schema) if dtype == VOID]


def _refuse_void(schema: StructType, path: str) -> None:
    for each in void_columns(schema):
        raise SchemaMismatch(
            f"column {path + each!r} has no type (void), so that only null could be in it; give it a type", column=path + each
        )


@lru_cache(maxsize=256)
def stored_schema(schema: StructType, partition_columns: tuple[str, ...]) -> StructType:
    """A table's schema without `void` columns, which contain nulls only and are not in data files. Raises UnsupportedFeature if dropping
    one would lose something: in arrays and maps, or if no column is left.
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
    for name, part in parts_of(dtype):
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
    """The table's schema with the data's new columns at the end, in nested structs, too. New columns are nullable, since older rows lack
    them. A common column keeps the table's type; data that cannot be stored in it is refused with SchemaMismatch.
    """
    merged = _merge_struct(table, data, "")
    for each in merged.fields if merged is not table else ():
        require_nesting(each.type)
    _check_names(StructType(merged.fields[len(table.fields) :]), is_mapped=is_mapped(table))
    return merged


def _merge_struct(table: StructType, data: StructType, path: str) -> StructType:
    fields: list[StructField] = []
    for mine in table.fields:
        theirs = data.get(mine.name)
        merged = mine.type if theirs is None else _merge_type(mine.type, theirs.type, f"{path}{mine.name}")
        fields.append(mine if merged is mine.type else replace(mine, type=merged))
    added = [as_nullable(each) for each in data.fields if table.get(each.name) is None]
    _refuse_void(StructType(added), path)
    return table if not added and all(a is b for a, b in zip(fields, table.fields, strict=True)) else StructType([*fields, *added])


def _merge_type(mine: DataType, theirs: DataType, path: str) -> DataType:
    match mine, theirs:
        case _, PrimitiveType("void"):
            return mine
        case PrimitiveType(), PrimitiveType() if kind(theirs) in ACCEPTS.get(kind(mine), ()):
            return mine
        case PrimitiveType("variant"), StructType():
            return mine  # whether it is one shows when the rows are fitted
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


# -- columns added or changed, at any depth: fields of structs, `element` of arrays, `key` and `value` of maps ------------------


@dataclass(frozen=True, slots=True)
class Place:
    """Where a column goes among its siblings: after the one of that name, or first (None)."""

    after: str | None = None


_Change: TypeAlias = Callable[[DataType, str], DataType]


def added(schema: StructType, path: Sequence[str], field: StructField, place: Place | None = None) -> StructType:
    """The schema with a new field in the struct at `path` (() is the table itself), at the end or at a place. Raises InvalidRequest if
    there is one of that name, if the path leads to no struct, and for a place after nothing.
    """

    def add(struct: StructType, at: str) -> StructType:
        if struct.get(field.name) is not None:
            raise InvalidRequest(f"there is a column {at}{field.name} already", column=at + field.name)
        return StructType(_placed([*struct.fields], field, place, at))

    return cast(StructType, _within(schema, tuple(path), _of_struct(add), ""))


def changed(
    schema: StructType, path: Sequence[str], change: Callable[[StructField], StructField], place: Place | None = None
) -> StructType:
    """The schema with the field at `path` changed, and moved to a place, if one is given. Raises InvalidRequest."""
    *parents, name = path

    def put(struct: StructType, at: str) -> StructType:
        old = struct.named(name, at)
        new = change(old)
        if place is None:
            return StructType(new if each is old else each for each in struct.fields)
        return StructType(_placed([each for each in struct.fields if each is not old], new, place, at))

    return cast(StructType, _within(schema, tuple(parents), _of_struct(put), ""))


def retyped(schema: StructType, path: Sequence[str], dtype: DataType) -> tuple[StructType, DataType]:
    """The schema with another type at the path, and the type that was there. Raises InvalidRequest if the path leads to nothing."""
    types: list[DataType] = []

    def put(old: DataType, _: str) -> DataType:
        types.append(old)
        return dtype

    return cast(StructType, _within(schema, tuple(path), put, "")), types[0]


def removed(schema: StructType, path: Sequence[str]) -> StructType:
    """The schema without the field at `path`. Raises InvalidRequest if there is none, or if nothing would be left beside it."""
    *parents, name = path

    def take(struct: StructType, at: str) -> StructType:
        gone = struct.named(name, at)
        if len(struct.fields) == 1:
            raise InvalidRequest(
                f"{at}{gone.name} is the only column of {at[:-1] or 'the table'}, and one has to stay", column=at + gone.name
            )
        return StructType(each for each in struct.fields if each is not gone)

    return cast(StructType, _within(schema, tuple(parents), _of_struct(take), ""))


def field_at(schema: StructType, path: Sequence[str]) -> StructField:
    """The field at a path. Raises InvalidRequest if there is none."""
    fields: list[StructField] = []

    def note(field: StructField) -> StructField:
        fields.append(field)
        return field

    changed(schema, path, note)
    return fields[0]


def _placed(fields: list[StructField], field: StructField, place: Place | None, at: str) -> list[StructField]:
    if place is None:
        return [*fields, field]
    if place.after is None:
        return [field, *fields]
    number = fields.index(StructType(fields).named(place.after, at)) + 1
    return [*fields[:number], field, *fields[number:]]


def _of_struct(change: Callable[[StructType, str], StructType]) -> _Change:
    return lambda dtype, at: change(dtype, at) if isinstance(dtype, StructType) else _no_fields(dtype, at)


def _no_fields(dtype: DataType, at: str) -> NoReturn:
    raise InvalidRequest(f"{at.rstrip('.')} is {dtype}, which has no fields; name a struct (arrays: .element, maps: .key and .value)")


def _within(dtype: DataType, path: tuple[str, ...], change: _Change, at: str) -> DataType:
    """The type in which the one at the path is changed."""
    match dtype:
        case _ if not path:
            return change(dtype, at)
        case StructType():
            field = dtype.named(path[0], at)
            inner = _within(field.type, path[1:], change, f"{at}{field.name}.")
            return StructType(replace(each, type=inner) if each is field else each for each in dtype.fields)
        case ArrayType() if path[:1] == ("element",):
            return replace(dtype, element_type=_within(dtype.element_type, path[1:], change, f"{at}element."))
        case MapType() if path[:1] == ("key",):
            return replace(dtype, key_type=_within(dtype.key_type, path[1:], change, f"{at}key."))
        case MapType() if path[:1] == ("value",):
            return replace(dtype, value_type=_within(dtype.value_type, path[1:], change, f"{at}value."))
    _no_fields(dtype, at)
