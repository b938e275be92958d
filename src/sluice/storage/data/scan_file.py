"""Reads one data file: only the requested row groups and columns, and no deleted rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from ..actions.records import DeletionVector
from ..actions.uris import object_at
from ..dataclass import dataclass
from ..errors import Corrupt, MissingObject, ObjectNotFound, SchemaMismatch
from ..schema.conform import adapt
from ..schema.datatypes import StructField, StructType
from ..schema.schema import to_arrow
from ..stores.arrow_input import arrow_input
from ..stores.objects import ObjectStore
from .vectors import Rows, positions_of, read_vector

if TYPE_CHECKING:
    from ..pruning.predicate import Predicate
    from .row_ids import RowIdColumns

# Objects up to this size are fetched as a whole: one request instead of three.
_WHOLE_BYTES: Final = 4 * 1024 * 1024
_BATCH_ROWS: Final = 64 * 1024
_FORMAT: Final = ds.ParquetFileFormat()


@dataclass(frozen=True, slots=True)
class Job:
    """One file to read: row `index` of the requested files.

    `values` are those of the needed partition columns, as arrays of one value; `deleted`, if given, replaces `vector`. Rows that
    carry no id get theirs from `base_row_id` and `commit_version`.
    """

    index: int
    path: str
    size: int
    values: tuple[pa.Array, ...]
    vector: DeletionVector | None = None
    deleted: Rows | None = None
    base_row_id: int | None = None
    commit_version: int | None = None

    @property
    def is_large(self) -> bool:
        """Whether the file is worth several requests and threads."""
        return self.size > _WHOLE_BYTES


@dataclass(frozen=True, slots=True)
class OpenFile:
    """A file's bytes and its deleted rows."""

    source: pa.NativeFile
    deleted: Rows | None

    def close(self) -> None:
        """Close the file."""
        self.source.close()


class FileRows(NamedTuple):
    """Rows of the result and their positions in the file (int64, from 0), None unless requested."""

    rows: pa.Table
    positions: pa.Array | None


@dataclass(frozen=True, slots=True)
class FileReader:
    """How a scan reads its files. `schema` has the columns to read, including the predicate's, partition columns last."""

    store: ObjectStore
    schema: StructType
    stored: StructType  # the part of `schema` in the files
    partition_fields: tuple[StructField, ...]
    output: pa.Schema
    predicate: Predicate | None
    version: int | None
    row_ids: RowIdColumns | None = None  # if their columns are among those to read

    def open(self, job: Job) -> OpenFile:
        """The file's bytes and its deletion vector. Raises MissingObject, and UnsupportedFeature if sluice cannot reach it."""
        # The vector first, so that nothing is left open if it cannot be read.
        deleted = job.deleted
        if deleted is None and job.vector is not None:
            deleted = read_vector(self.store, job.vector)
        return OpenFile(self._source(job), deleted)

    def _source(self, job: Job) -> pa.NativeFile:
        store, key = object_at(self.store, job.path)
        try:
            if not job.is_large and not store.location.startswith("file:"):
                return pa.BufferReader(store.get(key))
            return arrow_input(store.open_input(key))
        except ObjectNotFound as cause:
            at = "" if self.version is None else f" of version {self.version}"
            raise MissingObject(
                f"data file {job.path!r}{at} of {self.store.location} is gone; restore it, or read a version that does not need it",
                path=job.path,
                version=self.version,
                location=self.store.location,
            ) from cause

    def read(self, job: Job, opened: OpenFile, *, positions: bool = False) -> FileRows:
        """The rows of one file."""
        with _decoding(job.path):
            file = _parquet(opened.source)
            deleted = _checked(job, opened.deleted, file)
            names = self._names(file)
            groups = self._row_groups(job, file, opened.source)
            spans = _spans(file, groups)
            stored = file.read(names, use_threads=job.is_large) if groups is None else file.read_row_groups(groups, names)
            return self._finish(job, stored, spans, deleted, positions=positions)

    def batches(self, job: Job, opened: OpenFile, *, positions: bool = False) -> Iterator[FileRows]:
        """The rows of one file in pieces."""
        with _decoding(job.path):
            file = _parquet(opened.source)
            deleted = _checked(job, opened.deleted, file)
            names = self._names(file)
            groups = self._row_groups(job, file, opened.source)
            chosen = range(file.num_row_groups) if groups is None else groups
            # One row group at a time, since Arrow fetches ahead everything requested at once.
            for group, span in zip(chosen, _spans(file, groups), strict=True):
                if names:
                    start = span.start
                    for batch in file.iter_batches(_BATCH_ROWS, row_groups=[group], columns=names, use_threads=job.is_large):
                        piece = range(start, start + batch.num_rows)
                        start = piece.stop
                        yield self._finish(job, batch, [piece], deleted, positions=positions)
                else:
                    yield self._finish(job, None, [span], deleted, positions=positions)

    def _names(self, file: pq.ParquetFile) -> list[str]:
        """The needed columns' names in the file."""
        present = {name.lower(): name for name in file.schema_arrow.names}
        return [present[lowered] for each in self.stored.fields if (lowered := each.name.lower()) in present]

    def _row_groups(self, job: Job, file: pq.ParquetFile, source: pa.NativeFile) -> list[int] | None:
        """The row groups that may have rows of the result, in the file's order; None for all."""
        if self.predicate is None or file.num_row_groups <= 1:
            return None
        physical = file.schema_arrow
        partitions = {each.name for each in self.partition_fields}
        fields = {each.name: each for each in to_arrow(self.schema)}
        for name in self.predicate.columns:
            index = physical.get_field_index(name)
            # Only if the file has the table's type, and never by floats: Parquet's bounds omit NaN, which SQL calls the
            # largest number.
            is_stored = name not in partitions
            if is_stored and (index < 0 or physical.field(index).type != fields[name].type or pa.types.is_floating(fields[name].type)):
                return None
        source.seek(0)
        fragment = _FORMAT.make_fragment(source, partition_expression=self._guarantee(job))
        schema = pa.schema([fields[name] for name in sorted(self.predicate.columns)])
        try:
            kept = fragment.subset(filter=self.predicate.to_arrow(), schema=schema).row_groups
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            return None  # such as a division by zero: reading the rows raises it with the predicate's own message
        return sorted(group.id for group in kept)

    def _guarantee(self, job: Job) -> pc.Expression:
        known = pc.scalar(True)
        for field, value in zip(self.partition_fields, job.values, strict=True):
            reference = pc.field(field.name)
            known = known & (reference.is_null() if value.null_count else reference == value[0])
        return known

    def _finish(
        self,
        job: Job,
        stored: pa.Table | pa.RecordBatch | None,
        spans: Iterable[range],
        deleted: Rows | None,
        *,
        positions: bool = False,
    ) -> FileRows:
        """Columns in the table's types, with partition columns; only rows and columns of the result.

        `spans` are the positions of the rows in `stored`. Deleted rows are removed first, so that the predicate cannot fail
        on them.
        """
        num_rows = sum(map(len, spans))
        live: pa.Array | None = None
        positions = positions or self.row_ids is not None
        if deleted is not None or positions:
            present = Rows()
            for span in spans:
                present |= Rows(span)
            hidden = Rows() if deleted is None else present & deleted
            if hidden and stored is not None and stored.num_columns:
                stored = stored.filter(pc.invert(pc.is_in(positions_of(present), value_set=positions_of(hidden))))
            num_rows -= len(hidden)
            live = positions_of(present - hidden) if positions else None
        table = self._table(job, stored, num_rows)
        if self.row_ids is not None:
            table = self.row_ids.filled(table, live, job.base_row_id, job.commit_version)
        if self.predicate is not None:
            mask = self.predicate.mask(table)
            table = table.filter(mask)
            live = None if live is None else live.filter(mask)
        return FileRows(table.select(self.output.names), live)

    def _table(self, job: Job, stored: pa.Table | pa.RecordBatch | None, num_rows: int) -> pa.Table:
        columns: list[Any] = []
        if self.stored.fields:
            has_columns = stored is not None and stored.num_columns
            columns += adapt(stored, self.stored).columns if has_columns else _nulls(self.stored, num_rows)
        columns += [pa.repeat(value[0], num_rows) for value in job.values]
        # Without any columns, a placeholder keeps the number of rows, which is the result.
        return pa.Table.from_arrays(columns, schema=to_arrow(self.schema)) if columns else pa.table({"": pa.nulls(num_rows)})


@contextmanager
def _decoding(path: str) -> Iterator[None]:
    """Name the file in errors about malformed bytes or columns that do not fit the table."""
    try:
        yield
    except SchemaMismatch as cause:
        raise Corrupt(
            f"data file {path!r} does not fit the table: {cause.message}", path=path, column=cause.details.get("column")
        ) from cause
    except (pa.ArrowInvalid, OSError) as cause:
        if isinstance(cause, OSError) and cause.errno is not None:
            raise  # not the file's fault
        raise Corrupt(f"data file {path!r} cannot be read: {cause}; restore it from a copy", path=path) from cause


def _parquet(source: pa.NativeFile) -> pq.ParquetFile:
    # Fetch ahead if fetching means waiting for a server.
    return pq.ParquetFile(source, coerce_int96_timestamp_unit="us", pre_buffer=isinstance(source, pa.PythonFile))


def _checked(job: Job, deleted: Rows | None, file: pq.ParquetFile) -> Rows | None:
    """The deleted rows, None if there are none; all of them must be rows of the file."""
    if not deleted:
        return None
    if deleted.max() >= file.metadata.num_rows:
        raise Corrupt(
            f"the deletion vector of data file {job.path!r} hides row {deleted.max()}, but the file has {file.metadata.num_rows} rows; "
            "one of the two belongs to another file, restore them from a copy",
            path=job.path,
        )
    return deleted


def _spans(file: pq.ParquetFile, groups: list[int] | None) -> list[range]:
    """The positions of the rows in the given row groups, or in all."""
    spans: list[range] = []
    start = 0
    for group in range(file.num_row_groups):
        spans.append(range(start, start + file.metadata.row_group(group).num_rows))
        start = spans[-1].stop
    return spans if groups is None else [spans[group] for group in groups]


def _nulls(schema: StructType, num_rows: int) -> list[pa.Array]:
    return [pa.nulls(num_rows, each.type) for each in to_arrow(schema)]
