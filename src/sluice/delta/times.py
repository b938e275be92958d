"""Parses times in the forms that Delta Lake takes."""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from ..storage.errors import InvalidRequest


def milliseconds(spark: SparkSession, timestamp: str) -> int:
    """Milliseconds since the epoch, from a text that Spark casts to a timestamp, in the session's time zone. Raises InvalidRequest."""
    cast = F.lit(timestamp).try_cast("timestamp_ltz")
    [row] = spark.range(1).select(F.unix_millis(cast).alias("ms")).collect()
    if row["ms"] is None:
        raise InvalidRequest(f"the timestamp is {timestamp!r}; write it as 2026-01-31 or 2026-01-31 13:00:00", timestamp=timestamp)
    return int(row["ms"])
