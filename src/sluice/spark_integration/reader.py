"""Reading through the data source: one version, its files spread over tasks, the option `where` evaluated next to the data.

Filters of DataFrames are left to Spark. It would hand them to a reader that takes them, and then go on using that reader for
the DataFrame they were put on: `frame.where(...).count()` first, `frame.count()` then counted the filtered rows.
"""

from __future__ import annotations

import heapq
import os
from collections.abc import Iterator
from typing import Any, Final, cast

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType as SparkStruct

from ..storage.conform import adapt
from ..storage.scan import iter_files
from ..tables.table import Table
from ..tables.views import TableSnapshot
from .options import ReadOptions
from .schemas import requested

__all__ = ["FilesPartition", "SluiceReader", "balanced", "snapshot_for", "table_for"]

# Of the columns of a snapshot's file table those that tasks need.
_NEEDED: Final = ("path", "partition_values", "size", "deletion_vector")
# What a task should read, and what opening a file costs, in bytes.
_TASK_BYTES: Final = 64 * 1024 * 1024
_OPENING_BYTES: Final = 2 * 1024 * 1024


def table_for(options: ReadOptions) -> Table:
    """The table that the options name. Raises TableNotFound and the like."""
    address = options.address
    return Table.open(
        address.location,
        coordinator=address.coordinator,
        storage_options=address.storage_options,
        consistency=options.consistency,
        application=address.application,
    )


def snapshot_for(options: ReadOptions) -> TableSnapshot:
    """The version that the options name, the latest by default. Raises TableNotFound, VersionNotFound and the like."""
    return table_for(options).snapshot(options.version, options.timestamp_ms)


class FilesPartition(InputPartition):
    """The files of one task: rows of the snapshot's file table."""

    def __init__(self, files: pa.Table) -> None:
        super().__init__(None)
        self.files = files


class SluiceReader(DataSourceReader):
    """Reads one version of a table, fixed when the scan is planned. Travels to the tasks, which only reach the object store."""

    def __init__(self, options: ReadOptions, schema: SparkStruct) -> None:
        snapshot = snapshot_for(options)
        self._snapshot: TableSnapshot | None = snapshot
        self._address = options.address
        self._version = snapshot.version
        self._table = snapshot.struct
        self._partition_columns = snapshot.partition_columns
        self._schema = requested(schema, snapshot.struct)
        self._predicate = snapshot.predicate(options.where)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_snapshot": None}

    def partitions(self) -> list[InputPartition]:
        """The files that may hold rows of the answer, in tasks of about equal size."""
        assert self._snapshot is not None
        files = self._snapshot.files(self._predicate).select(_NEEDED)
        # statistics have done their part: what they exclude is not here any more
        files = files.append_column("stats", pa.nulls(files.num_rows, pa.string()))
        return [FilesPartition(part) for part in balanced(files)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task, as Spark's Arrow schema has them."""
        batches = iter_files(
            self._address.store(),
            cast("FilesPartition", partition).files,
            schema=self._table,
            partition_columns=self._partition_columns,
            columns=self._schema.names,
            predicate=self._predicate,
            version=self._version,
        )
        for batch in batches:
            yield from adapt(batch, self._schema).to_batches()


def balanced(files: pa.Table) -> list[pa.Table]:
    """The rows of a file table in parts of about equal bytes, largest files dealt out first; at least one part."""
    costs = [size + _OPENING_BYTES for size in files.column("size").to_pylist()]
    wanted = max(-(-sum(costs) // _TASK_BYTES), os.cpu_count() or 1)
    count = max(1, min(len(costs), wanted))
    parts: list[list[int]] = [[] for _ in range(count)]
    heap = [(0, number) for number in range(count)]
    for row in sorted(range(len(costs)), key=costs.__getitem__, reverse=True):
        cost, number = heap[0]
        parts[number].append(row)
        heapq.heapreplace(heap, (cost + costs[row], number))
    return [files.take(pa.array(sorted(part), pa.int64())) for part in parts]
