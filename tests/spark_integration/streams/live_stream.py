"""A driver with a stream that goes on until its standard input ends: `python -m tests.spark_integration.streams.live_stream JSON`.

Prints `ready` when it has written all there is, and at its end the class of the error that ended its query, or `stopped`.
"""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

import sluice
from tests.spark_integration.conftest import Place, small
from tests.spark_integration.streams.conftest import Feed


def main(location: str, coordinator: str, folder: str, checkpoint: str) -> None:
    builder = small(SparkSession.builder).master("local[1]").config("spark.driver.memory", "512m")
    spark = sluice.configure(builder, coordinator=coordinator).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    feed = Feed(spark, Path(folder) / "feed", Path(checkpoint))
    query = feed.write(Place(spark, location, coordinator), trigger={"processingTime": "0 seconds"})
    query.processAllAvailable()
    print("ready", flush=True)

    def stop_at_the_end_of_input() -> None:
        sys.stdin.read()
        query.stop()

    threading.Thread(target=stop_at_the_end_of_input, daemon=True).start()
    try:
        query.awaitTermination()
        print("stopped", flush=True)
    except StreamingQueryException as failed:
        print(type(failed).__name__, flush=True)
    spark.stop()


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
