"""Reads a table as a stream through the data source: batches of new rows, or of changes.

One process per query asks for offsets and plans the batches: `stream_batches` works there, made on first use. The rows are read by tasks,
which get a copy of the reader that has opened nothing; all that a task needs is in its partition.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType as SparkStruct

from ...storage.data.scan import TableScan
from ...storage.errors import Corrupt, MissingObject, SchemaMismatch, UnsupportedFeature
from ...storage.schema.conform import adapt
from ...storage.schema.schema import StructType, parse_schema
from ...tables.read.streams.offsets import StreamOffset
from ..schemas import from_spark
from .reader import RowsPart

if TYPE_CHECKING:
    from ...storage.actions import Metadata
    from ...tables.read.changes import ChangesPart
    from ..stream_options import StreamReadOptions
    from .stream_batches import StreamPlan


try:
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, ReadMaxFiles, SupportsTriggerAvailableNow
except ImportError as lacking:
    remedy = "read with a batch, or use table.changes without Spark"
    message = f"streams of sluice's tables need PySpark 4.2 or later ({lacking}): {remedy}"
    raise UnsupportedFeature(message, features=["readStream"], access="read") from lacking

_log: Final = logging.getLogger(__name__)


class SluiceStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the rows, or the changes, of a table version by version."""

    def __init__(self, options: StreamReadOptions, schema: SparkStruct, base: tuple[int, Metadata] | None) -> None:
        """`base` is the version, and its metadata, from which the query has its columns; None: the user named them."""
        self._options = options
        self._spark_schema = schema
        self._schema: StructType = from_spark(schema)
        self._base = base
        self._plan: StreamPlan | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_plan": None}

    # -- in the process of the query -----------------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - PySpark's name
        """Where a query without a checkpoint begins."""
        return self._planned().initial_offset()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """The limit that the options give; one of bytes beside one of files is kept by `latestOffset`."""
        limits = self._options.limits
        if limits.files is not None:
            return ReadMaxFiles(limits.files)
        assert limits.size is not None
        return ReadMaxBytes(limits.size)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Where the next batch ends; `start` if there is nothing new."""
        own = self._options.limits
        files, size = own.files, own.size
        match limit:
            case ReadAllAvailable():
                files = size = None
            case ReadMaxFiles():
                files = limit.max_files
            case ReadMaxBytes():
                size = limit.max_bytes
        return self._planned().latest_offset(start, files, size)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Offer only what is there now."""
        self._planned().stream.stay_until_here()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """The latest version, and how many versions and bytes lie between it and the query: for its progress."""
        plan = self._planned()
        return None if plan.place is None else plan.stream.behind(plan.place)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The tasks of a batch."""
        return self._planned().partitions(start, end)

    def commit(self, end: dict[str, Any]) -> None:
        """Forget what was read."""
        self._planned().stream.committed(StreamOffset.of_json(end))

    def stop(self) -> None:
        """Let go of what the query held."""
        plan, self._plan = self._plan, None
        if plan is not None:
            plan.stream.close()

    def _planned(self) -> StreamPlan:
        if self._plan is None:
            from .stream_batches import StreamPlan

            self._plan = StreamPlan(self._options, self._spark_schema, self._base)
        return self._plan

    # -- in the tasks --------------------------------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task, in Spark's Arrow schema."""
        part: RowsPart | ChangesPart = partition.value
        batches = self._rows(part) if isinstance(part, RowsPart) else part.batches(self._schema.names)
        try:
            for batch in batches:
                yield from adapt(batch, self._schema).to_batches()
        except MissingObject as gone:
            passing = "" if self._options.rules.changes else "; or with failOnDataLoss=false, which passes over files that are gone"
            raise MissingObject(
                f"the stream has yet to read rows whose file was cleaned up: {gone.message}. Files that later versions replaced are kept "
                "for delta.deletedFileRetentionDuration: start the query with a new checkpoint, which begins with the table as it is now"
                + passing,
                **gone.details,
            ) from gone
        except Corrupt as unfit:
            if not isinstance(unfit.__cause__, SchemaMismatch):
                raise
            raise SchemaMismatch(
                f"the stream has yet to read rows from before the type of a column changed, and shows a later schema: "
                f"{unfit.__cause__.message}. A stream with schemaTrackingLocation shows them with the schema that they had: start the "
                "query with that option, a new checkpoint and startingVersion",
                **unfit.details,
            ) from unfit

    def _rows(self, part: RowsPart) -> Iterator[pa.RecordBatch]:
        """The rows of a task's files; with failOnDataLoss=false, of those that are there."""
        struct, beside = parse_schema(part.schema_string), part.beside
        scan = TableScan(self._options.address.store(), struct, part.partition_columns)
        wanted = [name for name in self._schema.names if struct.get(name) is not None]
        wanted = wanted or list(struct.names[:1])  # without a column of the table, the rows are counted by one
        passes_over = not self._options.rules.fail_on_data_loss
        pieces = [part.files.slice(number, 1) for number in range(part.files.num_rows)] if passes_over else [part.files]
        for files in pieces:
            try:  # a file that is gone is noticed before its first row
                for batch in scan.batches(files, wanted, part.rows, chosen=True):
                    columns = {name: batch.column(name) for name in batch.schema.names}
                    if beside is not None:
                        columns |= {name: pa.repeat(beside[name][0], batch.num_rows) for name in beside.column_names}
                    yield pa.record_batch([columns[name] for name in self._schema.names], names=self._schema.names)
            except MissingObject as gone:
                if not passes_over:
                    raise
                _log.warning("the stream passes over rows, since failOnDataLoss=false: %s", gone)
