"""Makes the tables of a case, and reads what it left; neither needs Spark."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

import sluice
from sluice.statements.duckdb.engine import run
from sluice.storage.schema.datatypes import DataType, PrimitiveType
from sluice.storage.schema.schema import to_arrow

from . import Case, Value, by_position, columns_of, named

__all__ = ["left_by", "make"]


def make(case: Case, coordinator: str, folder: Path, *, vectors: bool) -> sluice.Table:
    """The table `t` of a case, and the table `s` if there is one; in two files each if there are several rows."""
    catalog = sluice.Catalog(coordinator, root=folder)
    partitions = f" PARTITIONED BY ({case.partitioned})" if case.partitioned else ""
    properties = f" TBLPROPERTIES ('delta.enableDeletionVectors' = '{str(vectors).lower()}')"
    run(f"CREATE TABLE t ({case.t}) USING sluice{partitions}{properties}", coordinator=coordinator)
    _fill(catalog.open("t"), case.held, case.rows)
    if case.s is not None:
        run(f"CREATE TABLE s ({case.s}) USING sluice", coordinator=coordinator)
        _fill(catalog.open("s"), case.s, case.source)
    return catalog.open("t")


def left_by(table: sluice.Table) -> tuple[list[str], list[Value]]:
    """The columns of a table, and its rows in a fixed order."""
    snapshot = table.refresh().snapshot()
    return list(snapshot.struct.names), sorted((by_position(row, snapshot.struct) for row in snapshot.to_arrow().to_pylist()), key=repr)


def _fill(table: sluice.Table, columns: str, rows: Sequence[Value]) -> None:
    schema = columns_of(columns)
    values = [named(row, schema, _leaf) for row in rows]
    middle = (len(values) + 1) // 2
    if values:
        with table.begin() as transaction:
            for part in filter(None, (values[:middle], values[middle:])):
                transaction.append(pa.Table.from_pylist(part, to_arrow(schema)))


def _leaf(value: Value, kind: DataType) -> Any:
    assert isinstance(kind, PrimitiveType)
    if kind.is_decimal:
        return Decimal(str(value))
    if kind.name == "date":
        return date.fromisoformat(value)
    if kind.name.startswith("timestamp"):
        moment = datetime.fromisoformat(value)
        return moment.replace(tzinfo=timezone.utc) if kind.name == "timestamp" else moment
    return value
