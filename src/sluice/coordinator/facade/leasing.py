"""Leases on tables and on names, and consumers of tables, which hold one, as programs ask for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Protocol, TypeAlias

from ...storage.arguments import checked
from ...storage.dataclass import dataclass
from ...storage.errors import InvalidRequest
from ...storage.log.snapshot import Snapshot
from ...storage.pruning.predicate import Predicate
from ...storage.schema.schema import parse_schema
from ..leases import consumers
from ..leases.consumers import Hold
from ..leases.granting import LeaseHome, Wanted
from ..leases.lease import Lease, acquire, lent
from ..leases.listing import LeaseEntry
from ..leases.scopes import PartitionScope
from ..leases.table_leases import TableLeases, coordinator_key
from ..leases.turns import lent_turns
from ..nodes.consumer_records import ConsumerRecord
from ..nodes.lease_records import EXCLUSIVE, SHARED, Place
from ..service.clock import Timeout
from ..service.connect import connect
from .table import CoordinatedTable, of_table, this_client

__all__ = [
    "EXCLUSIVE",
    "SHARED",
    "ConsumerRecord",
    "Hold",
    "Leasable",
    "Lease",
    "LeaseEntry",
    "LeaseOn",
    "consumers_of",
    "hold_consumer",
    "lease",
    "lease_on",
    "lease_on_table",
    "leases",
    "lent_to_threads",
]

_NAME_CHARACTERS_MAX: Final = 200

consumers_of = of_table(consumers.consumers_of)


@dataclass(frozen=True, slots=True)
class LeaseOn:
    """A lease to request together with others: made by `Table.lease_on`, or by `sluice.lease_on` for a name."""

    home: LeaseHome
    wanted: Wanted


class Leasable(Protocol):
    """Anything that has its own leases, such as `sluice.Table`."""

    def lease_on(self, mode: str = EXCLUSIVE, where: str | None = None, *, name: str | None = None) -> LeaseOn:
        """The lease to request."""
        ...


Target: TypeAlias = "LeaseOn | Leasable | str"


def lease_on_table(table: TableLeases, snapshot: Snapshot, mode: str, where: str | None, name: str | None) -> LeaseOn:
    """A lease on a table, or on its partitions that satisfy `where`. Raises InvalidRequest and PredicateError."""
    condition = None
    if where is not None:
        schema = parse_schema(snapshot.metadata.schema_string)
        condition = Predicate.over_partitions(where, schema, snapshot.partition_columns, "a lease covers whole partitions").to_sql()
    scope = PartitionScope.of(snapshot, condition)
    return LeaseOn(table.home, table.wanted(mode, scope, name or ""))


@checked
def lease_on(name: str, mode: str = EXCLUSIVE, *, coordinator: str | None = None, application: str | None = None) -> LeaseOn:
    """A lease on a name that is not a table, to request together with others. Raises InvalidRequest."""
    home = LeaseHome(partial(connect, coordinator), coordinator_key(coordinator), client=this_client(application))
    return LeaseOn(home, Wanted(Place.of_name(name), mode, name=name))


@checked
def lease(
    name: str,
    mode: str = EXCLUSIVE,
    *,
    wait_s: Timeout | None = None,
    coordinator: str | None = None,
    application: str | None = None,
) -> Lease:
    """Take a lease on a name that is not a table, so that jobs that agree on the name exclude each other.

    Waits its turn for `wait_s` seconds (None: without limit; a Deadline ends its requests, too). This thread's commits to tables of
    the same coordinator are ratified only while it is held. Raises LeaseHeld, DeadlockDetected, CoordinatorUnavailable.
    """
    return leases([lease_on(name, mode, coordinator=coordinator, application=application)], wait_s=wait_s)


@checked
def leases(targets: Sequence[Target], *, wait_s: Timeout | None = None) -> Lease:
    """Take several leases at once, all or none: tables (the whole of each, exclusively), names, or results of `lease_on`.

    One request takes them all, so that two callers that name the same ones in another order do not deadlock.
    """
    asked = [each if isinstance(each, LeaseOn) else lease_on(each) if isinstance(each, str) else each.lease_on() for each in targets]
    home = asked[0].home
    if any(each.home.coordinator != home.coordinator for each in asked):
        raise InvalidRequest("leases of several coordinators cannot be taken in one request: take them one after the other")
    return acquire(home, list(dict.fromkeys(each.wanted for each in asked)), wait_s)


def lent_to_threads() -> Callable[[], None]:
    """A function for a thread that works for this one: that thread commits under the leases and turns that this one has now."""
    borrow_leases, borrow_turns = lent(), lent_turns()

    def borrow() -> None:
        borrow_leases()
        borrow_turns()

    return borrow


def hold_consumer(table: CoordinatedTable, name: str, wait_s: Timeout | None) -> Hold:
    """Become a consumer of a table. Raises InvalidRequest for an impossible name, LeaseHeld, DeadlockDetected, CoordinatorUnavailable."""
    return consumers.hold_consumer(table.context, table.leases.home, name, wait_s)
