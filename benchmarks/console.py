"""What `sluice console` costs: its own processor time, and what writers lose to it.

``python -m benchmarks.console`` makes 300 tables on this disk and an embedded ZooKeeper, and lets writers commit 100 times a second to 30
of them. In turns nobody watches, and a page watches all tables and one of the busy ones. Standard output is one JSON object, with the
numbers of both kinds of turns; everything else goes to standard error.
"""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import pyarrow as pa

import sluice

from .report import percentile, warn_when_busy

__all__ = ["main"]

_ROWS = pa.table({"id": [1, 2, 3], "note": ["a", "b", "c"]})
_SETTLED_S = 75.0
"""A table is quiet when nothing has happened to it for a minute, the window of a status."""
_WRITER = """
import json, sys, time
import pyarrow as pa, sluice
coordinator, per_s, *locations = sys.argv[1:]
tables = [sluice.Table.open(each, coordinator=coordinator, application="bench") for each in locations]
rows = pa.table({"id": [1, 2, 3], "note": ["a", "b", "c"]})
for table in tables:
    table.append(rows)
print("ready", flush=True)
sys.stdin.readline()
number, begun = 0, time.monotonic()
while True:
    due = begun + number / float(per_s)
    time.sleep(max(0.0, due - time.monotonic()))
    started = time.monotonic()
    tables[number % len(tables)].append(rows)
    print(json.dumps([started, time.monotonic()]), flush=True)
    number += 1
"""


@contextmanager
def _writers(coordinator: str, locations: list[str], count: int, rate: float) -> Iterator[list[tuple[float, float]]]:
    """Processes that commit at a rate, in all; yields the begin and end of each commit so far."""
    commits: list[tuple[float, float]] = []
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", _WRITER, coordinator, str(rate / count), *locations[number::count]],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(count)
    ]

    def hear(process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            begin, end = json.loads(line)
            commits.append((begin, end))

    try:
        for each in processes:
            assert each.stdout is not None
            assert each.stdout.readline() == "ready\n"
        for each in processes:
            assert each.stdin is not None
            print(file=each.stdin, flush=True)
            threading.Thread(target=hear, args=(each,), daemon=True).start()
        yield commits
    finally:
        for each in processes:
            each.kill()
            each.wait()


class _Page:
    """What a browser does with a table's page open: it hears the events, and reads the table every other second."""

    def __init__(self, port: int, location: str) -> None:
        self.documents = 0
        self.bytes = 0
        self._over = threading.Event()
        self._port, self._location = port, location
        self._threads = [threading.Thread(target=each) for each in (self._hear, self._read)]
        for each in self._threads:
            each.start()

    def close(self) -> None:
        self._over.set()
        for each in self._threads:
            each.join()

    def _hear(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        connection.request("GET", "/api/events")
        answer = connection.getresponse()
        while not self._over.is_set():
            line = answer.readline()
            self.documents += line.startswith(b"data: {")
            self.bytes += len(line)
        connection.close()

    def _read(self) -> None:
        while not self._over.wait(2):
            connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
            connection.request("GET", f"/api/table?location={urllib.parse.quote(self._location, safe='')}")
            self.bytes += len(connection.getresponse().read())
            connection.close()


def _cpu_s(pid: int) -> float:
    """The processor time of a process so far, all threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _turn(commits: list[tuple[float, float]], seconds: float, pid: int) -> dict[str, float]:
    begin, cpu_s = time.monotonic(), _cpu_s(pid)
    time.sleep(seconds)
    end, cpu_s = time.monotonic(), _cpu_s(pid) - cpu_s
    took = sorted(1000 * (done - begun) for begun, done in list(commits) if begin <= done < end)
    return {"commits": len(took), "seconds": end - begin, "cpu_s": cpu_s, "p50_ms": percentile(took, 0.5), "p99_ms": percentile(took, 0.99)}


def _sum(turns: list[dict[str, float]]) -> dict[str, Any]:
    seconds = sum(each["seconds"] for each in turns)
    return {
        "commits_per_s": round(sum(each["commits"] for each in turns) / seconds, 2),
        "console_cpu_percent": round(100 * sum(each["cpu_s"] for each in turns) / seconds, 2),
        "commits": [each["commits"] for each in turns],
        "p50_ms": [each["p50_ms"] for each in turns],
        "p99_ms": [each["p99_ms"] for each in turns],
    }


@click.command(help="Measure what the console costs itself, and the writers beside it.")
@click.option("--tables", type=click.IntRange(1), default=300, show_default=True, help="Tables of the coordinator.")
@click.option("--busy", type=click.IntRange(1), default=30, show_default=True, help="How many of them are written.")
@click.option("--writers", type=click.IntRange(1), default=3, show_default=True, help="Writer processes.")
@click.option("--rate", type=click.FloatRange(0.1), default=100.0, show_default=True, help="Commits per second that they try, in all.")
@click.option("--seconds", type=click.FloatRange(1), default=15.0, show_default=True, help="Seconds of a turn.")
@click.option("--turns", type=click.IntRange(1), default=3, show_default=True, help="Turns of each kind.")
def main(tables: int, busy: int, writers: int, rate: float, seconds: float, turns: int) -> None:
    """Make the tables, let writers write, and watch in turns."""
    warn_when_busy()
    with tempfile.TemporaryDirectory(prefix="sluice-bench-", ignore_cleanup_errors=True) as folder:
        os.environ["SLUICE_HOME"] = str(Path(folder) / "home")
        coordinator = f"embedded://{folder}/zookeeper"
        print(f"making {tables} tables", file=sys.stderr)
        made = [sluice.Table.create(f"{folder}/tables/t{n:04}", _ROWS.schema, coordinator=coordinator) for n in range(tables)]
        locations = [each.location for each in made]
        command = [sys.executable, "-m", "sluice", "console", "--coordinator", coordinator, "--port", "0", "--json"]
        with (
            subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as console,
            _writers(coordinator, locations[:busy], writers, rate) as commits,
        ):
            assert console.stdout is not None
            port = int(json.loads("".join(console.stdout.readline() for _ in range(3)))["url"].rpartition(":")[2].strip("/"))
            alone: list[dict[str, float]] = []
            watched: list[dict[str, float]] = []
            documents = 0
            page = _Page(port, locations[0])
            print(f"waiting for {_SETTLED_S:.0f} s, so that the making of the tables counts no more", file=sys.stderr)
            time.sleep(_SETTLED_S)
            page.close()
            for n in range(turns):
                print(f"turn {n + 1} of {turns}: without, then with a page", file=sys.stderr)
                alone.append(_turn(commits, seconds, console.pid))
                page = _Page(port, locations[0])
                time.sleep(3)
                watched.append(_turn(commits, seconds, console.pid))
                page.close()
                documents += page.documents
            console.terminate()
        facts = {
            "tables": tables,
            "busy": busy,
            "writers": writers,
            "rate": rate,
            "documents_per_s": round(documents / (turns * (seconds + 3)), 2),
        }
        print(json.dumps({**facts, "without": _sum(alone), "with": _sum(watched)}))


if __name__ == "__main__":
    main()
