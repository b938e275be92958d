"""Column mapping ("Column Mapping" in PROTOCOL.md): columns have names for people, which may change, and names in files, which never do.

A field's metadata has its number and its *physical name*. Data files, their statistics and partition values, change data files, clustering
columns and the conditions of filed intents name columns physically; users, SQL and schemas name them logically. So a column can be
renamed or dropped by a change of metadata, and what others wrote under the earlier name is still right.

By name (`name`), readers find a file's columns by their physical names; by number (`id`), by the field ids of Parquet. A table without
column mapping has the physical names that its schema says, and pays nothing: `is_mapped` is asked first.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final, cast

import pyarrow as pa

from .datatypes import ArrayType, DataType, MapType, StructField, StructType, fields_inside, parse_schema, to_arrow

MODE_KEY: Final = "delta.columnMapping.mode"
MAPPING_MODES: Final = ("none", "name", "id")
HIGHEST_ID_KEY: Final = "delta.columnMapping.maxColumnId"
ID_KEY: Final = "delta.columnMapping.id"
PHYSICAL_NAME_KEY: Final = "delta.columnMapping.physicalName"
FIELD_ID_KEY: Final = "parquet.field.id"
"""Says, to Spark too, that a field is found in files by this field id. `Metadata.schema` has it where columns are mapped by id."""
MAPPING_KEYS: Final = frozenset({ID_KEY, PHYSICAL_NAME_KEY, FIELD_ID_KEY, "delta.columnMapping.nested.ids", "parquet.field.nested.ids"})
"""What column mapping adds to the metadata of fields."""
_PARQUET_ID: Final = b"PARQUET:field_id"
_OTHER: Final = re.compile(r"\W+", re.ASCII)
_STEM_CHARACTERS_MAX: Final = 32


def mapping_mode(configuration: Mapping[str, str]) -> str:
    """How the table's columns are mapped: `none`, `name` or `id`."""
    return configuration.get(MODE_KEY, "none").lower()


@lru_cache(maxsize=256)
def schema_of(text: str, mode: str) -> StructType:
    """The schema in a metadata action of a table with that mode. Without a mapping, what an earlier one left in it means nothing."""
    schema = parse_schema(text)
    if mode.lower() == "none":
        return unmapped(schema)
    return without_keys(schema, {FIELD_ID_KEY}) if mode.lower() == "name" else with_field_ids(schema)


def with_field_ids(schema: StructType) -> StructType:
    """The schema whose numbered fields have field ids, too."""

    def with_id(field: StructField) -> StructField:
        number = field.metadata.get(ID_KEY)
        return field if number is None else replace(field, metadata={**field.metadata, FIELD_ID_KEY: number})

    return cast(StructType, _with_fields(schema, with_id))


def physical_name(field: StructField) -> str:
    """The name of a field in files."""
    return str(field.metadata.get(PHYSICAL_NAME_KEY, field.name))


@lru_cache(maxsize=256)
def physical(schema: StructType) -> StructType:
    """The schema with the names that files have."""
    return schema if not is_mapped(schema) else _with_fields(schema, lambda each: replace(each, name=physical_name(each)))


def for_scan(schema: StructType) -> StructType:
    """The schema with names under which Spark's scan finds the columns of files: physical ones; or, by field ids, names that no file has,
    since Spark confuses a column with another one of its name.
    """
    if not is_found_by_id(schema):
        return physical(schema)

    def numbered(field: StructField) -> StructField:
        number = field.metadata.get(FIELD_ID_KEY)
        return field if number is None else replace(field, name=f"field {number}")

    return cast(StructType, _with_fields(schema, numbered))


@lru_cache(maxsize=256)
def is_mapped(schema: StructType) -> bool:
    """Whether a field has a name in files of its own."""
    return any(PHYSICAL_NAME_KEY in each.metadata for _, each in fields_inside(schema))


def physical_names(schema: StructType, columns: Iterable[str]) -> tuple[str, ...]:
    """The names in files of top-level columns, which are those of the schema or, like row ids, not in it."""
    return tuple([name if (field := schema.get(name)) is None else physical_name(field) for name in columns])


def physical_path(path: Iterable[str], schema: StructType) -> tuple[str, ...]:
    """The path of a column through structs, in names of files. What the schema does not have stays as it is."""
    return _path(path, schema, StructType.get, physical_name)


def logical_path(path: Iterable[str], schema: StructType) -> tuple[str, ...]:
    """The path of a column of files through structs, in the schema's names. What the schema does not have stays as it is."""
    return _path(path, schema, lambda fields, name: next((f for f in fields.fields if physical_name(f) == name), None), lambda f: f.name)


def logical_name(name: str, schema: StructType) -> str:
    """The schema's name of a top-level column of files; the same for a column that the schema does not have."""
    return logical_path((name,), schema)[0]


def _path(
    path: Iterable[str],
    inside: DataType | None,
    get: Callable[[StructType, str], StructField | None],
    name_of: Callable[[StructField], str],
) -> tuple[str, ...]:
    renamed: list[str] = []
    for name in path:
        field = get(inside, name) if isinstance(inside, StructType) else None
        inside = None if field is None else field.type
        renamed.append(name if field is None else name_of(field))
    return tuple(renamed)


def _with_fields(dtype: Any, change: Callable[[StructField], StructField]) -> Any:
    """The type with every field in it changed, outer ones first."""
    match dtype:
        case StructType(fields):
            return StructType([replace(new := change(each), type=_with_fields(new.type, change)) for each in fields])
        case ArrayType(element, _):
            return replace(dtype, element_type=_with_fields(element, change))
        case MapType(key, value, _):
            return replace(dtype, key_type=_with_fields(key, change), value_type=_with_fields(value, change))
    return dtype


# -- numbers and names of columns ------------------------------------------------------------------------------------------


def mapped(schema: StructType, configuration: Mapping[str, str], *, keep_names: bool = False) -> tuple[StructType, dict[str, str]]:
    """The schema in which every field has its number and its name in files, and the properties that say the highest number.

    Without column mapping both are as they were, but for what an earlier mapping left. `keep_names`: there are files, which have the
    fields' present names. The other new fields get names that no file has: what was dropped is not read again under its old name.
    """
    if mapping_mode(configuration) == "none":
        return unmapped(schema), {key: value for key, value in configuration.items() if key != HIGHEST_ID_KEY}
    fields = [each for _, each in fields_inside(schema)]
    highest = max([int(configuration.get(HIGHEST_ID_KEY, 0)), *(int(each.metadata.get(ID_KEY, 0)) for each in fields)])
    numbers = iter(range(highest + 1, highest + 1 + len(fields)))

    def with_both(field: StructField) -> StructField:
        nonlocal highest
        if ID_KEY not in field.metadata:
            highest = next(numbers)
            field = replace(field, metadata={**field.metadata, ID_KEY: highest})
        if PHYSICAL_NAME_KEY not in field.metadata:
            stem = _OTHER.sub("_", field.name)[:_STEM_CHARACTERS_MAX].strip("_") or "column"
            name = field.name if keep_names else f"{stem}-{uuid.uuid4().hex[:12]}"
            field = replace(field, metadata={**field.metadata, PHYSICAL_NAME_KEY: name})
        return field

    return _with_fields(without_keys(schema, {FIELD_ID_KEY}), with_both), {**configuration, HIGHEST_ID_KEY: str(highest)}


def unmapped(schema: StructType) -> StructType:
    """The schema without numbers and names of files."""
    return without_keys(schema, MAPPING_KEYS)


def without_keys(schema: StructType, keys: AbstractSet[str]) -> StructType:
    """The schema without these keys in the metadata of its fields, on every level."""
    if all(keys.isdisjoint(each.metadata) for _, each in fields_inside(schema)):
        return schema
    plain: StructType = _with_fields(
        schema, lambda field: replace(field, metadata={key: value for key, value in field.metadata.items() if key not in keys})
    )
    return plain


def with_columns_of(schema: StructType, base: StructType) -> StructType:
    """The schema in which fields that `base` has, too, with the same type, are these columns: their numbers and names in files stay."""

    def as_before(field: StructField) -> StructField:
        before = base.get(field.name)
        if before is None or ID_KEY in field.metadata or not is_same_type(before, field):
            return field
        return replace(
            field, type=before.type, metadata={**field.metadata, **{k: v for k, v in before.metadata.items() if k in MAPPING_KEYS}}
        )

    return StructType(map(as_before, schema.fields))


def is_same_type(one: StructField, other: StructField) -> bool:
    """Whether two fields have the same type, however their parts are called in files."""
    alone = (unmapped(StructType([StructField("", each.type)])) for each in (one, other))
    return next(alone) == next(alone)


# -- rows under other names ------------------------------------------------------------------------------------------------


class _Named:
    """A batch whose fields have the names of another schema of the same types; no data is copied."""

    def __init__(self, batch: pa.RecordBatch, schema: pa.Schema) -> None:
        self._batch, self._schema = batch, schema

    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]:
        return self._schema.__arrow_c_schema__(), self._batch.__arrow_c_array__()[1]


def named_as(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """The rows under the names of `schema`, whose types are the same but for names, in their order; on every level."""
    if rows.schema.equals(schema, check_metadata=True):
        return rows
    if rows.schema.types == schema.types:
        return pa.Table.from_arrays(rows.columns, schema=schema)
    return pa.Table.from_batches([pa.record_batch(_Named(batch, schema)) for batch in rows.to_batches()], schema)


def parquet_schema(stored: StructType) -> pa.Schema:
    """The Arrow schema of files with these columns, in names of files, with the field ids that Parquet keeps."""
    return pa.schema(list(_with_ids(to_arrow(stored), stored)))


def _with_ids(arrow: Iterable[pa.Field], fields: StructType) -> Iterator[pa.Field]:
    for each, field in zip(arrow, fields.fields, strict=True):
        number = field.metadata.get(ID_KEY)
        with_inner = each.with_type(_type_with_ids(each.type, field.type))
        yield with_inner if number is None else with_inner.with_metadata({_PARQUET_ID: str(number)})


def _type_with_ids(arrow: pa.DataType, dtype: DataType) -> pa.DataType:
    match dtype:
        case StructType():
            return pa.struct(list(_with_ids(arrow.fields, dtype)))
        case ArrayType(element, _):
            return pa.list_(arrow.value_field.with_type(_type_with_ids(arrow.value_type, element)))
        case MapType(key, value, _):
            return pa.map_(
                arrow.key_field.with_type(_type_with_ids(arrow.key_type, key)),
                arrow.item_field.with_type(_type_with_ids(arrow.item_type, value)),
            )
    return arrow


@lru_cache(maxsize=256)
def is_found_by_id(schema: StructType) -> bool:
    """Whether files' columns are found by their field ids."""
    return any(FIELD_ID_KEY in each.metadata for each in schema.fields)


def as_in_table(file: pa.Schema, stored: StructType) -> pa.Schema:
    """The schema of a file in which fields have the physical names of the table's columns `stored`: those with their field ids, where
    columns are mapped by id. Fields without an id keep their names.
    """
    numbers = {each.metadata.get(FIELD_ID_KEY): physical_name(each) for _, each in fields_inside(stored)}
    return pa.schema([_named_by_id(each, numbers) for each in file])


def _named_by_id(field: pa.Field, numbers: Mapping[Any, str]) -> pa.Field:
    text = (field.metadata or {}).get(_PARQUET_ID)
    kind = field.type
    if pa.types.is_struct(kind):
        kind = pa.struct([_named_by_id(each, numbers) for each in kind.fields])
    elif pa.types.is_map(kind):
        kind = pa.map_(_named_by_id(kind.key_field, numbers), _named_by_id(kind.item_field, numbers))
    elif pa.types.is_list(kind):
        kind = pa.list_(_named_by_id(kind.value_field, numbers))
    name = numbers.get(int(text), f"{field.name} (another column)") if text is not None else field.name
    return field.with_type(kind).with_name(name)
