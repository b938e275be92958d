"""What every part of the commit path of one table works with."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

import orjson

from ..storage.location import open_store
from ..storage.objects import ObjectStore
from .clock import Clock, SystemClock
from .errors import CoordinatorUnavailable, OutcomeUnknown, SessionLost, TransactionExpired, TreeReplaced
from .identity import another_id, owner_of
from .layout import TableTree
from .limits import Limits
from .presence import Presence
from .protocol import require_protocol
from .records import ClientName, Head, Published
from .store import ANY_VERSION, ApplyRefused, Check, CoordinationStore, Node, Op

__all__ = ["TableContext"]

_T = TypeVar("_T")
_SESSIONS_MAX = 5


@dataclass(slots=True)
class _Known:
    """Which tree a client works on, the data version of its node, and the session in which that was seen last."""

    incarnation: str | None = None
    version: int = ANY_VERSION
    session: int | None = None


@dataclass(frozen=True)
class TableContext:
    """One table as one client sees it: its object store, its tree, and a way to the coordination service.

    `connect` gives a live session: the same one until it expires, then a new one. Everything durable hangs on
    persistent nodes, so a new session simply goes on. `presence` stands for the client's transactions while they are open;
    those of a client without one have ids that tell no owner. `stores` opens what is below the location of another table.
    """

    objects: ObjectStore
    tree: TableTree
    connect: Callable[[], CoordinationStore]
    clock: Clock = field(default_factory=SystemClock)
    limits: Limits = field(default_factory=Limits)
    client: ClientName = field(default_factory=ClientName)
    presence: Presence | None = None
    stores: Callable[[str], ObjectStore] = open_store
    _known: _Known = field(default_factory=_Known, init=False, repr=False, compare=False)

    @property
    def coordination(self) -> CoordinationStore:
        """A live session with the coordination service, on the tree that this client knows. Raises TreeReplaced, ProtocolMismatch."""
        session = self.connect()
        if session.session_id != self._known.session:
            self._recognise(session)
        return session

    @property
    def same_session(self) -> bool:
        """Whether the session still lives in which the tree was seen last: then it is the same one. Asks nobody while that is so."""
        return self.connect().session_id == self._known.session

    def _recognise(self, session: CoordinationStore) -> None:
        """Look in another session whether the tree is the same: a session never outlives the data it was opened on."""
        root = session.read(self.tree.root)
        if root is None:
            return  # it is about to be made, or what is asked of it next finds out
        require_protocol(root, self.tree.location)
        found, known = _incarnation(root), self._known.incarnation
        if known and found and found != known:
            raise TreeReplaced(
                f"the coordinator's data of {self.tree.location} were lost and rebuilt since the table was opened (it was {known!r}, "
                f"and is {found!r}): open the table again; what was not published then is not in it",
                location=self.tree.location,
            )
        self._known.incarnation, self._known.version, self._known.session = found or known, root.version, session.session_id

    def forget_tree(self) -> None:
        """Know no tree any more: whichever is there from now on is the table's, for a client that has filed nothing in another."""
        self._known.incarnation, self._known.version, self._known.session = None, ANY_VERSION, None

    def new_transaction_id(self) -> str:
        """A GUID: the name of a transaction for ever, part of the names of all its files, and held as long as this very object."""
        return str(uuid.uuid4()) if self.presence is None else self.presence.begin()

    def another_transaction_id(self, transaction_id: str) -> str:
        """An id for filing again what was staged under this one."""
        return another_id(transaction_id) if self.presence is None else self.presence.again(transaction_id)

    def standing(self, transaction_id: str | None = None) -> list[Op]:
        """What has to stand for a multi to count: the tree this client knows, and the owner of the transaction it files."""
        ops: list[Op] = []
        if self._known.incarnation:
            ops.append(Check(self.tree.incarnation(self._known.incarnation), ANY_VERSION))
        if self._known.version != ANY_VERSION:  # another node protocol would be another version
            ops.append(Check(self.tree.root, self._known.version))
        owner = None if transaction_id is None else owner_of(transaction_id)
        return ops if owner is None else [*ops, owner.check]

    def after_refusal(self, refused: ApplyRefused, transaction_id: str) -> bool:
        """Whether a multi was refused because its transaction's owner did not stand, which it does again now.

        Raises TransactionExpired when it is gone for good, TreeReplaced when it is the tree that is another one.
        """
        path = getattr(refused.cause, "path", "")
        owner = owner_of(transaction_id)
        if owner is not None and path == owner.path:
            if self.presence is not None and self.presence.restore(owner):
                return True
            raise TransactionExpired(
                f"transaction {transaction_id} cannot be filed any more: its client was away for longer than its session lasts, or its "
                "plan lay for longer than files are retained, and its files were given to garbage collection; begin it again",
                transaction_id=transaction_id,
                owner=owner.path,
            )
        self.recognise_again(path)
        return False

    def recognise_again(self, path: str) -> None:
        """Raise TreeReplaced or ProtocolMismatch when a check of this node failed because it was of another tree, or is kept anew."""
        if path == self.tree.root or (self._known.incarnation and path == self.tree.incarnation(self._known.incarnation)):
            self._known.session = None
            _ = self.coordination

    def read_head(self, watch: Callable[[], None] | None = None) -> tuple[Head, Node] | None:
        """The decided state with its node, or None when the table has no tree."""
        node = self._read(self.tree.head, watch)
        return None if node is None else (Head.decode(node.data), node)

    def read_published(self, watch: Callable[[], None] | None = None) -> tuple[Published, Node] | None:
        """How far publication got, with its node, or None when the table has no tree."""
        node = self._read(self.tree.published, watch)
        return None if node is None else (Published.decode(node.data), node)

    def vanished(self) -> CoordinatorUnavailable:
        """What to raise where the table's nodes were there before, and are not any more."""
        return CoordinatorUnavailable(
            f"the coordinator has no nodes of {self.tree.location} any more: if its data were lost, rebuild them with sluice recover, and "
            "open the table again",
            location=self.tree.location,
        )

    def read_root_and_head(self) -> tuple[Node | None, Node | None]:
        """The table's own node and its head, in one round trip."""
        root, head = self._alive(lambda session: session.read_many([self.tree.root, self.tree.head]))
        return root, head

    def barrier(self) -> None:
        """What is read after this shows every change acknowledged to anybody before it."""
        self._alive(lambda session: session.barrier())

    def up_to_date(self, look: Callable[[], _T]) -> _T:
        """What `look` finds, not older than what anybody was told before this call.

        A barrier counts for its own session: where that ends before the look does, the next one's server may be behind.
        """
        while True:
            session = self.coordination.session_id
            self.barrier()
            found = look()
            if self.coordination.session_id == session:
                return found

    def _read(self, path: str, watch: Callable[[], None] | None) -> Node | None:
        return self._alive(lambda session: session.read(path, watch))

    def _alive(self, look: Callable[[CoordinationStore], _T]) -> _T:
        """Look in a live session: nothing that is read here hangs on one, so an expired one is simply replaced."""
        try:
            return look(self.coordination)
        except SessionLost:
            return look(self.coordination)

    def after_lost_reply(self, transaction_id: str, look: Callable[[], _T]) -> _T:
        """Find out what became of a request whose reply was lost: a barrier, then `look`.

        A session that expired meanwhile is replaced by a new one: nothing that the old one sent takes effect after that
        one was opened. Raises OutcomeUnknown when the coordinator cannot be asked.
        """
        trouble: CoordinatorUnavailable | None = None
        for _ in range(_SESSIONS_MAX):
            try:
                self.coordination.barrier()
                return look()
            except SessionLost as lost:
                trouble = lost
            except CoordinatorUnavailable as away:
                trouble = away
                break
        raise OutcomeUnknown(
            f"the coordinator went away while transaction {transaction_id} was filed ({trouble}); ask for its outcome when it is back",
            transaction_id=transaction_id,
            stage="intent",
        ) from trouble


def _incarnation(root: Node) -> str:
    """Which tree the data of a table's node says it is; "" for what says nothing."""
    try:
        return str(orjson.loads(root.data).get("incarnation", ""))
    except (orjson.JSONDecodeError, AttributeError):
        return ""
