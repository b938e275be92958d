"""Reads of data files with all their settings in one call."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from sluice.storage.data.scan import TableScan
from sluice.storage.schema.schema import StructType
from sluice.storage.stores.objects import ObjectStore

__all__ = ["iter_files", "read_files", "read_positions", "threads_left"]


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
