"""The leases that a session holds from one statement to another.

The thread that locks commits under the lease, by whatever way it writes; so do the session's statements in other threads.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from ..coordinator.api import Lease, LeaseOn, leases
from ..storage.caches import ForkSafeLock
from ..storage.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class LockedTable:
    """A table that a lock covers."""

    location: str
    name: str
    """Its name in the statement."""
    mode: str
    condition: str | None
    """What of it is locked; None for all."""


@dataclass(frozen=True, slots=True)
class SessionLock:
    """What one LOCK TABLE took."""

    lease: Lease
    tables: tuple[LockedTable, ...]
    thread: int
    """The thread that ran it, which commits under the lease by itself."""

    @property
    def rows(self) -> list[tuple[str, str, str | None, int]]:
        """One row for each table: name, mode, condition, token."""
        return [(each.name, each.mode, each.condition, self.lease.token) for each in self.tables]


class Locks:
    """The leases of one session."""

    def __init__(self) -> None:
        self._locks: list[SessionLock] = []
        self._guard = ForkSafeLock()

    def take(self, requests: Sequence[tuple[LeaseOn, LockedTable]], wait_s: float | None) -> SessionLock:
        """Wait for leases, all in one request, and keep them."""
        lease = leases([request for request, _ in requests], wait_s=wait_s)
        lock = SessionLock(lease, tuple(table for _, table in requests), threading.get_ident())
        with self._guard:
            self._locks.append(lock)
        return lock

    def covering(self, locations: Collection[str]) -> list[SessionLock]:
        """Those that cover one of the tables at these locations; all, if there are none."""
        with self._guard:
            return [lock for lock in self._locks if not locations or any(each.location in locations for each in lock.tables)]

    def release(self, locks: Collection[SessionLock] | None = None) -> None:
        """End these, or all because the session ends. Raises LeaseLost, after it ended them, if one of these was lost before."""
        with self._guard:
            ending = [each for each in self._locks if locks is None or each in locks]
            self._locks = [each for each in self._locks if each not in ending]
        with ExitStack() as stack:
            for each in ending:
                if locks is None:
                    each.lease.release()
                else:
                    stack.enter_context(each.lease)

    @contextmanager
    def bound(self) -> Iterator[None]:
        """What this thread commits in the block depends on all of the session's locks, also those that another thread took."""
        with self._guard:
            others = [lock.lease for lock in self._locks if lock.thread != threading.get_ident()]
        with ExitStack() as stack:
            for lease in others:
                stack.enter_context(lease.bind())
            yield
