"""Leases on tables and on names, as programs request them: one, or several at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeAlias

from ...storage.arguments import checked
from ...storage.dataclass import dataclass
from ...storage.errors import InvalidRequest
from ...storage.log.snapshot import Snapshot
from ...storage.pruning.predicate import Predicate
from ...storage.schema.schema import parse_schema
from ..nodes.lease_places import Place
from ..nodes.lease_records import EXCLUSIVE
from ..nodes.presence import this_client
from ..service.clock import Timeout
from .granting import LeaseClient, Wanted
from .lease import Lease, TableLeases, acquire
from .scopes import PartitionScope


@dataclass(frozen=True, slots=True)
class LeaseOn:
    """A lease to request together with others: made by `Table.lease_on`, or by `sluice.lease_on` for a name."""

    home: LeaseClient
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
    return LeaseOn(LeaseClient.at(coordinator, this_client(application)), Wanted(Place.of_name(name), mode, name=name))


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
    requested = [each if isinstance(each, LeaseOn) else lease_on(each) if isinstance(each, str) else each.lease_on() for each in targets]
    home = requested[0].home
    if any(each.home.coordinator != home.coordinator for each in requested):
        raise InvalidRequest("leases of several coordinators cannot be taken in one request: take them one after the other")
    return acquire(home, list(dict.fromkeys(each.wanted for each in requested)), wait_s)
