"""Prints the history: each application's transactions and waiting times."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from statistics import median

from rich.table import Table as Grid

from ..tables.read.history import HistoryEntry


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
