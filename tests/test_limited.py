"""A run of tests ends, whatever its tests leave behind, and says what hung: tried with small runs."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.limited import LIMIT_STATUS

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not Path("/proc/self").exists(), reason="processes are found in /proc")]

HEAD = """
import os, subprocess, sys, time
from pathlib import Path

def leave_a_child_that_waits():
    child = os.fork()
    if child == 0:
        time.sleep(1000)
    Path(__file__).with_suffix(".child").write_text(str(child))
"""
PASSING = "".join(f"def test_passes_{number}():\n    time.sleep(0.01)\n" for number in range(20))


def run(folder: Path, body: str, *options: str, minutes: float) -> tuple[int, str]:
    """The status and the output of a run of these tests; the output ends when nobody holds its pipe any more."""
    (folder / "test_them.py").write_text(f"{HEAD}\n{body}\n{PASSING}")
    command = [sys.executable, "-m", "tests.limited", "--minutes", str(minutes), "--", sys.executable, "-m", "pytest", "-p"]
    command += ["tests.fixtures.run_report", "-p", "no:cacheprovider", "-q", "-n", "2", "-c", os.devnull, "--rootdir", str(folder)]
    ran = subprocess.run(
        [*command, *options, str(folder)], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120, check=False
    )
    return ran.returncode, ran.stdout


def is_running(file: Path) -> bool:
    """Whether the process lives whose number is in the file; one that nobody waits for may be left as a zombie."""
    status = Path("/proc", file.read_text(), "status")
    return status.exists() and "State:\tZ" not in status.read_text()


@pytest.mark.costly
@pytest.mark.parametrize(
    "scheduler",
    [pytest.param((), id="xdist's", marks=pytest.mark.long), pytest.param(("-p", "tests.conftest", "--dist", "worksteal"), id="ours")],
)
def test_a_run_goes_on_without_a_worker_that_died_though_its_child_lives(tmp_path: Path, scheduler: tuple[str, ...]) -> None:
    body = "def test_hangs():\n    leave_a_child_that_waits()\n    time.sleep(1000)"
    status, output = run(tmp_path, body, *scheduler, "--timeout", "2", "--timeout-method", "thread", minutes=1)
    assert status == 1, output
    assert "20 passed" in output
    assert "test_hangs" in output
    assert "node down" in output
    assert not is_running(tmp_path / "test_them.child")


def test_a_run_beyond_its_limit_says_what_hung_and_leaves_nothing(tmp_path: Path) -> None:
    body = """
def test_hangs():
    leave_a_child_that_waits()
    detached = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"], start_new_session=True)
    Path(__file__).with_suffix(".detached").write_text(str(detached.pid))
    wait_for_ever()

def wait_for_ever():
    time.sleep(1000)
"""
    for minutes in (0.2, 1.0):  # a busy machine needs longer until it hangs
        began = time.monotonic()
        status, output = run(tmp_path, body, minutes=minutes)
        assert time.monotonic() - began < minutes * 60 + 48
        assert status == LIMIT_STATUS
        if "in wait_for_ever" in output:
            break
    assert "test_them.py::test_hangs" in output
    assert "in wait_for_ever" in output
    assert "import time; time.sleep(1000)" in output
    assert not is_running(tmp_path / "test_them.child")
    assert not is_running(tmp_path / "test_them.detached")
