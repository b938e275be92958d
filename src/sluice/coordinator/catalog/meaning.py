"""What a name means now: a table, one that is being created, or nothing any more."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Final, TypeVar

import orjson

from ...storage.dataclass import dataclass
from ..errors import SessionLost
from ..nodes.catalog_records import NameRecord, NamespaceRecord, namespace_path
from ..nodes.context import TableContext, is_closed
from ..nodes.layout import TableTree
from ..nodes.records import Head
from ..service.clock import Clock, SystemClock
from ..service.store import CoordinationStore, Node
from .names import TableName

__all__ = ["Found", "Home", "Meaning", "incarnation_of", "look_at", "meaning_of", "spelled_in"]

_SESSIONS_MAX: Final = 5

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Home:
    """The coordinator that keeps the names: a way to a live session, and a clock."""

    connect: Callable[[], CoordinationStore]
    clock: Clock = SystemClock()

    @staticmethod
    def of(context: TableContext) -> Home:
        """The coordinator of a table."""
        return Home(context.connect, context.clock)

    def fresh(self, look: Callable[[CoordinationStore], _T]) -> _T:
        """The result of `look`, not older than anything acknowledged to anybody before this call."""
        for attempt in range(_SESSIONS_MAX):
            try:
                session = self.connect()
                # check: names-are-looked-up-now
                session.barrier()
                return look(session)
            except SessionLost:
                if attempt == _SESSIONS_MAX - 1:
                    raise
        raise AssertionError("unreachable")

    def nodes(self, *paths: str) -> list[Node | None]:
        """These nodes, as of now."""
        return self.fresh(lambda session: session.read_many(paths))


class Meaning(Enum):
    """What a name's record means."""

    TABLE = "a table"
    BEGUN = "a table that is being created, or whose creator died"
    NOTHING = "a table that is not there any more"


@dataclass(frozen=True, slots=True)
class Found:
    """What is known of a name: the node of its namespace, its own node with the record, and the nodes of its table."""

    name: TableName
    namespace: Node | None
    node: Node | None
    record: NameRecord | None
    root: Node | None = None
    head: Node | None = None
    back: Node | None = None
    creator: Node | None = None

    @property
    def meaning(self) -> Meaning:
        """What the name means."""
        if self.record is None:
            return Meaning.NOTHING
        return meaning_of(self.record, self.root, self.head, self.back, self.name)

    @property
    def spelled(self) -> TableName:
        """The name as it was spelled when it was given."""
        name = self.name if self.record is None else TableName(self.name.namespace, self.record.name)
        return spelled_in(self.namespace, name)

    @property
    def tree(self) -> TableTree:
        """The nodes of the table that the record names."""
        assert self.record is not None
        return TableTree(self.record.location)


def meaning_of(record: NameRecord, root: Node | None, head: Node | None, back: Node | None, name: TableName) -> Meaning:
    """What a name's record means, given its table's node, head, and node that leads back to the name.

    A name is as real as its table: while the table has no version, nobody finds it; and a table that was replaced by another
    one at its location (dropped by a client that knows no names) takes its name with it.
    """
    if root is None or head is None or is_closed(root):
        return Meaning.NOTHING
    state = Head.decode(head.data)
    if state.version < 0:
        ours = back is not None and back.data.decode() == name.path
        # check: names-begin-with-their-own-table (ours -> True)
        return Meaning.BEGUN if ours else Meaning.NOTHING
    # check: names-mean-their-own-table (state.table_id == record.table_id -> True)
    return Meaning.TABLE if state.table_id == record.table_id else Meaning.NOTHING


def look_at(session: CoordinationStore, *names: TableName) -> list[Found]:
    """Everything about some names, in two round trips; the tables' nodes are read after the names'."""
    firsts = session.read_many([path for name in names for path in (namespace_path(name.namespace), name.path)])
    records = [None if node is None else NameRecord.decode(node.data) for node in firsts[1::2]]
    trees = [(record, TableTree(record.location)) for record in records if record is not None]
    paths = [path for record, tree in trees for path in (tree.root, tree.head, tree.name, record.creator or tree.root)]
    nodes = iter(session.read_many(paths))
    found = []
    for name, namespace, node, record in zip(names, firsts[0::2], firsts[1::2], records, strict=True):
        if record is None:
            found.append(Found(name, namespace, None, None))
            continue
        root, head, back, creator = (next(nodes) for _ in range(4))
        found.append(Found(name, namespace, node, record, root, head, back, creator if record.creator else None))
    return found


def spelled_in(namespace: Node | None, name: TableName) -> TableName:
    """The name with its namespace as that was spelled when it was made."""
    return name if namespace is None else TableName(NamespaceRecord.of(namespace).name, name.name)


def incarnation_of(root: Node) -> str:
    """The identity of a table's nodes, from the table's node."""
    return str(orjson.loads(root.data)["incarnation"])
