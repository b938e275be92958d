"""Administration of a coordinator: connected clients, known tables, leases, and its health."""

from __future__ import annotations

from urllib.parse import unquote

from ..leases.listing import break_lease, list_broken, list_leases
from ..nodes.layout import TABLES, TableTree
from ..nodes.lease_records import Broken, Place
from ..nodes.presence import Client
from ..nodes.presence import list_clients as clients_of
from ..service.address import Address
from ..service.connect import connect, release, start_embedded

__all__ = [
    "Address",
    "Broken",
    "Place",
    "TableTree",
    "break_lease",
    "connect",
    "known_locations",
    "list_broken",
    "list_clients",
    "list_leases",
    "release",
    "start_embedded",
]


def known_locations(coordinator: str | None) -> list[str]:
    """The locations of the tables that a coordinator knows, in order; may include a name that is not a table's."""
    return sorted(unquote(name) for name in connect(coordinator).children(TABLES) or ())


def list_clients(coordinator: str | None) -> list[Client]:
    """The connected clients, oldest first."""
    return clients_of(connect(coordinator))
