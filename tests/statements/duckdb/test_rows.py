"""INSERT, UPDATE, DELETE, MERGE and statements about tables without Spark."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

import pytest

import sluice
from sluice.tables.transaction import Transaction

from .conftest import Warehouse
from .test_queries import ORDERS


@pytest.fixture
def orders(warehouse: Warehouse) -> Warehouse:
    warehouse.sql(*ORDERS)
    return warehouse


def test_insert_in_all_forms(orders: Warehouse) -> None:
    orders.sql(
        "INSERT INTO sales.orders (amount, id) VALUES (1, 4)",
        "INSERT INTO sales.orders BY NAME SELECT 2.5 AS amount, 5 AS id, DATE'2026-01-03' AS day",
        "INSERT INTO sales.orders PARTITION (day = '2026-01-04') SELECT 6, 7",
        "WITH q AS (SELECT 8L AS id) INSERT INTO sales.orders SELECT id, NULL, 0 FROM q",
        "INSERT OVERWRITE sales.orders PARTITION (day = DATE'2026-01-01') SELECT id + 10, amount FROM sales.orders WHERE id = 2",
        "INSERT INTO sales.orders REPLACE WHERE day = DATE'2026-01-02' VALUES (9, DATE'2026-01-02', 1)",
        "INSERT WITH SCHEMA EVOLUTION INTO sales.orders BY NAME SELECT 20L AS id, DATE'2026-02-01' AS day, 'web' AS shop",
    )
    assert orders.rows("SELECT id, day, amount, shop FROM sales.orders") == [
        (12, date(2026, 1, 1), 20.0, None),
        (20, date(2026, 2, 1), None, "web"),
        (4, None, 1.0, None),
        (5, date(2026, 1, 3), 2.5, None),
        (6, date(2026, 1, 4), 7.0, None),
        (8, None, 0.0, None),
        (9, date(2026, 1, 2), 1.0, None),
    ]
    assert len(orders.catalog.open("sales.orders").history()) == 9


@pytest.mark.parametrize(
    "query",
    [
        "SELECT id + 10 AS id, day, amount FROM sales.orders WHERE id = 2",
        "WITH c AS (SELECT * FROM sales.orders) SELECT c.* FROM c JOIN sales.orders AS o USING (id) WHERE o.id = 2",
        "SELECT (SELECT max(id) FROM sales.orders) AS id, NULL, 0",
    ],
)
@pytest.mark.parametrize("level", ["Serializable", "WriteSerializable", "SnapshotIsolation"])
def test_an_insert_depends_on_the_rows_of_its_own_table_that_it_reads(
    orders: Warehouse, monkeypatch: pytest.MonkeyPatch, level: str, query: str
) -> None:
    table = orders.catalog.open("sales.orders")
    table.set_properties({"delta.isolationLevel": level})
    orders.sql(f"INSERT INTO sales.orders {query}")
    assert table.refresh().history(limit=1)[0].is_blind_append is False
    orders.sql("INSERT INTO sales.orders SELECT 30, NULL, 1")
    assert table.refresh().history(limit=1)[0].is_blind_append is True
    append = Transaction.append

    def late(*given: Any, **named: Any) -> None:
        table.delete("id = 2")
        append(*given, **named)

    monkeypatch.setattr(Transaction, "append", late)
    with pytest.raises(sluice.errors.ConcurrentModification):
        orders.sql(f"INSERT INTO sales.orders {query}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("INSERT INTO sales.orders VALUES ('a', NULL, 1)", "column 'id' is bigint, and these values are string: CAST them"),
        ("INSERT INTO sales.orders VALUES (99999999999999999999, NULL, 1)", "DuckDB says"),
        ("INSERT INTO sales.orders VALUES (NULL, NULL, 1)", "id"),
    ],
)
def test_rows_that_do_not_fit_are_refused(orders: Warehouse, text: str, message: str) -> None:
    with pytest.raises(sluice.errors.SluiceError, match=message):
        orders.sql(text)
    assert orders.catalog.open("sales.orders").version == 1


def test_numbers_are_stored_as_spark_stores_them(warehouse: Warehouse) -> None:
    warehouse.sql(
        "CREATE TABLE sales.n (i INT, d DECIMAL(6, 2), f FLOAT, s STRING, at TIMESTAMP_NTZ) USING sluice",
        "INSERT INTO sales.n VALUES (-1.7, 2.345, 1, 12, DATE'2026-01-01'), (1.7, 3, 0.5, 13, NULL)",
    )
    found = warehouse.rows("SELECT i, d, f, s FROM sales.n")
    assert found == [(-1, Decimal("2.35"), 1.0, "12"), (1, Decimal("3.00"), 0.5, "13")]


def test_update_delete_and_merge(orders: Warehouse) -> None:
    assert orders.rows("UPDATE sales.orders AS o SET amount = o.amount * :by WHERE o.id = 2", {"by": 2}) == [(1,)]
    assert orders.rows("DELETE FROM sales.orders WHERE amount < 6") == [(1,)]
    merge = """
        MERGE INTO sales.orders t USING (SELECT 1L AS id, DATE'2026-01-01' AS day, 1.0D AS amount UNION ALL SELECT 7, NULL, 3) s
        ON t.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *
    """
    assert orders.rows(merge) == [(2, 1, 0, 1)]
    assert orders.rows("SELECT id, amount FROM sales.orders") == [(1, 1.0), (2, 40.0), (7, 3.0)]
    assert orders.rows("UPDATE sales.orders SET amount = 0") == [(3,)]
    assert orders.rows("DELETE FROM sales.orders") == [(3,)]
    assert orders.rows("DELETE FROM sales.orders") == [(0,)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("UPDATE sales.orders SET amount = frobnicate(id)", "frobnicate"),
        ("UPDATE sales.orders SET amount = 1 WHERE id IN (SELECT frobnicate(id) FROM sales.orders)", "frobnicate"),
        (
            "MERGE WITH SCHEMA EVOLUTION INTO sales.orders t USING sales.orders s ON t.id = s.id WHEN MATCHED THEN UPDATE SET *",
            "SCHEMA EVOLUTION",
        ),
        ("BEGIN ATOMIC DELETE FROM sales.orders; UPDATE sales.orders SET amount = frobnicate(id); END", "frobnicate"),
    ],
)
def test_changes_that_need_spark_say_so(orders: Warehouse, text: str, message: str) -> None:
    with pytest.raises(sluice.errors.UnsupportedFeature, match=f"{message}.*needs Spark") as refused:
        orders.sql(text)
    assert refused.value.features == ["Spark"]
