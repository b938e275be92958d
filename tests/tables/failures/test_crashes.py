"""Writers that die by SIGKILL at every step of the commit protocol, on a real ZooKeeper and real disks.

Goal: nothing is half visible, the others go on, and the outcome can be asked for by anybody. Method: a process of its own
kills itself at a named failure point (coordinator/publication/failure_points.py); then this process writes, asks and reads.

Files of writers that were killed or stopped, on a real ZooKeeper, and of writers whose store is full.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

import sluice
from sluice.coordinator.limits import Limits
from sluice.coordinator.publication.failure_points import FAILPOINTS
from sluice.coordinator.service import connect
from sluice.storage.constants import PROBE_PREFIX
from tests.killed import until_killed
from tests.tables import writer_program
from tests.tables.conftest import Place, flights, present, rows_of
from tests.tables.elsewhere import DAY_MS, disk_of, later
from tests.tables.maintain.test_vacuum import filled, place

SCHEMA = pa.schema([pa.field("part", pa.string(), nullable=False), pa.field("value", pa.int64())])
_NOTHING_FILED = {"data-staged", "actions-staged", "before-claim"}
IMPATIENT = Limits(patience_s=0.05, patience_s_max=0.5)


def doom(failpoint: str, order: dict[str, object]) -> str:
    """Run the writer until it kills itself at `failpoint`; returns its transaction's id."""
    return until_killed(writer_program.main, order, failpoint=failpoint)[0]


def ones(rows: pa.Table) -> list[int]:
    return sorted(v for v in rows["value"].to_pylist() if v is not None)


CASES: list[Any] = [(f, "append", False) for f in FAILPOINTS]
FEW = {"data-staged", "after-claim", "before-publish"}
"""Where an overwrite is killed in each run; what it replaces makes a difference to its verdict only."""
CASES += [pytest.param(f, "overwrite", False, marks=[] if f in FEW else pytest.mark.long) for f in FAILPOINTS]
CASES += [(f, "append", True) for f in FAILPOINTS if f not in {"actions-staged", "before-claim", "after-claim"}]


@pytest.mark.zookeeper
@pytest.mark.shows("writer-killed")
@pytest.mark.parametrize(("failpoint", "mode", "fast_path"), CASES)
@pytest.mark.many
def test_a_writer_killed_at_any_step(failpoint: str, mode: str, fast_path: bool, tmp_path: Path, zookeeper_address: str) -> None:
    location = tmp_path / "table"
    sluice.Table.create(location, SCHEMA, coordinator=zookeeper_address)
    table = sluice.Table.open(location, coordinator=zookeeper_address, limits=IMPATIENT)
    table.append(pa.table({"part": ["before"], "value": pa.array([100], pa.int64())}, schema=SCHEMA))
    order: dict[str, object] = {"location": str(location), "coordinator": zookeeper_address, "mode": mode, "rows": 3}
    order["fast_path"] = fast_path
    order["inline_bytes_max"] = 64 if failpoint == "actions-staged" else 64 * 1024
    transaction_id = doom(failpoint, order)

    # the others go on at once, whatever the dead one left
    mine = present(table.append(pa.table({"part": ["after"], "value": pa.array([200], pa.int64())}, schema=SCHEMA)))
    assert mine.published

    outcome = table.outcome(transaction_id)
    found = ones(table.snapshot().to_arrow())
    if failpoint in _NOTHING_FILED or (fast_path and failpoint == "before-ratify"):
        assert outcome.state == "unknown"
        assert found == [100, 200]
    else:
        assert outcome.state == "committed"
        assert outcome.commit is not None
        kept = [100] if mode == "append" else []
        assert found == sorted([*kept, 200, *range(3)])
    assert ones(deltalake.DeltaTable(location).to_pyarrow_table()) == found
    names = sorted(p.name for p in (location / "_delta_log").glob("*.json"))
    assert names == [f"{v:020d}.json" for v in range(len(names))]


@pytest.mark.zookeeper
def test_a_writer_killed_while_it_decides_for_others(tmp_path: Path, zookeeper_address: str) -> None:
    """The first in the queue dies after ratifying everybody's intents: they are published by the others."""
    location = tmp_path / "table"
    table = sluice.Table.create(location, SCHEMA, coordinator=zookeeper_address)
    ids = [
        doom("after-claim", {"location": str(location), "coordinator": zookeeper_address, "mode": "append", "rows": 1}) for _ in range(3)
    ]
    ids.append(doom("after-ratify", {"location": str(location), "coordinator": zookeeper_address, "mode": "append", "rows": 1}))
    for transaction_id in ids:
        outcome = table.outcome(transaction_id)
        assert outcome.state == "committed"
        assert present(outcome.commit).version == 1
    assert table.refresh().snapshot().to_arrow().num_rows == 4


__all__ = ["place"]


@pytest.mark.shows("writer-killed")
@pytest.mark.zookeeper
@pytest.mark.parametrize("failpoint", ["data-staged", "actions-staged", "before-claim", "after-claim"])
def test_a_writer_killed_before_it_filed_leaves_orphans_that_are_found_at_once(
    tmp_path: Path, zookeeper_address: str, failpoint: str
) -> None:
    location, coordinator = tmp_path / "table", f"{zookeeper_address}?session_timeout_s=4"
    table = sluice.Table.create(location, SCHEMA, coordinator=coordinator)
    try:
        order = {"location": str(location), "coordinator": coordinator}
        transaction = until_killed(writer_program.append, order, failpoint=failpoint)[0]
        left = {str(path.relative_to(location)) for path in location.rglob(f"*{transaction}*")}
        assert left
        deadline = time.monotonic() + 30
        report = table.vacuum()
        while failpoint != "after-claim" and not report.garbage:  # until its session is over
            assert time.monotonic() < deadline
            time.sleep(0.2)
            report = table.vacuum()
        if failpoint == "after-claim":
            assert report.garbage == ()
            assert table.outcome(transaction).state == "committed"
            assert table.refresh().snapshot().to_arrow().num_rows == 1
        else:
            assert {each.key for each in report.garbage} == left
            assert table.outcome(transaction).state == "unknown"
            assert table.refresh().snapshot().to_arrow().num_rows == 0
    finally:
        connect.release(coordinator)


@pytest.mark.shows("session-expired")
@pytest.mark.zookeeper
def test_a_process_that_was_stopped_beyond_its_session_and_continued(tmp_path: Path, zookeeper_address: str) -> None:
    """SIGSTOP between writing and committing, vacuum by another process, SIGCONT: it is refused, and may begin again."""
    location, coordinator = tmp_path / "table", f"{zookeeper_address}?session_timeout_s=4"
    table = sluice.Table.create(location, SCHEMA, coordinator=coordinator)
    program = (
        "import sys, pyarrow as pa, sluice\n"
        "table = sluice.Table.open(sys.argv[1], coordinator=sys.argv[2])\n"
        "rows = pa.table({'part': ['p'], 'value': pa.array([1], pa.int64())})\n"
        "begun = table.begin()\n"
        "begun.append(rows)\n"
        "print('ready', flush=True)\n"
        "sys.stdin.readline()\n"
        "try:\n"
        "    begun.commit()\n"
        "except sluice.errors.TransactionExpired:\n"
        "    print('expired', table.append(rows).version, flush=True)\n"
    )
    command = [sys.executable, "-c", program, str(location), coordinator]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "ready\n"
            assert table.vacuum().garbage == ()
            process.send_signal(signal.SIGSTOP)
            deadline = time.monotonic() + 30
            while not table.vacuum().garbage:
                assert time.monotonic() < deadline
                time.sleep(0.2)
            process.send_signal(signal.SIGCONT)
            process.stdin.write("go\n")
            process.stdin.flush()
            assert process.stdout.readline().split()[0] == "expired"
            assert process.wait(30) == 0
        finally:
            process.kill()
            connect.release(coordinator)
    rows = sluice.Table.open(location, consistency="published").snapshot().to_arrow()
    assert rows["value"].to_pylist() == [1]


# -- a store that is full ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("room", [0, 15], ids=["none", "little"])
def test_a_store_that_is_full_is_cleaned_up(place: Place, room: int) -> None:
    """That is when a vacuum is wanted most: its probe finds no room, nor does the commit that says that it begins."""
    table = filled(place)
    table.overwrite(flights(("LGA", 1, 9)))
    disk = disk_of(place)
    disk.capacity_bytes = sum(len(content) for content, _ in disk.objects.values()) + room
    before = set(disk.objects)
    dry = table.vacuum(retain_hours=0, force=True, dry_run=True)
    assert dry.counts == {"replaced": 2}
    assert set(disk.objects) == before
    report = table.vacuum(retain_hours=0, force=True)
    assert report.garbage == dry.garbage
    disk.capacity_bytes = None
    assert rows_of(table.refresh().snapshot().to_arrow()) == [("LGA", 1, 9)]
    table.append(flights(("LGA", 1, 10)))
    assert [each.operation for each in table.history(3)][1:] == ["VACUUM END", "WRITE"]


def test_a_store_without_room_for_an_empty_object_tells_the_time_by_its_log(place: Place) -> None:
    table = filled(place)
    table.overwrite(flights(("LGA", 1, 9)))
    disk = disk_of(place)
    disk.fail_before("put", f"{PROBE_PREFIX}*", times=4, error=sluice.errors.StorageFull("no inode is left"))
    later(place, 400 * DAY_MS)
    assert table.vacuum(dry_run=True).garbage == (), "as of the newest version"
    assert table.vacuum(retain_hours=0, force=True).counts == {"replaced": 2}
