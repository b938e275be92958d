"""Definitions of columns as a schema, and back."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from ..statements.columns import Column
from ..storage.errors import InvalidRequest
from ..storage.schema.datatypes import StructField, StructType
from ..storage.schema.sqltypes import parse_sql_type
from .request import Request

__all__ = ["field_of", "struct_of"]

_FEATURES: Final = {"DEFAULT": "allowColumnDefaults", "GENERATED": "generatedColumns"}
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
    if _LIMITED.search(written):
        remedy = f"write STRING, and a CHECK such as length({column.name}) <= 10"
        raise asked.unsupported(column.type, f"sluice keeps no length of a text: {remedy}", "CHAR and VARCHAR")
    kind = parse_sql_type(written)
    return StructField(column.name, kind, column.nullable, {} if column.comment is None else {"comment": column.comment})
