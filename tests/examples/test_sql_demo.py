"""`make demo ARGS=--sql`: the day runs, and a wrong answer is a failure."""

from __future__ import annotations

import io
import uuid
from collections.abc import Iterator
from dataclasses import replace

import pytest
from rich.console import Console

import sluice
from examples.demo import sql_day
from examples.demo.workspace import DemoOptions
from sluice.coordinator.service.connect import release


@pytest.fixture
def coordinator() -> Iterator[str]:
    address = f"memory://{uuid.uuid4().hex}"
    yield address
    release(address)


def test_a_day_in_sql(coordinator: str) -> None:
    said = io.StringIO()
    assert sql_day.run_sql_demo(DemoOptions(coordinator=coordinator), Console(file=said, width=120))
    assert said.getvalue().splitlines()[-1].startswith("demo: ok: every answer was right")
    assert [each.name for each in sluice.Catalog(coordinator).namespaces()] == ["default"]


def test_a_wrong_answer_is_a_failure(coordinator: str, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = tuple(replace(each, rows=((1,),)) if each.rows else each for each in sql_day._STEPS)
    monkeypatch.setattr(sql_day, "_STEPS", steps)
    said = io.StringIO()
    assert not sql_day.run_sql_demo(DemoOptions(coordinator=coordinator), Console(file=said, width=500))
    assert "demo: FAILED: COPY INTO" in said.getvalue().splitlines()[-1]
    with pytest.raises(sluice.errors.InvalidRequest, match="leave out --store and --location"):
        sql_day.run_sql_demo(DemoOptions(store="s3"), Console(file=said))
