"""Tables move between coordinators beside real writers, and the mover dies by SIGKILL at every step, on a real ZooKeeper.

Goal: each append that was acknowledged is there once and no writer fails; the table is at one of the two coordinators; the log is whole for
delta-rs. The two coordinators are two trees of one ensemble: neither knows of the other.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

import sluice
from sluice.coordinator.publication.failure_points import MOVE_POINTS
from sluice.coordinator.service.connect import connect
from tests.killed import Ended, until_ended, until_killed
from tests.tables import move_program
from tests.tables.conftest import present

SCHEMA = pa.schema([pa.field("v", pa.int64())])
BEFORE_IT_LEFT = {"move-leased", "move-settled"}
HAVE_IT = "sluice.coordinator"


@contextmanager
def writing(location: Path, coordinator: str, pool: ThreadPoolExecutor) -> Iterator[Future[Ended]]:
    """Eight writers in a process of their own, which began before the block and go on for a while after it."""
    over = location.with_name("over")
    order = {"location": str(location), "coordinator": coordinator, "writers": list(range(1, 9)), "until": str(over)}
    running = pool.submit(until_ended, move_program.writes, order)
    try:
        go_on(location, running, 10)
        yield running
        go_on(location, running, 20)
    finally:
        over.touch()


def go_on(location: Path, running: Future[Ended], versions: int) -> None:
    before, deadline = len(list((location / "_delta_log").glob("*.json"))), time.monotonic() + 60
    while len(list((location / "_delta_log").glob("*.json"))) < before + versions and not running.done():
        assert time.monotonic() < deadline, "the writers stand still"
        time.sleep(0.02)


def acknowledged(running: Future[Ended]) -> tuple[list[int], int]:
    """The rows that were acknowledged, and the longest append in milliseconds. No writer failed."""
    ended = running.result()
    assert (ended.status, ended.errors) == (0, ""), ended.errors
    *rows, _, longest = ended.output.split()
    return sorted(int(row) for row in rows), int(longest)


def require_whole(location: Path, rows: list[int]) -> None:
    assert sorted(deltalake.DeltaTable(str(location)).to_pyarrow_table()["v"].to_pylist()) == rows
    names = sorted(path.name for path in (location / "_delta_log").glob("*.json"))
    assert names == [f"{version:020d}.json" for version in range(len(names))]


def is_at(location: Path, coordinator: str) -> bool:
    return any(each.location.endswith(str(location)) for each in sluice.status(coordinator).tables)


@pytest.fixture
def places(zookeeper_address: str) -> tuple[str, str]:
    """Two coordinators, whose sessions end soon after a client dies."""
    return f"{zookeeper_address}/old?session_timeout_s=4", f"{zookeeper_address}/new?session_timeout_s=4"


@pytest.mark.costly
@pytest.mark.zookeeper
@pytest.mark.shows("mover-killed")
@pytest.mark.many
@pytest.mark.parametrize("again", [True, False], ids=["moved-again", "left-to-writers"])
@pytest.mark.parametrize("failpoint", MOVE_POINTS)
def test_who_moves_a_table_is_killed_beside_eight_writers(failpoint: str, again: bool, tmp_path: Path, places: tuple[str, str]) -> None:
    location, (old, new) = tmp_path / "table", places
    sluice.Table.create(location, SCHEMA, coordinator=old)
    with ThreadPoolExecutor(1) as pool:
        with writing(location, old, pool) as running:
            until_killed(move_program.move, {"location": str(location), "coordinator": old, "to": new}, failpoint=failpoint)
            if again:
                assert sluice.move(location, new, coordinator=old).coordinator.startswith(new.partition("?")[0])
        rows, _ = acknowledged(running)
    require_whole(location, rows)
    moved = again or failpoint not in BEFORE_IT_LEFT
    assert (is_at(location, old), is_at(location, new)) == (not moved, moved)
    table = sluice.Table.open(location, coordinator=old)
    assert sorted(table.snapshot().to_arrow()["v"].to_pylist()) == rows
    assert table.properties[HAVE_IT] == present(connect(new if moved else old).read("/identity")).data.decode()
    assert sluice.doctor(location, coordinator=new if moved else old).ok
    operations = [each.operation for each in table.history(None)]
    assert operations.count("MOVE") == moved


@pytest.mark.costly
@pytest.mark.zookeeper
@pytest.mark.shows("mover-killed")
def test_a_table_goes_and_comes_back_beside_eight_writers_that_wait_less_than_two_seconds(tmp_path: Path, places: tuple[str, str]) -> None:
    location, (old, new) = tmp_path / "table", places
    sluice.Table.create(location, SCHEMA, coordinator=old)
    sleeper = sluice.Table.open(location, coordinator=old)
    with ThreadPoolExecutor(1) as pool:
        with writing(location, old, pool) as running:
            for to in (new, old, new, old):
                assert sluice.move(location, to, coordinator=old).paused_s < 2
                go_on(location, running, 20)
        rows, longest_ms = acknowledged(running)
    require_whole(location, rows)
    assert longest_ms < 10_000  # on a busy machine, with all that an append does
    sleeper.append(pa.table({"v": pa.array([0], pa.int64())}))
    assert sorted(sleeper.snapshot().to_arrow()["v"].to_pylist()) == [0, *rows]
    assert (is_at(location, old), is_at(location, new)) == (True, False)
