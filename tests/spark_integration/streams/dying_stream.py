"""A driver whose stream is killed in a batch: `python -m tests.spark_integration.streams.dying_stream JSON`. Prints `written` at its end.

The victim is the `driver`, its `jvm`, or an `executor`: then the driver has two of them, which are processes of their own.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import sluice
from sluice.spark_integration.session import saving, writer
from tests.spark_integration.conftest import Place, small
from tests.spark_integration.rows import faults
from tests.spark_integration.streams.conftest import Feed
from tests.spark_integration.streams.faults import IN_TASKS, FaultySource


def main(
    location: str, coordinator: str, folder: str, step: str, victim: str, storage_options: dict[str, str], source: str | None = None
) -> None:
    """The stream reads the feed in the folder, or the table at `source`, where the fault is then."""
    builder = small(SparkSession.builder).config("spark.driver.memory", "512m").config("spark.executor.memory", "512m")
    builder = builder.master("local-cluster[2,1,1024]" if victim == "executor" else "local[1]")
    spark = sluice.configure(builder, coordinator=coordinator).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    faults.put_in(faults.patches(location))
    module: Any = saving
    real, plan_for = module.save, module.plan_for

    def save(*arguments: Any, **named: Any) -> None:
        real(*arguments, **named)
        faults.step(location, "batch-written")

    def plan(*arguments: Any, **named: Any) -> Any:
        faults.step(location, "before-planning")
        made = plan_for(*arguments, **named)
        faults.step(location, "after-planning")
        return made

    faults.put_in([(writer, "save", save), (saving, "plan_for", plan)])
    place, feed = Place(spark, location, coordinator, storage_options), Feed(spark, Path(folder) / "feed", Path(folder) / "checkpoint")
    rows, sink = None, "sluice"
    spark.dataSource.register(FaultySource)
    if source is not None:
        rows = spark.readStream.format("faulty_sluice").options(**place.options).load(source)
    elif step in IN_TASKS:
        sink = "faulty_sluice"
    proc: Any = spark.sparkContext._gateway.proc  # type: ignore[union-attr]
    killed = {"driver": str(os.getpid()), "jvm": str(proc and proc.pid), "executor": "executor"}
    faults.plan(source or location, step, f"kill {killed[victim]}")
    feed.drain(place, frame=rows, sink=sink)
    print("written", flush=True)
    spark.stop()


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
