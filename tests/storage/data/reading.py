"""Reads of data files with all their settings in one call."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sluice.storage.data.scan import TableScan
from sluice.storage.schema.schema import StructType
from sluice.storage.stores.objects import ObjectStore

__all__ = ["iter_files", "parquet_of", "read_files", "read_positions", "row_groups_read", "threads_left"]


def parquet_of(table: pa.Table, **options: Any) -> bytes:
    """The table as a Parquet file."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, **options)
    return bytes(sink.getvalue().to_pybytes())


def row_groups_read(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """The row groups that are read from now on, file by file."""
    seen: list[list[int]] = []
    original = pq.ParquetFile.read_row_groups

    def spy(file: pq.ParquetFile, chosen: list[int], *rest: Any) -> pa.Table:
        seen.append(chosen)
        return original(file, chosen, *rest)

    monkeypatch.setattr(pq.ParquetFile, "read_row_groups", spy)
    return seen


def read_files(
    store: ObjectStore, files: pa.Table, *, schema: StructType, partition_columns: Sequence[str], version: int | None = None, **asked: Any
) -> pa.Table:
    return TableScan(store, schema, partition_columns, version).read(files, **asked)


def iter_files(
    store: ObjectStore, files: pa.Table, *, schema: StructType, partition_columns: Sequence[str], version: int | None = None, **asked: Any
) -> Iterator[pa.RecordBatch]:
    return TableScan(store, schema, partition_columns, version).batches(files, **asked)


def read_positions(
    store: ObjectStore, files: pa.Table, *, schema: StructType, partition_columns: Sequence[str], version: int | None = None, **asked: Any
) -> Iterator[tuple[int, pa.Table, pa.Array]]:
    return TableScan(store, schema, partition_columns, version).positions(files, **asked)


def threads_left(prefix: str) -> list[str]:
    """The threads with such names that still run after a while; those of a scan that was given up end by themselves."""
    deadline = time.monotonic() + 10
    while (left := [each.name for each in threading.enumerate() if each.name.startswith(prefix)]) and time.monotonic() < deadline:
        time.sleep(0.01)
    return left
