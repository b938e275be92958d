"""Tickets: losses kept with the table, so that another process may repeat the transaction with a turn.

The parts of a Spark job run in their own processes, which remember nothing. So a job's loss is written to the table's
node `losses`, and the next plan of the same application for the same work takes it from there, once. A ticket blocks nobody;
only the turn that its taker requests does.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Final

import orjson

from ...storage.dataclass import dataclass
from ...storage.errors import SluiceError
from ..nodes.context import TableContext
from ..nodes.records import digest
from ..service.store import BadVersion, NodeExists

_log = logging.getLogger(__name__)

_KEPT: Final = 32
_KEPT_MS: Final = 24 * 3600 * 1000
_TRIES: Final = 5
_WORK_CHARACTERS_MAX: Final = 500


@dataclass(frozen=True, slots=True)
class Ticket:
    """A loss: the application, its `work` (which of its writes it was), how long the attempt took, and how many lost in a row.

    `where` covers what it read (None: the whole table); `since_ms` is the wall clock of its writer.
    """

    application: str
    work: str
    where: str | None
    took_s: float
    losses: int = 1
    since_ms: int = 0


def leave_ticket(context: TableContext, ticket: Ticket) -> None:
    """Record a loss. A failure costs only the ticket."""
    ticket = replace(ticket, work=_short(ticket.work))

    def added(tickets: list[Ticket]) -> list[Ticket]:
        now = context.clock.now_ms()
        others = [each for each in tickets if not _same(each, ticket) and now - each.since_ms < _KEPT_MS]
        return [*others, replace(ticket, since_ms=now)][-_KEPT:]

    _change(context, added)


def take_ticket(context: TableContext, application: str, work: str) -> Ticket | None:
    """Take the ticket of this work, so that nobody else gets it; None if there is none or the coordinator cannot be asked."""
    wanted = Ticket(application, _short(work), None, 0.0)
    found: list[Ticket] = []

    def without(tickets: list[Ticket]) -> list[Ticket] | None:
        found[:] = [each for each in tickets if _same(each, wanted)]
        return [each for each in tickets if not _same(each, wanted)] if found else None

    return found[0] if _change(context, without) and found else None


def _short(work: str) -> str:
    """The text of a work, or the digest of a long one: all tickets share one node."""
    return work if len(work) <= _WORK_CHARACTERS_MAX else digest(work.encode())


def _same(one: Ticket, other: Ticket) -> bool:
    return (one.application, one.work) == (other.application, other.work)


def _change(context: TableContext, change: Callable[[list[Ticket]], list[Ticket] | None]) -> bool:
    """Write what `change` makes of the tickets (None: nothing to write). Returns whether it was written."""
    path = context.tree.losses
    for _ in range(_TRIES):
        try:
            session = context.coordination
            session.barrier()  # another process wrote it
            node = session.read(path)
            tickets = change([] if node is None else _decoded(node.data))
            if tickets is None:
                return False
            data = orjson.dumps(tickets)
            if node is None:
                session.create(path, data)
            else:
                session.write(path, data, version=node.version)
        except (BadVersion, NodeExists):
            continue
        except SluiceError as trouble:
            _log.info("a lost transaction is not remembered: %s", trouble)
            return False
        else:
            return True
    return False


def _decoded(data: bytes) -> list[Ticket]:
    """The tickets; none if the data are not a list of tickets."""
    try:
        return [Ticket(**each) for each in orjson.loads(data)]
    except (ValueError, TypeError):
        return []
