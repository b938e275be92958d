"""The job that was moved by changing two words: on Delta Lake, with the two words changed back, it writes the same rows."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.examples.test_moved_job import JOB, on_delta_lake, printed

pytestmark = pytest.mark.delta_spark


@pytest.mark.timeout(1700)
def test_the_moved_job_writes_the_same_rows_on_delta_lake(python: str, tmp_path: Path) -> None:
    before = tmp_path / "before.py"
    before.write_text(on_delta_lake(JOB.read_text()))
    theirs = _rows_of(python, before, tmp_path / "theirs", PYTHONPATH="")
    ours = _rows_of(sys.executable, JOB, tmp_path / "ours", SLUICE_HOME=str(tmp_path / "home"))
    assert len(ours) == 8
    assert ours == theirs


def _rows_of(python: str, job: Path, folder: Path, **environment: str) -> dict[str, list[list[str]]]:
    folder.mkdir()
    of_python = {"PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": python, **environment}
    done = subprocess.run(
        [python, str(job), str(folder)],
        env={**os.environ, **of_python},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return printed(done.stdout)
