"""Reads rows from data files: only the requested files, row groups and columns, and no deleted rows."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import chain, islice
from typing import TYPE_CHECKING, Final, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from ..actions.records import DeletionVector
from ..dataclass import dataclass
from ..errors import InvalidRequest
from ..pruning.partition_maps import partition_texts
from ..schema.datatypes import PrimitiveType, StructField, StructType
from ..schema.partitions import decode_column
from ..schema.schema import to_arrow
from ..stores.objects import ObjectStore
from .scan_file import FileReader, FileRows, Job, OpenFile
from .vectors import Rows

if TYPE_CHECKING:
    from ..pruning.predicate import Predicate
    from .row_ids import RowIdColumns

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
        scan = _Scan.of(self, columns, predicate)

        def read(job: Job) -> pa.Table:
            with closing(scan.reader.open(job)) as opened:
                return scan.reader.read(job, opened).rows

        with closing(_ahead(scan.jobs(files, chosen), read, lambda _: None)) as ahead:
            tables = [table for _, table in ahead]
        if not scan.reader.output.names:
            # concat_tables would lose the row count of tables without columns.
            return pa.table({"": pa.nulls(sum(table.num_rows for table in tables))}).select([])
        return pa.concat_tables(tables) if tables else scan.reader.output.empty_table()

    def batches(
        self, files: pa.Table, columns: Sequence[str] | None = None, predicate: Predicate | None = None, *, chosen: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """Like `read`, as record batches in bounded memory; a few files are opened ahead."""
        scan = _Scan.of(self, columns, predicate)
        with closing(_ahead(scan.jobs(files, chosen), scan.reader.open, OpenFile.close)) as ahead:
            for job, opened in ahead:
                with closing(opened):
                    for found in scan.reader.batches(job, opened):
                        yield from found.rows.to_batches()

    def places(
        self,
        files: pa.Table,
        columns: Sequence[str] | None = None,
        predicate: Predicate | None = None,
        *,
        chosen: bool = False,
        deleted: Mapping[str, Rows] = _NOTHING,
    ) -> Iterator[tuple[int, pa.Table, pa.Array]]:
        """Like `positions`, in bounded memory: each file in pieces, some of which may have no rows."""
        scan = _Scan.of(self, columns, predicate)
        with closing(_ahead(scan.jobs(files, chosen, deleted), scan.reader.open, OpenFile.close)) as ahead:
            for job, opened in ahead:
                with closing(opened):
                    for found in scan.reader.batches(job, opened, positions=True):
                        assert found.positions is not None
                        yield job.index, found.rows, found.positions

    def positions(
        self,
        files: pa.Table,
        columns: Sequence[str] | None = None,
        predicate: Predicate | None = None,
        *,
        chosen: bool = False,
        deleted: Mapping[str, Rows] = _NOTHING,
    ) -> Iterator[tuple[int, pa.Table, pa.Array]]:
        """File by file, in the order of `files`: its row in `files`, its rows as in `read`, and their positions (int64).

        A position counts the file's own rows from 0, including deleted ones and those that do not satisfy the predicate.
        Files that cannot have rows of the result are omitted. `deleted[path]`, if given, replaces the file's own deletion
        vector. A few files are read ahead.
        """
        scan = _Scan.of(self, columns, predicate)

        def read(job: Job) -> FileRows:
            with closing(scan.reader.open(job)) as opened:
                return scan.reader.read(job, opened, positions=True)

        with closing(_ahead(scan.jobs(files, chosen, deleted), read, lambda _: None)) as ahead:
            for job, found in ahead:
                assert found.positions is not None
                yield job.index, found.rows, found.positions


def _ahead(jobs: Iterator[Job], run: Callable[[Job], _T], drop: Callable[[_T], None]) -> Generator[tuple[Job, _T]]:
    """The results of `run` for each job, in order; a few run ahead in threads, and `drop` gets those no longer needed."""
    first = list(islice(jobs, 2))
    if len(first) <= 1:
        yield from ((job, run(job)) for job in first)
        return
    with ThreadPoolExecutor(_THREADS, _THREAD_NAME) as pool:
        waiting = chain(first, jobs)
        ahead = deque((job, pool.submit(run, job)) for job in islice(waiting, _THREADS))
        try:
            while ahead:
                job, result = ahead.popleft()
                made = result.result()
                ahead.extend((following, pool.submit(run, following)) for following in islice(waiting, 1))
                yield job, made
        finally:
            for _, result in ahead:
                if not result.cancel() and result.exception() is None:
                    drop(result.result())


@dataclass(frozen=True, slots=True)
class _Scan:
    """The files of a scan and how each is read."""

    of_table: TableScan
    reader: FileReader

    @staticmethod
    def of(table: TableScan, columns: Sequence[str] | None, predicate: Predicate | None) -> _Scan:
        ids, partitioned = table.row_ids, table.partition_columns
        schema = table.schema if ids is None else ids.beside(table.schema)
        wanted = [each.name for each in schema.fields] if columns is None else _resolved(columns, schema)
        needed = frozenset(wanted) | (frozenset() if predicate is None else predicate.columns)
        stored = StructType(each for each in schema.fields if each.name in needed and each.name not in partitioned)
        partitions = tuple(each for each in schema.fields if each.name in needed and each.name in partitioned)
        output = pa.schema([to_arrow(schema).field(name) for name in wanted])
        both = StructType([*stored.fields, *partitions])
        ids = None if ids is None or needed.isdisjoint(ids.names) else ids
        return _Scan(table, FileReader(table.store, both, stored, partitions, output, predicate, table.version, ids))

    def jobs(self, files: pa.Table, chosen: bool, deleted: Mapping[str, Rows] = _NOTHING) -> Iterator[Job]:
        """The files that may have rows of the result; partition values are decoded for several files at a time."""
        indices: Sequence[int] = range(files.num_rows)
        predicate = self.reader.predicate
        if predicate is not None and files.num_rows and not chosen:
            kept = predicate.may_match(files, schema=self.of_table.schema, partition_columns=self.of_table.partition_columns)
            files = files.filter(kept)
            indices = pc.indices_nonzero(kept).to_pylist()
        for start in range(0, files.num_rows, _JOBS_AT_ONCE):
            part = files.slice(start, _JOBS_AT_ONCE)
            yield from self._jobs(part, indices[start : start + part.num_rows], deleted)

    def _jobs(self, files: pa.Table, indices: Sequence[int], deleted: Mapping[str, Rows]) -> Iterator[Job]:
        fields = self.reader.partition_fields
        texts = partition_texts(files.column("partition_values"), [each.name for each in fields]) if fields else []
        decoded = [_decode(column, field) for column, field in zip(texts, fields, strict=True)]
        paths, sizes = files.column("path").to_pylist(), files.column("size").to_pylist()
        vectors = _vectors(files)
        defaults: Sequence[tuple[int | None, int | None]]
        defaults = _defaults(files) if self.reader.row_ids is not None else [(None, None)] * files.num_rows
        for row, (index, path, size, default) in enumerate(zip(indices, paths, sizes, defaults, strict=True)):
            values = tuple(values.slice(row, 1) for values in decoded)
            yield Job(index, path, size, values, vectors.get(row), deleted.get(path), *default)


def _vectors(files: pa.Table) -> dict[int, DeletionVector]:
    """The files' deletion vectors, by row."""
    if "deletion_vector" not in files.column_names or files.column("deletion_vector").null_count == files.num_rows:
        return {}
    rows = pc.indices_nonzero(pc.is_valid(files.column("deletion_vector")))
    found = files.column("deletion_vector").take(rows).to_pylist()
    return {row: DeletionVector(**each) for row, each in zip(rows.to_pylist(), found, strict=True)}


def _defaults(files: pa.Table) -> list[tuple[int | None, int | None]]:
    """The files' base row ids and commit versions."""
    columns = (files.column(name).to_pylist() for name in ("base_row_id", "default_row_commit_version"))
    return list(zip(*columns, strict=True))


def _decode(texts: pa.Array, field: StructField) -> pa.Array:
    assert isinstance(field.type, PrimitiveType)
    return decode_column(texts, field.type)


def _resolved(columns: Sequence[str], schema: StructType) -> list[str]:
    if isinstance(columns, str | bytes) or not isinstance(columns, Iterable):
        raise InvalidRequest(f"columns is {columns!r}; give a list of names", columns=columns)
    return [schema.named(name).name for name in columns]
