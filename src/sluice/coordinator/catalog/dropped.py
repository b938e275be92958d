"""Tables that were dropped by their names, and can be brought back until their data are deleted.

A drop is one multi: it closes the table to every client, as the removal of its nodes does, takes its name away, and records
what is needed to undo it. The table's other nodes stay as they are. To bring it back is one multi, too. When its data are to
be deleted, the closed nodes are handed to the ordinary removal.
"""

from __future__ import annotations

import getpass
import socket
import uuid
from dataclasses import replace
from typing import Final

import orjson

from ...storage.errors import InvalidRequest, TableDropped, TableNotFound, Unavailable
from ..nodes.catalog_records import DroppedRecord, NameRecord, ensure_catalog
from ..nodes.context import TableContext
from ..nodes.layout import CATALOG_DROPPED, DROPPED, TableTree
from ..nodes.records import Head, Published, incarnation_of, root_field
from ..nodes.removal import Tombstone
from ..service.store import Check, CoordinationStore, Create, Delete, Node, Op, Write, put
from .meaning import CatalogClient, NameState, applied_once, look_at, look_up, require_free, require_table, spelled_in
from .names import TableName
from .naming import Named

_ATTEMPTS: Final = 20
_MARK: Final = "dropped"
"""In the data of a closed table's node: the id of the drop that can be undone."""


def find_name(client: CatalogClient, name: TableName) -> NameState:
    """The table or view of a name, with its record. Raises NamespaceNotFound, TableNotFound; TableDropped if it can be brought back."""
    entry = look_up(client, name)
    try:
        require_table(entry)
    except TableNotFound:
        require_not_dropped(client, name)
        raise
    return entry


def close_named(context: TableContext, name: TableName) -> tuple[str, DroppedRecord] | None:
    """Close the table of this name and take the name away; returns the drop's id and record.

    None if versions are not published yet, or a commit came between: publish and call again. Raises TableNotFound.
    """
    client = CatalogClient.of(context)
    client.fresh(ensure_catalog)
    [entry], published = client.fresh(lambda session: (look_at(session, name), session.read(context.tree.published)))
    record, node, root = require_table(entry)
    if record.location != context.tree.location:
        raise TableNotFound(f"{name} is another table now, at {record.location}", name=str(name))
    if entry.head is None or published is None or Head.decode(entry.head.data).version != Published.decode(published.data).version:
        return None
    spelled, identity = entry.spelled, uuid.uuid4().hex
    dropped = DroppedRecord(
        spelled.namespace,
        spelled.name,
        record.location,
        record.table_id,
        record.managed,
        client.clock.now_ms(),
        f"{_user()}@{socket.gethostname()}",
    )
    content = {**orjson.loads(root.data), "closed": True, _MARK: identity}
    ops: list[Op] = [
        # check: a-drop-takes-in-every-commit
        Check(entry.head.path, entry.head.version),
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
    for _ in range(_ATTEMPTS):
        node = client.fresh(lambda session: session.read(f"{CATALOG_DROPPED}/{identity}"))
        dropped = _record(node)
        if node is None or dropped is None or dropped.purging:
            raise TableNotFound(f"the table dropped as {identity} is not there any more, or its data are being deleted", name=str(name))
        tree = TableTree(dropped.location)
        entry = look_up(client, name)
        root, back = client.nodes(tree.root, tree.name)
        require_free(entry)
        if root is None or root_field(root, _MARK) != identity:
            raise TableNotFound(f"the coordinator has lost the nodes of {dropped.location}: recover them (sluice.recover)", name=str(name))
        content = {key: value for key, value in orjson.loads(root.data).items() if key not in ("closed", _MARK)}
        record = NameRecord(
            name.name, dropped.location, dropped.table_id, dropped.managed, max(client.clock.now_ms(), dropped.dropped_ms + 2)
        )
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
    raise Unavailable(f"other clients keep changing the name {name}: try again", name=str(name))


def dropped_tables(client: CatalogClient) -> list[tuple[str, DroppedRecord]]:
    """The dropped tables that still have data, with the ids of their drops, latest first."""

    def look(session: CoordinationStore) -> list[tuple[str, DroppedRecord | None]]:
        names = session.children(CATALOG_DROPPED) or []
        return list(zip(names, map(_record, session.read_many([f"{CATALOG_DROPPED}/{name}" for name in names])), strict=True))

    records = [(name, record) for name, record in client.fresh(look) if record is not None]
    return sorted(records, key=lambda each: (-each[1].dropped_ms, each[0]))


def dropped_as(client: CatalogClient, name: TableName) -> list[tuple[str, DroppedRecord]]:
    """The tables dropped under this name whose data are not being deleted, latest first."""
    return [
        (each, record)
        for each, record in dropped_tables(client)
        if TableName(record.namespace, record.name).key == name.key and not record.purging
    ]


def require_not_dropped(client: CatalogClient, name: TableName) -> None:
    """Raise TableDropped if a table of this name was dropped and can be brought back."""
    for _, record in dropped_as(client, name):
        raise TableDropped(
            f"the table {name} was dropped by {record.by}: bring it back with Catalog.undrop, in a shell sluice tables undrop {name}",
            name=str(name),
            location=record.location,
        )


def schedule_removal(client: CatalogClient, identity: str) -> DroppedRecord:
    """Give up a dropped table: the caller deletes its closed nodes and data, as after any drop. Raises TableNotFound."""
    path = f"{CATALOG_DROPPED}/{identity}"
    for _ in range(_ATTEMPTS):
        node = client.fresh(lambda session: session.read(path))
        dropped = _record(node)
        if node is None or dropped is None:
            raise TableNotFound(f"the table dropped as {identity} is gone: another client brought it back, or deleted it")
        if dropped.purging:
            return dropped
        tree = TableTree(dropped.location)
        root, head, tomb = client.nodes(tree.root, tree.head, tree.tombstone)
        gone = replace(dropped, purging=True)
        ops: list[Op] = [Write(path, gone.encode(), node.version)]
        if root is not None and head is not None and root_field(root, _MARK) == identity:
            client.fresh(lambda session: session.ensure_path(DROPPED))
            grave = Tombstone(Head.decode(head.data).version, client.clock.now_ms(), deleting=True).encode()
            ops += [
                Check(root.path, root.version),
                Create(tree.closed),
                put(tree.tombstone, grave, tomb),
            ]
        if applied_once(client, ops):
            return gone
    raise Unavailable(f"other clients keep changing the dropped table {identity}: try again")


def forget_dropped(client: CatalogClient, identity: str) -> None:
    """Forget a dropped table whose data are deleted."""
    node = client.fresh(lambda session: session.read(f"{CATALOG_DROPPED}/{identity}"))
    if node is None:
        return
    if not applied_once(client, [Delete(node.path, node.version)]) and client.fresh(lambda session: session.read(node.path)) is not None:
        raise InvalidRequest(f"another client changed the dropped table {identity} at the same time: look at it again, with `dropped`")


def _record(node: Node | None) -> DroppedRecord | None:
    return None if node is None else DroppedRecord.decode(node.data)


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "somebody"
