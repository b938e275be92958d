"""A Spark application over Spark Connect: uses a table in every way that works there, and every way that is refused. Prints `done`.

Arguments: a folder, the coordinator. Needs the packages of `pyspark[connect]`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

import sluice
from sluice.delta import DeltaTable
from tests.spark_integration.conftest import small


def refused(call: Callable[[], Any], kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=text):
        call()


def main(folder: str, coordinator: str) -> None:
    builder = sluice.configure(small(SparkSession.builder), coordinator=coordinator)
    spark = builder.remote("local[2]").getOrCreate()
    place = f"{folder}/table"
    frame = spark.range(10)
    for mode in ("append", "overwrite", "append"):
        frame.write.format("sluice").mode(mode).save(place)
    refused(lambda: frame.write.format("sluice").save(place), AnalysisException, "UNSUPPORTED_DATA_SOURCE_SAVE_MODE")
    assert spark.read.format("sluice").option("versionAsOf", 0).load(place).count() == 10
    assert sluice.read(spark, place, where="id > 7", columns=["id"]).count() == 4
    sluice.use_session(spark)

    table = DeltaTable.forPath(spark, place)
    for call in (
        lambda: table.delete("id = 1"),
        lambda: table.update("id = 1", {"id": "2"}),
        lambda: table.merge(frame, "true").whenMatchedDelete().execute(),
    ):
        refused(call, sluice.UnsupportedFeature, "Spark Connect")
    with sluice.transaction(spark, table.table) as tx:
        tx[table.table].append(frame)
        refused(lambda: tx[table.table].delete("id = 1"), sluice.UnsupportedFeature, "Spark Connect")
    assert table.toDF().count() == 30
    assert [row["operation"] for row in table.history(2).collect()] == ["WRITE", "WRITE"]
    table.restoreToVersion(0)
    table.vacuum()
    assert table.optimize().executeCompaction().collect()[0]["path"] == table.detail().collect()[0]["location"]
    made = DeltaTable.createIfNotExists(spark).location(f"{folder}/made").addColumn("id", "bigint").execute()
    assert made.toDF().columns == ["id"]
    assert table.clone(f"{folder}/clone", isShallow=True).toDF().count() == 10
    spark.stop()
    print("done")


if __name__ == "__main__":
    main(*sys.argv[1:])
