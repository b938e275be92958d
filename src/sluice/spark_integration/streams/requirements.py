"""Requirements of a stream into a table: a checkpoint, the table that it wrote before, and a mode other than update."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pyspark.sql import SparkSession

from ...storage.errors import InvalidRequest, TableNotFound

_CHECKPOINT: Final = "spark.sql.streaming.checkpointLocation"
_REMEDY: Final = (
    "it was dropped, moved or renamed. Name the place where it is now, or give the query an empty checkpoint, with which it begins anew; "
    "to go on without the rows of former batches, create the table first"
)


def checkpoint_of(spark: SparkSession, told: str | None) -> str:
    """The query's checkpoint folder: the option, or else the session's setting. Raises InvalidRequest if neither is set."""
    place = told or spark.conf.get(_CHECKPOINT, "")
    if not place:
        raise InvalidRequest(
            "no checkpoint was named: give option('checkpointLocation', ...), a folder for this query alone. By it a restarted query "
            f"finds its place and its id (or set {_CHECKPOINT}, and give the query a name)",
            option="checkpointLocation",
        )
    return place


def require_nothing_written(spark: SparkSession, checkpoint: str | None, location: str) -> None:
    """Raise TableNotFound for a table that is not there, if a query with this checkpoint wrote batches before."""
    if checkpoint is None:
        return
    jvm: Any = spark._jvm
    session: Any = spark._jsparkSession
    path = jvm.org.apache.hadoop.fs.Path(checkpoint, "commits")
    files = path.getFileSystem(session.sessionState().newHadoopConf())
    names = [each.getPath().getName() for each in files.listStatus(path)] if files.exists(path) else []
    last = max((int(name) for name in names if name.isdecimal()), default=None)
    if last is not None:
        raise TableNotFound(
            f"the query of the checkpoint {checkpoint} wrote its batches up to {last} into a table, and there is none at {location}: "
            f"{_REMEDY}",
            location=location,
        )


def gone_meanwhile(location: str) -> TableNotFound:
    """The error for a table that was there when the query started."""
    return TableNotFound(
        f"the table at {location} was there when this query started, and is not any more: {_REMEDY}",
        location=location,
    )


def require_batches(trigger: Mapping[str, Any]) -> None:
    """Raise InvalidRequest for a trigger of a query without micro-batches, each of which would be a commit."""
    for name in ("continuous", "realTime"):
        if trigger.get(name) is not None:
            raise InvalidRequest(
                f"trigger({name}={trigger[name]!r}) runs a query without micro-batches, and each of them would be a commit: use "
                "trigger(processingTime=...) or trigger(availableNow=True)",
                trigger=name,
            )


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
