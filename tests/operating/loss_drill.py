"""`make drill TABLES=300`: an ensemble is lost with all its data, a new one takes its place, and every table goes on.

Three real servers, tables with names, writers that go on while the backup is made. Then the servers are killed, their data are deleted,
empty ones start at the same addresses, and `sluice tree restore` runs; with `--kill` it is killed on the way, and runs again. At the end
each table has its name and every acknowledged row, and is written again. The last line is one JSON object; the exit status is 1 if
anything is missing.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

import pyarrow as pa

import sluice
from tests.chaos.ensemble import Ensemble

__all__ = ["Result", "drill"]

_AT_ONCE = 8
_WRITERS = 4


@dataclass(frozen=True, slots=True)
class Result:
    """What a drill took, in seconds, and what was found wrong after it."""

    tables: int
    commits: int
    backup_s: float
    backup_bytes: int
    restore_s: float
    check_s: float
    wrong: tuple[str, ...]


def drill(folder: Path, tables: int, servers: int = 3, kill_after_s: float | None = None) -> Result:
    """Do it in an empty folder."""
    ensemble = Ensemble(folder / "servers", servers=servers)
    try:
        ensemble.start()
        return _drill(folder, ensemble, tables, kill_after_s)
    finally:
        ensemble.close()


def _drill(folder: Path, ensemble: Ensemble, tables: int, kill_after_s: float | None) -> Result:
    coordinator = f"zk://{ensemble.hosts}/sluice?retry_s=20&connect_timeout_s=20"
    catalog = sluice.Catalog(coordinator, root=folder / "lake")
    catalog.create_namespace("shop", comment="what is sold")
    names = [f"shop.t{number}" for number in range(tables)]

    def create(name: str) -> int:
        made = catalog.create(name, pa.schema([("id", pa.int64())]))
        made.append(pa.table({"id": [0]}))
        return made.version

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        list(pool.map(create, names))
    _say(f"{tables} tables are there")
    stop, acknowledged = threading.Event(), dict.fromkeys(names, 1)
    writers = [threading.Thread(target=_write, args=(catalog, names[n::_WRITERS], acknowledged, stop)) for n in range(_WRITERS)]
    for each in writers:
        each.start()
    began = time.monotonic()
    backup = sluice.backup_tree(folder / "backup", coordinator=coordinator)
    backup_s = time.monotonic() - began
    time.sleep(2)  # the logs go on
    stop.set()
    for each in writers:
        each.join()
    _lose(folder, ensemble)
    _say("the ensemble is lost, and a new one serves")
    began = time.monotonic()
    command = [sys.executable, "-m", "sluice", "tree", "restore", str(folder / "backup"), "--coordinator", coordinator, "--wait-s", "0"]
    if kill_after_s is not None:
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as killed:
            time.sleep(kill_after_s)
            killed.kill()
        time.sleep(12)  # its claims end with its session
    done = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True)
    restore_s = time.monotonic() - began
    _say(done.stdout.strip().rpartition("\n")[2])
    began = time.monotonic()
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        wrong = [each for some in pool.map(lambda name: _check(coordinator, name, acknowledged[name]), names) for each in some]
    if done.returncode:
        wrong.append(f"the restoration ended with {done.returncode}")
    if sluice.Catalog(coordinator).namespace("shop").comment != "what is sold":
        wrong.append("the namespace lost its comment")
    wrong += [str(each) for each in sluice.doctor_all(coordinator) if not each.ok]
    check_s = time.monotonic() - began
    times = (round(backup_s, 2), backup.size_bytes, round(restore_s, 1), round(check_s, 1))
    return Result(tables, sum(acknowledged.values()), *times, tuple(wrong))


def _write(catalog: sluice.Catalog, names: list[str], acknowledged: dict[str, int], stop: threading.Event) -> None:
    """Append to these tables in turn until it is over."""
    for n, name in enumerate(names * 1000):
        if stop.is_set():
            return
        catalog.open(name).append(pa.table({"id": [n + 1]}))
        acknowledged[name] += 1


def _lose(folder: Path, ensemble: Ensemble) -> None:
    count = len(ensemble.ports)
    for number in range(count):
        ensemble.kill(number)
    for number in range(count):
        shutil.rmtree(folder / "servers" / f"server-{number + 1}" / "data" / "version-2")
    ensemble.start()


def _check(coordinator: str, name: str, commits: int) -> list[str]:
    """What is wrong with a table that had so many commits; then it is written."""
    try:
        table = sluice.Catalog(coordinator).open(name)
        rows = table.snapshot().to_arrow().num_rows
        wrong = [] if rows == commits else [f"{name} has {rows} rows, and {commits} were acknowledged"]
        # version 0 made the table, the last one sealed its log
        wrong += [] if table.version == commits + 1 else [f"{name} is at version {table.version}, after {commits} commits"]
        table.append(pa.table({"id": [-1]}))
    except sluice.errors.SluiceError as trouble:
        return [f"{name}: {trouble}"]
    return wrong


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> int:
    """Do it in a temporary folder, and print the result."""
    parser = argparse.ArgumentParser(prog="python -m tests.operating.loss_drill", description="Lose an ensemble, and restore its tables.")
    parser.add_argument("--tables", type=int, default=300)
    parser.add_argument("--servers", type=int, default=3)
    parser.add_argument("--kill", type=float, metavar="SECONDS", help="kill the restoration after this time, and repeat it")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sluice-drill-") as folder:
        result = drill(Path(folder), arguments.tables, arguments.servers, arguments.kill)
    print(json.dumps(asdict(result)))
    return 1 if result.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
