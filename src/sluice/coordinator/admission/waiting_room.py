"""Waiting rooms: who is over a quota waits here, before anything is filed, in the order of arrival.

A room is an application's transactions on one table. A transaction takes a ticket, an ephemeral sequential node, before it is compared
with other commits. With a quota of n slots the holders of the first n tickets may file, and each returns its ticket when its call has its
answer. Each of the others watches the ticket n places before its own: one that goes wakes one that waits. With rates, the room says when
the next commit is due, by the coordinator's clock; a commit moves that time by what it costs, and waits for its own time without a
ticket. After a pause the commits of one second may pass at once. (The generic cell rate algorithm, ITU-T I.371; a semaphore without a
herd, as in ZooKeeper's recipes for locks.)

A ticket goes with its session. So a client that dies lets the next one in, and nobody has to count. Nobody holds a ticket while it waits
for a lease, and those for several tables are taken in one order, so that no waits close a circle. A table's queue is first come, first
served: applications with equal slots get equal parts of a busy table, however many clients they have.

Quotas are kept by the clients. One of a release without them does not wait.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import Final

from ...storage.actions import AddCDCFile, AddFile
from ...storage.dataclass import dataclass
from ..commit.table import CoordinatedTable
from ..errors import QuotaExceeded, SessionLost
from ..formats import NodeData, node_data
from ..leases.granting import let_go
from ..nodes.layout import QUOTAS
from ..nodes.quotas import KnownQuotas, Quota, read_quotas
from ..service.clock import Deadline
from ..service.store import BadVersion, CoordinationStore, NoNode, NotEmpty, ReplyLost, make_node
from .change import Change

_LOOK_AGAIN_S: Final = 5.0
"""How long a wait may overlook that quotas changed."""
_BURST_MS: Final = 1000.0
_SHOWN: Final = 3


@node_data("waiting room")
class _Room(NodeData):
    """Whose transactions on which table wait here, and when the next one is due, in milliseconds since 1970 by the coordinator's clock."""

    application: str = ""
    table: str = ""
    next_ms: float = 0.0


@node_data("ticket")
class _Ticket(NodeData):
    """Who waits, or commits."""

    transaction_id: str = ""
    host: str = ""
    pid: int = 0


def _path_of(application: str, table: str) -> str:
    return f"{QUOTAS}/{hashlib.sha256(repr((application, table)).encode()).hexdigest()[:32]}"


def _number(path: str) -> str:
    """The place of a ticket in the order of arrival."""
    return path[-10:]


def admit(changes: Sequence[tuple[CoordinatedTable, Change]], quotas: KnownQuotas, deadline: Deadline) -> ExitStack:
    """Wait until the transaction of these changes is within the quotas of its application; closing what is returned gives its slots back.

    Raises QuotaExceeded if its time is over before, or would be, and CoordinatorUnavailable.
    """
    with ExitStack() as slots:
        for table, change in sorted(changes, key=lambda each: each[0].location):
            while True:
                try:
                    _Visit(table, change, quotas, slots).wait(deadline)
                    break
                except SessionLost:  # with the ticket
                    if deadline.over:
                        raise
        return slots.pop_all()


class _Visit:
    """A transaction in the room of one of its tables."""

    def __init__(self, table: CoordinatedTable, change: Change, quotas: KnownQuotas, slots: ExitStack) -> None:
        self._table, self._change, self._quotas, self._slots = table, change, quotas, slots
        self._application = table.context.client.application
        self._path = _path_of(self._application, table.location)
        self._session = table.context.connect()

    def wait(self, deadline: Deadline) -> None:
        """Wait for a slot, and for the time at which the commit is due."""
        quota, clock = self._quota(), self._table.clock
        if quota is None:
            return
        with ExitStack() as leaving:
            ticket = self._take_ticket(leaving)
            bell, began_s = clock.event(), clock.monotonic_s()
            while True:
                tickets = sorted(self._session.children(self._path) or (), key=_number)
                quota = self._quota()
                if quota is None:
                    return
                if ticket not in tickets:
                    raise SessionLost(f"the session with the coordinator ended while transaction {self._change.transaction_id} waited")
                ahead = tickets.index(ticket) - (quota.slots or 1)
                if ahead < 0:
                    due_s = self._due_s(quota, ticket, clock.monotonic_s() - began_s, deadline, tickets)
                    if due_s is None:
                        continue
                    if quota.slots is not None:
                        self._slots.push(leaving.pop_all())
                    break
                if deadline.over:
                    raise self._over(quota, tickets, ahead, "")
                bell.clear()
                if self._session.read(f"{self._path}/{tickets[ahead]}", bell.set) is not None:
                    bell.wait(min(deadline.left_s, _LOOK_AGAIN_S))
        clock.sleep(due_s)

    def _quota(self) -> Quota | None:
        return self._quotas.current(self._session).of(self._application, self._table.location)

    def _take_ticket(self, leaving: ExitStack) -> str:
        """The name of a new ticket, which is returned when `leaving` is closed."""
        client, guid = self._table.context.client, uuid.uuid4().hex
        data = _Ticket(self._change.transaction_id, client.host, client.pid).encode()
        while True:
            try:
                path = self._session.create(f"{self._path}/t-{guid}-", data, ephemeral=True, sequential=True)
            except NoNode:
                room = _Room(self._application, self._table.location).encode()
                make_node(self._session, self._path, room, lambda store: store.ensure_path(QUOTAS))
                continue
            except ReplyLost:
                self._session.barrier()
                mine = [name for name in self._session.children(self._path) or () if guid in name]
                if not mine:
                    continue
                path = f"{self._path}/{mine[0]}"
            leaving.callback(let_go, self._table.leases.home, self._session, [path])
            return path.rpartition("/")[2]

    def _due_s(self, quota: Quota, ticket: str, waited_s: float, deadline: Deadline, tickets: Sequence[str]) -> float | None:
        """In how many seconds the commit is due, by the rates; None if another one took this time. Raises QuotaExceeded."""
        size = 0
        if quota.bytes_per_s is not None:
            size = sum(each.size for each in self._change.actions if isinstance(each, AddFile | AddCDCFile))
        cost_ms = quota.cost_ms(size)
        if cost_ms == 0.0:
            return 0.0
        room, mine = self._session.read_many([self._path, f"{self._path}/{ticket}"])
        if room is None or mine is None:
            return None
        says, now_ms = _Room.decode(room.data), mine.created_ms + waited_s * 1000
        due_ms = max(says.next_ms, now_ms - _BURST_MS)
        due_s = max(0.0, due_ms - now_ms) / 1000
        # check: over-the-rate-is-refused-before-it-costs
        if due_s > deadline.left_s:
            raise self._over(quota, tickets, 0, f"; the next commit is due in {due_s:,.1f} s")
        try:
            # check: rates-are-counted-once (room.version -> -1)
            self._session.write(self._path, replace(says, next_ms=due_ms + cost_ms).encode(), version=room.version)
        except (BadVersion, NoNode, ReplyLost):
            return None
        return due_s

    def _over(self, quota: Quota, tickets: Sequence[str], ahead: int, when: str) -> QuotaExceeded:
        first = self._session.read_many([f"{self._path}/{name}" for name in tickets[: min(_SHOWN, quota.slots or 0)]])
        holders = [f"process {each.pid} on {each.host}" for node in first if node and (each := _Ticket.readable(node.data))]
        held = (
            f"; {min(quota.slots or 0, len(tickets))} of its transactions are in flight, the oldest by {', '.join(holders)}"
            if holders
            else ""
        )
        return QuotaExceeded(
            f"application {self._application} is over its quota on {self._table.location} ({quota}){held}, and {ahead} wait before this one"
            f"{when}; nothing was committed. Wait longer (timeout_s), or change the quota: sluice quotas set "
            f"--application {quota.application!r} --table {quota.table!r}",
            rule="quota",
            facts={"what": str(quota)},
            transaction_id=self._change.transaction_id,
        )


@dataclass(frozen=True, slots=True)
class QuotaUse:
    """A quota, and what happens in the rooms for which it holds: transactions in flight and waiting, and since when the first one waits.

    `since` is in milliseconds since 1970, by the coordinator's clock; None if nobody waits.
    """

    quota: Quota
    in_flight: int
    waiting: int
    since: int | None


def quotas_in_use(session: CoordinationStore) -> list[QuotaUse]:
    """All quotas, as of now, in the order in which they were set. Without quotas it reads one node."""
    quotas, _ = read_quotas(session)
    paths = [f"{QUOTAS}/{name}" for name in session.children(QUOTAS) or ()] if quotas.quotas else []
    nodes, tickets = session.look(paths, paths)
    rooms: list[tuple[Quota | None, int, list[str]]] = []
    for path, node, names in zip(paths, nodes, tickets, strict=True):
        room = (None if node is None else _Room.readable(node.data)) or _Room()
        quota = quotas.of(room.application, room.table)
        slots = 0 if quota is None else quota.slots or 0
        waiting = [f"{path}/{name}" for name in sorted(names or (), key=_number)[slots:]]
        rooms.append((quota, len(names or ()) - len(waiting), waiting))
    uses: list[QuotaUse] = []
    for each in quotas.quotas:
        mine = [(in_flight, waiting) for quota, in_flight, waiting in rooms if quota == each]
        first = filter(None, session.read_many([waiting[0] for _, waiting in mine if waiting]))
        since = min((node.created_ms for node in first), default=None)
        uses.append(QuotaUse(each, sum(count for count, _ in mine), sum(len(waiting) for _, waiting in mine), since))
    return uses


def clear_rooms(session: CoordinationStore) -> None:
    """Remove the rooms that are empty. Who comes makes its own again; after that the commits of one second may pass at once."""
    for name in session.children(QUOTAS) or ():
        with suppress(NoNode, NotEmpty, ReplyLost):
            session.delete(f"{QUOTAS}/{name}")
