"""Addresses of tables; they travel to executors and commit processes, so this imports nothing that reaches the coordinator."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING

from ...storage.dataclass import dataclass
from ...storage.stores.location import normalise, open_store
from ...storage.stores.objects import ObjectStore

if TYPE_CHECKING:
    from ...coordinator.facade.table import CoordinatedTable
    from ...coordinator.limits import Limits


@dataclass(frozen=True, slots=True)
class TableAddress:
    """A table's location and coordinator; picklable, so that it travels to executors and commit processes."""

    location: str
    coordinator: str | None = None
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)  # may include credentials
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

    def coordinated(self, limits: Limits | None = None) -> CoordinatedTable:
        """The table at its coordinator; connects and announces this client, without asking whether the table exists."""
        from ...coordinator.facade.table import CoordinatedTable

        return CoordinatedTable.open(
            self.location,
            self.store(),
            self.coordinator,
            application=self.application,
            storage_options=self.storage_options,
            limits=limits,
        )
