"""What a coordinator that is away, or speaks another protocol, and a disk that is full do to the calls of the Python API.

A quorum that is lost before anything was filed: the error is never OutcomeUnknown, whatever was asked last.
Threads that go on committing after the program's main thread has ended.
"""

from __future__ import annotations

import ctypes
import logging
import os
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

import sluice
from sluice.coordinator.formats import NODE_PROTOCOL
from sluice.coordinator.limits import Limits
from sluice.coordinator.nodes.layout import TableTree
from sluice.coordinator.service import connect
from sluice.coordinator.service.memory import Call, Fault, MemoryCoordination
from sluice.coordinator.service.store import ANY_VERSION
from sluice.storage.log.paths import commit_path
from sluice.storage.stores.location import normalise, open_store
from sluice.storage.stores.memory import MemoryStore
from tests.fixtures.zookeeper import Proxy
from tests.mending import mend
from tests.tables.conftest import FLIGHTS, Place, flights, present, rows_of
from tests.tables.elsewhere import service_of
from tests.tables.pictures import files_below, nodes_of, objects_of, refused

Way = Callable[[], object]
IMPATIENT = Limits(patience_s=0.05, patience_s_max=0.2, publication_wait_s=0.5)

# -- the coordinator -----------------------------------------------------------------------------------------------------


@pytest.mark.shows("unreachable")
def test_a_coordinator_that_is_unreachable(place: Place, tmp_path: Path) -> None:
    place.create()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        hosts = f"127.0.0.1:{listener.getsockname()[1]}"
    away = f"zk://{hosts}/sluice?connect_timeout_s=0.3"
    ways: list[Way] = [
        lambda: sluice.Table.open(place.location, coordinator=away),
        lambda: sluice.Table.create(tmp_path / "other", FLIGHTS, coordinator=away),
        lambda: sluice.Table.attach(place.location, coordinator=away),
    ]
    for way in ways:
        started = time.monotonic()
        with refused(
            sluice.errors.CoordinatorUnavailable, hosts, "0.3 s", "check the address", leaves=lambda: files_below(tmp_path)
        ) as caught:
            way()
        assert caught.value.retryable
        assert time.monotonic() - started < 10  # not the 15 s of the default
    # reading what is published needs none
    assert sluice.Table.open(place.location, coordinator=away, consistency="published").version == 0


@pytest.mark.shows("away")
@pytest.mark.zookeeper
def test_a_coordinator_that_goes_away_and_comes_back(tmp_path: Path, zookeeper_proxy: Proxy, zookeeper_chroot: str) -> None:
    """What was staged is kept: the commit may be called again, and happens once."""
    address = f"zk://{zookeeper_proxy.hosts}{zookeeper_chroot}?retry_s=2&session_timeout_s=6"
    table = sluice.Table.create(tmp_path / "flights", FLIGHTS, coordinator=address)
    try:
        table.append(flights(("JFK", 1, 1)))
        plan = table.plan_write(FLIGHTS)
        files = plan.write(flights(("EWR", 1, 2)))
        zookeeper_proxy.cut()
        log = tmp_path / "flights" / "_delta_log"
        with refused(
            sluice.errors.CoordinatorUnavailable,
            zookeeper_proxy.hosts,
            "staged data are not lost",
            "try again",
            leaves=lambda: files_below(log),
        ):
            table.commit_write(plan, files, timeout_s=0.5)
        with refused(sluice.errors.CoordinatorUnavailable, zookeeper_proxy.hosts, leaves=lambda: files_below(tmp_path)):
            table.delete("month = 1")
        zookeeper_proxy.restore()
        commit = present(table.commit_write(plan, files))
        assert commit.version == 2
        assert rows_of(table.snapshot().to_arrow()) == [("EWR", 1, 2), ("JFK", 1, 1)]
    finally:
        zookeeper_proxy.restore()
        connect.release(address)


@pytest.mark.shows("other-protocol")
@pytest.mark.parametrize("data", [b'{"protocol": 1}', b'{"protocol": 99}', b'{"protocol": "2"}', b"{}", b"nonsense"])
def test_a_coordinator_with_another_protocol_number(place: Place, tmp_path: Path, data: bytes) -> None:
    table = place.create()
    table.append(flights(("JFK", 1, 1)))
    missing = Place(str(tmp_path / "missing"), place.coordinator)
    missing.create()
    (tmp_path / "missing" / commit_path(0)).unlink()
    session = MemoryCoordination.named(place.coordinator.removeprefix("memory://")).connect()
    for each in (place, missing):
        session.write(TableTree(normalise(each.location)).root, data, version=ANY_VERSION)

    ways: list[Way] = [
        place.open,
        lambda: sluice.Table.attach(place.location, coordinator=place.coordinator),
        missing.create,
        missing.open,
        # also for clients that had the table open before
        lambda: table.append(flights(("EWR", 1, 1))),
        lambda: table.overwrite(flights(("EWR", 1, 1))),
        lambda: table.delete("month = 1"),
        table.detach,
        table.refresh,
    ]
    for way in ways:
        with refused(
            sluice.errors.ProtocolMismatch,
            f"this sluice uses {NODE_PROTOCOL}",
            "use the version of sluice that the other writers use",
            leaves=lambda: {**files_below(tmp_path), **nodes_of(place.coordinator)},
        ):
            way()


# -- the embedded one ----------------------------------------------------------------------------------------------------

SECOND = """
import sys
import pyarrow as pa
import sluice
location, coordinator = sys.argv[1:]
try:
    table = sluice.Table.open(location, coordinator=coordinator)
    print("version", table.append(pa.table({"origin": ["EWR"], "month": pa.array([2], pa.int32()), "delay": [2]})).version)
except sluice.errors.InvalidRequest as error:
    print("refused", error)
"""


@pytest.mark.costly
@pytest.mark.zookeeper
def test_a_second_process_on_the_same_embedded_directory(tmp_path: Path) -> None:
    """It joins; one that wants several servers is refused."""
    address = f"embedded://{tmp_path / 'zookeeper'}"

    def second(coordinator: str) -> str:
        command = [sys.executable, "-c", SECOND, str(tmp_path / "flights"), coordinator]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout.strip()

    table = sluice.Table.create(tmp_path / "flights", FLIGHTS, coordinator=address)
    try:
        table.append(flights(("JFK", 1, 1)))
        assert second(address) == "version 2"
        told = second(f"{address}?servers=3")
        assert told.startswith("refused")
        for words in (str(tmp_path / "zookeeper"), "servers=3", "has one server; leave servers out, or start an ensemble"):
            assert words in told
        assert rows_of(table.refresh().snapshot().to_arrow()) == [("EWR", 2, 2), ("JFK", 1, 1)]
    finally:
        connect.release(address)


# -- the disk ------------------------------------------------------------------------------------------------------------


@dataclass
class Disk:
    """A disk that can be filled up and emptied again."""

    place: Place
    fill: Callable[[], None]
    free: Callable[[], None]


@pytest.fixture(params=["memory", "tmpfs"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Disk]:
    coordinator = f"memory://{uuid.uuid4().hex}"
    if request.param == "memory":
        store = MemoryStore.open(uuid.uuid4().hex)

        def limit(capacity_bytes: int | None) -> None:
            store.disk.capacity_bytes = capacity_bytes

        def used() -> int:
            return sum(len(data) for data, _ in store.disk.objects.values())

        yield Disk(Place(store.location, coordinator), lambda: limit(used()), lambda: limit(None))
        store.forget()
        return
    folder = tmp_path / "small"
    folder.mkdir()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"tmpfs", os.fsencode(folder), b"tmpfs", 0, b"size=1m") != 0:
        pytest.skip(f"no small disk can be mounted: {os.strerror(ctypes.get_errno())}")
    ballast = folder / "ballast"

    def fill() -> None:
        with ballast.open("ab", buffering=0) as stream:
            try:
                while True:
                    stream.write(bytes(4096))
            except OSError:
                return

    try:
        yield Disk(Place(str(folder / "flights"), coordinator), fill, ballast.unlink)
    finally:
        libc.umount2(os.fsencode(folder), 2)


def everything(disk: Disk) -> dict[str, object]:
    return {**objects_of(open_store(disk.place.location)), **nodes_of(disk.place.coordinator)}


def test_a_full_disk_when_a_table_is_made(disk: Disk) -> None:
    disk.fill()
    with refused(sluice.errors.StorageFull, "full", leaves=lambda: everything(disk)) as caught:
        disk.place.create()
    assert caught.value.retryable
    disk.free()
    assert disk.place.create().version == 0


@pytest.mark.shows("disk-full")
def test_a_full_disk_when_data_files_are_written(disk: Disk) -> None:
    table = disk.place.create()
    table.append(flights(("JFK", 1, 1)))
    disk.fill()
    ways: list[Way] = [
        lambda: table.append(flights(("EWR", 1, 2), ("LGA", 1, 3))),
        lambda: table.overwrite(flights(("EWR", 1, 2))),
    ]
    for way in ways:
        with refused(sluice.errors.StorageFull, "full", leaves=lambda: everything(disk)):
            way()
    assert rows_of(table.snapshot().to_arrow()) == [("JFK", 1, 1)]
    disk.free()
    assert table.append(flights(("EWR", 1, 2))) is not None


@pytest.mark.shows("disk-full")
def test_a_full_disk_when_a_ratified_version_is_published(disk: Disk, caplog: pytest.LogCaptureFixture) -> None:
    """The commit is decided, so it is no failure: the answer says that publication is pending, and it follows."""
    disk.place.create()
    table = disk.place.open(limits=IMPATIENT)
    plan = table.plan_write(FLIGHTS)
    files = plan.write(flights(("JFK", 1, 1)))
    disk.fill()
    started = time.monotonic()
    with caplog.at_level(logging.WARNING, logger="sluice"):
        commit = present(table.commit_write(plan, files))
    assert time.monotonic() - started < 10
    assert (commit.version, commit.published) == (1, False)
    assert plan.transaction_id in caplog.text
    assert "publication is pending" in caplog.text
    assert commit_path(1) not in objects_of(open_store(disk.place.location))
    # it is decided and can be read here; other engines see it later
    assert rows_of(table.snapshot().to_arrow()) == [("JFK", 1, 1)]
    assert disk.place.open(consistency="published").version == 0
    disk.free()
    following = present(disk.place.open(limits=IMPATIENT).append(flights(("EWR", 1, 2))))
    assert (following.version, following.published) == (2, True)
    outcome = table.outcome(plan.transaction_id)
    assert (outcome.state, present(outcome.commit).version) == ("committed", 1)
    published = disk.place.open(consistency="published")
    assert rows_of(published.snapshot().to_arrow()) == [("EWR", 1, 2), ("JFK", 1, 1)]
    assert [entry.version for entry in published.history()] == [2, 1, 0]


@pytest.mark.shows("store-refuses")
@pytest.mark.parametrize("error", [sluice.errors.AccessDenied, sluice.errors.StorageUnavailable])
def test_a_store_that_refuses_what_is_ratified(error: type[sluice.errors.SluiceError], caplog: pytest.LogCaptureFixture) -> None:
    """Rights that were taken away between the data file and the log file are no failure of the commit either."""
    name = uuid.uuid4().hex
    place = Place(f"memory://{name}", f"memory://{name}")
    place.create()
    table = place.open(limits=IMPATIENT)
    disk = MemoryStore.open(name).disk
    disk.fail_before("put_if_absent", commit_path(1), times=1_000_000, error=error("injected: not now"))
    with caplog.at_level(logging.WARNING, logger="sluice"):
        commit = present(table.append(flights(("JFK", 1, 1))))
    assert (commit.version, commit.published) == (1, False)
    assert "publication is pending" in caplog.text
    mend(disk)
    outcome = table.outcome(commit.transaction_id)
    assert present(outcome.commit).version == 1
    assert place.open(limits=IMPATIENT).append(flights(("EWR", 1, 2))) is not None
    assert place.open(consistency="published").snapshot().to_arrow().num_rows == 2
    MemoryStore.open(name).forget()


LIMIT_S = 0.3
CALLS_MAX = 60


class Quorum:
    """Loses the quorum at a call, and counts the calls before: from then on no call is sent."""

    def __init__(self, place: Place) -> None:
        self._service = service_of(place)
        self.sent: list[Call] = []

    @contextmanager
    def lost_after(self, calls: int) -> Iterator[None]:
        self.sent = []

        def answer(call: Call) -> Fault | None:
            if len(self.sent) >= calls:
                raise sluice.errors.CoordinatorUnavailable("injected: no server answers, the quorum is lost")
            self.sent.append(call)
            return None

        self._service.before = answer
        try:
            yield
        finally:
            self._service.before = None

    @property
    def filed(self) -> bool:
        """Whether a change was sent that makes a slot, or ratifies."""
        return any("/slots/" in op.path or "/verdicts/" in op.path for call in self.sent for op in call.ops)


WAYS: dict[str, Callable[[sluice.Table], object]] = {
    "append": lambda table: table.append(flights(("SFO", 1, 1)), timeout_s=LIMIT_S),
    "delete": lambda table: table.delete("delay = 1", timeout_s=LIMIT_S),
    "overwrite": lambda table: table.overwrite(flights(("SFO", 1, 1)), timeout_s=LIMIT_S),
    "properties": lambda table: table.set_properties({"a": "b"}, timeout_s=LIMIT_S),
}


@pytest.mark.parametrize("fast_path", [True, False])
@pytest.mark.parametrize("way", WAYS)
def test_a_quorum_lost_before_anything_was_filed_is_never_an_unknown_outcome(place: Place, way: str, fast_path: bool) -> None:
    """After every number of calls. The outcome is unknown only if a change was sent that files or ratifies."""
    limits = Limits(fast_path=fast_path, patience_s=0.02, patience_s_max=0.05, publication_wait_s=0.05)
    kinds = set[str]()
    for calls in range(CALLS_MAX):
        here = Place(f"{place.location}-{calls}", place.coordinator)
        here.create().append(flights(("JFK", 1, 1)))
        table, quorum = here.open(limits=limits), Quorum(here)
        trouble: sluice.errors.SluiceError | None = None
        with quorum.lost_after(calls):
            try:
                WAYS[way](table)
            except (sluice.errors.OutcomeUnknown, sluice.errors.CoordinatorUnavailable) as error:
                trouble = error
        if trouble is None:
            break
        kinds.add(type(trouble).__name__)
        assert isinstance(trouble, sluice.errors.OutcomeUnknown) <= quorum.filed, f"after {calls} calls: {trouble}"
        if isinstance(trouble, sluice.errors.CoordinatorUnavailable):
            assert here.open().version == 1
            assert rows_of(here.open().snapshot().to_arrow()) == [("JFK", 1, 1)]
    else:
        pytest.fail(f"it needs more than {CALLS_MAX} calls")
    assert "CoordinatorUnavailable" in kinds


PROGRAM = """
import sys, threading
import pyarrow as pa
import sluice
from sluice.coordinator.publication import publisher

publisher._FILES_EVERY_S = 0.0
rows = pa.table({"id": [1]})
table = sluice.Table.create(sys.argv[1], rows.schema, coordinator="memory://last-thread", ack=sys.argv[2])

def work():
    threading.main_thread().join()
    for _ in range(70):
        print(table.append(rows).version)

threading.Thread(target=work).start()
"""


@pytest.mark.slow
@pytest.mark.parametrize("ack", ["published", "ratified"])
def test_a_thread_commits_after_the_main_thread_has_ended(tmp_path: Path, ack: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "table"), ack], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stderr == ""
    assert done.stdout.split() == [str(version) for version in range(1, 71)]
    assert (tmp_path / "table" / "_delta_log" / f"{70:020d}.json").exists()
