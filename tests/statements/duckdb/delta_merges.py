"""The merges of Delta Lake's documentation (docs.delta.io), as they are there but for versions, for any engine.

`sql` carries a statement out, `rows` answers a query's rows in some order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

__all__ = ["MERGES"]

_TYPE_2 = """
MERGE INTO customers
USING (
   SELECT updates.customerId as mergeKey, updates.*
  FROM updates

  UNION ALL

  SELECT NULL as mergeKey, updates.*
  FROM updates JOIN customers
  ON updates.customerid = customers.customerid
  WHERE customers.current = true AND updates.address <> customers.address

) staged_updates
ON customers.customerId = mergeKey
WHEN MATCHED AND customers.current = true AND customers.address <> staged_updates.address THEN
  UPDATE SET current = false, endDate = staged_updates.effectiveDate
WHEN NOT MATCHED THEN
  INSERT(customerid, address, current, effectivedate, enddate)
  VALUES(staged_updates.customerId, staged_updates.address, true, staged_updates.effectiveDate, null)
"""
_LOGS = """
MERGE INTO logs
USING newDedupedLogs
ON logs.uniqueId = newDedupedLogs.uniqueId AND logs.date > current_date() - INTERVAL 7 DAYS
WHEN NOT MATCHED AND newDedupedLogs.date > current_date() - INTERVAL 7 DAYS
  THEN INSERT *
"""
_LAST_SEEN = """
MERGE INTO target
USING source
ON source.key = target.key
WHEN MATCHED THEN
  UPDATE SET target.lastSeen = source.timestamp
WHEN NOT MATCHED THEN
  INSERT (key, lastSeen, status) VALUES (source.key, source.timestamp, 'active')
WHEN NOT MATCHED BY SOURCE AND target.lastSeen >= (current_date() - INTERVAL '5' DAY) THEN
  UPDATE SET target.status = 'inactive'
"""


_Sql: TypeAlias = Callable[[str], Any]
_Rows: TypeAlias = Callable[[str], list[tuple[Any, ...]]]


def _slowly_changing(sql: _Sql, rows: _Rows) -> None:
    sql("CREATE TABLE customers (customerId INT, address STRING, current BOOLEAN, effectiveDate STRING, endDate STRING) USING sluice")
    rows_of_type_2 = "(1, 'old for 1', false, '18', '19'), (1, 'current for 1', true, '19', null), (3, 'for 3', true, '18', null)"
    sql(f"INSERT INTO customers VALUES {rows_of_type_2}")
    updates = "(1, 'new for 1', '20'), (3, 'for 3', '20'), (4, 'for 4', '20')"
    sql(f"CREATE TABLE updates USING sluice AS SELECT * FROM VALUES {updates} AS u(customerId, address, effectiveDate)")
    sql(_TYPE_2)
    assert rows("SELECT * FROM customers") == [
        (1, "current for 1", False, "19", "20"),
        (1, "new for 1", True, "20", None),
        (1, "old for 1", False, "18", "19"),
        (3, "for 3", True, "18", None),
        (4, "for 4", True, "20", None),
    ]


def _without_duplicates(sql: _Sql, rows: _Rows) -> None:
    sql("CREATE TABLE logs (uniqueId INT, date DATE) USING sluice PARTITIONED BY (date)")
    sql("INSERT INTO logs VALUES (1, current_date()), (2, DATE'2020-01-01')")
    logs = "(1, current_date()), (3, current_date()), (4, DATE'2020-01-01')"
    sql(f"CREATE TABLE newDedupedLogs USING sluice AS SELECT * FROM VALUES {logs} AS l(uniqueId, date)")
    sql(_LOGS)
    assert rows("SELECT uniqueId FROM logs") == [(1,), (2,), (3,)]


def _last_seen(sql: _Sql, rows: _Rows) -> None:
    sql("CREATE TABLE target (key INT, lastSeen DATE, status STRING) USING sluice")
    sql("INSERT INTO target VALUES (1, DATE'2020-01-01', 'a'), (2, DATE'2020-01-01', 'a'), (3, current_date(), 'a')")
    sql("CREATE TABLE source USING sluice AS SELECT * FROM VALUES (1, DATE'2021-01-01'), (5, DATE'2021-01-01') AS s(key, timestamp)")
    sql(_LAST_SEEN)
    assert rows("SELECT key, year(lastSeen) > 2021, status FROM target") == [
        (1, False, "a"),
        (2, False, "a"),
        (3, True, "inactive"),
        (5, False, "active"),
    ]
    sql("DELETE FROM target WHERE key = 1")
    sql("INSERT INTO target SELECT * FROM target VERSION AS OF 1 WHERE key = 1")
    assert rows("SELECT year(lastSeen) FROM target WHERE key = 1") == [(2020,)]
    sql("MERGE INTO target t USING target VERSION AS OF 2 s ON s.key = t.key WHEN MATCHED THEN UPDATE SET *")
    assert rows("SELECT year(lastSeen) FROM target WHERE key = 1") == [(2021,)]


MERGES: Final = {"slowly changing": _slowly_changing, "without duplicates": _without_duplicates, "last seen": _last_seen}
"""Each makes its tables, merges, and compares."""
