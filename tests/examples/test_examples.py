"""The example runs as a user runs it, in small: drivers with a Spark each, and one that optimizes beside them.

The job that was moved from Delta Lake by changing two words: what it prints, and how many of its lines changed.
`make demo ARGS=--sql`: the day runs, and a wrong answer is a failure.
"""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

import sluice
from examples.demo import sql_day
from examples.demo.workspace import DemoOptions
from sluice.coordinator.service.connect import release
from tests.fixtures.spark_jvm import SparkJvm

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.long  # each driver starts a JVM, and so does the optimizer
@pytest.mark.parametrize("drivers", [1, 3])
def test_drivers_merge_into_one_table_beside_optimize(tmp_path: Path, drivers: int) -> None:
    sizes = ["--drivers", str(drivers), "--rounds", str(drivers), "--accounts", "60"]
    assert "every visit is counted once" in example("upsert_many_clusters.py", tmp_path, *sizes)
    operations = [each.operation for each in sluice.Table.open(tmp_path / "example", consistency="published").history(limit=None)]
    assert operations.count("MERGE") == drivers * drivers


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.timeout(600)
def test_an_outbox_whose_driver_is_killed(tmp_path: Path) -> None:
    done = example("outbox.py", tmp_path, "--batches", "12", "--kills", "2")
    assert "each order is there once, in both tables at once" in done


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.timeout(600)
def test_queries_write_one_table(tmp_path: Path, spark_jvm: SparkJvm) -> None:
    assert "each row once" in example("fan_in.py", tmp_path, "--queries", "2", "--batches", "2", jvm=spark_jvm)


def example(name: str, folder: Path, *arguments: str, jvm: SparkJvm | None = None) -> str:
    home = folder / "home"
    environment = {**os.environ, "SLUICE_HOME": str(home), **({} if jvm is None else jvm.environment(home))}
    command = [sys.executable, str(ROOT / "examples" / name), "--folder", str(folder / "example"), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=580, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


JOB = ROOT / "examples" / "moved_from_delta.py"


def on_delta_lake(text: str) -> str:
    """The job's text with the two words changed back: its import, and the format's name."""
    text = re.sub(r"^from sluice\.delta import", "from delta import", text, flags=re.MULTILINE)
    return re.sub(r"USING sluice\b", "USING delta", text.replace('format("sluice")', 'format("delta")'))


def printed(output: str) -> dict[str, list[list[str]]]:
    """The rows that the job prints, by what they are."""
    found: dict[str, list[list[str]]] = {}
    for line in output.splitlines():
        if line.startswith("{"):
            found |= json.loads(line)
    return found


def test_nothing_but_the_import_and_the_format_changes() -> None:
    text = JOB.read_text()
    code = text.partition('"""\n\n')[2]
    back = on_delta_lake(code)
    assert "sluice" not in back
    changed = [line for line, was in zip(code.splitlines(), back.splitlines(), strict=True) if line != was]
    assert all(re.search(r"^from sluice\.delta import|format\(\"sluice\"\)|USING sluice", line) for line in changed)


@pytest.mark.spark
@pytest.mark.long  # `make test-delta` runs the job, too
@pytest.mark.timeout(300)
def test_the_moved_job_writes_its_rows(tmp_path: Path, spark_jvm: SparkJvm) -> None:
    environment = {**os.environ, **spark_jvm.environment(tmp_path / "home")}
    command = [sys.executable, str(JOB), str(tmp_path / "lake")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    days = ("2026-01-01", "2026-01-02")
    assert printed(done.stdout) == {
        "bronze": [
            ["1", days[0], "10"],
            ["2", days[0], "20"],
            ["2", days[0], "25"],
            ["3", days[1], "-1"],
            ["3", days[1], "5"],
            ["4", days[1], "7"],
        ],
        "silver": [["2", days[0], "25"], ["4", days[1], "70"]],
        "silver after the first run": [["1", days[0], "10"], ["2", days[0], "20"], ["3", days[1], "5"]],
        "gold": [[days[0], "2", "35"], [days[1], "1", "7"]],
        "gold at first": [[days[0], "2", "30"], [days[1], "1", "5"]],
        "runs": [["0", "3"], ["1", "3"]],
        "operations": [["0", "WRITE"], ["1", "WRITE"]],
        "details": [["delta", "['day']"]],
    }


@pytest.fixture
def coordinator() -> Iterator[str]:
    address = f"memory://{uuid.uuid4().hex}"
    yield address
    release(address)


@pytest.mark.costly
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
