"""LOCK TABLE and UNLOCK TABLE, and what the coordinator knows: SHOW LOCKS, SHOW QUEUE, SHOW TRANSACTIONS."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from ..storage.dataclass import dataclass
from .cursor import Cursor, Name, Span


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


Statement: TypeAlias = Lock | Unlock | ShowState


def lock(here: Cursor) -> Lock:
    """LOCK TABLE."""
    found = [_locked(here)]
    while here.take(","):
        found.append(_locked(here))
    wait_s = None
    if here.take("NOWAIT"):
        wait_s = "0"
    elif here.take("WAIT"):
        wait_s = here.number("a number of seconds")
        here.take_one("SECONDS", "SECOND")
    return Lock(tuple(found), wait_s)


def _locked(here: Cursor) -> Locked:
    target = here.name()
    where = here.until(_is_after_condition, "a condition") if here.take("WHERE") else None
    here.take("IN")
    mode = here.take_one("SHARED", "SHARE", "EXCLUSIVE")
    if mode is None and here.tokens[here.at - 1].upper == "IN":
        raise here.unreadable("expected SHARED or EXCLUSIVE")
    if mode is not None:
        here.take("MODE")
    return Locked(target, where, mode in ("SHARED", "SHARE"))


def _is_after_condition(here: Cursor) -> bool:
    return any(here.sees(word) for word in ("SHARED", "EXCLUSIVE", "NOWAIT", "WAIT", ",")) or any(
        here.sees("IN", word) for word in ("SHARE", "SHARED", "EXCLUSIVE")
    )


def unlock(here: Cursor) -> Unlock:
    """UNLOCK, UNLOCK TABLES, UNLOCK TABLE t, ..."""
    if not here.take("TABLES") and not here.take("TABLE") and not (here.is_done() or here.sees(";")):
        raise here.unreadable("expected TABLE or TABLES")
    if here.is_done() or here.sees(";"):
        return Unlock()
    found = [here.name()]
    while here.take(","):
        found.append(here.name())
    return Unlock(tuple(found))


def _shown(what: str) -> Callable[[Cursor], ShowState]:
    def show(here: Cursor) -> ShowState:
        target = here.name() if here.take_one("IN", "FROM", "FOR", "ON") is not None else None
        return ShowState(what, target, here.number("a number of rows") if here.take("LIMIT") else None)

    return show


READERS: Final[Mapping[tuple[str, ...], Callable[[Cursor], Statement]]] = {
    ("LOCK", "TABLE"): lock,
    ("LOCK", "TABLES"): lock,
    ("UNLOCK",): unlock,
    ("SHOW", "LOCKS"): _shown("locks"),
    ("SHOW", "QUEUE"): _shown("queue"),
    ("SHOW", "TRANSACTIONS"): _shown("transactions"),
}
"""The reader of what follows these words."""
