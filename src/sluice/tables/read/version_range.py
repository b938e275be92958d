"""The versions of an incremental read: (after, up_to], by number or by time; and their commits, read forwards."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import cached_property, partial
from typing import Final

from ...coordinator.times import Moment, milliseconds_of
from ...storage.actions import Action, CommitInfo, Metadata, actions_of
from ...storage.dataclass import dataclass
from ...storage.errors import InvalidRequest, LogGap, VersionNotFound
from ...storage.intervals import iso_time
from ...storage.log.paths import commit_path
from ...storage.log.segment import list_versions
from ...storage.log.timetravel import commit_info, file_times, read_commit
from ..client.open_table import OpenTable, ReadTable
from ..client.published_table import PublishedTable, beyond

_COMMITS: Final = 16
"""Commits fetched at once, and so held in memory."""
_THREADS: Final = 8


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

    def time_of(self, version: int, info: CommitInfo | None) -> int:
        """The time of a version with this commitInfo, in ms since the epoch: its in-commit timestamp, or else the time of its file."""
        own = None if info is None else info.in_commit_timestamp
        return self._file_times[version] if own is None else own

    def time_read(self, version: int) -> int:
        """The same, of a version whose actions are not at hand."""
        if self.published or isinstance(self.table, PublishedTable):
            return self.time_of(version, commit_info(self.table.store, version))
        return self.time_of(version, CommitInfo(self.table.log.info(version)))

    @cached_property
    def _file_times(self) -> dict[int, int]:
        return file_times(self.table.store)


class CommitsAhead:
    """The commits of a table, read forwards: some are fetched at once, and kept until the next ones are."""

    def __init__(self, table: ReadTable, *, published: bool) -> None:
        """`published`: from the object store alone."""
        self._table, self._published = table, published
        self._fetched: dict[int, Iterable[Action]] = {}

    def actions(self, version: int, latest: int) -> Iterable[Action]:
        """A version's actions; some of the versions after it, up to `latest`, are fetched with it.

        Raises VersionNotFound, which says what exists.
        """
        if version not in self._fetched:
            self._fetched = self._fetch(range(version, min(version + _COMMITS, latest + 1)))
        return self._fetched[version]

    def _fetch(self, versions: range) -> dict[int, Iterable[Action]]:
        if isinstance(self._table, OpenTable) and not self._published:
            with suppress(LogGap):  # then only the log is read, which says what exists instead
                return dict(self._table.log.commits(versions))
        with ThreadPoolExecutor(_THREADS, thread_name_prefix="sluice-commits") as pool:
            contents = list(pool.map(partial(read_commit, self._table.store), versions))
        return {v: actions_of(content, name=commit_path(v)) for v, content in zip(versions, contents, strict=True)}


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
    whole = VersionRange(table, -1, latest.version, latest.metadata, _is_published(table, consistency))
    earliest = min(list_versions(table.store).commits, default=latest.version + 1)
    versions = range(earliest, latest.version + 1)
    first = earliest - 1 + bisect_right(versions, after, key=whole.time_read)
    if first < earliest and earliest > 0:
        there = f"the log has the commits of versions {earliest} to {latest.version}" if versions else "the log has no commit"
        since = f", the first of {iso_time(whole.time_read(earliest))}" if versions else ""
        raise VersionNotFound(
            f"the changes of {table.location} after {iso_time(after)} are not all available any more: {there}{since}",
            location=table.location,
            timestamp_ms=after,
            earliest=earliest if versions else None,
            latest=latest.version,
        )
    last = latest.version if up_to is None else earliest - 1 + bisect_right(versions, up_to, key=whole.time_read)
    if last < 0:  # everything is before the first version
        return replace(whole, after=latest.version)
    metadata = latest.metadata if last == latest.version else table.read(last, consistency).metadata
    return replace(whole, after=first, up_to=last, metadata=metadata)


def _version(name: str, value: object) -> int:
    if type(value) is not int:
        raise InvalidRequest(f"{name}={value!r} is not a version: give a whole number")
    return value


def _is_published(table: ReadTable, consistency: str | None) -> bool:
    return isinstance(table, PublishedTable) or (table.consistency if consistency is None else consistency) == "published"
