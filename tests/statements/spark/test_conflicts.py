"""EXPLAIN CONFLICT: verdicts for pairs of statements, before either runs."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException

from .conftest import Warehouse

pytestmark = [pytest.mark.spark, pytest.mark.zookeeper]

ORDERS = pa.schema([pa.field("id", pa.int64()), pa.field("day", pa.string()), pa.field("v", pa.float64())])
ROWS = [(1, "mo", 1.0), (2, "mo", 2.0), (3, "tu", 3.0)]
# The verdict on the second statement after the first, and on the first after the second.
OK = ("cannot conflict", None)
APPENDED = ("may conflict", "appended-what-i-read")
PAIRS = [
    ("INSERT INTO sales.orders VALUES (9, 'mo', 1)", "INSERT INTO sales.orders SELECT * FROM sales.orders", APPENDED, OK),
    ("DELETE FROM sales.orders WHERE day = 'tu'", "INSERT INTO sales.orders VALUES (9, 'mo', 1), (10, 'we', 1)", OK, OK),
    ("DELETE FROM sales.orders WHERE day = 'mo'", "INSERT INTO sales.orders VALUES (9, 'mo', 1)", OK, APPENDED),
    ("DELETE FROM sales.orders WHERE day = 'mo'", "INSERT INTO sales.orders PARTITION (day = 'tu') SELECT 1, :v", OK, OK),
    ("UPDATE sales.orders SET v = 0 WHERE day = 'mo'", "UPDATE sales.orders o SET v = 1 WHERE o.day = 'tu'", OK, OK),
    ("UPDATE sales.orders SET v = 0 WHERE id = 1", "UPDATE sales.orders SET day = 'x' WHERE id = 1", APPENDED, APPENDED),
    (
        "DELETE FROM sales.orders WHERE day = (SELECT max(day) FROM sales.orders)",
        "TRUNCATE TABLE sales.orders",
        *[("may conflict", None)] * 2,
    ),
    (
        "MERGE INTO sales.orders t USING (SELECT 1L id, 'mo' day, 1D v) s ON t.day = 'mo' AND t.id = s.id WHEN NOT MATCHED THEN INSERT *",
        "DELETE FROM sales.orders WHERE day = 'tu'",
        APPENDED,
        OK,
    ),
    ("DELETE FROM sales.orders WHERE id = 3", "INSERT INTO sales.orders VALUES (3.6D, 'tu', 1)", OK, APPENDED),
    (
        "MERGE INTO sales.orders t USING (SELECT 7L id) s ON t.id = 7 WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)",
        "INSERT INTO sales.orders VALUES (7, 'we', 1), (8, 'we', NULL)",
        OK,
        APPENDED,
    ),
    ("OPTIMIZE sales.orders", "INSERT INTO sales.orders VALUES (1, 'mo', 1)", OK, OK),
    ("INSERT INTO sales.others VALUES (1)", "DELETE FROM sales.orders", OK, OK),
]


@pytest.mark.costly
def test_pairs_of_statements(warehouse: Warehouse) -> None:
    orders = warehouse.made("sales.orders", ORDERS, *ROWS, partition_by=["day"])
    warehouse.made("sales.others", pa.schema([pa.field("id", pa.int64())]))
    for one, other, of_other, of_one in PAIRS:
        text = f"EXPLAIN CONFLICT {one} WITH {other} AT LEVEL SERIALIZABLE"
        found = {row["second"]: row for row in warehouse.sql(text, {"v": 1.5}).collect()}
        for number, (verdict, rule) in ((1, of_one), (2, of_other)):
            row = found[number]
            assert (row["isolation"], row["verdict"]) == ("Serializable", verdict), f"{text}: {number}: {row}"
            assert rule is None or row["rule"] == rule, f"{text}: {number}: {row}"
            assert (row["remedy"] is None) == (verdict == "cannot conflict")
    assert orders.refresh().version == 1, "nothing ran"


def test_levels(warehouse: Warehouse) -> None:
    warehouse.made("sales.orders", ORDERS, *ROWS, partition_by=["day"])
    rows = warehouse.sql(
        "EXPLAIN CONFLICT DELETE FROM sales.orders WHERE v > 1 WITH INSERT INTO sales.orders VALUES (1, 'mo', 5);"
    ).collect()
    assert [(row["isolation"], row["second"], row["verdict"]) for row in rows] == [
        ("Serializable", 2, "cannot conflict"),
        ("Serializable", 1, "may conflict"),
        ("WriteSerializable", 2, "cannot conflict"),
        ("WriteSerializable", 1, "cannot conflict"),
        ("SnapshotIsolation", 2, "cannot conflict"),
        ("SnapshotIsolation", 1, "cannot conflict"),
    ]
    assert rows[1]["why"] == "the first statement concerns partitions day=mo"
    with pytest.raises(AnalysisException, match="UNRESOLVED_COLUMN"):
        warehouse.sql("EXPLAIN CONFLICT DELETE FROM sales.orders WHERE no = 1 WITH DELETE FROM sales.orders")
