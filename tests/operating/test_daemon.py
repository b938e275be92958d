"""`sluice daemon`: what is due is done, once, however many instances there are and whenever they die."""

from __future__ import annotations

import json
import threading
import time
import urllib.error
import urllib.request
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from click.testing import CliRunner
from deltalake import DeltaTable
from msgspec.structs import replace

import sluice
from sluice.cli import main
from sluice.coordinator import examination
from sluice.coordinator.commit.decider import Decider
from sluice.coordinator.errors import OutcomeUnknown
from sluice.coordinator.nodes.creation import check_tree
from sluice.coordinator.publication import publisher
from sluice.operating import daemon as daemon_module
from sluice.operating import upkeep as upkeep_module
from sluice.operating.daemon import APPLICATION, Daemon, due, serve_probes
from sluice.operating.document import HeldLease, Leases, Publication, Queue, Transaction, Upkeep
from sluice.operating.document import Table as TableStatus
from sluice.operating.status import watching
from sluice.tables import catalog as catalog_module

from .daemons import ROWS, VECTORS, care, done, fail_to_store, fill, until

FILES = Upkeep(version=9, files=9, bytes=9, small_files=0, small_bytes=0, files_with_vectors=0, deleted_rows=0, versions_since_checkpoint=3)
QUIET = TableStatus(location="s3://lake/t", version=9, upkeep=FILES, since_vacuum_s=60.0, since_examined_s=60.0)
WAITING = Transaction(id="x", operation="WRITE", application="load", host="h", pid=7, waits_s=60.0, clock_ahead_s=0.1)
HELD = HeldLease(lease="l-1", mode="exclusive", where="", application="repair", host="h2", pid=8, held_s=4000.0)


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({}, ()),
        ({"queue": Queue(1, WAITING)}, ("decide",)),
        ({"queue": Queue(1, replace(WAITING, waits_s=9.0))}, ()),
        ({"queue": Queue(1, WAITING), "leases": Leases(1, 0, 0.0, HELD)}, ()),
        ({"upkeep": replace(FILES, small_files=50), "leases": Leases(1, 0, 0.0, HELD)}, ()),
        ({"upkeep": replace(FILES, unclustered_files=50, file_bytes=100), "leases": Leases(0, 1, 9.0)}, ()),
        ({"publication": Publication(2, 60.0, False)}, ("publish",)),
        ({"publication": Publication(2, 9.0, False)}, ()),
        ({"since_vacuum_s": 168 * 3600 + 1.0}, ("vacuum",)),
        ({"since_vacuum_s": 168 * 3600 - 1.0}, ()),
        ({"since_vacuum_s": None}, ("vacuum",)),
        ({"upkeep": replace(FILES, small_files=50)}, ("compact",)),
        ({"upkeep": replace(FILES, small_files=49)}, ()),
        ({"upkeep": replace(FILES, versions_since_checkpoint=150)}, ("checkpoint",)),
        ({"upkeep": replace(FILES, version=150, versions_since_checkpoint=None)}, ("checkpoint",)),
        ({"upkeep": replace(FILES, versions_since_checkpoint=149)}, ()),
        ({"upkeep": None, "since_vacuum_s": None}, ()),
        ({"since_vacuum_s": None, "upkeep": replace(FILES, vacuum_hours=0)}, ()),
        ({"since_vacuum_s": 3601.0, "upkeep": replace(FILES, vacuum_hours=2)}, ()),
        ({"upkeep": replace(FILES, small_files=50, moves_rows=False)}, ("compact",)),
        ({"upkeep": replace(FILES, small_files=50, moves_rows=False), "committed": 1}, ()),
        ({"upkeep": replace(FILES, small_files=50, moves_rows=True), "committed": 1}, ("compact",)),
        ({"upkeep": replace(FILES, unclustered_files=50, small_files=50, file_bytes=100)}, ("cluster",)),
        ({"upkeep": replace(FILES, unclustered_files=49, file_bytes=100)}, ()),
        ({"upkeep": replace(FILES, unclustered_files=1, unclustered_bytes=100, file_bytes=100)}, ("cluster",)),
        ({"upkeep": replace(FILES, unclustered_files=1, unclustered_bytes=99, file_bytes=100)}, ()),
        ({"upkeep": replace(FILES, unclustered_files=50, file_bytes=100), "committed": 1}, ()),
        ({"upkeep": replace(FILES, unclustered_files=50, file_bytes=100, moves_rows=True), "committed": 1}, ("cluster",)),
        ({"upkeep": replace(FILES, unclustered_files=50, file_bytes=100), "queue": Queue(5, WAITING)}, ("decide",)),
        ({"upkeep": replace(FILES, small_files=50, daemon=False), "publication": Publication(2, 60.0, False)}, ()),
        ({"upkeep": replace(FILES, small_files=99), "queue": Queue(5, WAITING)}, ("decide",)),
        ({"upkeep": replace(FILES, small_files=99, foreign=(9,)), "since_vacuum_s": None}, ()),
        ({"upkeep": replace(FILES, small_files=99), "detached": True}, ()),
        ({"upkeep": replace(FILES, small_files=99), "trouble": "why", "log_trouble": "why"}, ("look",)),
        (
            {"upkeep": None, "log_trouble": "why", "queue": Queue(1, WAITING), "publication": Publication(2, 60.0)},
            ("decide", "publish", "look"),
        ),
        ({"upkeep": replace(FILES, small_files=99), "version": -1, "since_examined_s": None}, ()),
        ({"since_examined_s": 24 * 3600 + 1.0}, ("doctor",)),
        ({"since_examined_s": 24 * 3600 - 1.0}, ()),
        ({"since_examined_s": None}, ("doctor",)),
        ({"since_examined_s": None, "queue": Queue(5)}, ()),
        ({"since_examined_s": None, "detached": True, "queue": Queue(1, WAITING)}, ("doctor",)),
        ({"since_examined_s": None, "upkeep": replace(FILES, foreign=(9,))}, ("doctor",)),
        ({"since_examined_s": None, "upkeep": replace(FILES, daemon=False)}, ()),
        ({"since_examined_s": None, "trouble": "why", "log_trouble": "why"}, ("look", "doctor")),
    ],
)
def test_what_is_due_follows_from_the_status(facts: dict[str, Any], expected: tuple[str, ...]) -> None:
    assert due(replace(QUIET, **facts), 24.0) == expected
    assert due(replace(QUIET, **facts), 0.0) == tuple(each for each in expected if each != "doctor")


@pytest.fixture
def coordinator() -> str:
    return f"memory://{uuid.uuid4().hex}"


@pytest.fixture
def table(coordinator: str, tmp_path: Path) -> sluice.Table:
    return sluice.Table.create(tmp_path / "table", ROWS.schema, coordinator=coordinator, properties=VECTORS)


def test_small_files_are_put_together_and_the_history_says_who_did_it(coordinator: str, table: sluice.Table) -> None:
    daemon = care(coordinator)
    fill(table, 49)
    assert "compact" not in done(daemon)
    fill(table, 1)
    assert done(daemon)["compact"].result == f"version {table.refresh().version}"
    assert table.snapshot().num_files == 1
    [entry] = [each for each in table.history() if each.operation == "OPTIMIZE"]
    assert entry.application == APPLICATION
    assert table.refresh().snapshot().num_rows == 150
    assert done(daemon) == {}


def test_only_what_belongs_to_no_cluster_is_clustered(coordinator: str, tmp_path: Path) -> None:
    properties = {**VECTORS, "delta.targetFileSize": "20kb"}
    table = sluice.Table.create(tmp_path / "clustered", ROWS.schema, coordinator=coordinator, cluster_by=["id"], properties=properties)
    daemon = care(coordinator)
    rows = pa.table({"id": list(range(20_000))})
    table.append(rows)
    before = table.refresh().snapshot().files()
    assert done(daemon)["cluster"].result == f"version {table.refresh().version}"
    clustered = set(table.snapshot().files()["path"].to_pylist())
    assert clustered.isdisjoint(before["path"].to_pylist())
    assert done(daemon) == {}  # it is not done again and again
    fill(table, 49)
    assert done(daemon) == {}
    fill(table, 1)
    assert "cluster" in done(daemon)
    files = table.refresh().snapshot().files()
    assert clustered < set(files["path"].to_pylist())  # the large cluster stays as it is
    assert table.snapshot().num_rows == 20_150
    assert files["clustering_provider"].null_count == 0
    assert done(daemon) == {}


@pytest.mark.notices("what-came-meanwhile-is-there")
def test_what_writers_publish_while_the_log_is_examined_is_not_missing(
    coordinator: str, table: sluice.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = check_tree

    def write_before(context: Any) -> bool:
        fill(table, 2)
        return real(context)

    monkeypatch.setattr(examination, "check_tree", write_before)
    assert sluice.doctor(table.location, coordinator=coordinator).findings == ()


def test_without_deletion_vectors_it_waits_for_a_quiet_minute(
    coordinator: str, table: sluice.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.set_properties({"delta.enableDeletionVectors": "false"})
    fill(table, 50)
    daemon = care(coordinator)
    assert "compact" not in done(daemon)
    monkeypatch.setattr(daemon_module, "WINDOW_S", 0.01)
    time.sleep(0.1)
    assert "compact" in done(daemon)


def test_the_first_vacuum_and_later_ones_by_their_schedule(coordinator: str, table: sluice.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    daemon = care(coordinator)
    assert done(daemon)["vacuum"].result == "0 objects of 0 bytes deleted, and 0 files of the log"
    assert done(daemon) == {}
    monkeypatch.setattr(daemon_module, "_HOUR_S", 0.01)  # a week is 1.68 s
    time.sleep(0.2)
    assert done(daemon) == {}
    table.set_properties({"sluice.daemon.vacuumHours": "1"})
    assert set(done(daemon)) == {"vacuum"}
    table.set_properties({"sluice.daemon.vacuumHours": "0"})
    time.sleep(2)
    assert done(daemon) == {}


def test_a_vacuum_that_went_further_before_counts_as_the_last(
    coordinator: str, table: sluice.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon = care(coordinator)
    fill(table, 1)
    table.vacuum(retain_hours=0, force=True)
    monkeypatch.setattr(daemon_module, "_HOUR_S", 0.01)  # a week is 1.68 s
    time.sleep(1.8)
    assert set(done(daemon)) == {"vacuum"}
    assert done(daemon) == {}


def test_a_log_that_has_the_same_version_is_not_read_again(coordinator: str, table: sluice.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(table, 50)
    daemon = care(coordinator)
    assert set(done(daemon)) == {"compact", "vacuum"}
    assert done(daemon) == {}
    with monkeypatch.context() as patched:
        patched.setattr(upkeep_module, "_read", lambda _snapshot: pytest.fail("it was read"))
        assert done(daemon) == {}
        assert daemon._upkeep[table.location].files == 1
    fill(table, 50)
    assert set(done(daemon)) == {"compact"}


def test_a_table_that_wants_no_daemon_is_left_alone(coordinator: str, table: sluice.Table) -> None:
    table.set_properties({"sluice.daemon": "false"})
    fill(table, 50)
    assert done(care(coordinator)) == {}
    for name, value in (("sluice.daemon", "no"), ("sluice.daemon.vacuumHours", "-1")):
        with pytest.raises(sluice.errors.InvalidRequest, match=name):
            table.set_properties({name: value})


def test_what_nobody_publishes_is_published(coordinator: str, table: sluice.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemon_module, "_LATE_S", 0.1)
    with monkeypatch.context() as patched:
        patched.setattr(publisher.Publisher, "publish", fail_to_store)
        commit = table.append(ROWS, timeout_s=2)
    assert commit is not None
    assert not commit.published
    time.sleep(0.2)
    assert done(care(coordinator))["publish"].result == "version 1 is in the log"
    assert DeltaTable(table.location).version() == 1


def test_what_nobody_decides_is_decided(coordinator: str, table: sluice.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemon_module, "_LATE_S", 0.1)
    table.coordinated.alone = False
    with monkeypatch.context() as patched:
        patched.setattr(Decider, "decide", lambda *_: ())
        with pytest.raises(OutcomeUnknown):
            table.append(ROWS, timeout_s=0.2)
    assert done(care(coordinator))["decide"].result == "is committed"
    assert table.refresh().version == 1


def test_a_dropped_table_goes_when_it_cannot_be_brought_back(coordinator: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = sluice.Catalog(coordinator, root=tmp_path / "lake")
    table = catalog.create("orders", ROWS.schema)
    catalog.drop("orders")
    daemon = care(coordinator)
    assert "expire" not in done(daemon)
    later_ms = time.time_ns() // 1_000_000 + 8 * 24 * 3600 * 1000
    with monkeypatch.context() as patched:
        patched.setattr("sluice.coordinator.api.SystemClock.now_ms", lambda _self: later_ms)
        assert catalog.vacuum() == []  # only this machine's clock is fast
    monkeypatch.setattr("sluice.coordinator.api.write_through", lambda _session: (0.0, later_ms))
    assert done(daemon)["expire"].location == table.location
    assert catalog.dropped() == []


def test_a_table_is_cared_for_however_long_its_location_is(coordinator: str, tmp_path: Path) -> None:
    sluice.Table.create(tmp_path / ("a" * 150) / ("b" * 150), ROWS.schema, coordinator=coordinator)
    assert [(each.task, each.error) for each in care(coordinator).round()] == [("vacuum", "")]


def test_a_table_dropped_by_name_is_left_alone_until_it_comes_back(
    coordinator: str, table: sluice.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = sluice.Catalog(coordinator, root=tmp_path / "lake")
    dropped = catalog.create("orders", ROWS.schema)
    watch = watching(coordinator)
    assert len([watch() for _ in range(3)][-1].tables) == 2
    catalog.drop("orders")
    assert {(each.location, each.error) for each in Daemon(coordinator).round()} == {(table.location, "")}
    assert [each.location for each in watch().tables] == [table.location]
    catalog.undrop("orders")
    assert dropped.location in {each.location for each in Daemon(coordinator).round()}


def test_a_dropped_table_that_cannot_be_deleted_keeps_no_other(coordinator: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = sluice.Catalog(coordinator, root=tmp_path / "lake")
    for name in ("orders", "items"):
        catalog.create(name, ROWS.schema)
        catalog.drop(name)
    real = catalog_module.__dict__["drop"]

    def fail_once(address: Any, **keywords: Any) -> Any:
        monkeypatch.setattr(catalog_module, "drop", real)
        raise sluice.errors.StorageUnavailable("access denied")

    monkeypatch.setattr(catalog_module, "drop", fail_once)
    with pytest.raises(sluice.errors.StorageUnavailable, match="access denied"):
        catalog.vacuum(retain_hours=0)
    assert len(catalog.dropped()) == 1
    assert len(catalog.vacuum(retain_hours=0)) == 1


def test_a_failure_is_named_and_tried_again_after_a_pause_that_doubles(
    coordinator: str, table: sluice.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = sluice.Table.create(tmp_path / "other", ROWS.schema, coordinator=coordinator)
    daemon = care(coordinator, interval_s=3.0)

    def fail(opened: sluice.Table, _seen: TableStatus) -> str:
        if opened.location == other.location:
            raise sluice.errors.StorageUnavailable("the store is away")
        return "0 objects deleted"

    monkeypatch.setattr(daemon_module, "_TASKS", {"vacuum": fail})
    first = list(daemon.round())
    assert {each.location: bool(each.error) for each in first} == {table.location: False, other.location: True}
    assert [each.location for each in daemon.round()] == [table.location]  # the other one pauses
    time.sleep(3.05)
    [again] = [each for each in daemon.round() if each.error]
    assert "StorageUnavailable: the store is away" in again.error
    assert daemon._pauses[other.location, "vacuum"][0] == pytest.approx(6.0)


def test_an_error_of_the_machine_ends_neither_the_round_nor_the_daemon(
    coordinator: str, table: sluice.Table, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object, **__: object) -> str:
        raise OSError(24, "too many open files")

    daemon, over = care(coordinator, interval_s=0.05), threading.Event()
    with monkeypatch.context() as patched:
        patched.setattr(daemon_module, "_TASKS", {"vacuum": fail})
        patched.setattr(daemon_module, "take", fail)
        assert {each.task: each.error.split(";")[0] for each in daemon.round()} == dict.fromkeys(
            ("vacuum", "contention"), "OSError: [Errno 24] too many open files"
        )
    assert all(record.exc_info for record in caplog.records)
    caplog.clear()
    monkeypatch.setattr(daemon_module, "read_tables", fail)
    working = threading.Thread(target=daemon.run, args=(over,))
    working.start()
    until(lambda: sum("could not look at the tables" in each.getMessage() for each in caplog.records) >= 2)
    over.set()
    working.join()


def test_work_that_meets_a_lease_fails_aloud(coordinator: str, table: sluice.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> sluice.Table:
        raise sluice.errors.LeaseHeld("a job holds it")

    monkeypatch.setattr(sluice.Table, "open", fail)
    assert "LeaseHeld: a job holds it" in done(care(coordinator))["vacuum"].error


@pytest.mark.parametrize("fails", [False, True])
def test_a_signal_to_end_is_heard_between_two_tasks(
    coordinator: str, table: sluice.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, fails: bool
) -> None:
    sluice.Table.create(tmp_path / "other", ROWS.schema, coordinator=coordinator)
    over, vacuumed = threading.Event(), list[str]()

    def vacuum(opened: sluice.Table, _seen: TableStatus) -> str:
        vacuumed.append(opened.location)
        over.set()
        if fails:
            raise sluice.errors.StorageUnavailable("the store is away")
        return "done"

    monkeypatch.setattr(daemon_module, "_TASKS", {"vacuum": vacuum})
    daemon = care(coordinator)
    daemon._last_s -= 7200
    daemon.run(over)
    assert len(vacuumed) == 1
    assert daemon.is_alive()
    assert len(list(care(coordinator).round())) == 2  # nothing is held


def test_a_first_version_that_nobody_publishes_is_published(coordinator: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemon_module, "_LATE_S", 0.1)
    with monkeypatch.context() as patched:
        patched.setattr(publisher.Publisher, "publish", fail_to_store)
        sluice.Table.create(tmp_path / "made", ROWS.schema, coordinator=coordinator, timeout_s=1)
    time.sleep(0.2)
    assert done(care(coordinator))["publish"].result == "version 0 is in the log"
    assert DeltaTable(tmp_path / "made").version() == 0


def test_a_property_that_means_nothing_is_named_and_holds_up_nobody(
    coordinator: str, table: sluice.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = sluice.Table.create(tmp_path / "other", ROWS.schema, coordinator=coordinator)
    table.detach()
    DeltaTable(table.location).alter.set_table_properties({"sluice.daemon.vacuumHours": "often"}, raise_if_not_exists=False)
    sluice.Table.attach(table.location, coordinator=coordinator)
    daemon = care(coordinator)
    errors = {each.location: each.error for each in daemon.round()}
    assert errors[other.location] == ""
    assert "sluice.daemon.vacuumHours is 'often'" in errors[table.location]
    monkeypatch.setattr(daemon_module, "_LATE_S", 0.1)
    with monkeypatch.context() as patched:
        patched.setattr(publisher.Publisher, "publish", fail_to_store)
        sluice.Table.open(table.location, coordinator=coordinator).append(ROWS, timeout_s=1)
    time.sleep(0.2)
    assert set(done(daemon)) == {"publish"}, "what was named pauses"


def test_a_log_that_cannot_be_read_is_named_and_read_again_after_a_pause(
    coordinator: str, table: sluice.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = sluice.Table.create(tmp_path / "other", ROWS.schema, coordinator=coordinator)
    daemon, real, tried = care(coordinator, interval_s=1.0), upkeep_module.__dict__["list_segment"], list[str]()

    def list_segment(store: Any) -> Any:
        if store.location == table.location:
            tried.append(store.location)
            raise sluice.errors.StorageUnavailable("the store is away")
        return real(store)

    with monkeypatch.context() as patched:
        patched.setattr(upkeep_module, "list_segment", list_segment)
        facts = {each.location: (each.task, each.error) for each in daemon.round()}
        assert facts[other.location] == ("vacuum", "")
        assert facts[table.location] == ("look", "SluiceError: its log cannot be read: the store is away; tried again in 1 s")
        tried.clear()
        assert done(daemon) == {}
        assert tried == []
        assert set(daemon._upkeep) == {other.location}
    time.sleep(1.05)
    assert set(done(daemon)) == {"vacuum"}
    other.drop()
    assert done(daemon) == {}
    assert set(daemon._upkeep) == {table.location}, "nothing is remembered of a table that is gone"


def test_writers_lose_nothing_beside_it(coordinator: str, table: sluice.Table) -> None:
    over = threading.Event()
    daemon = Daemon(coordinator, interval_s=0.05)
    working = threading.Thread(target=daemon.run, args=(over,))
    working.start()

    def write(number: int) -> int:
        mine = sluice.Table.open(table.location, coordinator=coordinator)
        for n in range(40):
            mine.append(pa.table({"id": [1000 * number + n]}))
            if n % 10 == 9:
                mine.delete(f"id = {1000 * number + n}")
        return number

    try:
        with ThreadPoolExecutor(3) as pool:
            list(pool.map(write, (1, 2, 3)))
    finally:
        over.set()
        working.join()
    expected = sorted(1000 * number + n for number in (1, 2, 3) for n in range(40) if n % 10 != 9)
    assert sorted(table.refresh().snapshot().to_arrow().column("id").to_pylist()) == expected
    assert sorted(pl.scan_delta(table.location).collect()["id"].to_list()) == expected


def test_the_probes_say_whether_it_goes_on_and_reaches_the_coordinator(coordinator: str, monkeypatch: pytest.MonkeyPatch) -> None:
    daemon = care(coordinator)
    port, end = serve_probes(daemon, "127.0.0.1", 0)

    def code(path: str) -> int:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}") as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code

    def away(_: str | None) -> None:
        raise sluice.errors.CoordinatorUnavailable("no server answers")

    try:
        assert (code("/healthz"), code("/readyz"), code("/other")) == (200, 200, 404)
        with monkeypatch.context() as patched:
            patched.setattr(daemon_module, "connect", away)
            assert (code("/healthz"), code("/readyz")) == (200, 503)
        daemon._last_s -= 2 * 3600
        assert code("/healthz") == 503
    finally:
        end()


def test_a_coordinator_that_is_away_is_waited_out_and_said(caplog: pytest.LogCaptureFixture) -> None:
    away, over = "zk://127.0.0.1:1/sluice?connect_timeout_s=0.2&retry_s=0.2", threading.Event()
    daemon = Daemon(away, interval_s=0.1)
    working = threading.Thread(target=daemon.run, args=(over,))
    with caplog.at_level("WARNING", logger="sluice.operating.daemon"):
        working.start()
        until(lambda: [each for each in caplog.records if each.name.startswith("sluice.operating")])
        over.set()
        working.join()
    assert not daemon.is_ready()
    said = next(each for each in caplog.records if each.name.startswith("sluice.operating"))
    assert "CoordinatorUnavailable" in said.getMessage()
    assert not said.exc_info
    result = CliRunner().invoke(main, ["daemon", "--once", "--coordinator", away])
    assert result.exit_code == 1
    assert "CoordinatorUnavailable" in result.output


def test_one_round_at_the_command_line(coordinator: str, table: sluice.Table) -> None:
    fill(table, 50)
    result = CliRunner().invoke(main, ["daemon", "--once", "--json", "--coordinator", coordinator])
    assert result.exit_code == 0, result.output
    assert {each["task"] for each in json.loads(result.output)} == {"compact", "vacuum", "doctor"}
    result = CliRunner().invoke(main, ["daemon", "--once", "--json", "--coordinator", coordinator])
    assert (result.exit_code, json.loads(result.output)) == (0, [])
