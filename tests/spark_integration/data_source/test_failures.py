"""Tasks, commits and drivers fail: nothing is doubled, nothing is half there, and the error names the cause."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import RDD, TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

import sluice
from sluice.spark_integration import original
from tests.fixtures.spark_jvm import as_environment

from ..conftest import ROOT, Place, refused

pytestmark = pytest.mark.spark


def held(place: Place) -> list[int]:
    return [row["id"] for row in sorted(place.rows(), key=lambda row: row["id"])]


def failing(place: Place, *, attempts: int, kill: bool = False) -> DataFrame:
    """Numbers 0 to 99 in two tasks; the first one fails in its first attempts, after its rows were handed over."""

    def numbers(part: int, _: Iterable[int]) -> Iterable[tuple[int]]:
        context = TaskContext.get()
        assert context is not None
        yield from ((number,) for number in range(part * 50, part * 50 + 50))
        if part == 0 and context.attemptNumber() < attempts:
            if kill:
                os.kill(os.getpid(), signal.SIGKILL)
            raise RuntimeError("this attempt fails")

    parts: RDD[tuple[int]] = place.spark.sparkContext.parallelize([0, 1], 2).mapPartitionsWithIndex(numbers)
    return place.spark.createDataFrame(parts, "id long")


@pytest.mark.parametrize("kill", [False, True])
def test_a_task_that_succeeds_at_the_second_attempt_writes_once(place: Place, kill: bool) -> None:
    place.write(failing(place, attempts=1, kill=kill))
    assert held(place) == list(range(100))


def test_a_task_that_fails_for_good_leaves_nothing(place: Place) -> None:
    place.create(pa.schema([("id", pa.int64())]))
    with pytest.raises(PySparkException, match="this attempt fails") as failed:
        place.write(failing(place, attempts=9))
    assert original(failed.value) is None, "no error of sluice's"
    assert held(place) == []
    assert place.table().version == 0


def test_rows_that_break_a_constraint_are_named_and_nothing_is_there(place: Place) -> None:
    place.create(pa.schema([("id", pa.int64())]), properties={"delta.constraints.small": "id < 50"})
    error = refused(lambda: place.write(place.spark.range(100)))
    assert isinstance(error, sluice.errors.ConstraintViolated)
    assert "small" in error.message
    assert held(place) == []
    place.write(place.spark.range(50))
    assert held(place) == list(range(50))


def test_a_commit_that_meets_a_conflict_leaves_nothing(place: Place) -> None:
    place.write(place.spark.range(10))
    place.table().delete("id < 5")
    error = refused(lambda: place.write(place.spark.range(100, 110), "overwrite", readVersion=0))
    assert isinstance(error, sluice.errors.ConcurrentModification)
    assert held(place) == [5, 6, 7, 8, 9]


def test_an_unreachable_coordinator_is_named(place: Place) -> None:
    lost = Place(place.spark, place.location, "zk://127.0.0.1:1/x?connect_timeout_s=1&retry_s=1")
    error = refused(lambda: lost.write(place.spark.range(1)))
    assert isinstance(error, sluice.errors.CoordinatorUnavailable)
    assert error.retryable


def driver(place: Place, *arguments: object, stop_file: str = "", **environment: str) -> subprocess.Popen[str]:
    """A Spark application in a process group of its own."""
    command = [
        sys.executable,
        "-m",
        "tests.spark_integration.driver_program",
        place.location,
        place.coordinator,
        *map(str, arguments),
        stop_file,
    ]
    return subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@pytest.mark.costly
@pytest.mark.slow
@pytest.mark.parametrize(
    ("point", "survives", "routed"),
    [
        pytest.param("data-staged", False, False, marks=pytest.mark.long),
        pytest.param("data-staged", False, True, marks=pytest.mark.long),
        pytest.param("after-ratify", True, False, marks=pytest.mark.long),
        ("after-ratify", True, True),
    ],
)
def test_the_commit_is_killed(place: Place, point: str, survives: bool, routed: bool) -> None:
    """The committing process dies by SIGKILL; before its multi nothing is decided, after it the rows come exactly once.

    That is the driver, which shares the tests' own JVM, or (not routed) a process of the data source, in a JVM with its environment.
    Where it dies before its multi there is no table yet: the next write creates it.
    """
    before = range(10) if survives else range(0)
    if before:
        place.write(place.spark.range(10))
    given = as_environment(place.spark.sparkContext._gateway) if routed else {}
    process = driver(place, 100, 10, 1, SLUICE_FAILPOINT=point, ROUTED=str(routed).lower(), **given)
    out, err = process.communicate(timeout=200)
    assert "done" not in out, "the failure point was not passed"
    if routed:
        assert process.returncode == -signal.SIGKILL, err
    else:
        assert "Python worker exited unexpectedly" in err
    place.write(place.spark.range(20, 30))
    between = list(range(100, 110)) if survives else []
    assert held(place) == [*before, *range(20, 30), *between]
    place.write(place.spark.range(30, 40))
    assert held(place) == [*before, *range(20, 40), *between]


@pytest.mark.long  # its JVM dies, too; the standard suite kills the JVM of a stream's driver (`streams/test_kills`)
@pytest.mark.slow
def test_the_driver_is_killed_while_its_tasks_write(place: Place, tmp_path: Path) -> None:
    place.write(place.spark.range(10))
    stop_file = tmp_path / "stopped"
    process = driver(place, 100, 10, 1, stop_file=str(stop_file))
    deadline = time.monotonic() + 200
    while not stop_file.exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.2)
    assert stop_file.exists(), process.communicate()[1] if process.poll() is not None else "it did not come so far"
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert held(place) == list(range(10))
    place.write(place.spark.range(20, 30))
    assert held(place) == [*range(10), *range(20, 30)]


@pytest.mark.slow
@pytest.mark.parametrize("jvms", ["one JVM", pytest.param("two JVMs", marks=pytest.mark.long)])
@pytest.mark.long
def test_two_applications_and_a_python_program_write_at_once(place: Place, jvms: str) -> None:
    place.create(pa.schema([("id", pa.int64())]))
    given = as_environment(place.spark.sparkContext._gateway) if jvms == "one JVM" else {}
    drivers = [driver(place, 1000, 10, 2, **given), driver(place, 2000, 10, 2, **given)]
    table = place.table()
    number = 0
    while any(process.poll() is None for process in drivers):
        table.append(pa.table({"id": pa.array([number], pa.int64())}))
        number += 1
        time.sleep(0.2)
    for process in drivers:
        out, err = process.communicate()
        assert "done" in out, err
    assert number > 3
    assert held(place) == [*range(number), *range(1000, 1020), *range(2000, 2020)]
    applications = [entry.application for entry in table.history(limit=None)]
    assert applications.count("driver 1000") == applications.count("driver 2000") == 2
