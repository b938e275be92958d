"""Named consumers: a position in a table's changes, and the lease whose holder may move it.

::

    /tables/<key>/consumers/<name>     data: ConsumerRecord; written only in a multi that checks its holder's lease
    /names/<place>/leases              the lease of the consumer: its holder is the consumer

A holder that was paused while another one took over cannot move the position; and the commits it makes depend on the lease
like on any other (I9).
"""

from __future__ import annotations

from dataclasses import field
from urllib.parse import unquote

from ..errors import LeaseLost, UnknownFormat
from ..formats import CONSUMER_FORMAT, MalformedRecord, Record, node_data
from ..nodes.context import TableContext
from ..nodes.layout import Place
from ..nodes.records import EXCLUSIVE
from ..rules.intent import ClientName
from ..service.clock import Timeout
from ..service.store import ANY_VERSION, ApplyRefused, Check, Create, Delete, Node, NodeExists, NoNode, Op, ReplyLost, Write, nodes_below
from .blocking import LeaseEntry, list_leases
from .granting import Wanted
from .guard import make_child
from .lease import Lease, TableLeases, acquire


@node_data("consumer")
class ConsumerRecord(Record):
    """A consumer's position: `version` is the last version of the table that it consumed, -1 for none.

    Of the version after it, it consumed the first `files` of the files in which that version's changes lie.
    `run` is raised by each reset, so that positions that outputs recorded before do not count any more. `into` are the locations
    of its outputs, which record the position, too. `client` moved it last, at `moved_ms` by its clock (both are only shown).
    """

    name: str
    version: int
    files: int = 0
    run: int = 0
    into: tuple[str, ...] = ()
    moved_ms: int = 0
    client: ClientName = field(default_factory=ClientName)
    format: int = CONSUMER_FORMAT

    @staticmethod
    def understood(node: Node) -> ConsumerRecord:
        """What a node says, for who only looks: a consumer whose record cannot be read may have consumed nothing."""
        try:
            return ConsumerRecord.decode(node.data)
        except (MalformedRecord, UnknownFormat):
            return ConsumerRecord(f"{unquote(node.name)} (unreadable)", -1)


class Hold:
    """A consumer that this process is: its lease, and its position. Not thread-safe, except `release`."""

    def __init__(self, context: TableContext, lease: Lease, name: str, record: ConsumerRecord | None) -> None:
        self.lease = lease
        self.name = name
        self.record = record
        """The position as it is known here; None if there is none yet."""
        self._context = context
        self._path = context.tree.consumer(name)

    def place(self, version: int, run: int, into: tuple[str, ...], files: int = 0) -> None:
        """Record a position, the first one or another. Raises LeaseLost, CoordinatorUnavailable, TreeReplaced, TableDropped."""
        context = self._context
        record = ConsumerRecord(self.name, version, files, run, into, context.clock.now_ms(), context.client)
        if self.record is None:
            make_child(context.coordination, context.tree.consumers, context.tree.location)
            self._apply(Create(self._path, record.encode()))
        else:
            self._apply(Write(self._path, record.encode(), ANY_VERSION))
        self.record = record

    def move(self, version: int, files: int = 0) -> None:
        """Record a later position. Raises the same errors."""
        assert self.record is not None
        self.place(version, self.record.run, self.record.into, files)

    def remove(self) -> None:
        """Remove the position. Raises the same errors."""
        if self.record is not None:
            self._apply(Delete(self._path))
            self.record = None

    def release(self) -> None:
        """Let another instance have it. Never raises."""
        self.lease.release()

    def _apply(self, op: Op) -> None:
        """Change the node if the lease is held. After a lost reply it is sent again: nobody but the holder changes it."""
        leases = list(self.lease.nodes)
        # check: positions-are-fenced ([Check(path, ANY_VERSION) for path in leases] -> [])
        fence: list[Op] = [Check(path, ANY_VERSION) for path in leases]
        sent_before = False
        while True:
            try:
                self._context.coordination.apply([*fence, *self._context.liveness_checks(), op])
            except ReplyLost:
                self._context.barrier()
                sent_before = True
            except ApplyRefused as refused:
                path = getattr(refused.cause, "path", "")
                if path in leases:
                    raise self._lost() from refused
                # check: a-change-that-was-sent-twice-was-made (sent_before -> False)
                if sent_before and path == self._path and isinstance(refused.cause, (NodeExists, NoNode)):
                    return
                if not self._context.was_restored(path):  # the node was made or removed by hand
                    raise self._lost() from refused
            else:
                return

    def _lost(self) -> LeaseLost:
        """The error for an instance that is not the consumer any more."""
        self.lease.lost.set()
        return LeaseLost(
            f"this instance of the consumer {self.name!r} of {self._context.tree.location} lost its lease: its session expired, or "
            "somebody broke it, and another instance may have gone on. It did not move the position; iterate again, or open the "
            "consumer again",
            facts={"lease": list(self.lease.nodes), "consumer": self.name},
        )


def hold_consumer(context: TableContext, name: str, wait_s: Timeout | None) -> Hold:
    """Become a consumer: take its lease, then read its position.

    Waits for `wait_s` seconds until another instance releases it (None: without limit). Raises LeaseHeld, which names the holder,
    DeadlockDetected, CoordinatorUnavailable.
    """
    place = _place_of(_table_id(context), name)
    lease = acquire(TableLeases.of(context).home, [Wanted(place, EXCLUSIVE, name=f"consumer {name}")], wait_s, bound=False)
    try:
        node = context.read(context.tree.consumer(name))
        return Hold(context, lease, name, None if node is None else ConsumerRecord.decode(node.data))
    except BaseException:
        lease.release()
        raise


def consumers_of(context: TableContext) -> list[tuple[ConsumerRecord, LeaseEntry | None]]:
    """The consumers of a table that have a position, by name, each with the lease by which somebody holds it."""
    table_id = _table_id(context)
    nodes = context.in_session(lambda session: nodes_below(session, context.tree.consumers))
    states: list[tuple[ConsumerRecord, LeaseEntry | None]] = []
    # positions of a newer release are left to it: this raises UnknownFormat
    records = [ConsumerRecord.readable(node.data) or ConsumerRecord.understood(node) for node in nodes]
    for record in sorted(records, key=lambda each: each.name):
        leases = list_leases(context.coordination, _place_of(table_id, record.name))
        states.append((record, next((each for each in leases if each.held), None)))
    return states


def _table_id(context: TableContext) -> str:
    head = context.read_head()
    if head is None:
        raise context.missing_error()
    return head[0].table_id


def _place_of(table_id: str, name: str) -> Place:
    """What the lease of a consumer is taken on."""
    return Place.of_name(f"consumer {name} of {table_id}")
