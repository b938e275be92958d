"""The leases of one table, as one client requests them: for their holder, for commits that wait, for transactions that lost.

A commit that a lease stops joins the queue of lease requests: it waits for earlier requests, and later ones wait for it, so
successive holders cannot starve it. A waiting commit stops no other commit, and any number of commits may have their turn at
once: when a lease is released, all commits that waited for it go on together.

A transaction that lost gets priority, so that it gets through against any number of others. Each attempt takes a lease before
it reads anything, in one request for all of its tables, and releases it at its end:

| attempts that lost in a row | the next one keeps out |
|---|---|
| 1 | changes of what the lost one had read, except plain appends |
| 2 | changes of its tables, except plain appends |
| 3 | commits that change or read what the lost one had read |
| 4 and more | commits that change or read its tables |

The attempt's commit depends on the lease as on any other (I9). Others wait for it as they wait for a lease.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from types import TracebackType
from typing import Final

from ...storage.dataclass import dataclass
from ...storage.errors import Unavailable
from ..errors import DeadlockDetected, LeaseHeld, LeaseLost, NotCommitted
from ..nodes.context import TableContext
from ..nodes.lease_places import Place
from ..nodes.lease_records import EXCLUSIVE, PASSING, TURN
from ..service.address import Address
from ..service.clock import Deadline
from .granting import LeaseClient, LeaseRequest, Wanted, let_go
from .guard import held_in_words
from .lease import Lease, acquire, held_by_this_thread, paths_of
from .scopes import PartitionScope

_log = logging.getLogger(__name__)


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


_STEPS: Final = ((TURN, False), (TURN, True), (EXCLUSIVE, False), (EXCLUSIVE, True))
"""The mode of the lease after one loss, two, three, and more; and whether it is on the whole of the tables."""


@dataclass(frozen=True, slots=True)
class Priority:
    """What an attempt has because those before it lost: by default it is the first one, and has nothing."""

    losses: int = 0
    """How many attempts in a row lost before it."""
    lease: Lease | None = None
    """What keeps others out; None for a first attempt, and where no lease was to be had in time."""

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes of the lease, on which the commit depends."""
        return () if self.lease is None else tuple(self.lease.nodes)

    def is_to_blame(self, refusal: NotCommitted) -> bool:
        """Whether the transaction was refused only because this lease was lost, or closed a circle of waits."""
        if self.lease is None:
            return False
        return isinstance(refusal, DeadlockDetected) or (isinstance(refusal, LeaseLost) and refusal.facts.get("lease") in self.nodes)

    def end(self) -> None:
        """Let the others go on."""
        if self.lease is not None:
            self.lease.release()


def priority_after(losses: int, reads: Sequence[tuple[TableLeases, PartitionScope | None]], wait: Deadline) -> Priority:
    """The priority after so many losses in a row, the last of which had read these parts of tables (None: the whole of one).

    Waits for the lease for half of the time, since the other half is for the commit; then goes on without it, as beside somebody's lease
    on another part of the table.
    """
    # check: losers-have-their-turn
    if losses and reads:
        mode, whole = _STEPS[min(losses, len(_STEPS)) - 1]
        name = f"after {losses} {'loss' if losses == 1 else 'losses'}"
        requests = [table.wanted(mode, None if whole else scope, name) for table, scope in reads]
        try:
            return Priority(losses, acquire(reads[0][0].home, requests, Deadline.after(wait.left_s / 2, wait.clock)))
        except (NotCommitted, Unavailable) as without:
            _log.info("a transaction goes on without priority %s: %s", name, without)
    return Priority(losses)
