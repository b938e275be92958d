"""Holders of leases that are processes of their own: stopped, killed, and beside many fast writers.

Many writer processes at once on a real ZooKeeper: every row that was acknowledged is there, once.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import deltalake
import pytest

import sluice
from tests.tables.stress_program import SCHEMA
from tests.tables.test_leases import elsewhere, nothing_is_held_afterwards

__all__ = ["nothing_is_held_afterwards"]

from tests.tables.conftest import Place, flights, rows_of
from tests.tables.elsewhere import beside_fast_writers


@contextmanager
def sleeper(location: str, coordinator: str, where: str) -> Iterator[Callable[[], dict[str, Any]]]:
    """A process of `lease_program`; gives what reads its next line. It is ended in any case."""
    order = json.dumps({"location": location, "coordinator": coordinator, "where": where})
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.tables.lease_program", order], stdout=subprocess.PIPE, text=True, env=dict(os.environ)
    )
    try:
        output = process.stdout
        assert output is not None

        def heard() -> dict[str, Any]:
            told: dict[str, Any] = json.loads(output.readline())
            return told | {"pid": process.pid}

        yield heard
    finally:
        process.kill()
        process.communicate(timeout=10)


@pytest.mark.shows("holder-stopped")
@pytest.mark.zookeeper
@pytest.mark.parametrize("where", ["idle", "before-ratify"])
def test_a_writer_stopped_beyond_its_session_cannot_commit_under_its_old_lease(tmp_path: Path, zookeeper_address: str, where: str) -> None:
    address = f"{zookeeper_address}?session_timeout_s=4"
    table = Place(str(tmp_path / "t"), zookeeper_address).create()
    with sleeper(table.location, address, where) as heard:
        token, pid = heard()["held"], heard()["pid"]
        with pytest.raises(sluice.errors.LeaseHeld, match="sleeper on"):
            table.lease(where="origin = 'JFK'", wait_s=0)
        with table.lease(where="origin = 'JFK'", wait_s=30) as mine:
            assert mine.token > token
            table.append(flights(("JFK", 1, 1)))
            os.kill(pid, signal.SIGCONT)
            assert heard()["heard"] == "LeaseLost"
            assert heard()["lost"] is True
    assert rows_of(table.refresh().snapshot().to_arrow()) == [("JFK", 1, 1)]


@pytest.mark.shows("holder-killed")
@pytest.mark.zookeeper
def test_a_holder_that_is_killed_holds_nobody_up_for_longer_than_its_session(tmp_path: Path, zookeeper_address: str) -> None:
    table = Place(str(tmp_path / "t"), zookeeper_address).create()
    with sleeper(table.location, f"{zookeeper_address}?session_timeout_s=4", "idle") as heard:
        heard()
        pid = heard()["pid"]
        with elsewhere(lambda: table.append(flights(("JFK", 1, 1)))) as waiting:
            time.sleep(0.3)
            assert not waiting.done()
            os.kill(pid, signal.SIGKILL)
            assert waiting.result(30) is not None


@pytest.mark.costly
@pytest.mark.zookeeper
def test_a_long_transaction_beside_twenty_fast_writers_gets_through(tmp_path: Path, zookeeper_address: str) -> None:
    place = Place(str(tmp_path / "t"), zookeeper_address)
    table = place.create()
    table.append(flights(("JFK", 1, 0), ("LGA", 1, 0)))
    attempts = 0

    def merge(transaction: sluice.Transaction) -> None:
        nonlocal attempts
        attempts += 1
        transaction.update({"delay": "delay + 1000000"}, "origin = 'JFK'")
        time.sleep(0.5)

    def twice() -> None:
        nonlocal attempts
        for _ in range(2):
            attempts = 0
            table.transact(merge, timeout_s=60)
            assert attempts <= 2

    [total] = beside_fast_writers([place], twice)
    assert rows_of(table.refresh().snapshot().to_arrow()) == [("JFK", 1, 2_000_000 + total), ("LGA", 1, 0)]


LONG = pytest.mark.long


@pytest.mark.zookeeper
@pytest.mark.slow
@pytest.mark.parametrize(
    ("count", "seconds", "most"),
    [(4, 120.0, 20), pytest.param(8, 12.0, 1_000_000, marks=LONG), pytest.param(16, 60.0, 1_000_000, marks=LONG)],
)
@pytest.mark.long
def test_processes_append_and_overwrite(tmp_path: Path, zookeeper_address: str, count: int, seconds: float, most: int) -> None:
    """Until each did its share, or as many as they can in a time: then none gets less than half of what others get."""
    location = tmp_path / "table"
    table = sluice.Table.create(location, SCHEMA, partition_by=["writer"], coordinator=zookeeper_address)
    writers = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.tables.stress_program", json.dumps(order)],
            stdout=subprocess.PIPE,
            text=True,
            env=dict(os.environ),
        )
        for order in (
            {"location": str(location), "coordinator": zookeeper_address, "writer": n, "seconds": seconds, "most": most}
            for n in range(count)
        )
    ]
    try:
        told = [json.loads(w.communicate(timeout=seconds + 120)[0]) for w in writers]
    finally:
        for writer in writers:
            writer.kill()
    expected = sorted((t["writer"], n) for t in told for n in t["present"])
    found = table.refresh().snapshot().to_arrow()
    assert sorted(zip(found["writer"].to_pylist(), found["number"].to_pylist(), strict=True)) == expected
    foreign = deltalake.DeltaTable(location).to_pyarrow_table(columns=["writer", "number"])
    assert sorted(zip(foreign["writer"].to_pylist(), foreign["number"].to_pylist(), strict=True)) == expected
    names = sorted(p.name for p in (location / "_delta_log").glob("*.json"))
    assert names == [f"{v:020d}.json" for v in range(len(names))]
    commits = [t["commits"] for t in told]
    # overwrites of a partition of one's own conflict with nobody
    assert sum(t["conflicts"] for t in told) == 0
    assert sum(commits) == len(table.history(limit=None)) - 1
    assert min(commits) >= 0.5 * sum(commits) / count, f"somebody starved: {commits}"
