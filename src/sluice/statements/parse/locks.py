"""LOCK TABLE and UNLOCK TABLE, and what the coordinator knows: SHOW LOCKS, SHOW QUEUE, SHOW TRANSACTIONS."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from ...storage.dataclass import dataclass
from .cursor import Cursor, Name, Once, Span


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
    tables: list[Locked] = []
    wait_s, once = None, Once()
    while not tables or here.take(","):
        begin = here.at
        tables.append(_locked(here))
        where = tables[-1].where
        once.note(
            here,
            " ".join([".".join(tables[-1].target.parts), "" if where is None else f"where {where.of(here.text)}"]).strip(),
            begin,
            "table",
        )
    while here.clause("NOWAIT", of="wait") or here.sees("WAIT"):
        wait_s = "0"
        if here.clause("WAIT", of="wait"):
            wait_s = here.number("a number of seconds")
            here.take_one("SECONDS", "SECOND")
    return Lock(tuple(tables), wait_s)


_MODES: Final = ("SHARED", "SHARE", "EXCLUSIVE")


def _locked(here: Cursor) -> Locked:
    target = here.name()
    here.clauses = Once()
    where = here.until(_is_after_condition, "a condition") if here.clause("WHERE") else None
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
    names: list[Name] = []
    once = Once()
    while not names or here.take(","):
        begin = here.at
        names.append(here.name())
        once.note(here, ".".join(names[-1].parts), begin, "table")
    return Unlock(tuple(names))


def _shown(what: str) -> Callable[[Cursor], ShowState]:
    def show(here: Cursor) -> ShowState:
        target = here.name() if here.take_one("IN", "FROM", "FOR", "ON") is not None else None
        return ShowState(what, target, here.number("a number of rows") if here.clause("LIMIT") else None)

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
