"""Incremental reads: the rows that versions inserted and deleted, from change data files or from each version's actions.

For a version with change data files, these alone count. For every other one, the files it added are inserted rows, those it
removed are deleted rows, and a file that it removed and added again with another deletion vector lost or regained the rows
in which the two vectors differ. If rows were deleted or updated by rewriting files, rows that were only copied are not
changes. Reorganisations (`dataChange` = false) show nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby, islice, pairwise
from typing import Any, Final, TypedDict

import pyarrow as pa
import pyarrow.compute as pc

from ...storage.actions import AddCDCFile, AddFile, Metadata, RemoveFile
from ...storage.actions.filetable import add_rows
from ...storage.actions.uris import key_inside
from ...storage.caches import LazyProperty, at_once
from ...storage.data.scan import TableScan
from ...storage.data.vectors import Rows, positions_of, read_vector, vector_key
from ...storage.dataclass import dataclass
from ...storage.errors import Corrupt, InvalidRequest, MissingObject, ObjectNotFound, SchemaMismatch
from ...storage.pruning.predicate import Predicate
from ...storage.schema.schema import PrimitiveType, StructField, StructType, to_arrow
from ...storage.stores.objects import ObjectStore
from ...storage.times import Moment
from ..client.address import TableAddress
from ..client.open_table import OpenTable, ReadTable
from ..client.published_table import PublishedTable
from ..write.change_data_files import CHANGE_TYPE, DELETE, INSERT
from .versions import ALL, ChangedFiles, ChangePlace, CommitsAhead, VersionRange, range_by_time, range_by_version

COMMIT_VERSION: Final = "_commit_version"
COMMIT_TIMESTAMP: Final = "_commit_timestamp"
CHANGE_COLUMNS: Final = (
    StructField(CHANGE_TYPE, PrimitiveType("string")),
    StructField(COMMIT_VERSION, PrimitiveType("long")),
    StructField(COMMIT_TIMESTAMP, PrimitiveType("timestamp")),
)
"""Columns beside the table's own: the kind of change, its version, and that version's time."""

_NAMES: Final = frozenset(each.name for each in CHANGE_COLUMNS)
_FILES: Final = 256
"""Files per scan: what is in memory besides rows."""
_THREADS: Final = 8

_ROW: Final = "row"


class RangeArgs(TypedDict, total=False):
    """Which versions are read."""

    by: str
    """ "version": `after` and `up_to` are versions, and `after` = -1 is before the first one; "timestamp": they are times, and a version
    counts if after < its time <= up_to.
    """
    consistency: str | None
    """The level that says which version is the latest, as for `snapshot`."""


class ChangesArgs(RangeArgs, total=False):
    """Which rows of these versions are read."""

    columns: Sequence[str] | None
    """The table's columns to read; None: all. Those of `CHANGE_COLUMNS` follow them."""
    where: str | None
    """A condition on the rows, which may name the columns of `CHANGE_COLUMNS`, too; None: all rows."""


def read_changes(table: ReadTable, after: Moment, up_to: Moment | None, chosen: ChangesArgs) -> ChangesQuery:
    """The incremental read of the versions of (after, up_to], which have the schema of the last one; `up_to` None: of the latest version.

    Raises InvalidRequest for an invalid interval, VersionNotFound for versions that do not exist (any more): it says what is still
    available.
    """
    return ChangesQuery.of(_span(table, after, up_to, chosen), chosen.get("columns"), chosen.get("where"))


@dataclass(frozen=True, slots=True)
class ChangesPart:
    """Some versions of an incremental read, between two places. Can be sent to a reader that only needs to reach the object store."""

    address: TableAddress
    """The table."""
    after: int
    """The version after which the whole read begins."""
    up_to: int
    """The last version of the whole read."""
    metadata: Metadata
    """The metadata with whose schema the rows are read."""
    begin: ChangePlace
    """Where this part begins."""
    end: ChangePlace
    """Where it ends."""

    @property
    def schema(self) -> StructType:
        """The schema of all columns."""
        return changes_schema(self.metadata.schema)

    def batches(self, columns: Sequence[str] | None = None, where: str | Predicate | None = None) -> Iterator[pa.RecordBatch]:
        """The rows, like those of `Table.changes_batches`."""
        span = VersionRange(PublishedTable(self.address, self.address.store()), self.after, self.up_to, self.metadata)
        return ChangesQuery.of(span, columns, where).batches(self.begin, self.end)


def split_changes(table: ReadTable, after: Moment, up_to: Moment | None, chosen: RangeArgs, parts: int) -> list[ChangesPart]:
    """An incremental read in up to `parts` pieces, at least one; all of its versions are published when this returns."""
    span = _span(table, after, up_to, chosen)
    if isinstance(table, OpenTable) and not span.published:
        table.publish()
    versions = span.up_to - span.after
    count = max(1, min(parts, versions))
    edges = [ChangePlace(span.after + versions * number // count) for number in range(count + 1)]
    return [ChangesPart(table.address, span.after, span.up_to, span.metadata, begin, end) for begin, end in pairwise(edges)]


def changes_schema(struct: StructType) -> StructType:
    """The schema of a table's changes. Raises InvalidRequest if the table uses one of the names of the change columns."""
    for name in struct.names:
        if name.lower() in _NAMES:
            raise InvalidRequest(f"the table has a column {name!r}, a name reserved for changes; rename it", column=name)
    return StructType([*struct.fields, *CHANGE_COLUMNS])


@dataclass(frozen=True, slots=True)
class _Piece:
    """Rows of one file with one kind of change: its live ones, or only those at some positions; `change` None: each row says it."""

    version: int
    time_ms: int
    file: AddFile
    change: str | None
    only: Rows | None = None
    copies: bool = False
    """Whether the version's deleted and inserted rows may include rows that were only copied."""


def _pieces(store: ObjectStore, time_ms: int, changed: ChangedFiles) -> Iterator[_Piece]:
    """A version's changes, deleted rows first."""
    version, both = changed.version, changed.both
    after = {each.path: each for each in changed.actions if isinstance(each, AddFile) and each.path in both} if both else {}
    before = {each.path: each for each in changed.actions if isinstance(each, RemoveFile) and each.path in both} if both else {}
    for each in changed:
        if isinstance(each, AddCDCFile):
            yield _Piece(version, time_ms, AddFile(each.path, each.partition_values, each.size, 0, data_change=True), None)
            continue
        change, other = (DELETE, after.get(each.path)) if isinstance(each, RemoveFile) else (INSERT, before.get(each.path))
        # of a file with another vector, the rows that only the other one deletes
        only = None if other is None else _listed(store, other) - _listed(store, each)
        if only is None or only:
            yield _Piece(version, time_ms, _as_added(each, version) if isinstance(each, RemoveFile) else each, change, only, changed.copies)


def _listed(store: ObjectStore, file: AddFile | RemoveFile) -> Rows:
    """The rows of a file that its vector deletes."""
    return Rows() if file.deletion_vector is None else read_vector(store, file.deletion_vector)


def _as_added(gone: RemoveFile, version: int) -> AddFile:
    """A removed file as it was in the table before."""
    if gone.partition_values is None:
        raise Corrupt(
            f"version {version} removed {gone.path!r} without naming its partition, so its rows are unknown; read the changes after "
            f"version {version}, or compare two snapshots",
            path=gone.path,
            version=version,
        )
    return AddFile(
        gone.path, gone.partition_values, gone.size or 0, 0, data_change=True, stats=gone.stats, deletion_vector=gone.deletion_vector
    )


def _span(table: ReadTable, after: Moment, up_to: Moment | None, chosen: RangeArgs) -> VersionRange:
    by = chosen.get("by", "version")
    if by not in ("version", "timestamp"):
        raise InvalidRequest(f"by is {by!r}; use version or timestamp", by=by)
    resolve = range_by_version if by == "version" else range_by_time
    return resolve(table, after, up_to, chosen.get("consistency"))


@dataclass(frozen=True)
class ChangesQuery:
    """One incremental read: its versions, and which of their rows and columns."""

    span: VersionRange
    struct: StructType
    output: pa.Schema
    inside: Predicate | None
    """The part of the condition on the table's columns, by which files and row groups are skipped."""
    beside: Predicate | None
    """The part on the change columns."""

    @staticmethod
    def of(
        span: VersionRange, columns: Sequence[str] | None, where: str | Predicate | None, *, change_columns: bool = True
    ) -> ChangesQuery:
        """The read of these versions, with or without the change columns.

        Raises InvalidRequest and PredicateError for columns that the table does not have.
        """
        struct = span.metadata.schema
        full = changes_schema(struct)
        predicate = where if where is None or isinstance(where, Predicate) else Predicate.parse(where, full)
        inside, beside = (None, None) if predicate is None else predicate.split(struct.names)
        names = [full.named(name).name for name in (struct.names if columns is None else columns)]
        arrow = to_arrow(full)
        own = dict.fromkeys(name for name in names if name not in _NAMES)
        output = pa.schema([arrow.field(name) for name in (*own, *(each.name for each in CHANGE_COLUMNS if change_columns))])
        return ChangesQuery(span, struct, output, inside, beside)

    def batches(self, begin: ChangePlace | None = None, end: ChangePlace | None = None) -> Iterator[pa.RecordBatch]:
        """The rows, file by file, from one place to another, by default of all versions.

        Missing commits are reported by the call, missing files while reading: by VersionNotFound and MissingObject.
        """
        begin, end = begin or ChangePlace(self.span.after), end or ChangePlace(self.span.up_to)
        first, last = begin.version + 1, end.version + (end.files > 0)
        commits = CommitsAhead(self.span.table, published=self.span.published)
        if first <= last:
            commits.actions(first, last)  # now, since a cleanup removes the oldest first
        changed = (
            ChangedFiles(v, commits.actions(v, last), range(begin.files if v == first else 0, end.files if v > end.version else ALL.stop))
            for v in range(first, last + 1)
        )
        return self.batches_of(changed)

    def batches_of(self, changed: Iterable[ChangedFiles], max_rows: int | None = None) -> Iterator[pa.RecordBatch]:
        """The rows, file by file, of versions that were read already."""
        pieces = (piece for each in changed for piece in self._pieces(each))
        return (batch for table in self._read(pieces) for batch in table.to_batches(max_rows) if batch.num_rows)

    def to_arrow(self) -> pa.Table:
        """The rows of all versions."""
        return pa.Table.from_batches(self.batches(), schema=self.output)

    def _pieces(self, changed: ChangedFiles) -> Iterator[_Piece]:
        try:
            yield from _pieces(self.span.table.store, self.span.time_of(changed.version, changed.contents.info), changed)
        except MissingObject as gone:  # a deletion vector
            raise self._cleaned_up(changed.version, gone) from gone

    def _read(self, pieces: Iterator[_Piece]) -> Iterator[pa.Table]:
        names = [*self.output.names, *(() if self.beside is None else sorted(self.beside.columns))]
        columns = [*dict.fromkeys(name for name in names if name not in _NAMES), CHANGE_TYPE]
        for version, some in groupby(pieces, key=lambda piece: piece.version if piece.copies else None):
            while window := list(islice(some, _FILES if version is None else None)):
                try:
                    for piece, rows in self._scan(window, columns) if version is None else self._without_copies(window):
                        yield self._told(piece, rows)
                except MissingObject as gone:
                    of = next((piece.version for piece in window if piece.file.path == gone.details.get("path")), window[0].version)
                    raise self._cleaned_up(of, gone) from gone
                except Corrupt as unfit:
                    if not isinstance(unfit.__cause__, SchemaMismatch):
                        raise
                    raise InvalidRequest(
                        f"a column's type was changed between the versions {self.span.after} and {self.span.up_to} of "
                        f"{self.span.table.store.location}: {unfit.__cause__.message}; read the changes before and after that "
                        "version separately",
                        path=unfit.details.get("path"),
                    ) from unfit

    def _scan(self, pieces: Sequence[_Piece], columns: Sequence[str]) -> Iterator[tuple[_Piece, pa.Table]]:
        """The rows of each piece; omits pieces without rows."""
        scan = TableScan(self.span.table.store, self._stored, self.span.metadata.partition_columns)
        for index, rows, positions in scan.positions(add_rows([piece.file for piece in pieces]), columns, self.inside):
            only = pieces[index].only
            rows = rows if only is None else rows.filter(pc.is_in(positions, value_set=positions_of(only)))
            if rows.num_rows:
                yield pieces[index], rows

    def _without_copies(self, pieces: Sequence[_Piece]) -> Iterator[tuple[_Piece, pa.Table]]:
        """Like `_scan`, without rows that a version only copied; for that, its deleted rows are in memory."""
        nothing = to_arrow(self._stored).empty_table()
        deleted, inserted = nothing, nothing
        for piece, rows in self._scan(pieces, self._stored.names):
            if piece.change == DELETE:
                deleted = pa.concat_tables([deleted, rows])
            else:
                deleted, new = without_copies(deleted, rows)
                inserted = pa.concat_tables([inserted, new])
        for change, rows in ((DELETE, deleted), (INSERT, inserted)):
            if rows.num_rows:
                yield replace(pieces[0], change=change), rows

    @LazyProperty
    def _stored(self) -> StructType:
        """The columns to read from files: change data files name the kind of change, in data files that is null."""
        return StructType([*self.struct.fields, CHANGE_COLUMNS[0]])

    def _told(self, piece: _Piece, rows: pa.Table) -> pa.Table:
        """Rows with the requested change columns."""
        kinds = rows.column(CHANGE_TYPE) if piece.change is None else pa.repeat(pa.scalar(piece.change, pa.string()), rows.num_rows)
        version = pa.repeat(pa.scalar(piece.version, pa.int64()), rows.num_rows)
        time = pa.repeat(pa.scalar(piece.time_ms * 1000, pa.timestamp("us", "UTC")), rows.num_rows)
        values = {**{name: rows.column(name) for name in rows.column_names}, CHANGE_TYPE: kinds}
        table = pa.table({**values, COMMIT_VERSION: version, COMMIT_TIMESTAMP: time})
        if self.beside is not None:
            table = table.filter(self.beside.mask(table))
        return pa.table(table.select(self.output.names).columns, schema=self.output)

    def _cleaned_up(self, version: int, gone: MissingObject) -> MissingObject:
        """The error for a data file that was removed, with the versions whose changes can still be read."""
        last = self.span.up_to
        after = next((v for v in range(last, version, -1) if not self._is_complete(v)), version)
        there = f"the changes after version {after} are complete" if after < last else "the changes of no later version are complete either"
        return MissingObject(
            f"the changes of version {version} of {self.span.table.store.location} cannot be read any more: {gone.message}. Files that a "
            f"version removed are kept for delta.deletedFileRetentionDuration; {there}",
            **{**gone.details, "version": version, "complete_after": after},
        )

    def _is_complete(self, version: int) -> bool:
        """Whether every file needed for a version's changes exists."""
        store = self.span.table.store
        try:
            actions = CommitsAhead(self.span.table, published=self.span.published).actions(version, version)
            keys: list[str | None] = []
            for file in (piece.file for piece in _pieces(store, 0, ChangedFiles(version, actions))):
                keys.append(key_inside(store.location, file.path))
                keys.append(None if file.deletion_vector is None else vector_key(file.deletion_vector, store.location))
            at_once(store.head, [key for key in keys if key is not None], _THREADS, "sluice-changes")
        except (MissingObject, ObjectNotFound):
            return False
        return True


def without_copies(deleted: pa.Table, inserted: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Both tables (of one schema) without their common rows, each as often as both have it; the rest keeps its order."""
    if not deleted.num_rows or not inserted.num_rows:
        return deleted, inserted
    both = pa.concat_tables([deleted, inserted])
    names = [f"key{number}" for number in range(both.num_columns)]
    keys = pa.table([_comparable(column) for column in both.columns], names=names)
    keys = keys.append_column(_ROW, pa.array(range(both.num_rows), pa.int64()))
    # One thread, so that a group's rows stay in order: the deleted ones first.
    rows = keys.group_by(names, use_threads=False).aggregate([(_ROW, "list")]).column(f"{_ROW}_list").combine_chunks()
    row, group = pc.list_flatten(rows), pc.list_parent_indices(rows)
    is_deleted = pc.less(row, deleted.num_rows)
    place = pc.subtract(pa.array(range(both.num_rows), pa.int64()), pc.take(rows.offsets, group))
    counted = pa.table({"group": group, "n": is_deleted.cast(pa.int64())}).group_by("group", use_threads=False).aggregate([("n", "sum")])
    assert counted.num_rows == len(rows)
    gone = counted["n_sum"].combine_chunks()  # of each group: its rows are contiguous
    common = pc.take(pc.min_element_wise(gone, pc.subtract(pc.list_value_length(rows), gone)), group)
    # Of a group's d deleted and i inserted rows, the first min(d, i) of each cancel each other.
    ordinal = pc.if_else(is_deleted, place, pc.subtract(place, pc.take(gone, group)))
    left = pc.filter(row, pc.greater_equal(ordinal, common))
    left = left.take(pc.sort_indices(left))
    split = pc.sum(pc.less(left, deleted.num_rows)).as_py() or 0
    return deleted.take(left.slice(0, split)), inserted.take(pc.subtract(left.slice(split), deleted.num_rows))


def _comparable(column: Any) -> Any:
    """A column that Arrow can group by: nested values become texts that are equal exactly if the values are."""
    if not pa.types.is_nested(column.type):
        return column
    return pa.chunked_array(
        [[None if value is None else repr(value) for value in chunk.to_pylist()] for chunk in column.chunks], pa.string()
    )
