"""Several instances of `sluice daemon` share the work, with old facts, lost sessions and long tasks; and how one ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import polars as pl
import pytest
from click.testing import CliRunner

import sluice
from sluice.cli import main
from sluice.coordinator.commit.decider import Decider
from sluice.coordinator.errors import OutcomeUnknown
from sluice.coordinator.examination import note_examination
from sluice.coordinator.publication import publisher
from sluice.coordinator.service.connect import connect
from sluice.coordinator.service.memory import MemorySession
from sluice.operating import daemon as daemon_module
from sluice.operating.daemon import Daemon, Done
from sluice.operating.document import Table as TableStatus

from .daemons import ROWS, VECTORS, care, done, fail_to_store, fill, until


@pytest.fixture
def coordinator() -> str:
    return f"memory://{uuid.uuid4().hex}"


@pytest.fixture
def table(coordinator: str, tmp_path: Path) -> sluice.Table:
    return sluice.Table.create(tmp_path / "table", ROWS.schema, coordinator=coordinator, properties=VECTORS)


def test_the_doctor_examines_each_table_once_in_its_time_however_many_daemons_there_are(
    coordinator: str, table: sluice.Table, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fill(table, 3)
    assert "doctor" not in done(care(coordinator))
    three = [Daemon(coordinator) for _ in range(3)]
    assert [each for daemon in three for each in daemon.round()] == [Done(table.location, "doctor", "nothing is wrong")]
    monkeypatch.setattr(daemon_module, "_HOUR_S", 0.01)  # a day is 0.24 s
    time.sleep(0.3)
    assert sum("doctor" in done(daemon) for daemon in three) == 1
    time.sleep(0.3)
    note_examination(connect(coordinator), f"{table.location}/gone")  # a table that was dropped meanwhile needs no note
    folder = Path(table.location.removeprefix("file://"))
    next(iter(folder.glob("*.parquet"))).unlink()
    [examined] = [each for each in Daemon(coordinator).round() if each.task == "doctor"]
    assert examined.error.startswith("error: ")
    assert "names this file, and it is not th" in examined.error
    assert len(list(folder.glob("*.parquet"))) == 2  # nothing was repaired
    time.sleep(0.3)
    over = threading.Event()
    monkeypatch.setattr(over, "wait", lambda _seconds: over.set())
    with caplog.at_level("INFO", logger="sluice.operating.daemon"):
        Daemon(coordinator).run(over)
    assert [record.levelname for record in caplog.records if "doctor" in record.getMessage()] == ["WARNING"]


def test_the_program_ends_when_its_thread_does(coordinator: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_daemon: Daemon, _over: threading.Event) -> None:
        raise SystemError("the thread ends")

    monkeypatch.setattr(Daemon, "run", fail)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    result = CliRunner().invoke(main, ["daemon", "--port", "0", "--coordinator", coordinator])
    assert result.exit_code == 1
    assert "the thread ends" in result.output


@pytest.mark.parametrize("meanwhile", ["vacuumed", "dropped", "busy", "left to its writers"])
def test_a_table_is_looked_at_again_right_before_its_task(
    coordinator: str, table: sluice.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, meanwhile: str
) -> None:
    both = [table, sluice.Table.create(tmp_path / "other", ROWS.schema, coordinator=coordinator)]
    vacuumed: list[str] = []

    def crowd(other: sluice.Table) -> None:
        other.coordinated.alone = False
        with monkeypatch.context() as patched:
            patched.setattr(Decider, "decide", lambda *_: ())
            for _ in range(5):
                with pytest.raises(OutcomeUnknown):
                    other.append(ROWS, timeout_s=0.2)

    changes: dict[str, Callable[[sluice.Table], object]] = {
        "vacuumed": lambda other: other.vacuum(),
        "dropped": lambda other: other.drop(),
        "busy": crowd,
        "left to its writers": lambda other: other.set_properties({"sluice.daemon": "false"}),
    }

    def vacuum(opened: sluice.Table, _seen: TableStatus) -> str:
        vacuumed.append(opened.location)
        opened.vacuum()
        [other] = [each for each in both if each.location != opened.location]
        changes[meanwhile](other)
        return "done"

    monkeypatch.setattr(daemon_module, "_TASKS", {"vacuum": vacuum})
    assert [(each.task, each.error) for each in care(coordinator).round()] == [("vacuum", "")]
    assert len(vacuumed) == 1


def test_a_round_of_many_ends_when_the_next_look_is_due_and_begins_with_what_somebody_waits_for(
    coordinator: str, table: sluice.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(daemon_module, "_LATE_S", 0.1)
    for n in range(5):
        sluice.Table.create(tmp_path / str(n), ROWS.schema, coordinator=coordinator)
    with monkeypatch.context() as patched:
        patched.setattr(publisher.Publisher, "publish", fail_to_store)
        table.append(ROWS, timeout_s=2)
    time.sleep(0.2)
    daemon, over = care(coordinator, interval_s=0.0), threading.Event()
    assert [each.task for each in daemon.round(over)] == ["publish"]
    assert [each.task for each in daemon.round(over)] == ["vacuum"]
    assert [each.task for each in daemon.round()] == ["vacuum"] * 5


def test_no_table_is_always_the_last(coordinator: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A daemon that one table kills comes to the others when it begins again."""
    for n in range(3):
        sluice.Table.create(tmp_path / str(n), ROWS.schema, coordinator=coordinator)
    monkeypatch.setattr(daemon_module, "_TASKS", {"vacuum": lambda *_: "done"})
    firsts = {next(care(coordinator).round()).location for _ in range(50)}
    assert len(firsts) == 3


def test_three_instances_share_the_work_and_do_nothing_twice(coordinator: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for n in range(24):
        sluice.Table.create(tmp_path / str(n), ROWS.schema, coordinator=coordinator)
    begin = threading.Barrier(3)

    def vacuum(opened: sluice.Table, _seen: TableStatus) -> str:
        time.sleep(0.1)
        opened.vacuum()
        return "done"

    def work(_number: int) -> list[Done]:
        begin.wait()
        return list(care(coordinator).round())

    monkeypatch.setattr(daemon_module, "_TASKS", {"vacuum": vacuum})
    with ThreadPoolExecutor(3) as pool:
        shares = list(pool.map(work, range(3)))
    assert not [each for share in shares for each in share if each.error]
    assert len({each.location for share in shares for each in share}) == sum(map(len, shares)) == 24
    assert min(map(len, shares)) >= 4


def test_nobody_waits_for_a_decision_while_another_instance_does_something_long(
    coordinator: str, table: sluice.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(daemon_module, "_LATE_S", 0.1)
    meanwhile: list[Done] = []

    def vacuum(opened: sluice.Table, _seen: TableStatus) -> str:
        with monkeypatch.context() as patched:
            patched.setattr(publisher.Publisher, "publish", fail_to_store)
            opened.append(ROWS, timeout_s=1)
        time.sleep(0.2)
        with ThreadPoolExecutor(1) as pool:
            meanwhile.extend(pool.submit(lambda: list(care(coordinator).round())).result())
        return "done"

    monkeypatch.setattr(daemon_module, "_TASKS", {**daemon_module._TASKS, "vacuum": vacuum})
    list(care(coordinator).round())
    assert [(each.task, each.error) for each in meanwhile] == [("publish", "")]


def test_a_session_that_is_lost_in_a_round_costs_its_task_at_most(
    coordinator: str, table: sluice.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(3):
        sluice.Table.create(tmp_path / str(n), ROWS.schema, coordinator=coordinator)
    seen: list[str] = []

    def vacuum(opened: sluice.Table, _seen: TableStatus) -> str:
        seen.append(opened.location)
        if len(seen) == 2:
            session = connect(coordinator)
            assert isinstance(session, MemorySession)
            session.expire()
        opened.vacuum()
        return "done"

    monkeypatch.setattr(daemon_module, "_TASKS", {"vacuum": vacuum})
    daemon = care(coordinator)
    facts = [(each.location, each.error.partition(":")[0]) for each in daemon.round()]
    assert len({location for location, _ in facts}) == 4
    assert [error for _, error in facts if error] == ["LeaseLost"]
    assert not [each for each in care(coordinator).round() if each.error]


def test_a_task_that_goes_on_is_no_dead_daemon(coordinator: str, table: sluice.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    daemon, over, lives = care(coordinator), threading.Event(), list[bool]()

    def vacuum(opened: sluice.Table, _seen: TableStatus) -> str:
        daemon._last_s -= 2 * 3600
        lives.append(daemon.is_alive())
        opened.vacuum()
        lives.append(daemon.is_alive())
        over.set()
        return "done"

    monkeypatch.setattr(daemon_module, "_TASKS", {"vacuum": vacuum})
    daemon.run(over)
    assert lives == [False, True]


def test_two_instances_do_the_work_of_one(coordinator: str, table: sluice.Table) -> None:
    fill(table, 60)
    with ThreadPoolExecutor(4) as pool:
        rounds = [each for found in pool.map(lambda _: list(care(coordinator).round()), range(4)) for each in found]
    assert not [each for each in rounds if each.error]
    assert sum(each.task == "compact" and each.result.startswith("version") for each in rounds) == 1
    assert [each.operation for each in table.history(None)].count("OPTIMIZE") == 1


STUCK = """
import sys, time
from sluice.cli import main
from sluice.operating import daemon

def stuck(*_):
    print("begun", flush=True)
    time.sleep(600)

daemon._TASKS = {"vacuum": stuck}
main(["daemon", "--doctor-hours", "0", "--port", "0", *sys.argv[1:]])
"""


@pytest.mark.zookeeper
@pytest.mark.slow
@pytest.mark.parametrize("how", ["a second signal", "the end of the grace"])
def test_a_task_that_outlasts_a_signal_to_end_is_abandoned_and_its_lease_given_up(tmp_path: Path, zookeeper_address: str, how: str) -> None:
    sluice.Table.create(tmp_path / "table", ROWS.schema, coordinator=zookeeper_address)
    options = ["--coordinator", zookeeper_address, *([] if how == "a second signal" else ["--grace", "1"])]
    with subprocess.Popen([sys.executable, "-c", STUCK, *options], stdout=subprocess.PIPE, text=True) as running:
        try:
            assert running.stdout is not None
            assert any(line == "begun\n" for line in running.stdout)
            assert list(care(zookeeper_address).round()) == [], "its lease is held"
            running.terminate()
            if how == "a second signal":
                with pytest.raises(subprocess.TimeoutExpired):
                    running.wait(1)
                running.terminate()
            assert running.wait(8) == 143
        finally:
            running.kill()
    assert [(each.task, each.error) for each in care(zookeeper_address).round()] == [("vacuum", "")], "no session has to end before"


@pytest.mark.costly
@pytest.mark.zookeeper
@pytest.mark.slow
def test_an_instance_that_is_killed_leaves_its_work_to_another(tmp_path: Path, zookeeper_address: str) -> None:
    table = sluice.Table.create(tmp_path / "table", ROWS.schema, coordinator=zookeeper_address, properties=VECTORS)
    fill(table, 60)
    program = [sys.executable, "-m", "sluice", "daemon", "--coordinator", zookeeper_address, "--interval", "0.2", "--port", "0"]
    killed = subprocess.Popen(program, stdout=subprocess.DEVNULL, env={**os.environ, "SLUICE_FAILPOINT": "before-ratify"})
    assert killed.wait(120) == -signal.SIGKILL  # while it committed a compaction
    with subprocess.Popen(program, stdout=subprocess.DEVNULL) as running:
        try:
            until(lambda: "OPTIMIZE" in [each.operation for each in table.history(None)])
            running.terminate()
            assert running.wait(60) == 0
        finally:
            running.kill()
    assert table.refresh().snapshot().to_arrow().num_rows == 180
    assert pl.scan_delta(table.location).collect().height == 180
