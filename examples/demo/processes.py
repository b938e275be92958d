"""The demo's side of its jobs: starts them, receives their reports, and ends them."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from .job import FINISH, GO, Assignment

_END_LIMIT_S = 5.0
_LOG_TAIL_LINES = 15


class JobFailed(Exception):
    """Raised when a job failed; one line says which one and why, `details` is the end of its output."""

    def __init__(self, message: str, details: str = "") -> None:
        super().__init__(message)
        self.details = details


@dataclass(frozen=True, slots=True)
class Report:
    """A job's report; `event` as in `job.py`, or "ended" when its process is gone."""

    name: str
    event: str
    facts: Mapping[str, Any] = field(default_factory=dict)


class JobProcess:
    """One job in a process (and process group) of its own, which Ctrl-C in a terminal does not reach."""

    def __init__(
        self, program: str, assignment: Assignment, *, log: Path, env: Mapping[str, str], reports: queue.SimpleQueue[Report]
    ) -> None:
        self.name = assignment.name
        self.log = log
        receive, send = os.pipe()
        source = str(Path(__file__).resolve().parents[2])
        path = os.pathsep.join(filter(None, [source, os.environ.get("PYTHONPATH")]))
        environment = {**os.environ, **env, "PYTHONPATH": path, "SLUICE_APPLICATION": self.name, "PYSPARK_PYTHON": sys.executable}
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", f"{__package__}.{program}", str(send)],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                pass_fds=[send],
                env=environment,
                start_new_session=True,
            )
        os.close(send)
        self._tell(assignment.encode())
        self._listener = threading.Thread(target=self._listen, args=(receive, reports), name=f"demo-{self.name}", daemon=True)
        self._listener.start()

    def go(self) -> None:
        """Signal that all jobs are ready."""
        self._tell(f"{GO}\n".encode())

    def finish(self) -> None:
        """Signal that the jobs before it are done."""
        self._tell(f"{FINISH}\n".encode())

    def succeeded(self) -> None:
        """Raise JobFailed unless the process ended with success."""
        status = self._process.wait(_END_LIMIT_S)
        if status:
            raise JobFailed(f"{self.name} ended with status {status}", self.last_words())

    def last_words(self) -> str:
        """The end of its log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-_LOG_TAIL_LINES:])

    def end(self) -> None:
        """End it and everything it started, whatever its state."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        for kill in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, kill)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_END_LIMIT_S)
                break
        self._listener.join(_END_LIMIT_S)

    def _tell(self, line: bytes) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended, which its listener reports
            self._process.stdin.write(line)
            self._process.stdin.flush()

    def _listen(self, receive: int, reports: queue.SimpleQueue[Report]) -> None:
        with open(receive, "rb") as lines:
            for line in lines:
                facts = orjson.loads(line)
                reports.put(Report(self.name, facts.pop("event"), facts))
        reports.put(Report(self.name, "ended"))
