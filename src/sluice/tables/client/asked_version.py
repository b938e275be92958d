"""Which version a caller asks for: by its number, or by a time."""

from __future__ import annotations

from ...storage.errors import InvalidRequest
from ...storage.log.timetravel import version_at
from ...storage.stores.objects import ObjectStore

__all__ = ["asked_version"]


def asked_version(store: ObjectStore, version: int | None, timestamp: int | None) -> int | None:
    """The version of that number, or the one that was current at `timestamp` (ms since the epoch, UTC); None if neither is given.

    Raises InvalidRequest if both are given, or for a time that is no whole number; VersionNotFound for a time outside the log.
    """
    if version is not None and timestamp is not None:
        raise InvalidRequest(f"version={version} and timestamp={timestamp} were given; give one of them")
    if timestamp is None:
        return version
    if type(timestamp) is not int:
        raise InvalidRequest(
            f"timestamp {timestamp!r} is not a time: give milliseconds since the epoch, such as int(when.timestamp() * 1000)",
            timestamp=timestamp,
        )
    return version_at(store, timestamp)
