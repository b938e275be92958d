"""LOCK TABLE, UNLOCK TABLE, and what SHOW LOCKS, SHOW QUEUE and SHOW TRANSACTIONS tell."""

from __future__ import annotations

import sys
import threading

import pyarrow as pa
import pytest

import sluice
from sluice.coordinator.api import Place, TableTree, break_lease, connect
from sluice.coordinator.limits import Limits
from sluice.coordinator.publication import failure_points
from sluice.spark_integration.active_session import run_stop_hooks

from .conftest import Warehouse

pytestmark = [pytest.mark.spark, pytest.mark.zookeeper]

ORDERS = pa.schema([pa.field("id", pa.int64()), pa.field("day", pa.string())])
ROWS = [(1, "mo"), (2, "tu")]


@pytest.fixture
def orders(warehouse: Warehouse) -> sluice.Table:
    return warehouse.made("sales.orders", ORDERS, *ROWS, partition_by=["day"])


def apart(work: object) -> BaseException | None:
    """What another thread, which holds nothing, gets."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            work()  # type: ignore[operator]
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return raised[0] if raised else None


@pytest.mark.costly
def test_a_lock_keeps_others_out_until_it_is_released(warehouse: Warehouse, orders: sluice.Table) -> None:
    warehouse.made("sales.others", ORDERS)
    taken = warehouse.sql("LOCK TABLE sales.orders WHERE day = :day, sales.others IN SHARE MODE NOWAIT", {"day": "mo"}).collect()
    assert [(row["table"], row["mode"], row["condition"]) for row in taken] == [
        ("sales.orders", "exclusive", "day = 'mo'"),
        ("sales.others", "shared", None),
    ]
    other = warehouse.catalog.open("sales.orders")
    held = apart(lambda: other.delete("day = 'mo'", timeout_s=0.5))
    assert isinstance(held, sluice.errors.LeaseHeld)
    assert apart(lambda: other.delete("day = 'tu'")) is None, "another partition"
    warehouse.sql("DELETE FROM sales.orders WHERE day = 'mo'")
    assert apart(lambda: warehouse.sql("INSERT INTO sales.orders VALUES (3, 'mo')")) is None, "another thread of the session"
    assert warehouse.held("sales.orders") == [(3, "mo")]
    shown = warehouse.sql("SHOW LOCKS IN sales.orders").collect()
    assert [(row["state"], row["mode"], row["condition"], row["token"]) for row in shown] == [
        ("held", "exclusive", "day = 'mo'", taken[0]["token"])
    ]
    assert len(warehouse.sql("SHOW LOCKS").collect()) == 2
    strange = Warehouse(warehouse.spark.newSession(), warehouse.coordinator, warehouse.catalog, warehouse.folder)
    late = apart(lambda: strange.sql("LOCK TABLE sales.orders NOWAIT"))
    assert isinstance(late, sluice.errors.LeaseHeld)
    with pytest.raises(sluice.errors.InvalidRequest, match=r"column 14: it was locked together with sales.others"):
        warehouse.sql("UNLOCK TABLE sales.orders")
    assert len(warehouse.sql("UNLOCK TABLES sales.others, sales.orders").collect()) == 2
    assert warehouse.sql("SHOW LOCKS").collect() == []
    assert apart(lambda: strange.sql("LOCK TABLE sales.orders NOWAIT")) is None
    with pytest.raises(sluice.errors.InvalidRequest, match=r"this session holds no lock on sales.orders; SHOW LOCKS"):
        warehouse.sql("UNLOCK TABLE sales.orders")
    assert len(strange.sql("UNLOCK TABLES").collect()) == 1
    assert warehouse.sql("UNLOCK TABLES").collect() == []


def test_a_value_in_a_lock_stays_a_value(warehouse: Warehouse, orders: sluice.Table) -> None:
    """A text with a quote is bound in hexadecimal digits; it locks its own partition, and nothing more."""
    [held] = warehouse.sql("LOCK TABLE sales.orders WHERE day = concat(?, 'x')", ["mo' OR day = 'tu\\"]).collect()
    assert held["condition"] == "day = 'mo\\' OR day = \\'tu\\\\x'"
    other = warehouse.catalog.open("sales.orders")
    assert apart(lambda: other.delete("day = 'tu'", timeout_s=5)) is None
    warehouse.sql("UNLOCK TABLES")
    warehouse.sql("INSERT INTO sales.orders REPLACE WHERE day = :day VALUES (5, :day)", {"day": "it's"})
    assert warehouse.held("sales.orders") == [(1, "mo"), (5, "it's")]


def test_a_lock_that_was_broken_refuses_commits_until_it_is_unlocked(warehouse: Warehouse, orders: sluice.Table) -> None:
    warehouse.sql("LOCK TABLE sales.orders")
    [row] = warehouse.sql("SHOW LOCKS IN sales.orders").collect()
    place = Place.of_table(TableTree(orders.location))
    break_lease(connect(warehouse.coordinator), place, row["lease"], by="the test", reason="it may", at_ms=0)
    with pytest.raises(sluice.errors.LeaseLost):
        warehouse.sql("DELETE FROM sales.orders")
    with pytest.raises(sluice.errors.LeaseLost):
        warehouse.sql("UNLOCK TABLES")
    assert warehouse.sql("DELETE FROM sales.orders").collect() == [(2,)]


def test_locks_end_with_spark(warehouse: Warehouse, orders: sluice.Table) -> None:
    warehouse.sql("LOCK TABLE sales.orders")
    run_stop_hooks()  # what a session does before it stops
    assert warehouse.sql("SHOW LOCKS IN sales.orders").collect() == []
    assert warehouse.sql("UNLOCK TABLES").collect() == []


def test_the_queue_and_the_transactions(warehouse: Warehouse, orders: sluice.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """A transaction is seen waiting by who stops its owner right after it was filed; one that lost in the queue is seen refused."""
    slow = sluice.Table.open(orders.location, coordinator=warehouse.coordinator, limits=Limits(fast_path=False))
    seen: list[list[dict[str, object]]] = []

    def look(step: str) -> None:
        if step == "after-claim" and not seen:
            seen.append([row.asDict() for row in warehouse.sql("SHOW QUEUE IN sales.orders").collect()])
            seen.append([row.asDict() for row in warehouse.sql("SHOW TRANSACTIONS IN sales.orders LIMIT 2").collect()])

    passing = failure_points.point
    for module in [each for each in list(sys.modules.values()) if getattr(each, "point", None) is passing]:
        monkeypatch.setattr(module, "point", look)
    slow.append(pa.Table.from_pylist([{"id": 3, "day": "we"}], ORDERS))
    monkeypatch.undo()
    queue, transactions = seen
    [waiting] = queue
    assert (waiting["table"], waiting["position"], waiting["operation"]) == ("sales.orders", 1, "WRITE")
    assert [each["state"] for each in transactions] == ["waiting", "committed"]
    assert transactions[0]["transaction_id"] == waiting["transaction_id"]
    assert warehouse.sql("SHOW QUEUE").collect() == []
    found = warehouse.sql("SHOW TRANSACTIONS IN sales.orders").collect()
    assert [(row["state"], row["operation"], row["version"]) for row in found] == [
        ("committed", "WRITE", 2),
        ("committed", "WRITE", 1),
        ("committed", "CREATE TABLE", 0),
    ]
