"""Writes rows as Parquet files of a table.

File names contain the transaction's id, which distinguishes a dead writer's files from those in use. A failed write leaves
nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final, TypeAlias

import pyarrow as pa

from ..actions import AddFile
from ..errors import InvalidRequest, SluiceError
from ..schema.conform import conform
from ..schema.datatypes import StructType
from ..schema.partitions import PartitionKey, split
from ..stores.objects import ObjectStore
from .file_writer import FileFormat, OpenFile

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
    max_open_partitions: int = MAX_OPEN_PARTITIONS,
) -> list[AddFile]:
    """Write rows as data files and return their add actions; no rows make no files.

    Each batch is fitted to the schema (SchemaMismatch) and passed to `check` before any of its rows is written. A file ends
    once it has reached `target_file_bytes` or `max_file_rows`. Memory is bounded for any number of rows and partitions: beyond
    `max_open_partitions`, the least recently used partition's file is finished. `label` distinguishes calls under one
    transaction (tasks, attempts). If the layout has `row_ids`, the batches may have these columns. If this raises, it has removed the
    files it wrote.
    """
    if not _LABEL.fullmatch(label) or not _LABEL.fullmatch(transaction_id):
        raise InvalidRequest(f"{transaction_id!r} and {label!r} become parts of file names; use letters, digits, '_', '.' and '-' only")
    schema = layout.schema if layout.row_ids is None else layout.row_ids.beside(layout.schema)
    files = _Files(store, layout, f"{transaction_id}-{label}" if label else transaction_id, max(1, max_open_partitions))
    try:
        for rows, nbytes in _pieces(_fitted(batches, schema, check), min(_PIECE_BYTES, layout.row_group_bytes)):
            for partition, part in split(rows, schema, layout.partition_columns):
                files.add(partition, part, nbytes * part.num_rows // rows.num_rows)
        return files.close()
    except BaseException:
        files.discard()
        raise


def _fitted(batches: Iterable[Rows], schema: StructType, check: Check | None) -> Iterator[pa.Table]:
    for batch in batches:
        if batch.num_rows:
            rows = conform(batch, schema)
            if check is not None:
                check(rows)
            yield rows
        else:
            conform(batch, schema)


def _pieces(tables: Iterable[pa.Table], piece_bytes: int) -> Iterator[tuple[pa.Table, int]]:
    """The same rows in pieces of about that size, each with its size."""
    gathered: list[pa.Table] = []
    size = 0
    for table in tables:
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
    """The files of one write: the open ones, by partition, least recently used first, and the finished ones."""

    def __init__(self, store: ObjectStore, layout: FileFormat, tag: str, max_open: int) -> None:
        self._store = store
        self._format = layout
        self._tag = tag
        self._max_open = max_open
        self._open: dict[PartitionKey, OpenFile] = {}
        self._started: list[OpenFile] = []
        self._done: dict[str, AddFile] = {}
        self._pending_bytes = 0

    def add(self, partition: PartitionKey, rows: pa.Table, nbytes: int) -> None:
        """Add rows of about `nbytes` to the partition's file, or to as many files as the limit of rows asks for."""
        limit, done = self._format.max_file_rows, 0
        while done < rows.num_rows:
            file = self._open.get(partition)
            part = rows if limit is None else rows.slice(done, limit - (0 if file is None else file.rows))
            self._add(partition, part, nbytes * part.num_rows // rows.num_rows)
            done += part.num_rows
            file = self._open.get(partition)
            if file is not None and file.rows == limit:
                self._close(partition)

    def _add(self, partition: PartitionKey, rows: pa.Table, nbytes: int) -> None:
        file = self._open.pop(partition, None)
        if file is None:
            while len(self._open) >= self._max_open:
                self._close(next(iter(self._open)))
            file = self._start(partition)
        self._open[partition] = file
        file.add(rows, nbytes)
        self._pending_bytes += nbytes
        if file.pending_bytes >= self._format.row_group_bytes:
            self._flush(partition)
        while self._pending_bytes > _PENDING_BYTES:
            self._flush(max(self._open, key=lambda each: self._open[each].pending_bytes))

    def close(self) -> list[AddFile]:
        """Finish every open file; returns all files in the order they were begun."""
        files = list(self._open.values())
        if len(files) == 1:
            self._finish(files[0])
        elif files:
            # Several at once: an object store's time is mostly waiting.
            with ThreadPoolExecutor(min(_CLOSING_THREADS, len(files)), thread_name_prefix="sluice-files") as pool:
                try:
                    list(pool.map(self._finish, files))
                except BaseException:
                    pool.shutdown(cancel_futures=True)
                    raise
        self._open.clear()
        return [self._done[file.key] for file in self._started]

    def discard(self) -> None:
        """Remove everything: uploads and files."""
        # What cannot be removed now is found later by the transaction's id; the pending error matters more.
        for file in self._open.values():
            with suppress(SluiceError):  # on a full disk, what an upload still holds cannot be written
                file.discard()
        for file in self._started:
            with suppress(SluiceError):
                self._store.delete(file.key)

    def _start(self, partition: PartitionKey) -> OpenFile:
        name = f"part-{len(self._started):05d}-{self._tag}-c000{self._format.suffix}"
        file = OpenFile(self._store, self._format, partition, name)
        self._started.append(file)
        return file

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
        self._finish(file)
        del self._open[partition]

    def _finish(self, file: OpenFile) -> None:
        self._done[file.key] = file.close()
