"""Reads a table's changes through the data source: what a range of versions inserted and deleted."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType as SparkStruct

from ...storage.errors import InvalidRequest
from ...storage.pruning.predicate import Predicate
from ...storage.schema.conform import adapt
from ...storage.schema.schema import StructType, to_arrow
from ...tables.client.open_table import open_table
from ...tables.read.changes import CHANGE_COLUMNS, ChangesPart, split_changes
from ..options import ReadOptions
from ..schemas import requested

_CHANGE_COLUMNS: Final = to_arrow(StructType(CHANGE_COLUMNS))


def changes_for(options: ReadOptions) -> list[ChangesPart]:
    """The changes selected by the options, in parts. Raises VersionNotFound if some of the versions do not exist (any more)."""
    asked = options.changes
    if asked is None:
        raise InvalidRequest("changes are read with readChangeFeed=true", option="readChangeFeed")
    table = open_table(options.address, consistency=options.consistency)
    return split_changes(table, asked.after, asked.up_to, {"by": asked.by}, os.cpu_count() or 1)


def inserted_in(version: int, time_ms: int) -> pa.Table:
    """The columns of changes for rows that were inserted in a version, of this time in ms since the epoch; one row."""
    values = ("insert", version, time_ms * 1000)
    return pa.table([pa.array([value], field.type) for value, field in zip(values, _CHANGE_COLUMNS, strict=True)], schema=_CHANGE_COLUMNS)


class ChangesReader(DataSourceReader):
    """Reads the changes of some versions, fixed when the scan is planned. Is sent to the tasks, which only use the object store."""

    def __init__(self, options: ReadOptions, schema: SparkStruct) -> None:
        self._parts = changes_for(options)
        full = self._parts[0].schema
        self._schema = requested(schema, full)
        self._predicate = None if options.where is None else Predicate.parse(options.where, full)

    def partitions(self) -> list[InputPartition]:
        """The versions, in as many tasks as there are processors."""
        return [InputPartition(part) for part in self._parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task, in Spark's Arrow schema."""
        part: ChangesPart = partition.value
        for batch in part.batches(self._schema.names, self._predicate):
            yield from adapt(batch, self._schema).to_batches()
