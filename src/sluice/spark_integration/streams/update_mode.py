"""What a stream into a table needs and cannot have: a checkpoint, and no update mode."""

from __future__ import annotations

from typing import Final

from pyspark.sql import SparkSession

from ...storage.errors import InvalidRequest

__all__ = ["checkpoint_of", "no_update_mode"]

_CHECKPOINT: Final = "spark.sql.streaming.checkpointLocation"


def checkpoint_of(spark: SparkSession, told: str | None) -> str:
    """The query's checkpoint folder: the option, or else the session's setting. Raises InvalidRequest if neither is set."""
    place = told or spark.conf.get(_CHECKPOINT, "")
    if not place:
        raise InvalidRequest(
            "no checkpoint was named: give option('checkpointLocation', ...), a folder of this query's own. By it a restarted query "
            f"finds its place and its id (or set {_CHECKPOINT}, and give the query a name)",
            option="checkpointLocation",
        )
    return place


def no_update_mode(location: str | None) -> InvalidRequest:
    """The refusal of output mode update."""
    table = repr(location or "LOCATION")
    return InvalidRequest(
        "format('sluice') has the output modes append and complete. Merge rows that change by their key: "
        f"sluice.stream(df).merge_into({table}, on='KEY').outputMode('update').option('checkpointLocation', ...).start(); "
        "or, with any MERGE, df.writeStream.outputMode('update').foreachBatch(f) where f(batch, number) calls "
        f"DeltaTable.forPath(spark, {table}).alias('t').merge(batch.alias('s'), 't.KEY = s.KEY').whenMatchedUpdateAll()"
        ".whenNotMatchedInsertAll().execute(transaction=('a name of this query', number))",
        option="outputMode",
    )
