"""Leases: how one is held, and how its loss is noticed.

A lease is held while its node exists, and the node exists as long as its owner's session. No clock takes part: a process
that was paused beyond its session goes on believing that it holds the lease, and learns the truth at its next look. So that
belief does not protect a table; the check of the node in the ratifying multi does (I9).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from types import TracebackType
from typing import Final

from ...storage.arguments import checked
from ...storage.caches import ForkSafeLock
from ...storage.errors import Unavailable
from ..errors import LeaseLost, SessionLost
from ..nodes.lease_places import Place
from ..nodes.lease_records import LeaseNode
from ..service.clock import DEFAULT_TIMEOUT_S, Deadline, Timeout, bounding
from ..service.store import CoordinationStore
from .granting import LeaseClient, LeaseRequest, Wanted, let_go
from .guard import breaker

_LOOK_AGAIN_S: Final = 10.0
_PAUSE_S: Final = 0.5
_LAST_LOOK_S: Final = 2.0
"""How long the end of a block waits for the answer whether its lease still exists."""

_of_thread = threading.local()


@checked
class Lease:
    """One or more leases that were granted together; made by `acquire`. A context manager that releases them at its end.

    `token` only grows from one holder of a place to the next (a fencing token): a system outside sluice can refuse a token
    smaller than one it has seen. `lost` is set when the loss of the lease is noticed (its session expired, or somebody broke
    it). That may be late, so use it to end work early, never as permission. Commits made by the thread that took the lease,
    while it is held, are ratified only if the lease still exists. Safe for several threads.
    """

    def __init__(self, home: LeaseClient, request: LeaseRequest) -> None:
        self.home = home
        self.token = request.token
        self.lost = threading.Event()
        self._nodes: dict[str, LeaseNode] = dict(request.nodes)
        self._store: CoordinationStore = request.store
        self._pid = os.getpid()
        self._released = False
        self._lock = ForkSafeLock()
        self._wake = home.clock.event()
        self._why = ""

    @property
    def nodes(self) -> dict[str, LeaseNode]:
        """The granted requests, by the paths of their nodes."""
        return dict(self._nodes)

    @property
    def reference(self) -> str:
        """The nodes as one text, for a process that commits on behalf of this one; Spark's write option `lease` takes it."""
        return ",".join(self._nodes)

    @property
    def held(self) -> bool:
        """Whether the lease is held as far as this process knows without asking: not released, not lost, and the session is alive."""
        return self.counts and not self.lost.is_set() and self._store.connected

    @property
    def counts(self) -> bool:
        """Whether commits still depend on it: true until it is released, even if lost; false in a process forked from its owner's."""
        return not self._released and self._pid == os.getpid()

    def check(self, *, timeout_s: Timeout = DEFAULT_TIMEOUT_S) -> None:
        """Ask the coordinator whether the lease is held, for work that no commit protects. Raises LeaseLost, CoordinatorUnavailable.

        The answer holds for the moment of the question only: the holder may be paused right after it.
        """
        if not self.counts:
            raise LeaseLost(f"{self} was released", facts={"lease": list(self._nodes)})
        with bounding(timeout_s, self.home.clock):
            standing = self._look()
        if standing:
            return
        raise LeaseLost(f"{self} is gone{self._why or ': its session with the coordinator expired'}", facts={"lease": list(self._nodes)})

    def release(self) -> None:
        """Release the lease; doing so again does nothing. Never raises: a node that cannot be removed now is removed later."""
        with self._lock:
            if self._released:
                return
            self._released = True
        mine: list[Lease] = _stack()
        mine[:] = [lease for lease in mine if lease is not self]
        if self._pid == os.getpid():  # in a forked process a thread that does not exist there may hold the event's lock
            self._wake.set()
            let_go(self.home, self._store, list(self._nodes))

    @contextmanager
    def bind(self) -> Iterator[Lease]:
        """Make this thread's commits depend on the lease, too, while the block runs; for threads that work for its owner."""
        mine = _stack()
        mine.append(self)
        try:
            yield self
        finally:
            mine.remove(self)

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        # check: loss-is-told-at-the-end (self.counts -> False)
        lost = self.counts and (self.lost.is_set() or self._certainly_lost())
        self.release()
        if lost and error is None:
            raise LeaseLost(
                f"{self} was lost while the block ran{self._why}: commits made under it are safe, other work was not protected",
                facts={"lease": list(self._nodes)},
            )

    def __repr__(self) -> str:
        parts = [f"{node.mode} on {Place.of_node(path)}{f' ({node.where})' if node.where else ''}" for path, node in self._nodes.items()]
        return f"Lease({', '.join(parts)}, token={self.token})"

    def keep(self) -> None:
        """Watch the nodes until they are released or lost; runs in its own thread."""
        while not self._released:
            self._wake.clear()
            try:
                standing = self._standing(watched=True)
            except SessionLost:
                standing = False
            except Unavailable:
                self.home.clock.sleep(_PAUSE_S)
                continue
            if not standing:
                if not self._released:
                    self._note_loss()
                return
            self._wake.wait(_LOOK_AGAIN_S)

    def _look(self) -> bool:
        try:
            self._store.barrier()
            standing = self._standing(watched=False)
        except SessionLost:
            standing = False
        if not standing:
            self._note_loss()
        return standing

    def _certainly_lost(self) -> bool:
        """One look at the end of a block; if the coordinator cannot be asked, the lease does not count as lost."""
        try:
            with bounding(_LAST_LOOK_S, self.home.clock):
                return not self._look()
        except Unavailable:
            return False

    def _standing(self, *, watched: bool) -> bool:
        return all(self._store.read(path, self._wake.set if watched else None) is not None for path in self._nodes)

    def _note_loss(self) -> None:
        self._why = self._broken_by()
        self.lost.set()

    def _broken_by(self) -> str:
        try:
            for place in {place for path in self._nodes if (place := Place.of_node(path)) is not None}:
                words = breaker(self._store.read(place.leases), list(self._nodes))
                if words:
                    return words
        except Unavailable:
            return ""
        return ""


def _stack() -> list[Lease]:
    """The leases this thread took, oldest first."""
    if not hasattr(_of_thread, "leases"):
        _of_thread.leases = []
    stack: list[Lease] = _of_thread.leases
    return stack


def held_by_this_thread(coordinator: str | None = None) -> list[Lease]:
    """The leases that this thread took and has not released; those of one coordinator if it is given."""
    mine = _stack()
    mine[:] = [lease for lease in mine if lease.counts]
    return [lease for lease in mine if coordinator is None or lease.home.coordinator == coordinator]


def lent() -> Callable[[], None]:
    """A function for another thread that works for this one: it makes that thread commit under the leases held here now."""
    held = held_by_this_thread()

    def take() -> None:
        _of_thread.leases = held

    return take


def paths_of(leases: Sequence[Lease]) -> tuple[str, ...]:
    """The nodes of several leases, as intents name them."""
    return tuple(dict.fromkeys(path for lease in leases for path in lease.nodes))


def acquire(home: LeaseClient, wanted: Sequence[Wanted], wait_s: Timeout | None = None, *, bound: bool = True) -> Lease:
    """Take leases, all of them or none, and make this thread's commits depend on them until they are released.

    Unless `bound`, only those commits depend on them that name them. Waits for `wait_s` seconds (None: without limit; 0: not at
    all) until others have released theirs. Seconds do not limit the requests themselves, so that a coordinator that answers late
    still says whether the leases are free; a Deadline ends these, too. Raises InvalidRequest, LeaseHeld, DeadlockDetected,
    LeaseLost, CoordinatorUnavailable.
    """
    limit = None if wait_s is None else Deadline.of(wait_s, home.clock, name="wait_s")
    holds = paths_of(held_by_this_thread(home.coordinator))
    with bounding(wait_s, home.clock) if isinstance(wait_s, Deadline) else nullcontext():
        request = LeaseRequest(home, wanted, holds)
        request.obtain(limit)
    lease = Lease(home, request)
    if bound:
        _stack().append(lease)
    home.in_background(lease.keep, "sluice-lease")
    return lease
