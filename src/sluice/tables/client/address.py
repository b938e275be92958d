"""Addresses of tables: used on executors, too, so this imports neither the log nor what reaches a coordinator."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Final

from ...storage.dataclass import dataclass
from ...storage.stores.location import normalise, open_store
from ...storage.stores.objects import ObjectStore

if TYPE_CHECKING:
    from ...coordinator.api import TableContext
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

    def context(self, limits: Limits | None = None) -> TableContext:
        """The table at its coordinator; connects and announces this client, without asking whether the table exists."""
        from ...coordinator.api import open_context

        return open_context(
            self.location, self.store(), self.coordinator, application=self.application, storage_options=self.storage_options, limits=limits
        )


_VERSION_IN_PATH: Final = re.compile(r"(?P<path>.+)@(?:[vV](?P<version>[0-9]{1,18})|(?P<time>[0-9]{17}))", re.DOTALL)


@dataclass(frozen=True, slots=True)
class VersionOfPath:
    """What `path@v3` or `path@20260131120000000` names: a `version`, or a `time` as yyyyMMddHHmmssSSS, of the table at `path`."""

    path: str
    version: int | None
    time: str | None


def version_of_path(path: str, storage_options: Mapping[str, str] | None = None) -> VersionOfPath | None:
    """The version that a path names, as in Delta Lake; None for one that names none, also if anything exists at this very path."""
    found = _VERSION_IN_PATH.fullmatch(path)
    if found is None or any(True for _ in TableAddress.of(path, None, storage_options).store().list_from("", recursive=True)):
        return None
    return VersionOfPath(found["path"], None if found["version"] is None else int(found["version"]), found["time"])


def time_of_digits(digits: str) -> str:
    """A time in SQL's words from yyyyMMddHHmmssSSS."""
    year, month, day, hour, minute, second, rest = (digits[a:b] for a, b in ((0, 4), (4, 6), (6, 8), (8, 10), (10, 12), (12, 14), (14, 17)))
    return f"{year}-{month}-{day} {hour}:{minute}:{second}.{rest}"
