"""The chance of a transaction to get through: after a loss the next attempt of the same thread has its turn."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Final

from ...coordinator.errors import NotCommitted
from ...coordinator.leases.reserved_turns import Loss, ReservedTurn, losses_of_thread, turns_of_thread
from ...coordinator.service.clock import Clock, Deadline
from ...storage.errors import Unavailable
from ..client.access import Access
from ..client.leasing import key_of, reserve

__all__ = ["Chance", "advice", "lasting_s", "named_after"]

_log = logging.getLogger(__name__)

_TIMES: Final = 4.0
_LEAST_S: Final = 30.0
"""A turn lasts so many times as long as the longest attempt that lost, and this long at least."""
_REMEMBERED_S: Final = 600.0
"""For how long a loss is remembered, beyond the time that the attempt took."""


def lasting_s(took_s: float) -> float:
    """For how long a turn is reserved after attempts that took so long."""
    return max(_LEAST_S, _TIMES * took_s)


def named_after(losses: int) -> str:
    """What a turn is called after so many losses in a row."""
    return f"after {losses} {'loss' if losses == 1 else 'losses'}"


def advice(losses: int, remedy: str) -> str:
    """What to do after so many losses in a row, in words that follow a refusal."""
    if losses > 1:
        return f"; it is loss {losses} in a row: let Table.transact repeat it, or take a lease (Table.lease), which stops appends too"
    return f"; its next attempt has its turn: {remedy}"


class Chance:
    """One attempt at a transaction, from before it reads to its end. Used by one thread.

    The first attempt has no turn. After a loss the next one has its turn on what the lost one read, after two losses on the whole table.
    Only plain appends pass it, so at most two attempts lose to anything else, as long as none takes four times as long as those before.
    """

    def __init__(self, clock: Clock, *, tells: bool = True) -> None:
        """`tells`: whether a refusal is told here what to do about it."""
        self._clock, self._tells = clock, tells
        self._began_s = clock.monotonic_s()
        self._before: dict[str, Loss] = {}
        self._turns: list[ReservedTurn] = []
        self._lost = False

    @property
    def turns(self) -> tuple[str, ...]:
        """The turns it has, as requests to commit name them."""
        return tuple(path for turn in self._turns for path in turn.paths)

    def take(self, accesses: Sequence[Access], wait: Deadline) -> None:
        """Wait for the turn on those of the tables where this thread lost last, for half of the time: the other half is for the commit.

        Goes on without it when it is not to be had by then, as beside a lease on another part of the table.
        """
        losses, now = losses_of_thread(), self._clock.monotonic_s()
        wanted: list[tuple[Access, Loss]] = []
        for access in accesses:
            loss = losses.pop(key_of(access), None)
            if loss is not None and now - loss.at_s <= _REMEMBERED_S + loss.took_s:
                self._before[key_of(access)] = loss
                wanted.append((access, loss))
        if wanted and not set(turns_of_thread()) - set(self.turns):  # one thread takes no turn beside its other transaction's
            lasts_s, name = lasting_s(max(loss.took_s for _, loss in wanted)), named_after(max(loss.losses for _, loss in wanted))
            try:
                half = Deadline.after(wait.left_s / 2, wait.clock)
                turn = reserve([(access, loss.where) for access, loss in wanted], name, self.turns, lasts_s=lasts_s, wait=half)
                self._turns += [] if turn is None else [turn]
            except (NotCommitted, Unavailable) as without:
                _log.info("a transaction goes on without its turn %s: %s", name, without)
        self._began_s = self._clock.monotonic_s()

    def lost(self, read: Mapping[Access, str | None]) -> str:
        """It lost, having read these parts of these tables (None: all); says what to do about it, in words that follow a refusal."""
        self._lost, most = True, 0
        now = self._clock.monotonic_s()
        for access, where in read.items():
            before = self._before.get(key_of(access))
            took_s, losses = now - self._began_s, 1
            if before is not None:
                took_s, losses, where = max(took_s, before.took_s), before.losses + 1, None
            losses_of_thread()[key_of(access)] = Loss(where, took_s, losses, now)
            most = max(most, losses)
        return advice(most, "repeat it in this thread, or let Table.transact do so") if most and self._tells else ""

    def end(self, *, won: bool) -> None:
        """It is over; one that was given up keeps its turn for the next attempt."""
        for turn in self._turns:
            turn.release()
        self._turns = []
        if not won and not self._lost:
            losses_of_thread().update(self._before)
        self._before = {}
