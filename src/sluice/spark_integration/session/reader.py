"""The readers of a routed session, also of streams: tables of sluice by Spark's own scan or the data source, all else by PySpark."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, cast

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.readwriter import DataFrameReader
from pyspark.sql.streaming.readwriter import DataStreamReader
from pyspark.sql.types import StructType

from ...tables.client.address import time_of_digits
from ..errors import as_spark_users_know
from ..options import ReadOptions
from ..scan.read import ReadArgs, read
from ..stream_options import StreamReadOptions
from .names import RemembersFormat, location_of, means_sluice


class ReadsTables(RemembersFormat):
    """In front of one of PySpark's readers: it reads tables of sluice, and finds those whose names the coordinator keeps."""

    def table(self, tableName: str) -> DataFrame:  # noqa: N803 - PySpark's name
        """Like PySpark's, also for the names that sluice's coordinator keeps. `format("sluice")` means such a name; without a format,
        Spark's own views and tables come first.
        """
        with as_spark_users_know():
            if means_sluice(self._spark, self._format, tableName, self._options):
                return self._read(location_of(self._options, tableName))
        return super().table(tableName)  # type: ignore[misc,no-any-return]

    def load(
        self,
        path: str | list[str] | None = None,
        format: str | None = None,  # noqa: A002 - PySpark's name
        schema: StructType | str | None = None,
        **options: Any,
    ) -> DataFrame:
        """Like PySpark's. A DataFrame of a sluice table that is no stream keeps the version of this call."""
        self._take(format, options, schema=schema)
        if not self._is_sluice():
            return super().load(path)  # type: ignore[misc,no-any-return]
        if isinstance(path, list) and len(path) == 1:
            [path] = path
        place = path if path is not None else self._options.get("path")
        with as_spark_users_know():
            # data sources refuse several paths, and no path, and say why
            return self._read(place) if isinstance(place, str) else self._load(path)

    def _load(self, path: str | list[str] | None) -> DataFrame:
        """By the data source, whose format the session may call delta."""
        super().format("sluice")
        return super().load(path)  # type: ignore[misc,no-any-return]

    @abstractmethod
    def _read(self, location: str) -> DataFrame:
        """The DataFrame of the table at a location."""


class Reader(ReadsTables, DataFrameReader):
    """PySpark's reader, which also remembers the format and the options, and reads `format("sluice")` itself. A table's changes are read by
    the data source.
    """

    def __init__(self, spark: SparkSession) -> None:
        super().__init__(spark)
        self._wanted: StructType | None = None

    def schema(self, schema: StructType | str) -> DataFrameReader:
        """Like PySpark's: the columns to read."""
        told = super().schema(schema)
        kind = StructType.fromDDL(schema) if isinstance(schema, str) else schema
        self._wanted = kind if isinstance(kind, StructType) else None
        return told

    def _time_of(self, digits: str) -> int | None:
        """Milliseconds since the epoch, in the session's time zone as in Delta Lake; None if it is no time."""
        text = f"SELECT unix_millis(try_cast('{time_of_digits(digits)}' AS TIMESTAMP_LTZ))"
        [[moment]] = SparkSession.sql(self._spark, text).collect()
        return cast("int | None", moment)

    def _read(self, location: str) -> DataFrame:
        options = ReadOptions.parse({**self._options.besides("path"), "path": location}, time_of=self._time_of)
        if options.changes is not None:
            return self._load(location)
        at = options.address
        reached: ReadArgs = {"coordinator": at.coordinator, "storage_options": at.storage_options, "consistency": options.consistency}
        return read(self._spark, at.location, options.version, options.timestamp_ms, self._wanted, options.where, **reached)


class StreamReader(ReadsTables, DataStreamReader):
    """PySpark's reader of streams, which also remembers the format and the options; the data source reads."""

    def _read(self, location: str) -> DataFrame:
        StreamReadOptions.parse({**self._options.besides("path"), "path": location})
        return self._load(location)
