"""The calls whose functions are counted: each with tables of its own, a memory coordinator and a local disk."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from unittest import mock

import pyarrow as pa

import sluice
from sluice.coordinator.commit import transactions
from sluice.coordinator.commit.decider import decide_without_slot
from sluice.coordinator.limits import Limits
from sluice.coordinator.publication import publisher
from sluice.coordinator.service.connect import release
from sluice.statements.duckdb.engine import run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA: Final = pa.schema([("id", pa.int64()), ("v", pa.string())])
ROWS: Final = pa.table({"id": [1, 2], "v": ["a", "b"]}, schema=SCHEMA)
INSERT: Final = "INSERT INTO s.target VALUES (1, 'x')"
MERGE: Final = """
    MERGE INTO s.target t USING s.source s ON t.id = s.id
    WHEN MATCHED THEN UPDATE SET v = s.v WHEN NOT MATCHED THEN INSERT *
"""


@dataclass(frozen=True)
class Pair:
    """Two tables, of two rows each, with names in one catalog."""

    coordinator: str
    target: sluice.Table
    source: sluice.Table
    by_slots: sluice.Table
    """The target again, without the fast path."""


@contextmanager
def pair(folder: Path) -> Iterator[Pair]:
    """New tables below this folder, until the block ends."""
    coordinator = f"memory://{uuid.uuid4().hex}"
    catalog = sluice.Catalog(coordinator, root=folder / uuid.uuid4().hex)
    catalog.create_namespace("s")
    target, source = (catalog.create(f"s.{name}", SCHEMA) for name in ("target", "source"))
    target.append(ROWS)
    source.append(ROWS)
    by_slots = sluice.Table.open(target.location, coordinator=coordinator, limits=Limits(fast_path=False))
    try:
        with (
            mock.patch.object(publisher, "_FILES_EVERY_S", 3600.0),  # a slow machine compares log files no more often
            mock.patch.object(transactions, "decide_without_slot", decide_without_slot),  # without what the other tests check
        ):
            yield Pair(coordinator, target, source, by_slots)
    finally:
        release(coordinator)


def joint_append(tables: Pair) -> None:
    with sluice.transaction(tables=[tables.target, tables.source]) as transaction:
        transaction[tables.target].append(ROWS)
        transaction[tables.source].append(ROWS)


def delta_merge(tables: Pair, spark: SparkSession) -> None:
    from sluice.delta import DeltaTable

    target = DeltaTable.forPath(spark, tables.target.location, coordinator=tables.coordinator)
    rows = spark.createDataFrame([(1, "c"), (3, "d")], "id BIGINT, v STRING")
    merge = target.alias("t").merge(rows.alias("s"), "t.id = s.id")
    merge.whenMatchedUpdate(set={"v": "s.v"}).whenNotMatchedInsertAll().execute()


WITHOUT_SPARK: Final[Mapping[str, Callable[[Pair], Any]]] = {
    "append": lambda tables: tables.target.append(ROWS),
    "append by a slot": lambda tables: tables.by_slots.append(ROWS),
    "joint append": joint_append,
    "snapshot with a condition": lambda tables: tables.target.snapshot().to_arrow(where="id > 1"),
    "DuckDB INSERT": lambda tables: run(INSERT, coordinator=tables.coordinator),
    "DuckDB MERGE": lambda tables: run(MERGE, coordinator=tables.coordinator),
}
ON_SPARK: Final[Mapping[str, Callable[[Pair, SparkSession], Any]]] = {
    "DeltaTable.merge": delta_merge,
    "Spark INSERT": lambda tables, spark: sluice.sql(spark, INSERT, coordinator=tables.coordinator),
}
