"""`readStream` of a routed session: options are checked at once, and names that sluice's coordinator keeps are tables."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.streaming.readwriter import DataStreamReader
from pyspark.sql.types import StructType

from ..spark_errors import as_spark_users_know
from ..stream_options import StreamReadOptions
from .known_tables import ReadsTables


class StreamReader(ReadsTables, DataStreamReader):
    """PySpark's reader of streams, which also remembers the format and the options; the data source reads."""

    def load(
        self,
        path: str | None = None,
        format: str | None = None,  # noqa: A002 - PySpark's name
        schema: StructType | str | None = None,
        **options: Any,
    ) -> DataFrame:
        """Like PySpark's."""
        if not self._asks_for_sluice(format, schema, options):
            return super().load(path)
        place = path if path is not None else self._options.get("path")
        with as_spark_users_know():
            return super().load(path) if place is None else self._read(place)

    def _read(self, location: str) -> DataFrame:
        with as_spark_users_know():
            StreamReadOptions.parse({**self._options.besides("path"), "path": location})
            super().format("sluice")
            return super().load(location)
