"""Live progress of the jobs, a table in a terminal, occasional lines elsewhere; and the history: transactions and waiting times."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.table import Table as Grid

from sluice import HistoryEntry

from .processes import Report

_LINES_EVERY_S = 5.0
_REFRESHES_PER_S = 5


@dataclass(slots=True)
class Progress:
    """One job's progress: counts, its last version, and how long its last commit took (`last_ms`)."""

    name: str
    task: str
    total_rows: int = 0
    state: str = "starting"
    rows: int = 0
    commits: int = 0
    repeats: int = 0
    conflicts: int = 0
    version: int | None = None
    last_ms: float = 0.0
    transactions: list[str] = field(default_factory=list)
    """The ids of its acknowledged transactions."""

    def take(self, report: Report) -> None:
        """Count a report."""
        facts = report.facts
        if report.event == "ready":
            self.state = "ready"
        elif report.event == "done":
            self.state = "done"
        elif report.event == "error":
            self.state = "failed"
        elif report.event == "conflict":
            self.conflicts += 1
        elif report.event == "commit":
            self.state = "writing"
            self.last_ms = facts["ms"]
            if facts.get("repeated"):
                self.repeats += 1
                return
            self.rows += facts["rows"]
            self.commits += 1
            self.version = facts.get("version", self.version)
            if "transaction_id" in facts:
                self.transactions.append(facts["transaction_id"])

    def __str__(self) -> str:
        rows = f"{self.rows:,} of {self.total_rows:,} rows, " if self.total_rows else ""
        counts = f"{rows}{self.commits:,} commits, {self.conflicts:,} conflicts repeated"
        return f"{self.name}: {self.state}, {counts}, last wait {self.last_ms:,.0f} ms"


class Board:
    """The progress of all jobs, shown during the context."""

    def __init__(self, console: Console, jobs: Sequence[Progress]) -> None:
        self.jobs = {job.name: job for job in jobs}
        self._console = console
        self._began = time.monotonic()
        self._told_at = self._began
        self._changed: set[str] = set()
        self._live = Live(console=console, auto_refresh=False, get_renderable=self._grid) if console.is_terminal else None
        self._drawn_at = 0.0

    def take(self, report: Report) -> None:
        """Record a report, and show it soon."""
        self.jobs[report.name].take(report)
        self._changed.add(report.name)

    def show(self, *, at_once: bool = False) -> None:
        """Update the display if it is due."""
        now = time.monotonic()
        if self._live is not None:
            if at_once or now - self._drawn_at >= 1 / _REFRESHES_PER_S:
                self._drawn_at = now
                self._live.refresh()
        elif at_once or now - self._told_at >= _LINES_EVERY_S:
            self._told_at = now
            for name in (name for name in self.jobs if name in self._changed):
                self._console.print(f"{now - self._began:6.1f} s  {self.jobs[name]}", highlight=False, soft_wrap=True)
            self._changed.clear()

    def _grid(self) -> Grid:
        grid = Grid(title=f"one table, six processes, {time.monotonic() - self._began:.0f} s", title_justify="left")
        grid.add_column("job")
        grid.add_column("does")
        grid.add_column("state")
        for name in ("rows", "commits", "conflicts repeated", "version", "last wait"):
            grid.add_column(name, justify="right")
        for job in self.jobs.values():
            rows = f"{job.rows:,} / {job.total_rows:,}" if job.total_rows else ""
            version = "" if job.version is None else str(job.version)
            wait = f"{job.last_ms:,.0f} ms" if job.commits else ""
            grid.add_row(job.name, job.task, job.state, rows, f"{job.commits:,}", f"{job.conflicts:,}", version, wait)
        return grid

    def __enter__(self) -> Board:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.show(at_once=True)
        if self._live is not None:
            self._live.stop()


def history_grid(history: Iterable[HistoryEntry], conflicts: Mapping[str, int]) -> Grid:
    """One line for each application.

    "rebased" are transactions that were adapted to concurrent commits; `conflicts` counts those each had to repeat: refused
    transactions leave no trace in the log.
    """
    by_application: defaultdict[str, list[HistoryEntry]] = defaultdict(list)
    for entry in history:
        by_application[entry.application].append(entry)
    grid = Grid(title="who did what, and how long each waited from its place in the queue to the decision", title_justify="left")
    grid.add_column("application")
    grid.add_column("did")
    for name in ("transactions", "in versions", "p50", "longest wait", "rebased", "conflicts repeated"):
        grid.add_column(name, justify="right")
    for application, entries in sorted(by_application.items()):
        waits = [entry.waited_ms for entry in entries if entry.waited_ms is not None]
        did = ", ".join(f"{times:,} {operation}" for operation, times in sorted(Counter(e.operation for e in entries).items()))
        grid.add_row(
            application,
            did,
            f"{len(entries):,}",
            f"{len({entry.version for entry in entries}):,}",
            f"{median(waits):,.0f} ms" if waits else "",
            f"{max(waits):,} ms" if waits else "",
            f"{sum(bool(entry.rebased) for entry in entries):,}",
            f"{conflicts.get(application, 0):,}",
        )
    return grid
