"""What a crowd costs others: many clients of one application append to a table all the time, and one of another one beside them.

``python -m benchmarks.quotas --clients 500 --slots 16`` starts three ZooKeeper servers, and clients in ten processes, each with a session
of its own. All begin at the same moment. It measures in turns without quotas and with one for each application, counts the rows, and
looks whether the servers are there in the end. One JSON object goes to standard output.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from statistics import median, quantiles
from typing import Any, Final

import click
import pyarrow as pa

import sluice
from sluice.coordinator.nodes.quotas import Quota, set_quota
from sluice.coordinator.service.connect import connect, release
from tests.chaos.ensemble import Ensemble

from .report import warn_when_busy

__all__ = ["main"]

ROWS: Final = pa.table({"id": [0]})
_PROCESSES: Final = 10
_START_S: Final = 300.0
PROGRAM: Final = """
import json, sys, threading, time
import pyarrow as pa, sluice
location, coordinator, application, first, count, pause_s = *sys.argv[1:4], *map(float, sys.argv[4:])
# another time to retry is another address, and so another session
tables = [
    sluice.Table.open(location, coordinator=f"{coordinator}?retry_s={60 + number / 1000}", application=application)
    for number in range(int(first), int(first + count))
]
rows = pa.table({"id": [0]})
for table in tables:
    table.append(rows)
print("opened", flush=True)
begin, end = map(float, sys.stdin.readline().split())
took = [[] for _ in tables]

def work(table, mine):
    time.sleep(max(0.0, begin - time.monotonic()))
    while time.monotonic() < end:
        began = time.monotonic()
        table.append(rows, timeout_s=600)
        mine.append(time.monotonic() - began)
        time.sleep(pause_s)

threads = [threading.Thread(target=work, args=each) for each in zip(tables, took)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(json.dumps(took), flush=True)
"""


def _measure(location: str, coordinator: str, clients: int, seconds: float) -> dict[str, Any]:
    """What the calls of a crowd took, and those of the client beside it."""
    each = -(-clients // _PROCESSES)
    crowd = [("crowd", first, min(each, clients - first), 0.0) for first in range(0, clients, each)]
    with ExitStack() as running:
        programs: list[subprocess.Popen[str]] = []
        for application, first, count, pause_s in (*crowd, ("beside", clients, 1, 0.2)):
            command = [sys.executable, "-c", PROGRAM, location, coordinator, application, str(first), str(count), str(pause_s)]
            program = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            running.callback(program.wait)
            running.callback(program.kill)
            programs.append(program)
        for program in programs:
            assert program.stdout is not None
            assert program.stdout.readline() == "opened\n"
        begin = time.monotonic() + 1.0
        for program in programs:
            print(begin, begin + seconds, file=program.stdin, flush=True)
        *many, [beside] = [json.loads(program.communicate(timeout=seconds + _START_S)[0]) for program in programs]
    by_client = [client for process in many for client in process]
    took = [seconds for client in by_client for seconds in client]
    parts = quantiles(took, n=100)
    return {
        "commits": len(took),
        "p50_s": round(parts[49], 2),
        "p99_s": round(parts[98], 2),
        "longest_s": round(max(took), 2),
        "fewest_of_a_client": min(map(len, by_client)),
        "most_of_a_client": max(map(len, by_client)),
        "beside_p50_s": round(median(beside), 2),
        "beside_longest_s": round(max(beside), 2),
        "rows": len(took) + len(beside) + len(by_client) + 1,
    }


@click.command(help="Measure what many clients of one application cost another one, without quotas and with one.")
@click.option("--clients", type=click.IntRange(10, 2000), default=500, show_default=True, help="Sessions of the crowd.")
@click.option("--slots", type=click.IntRange(1), default=16, show_default=True, help="Of each application.")
@click.option("--seconds", type=click.FloatRange(1.0), default=20.0, show_default=True, help="For how long they append each time.")
@click.option("--turns", type=click.IntRange(1), default=2, show_default=True, help="Measurements of each.")
def main(clients: int, slots: int, seconds: float, turns: int) -> None:
    """Run it."""
    warn_when_busy()
    print(f"{clients} clients in {_PROCESSES} processes, three servers, files on the local disk, {seconds:g} s each", file=sys.stderr)
    results: dict[str, list[dict[str, Any]]] = {"without": [], "with": []}
    with tempfile.TemporaryDirectory(prefix="sluice-quotas-", ignore_cleanup_errors=True) as folder:
        ensemble = Ensemble(Path(folder) / "zookeeper")
        try:
            ensemble.start()
            coordinator = f"zk://{ensemble.hosts}/quotas"
            for turn in range(turns):
                for name, quota in (("without", Quota()), ("with", Quota(slots=slots))):
                    table = sluice.Table.create(Path(folder, f"{name}-{turn}"), ROWS.schema, coordinator=coordinator)
                    if quota.slots or turn:
                        set_quota(connect(coordinator), quota)
                    results[name].append(seen := _measure(table.location, coordinator, clients, seconds))
                    rows = table.refresh().snapshot().to_arrow().num_rows
                    states = sorted(server.state for server in sluice.status(coordinator).coordinator.servers)
                    seen["sound"] = rows == seen.pop("rows") and states == ["follower", "follower", "leader"]
                    print(json.dumps({name: seen}), file=sys.stderr, flush=True)
            release(coordinator)
        finally:
            ensemble.close()
    print(json.dumps(results))
    sys.exit(0 if all(each["sound"] for some in results.values() for each in some) else 1)


if __name__ == "__main__":
    main()
