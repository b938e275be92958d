"""Named consumers of a table, for the floors above."""

from __future__ import annotations

from ...storage.errors import InvalidRequest
from ..leases.consumers import Hold, consumers_of, hold_consumer
from ..leases.listing import LeaseEntry
from ..nodes.consumer_records import ConsumerRecord
from ..service.clock import Timeout
from .table import CoordinatedTable

__all__ = ["ConsumerRecord", "Hold", "LeaseEntry", "hold", "listed"]

_NAME_CHARACTERS_MAX = 200


def hold(table: CoordinatedTable, name: str, wait_s: Timeout | None) -> Hold:
    """Become a consumer of a table. Raises InvalidRequest for an impossible name, LeaseHeld, DeadlockDetected, CoordinatorUnavailable."""
    if not isinstance(name, str) or not 0 < len(name) <= _NAME_CHARACTERS_MAX or not name.isprintable():
        raise InvalidRequest(f"the consumer's name is {name!r}; give 1 to {_NAME_CHARACTERS_MAX} printable characters", name=name)
    return hold_consumer(table.context, table.leases.home, name, wait_s)


def listed(table: CoordinatedTable) -> list[tuple[ConsumerRecord, LeaseEntry | None]]:
    """The consumers of a table that have a position, by name, each with the lease by which somebody holds it."""
    return consumers_of(table.context)
