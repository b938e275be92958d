"""The versions of a table, to read forwards: those that are published, a range of them, their commits, and the files with their changes.

The files that hold one version's changes have an order, that of actions in the version's commit file, which never changes. So the number
of files read is a position within the version: it means the same for every filter, every choice of columns, every size of pieces and
every release.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import field, replace
from functools import partial
from itertools import islice
from typing import Any, Final, TypeAlias

from ...coordinator.api import Clock, Deadline, SystemClock, TableContext, VersionWatch
from ...coordinator.errors import TableMoved
from ...coordinator.rules.intent import Kind
from ...coordinator.rules.winner import winner_of
from ...storage.actions import Action, AddCDCFile, AddFile, CommitInfo, Metadata, Protocol, RemoveFile, actions_of
from ...storage.arguments import checked
from ...storage.caches import LazyProperty, at_once
from ...storage.dataclass import dataclass
from ...storage.errors import InvalidRequest, LogGap, VersionNotFound
from ...storage.log.paths import commit_path
from ...storage.log.segment import latest_version, list_versions
from ...storage.log.timetravel import commit_info, file_times, read_commit
from ...storage.stores.objects import ObjectStore
from ...storage.times import Moment, milliseconds_of, text_of
from ..client.open_table import OpenTable, ReadTable
from ..client.published_table import PublishedTable, beyond

_SHORTEST_PAUSE_S: Final = 0.05
_COMMITS: Final = 16
"""Commits fetched at once, and so held in memory."""
_THREADS: Final = 8

ALL: Final = range(1 << 62)
"""All files of a version."""
# The names of Delta's operations that change rows.
_DELETE: Final = "DELETE"
_ROW_CHANGES: Final = frozenset({_DELETE, "UPDATE", "MERGE"})

ChangedFile: TypeAlias = "AddCDCFile | RemoveFile | AddFile"


# -- published versions --------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class PolledLog:
    """The published versions in a table's log, listed less and less often while nothing is new. One thread asks; any may `close`."""

    store: ObjectStore
    longest_pause_s: float
    clock: Clock
    _end: threading.Event = field(default_factory=threading.Event)
    _latest: int = -1
    _pause_s: float = 0.0
    _looked_s: float | None = None

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._end.is_set()

    def close(self) -> None:
        """End the waiting for good."""
        self._end.set()

    def latest(self) -> int:
        """The last published version as far as is known now; -1 before the first."""
        if self._looked_s is None or self.clock.monotonic_s() - self._looked_s >= self._pause_s:
            self._look()
        return self._latest

    def wait(self, after: int, deadline: Deadline | None = None) -> int:
        """The last published version once it is higher than `after`; `after` when closed, or when the deadline passes."""
        while not self.closed:
            self._look()
            if self._latest > after:
                return self._latest
            if deadline is not None and deadline.over:
                break
            self._end.wait(self._pause_s if deadline is None else min(self._pause_s, deadline.left_s))
        return after

    def _look(self) -> None:
        if self._latest < 0:
            latest = latest_version(self.store)
        else:
            latest = max(list_versions(self.store, self._latest).commits, default=self._latest)
        self._looked_s = self.clock.monotonic_s()
        if latest is not None and latest > self._latest:
            self._latest, self._pause_s = latest, min(_SHORTEST_PAUSE_S, self.longest_pause_s)
        else:
            self._pause_s = min(max(2 * self._pause_s, _SHORTEST_PAUSE_S), self.longest_pause_s)


PublishedVersions: TypeAlias = VersionWatch | PolledLog


def published_versions(table: ReadTable, longest_pause_s: float, clock: Clock | None = None) -> PublishedVersions:
    """By watches, which cost nothing as long as nothing is committed; for a table without a coordinator by looks at the store.

    The pauses between two looks grow while nothing is new, up to `longest_pause_s`.
    """
    if isinstance(table, PublishedTable):
        return PolledLog(table.store, longest_pause_s, clock or SystemClock())
    return VersionWatch(*_watched(table))


def _watched(table: OpenTable) -> tuple[TableContext, Callable[[], int], Callable[[TableMoved], Any]]:
    """What is watched of a table; and of the same table, where it moved."""
    return table.context, partial(table.publish, up_to_date=True), lambda moved: _watched(table.follow(moved))


# -- a range of versions, and their commits ------------------------------------------------------------------------------


@dataclass(frozen=True)
class VersionRange:
    """The versions after `after` up to `up_to`, with the last one's `metadata`; if `published`, read from the object store alone."""

    table: ReadTable
    after: int
    up_to: int
    metadata: Metadata
    published: bool = False

    def time_of(self, version: int, info: CommitInfo | None) -> int:
        """The time of a version with this commitInfo, in ms since the epoch: its in-commit timestamp, or else the time of its file."""
        own = None if info is None else info.in_commit_timestamp
        return self._file_times[version] if own is None else own

    def time_read(self, version: int) -> int:
        """The same, of a version whose actions are not at hand."""
        if self.published or isinstance(self.table, PublishedTable):
            return self.time_of(version, commit_info(self.table.store, version))
        return self.time_of(version, CommitInfo(self.table.log.info(version)))

    @LazyProperty
    def _file_times(self) -> dict[int, int]:
        return file_times(list_versions(self.table.store))


@dataclass(slots=True)
class CommitsAhead:
    """The commits of a table, read forwards: some are fetched at once, and kept until the next ones are."""

    table: ReadTable
    published: bool = False
    """Whether they come from the object store alone, as those of a table without a coordinator do."""
    _fetched: dict[int, Iterable[Action]] = field(default_factory=dict)

    def actions(self, version: int, latest: int) -> Iterable[Action]:
        """A version's actions; some after it, up to `latest`, are fetched with it. Raises VersionNotFound, which says what exists."""
        if version in self._fetched:
            return self._fetched[version]
        self._fetched, versions = {}, range(version, min(version + _COMMITS, latest + 1))
        if isinstance(self.table, OpenTable) and not self.published:
            with suppress(LogGap):  # then only the log is read, which says what exists instead
                self._fetched = dict(self.table.log.commits(versions))
        if not self._fetched:
            contents = at_once(partial(read_commit, self.table.store), versions, _THREADS, "sluice-commits")
            self._fetched = {v: actions_of(content, name=commit_path(v)) for v, content in zip(versions, contents, strict=True)}
        return self._fetched[version]


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
    return VersionRange(table, after, last.version, last.metadata, (consistency or table.consistency) == "published")


def range_by_time(table: ReadTable, after: Moment, up_to: Moment | None, consistency: str | None) -> VersionRange:
    """Versions whose time t is after < t <= up_to; None is up to the latest version.

    Raises InvalidRequest, and VersionNotFound if versions of that time may have been cleaned up.
    """
    after = milliseconds_of(after, name="after")
    up_to = None if up_to is None else milliseconds_of(up_to, name="up_to")
    if up_to is not None and after > up_to:
        raise InvalidRequest(f"after={after} is later than up_to={up_to}: changes are read forwards", after=after)
    latest = table.read(None, consistency)
    whole = VersionRange(table, -1, latest.version, latest.metadata, (consistency or table.consistency) == "published")
    earliest = min(list_versions(table.store).commits, default=latest.version + 1)
    versions = range(earliest, latest.version + 1)
    first = earliest - 1 + bisect_right(versions, after, key=whole.time_read)
    if first < earliest and earliest > 0:
        there = f"the log has the commits of versions {earliest} to {latest.version}" if versions else "the log has no commit"
        since = f", the first of {text_of(whole.time_read(earliest))}" if versions else ""
        raise VersionNotFound(
            f"the changes of {table.location} after {text_of(after)} are not all available any more: {there}{since}",
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


# -- the files with one version's changes --------------------------------------------------------------------------------


@checked
@dataclass(frozen=True, slots=True, order=True)
class ChangePlace:
    """A place in a table's changes: after those of `version`, and of the first `files` of the files in which those of the next one lie."""

    version: int
    files: int = 0


@dataclass(slots=True)
class VersionContents:
    """What a version has, by kind of action; of files only those whose rows changed."""

    recorded: int = 0
    """Change data files."""
    removed: int = 0
    """Files that it removed."""
    added: int = 0
    """Files that it added."""
    info: CommitInfo | None = None
    """Its commitInfo."""
    metadata: Metadata | None = None
    """The metadata that it set."""
    protocol: Protocol | None = None
    """The protocol that it set."""


@dataclass(frozen=True)
class ChangedFiles:
    """A version's change data files; if it has none, the files it removed, then the files it added. Iterates over those numbered in `part`.

    Each question iterates over the actions again, because a version may have too many files to keep them in memory.
    """

    version: int
    actions: Iterable[Action]
    part: range = ALL

    @LazyProperty
    def contents(self) -> VersionContents:
        """What the version has, by one pass."""
        contents = VersionContents()
        for each in self.actions:
            match each:
                case AddFile():
                    contents.added += each.data_change
                case RemoveFile():
                    contents.removed += each.data_change
                case AddCDCFile():
                    contents.recorded += 1
                case CommitInfo():
                    contents.info = each
                case Metadata():
                    contents.metadata = each
                case Protocol():
                    contents.protocol = each
                case _:
                    pass
        return contents

    @LazyProperty
    def both(self) -> frozenset[str]:
        """The paths that the version removes and adds again. Only the paths of the rarer kind are kept in memory."""
        has = self.contents
        if has.recorded or not has.added or not has.removed:
            return frozenset()
        fewer, other = (AddFile, RemoveFile) if has.added <= has.removed else (RemoveFile, AddFile)
        paths = {each.path for each in self.actions if isinstance(each, fewer) and each.data_change}
        return frozenset(each.path for each in self.actions if isinstance(each, other) and each.data_change and each.path in paths)

    @LazyProperty
    def copies(self) -> bool:
        """Whether it deleted or updated rows by new files, which may have rows that were only copied: it is read as a whole."""
        has = self.contents
        if has.recorded or len(self.both) >= min(has.added, has.removed):
            return False
        commit = winner_of(self.version, self.actions)
        return commit.operation in _ROW_CHANGES if commit.kind is None else commit.kind is Kind.CHANGE

    @LazyProperty
    def divides(self) -> bool:
        """Whether its first files may be read now and the others later: no row's new values come before its old ones.

        Removed files come before added ones. Change data files have both values in any order: only those of a DELETE divide.
        """
        return self.contents.info is not None and self.contents.info.operation == _DELETE if self.contents.recorded else not self.copies

    def __iter__(self) -> Iterator[ChangedFile]:
        kinds = (AddCDCFile,) if self.contents.recorded else (RemoveFile, AddFile)
        files = (each for kind in kinds for each in self.actions if isinstance(each, kind) and (kind is AddCDCFile or each.data_change))
        return islice(files, self.part.start, self.part.stop)

    @property
    def total(self) -> int:
        """How many files the version has, within this part or not."""
        return self.contents.recorded or self.contents.removed + self.contents.added

    @property
    def reaches_end(self) -> bool:
        """Whether the version has no file after this part."""
        return self.part.stop >= self.total

    def within(self, size: int) -> tuple[ChangedFiles, int]:
        """The first files of this part, at least one, until they have `size` bytes (all, unless it `divides`); and their bytes."""
        if not self.divides:
            return self, sum(each.size or 0 for each in self)
        stop, taken = self.part.start, 0
        for each in self:
            if taken >= size and stop > self.part.start:
                break
            taken += each.size or 0
            stop += 1
        return replace(self, part=range(self.part.start, stop)), taken
