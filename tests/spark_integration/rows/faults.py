"""Faults at the steps of a MERGE: each step is passed in the driver or in a task.

A file beside the table says what shall happen, so that every process finds it; it happens once. `kill PID` kills a process, `kill 0`
the one that passes, `kill executor` the JVM of the executor whose task passes; `away` takes the table's folder away: a file takes its
place, until `come_back`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from sluice.coordinator.publication import failure_points
from sluice.spark_integration import writing
from sluice.spark_integration.rows import merge
from sluice.spark_integration.rows.writer import RowTask, TaskResult
from sluice.storage.actions import AddFile
from sluice.tables.write.data_writing import WritePlan

IN_TASKS = ("task-begins", "task-ends")
IN_COPYING_TASKS = ("copy-begins", "copy-ends")
"""Passed where Python tasks copy remaining rows, so without deletion vectors only."""
STAGED = ("copies-staged",)
"""Passed where Spark's own writer has written these copies beside the table's files."""
IN_DRIVER = ("source-kept", "keys-gathered", "results-taken", "inserted", "applied")
_AWAY_S = 2.0


def plan(location: str, step: str, what: str) -> None:
    """Have this happen when somebody passes the step."""
    _order(location).write_text(f"{step} {what}", encoding="utf-8")


def passed(location: str) -> bool:
    """Whether it happened."""
    return not _order(location).exists()


def forget(location: str) -> None:
    """Let nothing happen any more."""
    _order(location).unlink(missing_ok=True)


def come_back(location: str) -> None:
    """Put the folder back that went away."""
    folder, away = Path(location), Path(f"{location}.away")
    if away.exists():
        folder.unlink()
        away.rename(folder)


def step(location: str, name: str) -> None:
    """Pass a step."""
    order = _order(location)
    with contextlib.suppress(FileNotFoundError):
        wanted, _, what = order.read_text(encoding="utf-8").partition(" ")
        if wanted == name:
            order.rename(f"{order}.done").unlink()  # of several that pass, one gets here
            _happens(location, what)


def _order(location: str) -> Path:
    if location.startswith("s3:"):
        return Path(tempfile.gettempdir(), f"{location.replace('/', '_')}.fault")
    return Path(f"{location.removeprefix('file:')}.fault")


def _happens(location: str, what: str) -> None:
    folder = location.removeprefix("file:")
    if what == "away":
        Path(folder).rename(f"{folder}.away")
        Path(folder).touch()
        return
    victim = what.removeprefix("kill ")
    os.kill(_executor() if victim == "executor" else int(victim) or os.getpid(), signal.SIGKILL)
    time.sleep(_AWAY_S)  # the other one is dead before this one goes on


def _executor() -> int:
    """The executor of this task: a process above this one."""
    process = os.getppid()
    while process > 1:
        told = subprocess.run(["ps", "-o", "ppid=,command=", "-p", str(process)], capture_output=True, text=True, check=True).stdout
        if "CoarseGrainedExecutorBackend" in told:
            return process
        process = int(told.split()[0])
    raise AssertionError("this task runs in no executor of its own")


class FaultyTask(RowTask):
    """What a task does, with steps to pass."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> TaskResult:
        location = self.plan.address.location
        step(location, "task-begins")
        result = super().__call__(batches)
        step(location, "task-ends")
        return result


def patches(location: str) -> list[tuple[Any, str, Any]]:
    """What to replace, in modules and classes, so that the steps are passed: (owner, name, new value)."""

    def after(owner: Any, name: str, passing: str) -> tuple[Any, str, Any]:
        real: Callable[..., Any] = getattr(owner, name)

        def wrapped(*arguments: Any, **named: Any) -> Any:
            result = real(*arguments, **named)
            step(location, passing)
            return result

        return owner, name, wrapped

    def taken(frame: DataFrame, task: RowTask) -> list[TaskResult]:
        done = real_results_of(frame, task)
        if not task.label.endswith("i"):
            step(location, "results-taken")
        return done

    def results_of(frame: DataFrame, task: Callable[[Iterator[pa.RecordBatch]], Any]) -> list[Any]:
        def faulty(batches: Iterator[pa.RecordBatch]) -> Any:
            step(location, "copy-begins")
            result = task(batches)
            step(location, "copy-ends")
            return result

        return real_results_of(frame, faulty)

    real_results_of: Callable[..., list[Any]] = writing.results_of
    written_by_spark = writing.written_by_spark

    def copied(rows: DataFrame, plan: WritePlan, label: str) -> tuple[AddFile, ...] | str:
        with contextlib.suppress(FileNotFoundError):
            if _order(location).read_text(encoding="utf-8").partition(" ")[0] in IN_COPYING_TASKS:
                return "the fault is in a task that copies"
        return written_by_spark(rows, plan, label)

    return [
        (merge, "RowTask", FaultyTask),
        (writing, "results_of", results_of),
        (merge, "results_of", taken),
        after(merge, "_inserted", "inserted"),
        (writing, "written_by_spark", copied),
        after(writing, "_write", "copies-staged"),
        after(merge, "cached", "source-kept"),
        after(merge, "key_values", "keys-gathered"),
        after(merge, "_apply", "applied"),
        *points(lambda name: step(location, name)),
    ]


def points(pass_point: Callable[[str], None]) -> list[tuple[Any, str, Any]]:
    """What to replace so that this is called at each point of a commit: (module, name, function)."""
    real = failure_points.point
    return [(module, "point", pass_point) for module in list(sys.modules.values()) if getattr(module, "point", None) is real]


def put_in(replaced: Sequence[tuple[Any, str, Any]]) -> None:
    """Replace for as long as the process lives."""
    for owner, name, value in replaced:
        setattr(owner, name, value)
