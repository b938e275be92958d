"""A Spark application of its own that merges at random into several tables, one after the other: the argument is a `Task` as JSON.

It makes a session, writes `ready` to its journal, and begins when the file `go` is there. The journal says of each operation that
it begins, and how it ended; so a driver that was killed leaves one operation of which nobody knows.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, TextIO

from pyspark.sql import SparkSession

import sluice
from sluice.delta import DeltaTable
from sluice.delta.builders import DeltaMergeBuilder
from tests.spark_integration.conftest import small
from tests.spark_integration.rows.random_operations import SOURCE, Operation, operation

PATIENCE_S = 120.0


@dataclass(frozen=True)
class Task:
    """What a driver does: it changes each of the tables for `slice_s` seconds, or so many times."""

    who: str
    seed: int
    coordinator: str
    tables: Sequence[str]
    slice_s: float
    times: int | None
    journal: str
    go: str

    def encode(self) -> str:
        return json.dumps(asdict(self))


METHODS: Final = {
    ("matched", "update"): "whenMatchedUpdate",
    ("matched", "update_all"): "whenMatchedUpdateAll",
    ("matched", "delete"): "whenMatchedDelete",
    ("not_matched", "insert"): "whenNotMatchedInsert",
    ("not_matched", "insert_all"): "whenNotMatchedInsertAll",
    ("not_matched_by_source", "update"): "whenNotMatchedBySourceUpdate",
    ("not_matched_by_source", "delete"): "whenNotMatchedBySourceDelete",
}
"""The builder's method for clauses of a kind with an action."""


def with_clause(built: Any, matched: str, action: str, condition: Any, values: Mapping[str, Any]) -> Any:
    """A MERGE of DeltaTable's with one more clause."""
    return getattr(built, METHODS[matched, action])(condition, *([values] if action in ("update", "insert") else []))


def builder(table: DeltaTable, spark: SparkSession, asked: Operation) -> DeltaMergeBuilder:
    """The MERGE with all clauses."""
    built = table.merge(spark.createDataFrame(list(asked.source), SOURCE).alias("s"), str(asked.on.sql))
    for clause in asked.clauses:
        built = with_clause(built, clause.matched, clause.action, clause.condition, dict(clause.assignments))
    return built


def carry_out(table: DeltaTable, spark: SparkSession, asked: Operation) -> int:
    """The number of rows that Spark says it changed."""
    [clause] = asked.clauses[:1]
    if asked.kind == "delete":
        counts = table.delete(clause.condition, isolation=asked.isolation, attempts=asked.attempts, key=asked.key)
    elif asked.kind == "update":
        values = dict(clause.assignments)
        counts = table.update(clause.condition, values, isolation=asked.isolation, attempts=asked.attempts, key=asked.key)
    else:
        counts = builder(table, spark, asked).execute(isolation=asked.isolation, attempts=asked.attempts, key=asked.key)
    return int(counts.collect()[0]["num_affected_rows"])


def work(spark: SparkSession, task: Task, journal: TextIO) -> None:
    number = 0

    def say(**what: object) -> None:
        journal.write(json.dumps(what) + "\n")
        journal.flush()

    for count, location in enumerate(task.tables):
        table = DeltaTable.forPath(spark, location, coordinator=task.coordinator).alias("t")
        until, left = time.monotonic() + task.slice_s, task.times
        while time.monotonic() < until and left != 0:
            asked = operation(task.seed, task.who, number)
            say(key=asked.key, number=number, table=count)
            try:
                affected = carry_out(table, spark, asked)
            except sluice.errors.ConcurrentModification as lost:
                say(key=asked.key, lost=lost.rule)
            else:
                say(key=asked.key, affected=affected)
            number += 1
            left = None if left is None else left - 1
    say(finished=number)


def main(task: Task) -> None:
    session = small(SparkSession.builder).master("local[1]").config("spark.driver.memory", "512m")
    spark = sluice.configure(session, coordinator=task.coordinator, application=task.who).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    with Path(task.journal).open("a", encoding="utf-8") as journal:
        journal.write('{"ready": true}\n')
        journal.flush()
        deadline = time.monotonic() + PATIENCE_S
        while not Path(task.go).exists():
            if time.monotonic() > deadline:
                raise TimeoutError(f"{task.go} did not come")
            time.sleep(0.05)
        work(spark, task, journal)
    spark.stop()


if __name__ == "__main__":
    main(Task(**json.loads(sys.argv[1])))
