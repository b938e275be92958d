"""`readStream` of a routed session: options are checked at once, and names that sluice's coordinator keeps are tables."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.streaming.readwriter import DataStreamReader
from pyspark.sql.types import StructType

from ..spark_errors import as_spark_users_know
from ..stream_options import StreamReadOptions
from .format_and_options import RemembersFormat
from .known_tables import location_of, means_sluice

__all__ = ["StreamReader"]


class StreamReader(RemembersFormat, DataStreamReader):
    """PySpark's reader of streams, which also remembers the format and the options; the data source reads."""

    def load(
        self,
        path: str | None = None,
        format: str | None = None,  # noqa: A002 - PySpark's name
        schema: StructType | str | None = None,
        **options: Any,
    ) -> DataFrame:
        """Like PySpark's."""
        if format is not None:
            self.format(format)
        if schema is not None:
            self.schema(schema)
        self.options(**options)
        if not self._is_sluice():
            return super().load(path)
        place = path if path is not None else self._options.get("path")
        return super().load(path) if place is None else self._read(place)

    def table(self, tableName: str) -> DataFrame:  # noqa: N803 - PySpark's name
        """Like PySpark's, also for the names that sluice's coordinator keeps.

        `format("sluice")` means such a name; without a format, Spark's own views and tables come first.
        """
        with as_spark_users_know():
            if means_sluice(self._spark, self._format, tableName, self._options):
                return self._read(location_of(self._options, tableName))
        return super().table(tableName)

    def _read(self, location: str) -> DataFrame:
        with as_spark_users_know():
            StreamReadOptions.parse({**self._options.besides("path"), "path": location})
            super().format("sluice")
            return super().load(location)
