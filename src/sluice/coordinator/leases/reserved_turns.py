"""Reserved turns: how a transaction that lost gets through against any number of others.

::

    lost ---> remembered ---> the next attempt asks ---> has its turn ---> reads, works, commits ---> released
                              (in the queue of leases)   nobody else changes what it covers; plain appends pass

A turn is a lease with its own mode, requested before the attempt reads anything. It only keeps others out: no commit
depends on it, so an attempt that loses its turn may still commit. A turn ends with the attempt, with its owner's session,
when nothing refers to it any more, and at the latest when its time is over.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from ...storage.dataclass import dataclass
from ...storage.errors import SluiceError
from ..service.clock import Deadline, Event
from ..service.store import CoordinationStore, NoNode
from .granting import LeaseHome, LeaseRequest, Wanted, let_go
from .scopes import PartitionScope

__all__ = ["Loss", "ReservedTurn", "lent_turns", "losses_of_thread", "release_nodes", "turns_of_thread"]

_log = logging.getLogger(__name__)

_LOOK_AGAIN_S: Final = 2.0
_of_thread = threading.local()


@dataclass(frozen=True, slots=True)
class Loss:
    """A transaction's losses on one table.

    `where` covers what it read (None: the whole table), `took_s` is how long the longest attempt took so far, `losses` how
    many attempts in a row lost, `at_s` when the last one lost (seconds of the client's monotonic clock).
    """

    where: PartitionScope | None
    took_s: float
    losses: int
    at_s: float


def losses_of_thread() -> dict[str, Loss]:
    """The calling thread's last losses, by table; a transaction is repeated in the thread that lost it."""
    if not hasattr(_of_thread, "losses"):
        _of_thread.losses = {}
    losses: dict[str, Loss] = _of_thread.losses
    return losses


def turns_of_thread() -> tuple[str, ...]:
    """The turns of all transactions of the calling thread. They keep out others only: a thread must not wait for itself."""
    return tuple(path for turn in _turns_here() for path in turn.paths)


def _turns_here() -> weakref.WeakSet[ReservedTurn]:
    if not hasattr(_of_thread, "turns"):
        _of_thread.turns = weakref.WeakSet()
    turns: weakref.WeakSet[ReservedTurn] = _of_thread.turns
    return turns


def lent_turns() -> Callable[[], None]:
    """A function for another thread that works for this one: it makes this thread's turns that thread's own."""
    turns = _turns_here()

    def take() -> None:
        _of_thread.turns = turns

    return take


class ReservedTurn:
    """A granted turn; made by `take`."""

    def __init__(self, home: LeaseHome, request: LeaseRequest, lasts_s: float) -> None:
        self.paths = tuple(request.nodes)
        """Its nodes, as intents and commits that wait name them."""
        self._ended = home.clock.event()
        self._let_go = partial(let_go, home, request.store, list(request.nodes))
        self._siblings = _turns_here()
        self._siblings.add(self)
        ends = Deadline.after(lasts_s, home.clock)
        home.aside(partial(_end, weakref.ref(self), self._ended, self._let_go, ends), "sluice-turn")

    @staticmethod
    def take(home: LeaseHome, wanted: Sequence[Wanted], holds: Sequence[str], *, lasts_s: float, wait: Deadline) -> ReservedTurn:
        """Wait for the turn. Raises LeaseHeld when the time is over, DeadlockDetected, LeaseLost, CoordinatorUnavailable.

        `holds` are the leases that this thread holds; `lasts_s` limits how long others are kept out.
        """
        request = LeaseRequest(home, wanted, holds)
        request.obtain(wait)
        return ReservedTurn(home, request, lasts_s)

    def release(self) -> None:
        """End the turn; doing so again does nothing."""
        self._siblings.discard(self)
        self._ended.set()
        self._let_go()


def release_nodes(session: CoordinationStore, paths: Sequence[str]) -> None:
    """End these turns, also other clients'. Never raises: a turn ends in time by itself."""
    for path in paths:
        try:
            session.delete(path)
        except NoNode:
            continue
        except SluiceError as trouble:
            _log.info("the turn %s was not released here: %s", path, trouble)


def _end(turn: weakref.ref[ReservedTurn], ended: Event, give_up: Callable[[], None], ends: Deadline) -> None:
    """Release a turn whose time is over, or that nothing refers to any more."""
    # check: turns-end (without and not ends.over)
    while turn() is not None and not ends.over:
        if ended.wait(min(_LOOK_AGAIN_S, ends.left_s)):
            return
    give_up()
