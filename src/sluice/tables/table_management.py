"""The managing half of `sluice.Table`: what replaces, copies and describes a table as a whole."""

from __future__ import annotations

from ..coordinator.facade.values import Commit, Timeout
from ..storage.errors import InvalidRequest
from .client.asked_version import asked_version
from .manage.restoring import restore
from .table_writes import TableWrites

__all__ = ["TableManagement"]


class TableManagement(TableWrites):
    """The operations of `sluice.Table` on the table as a whole."""

    def restore(
        self,
        version: int | None = None,
        timestamp: int | None = None,
        *,
        ignore_missing_files: bool = False,
        timeout_s: Timeout | None = None,
    ) -> Commit | None:
        """Make the table what it was at a version, or at a time (ms since the epoch, UTC): files, schema, partitioning and properties.

        The versions since then stay in the history. Applications' numbers, keys, and users' metadata domains stay as they are, and the
        protocol is never lowered. Returns None, and makes no version, if nothing differs. An exclusive lease keeps others' commits waiting
        meanwhile. Raises MissingObject, naming data files that are gone, before anything is written; with `ignore_missing_files` the table
        is restored without them. Raises VersionNotFound, UnsupportedFeature for an append-only table, LeaseHeld.
        """
        found = asked_version(self._access.store, version, timestamp)
        if found is None:
            raise InvalidRequest("restore() needs to know what to restore: give a version or a timestamp")
        return self._note(
            restore(
                self._access,
                found,
                timestamp=timestamp,
                ignore_missing_files=ignore_missing_files,
                ack=self._ack,
                timeout_s=self._limit(timeout_s),
            )
        )
