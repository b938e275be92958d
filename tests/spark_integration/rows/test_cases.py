"""MERGE, UPDATE and DELETE answer what the table of cases says: by DeltaTable and by SQL, with and without deletion vectors, whatever the
size of the source.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any, Final

import pytest
from pyspark.sql import SparkSession

import sluice
from sluice.coordinator.service.connect import release
from sluice.delta import DeltaTable
from sluice.spark_integration.rows import source as source_of_merge
from sluice.statements.parse.cursor import Span
from sluice.statements.parse.reading import read
from sluice.statements.parse.rows import Assignment, Delete, Merge, Update

from .cases import CASES, Case
from .cases.judging import judge
from .cases.tables import make

pytestmark = pytest.mark.spark

SHORT: Final = 16
LIMITS: Final = ("_LOCAL_ROWS_MAX", "_LOCAL_BYTES_MAX", "_SENT_ROWS_MAX", "_SENT_BYTES_MAX")
"""Up to which size a source is part of the plan, and up to which it is sent to every task."""


def _combinations() -> Iterator[Any]:
    """Each case once in each way. All but every sixteenth case in one way, another one from case to case, are of the long tests: a case
    takes a second of Spark, and runs once without Spark in any case.
    """
    for number, case in enumerate(CASES):
        sizes = (0, math.inf) if case.do.startswith("MERGE") else (math.inf,)
        ways = list(product([each for each in ("api", "spark") if each in case.only], (True, False), sizes))
        for position, (way, vectors, size) in enumerate(ways):
            is_short = number % SHORT == 0 and position == number // SHORT % len(ways)
            marks = [] if is_short else [pytest.mark.long]
            name = f"{case.name}, {way}{'' if vectors else ', no vectors'}, {size}"
            yield pytest.param(case, way, vectors, size, id=name, marks=marks)


@pytest.mark.parametrize(("case", "way", "vectors", "size"), list(_combinations()))
def test_it_answers_what_delta_lake_answers(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: Case, way: str, vectors: bool, size: float
) -> None:
    for limit in LIMITS:
        monkeypatch.setattr(source_of_merge, limit, size)
    coordinator = f"memory://{uuid.uuid4().hex}"
    try:
        table = make(case, coordinator, tmp_path, vectors=vectors)
        for name, value in case.settings.items():
            spark.conf.set(name, value)
        judge(case, way, table, lambda: _carry_out(spark, case, way, coordinator))
    finally:
        for name in case.settings:
            spark.conf.unset(name)
        release(coordinator)


def _carry_out(spark: SparkSession, case: Case, way: str, coordinator: str) -> None:
    if way == "api":
        _by_api(spark, case, coordinator)
    else:
        sluice.sql(spark, case.do, coordinator=coordinator).collect()


def _by_api(spark: SparkSession, case: Case, coordinator: str) -> None:
    """Carry a case out through DeltaTable, as its statement says."""
    statement = read(case.do)
    assert isinstance(statement, (Delete, Merge, Update))
    table = DeltaTable.forName(spark, "t", coordinator=coordinator).alias(statement.called)

    def text(span: Span | None) -> str | None:
        return None if span is None else span.of(case.do)

    def values(assignments: tuple[Assignment, ...]) -> dict[str, Any]:
        return {each.column.of(case.do): each.value.of(case.do) for each in assignments}

    if isinstance(statement, Delete):
        table.delete(text(statement.where))
        return
    if isinstance(statement, Update):
        table.update(text(statement.where), values(statement.assignments))
        return
    source = sluice.sql(spark, f"SELECT * FROM {text(statement.source)}", coordinator=coordinator)
    merge = table.merge(source.alias(statement.source_called or "s"), statement.on.of(case.do))
    merge = merge.withSchemaEvolution() if statement.evolves else merge
    for clause in statement.clauses:
        condition, given = text(clause.condition), values(clause.assignments)
        match clause.matched, clause.action:
            case "matched", "update":
                merge = merge.whenMatchedUpdate(condition, given)
            case "matched", "update_all":
                merge = merge.whenMatchedUpdateAll(condition)
            case "matched", "delete":
                merge = merge.whenMatchedDelete(condition)
            case "not_matched", "insert":
                merge = merge.whenNotMatchedInsert(condition, given)
            case "not_matched", "insert_all":
                merge = merge.whenNotMatchedInsertAll(condition)
            case "not_matched_by_source", "update":
                merge = merge.whenNotMatchedBySourceUpdate(condition, given)
            case _:
                merge = merge.whenNotMatchedBySourceDelete(condition)
    merge.execute()
