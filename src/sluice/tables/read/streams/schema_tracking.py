"""Which schema a stream shows, kept beside it: that of one version, until everything before the next other one is read.

A stream shows one schema; by default that of the version that is current when its query is made. One that tracks schemas shows those of
its own past instead: it stops where the schema changes, notes that version, and shows its schema when the query is made again. The table's
log has all schemas, so one small object per stream suffices. It has the version's metadata, too, since a cleanup may remove the version.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from ....storage.actions import Metadata, decode_commit, encode_all
from ....storage.errors import CorruptLogFile, InvalidRequest, ObjectNotFound
from ....storage.stores.location import normalise, open_store

__all__ = ["SchemaTracking"]

_KEY: Final = "sluice-schema.json"
_FORMAT: Final = 1


class SchemaTracking:
    """The object in a folder of one stream's own."""

    def __init__(self, location: str, storage_options: Mapping[str, str]) -> None:
        """Raises UnknownScheme for a location that is in no store of sluice."""
        self.location = normalise(location)
        self._store = open_store(self.location, storage_options)

    def shown(self) -> tuple[int, Metadata] | None:
        """The version whose schema the stream shows, with its metadata; None before its first start.

        Raises InvalidRequest for what is none, or of a later release.
        """
        try:
            text = self._store.get(_KEY)
        except ObjectNotFound:
            return None
        head, _, line = text.partition(b"\n")
        try:
            told = json.loads(head)
            number, version = told["format"], told["version"]
            [metadata] = decode_commit(line, name=_KEY) if number == _FORMAT else [None]
        except (ValueError, KeyError, TypeError, CorruptLogFile) as cause:
            raise InvalidRequest(f"{self.location} has a file {_KEY} that sluice did not write: {cause}", location=self.location) from cause
        if not isinstance(metadata, Metadata) or type(version) is not int:
            raise InvalidRequest(
                f"{self.location} has a file {_KEY} of format {number!r}, and this release reads format {_FORMAT}: use the release that "
                "wrote it, or start with a new checkpoint and another schemaTrackingLocation",
                location=self.location,
            )
        return version, metadata

    def show(self, version: int, metadata: Metadata) -> None:
        """From now on show the schema of this version."""
        self._store.put(_KEY, json.dumps({"format": _FORMAT, "version": version}).encode() + b"\n" + encode_all((metadata,)))
