"""What MaxCompute documents as not guaranteed, and sluice guarantees.

A dynamic overwrite of more than 10,000 partitions is atomic; an INSERT INTO that fails leaves nothing visible, and every file
it left says in its path whose it was, so that garbage collection finds it.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

import sluice
from sluice.coordinator.limits import Limits
from sluice.storage.errors import StorageUnavailable
from sluice.storage.stores.memory import MemoryStore
from tests.killed import until_killed
from tests.mending import mend
from tests.tables import overwriting_program
from tests.tables.conftest import Place
from tests.tables.isolation.matrices import SCHEMA, Rows, read, table_of

pytestmark = pytest.mark.zookeeper

POLICIES = ("maxcompute-table", "maxcompute-transactional", "maxcompute-delta")
IMPATIENT = Limits(patience_s=0.05, patience_s_max=0.5)


@pytest.fixture
def place(tmp_path: Path, zookeeper_hosts: str) -> Place:
    """A table on disk, in a tree that the module's tests share."""
    return Place(str(tmp_path / "table"), f"zk://{zookeeper_hosts}/promises")


@pytest.fixture
def quick_place(zookeeper_hosts: str) -> Iterator[Place]:
    """A table in memory, whose store can be made to fail."""
    name = uuid.uuid4().hex
    yield Place(f"memory://{name}", f"zk://{zookeeper_hosts}/promises")
    MemoryStore.open(name).forget()


def create(place: Place, policy: str, partitions: int) -> Rows:
    """A table with one row in each partition."""
    table = sluice.Table.create(
        place.location, SCHEMA, partition_by=["part"], properties={"sluice.conflictPolicy": policy}, coordinator=place.coordinator
    )
    held = {part: (part, 0) for part in range(partitions)}
    table.append(table_of(held))
    return held


def paths(place: Place) -> set[str]:
    """The data files of the latest version."""
    return {add.path for add in place.open().access.latest().add_files()}


def files_on_disk(place: Place) -> set[str]:
    root = Path(place.location)
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file() and "_delta_log" not in path.parts}


def files_in_memory(place: Place) -> set[str]:
    return {key for key in MemoryStore(place.location).disk.objects if "_delta_log" not in key}


# -- dynamic overwrite -----------------------------------------------------------------------------------------------------


@pytest.mark.costly
@pytest.mark.parametrize(
    ("policy", "many"), [*((policy, 600) for policy in POLICIES), pytest.param(POLICIES[0], 10_050, marks=pytest.mark.long)]
)
def test_a_dynamic_overwrite_of_any_number_of_partitions_is_atomic(quick_place: Place, policy: str, many: int) -> None:
    """A reader sees all of it or nothing, at every moment; it replaces what others inserted into its partitions meanwhile.

    Also where these are too many for the footprint.
    """
    place = quick_place
    create(place, policy, many)
    begun = place.open(limits=Limits(fast_path=False)).begin()
    begun.overwrite(table_of({1_000_000 + part: (part, 1) for part in range(many)}), dynamic=True)
    place.open().append(table_of({2_000_000: (17, 2), 2_000_001: (many, 2)}))
    seen: set[int] = set()
    done = threading.Event()

    def reading() -> None:
        reader = place.open()
        while not done.is_set():
            seen.add(sum(begun.id in add.path for add in reader.access.latest().add_files()))

    thread = threading.Thread(target=reading)
    thread.start()
    try:
        assert begun.commit() is not None
    finally:
        done.set()
        thread.join(60)
    assert 0 in seen or many == 600, "nobody read before it was committed"
    assert seen <= {0, many}
    assert read(place) == {1_000_000 + part: (part, 1) for part in range(many)} | {2_000_001: (many, 2)}


@pytest.mark.costly
def test_conditions_that_cannot_be_told_to_others_are_refused(quick_place: Place) -> None:
    """What an overwrite replaces may not become coarser on the way, so it is not cut short."""
    held = create(quick_place, "maxcompute-table", 3)
    ever = " OR ".join(f"part = {number}" for number in range(6_000))
    with pytest.raises(sluice.errors.InvalidRequest, match=r"67,890 characters|characters long.*65,536"):
        quick_place.open().overwrite(table_of({9: (1, 9)}), where=ever)
    assert read(quick_place) == held


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("mode", ["append", "dynamic"])
def test_a_write_that_the_store_refuses_in_the_middle(quick_place: Place, policy: str, mode: str) -> None:
    place, partitions = quick_place, 60
    held = create(place, policy, partitions)
    before = files_in_memory(place)
    begun = place.open().begin()
    disk = MemoryStore(place.location).disk
    for verb in ("put", "upload"):
        disk.fail_before(verb, "part=*", skip=20, times=10_000)
    rows = table_of({1_000_000 + part: (part, 1) for part in range(partitions)})
    with pytest.raises(StorageUnavailable):
        begun.append(rows) if mode == "append" else begun.overwrite(rows, dynamic=True)
    mend(disk)
    begun.abort()
    left = files_in_memory(place) - before
    assert all(begun.id in path for path in left), left
    assert read(place) == held
    assert place.open().overwrite(rows, dynamic=True) is not None
    assert set(read(place).values()) == {(part, 1) for part in range(partitions)}


# -- a writer that dies ----------------------------------------------------------------------------------------------------


def killed(place: Place, mode: str, partitions: int, when: str) -> str:
    """Run the writer until it dies, at a failure point or in the middle of its files; returns its transaction's id."""
    order = {"location": place.location, "coordinator": place.coordinator, "mode": mode, "partitions": partitions}
    if when != "writing":
        return until_killed(overwriting_program.main, order, failpoint=when)[0]
    program = [sys.executable, "-m", "tests.tables.overwriting_program", json.dumps(order)]
    process = subprocess.Popen(program, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        transaction_id = process.stdout.readline().strip()
        limit = time.monotonic() + 60
        while time.monotonic() < limit and not list(Path(place.location, "part=3").glob(f"*{transaction_id}*")):
            time.sleep(0.001)
        process.kill()
        said = process.communicate(timeout=60)[0]
        assert process.returncode == -signal.SIGKILL, said
    finally:
        process.kill()
    assert "committed" not in said
    return transaction_id


@pytest.mark.costly
@pytest.mark.parametrize("when", ["writing", "data-staged", "after-claim"])
@pytest.mark.parametrize("mode", ["append", "dynamic"])
@pytest.mark.many
def test_a_writer_that_is_killed(place: Place, mode: str, when: str) -> None:
    """Nothing of it is visible unless its intent was filed, and then all of it is; what it left is known by its path."""
    partitions = 400 if when == "writing" else 50
    held = create(place, "maxcompute-transactional", partitions)
    before = files_on_disk(place)
    transaction_id = killed(place, mode, partitions, when)
    left = files_on_disk(place) - before
    assert left
    assert all(transaction_id in path for path in left), "a file that nobody would find"
    outcome = place.open(limits=IMPATIENT).outcome(transaction_id)
    written = {1_000_000 + part: (part, 1) for part in range(partitions)}
    if when == "after-claim":
        assert outcome.state == "committed"
        assert read(place) == (held | written if mode == "append" else written)
    else:
        if when == "writing":
            assert len(left) < partitions, "it was killed too late"
        assert outcome.state == "unknown"
        assert read(place) == held
        assert not left & paths(place)
