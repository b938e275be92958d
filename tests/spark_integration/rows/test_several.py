"""Spark data in transactions over several tables: executors write, the driver commits.

MERGE, UPDATE and DELETE answer what the table of cases says: by DeltaTable and by SQL, with and without deletion vectors, whatever the
size of the source.
Drivers merge into the same tables at once: the order of versions explains every row (see `serial_order`).
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

import sluice
from sluice.coordinator.service.connect import release
from sluice.delta import DeltaTable
from sluice.spark_integration.rows import source as source_of_merge
from sluice.spark_integration.rows.analysis import Clause
from sluice.statements.parse.cursor import Span
from sluice.statements.parse.reading import read
from sluice.statements.parse.rows import Assignment, Delete, Merge, Update
from tests.spark_integration.conftest import Place, configured
from tests.spark_integration.rows.cases import CASES, Case
from tests.spark_integration.rows.cases.judging import judge
from tests.spark_integration.rows.cases.tables import make
from tests.spark_integration.rows.concurrent_merges import run
from tests.spark_integration.rows.merging_driver import with_clause
from tests.spark_integration.rows.model import ALWAYS, Row, Ruled
from tests.spark_integration.rows.random_operations import TABLE, Operation, arrow
from tests.spark_integration.rows.serial_order import Judge, Judgement

KEYED = {"sluice.primaryKey": "day", "sluice.conflictPolicy": "maxcompute-delta", "delta.enableDeletionVectors": "true"}
SCHEMA = pa.schema([pa.field("day", pa.string()), pa.field("n", pa.int64())])


@pytest.mark.spark
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


@pytest.mark.spark
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


@pytest.mark.spark
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


@pytest.mark.costly
@pytest.mark.spark
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
    assert counts.collect()[0].asDict() == {"num_affected_rows": 2, "num_updated_rows": 1, "num_deleted_rows": 0, "num_inserted_rows": 1}
    assert len(tx.commit_info) == 2
    found = [(row["day"], row["n"]) for row in orders.refresh().snapshot().to_arrow().to_pylist()]
    assert sorted(found) == [("2026-01-02", 7), ("mon", 1), ("tue", 20), ("wed", 30)]
    assert stock.refresh().snapshot().to_arrow().to_pylist() == [{"day": "tue", "n": 2}]
    with pytest.raises(sluice.errors.InvalidRequest, match=r"sluice.transaction\(spark"):
        sluice.transaction(tables=[orders])[orders].merge(frame, "true")
    with pytest.raises(sluice.errors.InvalidRequest, match="session or the coordinator"):
        sluice.transaction(7, orders)


@pytest.mark.spark
def test_a_setting_of_deltas_evolves_schemas_in_transactions_too(spark: SparkSession, place: Place, tmp_path: Path) -> None:
    tables = [sluice.Table.create(path, SCHEMA, coordinator=place.coordinator) for path in (place.location, tmp_path / "stock")]
    appended = sluice.Table.create(tmp_path / "log", SCHEMA, coordinator=place.coordinator)
    frame = spark.sql("SELECT 'mon' AS day, 1L AS n, 'new' AS more").alias("s")
    with configured(spark, {"spark.databricks.delta.schema.autoMerge.enabled": "true"}), sluice.transaction(spark, *tables) as tx:
        for table in tables:
            tx[table].alias("t").merge(frame, "t.day = s.day").whenNotMatchedInsertAll().execute()
        tx[appended].append(frame)
    for table in (*tables, appended):
        assert table.refresh().snapshot().to_arrow().to_pylist() == [{"day": "mon", "n": 1, "more": "new"}]


@pytest.mark.costly
@pytest.mark.spark
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


SHORT: Final = 16
LIMITS: Final = ("_LOCAL_ROWS_MAX", "_LOCAL_BYTES_MAX", "_SENT_ROWS_MAX", "_SENT_BYTES_MAX")
"""Up to which size a source is part of the plan, and up to which it is sent to every task."""


def _combinations() -> Iterator[Any]:
    """Each case once in each way. All but every sixteenth case in one way, another one from case to case, are of the long tests: a case
    takes a second of Spark, and runs once without Spark in any case.
    """
    for number, case in enumerate(CASES):
        sizes = (0, math.inf) if case.do.startswith("MERGE") else (math.inf,)
        ways = list(product([each for each in ("api", "spark") if each in case.only], (True, False), sizes))
        for position, (way, vectors, size) in enumerate(ways):
            is_short = number % SHORT == 0 and position == number // SHORT % len(ways)
            marks = [] if is_short else [pytest.mark.long]
            name = f"{case.name}, {way}{'' if vectors else ', no vectors'}, {size}"
            yield pytest.param(case, way, vectors, size, id=name, marks=marks)


@pytest.mark.spark
@pytest.mark.parametrize(("case", "way", "vectors", "size"), list(_combinations()))
@pytest.mark.many
def test_it_answers_what_delta_lake_answers(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: Case, way: str, vectors: bool, size: float
) -> None:
    for limit in LIMITS:
        monkeypatch.setattr(source_of_merge, limit, size)
    coordinator = f"memory://{uuid.uuid4().hex}"
    try:
        table = make(case, coordinator, tmp_path, vectors=vectors)
        with configured(spark, case.settings):
            judge(case, way, table, lambda: _carry_out(spark, case, way, coordinator))
    finally:
        release(coordinator)


def _carry_out(spark: SparkSession, case: Case, way: str, coordinator: str) -> None:
    if way == "api":
        _by_api(spark, case, coordinator)
    else:
        sluice.sql(spark, case.do, coordinator=coordinator).collect()


def _by_api(spark: SparkSession, case: Case, coordinator: str) -> None:
    """Carry a case out through DeltaTable, as its statement says."""
    statement = read(case.do)
    assert isinstance(statement, (Delete, Merge, Update))
    table = DeltaTable.forName(spark, "t", coordinator=coordinator).alias(statement.called)

    def text(span: Span | None) -> str | None:
        return None if span is None else span.of(case.do)

    def values(assignments: tuple[Assignment, ...]) -> dict[str, Any]:
        return {each.column.of(case.do): each.value.of(case.do) for each in assignments}

    if isinstance(statement, Delete):
        table.delete(text(statement.where))
        return
    if isinstance(statement, Update):
        table.update(text(statement.where), values(statement.assignments))
        return
    source = sluice.sql(spark, f"SELECT * FROM {text(statement.source)}", coordinator=coordinator)
    merge = table.merge(source.alias(statement.source_called or "s"), statement.on.of(case.do))
    merge = merge.withSchemaEvolution() if statement.evolves else merge
    for clause in statement.clauses:
        merge = with_clause(merge, clause.matched, clause.action, text(clause.condition), values(clause.assignments))
    merge.execute()


FIRST: list[Row] = [(1, "a", 0, "first.0"), (8, "a", 0, "first.1")]
LATE: list[Row] = [(2, "b", 0, "late.0")]
BY_SOURCE = Clause("not_matched_by_source", "update", "t.k < 4", {"v": "t.v + 7"})


def judged(table: sluice.Table, rule: Ruled, level: str | None = None) -> Judgement:
    asked = Operation("driver0-0", "update", [], ALWAYS, [rule], level, 1)
    appended: dict[str, list[Row]] = {"first": FIRST, "late": LATE}
    return Judge(table, {"driver0-0": asked}, appended).follow()


@pytest.mark.zookeeper
def test_the_judge_sees_what_no_order_explains(tmp_path: Path, zookeeper_address: str) -> None:
    """An UPDATE that missed a row is explained if a blind append added it since, at the level that allows it, and not otherwise."""
    table = sluice.Table.create(tmp_path / "t", TABLE, properties={"delta.enableDeletionVectors": "true"}, coordinator=zookeeper_address)
    table.append(arrow(FIRST), key="first")
    with table.begin(key="driver0-0") as tx:
        tx.update({"v": "v + 7"}, "k < 4")
        table.append(arrow(LATE), key="late")
    rule = Ruled(BY_SOURCE, lambda t, _s: t[0] < 4, lambda t, _s: (*t[:2], t[2] + 7, t[3]))
    result = judged(table, rule)
    assert not result.violations
    assert (result.over_others, result.unseen) == (1, 1)
    assert len(judged(table, rule, "Serializable").violations) == 2, "the level, and the row"
    assert "1 rows differ: first.1" in judged(table, replace(rule, holds=lambda t, _s: t[0] < 9)).violations[0]
    table.delete("k = 8")
    assert "1 rows differ: first.1" in judged(table, rule).violations[0], "a version without a key changes no rows"


@pytest.mark.zookeeper
@pytest.mark.spark
@pytest.mark.long
@pytest.mark.timeout(600)
def test_merges_of_two_drivers_are_what_some_order_gives(tmp_path: Path, zookeeper_address: str) -> None:
    found = run(tmp_path, zookeeper_address, seed=12, drivers=2, seconds=2400, times=1)
    assert not found.violations, "\n".join(found.violations)
    assert sum(found.ended.values()) == 8
    assert found.ended["committed"] > 1, found


@pytest.mark.zookeeper
@pytest.mark.spark
@pytest.mark.long
@pytest.mark.timeout(1800)
def test_merges_of_many_drivers_are_what_some_order_gives(tmp_path: Path, zookeeper_address: str) -> None:
    found = run(tmp_path, zookeeper_address, seed=2026, drivers=4, seconds=600)
    assert not found.violations, "\n".join(found.violations)
    assert found.ended["committed"] > 30, found
    assert found.unseen > 0, found
    assert found.over_others > 0, found
