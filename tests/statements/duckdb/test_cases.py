"""MERGE, UPDATE and DELETE by SQL without Spark answer what the table of cases says, or leave the statement to Spark."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sluice.coordinator.service.connect import release
from sluice.statements.duckdb.running import run

from ...spark_integration.rows.cases import CASES, Case
from ...spark_integration.rows.cases.judging import judge
from ...spark_integration.rows.cases.tables import make

pytestmark = pytest.mark.slow


def _combinations() -> Iterator[Any]:
    """Each case with and without deletion vectors; one of both is of the long tests."""
    for number, case in enumerate(each for each in CASES if "duckdb" in each.only):
        for vectors in (True, False):
            marks = [] if vectors == (number % 2 == 0) else [pytest.mark.long]
            yield pytest.param(case, vectors, id=f"{case.name}{'' if vectors else ', no vectors'}", marks=marks)


@pytest.mark.parametrize(("case", "vectors"), list(_combinations()))
def test_it_answers_what_delta_lake_answers(tmp_path: Path, case: Case, vectors: bool) -> None:
    coordinator = f"memory://{uuid.uuid4().hex}"
    try:
        table = make(case, coordinator, tmp_path, vectors=vectors)
        judge(case, "duckdb", table, lambda: run(case.do, coordinator=coordinator))
    finally:
        release(coordinator)
