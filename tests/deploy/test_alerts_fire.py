"""A real Prometheus, with the alerts of `deploy/prometheus`, and the real thing broken. The times that alerts wait are shorter here."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from kazoo.client import KazooClient
from prometheus_client import CollectorRegistry, generate_latest

import sluice
from sluice.cli import main
from sluice.coordinator.errors import NotCommitted
from sluice.coordinator.service.clock import SystemClock
from sluice.coordinator.service.connect import connect, release
from sluice.coordinator.service.zookeeper.session import ZooKeeperStore
from sluice.dev import S3DevServer
from sluice.errors import SluiceError
from sluice.operating.exporter import serve, serve_pages
from sluice.storage.errors import StorageFull
from sluice.storage.stores.memory import MemoryStore
from tests.chaos.ensemble import Ensemble, free_ports
from tests.chaos.wires import Wire, Wires
from tests.deploy import DEPLOY, tool

pytestmark = [pytest.mark.slow, pytest.mark.costly]
ROWS = pa.table({"id": [1, 2, 3]})
LIMIT_S = 100.0
CROWD, WRITERS = 120, 24
"""Clients of one table that append, and that change rows."""


class Prometheus:
    """A Prometheus that looks every `every_s` seconds; `scrape` says at what, before it is started."""

    every_s = 2

    def __init__(self, folder: Path, running: ExitStack) -> None:
        self._folder, self._running = folder, running
        self._jobs: dict[str, list[str]] = {}
        self._url = ""

    def scrape(self, job: str, port: int) -> None:
        self._jobs.setdefault(job, []).append(f"127.0.0.1:{port}")

    def exporter(self, coordinator: str, *, upkeep: bool = False) -> None:
        """Scrape an exporter of a coordinator."""
        port, end = serve(partial(sluice.status, coordinator, upkeep=upkeep, timeout_s=float(self.every_s)), "127.0.0.1", 0)
        self._running.callback(end)
        self.scrape("sluice-exporter", port)

    def program(self) -> None:
        """Scrape this process."""
        registry = CollectorRegistry()
        self._running.callback(sluice.metrics.start(registry))
        port, end = serve_pages({"/metrics": partial(generate_latest, registry)}, "127.0.0.1", 0)
        self._running.callback(end)
        self.scrape("sluice-programs", port)

    def start(self) -> None:
        rules = (DEPLOY / "prometheus" / "alerts.yml").read_text()
        rules = re.sub(r"for: \w+\n", "for: 0s\n", rules)
        rules = re.sub(r"(_seconds) > \d+(?![.\d])", r"\1 > 1", rules)
        rules = re.sub(r"\) > (5|30)$", ") > 1", rules, flags=re.MULTILINE)
        rules = rules.replace("[10m]", "[20s]").replace("[15m]", "[20s]").replace("offset 10m", "offset 20s")
        (self._folder / "alerts.yml").write_text(rules)
        scraped = [{"job_name": job, "static_configs": [{"targets": targets}]} for job, targets in self._jobs.items()]
        every = {"scrape_interval": f"{self.every_s}s", "evaluation_interval": "1s"}
        (self._folder / "prometheus.yml").write_text(json.dumps({"global": every, "rule_files": ["alerts.yml"], "scrape_configs": scraped}))
        [port] = free_ports(1)
        command = [tool("prometheus"), "--config.file=prometheus.yml", "--storage.tsdb.path=data", f"--web.listen-address=127.0.0.1:{port}"]
        running = subprocess.Popen(command, cwd=self._folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self._running.callback(running.wait)
        self._running.callback(running.terminate)
        self._url = f"http://127.0.0.1:{port}/api/v1"
        self.until(lambda: '"health":"up"' in self._get("targets"))

    def _get(self, what: str) -> str:
        with suppress(OSError), urllib.request.urlopen(f"{self._url}/{what}", timeout=5) as answer:
            return str(answer.read().decode())
        return ""

    def until(self, holds: Callable[[], Any]) -> None:
        end = time.monotonic() + LIMIT_S
        while not holds():
            assert time.monotonic() < end, self._get("alerts")
            time.sleep(0.2)

    def firing(self) -> dict[str, str]:
        """The summaries of the alerts that fire, by their names."""
        alerts = json.loads(self._get("alerts") or "{}").get("data", {}).get("alerts", ())
        return {each["labels"]["alertname"]: each["annotations"]["summary"] for each in alerts if each["state"] == "firing"}

    def expect(self, *names: str, meanwhile: Callable[[], object] | None = None) -> dict[str, str]:
        """Wait until each of these has fired, and do something again and again meanwhile; the summaries of all that fired."""
        fired: dict[str, str] = {}

        def all_fired() -> bool:
            if meanwhile is not None:
                meanwhile()
            fired.update(self.firing())
            return set(names) <= set(fired)

        self.until(all_fired)
        return fired


@pytest.fixture
def prometheus(tmp_path: Path) -> Iterator[Prometheus]:
    tool("prometheus")
    folder = tmp_path / "prometheus"
    folder.mkdir()
    with ExitStack() as running:
        yield Prometheus(folder, running)


@pytest.fixture
def table(tmp_path: Path) -> Iterator[sluice.Table]:
    coordinator = f"memory://{uuid.uuid4().hex}"
    made = sluice.Table.create(tmp_path / "table", ROWS.schema, coordinator=coordinator, properties={"delta.checkpointInterval": "1000"})
    yield made
    made.close()
    release(coordinator)


def coordinator_of(table: sluice.Table) -> str:
    return str(table.coordinated.context.coordinator)


def served(name: str, coordinator: str, running: ExitStack) -> tuple[subprocess.Popen[str], int]:
    """A command that serves, and its port."""
    program = [sys.executable, "-m", "sluice", name, "--port", "0", "--json", "--coordinator", coordinator]
    process = subprocess.Popen(program, stdout=subprocess.PIPE, text=True)
    running.callback(process.wait)
    running.callback(process.kill)
    assert process.stdout is not None
    running.callback(process.stdout.close)
    text = ""
    for line in process.stdout:
        text += line
        if line == "}\n":
            break
    return process, int(json.loads(text)["url"].split(":")[2].split("/")[0])


def test_an_exporter_and_a_daemon_that_ended(prometheus: Prometheus) -> None:
    with ExitStack() as running:
        parts = {name: served(name, f"memory://{uuid.uuid4().hex}", running) for name in ("exporter", "daemon")}
        for name, (_, port) in parts.items():
            prometheus.scrape(f"sluice-{name}", port)
        prometheus.start()
        prometheus.until(lambda: prometheus.firing() == {})
        for process, _ in parts.values():
            process.terminate()
        prometheus.expect("SluiceExporterAway", "SluiceDaemonAway")


@pytest.mark.zookeeper
def test_servers_of_an_ensemble_that_were_killed(prometheus: Prometheus, tmp_path: Path) -> None:
    ensemble = Ensemble(tmp_path / "ensemble")
    try:
        ensemble.start()
        coordinator = f"zk://{ensemble.hosts}/sluice?retry_s=3"
        table = sluice.Table.create(tmp_path / "table", ROWS.schema, coordinator=coordinator)
        prometheus.exporter(coordinator)
        prometheus.program()
        prometheus.start()
        table.append(ROWS)
        first, second = [number for number in range(3) if number != ensemble.leader()]
        ensemble.kill(first)
        said = prometheus.expect("SluiceServerAway", "SluiceNoServerToSpare")
        assert said["SluiceServerAway"].startswith("1 servers")
        begun = [table.begin(timeout_s=3) for _ in range(10)]
        for each in begun:
            each.append(ROWS)
        ensemble.kill(second)

        def fail() -> None:
            # a transaction that was begun fails as a commit; an append cannot read its table, and makes none
            commit = begun.pop().commit if begun else partial(table.append, ROWS, timeout_s=3)
            with pytest.raises(SluiceError):
                commit()

        prometheus.expect("SluiceCoordinatorAway", "SluiceCoordinatorErrors", "SluiceCommitsFail", meanwhile=fail)
        for number in (first, second):
            ensemble.start_server(number)
        ensemble.await_service()
        prometheus.until(lambda: not {"SluiceCoordinatorAway", "SluiceServerAway"} & set(prometheus.firing()))
        table.append(ROWS)
        release(coordinator)
    finally:
        ensemble.close()


def lines_between(folder: Path) -> tuple[Wires, list[Wire]]:
    """A line for each of three servers that are not started yet: all that it and the leader send one another goes through it."""
    settings = [folder / f"server-{number}" / "zoo.cfg" for number in (1, 2, 3)]
    ports = re.findall(r"^server\.\d=127\.0\.0\.1:(\d+):", settings[0].read_text(), re.MULTILINE)
    wires = Wires([int(port) for port in ports], seed=0)
    lines = [wires.wire(each.parent.name) for each in settings]
    for own, (file, line) in enumerate(zip(settings, lines, strict=True)):
        text = re.sub(r"syncLimit=\d+", "syncLimit=20", file.read_text())
        for other, (port, host) in enumerate(zip(ports, line.hosts.split(","), strict=True)):
            text = text if other == own else text.replace(f"127.0.0.1:{port}:", f"{host}:")
        file.write_text(text)
    return wires, lines


def server_of(coordinator: str, ensemble: Ensemble) -> int:
    """The server to which this process's session with a coordinator is connected."""
    session = connect(coordinator)
    assert isinstance(session, ZooKeeperStore)
    return ensemble.ports.index(session._client._connection._socket.getpeername()[1])


def append_until(ended: threading.Event, table: sluice.Table) -> None:
    while not ended.is_set():
        table.append(ROWS)


@pytest.mark.zookeeper
def test_servers_whose_lines_are_slow(prometheus: Prometheus, tmp_path: Path) -> None:
    ensemble = Ensemble(tmp_path / "ensemble")
    wires, lines = lines_between(tmp_path / "ensemble")
    try:
        ensemble.start()
        coordinator = f"zk://{ensemble.hosts}/sluice"
        crowd = f"{coordinator}?session_timeout_s=20"  # a session of its own, as another process has
        table = sluice.Table.create(tmp_path / "table", ROWS.schema, coordinator=crowd)
        prometheus.every_s = 5
        prometheus.exporter(coordinator)
        prometheus.start()

        for line in lines:
            line.delay_s = 0.35  # a write takes two or four times as long, as its client is connected to the leader or not
        with ThreadPoolExecutor(CROWD) as pool, ExitStack() as at_the_end:
            ended = threading.Event()
            at_the_end.callback(ended.set)
            for _ in range(CROWD):
                pool.submit(append_until, ended, table)
            said = prometheus.expect("SluiceCoordinatorSlow", "SluiceQueueLong")
            assert table.location in said["SluiceQueueLong"]
            assert sluice.status(coordinator).limited_by == "coordinator"
            for line in lines:
                line.heal()
        prometheus.until(lambda: not {"SluiceCoordinatorSlow", "SluiceExporterAway"} & set(prometheus.firing()))

        behind = next(number for number in range(3) if number not in (ensemble.leader(), server_of(coordinator, ensemble)))
        lines[behind].delay_s = 3.0
        prometheus.expect("SluiceServerBehind")
        health = CliRunner().invoke(main, ["health", "--coordinator", coordinator])
        assert health.exit_code == 1
        assert f":{ensemble.ports[behind]} (follower) did not catch up with the leader" in health.output
        lines[behind].heal()
        prometheus.until(lambda: "SluiceServerBehind" not in prometheus.firing())
        release(coordinator)
        release(crowd)
    finally:
        ensemble.close()
        wires.close()


STOPPED = textwrap.dedent(
    """
    import os, signal, sys
    import pyarrow as pa
    import sluice
    from sluice.coordinator.commit import transactions
    from sluice.coordinator.limits import Limits

    location, coordinator, stops = sys.argv[1:]
    table = sluice.Table.open(location, coordinator=coordinator, application="load", limits=Limits(fast_path=False))
    filed = transactions.file_intents
    def stop_when_filed(*arguments, **named):
        legs = filed(*arguments, **named)
        if stops == "stops":
            os.kill(os.getpid(), signal.SIGSTOP)
        return legs
    transactions.file_intents = stop_when_filed
    table.append(pa.table({"id": [9]}))
    """
)


@pytest.mark.zookeeper
def test_a_client_that_was_stopped_after_it_filed_and_one_that_was_killed_after_it_ratified(
    prometheus: Prometheus, tmp_path: Path, zookeeper_address: str
) -> None:
    coordinator = f"{zookeeper_address}?session_timeout_s=60"
    stopped, killed = (sluice.Table.create(tmp_path / name, ROWS.schema, coordinator=coordinator) for name in ("stopped", "killed"))
    prometheus.exporter(coordinator)
    program = [sys.executable, "-c", STOPPED]
    env = {**os.environ, "SLUICE_FAILPOINT": "after-ratify"}
    with subprocess.Popen([*program, stopped.location, coordinator, "stops"]) as client:
        try:
            _, status = os.waitpid(client.pid, os.WUNTRACED)
            assert os.WIFSTOPPED(status)
            done = subprocess.run([*program, killed.location, coordinator, "goes on"], env=env, check=False)
            assert done.returncode == -signal.SIGKILL
            prometheus.start()
            said = prometheus.expect("SluiceCommitWaits", "SluicePublicationStuck")
            assert stopped.location in said["SluiceCommitWaits"]
            assert killed.location in said["SluicePublicationStuck"]
            # what the runbook says: decide it from another process, publish by opening the table
            [oldest] = [each.queue.oldest for each in sluice.status(coordinator).tables if each.location == stopped.location]
            assert oldest is not None
            assert stopped.outcome(oldest.id).state == "committed"
            killed.append(ROWS)
            prometheus.until(lambda: not {"SluiceCommitWaits", "SluicePublicationStuck"} & set(prometheus.firing()))
        finally:
            client.kill()
    release(coordinator)


def test_a_lease_for_which_somebody_waits(prometheus: Prometheus, table: sluice.Table) -> None:
    prometheus.exporter(coordinator_of(table))
    prometheus.start()
    with table.lease(name="repair"):
        waiter = threading.Thread(target=lambda: table.append(ROWS))
        waiter.start()
        said = prometheus.expect("SluiceLeaseWait")
        assert "SluiceCommitWaits" not in said
    waiter.join()
    prometheus.until(lambda: "SluiceLeaseWait" not in prometheus.firing())


def test_a_commit_past_sluice_and_a_log_that_cannot_be_read(prometheus: Prometheus, table: sluice.Table, tmp_path: Path) -> None:
    other = sluice.Table.create(tmp_path / "other", ROWS.schema, coordinator=coordinator_of(table))
    info = {"timestamp": 1, "inCommitTimestamp": time.time_ns() // 1_000_000 + 1000, "operation": "WRITE"}
    (tmp_path / "table" / "_delta_log" / f"{1:020}.json").write_text(json.dumps({"commitInfo": info}))
    (tmp_path / "other" / "_delta_log" / f"{0:020}.json").write_text("{")
    prometheus.exporter(coordinator_of(table), upkeep=True)
    prometheus.start()
    said = prometheus.expect("SluiceForeignCommit", "SluiceTableNotRead")
    assert "of 1 tables" in said["SluiceTableNotRead"]
    other.close()


def test_a_writer_that_loses_to_another_one(prometheus: Prometheus, table: sluice.Table) -> None:
    other = sluice.Table.open(table.location, coordinator=coordinator_of(table), application="nightly")
    prometheus.exporter(coordinator_of(table))
    prometheus.program()
    table.append(ROWS)
    prometheus.start()

    def lose() -> None:
        late = table.begin()
        late.delete("id = 1")
        other.overwrite(ROWS)
        with pytest.raises(NotCommitted):
            late.commit()

    prometheus.expect("SluiceRefusalsMany", "SluiceLosesOften", meanwhile=lose)
    [message] = [each for each in sluice.status(coordinator_of(table)).messages if each.name == "loses-often"]
    assert message.where == table.location
    assert "to nightly" in message.what
    shown = CliRunner().invoke(main, ["conflicts", "--coordinator", coordinator_of(table), "--table", table.location])
    assert "nightly" in shown.output
    other.close()


def test_writers_whose_rows_no_statistics_keep_apart(prometheus: Prometheus, table: sluice.Table) -> None:
    prometheus.program()
    table.set_properties({"delta.enableDeletionVectors": "true"})
    table.append(pa.table({"id": list(range(WRITERS))}))
    prometheus.start()
    ended = threading.Event()

    def change(own: int) -> None:
        writer = sluice.Table.open(table.location, coordinator=coordinator_of(table))
        while not ended.is_set():
            with suppress(NotCommitted):  # it lost eight times in a row
                writer.update({"id": f"id + {WRITERS}"}, where=f"id % {WRITERS} = {own}")

    with ThreadPoolExecutor(WRITERS) as pool, ExitStack() as at_the_end:
        at_the_end.callback(ended.set)
        for own in range(WRITERS):
            pool.submit(change, own)
        said = prometheus.expect("SluiceRetriesMany")
    assert table.location in said["SluiceRetriesMany"]


AHEAD = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
static long ahead_s(void) { return atol(getenv("CLOCK_AHEAD_S")); }
int clock_gettime(clockid_t clock, struct timespec *now) {
  int failed = ((int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime"))(clock, now);
  if (!failed && clock == CLOCK_REALTIME) now->tv_sec += ahead_s();
  return failed;
}
int gettimeofday(struct timeval *now, void *zone) {
  int failed = ((int (*)(struct timeval *, void *))dlsym(RTLD_NEXT, "gettimeofday"))(now, zone);
  if (!failed) now->tv_sec += ahead_s();
  return failed;
}
"""
"""A library that sets the clock of a process ahead."""


@pytest.mark.zookeeper
@pytest.mark.skipif(sys.platform != "linux" or shutil.which("gcc") is None, reason="gcc is not installed, or this is not Linux")
def test_a_month_in_which_nobody_cared_for_tables(prometheus: Prometheus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = tmp_path / "ahead.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", library, "-ldl"], input=AHEAD, text=True, check=True)
    ensemble = Ensemble(tmp_path / "ensemble", servers=1)
    try:
        ensemble.start()
        coordinator = f"zk://{ensemble.hosts}/sluice"
        never, once = (sluice.Table.create(tmp_path / name, ROWS.schema, coordinator=coordinator) for name in ("never", "once"))
        once.vacuum()
        with never.consumer("report", after=0):
            never.append(ROWS)
        ensemble.kill(0)
        with monkeypatch.context() as month:
            month.setenv("LD_PRELOAD", str(library))
            month.setenv("CLOCK_AHEAD_S", str(31 * 86400))
            ensemble.start_server(0)
        ensemble.await_service()
        prometheus.exporter(coordinator)
        prometheus.start()
        said = prometheus.expect("SluiceVacuumDue", "SluiceConsumerBehind")
        assert said["SluiceVacuumDue"].startswith("2 tables")
        with never.consumer("report") as consumer:
            next(consumer)
            consumer.commit()
        for each in (never, once):
            done = CliRunner().invoke(main, ["vacuum", each.location, "--coordinator", coordinator])
            assert done.exit_code == 0, done.output
        prometheus.until(lambda: not {"SluiceVacuumDue", "SluiceConsumerBehind"} & set(prometheus.firing()))
        release(coordinator)
    finally:
        ensemble.close()


def test_a_store_without_room(prometheus: Prometheus) -> None:
    name, coordinator = f"memory://{uuid.uuid4().hex}", f"memory://{uuid.uuid4().hex}"
    table = sluice.Table.create(name, ROWS.schema, coordinator=coordinator)
    disk = MemoryStore(name).disk
    prometheus.program()
    table.append(ROWS)
    prometheus.start()
    disk.capacity_bytes = sum(len(data) for data, _ in disk.objects.values()) + 100

    def fail() -> None:
        with pytest.raises(StorageFull):
            table.append(ROWS)

    prometheus.expect("SluiceStoreFull", "SluiceStoreErrors", meanwhile=fail)
    table.close()
    release(coordinator)


@pytest.mark.s3
def test_a_store_that_is_slow(prometheus: Prometheus) -> None:
    coordinator = f"memory://{uuid.uuid4().hex}"
    with S3DevServer(latency_ms=1500) as server:
        prometheus.program()
        prometheus.start()
        table = sluice.Table.create("s3://sluice/slow", ROWS.schema, coordinator=coordinator, storage_options=server.options)
        prometheus.expect("SluiceStoreSlow", "SluiceCommitsSlow", meanwhile=lambda: table.append(ROWS))
        table.close()
    release(coordinator)


def test_a_writer_whose_clock_is_ahead(prometheus: Prometheus, table: sluice.Table) -> None:
    now_ms = SystemClock.now_ms
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SystemClock, "now_ms", lambda clock: now_ms(clock) + 3_600_000)
        table.append(ROWS)
    prometheus.exporter(coordinator_of(table))
    prometheus.start()
    prometheus.expect("SluiceClocksApart")


def test_a_table_of_small_files_without_a_checkpoint(prometheus: Prometheus, table: sluice.Table) -> None:
    for _ in range(101):
        table.append(ROWS)
    prometheus.exporter(coordinator_of(table), upkeep=True)
    prometheus.start()
    prometheus.expect("SluiceSmallFiles", "SluiceCheckpointBehind")


@pytest.mark.zookeeper
def test_a_session_that_the_server_ended(prometheus: Prometheus, zookeeper_address: str) -> None:
    session = connect(zookeeper_address)
    assert isinstance(session, ZooKeeperStore)
    prometheus.program()
    prometheus.start()
    # whoever has a session's number and password may end it, and its client hears that it has expired
    usurper = KazooClient(session._hosts, client_id=session._client.client_id)
    usurper.start()
    usurper.stop()
    usurper.close()
    prometheus.expect("SluiceSessionsLost")
    assert session.lost
    release(zookeeper_address)
