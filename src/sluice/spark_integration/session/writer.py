"""The writers of a routed session, `DataFrame.write`, `writeTo` and `writeStream`: tables of sluice, each micro-batch of a stream once;
everything else by PySpark.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.readwriter import DataFrameWriter, DataFrameWriterV2
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from ...storage.errors import InvalidRequest, TableNotFound, UnsupportedFeature
from ...storage.stores.location import normalise
from ...tables.client.address import TableAddress
from ...tables.manage.creation import beside_others
from ..data_source.write_plan import create_if_missing
from ..errors import as_spark_users_know
from ..options import WriteOptions
from ..rows.conditions import predicate_text
from ..scan.file_rows import versions_read
from ..streams import REMEDY_IF_GONE, Batch, Query, Run, checkpoint_of, require_batches, require_nothing_written, started
from .names import (
    Options,
    RemembersFormat,
    RemembersOptions,
    already_there,
    is_known,
    location_of,
    means_sluice,
    open_at,
    path_in,
    place_of_new,
)
from .saving import Write, insert, save

_MODES: Final = dict.fromkeys(("error", "errorifexists", "default"), "error") | {name: name for name in ("append", "overwrite", "ignore")}
"""Spark's names of modes, and those of a `Write`."""
_CHECKPOINT: Final = "checkpointLocation"


def _names_in(cols: tuple[Any, ...]) -> tuple[str, ...]:
    """The columns that a method of PySpark was given one by one, or as one list."""
    return tuple(cols[0] if len(cols) == 1 and isinstance(cols[0], (list, tuple)) else cols)


class Writer(RemembersFormat, DataFrameWriter):
    """PySpark's writer, which also remembers the format and the options, and saves `format("sluice")` itself."""

    def __init__(self, df: DataFrame) -> None:
        super().__init__(df)
        self._mode: str | None = None
        self._partition_by: tuple[str, ...] | None = None
        self._cluster_by: tuple[str, ...] | None = None
        self._unfit: list[str] = []

    def mode(self, saveMode: str | None) -> DataFrameWriter:  # noqa: N803 - PySpark's name
        """Like PySpark's."""
        super().mode(saveMode)
        if saveMode:
            self._mode = saveMode
        return self

    def partitionBy(self, *cols: Any) -> DataFrameWriter:  # noqa: N802 - PySpark's name
        """Like PySpark's."""
        super().partitionBy(*cols)
        self._partition_by = _names_in(cols)
        return self

    def bucketBy(self, numBuckets: int, col: Any, *cols: Any) -> DataFrameWriter:  # noqa: N802, N803 - PySpark's names
        """Like PySpark's; tables of sluice have no buckets."""
        super().bucketBy(numBuckets, col, *cols)
        self._unfit.append("bucketBy")
        return self

    def sortBy(self, col: Any, *cols: Any) -> DataFrameWriter:  # noqa: N802 - PySpark's name
        """Like PySpark's; tables of sluice have no buckets to sort."""
        super().sortBy(col, *cols)
        self._unfit.append("sortBy")
        return self

    def clusterBy(self, *cols: Any) -> DataFrameWriter:  # noqa: N802 - PySpark's name
        """Like PySpark's: by which columns a new table is clustered."""
        super().clusterBy(*cols)
        self._cluster_by = _names_in(cols)
        return self

    def save(
        self,
        path: str | None = None,
        format: str | None = None,  # noqa: A002 - PySpark's name
        mode: str | None = None,
        partitionBy: str | list[str] | None = None,  # noqa: N803 - PySpark's name
        **options: Any,
    ) -> None:
        """Like PySpark's. A table of sluice is written in any mode, "error" by default, and committed in this process. Raises sluice's
        errors, which are also AnalysisException or another of PySpark's.
        """
        self._take(format, options, mode=mode, partitionBy=partitionBy)
        if not self._is_sluice():
            super().save(path)
            return
        with as_spark_users_know():
            location = path if path is not None else self._options.get("path")
            if location is None:
                raise InvalidRequest("no path was given: name the table's location in save(...)", option="path")
            save(self._df, location, self._write())

    def saveAsTable(  # noqa: N802 - PySpark's name
        self,
        name: str,
        format: str | None = None,  # noqa: A002 - PySpark's name
        mode: str | None = None,
        partitionBy: str | list[str] | None = None,  # noqa: N803 - PySpark's name
        **options: Any,
    ) -> None:
        """Like PySpark's; `format("sluice")` saves under a name that sluice's coordinator keeps. A new table is made below the catalog's
        root, or at the option `path`; the name may also be a path, as in sluice.`/a/path`.
        """
        self._take(format, options, mode=mode, partitionBy=partitionBy)
        if not self._is_sluice():
            super().saveAsTable(name)
            return
        with as_spark_users_know():
            write = replace(self._write(), defines=True)

            def attempt() -> None:
                if is_known(self._options, name):
                    save(self._df, location_of(self._options, name), write, taken=already_there(name))
                else:
                    location, called, managed = place_of_new(self._options, name)
                    save(self._df, location, write, name=called, managed=managed)

            if write.mode == "error":
                attempt()
            else:
                beside_others(attempt, lambda: is_known(self._options, name))

    def insertInto(self, tableName: str, overwrite: bool | None = None) -> None:  # noqa: N802, N803 - PySpark's names
        """Like PySpark's: columns by position, whatever their names; also for the names that sluice's coordinator keeps."""
        if overwrite is not None:
            self.mode("overwrite" if overwrite else "append")
        with as_spark_users_know():
            if means_sluice(self._spark, self._format, tableName, self._options):
                if self._partition_by is not None or self._cluster_by is not None:
                    raise InvalidRequest("insertInto writes into the table as it is: leave partitionBy and clusterBy out")
                mode = "overwrite" if (self._mode or "").lower() == "overwrite" else "append"
                insert(self._df, location_of(self._options, tableName), Write(mode, self._options))
                return
        super().insertInto(tableName)

    def _write(self) -> Write:
        if self._unfit:
            raise InvalidRequest(f"{self._unfit[0]} was called, but sluice's tables have no buckets: use partitionBy or clusterBy")
        mode = _MODES.get((self._mode or "error").lower())
        if mode is None:
            raise InvalidRequest(f"the save mode is {self._mode!r}; use append, overwrite, error, errorifexists or ignore", mode=self._mode)
        return Write(mode, self._options, self._partition_by, cluster_by=self._cluster_by)


class WriterV2(RemembersOptions, DataFrameWriterV2):
    """PySpark's writer, which also remembers the format and the options, and writes tables of sluice itself.

    `using("sluice")` says that the table is one, as the name sluice.`/a/path` does.
    `append`, `overwrite` and `overwritePartitions` also find it by its name alone, if
    Spark has no table or view of that name.
    """

    def __init__(self, df: DataFrame, table: str) -> None:
        super().__init__(df, table)
        self._name = table
        self._properties: dict[str, str] = {}
        self._partition_by: tuple[Any, ...] | None = None
        self._cluster_by: tuple[str, ...] | None = None

    def using(self, provider: str) -> DataFrameWriterV2:
        """Like PySpark's."""
        super().using(provider)
        self._format = provider
        return self

    def tableProperty(self, property: str, value: str) -> DataFrameWriterV2:  # noqa: A002, N802 - PySpark's names
        """Like PySpark's: a property of the table."""
        super().tableProperty(property, value)
        self._properties[property] = value
        return self

    def partitionedBy(self, col: Any, *cols: Any) -> DataFrameWriterV2:  # noqa: N802 - PySpark's name
        """Like PySpark's; tables of sluice are partitioned by columns, not by functions of them."""
        super().partitionedBy(col, *cols)
        self._partition_by = (col, *cols)
        return self

    def clusterBy(self, col: str, *cols: str) -> DataFrameWriterV2:  # noqa: N802 - PySpark's name
        """Like PySpark's: by which columns a new table is clustered."""
        super().clusterBy(col, *cols)
        self._cluster_by = (col, *cols)
        return self

    def create(self) -> None:
        """Like PySpark's. Raises TableExists, which is an AnalysisException, if the name is taken."""
        if not self._is_sluice():
            super().create()
            return
        with as_spark_users_know():
            if is_known(self._options, self._name):
                raise already_there(self._name)
            self._create()

    def replace(self) -> None:
        """Like PySpark's: schema, partitioning, properties and rows in one commit. Raises TableNotFound."""
        if not self._is_sluice():
            super().replace()
            return
        with as_spark_users_know():
            self._replace()

    def createOrReplace(self) -> None:  # noqa: N802 - PySpark's name
        """Like PySpark's."""
        if not self._is_sluice():
            super().createOrReplace()
            return
        with as_spark_users_know():
            place = normalise(location_of(self._options, self._name)) if is_known(self._options, self._name) else None
            reads_itself = any(each.location == place for each in versions_read(self._df))

            def attempt() -> None:
                (self._replace if is_known(self._options, self._name) else self._create)()

            beside_others(attempt, lambda: is_known(self._options, self._name), replaces=not reads_itself)

    def append(self) -> None:
        """Like PySpark's. Raises TableNotFound."""
        if not self._is_of_sluice():
            super().append()
            return
        with as_spark_users_know():
            self._add("append")

    def overwrite(self, condition: Column | str) -> None:
        """Like PySpark's: replaces the rows that satisfy the condition. Raises TableNotFound."""
        if not self._is_of_sluice():
            super().overwrite(condition)
            return
        with as_spark_users_know():
            table = open_at(location_of(self._options, self._name), self._options)
            column = F.col(condition) if isinstance(condition, str) else condition  # a text names a boolean column
            self._add("overwrite", replaceWhere=predicate_text(self._spark, table.struct, column, "overwrite"))

    def overwritePartitions(self) -> None:  # noqa: N802 - PySpark's name
        """Like PySpark's: replaces the partitions of the new rows, all rows of a table without partitions. Raises TableNotFound."""
        if not self._is_of_sluice():
            super().overwritePartitions()
            return
        with as_spark_users_know():
            self._add("overwrite", partitionOverwriteMode="dynamic")

    def _is_of_sluice(self) -> bool:
        return means_sluice(self._spark, self._format, self._name, self._options)

    def _create(self) -> None:
        location, called, managed = place_of_new(self._options, self._name)
        save(self._df, location, self._write("error", self._options.but(**self._as_options())), name=called, managed=managed)

    def _replace(self) -> None:
        location = location_of(self._options, self._name)
        options = self._options.but(overwriteSchema="true", **self._as_options())
        save(self._df, location, self._write("overwrite", options, replaces=True), missing=_gone(self._name))

    def _add(self, mode: str, **options: str) -> None:
        if self._partition_by is not None or self._cluster_by is not None or self._properties:
            remedy = "use create(), replace() or createOrReplace()"
            raise InvalidRequest(f"partitionedBy, clusterBy and tableProperty describe a new table: {remedy}")
        save(self._df, location_of(self._options, self._name), self._write(mode, self._options.but(**options)), missing=_gone(self._name))

    def _write(self, mode: str, options: Options, *, replaces: bool = False) -> Write:
        columns = None if self._partition_by is None else tuple(_column(each) for each in self._partition_by)
        grouped = self._cluster_by or (() if replaces else None)
        return Write(mode, options, () if replaces and columns is None else columns, replaces, grouped, defines=True)

    def _as_options(self) -> dict[str, str]:
        return {"properties": json.dumps(self._properties)} if self._properties else {}


def _gone(name: str) -> TableNotFound:
    path = path_in(name)
    if path is not None:
        return TableNotFound(f"there is no table at {path}: check the path, or make one with create()", location=path)
    return TableNotFound(f"the table {name} is gone", name=name)


def _column(column: Column | str) -> str:
    """The name of a column to partition by. Raises InvalidRequest for a function of columns."""
    java: Any = F.col(column) if isinstance(column, str) else column
    node = java._jc.node()  # Spark's own object of a column, which knows the column's parts
    if node.getClass().getSimpleName() != "UnresolvedAttribute":
        raise InvalidRequest(f"partitionedBy was given {column}; a table of sluice is partitioned by columns: add one that has this value")
    text = str(node.sql())
    return text[1:-1].replace("``", "`") if text.startswith("`") else text


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
        self._partition_by = _names_in(cols)
        return self

    def clusterBy(self, *cols: Any) -> DataStreamWriter:  # noqa: N802 - PySpark's name
        """Like PySpark's: by which columns a new table is clustered."""
        self._cluster_by = _names_in(cols)
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
        """Like PySpark's. Each batch of a stream into a table of sluice is one commit, made in this process, once. Raises sluice's errors,
        which are also AnalysisException; the query's own methods raise those of its batches.
        """
        self._take(format, options, outputMode=outputMode, partitionBy=partitionBy, queryName=queryName)
        if not self._is_sluice():
            self._partition_as_pyspark()
            return super().start(path)
        with as_spark_users_know():
            location = path if path is not None else self._options.get("path")
            if location is None:
                message = "no path was given: name the table's location in start(...), or its name in toTable(...)"
                raise InvalidRequest(message, option="path")
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
        """Like PySpark's; also for the names that sluice's coordinator keeps. `format("sluice")` creates a table that is not there, empty,
        below the catalog's root or at the option `path`.
        """
        self._take(format, options, outputMode=outputMode, partitionBy=partitionBy, queryName=queryName)
        with as_spark_users_know():
            if means_sluice(self._spark, self._format, tableName, self._options):
                return self._started(self._location_of(tableName))
        self._partition_as_pyspark()
        return super().toTable(tableName)

    def _partition_as_pyspark(self) -> None:
        if self._partition_by is not None:
            super().partitionBy(*self._partition_by)
        if self._cluster_by is not None:
            super().clusterBy(*self._cluster_by)

    def _started(self, location: str) -> StreamingQuery:
        parsed = self._write().parsed(location, self._df)  # refuses options before the query starts
        self._create(replace(parsed, mode="append", where=None))
        message = f"the table at {location} was there when this query started, and is not any more: {REMEDY_IF_GONE}"
        gone = TableNotFound(message, location=location)

        def write(frame: DataFrame, batch: Batch) -> None:
            app, number = batch.transaction
            once = self._options.but(txnAppId=app, txnVersion=str(number))
            save(frame, location, self._write(once), missing=gone)

        return started(self, Run([parsed.address]), write)

    def _write(self, told: Options | None = None) -> Write:
        """The write of a batch. Raises InvalidRequest for what a stream cannot have."""
        if self._output == "update":
            table = repr(self._options.get("path") or "LOCATION")
            raise InvalidRequest(
                "format('sluice') has the output modes append and complete. Merge rows that change by their key: "
                f"sluice.stream(df).merge_into({table}, on='KEY').outputMode('update').option('checkpointLocation', ...).start(); "
                "or, with any MERGE, df.writeStream.outputMode('update').foreachBatch(f) where f(batch, number) calls "
                f"DeltaTable.forPath(spark, {table}).alias('t').merge(batch.alias('s'), 't.KEY = s.KEY').whenMatchedUpdateAll()"
                ".whenNotMatchedInsertAll().execute(transaction=('a name of this query', number))",
                option="outputMode",
            )
        require_batches(self._trigger)
        checkpoint_of(self._spark, self._options.get(_CHECKPOINT))
        if told is None:
            WriteOptions.refuse_for_streams(self._options.besides())
        options = Options()
        for name, value in (told or self._options).besides(_CHECKPOINT).items():
            options.set(name, value)
        cluster_by = self._cluster_by if told is None else None  # the table's columns may change while the stream runs
        if self._output == "complete":  # also partitions that the batch has no rows of, whatever the session's setting is
            options.set("partitionOverwriteMode", "static")
        return Write("overwrite" if self._output == "complete" else "append", options, self._partition_by, cluster_by=cluster_by)

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


class BatchWriter(RemembersFormat, DataStreamWriter):
    """PySpark's `DataStreamWriter` with its target set: `outputMode`, `option`, `trigger`, `queryName`, and `start()`. The option
    `checkpointLocation` is necessary.
    """

    def __init__(self, df: DataFrame, tables: Sequence[TableAddress], write: Callable[[DataFrame, Batch], None]) -> None:
        if not hasattr(df, "_jdf"):
            raise UnsupportedFeature("streams need a classic session: with Spark Connect the functions of batches run on the server")
        if not df.isStreaming:
            raise InvalidRequest("the DataFrame is no stream: make it with readStream, or write it at once, such as by DeltaTable.merge")
        super().__init__(df)
        self._tables = tuple(tables)
        self._write_batch = write

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
        self._take(None, options, outputMode=outputMode, queryName=queryName)
        with as_spark_users_know():
            checkpoint_of(self._spark, self._options.get(_CHECKPOINT))
        return started(self, Run(self._tables), self._write_batch)

    def _unfit(self, *_: Any, **__: Any) -> Any:
        raise InvalidRequest("the tables were named already: call start() without a path, a format, a function or partitions")

    format = toTable = foreach = foreachBatch = partitionBy = clusterBy = _unfit  # noqa: N815 - PySpark's names
