"""`format("sluice")`: what Spark makes in its planning processes, from nothing but options.

Every phase of a job (schema, planning, tasks, commit) runs in a process of its own, none of them the user's driver process.
"""

from __future__ import annotations

import sys

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType as SparkStruct

from .changes import ChangesReader, changes_for
from .options import ReadOptions, WriteOptions
from .reader import PushdownReader, SluiceReader, snapshot_for
from .schemas import to_spark
from .writer import SluiceWriter

__all__ = ["SluiceDataSource"]

_PUSHDOWN_PROCESS = "pyspark.sql.worker.data_source_pushdown_filters"


class SluiceDataSource(DataSource):
    """Reads and writes tables; see `options` for what may be given."""

    @classmethod
    def name(cls) -> str:
        """What stands in `format(...)`."""
        return "sluice"

    def schema(self) -> SparkStruct:
        """The schema of the version that is read, or of its changes."""
        options = ReadOptions.parse(self.options)
        return to_spark(changes_for(options)[0].schema if options.changes else snapshot_for(options).struct)

    def reader(self, schema: SparkStruct) -> SluiceReader | ChangesReader:
        """A reader of the version that is current now, or of the one that is asked for.

        Spark refuses a reader that takes filters unless `spark.sql.python.filterPushdown.enabled` is set; it is set
        where the process that pushes filters runs. Elsewhere reading works too, and Spark filters.
        """
        options = ReadOptions.parse(self.options)
        if options.changes is not None:
            return ChangesReader(options, schema)
        pushing = _PUSHDOWN_PROCESS in sys.modules
        return (PushdownReader if pushing else SluiceReader)(options, schema)

    def writer(self, schema: SparkStruct, overwrite: bool) -> SluiceWriter:
        """A writer with its plan: everything that can be refused without the rows is refused here."""
        return SluiceWriter(WriteOptions.parse(self.options, overwrite=overwrite), schema)
