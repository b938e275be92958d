"""A table as its log shows it: read by path alone, without a coordinator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ...storage.errors import InvalidRequest, VersionNotFound
from ...storage.log.snapshot import Snapshot
from ...storage.stores.objects import ObjectStore
from .address import TableAddress

if TYPE_CHECKING:
    from ...coordinator.api import Timeout


class PublishedTable:
    """Any Delta table, to read, without a coordinator: what its log shows. Thread-safe."""

    consistency: Final = "published"
    clock: Final = None
    """Calls without a coordinator go by the system's clock."""

    def __init__(self, address: TableAddress, store: ObjectStore, shown: Snapshot | None = None) -> None:
        """`shown` is a version that was read before."""
        self.address = address
        self.location = address.location
        self.store = store
        self._shown = shown

    def read(self, version: int | None = None, consistency: str | None = None, *, timeout_s: Timeout | None = None) -> Snapshot:
        """The snapshot of a version, or the latest one. Raises InvalidRequest for every level but "published"."""
        if consistency not in (None, "published"):
            raise InvalidRequest(
                f"{self.location} was opened with consistency='published', so consistency={consistency!r} cannot be given: open it "
                "without that",
                consistency=consistency,
            )
        return self.at(version)

    def current(self) -> Snapshot:
        """The newest snapshot in this process, read from the log if there is none yet."""
        return self._shown or self.latest()

    def latest(self) -> Snapshot:
        """The newest published version."""
        self._shown = Snapshot.load(self.store) if self._shown is None else self._shown.refresh(self.store)
        return self._shown

    def at(self, version: int | None) -> Snapshot:
        """The snapshot of a version (None: the latest). Raises VersionNotFound if it does not exist (any more)."""
        return self.latest() if version is None else Snapshot.load(self.store, version=version)


def beyond(location: str, version: int, latest: int) -> VersionNotFound:
    """The error for a version after the latest one."""
    return VersionNotFound(
        f"version {version} of {location} is not available: the latest version is {latest}",
        location=location,
        version=version,
        latest=latest,
    )
