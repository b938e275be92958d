"""Statements about tables: making, changing, dropping, describing and taking care of them.

Several threads of one session, and several processes, that create one table at the same moment: all succeed, and there is one.
IF VERSION n before a statement that Spark carries out.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame

import sluice
from sluice.delta import DeltaTable
from tests.statements.duckdb.test_blocks import REFUSED, STATEMENTS, prepare
from tests.statements.duckdb.test_tables import CLIENTS, at_once
from tests.statements.spark.conftest import Warehouse

CREATE = """
CREATE TABLE sales.orders (
  id BIGINT NOT NULL COMMENT 'the id', day DATE, amount DECIMAL(10, 2) CHECK (amount > 0), tags ARRAY<STRUCT<k: STRING, v: INT>>,
  CONSTRAINT known CHECK (id > 0)
) USING sluice PARTITIONED BY (day) COMMENT 'orders' TBLPROPERTIES ('delta.appendOnly' = 'false', owner = 'shop')
"""


@pytest.mark.spark
@pytest.mark.zookeeper
def test_create_show_and_describe(warehouse: Warehouse) -> None:
    warehouse.sql(CREATE)
    table = warehouse.catalog.open("sales.orders")
    assert table.partition_columns == ("day",)
    assert not table.schema.field("id").nullable
    assert table.properties["delta.constraints.known"] == "id > 0"
    assert table.properties["delta.constraints.amount_1"] == "amount > 0"
    assert warehouse.catalog.comment("sales.orders") == "orders"
    with pytest.raises(sluice.errors.TableExists):
        warehouse.sql(CREATE)
    warehouse.sql("CREATE TABLE IF NOT EXISTS sales.orders (other INT) USING sluice")
    assert [row[0] for row in warehouse.rows("SHOW COLUMNS IN sales.orders")] == ["amount", "day", "id", "tags"]
    warehouse.sql("INSERT INTO sales.orders VALUES (1, DATE'2026-01-01', 5, NULL), (2, NULL, 6, array(named_struct('v', 1, 'k', 'a')))")
    days = {row["day"] for row in warehouse.sql("SHOW PARTITIONS sales.orders").collect()}
    assert {None if day is None else str(day) for day in days} == {None, "2026-01-01"}
    assert warehouse.rows("SHOW TBLPROPERTIES sales.orders ('owner')") == [("owner", "shop")]
    assert ("known", "id > 0") in [(row[0].rpartition(".")[2], row[1]) for row in warehouse.rows("SHOW TBLPROPERTIES sales.orders")]
    shown = warehouse.sql("SHOW CREATE TABLE sales.orders").collect()[0][0]
    warehouse.sql(shown.replace("sales.orders", "sales.again"))
    again = warehouse.catalog.open("sales.again")
    assert (again.schema, again.partition_columns) == (table.schema, table.partition_columns)
    assert again.properties["owner"] == "shop"
    described = warehouse.sql("DESCRIBE EXTENDED sales.orders").collect()
    assert described[0] == ("id", "bigint", "the id")
    assert ("day", "date", None) in described[5:]
    assert {row[0]: row[1] for row in described}["Provider"] == "sluice"
    assert ("comment", "the id") in warehouse.rows("DESC sales.orders ID")
    [detail] = warehouse.sql("DESCRIBE DETAIL sales.orders").collect()
    assert (detail["name"], detail["partitionColumns"]) == ("sales.orders", ["day"])
    assert [row["operation"] for row in warehouse.sql("DESCRIBE HISTORY sales.orders LIMIT 1").collect()] == ["WRITE"]
    assert warehouse.rows("SHOW TABLES IN sales LIKE 'ord*|none'") == [("sales", "orders", False)]


@pytest.mark.spark
@pytest.mark.zookeeper
def test_create_with_rows_and_replace(warehouse: Warehouse) -> None:
    warehouse.sql("CREATE TABLE sales.numbers USING sluice PARTITIONED BY (odd) AS SELECT id, id % 2 AS odd FROM range(:n)", {"n": 4})
    table = warehouse.catalog.open("sales.numbers")
    assert table.partition_columns == ("odd",)
    assert table.version == 0 or table.snapshot().to_arrow().num_rows == 4
    warehouse.sql(
        "CREATE OR REPLACE TABLE sales.numbers USING sluice TBLPROPERTIES (owner = 'me') AS SELECT id + 1 AS n FROM sales.numbers"
    )
    assert warehouse.held("sales.numbers") == [(1,), (2,), (3,), (4,)]
    assert table.refresh().partition_columns == ()
    assert table.properties["owner"] == "me"
    warehouse.sql("CREATE TABLE IF NOT EXISTS sales.numbers USING sluice AS SELECT 1 AS other")
    warehouse.sql("CREATE OR REPLACE TABLE sales.numbers USING sluice CLUSTER BY (a) AS SELECT 1 AS a, 2 AS b")
    assert table.refresh().clustering_columns == ("a",)
    warehouse.sql("ALTER TABLE sales.numbers CLUSTER BY (b, a)")
    [optimized] = warehouse.sql("OPTIMIZE sales.numbers").collect()
    assert (optimized["metrics"]["numFilesAdded"], table.refresh().clustering_columns) == (1, ("b", "a"))
    warehouse.sql("REPLACE TABLE sales.numbers (a INT, short VARCHAR(2)) USING sluice")
    warehouse.sql("INSERT INTO sales.numbers VALUES (1, 'ok')")
    with pytest.raises(sluice.errors.ConstraintViolated, match=r"varchar\(2\) of short"):
        warehouse.sql("INSERT INTO sales.numbers VALUES (2, 'long')")
    assert warehouse.held("sales.numbers") == [(1, "ok")]
    [analyzed] = warehouse.sql("ANALYZE TABLE sales.numbers COMPUTE STATISTICS FOR ALL COLUMNS").collect()
    assert (analyzed["num_files"], analyzed["num_lacking"]) == (1, 0)
    warehouse.sql("REPLACE TABLE sales.numbers (a INT) USING sluice")
    assert table.refresh().clustering_columns == ()
    assert table.refresh().schema.names == ["a"]
    place = warehouse.folder / "by-path"
    warehouse.sql(f"CREATE TABLE sluice.`{place}` AS SELECT 'x' AS v")
    assert warehouse.rows(f"SELECT * FROM sluice.`{place}`") == [("x",)]
    for text, message in (
        ("CREATE TABLE t (a INT DEFAULT nosuch(1)) USING sluice", "nosuch"),
        ("CREATE TABLE t (a INT) USING sluice AS SELECT 1", "has the query's columns"),
        ("REPLACE TABLE sales.none USING sluice AS SELECT 1 AS a", "the table sales.none, which is to be replaced, cannot be found"),
        ("CREATE TABLE nowhere.t (a INT) USING sluice", "nowhere"),
    ):
        with pytest.raises(AnalysisException, match=message):
            warehouse.sql(text)
    assert warehouse.catalog.tables("default") == []


@pytest.mark.spark
@pytest.mark.zookeeper
def test_alter_drop_and_undrop(warehouse: Warehouse) -> None:
    warehouse.sql("CREATE TABLE sales.t (id BIGINT) USING sluice")
    warehouse.sql("INSERT INTO sales.t VALUES (1), (-1)")
    with pytest.raises(sluice.errors.ConstraintViolated):
        warehouse.sql("ALTER TABLE sales.t ADD CONSTRAINT positive CHECK (id > 0)")
    warehouse.sql("ALTER TABLE sales.t ADD CONSTRAINT small CHECK (id < 10)")
    with pytest.raises(AnalysisException, match="there is a constraint small already"):
        warehouse.sql("ALTER TABLE sales.t ADD CONSTRAINT small CHECK (id < 20)")
    warehouse.sql("ALTER TABLE sales.t SET TBLPROPERTIES ('owner' = 'me')")
    warehouse.sql("ALTER TABLE sales.t UNSET TBLPROPERTIES ('owner')")
    with pytest.raises(AnalysisException, match="the table has no owner; add IF EXISTS"):
        warehouse.sql("ALTER TABLE sales.t UNSET TBLPROPERTIES ('owner')")
    warehouse.sql("ALTER TABLE sales.t DROP CONSTRAINT small")
    warehouse.sql("ALTER TABLE sales.t DROP CONSTRAINT IF EXISTS small")
    with pytest.raises(sluice.errors.UnsupportedFeature, match="DROP COLUMN needs column mapping"):
        warehouse.sql("ALTER TABLE sales.t DROP COLUMN id")
    warehouse.sql("ALTER TABLE sales.t RENAME TO u")
    assert [each.full_name for each in warehouse.catalog.tables("sales")] == ["sales.u"]
    warehouse.sql("DROP TABLE sales.u")
    warehouse.sql("DROP TABLE IF EXISTS sales.u")
    with pytest.raises(AnalysisException):
        warehouse.sql("DROP TABLE sales.u")
    warehouse.sql("UNDROP TABLE sales.u")
    assert warehouse.held("sales.u") == [(-1,), (1,)]


@pytest.mark.spark
@pytest.mark.zookeeper
def test_care(warehouse: Warehouse, tmp_path: Path) -> None:
    schema = pa.schema([pa.field("id", pa.int64()), pa.field("day", pa.string())])
    table = warehouse.made("sales.t", schema, (1, "mo"), partition_by=["day"])
    table.append(pa.table({"id": [2], "day": ["mo"]}, schema=schema))
    [metrics] = warehouse.sql("OPTIMIZE sales.t WHERE day = :day", {"day": "mo"}).collect()
    assert (metrics["metrics"]["numFilesAdded"], metrics["metrics"]["numFilesRemoved"]) == (1, 2)
    warehouse.sql("OPTIMIZE sales.t ZORDER BY (id)")
    assert [row["path"] for row in warehouse.sql("VACUUM sales.t DRY RUN").collect()] == []
    warehouse.sql("RESTORE TABLE sales.t TO VERSION AS OF :v", {"v": 1})
    assert warehouse.held("sales.t") == [(1, "mo")]
    warehouse.sql(f"CREATE TABLE sales.copy SHALLOW CLONE sales.t VERSION AS OF 2 LOCATION '{tmp_path}/copy'")
    assert warehouse.held("sales.copy") == [(1, "mo"), (2, "mo")]
    (tmp_path / "plain" / "day=mo").mkdir(parents=True)
    pq.write_table(pa.table({"id": [7]}), tmp_path / "plain" / "day=mo" / "one.parquet")
    warehouse.sql(f"CONVERT TO DELTA parquet.`{tmp_path}/plain` PARTITIONED BY (day STRING)")
    assert warehouse.rows(f"SELECT id, day FROM sluice.`{tmp_path}/plain`") == [(7, "mo")]
    for text, message in (
        ("CACHE TABLE c AS SELECT * FROM sales.t", "a view keeps its text"),
        ("EXPLAIN DELETE FROM sales.t", "Spark has no plan for a change"),
        ("REFRESH TABLE sales.t", "reads the latest version by itself"),
    ):
        with pytest.raises(sluice.errors.UnsupportedFeature, match=message):
            warehouse.sql(text)
    with pytest.raises(ParseException) as unreadable:
        warehouse.sql("SELECT id, FROM sales.t")
    assert "__sluice" not in str(unreadable.value)


@pytest.mark.spark
@pytest.mark.zookeeper
def test_columns_namespaces_and_loading(warehouse: Warehouse, tmp_path: Path) -> None:
    warehouse.sql("CREATE NAMESPACE shop USING sluice COMMENT 'c'")
    assert ("shop",) in warehouse.rows("SHOW NAMESPACES")
    warehouse.sql("CREATE TABLE shop.t (id BIGINT, s STRUCT<a: INT>) USING sluice PARTITIONED BY (id)")
    warehouse.sql("ALTER TABLE shop.t ADD COLUMNS (s.`x-y` STRING, day DATE COMMENT 'the day' FIRST)")
    warehouse.sql("COMMENT ON COLUMN shop.t.s.a IS 'inner'")
    warehouse.sql("ALTER TABLE shop.t ALTER COLUMN id SET NOT NULL")
    pq.write_table(pa.table({"id": [1, 2], "s": [{"a": 1, "x-y": "b"}, None]}), tmp_path / "one.parquet")
    copy = f"COPY INTO shop.t FROM '{tmp_path}/one.parquet' FILEFORMAT = PARQUET"
    assert (warehouse.rows(copy), warehouse.rows(copy)) == ([(2, 2, 1, 0)], [(0, 0, 0, 1)])
    assert warehouse.rows("SELECT id, s.`x-y` FROM shop.t") == [(1, "b"), (2, None)]
    assert warehouse.rows("SHOW PARTITIONS shop.t") == [(1,), (2,)]
    warehouse.sql("CREATE TABLE shop.u LIKE shop.t")
    assert warehouse.catalog.open("shop.u").struct == warehouse.catalog.open("shop.t").struct
    shown = warehouse.sql("SHOW CREATE TABLE shop.u").collect()[0][0]
    assert "struct<a:int COMMENT 'inner',`x-y`:string>" in shown
    warehouse.sql("DROP TABLE shop.u")
    warehouse.sql(shown.replace("shop.u", "shop.v"))
    assert warehouse.sql("SELECT * FROM shop.v").columns == ["day", "id", "s"]
    assert warehouse.rows("FSCK REPAIR TABLE shop.t DRY RUN") == []
    with pytest.raises(sluice.errors.UnsupportedFeature, match="typeWidening"):
        warehouse.sql("ALTER TABLE shop.t ALTER COLUMN id TYPE DECIMAL(20)")
    for name in ("t", "v"):
        warehouse.sql(f"DROP TABLE shop.{name}")
    warehouse.sql("DROP NAMESPACE shop")


NAME = "sales.orders"


def rows(warehouse: Warehouse, number: int) -> DataFrame:
    return warehouse.spark.createDataFrame([(number, "a")], "id long, name string")


def saved(warehouse: Warehouse, number: int, mode: str) -> None:
    writer = rows(warehouse, number).write.format("sluice").mode(mode).option("coordinator", warehouse.coordinator)
    writer.saveAsTable(NAME)


def made(warehouse: Warehouse, number: int, how: str) -> None:
    builder = getattr(DeltaTable, how)(warehouse.spark).location(str(warehouse.folder / "orders"))
    builder.addColumn("id", "long").addColumn("name", "string").execute()


WAYS: dict[str, tuple[Callable[[Warehouse, int], Any], int]] = {
    "saveAsTable append": (lambda w, n: saved(w, n, "append"), CLIENTS),
    "saveAsTable ignore": (lambda w, n: saved(w, n, "ignore"), 1),
    "IF NOT EXISTS AS SELECT": (lambda w, n: w.sql(f"CREATE TABLE IF NOT EXISTS {NAME} USING sluice AS SELECT {n}L AS id"), 1),
    "IF NOT EXISTS": (lambda w, _: w.sql(f"CREATE TABLE IF NOT EXISTS {NAME} (id BIGINT) USING sluice"), 0),
    "OR REPLACE AS SELECT": (lambda w, n: w.sql(f"CREATE OR REPLACE TABLE {NAME} USING sluice AS SELECT {n}L AS id"), 1),
    "createOrReplace": (
        lambda w, n: rows(w, n).writeTo(NAME).using("sluice").option("coordinator", w.coordinator).createOrReplace(),
        1,
    ),
}


ALWAYS = ("saveAsTable append", "IF NOT EXISTS AS SELECT")


@pytest.mark.spark
@pytest.mark.parametrize("way", [pytest.param(way, marks=[pytest.mark.long] * (way not in ALWAYS)) for way in WAYS])
def test_all_threads_succeed_and_there_is_one_table(warehouse: Warehouse, way: str) -> None:
    create, expected = WAYS[way]
    at_once(lambda number: create(warehouse, number))
    assert len(warehouse.held(NAME)) == expected
    assert [each.name for each in warehouse.catalog.tables("sales")] == ["orders"]


@pytest.mark.spark
@pytest.mark.parametrize("how", [pytest.param("createIfNotExists", marks=pytest.mark.long), "createOrReplace"])
def test_all_builders_succeed(warehouse: Warehouse, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLUICE_COORDINATOR", warehouse.coordinator)
    at_once(lambda number: made(warehouse, number, how))
    assert sluice.Table.open(warehouse.folder / "orders", coordinator=warehouse.coordinator).struct.names == ("id", "name")


def _create(coordinator: str, folder: str, results: Any) -> None:
    from sluice.statements.duckdb.running import run

    run("CREATE TABLE IF NOT EXISTS sales.orders AS SELECT 1 AS id", coordinator=coordinator)
    run("CREATE NAMESPACE IF NOT EXISTS more", coordinator=coordinator)
    table = sluice.Table.create(folder, pa.schema([("id", pa.int64())]), coordinator=coordinator, mode="if_not_exists")
    results.put(table.snapshot().raw.metadata.id)


@pytest.mark.spark
@pytest.mark.long
def test_all_processes_succeed_and_there_is_one_table(warehouse: Warehouse) -> None:
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    given = (warehouse.coordinator, str(warehouse.folder / "by_path"), results)
    processes = [context.Process(target=_create, args=given) for _ in range(3)]
    for each in processes:
        each.start()
    ids = {results.get(timeout=120) for _ in processes}
    for each in processes:
        each.join()
    assert [each.exitcode for each in processes] == [0, 0, 0]
    assert len(ids) == 1
    assert len(warehouse.held(NAME)) == 1


BY_SPARK = [each for each in STATEMENTS if each.split()[0] in ("INSERT", "UPDATE", "MERGE", "OPTIMIZE")]
ONE_OF_EACH = list({each.split()[0]: each for each in BY_SPARK}.values())


@pytest.mark.spark
@pytest.mark.zookeeper
@pytest.mark.parametrize("statements", [ONE_OF_EACH, pytest.param(BY_SPARK, marks=pytest.mark.long)], ids=["one of each", "all"])
def test_it_commits_as_the_next_version_or_not_at_all(warehouse: Warehouse, statements: list[str]) -> None:
    prepare(warehouse.sql)
    table = warehouse.catalog.open("sales.t")
    for version, statement in enumerate(statements, 3):
        for other, error in ((version - 1, sluice.errors.ConcurrentModification), (version + 1, sluice.errors.VersionNotFound)):
            with pytest.raises(error):
                warehouse.sql(f"IF VERSION {other} {statement}")
        assert table.refresh().version == version, statement
        warehouse.sql("IF VERSION :v " + statement, {"v": version})
        assert table.refresh().version == version + 1, statement
    latest = table.version
    block = "BEGIN ATOMIC IF VERSION {} INSERT INTO sales.t VALUES (7, 'b'); END"
    with pytest.raises(sluice.errors.ConcurrentModification, match="expected-version"):
        warehouse.sql(block.format(latest - 1))
    warehouse.sql(block.format(latest))
    assert table.refresh().version == latest + 1


@pytest.mark.spark
@pytest.mark.zookeeper
def test_what_takes_no_version_is_refused(warehouse: Warehouse) -> None:
    prepare(warehouse.sql)
    for statement, why in REFUSED.items():
        with pytest.raises(sluice.errors.InvalidRequest, match=why):
            warehouse.sql(f"IF VERSION 3 {statement}")
    assert warehouse.catalog.open("sales.t").version == 3
    with pytest.raises(sluice.errors.InvalidRequest, match="expected a version"):
        warehouse.sql("IF VERSION x DELETE FROM sales.t")
    with pytest.raises(sluice.errors.InvalidRequest, match="a table of sluice, and this is none"):
        warehouse.sql("IF VERSION 3 INSERT INTO of_spark VALUES (1)")
