"""A transaction's chance to get through: after a loss, the next attempt of the same thread has its turn."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Final

from ...storage.errors import Unavailable
from ..errors import NotCommitted
from ..service.clock import Clock, Deadline
from .reserved_turns import Loss, ReservedTurn, losses_of_thread, turns_of_thread
from .scopes import PartitionScope
from .table_leases import TableLeases, reserve

__all__ = ["Chance", "advice", "lasting_s", "named_after"]

_log = logging.getLogger(__name__)

_TIMES: Final = 4.0
_LEAST_S: Final = 30.0
"""A turn lasts this long at least; otherwise a multiple of the longest attempt that lost."""
_REMEMBERED_S: Final = 600.0
"""How long a loss is remembered, beyond the time of the attempt."""


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
