"""The job that was moved by changing two words: on Delta Lake, with the two words changed back, it writes the same rows.

Another test compares `sluice.delta` with a list of delta-spark's API. This one compares the list with the installed delta-spark.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.delta_spark.engine import PYTHON
from tests.examples.test_examples import JOB, on_delta_lake, printed

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


def test_the_list_of_classes_methods_and_parameters_is_that_of_delta_spark() -> None:
    command = [os.environ[PYTHON], str(Path(__file__).with_name("python_api.py"))]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": ""}).stdout)
    listed = json.loads(Path(__file__).parents[1].joinpath("delta", "delta_spark_api.json").read_text())
    found["tables"]["IdentityGenerator"] = listed["tables"][
        "IdentityGenerator"
    ]  # a dataclass: its fields, compared by their names in tests/delta
    assert found["tables"] == listed["tables"]
    assert found["exceptions"] == sorted(listed["exceptions"])
