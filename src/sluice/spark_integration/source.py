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
        from .options import ReadOptions
        from .read_plan import snapshot_for
        from .schemas import to_spark

        options = ReadOptions.parse(self.options)
        if options.changes is None:
            return to_spark(snapshot_for(options).struct)
        from .changes import changes_for

        return to_spark(changes_for(options)[0].schema)

    def reader(self, schema: SparkStruct) -> SluiceReader | ChangesReader:
        """A reader of the version that is current now, or of the one that is asked for."""
        from .options import ReadOptions

        options = ReadOptions.parse(self.options)
        if options.changes is None:
            from .reader import SluiceReader

            return SluiceReader(options, schema)
        from .changes import ChangesReader

        return ChangesReader(options, schema)

    def writer(self, schema: SparkStruct, overwrite: bool) -> SluiceWriter:
        """A writer with its plan: everything that can be refused without the rows is refused here."""
        from .options import WriteOptions
        from .writer import SluiceWriter

        return SluiceWriter(WriteOptions.parse(self.options, overwrite=overwrite), schema)
