"""A look that remembers the last one reads less, and says the same."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest
from msgspec.structs import replace

import sluice
from sluice.coordinator.api import connect, release
from sluice.coordinator.errors import CoordinatorUnavailable
from sluice.coordinator.service.memory import MemorySession
from sluice.operating.document import Table as TableStatus
from sluice.operating.memory import Memory
from sluice.operating.status import look

from .scenes import refused, undecided

ROWS = pa.table({"id": [1, 2, 3]})
WINDOW_S = 0.3


@dataclass
class Looker:
    """Looks with a memory, and compares each look with one that remembers nothing."""

    coordinator: str
    window_s: float = WINDOW_S
    memory: Memory = field(default_factory=Memory)
    read: list[str] = field(default_factory=list)

    def look(self) -> tuple[TableStatus, ...]:
        self.read.clear()
        tables = self._look(self.memory)
        fresh = self._look(Memory())
        assert [_without_ages(each) for each in tables] == [_without_ages(each) for each in fresh]
        return tables

    def _look(self, memory: Memory) -> tuple[TableStatus, ...]:
        return look(self.coordinator, self.window_s, memory=memory).tables

    def settle(self) -> None:
        """Look until nothing that happened is in the window, and the tables are watched."""
        time.sleep(self.window_s + 0.1)
        for _ in range(3):
            self.look()


def _without_ages(table: TableStatus) -> TableStatus:
    consumers = tuple(replace(each, idle_s=0) for each in table.consumers)
    oldest = None if table.queue.oldest is None else replace(table.queue.oldest, waits_s=0)
    held = None if table.leases.oldest is None else replace(table.leases.oldest, held_s=0)
    return replace(
        table,
        window_s=0,
        commits_per_s=0,
        since_vacuum_s=None if table.since_vacuum_s is None else 0,
        since_examined_s=None if table.since_examined_s is None else 0,
        since_made_s=0,
        consumers=consumers,
        queue=replace(table.queue, oldest=oldest),
        publication=replace(table.publication, seconds=0),
        leases=replace(table.leases, oldest=held, longest_wait_s=0),
    )


@pytest.fixture
def coordinator() -> str:
    return f"memory://{uuid.uuid4().hex}"


@pytest.fixture
def table(coordinator: str, tmp_path: Path) -> sluice.Table:
    made = sluice.Table.create(tmp_path / "table", ROWS.schema, coordinator=coordinator)
    made.append(ROWS)
    return made


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths that sessions read."""
    paths: list[str] = []
    whole = MemorySession.look

    def look(self: MemorySession, nodes: list[str], parents: list[str]) -> object:
        paths.extend([*nodes, *parents])
        return whole(self, nodes, parents)

    monkeypatch.setattr(MemorySession, "look", look)
    return paths


def test_a_quiet_table_is_not_read_again(coordinator: str, table: sluice.Table, reads: list[str]) -> None:
    looker = Looker(coordinator)
    looker.settle()
    reads.clear()
    looker._look(looker.memory)
    assert not [path for path in reads if "/tables/" in path]


CHANGES: dict[str, Callable[[sluice.Table], object]] = {
    "a commit": lambda table: table.append(ROWS),
    "two commits": lambda table: [table.append(ROWS) for _ in range(2)],
    "a refusal": lambda table: refused(table, ROWS),
    "a waiting transaction": lambda table: undecided(table, ROWS),
    "a detached table": lambda table: table.detach(),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_happens_to_a_quiet_table_is_seen_at_once(coordinator: str, table: sluice.Table, change: str) -> None:
    looker = Looker(coordinator)
    looker.settle()
    CHANGES[change](table)
    [before] = looker.look()
    looker.look()
    if change == "a waiting transaction":
        assert before.queue.length == 1
    table.close()


def test_a_lease_on_a_quiet_table_is_seen_at_once(coordinator: str, table: sluice.Table) -> None:
    looker = Looker(coordinator)
    looker.settle()
    with table.lease(name="repair"):
        assert looker.look()[0].leases.held == 1
    assert looker.look()[0].leases.held == 0


def test_who_waits_for_a_lease_is_seen_at_once(coordinator: str, table: sluice.Table) -> None:
    looker = Looker(coordinator)
    with table.lease(name="repair"):
        looker.settle()
        waiter = threading.Thread(target=lambda: table.append(ROWS))
        waiter.start()
        end = time.monotonic() + 20
        while not looker._look(looker.memory)[0].leases.waiting:
            assert time.monotonic() < end
            time.sleep(0.02)
    waiter.join()


def test_tables_that_come_and_go_are_seen(coordinator: str, table: sluice.Table, tmp_path: Path) -> None:
    looker = Looker(coordinator)
    looker.settle()
    other = sluice.Table.create(tmp_path / "other", ROWS.schema, coordinator=coordinator)
    assert len(looker.look()) == 2
    looker.settle()
    other.drop()
    assert [each.location for each in looker.look()] == [table.location]


def test_another_table_at_the_same_place_has_other_records(coordinator: str, table: sluice.Table, tmp_path: Path) -> None:
    looker = Looker(coordinator, window_s=600)
    assert looker.look()[0].committed == 2
    table.drop()
    time.sleep(3)
    made = sluice.Table.create(tmp_path / "table", ROWS.schema, coordinator=coordinator)
    made.append(ROWS)
    looker.window_s = 2.5
    assert looker.look()[0].committed == 2


def test_a_new_session_remembers_nothing(coordinator: str, table: sluice.Table) -> None:
    looker = Looker(coordinator)
    looker.settle()
    release(coordinator)
    table.append(ROWS)
    looker.look()
    assert looker.memory.session is connect(coordinator)


def test_a_change_is_seen_after_a_look_that_failed(coordinator: str, table: sluice.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    looker = Looker(coordinator)
    looker.settle()
    looker.memory._to_watch.append(table.location)  # as if it had been read again a moment ago
    table.append(ROWS)
    with monkeypatch.context() as patched:
        patched.setattr("sluice.operating.tables._read", lambda *_: (_ for _ in ()).throw(CoordinatorUnavailable("no reply came in time")))
        assert looker._look(looker.memory) == ()
    assert looker.look()[0].version == 2


def test_nothing_is_remembered_of_tables_that_are_gone(coordinator: str, table: sluice.Table, tmp_path: Path) -> None:
    looker = Looker(coordinator)
    looker.settle()
    made = table
    for _ in range(3):
        made.drop()
        made = sluice.Table.create(tmp_path / "table", ROWS.schema, coordinator=coordinator)
        made.append(ROWS)
        looker.look()
    looker.look()
    assert len(looker.memory.records) == 1
    made.drop()
    looker.look()
    assert (looker.memory.records, looker.memory._changed, looker.memory._quiet) == ({}, set(), {})
