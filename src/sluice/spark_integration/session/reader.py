"""The reader of a routed session: tables of sluice by Spark's own scan, everything else by PySpark."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.readwriter import DataFrameReader
from pyspark.sql.types import StructType

from ..options import ReadOptions
from ..scan.read import read
from ..spark_errors import as_spark_users_know
from .known_tables import ReadsTables

__all__ = ["Reader"]


class Reader(ReadsTables, DataFrameReader):
    """PySpark's reader, which also remembers the format and the options, and reads `format("sluice")` itself.

    With a schema, or for a table's changes, `format("sluice")` is read by the data source.
    """

    def __init__(self, spark: SparkSession) -> None:
        super().__init__(spark)
        self._has_schema = False

    def schema(self, schema: StructType | str) -> DataFrameReader:
        """Like PySpark's: the columns to read."""
        self._has_schema = True
        return super().schema(schema)

    def load(
        self,
        path: str | list[str] | None = None,
        format: str | None = None,  # noqa: A002 - PySpark's name
        schema: StructType | str | None = None,
        **options: Any,
    ) -> DataFrame:
        """Like PySpark's. A DataFrame of a sluice table keeps the version of this call."""
        if not self._asks_for_sluice(format, schema, options):
            return super().load(path)
        if isinstance(path, list) and len(path) == 1:
            [path] = path
        place = path if path is not None else self._options.get("path")
        # data sources refuse several paths, and no path, and say why
        if self._has_schema or not isinstance(place, str):
            return super().load(path)
        return self._read(place)

    def _read(self, location: str) -> DataFrame:
        with as_spark_users_know():
            options = ReadOptions.parse({**self._options.besides("path"), "path": location})
            if options.changes is None:
                address = options.address
                return read(
                    self._spark,
                    address.location,
                    options.version,
                    options.timestamp_ms,
                    where=options.where,
                    coordinator=address.coordinator,
                    storage_options=address.storage_options,
                    consistency=options.consistency,
                )
        super().format("sluice")
        return super().load(location)
