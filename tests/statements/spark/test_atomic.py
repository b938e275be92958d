"""BEGIN ATOMIC ... END: one commit, reads that see the block's own writes, refusals, and two blocks at once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import sluice
from sluice.statements import concurrency
from tests.sql_block import BLOCK, ORDERS_AFTER, ROWS, TOTALS_AFTER, VALUES, answer

from .conftest import Warehouse

pytestmark = [pytest.mark.spark, pytest.mark.zookeeper]

ORDERS = pa.schema([pa.field("id", pa.int64()), pa.field("day", pa.string()), pa.field("v", pa.float64())])
TOTALS = pa.schema([pa.field("day", pa.string()), pa.field("v", pa.float64())])


@pytest.fixture(params=[pytest.param(False, marks=pytest.mark.long), True], ids=["copies", "vectors"])
def orders(warehouse: Warehouse, request: pytest.FixtureRequest) -> sluice.Table:
    properties = {"delta.enableDeletionVectors": str(request.param).lower()}
    warehouse.made("sales.totals", TOTALS)
    return warehouse.made("sales.orders", ORDERS, *ROWS, partition_by=["day"], properties=properties)


@pytest.mark.costly
def test_a_block_is_one_commit_and_its_statements_see_one_another(warehouse: Warehouse, orders: sluice.Table) -> None:
    before = orders.refresh().version
    done = warehouse.sql(BLOCK, VALUES)
    version, other = before + 1, 1
    assert [tuple(row) for row in done.collect()] == answer(orders=version, totals=other)
    assert warehouse.held("sales.orders") == ORDERS_AFTER
    assert warehouse.held("sales.totals") == TOTALS_AFTER
    assert (orders.refresh().version, warehouse.catalog.open("sales.totals").version) == (version, other)


REFUSED = [
    ("WITH q AS (SELECT 1) SELECT * FROM q", r"line 3, column 1: a query's rows have nowhere to go"),
    ("OPTIMIZE sales.orders", r"run it after the block"),
    ("VACUUM sales.orders", r"nothing takes back"),
    ("UPDATE sales.orders SET v 1", r"line 3, column 27: expected =\n  UPDATE"),
    ("INSERT INTO plain SELECT 1", r"plain is Spark's own, which takes no part"),
    ("COMMIT", r"the statements of a block are INSERT"),
]
"""What `parse` and the tests without Spark do not refuse in a block."""


def test_what_cannot_be_in_a_block_is_refused_before_anything_is_written(warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    table = warehouse.made("sales.orders", ORDERS, *ROWS, partition_by=["day"])
    warehouse.spark.sql("SELECT 1 AS a").createOrReplaceTempView("plain")
    monkeypatch.setattr(concurrency, "_run", None)  # nothing may get that far
    try:
        for text, message in REFUSED:
            with pytest.raises(sluice.errors.SluiceError, match=message):
                warehouse.sql(f"BEGIN ATOMIC\nDELETE FROM sales.orders;\n{text};\nEND")
        with pytest.raises(sluice.errors.InvalidRequest, match="ATTEMPTS 0"):
            warehouse.sql("BEGIN ATOMIC ATTEMPTS 0 DELETE FROM sales.orders; END")
    finally:
        warehouse.spark.catalog.dropTempView("plain")
    assert table.refresh().version == 1


@pytest.mark.costly
def test_a_statement_that_fails_takes_the_whole_block_back(warehouse: Warehouse) -> None:
    orders = warehouse.made("sales.orders", ORDERS, *ROWS, properties={"delta.constraints.small": "v < 100"})
    totals = warehouse.made("sales.totals", TOTALS)
    with pytest.raises(sluice.errors.ConstraintViolated, match=r"^line 2, column 2: (.|\n)*\n   UPDATE sales.orders .*\n   \^{45}$"):
        warehouse.sql("BEGIN ATOMIC DELETE FROM sales.totals;\n UPDATE sales.orders SET v = 1000 WHERE id = 3; END")
    for last in (
        "UPDATE sales.orders SET v = CAST(day AS DOUBLE)",
        "INSERT INTO sales.orders SELECT 1, 2",
        "INSERT INTO sales.totals SELECT * FROM nowhere",
    ):
        with pytest.raises(Exception, match=r"CAST_INVALID_INPUT|have 2 columns|nowhere"):
            warehouse.sql(f"BEGIN ATOMIC INSERT INTO sales.totals VALUES ('x', 1); DELETE FROM sales.orders WHERE id = 1; {last}; END")
    assert (orders.refresh().version, totals.refresh().version) == (1, 0)
    assert warehouse.held("sales.orders") == ROWS


def test_a_block_under_a_key_happens_once(warehouse: Warehouse) -> None:
    warehouse.made("sales.totals", TOTALS)
    text = "BEGIN ATOMIC KEY :night INSERT INTO sales.totals VALUES (:night, 1); END"
    [first], [again] = (warehouse.sql(text, {"night": "it's \\ mo"}).collect() for _ in range(2))
    assert (first["num_inserted_rows"], again["num_inserted_rows"], first["version"]) == (1, None, again["version"])
    assert warehouse.held("sales.totals") == [("it's \\ mo", 1.0)]


def between(monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[], object]) -> list[int]:
    """Have something happen after the first statement of a block; returns a list with the number of statements that ran."""
    run, ran = concurrency._run, [0]

    def late(*args: Any) -> object:
        done = run(*args)
        ran[0] += 1
        if ran[0] == 1:
            meanwhile()
        return done

    monkeypatch.setattr(concurrency, "_run", late)
    return ran


@pytest.mark.costly
def test_what_a_block_reads_counts_and_a_lost_block_is_repeated(warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    """A blind append to a table that the block only reads: at the table's own level nobody would compare it."""
    orders = warehouse.made("sales.orders", ORDERS, *ROWS)
    warehouse.made("sales.totals", TOTALS)
    text = "INSERT INTO sales.totals SELECT day, sum(v) FROM sales.orders GROUP BY day; DELETE FROM sales.totals WHERE v > 100; END"
    new = pa.Table.from_pylist([{"id": 9, "day": "mo", "v": 1.0}], ORDERS)
    ran = between(monkeypatch, lambda: orders.append(new))
    with pytest.raises(sluice.errors.ConcurrentModification, match=r"orders") as lost:
        warehouse.sql(f"BEGIN ATOMIC ATTEMPTS 1 {text}")
    assert lost.value.rule == "appended-what-i-read"
    assert warehouse.held("sales.totals") == []
    ran[0] = 0
    assert warehouse.sql(f"BEGIN ATOMIC {text}").collect()[0]["num_inserted_rows"] == 2
    assert ran == [4]
    assert warehouse.held("sales.totals") == [("mo", 5.0), ("tu", 3.0)]
    ran[0] = 0
    warehouse.sql(f"BEGIN ATOMIC ISOLATION LEVEL WRITE SERIALIZABLE DELETE FROM sales.totals; {text}")
    assert ran == [3]
    assert warehouse.held("sales.totals") == [("mo", 5.0), ("tu", 3.0)], "the level allows an append that it did not see"


@pytest.mark.long
def test_two_sessions_blocks_have_a_serial_result(warehouse: Warehouse) -> None:
    """Each moves what it reads of one table into the other: one after the other gives one of two results, write skew gives a third."""
    warehouse.made("sales.totals", TOTALS, ("a", 1.0))
    warehouse.made("sales.others", TOTALS, ("b", 10.0))
    texts = [
        f"BEGIN ATOMIC INSERT INTO sales.{into} SELECT '{into}', sum(v) FROM sales.{of}; UPDATE sales.{into} SET v = v + 0.5; END"
        for into, of in (("totals", "others"), ("others", "totals"))
    ]
    failed: list[BaseException] = []
    begin = threading.Barrier(2)

    def block(text: str) -> None:
        own = Warehouse(warehouse.spark.newSession(), warehouse.coordinator, warehouse.catalog, warehouse.folder)
        begin.wait(30)
        try:
            own.sql(text)
        except BaseException as error:  # noqa: BLE001 - the test shows it
            failed.append(error)

    threads = [threading.Thread(target=block, args=(text,)) for text in texts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    found = (warehouse.held("sales.totals"), warehouse.held("sales.others"))
    assert found in (
        ([("a", 1.5), ("totals", 10.5)], [("b", 10.5), ("others", 12.5)]),
        ([("a", 1.5), ("totals", 12.5)], [("b", 10.5), ("others", 1.5)]),
    )


def test_values_and_names_in_a_block_stay_values_and_names(warehouse: Warehouse) -> None:
    warehouse.made("sales.totals", TOTALS)
    evil = "x'); DELETE FROM sales.totals; END --"
    warehouse.sql(
        "BEGIN ATOMIC INSERT INTO sales.totals VALUES (?, ?); UPDATE sales.totals SET day = ? WHERE day = ?; END", [evil, 1, "\\", evil]
    )
    assert warehouse.held("sales.totals") == [("\\", 1.0)]
    with pytest.raises(sluice.errors.TableNotFound):
        warehouse.sql("BEGIN ATOMIC DELETE FROM sales.`totals; END; DROP TABLE sales.totals`; END")
    with pytest.raises(sluice.errors.InvalidRequest, match="column 58: this parameter has no value"):
        warehouse.sql("BEGIN ATOMIC DELETE FROM sales.totals WHERE day = 'a' OR :b; END", {"a": 1})
    assert warehouse.held("sales.totals") == [("\\", 1.0)]
