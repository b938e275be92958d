"""Reads the JSON of a record field by field; errors name a field of the wrong type."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import fields as dataclass_fields
from enum import Enum
from typing import Any, Final, TypeVar

import orjson

from ..storage.errors import InvalidRequest

__all__ = ["MalformedRecord", "load", "maybe_int", "maybe_object", "one_of", "require_known", "strings", "typed"]


_SHOWN_CHARACTERS_MAX: Final = 200


class MalformedRecord(InvalidRequest):
    """Raised when a node's data is not a record of the expected kind."""


def load(data: bytes, kind: str) -> dict[str, Any]:
    """The JSON object of a record called `kind`. Raises MalformedRecord."""
    try:
        fields = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise MalformedRecord(f"a {kind} record does not parse: {error}", kind=kind) from error
    if not isinstance(fields, dict):
        raise MalformedRecord(f"a {kind} record is {type(fields).__name__}, not an object", kind=kind)
    return fields


def require_known(fields: Mapping[str, Any], record: type, kind: str) -> None:
    """Raise MalformedRecord for a field unknown to this version of a record.

    For records that are decided on: an unknown field may be important.
    """
    unknown = fields.keys() - _names(record)
    if unknown:
        named = ", ".join(sorted(unknown))[:200]
        raise MalformedRecord(f"a {kind} has the unknown fields {named}: it is of a newer version of sluice, or malformed", kind=kind)


@functools.lru_cache
def _names(record: type) -> frozenset[str]:
    return frozenset(each.name for each in dataclass_fields(record))


_T = TypeVar("_T")


def typed(value: object, kind: type[_T], what: str) -> _T:
    """The value, which must be of a type; a boolean is not a number."""
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise MalformedRecord(f"{what} is {_shown(value)}, not of type {kind.__name__}", kind=what)
    return value


def maybe_int(value: object, what: str) -> int | None:
    """A whole number, or None if there is none."""
    return None if value is None else typed(value, int, what)


def maybe_object(value: object, what: str) -> dict[str, Any] | None:
    """An object, or None if there is none."""
    return None if value is None else typed(value, dict, what)


def one_of(kinds: type[Enum], value: object, what: str) -> str:
    """The value of one member of an enumeration."""
    named = typed(value, str, what)
    if named not in {each.value for each in kinds}:
        raise MalformedRecord(f"{what} is {_shown(named)}; use one of {', '.join(str(each.value) for each in kinds)}", kind=what)
    return named


def strings(value: object, what: str) -> tuple[str, ...]:
    """A list of texts."""
    return tuple(typed(v, str, what) for v in typed(value, list, what))


def _shown(value: object) -> str:
    """A value in a message, which may become part of a record itself."""
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS_MAX else text[:_SHOWN_CHARACTERS_MAX] + "..."
