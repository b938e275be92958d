"""Streaming queries that sluice started: how their errors arrive, and how their end is noticed."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from ...storage.errors import SluiceError
from ..errors import original
from ..spark_errors import failed_query
from .runs import Batch, Run

__all__ = ["Query", "started"]

_log = logging.getLogger(__name__)


def started(writer: DataStreamWriter, run: Run, write: Callable[[DataFrame, Batch], None]) -> Query:
    """Start the query of a writer; `write` gets each of its batches, which the run guards."""
    DataStreamWriter.foreachBatch(writer, run.each(write))
    query = Query(DataStreamWriter.start(writer), run)
    threading.Thread(target=query.follow, name="sluice-stream", daemon=True).start()
    return query


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
            ended = super().awaitTermination(timeout)
        if ended is not False:
            self._run.end()
        return ended

    def processAllAvailable(self) -> None:  # noqa: N802 - PySpark's name
        """Like PySpark's. Raises the error that ended the query."""
        with self._as_sluice_raised_it():
            super().processAllAvailable()

    def exception(self) -> StreamingQueryException | None:
        """Like PySpark's: the error that ended the query, None if there is none."""
        failed = super().exception()
        found = None if failed is None else self._found(failed)
        return failed if found is None else failed_query(found)

    def stop(self) -> None:
        """Like PySpark's. A batch that is being written is not committed any more."""
        super().stop()
        self._run.end()

    def follow(self) -> None:
        """Wait for the end of the query, to give its lease back; runs in a thread of its own."""
        try:
            super().awaitTermination()
        except (PySparkException, Py4JError, OSError) as ended:
            _log.debug("query ended: %s", ended)
        finally:
            self._run.end()

    @contextmanager
    def _as_sluice_raised_it(self) -> Iterator[None]:
        try:
            yield
        except StreamingQueryException as failed:
            self._run.end()
            found = self._found(failed)
            if found is None:
                raise
            raise failed_query(found) from failed

    def _found(self, failed: StreamingQueryException) -> SluiceError | None:
        mine = self._run.failure
        return mine if isinstance(mine, SluiceError) else original(failed)
