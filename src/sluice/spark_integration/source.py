"""`format("sluice")`: what Spark makes in its planning processes, from nothing but options.

Every phase of a job (schema, planning, tasks, commit) runs in a process of its own, none of them the user's driver process. Each
imports this module, also the process that only looks for data sources: so it imports what it needs when it needs it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType as SparkStruct

if TYPE_CHECKING:
    from .changes import ChangesReader
    from .reader import SluiceReader
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
        from .changes import changes_for
        from .options import ReadOptions
        from .reader import snapshot_for
        from .schemas import to_spark

        options = ReadOptions.parse(self.options)
        return to_spark(changes_for(options)[0].schema if options.changes else snapshot_for(options).struct)

    def reader(self, schema: SparkStruct) -> SluiceReader | ChangesReader:
        """A reader of the version that is current now, or of the one that is asked for."""
        from .changes import ChangesReader
        from .options import ReadOptions
        from .reader import SluiceReader

        options = ReadOptions.parse(self.options)
        return SluiceReader(options, schema) if options.changes is None else ChangesReader(options, schema)

    def writer(self, schema: SparkStruct, overwrite: bool) -> SluiceWriter:
        """A writer with its plan: everything that can be refused without the rows is refused here."""
        from .options import WriteOptions
        from .writer import SluiceWriter

        return SluiceWriter(WriteOptions.parse(self.options, overwrite=overwrite), schema)
