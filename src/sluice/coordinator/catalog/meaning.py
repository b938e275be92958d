"""What a name means now (a table, or nothing any more), and changes of names, which take effect once.

After a lost reply the client finds out whether its multi happened: each multi also creates a node of a fresh name, its mark.
Once a barrier has returned, the mark exists exactly if the multi took effect, whatever others have changed since. The client
removes its mark when it has its answer; marks of clients that died before that are removed by later changes.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, TypeVar

from ...storage.dataclass import dataclass
from ...storage.errors import TableExists, TableNotFound, Unavailable
from ..errors import NamespaceNotFound, SessionLost
from ..nodes.catalog_records import DEFAULT, NameRecord, NamespaceRecord, key_of, namespace_path
from ..nodes.context import TableContext
from ..nodes.layout import CATALOG_CHANGES, TableTree
from ..nodes.records import Head, is_closed
from ..service.address import Address
from ..service.clock import Clock, SystemClock
from ..service.connect import connect
from ..service.store import ApplyRefused, CoordinationStore, Create, Node, NoNode, Op, ReplyLost, StoreError
from .names import TableName

_SESSIONS_MAX: Final = 5
_ATTEMPTS: Final = 20
_FORGOTTEN_AFTER_MS: Final = 24 * 3600 * 1000
"""A mark is read within the time of one call; a day is longer than any."""

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class CatalogClient:
    """The coordinator that keeps the names: a way to a live session, and a clock."""

    connect: Callable[[], CoordinationStore]
    clock: Clock = SystemClock()

    @staticmethod
    def at(coordinator: str | None) -> CatalogClient:
        """A coordinator, by its address. Raises CoordinatorUnavailable."""
        address = Address.parse(coordinator)
        connect(address)
        return CatalogClient(partial(connect, address))

    @staticmethod
    def of(context: TableContext) -> CatalogClient:
        """The coordinator of a table."""
        return CatalogClient(context.connect, context.clock)

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


@dataclass(frozen=True, slots=True)
class NameState:
    """What is known of a name: the node of its namespace, its own node with the record, and the nodes of its table."""

    name: TableName
    namespace: Node | None
    node: Node | None
    record: NameRecord | None
    root: Node | None = None
    head: Node | None = None
    back: Node | None = None

    @property
    def means_table(self) -> bool:
        """Whether the name means a table: the one that it was given to, if that is still there.

        A table that was replaced by another one at its location (dropped by a client that knows no names) takes its name with it.
        """
        if self.record is None or self.root is None or self.head is None or is_closed(self.root):
            return False
        state = Head.decode(self.head.data)
        # check: names-mean-their-own-table (state.table_id == self.record.table_id -> True)
        return state.version >= 0 and state.table_id == self.record.table_id

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


def look_at(session: CoordinationStore, *names: TableName) -> list[NameState]:
    """Everything about some names, in two round trips; the tables' nodes are read after the names'."""
    firsts = session.read_many([path for name in names for path in (namespace_path(name.namespace), name.path)])
    records = [None if node is None else NameRecord.decode(node.data) for node in firsts[1::2]]
    trees = [TableTree(record.location) for record in records if record is not None]
    paths = [path for tree in trees for path in (tree.root, tree.head, tree.name)]
    nodes = iter(session.read_many(paths))
    entry = []
    for name, namespace, node, record in zip(names, firsts[0::2], firsts[1::2], records, strict=True):
        if record is None:
            entry.append(NameState(name, namespace, None, None))
            continue
        root, head, back = (next(nodes) for _ in range(3))
        entry.append(NameState(name, namespace, node, record, root, head, back))
    return entry


def look_up(client: CatalogClient, name: TableName) -> NameState:
    """Everything about a name, as of now."""
    return client.fresh(lambda session: look_at(session, name))[0]


def spelled_in(namespace: Node | None, name: TableName) -> TableName:
    """The name with its namespace as that was spelled when it was made."""
    return name if namespace is None else TableName(NamespaceRecord.of(namespace).name, name.name)


# -- changes ---------------------------------------------------------------------------------------------------------------


def applied_once(client: CatalogClient, ops: Sequence[Op]) -> bool:
    """Apply a multi exactly once, although replies and sessions get lost; False if it was refused, since others were faster.

    Its parent nodes must exist. Raises CoordinatorUnavailable, after which it may have taken effect if the coordinator went away
    before it could be asked.
    """
    mark = f"{CATALOG_CHANGES}/{uuid.uuid4().hex}"
    whole = [*ops, Create(mark, str(client.clock.now_ms()).encode())]
    for _ in range(_ATTEMPTS):
        try:
            client.connect().apply(whole)
        except ApplyRefused:
            return False
        except SessionLost:  # nothing was sent
            continue
        except ReplyLost:
            # check: lost-changes-of-names-are-looked-for (not _took_effect(client, mark) -> True)
            if not _took_effect(client, mark):
                continue
        _forget(client, mark)
        return True
    raise Unavailable("the coordinator's sessions end before a change of names is answered: try again")


def _took_effect(client: CatalogClient, mark: str) -> bool:
    while True:
        try:
            session = client.connect()
            session.barrier()
            return session.read(mark) is not None
        except SessionLost:
            continue


def _forget(client: CatalogClient, mark: str) -> None:
    """Remove this mark, and those that dead clients left. What fails is left to later changes."""
    with suppress(StoreError, Unavailable):
        session = client.connect()
        names = session.children(CATALOG_CHANGES) or ()
        others = session.read_many([f"{CATALOG_CHANGES}/{name}" for name in names if f"{CATALOG_CHANGES}/{name}" != mark])
        old = [node.path for node in others if node is not None and client.clock.now_ms() - int(node.data) > _FORGOTTEN_AFTER_MS]
        for path in (mark, *old):
            with suppress(NoNode):
                session.delete(path)


def require_table(entry: NameState) -> tuple[NameRecord, Node, Node]:
    """The record of a name that means a table, its node and the table's. Raises NamespaceNotFound, TableNotFound."""
    require_namespace(entry)
    if not entry.means_table or entry.record is None or entry.node is None or entry.root is None:
        raise TableNotFound(f"there is no table {entry.name}", name=str(entry.name))
    return entry.record, entry.node, entry.root


def require_free(entry: NameState) -> None:
    """Raise TableExists if a name is taken, NamespaceNotFound if it cannot be given."""
    require_namespace(entry)
    if entry.means_table and entry.record is not None:
        name, location = entry.spelled, entry.record.location
        raise TableExists(f"a table {name} already exists, at {location}: give another name", name=str(name), location=location)


def require_namespace(entry: NameState) -> None:
    """Raise NamespaceNotFound if the namespace of a name does not exist."""
    if entry.namespace is None and key_of(entry.name.namespace) != DEFAULT:
        raise NamespaceNotFound(f"there is no namespace {entry.name.namespace}: create it first", namespace=entry.name.namespace)
