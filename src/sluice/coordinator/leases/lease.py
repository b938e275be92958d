"""Leases: how programs request them, one or several at once, how one is held, and how its loss is noticed.

A lease is held while its node exists, and the node exists as long as its owner's session. No clock takes part: a process
that was paused beyond its session goes on believing that it holds the lease, and learns the truth at its next look. So that
belief does not protect a table; the check of the node in the ratifying multi does (I9).

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
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from types import MappingProxyType, TracebackType
from typing import Final, Protocol, TypeAlias

from ...storage.arguments import checked
from ...storage.caches import ForkSafeLock
from ...storage.dataclass import dataclass
from ...storage.errors import InvalidRequest, Unavailable
from ...storage.log.snapshot import Snapshot
from ...storage.pruning.predicate import Predicate
from ..errors import DeadlockDetected, LeaseHeld, LeaseLost, NotCommitted, SessionLost, TableMoved
from ..limits import DEFAULT_TIMEOUT_S
from ..nodes.context import TableContext
from ..nodes.layout import Place
from ..nodes.presence import this_client
from ..nodes.records import EXCLUSIVE, PASSING, TURN, LeaseNode
from ..service.address import Address
from ..service.clock import Deadline, Timeout, bounding
from ..service.connect import connect
from ..service.store import CoordinationStore
from .granting import LeaseClient, LeaseRequest, Wanted, let_go
from .guard import breaker, held_facts, held_in_words
from .scopes import PartitionScope

_log = logging.getLogger(__name__)
_LOOK_AGAIN_S: Final = 10.0
_PAUSE_S: Final = 0.5
_WAIT_S: Final = 0.1
"""A wait for a lease that is shorter is not told."""
_LAST_LOOK_S: Final = 2.0
"""How long the end of a block waits for the answer whether its lease still exists; without an answer it does not count as lost."""

_of_thread = threading.local()


@checked
class Lease(AbstractContextManager["Lease"]):
    """One or more leases that were granted together; made by `acquire`. A context manager that releases them at its end.

    `token` only grows from one holder of a place to the next (a fencing token): a system outside sluice can refuse a token
    smaller than one it has seen. `lost` is set when the loss of the lease is noticed (its session expired, or somebody broke
    it). That may be late, so use it to end work early, never as permission. Commits made by the thread that took the lease,
    while it is held, are ratified only if the lease still exists. Safe for several threads.
    """

    def __init__(self, home: LeaseClient, request: LeaseRequest) -> None:
        self.home = home
        self.token = request.token
        self.lost = threading.Event()
        self.nodes: Mapping[str, LeaseNode] = MappingProxyType(dict(request.nodes))
        """The granted requests, by the paths of their nodes."""
        self._store: CoordinationStore = request.store
        self._pid = os.getpid()
        self._released = False
        self._lock = ForkSafeLock()
        self._wake = home.clock.event()
        self._why = ""

    @property
    def reference(self) -> str:
        """The nodes as one text, for a process that commits on behalf of this one; Spark's write option `lease` takes it."""
        return ",".join(self.nodes)

    @property
    def held(self) -> bool:
        """Whether the lease is held as far as this process knows without asking: not released, not lost, and the session is alive."""
        return self.counts and not self.lost.is_set() and self._store.connected

    @property
    def counts(self) -> bool:
        """Whether commits still depend on it: true until it is released, even if lost; false in a process forked from its owner's."""
        return not self._released and self._pid == os.getpid()

    def check(self, *, timeout_s: Timeout = DEFAULT_TIMEOUT_S) -> None:
        """Ask the coordinator whether the lease is held, for work that no commit protects. Raises LeaseLost, CoordinatorUnavailable.

        The answer holds for the moment of the question only: the holder may be paused right after it.
        """
        if not self.counts:
            raise LeaseLost(f"{self} was released", facts={"lease": list(self.nodes)})
        with bounding(timeout_s, self.home.clock):
            lost = self._is_lost()
        if lost:
            how = self._why or ": its session with the coordinator expired"
            raise LeaseLost(f"{self} is gone{how}", facts={"lease": list(self.nodes)})

    def release(self) -> None:
        """Release the lease; doing so again does nothing. Never raises: a node that cannot be removed now is removed later."""
        with self._lock:
            if self._released:
                return
            self._released = True
        held_by_this_thread()  # which forgets it
        if self._pid == os.getpid():  # in a forked process a thread that does not exist there may hold the event's lock
            self._wake.set()
            let_go(self.home, self._store, list(self.nodes))

    @contextmanager
    def bind(self) -> Iterator[Lease]:
        """Make this thread's commits depend on the lease, too, while the block runs; for threads that work for its owner."""
        mine = held_by_this_thread()
        mine.append(self)
        try:
            yield self
        finally:
            if self in mine:  # it was not released in the block
                mine.remove(self)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        lost = False
        # check: loss-is-told-at-the-end (self.counts -> False)
        if self.counts:
            with suppress(Unavailable), bounding(_LAST_LOOK_S, self.home.clock):
                lost = self.lost.is_set() or self._is_lost()
        self.release()
        if lost and error is None:
            message = f"{self} was lost while the block ran{self._why}: commits made under it are safe, other work was not protected"
            raise LeaseLost(message, facts={"lease": list(self.nodes)})

    def __repr__(self) -> str:
        parts = [f"{node.mode} on {Place.of_node(path)}{f' ({node.where})' if node.where else ''}" for path, node in self.nodes.items()]
        return f"Lease({', '.join(parts)}, token={self.token})"

    def keep(self) -> None:
        """Watch the nodes until they are released or lost; runs in its own thread."""
        while not self._released:
            self._wake.clear()
            try:
                exists = self._exists(self._wake.set)
            except SessionLost:
                exists = False
            except Unavailable:
                self.home.clock.sleep(_PAUSE_S)
                continue
            if not exists:
                if not self._released:
                    self._note_loss()
                return
            self._wake.wait(_LOOK_AGAIN_S)

    def _exists(self, watch: Callable[[], None] | None = None) -> bool:
        return all(self._store.read(path, watch) is not None for path in self.nodes)

    def _is_lost(self) -> bool:
        """Whether it is lost as of now; notes it if so."""
        try:
            self._store.barrier()
            lost = not self._exists()
        except SessionLost:
            lost = True
        if lost:
            self._note_loss()
        return lost

    def _note_loss(self) -> None:
        with suppress(Unavailable):
            self._why = breaker(self._store, self.nodes)
        self.lost.set()


def held_by_this_thread() -> list[Lease]:
    """The leases that this thread took and has not released, oldest first: the list that `bind` and `acquire` add to.

    It is one list for the thread's whole life. If it were made anew, a lease that is added while another one is released (by a signal's
    handler, by the end of a generator) would get into a list that nobody reads any more.
    """
    if not hasattr(_of_thread, "leases"):
        _of_thread.leases = []
    mine: list[Lease] = _of_thread.leases
    mine[:] = [lease for lease in mine if lease.counts]
    return mine


def _nodes_held(coordinator: str) -> tuple[str, ...]:
    """The nodes of this thread's leases at a coordinator, as intents name them."""
    return tuple({path: None for each in held_by_this_thread() if each.home.coordinator == coordinator for path in each.nodes})


def lent() -> Callable[[], None]:
    """A function for another thread that works for this one: it makes that thread commit under the leases held here now."""
    held = list(held_by_this_thread())

    def take() -> None:
        _of_thread.leases = list(held)

    return take


def acquire(home: LeaseClient, wanted: Sequence[Wanted], wait_s: Timeout | None = None, *, bound: bool = True) -> Lease:
    """Take leases, all of them or none, and make this thread's commits depend on them until they are released.

    Unless `bound`, only those commits depend on them that name them. Waits for `wait_s` seconds (None: without limit; 0: not at
    all) until others have released theirs. Seconds do not limit the requests themselves, so that a coordinator that answers late
    still says whether the leases are free; a Deadline ends these, too. Raises InvalidRequest, LeaseHeld, DeadlockDetected,
    LeaseLost, CoordinatorUnavailable.
    """
    limit = None if wait_s is None else Deadline.of(wait_s, home.clock, name="wait_s")
    with bounding(wait_s, home.clock) if isinstance(wait_s, Deadline) else nullcontext():
        request = LeaseRequest(home, wanted, _nodes_held(home.coordinator))
        began_s, kind = home.clock.monotonic_s(), "refused"
        try:
            request.obtain(limit)
            kind = "lease"
        finally:
            waited_s = home.clock.monotonic_s() - began_s
            if request.met is not None and waited_s > _WAIT_S:
                from ..contention import tell

                said = {"kind": kind, "location": str(Place.of_node(request.met[0])), "operation": "LEASE", "seconds": round(waited_s, 3)}
                tell(home.coordinator, home.client, home.clock.now_ms(), {"facts": held_facts(*request.met)}, **said)
    lease = Lease(home, request)
    if bound:
        held_by_this_thread().append(lease)
    home.in_background(lease.keep, "sluice-lease")
    return lease


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

    def wanted(self, mode: str, scope: PartitionScope | None, name: str = "") -> Wanted:
        """A lease to request, on some partitions or on the table (None)."""
        sql, types = ("", ()) if scope is None else (scope.sql, scope.types)
        return Wanted(self.place, mode, sql, types, name)

    def of_this_thread(self) -> tuple[str, ...]:
        """The nodes of the leases that a commit of this thread depends on."""
        return _nodes_held(self.home.coordinator)


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
        schema = snapshot.metadata.schema
        condition = Predicate.over_partitions(where, schema, snapshot.partition_columns, "a lease covers whole partitions")
    return LeaseOn(table.home, table.wanted(mode, PartitionScope.of(snapshot, condition), name or ""))


@checked
def lease_on(name: str, mode: str = EXCLUSIVE, *, coordinator: str | None = None, application: str | None = None) -> LeaseOn:
    """A lease on a name that is not a table, to request together with others. Raises InvalidRequest."""
    home = LeaseClient(partial(connect, coordinator), repr(Address.parse(coordinator)), client=this_client(application))
    return LeaseOn(home, Wanted(Place.of_name(name), mode, name=name))


@checked
def lease(
    name: str, mode: str = EXCLUSIVE, *, wait_s: Timeout | None = None, coordinator: str | None = None, application: str | None = None
) -> Lease:
    """Take a lease on a name that is not a table, so that jobs that agree on the name exclude each other.

    Waits its turn for `wait_s` seconds (None: without limit; a Deadline ends its requests, too). This thread's commits to tables of
    the same coordinator are ratified only while it is held. Raises LeaseHeld, DeadlockDetected, CoordinatorUnavailable.

    Examples:
        ```python
        with sluice.lease("nightly load", wait_s=0, coordinator=coordinator):
            table.append(pa.table({"id": [9], "state": ["new"]}))
        ```
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


class WaitingCommit(AbstractContextManager["WaitingCommit"]):
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
        request = LeaseRequest(leases.home, self._wanted, tuple(dict.fromkeys((*leases.of_this_thread(), *own))))
        try:
            request.obtain(deadline)
        except LeaseHeld as late:
            facts = {**held.facts, **late.facts}
            message = held.message.replace(held_in_words(held.facts), held_in_words(late.facts))
            raise LeaseHeld(message, **{**held.details, "facts": facts}) from held
        self._request = request

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
        except (NotCommitted, TableMoved, Unavailable) as without:
            _log.info("a transaction goes on without priority %s: %s", name, without)
    return Priority(losses)
