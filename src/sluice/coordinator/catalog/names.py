"""Names of tables and namespaces: their syntax, as Spark reads it; what a name means now; and changes of names, which take effect once.

A name means a table, or nothing any more. After a lost reply of a change the client finds out whether its multi happened: each multi also
creates a node of a fresh name, its mark. Once a barrier has returned, the mark exists exactly if the multi took effect, whatever others
have changed since. The client removes its mark when it has its answer; marks of clients that died before that are removed by later
changes.
"""

from __future__ import annotations

import re
import unicodedata
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Final, TypeVar

from ...storage.dataclass import dataclass
from ...storage.errors import TableDropped, TableExists, TableNotFound, Unavailable
from ..errors import InvalidName, NamespaceNotFound, SessionLost, TableMoved
from ..nodes.context import TableContext
from ..nodes.layout import CATALOG_CHANGES, CATALOG_DROPPED, TableTree
from ..nodes.records import (
    DEFAULT,
    DroppedRecord,
    Head,
    NameRecord,
    NamespaceRecord,
    is_closed,
    key_of,
    name_path,
    namespace_path,
    need_here,
)
from ..service.address import Address
from ..service.clock import Clock, SystemClock
from ..service.connect import connect
from ..service.store import ApplyRefused, CoordinationStore, Create, Node, NoNode, Op, ReplyLost, StoreError, nodes_below

NAME_CHARACTERS_MAX: Final = 128
"""The longest name of a table or a namespace, in characters."""

_FORMATS: Final = ("avro", "csv", "delta", "iceberg", "json", "orc", "parquet", "sluice", "text")
_RESERVED: Final = {
    "global_temp": "Spark keeps temporary views there",
    "information_schema": "SQL reserves it",
    **dict.fromkeys(_FORMATS, "Spark reads format.`path` as a table at a path"),
}
"""Names that no namespace can have, and why."""

_CATEGORIES: Final = frozenset("LMN")
"""Unicode's letters, their marks, and digits."""
_PART: Final = re.compile(r"`((?:[^`]|``)*)`|([^`.]*)")


@dataclass(frozen=True, slots=True)
class TableName:
    """A table's name in its namespace, as spelled. Two spellings that differ in case only mean the same table."""

    namespace: str
    name: str

    @staticmethod
    def parse(text: str) -> TableName:
        """The name that a text like "sales.orders" means; "orders" is in the namespace `default`. Backticks may quote a part.

        Raises InvalidName.
        """
        if not isinstance(text, str) or not text:
            raise InvalidName(f"{text!r} is not the name of a table; write it like 'sales.orders'", name=text)
        parts = _parts(text)
        if len(parts) > 2:
            hint = f"; leave {parts[0]!r} out" if len(parts) == 3 else ""
            message = f"{text!r} has {len(parts)} parts; a name has two, namespace.table, or one, which is in {DEFAULT!r}{hint}"
            raise InvalidName(message, name=text)
        namespace, name = (DEFAULT, parts[0]) if len(parts) == 1 else parts
        return TableName(check_namespace(namespace, within=text), _checked(name, "table", within=text))

    @property
    def path(self) -> str:
        """The node of this name."""
        return name_path(self.namespace, self.name)

    @property
    def key(self) -> tuple[str, str]:
        """What two spellings of this name have in common."""
        return key_of(self.namespace), key_of(self.name)

    def __str__(self) -> str:
        return f"{self.namespace}.{self.name}"


def check_namespace(name: str, *, within: str = "") -> str:
    """The name of a namespace, in its normal form. Raises InvalidName."""
    checked = _checked(name, "namespace", within=within or name)
    reason = _RESERVED.get(key_of(checked))
    if reason is not None:
        raise InvalidName(f"{within or name!r}: no namespace can be called {checked!r}: {reason}; choose another name", name=within or name)
    return checked


def _parts(text: str) -> list[str]:
    """The parts between dots; backticks around a part go."""
    parts: list[str] = []
    at = 0
    while True:
        match = _PART.match(text, at)
        assert match is not None  # the second alternative matches nothing, too
        parts.append(match[2] if match[1] is None else match[1].replace("``", "`"))
        at = match.end()
        if at == len(text):
            return parts
        if text[at] != ".":
            raise InvalidName(f"{text!r} is not a name: a backtick ends or begins inside a part; quote whole parts", name=text)
        at += 1


def _checked(name: object, what: str, *, within: object) -> str:
    if not isinstance(name, str) or not name:
        raise InvalidName(f"{within!r}: the name of the {what} is empty; write it like 'sales.orders'", name=within)
    normal = unicodedata.normalize("NFC", name)
    for each in normal:
        if unicodedata.category(each)[0] not in _CATEGORIES and each not in "_-":
            message = f"{within!r}: the name of the {what} has the character {each!r}; use letters, digits, '_' and '-'"
            raise InvalidName(message, name=within)
    if len(normal) > NAME_CHARACTERS_MAX:
        message = f"the name of the {what} has {len(normal)} characters, {normal[:20]!r}...; use {NAME_CHARACTERS_MAX} at most"
        raise InvalidName(message, name=within)
    return normal


# -- what a name means -------------------------------------------------------------------------------------------------------

ATTEMPTS: Final = 20
"""How often a change is tried again when other clients are faster."""
_SESSIONS_MAX: Final = 5
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

    def means(self, location: str) -> bool:
        """Whether the name means the table at this location."""
        return self.record is not None and self.record.location == location and self.means_table

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
    nodes = iter(session.read_many([path for tree in trees for path in (tree.root, tree.head, tree.name)]))
    return [
        NameState(name, namespace, node, record, *([] if record is None else islice(nodes, 3)))
        for name, namespace, node, record in zip(names, firsts[0::2], firsts[1::2], records, strict=True)
    ]


def look_up(client: CatalogClient, name: TableName) -> NameState:
    """Everything about a name, as of now."""
    return client.fresh(lambda session: look_at(session, name))[0]


def find_name(client: CatalogClient, name: TableName) -> NameState:
    """The table or view of a name, with its record; also of a table that moved, if none got the name since.

    Raises NamespaceNotFound, TableNotFound; TableDropped if it can be brought back.
    """
    entry = look_up(client, name)
    try:
        require_table(entry)
    except TableNotFound:
        try:
            if entry.record is not None:
                client.fresh(partial(need_here, location=entry.record.location))
        # check: names-lead-to-tables-that-moved
        except TableMoved:
            return entry
        for _, dropped in dropped_as(client, name):
            remedy = f"bring it back with Catalog.undrop, in a shell sluice tables undrop {name}"
            message = f"the table {name} was dropped by {dropped.by}: {remedy}"
            raise TableDropped(message, name=str(name), location=dropped.location) from None
        raise
    return entry


def dropped_tables(client: CatalogClient) -> list[tuple[str, DroppedRecord]]:
    """The dropped tables that still have data, with the ids of their drops, latest first."""
    records = [(node.name, DroppedRecord.decode(node.data)) for node in client.fresh(partial(nodes_below, parent=CATALOG_DROPPED))]
    return sorted(records, key=lambda each: (-each[1].dropped_ms, each[0]))


def dropped_as(client: CatalogClient, name: TableName) -> list[tuple[str, DroppedRecord]]:
    """The tables dropped under this name whose data are not being deleted, latest first."""
    return [
        (each, record)
        for each, record in dropped_tables(client)
        if TableName(record.namespace, record.name).key == name.key and not record.purging
    ]


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
    for _ in range(ATTEMPTS):
        try:
            client.connect().apply(whole)
        except ApplyRefused:
            return False
        except SessionLost:  # nothing was sent
            continue
        except ReplyLost:
            # check: lost-changes-of-names-are-looked-for (client.nodes(mark) == [None] -> True)
            if client.nodes(mark) == [None]:
                continue
        _forget(client, mark)
        return True
    raise Unavailable("the coordinator's sessions end before a change of names is answered: try again")


def _forget(client: CatalogClient, mark: str) -> None:
    """Remove this mark, and those that dead clients left. What fails is left to later changes."""
    with suppress(StoreError, Unavailable):
        session, now_ms = client.connect(), client.clock.now_ms()
        marks = [node for node in nodes_below(session, CATALOG_CHANGES) if node.data.isdigit()]
        old = [node.path for node in marks if now_ms - int(node.data) > _FORGOTTEN_AFTER_MS]
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


def busy(what: str, **facts: object) -> Unavailable:
    """The error if other clients were faster at every attempt."""
    return Unavailable(f"other clients keep changing {what}: try again", **facts)
