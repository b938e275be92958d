"""Records of names: what the nodes below `/catalog` hold, and where they are.

A name is looked up without regard to case, so nodes are named in lower case; the record keeps the spelling. A table's own
node `name` leads back from the table to its name: a table has one name at most.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from dataclasses import field
from typing import ClassVar, Final

from ..formats import CATALOG_FORMAT, Record, node_data
from ..service.store import CoordinationStore, Node
from .layout import CATALOG_CHANGES, CATALOG_DROPPED, NAMESPACES

DEFAULT: Final = "default"
"""The namespace of names with one part; it always exists."""


def key_of(name: str) -> str:
    """What two spellings of one name have in common: a node's name."""
    return unicodedata.normalize("NFC", name.lower())


def namespace_path(namespace: str) -> str:
    """The node of a namespace."""
    return f"{NAMESPACES}/{key_of(namespace)}"


def name_path(namespace: str, name: str) -> str:
    """The node of a table's name."""
    return f"{namespace_path(namespace)}/{key_of(name)}"


def ensure_catalog(session: CoordinationStore) -> None:
    """Make the nodes that all names share, with the namespace `default`."""
    for path in (namespace_path(DEFAULT), CATALOG_DROPPED, CATALOG_CHANGES):
        session.ensure_path(path)


@node_data
class CatalogRecord(Record):
    """The data of `/catalog`: the normalised location below which managed tables are made; "" if none is set."""

    KIND: ClassVar = "catalog"
    FORMAT: ClassVar = CATALOG_FORMAT

    root: str = ""
    format: int = CATALOG_FORMAT

    @staticmethod
    def of(node: Node | None) -> CatalogRecord:
        """The record of a node, which is made without data."""
        return CatalogRecord() if node is None or not node.data else CatalogRecord.decode(node.data)


@node_data
class NamespaceRecord(Record):
    """A namespace as it was spelled; `location` is where its managed tables are made, "" for the default below the root."""

    KIND: ClassVar = "namespace"
    FORMAT: ClassVar = CATALOG_FORMAT

    name: str = DEFAULT
    location: str = ""
    comment: str = ""
    properties: Mapping[str, str] = field(default_factory=dict)
    created_ms: int = 0
    format: int = CATALOG_FORMAT

    @staticmethod
    def of(node: Node | None) -> NamespaceRecord:
        """Read the record of a node. The node of the namespace `default` has no data, and gives an empty record."""
        return NamespaceRecord() if node is None or not node.data else NamespaceRecord.decode(node.data)


@node_data
class NameRecord(Record):
    """A table's name as it was spelled, without its namespace.

    It counts while the table at `location` is the one of `table_id` (Delta's id). `managed`: the catalog chose the location.
    `creator` is empty, and was not in earlier versions.
    """

    KIND: ClassVar = "name"
    FORMAT: ClassVar = CATALOG_FORMAT

    name: str
    location: str
    table_id: str
    managed: bool = False
    named_ms: int = 0
    creator: str = ""
    format: int = CATALOG_FORMAT


@node_data
class DroppedRecord(Record):
    """A table that was dropped by its name: the name it had, when and by whom. `purging`: its data are being deleted."""

    KIND: ClassVar = "dropped table"
    FORMAT: ClassVar = CATALOG_FORMAT

    namespace: str
    name: str
    location: str
    table_id: str
    managed: bool
    dropped_ms: int
    by: str = ""
    purging: bool = False
    format: int = CATALOG_FORMAT
