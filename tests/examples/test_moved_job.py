"""The job that was moved from Delta Lake by changing two words: what it prints, and how many of its lines changed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fixtures.spark_jvm import SparkJvm

JOB = Path(__file__).resolve().parents[2] / "examples" / "moved_from_delta.py"


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
