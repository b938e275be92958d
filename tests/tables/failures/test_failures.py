"""What docs/operations/failures.md promises, where no other test shows it; and that every test it names is there."""

from __future__ import annotations

import ast
import itertools
import json
import os
import re
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import sluice
from sluice.coordinator.limits import Limits
from sluice.coordinator.service import connect
from sluice.coordinator.service.clock import SystemClock
from tests.chaos.ensemble import Ensemble
from tests.mending import mend
from tests.tables.conftest import FLIGHTS, Place, flights, present, rows_of
from tests.tables.elsewhere import DAY_MS, HOUR_MS, Writer, disk_of, later, lose_everything

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "operations" / "failures.md"
IMPATIENT = Limits(patience_s=0.02, patience_s_max=0.1, publication_wait_s=0.3)


def test_every_test_that_the_page_names_is_there() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE.read_text())
    assert len(named) > 20
    for file, name in named:
        functions = {node.name for node in ast.walk(ast.parse((ROOT / file).read_text())) if isinstance(node, ast.FunctionDef)}
        assert name in functions, f"{file} has no {name}"


# -- the object store ----------------------------------------------------------------------------------------------------


@pytest.fixture
def place(in_memory: Place) -> Place:
    return in_memory


def test_a_file_that_cannot_be_deleted_keeps_no_other_file_of_a_dropped_table(place: Place) -> None:
    place.create()
    table, disk = place.open(), disk_of(place)
    for number in range(40):
        table.append(flights(("SFO", number, 2)))
    kept = min(key for key in disk.objects if key.endswith(".parquet"))
    disk.fail_before("delete", kept)
    with pytest.raises(sluice.errors.StorageUnavailable):
        table.drop()
    assert [key for key in disk.objects if key.endswith(".parquet")] == [kept]
    table.drop()
    assert not disk.objects


TROUBLE = {
    "lost": lambda disk, verb, n: disk.fail_before(verb, skip=n),
    "after its effect": lambda disk, verb, n: disk.fail_after(verb, skip=n),
    "throttled": lambda disk, verb, n: disk.throttle(verb, skip=n, times=3),
    "slow": lambda disk, verb, n: disk.slow(verb, lambda: time.sleep(0.05), skip=n),
}


@pytest.mark.shows("store-slow", "store-throttles", "store-loses-requests")
@pytest.mark.parametrize("trouble", TROUBLE)
@pytest.mark.parametrize("verb", ["upload", "put", "put_if_absent", "get", "head", "list"])
@pytest.mark.parametrize("limits", [IMPATIENT, replace(IMPATIENT, inline_bytes_max=64)], ids=["inline", "staged"])
@pytest.mark.many
def test_trouble_at_any_request_to_the_object_store(place: Place, verb: str, trouble: str, limits: Limits) -> None:
    """Each request in turn: the call succeeds, or it says that the store is away and nothing of it is visible, then or later."""
    place.create(properties={"delta.enableDeletionVectors": "true"})
    disk, expected, refused, number = disk_of(place), 0, 0, -1
    while True:
        number += 1
        assert number < 40
        writer = Writer(place, limits)
        writer.table.refresh()
        before = len(disk.calls)
        TROUBLE[trouble](disk, verb, number)
        try:
            assert writer.table.append(flights(("JFK", 1, number))) is not None
            expected += 1
        except sluice.errors.StorageUnavailable:
            refused += 1
        mend(disk)
        met = sum(called == verb for called, _ in disk.calls[before:])
        assert place.open(limits=IMPATIENT).snapshot(consistency="serial").to_arrow().num_rows == expected
        if met <= number:
            break
    assert refused <= number
    assert trouble != "slow" or not refused
    assert place.open(limits=IMPATIENT).append(flights(("EWR", 1, 1))) is not None
    assert place.open(consistency="published").snapshot().to_arrow().num_rows == expected + 1


# -- clocks --------------------------------------------------------------------------------------------------------------


class Skewed(SystemClock):
    """A calendar that is wrong by some milliseconds, and may jump."""

    def __init__(self, ms: int = 0) -> None:
        self.ms = ms

    def now_ms(self) -> int:
        return super().now_ms() + self.ms


@pytest.mark.shows("clocks-differ")
def test_clocks_that_jump_by_an_hour_either_way(place: Place) -> None:
    """Versions stay in order by time too; nobody is taken for dead, and nothing is collected early."""
    place.create(properties={"delta.enableDeletionVectors": "true"})
    clocks = [Skewed(-HOUR_MS), Skewed(), Skewed(HOUR_MS)]
    writers = [Writer(place, clock=clock) for clock in clocks]
    for number in range(12):
        writer = writers[number % 3]
        writer.table.append(flights(("JFK", 1, number)))
        if number % 4 == 3:
            writer.table.delete(f"delay = {number - 1}")
        clocks[number % 3].ms = -clocks[number % 3].ms
    table = place.open()
    entries = table.history(limit=None)
    times = [entry.timestamp for entry in entries]
    assert times == sorted(times, reverse=True)
    assert len(set(times)) == len({entry.version for entry in entries})
    for entry in entries[::4]:
        assert table.snapshot(timestamp=entry.timestamp).version == entry.version
    begun = writers[0].table.begin()
    begun.append(flights(("LGA", 1, 1)))
    assert writers[2].table.vacuum().garbage == ()
    writers[1].table.compact("major")
    later(place, 7 * DAY_MS - 3 * HOUR_MS)
    assert writers[2].table.vacuum().garbage == ()
    assert begun.commit() is not None
    assert table.refresh().snapshot().to_arrow().num_rows == 10


@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_table_is_attached_again_later_than_what_a_clock_that_was_ahead_wrote(place: Place, checkpoint: bool) -> None:
    """A reader of changes by time that has seen all versions misses none of the later ones."""
    place.create()
    ahead = Writer(place, clock=Skewed(HOUR_MS))
    seen = present(ahead.table.append(flights(("JFK", 1, 1))))
    given_back = ahead.table.detach()
    if checkpoint:  # else the commit itself is read
        ahead.table.checkpoint()
    lose_everything(place)  # else the head of before tells the time
    table = sluice.Table.attach(place.location, coordinator=place.coordinator)
    for number in (2, 3):
        table.append(flights(("JFK", 1, number)))
    times = [entry.timestamp for entry in table.history(limit=None)]
    assert times == sorted(set(times), reverse=True)
    for after in (seen, given_back):
        assert table.changes(after.timestamp, by="timestamp")["delay"].to_pylist() == [2, 3]


# -- ZooKeeper's servers -------------------------------------------------------------------------------------------------


def killed_under_load(tmp_path: Path, address: str, kills: Callable[[], None]) -> list[int]:
    """Append all the while that servers are killed; what was acknowledged."""
    location = tmp_path / "flights"
    table = sluice.Table.create(location, FLIGHTS, coordinator=address)
    acknowledged: list[int] = []
    stop = threading.Event()
    errors: list[sluice.errors.SluiceError] = []

    def write() -> None:
        try:
            for number in itertools.count():
                if stop.wait(0.05):  # as a writer that has something else to do, too: it is the servers that are tried here
                    return
                table.append(flights(("JFK", 1, number)))
                acknowledged.append(number)
        except sluice.errors.SluiceError as error:
            errors.append(error)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        kills()
        before = len(acknowledged)
        deadline = time.monotonic() + 60
        while len(acknowledged) < before + 5 and time.monotonic() < deadline:
            time.sleep(0.05)
    finally:
        stop.set()
        thread.join(150)
        shown = sluice.Table.open(location, consistency="published").snapshot().to_arrow()
        connect.release(address)
    assert errors == []
    assert len(acknowledged) >= before + 5
    assert rows_of(shown) == [("JFK", 1, number) for number in acknowledged]
    return acknowledged


@pytest.mark.shows("embedded-killed")
@pytest.mark.zookeeper
@pytest.mark.slow
def test_an_embedded_server_killed_under_load(tmp_path: Path) -> None:
    directory = tmp_path / "zookeeper"

    def kill() -> None:
        time.sleep(1.0)
        os.kill(json.loads((directory / "server.json").read_text())["pid"], signal.SIGKILL)
        time.sleep(1.0)

    killed_under_load(tmp_path, f"embedded://{directory}", kill)


@pytest.mark.shows("leader-killed", "majority-lost")
@pytest.mark.zookeeper
@pytest.mark.slow
@pytest.mark.long
def test_a_leader_killed_and_a_majority_lost_and_back_under_load(tmp_path: Path) -> None:
    """Each of three servers in turn, so the leader is among them; then two at once. They come back, and no call fails."""
    ensemble = Ensemble(tmp_path / "zookeeper")

    def end(*numbers: int) -> None:
        """Kill these servers, and wait until others serve in their place."""
        for number in numbers:
            ensemble.kill(number)
        for number in numbers:
            ensemble.start_server(number)
        ensemble.await_service()

    def kill() -> None:
        for number in range(3):
            end(number)
        end(0, 1)

    try:
        ensemble.start()
        killed_under_load(tmp_path, f"zk://{ensemble.hosts}", kill)
    finally:
        ensemble.close()
