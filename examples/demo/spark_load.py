"""The Spark application that loads one airport: a separate driver that reads CSV files of some months, and appends them.

It is written like a user's program: `configure` for the session, `format("sluice")` for the table.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from sluice import configure

from .flights import NO_VALUE
from .job import Job, run

_SETTINGS = {
    "spark.driver.memory": "1g",
    # Three Spark applications start on perhaps two cores and run for a minute: the quick compiler halves their time.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


def _flights(spark: SparkSession, paths: Sequence[str], schema: StructType, loaded_by: str) -> DataFrame:
    """The rows of CSV files in a table's schema."""
    texts = spark.read.csv(list(paths), header=True, nullValue=NO_VALUE)
    added = {"route": f.concat_ws("-", "origin", "dest"), "loaded_by": f.lit(loaded_by), "speed_mph": f.lit(None)}
    return texts.withColumns(added).select(*(f.col(field.name).cast(field.dataType) for field in schema))


def _append(flights: DataFrame, location: str) -> None:
    flights.write.format("sluice").mode("append").save(location)


def load_months(job: Job) -> None:
    """One append for each group of files, after one without rows: it makes no version, but warms up Spark."""
    to = job.assignment
    builder = SparkSession.builder.appName(to.name).master("local[1]")
    for key, value in _SETTINGS.items():
        builder = builder.config(key, value)
    spark = configure(builder, coordinator=to.coordinator, storage_options=to.storage_options).getOrCreate()
    try:
        schema = spark.read.format("sluice").load(to.location).schema
        appends = [_flights(spark, each.paths, schema, to.name) for each in to.inputs]
        for rehearsal in appends[:1]:
            _append(rehearsal.where(f.col("distance") < 0), to.location)
        job.await_start()
        for each, flights in zip(to.inputs, appends, strict=True):
            began = time.monotonic()
            _append(flights, to.location)
            job.committed(each.rows, began)
    finally:
        spark.stop()


if __name__ == "__main__":
    run(load_months)
