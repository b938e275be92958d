"""Converts schemas between Spark and Delta, through the JSON form of types that both share."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from pyspark.sql.types import StructType as SparkStruct

from ..storage.errors import Corrupt, InvalidRequest, SchemaMismatch
from ..storage.schema.datatypes import DEFAULT_KEY, GENERATED_KEY, IDENTITY_KEYS, as_nullable
from ..storage.schema.mapping import FIELD_ID_KEY
from ..storage.schema.schema import ArrayType, DataType, MapType, StructField, StructType, parse_schema, schema_to_json, to_arrow


def _plain(node: dict[str, Any], *, kept: Sequence[str] = ("comment",)) -> dict[str, Any]:
    """An object of a schema's JSON. Of a field's metadata only the comment stays, which is for people: the rest steers other engines."""
    metadata = node.get("metadata")
    return node | {"metadata": {name: metadata[name] for name in kept if name in metadata}} if isinstance(metadata, dict) else node


def to_spark(schema: StructType, *, field_ids: bool = False) -> SparkStruct:
    """The Spark type of a table's rows; `field_ids`: of files, whose columns are found by these ids where columns are mapped by id.

    Raises UnsupportedFeature for a type that Spark may know and sluice does not.
    """
    to_arrow(schema)
    kept = ("comment", FIELD_ID_KEY) if field_ids else ("comment",)
    return SparkStruct.fromJson(json.loads(schema_to_json(schema), object_hook=partial(_plain, kept=kept)))


def from_spark(schema: SparkStruct, *, defines: bool = False) -> StructType:
    """The Delta schema of a DataFrame; `defines`: of a new table, whose fields' metadata may have defaults and generation expressions.
    Raises SchemaMismatch for a type that Delta (or sluice) lacks.
    """
    try:
        struct = parse_schema(json.dumps(json.loads(schema.json(), object_hook=_plain)))
    except Corrupt as cause:
        raise SchemaMismatch(f"the DataFrame's schema cannot be a table's: {cause.message}; cast the columns") from cause
    to_arrow(struct)  # raises UnsupportedFeature, which names the type
    if not defines:
        return struct
    fields: list[StructField] = []
    for each, whole in zip(struct.fields, parse_schema(schema.json()).fields, strict=True):
        said = {key: text for key in (DEFAULT_KEY, GENERATED_KEY, *IDENTITY_KEYS) if (text := whole.metadata.get(key)) is not None}
        fields.append(replace(each, metadata={**each.metadata, **said}))
    return StructType(fields)


def for_new_table(schema: StructType) -> StructType:
    """The schema of a table made from data: like in Delta, every column is nullable, since nullability of data is accidental."""
    return StructType([as_nullable(each) for each in schema.fields])


def requested(schema: SparkStruct, table: StructType) -> StructType:
    """The part of a table's schema that a reader requested, with its spelling and nullability. Raises SchemaMismatch for a column the table
    lacks, and for one of another type.
    """
    wanted = from_spark(schema)
    for each in wanted.fields:
        known = table.get(each.name)
        if known is None:
            message = f"column {each.name!r} of the given schema is not in the table; its columns are {', '.join(table.names)}"
            raise SchemaMismatch(message, column=each.name)
        if not _fits(known.type, each.type) or (known.nullable and not each.nullable):
            message = f"the given schema has {each}, the table {known}; a schema chooses columns and changes none: cast after reading"
            raise SchemaMismatch(message, column=each.name)
    return wanted


def _fits(stored: DataType, wanted: DataType) -> bool:
    """Whether values of one type are unchanged values of the other: equal types, except that `wanted` may allow nulls."""
    match stored, wanted:
        case StructType(), StructType():
            return len(stored.fields) == len(wanted.fields) and all(
                a.name == b.name and _fits(a.type, b.type) and (b.nullable or not a.nullable)
                for a, b in zip(stored.fields, wanted.fields, strict=True)
            )
        case ArrayType(), ArrayType():
            return _fits(stored.element_type, wanted.element_type) and (wanted.contains_null or not stored.contains_null)
        case MapType(), MapType():
            fit = _fits(stored.key_type, wanted.key_type) and _fits(stored.value_type, wanted.value_type)
            return fit and (wanted.value_contains_null or not stored.value_contains_null)
    return stored == wanted


_CODECS: Final = {name: name for name in ("zstd", "snappy", "gzip", "lz4")} | {"lz4_raw": "lz4", "none": "none", "uncompressed": "none"}
"""Spark's names of codecs, and Arrow's. Parquet's older lz4, which not every reader knows, is never written. Spark cannot write its lzo
and brotli without other jars."""


def codec_named(text: str, told_by: str) -> str:
    """The codec of this name, by Arrow's name for it; `told_by` says who names it. Raises InvalidRequest."""
    codec = _CODECS.get(text.strip().lower())
    if codec is None:
        raise InvalidRequest(f"{told_by} is {text!r}; it may be {', '.join(_CODECS)}", option=told_by)
    return codec
