"""Cases of MERGE, UPDATE and DELETE as Delta Lake on Spark carries them out."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ..spark_integration.rows.cases import Case, by_position, columns_of, named
from .engine import Delta

__all__ = ["carried_out"]


def carried_out(delta: Delta, case: Case) -> tuple[list[str], list[Any]]:
    """The columns and the rows that the statement leaves. Raises DeltaError with the condition of the error."""
    _make(delta, case)
    settings = {**case.settings, "spark.sql.jsonGenerator.ignoreNullFields": "false"}
    for name, value in settings.items():
        delta.sql(f"SET {name} = {value}")
    try:
        delta.sql(case.do)
        rows = delta.sql("SELECT * FROM t")
    finally:
        for name in settings:
            delta.sql(f"RESET {name}")
    schema = columns_of(case.made)
    columns = list(rows[0]) if rows else list(schema.names)
    if columns != list(schema.names):
        return columns, [list(row.values()) for row in rows]
    return columns, sorted((by_position(row, schema) for row in rows), key=repr)


def _make(delta: Delta, case: Case) -> None:
    """The table `t`, and the view `s`."""
    if case.s is not None:
        delta.sql(f"CREATE OR REPLACE TEMPORARY VIEW s AS {_rows(case.s, case.source)}")
    partitions = f" PARTITIONED BY ({case.partitioned})" if case.partitioned else ""
    has_defaults = " DEFAULT " in case.t
    properties = " TBLPROPERTIES ('delta.feature.allowColumnDefaults' = 'supported')" if has_defaults else ""
    delta.sql("DROP TABLE IF EXISTS t")  # CREATE OR REPLACE fails where the table before had partitions
    if " NOT NULL" not in case.t and not has_defaults:
        delta.sql(f"CREATE TABLE t USING delta{partitions} AS {_rows(case.t, case.rows)}")
        return
    delta.sql(f"CREATE TABLE t ({case.t}) USING delta{partitions}{properties}")
    delta.sql(f"INSERT INTO t {_rows(case.held, case.rows)}")


def _rows(columns: str, rows: Sequence[Any]) -> str:
    """A query that answers these rows."""
    schema = columns_of(columns)
    values = json.dumps([named(row, schema) for row in rows])
    kind = f"array<struct<{columns.replace(' NOT NULL', '')}>>"
    return f"SELECT inline(from_json({_text(values)}, {_text(kind)}))"


def _text(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
