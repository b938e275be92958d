"""The files that each version gives a stream, and where a batch of them ends. Pure: the caller provides the versions' actions.

A batch takes files in the order of versions, and within one in the order of its commit, until a limit is reached: one large version
becomes several batches, several small ones become one. A version's changes come together unless they alone exceed the limits, so that
a row's old and new values do; a larger version begins a batch, and becomes several if its changes can be divided. The same two offsets
always name the same files, so a batch that is repeated after a failure has the same rows.

The files of the version with which a stream begins have a fixed order: by default the order in which they were written. In the order of
an event time, a batch is a range of times instead: the files are sorted by their least time, and the offset after `n` of them means that
all rows before the least time of file `n` were read, in whichever files they are. So a watermark never passes rows of the snapshot that
are still to come.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from dataclasses import field, replace
from itertools import islice
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from ....storage.actions import Action, AddFile, CommitInfo, Metadata, RemoveFile
from ....storage.actions.features import check_readable
from ....storage.actions.filetable import FILES_SCHEMA, add_rows, rows_at
from ....storage.actions.metadata_change import describe
from ....storage.dataclass import dataclass
from ....storage.errors import InvalidRequest, SchemaMismatch, SluiceError, UnsupportedFeature
from ....storage.expressions.nodes import Column
from ....storage.log.snapshot import Snapshot
from ....storage.pruning.files import LOW, Files
from ....storage.pruning.predicate import Predicate
from ....storage.schema.schema import StructType, to_arrow
from ..versions import ChangedFiles, VersionContents
from .offsets import Limits, StreamOffset, StreamRules, another_table

_COLUMNS: Final = ("path", "partition_values", "size", "stats", "deletion_vector")
_NOTHING: Final = FILES_SCHEMA.empty_table().select(_COLUMNS)
_AT_ONCE: Final = 4096
_TIMES: Final = ("timestamp", "timestamp_ntz", "date")


@dataclass(frozen=True, slots=True)
class StreamFiles:
    """The files of one version, in the order in which a stream reads them.

    ``files``      rows of a file table; those that the stream leaves out are among them, so that options do not move offsets
    ``changed``    for changes: the bytes of each file in which they lie, also of removed ones; `files` is empty then
    ``whole``      whether they are read in one batch: changes that cannot be divided
    ``stop``       the error that ends the stream before this version
    ``following``  the version that comes next, if it is not the next number: those between are gone
    ``ends``       the indices at which a batch may end; None: at each
    """

    files: pa.Table = field(default_factory=lambda: _NOTHING)
    changed: pa.Array | None = None
    whole: bool = False
    stop: SluiceError | None = None
    following: int | None = None
    ends: tuple[int, ...] | None = None

    @property
    def count(self) -> int:
        """How many files they are."""
        return len(self.sizes)

    def size_from(self, index: int) -> int:
        """The bytes of the files from `index` on."""
        return pc.sum(self.sizes.slice(index)).as_py() or 0

    def after(self, place: StreamOffset, read: int) -> StreamOffset:
        """The offset when the first `read` of the files are read, from a place in their version; after the last one another version."""
        if read < self.count:
            return replace(place, index=read)
        return replace(place, version=place.version + 1 if self.following is None else self.following, index=0, first=False)

    @property
    def sizes(self) -> pa.ChunkedArray:
        """The bytes of each file."""
        return self.files["size"] if self.changed is None else pa.chunked_array([self.changed])


@dataclass(frozen=True, slots=True)
class StreamedTable:
    """The table as a stream shows it: with the schema of the version that was current when the query was made."""

    location: str
    version: int
    metadata: Metadata
    rules: StreamRules

    @property
    def struct(self) -> StructType:
        """The schema of the rows."""
        return self.metadata.schema

    def files(self, version: int, actions: Iterable[Action]) -> StreamFiles:
        """The files that this version gives the stream."""
        changed = ChangedFiles(version, actions)
        has, rules = changed.contents, self.rules
        stop = self._other_metadata(version, has) if version > self.version else None
        if stop is not None:
            return StreamFiles(stop=stop)
        if rules.changes:
            return StreamFiles(changed=pa.array((each.size or 0 for each in changed), pa.int64()), whole=not changed.divides)
        if has.removed:
            only_deletes = not has.added or _deletes_by_vectors(changed)
            if rules.skip_change_commits or (only_deletes and (rules.ignore_deletes or rules.ignore_changes)):
                return StreamFiles()
            if not rules.ignore_changes:
                return StreamFiles(stop=self._change(version, has.info, only_deletes=only_deletes))
        if not has.added:
            return StreamFiles()
        added = (each for each in actions if isinstance(each, AddFile) and each.data_change)
        tables = []
        while some := list(islice(added, _AT_ONCE)):  # without keeping an object of each: there may be millions
            tables.append(add_rows(some).select(_COLUMNS))
        return StreamFiles(pa.concat_tables(tables))

    def _change(self, version: int, info: CommitInfo | None, *, only_deletes: bool) -> InvalidRequest:
        """The error for a version that did more than add rows."""
        operation = (None if info is None else info.operation) or "an operation without a name"
        did = "deleted rows" if only_deletes else "changed rows"
        remedy = "ignoreDeletes=true passes over it" if only_deletes else "ignoreChanges=true reads the rows of its new files again"
        return InvalidRequest(
            f"version {version} of {self.location} ({operation}) {did}, and a stream of new rows cannot tell that: {remedy}, "
            "skipChangeCommits=true passes over every such version, and with readChangeFeed=true and a new checkpoint the stream has the "
            "deleted rows, too",
            location=self.location,
            version=version,
            operation=operation,
        )

    def _other_metadata(self, version: int, has: VersionContents) -> SluiceError | None:
        """The error for a version that changed what the stream's rows look like."""
        new = has.metadata or self.metadata
        if new.id != self.metadata.id:
            return another_table(self.location, self.metadata.id, new.id)
        if has.protocol is not None:
            try:
                check_readable(has.protocol, new)
            except UnsupportedFeature as lacking:
                return lacking
        change = describe(self.metadata, new)
        # check: a-stream-ends-at-other-columns (("changed", "columns") -> ("changed",))
        is_other = change["schema"] in ("changed", "columns")
        if not is_other and new.partition_columns == self.metadata.partition_columns:
            return None
        what = "schema" if is_other else "partitioning"
        return SchemaMismatch(
            f"version {version} of {self.location} changed the {what}, and the query shows that of version {self.version}. All rows before "
            "it were read: make the query again with spark.readStream and start it with the same checkpoint; it goes on from here with "
            "the new columns, null in older rows",
            location=self.location,
            version=version,
        )


def _deletes_by_vectors(changed: ChangedFiles) -> bool:
    """Whether the version added nothing but files that it removed, with more of their rows deleted."""
    has = changed.contents
    if has.added > has.removed or has.info is None or has.info.operation != "DELETE":
        return False
    lost = {each.path: _deleted(each) for each in changed.actions if isinstance(each, RemoveFile) and each.data_change}
    added = (each for each in changed.actions if isinstance(each, AddFile) and each.data_change)
    return all(each.path in lost and _deleted(each) > lost[each.path] for each in added)


def _deleted(file: AddFile | RemoveFile) -> int:
    return 0 if file.deletion_vector is None else file.deletion_vector.cardinality


class FirstSnapshot:
    """A snapshot's files in order, and which rows of them lie between two indices."""

    def __init__(self, snapshot: Snapshot, shown: StreamedTable) -> None:
        """Raises InvalidRequest if the rules name a column of times that is none."""
        self.version, self.timestamp_ms = snapshot.version, snapshot.timestamp_ms
        self._struct = shown.struct
        self._column = _time_column(shown)
        ends, files = None, snapshot.files
        # the least time of each file; null if its statistics do not tell it
        least = pa.nulls(files.num_rows, pa.int64())
        if self._column is not None:
            low = Column((LOW, self._column), to_arrow(self._struct).field(self._column).type)
            least = Files.of_table(files).columns([low], {})(low)
        keys = pa.table({"told": least.is_valid(), "least": least, "written": files["modification_time"], "path": files["path"]})
        places = pc.sort_indices(keys, sort_keys=[(name, "ascending") for name in keys.column_names])
        self._least: list[Any] = keys["least"].take(places).to_pylist()
        if self._column is not None:
            starts = (n for n in range(1, len(self._least)) if self._least[n] != self._least[n - 1])
            ends = tuple(dict.fromkeys((0, *starts, len(self._least))))
        self.files = StreamFiles(rows_at(files, places.to_pylist()).select(_COLUMNS), ends=ends)
        """All files, and the indices at which a batch may end."""

    def rows_between(self, start: int, stop: int) -> Predicate | None:
        """The condition on the rows that a batch from file `start` to file `stop` reads, of all files; None: all rows of these files."""
        if self._column is None:
            return None
        since = [("GreaterThanOrEqual", (self._column,), self._least[start])] if start > 0 else []
        before = [("LessThan", (self._column,), self._least[stop])] if stop < len(self._least) else []
        if not since and not before:
            return None
        inside = Predicate.from_filters([*since, *before], self._struct)
        # rows without a time come first
        return inside if since else inside.or_(Predicate.from_filters([("IsNull", (self._column,), None)], self._struct))


def _time_column(shown: StreamedTable) -> str | None:
    """The column of times in whose order the snapshot is read, as the table spells it; None for no such order. Raises InvalidRequest."""
    name, partition_columns = shown.rules.event_time, shown.metadata.partition_columns
    if name is None:
        return None
    field = shown.struct.get(name)
    times = [each.name for each in shown.struct.fields if str(each.type) in _TIMES and each.name not in partition_columns]
    if field is None or field.name not in times:
        raise InvalidRequest(
            f"eventTimeColumn is {name!r}, and the snapshot is read in the order of a timestamp or date that is no partition column; "
            f"the table has {', '.join(times) or 'none'}",
            option="eventTimeColumn",
        )
    return field.name


# -- batches -------------------------------------------------------------------------------------------------------------

Lookup: TypeAlias = Callable[[StreamOffset], StreamFiles]
"""The files of an offset's version, or of its first snapshot."""


@dataclass(slots=True)
class _Room:
    """The room that a batch has left: how many files, and bytes; None: no limit."""

    files: int | None
    size: int | None
    is_empty: bool = True

    @property
    def is_full(self) -> bool:
        """Whether no further file fits. The first file always does; the last one may exceed the bytes."""
        return not self.is_empty and ((self.files is not None and self.files <= 0) or (self.size is not None and self.size <= 0))

    def take(self, files: StreamFiles, index: int) -> int:
        """How many of the files from `index` on the batch takes."""
        rest = files.count - index
        taken = rest if self.files is None else min(rest, max(self.files, self.is_empty))
        if (left := self.size) is not None:
            for number, size in enumerate(files.sizes.slice(index, taken)):
                if left <= 0 and (number or not self.is_empty):
                    taken = number
                    break
                left -= size.as_py()
        if files.changed is not None and taken < rest:  # it begins the next batch, and is divided only if it can be
            taken = 0 if not self.is_empty else rest if files.whole else taken
        if taken:
            self.is_empty = False
            self.files = None if self.files is None else self.files - taken
            self.size = None if self.size is None else self.size - files.size_from(index) + files.size_from(index + taken)
        return taken


def end_of_batch(start: StreamOffset, latest: int, limits: Limits, lookup: Lookup) -> StreamOffset:
    """Where the batch that begins at `start` ends; `start` itself if the versions up to `latest` have nothing for the stream.

    Raises the error of a version that stops the stream, when all before it is read.
    """
    room, end, place = _Room(limits.files, limits.size), start, start
    while place.first or place.version <= latest:
        files = lookup(place)
        if files.stop is not None:
            if end == start:
                raise files.stop
            break
        read = place.index + room.take(files, place.index)
        if files.ends is not None:
            read = files.ends[bisect_left(files.ends, read)]
        if read > place.index:
            end = files.after(place, read)
        if read < files.count:
            break
        place = files.after(place, read)
        if room.is_full:
            break
    return end


def portions(start: StreamOffset, end: StreamOffset, lookup: Lookup) -> Iterator[tuple[StreamOffset, StreamFiles, range]]:
    """The files between two offsets, version by version: a place in it, its files, and the numbers of those to read.

    Raises the error of a version that stops the stream.
    """
    place = start
    while place.place < end.place:
        files = lookup(place)
        if files.stop is not None:
            raise files.stop
        last = (place.version, place.first) == (end.version, end.first)
        read = min(end.index, files.count) if last else files.count
        if read > place.index:
            yield place, files, range(place.index, read)
        place = end if last else files.after(place, files.count)
