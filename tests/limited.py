"""Runs a command, such as pytest, with a limit of time for all of it; then says what hung, and ends everything the command started.

    python -m tests.limited --minutes 25 -- python -m pytest ...

pytest-timeout ends a worker whose test takes too long. A process that the test left behind may still hold the pipes of the run, or a
server may never answer: then only somebody outside the run can end it. `tests/fixtures/run_report.py` writes for each process of pytest
which test it runs, and lets it write its stacks when it gets a signal.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path

from tests import processes
from tests.fixtures.run_report import FOLDER, STACKS_SIGNAL

__all__ = ["LIMIT_STATUS", "RUN", "main"]

RUN = "LIMITED_TEST_RUN"
"""In the environment of whatever the command starts, however far it detaches itself."""
LIMIT_STATUS = 124
"""The exit status after the limit, as `timeout` has it."""
_STACKS_S = 5.0
_INTERRUPTED_S = 60.0


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns its status, or LIMIT_STATUS."""
    parser = argparse.ArgumentParser(prog="python -m tests.limited", description="run a command with a limit of time")
    parser.add_argument("--minutes", type=float, required=True, help="0: without a limit")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    given = parser.parse_args(arguments)
    command = given.command[1:] if given.command[:1] == ["--"] else given.command
    run = uuid.uuid4().hex
    with tempfile.TemporaryDirectory(prefix="sluice-run-") as folder:
        process = subprocess.Popen(command, env={**os.environ, RUN: run, FOLDER: folder})
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
        try:
            return process.wait(given.minutes * 60 or None)
        except KeyboardInterrupt:  # pytest has it too, and says what it did so far
            return process.wait(_INTERRUPTED_S)
        except subprocess.TimeoutExpired:
            _say(f"the run took longer than {given.minutes:g} minutes, and is ended. Running were:\n{_running(Path(folder), run)}")
            return LIMIT_STATUS
        finally:
            _end_all(process, run)


def _running(folder: Path, run: str) -> str:
    """The tests that run, the stacks of the processes that run them, and all other processes."""
    for each in processes.marked(run, RUN):
        if processes.catches(each.pid, STACKS_SIGNAL):
            os.kill(each.pid, STACKS_SIGNAL)
    time.sleep(_STACKS_S)
    parts = [f"== {each.stem}: {each.read_text(errors='replace')}" for each in sorted(folder.glob("*.test"))]
    parts += [f"== stacks of {each.stem}\n{each.read_text(errors='replace')}" for each in sorted(folder.glob("*.stacks"))]
    parts += [f"process {each.pid}: {each.command}" for each in processes.marked(run, RUN)]
    return "\n".join(parts)


def _end_all(process: subprocess.Popen[bytes], run: str) -> None:
    """End the command and everything that it started, also what nobody waits for any more."""
    if process.poll() is None:
        process.kill()
    process.wait()
    while left := processes.marked(run, RUN):
        for each in left:
            each.kill()
        time.sleep(0.05)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
