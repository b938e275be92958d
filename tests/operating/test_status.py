"""One status of a coordinator and its tables: what it says while things go wrong, as a document, and at the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from click.testing import CliRunner
from jsonschema import Draft202012Validator

import sluice
from sluice.cli import main
from sluice.coordinator.commit.decider import Decider
from sluice.coordinator.errors import OutcomeUnknown
from sluice.coordinator.publication import publisher
from sluice.coordinator.service.clock import bounded_s
from sluice.coordinator.service.store import CoordinationStore, write_through
from sluice.operating.document import Table as TableStatus
from sluice.operating.tables import begin_look
from sluice.operating.top import rows_of
from tests.operating.schema import PATH, schema

ROWS = pa.table({"id": [1, 2, 3]})


@pytest.fixture
def coordinator() -> str:
    return f"memory://{uuid.uuid4().hex}"


@pytest.fixture
def table(coordinator: str, tmp_path: Path) -> sluice.Table:
    made = sluice.Table.create(tmp_path / "table", ROWS.schema, coordinator=coordinator)
    made.append(ROWS)
    return made


def only(seen: sluice.Status) -> TableStatus:
    [found] = seen.tables
    return found


def names(seen: sluice.Status) -> list[str]:
    return [each.name for each in seen.messages]


@contextmanager
def unpublished(table: sluice.Table, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """While the block runs, a commit of the table is ratified and nobody publishes it."""

    def fail(*_: object, **__: object) -> bool:
        raise sluice.errors.StorageUnavailable("the store is away")

    with monkeypatch.context() as patched:
        patched.setattr(publisher.Publisher, "publish", fail)
        commit = table.append(ROWS, timeout_s=2)
        assert commit is not None
        assert not commit.published
        yield


def test_a_quiet_coordinator_is_well(coordinator: str, table: sluice.Table) -> None:
    seen = sluice.status(coordinator)
    assert (seen.ok, seen.limited_by, seen.messages) == (True, "workload", ())
    found = only(seen)
    assert (found.location, found.version, found.name) == (table.location, 1, None)
    assert (found.committed, found.refused, found.queue.length, found.publication.versions) == (2, 0, 0, 0)
    assert found.commits_per_s == pytest.approx(2 / 60, abs=0.001)
    assert seen.coordinator.clients == {sluice.__version__: 1}
    assert seen.coordinator.write_s is not None


def test_a_table_has_its_name(coordinator: str, tmp_path: Path) -> None:
    catalog = sluice.Catalog(coordinator)
    catalog.set_root(tmp_path)
    catalog.create_namespace("Shop")
    catalog.create("Shop.Orders", ROWS.schema)
    assert only(sluice.status(coordinator)).name == "shop.orders"


def test_a_coordinator_without_tables_or_servers_is_well(coordinator: str) -> None:
    seen = sluice.status(coordinator)
    assert (seen.ok, seen.tables, seen.coordinator.servers, seen.limited_by) == (True, (), (), "workload")


def test_an_old_window_counts_what_it_covers(coordinator: str, table: sluice.Table) -> None:
    time.sleep(0.3)
    assert only(sluice.status(coordinator, window_s=0.2)).committed == 0
    for _ in range(140):
        table.append(ROWS)
    found = only(sluice.status(coordinator, window_s=3600))
    assert found.committed >= 120
    assert 0 < found.window_s < 600  # earlier records are gone, so the rate is over fewer seconds
    assert found.commits_per_s > 0.2


def test_a_version_that_nobody_publishes_is_an_error(coordinator: str, table: sluice.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    with unpublished(table, monkeypatch):
        time.sleep(0.2)
        assert sluice.status(coordinator).ok is True  # it may wait that long
        seen = sluice.status(coordinator, bound_s=0.1)
        found = only(seen)
        assert (seen.ok, names(seen), found.limited_by, seen.limited_by) == (False, ["publication-stuck"], "store", "store")
        assert found.publication.versions == 1
        assert found.publication.owner_is_connected is True
        assert 0.1 < found.publication.seconds < 60
        assert seen.messages[0].since is not None
    table.append(ROWS)
    assert sluice.status(coordinator, bound_s=0.1).ok is True


def test_a_commit_that_nobody_decides_is_an_error(coordinator: str, table: sluice.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(Decider, "decide", lambda *_: ())
        table.coordinated.alone = False
        with pytest.raises(OutcomeUnknown):
            table.append(ROWS, timeout_s=0.3)
        seen = sluice.status(coordinator, bound_s=0.1)
    found = only(seen)
    assert (names(seen), found.limited_by, found.queue.length) == (["commit-waits"], "client", 1)
    oldest = found.queue.oldest
    assert oldest is not None
    assert (oldest.operation, oldest.pid > 0) == ("WRITE", True)
    assert oldest.clock_ahead_s is not None
    assert abs(oldest.clock_ahead_s) < 5


def test_who_holds_a_lease_and_who_waits_for_it_is_seen(coordinator: str, table: sluice.Table) -> None:
    with table.lease(name="load"):
        waiter = threading.Thread(target=lambda: table.append(ROWS))
        waiter.start()
        end = time.monotonic() + 20
        while not only(seen := sluice.status(coordinator, bound_s=0.1)).leases.longest_wait_s > 0.1 and time.monotonic() < end:
            time.sleep(0.05)
        held = only(seen).leases
        [message] = seen.messages
        [row] = rows_of(seen.tables)
    waiter.join()
    assert (message.name, message.severity, seen.ok) == ("lease-waits", "warning", True)
    assert held.waiter is not None
    assert f"first {held.waiter.application} on {held.waiter.host} (process {os.getpid()})" in message.what
    assert str(row["oldest"]).endswith(f" s, {held.waiter.application}")
    assert (held.held, held.waiting, only(seen).limited_by) == (1, 1, "lease")
    assert held.oldest is not None
    assert held.oldest.mode == "exclusive"
    assert only(sluice.status(coordinator)).leases.held == 0


def test_refusals_are_counted_by_rule_and_winner(coordinator: str, table: sluice.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    table.coordinated.alone = False
    for _ in range(5):
        late = table.begin()
        late.delete("id = 1")
        with monkeypatch.context() as patched:
            patched.setattr(Decider, "decide", lambda *_: ())
            with pytest.raises(OutcomeUnknown):
                table.overwrite(ROWS, timeout_s=0.2)
            with pytest.raises(OutcomeUnknown):
                late.commit(timeout_s=0.2)
        table.append(ROWS)  # decides both: the overwrite commits, and the deletion is refused
    seen = sluice.status(coordinator)
    [counted] = only(seen).refusals
    assert (counted.count, counted.rule, counted.operation) == (5, "appended-what-i-read", "WRITE")
    assert counted.application == counted.winner != ""
    assert only(seen).refused == 5
    assert names(seen) == ["loses-often"]
    assert seen.messages[0].since == counted.first < counted.last


def test_a_consumer_that_stopped_is_seen(coordinator: str, table: sluice.Table) -> None:
    with table.consumer("copy", after=0) as consumer:
        next(consumer)
        consumer.commit()
    table.append(ROWS)
    [found] = only(sluice.status(coordinator)).consumers
    assert (found.name, found.versions_behind) == ("copy", 1)


def test_upkeep_is_what_a_compaction_would_do(coordinator: str, table: sluice.Table) -> None:
    table.delete("id = 2")
    found = only(sluice.status(coordinator)).upkeep
    assert found is None
    for _ in range(3):
        table.append(ROWS)
    seen = only(sluice.status(coordinator, upkeep=True)).upkeep
    assert seen is not None
    files = len(table.snapshot().files())
    assert (seen.version, seen.files, seen.small_files, seen.foreign) == (5, files, files, ())
    table.compact()
    after = only(sluice.status(coordinator, upkeep=True)).upkeep
    assert after is not None
    assert (after.files, after.small_files, after.files_with_vectors) == (1, 0, 0)


def test_a_version_that_another_engine_wrote_is_an_error(coordinator: str, table: sluice.Table) -> None:
    log = Path(table.location.removeprefix("file://")) / "_delta_log"
    info = {"timestamp": 1, "inCommitTimestamp": time.time_ns() // 1_000_000 + 1000, "operation": "WRITE"}
    (log / "00000000000000000002.json").write_text(json.dumps({"commitInfo": info}))
    seen = sluice.status(coordinator, upkeep=True)
    assert (seen.ok, names(seen)) == (False, ["foreign-commit"])
    assert "version 2" in seen.messages[0].what


def test_a_damaged_version_of_another_engine_is_a_foreign_commit_too(coordinator: str, table: sluice.Table) -> None:
    log = Path(table.location.removeprefix("file://")) / "_delta_log"
    (log / "00000000000000000002.json").write_bytes((log / "00000000000000000001.json").read_bytes())
    (log / "00000000000000000003.json").write_text("{")
    seen = sluice.status(coordinator, upkeep=True)
    assert (seen.ok, names(seen)) == (False, ["foreign-commit"] * 2)
    upkeep = only(seen).upkeep
    assert upkeep is not None
    assert upkeep.version == 1


def test_a_log_that_is_out_of_reach_is_no_damage(coordinator: str, table: sluice.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: object) -> None:
        raise sluice.errors.StorageUnavailable("the store is away")

    monkeypatch.setattr("sluice.operating.upkeep.list_segment", away)
    seen = sluice.status(coordinator, upkeep=True)
    assert (seen.ok, [(each.name, each.severity) for each in seen.messages]) == (None, [("table-not-read", "warning")])


def test_a_log_that_cannot_be_read_leaves_the_rest(coordinator: str, table: sluice.Table, tmp_path: Path) -> None:
    other = sluice.Table.create(tmp_path / "other", ROWS.schema, coordinator=coordinator)
    log = Path(table.location.removeprefix("file://")) / "_delta_log"
    for each in log.glob("0*"):
        each.unlink()
    seen = sluice.status(coordinator, upkeep=True)
    assert seen.ok is False
    by_location = {each.location: each for each in seen.tables}
    assert by_location[table.location].trouble is not None
    assert by_location[other.location].upkeep is not None
    assert [(each.name, each.severity) for each in seen.messages] == [("table-not-read", "error")]
    assert f"sluice doctor {table.location}" in seen.messages[0].remedy


def test_nodes_of_a_newer_release_leave_the_rest(coordinator: str, table: sluice.Table) -> None:
    session = table.coordinated.context.coordination
    path = table.coordinated.context.tree.head
    node = session.read(path)
    assert node is not None
    session.write(path, json.dumps({**json.loads(node.data), "format": 99}).encode(), version=node.version)
    seen = sluice.status(coordinator)
    assert (seen.ok, names(seen)) == (None, ["table-not-read"])


def test_a_coordinator_that_is_away_is_an_error() -> None:
    seen = sluice.status("zk://127.0.0.1:1/sluice?connect_timeout_s=0.2&retry_s=0.2", timeout_s=0.5)
    assert (seen.ok, seen.limited_by, seen.tables) == (False, "coordinator", ())
    assert names(seen)[:2] == ["coordinator-away", "server-away"]


def test_a_slow_write_leaves_time_for_reading(coordinator: str, table: sluice.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """A coordinator whose writes take more than half of the time of a look is slow, and not away."""
    left_s = list[float]()

    def slow(session: CoordinationStore) -> tuple[float, int]:
        time.sleep(0.6)
        return 0.6, write_through(session)[1]

    def begun(*arguments: Any) -> Any:
        left_s.append(bounded_s(60.0))
        return begin_look(*arguments)

    monkeypatch.setattr("sluice.operating.status.write_through", slow)
    monkeypatch.setattr("sluice.operating.status.begin_look", begun)
    seen = sluice.status(coordinator, timeout_s=0.5)
    assert left_s[0] > 0.4
    assert [each.name for each in seen.messages] == ["coordinator-slow"]
    assert only(seen).version == 1


def test_the_schema_is_the_document_and_documents_fit_it(coordinator: str, table: sluice.Table) -> None:
    published = json.loads(PATH.read_bytes())
    assert published == json.loads(json.dumps(schema())), "the document changed: see its rules, then `python -m tests.operating`"
    with table.lease(name="load"):
        for seen in (sluice.status(coordinator, upkeep=True), sluice.status("memory://nobody")):
            Draft202012Validator(published).validate(json.loads(msgspec.json.encode(seen)))


def test_a_field_that_was_published_stays() -> None:
    """The fields of format 1, which programs read: a release may add some, and take none away."""
    definitions = schema()["$defs"]
    assert set(definitions["Status"]["required"]) == {"at", "ok", "coordinator", "tables", "limited_by", "messages"}
    published: dict[str, Any] = {
        "Table": "location name version detached ahead_s window_s committed refused commits_per_s refusals queue publication leases",
        "Message": "name severity what since where remedy",
        "Coordinator": "address write_s trouble servers may_stop_before_commits_do may_be_lost_before_data_are clients",
    }
    for name, fields in published.items():
        assert set(fields.split()) <= set(definitions[name]["properties"]), name


def command(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, ["status", *arguments])
    return result.exit_code, result.output


def test_the_command_shows_the_same(coordinator: str, table: sluice.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    status, told = command("--coordinator", coordinator)
    assert status == 0
    assert "limited by: workload" in told
    status, told = command("--coordinator", coordinator, "--json", "--upkeep")
    assert status == 0
    assert json.loads(told)["tables"][0]["upkeep"]["files"] == 1
    with unpublished(table, monkeypatch):
        time.sleep(0.2)
        status, told = command("--coordinator", coordinator, "--bound", "0.1", "--wait", "0.1")
        assert status == 1
        assert "ERROR publication-stuck" in told
    assert command("--coordinator", "memory://unknown", "--window", "-1")[0] == 2


@pytest.mark.parametrize("words", [("top",), ("status", "--watch")])
def test_watching_goes_on_until_it_is_interrupted(tmp_path: Path, words: tuple[str, ...]) -> None:
    program = [sys.executable, "-m", "sluice", *words, "--json", "--coordinator", "memory://watched"]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True, cwd=tmp_path) as watching:
        assert watching.stdout is not None
        first, second = (json.loads(watching.stdout.readline()) for _ in range(2))
        watching.terminate()
    assert first["at"] < second["at"]
