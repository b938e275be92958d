"""One block of statements of every kind, and what it does; both engines run it."""

from __future__ import annotations

ROWS = [(1, "mo", 1.0), (2, "mo", 2.0), (3, "tu", 3.0)]
"""The rows of `sales.orders (id, day, v)`, partitioned by `day`, before the block; `sales.totals (day, v)` has none."""

BLOCK = """
BEGIN ATOMIC
  INSERT INTO sales.orders VALUES (4, 'tu', :v), (5, 'we', 5);
  UPDATE sales.orders SET v = v * 10 WHERE id IN (SELECT id FROM sales.orders WHERE v > 2.5);
  DELETE FROM sales.orders o WHERE o.v = (SELECT max(v) FROM sales.orders);
  MERGE INTO sales.totals t USING (SELECT day, sum(v) AS v FROM sales.orders GROUP BY day) s ON t.day = s.day
    WHEN MATCHED THEN UPDATE SET v = s.v
    WHEN NOT MATCHED THEN INSERT (day, v) VALUES (s.day, s.v);
  WITH q AS (SELECT CAST(count(*) AS DOUBLE) AS v FROM sales.totals)
    INSERT INTO sales.totals BY NAME SELECT 'days' AS day, v FROM q;
  MERGE INTO sales.orders t USING (SELECT max(id) AS id FROM sales.orders) s ON t.id = s.id - 1 WHEN MATCHED THEN UPDATE SET v = -v;
  INSERT OVERWRITE sales.orders PARTITION (day = 'mo') SELECT id, v + 100 FROM sales.orders WHERE day = 'mo';
END;
"""
VALUES = {"v": 4}

ORDERS_AFTER = [(1, "mo", 101.0), (2, "mo", 102.0), (3, "tu", -30.0), (4, "tu", 40.0)]
TOTALS_AFTER = [("days", 2.0), ("mo", 3.0), ("tu", 70.0)]


def answer(orders: int, totals: int) -> list[tuple[object, ...]]:
    """What the block returns, if it committed these versions of the two tables."""
    return [
        (1, "INSERT", "sales.orders", 2, None, None, 2, orders),
        (2, "UPDATE", "sales.orders", 3, 3, None, None, orders),
        (3, "DELETE", "sales.orders", 1, None, 1, None, orders),
        (4, "MERGE", "sales.totals", 2, 0, 0, 2, totals),
        (5, "INSERT", "sales.totals", 1, None, None, 1, totals),
        (6, "MERGE", "sales.orders", 1, 1, 0, 0, orders),
        (7, "INSERT", "sales.orders", 2, None, None, 2, orders),
    ]
