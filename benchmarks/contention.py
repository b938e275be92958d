"""What the record of contention costs: a commit that meets nobody, and writers that meet all the time.

``python -m benchmarks.contention --appends 400 --seconds 8`` starts a coordinator and keeps tables on the local disk, so that nothing
hides what the processor does. It appends in turns with sluice as it is, and with a commit path that tells nothing: pairs, in random
order, so that whatever else the machine does concerns both. Then processes update the same rows of one table, in turns with
`SLUICE_CONTENTION=off` and without. One JSON object goes to standard output.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from unittest import mock

import click
import pyarrow as pa

import sluice
from sluice.coordinator.admission import submission
from sluice.coordinator.admission.commit_events import Course, reported
from sluice.coordinator.service.connect import release

from .report import warn_when_busy

__all__ = ["main"]

ROWS: Final = pa.table({"id": list(range(100)), "v": [0] * 100})
_WARM: Final = 20
"""Pairs before those that count."""
WRITER: Final = """
import json, sys, time, sluice
location, coordinator, name = sys.argv[1:4]
table = sluice.Table.open(location, coordinator=coordinator, application=name)
print("opened", flush=True)
deadline = float(sys.stdin.readline())
took, refused = [], 0
while time.monotonic() < deadline:
    began = time.monotonic()
    try:
        table.update({"v": "v + 1"}, "id < 50")
        took.append(time.monotonic() - began)
    except sluice.errors.ConcurrentModification:
        refused += 1
print(json.dumps({"took": took, "refused": refused}), flush=True)
"""


@contextmanager
def _telling_nothing(_changes: object, **_: object) -> Iterator[Course]:
    yield Course()


def _appends(table: sluice.Table, pairs: int) -> dict[str, Any]:
    """Milliseconds of an append with and without, by the clock and of the calling thread's processor time."""
    times: dict[str, dict[bool, list[float]]] = {"clock": {True: [], False: []}, "processor": {True: [], False: []}}
    for number in range(pairs + _WARM):
        for is_on in random.sample([True, False], 2):
            patch: Any = mock.patch.object(submission, "reported", reported if is_on else _telling_nothing)
            with patch:
                began, began_of_thread = time.perf_counter(), time.thread_time()
                table.append(ROWS)
                took = {"processor": time.thread_time() - began_of_thread, "clock": time.perf_counter() - began}
            if number >= _WARM:
                for by, each in took.items():
                    times[by][is_on].append(1000 * each)
    return {"pairs": pairs, **{by: _compared(each[True], each[False]) for by, each in times.items()}}


def _compared(with_it: list[float], without: list[float]) -> dict[str, float]:
    """Medians, and the mean difference of a pair without the tenth that is largest, and that which is smallest, with its standard error."""
    differences = sorted(one - other for one, other in zip(with_it, without, strict=True))
    tenth = len(differences) // 10
    middle = differences[tenth : len(differences) - tenth]
    return {
        "with_ms": round(statistics.median(with_it), 3),
        "without_ms": round(statistics.median(without), 3),
        "difference_ms": round(statistics.mean(middle), 4),
        "standard_error_ms": round(statistics.stdev(middle) / len(middle) ** 0.5, 4),
    }


def _contended(location: str, coordinator: str, writers: int, seconds: float, *, is_on: bool) -> dict[str, float]:
    """Commits and refusals a second of processes that update the same rows."""
    environment = {**os.environ, "SLUICE_CONTENTION": "" if is_on else "off"}
    command = [sys.executable, "-c", WRITER, location, coordinator]
    people = [
        subprocess.Popen([*command, f"writer-{number}"], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for number in range(writers)
    ]
    for each in people:
        assert each.stdout is not None
        each.stdout.readline()
    deadline = time.monotonic() + seconds
    for each in people:
        assert each.stdin is not None
        each.stdin.write(f"{deadline}\n")
        each.stdin.flush()
    answers = [json.loads(each.communicate()[0]) for each in people]
    took = [one for each in answers for one in each["took"]]
    return {
        "commits_per_s": round(len(took) / seconds, 2),
        "refusals_per_s": round(sum(each["refused"] for each in answers) / seconds, 2),
        "p50_ms": round(1000 * statistics.median(took), 1) if took else 0.0,
    }


@click.command(help="Measure what the record of contention costs.")
@click.option("--appends", type=click.IntRange(10), default=400, show_default=True, help="Pairs of appends.")
@click.option("--writers", type=click.IntRange(2, 64), default=4, show_default=True, help="Processes that meet.")
@click.option("--seconds", type=click.FloatRange(0.1), default=8.0, show_default=True, help="How long they write, each time.")
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True, help="How often, with and without.")
def main(appends: int, writers: int, seconds: float, rounds: int) -> None:
    """Run both, and print what they show."""
    warn_when_busy()
    with tempfile.TemporaryDirectory(prefix="sluice-bench-", ignore_cleanup_errors=True) as folder:
        coordinator = f"embedded://{folder}/home"
        table = sluice.Table.create(Path(folder) / "appends", ROWS.schema, coordinator=coordinator)
        figures: dict[str, Any] = {"append": _appends(table, appends), "contended": {"with": [], "without": []}}
        for number in range(rounds):
            for is_on in random.sample([True, False], 2):
                place = Path(folder) / f"contended-{number}-{is_on}"
                made = sluice.Table.create(place, ROWS.schema, coordinator=coordinator)
                made.append(ROWS)
                run = _contended(made.location, coordinator, writers, seconds, is_on=is_on)
                figures["contended"]["with" if is_on else "without"].append(run)
        ranked = sluice.conflicts(coordinator)
        figures["rows"] = sum(each.count for each in ranked)
        figures["seconds_lost"] = round(sum(each.seconds for each in ranked), 1)
        print(json.dumps(figures))
        release(coordinator)


if __name__ == "__main__":
    main()
