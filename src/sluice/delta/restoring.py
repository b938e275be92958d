"""RESTORE to a version or a time, its metrics, and times as Delta's users write them."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from ..spark_integration.active_session import user_metadata_of
from ..storage.errors import InvalidRequest
from ..tables.read.history import entries_of
from ..tables.table import Table
from .metrics import restored

__all__ = ["milliseconds", "restore"]


def restore(spark: SparkSession, table: Table, *, version: int | None = None, timestamp: int | None = None) -> DataFrame:
    """Make the table what it was; nothing is committed, and the counts are 0, if it is that already."""
    commit = table.restore(version, timestamp, user_metadata=user_metadata_of(spark))
    if commit is None:
        now = table.snapshot().raw
        return restored(spark, {"tableSizeAfterRestore": now.size_bytes, "numOfFilesAfterRestore": now.num_files})
    [entry] = [each for each in entries_of(table.access, commit.version) if each.transaction_id == commit.transaction_id]
    return restored(spark, entry.metrics)


def milliseconds(spark: SparkSession, timestamp: str) -> int:
    """Milliseconds since the epoch, from a text that Spark casts to a timestamp, in the session's time zone. Raises InvalidRequest."""
    cast = F.lit(timestamp).try_cast("timestamp_ltz")
    [row] = spark.range(1).select(F.unix_millis(cast).alias("ms")).collect()
    if row["ms"] is None:
        raise InvalidRequest(f"the timestamp is {timestamp!r}; write it as 2026-01-31 or 2026-01-31 13:00:00", timestamp=timestamp)
    return int(row["ms"])
