"""A Spark application of its own, as tests start it: copies a table into another one by a stream, until it has all, or is killed.

Arguments: source, target, coordinator, checkpoint. It prints `done` when nothing more was there.
"""

from __future__ import annotations

import sys

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

import sluice
from tests.spark_integration.conftest import small
from tests.spark_integration.data_source.streaming import SLOW_START


def main(source: str, target: str, coordinator: str, checkpoint: str) -> None:
    builder = small(SparkSession.builder).master("local[1]").config("spark.driver.memory", "512m")
    spark = sluice.configure(builder, coordinator=coordinator, application="copying").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    rows = spark.readStream.format("sluice").option("maxFilesPerTrigger", 1).load(source)
    stream = rows.writeStream.format("sluice").option("checkpointLocation", checkpoint).trigger(availableNow=True)
    for attempt in range(5):
        try:
            stream.start(target).awaitTermination()
            break
        except StreamingQueryException as failed:
            if SLOW_START not in str(failed) or attempt == 4:
                raise
    spark.stop()
    sys.stdout.write("done\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
