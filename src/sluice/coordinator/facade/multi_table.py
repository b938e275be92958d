"""Several tables as one: a commit to all of them or none, and reads of all of them at one moment."""

from __future__ import annotations

from collections.abc import Sequence

from ...storage.errors import InvalidRequest
from ..admission.submission import submit as commit_together
from ..commit import consistent_cut
from ..errors import naming
from ..service.address import Address
from ..service.clock import Deadline
from .table import CoordinatedTable

__all__ = ["commit_together", "naming", "require_coordinator", "require_one_coordinator", "version_beside", "versions_together"]


def versions_together(tables: Sequence[CoordinatedTable], deadline: Deadline) -> list[int]:
    """The versions of one coordinator's tables at one moment, with everything acknowledged before this call.

    Raises NotATable, TableDropped, CoordinatorUnavailable, SessionLost.
    """
    return consistent_cut.versions_together([table.context for table in tables], deadline)


def version_beside(gone_on: Sequence[tuple[CoordinatedTable, int]], other: CoordinatedTable) -> int | None:
    """The version of `other` while each of the others, which have changed since, had its version; None if it is not known any more."""
    return consistent_cut.version_beside([(table.context, version) for table, version in gone_on], other.context)


def require_one_coordinator(tables: Sequence[CoordinatedTable]) -> None:
    """Raise InvalidRequest unless the tables are kept by one coordinator, below one chroot."""
    places = {each.location: _place(each.coordinator) for each in tables}
    if len(set(places.values())) > 1:
        listed = ", ".join(f"{location} by {scheme}://{place}{chroot}" for location, (scheme, place, chroot) in sorted(places.items()))
        raise InvalidRequest(
            f"these tables are kept by different coordinators ({listed}): one commit needs one order, so put them under one coordinator "
            "and chroot, or commit to them one after the other",
            places=sorted(set(places.values())),
        )


def require_coordinator(table: CoordinatedTable, coordinator: str) -> None:
    """Raise InvalidRequest unless the table is kept by this coordinator, below this chroot."""
    if _place(table.coordinator) != _place(coordinator):
        raise InvalidRequest(
            f"{table.location} is kept by {Address.parse(table.coordinator)}, and the transaction was given "
            f"coordinator={coordinator!r}: leave it out, or give tables of that coordinator",
            location=table.location,
            coordinator=coordinator,
        )


def _place(coordinator: str | None) -> tuple[str, str, str]:
    """Identifies a tree of tables, ignoring options of the session."""
    address = Address.parse(coordinator)
    chroot = address.chroot if address.scheme == "zk" else ""
    return address.scheme, ",".join(sorted(address.place.split(","))), chroot
