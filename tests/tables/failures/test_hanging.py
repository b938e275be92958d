"""A real ZooKeeper that hangs (SIGSTOP): every call that takes a time ends within it, and half a second."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

import sluice
from sluice.coordinator.commit import decider
from sluice.coordinator.commit import transactions as committer_module
from sluice.coordinator.errors import CoordinatorUnavailable, OutcomeUnknown
from sluice.coordinator.publication import publisher
from sluice.coordinator.service.connect import release
from sluice.storage.errors import Unavailable
from sluice.tables.maintain.bins import Bin
from sluice.tables.maintain.rewriting import Output, Rewriter
from sluice.tables.read.table_snapshot import TableSnapshot
from tests.chaos.ensemble import Ensemble
from tests.tables.conftest import present

pytestmark = pytest.mark.zookeeper

LIMIT_S = 3.0
OVERSHOOT_S = 2.5
"""Room for a busy machine, and less than a second wait of LIMIT_S would take."""
ROWS = pa.table({"id": [1, 2, 3]})
AWAY = (CoordinatorUnavailable, OutcomeUnknown, Unavailable)


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ensemble]:
    ensemble = Ensemble(tmp_path_factory.mktemp("zookeeper"), servers=1)
    ensemble.start()
    yield ensemble
    ensemble.go_on(0)
    ensemble.close()


@pytest.fixture
def coordinator(servers: Ensemble) -> Iterator[str]:
    address = f"zk://{servers.hosts}/sluice?session_timeout_s=30"
    yield address
    servers.go_on(0)
    release(address)


@pytest.fixture
def table(coordinator: str, tmp_path: Path) -> sluice.Table:
    made = sluice.Table.create(tmp_path / "table", ROWS.schema, coordinator=coordinator)
    made.append(ROWS)
    return made


def took_s(call: Callable[[], object], errors: tuple[type[Exception], ...] = AWAY) -> float:
    began = time.monotonic()
    with pytest.raises(errors):
        call()
    return time.monotonic() - began


def examined(table: sluice.Table) -> None:
    """For a doctor an absent coordinator is a finding, and the log is examined all the same."""
    diagnosis = sluice.doctor(table.location, coordinator=table.access.address.coordinator, timeout_s=LIMIT_S)
    if "coordinator-away" in {each.name for each in diagnosis.findings}:
        raise CoordinatorUnavailable("the doctor says so")


CALLS: dict[str, Callable[[sluice.Table], object]] = {
    "append": lambda table: table.append(ROWS, timeout_s=LIMIT_S),
    "overwrite": lambda table: table.overwrite(ROWS, timeout_s=LIMIT_S),
    "delete": lambda table: table.delete("id = 1", timeout_s=LIMIT_S),
    "update": lambda table: table.update({"id": "id + 1"}, "id = 1", timeout_s=LIMIT_S),
    "truncate": lambda table: table.truncate(timeout_s=LIMIT_S),
    "upsert": lambda table: table.upsert(ROWS, on="id", timeout_s=LIMIT_S),
    "append with a number": lambda table: table.append(ROWS, transaction=("app", 1), timeout_s=LIMIT_S),
    "set_properties": lambda table: table.set_properties({"a.b": "c"}, timeout_s=LIMIT_S),
    "unset_properties": lambda table: table.unset_properties(["a.b"], timeout_s=LIMIT_S),
    "set_domain": lambda table: table.set_domain("a", "b", timeout_s=LIMIT_S),
    "remove_domain": lambda table: table.remove_domain("a", timeout_s=LIMIT_S),
    "detach": lambda table: table.detach(timeout_s=LIMIT_S),
    "refresh": lambda table: table.refresh(timeout_s=LIMIT_S),
    "refresh, serial": lambda table: table.refresh("serial", timeout_s=LIMIT_S),
    "outcome": lambda table: table.outcome("6b05be2f-0000-8002-8000-3f606a813a77", timeout_s=LIMIT_S),
    "outcome of any table": lambda table: sluice.outcome(
        "6b05be2f-0000-8002-8000-3f606a813a77", coordinator=table.access.address.coordinator, timeout_s=LIMIT_S
    ),
    "begin": lambda table: table.begin(timeout_s=LIMIT_S).commit(),
    "lease": lambda table: table.lease(wait_s=sluice.Deadline.after(LIMIT_S)),
    "read together": lambda table: sluice.read_together([table], timeout_s=LIMIT_S),
    "deadline": lambda table: table.append(ROWS, timeout_s=sluice.Deadline.after(LIMIT_S)),
    "compact": lambda table: table.compact("major", timeout_s=LIMIT_S),
    "vacuum": lambda table: table.vacuum(timeout_s=LIMIT_S),
    "vacuum, dry run": lambda table: table.vacuum(dry_run=True, timeout_s=LIMIT_S),
    "changes": lambda table: table.changes(-1, timeout_s=LIMIT_S),
    "changes_batches": lambda table: table.changes_batches(-1, timeout_s=LIMIT_S),
    "split_changes": lambda table: table.split_changes(-1, timeout_s=LIMIT_S),
    "history": lambda table: table.history(timeout_s=LIMIT_S),
    "checkpoint": lambda table: table.checkpoint(timeout_s=LIMIT_S),
    "plan_write": lambda table: table.plan_write(ROWS.schema, timeout_s=LIMIT_S),
    "pin": lambda table: TableSnapshot.pin(table.snapshot(0, consistency="published"), timeout_s=LIMIT_S),
    "forget": lambda table: sluice.forget(table.location, coordinator=table.access.address.coordinator, timeout_s=LIMIT_S),
    "doctor": examined,
}


def test_every_call_ends_in_time(servers: Ensemble, coordinator: str, tmp_path: Path) -> None:
    """All at once, each on a table of its own: they wait for the same server, and none for another."""
    tables = {}
    for call in CALLS:
        tables[call] = sluice.Table.create(tmp_path / call, ROWS.schema, coordinator=coordinator)
        tables[call].append(ROWS)
    servers.pause(0)
    with ThreadPoolExecutor(len(CALLS)) as pool:
        calls = {call: pool.submit(took_s, partial(CALLS[call], table)) for call, table in tables.items()}
        took = {call: future.result() for call, future in calls.items()}
    assert {call: seconds for call, seconds in took.items() if seconds > LIMIT_S + OVERSHOOT_S} == {}


def test_operations_of_a_transaction_end_in_the_time_of_the_transaction(servers: Ensemble, table: sluice.Table) -> None:
    late = table.begin(timeout_s=LIMIT_S)
    late.scan(where="id = 1")
    servers.pause(0)
    assert took_s(lambda: late.update({"id": "id + 1"}, "id = 1")) <= LIMIT_S + OVERSHOOT_S
    assert took_s(late.check) <= LIMIT_S + OVERSHOOT_S


def test_what_a_lease_waits_for_at_its_end(servers: Ensemble, table: sluice.Table) -> None:
    lease = table.lease()
    servers.pause(0)
    assert took_s(lambda: lease.check(timeout_s=LIMIT_S)) <= LIMIT_S + OVERSHOOT_S
    began = time.monotonic()
    with lease:
        pass
    assert time.monotonic() - began <= 3 + 2 * OVERSHOOT_S


def test_a_compaction_that_is_under_way_ends_in_time(servers: Ensemble, table: sluice.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """ZooKeeper hangs while files are written: nothing is committed, and the new files go."""
    table.append(ROWS)
    before = set(Path(table.location.removeprefix("file://")).rglob("*.parquet"))
    real = Rewriter.rewrite

    def rewrite(self: Rewriter, number: int, one: Bin, sources: pa.Table) -> Output:
        done = real(self, number, one, sources)
        servers.pause(0)
        return done

    monkeypatch.setattr(Rewriter, "rewrite", rewrite)
    assert took_s(lambda: table.compact(timeout_s=LIMIT_S)) <= LIMIT_S + OVERSHOOT_S
    servers.go_on(0)
    assert table.refresh().version == 2
    assert set(Path(table.location.removeprefix("file://")).rglob("*.parquet")) == before


def test_transactions_begun_before_end_in_time(servers: Ensemble, coordinator: str, table: sluice.Table, tmp_path: Path) -> None:
    other = sluice.Table.create(tmp_path / "other", ROWS.schema, coordinator=coordinator)
    alone = table.begin()
    alone.append(ROWS)
    both = sluice.transaction(coordinator, tables=[table, other])
    both[table].append(ROWS)
    both[other].append(ROWS)
    servers.pause(0)
    calls = (partial(alone.commit, timeout_s=LIMIT_S), partial(both.commit, timeout_s=LIMIT_S))
    with ThreadPoolExecutor(len(calls)) as pool:
        assert max(pool.map(took_s, calls)) <= LIMIT_S + OVERSHOOT_S
    with pytest.raises(AWAY):
        table.append(ROWS, timeout_s=LIMIT_S)


@pytest.mark.parametrize("where", ["before-ratify", "after-ratify", "before-publish", "after-publish"])
def test_a_commit_ends_in_time_wherever_the_server_stops(
    servers: Ensemble, table: sluice.Table, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(name: str) -> None:
        if name == where:
            servers.pause(0)

    for module in (committer_module, decider, publisher):
        if hasattr(module, "point"):
            monkeypatch.setattr(module, "point", stop)
    began = time.monotonic()
    if where == "before-ratify":
        with pytest.raises(OutcomeUnknown) as unknown:
            table.append(ROWS, timeout_s=LIMIT_S)
        assert unknown.value.stage == "intent"
    else:
        commit = present(table.append(ROWS, timeout_s=LIMIT_S))
        assert not commit.published
    assert time.monotonic() - began <= LIMIT_S + OVERSHOOT_S


def test_a_connection_is_not_waited_for_beyond_its_time(servers: Ensemble, coordinator: str, table: sluice.Table) -> None:
    location = table.access.address.location
    table.close()
    release(coordinator)
    servers.pause(0)
    address = f"{coordinator}&connect_timeout_s={LIMIT_S}"
    assert took_s(lambda: sluice.Table.open(location, coordinator=address)) <= LIMIT_S + OVERSHOOT_S


def test_closing_ends_in_time(servers: Ensemble, coordinator: str, tmp_path: Path) -> None:
    table = sluice.Table.create(tmp_path / "t", ROWS.schema, coordinator=coordinator, timeout_s=LIMIT_S, ack="ratified")
    for _ in range(12):
        table.append(ROWS, timeout_s=30)
    servers.pause(0)
    began = time.monotonic()
    table.close()
    assert time.monotonic() - began <= LIMIT_S + OVERSHOOT_S


def test_leaving_ends_in_time(servers: Ensemble, coordinator: str, table: sluice.Table) -> None:
    servers.pause(0)
    ended = threading.Event()

    def leave() -> None:
        release(coordinator)
        ended.set()

    threading.Thread(target=leave, daemon=True).start()
    assert ended.wait(3 + OVERSHOOT_S)
