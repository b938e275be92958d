"""One system's part of `benchmarks.streams`: a Spark program that streams, checks its tables, and prints one JSON object.

``python -m benchmarks.streams_program SYSTEM FOLDER latency COMMITS`` or ``... rate QUERIES SECONDS`` with SYSTEM sluice or delta. It
imports nothing but PySpark and its system (by `spark_session`), so it also runs where Delta Lake is and sluice is not.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from typing import Any

import pyspark
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from .spark_session import session

__all__ = ["main"]

_WARM = 5
_ROWS = 10
_BATCHES_MIN = 3
"""The time is longer where a query has not written so many batches."""
_LIMIT_S = 400.0
_SETTINGS = {"spark.driver.memory": "2g", "spark.sql.shuffle.partitions": "2"}
_OF_DELTA = {"spark.databricks.delta.snapshotPartitions": "2"}
"""The tables are small; the default is 50 partitions."""


def _percentile(values: list[float], share: float) -> float:
    """In milliseconds."""
    return round(1000 * sorted(values)[min(len(values) - 1, int(share * len(values)))], 1)


def _latency(spark: SparkSession, system: str, folder: str, commits: int) -> dict[str, Any]:
    source, target = f"{folder}/a", f"{folder}/b"

    def append(number: int) -> float:
        spark.range(number, number + 1).coalesce(1).write.format(system).mode("append").save(source)
        return time.perf_counter()

    append(-1)
    seen: list[tuple[float, float]] = []
    arrived = threading.Condition()

    def copy(batch: DataFrame, _: int) -> None:
        called = time.perf_counter()
        batch.write.format(system).mode("append").save(target)
        with arrived:
            seen.append((called, time.perf_counter()))
            arrived.notify()

    stream = spark.readStream.format(system).load(source).writeStream.foreachBatch(copy)
    query = stream.option("checkpointLocation", f"{folder}/checkpoint").start()

    def wait_for(count: int) -> None:
        end = time.monotonic() + _LIMIT_S
        with arrived:
            while len(seen) < count:
                arrived.wait(1.0)
                if query.exception() is not None or time.monotonic() > end:
                    raise SystemExit(f"batch {count} did not come: {query.exception()}")

    to_call: list[float] = []
    to_end: list[float] = []
    wait_for(1)
    for number in range(commits + _WARM):
        committed = append(number)
        wait_for(number + 2)
        if number >= _WARM:
            called, ended = seen[number + 1]
            to_call.append(max(0.0, called - committed))
            to_end.append(ended - committed)
    query.stop()
    ids = sorted(row["id"] for row in spark.read.format(system).load(target).collect())
    if ids != list(range(-1, commits + _WARM)):
        raise SystemExit(f"{target} has other rows than {source}: {ids}")
    told: dict[str, Any] = {"commits": commits}
    for what, values in {"batch_begins": to_call, "visible": to_end}.items():
        told |= {f"{what}_p50_ms": _percentile(values, 0.5), f"{what}_p99_ms": _percentile(values, 0.99)}
    return told


def _rate(spark: SparkSession, system: str, folder: str, queries: int, seconds: int) -> dict[str, Any]:
    target = f"{folder}/fan-in"
    rows = spark.createDataFrame([], "query int, value long")
    rows.write.format(system).mode("append").save(target)
    running = []
    for number in range(queries):
        endless = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", _ROWS).option("numPartitions", 1).load()
        writer = endless.select(F.lit(number).alias("query"), "value").writeStream.format(system)
        running.append(writer.option("checkpointLocation", f"{folder}/checkpoint-{number}").start(target))
    end = time.monotonic() + _LIMIT_S
    while any((each.lastProgress or {"batchId": -1})["batchId"] < 1 for each in running):
        for each in running:
            if each.exception() is not None or time.monotonic() > end:
                raise SystemExit(f"a query did not begin: {each.exception()}")
        time.sleep(0.05)

    def done() -> list[int]:
        return [int((each.lastProgress or {"batchId": 0})["batchId"]) for each in running]

    before, begun = done(), time.perf_counter()
    while True:
        time.sleep(0.05)
        counts, took = [now - then for now, then in zip(done(), before, strict=True)], time.perf_counter() - begun
        if took >= seconds and (min(counts) >= _BATCHES_MIN or took > _LIMIT_S):
            break
    batches = sum(counts)
    for each in running:
        each.stop()
    counted = (
        spark.read.format(system)
        .load(target)
        .groupBy("query")
        .agg(F.count("*").alias("rows"), F.count_distinct("value").alias("distinct"), F.max("value").alias("last"))
    )
    for row in counted.collect():
        if not row["rows"] == row["distinct"] == row["last"] + 1 or row["rows"] % _ROWS:
            raise SystemExit(f"query {row['query']} has lost or doubled rows: {row}")
    return {
        "queries": queries,
        "seconds": round(took, 1),
        "fewest": min(counts),
        "most": max(counts),
        "batches_per_s": round(batches / took, 2),
    }


def main() -> None:
    """Run what the arguments say."""
    system, folder, what, *numbers = sys.argv[1:]
    spark = session(system, folder, _SETTINGS, _OF_DELTA)
    measure = _latency if what == "latency" else _rate
    found = measure(spark, system, folder, *map(int, numbers))
    spark.stop()
    print(json.dumps({"pyspark": pyspark.__version__, "what": what, **found}))


if __name__ == "__main__":
    main()
