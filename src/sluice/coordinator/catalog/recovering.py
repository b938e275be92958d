"""Names that come back from the tables' logs after the coordinator's data were lost.

Tables are recovered one by one, in any order, and a log may lag behind the last change of its table's name. So two tables
may claim one name: the one that was given it last gets it, whichever is recovered first.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from ...storage.errors import TableExists, Unavailable
from ..errors import NamespaceExists, NamespaceNotFound
from ..nodes.catalog_records import NameRecord, NamespaceRecord
from ..nodes.layout import TableTree
from ..nodes.records import Head
from ..service.store import ANY_VERSION, Check, Create, Delete, Op, Write
from .applied_once import applied_once
from .meaning import Found, Home, Meaning, incarnation_of, look_at
from .names import TableName
from .namespaces import create_namespace
from .naming import register

__all__ = ["claim_name"]

_ATTEMPTS: Final = 20


def claim_name(home: Home, name: TableName, location: str, *, named_ms: int, managed: bool) -> bool:
    """Give a table the name that its log says it got at `named_ms`; False if another table got that name later.

    Makes the namespace if it does not exist. A table that got the name earlier loses it.
    """
    for _ in range(_ATTEMPTS):
        try:
            register(home, name, location, managed=managed, named_ms=named_ms)
        except NamespaceNotFound:
            with suppress(NamespaceExists):
                create_namespace(home, NamespaceRecord(name.namespace, created_ms=home.clock.now_ms()))
            continue
        except TableExists:
            [found] = home.fresh(lambda session: look_at(session, name))
            if found.record is None or found.meaning is not Meaning.TABLE:
                continue
            # check: the-last-name-counts (found.record.named_ms -> -1)
            if found.record.named_ms >= named_ms:
                return False
            if _replaced(home, found, NameRecord(name.name, location, "", managed, named_ms)):
                return True
            continue
        return True
    raise Unavailable(f"other clients keep changing the name {name}: give it by Catalog.register", name=str(name))


def _replaced(home: Home, found: Found, record: NameRecord) -> bool:
    """Give the name to another table; False if something changed: look again."""
    assert found.node is not None
    tree = TableTree(record.location)
    root, head, back = home.nodes(tree.root, tree.head, tree.name)
    if root is None or head is None:
        return False
    path = found.name.path.encode()
    fresh = NameRecord(record.name, record.location, Head.decode(head.data).table_id, record.managed, record.named_ms)
    ops: list[Op] = [
        Check(tree.incarnation(incarnation_of(root)), ANY_VERSION),
        Write(found.node.path, fresh.encode(), found.node.version),
        Create(tree.name, path) if back is None else Write(tree.name, path, back.version),
    ]
    if found.back is not None and found.back.data == path:
        ops.append(Delete(found.back.path, found.back.version))
    return applied_once(home, ops)
