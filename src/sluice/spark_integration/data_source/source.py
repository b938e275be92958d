"""`format("sluice")`: the entry point that Spark's planning processes make from the options.

Every phase of a job (schema, planning, tasks, commit) runs in its own process, never in the user's driver process. Each
imports this module, even the process that only looks for data sources: so it imports other modules on use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType as SparkStruct

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamReader

    from ...storage.actions import Metadata
    from .reader import ChangesReader, SluiceReader
    from .writer import SluiceStreamWriter, SluiceWriter

_CHECKPOINT: Final = "checkpointlocation"


class SluiceDataSource(DataSource):
    """Reads and writes tables; see `options` for the options."""

    @classmethod
    def name(cls) -> str:
        """The name for `format(...)`."""
        return "sluice"

    _base: tuple[int, Metadata] | None = None
    """The version, and its metadata, of which `schema` told the columns: a stream stops where they change."""

    def schema(self) -> SparkStruct:
        """The schema of the version to read, or of its changes."""
        from ..options import ReadOptions
        from ..schemas import to_spark
        from ..stream_options import asked_of
        from .read_plan import changes_for, columns_of, shown_for, snapshot_for

        options = asked_of(self.options)
        if not isinstance(options, ReadOptions):
            self._base = shown_for(options)
            return to_spark(columns_of(options, self._base[1]))
        if options.changes is None:
            snapshot = snapshot_for(options)
            self._base = snapshot.version, snapshot.raw.metadata
            return to_spark(snapshot.struct)
        part = changes_for(options)[0][0]
        self._base = part.up_to, part.metadata
        return to_spark(part.schema)

    def reader(self, schema: SparkStruct) -> SluiceReader | ChangesReader:
        """A reader of the current version, or of the requested one."""
        from ..options import ReadOptions
        from .reader import ChangesReader, SluiceReader

        options = ReadOptions.parse(self.options)
        return SluiceReader(options, schema) if options.changes is None else ChangesReader(options, schema)

    def streamReader(self, schema: SparkStruct) -> DataSourceStreamReader:  # noqa: N802 - PySpark's name
        """A reader of new rows, or of changes. Raises UnsupportedFeature where PySpark is too old for it."""
        from ..stream_options import StreamReadOptions
        from .stream_reader import SluiceStreamReader

        return SluiceStreamReader(StreamReadOptions.parse(self.options), schema, self._base)

    def writer(self, schema: SparkStruct, overwrite: bool) -> SluiceWriter:
        """A writer with its plan: everything that can be refused without the rows is refused here."""
        from ..options import WriteOptions
        from .writer import SluiceWriter

        return SluiceWriter(WriteOptions.for_tasks(self.options, overwrite=overwrite), schema)

    def streamWriter(self, schema: SparkStruct, overwrite: bool) -> SluiceStreamWriter:  # noqa: N802 - PySpark's name
        """A writer of one micro-batch of a stream."""
        from ..options import WriteOptions
        from .writer import SluiceStreamWriter

        own = {name: value for name, value in self.options.items() if name.lower() != _CHECKPOINT}
        WriteOptions.refuse_for_streams(own)
        return SluiceStreamWriter(WriteOptions.for_tasks(own, overwrite=overwrite), schema, self.options.get(_CHECKPOINT))
