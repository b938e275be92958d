"""INSERT, UPDATE, DELETE, MERGE and TRUNCATE through SQL."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException

import sluice
from sluice.spark_integration.rows.merge import merge_rows
from sluice.statements.spark import engine

from .conftest import Warehouse

pytestmark = [pytest.mark.spark, pytest.mark.zookeeper]

ORDERS = pa.schema([pa.field("id", pa.int64()), pa.field("day", pa.string()), pa.field("v", pa.float64())])
ROWS = [(1, "mo", 1.0), (2, "mo", 2.0), (3, "tu", 3.0)]


@pytest.fixture
def orders(warehouse: Warehouse) -> sluice.Table:
    return warehouse.made("sales.orders", ORDERS, *ROWS, partition_by=["day"])


def test_insert_takes_parameters(warehouse: Warehouse, orders: sluice.Table) -> None:
    warehouse.sql("INSERT INTO sales.orders VALUES (4, 'we', 4), (:id, 'we', :v)", {"id": 5, "v": 5.5})
    warehouse.sql("INSERT INTO TABLE sales.orders (v, id) VALUES (?, ?)", [6, 6])
    assert warehouse.held("sales.orders") == [*ROWS, (4, "we", 4.0), (5, "we", 5.5), (6, None, 6.0)]
    with pytest.raises(sluice.errors.InvalidRequest, match=r"column 34: this parameter has no value"):
        warehouse.sql("INSERT INTO sales.orders VALUES (:a, 'x', 1)")


def test_insert_overwrite_of_partitions_and_of_a_version(warehouse: Warehouse, orders: sluice.Table) -> None:
    warehouse.spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    try:
        warehouse.sql("INSERT OVERWRITE TABLE sales.orders VALUES (31, 'tu', 31)")
    finally:
        warehouse.spark.conf.unset("spark.sql.sources.partitionOverwriteMode")
    assert warehouse.held("sales.orders") == [*ROWS[:2], (31, "tu", 31.0)]
    warehouse.sql("INSERT OVERWRITE sales.orders TABLE sales.orders VERSION AS OF 1")
    assert warehouse.held("sales.orders") == ROWS


def test_update_and_delete(warehouse: Warehouse, orders: sluice.Table) -> None:
    warehouse.made("wanted", pa.schema([pa.field("id", pa.int64())]), (2,), (3,))
    updated = warehouse.sql(
        "UPDATE sales.orders SET v = CASE WHEN v > 1 THEN v * :by ELSE 0 END, day = :day WHERE id < 3", {"by": 10, "day": "x' OR"}
    )
    assert updated.collect() == [(2,)]
    assert warehouse.held("sales.orders") == [(1, "x' OR", 0.0), (2, "x' OR", 20.0), (3, "tu", 3.0)]
    correlated = "UPDATE sales.orders o SET o.v = -1 WHERE EXISTS (SELECT 1 FROM wanted w WHERE w.id = o.id) AND id NOT IN (SELECT 3L)"
    assert warehouse.sql(correlated).collect() == [(1,)]
    assert warehouse.held("sales.orders")[1] == (2, "x' OR", -1.0)
    itself = "DELETE FROM sales.orders WHERE v = (SELECT max(v) FROM sales.orders) AND id IN (SELECT id FROM wanted)"
    assert warehouse.sql(itself).collect() == [(1,)]
    assert warehouse.held("sales.orders") == [(1, "x' OR", 0.0), (2, "x' OR", -1.0)]
    assert warehouse.sql(f"DELETE FROM sluice.`{orders.location}` AS o WHERE o.id = ?", [1]).collect() == [(1,)]
    with pytest.raises(AnalysisException, match="aggregate"):
        warehouse.sql("UPDATE sales.orders SET v = max(v)")
    with pytest.raises(AnalysisException, match="UNRESOLVED_COLUMN"):
        warehouse.sql("DELETE FROM sales.orders WHERE nothing = 1")
    assert warehouse.sql("DELETE FROM sales.orders").collect() == [(1,)]
    assert warehouse.held("sales.orders") == []


@pytest.mark.costly
def test_subqueries_in_values(warehouse: Warehouse, orders: sluice.Table) -> None:
    warehouse.made("others", pa.schema([pa.field("id", pa.int64()), pa.field("w", pa.float64())]), (1, 10.0), (2, 20.0), (2, 21.0))
    updated = warehouse.sql(
        """
        UPDATE sales.orders AS o SET v = coalesce((SELECT max(w) FROM others WHERE others.id = o.id), :none),
          day = CASE WHEN EXISTS (SELECT 1 FROM others WHERE others.id = o.id) THEN day ELSE (SELECT min(day) FROM sales.orders) END
        WHERE id IN (SELECT id FROM sales.orders WHERE id > 1)
        """,
        {"none": -1},
    )
    assert updated.collect() == [(2,)]
    assert warehouse.held("sales.orders") == [(1, "mo", 1.0), (2, "mo", 21.0), (3, "mo", -1.0)]
    with pytest.raises(Exception, match="SCALAR_SUBQUERY_TOO_MANY_ROWS"):
        warehouse.sql("UPDATE sales.orders SET v = (SELECT w FROM others)")


@pytest.mark.long
def test_subqueries_in_all_clauses_of_a_merge(warehouse: Warehouse) -> None:
    warehouse.made("sales.orders", ORDERS, (1, "mo", 1.0), (2, "mo", 21.0), (3, "mo", -1.0), partition_by=["day"])
    warehouse.made("others", pa.schema([pa.field("id", pa.int64()), pa.field("w", pa.float64())]), (1, 10.0), (2, 20.0), (2, 21.0))
    merged = warehouse.sql(
        """
        MERGE INTO sales.orders t USING others s ON t.id = s.id AND s.w IN (SELECT max(w) FROM others GROUP BY id)
        WHEN MATCHED AND s.w > (SELECT avg(w) FROM others) THEN UPDATE SET v = (SELECT sum(w) FROM others o WHERE o.id = t.id)
        WHEN MATCHED AND EXISTS (SELECT 1 FROM others o WHERE o.w = t.v * 10) THEN DELETE
        WHEN NOT MATCHED AND s.id IN (SELECT id FROM sales.orders) THEN INSERT (id, v) VALUES (s.id + 100, (SELECT count(*) FROM others))
        WHEN NOT MATCHED BY SOURCE AND t.v < (SELECT min(w) FROM others) THEN UPDATE SET v = (SELECT max(id) FROM sales.orders)
        """
    )
    assert merged.collect()[0].asDict() == {"num_affected_rows": 4, "num_updated_rows": 2, "num_deleted_rows": 1, "num_inserted_rows": 1}
    assert warehouse.held("sales.orders") == [(102, None, 3.0), (2, "mo", 41.0), (3, "mo", 3.0)]


@pytest.mark.parametrize("highest", ["(SELECT max(v) FROM sales.orders)", "(SELECT v FROM highest)"])
@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM sales.orders WHERE day = 'tu' AND v = {}",
        "MERGE INTO sales.orders t USING (SELECT 'tu' AS d) ON t.day = d AND t.v = {} WHEN MATCHED THEN DELETE",
    ],
)
@pytest.mark.many
def test_what_a_subquery_reads_of_the_table_itself_counts_as_read(
    warehouse: Warehouse, orders: sluice.Table, statement: str, highest: str
) -> None:
    """Rows of other partitions that change meanwhile could change what the subquery gives: so the statement loses against them."""
    warehouse.sql("SELECT max(v) AS v FROM sales.orders").createOrReplaceTempView("highest")

    def late(*given: Any) -> Any:
        counts = merge_rows(*given)
        warehouse.catalog.open("sales.orders").delete("id = 1")
        return counts

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(engine, "merge_rows", late)
        with pytest.raises(sluice.errors.ConcurrentModification):
            warehouse.sql(statement.format(highest))
    assert warehouse.held("sales.orders") == ROWS[1:]
    warehouse.spark.catalog.dropTempView("highest")


@pytest.mark.costly
@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"DELETE FROM sales.p WHERE {' AND '.join(['id = 9'] * 20_000)}", "19999 ANDs and ORs, and at most"),
        (f"UPDATE sales.p SET id = 1 WHERE {'(' * 500}id = 9{')' * 500}", "nested too deeply, 500 brackets"),
    ],
)
def test_nothing_is_written_by_a_statement_beyond_the_limits(warehouse: Warehouse, text: str, message: str) -> None:
    warehouse.sql("CREATE TABLE sales.p (id INT, s STRING) USING sluice PARTITIONED BY (s)")
    warehouse.sql("INSERT INTO sales.p VALUES (1, 'a'), (2, 'b')")
    with pytest.raises(sluice.errors.InvalidRequest, match=message):
        warehouse.sql(text)
    assert warehouse.held("sales.p") == [(1, "a"), (2, "b")]


NEW_ROWS = "SELECT id, 'new' AS day, id * 1.0D AS v FROM range(1000, 1025, 1, 1)"


@pytest.mark.parametrize(
    "text",
    [
        f"INSERT INTO sales.orders {NEW_ROWS}",
        f"BEGIN ATOMIC INSERT INTO sales.orders {NEW_ROWS}; END",
        f"MERGE INTO sales.orders AS t USING ({NEW_ROWS}) AS s ON t.id = s.id WHEN NOT MATCHED THEN INSERT *",
    ],
    ids=["insert", "block", "merge"],
)
def test_the_session_says_how_many_rows_a_file_has(warehouse: Warehouse, orders: sluice.Table, text: str) -> None:
    before = {file["path"] for file in orders.snapshot().files().to_pylist()}
    warehouse.spark.conf.set("spark.sql.files.maxRecordsPerFile", "10")
    try:
        warehouse.sql(text)
    finally:
        warehouse.spark.conf.unset("spark.sql.files.maxRecordsPerFile")
    files = orders.refresh().snapshot().files().to_pylist()
    added = [json.loads(file["stats"])["numRecords"] for file in files if file["path"] not in before]
    assert sorted(added) == [5, 10, 10]
