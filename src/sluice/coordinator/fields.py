"""Reads the JSON of records by the types of their fields; errors name a field of the wrong type."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Sequence
from dataclasses import MISSING, is_dataclass
from dataclasses import fields as dataclass_fields
from types import NoneType, UnionType
from typing import Annotated, Any, Final, TypeAlias, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import orjson

from ..storage.errors import InvalidRequest

_SHOWN_CHARACTERS_MAX: Final = 200


class MalformedRecord(InvalidRequest):
    """Raised when a node's data is not a record of the expected kind."""


def load(data: bytes, kind: str) -> dict[str, Any]:
    """The JSON object of a record called `kind`. Raises MalformedRecord."""
    try:
        return typed(orjson.loads(data), dict, f"a {kind} record")
    except orjson.JSONDecodeError as error:
        raise MalformedRecord(f"a {kind} record does not parse: {error}", kind=kind) from error


_T = TypeVar("_T")


def typed(value: object, kind: type[_T], what: str) -> _T:
    """The value, which must be of a type; a boolean is not a number."""
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise MalformedRecord(f"{what} is {_shown(value)}, not of type {kind.__name__}", kind=what)
    return value


def decoded(record: type[_T], value: object, what: str, *, exactly: bool = True) -> _T:
    """The dataclass `record` from its JSON object, each field by its type. Raises MalformedRecord.

    `exactly`: it has all fields and no others, as records must that are decided on, since an unknown field may be important.
    Otherwise unknown fields are ignored, and missing ones have their defaults. An `Annotated[str, values]` is one of the values.
    """
    fields = typed(value, dict, what)
    readers, needed = _readers(cast(Hashable, record), exactly)
    wrong = needed - fields.keys() | (fields.keys() - readers.keys() if exactly else set())
    if wrong:
        named = ", ".join(f"{'lacks' if name in readers else 'has the unknown field'} {name}" for name in sorted(wrong))
        raise MalformedRecord(f"{what} {named[:_SHOWN_CHARACTERS_MAX]}: it is of a newer version of sluice, or malformed", kind=what)
    return record(**{name: read(fields[name], f"{what}.{name}") for name, read in readers.items() if name in fields})


_Reader: TypeAlias = Callable[[Any, str], Any]


@functools.lru_cache
def _readers(record: Any, exactly: bool) -> tuple[dict[str, _Reader], frozenset[str]]:
    """How each field of a dataclass is read, and the fields that must be there."""
    hints = get_type_hints(record, include_extras=True)
    listed = dataclass_fields(record)
    needed = frozenset(each.name for each in listed if exactly or (each.default is MISSING and each.default_factory is MISSING))
    return {each.name: _reader(hints[each.name], exactly) for each in listed}, needed


def _reader(hint: Any, exactly: bool) -> _Reader:
    """How a value of a type is read."""
    origin, inner = get_origin(hint), get_args(hint)
    if isinstance(hint, type) and is_dataclass(hint):
        return lambda value, what: decoded(hint, value, what, exactly=exactly)
    if origin is Annotated:
        return lambda value, what: _one_of(inner[1], value, what)
    if origin in (Union, UnionType):
        given = _reader(next(each for each in inner if each is not NoneType), exactly)
        return lambda value, what: None if value is None else given(value, what)
    if origin in (tuple, list):
        element = _reader(inner[0], exactly)
        return lambda value, what: origin(element(each, what) for each in typed(value, list, what))
    if origin is not None:
        element = _reader(inner[1], exactly)
        return lambda value, what: {key: element(each, what) for key, each in typed(value, dict, what).items()}
    return lambda value, what: typed(value, object if hint is Any else hint, what)


def _one_of(values: Sequence[str], value: object, what: str) -> str:
    named = typed(value, str, what)
    if named not in values:
        raise MalformedRecord(f"{what} is {_shown(named)}; use one of {', '.join(values)}", kind=what)
    return named


def _shown(value: object) -> str:
    """A value in a message, which may become part of a record itself."""
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS_MAX else text[:_SHOWN_CHARACTERS_MAX] + "..."
