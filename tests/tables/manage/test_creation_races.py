"""Several clients create one table at once: exactly one succeeds, the others get TableExists, and the table is the winner's."""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

import sluice
from sluice.coordinator.service.memory import Call, MemoryCoordination
from sluice.storage.log.paths import commit_path
from sluice.storage.stores.memory import MemoryStore
from tests.tables.conftest import Place, flights

WRITERS = 6


def test_threads_that_create_one_table(place: Place) -> None:
    barrier = threading.Barrier(WRITERS)

    def create(number: int) -> sluice.Table:
        barrier.wait()
        return place.create(properties={"creator": str(number)}, application=f"creator-{number}")

    with ThreadPoolExecutor(WRITERS) as pool:
        tries = [pool.submit(create, number) for number in range(WRITERS)]
    winners = [(number, each.result()) for number, each in enumerate(tries) if each.exception() is None]
    losers = [error for each in tries if (error := each.exception()) is not None]
    assert len(winners) == 1
    assert [type(error) for error in losers] == [sluice.errors.TableExists] * (WRITERS - 1)
    assert all(place.location in str(error) and "open it, or choose another location" in str(error) for error in losers)
    number, table = winners[0]
    assert table.properties["creator"] == str(number)
    assert place.open().properties["creator"] == str(number)
    assert [entry.operation for entry in table.history()] == ["CREATE TABLE"]
    assert table.append(flights(("JFK", 1, 1))) is not None


class Overtaker:
    """Creates the table, from beginning to end, right before somebody's n-th call of a verb."""

    def __init__(self, place: Place, verb: str, number: int) -> None:
        self.coordination = MemoryCoordination.named(place.coordinator.removeprefix("memory://"))
        self.place, self.verb, self.left = place, verb, number
        self.outcome: str | None = None
        self.coordination.before = self

    def __call__(self, call: Call) -> None:
        self.left -= call.verb == self.verb
        if self.left > 0 or self.outcome is not None:
            return
        self.outcome = "creating"
        try:
            self.place.create(properties={"creator": "overtaker"})
            self.outcome = "created"
        except sluice.errors.TableExists:
            self.outcome = "exists"


@pytest.mark.parametrize("verb", ["apply", "read", "look"])
def test_one_who_is_overtaken_at_any_step(place: Place, verb: str) -> None:
    seen: list[str] = []
    mine = ""
    for number in range(1, 50):
        here = Place(f"{place.location}-{number}", place.coordinator)
        overtaker = Overtaker(here, verb, number)
        try:
            here.create(properties={"creator": "overtaken"})
            mine = "created"
        except sluice.errors.TableExists:
            mine = "exists"
        finally:
            overtaker.coordination.before = None
        if overtaker.outcome is None:
            break
        seen.append(overtaker.outcome)
        assert {mine, overtaker.outcome} == {"created", "exists"}, f"before {verb} number {number}"
        assert here.open().properties["creator"] == ("overtaken" if mine == "created" else "overtaker")
    assert "created" in seen
    assert mine == "created"


@pytest.mark.parametrize("with_rows", [False, True])
def test_a_table_whose_creation_is_decided_and_not_yet_in_the_log(in_memory: Place, with_rows: bool) -> None:
    """Creating it again is refused, opening it finds it: what is ratified is there, also with data files that were there before."""
    disk = MemoryStore(in_memory.location).disk
    if with_rows:
        disk.store("part-00000-7c9e6679-7425-80de-944b-e07fc1f90ae7.parquet", b"rows that were staged")
    arrived, go_on = threading.Event(), threading.Event()

    def hold_up() -> None:
        arrived.set()
        assert go_on.wait(30)

    disk.slow("put_if_absent", hold_up, commit_path(0))
    with ThreadPoolExecutor(1) as pool:
        first: Future[sluice.Table] = pool.submit(in_memory.create)
        try:
            assert arrived.wait(30)
            with pytest.raises(sluice.errors.TableExists, match="at the same moment; open it"):
                in_memory.create()
            other = in_memory.open()
            assert other.version == 0
            assert other.append(flights(("JFK", 1, 1))) is not None
        finally:
            go_on.set()
        assert first.result().refresh().snapshot().to_arrow().num_rows == 1


PROGRAM = """
import sys
import pyarrow as pa
import sluice
location, coordinator, number = sys.argv[1:]
from sluice.coordinator.service.connect import connect
connect(coordinator)
print("ready", flush=True)
sys.stdin.readline()
try:
    table = sluice.Table.create(location, pa.schema([("a", pa.int64())]), coordinator=coordinator, properties={"creator": number})
except sluice.errors.TableExists as error:
    assert location in str(error), error
    print("exists", flush=True)
else:
    print("created", table.properties["creator"], flush=True)
"""


@pytest.mark.costly
@pytest.mark.zookeeper
def test_processes_that_create_one_table(tmp_path: Path, zookeeper_address: str) -> None:
    location = f"file://{tmp_path / 'table'}"
    command = [sys.executable, "-c", PROGRAM, location, zookeeper_address]
    writers = [subprocess.Popen([*command, str(n)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for n in range(3)]
    try:
        for writer in writers:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "ready\n"
        for writer in writers:
            assert writer.stdin is not None
            writer.stdin.write("\n")
            writer.stdin.flush()
        told = [writer.communicate(timeout=60)[0].split() for writer in writers]
    finally:
        for writer in writers:
            if writer.poll() is None:
                writer.kill()
                writer.communicate()
    assert [writer.returncode for writer in writers] == [0, 0, 0]
    assert sorted(words[0] for words in told) == ["created", "exists", "exists"]
    [winner] = [words[1] for words in told if words[0] == "created"]
    table = sluice.Table.open(location, coordinator=zookeeper_address)
    assert table.properties["creator"] == winner
    assert [entry.version for entry in table.history()] == [0]
