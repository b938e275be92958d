"""DataFrames handed to something that is committed in the user's own process, such as a transaction over several tables.

The executors write the files and the driver hears which: no row passes through it. Of a task that Spark ran twice the
driver hears one attempt; the files of the other one nobody refers to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame

from ..storage.actions import AddFile, decode_commit, encode_all
from ..storage.schema import conform, to_arrow
from ..tables.writing import WritePlan
from .schemas import from_spark

__all__ = ["written_by_executors"]

_COLUMN = "files"


def written_by_executors(rows: Any) -> tuple[pa.Schema, Callable[[WritePlan, str], Sequence[AddFile]]] | None:
    """The schema of a DataFrame, and what has its rows written by a plan; None for anything else. Raises SchemaMismatch."""
    if not isinstance(rows, DataFrame):
        return None
    schema = to_arrow(from_spark(rows.schema))

    def write(plan: WritePlan, label: str) -> list[AddFile]:
        conform(schema.empty_table(), plan.schema)  # before any task runs
        told = rows.mapInArrow(_task(plan, label), f"{_COLUMN} binary").collect()
        return [file for row in told for file in decode_commit(bytes(row[_COLUMN]), name=_COLUMN) if isinstance(file, AddFile)]

    return schema, write


def _task(plan: WritePlan, label: str) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        attempt = "local" if context is None else f"{context.partitionId()}-{context.taskAttemptId()}"
        files = plan.write(iter(batches), label=f"{label}-{attempt}" if label else attempt)
        yield pa.RecordBatch.from_pydict({_COLUMN: pa.array([encode_all(files)], pa.binary())})

    return task
