"""A program that reads a table in an unusual way: its arguments are the way and the table's location."""

from __future__ import annotations

import os
import sys
from typing import Any

import pyarrow as pa
from py4j.java_gateway import CallbackServerParameters  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

import sluice

from ..conftest import small
from ..rows.dying_driver import apart

COORDINATOR = "memory://program"


def started() -> SparkSession:
    session = sluice.configure(small(SparkSession.builder).master("local[2]"), coordinator=COORDINATOR).getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    return session


def check(spark: SparkSession, location: str) -> None:
    frame = spark.read.format("sluice").load(location)
    assert [each.id for each in frame.where("id = 3").collect()] == [3]
    assert frame.count() == 10


def beside(location: str) -> None:
    """Read a table in the JVM of another process, and stay until that one has seen what this does to it."""
    ten = pa.table({"id": range(10)})
    sluice.Table.create(location, ten.schema, coordinator=COORDINATOR).append(ten)
    assert sluice.read(apart(), location, coordinator=COORDINATOR).count() == 10
    sys.stdout.write("done\n")
    sys.stdout.flush()
    sys.stdin.read()


def main(way: str, location: str) -> None:
    if way == "beside":
        beside(location)
        return
    if way == "unpinned":
        os.environ["PYSPARK_PIN_THREAD"] = "false"
    spark = started()
    if way == "foreign":
        context: Any = spark.sparkContext
        context._gateway.start_callback_server(CallbackServerParameters(port=0, daemonize=True, daemonize_connections=True))
    spark.range(0, 10, 1, 5).write.format("sluice").save(location)
    check(spark, location)
    if way == "restarted":
        for _ in range(2):
            spark.stop()
            spark = started()
            check(spark, location)
            check(spark.newSession(), location)
    spark.stop()
    sys.stdout.write("done\n")
    sys.stdout.flush()
    if way == "foreign":
        os._exit(0)  # py4j gives such a server a thread that keeps its program alive, with or without sluice


if __name__ == "__main__":
    main(*sys.argv[1:])
