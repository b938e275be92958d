"""Several threads of one session, and several processes, that create one table at the same moment: all succeed, and there is one."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame

import sluice
from sluice.delta import DeltaTable

from ..duckdb.test_created_at_once import CLIENTS, at_once
from .conftest import Warehouse

pytestmark = pytest.mark.spark

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
    from sluice.statements.duckdb.running import run

    run("CREATE TABLE IF NOT EXISTS sales.orders AS SELECT 1 AS id", coordinator=coordinator)
    run("CREATE NAMESPACE IF NOT EXISTS more", coordinator=coordinator)
    table = sluice.Table.create(folder, pa.schema([("id", pa.int64())]), coordinator=coordinator, mode="if_not_exists")
    results.put(table.snapshot().raw.metadata.id)


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
