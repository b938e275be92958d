"""Reads one version, or changes, through the data source: files are spread over tasks, which also evaluate the option `where`.

Filters of DataFrames are left to Spark. If the reader took them, Spark would go on using the same reader for the unfiltered
DataFrame: after `frame.where(...).count()`, `frame.count()` would count the filtered rows.

Tasks load this module, so it imports only what they need; the planning process imports what opens tables.
"""

from __future__ import annotations

import heapq
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType as SparkStruct

from ...storage.data.scan import TableScan
from ...storage.dataclass import dataclass
from ...storage.schema.conform import adapt
from ..schemas import requested

if TYPE_CHECKING:
    from ...storage.pruning.predicate import Predicate
    from ...tables.read.changes import ChangesPart
    from ...tables.read.table_snapshot import TableSnapshot
    from ..options import ReadOptions


# The columns of a snapshot's file table that tasks need.
_NEEDED: Final = ("path", "partition_values", "size", "deletion_vector")


@dataclass(frozen=True, slots=True)
class RowsPart:
    """The files of one task of a streaming batch, and what is needed to read them."""

    files: pa.Table
    rows: Predicate | None
    """The condition on the rows to read."""
    schema_string: str
    """The table's schema, as JSON."""
    partition_columns: tuple[str, ...]
    beside: pa.Table | None
    """One row of the columns that all rows have beside the table's."""


class SluiceReader(DataSourceReader):
    """Reads one version of a table, fixed when the scan is planned. Is sent to the tasks, which only use the object store."""

    def __init__(self, options: ReadOptions, schema: SparkStruct) -> None:
        from .read_plan import snapshot_for

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
        """The files that may have rows of the result, as rows of the snapshot's file table, in tasks of about equal size."""
        assert self._snapshot is not None
        files = self._snapshot.files(self._predicate).select(_NEEDED)
        # tasks do not need statistics: files that they exclude are already gone
        files = files.append_column("stats", pa.nulls(files.num_rows, pa.string()))
        return [InputPartition(part) for part in balanced(files)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task, in Spark's Arrow schema."""
        scan = TableScan(self._address.store(), self._table, self._partition_columns, self._version)
        for batch in scan.batches(partition.value, self._schema.names, self._predicate):
            yield from adapt(batch, self._schema).to_batches()


class ChangesReader(DataSourceReader):
    """Reads the changes of some versions, fixed when the scan is planned. Is sent to the tasks, which only use the object store."""

    def __init__(self, options: ReadOptions, schema: SparkStruct) -> None:
        from .read_plan import changes_for

        self._parts, self._predicate = changes_for(options)
        self._schema = requested(schema, self._parts[0].schema)

    def partitions(self) -> list[InputPartition]:
        """The versions, in as many tasks as there are processors."""
        return [InputPartition(part) for part in self._parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task, in Spark's Arrow schema."""
        part: ChangesPart = partition.value
        for batch in part.batches(self._schema.names, self._predicate):
            yield from adapt(batch, self._schema).to_batches()


# Target size of a task, and the cost of opening a file, in bytes.
_TASK_BYTES: Final = 64 * 1024 * 1024
_OPENING_BYTES: Final = 2 * 1024 * 1024


def balanced(files: pa.Table) -> list[pa.Table]:
    """The rows of a file table in at least one part, of about equal bytes each, largest files first."""
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
