"""Following a table: its versions' changes one after the other, as they come; and the positions of named consumers.

A *follower* has a position, the last version whose changes it gave. It waits for published versions, reads their commits forwards, and
gives the changes of each version, of several at once, or of some files of a large one. Versions without rows for it (reorganisations,
settings, rows that `where` leaves out) only move the position. A version with another schema begins its own batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from itertools import chain
from types import TracebackType
from typing import Final, TypedDict

import pyarrow as pa

from ...coordinator.api import Deadline, Hold, Timeout, consumers_of, hold_consumer
from ...storage.actions import AddFile, Metadata
from ...storage.dataclass import dataclass
from ...storage.errors import HistoryGone, InvalidRequest, LogGap, MissingObject, VersionNotFound
from ..client.open_table import OpenTable, ReadTable
from ..client.published_table import PublishedTable, beyond
from ..write.change_data_files import CHANGE_TYPE, INSERT, UPDATE_POSTIMAGE
from .changes import ChangesQuery
from .versions import ALL, ChangedFiles, ChangePlace, CommitsAhead, PublishedVersions, VersionRange, published_versions

CHANGES: Final = "changes"
_ROWS_MAX: Final = 65_536
_WAIT_S: Final = 2.0
"""How long a consumer that somebody runs is waited for: no longer than its requests may take."""


class SelectionArgs(TypedDict, total=False):
    """Which rows of a version are given, in what pieces."""

    rows: str
    """ "changes": inserted and deleted rows, followed by the columns of `CHANGE_COLUMNS`; "inserted": the rows that were inserted, and
    updated ones as they became, with the table's columns only.
    """
    columns: Sequence[str] | None
    """The columns; None: all."""
    where: str | None
    """A condition on the rows; None: all."""
    max_versions: int
    """The most versions whose changes a batch has."""
    max_rows: int
    """The most rows of a record batch."""
    max_bytes: int | None
    """After files of so many bytes a batch takes no further one; None: any number."""


class ChangeBatch:
    """The changes of a version, or of several that follow one another, of a table that is followed. Iterating gives record batches.

    The versions are those after `after`, up to and including `version`, which was committed at `timestamp` (ms since the epoch). With
    `max_bytes` a batch may begin or end within a version: unless it is `complete`, more of that version's changes may follow.
    `schema_changed`: the batch before had another schema. Rows are read on demand, again each time, in bounded memory.
    """

    def __init__(self, query: ChangesQuery, changed: Sequence[ChangedFiles], end: ChangePlace, max_rows: int) -> None:
        self.after: int = query.span.after
        self.version: int = query.span.up_to
        self.end: ChangePlace = end
        """Where the next batch begins."""
        self.schema: pa.Schema = query.output
        self.schema_changed = False
        self._query, self._changed, self._max_rows = query, changed, max_rows
        self._begun: Iterator[pa.RecordBatch] | None = None

    @property
    def timestamp(self) -> int:
        """When the last version was committed, in milliseconds since the epoch."""
        last = self._changed[-1]
        return self._query.span.time_of(last.version, last.contents.info)

    @property
    def complete(self) -> bool:
        """Whether no further batch has changes of `version`; if not, one may."""
        return self.end.files == 0

    @property
    def has_rows(self) -> bool:
        """Whether there is a row; reads up to the first one, which is not read again."""
        if self._begun is None:
            rows = self._read()
            first = next(rows, None)
            if first is None:
                return False
            self._begun = chain([first], rows)
        return True

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        rows, self._begun = self._begun, None
        return self._read() if rows is None else rows

    def to_arrow(self) -> pa.Table:
        """All rows in one table. Raises HistoryGone, as reading them in pieces does."""
        return pa.Table.from_batches(list(self), schema=self.schema)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The rows for every library that takes Arrow data, such as `Table.append`."""
        return self.reader().__arrow_c_stream__(requested_schema)

    def reader(self) -> pa.RecordBatchReader:
        """The rows as a stream, such as `append` takes to write them in bounded memory."""
        return pa.RecordBatchReader.from_batches(self.schema, iter(self))

    def _read(self) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._query.batches_of(self._changed, self._max_rows)
        except MissingObject as gone:
            raise history_gone(self._query.span.table, self.after, gone.message) from gone

    def __repr__(self) -> str:
        return f"ChangeBatch(after={self.after}, version={self.version}{'' if self.complete else ', complete=False'})"


def history_gone(table: ReadTable, after: int, why: str) -> HistoryGone:
    """The error for changes after a version that cannot be read any more. Raises TableDropped if the whole table is gone."""
    if isinstance(table, OpenTable):
        table.head()
    location = table.location
    return HistoryGone(
        f"the changes of {location} after version {after} are not all there any more: {why}. Read the table as it is (table.snapshot()), "
        "and follow it from that snapshot's version on, a consumer by table.reset_consumer. delta.logRetentionDuration and "
        "delta.deletedFileRetentionDuration say how long history is kept",
        location=location,
        after=after,
    )


class ChangeReader:
    """Reads a table's changes forwards from a position, batch by batch. Not thread-safe."""

    def __init__(self, table: ReadTable, place: ChangePlace, chosen: SelectionArgs) -> None:
        """Begin at a place; version -1 is before the first one. Raises InvalidRequest, HistoryGone."""
        self.table, self.place, self._chosen = table, place, chosen
        self._metadata = self._metadata_at(place.version)
        self._commits = CommitsAhead(table)
        self._given = None if self._metadata is None else self._query(place.version, place.version, self._metadata).output
        """The schema of the batch before, or of the table where the reader begins."""

    @property
    def position(self) -> int:
        """The last version all of whose changes were given."""
        return self.place.version

    def next(self, latest: int) -> ChangeBatch | None:
        """The next batch with rows up to a published version; None if there is none. Moves the place behind it."""
        while self.position < latest:
            batch = self._next(latest)
            self.place = batch.end
            if batch.has_rows:
                batch.schema_changed = self._given is not None and not batch.schema.equals(self._given)
                self._given = batch.schema
                return batch
        return None

    def _next(self, latest: int) -> ChangeBatch:
        """The following versions, as many as belong together, or as many of their files as fit."""
        taken: list[ChangedFiles] = []
        metadata, place, room = self._metadata, self.place, self._chosen.get("max_bytes")
        while len(taken) < self._chosen.get("max_versions", 1) and place.version < latest and (room is None or room > 0):
            files = self._files(place, latest)
            changed, version = files.contents.metadata, files.version
            if changed is not None and metadata is not None and taken and changed.schema_string != metadata.schema_string:
                break
            metadata = changed or metadata
            if room is not None:
                files, size = files.within(room)
                room -= size
            taken.append(files)
            if not files.reaches_end:
                place = ChangePlace(place.version, files.part.stop)
                break
            place = ChangePlace(version)
        assert metadata is not None
        self._metadata = metadata
        return ChangeBatch(self._query(self.position, taken[-1].version, metadata), taken, place, self._chosen.get("max_rows", _ROWS_MAX))

    def _files(self, place: ChangePlace, latest: int) -> ChangedFiles:
        """The files after a place, of the version that comes next."""
        version = place.version + 1
        try:
            files = ChangedFiles(version, self._commits.actions(version, latest), range(place.files, ALL.stop))
        except VersionNotFound as gone:
            raise history_gone(self.table, place.version, gone.message) from gone
        if place.files and place.files > files.total:
            raise InvalidRequest(
                f"the place after {place.files} files of version {version} does not exist in {self.table.location}, whose "
                f"version has {files.total} files: give the `end` of a batch of this table, or a version",
                version=version,
            )
        return files

    def _metadata_at(self, version: int) -> Metadata | None:
        if version < 0:
            return None
        latest = self.table.latest()
        if version > latest.version:
            raise beyond(self.table.location, version, latest.version)
        if version == latest.version:
            return latest.metadata
        with suppress(VersionNotFound):
            return self.table.at(version).metadata
        try:
            return self.table.at(version + 1).metadata  # the versions after it begin with its metadata
        except VersionNotFound as gone:
            raise history_gone(self.table, version, gone.message) from gone

    def _query(self, after: int, up_to: int, metadata: Metadata) -> ChangesQuery:
        """The incremental read of some versions. Raises InvalidRequest for columns that the table does not have."""
        span = VersionRange(self.table, after, up_to, metadata)
        columns, where = self._chosen.get("columns"), self._chosen.get("where")
        if self._chosen.get("rows", CHANGES) == CHANGES:
            return ChangesQuery.of(span, columns, where)
        new = f"{CHANGE_TYPE} IN ('{INSERT}', '{UPDATE_POSTIMAGE}')"
        return ChangesQuery.of(span, columns, new if where is None else f"({where}) AND {new}", change_columns=False)


class Follower(Iterator[ChangeBatch], AbstractContextManager["Follower"]):
    """A table's changes, as they come; made by `Table.follow`. An iterator of `ChangeBatch`, and a context manager.

    It waits for versions without asking the object store, and ends when nothing comes for its `timeout_s`, or by `close`, from any
    thread. One thread iterates.
    """

    def __init__(self, reader: ChangeReader, waiting: PublishedVersions, timeout_s: Timeout | None) -> None:
        self._reader, self._waiting, self._timeout_s = reader, waiting, timeout_s
        self._latest = reader.position

    @property
    def position(self) -> int:
        """The last version whose changes were given, or which had none; -1 before the first."""
        return self._reader.position

    @property
    def place(self) -> ChangePlace:
        """How far it got, also within a version: another follower goes on `after` it. That is the `end` of the last batch, or later."""
        return self._reader.place

    def __next__(self) -> ChangeBatch:
        """The next batch. Raises HistoryGone, TableDropped, TreeReplaced; InvalidRequest if a chosen column is gone."""
        deadline = None if self._timeout_s is None else Deadline.of(self._timeout_s)
        while not self._waiting.closed:
            if (batch := self._reader.next(self._latest)) is not None:
                return batch
            latest = self._waiting.wait(self._reader.position, deadline)
            if latest <= self._reader.position:
                break
            self._latest = latest
        raise StopIteration

    def close(self) -> None:
        """End the iteration, also one that waits in another thread."""
        self._waiting.close()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def follow(
    table: ReadTable, after: int | ChangePlace | None, chosen: SelectionArgs, *, timeout_s: Timeout | None, poll_s: float
) -> Follower:
    """Follow a table from after a version or a place on (None: the latest version). Raises InvalidRequest."""
    start = after if isinstance(after, ChangePlace) else ChangePlace(latest_of(table) if after is None else after)
    return Follower(ChangeReader(table, start, chosen), published_versions(table, poll_s), timeout_s)


def latest_of(table: ReadTable) -> int:
    """The latest version, with everything acknowledged to anybody before this call."""
    return table.read(None, None if isinstance(table, PublishedTable) else "latest").version


# -- named consumers, as an operator sees them ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ConsumerState:
    """A named consumer: `position` is the last version it consumed (-1: none), recorded at `moved_ms` (since the epoch).

    Of the next version it consumed the first `files` of the files with that version's changes. It lags `behind` versions, which added
    `bytes_behind` bytes of data files (None if commits among them were cleaned up). `holder` is the application of the instance that is
    the consumer now, on `host` as process `pid` since `since_ms`; "" and None if there is none. `into` are the locations of its outputs,
    `run` the number of its resets.
    """

    name: str
    position: int
    behind: int
    bytes_behind: int | None
    moved_ms: int
    holder: str
    host: str
    pid: int | None
    since_ms: int | None
    into: tuple[str, ...]
    run: int
    files: int


def consumers(table: OpenTable) -> list[ConsumerState]:
    """The consumers of a table, by name."""
    records, latest = consumers_of(table.context), latest_of(table)
    return [
        ConsumerState(
            name=record.name,
            position=record.version,
            behind=max(0, latest - record.version),
            bytes_behind=_bytes_after(table, record.version, latest),
            moved_ms=record.moved_ms,
            holder="" if lease is None else lease.application,
            host="" if lease is None else lease.host,
            pid=None if lease is None else lease.pid,
            since_ms=None if lease is None else lease.since_ms,
            into=record.into,
            run=record.run,
            files=record.files,
        )
        for record, lease in records
    ]


def reset_consumer(table: OpenTable, name: str, after: int | None) -> int:
    """Let a consumer that is not running go on after another version (None: the latest); returns it.

    Raises InvalidRequest for an unknown consumer, VersionNotFound, LeaseHeld for one that runs.
    """
    latest = latest_of(table)
    version = latest if after is None else after
    if version > latest:
        raise beyond(table.location, version, latest)
    with _existing(table, name) as held:
        assert held.record is not None
        # check: resets-begin-a-run (held.record.run + 1 -> held.record.run)
        held.place(version, held.record.run + 1, held.record.into)
    return version


def remove_consumer(table: OpenTable, name: str) -> None:
    """Remove the position of a consumer that is not running. Raises InvalidRequest for an unknown one, LeaseHeld."""
    with _existing(table, name) as held:
        held.remove()


@contextmanager
def _existing(table: OpenTable, name: str) -> Iterator[Hold]:
    """A consumer that has a position and is not running."""
    names = [record.name for record, _ in consumers_of(table.context)]
    if name not in names:
        there = f"its consumers are {', '.join(names)}" if names else "it has none"
        raise InvalidRequest(f"{table.location} has no consumer {name!r}: {there}", name=name)
    held = hold_consumer(table.context, name, _WAIT_S)
    try:
        yield held
    finally:
        held.release()


def _bytes_after(table: OpenTable, after: int, latest: int) -> int | None:
    """The bytes of the data files that versions added, without those of reorganisations; None if commits were cleaned up."""
    commits, total = CommitsAhead(table), 0
    for version in range(after + 1, latest + 1):
        try:
            actions = commits.actions(version, latest)
        except (LogGap, VersionNotFound):
            return None
        total += sum(each.size for each in actions if isinstance(each, AddFile) and each.data_change)
    return total
