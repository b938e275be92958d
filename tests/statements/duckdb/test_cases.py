"""MERGE, UPDATE and DELETE by SQL without Spark answer what the table of cases says, or leave the statement to Spark."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from sluice.coordinator.service.connect import release
from sluice.statements.duckdb.engine import run

from ...spark_integration.rows.cases import CASES, Case
from ...spark_integration.rows.cases.judging import judge
from ...spark_integration.rows.cases.tables import make

pytestmark = pytest.mark.slow


HERE = [case for case in CASES if "duckdb" in case.only]


@pytest.mark.parametrize("vectors", [True, False], ids=["vectors", "no vectors"])
@pytest.mark.parametrize("case", HERE, ids=[case.name for case in HERE])
@pytest.mark.many
def test_it_answers_what_delta_lake_answers(tmp_path: Path, case: Case, vectors: bool) -> None:
    coordinator = f"memory://{uuid.uuid4().hex}"
    try:
        table = make(case, coordinator, tmp_path, vectors=vectors)
        judge(case, "duckdb", table, lambda: run(case.do, coordinator=coordinator))
    finally:
        release(coordinator)
