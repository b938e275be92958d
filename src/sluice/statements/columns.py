"""Definitions of columns: name, type, and what else is said of them."""

from __future__ import annotations

from typing import Final

from ..storage.dataclass import dataclass
from .cursor import Cursor, Span
from .tokens import WORD

__all__ = ["Check", "Column", "clustering_in", "column_after_name", "columns_in", "definitions_in", "properties_in"]

_AFTER_TYPE: Final = frozenset({"NOT", "NULL", "COMMENT", "DEFAULT", "GENERATED", "CHECK", "CONSTRAINT", "PRIMARY", "UNIQUE", "REFERENCES"})
_PLACED: Final = frozenset({"FIRST", "AFTER"})


@dataclass(frozen=True, slots=True)
class Column:
    """A column to make. `refused` are the words and the place of something that sluice does not keep, such as DEFAULT."""

    name: str
    type: Span | None
    nullable: bool = True
    comment: str | None = None
    checks: tuple[Span, ...] = ()
    is_key: bool = False
    refused: tuple[str, Span] | None = None


@dataclass(frozen=True, slots=True)
class Check:
    """CONSTRAINT name CHECK (condition)."""

    name: str
    condition: Span


def columns_in(within: Cursor) -> tuple[Column, ...]:
    """Columns between commas, up to the end. Raises Unreadable."""
    found = [_column(within)]
    while within.take(","):
        found.append(_column(within))
    within.finish()
    return tuple(found)


def clustering_in(here: Cursor) -> tuple[str, ...] | None:
    """What follows CLUSTER BY: columns in brackets, `a` or `a.b`; () for NONE, and None for AUTO."""
    if here.take("NONE"):
        return ()
    if here.take("AUTO"):
        return None
    within = here.inside()
    found = [within.name().quoted]
    while within.take(","):
        found.append(within.name().quoted)
    within.finish()
    return tuple(found)


def definitions_in(within: Cursor) -> tuple[tuple[Column, ...], tuple[Check, ...], tuple[str, ...]]:
    """Columns, CHECK constraints, and the columns of a PRIMARY KEY, between commas. Raises Unreadable."""
    columns: list[Column] = []
    checks: list[Check] = []
    key: tuple[str, ...] = ()
    while True:
        if within.sees("CONSTRAINT") or (within.sees("CHECK", "(") and not within.quotes()):
            named = within.word("the name of a constraint") if within.take("CONSTRAINT") else f"check_{len(checks) + 1}"
            if within.take("PRIMARY", "KEY"):
                key = within.names("the name of a column")
            else:
                within.expect("CHECK")
                checks.append(Check(named, _condition(within)))
        elif within.sees("PRIMARY", "KEY", "("):
            within.at += 2
            key = within.names("the name of a column")
        else:
            columns.append(_column(within))
        if not within.take(","):
            within.finish()
            return tuple(columns), tuple(checks), key


def _condition(here: Cursor) -> Span:
    return here.inside().rest("a condition")


def _column(here: Cursor) -> Column:
    return column_after_name(here, here.word("the name of a column"))


def column_after_name(here: Cursor, name: str) -> Column:
    """What follows a column's name: its type, and what else is said of it. Raises Unreadable."""
    kind = _type(here)
    nullable, comment, is_key = True, None, False
    checks: list[Span] = []
    refused: tuple[str, Span] | None = None
    while not here.is_done() and not here.sees(",") and not any(here.sees(word) for word in _PLACED):
        if here.take("NOT", "NULL"):
            nullable = False
        elif here.take("NULL"):
            nullable = True
        elif here.take("COMMENT"):
            comment = here.string("a comment")
        elif here.take("PRIMARY", "KEY"):
            is_key = True
        elif here.sees("CHECK") or here.sees("CONSTRAINT"):
            if here.take("CONSTRAINT"):
                here.word("the name of a constraint")
            here.expect("CHECK")
            checks.append(_condition(here))
        elif (word := here.take_one("DEFAULT", "GENERATED", "UNIQUE", "REFERENCES", "MASK")) is not None:
            said = here.at - 1
            if not (here.is_done() or here.sees(",")):
                here.until(lambda at: at.sees(",") or at.sees("COMMENT"), "a value")
            refused = (word, Span(here.tokens[said].start, here.tokens[here.at - 1].end))
        else:
            raise here.unreadable("expected NOT NULL, COMMENT, CHECK, PRIMARY KEY, a comma or the end of the columns")
    return Column(name, kind, nullable, comment, tuple(checks), is_key, refused)


def _type(here: Cursor) -> Span | None:
    """The place of a type; None if there is none."""
    begin, depth = here.at, 0
    if here.sees("("):
        raise here.unreadable("expected the type of the column")
    while (token := here.peek()) is not None:
        if depth == 0 and (token.upper == "," or (token.kind == WORD and token.upper in (_AFTER_TYPE | _PLACED))):
            break
        if token.upper == "(":
            here.at = here.closing()
        depth += (token.upper == "<") - (token.upper == ">")
        here.at += 1
    return Span(here.tokens[begin].start, here.tokens[here.at - 1].end) if here.at > begin else None


def properties_in(within: Cursor) -> dict[str, str]:
    """'key' = 'value', key.part = 1, ... up to the end. Raises Unreadable."""
    found: dict[str, str] = {}
    while True:
        key = property_key(within)
        within.take("=")
        value = within.peek()
        if value is None:
            raise within.unreadable("expected a value")
        if value.names or value.upper in ("-", "+") or value.value[:1].isdecimal():
            span = within.until(lambda at: at.sees(","), "a value")
            found[key] = span.of(within.text)
        else:
            found[key] = within.string("a value")
        if not within.take(","):
            within.finish()
            return found


def property_key(here: Cursor) -> str:
    """'a.b', or a.b. Raises Unreadable."""
    token = here.peek()
    if token is not None and token.names:
        return ".".join(here.name().parts)
    return here.string("the name of a property")
