"""Tables that are made of a query; `contract` has the other statements about tables, which no engine has a part in.

Several threads of one session, and several processes, that create one table at the same moment: all succeed, and there is one.
IF VERSION n before a statement that Spark carries out.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame

import sluice
from sluice.delta import DeltaTable
from tests.statements.duckdb.test_blocks import STATEMENTS, prepare
from tests.statements.duckdb.test_tables import CLIENTS, at_once
from tests.statements.spark.conftest import Warehouse

pytestmark = [pytest.mark.spark, pytest.mark.zookeeper]


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
    warehouse.sql("REPLACE TABLE sales.numbers (short VARCHAR(2)) USING sluice")
    assert table.refresh().clustering_columns == ()
    with pytest.raises(sluice.errors.ConstraintViolated, match=r"varchar\(2\) of short"):
        warehouse.sql("INSERT INTO sales.numbers VALUES ('long')")
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


@pytest.mark.costly
@pytest.mark.parametrize("way", [pytest.param(way, marks=[pytest.mark.long] * (way not in ALWAYS)) for way in WAYS])
def test_all_threads_succeed_and_there_is_one_table(warehouse: Warehouse, way: str) -> None:
    create, expected = WAYS[way]
    at_once(lambda number: create(warehouse, number))
    assert len(warehouse.held(NAME)) == expected
    assert [each.name for each in warehouse.catalog.tables("sales")] == ["orders"]


@pytest.mark.parametrize("how", [pytest.param("createIfNotExists", marks=pytest.mark.long), "createOrReplace"])
def test_all_builders_succeed(warehouse: Warehouse, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLUICE_COORDINATOR", warehouse.coordinator)
    at_once(lambda number: made(warehouse, number, how))
    assert sluice.Table.open(warehouse.folder / "orders", coordinator=warehouse.coordinator).struct.names == ("id", "name")


def _create(coordinator: str, folder: str, results: Any) -> None:
    from sluice.statements.duckdb.engine import run

    run("CREATE TABLE IF NOT EXISTS sales.orders AS SELECT 1 AS id", coordinator=coordinator)
    run("CREATE NAMESPACE IF NOT EXISTS more", coordinator=coordinator)
    table = sluice.Table.create(folder, pa.schema([("id", pa.int64())]), coordinator=coordinator, mode="if_not_exists")
    results.put(table.snapshot().raw.metadata.id)


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


@pytest.mark.costly
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


def test_a_table_of_sparks_has_no_version(warehouse: Warehouse) -> None:
    with pytest.raises(sluice.errors.InvalidRequest, match="a table of sluice, and this is none"):
        warehouse.sql("IF VERSION 3 INSERT INTO of_spark VALUES (1)")
