"""LOCK TABLE and UNLOCK TABLE: leases that a session holds from one statement to another.

The thread that locks commits under the lease, by whatever way it writes; so do the session's statements in other threads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Final, TypeAlias

from ...coordinator.api import EXCLUSIVE, SHARED, Lease, LeaseOn, leases
from ...statements.cursor import Name, Span
from ...statements.locks import Lock, Locked, Unlock
from ...storage.caches import ForkSafeLock
from ...storage.dataclass import dataclass
from ...storage.errors import InvalidRequest
from ...tables.table import Table
from ..place import title
from ..reports import Answer
from ..request import Request

_COLUMNS: Final = "table string, mode string, condition string, token bigint"

Opened: TypeAlias = "Callable[[Name], Table]"
"""Opens the table of a name, or refuses it with the place."""


@dataclass(frozen=True, slots=True)
class _OnTable:
    """A table that a lock covers: its name in the statement, and what of it."""

    location: str
    name: str
    mode: str
    condition: str | None


@dataclass(frozen=True, slots=True)
class _Held:
    """What one LOCK TABLE took, and the thread that ran it."""

    lease: Lease
    tables: tuple[_OnTable, ...]
    thread: int

    @property
    def rows(self) -> list[tuple[str, str, str | None, int]]:
        return [(each.name, each.mode, each.condition, self.lease.token) for each in self.tables]


class Locks:
    """The leases that one session holds."""

    def __init__(self) -> None:
        self._held: list[_Held] = []
        self._guard = ForkSafeLock()

    def take(self, wanted: Sequence[tuple[LeaseOn, _OnTable]], wait_s: float | None) -> Answer:
        """Wait for leases, all in one request, and keep them."""
        lease = leases([request for request, _ in wanted], wait_s=wait_s)
        held = _Held(lease, tuple(on for _, on in wanted), threading.get_ident())
        with self._guard:
            self._held.append(held)
        return Answer(_COLUMNS, tuple(held.rows))

    def take_out(self, asked: Request, wanted: dict[str, Name]) -> list[_Held]:
        """Those that cover the tables at these locations, or all, which the session does not hold any more."""
        with self._guard:
            going = [held for held in self._held if not wanted or any(each.location in wanted for each in held.tables)]
            known = {each.location for held in going for each in held.tables}
            for location, name in wanted.items():
                if location not in known:
                    raise asked.refused(name, f"this session holds no lock on {title(name)}; SHOW LOCKS IN {title(name)} shows who does")
            others = sorted({each.name for held in going for each in held.tables if wanted and each.location not in wanted})
            if others:
                first = next(iter(wanted.values()))
                raise asked.refused(first, f"it was locked together with {', '.join(others)}: unlock all of them, or UNLOCK TABLES")
            self._held = [held for held in self._held if held not in going]
        return going

    @contextmanager
    def bound(self) -> Iterator[None]:
        """What this thread commits in the block depends on all of the session's locks, also those that another thread took."""
        with self._guard:
            others = [held.lease for held in self._held if held.thread != threading.get_ident()]
        with ExitStack() as stack:
            for lease in others:
                stack.enter_context(lease.bind())
            yield

    def release(self) -> None:
        """End all of them, because the session ends."""
        with self._guard:
            everything, self._held = self._held, []
        for held in everything:
            held.lease.release()


def lock(asked: Request, statement: Lock, locks: Locks, opened: Opened, condition: Callable[[Table, Span], str]) -> Answer:
    """Take leases, all of them or none. Answers one row for each table: table, mode, condition, token.

    `condition` gives the text of a condition as leases take it. Raises InvalidRequest, with the place, for one that they cannot take.
    """

    def wanted(each: Locked) -> tuple[LeaseOn, _OnTable]:
        table = opened(each.target)
        mode, where = SHARED if each.shared else EXCLUSIVE, None
        try:
            if each.where is not None:
                where = condition(table, each.where)
            return table.lease_on(mode, where), _OnTable(table.location, title(each.target), mode, where)
        except InvalidRequest as error:
            if each.where is None or error.message.startswith("line "):
                raise
            raise asked.refused(each.where, error.message) from error

    return locks.take([wanted(each) for each in statement.tables], None if statement.wait_s is None else float(statement.wait_s))


def unlock(asked: Request, statement: Unlock, locks: Locks, opened: Opened) -> Answer:
    """Release leases of the session. Answers their rows. Raises LeaseLost, after it released them, if one of them was lost before."""
    going = locks.take_out(asked, {opened(each).location: each for each in statement.targets})
    rows = [row for held in going for row in held.rows]
    with ExitStack() as ending:
        for held in going:
            ending.enter_context(held.lease)
    return Answer(_COLUMNS, tuple(rows))
