"""Three tables in a row: a stream merges the changes of each into the next. Also a program, a driver that runs until it is killed.

``python -m tests.spark_integration.streams.chain JSON`` with the arguments of `Chain`: it runs both queries, and starts them again when
they fail, after writing the error to the file `failures` in the folder.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

import sluice
from tests.spark_integration.conftest import by_content, small

SCHEMA = pa.schema([("id", pa.int64()), ("k", pa.string()), ("n", pa.int64())])
NAMES = ("first", "second", "third")
PROPERTIES = {
    "first": {"delta.enableDeletionVectors": "true"},
    "second": {"delta.enableChangeDataFeed": "true"},
    "third": {"delta.enableDeletionVectors": "true"},
}
"""Changes are read from deletion vectors, and from change data files."""
END_OF_FAILURE = "\n----\n"
IS_NEW = "_change_type IN ('insert', 'update_postimage')"


@dataclass(frozen=True)
class Chain:
    """Where the tables and the checkpoints are."""

    folder: str
    coordinator: str
    storage_options: dict[str, str] = field(default_factory=dict)
    tables: str = ""
    """The location of the folder of the tables, if they are elsewhere than the checkpoints."""
    files: int = 30
    """The maximum files of a batch."""

    def location(self, name: str) -> str:
        return f"{self.tables or self.folder}/{name}"

    @property
    def failures(self) -> str:
        """The file of the errors with which queries of drivers ended."""
        return f"{self.folder}/failures"

    def create(self) -> list[sluice.Table]:
        options: dict[str, Any] = {"coordinator": self.coordinator, "storage_options": self.storage_options, "partition_by": ["k"]}
        return [sluice.Table.create(self.location(name), SCHEMA, properties=PROPERTIES[name], **options) for name in NAMES]

    def rows(self, name: str) -> list[dict[str, Any]]:
        table = sluice.Table.open(self.location(name), coordinator=self.coordinator, storage_options=self.storage_options)
        return by_content(table.snapshot().to_arrow())

    def start(self, spark: SparkSession, source: str, target: str) -> Any:
        """The query that makes of the second table what the first one is."""
        reader = spark.readStream.format("sluice").option("readChangeFeed", "true").option("maxFilesPerTrigger", self.files)
        reader = reader.options(coordinator=self.coordinator, **{f"s3.{name}": value for name, value in self.storage_options.items()})
        changes = reader.load(self.location(source))
        changes = changes.withColumn("place", F.expr(f"2 * _commit_version + CAST({IS_NEW} AS INT)"))
        stream = sluice.stream(changes, coordinator=self.coordinator, storage_options=self.storage_options)
        writer = stream.merge_into(
            self.location(target),
            "id",
            newest_by="place",
            clauses=lambda built: (
                built.whenMatchedUpdateAll(f"source.{IS_NEW}").whenMatchedDelete().whenNotMatchedInsertAll(f"source.{IS_NEW}")
            ),
        )
        return writer.option("checkpointLocation", f"{self.folder}/checkpoint-{target}").trigger(processingTime="0 seconds").start()

    def start_both(self, spark: SparkSession) -> dict[str, Any]:
        return {target: self.start(spark, source, target) for source, target in pairwise(NAMES)}


def changes(table: sluice.Table, dice: random.Random) -> Iterator[str]:
    """Change the first table in all ways, one after the other, for ever; each time what was done."""
    count = 0
    while True:
        new = [{"id": count + place, "k": "ab"[place % 2], "n": dice.randrange(100)} for place in range(dice.randint(1, 20))]
        count += len(new)
        table.append(pa.Table.from_pylist(new, schema=SCHEMA))
        yield "append"
        low = dice.randrange(90)
        table.delete(f"n >= {low} AND n < {low + 10}")
        yield "delete"
        table.update({"n": "(n * 7 + 1) % 100"}, f"id % 3 = {dice.randrange(3)}")
        yield "update"
        table.update({"k": "CASE WHEN k = 'a' THEN 'b' ELSE 'a' END"}, f"id % 5 = {dice.randrange(5)}")
        yield "other partitions"
        table.upsert(pa.Table.from_pylist([{"id": dice.randrange(count + 1), "k": "a", "n": 50}], schema=SCHEMA), on="id")
        yield "upsert"
        count += 1
        table.compact("minor")
        yield "compact"


def main(**told: Any) -> None:
    chain = Chain(**told)
    builder = small(SparkSession.builder).master("local[1]").config("spark.driver.memory", "512m")
    builder = sluice.configure(builder, coordinator=chain.coordinator, storage_options=chain.storage_options, application="chain")
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    queries = chain.start_both(spark)
    while True:
        for target, query in queries.items():
            if not query.isActive:
                with Path(chain.failures).open("a") as failures:
                    failures.write(f"{target}: {query.exception()}{END_OF_FAILURE}")
                source = NAMES[NAMES.index(target) - 1]
                queries[target] = chain.start(spark, source, target)
        time.sleep(0.2)


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
