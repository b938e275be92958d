"""The versions of an incremental read: (after, up_to], by number or by time."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from functools import cached_property

from ...coordinator.times import Moment, milliseconds_of
from ...storage.actions import Action, CommitInfo, Metadata
from ...storage.dataclass import dataclass
from ...storage.errors import InvalidRequest, VersionNotFound
from ...storage.intervals import iso_time
from ...storage.log.segment import list_versions
from ...storage.log.timetravel import commit_info, file_times
from ..client.open_table import ReadTable
from ..client.published_table import PublishedTable, beyond


@dataclass(frozen=True)
class VersionRange:
    """The versions after `after` up to `up_to`, read with the last one's `metadata`.

    `published`: they are read from the object store alone.
    """

    table: ReadTable
    after: int
    up_to: int
    metadata: Metadata
    published: bool

    @property
    def versions(self) -> range:
        """The versions in order."""
        return range(self.after + 1, self.up_to + 1)

    def time_of(self, version: int, actions: Iterable[Action]) -> int:
        """The time of a version with these actions, in ms since the epoch: its in-commit timestamp, or else the time of its file."""
        info = next((each for each in actions if isinstance(each, CommitInfo)), None)
        own = None if info is None else info.in_commit_timestamp
        return self._file_times[version] if own is None else own

    @cached_property
    def _file_times(self) -> dict[int, int]:
        return file_times(self.table.store)


def range_by_version(table: ReadTable, after: Moment, up_to: Moment | None, consistency: str | None) -> VersionRange:
    """Versions after < v <= up_to; None is the latest one, -1 is before the first. Raises InvalidRequest, VersionNotFound."""
    after = _version("after", after)
    up_to = None if up_to is None else _version("up_to", up_to)
    if after < -1:
        raise InvalidRequest(f"after={after} is not a version: give the last version you have, -1 for none", after=after)
    if up_to is not None and after > up_to:
        raise InvalidRequest(
            f"after={after} is beyond up_to={up_to}: changes are read forwards, give the earlier version as after", after=after
        )
    last = table.read(up_to, consistency)
    if after > last.version:
        raise beyond(table.location, after, last.version)
    return VersionRange(table, after, last.version, last.metadata, _is_published(table, consistency))


def range_by_time(table: ReadTable, after: Moment, up_to: Moment | None, consistency: str | None) -> VersionRange:
    """Versions whose time t is after < t <= up_to; None is up to the latest version.

    Raises InvalidRequest, and VersionNotFound if versions of that time may have been cleaned up.
    """
    after = milliseconds_of(after, name="after")
    up_to = None if up_to is None else milliseconds_of(up_to, name="up_to")
    if up_to is not None and after > up_to:
        raise InvalidRequest(f"after={after} is later than up_to={up_to}: changes are read forwards", after=after)
    latest = table.read(None, consistency)
    published = _is_published(table, consistency)
    earliest = min(list_versions(table.store).commits, default=latest.version + 1)
    versions = range(earliest, latest.version + 1)
    time_of = _times(table, published=published)
    first = earliest - 1 + bisect_right(versions, after, key=time_of)
    if first < earliest and earliest > 0:
        there = f"the log has the commits of versions {earliest} to {latest.version}" if versions else "the log has no commit"
        since = f", the first of {iso_time(time_of(earliest))}" if versions else ""
        raise VersionNotFound(
            f"the changes of {table.location} after {iso_time(after)} are not all available any more: {there}{since}",
            location=table.location,
            timestamp_ms=after,
            earliest=earliest if versions else None,
            latest=latest.version,
        )
    last = latest.version if up_to is None else earliest - 1 + bisect_right(versions, up_to, key=time_of)
    if last < 0:  # everything is before the first version
        return VersionRange(table, latest.version, latest.version, latest.metadata, published)
    metadata = latest.metadata if last == latest.version else table.read(last, consistency).metadata
    return VersionRange(table, first, last, metadata, published)


def _version(name: str, value: object) -> int:
    if type(value) is not int:
        raise InvalidRequest(f"{name}={value!r} is not a version: give a whole number")
    return value


def _is_published(table: ReadTable, consistency: str | None) -> bool:
    return isinstance(table, PublishedTable) or (table.consistency if consistency is None else consistency) == "published"


def _times(table: ReadTable, *, published: bool) -> Callable[[int], int]:
    """The time of a version: its in-commit timestamp, or else the time of its file."""
    of_files: dict[int, int] = {}

    def time_of(version: int) -> int:
        if isinstance(table, PublishedTable) or published:
            info = commit_info(table.store, version)
            own = None if info is None else info.in_commit_timestamp
        else:
            own = table.log.info(version).get("inCommitTimestamp")
        if own is not None:
            return own
        if not of_files:
            of_files.update(file_times(table.store))
        return of_files[version]

    return time_of
