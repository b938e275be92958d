"""Names given to tables and taken away: to a table that exists, from one name to another.

Each change is one multi over the name's node, the table's node that leads back to it and, if a table ends with the change, the
table's nodes. So no client sees a name without its table, and of two clients that change the same name one is refused and
looks again. A record whose table is gone is nobody's: the next change of the name replaces it.

A new table gets its name after its first version. The first to finish has the name; a creator that dies before leaves a table
without a name.

After the coordinator's data were lost, names come back from the tables' logs. Tables are recovered one by one, in any order, and
a log may lag behind the last change of its table's name. So two tables may claim one name: the one that was given it last gets
it, whichever is recovered first.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Final, TypeAlias

from ...storage.errors import InvalidRequest, TableExists, TableNotFound, Unavailable
from ..errors import NamespaceExists, NamespaceNotFound
from ..nodes.catalog_records import NameRecord, NamespaceRecord, ensure_catalog
from ..nodes.layout import TableTree
from ..nodes.records import Head, incarnation_of, is_closed
from ..service.store import ANY_VERSION, Check, Delete, Node, Op, Write, put
from .meaning import CatalogClient, NameState, applied_once, look_at, look_up, require_free, require_table, spelled_in
from .names import TableName
from .namespaces import create_namespace

_ATTEMPTS: Final = 20

Named: TypeAlias = "tuple[TableName, NameRecord]"
"""A name as it is spelled now, and its record."""


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
        if entry.means_table and entry.record is not None and entry.record.location == location:
            return entry.spelled, entry.record
        require_free(entry)
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
            put(name.path, record.encode(), entry.node),
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
        fresh = replace(record, name=new.name, named_ms=max(client.clock.now_ms(), record.named_ms + 1), creator="")
        # the incarnation keeps a rename from meeting a drop by a client that knows no names
        ops: list[Op] = [Check(entry.tree.incarnation(incarnation_of(root)), ANY_VERSION)]
        if new.path == old.path:
            ops.append(Write(node.path, fresh.encode(), node.version))
        else:
            require_free(target)
            named = put(new.path, fresh.encode(), target.node)
            ops += [Delete(node.path, node.version), named, put(entry.tree.name, new.path.encode(), entry.back)]
        if applied_once(client, ops):
            return spelled_in(target.namespace, new), fresh
    raise _busy(old)


def remove_name(client: CatalogClient, name: TableName) -> NameRecord:
    """Take a table's name away; the table stays, at its location. Returns what the record was. Raises TableNotFound."""
    for _ in range(_ATTEMPTS):
        entry = look_up(client, name)
        record, node, _ = require_table(entry)
        gone: list[Op] = [] if entry.back is None else [Delete(entry.back.path, entry.back.version)]
        if applied_once(client, [Delete(node.path, node.version), *gone]):
            return record
    raise _busy(name)


def _holder(client: CatalogClient, back: Node, location: str) -> TableName | None:
    """The name to which a table's node leads, if that name means this table."""
    entry = look_up(client, TableName(*back.data.decode().split("/")[-2:]))
    same = entry.means_table and entry.record is not None and entry.record.location == location
    return entry.spelled if same else None


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
            if entry.record is None or not entry.means_table:
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
