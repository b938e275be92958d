"""What every job of the demo has: its assignment, the signals of the demo, and a way to report.

A job is a program of its own, started as ``python -m examples.demo.<job> FD``. The first line of its standard input is its
assignment; the line "go" says that all jobs are ready, "finish" that no more rows will come, and the end of the input that
the job should stop. It reports by JSON lines to the file descriptor FD::

    {"event": "ready"}
    {"event": "commit", "rows": 20, "version": 17, "transaction_id": "..", "repeated": false, "ms": 41.3}
    {"event": "conflict", "rule": "..", "message": ".."}
    {"event": "done"}        or      {"event": "error", "message": ".."}
"""

from __future__ import annotations

import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import orjson

from sluice import Commit, Table
from sluice.errors import ConcurrentModification

GO = "go"
FINISH = "finish"

_MESSAGE_MAX = 2000
"""Characters, so that a complete report fits into a pipe's buffer."""


@dataclass(frozen=True, slots=True)
class Input:
    """CSV files to load with one append, and how many rows they have."""

    paths: Sequence[str]
    rows: int


@dataclass(frozen=True, slots=True)
class Assignment:
    """A job's table, name and data."""

    name: str
    location: str
    coordinator: str
    storage_options: Mapping[str, str] = field(default_factory=dict)
    inputs: Sequence[Input] = ()
    rows: int | None = None
    seed: int = 0

    def encode(self) -> bytes:
        """One line of JSON."""
        return orjson.dumps(self) + b"\n"

    @staticmethod
    def decode(line: str) -> Assignment:
        """The reverse of `encode`."""
        body = orjson.loads(line)
        return Assignment(**{**body, "inputs": [Input(**each) for each in body["inputs"]]})


class Job:
    """A running job."""

    def __init__(self, assignment: Assignment, reports: int) -> None:
        self.assignment = assignment
        self.finish = threading.Event()
        """Set when the jobs that add rows are done."""
        self._go = threading.Event()
        self._reports = reports
        threading.Thread(target=self._listen, name="demo-listener", daemon=True).start()

    def open(self) -> Table:
        """The table of this job."""
        to = self.assignment
        return Table.open(to.location, coordinator=to.coordinator, storage_options=to.storage_options, application=to.name)

    def await_start(self) -> None:
        """Report that this job is ready to write, and wait for the others: Spark takes longer to start than a script."""
        self.report("ready")
        self._go.wait()

    def report(self, event: str, **facts: object) -> None:
        """Report to the demo; a line is written at once and completely."""
        os.write(self._reports, orjson.dumps({"event": event, **facts}) + b"\n")

    def commit(self, operation: Callable[[], Commit | None], rows: int = 0) -> Commit | None:
        """Run an operation, and repeat it whenever another commit conflicts; None: there was nothing to do."""
        while True:
            began = time.monotonic()
            try:
                commit = operation()
            except ConcurrentModification as lost:
                self.report("conflict", rule=lost.details.get("rule"), message=lost.message[:_MESSAGE_MAX])
                continue
            if commit is not None:
                self.committed(0 if commit.repeated else rows, began, commit)
            return commit

    def committed(self, rows: int, began: float, commit: Commit | None = None) -> None:
        """Report a commit of `rows` rows whose operation began at `began` (monotonic seconds); Spark does not name the commit."""
        named = {} if commit is None else {"version": commit.version, "transaction_id": commit.transaction_id, "repeated": commit.repeated}
        self.report("commit", rows=rows, ms=round(1000 * (time.monotonic() - began), 1), **named)

    def _listen(self) -> None:
        for line in sys.stdin:
            {GO: self._go, FINISH: self.finish}[line.strip()].set()
        os._exit(1)  # the demo is gone; an operation in progress is committed completely or not at all


def run(work: Callable[[Job], None]) -> None:
    """The body of each job's program: receive the assignment, do the work, report how it ended."""
    job = Job(Assignment.decode(sys.stdin.readline()), int(sys.argv[1]))
    try:
        work(job)
    except Exception as error:  # noqa: BLE001 (whatever it is, the demo must hear of it)
        traceback.print_exc()
        job.report("error", message=f"{type(error).__name__}: {error}"[:_MESSAGE_MAX])
        sys.exit(1)
    job.report("done")
