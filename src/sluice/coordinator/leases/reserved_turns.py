"""Reserved turns: what lets a transaction that lost get through beside any number of others.

::

    lost ---> remembered ---> the next attempt asks ---> has its turn ---> reads, works, commits ---> released
                              (in the queue of leases)   nobody else changes what it covers; plain appends pass

A turn is a lease of its own mode, asked for before the attempt reads anything. It only keeps others out: nothing depends on it, so
an attempt that loses its turn may still commit. It ends with the attempt, with the session of its owner, when nobody
refers to it any more, and at the latest after the time it was reserved for.
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
from .queue import LeaseHome, LeaseRequest, Wanted, let_go

__all__ = ["Loss", "ReservedTurn", "lent_turns", "losses_of_thread", "release_nodes", "turns_of_thread"]

_log = logging.getLogger(__name__)

_LOOK_AGAIN_S: Final = 2.0
_of_thread = threading.local()


@dataclass(frozen=True, slots=True)
class Loss:
    """What is remembered of a transaction that lost on a table.

    `where` covers what it read (None: the whole table), `took_s` is how long the longest attempt took so far, `losses` how many
    attempts in a row lost, `at_s` when the last one did (seconds of the client's monotonic clock).
    """

    where: str | None
    took_s: float
    losses: int
    at_s: float


def losses_of_thread() -> dict[str, Loss]:
    """What the calling thread lost last, by table; one who repeats a transaction does so in its thread."""
    if not hasattr(_of_thread, "losses"):
        _of_thread.losses = {}
    losses: dict[str, Loss] = _of_thread.losses
    return losses


def turns_of_thread() -> tuple[str, ...]:
    """The turns of all transactions of the calling thread. They keep out others only: one thread that waits for itself waits in vain."""
    return tuple(path for turn in _turns_here() for path in turn.paths)


def _turns_here() -> weakref.WeakSet[ReservedTurn]:
    if not hasattr(_of_thread, "turns"):
        _of_thread.turns = weakref.WeakSet()
    turns: weakref.WeakSet[ReservedTurn] = _of_thread.turns
    return turns


def lent_turns() -> Callable[[], None]:
    """For another thread to call that works for this one: the turns of this one are its own then."""
    turns = _turns_here()

    def take() -> None:
        _of_thread.turns = turns

    return take


class ReservedTurn:
    """A turn that was granted; made by `take`."""

    def __init__(self, home: LeaseHome, request: LeaseRequest, lasts_s: float) -> None:
        self.paths = tuple(request.nodes)
        """Its nodes, as requests to commit name them."""
        self._ended = home.clock.event()
        self._let_go = partial(let_go, home, request.store, list(request.nodes))
        self._siblings = _turns_here()
        self._siblings.add(self)
        ends = Deadline.after(lasts_s, home.clock)
        home.aside(partial(_end, weakref.ref(self), self._ended, self._let_go, ends), "sluice-turn")

    @staticmethod
    def take(home: LeaseHome, wanted: Sequence[Wanted], holds: Sequence[str], *, lasts_s: float, wait: Deadline) -> ReservedTurn:
        """Wait for the turn. Raises LeaseHeld when the time is over, DeadlockDetected, LeaseLost, CoordinatorUnavailable.

        `holds` are the leases that this thread holds; `lasts_s` bounds for how long others are kept out.
        """
        request = LeaseRequest(home, wanted, holds)
        request.obtain(wait)
        return ReservedTurn(home, request, lasts_s)

    def release(self) -> None:
        """Let others go on; doing so again does nothing."""
        self._siblings.discard(self)
        self._ended.set()
        self._let_go()


def release_nodes(session: CoordinationStore, paths: Sequence[str]) -> None:
    """Let others go on who wait for these turns, whoever took them. Never raises: a turn ends in time by itself."""
    for path in paths:
        try:
            session.delete(path)
        except NoNode:
            continue
        except SluiceError as trouble:
            _log.info("the turn %s was not released here: %s", path, trouble)


def _end(turn: weakref.ref[ReservedTurn], ended: Event, give_up: Callable[[], None], ends: Deadline) -> None:
    """Release a turn whose time is over, or that nobody refers to any more."""
    while turn() is not None and not ends.over:
        if ended.wait(min(_LOOK_AGAIN_S, ends.left_s)):
            return
    give_up()
