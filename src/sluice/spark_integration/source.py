"""`format("sluice")`: what Spark makes in its planning processes, from nothing but options.

Every phase of a job (schema, planning, tasks, commit) runs in a process of its own, none of them the user's driver process.
"""

from __future__ import annotations

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType as SparkStruct

from .changes import ChangesReader, changes_for
from .options import ReadOptions, WriteOptions
from .reader import SluiceReader, snapshot_for
from .schemas import to_spark
from .writer import SluiceWriter

__all__ = ["SluiceDataSource"]


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
        """A reader of the version that is current now, or of the one that is asked for."""
        options = ReadOptions.parse(self.options)
        return SluiceReader(options, schema) if options.changes is None else ChangesReader(options, schema)

    def writer(self, schema: SparkStruct, overwrite: bool) -> SluiceWriter:
        """A writer with its plan: everything that can be refused without the rows is refused here."""
        return SluiceWriter(WriteOptions.parse(self.options, overwrite=overwrite), schema)
