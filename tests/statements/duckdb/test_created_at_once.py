"""Several clients that create one table, or one namespace, at the same moment: all succeed, and there is one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest

import sluice
from sluice.coordinator.nodes.creation import known_locations
from sluice.coordinator.service.connect import connect

from .conftest import Warehouse

CLIENTS = 6


def at_once(work: Callable[[int], Any]) -> list[Any]:
    """What `work` gives each of some threads that begin together; raises the first error."""
    begin = threading.Barrier(CLIENTS)

    def each(number: int) -> Any:
        begin.wait()
        return work(number)

    with ThreadPoolExecutor(CLIENTS) as pool:
        return list(pool.map(each, range(CLIENTS)))


COLUMNS = "(id BIGINT, n INT)"
QUERY = "AS SELECT CAST({n} AS BIGINT) AS id, {n} AS n"


@pytest.mark.parametrize("target", ["sales.orders", "sluice.`{folder}/orders`"], ids=["name", "path"])
@pytest.mark.parametrize(
    ("text", "rows"),
    [
        (f"CREATE TABLE IF NOT EXISTS {{target}} {COLUMNS}", 0),
        (f"CREATE TABLE IF NOT EXISTS {{target}} {QUERY}", 1),
        (f"CREATE OR REPLACE TABLE {{target}} {COLUMNS}", 0),
        (f"CREATE OR REPLACE TABLE {{target}} {QUERY}", 1),
    ],
    ids=["if not exists", "if not exists as select", "or replace", "or replace as select"],
)
@pytest.mark.parametrize("attempt", [0, *(pytest.param(attempt, marks=pytest.mark.long) for attempt in (1, 2))])
def test_all_statements_succeed_and_there_is_one_table(warehouse: Warehouse, target: str, text: str, rows: int, attempt: int) -> None:
    name = target.format(folder=warehouse.folder)
    at_once(lambda n: warehouse.sql(text.format(target=name, n=n)))
    held = warehouse.rows(f"SELECT id, n FROM {name}")
    assert len(held) == rows
    assert all(id_ == n for id_, n in held), "the rows of one of them"
    if target == "sales.orders":
        [table] = warehouse.catalog.tables("sales")
        assert table.name == "orders"
        assert known_locations(connect(warehouse.coordinator)) == [table.location], "who lost the race dropped its own"


def test_all_namespaces_if_not_exists_succeed(warehouse: Warehouse) -> None:
    for number in range(5):
        at_once(lambda _, number=number: warehouse.sql(f"CREATE NAMESPACE IF NOT EXISTS n{number}"))  # type: ignore[misc]
        at_once(lambda _, number=number: warehouse.sql(f"CREATE DATABASE IF NOT EXISTS d{number}"))  # type: ignore[misc]
        assert warehouse.catalog.create_namespace(f"n{number}", if_not_exists=True) is False
    assert len(warehouse.catalog.namespaces()) == 12


def test_without_such_words_one_succeeds(warehouse: Warehouse) -> None:
    def create(_: int) -> bool:
        try:
            warehouse.sql("CREATE TABLE sales.orders (id BIGINT)")
        except sluice.errors.TableExists:
            return False
        return True

    assert at_once(create).count(True) == 1


@pytest.mark.parametrize("mode", ["if_not_exists", "or_replace"])
def test_the_python_api_creates_one_table(warehouse: Warehouse, mode: str) -> None:
    schema = pa.schema([("id", pa.int64())])
    for number in range(5):
        place = warehouse.folder / f"table{number}"
        tables = at_once(lambda _, place=place: sluice.Table.create(place, schema, coordinator=warehouse.coordinator, mode=mode))  # type: ignore[misc]
        assert len({each.properties.get("delta.columnMapping.maxColumnId") for each in tables}) == 1
        assert len({each.snapshot().raw.metadata.id for each in tables}) == 1
