"""The Spark application that loads one airport: a driver of its own, which reads the CSV files of some months, and appends.

Written as a user's program is: `configure` for the session, `format("sluice")` for the table.
"""

from __future__ import annotations

import time

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from ..spark_integration import configure
from .flights import CSV_SCHEMA, NO_VALUE, SCHEMA
from .job import Job, run

__all__ = ["load_months"]

_SPARK_TYPES = {pa.int32(): "INT", pa.string(): "STRING", pa.timestamp("us", "UTC"): "TIMESTAMP"}
_CSV_DDL = ", ".join(f"`{field.name}` {_SPARK_TYPES[field.type]}" for field in CSV_SCHEMA)
_SETTINGS = {
    "spark.driver.memory": "1g",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


def _transformed(flights: DataFrame, name: str) -> DataFrame:
    """The rows of a CSV file as the table has them."""
    added = {
        "route": f.concat_ws("-", "origin", "dest"),
        "loaded_by": f.lit(name),
        "speed_mph": f.lit(None).cast("double"),
    }
    return flights.withColumns(added).select(*SCHEMA.names)


def load_months(job: Job) -> None:
    """One append for each group of files."""
    to = job.assignment
    builder = SparkSession.builder.appName(to.name).master("local[1]")
    for key, value in _SETTINGS.items():
        builder = builder.config(key, value)
    spark = configure(builder, coordinator=to.coordinator).getOrCreate()
    try:
        job.await_start()
        for each in to.inputs:
            began = time.monotonic()
            flights = spark.read.csv(list(each.paths), schema=_CSV_DDL, header=True, nullValue=NO_VALUE, enforceSchema=False)
            writer = _transformed(flights, to.name).write.format("sluice").mode("append")
            writer.options(**to.storage_options).save(to.location)
            job.committed(each.rows, began)
    finally:
        spark.stop()


if __name__ == "__main__":
    run(load_months)
