"""Where a table is: what travels to executors and commit processes, so it imports what reaches the coordinator when that is asked for."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING

from ...storage.dataclass import dataclass
from ...storage.stores.location import normalise, open_store
from ...storage.stores.objects import ObjectStore

if TYPE_CHECKING:
    from ...coordinator.limits import Limits
    from ...coordinator.nodes.context import TableContext

__all__ = ["TableAddress"]


@dataclass(frozen=True, slots=True)
class TableAddress:
    """Where a table is and who coordinates it; picklable, so that it travels to executors and commit processes."""

    location: str
    coordinator: str | None = None
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)  # there may be credentials among them
    application: str | None = None

    @staticmethod
    def of(
        location: str | os.PathLike[str],
        coordinator: str | None = None,
        storage_options: Mapping[str, str] | None = None,
        application: str | None = None,
    ) -> TableAddress:
        """The address, with the location in its normal form. Raises UnknownScheme."""
        return TableAddress(normalise(location), coordinator, dict(storage_options or {}), application)

    def store(self) -> ObjectStore:
        """The object store below the location."""
        return open_store(self.location, self.storage_options)

    def context(self, limits: Limits | None = None) -> TableContext:
        """What the commit path works with; connects to the coordinator and announces this client."""
        from .processes import context_of

        return context_of(self, limits)
