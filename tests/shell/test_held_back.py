"""The shell shows what a program writes during its start only if the start fails, and always what it writes later."""

from __future__ import annotations

import io
import subprocess
import sys
import time

import pytest

from sluice.shell.engines import held_back

PROGRAM = """
import sys
print("first", file=sys.stderr, flush=True)
print("started", flush=True)
sys.stdin.readline()
print("second", file=sys.stderr, flush=True)
"""


def started(stderr: int) -> subprocess.Popen[str]:
    program = subprocess.Popen([sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, text=True)
    assert program.stdout is not None
    assert program.stdout.readline() == "started\n"
    return program


def ended(program: subprocess.Popen[str]) -> None:
    program.communicate("\n", timeout=60)


def test_what_comes_later_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    told = io.StringIO()
    monkeypatch.setattr(sys, "stderr", told)
    with held_back() as stderr:
        program = started(stderr)
    assert told.getvalue() == ""
    ended(program)
    deadline = time.monotonic() + 30
    while "second" not in told.getvalue() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert told.getvalue() == "second\n"


def test_a_failure_tells_what_was_held(monkeypatch: pytest.MonkeyPatch) -> None:
    told = io.StringIO()
    monkeypatch.setattr(sys, "stderr", told)
    programs: list[subprocess.Popen[str]] = []

    def fail() -> None:
        with held_back() as stderr:
            programs.append(started(stderr))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert told.getvalue() == "first\n"
    ended(programs[0])
