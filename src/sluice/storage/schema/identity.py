"""Identity columns ("Identity Columns" in PROTOCOL.md): their definition in the metadata of fields, their numbers, and their marks.

The n-th number of a column is `start + n * step`. All identity columns of a table share one n for each row, so that one counter of the
coordinator serves them; `sluice.identity` in the metadata of their fields names it. A table whose columns are defined anew has a new one.

A column's high-water mark tells every engine which values were given out. sluice raises it ahead of them.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, Final

from ..constants import LONG_MAX
from ..dataclass import dataclass
from ..errors import InvalidRequest, SchemaMismatch
from .datatypes import DEFAULT_KEY, GENERATED_KEY, IDENTITY_KEYS, PrimitiveType, StructField, StructType, is_identity

START_KEY, STEP_KEY, EXPLICIT_KEY = IDENTITY_KEYS
MARK_KEY: Final = "delta.identity.highWaterMark"
COUNTER_KEY: Final = "sluice.identity"


@dataclass(frozen=True, slots=True)
class Identity:
    """The definition of an identity column; `mark` is the last value that may have been given out, `explicit` lets rows give values."""

    name: str
    start: int
    step: int
    explicit: bool
    mark: int | None

    def value(self, number: int) -> int:
        """Its value of this number. Raises InvalidRequest for one beyond int64."""
        value = self.start + number * self.step
        # check: identity-values-are-longs (always)
        if not -LONG_MAX - 1 <= value <= LONG_MAX:
            said = f"the identity column {self.name!r} has not enough values left: {value} is beyond BIGINT; create the table anew with "
            raise InvalidRequest(f"{said}another START WITH or a smaller INCREMENT BY", column=self.name)
        return value

    def number(self, value: int) -> int:
        """The number of the last of its values that is not beyond this one; below 0 before the first."""
        return (value - self.start) // self.step

    def number_from(self, value: int) -> int:
        """The number of the first of its values that is not before this one."""
        return -((self.start - value) // self.step)

    @property
    def last_number(self) -> int:
        """The last number whose value is a BIGINT."""
        return min(LONG_MAX, self.number(LONG_MAX if self.step > 0 else -LONG_MAX - 1))


def identities(schema: StructType) -> list[Identity]:
    """The identity columns of a table."""
    columns = [(each.name, each.metadata) for each in schema.fields if is_identity(each)]
    return [Identity(name, m[START_KEY], m[STEP_KEY], m[EXPLICIT_KEY], m.get(MARK_KEY)) for name, m in columns]


def identity_sql(field: StructField) -> str:
    """What the definition of a column says of it as an identity column; "" for another one."""
    of = identities(StructType([field]))
    how = "BY DEFAULT" if of and of[0].explicit else "ALWAYS"
    return f" GENERATED {how} AS IDENTITY (START WITH {of[0].start} INCREMENT BY {of[0].step})" if of else ""


def counter_of(schema: StructType) -> str:
    """The name of the counter of a table's identity columns; "" for columns that another engine defined."""
    return next((str(each.metadata.get(COUNTER_KEY, "")) for each in schema.fields if is_identity(each)), "")


def next_number(schema: StructType) -> int:
    """The first number that no column's mark covers, nor any number after it."""
    return max([0, *[each.number(each.mark) + 1 for each in identities(schema) if each.mark is not None]])


def covered(schema: StructType) -> int:
    """How many numbers, from 0 on, all marks cover."""
    return min([0 if each.mark is None else each.number(each.mark) + 1 for each in identities(schema)], default=0)


def with_marks(schema: StructType, numbers: int, *, exactly: bool = False) -> StructType:
    """The schema whose marks cover so many numbers, as none is ever lowered unless `exactly`. Raises InvalidRequest beyond int64."""
    columns = {each.name: each for each in identities(schema)} if numbers or exactly else {}

    def marked(field: StructField) -> StructField:
        each = columns.get(field.name)
        # check: marks-are-never-lowered (each.number(each.mark) >= numbers - 1 -> False)
        if each is None or (each.mark is not None and not exactly and each.number(each.mark) >= numbers - 1):
            return field
        return _with(field, {MARK_KEY: each.value(numbers - 1)} if numbers else {})

    return StructType([marked(each) for each in schema.fields])


def counted_anew(schema: StructType) -> StructType:
    """The schema with a counter of its own and no marks, for columns that are defined just now."""
    counter = {COUNTER_KEY: uuid.uuid4().hex}
    return StructType([_with(each, counter) if is_identity(each) else each for each in schema.fields])


def _with(field: StructField, more: Mapping[str, Any]) -> StructField:
    """The column with these metadata in place of its mark."""
    return replace(field, metadata={**{key: text for key, text in field.metadata.items() if key != MARK_KEY}, **more})


def check_given(schema: StructType, names: Collection[str], *, changes: bool = False) -> None:
    """Raise InvalidRequest if rows give values to identity columns that may not be given, or if rows that are there get other ones."""
    lowered = {name.lower() for name in names}
    for each in identities(schema):
        why = "an identity column, whose values never change: leave it out of what is set"
        if not changes:
            why = "GENERATED ALWAYS AS IDENTITY, so that rows cannot give it: leave it out, or make it GENERATED BY DEFAULT in a new table"
        # check: always-generated-means-always (each.explicit and not changes -> not changes)
        if each.name.lower() in lowered and not (each.explicit and not changes):
            raise InvalidRequest(f"column {each.name!r} is {why}", column=each.name)


def needs_numbers(schema: StructType, names: Collection[str]) -> bool:
    """Whether rows with columns of these names lack an identity column."""
    lowered = {name.lower() for name in names}
    return any(each.name.lower() not in lowered for each in identities(schema))


def check_identities(schema: StructType, partition_columns: Collection[str]) -> None:
    """Raise InvalidRequest or SchemaMismatch, naming column, rule and remedy, unless columns may be identity columns as they say."""
    for field in schema.fields:
        if not {*IDENTITY_KEYS} & {*field.metadata}:
            continue
        what = f"the identity column {field.name!r}"
        kinds = {START_KEY: int, STEP_KEY: int, EXPLICIT_KEY: bool}
        if lacking := next((key for key, kind in kinds.items() if type(field.metadata.get(key)) is not kind), None):
            raise InvalidRequest(f"{what} has no proper {lacking} in its metadata: a whole number, or true or false", column=field.name)
        if field.type != PrimitiveType("long"):
            raise SchemaMismatch(f"{what} is {field.type}, and its values are BIGINT: make it one", column=field.name)
        for rule, broken in {
            "has the step 0: give INCREMENT BY another number": field.metadata[STEP_KEY] == 0,
            "has a default or an expression, too: leave that out": not {DEFAULT_KEY, GENERATED_KEY}.isdisjoint(field.metadata),
            "cannot be a partition column: each row would have its own partition": field.name in partition_columns,
        }.items():
            if broken:
                raise InvalidRequest(f"{what} {rule}", column=field.name)
        [each] = identities(StructType([field]))
        each.value(0)
        Identity(field.name, 0, each.step, each.explicit, None).value(1)
