"""The writer of a routed session's streams: tables of sluice, each micro-batch once; everything else by PySpark."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from ...storage.errors import InvalidRequest
from ...tables.manage.creation import beside_others
from ..data_source.write_plan import create_if_missing
from ..errors import as_spark_users_know
from ..options import WriteOptions
from ..streams import Batch, Run, checkpoint_of, gone_meanwhile, no_update_mode, require_batches, require_nothing_written, started
from .format_and_options import Options, RemembersFormat
from .known_tables import is_known, location_of, means_sluice, place_of_new
from .saving import Write, save

_CHECKPOINT: Final = "checkpointLocation"


class StreamWriter(RemembersFormat, DataStreamWriter):
    """PySpark's writer, which also remembers the format and the options, and runs `format("sluice")` itself."""

    def __init__(self, df: DataFrame) -> None:
        super().__init__(df)
        self._output = "append"
        self._trigger: dict[str, Any] = {}
        self._partition_by: tuple[str, ...] | None = None
        self._cluster_by: tuple[str, ...] | None = None

    def outputMode(self, outputMode: str) -> DataStreamWriter:  # noqa: N802, N803 - PySpark's names
        """Like PySpark's."""
        super().outputMode(outputMode)
        self._output = outputMode.lower()
        return self

    def trigger(self, **told: Any) -> DataStreamWriter:
        """Like PySpark's; `continuous` and `realTime` have no batches that could be commits."""
        super().trigger(**told)
        self._trigger = told
        return self

    def partitionBy(self, *cols: Any) -> DataStreamWriter:  # noqa: N802 - PySpark's name
        """Like PySpark's."""
        self._partition_by = tuple(cols[0] if len(cols) == 1 and isinstance(cols[0], (list, tuple)) else cols)
        return self

    def clusterBy(self, *cols: Any) -> DataStreamWriter:  # noqa: N802 - PySpark's name
        """Like PySpark's: by which columns a new table is clustered."""
        self._cluster_by = tuple(cols[0] if len(cols) == 1 and isinstance(cols[0], (list, tuple)) else cols)
        return self

    def foreach(self, f: Any) -> DataStreamWriter:
        """Like PySpark's."""
        super().foreach(f)
        self._format = "foreach"
        return self

    def foreachBatch(self, func: Any) -> DataStreamWriter:  # noqa: N802 - PySpark's name
        """Like PySpark's."""
        super().foreachBatch(func)
        self._format = "foreachBatch"
        return self

    def start(
        self,
        path: str | None = None,
        format: str | None = None,  # noqa: A002 - PySpark's name
        outputMode: str | None = None,  # noqa: N803 - PySpark's name
        partitionBy: str | list[str] | None = None,  # noqa: N803 - PySpark's name
        queryName: str | None = None,  # noqa: N803 - PySpark's name
        **options: Any,
    ) -> StreamingQuery:
        """Like PySpark's. Each batch of a stream into a table of sluice is one commit, made in this process, once.

        Raises sluice's errors, which are also AnalysisException; the query's own methods raise those of its batches.
        """
        self._tell(format, outputMode, partitionBy, queryName, options)
        if not self._is_sluice():
            self._partition_as_pyspark()
            return super().start(path)
        with as_spark_users_know():
            location = path if path is not None else self._options.get("path")
            if location is None:
                raise InvalidRequest(
                    "no path was given: name the table's location in start(...), or its name in toTable(...)", option="path"
                )
            return self._started(location)

    def toTable(  # noqa: N802 - PySpark's name
        self,
        tableName: str,  # noqa: N803 - PySpark's name
        format: str | None = None,  # noqa: A002 - PySpark's name
        outputMode: str | None = None,  # noqa: N803 - PySpark's name
        partitionBy: str | list[str] | None = None,  # noqa: N803 - PySpark's name
        queryName: str | None = None,  # noqa: N803 - PySpark's name
        **options: Any,
    ) -> StreamingQuery:
        """Like PySpark's; also for the names that sluice's coordinator keeps.

        `format("sluice")` creates a table that is not there, empty, below the catalog's root or at the option `path`.
        """
        self._tell(format, outputMode, partitionBy, queryName, options)
        with as_spark_users_know():
            if means_sluice(self._spark, self._format, tableName, self._options):
                return self._started(self._location_of(tableName))
        self._partition_as_pyspark()
        return super().toTable(tableName)

    def _tell(
        self, form: str | None, output: str | None, partition_by: str | list[str] | None, query: str | None, options: dict[str, Any]
    ) -> None:
        self.options(**options)
        if output is not None:
            self.outputMode(output)
        if partition_by is not None:
            self.partitionBy(partition_by)
        if form is not None:
            self.format(form)
        if query is not None:
            self.queryName(query)

    def _partition_as_pyspark(self) -> None:
        if self._partition_by is not None:
            super().partitionBy(*self._partition_by)
        if self._cluster_by is not None:
            super().clusterBy(*self._cluster_by)

    def _started(self, location: str) -> StreamingQuery:
        parsed = self._write().parsed(location, self._df)  # refuses options before the query starts
        self._create(replace(parsed, mode="append", where=None))

        def write(frame: DataFrame, batch: Batch) -> None:
            app, number = batch.transaction
            once = self._options.but(txnAppId=app, txnVersion=str(number))
            save(frame, location, self._write(once), missing=gone_meanwhile(location))

        return started(self, Run([parsed.address]), write)

    def _write(self, told: Options | None = None) -> Write:
        """The write of a batch. Raises InvalidRequest for what a stream cannot have."""
        if self._output == "update":
            raise no_update_mode(self._options.get("path"))
        require_batches(self._trigger)
        checkpoint_of(self._spark, self._options.get(_CHECKPOINT))
        if told is None:
            WriteOptions.refuse_for_streams(self._options.besides())
        options = Options()
        for name, value in (told or self._options).besides(_CHECKPOINT).items():
            options.set(name, value)
        cluster_by = self._cluster_by if told is None else None  # the table's columns may change while the stream runs
        if self._output != "complete":
            return Write("append", options, self._partition_by, cluster_by=cluster_by)
        options.set("partitionOverwriteMode", "static")  # also partitions that the batch has no rows of, whatever the session's setting is
        return Write("overwrite", options, self._partition_by, cluster_by=cluster_by)

    def _create(self, options: WriteOptions) -> None:
        """Create the table if it is not there, and no query of this checkpoint wrote it."""
        location = options.name or options.address.location
        told = self._options.get(_CHECKPOINT)
        create_if_missing(options, self._df.schema, lambda: require_nothing_written(self._spark, told, location))

    def _location_of(self, name: str) -> str:
        """Where the table of this name is; it is created if it is not there."""

        def attempt() -> None:
            if not is_known(self._options, name):
                location, called, managed = place_of_new(self._options, name)
                parsed = replace(self._write().parsed(location, self._df), mode="append", where=None)
                self._create(replace(parsed, name=called, managed=managed))

        beside_others(attempt, lambda: is_known(self._options, name))  # such as another query into this table
        return location_of(self._options, name)
