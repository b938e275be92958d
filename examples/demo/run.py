"""The demo: three bulk loaders, a stream of small appends, a corrections job and a deleting one, on one table at once.

::

    load-EWR  load-JFK  load-LGA   Spark applications, one per airport: several appends each  ---+
    stream                         small appends, each idempotent                             ---+--> finish: corrections
    corrections                    re-reads and overwrites single partitions                          --> finish: cancellations
    cancellations                  deletes cancelled flights

All six write at the same time, each in its own process, once all are ready. When no more rows come, the corrections job
ends its last round, then the remaining cancelled flights are deleted. Finally two concurrent transactions each delete one
half of an airline's flights, in the same files; and the table is compared with the CSV file. In addition, seats become
bookings in transactions over two tables, while a reader counts both; and the seats are counted under a lease while bookings
wait.
"""

from __future__ import annotations

import os
import queue
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

import pyarrow as pa
from rich.console import Console

from sluice import Commit, Table

from .bookings import book
from .engines import require_engines
from .flights import AIRPORTS, PARTITION_BY, PROPERTIES, SCHEMA, STREAM, WITHDRAWN, loader, read_flights, split, stream_flights
from .inventory import take_inventory
from .job import Assignment, Input
from .jobs import CANCELLATIONS, CORRECTIONS
from .processes import JobFailed, JobProcess, Report
from .progress import Board, Progress, history_grid
from .proof import Evidence, prove
from .workspace import DemoOptions, Workspace, watched, workspace

_LOADERS = tuple(loader(airport) for airport in AIRPORTS)
_MONTHS_PER_APPEND = 2
_CHECKPOINT_INTERVAL = "20"
_POLL_S = 0.1


def run_demo(options: DemoOptions, console: Console) -> bool:
    """Run it, reporting to `console`; returns whether everything was proved. The last line begins "demo: ok" or "demo: FAILED"."""
    began = time.monotonic()
    require_engines()
    with _ended_in_order():
        try:
            with workspace(options) as place, watched(options, place, console):
                summary = _run(options, place, console)
        except JobFailed as failed:
            console.print(failed.details, markup=False, highlight=False, soft_wrap=True)
            console.print(f"demo: FAILED: {failed}", markup=False, highlight=False, soft_wrap=True)
            return False
    ok = summary.startswith("ok")
    console.print(f"demo: {summary}, {time.monotonic() - began:.0f} s", markup=False, highlight=False, soft_wrap=True)
    return ok


def _run(options: DemoOptions, place: Workspace, console: Console) -> str:
    with _create(place) as table:
        console.print(f"table {table.location}, coordinator {place.coordinator}", highlight=False, soft_wrap=True)
        jobs = _assignments(options, place)
        board = Board(console, [Progress(each.name, _task(each.name, options), _rows(each, options)) for _, each in jobs])
        _work(jobs, place, board, time_limit_s=options.time_limit_s)
        evidence = _evidence(options, place, table, board, withdraw(place))
        failed = []
        for finding in (*prove(evidence), book(place), take_inventory(place)):
            mark = "[green]✓[/]" if finding.holds else "[red]✗[/]"
            console.print(mark, f"{finding.statement}: {finding.detail}", highlight=False, soft_wrap=True)
            failed += [] if finding.holds else [finding.statement]
        console.print(history_grid(evidence.history, {name: job.conflicts for name, job in board.jobs.items()}))
        if options.keep:
            console.print(f"kept: {table.location}, and {place.folder}", highlight=False, soft_wrap=True)
        if failed:
            return f"FAILED: it does not hold that {'; nor that '.join(failed)}"
        without = "" if options.spark else " (without Spark)"
        return f"ok: {len(evidence.rows):,} rows, {table.version + 1:,} versions, {len(evidence.history):,} transactions{without}"


def _evidence(options: DemoOptions, place: Workspace, table: Table, board: Board, withdrawals: Sequence[Commit]) -> Evidence:
    return Evidence(
        table,
        place.storage_options,
        read_flights(options.rows, seed=options.seed),
        acknowledged=[
            *(name for job in board.jobs.values() for name in job.transactions),
            *(each.transaction_id for each in withdrawals),
        ],
        withdrawals=[each.transaction_id for each in withdrawals],
        repeats=sum(job.repeats for job in board.jobs.values()),
        appends={name: board.jobs[name].commits for name in _LOADERS} if options.spark else {},
    )


def _create(place: Workspace) -> Table:
    return Table.create(
        place.location,
        SCHEMA,
        partition_by=PARTITION_BY,
        properties={**PROPERTIES, "delta.checkpointInterval": _CHECKPOINT_INTERVAL},
        coordinator=place.coordinator,
        storage_options=place.storage_options,
        application="demo",
    )


def _assignments(options: DemoOptions, place: Workspace) -> list[tuple[str, Assignment]]:
    """The jobs: each one's program and assignment."""
    files = list(split(read_flights(options.rows, seed=options.seed, typed=False), place.folder))

    def assignment(name: str, inputs: Sequence[Input] = ()) -> Assignment:
        return Assignment(name, place.location, place.coordinator, place.storage_options, inputs, options.rows, options.seed)

    jobs = []
    for airport in AIRPORTS:
        of_airport = [file for file in files if file.airport == airport]
        groups = [of_airport[n : n + _MONTHS_PER_APPEND] for n in range(0, len(of_airport), _MONTHS_PER_APPEND)]
        inputs = [Input([str(file.path) for file in group], sum(file.rows for file in group)) for group in groups]
        jobs.append(("spark_load" if options.spark else "jobs", assignment(loader(airport), inputs)))
    return [*jobs, *(("jobs", assignment(name)) for name in (STREAM, CORRECTIONS, CANCELLATIONS))]


def _task(name: str, options: DemoOptions) -> str:
    engine = "Spark" if options.spark else "Python, in place of Spark"
    return {
        STREAM: "appends a few flights at a time",
        CORRECTIONS: "re-reads and overwrites partitions",
        CANCELLATIONS: "deletes cancelled flights",
    }.get(name, f"loads an airport by {engine}")


def _rows(assignment: Assignment, options: DemoOptions) -> int:
    if assignment.name == STREAM:
        return len(stream_flights(read_flights(options.rows, seed=options.seed)))
    return sum(each.rows for each in assignment.inputs)


def _work(jobs: Sequence[tuple[str, Assignment]], place: Workspace, board: Board, *, time_limit_s: float) -> None:
    """Start all jobs, and receive reports until the last has ended. Raises JobFailed."""
    reports: queue.SimpleQueue[Report] = queue.SimpleQueue()
    deadline = time.monotonic() + time_limit_s
    running: dict[str, JobProcess] = {}
    try:
        for program, each in jobs:
            log = place.folder / f"{each.name}.log"
            running[each.name] = JobProcess(program, each, log=log, env=place.env, reports=reports)
        with board:
            awaited = set(running)
            while awaited:
                if time.monotonic() > deadline:
                    raise JobFailed(f"{', '.join(sorted(awaited))} did not end within {time_limit_s:.0f} s; see --time-limit")
                board.show()
                try:
                    report = reports.get(timeout=_POLL_S)
                except queue.Empty:
                    continue
                _hear(report, board, running, awaited)
    finally:
        for process in running.values():
            process.end()


def _hear(report: Report, board: Board, running: dict[str, JobProcess], awaited: set[str]) -> None:
    if report.event == "error":
        message = str(report.facts["message"])
        raise JobFailed(f"{report.name}: {message.splitlines()[0]}", f"{message}\n{running[report.name].last_words()}")
    if report.event != "ended":
        board.take(report)
        if report.event == "ready" and all(job.state == "ready" for job in board.jobs.values()):
            for process in running.values():
                process.go()
        return
    running[report.name].succeeded()
    awaited.discard(report.name)
    if awaited == {CORRECTIONS, CANCELLATIONS}:
        running[CORRECTIONS].finish()
    elif awaited == {CANCELLATIONS}:
        running[CANCELLATIONS].finish()


@contextmanager
def _ended_in_order() -> Iterator[None]:
    """Let a termination signal unwind the stack, so that nothing is left behind."""

    def leave(number: int, _frame: object) -> None:
        sys.exit(128 + number)

    pa.enable_signal_handlers(False)  # while Arrow reads CSV, its own handlers may lose a signal
    former = signal.signal(signal.SIGTERM, leave)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, former)


APPLICATION = "withdrawals"


def withdraw(place: Workspace) -> list[Commit]:
    """Begin both transactions on one version, let each delete its rows, and commit them concurrently."""
    with ExitStack() as opened:
        tables = [opened.enter_context(_open(place)) for _ in WITHDRAWN]
        version = tables[0].version
        begun = [table.begin(read_version=version) for table in tables]
        for transaction, where in zip(begun, WITHDRAWN, strict=True):
            transaction.delete(where)
        with ThreadPoolExecutor(len(begun)) as pool:
            commits = list(pool.map(lambda transaction: transaction.commit(), begun))
    return [commit for commit in commits if commit is not None]


def _open(place: Workspace) -> Table:
    return Table.open(place.location, coordinator=place.coordinator, storage_options=place.storage_options, application=APPLICATION)
