"""What every part of the commit path of one table works with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from ..storage.objects import ObjectStore
from .clock import Clock, SystemClock
from .errors import CoordinatorUnavailable, OutcomeUnknown, SessionLost
from .layout import TableTree
from .limits import Limits
from .records import ClientName, Head, Published
from .store import CoordinationStore, Node

__all__ = ["TableContext"]

_T = TypeVar("_T")
_SESSIONS_MAX = 5


@dataclass(frozen=True)
class TableContext:
    """One table as one client sees it: its object store, its tree, and a way to the coordination service.

    `connect` gives a live session: the same one until it expires, then a new one. Everything durable hangs on
    persistent nodes, so a new session simply goes on.
    """

    objects: ObjectStore
    tree: TableTree
    connect: Callable[[], CoordinationStore]
    clock: Clock = field(default_factory=SystemClock)
    limits: Limits = field(default_factory=Limits)
    client: ClientName = field(default_factory=ClientName)

    @property
    def coordination(self) -> CoordinationStore:
        """A live session with the coordination service."""
        return self.connect()

    def read_head(self, watch: Callable[[], None] | None = None) -> tuple[Head, Node] | None:
        """The decided state with its node, or None when the table has no tree."""
        node = self._read(self.tree.head, watch)
        return None if node is None else (Head.decode(node.data), node)

    def read_published(self, watch: Callable[[], None] | None = None) -> tuple[Published, Node] | None:
        """How far publication got, with its node, or None when the table has no tree."""
        node = self._read(self.tree.published, watch)
        return None if node is None else (Published.decode(node.data), node)

    def read_root_and_head(self) -> tuple[Node | None, Node | None]:
        """The table's own node and its head, in one round trip."""
        root, head = self._alive(lambda session: session.read_many([self.tree.root, self.tree.head]))
        return root, head

    def barrier(self) -> None:
        """What is read after this shows every change acknowledged to anybody before it."""
        self._alive(lambda session: session.barrier())

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
