"""Definitions of columns: name, type and options."""

from __future__ import annotations

from operator import itemgetter
from typing import Any, Final

from ...storage.dataclass import dataclass
from .cursor import NUMBER, WORD, Cursor, Once, Span, Unreadable, words_in

_AFTER_TYPE: Final = words_in("NOT NULL COMMENT DEFAULT GENERATED CHECK CONSTRAINT PRIMARY UNIQUE REFERENCES FIRST AFTER")
PLACED: Final = ("FIRST", "AFTER")
_AFTER_DEFAULT: Final = (",", "COMMENT", "DEFAULT", "NOT NULL", "PRIMARY KEY", "CONSTRAINT", "CHECK (", "GENERATED", *PLACED)


@dataclass(frozen=True, slots=True)
class Check:
    """[CONSTRAINT name] CHECK (condition), at its place."""

    name: str
    condition: Span
    at: Span


@dataclass(frozen=True, slots=True)
class Column:
    """A column to make; `default` and `generated` are the places of expressions. `refused` are the words and the place of something that
    sluice does not keep, such as IDENTITY.
    """

    name: str
    type: Span | None
    nullable: bool = True
    comment: str | None = None
    checks: tuple[Check, ...] = ()
    is_key: bool = False
    refused: tuple[str, Span] | None = None
    default: Span | None = None
    generated: Span | None = None
    identity: tuple[int, int, bool] | None = None
    """Where an identity column starts, its step, and whether rows may give it."""


def columns_in(here: Cursor) -> tuple[Column, ...]:
    """Columns to partition by in brackets, each once: names, which may have a type and a comment. Raises Unreadable."""
    return here.bracketed(_partition_column, "partition column", lambda each: each.name)


def _partition_column(here: Cursor) -> Column:
    begin = here.at
    column = _column(here)
    require_only(here, column, begin, "COMMENT", "NOT NULL")
    return column


def require_only(here: Cursor, column: Column, begin: int, *kept: str) -> None:
    """Raise Unreadable if more is said of a column than its name, its type and these clauses, which are all that is kept of it."""
    said = {
        "NOT NULL": not column.nullable,
        "COMMENT": column.comment is not None,
        "CHECK": bool(column.checks),
        "PRIMARY KEY": column.is_key,
        "DEFAULT": column.default is not None,
        "GENERATED": column.generated is not None,
    }
    lost = next((clause for clause, is_said in said.items() if is_said and clause not in kept), None)
    if lost is not None:
        raise Unreadable(f"a column takes no {lost} here; leave it out", here.since(begin))


def clustering_in(here: Cursor) -> tuple[str, ...] | None:
    """What follows CLUSTER BY: columns in brackets, `a` or `a.b`; () for NONE, and None for AUTO."""
    if here.take("NONE"):
        return ()
    return None if here.take("AUTO") else here.bracketed(lambda within: within.name().quoted, "column")


def definitions_in(here: Cursor) -> tuple[tuple[Column, ...], tuple[Check, ...], tuple[str, ...]]:
    """Columns, CHECK constraints, and the columns of a PRIMARY KEY, in brackets. Raises Unreadable."""
    within = here.inside()
    columns: list[Column] = []
    checks: list[Check] = []
    key: tuple[str, ...] = ()
    once = Once()
    while True:
        begin = within.at
        if within.sees("CONSTRAINT") or within.sees("CHECK", "("):
            named = within.word("the name of a constraint") if within.take("CONSTRAINT") else f"check_{len(checks) + 1}"
            if within.clause("PRIMARY", "KEY"):
                key = within.names()
            else:
                within.expect("CHECK")
                checks.append(Check(named, within.inside().until("a condition"), within.since(begin)))
        elif within.sees("PRIMARY", "KEY", "("):
            within.clause("PRIMARY", "KEY")
            key = within.names()
        else:
            columns.append(_column(within))
            once.note(within, columns[-1].name, begin, "column")
            if columns[-1].is_key:
                within.clauses.note(within, "PRIMARY KEY", begin)
        if not within.take(","):
            within.finish()
            return tuple(columns), tuple(checks), key


def _column(here: Cursor) -> Column:
    return column_after_name(here, here.word("the name of a column"))


def column_after_name(here: Cursor, name: str) -> Column:
    """What follows a column's name: its type, and what else is said of it, each once. Raises Unreadable."""
    kind, outer = _type(here), here.clauses
    here.clauses = Once()
    said: dict[str, Any] = {}
    checks: list[Check] = []
    while not here.is_done() and not here.sees_one(",", *PLACED):
        if here.sees_one("CHECK", "CONSTRAINT"):
            begin = here.at
            called = here.word("the name of a constraint") if here.take("CONSTRAINT") else f"{name}_{len(checks) + 1}"
            here.expect("CHECK")
            checks.append(Check(called, here.inside().until("a condition"), here.since(begin)))
        else:
            _option(here, said)
    here.clauses = outer
    return Column(name, kind, checks=tuple(checks), **said)


def _option(here: Cursor, said: dict[str, Any]) -> None:
    """Something else that is said of a column, by the fields of `Column`."""
    if here.clause("NOT", "NULL", of="nullable"):
        said["nullable"] = False
    elif here.clause("NULL", of="nullable"):
        said["nullable"] = True
    elif here.clause("COMMENT"):
        said["comment"] = here.string("a comment")
    elif here.clause("PRIMARY", "KEY"):
        said["is_key"] = True
    elif here.clause("DEFAULT", of="value"):
        said["default"] = here.until("a value", *_AFTER_DEFAULT)
    elif here.clause("GENERATED", "ALWAYS", "AS", "IDENTITY", of="value"):
        said["identity"] = _identity(here, explicit=False)
    elif here.clause("GENERATED", "BY", "DEFAULT", "AS", "IDENTITY", of="value"):
        said["identity"] = _identity(here, explicit=True)
    elif here.clause("GENERATED", "ALWAYS", "AS", of="value") and here.sees("("):
        said["generated"] = here.inside().until("an expression")
    elif (word := here.take_one("IDENTITY", "UNIQUE", "REFERENCES", "MASK")) is not None:
        word, begin = word.split()[-1], here.at - 1
        if not (here.is_done() or here.sees(",")):
            here.until("a value", ",", "COMMENT")
        said["refused"] = (word, here.since(begin))
    else:
        raise here.unreadable("expected NOT NULL, COMMENT, CHECK, PRIMARY KEY, a comma or the end of the columns")


def _identity(here: Cursor, *, explicit: bool) -> tuple[int, int, bool]:
    """(START WITH 1 INCREMENT BY 1), both of which may be left out, in any order."""
    numbers = {"start": 1, "step": 1}
    within = here.inside() if here.sees("(") else None
    while within is not None and not within.is_done():
        word = "start" if within.clause("START", "WITH") else "step" if within.clause("INCREMENT", "BY") else None
        if word is None:
            raise within.unreadable("expected START WITH or INCREMENT BY")
        sign = "-" if within.take("-") else ""
        number = within.number("a number")
        if not number.isdecimal():
            raise within.unreadable(f"expected a whole number, not {number}")
        numbers[word] = int(sign + number)
    return numbers["start"], numbers["step"], explicit


def _type(here: Cursor) -> Span | None:
    """The place of a type; None if there is none."""
    begin, depth = here.at, 0
    if here.sees("("):
        raise here.unreadable("expected the type of the column")
    while not here.is_done():
        token = here.tokens[here.at]
        if depth == 0 and (token.upper == "," or (token.kind == WORD and token.upper in _AFTER_TYPE)):
            break
        if token.upper == "(":
            here.at = here.closing()
        depth += (token.upper == "<") - (token.upper == ">")
        here.at += 1
    return here.since(begin) if here.at > begin else None


def properties_in(here: Cursor) -> dict[str, str]:
    """('key' = 'value', key.part = 1, ...), each key once. Raises Unreadable."""
    return dict(here.bracketed(_property, "the key", itemgetter(0)))


def _property(here: Cursor) -> tuple[str, str]:
    key = property_key(here)
    here.take("=")
    value = here.peek()
    if value is None:
        raise here.unreadable("expected a value")
    if value.names or value.kind == NUMBER or value.upper in ("-", "+"):
        return key, here.until("a value", ",").of(here.text)
    return key, here.string("a value")


def property_key(here: Cursor) -> str:
    """'a.b', or a.b. Raises Unreadable."""
    token = here.peek()
    return here.name().title if token is not None and token.names else here.string("the name of a property")
