"""Statements made of others: BEGIN ATOMIC ... END, and EXPLAIN CONFLICT."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from ...storage.dataclass import dataclass
from .cursor import Cursor, Span

Single: TypeAlias = "Callable[[Cursor], object]"
"""Reads the one statement between a cursor's place and its end."""

_LEVELS: Final[Mapping[str, str]] = {
    "WRITE SERIALIZABLE": "WriteSerializable",
    "WRITESERIALIZABLE": "WriteSerializable",
    "SERIALIZABLE": "Serializable",
    "SNAPSHOT ISOLATION": "SnapshotIsolation",
    "SNAPSHOTISOLATION": "SnapshotIsolation",
    "SNAPSHOT": "SnapshotIsolation",
}


@dataclass(frozen=True, slots=True)
class Part:
    """A statement within another one, and its place."""

    statement: object
    at: Span


@dataclass(frozen=True, slots=True)
class Atomic:
    """BEGIN ATOMIC [ISOLATION LEVEL level] [ATTEMPTS n] [KEY key] statement; ... END. `isolation` has the properties' spelling."""

    parts: tuple[Part, ...]
    isolation: str | None = None
    attempts: str | None = None
    key: Span | None = None


@dataclass(frozen=True, slots=True)
class ExplainConflict:
    """EXPLAIN CONFLICT one WITH other [AT LEVEL level]: whether `one` can commit after `other`."""

    one: Part
    other: Part
    isolation: str | None = None


Statement: TypeAlias = Atomic | ExplainConflict


def atomic(here: Cursor, single: Single) -> Atomic:
    """BEGIN ATOMIC."""
    isolation, attempts, key = None, None, None
    while True:
        if here.clause("ISOLATION", "LEVEL"):
            isolation = _level(here)
        elif here.clause("ATTEMPTS"):
            attempts = here.number("a number of attempts")
        elif here.clause("KEY"):
            key = _key(here)
        else:
            break
    parts: list[Part] = []
    while not (here.sees("END") and (here.peek(1) is None or here.sees("END", ";"))):
        if here.is_done():
            raise here.unreadable("expected END after the last semicolon of the block")
        if here.sees("BEGIN"):
            raise here.unreadable("a block has no blocks in it: a block is one commit as it is, so leave BEGIN and its END out")
        if not here.take(";"):
            parts.append(_part(here, single, _end_of_statement(here)))
            if here.is_done():
                raise here.unreadable("expected a semicolon after each statement of the block, and END")
    if not parts:
        raise here.unreadable("expected a statement")
    here.expect("END")
    return Atomic(tuple(parts), isolation, attempts, key)


def _key(here: Cursor) -> Span:
    """A string or a parameter."""
    begin = here.at
    if not here.parameter():
        here.string("a key")
    return here.since(begin)


def _level(here: Cursor) -> str:
    words = here.take_one("SNAPSHOT") if here.sees("SNAPSHOT", "ISOLATION", "LEVEL") else here.take_one(*_LEVELS)
    if words is None:
        raise here.unreadable("expected SERIALIZABLE, WRITE SERIALIZABLE or SNAPSHOT")
    return _LEVELS[words]


def _end_of_statement(here: Cursor) -> int:
    return next((at for at in range(here.at, here.end) if here.tokens[at].upper == ";"), here.end)


def _part(here: Cursor, single: Single, end: int) -> Part:
    """The statement up to that token, going past it."""
    at = Span(here.tokens[here.at].start, here.tokens[end - 1].end)
    part = Part(single(Cursor(here.text, here.tokens, here.at, end)), at)
    here.at = end
    return part


def explain_conflict(here: Cursor, single: Single) -> ExplainConflict:
    """EXPLAIN CONFLICT. The WITH between the statements comes before a verb; those of queries come before names."""
    if not _begins_statement(here, here.at):
        raise here.unreadable(_EXPECTED)
    middle = next((at for at in range(here.at + 1, here.end) if here.tokens[at].upper == "WITH" and _begins_statement(here, at + 1)), None)
    if middle is None:
        here.at = here.end
        raise here.unreadable("expected WITH and another statement")
    one = _part(here, single, middle)
    here.at = middle + 1
    end = _end_of_statement(here)
    level = next((at for at in range(here.at, end) if [token.upper for token in here.tokens[at : at + 2]] == ["AT", "LEVEL"]), end)
    other = _part(here, single, level)
    return ExplainConflict(one, other, _level(here) if here.take("AT", "LEVEL") else None)


_VERBS: Final = frozenset({"INSERT", "UPDATE", "DELETE", "MERGE", "TRUNCATE", "OPTIMIZE"})
_AFTER_VERB: Final[Mapping[str, frozenset[str]]] = {
    "INSERT": frozenset({"INTO", "OVERWRITE", "WITH"}),
    "DELETE": frozenset({"FROM"}),
    "MERGE": frozenset({"INTO", "WITH"}),
    "TRUNCATE": frozenset({"TABLE"}),
}
_EXPECTED: Final = "expected INSERT, UPDATE, DELETE, MERGE, TRUNCATE or OPTIMIZE, without IF VERSION"


def _begins_statement(here: Cursor, at: int) -> bool:
    """Whether a statement that changes a table begins with that token."""
    if at + 1 >= here.end:
        return False
    verb, following = here.tokens[at].upper, here.tokens[at + 1]
    return verb in _VERBS and (following.upper in _AFTER_VERB[verb] if verb in _AFTER_VERB else following.names)


READERS: Final[Mapping[tuple[str, ...], Callable[[Cursor, Single], Statement]]] = {
    ("BEGIN", "ATOMIC"): atomic,
    ("EXPLAIN", "CONFLICT"): explain_conflict,
}
"""The reader of what follows these words."""
