"""A Spark session with Delta Lake's jars that does what is written on its standard input, a JSON object a line.

It runs in an environment of its own (its PySpark is the one that the jars were built for) and knows nothing of sluice.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import struct, to_json

__all__: list[str] = []

JARS = "io.delta:delta-spark_2.13:4.3.0"
TEXT = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX", "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS"}


def _session(folder: str) -> SparkSession:
    settings = {
        "spark.jars.packages": JARS,
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "1",
        "spark.databricks.delta.snapshotPartitions": "1",  # the tables are small; the default is 50
        "spark.sql.warehouse.dir": f"{folder}/warehouse",
        "spark.driver.extraJavaOptions": f"-Dderby.system.home={folder}",
        "spark.ui.enabled": "false",
    }
    builder = SparkSession.builder.master("local[1]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def _rows(frame: DataFrame) -> list[str]:
    """The rows as JSON texts, columns by name, in a fixed order."""
    texts = frame.select(to_json(struct("*"), TEXT).alias("row"))
    return sorted(row["row"] for row in texts.collect())


def _stream(session: SparkSession, path: str, folder: str, options: dict[str, str]) -> DataFrame:
    """What a stream of the table has read, ever, when it has read all there is; its checkpoint is in the folder."""
    rows = session.readStream.format("delta").options(**options).load(path)
    writer = rows.writeStream.format("parquet").option("checkpointLocation", f"{folder}/checkpoint")
    writer.trigger(availableNow=True).start(f"{folder}/rows").awaitTermination()
    return session.read.parquet(f"{folder}/rows")


def _sink(session: SparkSession, path: str, folder: str, schema: str) -> DataFrame:
    """Append the JSON files of a folder to a table by a stream, one file a batch; returns the table."""
    rows = session.readStream.schema(schema).option("maxFilesPerTrigger", "1").json(f"{folder}/inbox")
    writer = rows.writeStream.format("delta").option("checkpointLocation", f"{folder}/checkpoint")
    writer.trigger(availableNow=True).start(path).awaitTermination()
    return session.read.format("delta").load(path)


def _answer(session: SparkSession, request: dict[str, Any]) -> list[str]:
    if "sql" in request:
        return _rows(session.sql(request["sql"]))
    if "stream" in request:
        return _rows(_stream(session, request["stream"], request["folder"], request["options"]))
    if "sink" in request:
        return _rows(_sink(session, request["sink"], request["folder"], request["schema"]))
    return _rows(session.read.format("delta").options(**request["options"]).load(request["read"]))


def main() -> None:
    session = _session(sys.argv[1])
    answers = open(sys.argv[2], "w", encoding="utf-8")  # noqa: PTH123, SIM115 - a named pipe: Spark writes to standard output what it likes
    for line in sys.stdin:
        try:
            said: dict[str, Any] = {"rows": _answer(session, json.loads(line))}
        except Exception as error:  # noqa: BLE001 - whatever it is, the other side has to be told
            said = {"error": str(error)}
        print(json.dumps(said), file=answers, flush=True)
    session.stop()


if __name__ == "__main__":
    main()
