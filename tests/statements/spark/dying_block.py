"""A driver that runs a block over two tables and dies on the way: `python -m tests.statements.spark.dying_block JSON`.

It works in the JVM that PYSPARK_GATEWAY_PORT names. Prints `done` at its end.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from typing import Any

from pyspark.sql import SparkSession

import sluice
from tests.spark_integration.rows import faults
from tests.spark_integration.rows.dying_driver import apart

BLOCK = """
BEGIN ATOMIC KEY 'the block'
  INSERT INTO sluice.`{bookings}` SELECT id + 100, n FROM sluice.`{seats}` WHERE id < 3;
  MERGE INTO sluice.`{seats}` AS t USING (SELECT id - 100 + 1 AS id FROM sluice.`{bookings}` WHERE id >= 100) AS s ON t.id = s.id
    WHEN MATCHED THEN UPDATE SET n = t.n + 1 WHEN NOT MATCHED THEN INSERT (id, n) VALUES (s.id, -1);
  DELETE FROM sluice.`{bookings}` WHERE id = 0;
END
"""
BEFORE = ([(0, 0), (1, 0)], [(0, 0), (1, 0), (2, 0)])
AFTER = ([(1, 0), (100, 0), (101, 0), (102, 0)], [(0, 0), (1, 1), (2, 1), (3, -1)])
"""The rows of bookings and of seats."""


def run(spark: SparkSession, tables: Mapping[str, str], coordinator: str) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in sluice.sql(spark, BLOCK.format(**tables), coordinator=coordinator).collect()]


def main(tables: Mapping[str, str], coordinator: str, step: str) -> None:
    spark = apart()
    faults.put_in(faults.patches(tables["seats"]))
    faults.plan(tables["seats"], step, f"kill {os.getpid()}")
    run(spark, tables, coordinator)
    print("done", flush=True)


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
