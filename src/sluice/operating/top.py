"""A status for people in a terminal: lines and rows, which `sluice status` prints, and a frame, which `sluice top` draws anew."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table as Grid
from rich.text import Text

from .document import Severity, Status, Table
from .judging import STRENGTH

EVERY_S: Final = 2.0
COLUMNS: Final = ("table", "version", "commits/s", "refused", "queue", "oldest", "unpublished", "leases", "limited by")
"""The keys of the rows."""
_STYLES: Final[Mapping[Severity, str]] = {"error": "bold red", "warning": "yellow", "note": "dim"}
_NUMBERS: Final = ("version", "commits/s", "refused", "queue", "unpublished")


def head_of(seen: Status) -> str:
    """One line about the coordinator."""
    coordinator = seen.coordinator
    spare = "unknown" if coordinator.may_stop_before_commits_do is None else coordinator.may_stop_before_commits_do
    write = "no write goes through" if coordinator.write_s is None else f"a write takes {1000 * coordinator.write_s:.0f} ms"
    clients = "" if coordinator.clients is None else f", {sum(coordinator.clients.values())} clients"
    disks = "unknown" if coordinator.may_be_lost_before_data_are is None else coordinator.may_be_lost_before_data_are
    servers = f"servers that may stop: {spare}, that may lose their disks: {disks}"
    return f"{seen.at}  {coordinator.address}: {write}{clients}, {servers}; limited by: {seen.limited_by}"


def messages_of(seen: Status) -> list[tuple[Severity, str]]:
    """What a person should know: two lines of each message."""
    lines: list[tuple[Severity, str]] = []
    for each in seen.messages:
        since = f" (since {each.since})" if each.since else ""
        lines.append((each.severity, f"{each.severity.upper()} {each.name} {each.where}: {each.what}{since}\n  -> {each.remedy}"))
    return lines


def rows_of(tables: Sequence[Table]) -> list[dict[str, object]]:
    """A row for each table: what is wrong first, then what is busy."""
    return [
        {
            "table": each.name or each.location,
            "version": each.version,
            "commits/s": f"{each.commits_per_s:.3f}",
            "refused": each.refused,
            "queue": each.queue.length,
            "oldest": _oldest(each)[1],
            "unpublished": each.publication.versions,
            "leases": f"{each.leases.held}+{each.leases.waiting}" if each.leases.held or each.leases.waiting else "",
            "limited by": "not readable" if each.trouble and not each.log_trouble else each.limited_by,
        }
        for each in sorted(tables, key=_weight)
    ]


def _oldest(table: Table) -> tuple[float, str]:
    """How many seconds the oldest waiter has waited, in the queue or for a lease, and the text that shows it."""
    queued, leases = table.queue.oldest, table.leases
    if leases.waiter is not None and (queued is None or leases.longest_wait_s > queued.waits_s):
        return leases.longest_wait_s, f"{leases.longest_wait_s:.1f} s, {leases.waiter.application}"
    return (0.0, "") if queued is None else (queued.waits_s, f"{queued.waits_s:.1f} s, {queued.application}")


def _weight(table: Table) -> tuple[object, ...]:
    strength, waits_s = STRENGTH.index(table.limited_by), _oldest(table)[0]
    return not table.trouble, strength, -waits_s, -table.refused, -table.commits_per_s, table.name or table.location


def frame_of(seen: Status, height: int) -> Group:
    """A status in so many lines of the screen, and what of it has no room."""
    lines = [Text(head_of(seen), "dim")]
    for severity, text in messages_of(seen)[: max(1, height // 8)]:
        lines.append(Text(text, _STYLES[severity]))
    left_out = len(seen.messages) - len(lines) + 1
    lines += [Text(f"and {left_out} more messages", "dim")] if left_out else []
    rows = rows_of(seen.tables)
    room = max(1, height - 3 - sum(2 for _ in lines) - 2)
    grid = Grid(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for key in COLUMNS:
        grid.add_column(key, justify="right" if key in _NUMBERS else "left", no_wrap=True)
    for row in rows[:room]:
        calm = row["limited by"] == "workload" and not row["refused"]
        grid.add_row(*map(str, row.values()), style="" if calm else "red" if row["limited by"] != "workload" else "yellow")
    rest = [Text(f"and {len(rows) - room} more tables", "dim")] if len(rows) > room else []
    return Group(*lines, Text(), grid, *rest)


def show(look: Callable[[], Status], console: Console, every_s: float = EVERY_S) -> None:
    """Draw a status again and again until the user interrupts; once, if the console is no terminal."""
    if not console.is_terminal:
        console.width = 1_000_000  # nothing is cut
        console.print(frame_of(look(), 1_000_000))
        return
    with suppress(KeyboardInterrupt), Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            began = time.monotonic()
            live.update(frame_of(look(), console.height), refresh=True)
            time.sleep(max(0.0, every_s - (time.monotonic() - began)))
