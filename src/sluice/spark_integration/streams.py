"""Streams into tables of sluice: the micro-batches of a run, each one commit, once; errors as sluice raised them; what a query needs.

A batch is written under Delta's application transaction (the query's id, the batch's number), which a query that is started again finds
in the table. Both come from the checkpoint, so runs of copies of one checkpoint have them, too, for other rows. So a mark of the batch's
offsets is written beside, and a batch whose number is there with another mark is refused. Decision 0024 has the reasons.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from ..coordinator.errors import ConcurrentTransactionException
from ..storage.dataclass import dataclass
from ..storage.errors import InvalidRequest, SluiceError, TableNotFound
from ..tables.client.address import TableAddress
from ..tables.maintain.background import AutoCompaction
from ..tables.write.terms import mark_of, marked
from .data_source.write_plan import is_written, opened
from .data_source.writer import QUERY_ID
from .errors import failed_query, original

_log = logging.getLogger(__name__)

_OFFSETS: Final = "offsets"
_CHECKPOINT: Final = "spark.sql.streaming.checkpointLocation"
REMEDY_IF_GONE: Final = (
    "it was dropped, moved or renamed. Name the place where it is now, or give the query an empty checkpoint, with which it begins anew; "
    "to go on without the rows of former batches, create the table first"
)


@dataclass(frozen=True, slots=True)
class Batch:
    """A micro-batch: the query's id, and the batch's number."""

    query: str
    number: int

    @property
    def transaction(self) -> tuple[str, int]:
        """The application transaction under which the batch is written."""
        return self.query, self.number


class Run:
    """One run of a query that writes to some tables, all of one coordinator. Batches come one at a time, in any thread."""

    def __init__(self, tables: Sequence[TableAddress]) -> None:
        self._tables = tuple(tables)
        self._compactions = [AutoCompaction(each) for each in self._tables]
        self._began = False
        self.failure: BaseException | None = None
        """What the last batch raised."""

    def each(self, write: Callable[[DataFrame, Batch], None]) -> Callable[[DataFrame, int], None]:
        """A function for `foreachBatch` that has `write` write each batch that is not there yet, under its application transaction. The
        function raises ConcurrentTransactionException if another run of the query wrote other rows as this batch, or later ones.
        """

        def batch(frame: DataFrame, number: int) -> None:
            try:
                query = frame.sparkSession.sparkContext.getLocalProperty(QUERY_ID)
                if not query:
                    raise InvalidRequest(
                        "the id of the streaming query is unknown in this thread: leave PYSPARK_PIN_THREAD as it is, which is true by "
                        "default"
                    )
                this = Batch(query, number)
                with marked(this.transaction, mark_of(number, _offsets(frame.sparkSession, this))):
                    # only the first batch of a run may have been written by the run before
                    if not self._began and is_written([opened(each) for each in self._tables], this.transaction):
                        _log.info("batch %d of query %s is in the table already", number, query)
                        # a query that counts or joins keeps its state only for batches that were computed
                        frame.write.format("noop").mode("overwrite").save()
                    else:
                        write(frame, this)
                self._began = True
                for each in self._compactions:
                    each.committed()
            except BaseException as failure:
                self.failure = failure
                raise

        return batch


def _offsets(spark: SparkSession, batch: Batch) -> bytes:
    """What the query's checkpoint says of the batch's offsets, as Spark wrote it before it ran the batch."""
    jvm: Any = spark._jvm
    session: Any = spark._jsparkSession
    running = session.sharedState().activeStreamingQueries().get(jvm.java.util.UUID.fromString(batch.query))
    path = jvm.org.apache.hadoop.fs.Path(running.resolvedCheckpointRoot(), f"{_OFFSETS}/{batch.number}")
    stream = path.getFileSystem(session.sessionState().newHadoopConf()).open(path)
    try:
        return bytes(jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
    finally:
        stream.close()


_SAME_CHECKPOINT: Final = (
    "CONCURRENT_STREAM_LOG_UPDATE",
    "Multiple streaming queries are concurrently using",
    "Multiple streaming jobs detected",
)
"""Spark's errors for the second of two queries that write the same file of a checkpoint; its source of files names no condition."""


def started(writer: DataStreamWriter, run: Run, write: Callable[[DataFrame, Batch], None]) -> Query:
    """Start the query of a writer; `write` gets each of its batches that is not written yet."""
    DataStreamWriter.foreachBatch(writer, run.each(write))
    return Query(DataStreamWriter.start(writer), run)


class Query(StreamingQuery):
    """PySpark's query, which raises the error of sluice that ended it. Each is also a StreamingQueryException."""

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


# -- what a query needs: a checkpoint, the table that it wrote before, and batches -----------------------------------------------


def checkpoint_of(spark: SparkSession, told: str | None) -> str:
    """The query's checkpoint folder: the option, or else the session's setting. Raises InvalidRequest if neither is set."""
    place = told or spark.conf.get(_CHECKPOINT, "")
    if not place:
        raise InvalidRequest(
            "no checkpoint was named: give option('checkpointLocation', ...), a folder for this query alone. By it a restarted query "
            f"finds its place and its id (or set {_CHECKPOINT}, and give the query a name)",
            option="checkpointLocation",
        )
    return place


def require_nothing_written(spark: SparkSession, checkpoint: str | None, location: str) -> None:
    """Raise TableNotFound for a table that is not there, if a query with this checkpoint wrote batches before."""
    if checkpoint is None:
        return
    jvm: Any = spark._jvm
    session: Any = spark._jsparkSession
    path = jvm.org.apache.hadoop.fs.Path(checkpoint, "commits")
    files = path.getFileSystem(session.sessionState().newHadoopConf())
    names = [each.getPath().getName() for each in files.listStatus(path)] if files.exists(path) else []
    last = max((int(name) for name in names if name.isdecimal()), default=None)
    if last is not None:
        raise TableNotFound(
            f"the query of the checkpoint {checkpoint} wrote its batches up to {last} into a table, and there is none at {location}: "
            f"{REMEDY_IF_GONE}",
            location=location,
        )


def require_batches(trigger: Mapping[str, Any]) -> None:
    """Raise InvalidRequest for a trigger of a query without micro-batches, each of which would be a commit."""
    for name in ("continuous", "realTime"):
        if trigger.get(name) is not None:
            raise InvalidRequest(
                f"trigger({name}={trigger[name]!r}) runs a query without micro-batches, and each of them would be a commit: use "
                "trigger(processingTime=...) or trigger(availableNow=True)",
                trigger=name,
            )
