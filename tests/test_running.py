"""Every test runs once on one worker, and few workers run those that need a JVM of Spark.

What `conftest` does for every test: the leak check would be worth nothing if it found nothing.
What continuous integration says of tests that fail, with the real script and make, and few tests.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import uuid
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests import processes
from tests.scheduling import WORTH_A_JVM, FewJvms
from tests.selection import left_for_long, share_of


class Worker:
    """A worker that runs a test when the scheduler's world says so."""

    def __init__(self, number: int) -> None:
        self.gateway = SimpleNamespace(id=f"gw{number}")
        self.queue: list[int] = []
        self.ran: list[int] = []
        self.asked: list[int] | None = None
        self.shutting_down = False

    def send_runtest_some(self, tests: list[int]) -> None:
        self.queue += tests

    def send_steal(self, tests: list[int]) -> None:
        assert self.asked is None
        self.asked = tests

    def shutdown(self) -> None:
        self.shutting_down = True

    def may_run(self) -> bool:
        """It begins a test when it knows the next one, too, or that none comes."""
        return len(self.queue) > 1 or (bool(self.queue) and self.shutting_down)


def run(tmp_path: Path, workers: int, programs: int, sessions: int, others: int, seed: int) -> list[Worker]:
    """All tests run."""
    dice, count = random.Random(seed), programs + sessions + others
    bounds = tmp_path / f"{seed}"
    bounds.write_text(f"{programs} {programs + sessions}")
    config = SimpleNamespace(getvalue=lambda _: ["popen"] * workers)
    scheduler: Any = FewJvms(cast("pytest.Config", config), None, bounds)
    nodes = [Worker(number) for number in range(workers)]
    for node in nodes:
        scheduler.add_node(node)
    for node in nodes:
        scheduler.add_node_collection(node, [f"test_{number}" for number in range(count)])
    scheduler.schedule()
    while busy := [node for node in nodes if node.may_run() or node.asked is not None]:
        node = dice.choice(busy)
        if node.asked is not None:
            asked, node.asked = node.asked, None
            given = asked if set(asked) <= set(node.queue[1:]) else []
            node.queue = [test for test in node.queue if test not in given]
            scheduler.remove_pending_tests_from_node(node, given)
        else:
            node.ran.append(node.queue.pop(0))
            scheduler.mark_test_complete(node, node.ran[-1])
    assert Counter(test for node in nodes for test in node.ran) == Counter(range(count))
    assert scheduler.tests_finished
    assert all(node.shutting_down for node in nodes)
    return nodes


@pytest.mark.parametrize("workers", range(1, 8))
def test_every_test_runs_once_and_few_workers_start_a_jvm(tmp_path: Path, workers: int) -> None:
    for seed in range(40):
        dice = random.Random(seed)
        programs, sessions, others = (dice.choice([0, 1, 2, dice.randrange(WORTH_A_JVM)]) for _ in range(3))
        nodes = run(tmp_path, workers, programs, sessions, others, seed)
        assert sum(any(test < programs for test in node.ran) for node in nodes) <= 1
        assert sum(any(programs <= test < programs + sessions for test in node.ran) for node in nodes) <= 1


_SLEEP = [sys.executable, "-c", "import time; time.sleep(60)"]


def test_a_detached_grandchild_is_found_and_ended() -> None:
    mark = uuid.uuid4().hex
    starter = f"import subprocess, time; subprocess.Popen({_SLEEP!r}, start_new_session=True)"
    subprocess.run([sys.executable, "-c", starter], check=True, env={**os.environ, processes.MARK: mark})

    [left] = processes.wait_for_end(mark, patience_s=0.0)
    left.kill()
    assert "time.sleep(60)" in left.command
    assert processes.wait_for_end(mark, patience_s=10.0) == []


def test_the_environment_holds_no_setting_of_the_user_and_spark_starts_small() -> None:
    assert os.environ["AWS_ACCESS_KEY_ID"] == "testing"
    assert Path(os.environ["SLUICE_HOME"]).parent.name.startswith("sluice-tests-")
    assert not list(Path(os.environ["SPARK_CONF_DIR"]).glob("*"))
    assert "-Dspark.sql.shuffle.partitions=2" in os.environ["SPARK_SUBMIT_OPTS"].split()


class Case:
    """A test as pytest has collected it, with its markers."""

    def __init__(self, nodeid: str, *markers: str) -> None:
        self.nodeid, self._markers = nodeid, markers

    def get_closest_marker(self, name: str) -> str | None:
        return name if name in self._markers else None


def cases(count: int, *markers: str, of: str = "test_it") -> list[Any]:
    return [Case(f"tests/{of}.py::test[{number}]", *markers) for number in range(count)]


def test_every_run_tries_the_first_and_some_more_of_many_cases() -> None:
    rare, common = cases(2, "many", of="test_rare"), cases(400, "many")
    left = left_for_long([*rare, *common, *cases(100), *cases(100, "many", "long", of="test_long")], costly=True)
    assert rare[0] not in left
    assert common[0] not in left
    assert 250 < len(left) < 350
    assert {case.nodeid.partition("[")[0] for case in left} <= {"tests/test_it.py::test", "tests/test_rare.py::test"}


def test_costly_tests_are_left_out_unless_they_are_wanted() -> None:
    costly = cases(3, "costly")
    assert left_for_long([*costly, *cases(3)], costly=True) == costly
    assert left_for_long(costly, costly=False) == []


def test_so_many_runs_try_all_long_tests_each_of_them_once() -> None:
    tests = cases(1000, "long")
    parts = [list(filter(share_of(f"{part}/16"), tests)) for part in range(1, 17)]
    assert sorted(test.nodeid for part in parts for test in part) == sorted(test.nodeid for test in tests)
    assert all(part for part in parts)


ROOT = Path(__file__).resolve().parent.parent

MAKEFILE = "check:\n\t@true\ntest:\n\t@{python} -m pytest -p no:xdist $(subst -n 0,,$(ARGS)) tests\n"

TESTS = """
from pathlib import Path
import pytest

@pytest.mark.parametrize("number", range({always}))
def test_that_fails(number):
    assert False

@pytest.mark.parametrize("number", range({once}))
def test_that_fails_once(number):
    seen = Path(__file__).with_name(f"seen-{{number}}")
    was_there, _ = seen.exists(), seen.touch()
    assert was_there

def test_that_passes():
    pass
"""


@pytest.mark.costly
@pytest.mark.slow
@pytest.mark.parametrize(
    ("always", "once", "status", "closing"),
    [
        (0, 0, 0, ["1 passed"]),
        (0, 2, 0, ["unsteady: tests/test_it.py::test_that_fails_once[0]", "unsteady: tests/test_it.py::test_that_fails_once[1]",
                   "2 failed, 1 passed", "2 passed"]),
        (1, 1, 1, ["2 failed, 1 passed", "1 failed, 1 passed"]),
        (0, 6, 1, ["6 failed, 1 passed"]),
    ],
    ids=["good", "unsteady", "bad", "too many"],
)  # fmt: skip
def test_what_passes_at_the_second_try_is_named_and_what_does_not_is_red(
    tmp_path: Path, always: int, once: int, status: int, closing: list[str]
) -> None:
    for name, text in {
        "Makefile": MAKEFILE.format(python=sys.executable),
        "pytest.ini": "[pytest]\n",
        "scripts/require-java": "#!/bin/sh\n",
        "bin/spin": "#!/bin/sh\n",
        "tests/test_it.py": TESTS.format(always=always, once=once),
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "run", tmp_path / ".ci" / "run")
    environment = {**os.environ, "PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}", "PYTEST_ARGS": ""}
    ran = subprocess.run([tmp_path / ".ci" / "run"], text=True, capture_output=True, env=environment, check=False)
    assert ran.returncode == status, ran.stdout + ran.stderr
    said = ran.stdout.partition("== summary\n")[2].splitlines()
    assert len(said) == len(closing), ran.stdout
    assert all(part in line for part, line in zip(closing, said, strict=True)), said
