"""The leases of one table, as one client requests them."""

from __future__ import annotations

from collections.abc import Sequence

from ...storage.dataclass import dataclass
from ..errors import DeadlockDetected, LeaseHeld
from ..nodes.context import TableContext
from ..nodes.lease_records import PASSING, TURN, Place
from ..service.address import Address
from ..service.clock import Deadline
from .granting import LeaseHome, Wanted
from .lease import held_by_this_thread, paths_of
from .queueing_commits import Turn
from .reserved_turns import ReservedTurn, release_nodes
from .scopes import PartitionScope

__all__ = ["TableLeases", "coordinator_key", "reserve"]


def coordinator_key(coordinator: str | None) -> str:
    """Distinguishes one coordinator from another."""
    return repr(Address.parse(coordinator))


@dataclass(frozen=True, slots=True)
class TableLeases:
    """The place of a table's leases (`place`), and this client's access to the coordinator that keeps them (`home`)."""

    home: LeaseHome
    place: Place

    @staticmethod
    def of(context: TableContext, coordinator: str | None) -> TableLeases:
        """The leases of a table at the coordinator of this address."""
        home = LeaseHome(context.connect, coordinator_key(coordinator), context.clock, context.client)
        return TableLeases(home, Place.of_table(context.tree))

    @property
    def key(self) -> str:
        """Distinguishes this table from all others, at whichever coordinator."""
        return f"{self.home.coordinator} {self.place}"

    def wanted(self, mode: str, scope: PartitionScope | None, name: str = "") -> Wanted:
        """A lease to request, on some partitions or on the table (None)."""
        sql, types = ("", ()) if scope is None else (scope.sql, scope.types)
        return Wanted(self.place, mode, sql, types, name)

    def of_this_thread(self) -> tuple[str, ...]:
        """The nodes of the leases that a commit of this thread depends on."""
        held = held_by_this_thread()
        return () if not held else paths_of([each for each in held if each.home.coordinator == self.home.coordinator])

    def await_turn(self, turn: Turn, scope: PartitionScope | None, held: LeaseHeld, deadline: Deadline, turns: Sequence[str] = ()) -> None:
        """Wait outside the queue of commits until a commit that a lease stopped may go on; `scope` covers what it touches.

        `turns` are those reserved for it; they are given up if they would close a cycle of waits, since nothing depends on
        them.

        Raises `held` if the deadline passes first, DeadlockDetected for a cycle closed by leases of this thread.
        """
        wanted = self.wanted(PASSING, scope)
        try:
            turn.wait(self.home, wanted, held, deadline, turns=turns)
        except DeadlockDetected:
            if not turns:
                raise
            release_nodes(self.home.connect(), turns)
            turn.wait(self.home, wanted, held, deadline)


def reserve(
    parts: Sequence[tuple[TableLeases, PartitionScope | None]], name: str, turns: Sequence[str], *, lasts_s: float, wait: Deadline
) -> ReservedTurn | None:
    """A turn on parts of tables (None: the whole of one), taken in one request; None if leases of this thread cover them.

    `turns` are those that the transaction has already. Raises LeaseHeld, DeadlockDetected, LeaseLost,
    CoordinatorUnavailable.
    """
    home = parts[0][0].home
    held = paths_of(held_by_this_thread(home.coordinator))
    covered = {Place.of_node(path) for path in held}
    wanted = [leases.wanted(TURN, scope, name) for leases, scope in parts if leases.place not in covered]
    return ReservedTurn.take(home, wanted, (*held, *turns), lasts_s=lasts_s, wait=wait) if wanted else None
