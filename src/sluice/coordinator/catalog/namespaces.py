"""Namespaces, the root of managed tables, and lists of names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ...storage.errors import InvalidRequest
from ..errors import NamespaceExists, NamespaceNotEmpty, NamespaceNotFound
from ..nodes.catalog_records import DEFAULT, CatalogRecord, NamespaceRecord, ensure_catalog, key_of, namespace_path
from ..nodes.layout import CATALOG, NAMESPACES
from ..service.store import CoordinationStore, Create, Delete, Node, Write
from .names import ATTEMPTS, CatalogClient, NameState, TableName, applied_once, busy, check_namespace, look_at

# -- the root ------------------------------------------------------------------------------------------------------------


def root_of(client: CatalogClient) -> str:
    """The location below which managed tables are made; "" if none is set."""
    return client.fresh(_root)[0].root


def set_root(client: CatalogClient, root: str, *, replacing: bool) -> None:
    """Set the location below which managed tables are made. Raises InvalidRequest if another one is set, unless it is replaced."""
    for _ in range(ATTEMPTS):
        client.fresh(ensure_catalog)
        catalog, version = client.fresh(_root)
        if catalog.root == root:
            return
        if catalog.root and not replacing:
            raise InvalidRequest(
                f"the catalog's root is {catalog.root}, not {root}: leave the root out, or change it for all clients (Catalog.set_root)",
                root=catalog.root,
            )
        if applied_once(client, [Write(CATALOG, replace(catalog, root=root).encode(), version)]):
            return
    raise busy("the catalog's root")


def _root(session: CoordinationStore) -> tuple[CatalogRecord, int]:
    node = session.read(CATALOG)
    return CatalogRecord.of(node), -1 if node is None else node.version


# -- namespaces ----------------------------------------------------------------------------------------------------------


def list_namespaces(client: CatalogClient) -> list[NamespaceRecord]:
    """All namespaces, by name; `default` always exists."""

    def look(session: CoordinationStore) -> list[NamespaceRecord]:
        nodes = session.read_many([f"{NAMESPACES}/{name}" for name in session.children(NAMESPACES) or ()])
        return [NamespaceRecord.of(node) for node in nodes if node is not None]

    records = client.fresh(look)
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
        if client.fresh(lambda session: session.read(namespace_path(name))) is not None:
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
    node = client.fresh(lambda session: session.read(namespace_path(name)))
    if node is None and key_of(name) != DEFAULT:
        raise NamespaceNotFound(f"there is no namespace {name}; create it first", namespace=name)
    return NamespaceRecord.of(node), node


# -- names ---------------------------------------------------------------------------------------------------------------


def list_names(client: CatalogClient, name: str, *, every: bool = False) -> list[NameState]:
    """The names in a namespace that mean tables, in order; with `every` also those of tables that are gone.

    Raises NamespaceNotFound.
    """
    checked = check_namespace(name)
    _required(client, checked)

    def look(session: CoordinationStore) -> list[NameState]:
        names = sorted(session.children(namespace_path(checked)) or ())
        return look_at(session, *(TableName(checked, each) for each in names))

    states = [each for each in client.fresh(look) if each.node is not None]
    return states if every else [each for each in states if each.means_table]
