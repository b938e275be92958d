"""Spark data in transactions over several tables: executors write, the driver commits."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

import sluice
from sluice.delta import DeltaTable

from ..conftest import Place

pytestmark = pytest.mark.spark

KEYED = {"sluice.primaryKey": "day", "sluice.conflictPolicy": "maxcompute-delta", "delta.enableDeletionVectors": "true"}
SCHEMA = pa.schema([pa.field("day", pa.string()), pa.field("n", pa.int64())])


def test_a_dataframe_and_arrow_data_become_one_commit(spark: SparkSession, place: Place, tmp_path: Path) -> None:
    totals = sluice.Table.create(place.location, SCHEMA, partition_by=["day"], coordinator=place.coordinator)
    orders = sluice.Table.create(tmp_path / "orders", SCHEMA, coordinator=place.coordinator)
    totals.append(pa.table({"day": ["mon", "tue"], "n": pa.array([1, 2], pa.int64())}))
    frame = spark.createDataFrame([("mon", 10), ("mon", 20)], "day string, n bigint").repartition(2)
    with sluice.transaction() as tx:
        tx.part(totals).overwrite(frame, where="day = 'mon'")
        tx.part(totals).append(frame.selectExpr("'wed' AS day", "n"))
        tx.part(orders).append(pa.table({"day": ["mon"], "n": pa.array([5], pa.int64())}))
        assert tx.part(totals).scan().num_rows == 5
    assert len(tx.commit_info) == 2
    found = totals.refresh().snapshot().to_arrow().to_pylist()
    assert sorted((row["day"], row["n"]) for row in found) == [("mon", 10), ("mon", 20), ("tue", 2), ("wed", 10), ("wed", 20)]


def test_a_dataframe_that_does_not_fit_is_refused_before_a_task_runs(spark: SparkSession, place: Place) -> None:
    table = sluice.Table.create(place.location, SCHEMA, coordinator=place.coordinator)
    tx = sluice.transaction()
    with pytest.raises(sluice.errors.SchemaMismatch):
        tx.part(table).append(spark.createDataFrame([("x",)], "n string"))
    assert tx.state == "open"
    strict = pa.schema([SCHEMA.field("day").with_nullable(False), SCHEMA.field("n")])
    keyed = sluice.Table.create(f"{place.location}-keyed", strict, coordinator=place.coordinator, properties=KEYED)
    with pytest.raises(sluice.errors.InvalidRequest, match="primary key"):
        tx.part(keyed).append(spark.createDataFrame([("x", 1)], "day string, n bigint"))


def test_a_merge_may_write_the_primary_key_that_a_row_has(spark: SparkSession, place: Place) -> None:
    strict = pa.schema([SCHEMA.field("day").with_nullable(False), SCHEMA.field("n")])
    table = sluice.Table.create(place.location, strict, coordinator=place.coordinator, properties=KEYED)
    table.append(pa.table({"day": ["mon", "tue"], "n": pa.array([1, 2], pa.int64())}))
    target = DeltaTable.forPath(spark, place.location, coordinator=place.coordinator).alias("t")
    source = spark.createDataFrame([("mon", 10), ("wed", 30)], "day string, n bigint").alias("s")
    merge = target.merge(source, "s.day = t.day AND t.n > 0")
    merge.whenMatchedUpdateAll("s.n = 10").whenMatchedUpdate(set={"day": "t.day", "n": "0"}).execute()
    for refused, why in (
        (merge.whenMatchedUpdate(set={"day": "'x'"}), "update sets 'day'"),
        (target.merge(source, "s.n = t.n").whenMatchedUpdateAll(), "update sets 'day'"),
        (merge.whenNotMatchedInsertAll(), "Table.upsert"),
    ):
        with pytest.raises(AnalysisException, match=why):
            refused.execute()
    assert table.refresh().snapshot().to_arrow().sort_by("day").to_pylist() == [{"day": "mon", "n": 10}, {"day": "tue", "n": 2}]


def test_rows_of_several_tables_are_changed_by_spark_in_one_commit(spark: SparkSession, place: Place, tmp_path: Path) -> None:
    orders = sluice.Table.create(place.location, SCHEMA, coordinator=place.coordinator)
    stock = sluice.Table.create(tmp_path / "stock", SCHEMA, coordinator=place.coordinator)
    for table in (orders, stock):
        table.append(pa.table({"day": ["mon", "tue"], "n": pa.array([1, 2], pa.int64())}))
    frame = spark.createDataFrame([("tue", 20), ("wed", 30)], "day string, n bigint").alias("s")
    with sluice.transaction(spark, orders, stock) as tx:
        counts = tx[orders].alias("o").merge(frame, "o.day = s.day").whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
        tx[stock].update("day = 'mon'", {"n": "n + 10"})
        tx[orders].append(spark.sql("SELECT DATE'2026-01-02' AS day, 7.9D AS n"))  # stored as text and as a whole number
        with pytest.raises(AnalysisException, match="cannot be stored"):
            tx[orders].append(spark.sql("SELECT 'x' AS day, 'y' AS n"))
        assert tx[stock].delete("n = 11").collect()[0][0] == 1
        assert tx.part(stock).scan().num_rows == 1
    assert counts.collect()[0].asDict() == {
        "num_affected_rows": 2,
        "num_updated_rows": 1,
        "num_deleted_rows": 0,
        "num_inserted_rows": 1,
    }
    assert len(tx.commit_info) == 2
    found = [(row["day"], row["n"]) for row in orders.refresh().snapshot().to_arrow().to_pylist()]
    assert sorted(found) == [("2026-01-02", 7), ("mon", 1), ("tue", 20), ("wed", 30)]
    assert stock.refresh().snapshot().to_arrow().to_pylist() == [{"day": "tue", "n": 2}]
    with pytest.raises(sluice.errors.InvalidRequest, match=r"sluice.transaction\(spark"):
        sluice.transaction(tables=[orders])[orders].merge(frame, "true")
    with pytest.raises(sluice.errors.InvalidRequest, match="session or the coordinator"):
        sluice.transaction(7, orders)


def test_a_setting_of_deltas_evolves_schemas_in_transactions_too(spark: SparkSession, place: Place, tmp_path: Path) -> None:
    tables = [sluice.Table.create(path, SCHEMA, coordinator=place.coordinator) for path in (place.location, tmp_path / "stock")]
    appended = sluice.Table.create(tmp_path / "log", SCHEMA, coordinator=place.coordinator)
    frame = spark.sql("SELECT 'mon' AS day, 1L AS n, 'new' AS more").alias("s")
    spark.conf.set("spark.databricks.delta.schema.autoMerge.enabled", "true")
    try:
        with sluice.transaction(spark, *tables) as tx:
            for table in tables:
                tx[table].alias("t").merge(frame, "t.day = s.day").whenNotMatchedInsertAll().execute()
            tx[appended].append(frame)
    finally:
        spark.conf.unset("spark.databricks.delta.schema.autoMerge.enabled")
    for table in (*tables, appended):
        assert table.refresh().snapshot().to_arrow().to_pylist() == [{"day": "mon", "n": 1, "more": "new"}]


def test_a_consumers_transaction_takes_the_rows_and_operations_of_spark(spark: SparkSession, place: Place, tmp_path: Path) -> None:
    orders = sluice.Table.create(place.location, SCHEMA, coordinator=place.coordinator)
    totals, log = (sluice.Table.create(tmp_path / name, SCHEMA, coordinator=place.coordinator) for name in ("totals", "log"))
    orders.append(pa.table({"day": ["mon", "mon", "tue"], "n": pa.array([1, 2, 3], pa.int64())}))
    orders.append(pa.table({"day": ["mon"], "n": pa.array([10], pa.int64())}))

    def consume(*, dies_at: int = -1) -> None:
        with orders.consumer("totals", into=[totals, log], rows="inserted", timeout_s=0) as consumer:
            for batch in consumer:
                frame = spark.createDataFrame(batch.to_arrow())
                with sluice.transaction(spark, consumer=consumer) as tx:
                    tx.part(log).append(frame)
                    per_day = frame.groupBy("day").sum("n").toDF("day", "n").alias("s")
                    merge = tx[totals].alias("t").merge(per_day, "t.day = s.day").whenMatchedUpdate(set={"n": "t.n + s.n"})
                    merge.whenNotMatchedInsertAll().execute()
                    assert batch.version != dies_at

    with pytest.raises(AssertionError):
        consume(dies_at=2)
    assert log.refresh().snapshot().to_arrow().num_rows == 3
    consume()
    found = {row["day"]: row["n"] for row in totals.refresh().snapshot().to_arrow().to_pylist()}
    assert found == {"mon": 13, "tue": 3}
    assert log.refresh().snapshot().to_arrow().num_rows == 4
    with orders.consumer("totals", into=[totals, log], timeout_s=0) as consumer:
        assert consumer.position == 2
        with pytest.raises(sluice.errors.InvalidRequest, match="consumer and tables were given"):
            sluice.transaction(spark, totals, consumer=consumer)
