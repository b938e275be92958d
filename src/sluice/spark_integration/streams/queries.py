"""Streaming queries that sluice started: their errors arrive as sluice raised them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from ...coordinator.errors import ConcurrentTransactionException
from ...storage.errors import SluiceError
from ..errors import original
from ..spark_errors import failed_query
from .batches import Batch, Run

_SAME_CHECKPOINT: Final = ("CONCURRENT_STREAM_LOG_UPDATE", "Multiple streaming queries are concurrently using")
"""Spark's errors for the second of two queries that write the same file of a checkpoint."""


def started(writer: DataStreamWriter, run: Run, write: Callable[[DataFrame, Batch], None]) -> Query:
    """Start the query of a writer; `write` gets each of its batches that is not written yet."""
    DataStreamWriter.foreachBatch(writer, run.each(write))
    return Query(DataStreamWriter.start(writer), run)


class Query(StreamingQuery):
    """PySpark's query, which raises the error of sluice that ended it.

    Each is also a StreamingQueryException.
    """

    def __init__(self, query: StreamingQuery, run: Run) -> None:
        super().__init__(query._jsq)
        self._run = run

    def awaitTermination(self, timeout: int | None = None) -> bool | None:  # noqa: N802 - PySpark's name
        """Like PySpark's. Raises the error that ended the query."""
        with self._as_sluice_raised_it():
            return super().awaitTermination(timeout)

    def processAllAvailable(self) -> None:  # noqa: N802 - PySpark's name
        """Like PySpark's. Raises the error that ended the query."""
        with self._as_sluice_raised_it():
            super().processAllAvailable()

    def exception(self) -> StreamingQueryException | None:
        """Like PySpark's: the error that ended the query, None if there is none."""
        failed = super().exception()
        found = None if failed is None else self._found(failed)
        return failed if found is None else failed_query(found)

    @contextmanager
    def _as_sluice_raised_it(self) -> Iterator[None]:
        try:
            yield
        except StreamingQueryException as failed:
            found = self._found(failed)
            if found is None:
                raise
            raise failed_query(found) from failed

    def _found(self, failed: StreamingQueryException) -> SluiceError | None:
        mine = self._run.failure
        found = mine if isinstance(mine, SluiceError) else original(failed)
        if found is None and any(each in str(failed) for each in _SAME_CHECKPOINT):
            return ConcurrentTransactionException(
                "another query that runs with the same checkpoint wrote down its next batch first: stop that one, or give this query an "
                "empty checkpoint",
                rule="one-query-per-checkpoint",
            )
        return found
