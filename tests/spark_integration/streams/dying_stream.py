"""A driver whose stream dies in a batch: `python -m tests.spark_integration.streams.dying_stream JSON`. Prints `written` at its end."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import sluice
from sluice.spark_integration.session import saving, stream_writer
from tests.spark_integration.conftest import Place, small
from tests.spark_integration.rows import faults
from tests.spark_integration.streams.conftest import Feed
from tests.spark_integration.streams.faults import FaultySource


def main(
    location: str, coordinator: str, folder: str, step: str, victim: str, storage_options: dict[str, str], source: str | None = None
) -> None:
    """The stream reads the feed in the folder, or the table at `source`, where the fault is then."""
    builder = small(SparkSession.builder).master("local[1]").config("spark.driver.memory", "512m")
    spark = sluice.configure(builder, coordinator=coordinator).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    faults.put_in(faults.patches(location))
    real: Any = saving.save

    def save(*arguments: Any, **named: Any) -> None:
        real(*arguments, **named)
        faults.step(location, "batch-written")

    faults.put_in([(stream_writer, "save", save)])
    place, feed = Place(spark, location, coordinator, storage_options), Feed(spark, Path(folder) / "feed", Path(folder) / "checkpoint")
    rows = None
    if source is not None:
        spark.dataSource.register(FaultySource)
        rows = spark.readStream.format("faulty_sluice").options(**place.options).load(source)
    proc: Any = spark.sparkContext._gateway.proc if victim == "jvm" else None  # type: ignore[union-attr]
    faults.plan(source or location, step, f"kill {os.getpid() if proc is None else proc.pid}")
    feed.drain(place, frame=rows)
    print("written", flush=True)
    spark.stop()


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
