"""The example runs as a user runs it, in small: drivers with a Spark each, and one that optimizes beside them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import sluice
from tests.fixtures.spark_jvm import SparkJvm

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.long  # each driver starts a JVM, and so does the optimizer
@pytest.mark.parametrize("drivers", [1, 3])
def test_drivers_merge_into_one_table_beside_optimize(tmp_path: Path, drivers: int) -> None:
    location, environment = tmp_path / "accounts", {**os.environ, "SLUICE_HOME": str(tmp_path / "home")}
    sizes = ["--drivers", str(drivers), "--rounds", str(drivers), "--accounts", "60"]
    command = [sys.executable, str(ROOT / "examples/upsert_many_clusters.py"), "--folder", str(location), *sizes]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=580, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert "every visit is counted once" in done.stdout
    operations = [each.operation for each in sluice.Table.open(location, consistency="published").history(limit=None)]
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
