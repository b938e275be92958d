"""Administration of a coordinator: connected clients, known tables, leases, and its health."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import unquote

from ..leases.listing import LeaseEntry, break_lease, list_broken, list_leases
from ..nodes.layout import TABLES, TableTree
from ..nodes.lease_records import Broken, Place
from ..nodes.presence import Client
from ..nodes.presence import list_clients as clients_of
from ..service.address import Address
from ..service.clock import SystemClock
from ..service.connect import connect, release, start_embedded

__all__ = ["Address", "Broken", "LeasesAt", "connect", "known_locations", "list_clients", "release", "start_embedded"]


def known_locations(coordinator: str | None) -> list[str]:
    """The locations of the tables that a coordinator knows, in order; may include a name that is not a table's."""
    return sorted(unquote(name) for name in connect(coordinator).children(TABLES) or ())


def list_clients(coordinator: str | None) -> list[Client]:
    """The connected clients, oldest first."""
    return clients_of(connect(coordinator))


class LeasesAt:
    """The leases on a table (by its normalised location), or on a name that is not a table."""

    def __init__(self, coordinator: str | None, location: str, *, is_name: bool = False) -> None:
        self.place = Place.of_name(location) if is_name else Place.of_table(TableTree(location))
        self._session = connect(coordinator)

    def asked_for(self) -> list[LeaseEntry]:
        """The requests, granted or waiting, in the order they were made."""
        return list_leases(self._session, self.place)

    def broken(self) -> Sequence[Broken]:
        """The last leases that were broken."""
        return list_broken(self._session, self.place)

    def take_away(self, lease: str, *, by: str, reason: str) -> Broken:
        """Break a lease; its holder's commits are refused from then on. `by` and `reason` are recorded."""
        return break_lease(self._session, self.place, lease, by=by, reason=reason, at_ms=SystemClock().now_ms())
