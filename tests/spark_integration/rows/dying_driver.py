"""A driver that merges into a table and dies on the way: `python -m tests.spark_integration.rows.dying_driver JSON`.

It works in the JVM that PYSPARK_GATEWAY_PORT names, as a second driver of it, or in one of its own. Prints `merged` at its end.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import ExitStack
from typing import Any

from pyspark import SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import DataFrame, SparkSession

import sluice
from sluice.coordinator.limits import Limits
from sluice.delta import DeltaTable
from sluice.statements.request import Place
from tests.spark_integration.conftest import small
from tests.spark_integration.rows import faults

KEY = "the merge"
CLAIMING = ("actions-staged", "before-claim", "after-claim")
"""Steps of commits that queue, with actions too large for ZooKeeper."""


def session() -> SparkSession:
    """In the JVM that is given, or in one of its own."""
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        builder = small(SparkSession.builder).master("local[1]").config("spark.driver.memory", "512m")
        return sluice.configure(builder).getOrCreate()
    gateway: Any = launch_gateway()  # type: ignore[no-untyped-call]
    scala = gateway.jvm.org.apache.spark.SparkContext.getOrCreate()
    return SparkSession(SparkContext(gateway=gateway, jsc=gateway.jvm.JavaSparkContext(scala)))


def apart() -> SparkSession:
    """A session of its own in the JVM that is given, beside those of other drivers."""
    living: Any = session()
    return SparkSession(living.sparkContext, living._jsparkSession.newSession())


def opened(spark: SparkSession, location: str, coordinator: str, step: str) -> DeltaTable:
    """The table; its commits take the way on which the step lies."""
    limits = Limits(fast_path=False, inline_bytes_max=64) if step in CLAIMING else Limits()
    table = sluice.Table.open(location, coordinator=coordinator, limits=limits)
    return DeltaTable(spark, Place(location, coordinator, {}), table)


def source(spark: SparkSession) -> DataFrame:
    """Rows 95 to 104."""
    return spark.range(95, 105).selectExpr("id", "id % 2 AS part", "1L AS n").alias("s")


def merge(table: DeltaTable, spark: SparkSession, *, key: str = KEY, attempts: int = 1) -> int:
    """Count 95 to 99 up, insert 100 to 104, delete 0 to 2. Returns the number of rows changed."""
    built = table.alias("t").merge(source(spark), "t.id = s.id").whenMatchedUpdate(set={"n": "t.n + s.n"})
    built = built.whenNotMatchedInsertAll().whenNotMatchedBySourceDelete("t.id < 3")
    return int(built.execute(key=key, attempts=attempts).collect()[0]["num_affected_rows"])


def lose_first(table: DeltaTable, spark: SparkSession) -> None:
    """Lose a merge against another one of the same rows, so that this thread has a turn."""
    address = table.table.access.address
    other = DeltaTable.forPath(spark, address.location, coordinator=address.coordinator)
    tx = table.table.begin()
    tx.update({"n": "n"}, "id = 97")
    other.table.update({"n": "n"}, "id = 97")
    try:
        tx.commit()
    except sluice.errors.ConcurrentModification:
        return
    raise AssertionError("the first one should have lost")


def main(location: str, coordinator: str, step: str, victim: str, held: str) -> None:
    spark = session()
    spark.sparkContext.setLogLevel("OFF")
    faults.put_in(faults.patches(location))
    table = opened(spark, location, coordinator, step)
    with ExitStack() as stack:
        if held == "lease":
            stack.enter_context(table.table.lease())
        elif held == "turn":
            lose_first(table, spark)
        proc = spark.sparkContext._gateway.proc if victim == "jvm" else None  # type: ignore[union-attr]
        faults.plan(location, step, f"kill {os.getpid() if proc is None else proc.pid}")
        merge(table, spark, attempts=4)
    print("merged", flush=True)
    spark.stop()


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
