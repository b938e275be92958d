"""Reads rows from data files: only the requested files, row groups and columns, and no deleted rows."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import partial
from itertools import accumulate, chain, islice, repeat
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from ..actions.features import RowIdColumns, with_row_ids
from ..actions.records import DeletionVector
from ..actions.uris import object_at
from ..caches import threads
from ..dataclass import dataclass
from ..errors import Corrupt, InvalidRequest, MissingObject, ObjectNotFound, SchemaMismatch
from ..schema.conform import adapt
from ..schema.datatypes import PrimitiveType, StructField, StructType
from ..schema.mapping import as_in_table, is_found_by_id, is_mapped, named_as, physical, physical_name, physical_names
from ..schema.partitions import decode_column, partition_texts
from ..schema.schema import to_arrow
from ..stores.objects import ObjectStore
from ..stores.streams import arrow_input
from .vectors import Rows, positions_of, read_vector

if TYPE_CHECKING:
    from ..pruning.predicate import Predicate

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
    is_large: bool  # worth several requests and threads
    values: Sequence[pa.Array]
    vector: DeletionVector | None = None
    deleted: Rows | None = None
    base_row_id: int | None = None
    commit_version: int | None = None


class OpenFile(NamedTuple):
    """A file's bytes and its deleted rows."""

    source: pa.NativeFile
    deleted: Rows | None


class FileRows(NamedTuple):
    """Rows of the result and their positions in the file (int64, from 0), None unless requested."""

    rows: pa.Table
    positions: pa.Array | None


@dataclass(frozen=True, slots=True)
class FileReader:
    """How a scan reads its files. `schema` has the columns to read, including the predicate's, partition columns last."""

    store: ObjectStore
    schema: StructType
    stored: StructType  # the part of `schema` in the files, under its names there
    partition_fields: Sequence[StructField]
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
        store, key = object_at(self.store, job.path)
        try:
            if not job.is_large and not store.location.startswith("file:"):
                return OpenFile(pa.BufferReader(store.get(key)), deleted)
            return OpenFile(arrow_input(store.open_input(key)), deleted)
        except ObjectNotFound as cause:
            at = "" if self.version is None else f" of version {self.version}"
            raise MissingObject(
                f"data file {job.path!r}{at} of {self.store.location} is gone; restore it, or read a version that does not need it",
                path=job.path,
                version=self.version,
                location=self.store.location,
            ) from cause

    def read(self, job: Job, *, positions: bool = False) -> FileRows:
        """The rows of one file."""
        opened = self.open(job)
        with opened.source, _decoding(job.path):
            file, names, groups, spans = self._begin(job, opened)
            stored = file.read(names, use_threads=job.is_large) if groups is None else file.read_row_groups(groups, names)
            return self._finish(job, stored, spans, opened.deleted, positions=positions)

    def batches(self, job: Job, opened: OpenFile, *, positions: bool = False) -> Iterator[FileRows]:
        """The rows of one file in pieces."""
        with _decoding(job.path):
            file, names, groups, spans = self._begin(job, opened)
            chosen = range(file.num_row_groups) if groups is None else groups
            # One row group at a time, since Arrow fetches ahead everything requested at once.
            for group, span in zip(chosen, spans, strict=True):
                if names:
                    start = span.start
                    for batch in file.iter_batches(_BATCH_ROWS, row_groups=[group], columns=names, use_threads=job.is_large):
                        piece = range(start, start + batch.num_rows)
                        start = piece.stop
                        yield self._finish(job, batch, [piece], opened.deleted, positions=positions)
                else:
                    yield self._finish(job, None, [span], opened.deleted, positions=positions)

    def _begin(self, job: Job, opened: OpenFile) -> tuple[pq.ParquetFile, list[str], list[int] | None, list[range]]:
        """The file, the needed columns' names in it, the row groups to read (None for all), and the positions of their rows."""
        file = _parquet(opened.source)
        num_rows, deleted = file.metadata.num_rows, opened.deleted
        if deleted and deleted.max() >= num_rows:
            raise Corrupt(
                f"the deletion vector of data file {job.path!r} hides row {deleted.max()}, but the file has {num_rows} rows; "
                "one of the two belongs to another file, restore them from a copy",
                path=job.path,
            )
        own = file.schema_arrow.names
        in_table = as_in_table(file.schema_arrow, self.stored).names if is_found_by_id(self.stored) else own
        present = {name.lower(): spelled for name, spelled in zip(in_table, own, strict=True)}
        names = [present[lowered] for each in self.stored.fields if (lowered := each.name.lower()) in present]
        groups = self._row_groups(job, file, opened.source)
        ends = list(accumulate([file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)]))
        spans = [range(start, end) for start, end in zip([0, *ends], ends, strict=False)]
        return file, names, groups, spans if groups is None else [spans[group] for group in groups]

    def _row_groups(self, job: Job, file: pq.ParquetFile, source: pa.NativeFile) -> list[int] | None:
        """The row groups that may have rows of the result, in the file's order; None for all."""
        if self.predicate is None or file.num_row_groups <= 1:
            return None
        in_file = file.schema_arrow
        if is_found_by_id(self.stored) and as_in_table(in_file, self.stored).names != in_file.names:
            return None
        predicate, struct = self.predicate.physical(self.schema), physical(self.schema)
        partitions = physical_names(self.schema, [each.name for each in self.partition_fields])
        fields = {each.name: each for each in to_arrow(struct)}
        for name in predicate.columns:
            index = in_file.get_field_index(name)
            # Only if the file has the table's type, and never by floats: Parquet's bounds omit NaN, which SQL calls the
            # largest number.
            is_stored = name not in partitions
            if is_stored and (index < 0 or in_file.field(index).type != fields[name].type or pa.types.is_floating(fields[name].type)):
                return None
        source.seek(0)
        guarantee = pc.scalar(True)
        for name, value in zip(partitions, job.values, strict=True):
            reference = pc.field(name)
            guarantee = guarantee & (reference.is_null() if value.null_count else reference == value[0])
        fragment = _FORMAT.make_fragment(source, partition_expression=guarantee)
        schema = pa.schema([fields[name] for name in sorted(predicate.columns)])
        try:
            kept = fragment.subset(filter=predicate.to_arrow(), schema=schema).row_groups
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            return None  # such as a division by zero: reading the rows raises it with the predicate's own message
        return sorted(group.id for group in kept)

    def _finish(
        self, job: Job, stored: pa.Table | pa.RecordBatch | None, spans: Iterable[range], deleted: Rows | None, *, positions: bool = False
    ) -> FileRows:
        """Columns in the table's types, with partition columns; only rows and columns of the result.

        `spans` are the positions of the rows in `stored`. Deleted rows are removed first, so that the predicate cannot fail on them.
        """
        num_rows = sum(map(len, spans))
        live: pa.Array | None = None
        positions = positions or self.row_ids is not None
        if deleted or positions:
            present = Rows()
            for span in spans:
                present |= Rows(span)
            hidden = present & deleted if deleted else Rows()
            if hidden and stored is not None and stored.num_columns:
                stored = stored.filter(pc.invert(pc.is_in(positions_of(present), value_set=positions_of(hidden))))
            num_rows -= len(hidden)
            live = positions_of(present - hidden) if positions else None
        columns: list[Any] = []
        if stored is not None and stored.num_columns:
            columns += (self._logical(stored) if is_mapped(self.schema) else adapt(stored, self.stored)).columns
        else:
            columns += [pa.nulls(num_rows, each.type) for each in list(to_arrow(self.schema))[: len(self.stored.fields)]]
        columns += [pa.repeat(value[0], num_rows) for value in job.values]
        # Without any columns, a placeholder keeps the number of rows, which is the result.
        table = pa.Table.from_arrays(columns, schema=to_arrow(self.schema)) if columns else pa.table({"": pa.nulls(num_rows)})
        if self.row_ids is not None:
            table = self.row_ids.filled(table, live, job.base_row_id, job.commit_version)
        if self.predicate is not None:
            mask = self.predicate.mask(table)
            table = table.filter(mask)
            live = None if live is None else live.filter(mask)
        return FileRows(table.select(self.output.names), live)

    def _logical(self, stored: pa.Table | pa.RecordBatch) -> pa.Table:
        """Columns of a file in the table's types, under the table's names."""
        table = stored if isinstance(stored, pa.Table) else pa.Table.from_batches([stored])
        if is_found_by_id(self.stored):
            table = named_as(table, as_in_table(table.schema, self.stored))
        return named_as(adapt(table, self.stored), pa.schema(list(to_arrow(self.schema))[: len(self.stored.fields)]))


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


_THREADS: Final = 4
# Partition values are decoded for this many files at a time.
_JOBS_AT_ONCE: Final = 4096
_THREAD_NAME: Final = "sluice-scan"
_NOTHING: Final[Mapping[str, Rows]] = {}

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class TableScan:
    """Reads rows of a table's files, in the table's `schema`; errors name the `version` whose files they are.

    With `row_ids` there are two more columns, under these names: the rows' ids, and the versions that inserted or last updated them.

    The methods take files of a snapshot, the wanted `columns` (None: all) and a condition. `chosen` says that the files were
    already filtered by the predicate. They raise MissingObject, naming path and version, if a file is gone, and
    InvalidRequest for an unknown column.
    """

    store: ObjectStore
    schema: StructType
    partition_columns: Sequence[str]
    version: int | None = None
    row_ids: RowIdColumns | None = None

    def read(
        self, files: pa.Table, columns: Sequence[str] | None = None, predicate: Predicate | None = None, *, chosen: bool = False
    ) -> pa.Table:
        """The rows as one table of exactly `to_arrow` of the columns; those that a file lacks are null.

        Rows come in the order of the files, and within a file in its order, without deleted rows.
        """
        reader = self._reader(columns, predicate)
        with closing(_ahead(self._jobs(reader, files, chosen), reader.read, lambda _: None)) as ahead:
            tables = [batch.rows for _, batch in ahead]
        if not reader.output.names:
            # concat_tables would lose the row count of tables without columns.
            return pa.table({"": pa.nulls(sum(table.num_rows for table in tables))}).select([])
        return pa.concat_tables(tables) if tables else reader.output.empty_table()

    def batches(
        self, files: pa.Table, columns: Sequence[str] | None = None, predicate: Predicate | None = None, *, chosen: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """Like `read`, as record batches in bounded memory; a few files are opened ahead."""
        reader = self._reader(columns, predicate)
        with closing(_ahead(self._jobs(reader, files, chosen), reader.open, _close)) as ahead:
            for job, opened in ahead:
                with opened.source:
                    for batch in reader.batches(job, opened):
                        yield from batch.rows.to_batches()

    def positions(
        self,
        files: pa.Table,
        columns: Sequence[str] | None = None,
        predicate: Predicate | None = None,
        *,
        chosen: bool = False,
        deleted: Mapping[str, Rows] = _NOTHING,
        in_pieces: bool = False,
    ) -> Iterator[tuple[int, pa.Table, pa.Array]]:
        """File by file, in the order of `files`: its row in `files`, its rows as in `read`, and their positions (int64).

        A position counts the file's own rows from 0, including deleted ones and those that do not satisfy the predicate. Files that cannot
        have rows of the result are omitted. `deleted[path]`, if given, replaces the file's own deletion vector. A few files are read ahead.
        `in_pieces`: in bounded memory, each file in pieces, some of which may have no rows.
        """
        reader = self._reader(columns, predicate)
        jobs = self._jobs(reader, files, chosen, deleted)
        if in_pieces:
            with closing(_ahead(jobs, reader.open, _close)) as ahead:
                for job, opened in ahead:
                    with opened.source:
                        for rows, positions in reader.batches(job, opened, positions=True):
                            yield job.index, rows, positions
        else:
            with closing(_ahead(jobs, partial(reader.read, positions=True), lambda _: None)) as read:
                for job, (rows, positions) in read:
                    yield job.index, rows, positions

    def _reader(self, columns: Sequence[str] | None, predicate: Predicate | None) -> FileReader:
        ids, partitioned = self.row_ids, self.partition_columns
        schema = with_row_ids(self.schema, ids)
        if isinstance(columns, str | bytes) or not isinstance(columns, Iterable | None):
            raise InvalidRequest(f"columns is {columns!r}; give a list of names", columns=columns)
        chosen = schema.names if columns is None else [schema.named(name).name for name in columns]
        needed = frozenset(chosen) | (frozenset() if predicate is None else predicate.columns)
        stored = StructType([each for each in schema.fields if each.name in needed and each.name not in partitioned])
        partitions = [each for each in schema.fields if each.name in needed and each.name in partitioned]
        output = pa.schema([to_arrow(schema).field(name) for name in chosen])
        both = StructType([*stored.fields, *partitions])
        ids = None if ids is None or needed.isdisjoint(ids.names) else ids
        return FileReader(self.store, both, physical(stored), partitions, output, predicate, self.version, ids)

    def _jobs(self, reader: FileReader, files: pa.Table, chosen: bool, deleted: Mapping[str, Rows] = _NOTHING) -> Iterator[Job]:
        """The files that may have rows of the result; partition values are decoded for several files at a time."""
        indices: Sequence[int] = range(files.num_rows)
        if reader.predicate is not None and files.num_rows and not chosen:
            kept = reader.predicate.may_match(files, schema=self.schema, partition_columns=self.partition_columns)
            files = files.filter(kept)
            indices = pc.indices_nonzero(kept).to_pylist()
        fields = reader.partition_fields
        for start in range(0, files.num_rows, _JOBS_AT_ONCE):
            part = files.slice(start, _JOBS_AT_ONCE)
            texts = partition_texts(part.column("partition_values"), [physical_name(each) for each in fields]) if fields else []
            decoded = [decode_column(column, cast(PrimitiveType, field.type)) for column, field in zip(texts, fields, strict=True)]
            has_vectors = "deletion_vector" in part.column_names and part["deletion_vector"].null_count < part.num_rows
            vectors = part["deletion_vector"].to_pylist() if has_vectors else repeat(None)
            ids = ("base_row_id", "default_row_commit_version") if reader.row_ids is not None else ()
            described = zip(*[part.column(name).to_pylist() for name in ("path", "size", *ids)], strict=True)
            for row, ((path, size, *defaults), fields_of_vector) in enumerate(zip(described, vectors, strict=False)):
                values = [column.slice(row, 1) for column in decoded]
                vector = None if fields_of_vector is None else DeletionVector(**fields_of_vector)
                yield Job(indices[start + row], path, size > _WHOLE_BYTES, values, vector, deleted.get(path), *defaults)


def _parquet(source: pa.NativeFile) -> pq.ParquetFile:
    # Fetch ahead if fetching means waiting for a server.
    return pq.ParquetFile(source, coerce_int96_timestamp_unit="us", pre_buffer=isinstance(source, pa.PythonFile))


def _close(opened: OpenFile) -> None:
    opened.source.close()


def _ahead(jobs: Iterator[Job], run: Callable[[Job], _T], drop: Callable[[_T], None]) -> Generator[tuple[Job, _T]]:
    """The results of `run` for each job, in order; a few run ahead in threads, and `drop` gets those no longer needed."""
    first = list(islice(jobs, 2))
    if len(first) <= 1:
        for job in first:
            yield job, run(job)
        return
    with threads(_THREADS, _THREAD_NAME) as pool:
        waiting = chain(first, jobs)
        ahead = deque([(job, pool.submit(run, job)) for job in islice(waiting, _THREADS)])
        try:
            while ahead:
                job, result = ahead.popleft()
                made = result.result()
                ahead.extend((following, pool.submit(run, following)) for following in islice(waiting, 1))
                yield job, made
        finally:
            for _, result in ahead:
                if not result.cancel():
                    result.add_done_callback(lambda done: drop(done.result()) if done.exception() is None else None)
