"""Definitions of columns as a schema, and back."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from ...statements.columns import Column
from ...storage.errors import InvalidRequest, SchemaMismatch
from ...storage.schema.computed import DEFAULT_KEY, GENERATED_KEY
from ...storage.schema.datatypes import StructField, StructType
from ...storage.schema.sqltypes import LENGTH_KEY, parse_sql_type
from ..request import Request

_FEATURES: Final = {"IDENTITY": "identityColumns"}
_VARCHAR: Final = re.compile(r"\s*varchar\s*\(\s*([1-9][0-9]{0,8})\s*\)\s*", re.IGNORECASE)
_LIMITED: Final = re.compile(r"\b(?:var)?char(?:acter)?\s*\(", re.IGNORECASE)


def struct_of(asked: Request, columns: Sequence[Column]) -> StructType:
    """The columns as a schema. Raises InvalidRequest for one without a type, and for what sluice does not keep."""
    return StructType(field_of(asked, each) for each in columns)


def field_of(asked: Request, column: Column) -> StructField:
    """A column of a schema."""
    if column.refused is not None:
        words, at = column.refused
        feature = _FEATURES.get(words)
        why = (
            f"a column's {words} needs the table feature {feature}, which sluice does not write yet"
            if feature
            else f"sluice keeps no {words}"
        )
        raise asked.unsupported(at, f"{why}: leave it out, and compute values in the query", feature or words)
    if column.type is None:
        raise InvalidRequest(f"column {column.name!r} has no type; write it as {column.name} BIGINT", column=column.name)
    written = column.type.of(asked.text)
    limited = _VARCHAR.fullmatch(written)
    if limited is None and _LIMITED.search(written):
        said = "sluice keeps the length of a whole column, and pads no text: write VARCHAR(n), or STRING inside of others"
        raise asked.unsupported(column.type, said, "CHAR(n), and VARCHAR(n) in structs, arrays and maps")
    try:
        kind = parse_sql_type(written)
    except SchemaMismatch as error:
        raise SchemaMismatch(asked.shown(column.type, error.message), **error.details) from error
    metadata = {} if column.comment is None else {"comment": column.comment}
    if limited is not None:
        metadata[LENGTH_KEY] = f"varchar({limited[1]})"
    for key, place in ((DEFAULT_KEY, column.default), (GENERATED_KEY, column.generated)):
        if place is not None:
            metadata[key] = asked.expression(place)
    return StructField(column.name, kind, column.nullable, metadata)
