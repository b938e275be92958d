"""DELETE, UPDATE and MERGE through `DeltaTable`, with the cases that Delta Lake's documentation shows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import sluice
from sluice.delta import DeltaTable
from sluice.delta.exceptions import DeltaConcurrentModificationException

from .conftest import Made, Place

pytestmark = pytest.mark.spark

ROWS = (("mon", 1, "a"), ("mon", 2, "b"), ("tue", 3, "c"))
VECTORS = {"delta.enableDeletionVectors": "true"}


@pytest.fixture
def table(request: pytest.FixtureRequest, made: Made) -> DeltaTable:
    return made(*ROWS, properties=getattr(request, "param", VECTORS))


of_both_kinds = pytest.mark.parametrize(
    "table", [pytest.param({}, marks=pytest.mark.long), VECTORS], ids=["copies", "vectors"], indirect=True
)
"""Once for each operation: how files change is the matter of `spark_integration/rows`, whose tests try every kind of table."""


def rows(table: DeltaTable) -> set[tuple[Any, ...]]:
    return {tuple(row) for row in table.toDF().collect()}


def source(spark: SparkSession, *values: tuple[str, int, str]) -> DataFrame:
    return spark.createDataFrame(list(values), "day string, id bigint, v string")


def told(frame: DataFrame) -> dict[str, int]:
    [row] = frame.collect()
    return row.asDict()


@pytest.mark.costly
@of_both_kinds
def test_delete_takes_sql_columns_aliases_and_nothing(table: DeltaTable) -> None:
    assert told(table.delete("day < 'n' AND id = 1")) == {"num_affected_rows": 1}
    assert rows(table) == {ROWS[1], ROWS[2]}
    assert told(table.alias("t").delete(F.col("t.id") == 3)) == {"num_affected_rows": 1}
    assert told(table.delete("id = 99")) == {"num_affected_rows": 0}
    assert told(table.delete()) == {"num_affected_rows": 1}
    assert rows(table) == set()


@pytest.mark.costly
@of_both_kinds
def test_update_sees_the_old_row(table: DeltaTable) -> None:
    assert told(table.update("id < 3", {"v": "concat(v, '!')", "id": "id + 10"})) == {"num_affected_rows": 2}
    assert rows(table) == {("mon", 11, "a!"), ("mon", 12, "b!"), ROWS[2]}
    assert told(table.update(set={"v": F.lit("all")})) == {"num_affected_rows": 3}
    assert {row[2] for row in rows(table)} == {"all"}


@pytest.mark.costly
@of_both_kinds
def test_the_first_clause_that_applies_decides(table: DeltaTable, spark: SparkSession) -> None:
    updates = source(spark, ("mon", 1, "gone"), ("mon", 2, "kept"), ("tue", 3, "x"), ("wed", 4, "no"), ("wed", 5, "yes"))
    done = (
        table.alias("t")
        .merge(updates.alias("s"), F.expr("t.id = s.id"))
        .whenMatchedDelete("s.v = 'gone'")
        .whenMatchedUpdate(F.col("s.v") == "kept", {"v": F.concat(F.col("t.v"), F.col("s.v"))})
        .whenMatchedUpdate(set={"v": "upper(s.v)"})
        .whenNotMatchedInsert("s.v = 'yes'", {"day": "s.day", "id": "s.id"})
        .execute()
    )
    assert told(done) == {"num_affected_rows": 4, "num_updated_rows": 2, "num_deleted_rows": 1, "num_inserted_rows": 1}
    assert rows(table) == {("mon", 2, "bkept"), ("tue", 3, "X"), ("wed", 5, None)}


@of_both_kinds
def test_rows_that_the_source_lacks(table: DeltaTable, spark: SparkSession) -> None:
    updates = source(spark, ("mon", 1, "kept"))
    done = (
        table.alias("t")
        .merge(updates.alias("s"), "t.id = s.id")
        .whenMatchedUpdate(set={"v": "s.v"})
        .whenNotMatchedBySourceUpdate("t.day = 'mon'", {"v": F.lit("missed")})
        .whenNotMatchedBySourceDelete()
        .execute()
    )
    assert told(done) == {"num_affected_rows": 3, "num_updated_rows": 2, "num_deleted_rows": 1, "num_inserted_rows": 0}
    assert rows(table) == {("mon", 1, "kept"), ("mon", 2, "missed")}


@pytest.mark.costly
def test_a_row_that_two_rows_of_the_source_change_is_refused(table: DeltaTable, spark: SparkSession) -> None:
    updates = source(spark, ("mon", 2, "x"), ("mon", 2, "y"))
    merge = table.alias("t").merge(updates.alias("s"), "t.id = s.id").whenMatchedUpdateAll()
    with pytest.raises(PySparkException, match="2") as refused:
        merge.execute()
    assert isinstance(refused.value, sluice.errors.SluiceError)
    assert rows(table) == set(ROWS)


def test_schemas_evolve_with_permission_only(table: DeltaTable, spark: SparkSession) -> None:
    updates = source(spark, ("mon", 2, "x"), ("wed", 4, "d")).withColumn("more", F.lit(7))

    def merge() -> Any:
        return table.alias("t").merge(updates.alias("s"), "t.id = s.id").whenMatchedUpdateAll().whenNotMatchedInsertAll()

    merge().execute()
    assert table.toDF().columns == ["day", "id", "v"], "columns that the table lacks are left out, as Delta does"
    merge().withSchemaEvolution().execute()
    assert table.toDF().columns == ["day", "id", "v", "more"]
    assert {(row["id"], row["more"]) for row in table.toDF().collect()} == {(1, None), (2, 7), (3, None), (4, 7)}


def test_columns_of_the_table_and_of_the_source_are_used_as_they_are(table: DeltaTable, spark: SparkSession) -> None:
    older, frame = table.toDF(), table.alias("t").toDF()
    updates = source(spark, ("tue", 2, "x"), ("wed", 4, "y"))
    merge = table.alias("t").merge(updates, (frame["id"] == updates["id"]) & (F.col("t.day") < "x"))
    merge = merge.whenMatchedUpdate(frame["id"] > 1, {"v": F.concat(frame["v"], updates["v"], F.expr("t.v"))})
    merge.whenNotMatchedInsert(updates["id"] > 3, {"id": updates["id"] * 10, "v": updates.v}).execute()
    assert rows(table) == {ROWS[0], ("mon", 2, "bxb"), ROWS[2], (None, 40, "y")}
    assert told(table.update(older["id"] == 1, {"v": F.upper(older["v"])})) == {"num_affected_rows": 1}
    assert told(table.delete(older["id"].isin(1, 40))) == {"num_affected_rows": 2}
    own = older.where("id = 3").select(F.col("id").alias("k"), F.lit("own").alias("w"))
    table.merge(own, older["id"] == own["k"]).whenMatchedUpdate(set={"v": own["w"]}).execute()
    assert rows(table) == {("mon", 2, "bxb"), (*ROWS[2][:2], "own")}


def test_columns_that_the_source_shares_with_the_table_are_the_sources(table: DeltaTable) -> None:
    frame = table.toDF()
    one = frame.where("id = 1")
    table.alias("t").merge(one, F.col("t.id") == one["id"]).whenMatchedUpdate(set={"v": "'self'"}).execute()
    assert rows(table) == {(*ROWS[0][:2], "self"), *ROWS[1:]}


def test_a_column_that_does_not_resolve_is_refused_before_anything_is_written(table: DeltaTable, spark: SparkSession) -> None:
    calls: list[Callable[[], object]] = [
        lambda: table.delete("nothing = 1"),
        lambda: table.update(set={"nothing": "1"}),
        lambda: table.update(set={"v": "nothing"}),
        lambda: table.merge(source(spark, ROWS[0]).alias("s"), "id = s.nothing").whenMatchedDelete().execute(),
        lambda: table.alias("t").merge(source(spark, ROWS[0]).alias("s"), "id = 1").whenMatchedDelete().execute(),
    ]
    for call in calls:
        with pytest.raises(AnalysisException):
            call()
    assert table.history().count() == 2


@pytest.mark.costly
def test_a_key_happens_once(table: DeltaTable, spark: SparkSession) -> None:
    for expected in (1, 0):
        assert told(table.update("id = 1", {"v": "concat(v, '+')"}, key="nightly"))["num_affected_rows"] == expected
    for expected in (1, 0):
        merge = table.merge(source(spark, ("wed", 4, "d")).alias("s"), "false").whenNotMatchedInsertAll()
        assert told(merge.execute(transaction=("loader", 1)))["num_inserted_rows"] == expected
    assert rows(table) == {("mon", 1, "a+"), *ROWS[1:], ("wed", 4, "d")}


@pytest.mark.costly
def test_the_history_shows_the_text_that_the_session_has(table: DeltaTable, spark: SparkSession) -> None:
    spark.conf.set("spark.databricks.delta.commitInfo.userMetadata", "a correction")
    try:
        table.delete("id = 1")
        table.delete("id = 3", user_metadata="its own")
        spark.conf.set("spark.sluice.commitInfo.userMetadata", "ours comes first")
        coordinator = table.table.access.address.coordinator
        sluice.sql(spark, f"ALTER TABLE sluice.`{table.table.location}` SET TBLPROPERTIES ('owner' = 'ops')", coordinator=coordinator)
        with sluice.transaction(spark, table.table) as tx:
            tx[table.table].update("id = 2", {"v": "'x'"})
        table.restoreToVersion(table.history(1).collect()[0]["version"] - 1)
    finally:
        spark.conf.unset("spark.databricks.delta.commitInfo.userMetadata")
        spark.conf.unset("spark.sluice.commitInfo.userMetadata")
    table.delete("id = 2")
    texts = [row["userMetadata"] for row in table.history(6).collect()]
    assert texts == [None, *["ours comes first"] * 3, "its own", "a correction"]


@pytest.mark.costly
def test_a_lost_operation_names_the_rule_or_is_repeated(made: Made, place: Place, spark: SparkSession) -> None:
    table = made(*ROWS, properties=VECTORS)
    other = place.table()

    def merge(attempts: int) -> DataFrame:
        ours = source(spark, ("mon", 2, "mine"))
        begun = table.alias("t").merge(ours.alias("s"), "t.id = s.id")
        return begun.whenMatchedUpdate(set={"v": "concat(t.v, s.v)"}).execute(attempts=attempts)

    once = [True]
    begin = table.table._begun

    def begin_and_lose(*arguments: Any, **more: Any) -> Any:
        part = begin(*arguments, **more)
        if once:
            once.pop()
            other.update({"v": "'theirs'"}, "id = 2")
        return part

    table.table._begun = begin_and_lose  # type: ignore[method-assign]
    with pytest.raises(DeltaConcurrentModificationException) as lost:
        merge(attempts=1)
    assert isinstance(lost.value, PySparkException)
    assert lost.value.rule
    once.append(True)
    assert told(merge(attempts=3))["num_updated_rows"] == 1
    assert ("mon", 2, "theirsmine") in rows(table)
