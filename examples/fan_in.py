"""Eight streaming queries write one table at once, and compaction runs beside them.

    python examples/fan_in.py [--folder /tmp/fan-in] [--queries 8] [--batches 4]

Each query reads a folder of its own, has a checkpoint of its own, and appends its batches to the same table. Half of the queries is
stopped and started again on the way. At the end the table has every row of every query once.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import sluice

ROWS_PER_BATCH = 10


def feed(inbox: Path, query: int, batches: range) -> None:
    """Put files into a query's inbox; each becomes a batch."""
    inbox.mkdir(parents=True, exist_ok=True)
    for batch in batches:
        rows = [{"query": query, "number": batch * ROWS_PER_BATCH + each} for each in range(ROWS_PER_BATCH)]
        (inbox / f"{batch:04d}.json").write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")


def start(spark: SparkSession, folder: Path, query: int) -> StreamingQuery:
    """Start a query that ends when its inbox is read."""
    reader = spark.readStream.schema("query int, number long").option("maxFilesPerTrigger", 1)
    writer = reader.json(str(folder / f"inbox-{query}")).writeStream.format("sluice").trigger(availableNow=True).queryName(f"query-{query}")
    return writer.option("checkpointLocation", str(folder / f"checkpoint-{query}")).start(str(folder / "table"))


def wait(running: list[StreamingQuery], location: Path) -> int:
    """Wait for the queries, and compact meanwhile; returns how many compactions changed something."""
    compactions = 0
    while any(query.isActive for query in running):
        try:
            compactions += sluice.Table.open(location).compact() is not None
        except sluice.errors.TableNotFound:
            time.sleep(0.1)  # the first batch makes the table
        except sluice.errors.ConcurrentModification as lost:
            print(f"a compaction came too late, and the next one does its work: {lost}")
        time.sleep(1)
    for query in running:
        query.awaitTermination()  # raises what ended it
    return compactions


def main() -> None:
    """Feed the queries, run them in two rounds, and count."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", default=None, help="where everything is made; a temporary folder by default")
    parser.add_argument("--queries", type=int, default=8)
    parser.add_argument("--batches", type=int, default=4)
    told = parser.parse_args()
    folder = Path(told.folder or tempfile.mkdtemp(prefix="fan-in-"))
    builder = SparkSession.builder.master("local[2]").config("spark.driver.memory", "768m").config("spark.ui.enabled", "false")
    spark = sluice.configure(builder.config("spark.ui.showConsoleProgress", "false"), application="fan-in").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    half = told.batches // 2
    for query in range(told.queries):
        feed(folder / f"inbox-{query}", query, range(half if query % 2 else told.batches))
    print(f"{told.queries} queries start and write one table; it is compacted meanwhile", flush=True)
    compactions = wait([start(spark, folder, query) for query in range(told.queries)], folder / "table")
    again = range(1, told.queries, 2)
    for query in again:
        feed(folder / f"inbox-{query}", query, range(half, told.batches))
    print(f"{len(again)} of them start again, with new files", flush=True)
    compactions += wait([start(spark, folder, query) for query in again], folder / "table")

    table = sluice.Table.open(folder / "table")
    found = sorted((row["query"], row["number"]) for row in table.snapshot().to_arrow().to_pylist())
    wanted = [(query, number) for query in range(told.queries) for number in range(told.batches * ROWS_PER_BATCH)]
    assert found == wanted, "rows are lost or there twice"
    batches = told.queries * told.batches
    print(f"{told.queries} queries wrote {len(found)} rows in {batches} batches beside {compactions} compactions: each row once")
    print(f"the table has {table.version + 1} versions; folder: {folder}")
    spark.stop()


if __name__ == "__main__":
    main()
