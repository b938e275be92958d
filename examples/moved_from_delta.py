"""A job written for Delta Lake, moved: `delta` became `sluice.delta` in its import, and `delta` became `sluice` where it names the format.

    python examples/moved_from_delta.py [folder]

Orders arrive as JSON. Bronze keeps them as they came, by a stream; silver has each order once, by MERGE; gold sums them up by day. Then
the tables are cared for, and one looks back. With the two words changed back the same text runs on Delta Lake, and writes the same rows.
"""

import json
import sys
import tempfile
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as PySpark programs write it

from sluice.delta import DeltaTable, configure_spark_with_delta_pip

FOLDER = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="moved-"))
BRONZE, SILVER, GOLD = (f"{FOLDER}/{layer}" for layer in ("bronze", "silver", "gold"))
ORDERS = [  # (id, day, amount), as they arrive before each run
    [(1, "2026-01-01", 10), (2, "2026-01-01", 20), (3, "2026-01-02", 5)],
    [(2, "2026-01-01", 25), (4, "2026-01-02", 7), (3, "2026-01-02", -1)],
]

builder = (
    SparkSession.builder.appName("orders")
    .master("local[2]")
    .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
    .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
    .config("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    .config("spark.databricks.delta.snapshotPartitions", "2")
    .config("spark.sql.warehouse.dir", f"{FOLDER}/warehouse")
    .config("spark.sql.shuffle.partitions", "2")
)
spark = configure_spark_with_delta_pip(builder).getOrCreate()


def arrive(number: int) -> None:
    """Orders come in as a file."""
    inbox = FOLDER / "inbox"
    inbox.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps({"id": order, "day": day, "amount": amount}) for order, day, amount in ORDERS[number]]
    (inbox / f"{number}.json").write_text("\n".join(lines))


def to_bronze() -> None:
    """Append what arrived since the last run."""
    orders = spark.readStream.schema("id long, day date, amount long").json(f"{FOLDER}/inbox")
    writer = orders.writeStream.format("sluice").option("checkpointLocation", f"{FOLDER}/checkpoints/bronze").trigger(availableNow=True)
    writer.start(BRONZE).awaitTermination()


def to_silver() -> None:
    """Merge each new batch of bronze: the latest state of each order, and none that was taken back."""

    def merge(batch: DataFrame, _: int) -> None:
        target = DeltaTable.forPath(spark, SILVER).alias("t")
        matched = target.merge(batch.alias("s"), "t.id = s.id AND t.day = s.day").whenMatchedDelete("s.amount < 0")
        matched.whenMatchedUpdateAll().whenNotMatchedInsertAll("s.amount >= 0").execute()

    changes = spark.readStream.format("sluice").load(BRONZE).writeStream.foreachBatch(merge)
    changes.option("checkpointLocation", f"{FOLDER}/checkpoints/silver").trigger(availableNow=True).start().awaitTermination()


def to_gold() -> None:
    """Sum silver up by day."""
    days = spark.read.format("sluice").load(SILVER).groupBy("day").agg(F.count("*").alias("orders"), F.sum("amount").alias("amount"))
    days.write.format("sluice").mode("overwrite").option("overwriteSchema", "true").save(GOLD)


spark.sql("CREATE DATABASE IF NOT EXISTS shop")
spark.sql("CREATE TABLE IF NOT EXISTS shop.runs (run INT, orders BIGINT) USING sluice")
spark.sql(f"CREATE TABLE IF NOT EXISTS delta.`{SILVER}` (id BIGINT, day DATE, amount BIGINT) USING sluice PARTITIONED BY (day)")
for run in range(len(ORDERS)):
    arrive(run)
    to_bronze()
    to_silver()
    to_gold()
    spark.sql(f"INSERT INTO shop.runs SELECT {run}, count(*) FROM delta.`{SILVER}`")

spark.sql(f"OPTIMIZE '{SILVER}' WHERE day >= '2026-01-01'")
DeltaTable.forPath(spark, BRONZE).optimize().executeZOrderBy("id")
spark.sql(f"VACUUM '{BRONZE}' RETAIN 0 HOURS")
DeltaTable.forPath(spark, SILVER).update("id = 4", {"amount": "amount * 10"})
spark.sql(f"DELETE FROM delta.`{SILVER}` WHERE id = 1")

history = DeltaTable.forPath(spark, SILVER).history()
merges = [row["version"] for row in history.where("operation = 'MERGE'").orderBy("version").collect()]
results = {
    "bronze": spark.read.format("sluice").load(BRONZE),
    "silver": spark.sql(f"SELECT * FROM delta.`{SILVER}`"),
    "silver after the first run": spark.read.format("sluice").option("versionAsOf", merges[0]).load(SILVER),
    "gold": spark.read.format("sluice").load(GOLD),
    "gold at first": spark.sql(f"SELECT * FROM delta.`{GOLD}` VERSION AS OF 0"),
    "runs": spark.table("shop.runs"),
    "operations": spark.sql(f"DESCRIBE HISTORY '{GOLD}'").select("version", "operation"),
    "details": spark.sql(f"DESCRIBE DETAIL '{SILVER}'").select("format", "partitionColumns"),
}
for name, frame in results.items():
    print(json.dumps({name: sorted([str(value) for value in row] for row in frame.collect())}), flush=True)
spark.stop()
