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
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final

from ...storage.dataclass import dataclass
from ...storage.errors import Unavailable
from ..errors import NotCommitted
from ..nodes.context import TableContext
from ..nodes.lease_records import TURN, Place
from ..service.clock import Clock, Deadline, Event
from .granting import LeaseClient, LeaseRequest, let_go
from .lease import held_by_this_thread, lent, paths_of
from .scopes import PartitionScope
from .table_leases import TableLeases

_log = logging.getLogger(__name__)

_LOOK_AGAIN_S: Final = 2.0
_TIMES: Final = 4.0
_LEAST_S: Final = 30.0
"""A turn lasts this long at least; otherwise a multiple of the longest attempt that lost."""
_REMEMBERED_S: Final = 600.0
"""How long a loss is remembered, beyond the time of the attempt."""
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


def lent_to_threads() -> Callable[[], None]:
    """A function for a thread that works for this one: that thread commits under the leases and turns that this one has now."""
    borrow_leases, turns = lent(), _turns_here()

    def borrow() -> None:
        borrow_leases()
        _of_thread.turns = turns

    return borrow


class ReservedTurn:
    """A granted turn; made by `reserve`."""

    def __init__(self, home: LeaseClient, request: LeaseRequest, lasts_s: float) -> None:
        self.paths = tuple(request.nodes)
        """Its nodes, as intents and commits that wait name them."""
        self._ended = home.clock.event()
        self._pid = os.getpid()
        self._let_go = partial(let_go, home, request.store, list(request.nodes))
        self._siblings = _turns_here()
        self._siblings.add(self)
        ends = Deadline.after(lasts_s, home.clock)
        home.in_background(partial(_end, weakref.ref(self), self._ended, self._let_go, ends), "sluice-turn")

    def release(self) -> None:
        """End the turn; doing so again, or in a process forked from its owner's, does nothing."""
        self._siblings.discard(self)
        if self._pid == os.getpid():  # in a forked process a thread that does not exist there may hold the event's lock
            self._ended.set()
            self._let_go()


def reserve(
    parts: Sequence[tuple[TableLeases, PartitionScope | None]], name: str, turns: Sequence[str], *, lasts_s: float, wait: Deadline
) -> ReservedTurn | None:
    """A turn on parts of tables (None: the whole of one), taken in one request; None if leases of this thread cover them.

    `turns` are those that the transaction has already; `lasts_s` limits how long others are kept out. Raises LeaseHeld,
    DeadlockDetected, LeaseLost, CoordinatorUnavailable.
    """
    home = parts[0][0].home
    held = paths_of(held_by_this_thread(home.coordinator))
    covered = {Place.of_node(path) for path in held}
    wanted = [leases.wanted(TURN, scope, name) for leases, scope in parts if leases.place not in covered]
    if not wanted:
        return None
    request = LeaseRequest(home, wanted, (*held, *turns))
    request.obtain(wait)
    return ReservedTurn(home, request, lasts_s)


def turns_stand(context: TableContext, turns: Sequence[str]) -> bool:
    """Whether nobody released or broke these turns. Raises SessionLost if they ended with this session, Unavailable."""
    session = context.coordination
    return all(session.read(path) is not None for path in turns)


def _end(turn: weakref.ref[ReservedTurn], ended: Event, give_up: Callable[[], None], ends: Deadline) -> None:
    """Release a turn whose time is over, or that nothing refers to any more."""
    # check: turns-end (without and not ends.over)
    while turn() is not None and not ends.over:
        if ended.wait(min(_LOOK_AGAIN_S, ends.left_s)):
            return
    give_up()


def lasting_s(took_s: float) -> float:
    """How long a turn is reserved after attempts that took this long."""
    return max(_LEAST_S, _TIMES * took_s)


def named_after(losses: int) -> str:
    """The name of a turn after so many losses in a row."""
    return f"after {losses} {'loss' if losses == 1 else 'losses'}"


def advice(losses: int, remedy: str) -> str:
    """Advice after so many losses in a row, in words that follow a refusal."""
    if losses > 1:
        return f"; it is loss {losses} in a row: let Table.transact repeat it, or take a lease (Table.lease), which stops appends too"
    return f"; its next attempt has its turn: {remedy}"


class Chance:
    """One attempt at a transaction, from before it reads to its end. Used by one thread.

    The first attempt has no turn. After one loss the next attempt has its turn on what the lost one read, after two on the
    whole table. Only plain appends pass a turn, so at most two attempts lose to anything else, unless one takes four times
    as long as those before.
    """

    def __init__(self, clock: Clock, *, advises: bool = True) -> None:
        """`advises`: a refusal gives advice."""
        self._clock, self._advises = clock, advises
        self._began_s = clock.monotonic_s()
        self._before: dict[str, Loss] = {}
        self._turns: list[ReservedTurn] = []
        self._lost = False

    @property
    def turns(self) -> tuple[str, ...]:
        """The turns it has, as intents and commits that wait name them."""
        return tuple(path for turn in self._turns for path in turn.paths)

    def take(self, tables: Sequence[TableLeases], wait: Deadline) -> None:
        """Wait for the turn on the tables where this thread lost last, for half of the time: the other half is for the commit.

        Goes on without it if it is not granted by then, as beside a lease on another part of the table.
        """
        losses, now = losses_of_thread(), self._clock.monotonic_s()
        wanted: list[tuple[TableLeases, Loss]] = []
        for table in tables:
            loss = losses.pop(table.key, None)
            if loss is not None and now - loss.at_s <= _REMEMBERED_S + loss.took_s:
                self._before[table.key] = loss
                wanted.append((table, loss))
        # check: losers-have-their-turn
        if wanted and not set(turns_of_thread()) - set(self.turns):  # one thread takes no turn beside its other transaction's
            lasts_s, name = lasting_s(max(loss.took_s for _, loss in wanted)), named_after(max(loss.losses for _, loss in wanted))
            try:
                half = Deadline.after(wait.left_s / 2, wait.clock)
                turn = reserve([(table, loss.where) for table, loss in wanted], name, self.turns, lasts_s=lasts_s, wait=half)
                self._turns += [] if turn is None else [turn]
            except (NotCommitted, Unavailable) as without:
                _log.info("a transaction goes on without its turn %s: %s", name, without)
        self._began_s = self._clock.monotonic_s()

    def lost(self, read: Iterable[tuple[TableLeases, PartitionScope | None]]) -> str:
        """Note that it lost after reading these parts of these tables (None: all); returns advice in words that follow a refusal."""
        self._lost, most = True, 0
        now = self._clock.monotonic_s()
        for table, where in read:
            before = self._before.get(table.key)
            took_s, losses = now - self._began_s, 1
            if before is not None:
                took_s, losses, where = max(took_s, before.took_s), before.losses + 1, None
            losses_of_thread()[table.key] = Loss(where, took_s, losses, now)
            most = max(most, losses)
        return advice(most, "repeat it in this thread, or let Table.transact do so") if most and self._advises else ""

    def end(self, *, won: bool) -> None:
        """Note its end; one that was given up keeps its turn for the next attempt."""
        for turn in self._turns:
            turn.release()
        self._turns = []
        if not won and not self._lost:
            losses_of_thread().update(self._before)
        self._before = {}
