"""Converts schemas between Spark and Delta, through the JSON form of types that both share."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Final

from pyspark.sql.types import StructType as SparkStruct

from ..storage.errors import Corrupt, InvalidRequest, SchemaMismatch
from ..storage.schema.computed import DEFAULT_KEY, GENERATED_KEY
from ..storage.schema.datatypes import as_nullable
from ..storage.schema.schema import ArrayType, DataType, MapType, StructType, parse_schema, schema_to_json, to_arrow

# Metadata of fields that other engines keep steer those engines; only comments are for people.
_METADATA_KEPT = ("comment",)


def to_spark(schema: StructType) -> SparkStruct:
    """The Spark type of a table's rows."""
    return SparkStruct.fromJson(json.loads(schema_to_json(_plain_struct(schema))))


def from_spark(schema: SparkStruct, *, defines: bool = False) -> StructType:
    """The Delta schema of a DataFrame; `defines`: of a new table, whose fields' metadata may have defaults and generation expressions.

    Raises SchemaMismatch for a type that Delta (or sluice) lacks.
    """
    try:
        parsed = parse_schema(schema.json())
        struct = _plain_struct(parsed)
    except Corrupt as cause:
        raise SchemaMismatch(f"the DataFrame's schema cannot be a table's: {cause.message}; cast the columns") from cause
    to_arrow(struct)  # raises UnsupportedFeature, which names the type
    if not defines:
        return struct
    said = ({key: text for key in (DEFAULT_KEY, GENERATED_KEY) if (text := each.metadata.get(key)) is not None} for each in parsed.fields)
    return StructType(replace(each, metadata={**each.metadata, **more}) for each, more in zip(struct.fields, said, strict=True))


def for_new_table(schema: StructType) -> StructType:
    """The schema of a table made from data: like in Delta, every column is nullable, since nullability of data is accidental."""
    return StructType([as_nullable(each) for each in schema.fields])


def requested(schema: SparkStruct, table: StructType) -> StructType:
    """The part of a table's schema that a reader requested, with its spelling and nullability.

    Raises SchemaMismatch for a column the table lacks, and for one of another type.
    """
    wanted = from_spark(schema)
    for each in wanted.fields:
        known = table.get(each.name)
        if known is None:
            raise SchemaMismatch(
                f"column {each.name!r} of the given schema is not in the table; its columns are {', '.join(table.names)}", column=each.name
            )
        if not _fits(known.type, each.type) or (known.nullable and not each.nullable):
            raise SchemaMismatch(
                f"the given schema has {each}, the table {known}; a schema chooses columns and changes none: cast after reading",
                column=each.name,
            )
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
            return (
                _fits(stored.key_type, wanted.key_type)
                and _fits(stored.value_type, wanted.value_type)
                and (wanted.value_contains_null or not stored.value_contains_null)
            )
    return stored == wanted


def _plain_struct(schema: StructType) -> StructType:
    return StructType(
        replace(each, type=_plain(each.type), metadata={name: each.metadata[name] for name in _METADATA_KEPT if name in each.metadata})
        for each in schema.fields
    )


def _plain(dtype: DataType) -> DataType:
    match dtype:
        case StructType():
            return _plain_struct(dtype)
        case ArrayType():
            return replace(dtype, element_type=_plain(dtype.element_type))
        case MapType():
            return replace(dtype, key_type=_plain(dtype.key_type), value_type=_plain(dtype.value_type))
    return dtype


_CODECS: Final = {
    "zstd": "zstd",
    "snappy": "snappy",
    "gzip": "gzip",
    "lz4": "lz4",
    "lz4_raw": "lz4",
    "none": "none",
    "uncompressed": "none",
}
"""Spark's names of codecs, and Arrow's. Parquet's older lz4, which not every reader knows, is never written. Spark cannot write its lzo
and brotli without other jars."""


def codec_named(text: str, told_by: str) -> str:
    """The codec of this name, by Arrow's name for it; `told_by` says who names it. Raises InvalidRequest."""
    codec = _CODECS.get(text.strip().lower())
    if codec is None:
        raise InvalidRequest(f"{told_by} is {text!r}; it may be {', '.join(_CODECS)}", option=told_by)
    return codec
