"""The results of `sluice.Catalog`: namespaces, names and dropped tables."""

from __future__ import annotations

from collections.abc import Mapping

from ...storage.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Namespace:
    """A namespace; `location` is where its managed tables are made, None without a root. `created_ms`: ms since 1970, 0 for `default`."""

    name: str
    location: str | None
    comment: str
    properties: Mapping[str, str]
    created_ms: int


@dataclass(frozen=True, slots=True)
class NamedTable:
    """A table and its name. `managed`: the catalog chose its location. `named_ms`: when it got this name (ms since 1970)."""

    namespace: str
    name: str
    location: str
    managed: bool
    named_ms: int

    @property
    def full_name(self) -> str:
        """The name with its namespace."""
        return f"{self.namespace}.{self.name}"


@dataclass(frozen=True, slots=True)
class DroppedTable:
    """A dropped table that can be brought back; `id` names this drop. `deleting`: its data are being deleted, so it cannot."""

    id: str
    namespace: str
    name: str
    location: str
    managed: bool
    dropped_ms: int
    by: str
    deleting: bool

    @property
    def full_name(self) -> str:
        """The name that it had, with its namespace."""
        return f"{self.namespace}.{self.name}"
