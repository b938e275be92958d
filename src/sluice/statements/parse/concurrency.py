"""Statements that only sluice has: BEGIN ATOMIC ... END and EXPLAIN CONFLICT, which are made of others, LOCK TABLE and UNLOCK TABLE, and
what the coordinator knows: SHOW LOCKS, SHOW QUEUE, SHOW TRANSACTIONS.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, TypeAlias

from ...storage.dataclass import dataclass
from .cursor import Cursor, Name, Once, Span

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


@dataclass(frozen=True, slots=True)
class Locked:
    """A table to lock: the condition over its partition columns, and whether others may hold it, too."""

    target: Name
    where: Span | None
    shared: bool


@dataclass(frozen=True, slots=True)
class Lock:
    """LOCK TABLE t [WHERE ...] [SHARED | EXCLUSIVE], ... [NOWAIT | WAIT n SECONDS]; `wait_s` None: without limit."""

    tables: tuple[Locked, ...]
    wait_s: str | None = None


@dataclass(frozen=True, slots=True)
class Unlock:
    """UNLOCK TABLE t, ..., or UNLOCK TABLES: everything that the session holds."""

    targets: tuple[Name, ...] = ()


@dataclass(frozen=True, slots=True)
class ShowState:
    """SHOW LOCKS, QUEUE or TRANSACTIONS [IN target] [LIMIT n]. `what` is "locks", "queue" or "transactions"; no target: every name."""

    what: str
    target: Name | None = None
    limit: str | None = None


Statement: TypeAlias = Atomic | ExplainConflict | Lock | Unlock | ShowState


def atomic(here: Cursor, single: Single) -> Atomic:
    """BEGIN ATOMIC."""
    isolation, attempts, key = None, None, None
    while True:
        if here.clause("ISOLATION", "LEVEL"):
            isolation = _level(here)
        elif here.clause("ATTEMPTS"):
            attempts = here.number("a number of attempts")
        elif here.clause("KEY"):
            key = here.value(here.string, "a key")
        else:
            break
    parts: list[Part] = []
    while not (here.sees("END") and (here.peek(1) is None or here.sees("END", ";"))):
        if here.peek() is None:
            raise here.unreadable("expected END after the last semicolon of the block")
        if here.sees("BEGIN"):
            raise here.unreadable("a block has no blocks in it: a block is one commit as it is, so leave BEGIN and its END out")
        if not here.take(";"):
            parts.append(_part(here, single, _end_of_statement(here)))
            if here.peek() is None:
                raise here.unreadable("expected a semicolon after each statement of the block, and END")
    if not parts:
        raise here.unreadable("expected a statement")
    here.expect("END")
    return Atomic(tuple(parts), isolation, attempts, key)


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
    return ExplainConflict(one, _part(here, single, level), _level(here) if here.take("AT", "LEVEL") else None)


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


def lock(here: Cursor) -> Lock:
    """LOCK TABLE."""
    tables = here.each_once(_locked, "table", partial(_called, here.text))
    wait_s = None
    while here.clause("NOWAIT", of="wait") or here.sees("WAIT"):
        wait_s = "0"
        if here.clause("WAIT", of="wait"):
            wait_s = here.number("a number of seconds")
            here.take_one("SECONDS", "SECOND")
    return Lock(tables, wait_s)


def _called(text: str, locked: Locked) -> str:
    return locked.target.title if locked.where is None else f"{locked.target.title} where {locked.where.of(text)}"


_MODES: Final = ("SHARED", "SHARE", "EXCLUSIVE")
_AFTER_CONDITION: Final = ("SHARED", "EXCLUSIVE", "NOWAIT", "WAIT", ",", "IN SHARE", "IN SHARED", "IN EXCLUSIVE")


def _locked(here: Cursor) -> Locked:
    target = here.name()
    here.clauses = Once()
    where = here.until("a condition", *_AFTER_CONDITION) if here.clause("WHERE") else None
    begin = here.at
    here.take("IN")
    mode = here.take_one(*_MODES)
    if mode is None and here.at > begin:
        raise here.unreadable("expected SHARED or EXCLUSIVE")
    if mode is not None:
        here.clauses.note(here, " ".join(token.upper for token in here.tokens[begin : here.at]), begin)
        here.take("MODE")
        first, again = here.since(begin), here.at
        if here.take_one(*_MODES) not in (None, mode):
            raise here.contradicting(here.tokens[again].upper, here.since(again), first)
        here.at = again
    return Locked(target, where, mode in ("SHARED", "SHARE"))


def unlock(here: Cursor) -> Unlock:
    """UNLOCK, UNLOCK TABLES, UNLOCK TABLE t, ..."""
    if here.take_one("TABLES", "TABLE") is None and not here.is_done():
        raise here.unreadable("expected TABLE or TABLES")
    return Unlock() if here.is_done() else Unlock(here.each_once(Cursor.name, "table", lambda each: each.title))


def show_state(what: str, here: Cursor) -> ShowState:
    """SHOW LOCKS, QUEUE or TRANSACTIONS, which `what` says."""
    target = here.name() if here.take_one("IN", "FROM", "FOR", "ON") is not None else None
    return ShowState(what, target, here.number("a number of rows") if here.clause("LIMIT") else None)


COMPOSED: Final[Mapping[tuple[str, ...], Callable[[Cursor, Single], Atomic | ExplainConflict]]] = {
    ("BEGIN", "ATOMIC"): atomic,
    ("EXPLAIN", "CONFLICT"): explain_conflict,
}
"""The reader of what follows these words, in which statements are."""
READERS: Final[Mapping[tuple[str, ...], Callable[[Cursor], Lock | Unlock | ShowState]]] = {
    ("LOCK", "TABLE"): lock,
    ("LOCK", "TABLES"): lock,
    ("UNLOCK",): unlock,
    **{("SHOW", what.upper()): partial(show_state, what) for what in ("locks", "queue", "transactions")},
}
"""The reader of what follows these words."""
