"""Rows read back from data files: only the files, row groups and columns that are asked for."""

from __future__ import annotations

import io
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from .conform import adapt
from .datatypes import PrimitiveType, StructField, StructType
from .errors import Corrupt, InvalidRequest, MissingObject, ObjectNotFound, SchemaMismatch, UnsupportedFeature
from .objects import ObjectStore
from .partitions import decode_column, uri_to_path
from .schema import to_arrow

if TYPE_CHECKING:
    from .predicate import Predicate

__all__ = ["iter_files", "read_files"]

_THREADS: Final = 4
# Objects up to this size are fetched whole: one request instead of three.
_WHOLE_BYTES: Final = 4 * 1024 * 1024
_BATCH_ROWS: Final = 64 * 1024
_FORMAT: Final = ds.ParquetFileFormat()


def read_files(
    store: ObjectStore,
    files: pa.Table,
    *,
    schema: StructType,
    partition_columns: Sequence[str],
    columns: Sequence[str] | None = None,
    predicate: Predicate | None = None,
    version: int | None = None,
) -> pa.Table:
    """The rows of a snapshot's `files` as one table of exactly `to_arrow` of the asked `columns` (all when None).

    Rows come in the order of the files, and within a file in its order. Columns a file lacks are null. Raises MissingObject, naming the
    path and `version`, when a file is gone, and InvalidRequest for an unknown column.
    """
    scan = _Scan.of(store, schema, partition_columns, columns, predicate, version)
    jobs = scan.jobs(files)
    if len(jobs) <= 1:
        tables = [scan.read(job) for job in jobs]
    else:
        with ThreadPoolExecutor(min(_THREADS, len(jobs)), thread_name_prefix="sluice-scan") as pool:
            tables = list(pool.map(scan.read, jobs))
    if not scan.output.names:
        # concat_tables would count no rows.
        return pa.table({"": pa.nulls(sum(table.num_rows for table in tables))}).select([])
    return pa.concat_tables(tables) if tables else scan.output.empty_table()


def iter_files(
    store: ObjectStore,
    files: pa.Table,
    *,
    schema: StructType,
    partition_columns: Sequence[str],
    columns: Sequence[str] | None = None,
    predicate: Predicate | None = None,
    version: int | None = None,
) -> Iterator[pa.RecordBatch]:
    """Like `read_files`, as record batches in bounded memory; a few files are opened ahead."""
    scan = _Scan.of(store, schema, partition_columns, columns, predicate, version)
    jobs = scan.jobs(files)
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="sluice-scan") as pool:
        waiting = iter(jobs)
        ahead = deque((job, pool.submit(scan.open, job)) for job in islice(waiting, _THREADS))
        try:
            while ahead:
                job, source = ahead.popleft()
                with source.result() as opened:
                    ahead.extend((following, pool.submit(scan.open, following)) for following in islice(waiting, 1))
                    for table in scan.batches(job, opened):
                        yield from table.to_batches()
        finally:
            for _, source in ahead:
                if not source.cancel() and source.exception() is None:
                    source.result().close()


@dataclass(frozen=True, slots=True)
class _Job:
    """One file to read; `values` are those of the partition columns that are needed, as arrays of one value."""

    path: str
    size: int
    values: tuple[pa.Array, ...]

    @property
    def is_large(self) -> bool:
        """Whether it is worth several requests, and several threads."""
        return self.size > _WHOLE_BYTES


@dataclass(frozen=True, slots=True)
class _Scan:
    store: ObjectStore
    schema: StructType  # what is read, the predicate's columns included; partition columns last
    stored: StructType  # the part of it that is in files
    partition_fields: tuple[StructField, ...]
    output: pa.Schema
    table_schema: StructType
    partition_columns: tuple[str, ...]
    predicate: Predicate | None
    version: int | None

    @staticmethod
    def of(
        store: ObjectStore,
        schema: StructType,
        partition_columns: Sequence[str],
        columns: Sequence[str] | None,
        predicate: Predicate | None,
        version: int | None,
    ) -> _Scan:
        wanted = [each.name for each in schema.fields] if columns is None else [_resolve(name, schema).name for name in columns]
        needed = frozenset(wanted) | (frozenset() if predicate is None else predicate.columns)
        stored = StructType(each for each in schema.fields if each.name in needed and each.name not in partition_columns)
        partitions = tuple(each for each in schema.fields if each.name in needed and each.name in partition_columns)
        output = pa.schema([to_arrow(schema).field(name) for name in wanted])
        return _Scan(
            store,
            StructType([*stored.fields, *partitions]),
            stored,
            partitions,
            output,
            schema,
            tuple(partition_columns),
            predicate,
            version,
        )

    def jobs(self, files: pa.Table) -> list[_Job]:
        """The files that may hold rows of the answer."""
        if self.predicate is not None and files.num_rows:
            files = files.filter(self.predicate.may_match(files, schema=self.table_schema, partition_columns=self.partition_columns))
        if "deletion_vector" in files.column_names and files.column("deletion_vector").null_count < files.num_rows:
            raise UnsupportedFeature(
                "a file of the table has a deletion vector, which this sluice does not apply; rewrite the table without them",
                features=("deletionVectors",),
                access="read",
            )
        decoded = [self._decode(files, each) for each in self.partition_fields]
        paths, sizes = files.column("path").to_pylist(), files.column("size").to_pylist()
        return [
            _Job(path, size, tuple(values.slice(row, 1) for values in decoded))
            for row, (path, size) in enumerate(zip(paths, sizes, strict=True))
        ]

    def _decode(self, files: pa.Table, field: StructField) -> pa.Array:
        texts = _combined(pc.map_lookup(files.column("partition_values"), field.name, "first"))
        assert isinstance(field.type, PrimitiveType)
        return decode_column(texts, field.type)

    def open(self, job: _Job) -> pa.NativeFile:
        """The file's bytes. Raises MissingObject."""
        key = self._key(job.path)
        try:
            if not job.is_large and not self.store.location.startswith("file:"):
                return pa.BufferReader(self.store.get(key))
            stream = self.store.open_input(key)
            if isinstance(stream, io.BufferedReader | io.FileIO) and isinstance(stream.name, str):
                # A plain local file: Arrow reads it without coming back to Python.
                with stream:
                    return pa.OSFile(stream.name)
        except (ObjectNotFound, FileNotFoundError) as cause:
            at = "" if self.version is None else f" of version {self.version}"
            raise MissingObject(
                f"data file {job.path!r}{at} of {self.store.location} is gone; restore it, or read a version that does not need it",
                path=job.path,
                version=self.version,
                location=self.store.location,
            ) from cause
        return pa.PythonFile(stream, mode="r")

    def _key(self, path: str) -> str:
        key = uri_to_path(path)
        if "://" not in path and not path.startswith(("/", "file:")):
            return key
        root = uri_to_path(self.store.location) + "/"
        if key.startswith(root):
            return key[len(root) :]
        raise UnsupportedFeature(
            f"data file {path!r} lies outside of the table at {self.store.location}, as in a shallow clone; copy the table to read it",
            features=("absolute paths",),
            access="read",
        )

    def read(self, job: _Job) -> pa.Table:
        """The rows of one file."""
        with self.open(job) as source, _decoding(job.path):
            file = _parquet(source)
            names = self._names(file)
            groups = self._row_groups(job, file, source)
            if groups is None:
                return self._finish(job, file.read(names, use_threads=job.is_large), file.metadata.num_rows)
            rows = sum(file.metadata.row_group(group).num_rows for group in groups)
            return self._finish(job, file.read_row_groups(groups, names), rows)

    def batches(self, job: _Job, source: pa.NativeFile) -> Iterator[pa.Table]:
        """The rows of one open file, piece by piece."""
        with _decoding(job.path):
            file = _parquet(source)
            names = self._names(file)
            groups = self._row_groups(job, file, source)
            # One row group after the other: what Arrow fetches ahead is all that it is asked for at once.
            for group in range(file.num_row_groups) if groups is None else groups:
                if names:
                    for batch in file.iter_batches(_BATCH_ROWS, row_groups=[group], columns=names, use_threads=job.is_large):
                        yield self._finish(job, batch, batch.num_rows)
                else:
                    yield self._finish(job, None, file.metadata.row_group(group).num_rows)

    def _names(self, file: pq.ParquetFile) -> list[str]:
        """What the needed columns are called in the file."""
        present = {name.lower(): name for name in file.schema_arrow.names}
        return [present[lowered] for each in self.stored.fields if (lowered := each.name.lower()) in present]

    def _row_groups(self, job: _Job, file: pq.ParquetFile, source: pa.NativeFile) -> list[int] | None:
        """The row groups that may hold rows of the answer; None for all."""
        if self.predicate is None or file.num_row_groups <= 1:
            return None
        physical = file.schema_arrow
        fields = {each.name: each for each in to_arrow(self.schema)}
        for name in self.predicate.columns:
            index = physical.get_field_index(name)
            # Only where the file has the table's type, and never by floats: Parquet's bounds leave NaN out, SQL calls it the largest.
            is_stored = name not in self.partition_columns
            if is_stored and (index < 0 or physical.field(index).type != fields[name].type or pa.types.is_floating(fields[name].type)):
                return None
        source.seek(0)
        fragment = _FORMAT.make_fragment(source, partition_expression=self._guarantee(job))
        schema = pa.schema([fields[name] for name in sorted(self.predicate.columns)])
        try:
            kept = fragment.subset(filter=self.predicate.to_arrow(), schema=schema).row_groups
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            return None  # such as a division by zero: the rows will tell, in the predicate's own words
        return sorted(group.id for group in kept)

    def _guarantee(self, job: _Job) -> pc.Expression:
        known = pc.scalar(True)
        for field, value in zip(self.partition_fields, job.values, strict=True):
            reference = pc.field(field.name)
            known = known & (reference.is_null() if value.null_count else reference == value[0])
        return known

    def _finish(self, job: _Job, stored: pa.Table | pa.RecordBatch | None, num_rows: int) -> pa.Table:
        """Columns in the table's types, partition columns beside them, only rows and columns of the answer."""
        columns: list[Any] = []
        if stored is not None and self.stored.fields:
            columns += adapt(stored, self.stored).columns if stored.num_columns else _nulls(self.stored, num_rows)
        elif self.stored.fields:
            columns += _nulls(self.stored, num_rows)
        columns += [pa.repeat(value[0], num_rows) for value in job.values]
        # Without any column a placeholder keeps the count of the rows, which is what is asked for.
        table = pa.Table.from_arrays(columns, schema=to_arrow(self.schema)) if columns else pa.table({"": pa.nulls(num_rows)})
        if self.predicate is not None:
            table = table.filter(self.predicate.mask(table))
        return table.select(self.output.names)


@contextmanager
def _decoding(path: str) -> Iterator[None]:
    """Name the file whose bytes make no sense."""
    try:
        yield
    except (pa.ArrowInvalid, SchemaMismatch, OSError) as cause:
        if isinstance(cause, OSError) and cause.errno is not None:
            raise  # the machine's trouble, not the file's
        raise Corrupt(f"data file {path!r} cannot be read: {cause}; restore it from a copy", path=path) from cause


def _parquet(source: pa.NativeFile) -> pq.ParquetFile:
    # Fetched ahead where fetching means waiting for a server.
    return pq.ParquetFile(source, coerce_int96_timestamp_unit="us", pre_buffer=isinstance(source, pa.PythonFile))


def _nulls(schema: StructType, num_rows: int) -> list[pa.Array]:
    return [pa.nulls(num_rows, each.type) for each in to_arrow(schema)]


def _combined(column: Any) -> pa.Array:
    if not isinstance(column, pa.ChunkedArray):
        return column
    whole = column.combine_chunks()
    return pa.concat_arrays(whole.chunks) if isinstance(whole, pa.ChunkedArray) else whole


def _resolve(name: str, schema: StructType) -> StructField:
    found = schema.get(name)
    if found is None:
        raise InvalidRequest(f"column {name!r} is not in the table; its columns are {', '.join(schema.names)}", column=name)
    return found
