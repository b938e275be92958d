"""Changes of the catalog: its root, namespaces, and names given to tables, taken away, dropped with their tables and brought back.

Each change is one multi over the name's node, the table's node that leads back to it and, if a table ends with the change, the
table's nodes. So no client sees a name without its table, and of two clients that change the same name one is refused and
looks again. A record whose table is gone is nobody's: the next change of the name replaces it.

A new table gets its name after its first version. The first to finish has the name; a creator that dies before leaves a table
without a name.

A table that was dropped by its name can be brought back until its data are deleted. A drop is one multi: it closes the table to every
client, as the removal of its nodes does, takes its name away, and records what is needed to undo it. The table's other nodes stay as they
are. To bring it back is one multi, too. When its data are to be deleted, the closed nodes are handed to the ordinary removal.

After the coordinator's data were lost, names come back from the tables' logs. Tables are recovered one by one, in any order, and
a log may lag behind the last change of its table's name. So two tables may claim one name: the one that was given it last gets
it, whichever is recovered first.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Final, TypeAlias

import orjson

from ...storage.errors import InvalidRequest, TableExists, TableNotFound
from ..errors import NamespaceExists, NamespaceNotEmpty, NamespaceNotFound
from ..nodes.context import TableContext
from ..nodes.layout import CATALOG, CATALOG_DROPPED, DROPPED, NAMESPACES, TableTree
from ..nodes.presence import this_user
from ..nodes.records import (
    DEFAULT,
    CatalogRecord,
    DroppedRecord,
    Head,
    NameRecord,
    NamespaceRecord,
    Tombstone,
    ensure_catalog,
    incarnation_of,
    is_closed,
    key_of,
    namespace_path,
    root_field,
)
from ..service.store import ANY_VERSION, Check, CoordinationStore, Create, Delete, Node, Op, Write, nodes_below, put
from .names import (
    ATTEMPTS,
    CatalogClient,
    NameState,
    TableName,
    applied_once,
    busy,
    check_namespace,
    look_at,
    look_up,
    require_free,
    require_table,
    spelled_in,
)

Named: TypeAlias = "tuple[TableName, NameRecord]"
"""A name as it is spelled now, and its record."""


# -- the root ------------------------------------------------------------------------------------------------------------


def root_of(client: CatalogClient) -> str:
    """The location below which managed tables are made; "" if none is set."""
    return CatalogRecord.of(*client.nodes(CATALOG)).root


def set_root(client: CatalogClient, root: str, *, replacing: bool) -> None:
    """Set the location below which managed tables are made. Raises InvalidRequest if another one is set, unless it is replaced."""
    for _ in range(ATTEMPTS):
        client.fresh(ensure_catalog)
        [node] = client.nodes(CATALOG)
        catalog = CatalogRecord.of(node)
        if catalog.root == root:
            return
        if catalog.root and not replacing:
            remedy = "leave the root out, or change it for all clients (Catalog.set_root)"
            raise InvalidRequest(f"the catalog's root is {catalog.root}, not {root}: {remedy}", root=catalog.root)
        if applied_once(client, [put(CATALOG, replace(catalog, root=root).encode(), node)]):
            return
    raise busy("the catalog's root")


# -- namespaces ----------------------------------------------------------------------------------------------------------


def list_namespaces(client: CatalogClient) -> list[NamespaceRecord]:
    """All namespaces, by name; `default` always exists."""
    records = [NamespaceRecord.of(node) for node in client.fresh(partial(nodes_below, parent=NAMESPACES))]
    if not any(key_of(each.name) == DEFAULT for each in records):
        records.append(NamespaceRecord())
    return sorted(records, key=lambda each: key_of(each.name))


def read_namespace(client: CatalogClient, name: str) -> NamespaceRecord:
    """One namespace. Raises InvalidName, NamespaceNotFound."""
    return _required(client, check_namespace(name))[0]


def create_namespace(client: CatalogClient, record: NamespaceRecord) -> None:
    """Make a namespace. Raises NamespaceExists, also for the slower of two clients that create it at once."""
    name = check_namespace(record.name)
    for _ in range(ATTEMPTS):
        client.fresh(ensure_catalog)
        if client.nodes(namespace_path(name)) != [None]:
            raise NamespaceExists(f"there is a namespace {name} already", namespace=name)
        if applied_once(client, [Create(namespace_path(name), replace(record, name=name).encode())]):
            return
    raise busy(f"the namespace {name}", namespace=name)


def alter_namespace(client: CatalogClient, name: str, change: Callable[[NamespaceRecord], NamespaceRecord]) -> NamespaceRecord:
    """Change a namespace's comment, properties or location; returns the new record. Raises NamespaceNotFound."""
    checked = check_namespace(name)
    for _ in range(ATTEMPTS):
        client.fresh(ensure_catalog)
        record, node = _required(client, checked)
        changed = change(record)
        if changed == record or node is None:
            return changed
        # check: namespaces-are-compared (node.version -> -1)
        if applied_once(client, [Write(node.path, changed.encode(), node.version)]):
            return changed
    raise busy(f"the namespace {checked}", namespace=checked)


def drop_namespace(client: CatalogClient, name: str) -> None:
    """Remove a namespace without tables. Raises NamespaceNotFound, NamespaceNotEmpty; InvalidRequest for `default`."""
    checked = check_namespace(name)
    if key_of(checked) == DEFAULT:
        raise InvalidRequest(f"the namespace {DEFAULT} cannot be dropped: names with one part are in it", namespace=checked)
    for _ in range(ATTEMPTS):
        _, node = _required(client, checked)
        assert node is not None
        named = list_names(client, checked, every=True)
        tables = [each for each in named if each.means_table]
        if tables:
            shown = ", ".join(str(each.spelled) for each in tables[:5]) + (", ..." if len(tables) > 5 else "")
            raise NamespaceNotEmpty(f"the namespace {checked} has tables ({shown}): drop or rename them first", namespace=checked)
        remains = [each.node for each in named if each.node is not None]
        if applied_once(client, [Delete(each.path, each.version) for each in (*remains, node)]):
            return  # else a table was named there, or another client was faster
    raise busy(f"the namespace {checked}", namespace=checked)


def _required(client: CatalogClient, name: str) -> tuple[NamespaceRecord, Node | None]:
    [node] = client.nodes(namespace_path(name))
    if node is None and key_of(name) != DEFAULT:
        raise NamespaceNotFound(f"there is no namespace {name}; create it first", namespace=name)
    return NamespaceRecord.of(node), node


# -- names ------------------------------------------------------------------------------------------------------------------


def list_names(client: CatalogClient, name: str, *, every: bool = False) -> list[NameState]:
    """The names in a namespace that mean tables, in order; with `every` also those of tables that are gone. Raises NamespaceNotFound."""
    checked = check_namespace(name)
    _required(client, checked)

    def look(session: CoordinationStore) -> list[NameState]:
        names = sorted(session.children(namespace_path(checked)) or ())
        return look_at(session, *(TableName(checked, each) for each in names))

    states = [each for each in client.fresh(look) if each.node is not None]
    return states if every else [each for each in states if each.means_table]


def register_name(
    client: CatalogClient, name: TableName, location: str, *, managed: bool = False, named_ms: int | None = None, claimed: bool = False
) -> Named:
    """Give a name to the table at this location; the same name again changes nothing.

    A name that is `claimed` is taken from a table that got it before `named_ms`. Raises NamespaceNotFound; TableExists if the name is
    taken; TableNotFound if the coordinator knows no table there; InvalidRequest if the table has another name.
    """
    tree = TableTree(location)
    for _ in range(ATTEMPTS):
        client.fresh(ensure_catalog)
        root, head, back = client.nodes(tree.root, tree.head, tree.name)
        state = None if root is None or head is None or is_closed(root) else Head.decode(head.data)
        if root is None or state is None or state.version < 0:
            raise TableNotFound(f"the coordinator knows no table at {location}: create it, or attach it", location=location)
        entry = look_up(client, name)
        if entry.record is not None and entry.means(location):
            return entry.spelled, entry.record
        since_ms = client.clock.now_ms() if named_ms is None else named_ms
        # check: the-last-name-counts (entry.record.named_ms -> -1)
        if not claimed or entry.record is None or entry.record.named_ms >= since_ms:
            require_free(entry)
        former = None if back is None else look_up(client, TableName(*back.data.decode().split("/")[-2:]))
        if former is not None and former.means(location):
            message = f"the table at {location} has the name {former.spelled} already: rename it (a table has one name)"
            raise InvalidRequest(message, location=location, name=str(former.spelled))
        record = NameRecord(name.name, location, state.table_id, managed, since_ms)
        path = name.path.encode()
        ops: list[Op] = [
            Check(tree.incarnation(incarnation_of(root)), ANY_VERSION),
            put(name.path, record.encode(), entry.node),
            put(tree.name, path, back),
        ]
        if entry.means_table and entry.back is not None and entry.back.data == path:  # that table loses the name
            ops.append(Delete(entry.back.path, entry.back.version))
        if applied_once(client, ops):
            return spelled_in(entry.namespace, name), record
    raise busy(f"the name {name}", name=str(name))


def rename_table(client: CatalogClient, old: TableName, new: TableName) -> Named:
    """Give a table another name, possibly in another namespace, or in another spelling.

    Raises TableNotFound for a name that means no table, also if another client renamed or dropped it at this moment;
    NamespaceNotFound; TableExists if the new name is taken.
    """
    for _ in range(ATTEMPTS):
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
    raise busy(f"the name {old}", name=str(old))


def remove_name(client: CatalogClient, name: TableName) -> NameRecord:
    """Take a table's name away; the table stays, at its location. Returns what the record was. Raises TableNotFound."""
    for _ in range(ATTEMPTS):
        entry = look_up(client, name)
        record, node, _ = require_table(entry)
        gone: list[Op] = [] if entry.back is None else [Delete(entry.back.path, entry.back.version)]
        if applied_once(client, [Delete(node.path, node.version), *gone]):
            return record
    raise busy(f"the name {name}", name=str(name))


# -- after the coordinator's data were lost ----------------------------------------------------------------------------------


def claim_name(client: CatalogClient, name: TableName, location: str, *, named_ms: int, managed: bool) -> bool:
    """Give a table the name that its log says it got at `named_ms`; False if another table got that name later.

    Makes the namespace if it does not exist. A table that got the name earlier loses it.
    """
    for _ in range(ATTEMPTS):
        try:
            register_name(client, name, location, managed=managed, named_ms=named_ms, claimed=True)
        except NamespaceNotFound:
            with suppress(NamespaceExists):
                create_namespace(client, NamespaceRecord(name.namespace, created_ms=client.clock.now_ms()))
        except TableExists:
            return False
        else:
            return True
    raise busy(f"the name {name}", name=str(name))


# -- tables that are dropped and brought back --------------------------------------------------------------------------------

_MARK: Final = "dropped"
"""In the data of a closed table's node: the id of the drop that can be undone."""


def close_named(context: TableContext, name: TableName) -> tuple[str, DroppedRecord] | None:
    """Close the table of this name and take the name away; returns the drop's id and record.

    None if a slot is undecided or a version unpublished, or a commit came between: settle, publish and call again. Raises TableNotFound.
    """
    client = CatalogClient.of(context)
    client.fresh(ensure_catalog)
    entry, seen = look_up(client, name), context.look()
    record, node, root = require_table(entry)
    if record.location != context.tree.location:
        raise TableNotFound(f"{name} is another table now, at {record.location}", name=str(name))
    # with the generation of slots no intent is left that nobody could decide in a closed table
    ended = [] if seen is None else seen.next_generation(context.tree)
    if not ended:
        return None
    spelled, identity = entry.spelled, uuid.uuid4().hex
    now_ms = client.clock.now_ms()
    dropped = DroppedRecord(spelled.namespace, spelled.name, record.location, record.table_id, record.managed, now_ms, this_user())
    content = {**orjson.loads(root.data), "closed": True, _MARK: identity}
    ops: list[Op] = [
        # check: a-drop-takes-in-every-commit
        *ended,
        # check: a-named-drop-closes-the-table
        Delete(entry.tree.incarnation(incarnation_of(root))),
        # check: a-named-drop-closes-the-table
        Write(root.path, orjson.dumps(content), root.version),
        Delete(node.path, node.version),
        Create(f"{CATALOG_DROPPED}/{identity}", dropped.encode()),
    ]
    return (identity, dropped) if applied_once(client, ops) else None


def reopen_dropped(client: CatalogClient, identity: str, name: TableName) -> Named:
    """Bring a dropped table back under a name. Raises TableNotFound, NamespaceNotFound; TableExists if the name is taken."""
    for _ in range(ATTEMPTS):
        [node] = client.nodes(f"{CATALOG_DROPPED}/{identity}")
        if node is None or (dropped := DroppedRecord.decode(node.data)).purging:
            raise TableNotFound(f"the table dropped as {identity} is not there any more, or its data are being deleted", name=str(name))
        tree = TableTree(dropped.location)
        entry = look_up(client, name)
        root, back = client.nodes(tree.root, tree.name)
        require_free(entry)
        if root is None or root_field(root, _MARK) != identity:
            raise TableNotFound(f"the coordinator has lost the nodes of {dropped.location}: recover them (sluice.recover)", name=str(name))
        content = {key: value for key, value in orjson.loads(root.data).items() if key not in ("closed", _MARK)}
        named_ms = max(client.clock.now_ms(), dropped.dropped_ms + 2)
        record = NameRecord(name.name, dropped.location, dropped.table_id, dropped.managed, named_ms)
        path = name.path.encode()
        ops: list[Op] = [
            Write(root.path, orjson.dumps(content), root.version),
            Create(tree.incarnation(incarnation_of(root))),
            put(name.path, record.encode(), entry.node),
            put(tree.name, path, back),
            # check: what-is-brought-back-is-not-deleted (node.version -> -1)
            Delete(node.path, node.version),
        ]
        if applied_once(client, ops):
            return spelled_in(entry.namespace, name), record
    raise busy(f"the name {name}", name=str(name))


def schedule_removal(client: CatalogClient, identity: str) -> DroppedRecord:
    """Give up a dropped table: the caller deletes its closed nodes and data, as after any drop. Raises TableNotFound."""
    path = f"{CATALOG_DROPPED}/{identity}"
    for _ in range(ATTEMPTS):
        [node] = client.nodes(path)
        if node is None:
            raise TableNotFound(f"the table dropped as {identity} is gone: another client brought it back, or deleted it")
        dropped = DroppedRecord.decode(node.data)
        if dropped.purging:
            return dropped
        tree = TableTree(dropped.location)
        root, head, tomb = client.nodes(tree.root, tree.head, tree.tombstone)
        gone = replace(dropped, purging=True)
        ops: list[Op] = [Write(path, gone.encode(), node.version)]
        if root is not None and head is not None and root_field(root, _MARK) == identity:
            client.fresh(lambda session: session.ensure_path(DROPPED))
            grave = Tombstone(Head.decode(head.data).version, client.clock.now_ms(), deleting=True).encode()
            ops += [Check(root.path, root.version), Create(tree.closed), put(tree.tombstone, grave, tomb)]
        if applied_once(client, ops):
            return gone
    raise busy(f"the dropped table {identity}")


def forget_dropped(client: CatalogClient, identity: str) -> None:
    """Forget a dropped table whose data are deleted."""
    [node] = client.nodes(f"{CATALOG_DROPPED}/{identity}")
    if node is None:
        return
    if not applied_once(client, [Delete(node.path, node.version)]) and client.nodes(node.path) != [None]:
        raise InvalidRequest(f"another client changed the dropped table {identity} at the same time: look at it again, with `dropped`")
