"""The context of one table that every part of the commit path works with."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field, replace
from functools import partial
from typing import Any, TypeVar

from ...storage.dataclass import dataclass
from ...storage.errors import InvalidRequest, NotATable, SluiceError, Unavailable
from ...storage.stores.location import open_store
from ...storage.stores.objects import ObjectStore
from ..errors import CoordinatorUnavailable, NotCommitted, OutcomeUnknown, SessionLost, TransactionExpired, TreeReplaced, table_moved
from ..formats import Release
from ..limits import Limits
from ..rules.intent import ClientName
from ..service.address import Address
from ..service.clock import Clock, SystemClock, require_time_left
from ..service.store import ANY_VERSION, ApplyRefused, Check, CoordinationStore, Create, Delete, Node, Op, Write, nodes_below
from .layout import ARRIVING, SlotName, TableTree
from .presence import Presence, another_id, owner_of
from .records import Head, Published, gone_error, is_closed, need_here, require_protocol, whereabouts

_T = TypeVar("_T")
_SESSIONS_MAX = 5


@dataclass(slots=True)
class _Known:
    """The tree a client works on, the data version of its node, and the session that saw it last."""

    incarnation: str | None = None
    version: int = ANY_VERSION
    session: int | None = None
    generation: int = 0
    """The generation of slots in the head read last."""
    ahead: TableState | None = None
    """Read ahead for the next commit."""
    ahead_at_s: float = 0.0
    """The time of that read, by the monotonic clock."""
    published: Node | None = None
    """The `published` node, as read with the last head."""


@dataclass(frozen=True, slots=True)
class TableState:
    """What one look shows of a table: everything that deciding, ratifying and publishing need.

    Fields are read in the order they are declared. An old head only loses its compare-and-set. If `published` is unchanged
    when it is raised, the `records` still exist: they are removed only together with a raise. `slots` are the names in the
    head's generation.
    """

    head: Head
    head_node: Node
    published: Published
    published_node: Node
    slots: Sequence[str]
    records: Sequence[str]

    @property
    def backlog(self) -> int:
        """How many versions are ratified but not published."""
        return self.head.version - self.published.version

    @property
    def is_published(self) -> bool:
        """Whether nothing awaits publication."""
        return self.head.version == self.published.version and self.published.covers(self.head.generation, self.head.slot)

    def next_generation(self, tree: TableTree) -> list[Op]:
        """The operations that end a generation of slots and open the next one; none while a slot is undecided or a version unpublished.

        The coordinator removes no node that has children: a slot that was filed since the look prevents it, so none can come too late.
        Nothing is changed then, nor if anything was decided or published since.
        """
        # check: generations-are-drained (undecided(self.slots, self.head) -> ())
        # check: generations-open-when-published (not self.is_published -> False)
        if undecided(self.slots, self.head) or not self.is_published:
            return []
        generation = self.head.generation
        # check: generations-open-on-the-head-that-was-read (self.head_node.version -> -1)
        return [
            Write(tree.head, replace(self.head, generation=generation + 1, slot=-1).encode(), self.head_node.version),
            Write(tree.published, replace(self.published, generation=generation + 1, slot=-1).encode(), self.published_node.version),
            *(Delete(f"{tree.slots(generation)}/{name}") for name in self.slots),  # what a publisher left behind
            Delete(tree.slots(generation)),
            Create(tree.slots(generation + 1)),
        ]


def undecided(names: Iterable[str], head: Head) -> list[SlotName]:
    """The slots after the head's among the children of its generation, in slot order.

    The coordinator gives each number once: of two slots with one number the first by name counts, since a name was made up.
    """
    after = [slot for slot in filter(None, map(SlotName.parse, names)) if slot.sequence > head.slot]
    first: dict[int, SlotName] = {}
    # check: slots-are-sorted (sorted -> (lambda slots: sorted(slots, reverse=True)))
    for slot in sorted(after):
        # check: one-slot-of-each-number (slot.sequence -> hash(slot))
        first.setdefault(slot.sequence, slot)
    return list(first.values())


@dataclass(frozen=True)
class TableContext:
    """One table as one client sees it: its object store, its tree, and a way to the coordination service.

    `connect` gives a live session: the same one until it expires, then a new one. All durable state is in persistent nodes,
    so work goes on in a new session. `presence` owns the client's transactions while they are open; a client without one has
    ids that name no owner. `stores` opens other tables' locations. `release` is this client's sluice release. `coordinator` is the
    address by which `connect` reaches the service.
    """

    objects: ObjectStore
    tree: TableTree
    connect: Callable[[], CoordinationStore]
    clock: Clock = field(default_factory=SystemClock)
    limits: Limits = field(default_factory=Limits)
    client: ClientName = field(default_factory=ClientName)
    presence: Presence | None = None
    stores: Callable[[str], ObjectStore] = open_store
    release: Release = field(default_factory=Release)
    coordinator: str | None = None
    _known: _Known = field(default_factory=_Known, init=False, repr=False, compare=False)

    @property
    def coordination(self) -> CoordinationStore:
        """A live session with the coordination service, on the tree this client knows. Raises TreeReplaced, ProtocolMismatch."""
        session = self.connect()
        if session.session_id != self._known.session:
            self._recognise(session)
        return session

    @property
    def same_session(self) -> bool:
        """Whether the session in which the tree was seen last is alive, so that the tree is the same one. Sends nothing in that case."""
        return self.connect().session_id == self._known.session

    def _recognise(self, session: CoordinationStore) -> None:
        """Check in a new session that the tree is the same: a session never outlives the data it was opened on."""
        root, tombstone = whereabouts(session, self.tree)
        if root is None or is_closed(root):
            if root is not None or (tombstone is not None and self._known.incarnation):
                raise gone_error(self.tree.location, tombstone)
            return  # it is about to be made, or the next request finds out
        fields = require_protocol(root, self.tree.location)
        incarnation = fields.get("incarnation")
        # check: former-trees-are-noticed
        self.require_same(fields)
        self._known.incarnation = incarnation or self._known.incarnation
        self._known.version, self._known.session = root.version, session.session_id

    def require_same(self, fields: Mapping[str, Any]) -> None:
        """Raise TreeReplaced if a tree whose own node has these fields is another one than the tree that this client knows.

        Raises TableMoved if it is the same table, which went elsewhere and came back.
        """
        former, incarnation = self._known.incarnation, fields.get("incarnation")
        if former and incarnation and incarnation != former:
            if former in fields.get("former", ()):
                raise table_moved(self.tree.location, str(Address.parse(self.coordinator)))
            raise TreeReplaced(
                f"the coordinator has another table at {self.tree.location} than the one that was opened (it was {former!r}, and is "
                f"{incarnation!r}): it was dropped and made again, or the coordinator's data were lost and rebuilt, and versions that were "
                "not published before the loss are missing; open the table again",
                location=self.tree.location,
            )

    def forget_tree(self) -> None:
        """Forget the known tree and accept the one that exists from now on; for a client that has filed nothing in another tree."""
        self._known.incarnation, self._known.version, self._known.session, self._known.ahead = None, ANY_VERSION, None, None

    def new_transaction_id(self) -> str:
        """A GUID that names a transaction for ever and is part of all its files' names.

        The transaction is held as long as this object lives.
        """
        return str(uuid.uuid4()) if self.presence is None else self.presence.begin()

    def another_transaction_id(self, transaction_id: str) -> str:
        """A new id under which the files staged for this transaction can be filed again."""
        return another_id(transaction_id) if self.presence is None else self.presence.again(transaction_id)

    def liveness_checks(self, transaction_id: str | None = None) -> list[Op]:
        """The checks that make a multi count: the tree this client knows, and the owner of the transaction it files."""
        ops: list[Op] = []
        if self._known.incarnation:
            # check: multis-are-of-one-tree
            ops.append(Check(self.tree.incarnation(self._known.incarnation), ANY_VERSION))
        if self._known.version != ANY_VERSION:  # another node protocol would be another version
            # check: multis-are-of-one-protocol
            ops.append(Check(self.tree.root, self._known.version))
        owner = None if transaction_id is None else owner_of(transaction_id)
        return ops if owner is None else [*ops, Check(owner.path, ANY_VERSION)]

    def after_refusal(self, refused: ApplyRefused, transaction_id: str) -> bool:
        """Whether a multi was refused for what is settled now: the transaction's owner node was missing and exists again, or the
        table was dropped and brought back.

        Raises TransactionExpired if the owner is gone for good, TreeReplaced if the tree is another one.
        """
        path = getattr(refused.cause, "path", "")
        owner = owner_of(transaction_id)
        if owner is not None and path == owner.path:
            if self.presence is not None and self.presence.restore(owner):
                return True
            raise TransactionExpired(
                f"transaction {transaction_id} cannot be filed any more: its client was away longer than its session lasts, or its plan "
                "waited longer than files are retained, and its files were given to garbage collection; begin it again",
                transaction_id=transaction_id,
                owner=owner.path,
            )
        return self.was_restored(path)

    def was_restored(self, path: str) -> bool:
        """Whether a check of this node failed although the tree is the same: the table was dropped and brought back meanwhile.

        Raises TreeReplaced, TableDropped or ProtocolMismatch if the tree or its node protocol is another one.
        """
        known = self._known.version
        if path == self.tree.root or (self._known.incarnation and path == self.tree.incarnation(self._known.incarnation)):
            self._known.session = None
            _ = self.coordination
        return self._known.version != known

    def read(self, path: str, watch: Callable[[], None] | None = None) -> Node | None:
        """A node, in a live session."""
        return self.in_session(lambda session: session.read(path, watch))

    def read_head(self, watch: Callable[[], None] | None = None) -> tuple[Head, Node] | None:
        """The decided state with its node, or None if the table has no tree."""
        node = self.read(self.tree.head, watch)
        return None if node is None else (Head.decode(node.data), node)

    def read_published(self, watch: Callable[[], None] | None = None) -> tuple[Published, Node] | None:
        """How far publication got, with its node, or None if the table has no tree."""
        node = self.read(self.tree.published, watch)
        return None if node is None else (Published.decode(node.data), node)

    def require_here(self) -> None:
        """Raise TableMoved if the table went to another coordinator; for a caller that found a node missing."""
        self.in_connection(lambda session: need_here(session, self.tree.location))

    def missing_error(self) -> SluiceError:
        """The error for a table whose nodes existed before and do not any more."""
        root, tombstone = self.in_connection(partial(whereabouts, tree=self.tree))
        if tombstone is not None:
            return gone_error(self.tree.location, tombstone)
        if root is not None:  # it left and came back
            self.require_same(require_protocol(root, self.tree.location))
        return CoordinatorUnavailable(
            f"the coordinator has no nodes of {self.tree.location} any more: if its data were lost, rebuild them with sluice recover, and "
            "open the table again",
            location=self.tree.location,
        )

    def read_root_and_head(self, *, ahead: bool = False, published: bool = True) -> tuple[Node | None, Node | None]:
        """The table's own node and its head, in one round trip; with `ahead` the look also serves the next commit (see `cached_state`).

        With `published` it also refreshes `published_then`.
        """
        if ahead:
            root, state = self._look([self.tree.root])
            self._known.ahead, self._known.ahead_at_s = state, self.clock.monotonic_s()
            return root, None if state is None else state.head_node
        paths = [self.tree.root, self.tree.head, *([self.tree.published] if published else [])]
        root, head, *others = self.in_session(lambda session: session.read_many(paths))
        if published:
            self._known.published = others[0]
        return root, head

    @property
    def published_then(self) -> Node | None:
        """The `published` node as read with the head (`read_root_and_head`)."""
        return self._known.published

    def look(self) -> TableState | None:
        """The table's present state, in one round trip; None if it has no tree."""
        return self._look(())[1]

    def cached_state(self) -> TableState | None:
        """The state that was read ahead, once and while it is young; otherwise a new look.

        A commit based on an old state loses to later ones.
        """
        state, self._known.ahead = self._known.ahead, None
        young = self.clock.monotonic_s() - self._known.ahead_at_s <= self.limits.patience_s
        return state if state is not None and young else self.look()

    def _look(self, first: Sequence[str]) -> tuple[Node | None, TableState | None]:
        """The node at `first`, if any, and the table's state."""
        tree, generation = self.tree, self._known.generation
        (*firsts, head_node, published_node), (slots, records) = self.in_session(
            lambda session: session.look([*first, tree.head, tree.published], [tree.slots(generation), tree.verdicts])
        )
        root = firsts[0] if firsts else None
        if head_node is None or published_node is None:
            return root, None
        head, published = Head.decode(head_node.data), Published.decode(published_node.data)
        if head.generation != generation:
            self._known.generation = head.generation
            slots = self.in_session(lambda session: session.children(tree.slots(head.generation)))
        return root, TableState(head, head_node, published, published_node, slots or (), records or ())

    def barrier(self) -> None:
        """Reads after this show every change acknowledged to anybody before it."""
        self.in_session(lambda session: session.barrier())

    def up_to_date(self, look: Callable[[], _T]) -> _T:
        """The result of `look`, not older than anything acknowledged to anybody before this call.

        A barrier counts for its own session only: if that ends before `look` does, the next session's server may lag.
        """
        while True:
            session = self.coordination.session_id
            self.barrier()
            found = look()
            # check: barriers-count-for-their-session (always)
            if self.coordination.session_id == session:
                return found
            require_time_left(f"{self.tree.location} could not be read up to date")

    def in_connection(self, look: Callable[[CoordinationStore], _T]) -> _T:
        """The result of `look` in a live session, whatever happened to the table's tree."""
        try:
            return look(self.connect())
        except SessionLost:
            return look(self.connect())

    def in_session(self, look: Callable[[CoordinationStore], _T]) -> _T:
        """The result of `look` in a live session; an expired one is replaced, since a read depends on no particular session."""
        try:
            return look(self.coordination)
        # check: lost-session-is-replaced
        except SessionLost:
            return look(self.coordination)

    def after_lost_reply(self, transaction_id: str, look: Callable[[], _T]) -> _T:
        """Find out whether a request whose reply was lost took effect: a barrier, then `look`.

        A session that expired meanwhile is replaced; nothing sent in the old session takes effect after the new one was
        opened. Raises OutcomeUnknown if the coordinator cannot be asked.
        """
        trouble: CoordinatorUnavailable | None = None
        for _ in range(_SESSIONS_MAX):
            try:
                # check: barrier-after-a-lost-reply
                self.coordination.barrier()
                return look()
            except SessionLost as lost:
                trouble = lost
            except CoordinatorUnavailable as away:
                trouble = away
                break
        what = f"the coordinator went away while transaction {transaction_id} was filed ({trouble})"
        raise OutcomeUnknown(f"{what}; ask for its outcome when it is back", transaction_id=transaction_id, stage="intent") from trouble


@contextmanager
def naming(location: str) -> Iterator[None]:
    """Let whatever refuses a transaction in the block name this table, unless it names another one."""
    try:
        yield
    except NotCommitted as refusal:
        if "table" in refusal.details.get("facts", {}):
            raise
        facts = {**refusal.details.get("facts", {}), "table": location}
        raise type(refusal)(f"{location}: {refusal.message}", **{**refusal.details, "facts": facts}) from refusal


def require_head(context: TableContext, *, ahead: bool = False, published: bool = True) -> Head:
    """The head of a table that must have a tree; with `ahead` the look serves the commit that follows, too.

    `published` means the same as for `read_root_and_head`.

    Raises NotATable if the coordinator does not know the location, ProtocolMismatch if the tree is of another node protocol.
    """
    root, head = context.read_root_and_head(ahead=ahead, published=published)
    if root is None or head is None:  # or the server of a new session lags
        root, head = context.up_to_date(context.read_root_and_head)
    fields = {} if root is None else require_protocol(root, context.tree.location)
    # check: closed-tables-are-not-read (fields.get("closed") -> False)
    if root is None or fields.get("closed"):
        root, tombstone = context.in_connection(partial(whereabouts, tree=context.tree))
        if root is not None and not is_closed(root):  # it is back
            return require_head(context, ahead=ahead, published=published)
        if root is not None or tombstone is not None:
            raise gone_error(context.tree.location, tombstone)
    if root is None:
        # check: a-table-on-its-way-is-awaited
        if any(ticket.data == context.tree.location.encode() for ticket in context.in_connection(partial(nodes_below, parent=ARRIVING))):
            raise Unavailable(
                f"{context.tree.location} is on its way to this coordinator: try again; if that lasts, repeat its move (sluice move)",
                location=context.tree.location,
            )
        raise NotATable(
            f"the coordinator knows no table at {context.tree.location}; create it, attach it (sluice.Table.attach), "
            "or check that this is the coordinator its writers use; if its data were lost, rebuild them (sluice.recover)",
            location=context.tree.location,
        )
    # check: a-table-in-its-place-is-another
    context.require_same(fields)
    if head is None:
        raise InvalidRequest(f"the tree of {context.tree.location} is incomplete: it has no head", location=context.tree.location)
    return Head.decode(head.data)


def require_history(context: TableContext) -> Head:
    """The head of a table whose log was seen before this call.

    Raises what `require_head` does, and NotATable for a new tree that does not belong to that log.
    """
    head = require_head(context)
    if head.version < 0:  # or its server lags
        head = context.up_to_date(lambda: require_head(context))
    if head.version < 0:
        raise NotATable(
            f"the coordinator knows no version of the table at {context.tree.location}: its data were lost while a client began to create "
            "the table; rebuild them from the log (sluice.recover)",
            location=context.tree.location,
        )
    return head


def beside(lead: TableContext, context: TableContext) -> TableContext:
    """The table of `context` in the session of another one. Raises TableMoved or InvalidRequest if it is at another coordinator by now."""
    # check: who-went-elsewhere-is-not-looked-for-here
    require_one_coordinator([lead, context])
    return replace(context, connect=lead.connect, presence=lead.presence)


def require_one_coordinator(tables: Sequence[TableContext]) -> None:
    """Raise InvalidRequest unless the tables are kept by one coordinator, below one chroot."""
    if len({each.coordinator for each in tables}) == 1:
        return
    places = {each.tree.location: _place(each.coordinator) for each in tables}
    if len(set(places.values())) > 1:
        for each in tables:  # some moved, and this client has not met that yet
            each.require_here()
        listed = ", ".join(f"{location} by {scheme}://{place}{chroot}" for location, (scheme, place, chroot) in sorted(places.items()))
        raise InvalidRequest(
            f"these tables are kept by different coordinators ({listed}): one commit needs one order, so put them under one coordinator "
            "and chroot, or commit to them one after the other",
            places=sorted(set(places.values())),
        )


def require_coordinator(table: TableContext, coordinator: str) -> None:
    """Raise InvalidRequest unless the table is kept by this coordinator, below this chroot."""
    if _place(table.coordinator) != _place(coordinator):
        location = table.tree.location
        raise InvalidRequest(
            f"{location} is kept by {Address.parse(table.coordinator)}, and the transaction was given "
            f"coordinator={coordinator!r}: leave it out, or give tables of that coordinator",
            location=location,
            coordinator=coordinator,
        )


def _place(coordinator: str | None) -> tuple[str, str, str]:
    """Identifies a tree of tables, ignoring options of the session."""
    address = Address.parse(coordinator)
    return address.scheme, ",".join(sorted(address.place.split(","))), address.chroot if address.scheme == "zk" else ""
