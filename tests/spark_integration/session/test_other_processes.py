"""Programs beside the tests that read tables in Spark: what Java learns of each process, and whom it calls."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

import sluice
from tests.fixtures.spark_jvm import SparkJvm, as_environment

from ..conftest import ROOT, Place

pytestmark = pytest.mark.spark

PROGRAM = "tests.spark_integration.session.file_index_program"


def test_no_process_of_the_same_jvm_answers_for_another(place: Place, tmp_path: Path) -> None:
    """The JVM calls the process that read last. Its objects have other numbers, so it cannot answer with the files of another table."""
    place.write(place.spark.range(5))
    frame = place.load()
    environment = {**os.environ, **as_environment(place.spark.sparkContext._gateway)}
    command = [sys.executable, "-m", PROGRAM, "beside", str(tmp_path / "t")]
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "done\n"
        with pytest.raises(sluice.errors.UnsupportedFeature, match="give each its own JVM"):
            frame.count()
        assert place.load().count() == 5, "who reads next is called again"
        other.communicate()
    assert other.returncode == 0


@pytest.mark.long
@pytest.mark.parametrize("program", ["restarted", "unpinned"])
def test_contexts_and_threads_of_other_programs(program: str, tmp_path: Path) -> None:
    """A context that was stopped and started again, threads without pins: a JVM learns of both at its start, so each has its own."""
    runs_to_its_end(program, tmp_path, {})


@pytest.mark.costly
def test_a_callback_server_that_the_program_started_itself(tmp_path: Path, spark_jvm: SparkJvm) -> None:
    (tmp_path / "home").mkdir()
    runs_to_its_end("foreign", tmp_path, spark_jvm.environment(tmp_path / "home"))


def runs_to_its_end(program: str, folder: Path, jvm: Mapping[str, str]) -> None:
    command = [sys.executable, "-m", PROGRAM, program, str(folder / "t")]
    environment = {**os.environ, **jvm}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.split()[-1] == "done"
