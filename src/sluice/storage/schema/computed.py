"""Columns whose values a writer fills in, by the metadata of fields: defaults, and values generated from other columns.

The texts are Spark SQL, under the keys of Delta Lake and Spark ("Default Columns", "Generated Columns" in PROTOCOL.md).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Final

import pyarrow as pa

from .datatypes import StructField, StructType, fields_inside, from_arrow

DEFAULT_KEY: Final = "CURRENT_DEFAULT"
GENERATED_KEY: Final = "delta.generationExpression"
_FEATURES: Final = {DEFAULT_KEY: "allowColumnDefaults", GENERATED_KEY: "generatedColumns"}
# What a field of an Arrow schema may say of the column that it defines.
_DEFINING: Final = (DEFAULT_KEY, GENERATED_KEY, "comment")
_KEYWORD: Final = "DEFAULT"


def default_of(field: StructField) -> str | None:
    """The SQL of a column's default; None if it has none."""
    text = field.metadata.get(DEFAULT_KEY)
    return None if text is None else str(text)


def generated_of(field: StructField) -> str | None:
    """The SQL from which a generated column's values are made; None for any other column."""
    text = field.metadata.get(GENERATED_KEY)
    return None if text is None else str(text)


def is_filled(field: StructField) -> bool:
    """Whether rows may lack the column because their writer fills it in."""
    return DEFAULT_KEY in field.metadata or GENERATED_KEY in field.metadata


@lru_cache(maxsize=64)
def features_of_columns(schema: StructType) -> frozenset[str]:
    """The table features that the columns need."""
    return frozenset(feature for key, feature in _FEATURES.items() if any(key in each.metadata for each in schema.fields))


def to_give(schema: StructType, names: Collection[str]) -> StructType:
    """The columns that rows with columns of these `names` give: without those that they lack and their writer fills in."""
    given = {each.lower() for each in names}
    kept = [each for each in schema.fields if each.name.lower() in given or not is_filled(each)]
    return schema if len(kept) == len(schema.fields) else StructType(kept)


def defined(schema: pa.Schema) -> StructType:
    """The columns that an Arrow schema defines for a new table: fields may have defaults, generation expressions and comments as metadata.

    Raises SchemaMismatch for a type that Delta lacks.
    """
    fields: list[StructField] = []
    for field, each in zip(from_arrow(schema).fields, schema, strict=True):
        said = each.metadata or {}
        defining = {key: said[key.encode()].decode() for key in _DEFINING if key.encode() in said}
        fields.append(replace(field, metadata=defining) if defining else field)
    return StructType(fields)


def nested_with_value(schema: StructType) -> str | None:
    """The path of a field inside a column that has a default or is generated, which only columns of the table itself may; else None."""
    inside = (found for column in schema.fields for found in fields_inside(column.type, column.name))
    return next((path for path, field in inside if is_filled(field)), None)


def is_word_default(text: str, schema: StructType) -> bool:
    """Whether an assigned value is the word DEFAULT; in a table with a column of that name it is the column."""
    return text.strip().upper() == _KEYWORD and schema.get(_KEYWORD) is None


def with_values_of_defaults(assigned: Mapping[str, str], schema: StructType) -> dict[str, str]:
    """The assignments with a column's default in place of the word DEFAULT (NULL without one); generated columns are left out, since
    they are computed.
    """
    found: dict[str, str] = {}
    for name, text in assigned.items():
        field = schema.get(name.strip("`")) if isinstance(name, str) else None
        if field is None or not isinstance(text, str) or not is_word_default(text, schema):
            found[name] = text
        elif generated_of(field) is None:
            found[name] = default_of(field) or "NULL"
    return found
