"""The leases of one table, as one client requests them; and commits that wait for a lease, each in its turn among the requests.

A commit that a lease stops joins the queue of lease requests: it waits for earlier requests, and later ones wait for it, so
successive holders cannot starve it. A waiting commit stops no other commit, and any number of commits may have their turn at
once: when a lease is released, all commits that waited for it go on together.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType

from ...storage.dataclass import dataclass
from ..errors import LeaseHeld
from ..nodes.context import TableContext
from ..nodes.lease_places import Place
from ..nodes.lease_records import PASSING
from ..service.address import Address
from ..service.clock import Deadline
from .granting import LeaseClient, LeaseRequest, Wanted, let_go
from .guard import held_in_words
from .lease import held_by_this_thread, paths_of
from .scopes import PartitionScope


@dataclass(frozen=True, slots=True)
class TableLeases:
    """The place of a table's leases (`place`), and this client's access to the coordinator that keeps them (`home`)."""

    home: LeaseClient
    place: Place

    @staticmethod
    def of(context: TableContext) -> TableLeases:
        """The leases of a table."""
        home = LeaseClient(context.connect, repr(Address.parse(context.coordinator)), context.clock, context.client)
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
        return paths_of(held_by_this_thread(self.home.coordinator))


class WaitingCommit:
    """One commit's place in the queue; used by one thread. A context manager that leaves the queue when the commit is decided."""

    def __init__(self) -> None:
        self._wanted: tuple[Wanted, ...] = ()
        self._request: LeaseRequest | None = None

    def wait(self, leases: TableLeases, scope: PartitionScope | None, held: LeaseHeld, deadline: Deadline, own: Sequence[str] = ()) -> None:
        """Wait until no earlier request is in the way of a commit that the lease in `held` stopped.

        `scope` covers what the commit touches in that table (None: all). A place that it has in another table is given up and
        requested again together with the new one: holding one place while waiting for another could close a cycle. `own` are the
        nodes of leases that the commit depends on, beside those of this thread.

        Raises `held`, naming the present holder, when the deadline passes; DeadlockDetected if that holder waits for a lease
        that this thread holds.
        """
        if Place.of_node(str(held.facts.get("lease", ""))) is None:
            raise held
        self.leave()
        self._wanted = tuple(dict.fromkeys((*self._wanted, leases.wanted(PASSING, scope))))
        holds = dict.fromkeys((*leases.of_this_thread(), *own))
        request = LeaseRequest(leases.home, self._wanted, tuple(holds))
        try:
            request.obtain(deadline)
        except LeaseHeld as late:
            facts = {**held.facts, **late.facts}
            message = held.message.replace(held_in_words(held.facts), held_in_words(late.facts))
            raise LeaseHeld(message, **{**held.details, "facts": facts}) from held
        self._request = request

    def __enter__(self) -> WaitingCommit:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.leave()

    def leave(self) -> None:
        """Leave the queue, so that later requests go on."""
        request, self._request = self._request, None
        if request is not None:
            let_go(request.home, request.store, list(request.nodes))
