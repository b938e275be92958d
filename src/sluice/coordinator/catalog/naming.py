"""Names given to tables and taken away: with a new table, to an existing one, from one name to another.

Each change is one multi over the name's node, the table's node that leads back to it and, if a table begins or ends with the
change, the table's nodes. So no client sees a name without its table, and of two clients that change the same name one is
refused and looks again.

A new table's name and nodes are made together, before its first version is committed. Until then nobody finds the name. If
the creator fails, it takes both back; if it dies, the next client that wants the name does.

After the coordinator's data were lost, names come back from the tables' logs. Tables are recovered one by one, in any order, and
a log may lag behind the last change of its table's name. So two tables may claim one name: the one that was given it last gets
it, whichever is recovered first.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Final, TypeAlias

from ...storage.dataclass import dataclass
from ...storage.errors import InvalidRequest, SluiceError, TableExists, TableNotFound, Unavailable
from ..errors import NamespaceExists, NamespaceNotFound, OutcomeUnknown
from ..nodes.catalog_records import DEFAULT, NameRecord, NamespaceRecord, ensure_catalog, key_of
from ..nodes.context import TableContext
from ..nodes.creation import check_tree, tree_ops
from ..nodes.identity import owner_of
from ..nodes.layout import TableTree
from ..nodes.records import Head, incarnation_of, is_closed
from ..service.store import ANY_VERSION, Check, Create, Delete, Node, Op, Write, put
from .meaning import CatalogClient, Meaning, NameState, applied_once, look_at, look_up, remove_remains, spelled_in
from .names import TableName
from .namespaces import create_namespace

_log = logging.getLogger(__name__)

_ATTEMPTS: Final = 20

Named: TypeAlias = "tuple[TableName, NameRecord]"
"""A name as it is spelled now, and its record."""


@dataclass(frozen=True, slots=True)
class NewName:
    """A name for a new table, which gets this id; `named_ms` is when, by the creator's clock. `managed`: the catalog chose the location."""

    name: TableName
    table_id: str
    managed: bool
    named_ms: int

    def record(self, location: str, creator: str = "") -> NameRecord:
        """The record of this name."""
        return NameRecord(self.name.name, location, self.table_id, self.managed, self.named_ms, creator)


# -- with a new table ----------------------------------------------------------------------------------------------------


def make_named(context: TableContext, new: NewName, *, creator: str | None = None) -> None:
    """Make a table's nodes together with its name; `creator` is a node that exists while the creator does (None: this client's).

    Raises NamespaceNotFound; TableExists if the name is taken, or another client creates a table under it at this moment.
    """
    client, tree = CatalogClient.of(context), context.tree
    owner = owner_of(context.new_transaction_id()) if creator is None else None
    record = new.record(tree.location, creator or ("" if owner is None else owner.path))
    for _ in range(_ATTEMPTS):
        client.fresh(ensure_catalog)
        entry = look_up(client, new.name)
        require_namespace(entry)
        if entry.record is not None:
            _clear(client, entry)
            continue
        nodes = _nodes_for(context, client, new)
        if nodes is None:
            continue
        ops = [Create(new.name.path, record.encode()), *nodes]
        if applied_once(client, ops):
            check_tree(context)
            return
    raise _busy(new.name)


@contextmanager
def taken_back_on_failure(context: TableContext, new: NewName | None) -> Iterator[None]:
    """Take the new table's name back if the block fails and no version of the table was ratified.

    Nothing is taken back while the outcome of the first version is unknown: the name goes with it, or is taken back by the
    next client that wants it once this one is gone.
    """
    try:
        yield
    except OutcomeUnknown:
        raise
    except BaseException:
        if new is not None:
            try:
                take_back(context, new)
            except SluiceError as trouble:
                _log.warning("the name %s, of a table that was not created, was not taken back: %s", new.name, trouble)
        raise


def take_back(context: TableContext, new: NewName) -> None:
    """Take back a name, and its table's nodes, if no version of the table was ratified under it."""
    client = CatalogClient.of(context)
    for _ in range(_ATTEMPTS):
        entry = look_up(client, new.name)
        if entry.record is None or entry.record.table_id != new.table_id or entry.meaning is Meaning.TABLE:
            return
        if remove_remains(client, entry):
            context.forget_tree()
            return
    raise _busy(new.name)


def _nodes_for(context: TableContext, client: CatalogClient, new: NewName) -> list[Op] | None:
    """What makes the nodes of a new table, with the one that leads to its name; None: look again.

    Nodes that a client made without a name, and in which nothing is ratified, serve as well: the first version decides whose
    they are.
    """
    tree, path = context.tree, new.name.path.encode()
    root, head, back = client.nodes(tree.root, tree.head, tree.name)
    if root is None:
        return [*tree_ops(context, Head()), Create(tree.name, path)]
    if head is None or Head.decode(head.data).version >= 0:
        raise TableExists(
            f"the coordinator knows a table at {tree.location} already: open it, or register it under a name", location=tree.location
        )
    begun: list[Op] = [Check(tree.incarnation(incarnation_of(root)), ANY_VERSION), Check(tree.head, head.version)]
    if back is not None:
        entry = look_up(client, _name_at(back))
        if entry.record is not None and entry.record.location == tree.location:
            _clear(client, entry)
            return None
    return [*begun, put(tree.name, path, back)]


def _clear(client: CatalogClient, entry: NameState) -> None:
    """Remove what is left of a name whose table is gone, or whose creator died. Raises TableExists if the name is taken."""
    name, record = entry.spelled, entry.record
    if record is None:
        return
    if entry.meaning is Meaning.TABLE:
        raise TableExists(f"a table {name} already exists, at {record.location}", name=str(name), location=record.location)
    # check: creators-are-left-alone
    if entry.meaning is Meaning.BEGUN and entry.creator is not None:
        raise TableExists(
            f"another client is creating a table {name} at this moment, at {record.location}: open it when it is there",
            name=str(name),
            location=record.location,
            unfinished=True,
        )
    remove_remains(client, entry)


# -- of a table that exists ----------------------------------------------------------------------------------------------


def register_name(client: CatalogClient, name: TableName, location: str, *, managed: bool = False, named_ms: int | None = None) -> Named:
    """Give a name to the table at this location; the same name again changes nothing.

    Raises NamespaceNotFound; TableExists if the name is taken; TableNotFound if the coordinator knows no table there;
    InvalidRequest if the table has another name.
    """
    tree = TableTree(location)
    for _ in range(_ATTEMPTS):
        client.fresh(ensure_catalog)
        root, head, back = client.nodes(tree.root, tree.head, tree.name)
        state = None if root is None or head is None or is_closed(root) else Head.decode(head.data)
        if root is None or state is None or state.version < 0:
            raise TableNotFound(f"the coordinator knows no table at {location}: create it, or attach it", location=location)
        entry = look_up(client, name)
        require_namespace(entry)
        if entry.meaning is Meaning.TABLE and entry.record is not None and entry.record.location == location:
            return entry.spelled, entry.record
        if entry.record is not None:
            _clear(client, entry)
            continue
        former = None if back is None else _holder(client, back, location)
        if former is not None:
            raise InvalidRequest(
                f"the table at {location} has the name {former} already: rename it (a table has one name)",
                location=location,
                name=str(former),
            )
        record = NameRecord(name.name, location, state.table_id, managed, client.clock.now_ms() if named_ms is None else named_ms)
        ops: list[Op] = [
            Check(tree.incarnation(incarnation_of(root)), ANY_VERSION),
            Create(name.path, record.encode()),
            put(tree.name, name.path.encode(), back),
        ]
        if applied_once(client, ops):
            return spelled_in(entry.namespace, name), record
    raise _busy(name)


def rename_table(client: CatalogClient, old: TableName, new: TableName) -> Named:
    """Give a table another name, possibly in another namespace, or in another spelling.

    Raises TableNotFound for a name that means no table, also if another client renamed or dropped it at this moment;
    NamespaceNotFound; TableExists if the new name is taken.
    """
    for _ in range(_ATTEMPTS):
        entry, target = client.fresh(lambda session: look_at(session, old, new))
        record, node, root = require_table(entry)
        require_namespace(target)
        fresh = replace(record, name=new.name, named_ms=max(client.clock.now_ms(), record.named_ms + 1), creator="")
        # the incarnation keeps a rename from meeting a drop by a client that knows no names
        ops: list[Op] = [Check(entry.tree.incarnation(incarnation_of(root)), ANY_VERSION)]
        if new.path == old.path:
            ops.append(Write(node.path, fresh.encode(), node.version))
        else:
            if target.record is not None:
                _clear(client, target)
                continue
            ops += [Delete(node.path, node.version), Create(new.path, fresh.encode()), put(entry.tree.name, new.path.encode(), entry.back)]
        if applied_once(client, ops):
            return spelled_in(target.namespace, new), fresh
    raise _busy(old)


def remove_name(client: CatalogClient, name: TableName) -> NameRecord:
    """Take a table's name away; the table stays, at its location. Returns what the record was. Raises TableNotFound."""
    for _ in range(_ATTEMPTS):
        entry = look_up(client, name)
        if entry.meaning is Meaning.BEGUN and entry.record is not None:
            if remove_remains(client, entry):
                return entry.record
            continue
        record, node, _ = require_table(entry)
        gone: list[Op] = [] if entry.back is None else [Delete(entry.back.path, entry.back.version)]
        if applied_once(client, [Delete(node.path, node.version), *gone]):
            return record
    raise _busy(name)


def require_table(entry: NameState) -> tuple[NameRecord, Node, Node]:
    """The record of a name that means a table, its node and the table's. Raises NamespaceNotFound, TableNotFound."""
    require_namespace(entry)
    if entry.meaning is not Meaning.TABLE or entry.record is None or entry.node is None or entry.root is None:
        why = ": it is being created, or its creator died" if entry.meaning is Meaning.BEGUN else ""
        raise TableNotFound(f"there is no table {entry.name}{why}", name=str(entry.name))
    return entry.record, entry.node, entry.root


def require_namespace(entry: NameState) -> None:
    """Raise NamespaceNotFound if the namespace of a name does not exist."""
    if entry.namespace is None and key_of(entry.name.namespace) != DEFAULT:
        raise NamespaceNotFound(f"there is no namespace {entry.name.namespace}: create it first", namespace=entry.name.namespace)


def _holder(client: CatalogClient, back: Node, location: str) -> TableName | None:
    """The name to which a table's node leads, if that name means this table."""
    entry = look_up(client, _name_at(back))
    same = entry.meaning is Meaning.TABLE and entry.record is not None and entry.record.location == location
    return entry.spelled if same else None


def _name_at(back: Node) -> TableName:
    """The name to which a table's node leads."""
    return TableName(*back.data.decode().split("/")[-2:])


def _busy(name: TableName) -> Unavailable:
    return Unavailable(f"other clients keep changing the name {name}: try again", name=str(name))


# -- after the coordinator's data were lost ----------------------------------------------------------------------------------


def claim_name(client: CatalogClient, name: TableName, location: str, *, named_ms: int, managed: bool) -> bool:
    """Give a table the name that its log says it got at `named_ms`; False if another table got that name later.

    Makes the namespace if it does not exist. A table that got the name earlier loses it.
    """
    for _ in range(_ATTEMPTS):
        try:
            register_name(client, name, location, managed=managed, named_ms=named_ms)
        except NamespaceNotFound:
            with suppress(NamespaceExists):
                create_namespace(client, NamespaceRecord(name.namespace, created_ms=client.clock.now_ms()))
            continue
        except TableExists:
            entry = look_up(client, name)
            if entry.record is None or entry.meaning is not Meaning.TABLE:
                continue
            # check: the-last-name-counts (entry.record.named_ms -> -1)
            if entry.record.named_ms >= named_ms:
                return False
            if _replaced(client, entry, NameRecord(name.name, location, "", managed, named_ms)):
                return True
            continue
        return True
    raise Unavailable(f"other clients keep changing the name {name}: give it by Catalog.register", name=str(name))


def _replaced(client: CatalogClient, entry: NameState, record: NameRecord) -> bool:
    """Give the name to another table; False if something changed: look again."""
    assert entry.node is not None
    tree = TableTree(record.location)
    root, head, back = client.nodes(tree.root, tree.head, tree.name)
    if root is None or head is None:
        return False
    path = entry.name.path.encode()
    fresh = replace(record, table_id=Head.decode(head.data).table_id)
    ops: list[Op] = [
        Check(tree.incarnation(incarnation_of(root)), ANY_VERSION),
        Write(entry.node.path, fresh.encode(), entry.node.version),
        put(tree.name, path, back),
    ]
    if entry.back is not None and entry.back.data == path:
        ops.append(Delete(entry.back.path, entry.back.version))
    return applied_once(client, ops)
