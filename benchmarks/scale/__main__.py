"""How far it goes: ``python -m benchmarks.scale --tables 1,10,100 --clients 1,10,100 --writers 1,8,64 --seconds 10``.

Three sweeps, each of which lets one number grow: tables with one writer each, clients that write ten tables, writers of one table. All
write small commits without a pause on one ZooKeeper ensemble and one S3 server in memory, which adds the latency to every request and
counts. delta-rs writes the points of the last sweep, too. After each point delta-rs reads all tables, and each row that was acknowledged
to a writer must be there once. One JSON object per point goes to standard output; everything else to standard error. The exit status is 1
if a row was lost or doubled.
"""

from __future__ import annotations

import json
import os
import platform
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path

import click

import sluice
from sluice.dev import ACCESS_KEY_ID, REGION, SECRET_ACCESS_KEY
from tests.chaos.ensemble import Ensemble

from ..load import Load, Transaction
from ..report import measure, warn_when_busy
from ..systems.base import SCHEMA, Target, transaction_of
from ..systems.delta_rs import DeltaRs, read_ids
from . import page
from .clients import Spec
from .measuring import Look, Point, ceiling, cores_used, look, requests_per_commit

__all__ = ["main"]

_GRACE_S = 120.0
"""How long after the measured time a writer may take to finish what it has begun."""
_OPEN_LIMIT_S = 900.0
_TABLES_OF_CLIENTS = 10
_STORE_WAITS = 2.0
"""A commit of sluice waits for a data file and for a log file."""


@dataclass(frozen=True, slots=True)
class Services:
    """What runs beside the clients."""

    coordinator: str
    servers: dict[int, int]
    store_pid: int
    store_url: str
    latency_ms: float
    folder: Path

    def look(self) -> Look:
        """At this moment."""
        return look(self.servers, self.store_pid, self.store_url)


def _numbers(_context: click.Context, _option: click.Parameter, value: str) -> list[int]:
    try:
        numbers = [int(word) for word in value.split(",") if word.strip()]
    except ValueError as error:
        raise click.BadParameter(f"{value!r} is not a list of numbers such as 1,8,64") from error
    if any(each < 1 for each in numbers):
        raise click.BadParameter("each number is at least 1")
    return numbers


@click.command(help="Measure how commits scale with tables, clients and writers of one table, and what is the ceiling.")
@click.option("--tables", default="1,10,100,1000", show_default=True, callback=_numbers, help="Numbers of tables, with one writer each.")
@click.option(
    "--clients", default="1,10,50,200,500", show_default=True, callback=_numbers, help="Numbers of processes that write 10 tables."
)
@click.option("--writers", default="1,2,4,8,16,32,64", show_default=True, callback=_numbers, help="Numbers of writers of one table.")
@click.option("--systems", default="sluice,delta-rs", show_default=True, help="delta-rs is measured in the last sweep only.")
@click.option("--seconds", type=click.FloatRange(0.5), default=10.0, show_default=True, help="How long they write at each point.")
@click.option("--latency-ms", type=click.FloatRange(0.0), default=20.0, show_default=True, help="Added to every request of the S3 server.")
@click.option("--servers", type=click.IntRange(1, 7), default=3, show_default=True, help="ZooKeeper servers.")
@click.option("--most-clients", type=click.IntRange(1, 500), default=100, show_default=True, help="In the sweep of tables.")
@click.option("--folder", type=click.Path(path_type=Path), default=None, help="Where ZooKeeper's data lie; a temporary folder by default.")
@click.option("--write-docs", is_flag=True, help="Put the numbers and pictures into docs/scale.md.")
def main(
    tables: list[int],
    clients: list[int],
    writers: list[int],
    systems: str,
    seconds: float,
    latency_ms: float,
    servers: int,
    most_clients: int,
    folder: Path | None,
    write_docs: bool,
) -> None:
    """Run the sweeps."""
    warn_when_busy()
    points: list[Point] = []
    with _services(folder, servers, latency_ms) as services:
        setup = _setup(services, servers, seconds, latency_ms)
        print(setup, file=sys.stderr)
        for sweep, system, numbers in _matrix(tables, clients, writers, systems.split(","), most_clients):
            points.append(_point(services, sweep, system, numbers, seconds))
            print(json.dumps(points[-1].to_dict()), flush=True)
    if write_docs:
        others = sum(each.cores["other"] for each in points) / max(1, len(points))
        page.write(
            {
                "setup": f"{setup} Programs that have nothing to do with it used {others:.1f} cores meanwhile.",
                "points": [each.to_dict() for each in points],
            }
        )
    wrong = [each for each in points if not each.sound]
    print("verdict: " + (f"FAILED: {wrong}" if wrong else "ok, each acknowledged row is in its table once"), file=sys.stderr)
    sys.exit(1 if wrong else 0)


def _matrix(
    tables: list[int], clients: list[int], writers: list[int], systems: list[str], most: int
) -> Iterator[tuple[str, str, tuple[int, int, int]]]:
    """Sweep, system, and the numbers of tables, clients and writers of each table."""
    if "sluice" in systems:
        yield from (("tables", "sluice", (count, min(count, most), 1)) for count in tables)
        for count in clients:
            yield "clients", "sluice", (_TABLES_OF_CLIENTS, count, max(1, -(-count // _TABLES_OF_CLIENTS)))
    for system in systems:
        yield from (("writers", system, (1, count, count)) for count in writers)


@contextmanager
def _services(folder: Path | None, servers: int, latency_ms: float) -> Iterator[Services]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "benchmarks.scale.store", "--latency-ms", str(latency_ms)]
    with tempfile.TemporaryDirectory(prefix="sluice-scale-", dir=folder, ignore_cleanup_errors=True) as scratch:
        ensemble = Ensemble(Path(scratch) / "zookeeper", servers)
        for settings in Path(scratch).glob("zookeeper/*/zoo.cfg"):
            with settings.open("a") as file:
                file.write("4lw.commands.whitelist=srvr,ruok,mntr\n")  # the last line counts
        store = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
        try:
            ensemble.start()
            assert store.stdout is not None
            url = f"http://127.0.0.1:{json.loads(store.stdout.readline())['port']}"
            pids = {port: ensemble.pid(number) for number, port in enumerate(ensemble.ports)}
            yield Services(f"zk://{ensemble.hosts}/scale", pids, store.pid, url, latency_ms, Path(scratch))
        finally:
            ensemble.close()
            store.kill()
            store.wait()


def _setup(services: Services, servers: int, seconds: float, latency_ms: float) -> str:
    """What the numbers depend on, in a sentence or two."""
    disk = subprocess.run(["df", "--output=fstype", str(services.folder)], capture_output=True, text=True, check=False).stdout.split()[-1:]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 30
    return (
        f"Measured on {time.strftime('%Y-%m-%d', time.gmtime())}: one machine with {os.cpu_count()} cores and {memory} GB for all of it "
        f"(clients, {servers} ZooKeeper {'servers' if servers > 1 else 'server'} with data on {''.join(disk) or 'some file system'}, "
        f"the S3 server in memory, which adds {latency_ms:g} ms to every request), {seconds:g} s at each point, "
        f"sluice {sluice.__version__}, deltalake {version('deltalake')}, Python {platform.python_version()}. Each writer appends ten rows "
        "again and again, without a pause."
    )


def _target(services: Services, name: str) -> Target:
    return Target(f"s3://bench/{name}", str(services.folder), services.store_url, REGION, ACCESS_KEY_ID, SECRET_ACCESS_KEY, "published")


def _point(services: Services, sweep: str, system: str, numbers: tuple[int, int, int], seconds: float) -> Point:
    tables, clients, writers = numbers
    name = f"{system}-{sweep}-{tables}-{clients}-{writers}"
    print(f"{system}: {tables} tables, {clients} clients, {writers} writers of each table", file=sys.stderr, flush=True)
    targets = [_target(services, f"{name}/{number}") for number in range(tables)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda target: _create(services, system, target), targets))
    folder = services.folder / name
    folder.mkdir()
    spec = Spec(system, services.coordinator, tuple(each.to_json() for each in targets), clients, writers, str(folder))
    before, after, load, clients_s = _run(services, spec, seconds)
    with ThreadPoolExecutor(4) as pool:
        ids_by_table = list(pool.map(lambda target: read_ids(target).to_pylist(), targets))
    report = measure(system, tables * writers, "published", services.latency_ms, load, [row for ids in ids_by_table for row in ids])
    commits = sum(1 for each in load.transactions if each.sequence > 0 and each.acknowledged is not None)
    cores = cores_used(before, after, clients_s, load.ended - load.start)
    fsync_ms = (after.fsync_ms - before.fsync_ms) / max(1, after.fsyncs - before.fsyncs)
    point = Point(
        sweep=sweep,
        system=system,
        tables=tables,
        clients=clients,
        writers=writers,
        latency_ms=services.latency_ms,
        commits=commits,
        commits_per_s=report.transactions_per_s,
        versions_per_s=_versions(load, writers) if system == "sluice" else report.versions_per_s,
        p50_ms=report.p50_ms,
        p99_ms=report.p99_ms,
        lost=report.lost + astray(ids_by_table, writers),
        duplicated=report.duplicated,
        unfinished=report.unfinished,
        cores=cores,
        fsync_ms=round(fsync_ms, 2),
        requests=requests_per_commit(before, after, commits),
    )
    waits = (_STORE_WAITS,) if system == "sluice" else tuple(point.requests.values())
    return replace(point, limit=ceiling(cores, os.cpu_count() or 1, fsync_ms, services.latency_ms, waits))


def astray(ids_by_table: Sequence[Sequence[int]], writers: int) -> int:
    """How many rows are in another table than their writer's; `ids_by_table` has the ids in each table."""
    return sum(1 for number, ids in enumerate(ids_by_table) for row in ids if transaction_of(row)[0] // writers != number)


def _versions(load: Load, writers: int) -> float:
    """Versions per second of all tables, of the commits that were answered in the measured time."""
    counted = {
        (each.writer // writers, each.version)
        for each in load.transactions
        if each.sequence > 0 and each.acknowledged is not None and each.acknowledged <= load.deadline
    }
    return round(len(counted) / (load.deadline - load.start), 2)


def _create(services: Services, system: str, target: Target) -> None:
    if system == "delta-rs":
        DeltaRs(target).create()
        return
    options = {"endpoint_url": target.endpoint_url, "region": target.region, "path_style": "true", "conditional_put": "true"}
    keys = {"access_key_id": target.access_key_id, "secret_access_key": target.secret_access_key}
    with sluice.Table.create(target.location, SCHEMA, coordinator=services.coordinator, storage_options={**options, **keys}):
        pass


def _run(services: Services, spec: Spec, seconds: float) -> tuple[Look, Look, Load, float]:
    """Let the clients write; two looks at the machine, what they did, and the processor time that they took."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "MALLOC_ARENA_MAX": "2"}  # memory for 500 processes
    spec_file = Path(spec.folder, "spec.json")
    spec_file.write_text(spec.to_json())  # of 1,000 tables it is too long for a command line
    command = [sys.executable, "-m", "benchmarks.scale.clients", str(spec_file)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, text=True, env=environment, start_new_session=True, **pipes) as process:  # type: ignore[call-overload]
        try:
            if not _says(process, "ready", _OPEN_LIMIT_S):
                raise SystemExit(f"the clients did not open their tables within {_OPEN_LIMIT_S:g} s")
            start = time.monotonic() + 1.0
            deadline = start + seconds
            time.sleep(0.9)
            before = services.look()
            print(f"{start} {deadline}", file=process.stdin, flush=True)
            if not _says(process, "done", seconds + _GRACE_S):
                print(f"some writers have not ended {_GRACE_S:g} s after the measured time, and are killed", file=sys.stderr)
            ended, after = time.monotonic(), services.look()
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # it and the clients, which are all of its group
    lines = [json.loads(line) for file in Path(spec.folder).glob("*.jsonl") for line in file.read_text().splitlines()]
    transactions: dict[tuple[int, int], Transaction] = {}
    for line in lines:
        if isinstance(line, list):
            writer, sequence, begun, *answer = line
            acknowledged, version = answer or (None, None)
            transactions[writer, sequence] = Transaction(writer, sequence, begun, acknowledged, version)
    clients_s = sum(line["cpu_s"] for line in lines if isinstance(line, dict))
    return before, after, Load(start, deadline, ended, tuple(transactions.values())), clients_s


def _says(process: subprocess.Popen[str], word: str, limit_s: float) -> bool:
    """Whether the clients say it in time. Ends the program if they say something else, or fail."""
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], limit_s)
    if ready and (said := process.stdout.readline().strip()) != word:
        raise SystemExit(f"the clients said {said!r} instead of {word!r}; their own message is above")
    return bool(ready)


if __name__ == "__main__":
    main()
