"""When version checksums are written beside the commits, and by whom."""

from __future__ import annotations

import json
import logging
import time
from typing import Any

import pytest

import sluice
from sluice.storage.log.checksum import disagreements
from sluice.storage.log.snapshot import Snapshot
from sluice.storage.stores.memory import MemoryStore
from tests.storage.logs import crc_path
from tests.tables.conftest import flights, present
from tests.tables.maintain.test_checkpoints import INTERVAL, InMemory


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sluice.tables.maintain.background._CHECKSUM_PAUSE_S", 0.0)


def sums(world: InMemory) -> list[int]:
    return sorted(int(key[11:31]) for key in world.disk.objects if key.endswith(".crc"))


def appended(table: sluice.Table, commits: int) -> None:
    for number in range(commits):
        table.append(flights(("JFK", 1, number)))
        table._checkpointer.wait()


def right(world: InMemory) -> bool:
    """Whether every checksum says what the log gives."""
    store = MemoryStore.open(world.name)
    return all(
        not disagreements(json.loads(store.get(crc_path(each))), Snapshot.load(store, version=each).summary()) for each in sums(world)
    )


def test_every_tenth_version_and_every_checkpoint_has_a_checksum() -> None:
    world = InMemory(**{INTERVAL: "13"})
    with world.open() as table:
        appended(table, 12)
        table.delete("delay = 3")
        table._checkpointer.wait()
        appended(table, 8)
    assert (sums(world), world.checkpoints()) == ([10, 13, 20], [13])
    assert right(world)


def test_a_checkpoint_by_hand_has_a_checksum() -> None:
    world = InMemory()
    with world.open() as table:
        appended(table, 3)
        assert table.checkpoint() == 3
    assert sums(world) == [3]
    assert right(world)


def test_who_did_not_make_the_version_s_file_leaves_its_checksum_to_the_one_who_did() -> None:
    world = InMemory()
    with world.open() as mine, world.open() as others:
        appended(mine, 9)
        others._checkpointer.committed = lambda *_: None  # type: ignore[method-assign]
        version = present(others.append(flights(("JFK", 1, 9)))).version
        assert version == 10
        mine._checkpointer.committed(version)  # as if the version were a group that has rows of this client, too
        mine._checkpointer.wait()
    assert sums(world) == []


@pytest.mark.notices("checksums-are-of-published-versions")
def test_a_version_that_is_not_published_has_no_checksum() -> None:
    world = InMemory()
    with world.open() as table:
        appended(table, 10)
        world.disk.objects.pop(crc_path(10))
        table.coordinated.published_version = lambda: 9  # type: ignore[method-assign]
        table._checkpointer.committed(10)
        table._checkpointer.wait()
        assert sums(world) == []


def test_a_failing_checksum_is_logged_and_the_next_one_is_written(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "sluice.tables.maintain.background")
    world = InMemory()
    world.disk.fail_before("put_if_absent", "*.crc")
    with world.open() as table:
        appended(table, 20)
    assert sums(world) == [20]
    said = [record for record in caplog.records if world.name in record.getMessage()]
    assert [(record.levelno, "no checksum of version 10" in record.getMessage()) for record in said] == [(logging.INFO, True)]


def test_many_commits_in_a_row_have_few_checksums(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sluice.tables.maintain.background._CHECKSUM_PAUSE_S", 1000.0)
    world = InMemory()
    with world.open() as table:
        appended(table, 30)
        assert sums(world) == [10]
        table._checkpointer._checksum_from_s -= 1000
        appended(table, 10)
    assert sums(world) == [10, 40]


def test_a_slow_checksum_delays_no_commit() -> None:
    world = InMemory()
    world.disk.slow("put_if_absent", lambda: time.sleep(5), "*.crc")
    with world.open(timeout_s=0.1) as table:
        for number in range(9):
            table.append(flights(("JFK", 1, number)))
        begun = time.monotonic()
        for number in range(6):
            table.append(flights(("JFK", 1, number)))
        assert time.monotonic() - begun < 4
    table._checkpointer.wait()


def test_a_client_without_the_list_of_files_reads_it_for_no_checksum(monkeypatch: pytest.MonkeyPatch) -> None:
    """A list of many files, which is more than a request."""
    monkeypatch.setattr("sluice.storage.log.replay._WHOLE_BYTES", 0)
    world = InMemory()
    with world.open() as table:
        appended(table, 8)
        table.checkpoint()
    with world.open() as table:
        appended(table, 2)
    assert sums(world) == [8]
    with world.open() as table:
        assert table.snapshot().to_arrow().num_rows == 10
        appended(table, 10)
    assert sums(world) == [8, 20]
    assert right(world)


def test_checksums_say_what_the_log_gives_under_every_operation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows marked in deletion vectors, files with new statistics, files that a RESTORE brings back, and several writers."""
    monkeypatch.setattr("sluice.tables.maintain.background._CHECKSUM_EVERY", 1)
    world = InMemory(**{"delta.enableDeletionVectors": "true"})

    def done(table: sluice.Table, change: Any) -> None:
        change(table)
        table._checkpointer.wait()

    with world.open() as mine, world.open() as others:
        for number in range(3):
            done(mine, lambda table, number=number: table.append(flights(*[("JFK", 1, number * 10 + row) for row in range(5)])))
            done(others, lambda table, number=number: table.delete(f"delay = {number * 10}"))
        done(mine, lambda table: table.update({"delay": "delay + 100"}, where="delay = 21"))
        done(others, lambda table: table.compact())
        done(mine, lambda table: table.restore(version=4))
        done(others, lambda table: table.analyze())
        done(mine, lambda table: table.set_properties({"note": "x"}))
        latest = mine.snapshot().version
    assert set(sums(world)) >= {*range(1, 7)}
    assert latest in sums(world)
    assert right(world)
