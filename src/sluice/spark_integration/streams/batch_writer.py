"""The writer of a stream whose batches a function writes, such as by a MERGE: each once, by one run of the query at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.streaming.readwriter import DataStreamWriter

from ...storage.errors import InvalidRequest, UnsupportedFeature
from ...tables.client.address import TableAddress
from ..errors import as_spark_users_know
from .batches import Batch, Query, Run, started
from .requirements import checkpoint_of, require_batches


class BatchWriter(DataStreamWriter):
    """PySpark's `DataStreamWriter` with its target set: `outputMode`, `option`, `trigger`, `queryName`, and `start()`.

    The option `checkpointLocation` is necessary.
    """

    def __init__(self, df: DataFrame, tables: Sequence[TableAddress], write: Callable[[DataFrame, Batch], None]) -> None:
        if not hasattr(df, "_jdf"):
            raise UnsupportedFeature("streams need a classic session: with Spark Connect the functions of batches run on the server")
        if not df.isStreaming:
            raise InvalidRequest("the DataFrame is no stream: make it with readStream, or write it at once, such as by DeltaTable.merge")
        super().__init__(df)
        self._tables = tuple(tables)
        self._write_batch = write
        self._checkpoint: str | None = None

    def option(self, key: str, value: Any) -> BatchWriter:
        """Like PySpark's."""
        super().option(key, value)
        if key.lower() == "checkpointlocation" and value is not None:
            self._checkpoint = str(value)
        return self

    def options(self, **options: Any) -> BatchWriter:
        """Like PySpark's."""
        for key, value in options.items():
            if value is not None:
                self.option(key, value)
        return self

    def trigger(self, **told: Any) -> BatchWriter:
        """Like PySpark's. Raises InvalidRequest for `continuous` and `realTime`, which have no batches."""
        with as_spark_users_know():
            require_batches(told)
        super().trigger(**told)
        return self

    def start(  # type: ignore[override]
        self,
        *,
        outputMode: str | None = None,  # noqa: N803 - PySpark's name
        queryName: str | None = None,  # noqa: N803 - PySpark's name
        **options: Any,
    ) -> Query:
        """Start the query. Its methods raise the errors of its batches."""
        self.options(**options)
        if outputMode is not None:
            self.outputMode(outputMode)
        if queryName is not None:
            self.queryName(queryName)
        with as_spark_users_know():
            checkpoint_of(self._spark, self._checkpoint)
        return started(self, Run(self._tables), self._write_batch)

    def _unfit(self, *_: Any, **__: Any) -> Any:
        raise InvalidRequest("the tables were named already: call start() without a path, a format, a function or partitions")

    format = toTable = foreach = foreachBatch = partitionBy = clusterBy = _unfit  # noqa: N815 - PySpark's names
