"""A schema with columns added or changed, at any depth: fields of structs, `element` of arrays, `key` and `value` of maps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

from ..dataclass import dataclass
from ..errors import InvalidRequest
from .datatypes import ArrayType, DataType, MapType, StructField, StructType


@dataclass(frozen=True, slots=True)
class Place:
    """Where a column goes among its siblings: after the one of that name, or first (None)."""

    after: str | None = None


_Change: TypeAlias = Callable[[StructType, str], StructType]


def added(schema: StructType, path: Sequence[str], field: StructField, place: Place | None = None) -> StructType:
    """The schema with a new field in the struct at `path` (() is the table itself), at the end or at a place.

    Raises InvalidRequest if there is one of that name, if the path leads to no struct, and for a place after nothing.
    """

    def add(struct: StructType, at: str) -> StructType:
        if struct.get(field.name) is not None:
            raise InvalidRequest(f"there is a column {at}{field.name} already", column=at + field.name)
        return StructType(_placed([*struct.fields], field, place, at))

    return _within(schema, tuple(path), add, "")


def changed(
    schema: StructType, path: Sequence[str], change: Callable[[StructField], StructField], place: Place | None = None
) -> StructType:
    """The schema with the field at `path` changed, and moved to a place, if one is given. Raises InvalidRequest."""
    *parents, name = path

    def put(struct: StructType, at: str) -> StructType:
        old = _known(struct, name, at)
        new = change(old)
        if place is None:
            return StructType(new if each is old else each for each in struct.fields)
        return StructType(_placed([each for each in struct.fields if each is not old], new, place, at))

    return _within(schema, tuple(parents), put, "")


def field_at(schema: StructType, path: Sequence[str]) -> StructField:
    """The field at a path. Raises InvalidRequest if there is none."""
    found: list[StructField] = []

    def note(field: StructField) -> StructField:
        found.append(field)
        return field

    changed(schema, path, note)
    return found[0]


def _known(struct: StructType, name: str, at: str) -> StructField:
    found = struct.get(name)
    if found is None:
        inside = f"of {at.rstrip('.')} " if at else ""
        known = ", ".join(struct.names)
        raise InvalidRequest(f"column {at + name!r} is not in the table; the columns {inside}are {known}", column=at + name)
    return found


def _placed(fields: list[StructField], field: StructField, place: Place | None, at: str) -> list[StructField]:
    if place is None:
        return [*fields, field]
    if place.after is None:
        return [field, *fields]
    before = _known(StructType(fields), place.after, at)
    number = next(number for number, each in enumerate(fields) if each is before)
    return [*fields[: number + 1], field, *fields[number + 1 :]]


def _within(struct: StructType, path: tuple[str, ...], change: _Change, at: str) -> StructType:
    """The struct in which the struct at the path is changed."""
    if not path:
        return change(struct, at)
    field = _known(struct, path[0], at)
    inner = _in_type(field.type, path[1:], change, f"{at}{field.name}.")
    return StructType(replace(each, type=inner) if each is field else each for each in struct.fields)


def _in_type(dtype: DataType, path: tuple[str, ...], change: _Change, at: str) -> DataType:
    match dtype:
        case StructType():
            return _within(dtype, path, change, at)
        case ArrayType() if path[:1] == ("element",):
            return replace(dtype, element_type=_in_type(dtype.element_type, path[1:], change, f"{at}element."))
        case MapType() if path[:1] == ("key",):
            return replace(dtype, key_type=_in_type(dtype.key_type, path[1:], change, f"{at}key."))
        case MapType() if path[:1] == ("value",):
            return replace(dtype, value_type=_in_type(dtype.value_type, path[1:], change, f"{at}value."))
    raise InvalidRequest(f"{at.rstrip('.')} is {dtype}, which has no fields; name a struct (arrays: .element, maps: .key and .value)")
