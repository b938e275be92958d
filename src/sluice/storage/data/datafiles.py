"""Writes rows as Parquet files of a table.

File names contain the transaction's id, which distinguishes a dead writer's files from those in use. A failed write leaves
nothing. A file that never fills a row group is encoded in memory and put at once; a larger one is streamed, row group by row group,
so that memory holds one row group of it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from functools import lru_cache
from typing import Any, BinaryIO, Final, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from ..actions import AddFile
from ..actions.features import RowIdColumns, with_row_ids
from ..caches import at_once
from ..constants import COMPRESSION
from ..dataclass import dataclass
from ..errors import InvalidRequest, InvariantBroken, SluiceError
from ..schema.conform import adapt, conform, without_hidden_nulls
from ..schema.datatypes import PrimitiveType, StructType, kind
from ..schema.mapping import is_mapped, named_as, parquet_schema, physical, physical_names
from ..schema.partitions import PartitionKey, decode_column, folder, path_to_uri, split
from ..schema.schema import stored_schema, to_arrow
from ..stores.objects import ObjectStore
from .statistics import INDEXED_COLUMNS_DEFAULT, StatsCollector

_SUFFIXES: Final = {"zstd": ".zstd", "snappy": ".snappy", "gzip": ".gz", "lz4": ".lz4", "brotli": ".br", "none": ""}
# Below this number, a dictionary costs more time than it saves space.
_DICTIONARY_BYTES: Final = 64 * 1024
TARGET_FILE_BYTES: Final = 128 * 1024 * 1024
ROW_GROUP_BYTES: Final = 64 * 1024 * 1024
_ROW_GROUP_BYTES_MIN: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class FileFormat:
    """The settings shared by all files of one write; sizes are bytes, `row_group_bytes` counts rows in memory.

    `root` is the parent folder of the partitions, "" or ending in "/". With `row_ids` the files have these columns, too, which
    statistics omit.
    """

    schema: StructType
    partition_columns: tuple[str, ...]
    compression: str = COMPRESSION
    indexed_columns: int = INDEXED_COLUMNS_DEFAULT
    target_file_bytes: int = TARGET_FILE_BYTES
    root: str = ""
    max_file_rows: int | None = None
    row_ids: RowIdColumns | None = None
    materialized: bool = False
    """Whether files have the partition columns, too, after the others, which statistics omit."""

    def __post_init__(self) -> None:
        if self.compression not in _SUFFIXES:
            raise InvalidRequest(f"compression {self.compression!r} is unknown; use one of {', '.join(_SUFFIXES)}")
        if self.target_file_bytes <= 0:
            raise InvalidRequest(f"target_file_bytes is {self.target_file_bytes}; give a positive number of bytes")
        if self.max_file_rows is not None and self.max_file_rows <= 0:
            raise InvalidRequest(f"max_file_rows is {self.max_file_rows}; give a positive number of rows, or None for no limit")
        _ = self.stored  # raises if a column has no place

    @property
    def partitions(self) -> tuple[str, ...]:
        """The partition columns as the log names them."""
        return physical_names(self.schema, self.partition_columns) if is_mapped(self.schema) else self.partition_columns

    @property
    def stored(self) -> StructType:
        """The columns stored in the files, as files name them."""
        return _stored(self.schema, self.partition_columns, self.row_ids)

    @property
    def written(self) -> StructType:
        """The columns of materialized files: those stored, and the partition columns, under the names that files have."""
        fields = {each.name: each for each in physical(stored_schema(self.schema, ())).fields}
        return StructType([*self.stored.fields, *(fields[name] for name in self.partitions if name in fields)])

    def in_files(self, rows: pa.Table) -> pa.Table:
        """Rows of the table without its partition columns, under the names that files have, on every level."""
        if not is_mapped(self.schema):
            return rows
        columns = to_arrow(physical(with_row_ids(self.schema, self.row_ids)))
        return named_as(rows, pa.schema([columns.field(name) for name in physical_names(self.schema, rows.column_names)]))

    @property
    def suffix(self) -> str:
        """The suffix of file names."""
        return f"{_SUFFIXES[self.compression]}.parquet"

    @property
    def row_group_bytes(self) -> int:
        """How much collects in memory before it becomes a row group."""
        return max(_ROW_GROUP_BYTES_MIN, min(ROW_GROUP_BYTES, self.target_file_bytes))

    def writer(self, sink: Any, nbytes: int) -> pq.ParquetWriter:
        """A Parquet writer for rows without the partition columns, with a total of about `nbytes`."""
        columns = self.written if self.materialized else self.stored
        # The Arrow schema is not stored: Parquet itself has all types used here.
        return pq.ParquetWriter(
            sink,
            parquet_schema(columns) if is_mapped(self.schema) else to_arrow(columns),
            compression=self.compression,
            use_dictionary=nbytes > _DICTIONARY_BYTES,
            write_statistics=_with_bounds(self.stored),
            store_schema=False,
        )


@lru_cache(maxsize=256)
def _stored(schema: StructType, partition_columns: tuple[str, ...], row_ids: RowIdColumns | None) -> StructType:
    return with_row_ids(physical(stored_schema(schema, partition_columns).without(partition_columns)), row_ids)


@lru_cache(maxsize=256)
def _with_bounds(stored: StructType) -> Any:
    """The columns whose bounds are stored: not floats, since Parquet's bounds omit NaN, and Spark, to which NaN is the largest
    number, would skip row groups with it.
    """
    names: list[str] = []
    for each in stored.fields:
        if isinstance(each.type, StructType):
            names += [f"{each.name}.{inner}" for inner in _with_bounds(each.type)]
        elif isinstance(each.type, PrimitiveType) and kind(each.type) != "float":
            names.append(each.name)
    return names


class OpenFile:
    """A file of one partition; `add` rows, then `close` it into an AddFile, or `discard` it."""

    def __init__(self, store: ObjectStore, layout: FileFormat, partition: PartitionKey, name: str) -> None:
        self._store = store
        self._format = layout
        self._partition = dict(zip(layout.partitions, partition, strict=True))
        below = folder(layout.partitions, self._partition)
        self.key = layout.root + (f"{below}/{name}" if below else name)
        self.pending_bytes = 0
        self._pending: list[pa.Table] = []
        self.rows = 0
        self._stats = StatsCollector(layout.stored, () if layout.row_ids is None else layout.row_ids.names, layout.indexed_columns)
        self.added: AddFile
        """What `close` returned."""
        self._upload: ExitStack | None = None
        self._sink: _Counting  # both while there is an upload
        self._writer: pq.ParquetWriter

    @property
    def is_streaming(self) -> bool:
        """Whether part of the file has left memory through an open upload."""
        return self._upload is not None

    def add(self, rows: pa.Table, nbytes: int) -> None:
        """Add rows of about `nbytes`; `flush` or `close` write them."""
        stored = self._format.stored
        fitted = without_hidden_nulls(adapt(rows, stored), stored)
        for field in self._format.written.fields[len(stored.fields) :] if self._format.materialized else ():
            assert isinstance(field.type, PrimitiveType)
            value = decode_column(pa.array([self._partition[field.name]], pa.string()), field.type)
            fitted = fitted.append_column(to_arrow(StructType([field])).field(0), pa.repeat(value[0], rows.num_rows))
        self._pending.append(fitted)
        self.pending_bytes += nbytes
        self.rows += rows.num_rows

    def flush(self) -> int:
        """Write pending rows as a row group; returns the file's size so far."""
        if self._upload is None:
            with ExitStack() as upload:
                self._sink = _Counting(upload.enter_context(self._store.upload(self.key)))
                self._writer = self._format.writer(pa.PythonFile(self._sink, mode="w"), self.pending_bytes)
                self._upload = upload.pop_all()
        if self._pending:
            self._writer.write_table(rows := self._take(), row_group_size=rows.num_rows)
        return self._sink.written

    def close(self) -> AddFile:
        """Make the file visible. It must have a row."""
        if self._upload is None:
            sink = pa.BufferOutputStream()
            writer = self._format.writer(sink, self.pending_bytes)
            writer.write_table(rows := self._take(), row_group_size=rows.num_rows)
            writer.close()
            data = sink.getvalue().to_pybytes()
            self._store.put(self.key, data)
            size = len(data)
        else:
            self.flush()
            with self._upload:
                self._writer.close()
            self._upload, size = None, self._sink.written
        now_ms, stats = time.time_ns() // 1_000_000, self._stats.to_json()
        self.added = AddFile(path_to_uri(self.key), self._partition, size, now_ms, data_change=True, stats=stats)
        return self.added

    def discard(self) -> None:
        """Abort the upload, if any: nothing remains in the store."""
        upload, self._upload = self._upload, None
        self._pending.clear()
        if upload is not None:
            self._sink.ignore = True
            with suppress(_Discarded), upload:
                self._writer.close()
                raise _Discarded("the write was given up")

    def _take(self) -> pa.Table:
        rows = self._pending[0] if len(self._pending) == 1 else pa.concat_tables(self._pending)
        self._pending.clear()
        self.pending_bytes = 0
        self._stats.update(rows)
        return rows


class _Discarded(InvariantBroken):
    """Ends an upload whose write has failed; never leaves this file."""


class _Counting:
    """A stream that counts its bytes; Arrow needs no more of a Python file."""

    closed = False

    def __init__(self, sink: BinaryIO) -> None:
        self._sink = sink
        self.written = 0
        self.ignore = False

    def write(self, data: Any) -> int:
        if not self.ignore:
            self._sink.write(data)
        self.written += len(data)
        return len(data)

    def tell(self) -> int:
        return self.written

    def flush(self) -> None:
        """Nothing to do: the upload decides when it sends."""

    def close(self) -> None:
        """Nothing to do: the upload's context ends it."""


MAX_OPEN_PARTITIONS: Final = 512

# Rows are split by partition in pieces of this size; smaller inputs are collected first.
_PIECE_BYTES: Final = 32 * 1024 * 1024
# The maximum in memory over all partitions before the largest becomes a row group.
_PENDING_BYTES: Final = 128 * 1024 * 1024
# Concurrent uploads; each has its own buffers.
_STREAMS: Final = 32
_CLOSING_THREADS: Final = 4
_LABEL: Final = re.compile(r"[A-Za-z0-9_.-]*")

Rows: TypeAlias = pa.RecordBatch | pa.Table
Check: TypeAlias = Callable[[pa.Table], None]


def write_files(
    store: ObjectStore,
    batches: Iterable[Rows],
    layout: FileFormat,
    *,
    transaction_id: str,
    label: str = "",
    check: Check | None = None,
) -> list[AddFile]:
    """Write rows as data files and return their add actions; no rows make no files.

    Each batch is fitted to the schema (SchemaMismatch) and passed to `check` before any of its rows is written. A file ends once it has
    reached `target_file_bytes` or `max_file_rows`. Memory is bounded for any number of rows and partitions: beyond `MAX_OPEN_PARTITIONS`,
    the least recently used partition's file is finished. `label` distinguishes calls under one transaction (tasks, attempts). If the layout
    has `row_ids`, the batches may have these columns. If this raises, it has removed the files it wrote.
    """
    if not _LABEL.fullmatch(label) or not _LABEL.fullmatch(transaction_id):
        raise InvalidRequest(f"{transaction_id!r} and {label!r} become parts of file names; use letters, digits, '_', '.' and '-' only")
    schema = with_row_ids(layout.schema, layout.row_ids)
    stored = physical(schema)
    files = _Files(store, layout, f"{transaction_id}-{label}" if label else transaction_id)
    try:
        for rows, nbytes in _pieces(batches, schema, check, min(_PIECE_BYTES, layout.row_group_bytes)):
            rows = named_as(rows, to_arrow(stored)) if is_mapped(schema) else rows
            for partition, part in split(rows, stored, layout.partitions):
                files.add(partition, part, nbytes * part.num_rows // rows.num_rows)
        return files.close()
    except BaseException:
        files.discard()
        raise


def _pieces(batches: Iterable[Rows], schema: StructType, check: Check | None, piece_bytes: int) -> Iterator[tuple[pa.Table, int]]:
    """The rows, fitted to the schema and checked, in pieces of about that size, each with its size."""
    gathered: list[pa.Table] = []
    size = 0
    for batch in batches:
        table = conform(batch, schema)
        if not table.num_rows:
            continue
        if check is not None:
            check(table)
        nbytes = table.nbytes
        if gathered and size + nbytes > piece_bytes:
            yield pa.concat_tables(gathered), size
            gathered, size = [], 0
        if nbytes > piece_bytes:
            step = max(1, table.num_rows * piece_bytes // nbytes)
            for start in range(0, table.num_rows, step):
                piece = table.slice(start, step)
                yield piece, nbytes * piece.num_rows // table.num_rows
        else:
            gathered.append(table)
            size += nbytes
    if gathered:
        yield gathered[0] if len(gathered) == 1 else pa.concat_tables(gathered), size


class _Files:
    """The files of one write: the open ones, by partition, least recently used first, and all that were begun."""

    def __init__(self, store: ObjectStore, layout: FileFormat, tag: str) -> None:
        self._store = store
        self._format = layout
        self._tag = tag
        self._open: dict[PartitionKey, OpenFile] = {}
        self._started: list[OpenFile] = []
        self._pending_bytes = 0

    def add(self, partition: PartitionKey, rows: pa.Table, nbytes: int) -> None:
        """Add rows of about `nbytes` to the partition's file, or to as many files as the limit of rows asks for."""
        limit, done = self._format.max_file_rows, 0
        while done < rows.num_rows:
            file = self._open.pop(partition, None)
            if file is None:
                while len(self._open) >= MAX_OPEN_PARTITIONS:
                    self._close(next(iter(self._open)))
                name = f"part-{len(self._started):05d}-{self._tag}-c000{self._format.suffix}"
                file = OpenFile(self._store, self._format, partition, name)
                self._started.append(file)
            self._open[partition] = file
            part = rows if limit is None else rows.slice(done, limit - file.rows)
            part_bytes = nbytes * part.num_rows // rows.num_rows
            file.add(part, part_bytes)
            self._pending_bytes += part_bytes
            if file.pending_bytes >= self._format.row_group_bytes:
                self._flush(partition)
            while self._pending_bytes > _PENDING_BYTES:
                self._flush(max(self._open, key=lambda each: self._open[each].pending_bytes))
            done += part.num_rows
            if file.rows == limit and partition in self._open:
                self._close(partition)

    def close(self) -> list[AddFile]:
        """Finish every open file; returns all files in the order they were begun."""
        # several at once: an object store's time is mostly waiting
        at_once(OpenFile.close, list(self._open.values()), _CLOSING_THREADS, "sluice-files")
        self._open.clear()
        return [file.added for file in self._started]

    def discard(self) -> None:
        """Remove everything: uploads and files."""
        # What cannot be removed now is found later by the transaction's id; the pending error matters more.
        for file in self._open.values():
            with suppress(SluiceError):  # on a full disk, what an upload still holds cannot be written
                file.discard()
        for file in self._started:
            with suppress(SluiceError):
                self._store.delete(file.key)

    def _flush(self, partition: PartitionKey) -> None:
        file = self._open[partition]
        if not file.is_streaming:
            streaming = [each for each, other in self._open.items() if other.is_streaming]
            if len(streaming) >= _STREAMS:
                self._close(streaming[0])
        self._pending_bytes -= file.pending_bytes
        if file.flush() >= self._format.target_file_bytes:
            self._close(partition)

    def _close(self, partition: PartitionKey) -> None:
        file = self._open[partition]
        self._pending_bytes -= file.pending_bytes
        file.close()
        del self._open[partition]
