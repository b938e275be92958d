"""Faults at the steps of a stream's batch, read or written by the data source, in each of its processes.

`rows.faults` has what happens and when.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition, WriterCommitMessage
from pyspark.sql.types import StructType

from sluice.spark_integration.data_source.source import SluiceDataSource
from sluice.spark_integration.data_source.stream_reader import SluiceStreamReader
from sluice.spark_integration.data_source.writer import BatchWritten, SluiceStreamWriter

from ..rows.faults import points, put_in, step

IN_PLANNING = ("before-planning", "after-planning")
IN_TASKS = ("task-begins", "task-ends")
POINTS = ("before-ratify", "after-ratify", "before-publish", "after-publish", "before-ack")
"""Every committing process passes them."""
COMMITTING = ("before-commit", *POINTS, "after-commit")
READING = ("before-offset", "after-offset", "before-partitions", "after-partitions")
"""Passed in the process of a query that reads."""
IN_READING_TASKS = ("reading-begins", "reading-ends")


class FaultySource(SluiceDataSource):
    """`format("faulty_sluice")`: sluice's data source, with steps to pass."""

    @classmethod
    def name(cls) -> str:
        return "faulty_sluice"

    def streamWriter(self, schema: StructType, overwrite: bool) -> FaultyWriter:  # noqa: N802 - PySpark's name
        made = super().streamWriter(schema, overwrite)
        return FaultyWriter(made._options, made._schema, made._checkpoint)

    def streamReader(self, schema: StructType) -> FaultyReader:  # noqa: N802 - PySpark's name
        made = super().streamReader(schema)
        assert isinstance(made, SluiceStreamReader)
        return FaultyReader(made._options, made._spark_schema, made._base)


class FaultyReader(SluiceStreamReader):
    """Passes a step before and after everything that a process does to read a batch."""

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:  # noqa: N802 - PySpark's name
        self._pass("before-offset")
        offset = super().latestOffset(start, limit)
        self._pass("after-offset")
        return offset

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        self._pass("before-partitions")
        parts = super().partitions(start, end)
        self._pass("after-partitions")
        return parts

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        self._pass("reading-begins")
        yield from super().read(partition)
        self._pass("reading-ends")

    def _pass(self, name: str) -> None:
        step(self._options.address.location, name)


_committed: list[str] = []
"""The table into which this process commits: Spark uses one process for many."""


def _pass_point(name: str) -> None:
    step(_committed[0], name)


class FaultyWriter(SluiceStreamWriter):
    """Passes a step before and after everything that a process does for a batch."""

    def __getstate__(self) -> dict[str, Any]:
        self._pass("before-planning")
        state = super().__getstate__()
        self._pass("after-planning")
        return state

    def write(self, iterator: Iterator[pa.RecordBatch]) -> BatchWritten:
        self._pass("task-begins")
        written = super().write(iterator)
        self._pass("task-ends")
        return written

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - PySpark's name
        self._pass("before-commit")
        _committed[:] = [self._options.address.location]
        put_in(points(_pass_point))
        super().commit(messages, batchId)
        self._pass("after-commit")

    def _pass(self, name: str) -> None:
        step(self._options.address.location, name)
