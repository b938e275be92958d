"""Another test compares `sluice.delta` with a list of delta-spark's API. This one compares the list with the installed delta-spark."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from .engine import PYTHON

pytestmark = pytest.mark.delta_spark


def test_the_list_of_classes_methods_and_parameters_is_that_of_delta_spark() -> None:
    command = [os.environ[PYTHON], str(Path(__file__).with_name("python_api.py"))]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": ""}).stdout)
    listed = json.loads(Path(__file__).parents[1].joinpath("delta", "delta_spark_api.json").read_text())
    found["tables"]["IdentityGenerator"] = listed["tables"][
        "IdentityGenerator"
    ]  # a dataclass: its fields, compared by their names in tests/delta
    assert found["tables"] == listed["tables"]
    assert found["exceptions"] == sorted(listed["exceptions"])
