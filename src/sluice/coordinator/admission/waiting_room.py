"""Waiting rooms: transactions of an application over its quota wait here in the order of arrival, before they are filed.

A room is an application's transactions on one table. A transaction takes a ticket, an ephemeral sequential node, before it is compared
with other commits. With a quota of n slots the holders of the first n tickets may file, and each returns its ticket when its call has its
answer. Each of the others watches the n tickets before its own: one that goes wakes n at most. With rates, the room says when the next
commit is due, by the coordinator's clock. Who is in front waits until then, and moves that time by what its commit costs. After a pause
the commits of one second may pass at once. (The generic cell rate algorithm, ITU-T I.371; a semaphore without a herd, as in ZooKeeper's
recipes for locks.)

A ticket goes with its session. So a client that dies lets the next one in, and nobody has to count. Nobody holds a ticket while it waits
for a lease, nobody who holds a lease waits for a ticket, and those for several tables are taken in one order: no waits close a circle. A
table's queue is first come, first served: applications with equal slots get equal parts of a busy table, however many clients they have.

Quotas are kept by the clients. One of a release without them does not wait.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from shlex import quote
from typing import Final

from ...storage.actions import AddCDCFile, AddFile
from ...storage.dataclass import dataclass
from ...storage.errors import Unavailable
from ..commit.table import CoordinatedTable
from ..errors import QuotaExceeded, SessionLost
from ..formats import NodeData, node_data
from ..leases.granting import let_go
from ..nodes.layout import QUOTAS
from ..nodes.presence import id_in, owner_of
from ..nodes.quotas import EACH, KnownQuotas, Quota, read_quotas
from ..service.clock import Deadline
from ..service.store import BadVersion, CoordinationStore, Node, NoNode, ReplyLost, StoreError, make_node
from .change import Change

_LOOK_AGAIN_S: Final = 5.0
"""How long a wait may overlook that quotas changed."""
_BURST_MS: Final = 1000.0
_PAUSE_S: Final = 0.5
_SHOWN: Final = 3


@node_data("waiting room")
class Room(NodeData):
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
        self._path = f"{QUOTAS}/{hashlib.sha256(repr((self._application, table.location)).encode()).hexdigest()[:32]}"
        self._session = table.context.connect()

    def wait(self, deadline: Deadline) -> None:
        """Wait for a slot, and for the time at which the commit is due."""
        clock = self._table.clock
        if self._quota() is None:
            return
        with ExitStack() as leaving:
            ticket = self._take_ticket(leaving)
            bell, began_s = clock.event(), clock.monotonic_s()
            due_s, of_version = 0.0, -1
            while (quota := self._quota()) is not None:
                tickets = sorted(self._session.children(self._path) or (), key=_number)
                if ticket not in tickets:
                    raise SessionLost(f"the session with the coordinator ended while transaction {self._change.transaction_id} waited")
                width = quota.slots or 1
                ahead = tickets.index(ticket) - width
                if ahead >= 0:
                    if deadline.over:
                        raise self._over(quota, tickets, f"and {ahead} wait before this one")
                    bell.clear()
                    # any of those that are next before it may be the one whose leaving lets it in
                    before = [self._session.read(f"{self._path}/{name}", bell.set) for name in tickets[ahead : ahead + width]]
                    if None not in before:
                        bell.wait(min(deadline.left_s, _LOOK_AGAIN_S))
                    continue
                room, mine = self._session.read_many([self._path, f"{self._path}/{ticket}"])
                if room is None or mine is None:
                    continue
                now_ms = max(mine.created_ms + (clock.monotonic_s() - began_s) * 1000, room.changed_ms)
                if room.version != of_version:  # since this was written another commit is due, in so many seconds
                    says = Room.readable(room.data) or Room()
                    due_s, of_version = clock.monotonic_s() + max(0.0, says.next_ms - now_ms) / 1000, room.version
                wait_s = due_s - clock.monotonic_s() if quota.has_rate else 0.0
                # check: over-the-rate-is-refused-before-it-costs
                if wait_s > deadline.left_s:
                    raise self._over(quota, (), f"and its next commit is due in {wait_s:,.1f} s")
                if wait_s > 0.0:
                    clock.sleep(min(wait_s, _LOOK_AGAIN_S))
                elif not quota.has_rate or self._charged(quota, room, now_ms):
                    if quota.slots is not None:
                        self._slots.push(leaving.pop_all())
                    return

    def _quota(self) -> Quota | None:
        return self._quotas.current(self._session).of(self._application, self._table.location)

    def _take_ticket(self, leaving: ExitStack) -> str:
        """The name of a new ticket, which is returned when `leaving` is closed."""
        client, guid = self._table.context.client, uuid.uuid4().hex
        data = _Ticket(self._change.transaction_id, client.host, client.pid).encode()
        paths: list[str] = []
        # check: tickets-of-lost-replies-are-returned
        leaving.callback(self._return, guid, paths)
        while not paths:
            try:
                paths.append(self._session.create(f"{self._path}/t-{guid}-", data, ephemeral=True, sequential=True))
            except NoNode:
                room = Room(self._application, self._table.location).encode()
                make_node(self._session, self._path, room, lambda store: store.ensure_path(QUOTAS))
            except ReplyLost:
                self._session.barrier()
                paths += self._tickets_of(guid)
        return paths[0].rpartition("/")[2]

    def _tickets_of(self, guid: str) -> list[str]:
        return [f"{self._path}/{name}" for name in self._session.children(self._path) or () if guid in name]

    def _return(self, guid: str, paths: list[str]) -> None:
        """Give a ticket back; one of which it is not known whether it was made is looked for in the background."""
        home = self._table.leases.home

        def look() -> None:
            while True:
                try:
                    self._session.barrier()
                    return let_go(home, self._session, self._tickets_of(guid))
                except SessionLost:
                    return None
                except Unavailable:
                    home.clock.sleep(_PAUSE_S)

        if paths:
            let_go(home, self._session, paths)
        else:
            home.in_background(look, "sluice-let-go")

    def _charged(self, quota: Quota, room: Node, now_ms: float) -> bool:
        """Move the time at which the next commit is due by what this one costs; False if another one did so meanwhile."""
        change, says, size = self._change, Room.readable(room.data) or Room(), 0
        if quota.bytes_per_s is not None:
            owner = owner_of(change.transaction_id)
            for each in change.actions:
                if isinstance(each, AddFile | AddCDCFile):
                    made = id_in(each.path) or ""
                    # what came along, as with a deletion vector, a RESTORE or a clone, was not written; runs of a plan share its files
                    mine = made == change.transaction_id or (owner is not None and not owner.is_client and owner_of(made) == owner)
                    size += mine and each.size
        cost_ms = quota.cost_ms(size)
        next_ms = max(says.next_ms, now_ms - max(0.0, _BURST_MS - cost_ms)) + cost_ms
        data = replace(says, application=self._application, table=self._table.location, next_ms=next_ms).encode()
        try:
            # check: rates-are-counted-once (room.version -> -1)
            self._session.write(self._path, data, version=room.version)
        except (BadVersion, NoNode):
            return False
        except ReplyLost:
            self._session.barrier()
            after = self._session.read(self._path)
            return after is not None and (after.version, after.data) == (room.version + 1, data)
        return True

    def _over(self, quota: Quota, tickets: Sequence[str], why: str) -> QuotaExceeded:
        slots, location = quota.slots or 0, self._table.location
        first = self._session.read_many([f"{self._path}/{name}" for name in tickets[: min(_SHOWN, slots)]])
        holders = ", ".join(f"process {each.pid} on {each.host}" for node in first if node and (each := _Ticket.readable(node.data)))
        held = f", {min(slots, len(tickets))} of its transactions are in flight, the oldest by {holders}," if holders else ""
        option = "slots" if slots else "commits-per-second" if quota.commits_per_s else "bytes-per-second"
        return QuotaExceeded(
            f"application {self._application} is over its quota on {location} ({quota}){held} {why}; nothing was committed. Wait longer "
            f"(timeout_s), or change the quota: sluice quotas set --{option} N --application {quote(quota.application)} "
            f"--table {quote(quota.table)}",
            rule="quota",
            facts={"table": location, "what": str(quota)},
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
    """All quotas, as of now, in the order in which they were set. Without quotas it reads two nodes."""
    quotas = read_quotas(session)
    rooms: dict[Quota | None, list[tuple[int, list[str]]]] = {}
    for node, names in _rooms(session) if quotas.quotas else ():
        room = Room.readable(node.data) or Room()
        quota = quotas.of(room.application, room.table)
        slots = 0 if quota is None else quota.slots or 0
        waiting = [f"{node.path}/{name}" for name in sorted(names, key=_number)[slots:]]
        rooms.setdefault(quota, []).append((len(names) - len(waiting), waiting))
    uses: list[QuotaUse] = []
    for each in quotas.quotas:
        mine = rooms.get(each, ())
        first = filter(None, session.read_many([waiting[0] for _, waiting in mine if waiting]))
        since = min((node.created_ms for node in first), default=None)
        uses.append(QuotaUse(each, sum(count for count, _ in mine), sum(len(waiting) for _, waiting in mine), since))
    return uses


def _rooms(session: CoordinationStore) -> list[tuple[Node, list[str]]]:
    """The rooms, each with the names of its tickets."""
    paths = [f"{QUOTAS}/{name}" for name in session.children(QUOTAS) or ()]
    nodes, tickets = session.look(paths, paths)
    return [(node, names or []) for node, names in zip(nodes, tickets, strict=True) if node is not None]


def clear_rooms(session: CoordinationStore, now_ms: int, changed: Quota | None = None) -> None:
    """Remove the rooms that are empty and in which nothing is due later; `now_ms` is by the coordinator's clock.

    In those that a quota concerns which was changed, the next commit is due at once.
    """
    for node, tickets in _rooms(session):
        room = Room.readable(node.data) or Room()
        with suppress(StoreError):  # somebody is there, or came before
            if changed is not None and changed.application in (EACH, room.application) and changed.table in (EACH, room.table):
                session.write(node.path, replace(room, next_ms=0.0).encode(), version=node.version)
            elif not tickets and room.next_ms <= now_ms:
                session.delete(node.path, version=node.version)
