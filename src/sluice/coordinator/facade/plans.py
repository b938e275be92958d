"""Writes that are planned in one process, written in others, and committed in another."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ...storage.log.snapshot import Snapshot
from ..leases import tickets
from ..leases.granting import release_nodes
from ..leases.scopes import PartitionScope
from ..leases.tickets import Ticket
from ..leases.turns import ReservedTurn, advice, lasting_s, named_after, reserve
from ..nodes import plans
from ..nodes.identity import another_id
from ..service.clock import Deadline
from .table import CoordinatedTable, of_table

__all__ = [
    "Ticket",
    "advice",
    "another_id",
    "close_plan",
    "close_plan_aside",
    "keep_turn",
    "lasting_s",
    "leave_ticket",
    "named_after",
    "open_plan",
    "release_turns",
    "ticket_for",
    "turns_stand",
]

close_plan = of_table(plans.close_plan)
leave_ticket = of_table(tickets.leave_ticket)
open_plan = of_table(plans.open_plan)


def close_plan_aside(table: CoordinatedTable, transaction_id: str) -> None:
    """Close the plan of a committed transaction in a thread."""
    table.committer.background.submit(partial(close_plan, table, transaction_id))


def release_turns(table: CoordinatedTable, turns: Sequence[str]) -> None:
    """End these turns, so that others go on. Raises only if no session can be opened."""
    release_nodes(table.context.coordination, turns)


def keep_turn(
    table: CoordinatedTable, where: str | None, snapshot: Snapshot, name: str, beside: Sequence[str], lasts_s: float, wait_s: float
) -> ReservedTurn | None:
    """Keep others from changing part of the table (None: all of it) for up to `lasts_s`; `beside` are leases that the write depends on.

    Waits for up to `wait_s`. None if leases of this thread cover it already. Raises LeaseHeld, DeadlockDetected, LeaseLost.
    """
    parts = [(table.leases, PartitionScope.of(snapshot, where))]
    return reserve(parts, name, beside, lasts_s=lasts_s, wait=Deadline.after(wait_s))


def turns_stand(table: CoordinatedTable, turns: Sequence[str]) -> bool:
    """Whether nobody released or broke these turns. Raises SessionLost if they ended with this session, Unavailable."""
    session = table.context.coordination
    return all(session.read(path) is not None for path in turns)


def ticket_for(table: CoordinatedTable, work: str) -> Ticket | None:
    """Take the ticket of this application's work, so that nobody else gets it; None if there is none or the coordinator is away."""
    return tickets.take_ticket(table.context, table.application, work)
