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
        refused(call, sluice.errors.UnsupportedFeature, "Spark Connect")
    with sluice.transaction(spark, table.table) as tx:
        tx[table.table].append(frame)
        refused(lambda: tx[table.table].delete("id = 1"), sluice.errors.UnsupportedFeature, "Spark Connect")
    assert table.toDF().count() == 30
    assert [row["operation"] for row in table.history(2).collect()] == ["WRITE", "WRITE"]
    table.restoreToVersion(0)
    table.vacuum()
    assert table.optimize().executeCompaction().collect()[0]["path"] == table.detail().collect()[0]["location"]
    made = DeltaTable.createIfNotExists(spark).location(f"{folder}/made").addColumn("id", "bigint").execute()
    assert made.toDF().columns == ["id"]
    assert table.clone(f"{folder}/clone", isShallow=True).toDF().count() == 10
    statements(spark, folder)
    variants(spark, folder)
    spark.stop()
    print("done")


def statements(spark: SparkSession, folder: str) -> None:
    place = f"{folder}/table"
    sluice.sql(spark, f"CREATE TABLE sluice.`{folder}/by_sql` (id BIGINT, name STRING) USING sluice")
    sluice.sql(spark, f"ALTER TABLE sluice.`{folder}/by_sql` ADD COLUMN more INT")
    assert sluice.sql(spark, f"OPTIMIZE sluice.`{place}`").count() == 1
    assert sluice.sql(spark, f"DESCRIBE HISTORY sluice.`{folder}/by_sql`").count() == 2
    assert sluice.sql(spark, "SELECT :n + 1 AS n", {"n": 1}).collect()[0]["n"] == 2, "what is Spark's own works"
    versions = [sluice.Table.open(each).version for each in (place, f"{folder}/by_sql")]
    for text, instead in (
        (f"SELECT * FROM sluice.`{place}`", "temporary view"),
        (f"INSERT INTO sluice.`{place}` VALUES (1)", "df.write"),
        (f"INSERT INTO sluice.`{place}` SELECT * FROM sluice.`{place}`", "df.write"),
        (f"UPDATE sluice.`{place}` SET id = 1", "Table.update"),
        (f"DELETE FROM sluice.`{place}`", "Table.delete"),
        (f"MERGE INTO sluice.`{place}` t USING (SELECT 1 AS id) s ON t.id = s.id WHEN MATCHED THEN DELETE", "Table.upsert"),
        (f"CREATE TABLE sluice.`{folder}/new` USING sluice AS SELECT 1 AS id", "append the rows"),
        (f"BEGIN ATOMIC DELETE FROM sluice.`{place}`; END", "sluice.transaction"),
    ):
        refused(lambda text=text: sluice.sql(spark, text), sluice.errors.UnsupportedFeature, f"Spark Connect hides.*{instead}")  # type: ignore[misc]
    assert versions == [sluice.Table.open(each).version for each in (place, f"{folder}/by_sql")]
    sluice.read(spark, place).createOrReplaceTempView("rows")
    assert sluice.sql(spark, "SELECT * FROM rows").count() == 10


def variants(spark: SparkSession, folder: str) -> None:
    place = f"{folder}/variants"
    sluice.sql(spark, f"CREATE TABLE sluice.`{place}` (id BIGINT, v VARIANT, l ARRAY<VARIANT>)")
    rows = spark.sql("SELECT 1L AS id, parse_json('{\"a\": 2}') AS v, array(parse_json('1'), NULL) AS l UNION ALL SELECT 2L, NULL, NULL")
    rows.write.format("sluice").mode("append").save(place)
    shown = [(1, '{"a":2}', "[1,null]"), (2, None, None)]
    for frame in (sluice.read(spark, place), spark.read.format("sluice").load(place)):
        assert sorted(tuple(row) for row in frame.selectExpr("id", "to_json(v)", "to_json(l)").collect()) == shown
        assert frame.where("variant_get(v, '$.a', 'int') = 2").count() == 1


if __name__ == "__main__":
    main(*sys.argv[1:])
