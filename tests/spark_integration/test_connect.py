"""What works over Spark Connect, and what is refused by name."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from ..conftest import ROOT

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("grpc") is None, reason="make test-connect has the packages of pyspark[connect]"),
]


def test_a_job_over_spark_connect(zookeeper_address: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.spark_integration.connect_program", str(tmp_path), zookeeper_address]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280, check=False)
    assert ended.stdout.endswith("done\n"), ended.stdout + ended.stderr[-4000:]
