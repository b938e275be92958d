"""Converts statistics in Arrow structs to the log's JSON text ("Per-file Statistics" in PROTOCOL.md).

It works column by column: each leaf becomes an array of JSON literals, and each struct joins those of its fields. Null
fields are omitted, as in the log.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from ..jsontext import dumps

__all__ = ["struct_to_json"]

# A text without these characters is its own JSON string between quotes.
_SPECIAL = r'["\\\x00-\x1f]'


def struct_to_json(values: pa.StructArray) -> pa.StringArray:
    """The JSON object of each struct; null if the struct is null.

    Dates and timestamps become ISO 8601 text (with milliseconds, UTC with a Z), decimals and numbers JSON numbers; a
    floating-point number that is not finite has no JSON form and is omitted.
    """
    return _literal(values)


def _literal(values: pa.Array) -> pa.StringArray:
    """Each value as JSON; null if it is null or has no JSON form."""
    kind = values.type
    if pa.types.is_struct(kind):
        return _object(values)
    if pa.types.is_dictionary(kind):
        return _literal(values.dictionary_decode())
    if pa.types.is_floating(kind):
        return pc.if_else(pc.is_finite(values), values.cast(pa.string()), pa.scalar(None, pa.string()))
    if pa.types.is_date(kind):
        return _quoted(values.cast(pa.string()))
    if pa.types.is_timestamp(kind):
        milliseconds = values.cast(pa.timestamp("ms", kind.tz), safe=False)
        return _quoted(pc.strftime(milliseconds, format="%Y-%m-%dT%H:%M:%S" + ("Z" if kind.tz else "")))
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _quoted(values.cast(pa.string()))
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_decimal(kind):
        return values.cast(pa.string())
    # Binary and variant columns have no minimum or maximum in the log's JSON.
    return pa.nulls(len(values), pa.string())


def _object(values: pa.StructArray) -> pa.StringArray:
    joined = pa.array([""] * len(values), pa.string())
    for each in values.type:
        literal = _literal(pc.struct_field(values, each.name))
        # Each member begins with its comma, and a null one is empty; the first comma is removed at the end.
        member = pc.binary_join_element_wise(f",{dumps(each.name).decode()}:", literal, "")
        joined = pc.binary_join_element_wise(joined, pc.fill_null(member, ""), "")
    objects = pc.binary_join_element_wise("{", pc.ascii_ltrim(joined, characters=","), "}", "")
    return pc.if_else(pc.is_valid(values), objects, pa.scalar(None, pa.string()))


def _quoted(texts: pa.StringArray) -> pa.StringArray:
    quoted = pc.binary_join_element_wise('"', texts, '"', "")
    special = pc.fill_null(pc.match_substring_regex(texts, _SPECIAL), False)
    if pc.any(special).as_py():
        escaped = [dumps(text).decode() for text in texts.filter(special).to_pylist()]
        quoted = pc.replace_with_mask(quoted, special, pa.array(escaped, pa.string()))
    return quoted
