"""One data file being written: rows collect in memory, and are written at once or row group by row group.

A file that never fills a row group is encoded in memory and put at once; a larger one is streamed, so that memory holds one
row group of it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from functools import lru_cache
from types import TracebackType
from typing import Any, BinaryIO, Final

import pyarrow as pa
import pyarrow.parquet as pq

from ..actions import AddFile
from ..constants import COMPRESSION
from ..dataclass import dataclass
from ..errors import InvalidRequest, InvariantBroken
from ..schema.conform import adapt, without_hidden_nulls
from ..schema.datatypes import StructType
from ..schema.partitions import PartitionKey, folder, path_to_uri
from ..schema.schema import stored_schema, to_arrow
from ..stores.objects import ObjectStore
from .row_ids import RowIdColumns
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

    def __post_init__(self) -> None:
        if self.compression not in _SUFFIXES:
            raise InvalidRequest(f"compression {self.compression!r} is unknown; use one of {', '.join(_SUFFIXES)}")
        if self.target_file_bytes <= 0:
            raise InvalidRequest(f"target_file_bytes is {self.target_file_bytes}; give a positive number of bytes")
        if self.max_file_rows is not None and self.max_file_rows <= 0:
            raise InvalidRequest(f"max_file_rows is {self.max_file_rows}; give a positive number of rows, or None for no limit")
        _ = self.stored  # raises if a column has no place

    @property
    def stored(self) -> StructType:
        """The columns stored in the files."""
        return _stored(self.schema, self.partition_columns, self.row_ids)

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
        # The Arrow schema is not stored: Parquet itself has all types used here.
        return pq.ParquetWriter(
            sink,
            to_arrow(self.stored),
            compression=self.compression,
            use_dictionary=nbytes > _DICTIONARY_BYTES,
            write_statistics=_with_bounds(self.stored),
            store_schema=False,
        )


@lru_cache(maxsize=256)
def _stored(schema: StructType, partition_columns: tuple[str, ...], row_ids: RowIdColumns | None) -> StructType:
    stored = stored_schema(schema, partition_columns).without(partition_columns)
    return stored if row_ids is None else row_ids.beside(stored)


@lru_cache(maxsize=256)
def _with_bounds(stored: StructType) -> Any:
    """The columns whose bounds are stored: not floats, since Parquet's bounds omit NaN, and Spark, to which NaN is the largest
    number, would skip row groups with it.
    """
    return list(_leaves(to_arrow(stored), ""))


def _leaves(fields: Iterable[pa.Field], path: str) -> Iterator[str]:
    for each in fields:
        if pa.types.is_struct(each.type):
            yield from _leaves(each.type.fields, f"{path}{each.name}.")
        elif not pa.types.is_floating(each.type) and not pa.types.is_nested(each.type):
            yield f"{path}{each.name}"


class OpenFile:
    """A file of one partition; `add` rows, then `close` it into an AddFile, or `discard` it."""

    __slots__ = ("_format", "_partition", "_pending", "_stats", "_store", "_stream", "key", "pending_bytes", "rows")

    def __init__(self, store: ObjectStore, layout: FileFormat, partition: PartitionKey, name: str) -> None:
        self._store = store
        self._format = layout
        self._partition = dict(zip(layout.partition_columns, partition, strict=True))
        below = folder(layout.partition_columns, self._partition)
        self.key = layout.root + (f"{below}/{name}" if below else name)
        self.pending_bytes = 0
        self._pending: list[pa.Table] = []
        self.rows = 0
        self._stats = StatsCollector(layout.stored, () if layout.row_ids is None else layout.row_ids.names, layout.indexed_columns)
        self._stream: _Stream | None = None

    @property
    def is_streaming(self) -> bool:
        """Whether part of the file has left memory through an open upload."""
        return self._stream is not None

    def add(self, rows: pa.Table, nbytes: int) -> None:
        """Add rows of about `nbytes`; `flush` or `close` write them."""
        stored = self._format.stored
        self._pending.append(without_hidden_nulls(adapt(rows, stored), stored))
        self.pending_bytes += nbytes
        self.rows += rows.num_rows

    def flush(self) -> int:
        """Write pending rows as a row group; returns the file's size so far."""
        if self._stream is None:
            self._stream = _Stream(self._store, self.key, self._format, self.pending_bytes)
        if self._pending:
            self._stream.writer.write_table(rows := self._take(), row_group_size=rows.num_rows)
        return self._stream.size

    def close(self) -> AddFile:
        """Make the file visible. It must have a row."""
        if self._stream is None:
            sink = pa.BufferOutputStream()
            writer = self._format.writer(sink, self.pending_bytes)
            writer.write_table(rows := self._take(), row_group_size=rows.num_rows)
            writer.close()
            data = sink.getvalue().to_pybytes()
            self._store.put(self.key, data)
            size = len(data)
        else:
            self.flush()
            size = self._stream.close()
            self._stream = None
        return AddFile(
            path=path_to_uri(self.key),
            partition_values=self._partition,
            size=size,
            modification_time=time.time_ns() // 1_000_000,
            data_change=True,
            stats=self._stats.to_json(),
        )

    def discard(self) -> None:
        """Abort the upload, if any: nothing remains in the store."""
        stream, self._stream = self._stream, None
        self._pending.clear()
        if stream is not None:
            stream.abort()

    def _take(self) -> pa.Table:
        rows = self._pending[0] if len(self._pending) == 1 else pa.concat_tables(self._pending)
        self._pending.clear()
        self.pending_bytes = 0
        self._stats.update(rows)
        return rows


class _Stream:
    """An upload with a Parquet writer on it."""

    def __init__(self, store: ObjectStore, key: str, layout: FileFormat, nbytes: int) -> None:
        self._upload: AbstractContextManager[BinaryIO] = store.upload(key)
        self._sink = _Counting(self._upload.__enter__())
        try:
            self.writer = layout.writer(pa.PythonFile(self._sink, mode="w"), nbytes)
        except BaseException as failure:
            self._exit(failure)
            raise

    @property
    def size(self) -> int:
        return self._sink.written

    def close(self) -> int:
        try:
            self.writer.close()
        except BaseException as failure:
            self._exit(failure)
            raise
        self._exit(None)
        return self._sink.written

    def abort(self) -> None:
        self._sink.ignore = True
        try:
            self.writer.close()
        finally:
            self._exit(_Discarded("the write was given up"))

    def _exit(self, failure: BaseException | None) -> None:
        kind: type[BaseException] | None = None if failure is None else type(failure)
        trace: TracebackType | None = None if failure is None else failure.__traceback__
        self._upload.__exit__(kind, failure, trace)


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
