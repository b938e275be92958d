"""When checkpoints are written, and by whom: never later than twice the interval, once, off the commit path."""

from __future__ import annotations

import itertools
import json
import logging
import multiprocessing
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, cast

import pytest

import sluice
from sluice.coordinator.nodes.checkpoint_claim import claim_checkpoint
from sluice.storage.log.checkpoint_writer import write_checkpoint
from sluice.storage.stores.memory import MemoryStore
from tests.tables.conftest import FLIGHTS, Place, flights, present
from tests.tables.elsewhere import Writer

INTERVAL = "delta.checkpointInterval"


def widest_gap(checkpoints: list[int], latest: int) -> int:
    edges = [0, *checkpoints, latest]
    return max(high - low for low, high in itertools.pairwise(edges))


class InMemory:
    """A table whose store and coordinator are in memory."""

    def __init__(self, **properties: str) -> None:
        self.name = f"table-{os.urandom(8).hex()}"
        self.disk = MemoryStore.open(self.name).disk
        sluice.Table.create(f"memory://{self.name}", FLIGHTS, coordinator=f"memory://{self.name}", properties=properties)

    def open(self, **options: Any) -> sluice.Table:
        return sluice.Table.open(f"memory://{self.name}", coordinator=f"memory://{self.name}", **options)

    def checkpoints(self) -> list[int]:
        return sorted(int(key[11:31]) for key in self.disk.objects if key.endswith(".checkpoint.parquet"))


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The versions whose checkpoint somebody began to write."""
    versions: list[int] = []

    def noted(store: Any, snapshot: Any) -> None:
        versions.append(snapshot.version)
        write_checkpoint(store, snapshot)

    monkeypatch.setattr("sluice.tables.maintain.background.write_checkpoint", noted)
    return versions


@pytest.mark.zookeeper
@pytest.mark.long
def test_a_table_that_only_short_jobs_write_has_checkpoints(zookeeper_address: str, tmp_path: Path) -> None:
    """Each job commits two versions and ends at once, while a checkpoint of its table takes a second."""
    location = str(tmp_path / "flights")
    sluice.Table.create(location, FLIGHTS, coordinator=zookeeper_address, properties={INTERVAL: "3"})
    for first in range(0, 10, 2):
        arguments = {"location": location, "coordinator": zookeeper_address, "first": first, "commits": 2}
        command = [sys.executable, "-m", "tests.tables.checkpoint_program", json.dumps(arguments)]
        subprocess.run(command, check=True, timeout=120)
    checkpoints = sorted(int(each.name.split(".")[0]) for each in (tmp_path / "flights" / "_delta_log").glob("*.checkpoint.parquet"))
    assert widest_gap(checkpoints, 10) <= 6


def test_versions_that_jump_over_the_multiples_of_the_interval(written: list[int]) -> None:
    """A version that somebody else commits, who writes no checkpoints, may be the very multiple of the interval."""
    world = InMemory(**{INTERVAL: "4"})
    with world.open() as mine, world.open() as others:
        others._checkpointer.committed = lambda *_: None  # type: ignore[method-assign]
        for version in range(1, 14):
            (others if version % 4 == 0 else mine).append(flights(("JFK", 1, version)))
            mine._checkpointer.wait()
    assert widest_gap(world.checkpoints(), 13) <= 8


def test_closing_waits_for_the_checkpoint_and_no_longer_than_the_table_s_time(written: list[int]) -> None:
    world = InMemory(**{INTERVAL: "2"})
    world.disk.slow("upload", lambda: time.sleep(0.5), "*.checkpoint.parquet")
    with world.open() as table:
        for n in range(2):
            table.append(flights(("JFK", 1, n)))
    assert world.checkpoints() == [2]
    held = threading.Event()
    world.disk.slow("upload", lambda: held.wait(20), "*.checkpoint.parquet")
    with world.open(timeout_s=0.5) as table:
        for n in range(2):
            table.append(flights(("JFK", 1, n)))
        begun = time.monotonic()
    assert time.monotonic() - begun < 10
    held.set()
    table._checkpointer.wait()


@pytest.mark.notices("one-writes-a-checkpoint")
def test_many_writers_write_each_checkpoint_once(written: list[int]) -> None:
    """Every writer sees that it is due while one of them takes its time."""
    world = InMemory(**{INTERVAL: "5"})
    appended = threading.Event()
    world.disk.slow("upload", lambda: appended.wait(30), "*.checkpoint.parquet", times=1)
    tables = [world.open() for _ in range(4)]
    for n in range(12):
        tables[n % 4].append(flights(("JFK", 1, n)))
    for table in tables[1:]:  # the first one writes it
        table._checkpointer.wait()
    appended.set()
    for table in tables:
        table.close()
    assert len(written) == 1


def test_a_failing_checkpoint_is_not_tried_on_each_commit(written: list[int], caplog: pytest.LogCaptureFixture) -> None:
    world = InMemory(**{INTERVAL: "4"})
    world.disk.fail_before("upload", "*.checkpoint.parquet", times=1000)
    for n in range(16):  # jobs of one commit each
        with world.open() as table:
            assert present(table.append(flights(("JFK", 1, n)))).published
    assert len(written) == 1
    said = [record for record in caplog.records if world.name in record.getMessage()]
    assert [record.levelno for record in said] == [logging.WARNING]
    assert "no checkpoint" in said[0].getMessage()


def test_who_dies_while_writing_one_leaves_it_to_others_a_while_later(place: Place) -> None:
    """An attempt counts for a minute and half an interval."""
    context = place.create().coordinated.context
    now_ms = 1_000_000
    assert claim_checkpoint(context, 10, last=0, interval=10, now_ms=now_ms)
    assert not claim_checkpoint(context, 10, last=0, interval=10, now_ms=now_ms)
    assert not claim_checkpoint(context, 30, last=0, interval=10, now_ms=now_ms + 59_000)
    assert not claim_checkpoint(context, 14, last=0, interval=10, now_ms=now_ms + 61_000)
    assert claim_checkpoint(context, 15, last=0, interval=10, now_ms=now_ms + 61_000)
    assert not claim_checkpoint(context, 16, last=0, interval=10, now_ms=now_ms + 62_000)
    assert claim_checkpoint(context, 25, last=15, interval=10, now_ms=now_ms + 62_000)  # it was written: the next one is another matter


@pytest.mark.notices("the-claim-of-a-checkpoint-is-compared")
def test_of_two_who_see_at_once_that_one_is_due_one_writes_it(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another client claims it between the look and the claim of the first."""
    place.create()
    mine, others = (Writer(place).access.context for _ in range(2))
    for after in (0, 10):  # the node is made by the first claim of all, and replaced by later ones
        apply = type(mine.coordination).apply
        claimed: list[bool] = []

        def overtaken(self: Any, ops: Any, apply: Any = apply, after: int = after, claimed: list[bool] = claimed) -> Any:
            monkeypatch.undo()
            claimed.append(claim_checkpoint(others, after + 10, last=after, interval=10, now_ms=1))
            return apply(self, ops)

        monkeypatch.setattr(type(mine.coordination), "apply", overtaken)
        claimed.append(claim_checkpoint(mine, after + 10, last=after, interval=10, now_ms=1))
        assert claimed == [True, False]


def test_a_claim_that_cannot_be_read_is_replaced(place: Place) -> None:
    context = place.create().coordinated.context
    context.coordination.create(context.tree.checkpoint, b"nonsense")
    assert claim_checkpoint(context, 10, last=0, interval=10, now_ms=1)
    assert not claim_checkpoint(context, 11, last=0, interval=10, now_ms=1)


def _checkpoint_in_child(table: sluice.Table, results: Any) -> None:
    results.put((table.snapshot().num_files, table.checkpoint()))


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_does_not_wait_for_threads_that_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    place = InMemory(**{INTERVAL: "100"})
    table = place.open()
    for number in range(3):
        table.append(flights(("JFK", 1, number)))
    table.checkpoint()
    monkeypatch.setattr("sluice.storage.log.replay._WHOLE_BYTES", 0)
    other = place.open()
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    state = other.access.current()._state
    # As if other threads read the list of files and wrote a checkpoint at the moment of the fork.
    with other._checkpointer._busy, cast(Any, state.files._layers.base).source._lock:
        child = context.Process(target=_checkpoint_in_child, args=(other, results), daemon=True)
        child.start()
    assert results.get(timeout=30) == (3, 3)
    child.join(30)
