"""A Spark application of its own, as tests start it: appends numbers to a table, then prints `done`.

Arguments: location, coordinator, first number, how many, how many appends, a file that stops it midway ("" for none). With ROUTED=true in
its environment the driver commits, otherwise a process of Spark's data source. It works in the JVM that PYSPARK_GATEWAY_PORT names, in a
session of its own, or in a JVM of its own.

With that file the last append's only task waits, after its rows were handed to the writer, until it is killed; the file is
written when it has come so far.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable
from pathlib import Path

from pyspark import RDD
from pyspark.sql import SparkSession

import sluice
from tests.spark_integration.conftest import small
from tests.spark_integration.rows.dying_driver import apart


def main(location: str, coordinator: str, first: int, count: int, appends: int, stop_file: str) -> None:
    shared = "PYSPARK_GATEWAY_PORT" in os.environ
    routed = os.environ.get("ROUTED") == "true"
    if shared:
        apart()
        spark = sluice.configure(SparkSession.Builder(), routing=routed).getOrCreate()
    else:
        builder = small(SparkSession.builder).master("local[1]").config("spark.driver.memory", "512m")
        spark = sluice.configure(builder, coordinator=coordinator, application=f"driver {first}", routing=routed).getOrCreate()
    if not shared:
        spark.sparkContext.setLogLevel("OFF")

    def slow(rows: Iterable[int]) -> Iterable[tuple[int]]:
        for row in rows:
            yield (row,)
        Path(stop_file).write_text("here")
        time.sleep(300)

    for number in range(appends):
        start = first + number * count
        frame = spark.range(start, start + count).repartition(1)
        if stop_file:
            rows: RDD[tuple[int]] = spark.sparkContext.parallelize(range(start, start + count), 1).mapPartitions(slow)
            frame = spark.createDataFrame(rows, "id long")
        frame.write.format("sluice").mode("append").options(coordinator=coordinator, application=f"driver {first}").save(location)
    if not shared:
        spark.stop()
    sys.stdout.write("done\n")


if __name__ == "__main__":
    place, coordinates, first_text, count_text, appends_text, stop = sys.argv[1:]
    main(place, coordinates, int(first_text), int(count_text), int(appends_text), stop)
