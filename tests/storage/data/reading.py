"""Reads of data files with all their settings in one call."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from sluice.storage.data.scan import TableScan
from sluice.storage.schema.schema import StructType
from sluice.storage.stores.objects import ObjectStore

__all__ = ["iter_files", "read_files", "read_positions"]


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
