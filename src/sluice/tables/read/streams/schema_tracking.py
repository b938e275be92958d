"""The schema that a stream shows, stored in its own folder.

A stream shows one schema from its start to its end. By default this is the schema of the table's latest version when the stream starts.
A stream that tracks schemas goes through the table's schemas one by one: it reads up to the version that changes the schema, stores that
version, and stops. Its next start shows the stored version's schema. The object also holds the version's metadata, because a cleanup of
the log may remove the version.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from ....storage.actions import Metadata, decode_commit, encode_all
from ....storage.errors import CorruptLogFile, InvalidRequest, ObjectNotFound
from ....storage.stores.location import normalise, open_store

_KEY: Final = "sluice-schema.json"
_FORMAT: Final = 1


class SchemaTracking:
    """The object that stores a stream's version and metadata, in a folder that no other stream uses."""

    def __init__(self, location: str, storage_options: Mapping[str, str]) -> None:
        """Raises UnknownScheme for a location that is in no store of sluice."""
        self.location = normalise(location)
        self._store = open_store(self.location, storage_options)

    def shown(self) -> tuple[int, Metadata] | None:
        """The version whose schema the stream shows, with its metadata; None before the stream's first start.

        Raises InvalidRequest for an object that sluice did not write, and for one in the format of a later release.
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
        """Store the version whose schema the stream shows from its next start on."""
        self._store.put(_KEY, json.dumps({"format": _FORMAT, "version": version}).encode() + b"\n" + encode_all((metadata,)))
