"""Incremental reads: the rows that versions inserted and deleted, from change data files or from each version's actions.

For a version with change data files, these alone count. For every other one, the files it added are inserted rows, those it
removed are deleted rows, and a file that it removed and added again with another deletion vector lost or regained the rows
in which the two vectors differ. If rows were deleted or updated by rewriting files, rows that were only copied are not
changes. Reorganisations (`dataChange` = false) show nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from itertools import chain, groupby, islice, pairwise
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from ...coordinator.times import Moment
from ...storage.actions import Action, AddCDCFile, AddFile, Metadata, RemoveFile, actions_of
from ...storage.actions.filetable import add_rows
from ...storage.actions.uris import key_inside
from ...storage.data.scan import TableScan
from ...storage.data.vectors import Rows, positions_of, read_vector, vector_key
from ...storage.dataclass import dataclass
from ...storage.errors import Corrupt, InvalidRequest, LogGap, MissingObject, ObjectNotFound, SchemaMismatch
from ...storage.log.paths import commit_path
from ...storage.log.timetravel import read_commit
from ...storage.pruning.predicate import Predicate
from ...storage.schema.schema import PrimitiveType, StructField, StructType, parse_schema, to_arrow
from ...storage.stores.objects import ObjectStore
from ..client.address import TableAddress
from ..client.open_table import OpenTable, ReadTable
from ..client.published_table import PublishedTable
from ..write.change_data_files import CHANGE_TYPE, DELETE, INSERT
from .changed_files import ALL, ChangedFiles
from .version_range import VersionRange, range_by_time, range_by_version

COMMIT_VERSION: Final = "_commit_version"
COMMIT_TIMESTAMP: Final = "_commit_timestamp"
CHANGE_COLUMNS: Final = (
    StructField(CHANGE_TYPE, PrimitiveType("string")),
    StructField(COMMIT_VERSION, PrimitiveType("long")),
    StructField(COMMIT_TIMESTAMP, PrimitiveType("timestamp")),
)
"""Columns beside the table's own: the kind of change, its version, and that version's time."""

_NAMES: Final = frozenset(each.name for each in CHANGE_COLUMNS)
# Commits fetched at once, and files per scan: what is in memory besides rows.
_COMMITS: Final = 64
_FILES: Final = 256
_THREADS: Final = 8

_ROW: Final = "row"


def changes(
    table: ReadTable,
    after: Moment,
    up_to: Moment | None = None,
    *,
    by: str = "version",
    columns: Sequence[str] | None = None,
    where: str | Predicate | None = None,
    consistency: str | None = None,
) -> pa.Table:
    """The rows inserted and deleted in the versions of (after, up_to], oldest first, followed by `CHANGE_COLUMNS`.

    By "version", `after` = -1 is before the first one; by "timestamp", both are times and a version counts if
    after < its time <= up_to. `up_to` None is the latest version that `consistency` shows. Rows have the schema of the last
    version; `where` may name the change columns, too. Raises InvalidRequest for an invalid interval, VersionNotFound for
    versions that do not exist (any more), MissingObject if needed data files were cleaned up: both say what is still
    available.
    """
    query = ChangesQuery.of(_span(table, after, up_to, by, consistency), columns, where)
    return pa.concat_tables([query.output.empty_table(), *query.tables()])


def iter_changes(
    table: ReadTable,
    after: Moment,
    up_to: Moment | None = None,
    *,
    by: str = "version",
    columns: Sequence[str] | None = None,
    where: str | Predicate | None = None,
    consistency: str | None = None,
) -> Iterator[pa.RecordBatch]:
    """Like `changes`, as record batches in bounded memory. Missing commits are reported by the call itself."""
    pieces = ChangesQuery.of(_span(table, after, up_to, by, consistency), columns, where).tables()
    return (batch for piece in pieces for batch in piece.to_batches())


@dataclass(frozen=True, slots=True)
class ChangesPart:
    """Some versions of an incremental read. Can be sent to a reader that only needs to reach the object store.

    Of the first version `skipped` files are left out, of the last one those after the first `stop`.
    """

    address: TableAddress
    after: int
    up_to: int
    metadata: Metadata
    versions: range
    skipped: int = 0
    stop: int = ALL.stop

    @property
    def schema(self) -> StructType:
        """The schema of all columns."""
        return changes_schema(parse_schema(self.metadata.schema_string))

    def batches(self, columns: Sequence[str] | None = None, where: str | Predicate | None = None) -> Iterator[pa.RecordBatch]:
        """The rows, like those of `iter_changes`."""
        published = PublishedTable(self.address, self.address.store())
        span = VersionRange(published, self.after, self.up_to, self.metadata, published=True)
        for table in ChangesQuery.of(span, columns, where).tables(self.versions, self._files_of):
            yield from table.to_batches()

    def _files_of(self, version: int) -> range:
        first, last = version == self.versions[0], version == self.versions[-1]
        return range(self.skipped if first else 0, self.stop if last else ALL.stop)


def split_changes(
    table: ReadTable, after: Moment, up_to: Moment | None = None, *, by: str = "version", consistency: str | None = None, parts: int = 1
) -> list[ChangesPart]:
    """An incremental read in up to `parts` pieces, at least one; all of its versions are published when this returns."""
    span = _span(table, after, up_to, by, consistency)
    if isinstance(table, OpenTable) and not span.published:
        table.publish()
    count = max(1, min(parts, len(span.versions)))
    edges = [len(span.versions) * number // count for number in range(count + 1)]
    return [ChangesPart(table.address, span.after, span.up_to, span.metadata, span.versions[a:b]) for a, b in pairwise(edges)]


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
        match each:
            case AddCDCFile():
                yield _Piece(version, time_ms, AddFile(each.path, each.partition_values, each.size, 0, data_change=True), None)
            case RemoveFile() if each.path not in both:
                yield _Piece(version, time_ms, _as_added(each, version), DELETE, copies=changed.copies)
            case RemoveFile():
                if deleted := _listed(store, after[each.path]) - _listed(store, each):
                    yield _Piece(version, time_ms, _as_added(each, version), DELETE, deleted, changed.copies)
            case AddFile() if each.path not in both:
                yield _Piece(version, time_ms, each, INSERT, copies=changed.copies)
            case AddFile():
                if back := _listed(store, before[each.path]) - _listed(store, each):
                    yield _Piece(version, time_ms, each, INSERT, back, changed.copies)


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


def _span(table: ReadTable, after: Moment, up_to: Moment | None, by: str, consistency: str | None) -> VersionRange:
    if by not in ("version", "timestamp"):
        raise InvalidRequest(f"by is {by!r}; use version or timestamp", by=by)
    resolve = range_by_version if by == "version" else range_by_time
    return resolve(table, after, up_to, consistency)


def read_commits(table: ReadTable, versions: range, *, published: bool) -> list[tuple[int, Iterable[Action]]]:
    """Versions with their actions; `published`: from the object store alone. Raises VersionNotFound, which says what exists."""
    if isinstance(table, OpenTable) and not published:
        with suppress(LogGap):  # then only the log is read, which says what exists instead
            return table.log.commits(versions)
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="sluice-changes") as pool:
        contents = list(pool.map(lambda version: read_commit(table.store, version), versions))
    return [(v, actions_of(content, name=commit_path(v))) for v, content in zip(versions, contents, strict=True)]


@dataclass(frozen=True)
class ChangesQuery:
    """One incremental read: its versions, and which of their rows and columns."""

    table: ReadTable
    span: VersionRange
    struct: StructType
    partition_columns: tuple[str, ...]
    output: pa.Schema
    inside: Predicate | None
    """The part of the condition on the table's columns, by which files and row groups are skipped."""
    beside: Predicate | None
    """The part on the change columns."""

    @staticmethod
    def of(span: VersionRange, columns: Sequence[str] | None, where: str | Predicate | None) -> ChangesQuery:
        """The read of these versions. Raises InvalidRequest and PredicateError for columns that the table does not have."""
        struct = parse_schema(span.metadata.schema_string)
        full = changes_schema(struct)
        predicate = where if where is None or isinstance(where, Predicate) else Predicate.parse(where, full)
        inside, beside = (None, None) if predicate is None else predicate.split(struct.names)
        names = [full.named(name).name for name in (struct.names if columns is None else columns)]
        arrow = to_arrow(full)
        output = pa.schema(
            [arrow.field(name) for name in (*dict.fromkeys(n for n in names if n not in _NAMES), *(each.name for each in CHANGE_COLUMNS))]
        )
        return ChangesQuery(span.table, span, struct, span.metadata.partition_columns, output, inside, beside)

    def tables(self, versions: range | None = None, part: Callable[[int], range] = lambda _: ALL) -> Iterator[pa.Table]:
        """The rows, file by file, of all versions or of these; `part` says which files of a version.

        Missing commits are reported by the call, missing files while reading.
        """
        commits = self._commits(self.span.versions if versions is None else versions)
        return self.tables_of(ChangedFiles(version, actions, part(version)) for version, actions in commits)

    def tables_of(self, changed: Iterable[ChangedFiles]) -> Iterator[pa.Table]:
        """The rows, file by file, of versions that were read already."""
        return self._read(piece for each in changed for piece in self._pieces(each))

    def _commits(self, versions: range) -> Iterator[tuple[int, Iterable[Action]]]:
        """The versions with their actions, fetched some at a time; the first ones now, since a cleanup removes the oldest first."""
        windows = [versions[start : start + _COMMITS] for start in range(0, len(versions), _COMMITS)]
        first = [] if not windows else self._fetch(windows[0])
        return chain(first, (commit for window in windows[1:] for commit in self._fetch(window)))

    def _fetch(self, versions: range) -> list[tuple[int, Iterable[Action]]]:
        return read_commits(self.table, versions, published=self.span.published)

    def _pieces(self, changed: ChangedFiles) -> Iterator[_Piece]:
        try:
            yield from _pieces(self.table.store, self.span.time_of(changed.version, changed.actions), changed)
        except MissingObject as gone:  # a deletion vector
            raise self._cleaned_up(changed.version, gone) from gone

    def _read(self, pieces: Iterator[_Piece]) -> Iterator[pa.Table]:
        for version, some in groupby(pieces, key=lambda piece: piece.version if piece.copies else None):
            while window := list(islice(some, _FILES if version is None else None)):
                try:
                    for piece, rows in self._scan(window, self._columns) if version is None else self._without_copies(window):
                        yield self._told(piece, rows)
                except MissingObject as gone:
                    of = next((piece.version for piece in window if piece.file.path == gone.details.get("path")), window[0].version)
                    raise self._cleaned_up(of, gone) from gone
                except Corrupt as unfit:
                    if not isinstance(unfit.__cause__, SchemaMismatch):
                        raise
                    raise InvalidRequest(
                        f"a column's type was changed between the versions {self.span.after} and {self.span.up_to} of "
                        f"{self.table.store.location}: {unfit.__cause__.message}; read the changes before and after that "
                        "version separately",
                        path=unfit.details.get("path"),
                    ) from unfit

    def _scan(self, pieces: Sequence[_Piece], columns: Sequence[str]) -> Iterator[tuple[_Piece, pa.Table]]:
        """The rows of each piece; omits pieces without rows."""
        scan = TableScan(self.table.store, self._stored, self.partition_columns)
        found = scan.positions(add_rows([piece.file for piece in pieces]), columns, self.inside)
        for index, rows, positions in found:
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

    @cached_property
    def _stored(self) -> StructType:
        """The columns to read from files: change data files name the kind of change, in data files that is null."""
        return StructType([*self.struct.fields, CHANGE_COLUMNS[0]])

    @cached_property
    def _columns(self) -> list[str]:
        wanted = [*self.output.names, *(() if self.beside is None else sorted(self.beside.columns))]
        return [*dict.fromkeys(name for name in wanted if name not in _NAMES), CHANGE_TYPE]

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
            f"the changes of version {version} of {self.table.store.location} cannot be read any more: {gone.message}. Files that a "
            f"version removed are kept for delta.deletedFileRetentionDuration; {there}",
            **{**gone.details, "version": version, "complete_after": after},
        )

    def _is_complete(self, version: int) -> bool:
        """Whether every file needed for a version's changes exists."""
        store = self.table.store
        try:
            [(_, actions)] = self._fetch(range(version, version + 1))
            keys = [key for piece in _pieces(store, 0, ChangedFiles(version, actions)) for key in _keys(piece.file, store.location)]
            with ThreadPoolExecutor(_THREADS, thread_name_prefix="sluice-changes") as pool:
                list(pool.map(store.head, keys))
        except (MissingObject, ObjectNotFound):
            return False
        return True


def _keys(file: AddFile, location: str) -> Iterator[str]:
    """The objects with the rows of a file."""
    keys = key_inside(location, file.path), None if file.deletion_vector is None else vector_key(file.deletion_vector, location)
    return (key for key in keys if key is not None)


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
    starts = pc.take(rows.offsets, group)
    place = pc.subtract(pa.array(range(both.num_rows), pa.int64()), starts)
    gone = _per_group(is_deleted, group, len(rows))
    common = pc.take(pc.min_element_wise(gone, pc.subtract(pc.list_value_length(rows), gone)), group)
    # Of a group's d deleted and i inserted rows, the first min(d, i) of each cancel each other.
    ordinal = pc.if_else(is_deleted, place, pc.subtract(place, pc.take(gone, group)))
    left = pc.filter(row, pc.greater_equal(ordinal, common))
    left = left.take(pc.sort_indices(left))
    split = pc.sum(pc.less(left, deleted.num_rows)).as_py() or 0
    return deleted.take(left.slice(0, split)), inserted.take(pc.subtract(left.slice(split), deleted.num_rows))


def _per_group(flags: pa.Array, group: pa.Array, groups: int) -> pa.Array:
    """How many of the flags of each group are set; groups are contiguous."""
    counted = pa.table({"group": group, "n": flags.cast(pa.int64())}).group_by("group", use_threads=False).aggregate([("n", "sum")])
    assert counted.num_rows == groups
    return counted.column("n_sum").combine_chunks()


def _comparable(column: Any) -> Any:
    """A column that Arrow can group by: nested values become texts that are equal exactly if the values are."""
    if not pa.types.is_nested(column.type):
        return column
    return pa.chunked_array(
        [[None if value is None else repr(value) for value in chunk.to_pylist()] for chunk in column.chunks], pa.string()
    )
