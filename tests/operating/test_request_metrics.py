"""Requests to stores and coordinators, lost sessions, and what vacuums delete, as metrics; without a listener nothing is measured."""

from __future__ import annotations

import os
import signal
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest
from prometheus_client import CollectorRegistry

import sluice
from sluice.coordinator.service.connect import connect
from sluice.coordinator.service.memory import MemorySession
from sluice.coordinator.service.zookeeper.session import ZooKeeperStore
from sluice.dev import S3DevServer
from sluice.storage import observing
from sluice.storage.errors import ObjectNotFound, StorageFull
from sluice.storage.observing import Done, observe, observed
from sluice.storage.stores.local import LocalStore
from sluice.storage.stores.location import open_store
from sluice.storage.stores.memory import MemoryStore
from sluice.storage.stores.objects import ObjectStore

ROWS = pa.table({"id": [1, 2, 3]})
COORDINATED = "sluice_coordinator_requests_total"


@pytest.fixture
def registry() -> Iterator[CollectorRegistry]:
    made = CollectorRegistry()
    end = sluice.metrics.start(made)
    yield made
    end()


@pytest.fixture
def requests() -> Iterator[list[Done]]:
    heard: list[Done] = []
    end = observe("store", heard.append)
    yield heard
    end()


def use(store: ObjectStore) -> None:
    """Each kind of request once, but for a look for what is not there."""
    store.put("a", b"1")
    store.put_if_absent("b", b"2")
    assert not store.put_if_absent("b", b"3")
    with store.upload("c") as stream:
        stream.write(b"4")
    assert store.get("a") == b"1"
    assert store.get_range("c", 0, 1) == b"4"
    store.head("a")
    with pytest.raises(ObjectNotFound):
        store.get("none")
    store.delete("a")


EXPECTED = [("put", "")] * 4 + [("get", "")] * 2 + [("head", ""), ("get", "ObjectNotFound"), ("delete", "")]


def test_each_request_to_a_disk_or_memory_is_told_once(tmp_path: Path, requests: list[Done]) -> None:
    for store in (LocalStore(f"file://{tmp_path}/t"), MemoryStore.open(uuid.uuid4().hex)):
        requests.clear()
        use(store)
        assert [(each.operation, each.error) for each in requests] == EXPECTED
        assert all(each.by is store and each.seconds >= 0 for each in requests)


@pytest.mark.s3
def test_each_request_to_s3_is_told_once(s3_server: S3DevServer, s3_location: str, requests: list[Done]) -> None:
    store = open_store(s3_location, s3_server.options)
    assert store.atomic_put_if_absent
    requests.clear()
    use(store)
    assert [(each.operation, each.error) for each in requests] == EXPECTED
    requests.clear()
    assert [each.key for each in store.list_from("")] == ["b", "c"]
    assert [each.operation for each in requests] == ["list"]


@pytest.mark.clouds
def test_each_request_to_azure_is_told_once(azure_store: ObjectStore, requests: list[Done]) -> None:
    requests.clear()
    use(azure_store)
    assert [(each.operation, each.error) for each in requests] == EXPECTED
    requests.clear()
    assert [each.key for each in azure_store.list_from("")] == ["b", "c"]
    assert [each.operation for each in requests] == ["list"]


def test_the_block_of_an_upload_is_a_part_of_it(tmp_path: Path, requests: list[Done]) -> None:
    store = LocalStore(f"file://{tmp_path}/t")
    with suppress(ValueError), store.upload("a"):
        time.sleep(0.1)
        raise ValueError
    [request] = requests
    assert (request.operation, request.error) == ("put", "ValueError")
    assert request.seconds >= 0.1


def test_without_a_listener_the_classes_have_their_own_methods() -> None:
    """So that a commit runs no function more (tests/budget counts them)."""
    plain = LocalStore.put, MemoryStore.get, MemorySession._change, ZooKeeperStore._change
    end = sluice.metrics.start(CollectorRegistry())
    assert all(
        now is not before
        for now, before in zip((LocalStore.put, MemoryStore.get, MemorySession._change, ZooKeeperStore._change), plain, strict=True)
    )
    end()
    assert plain == (LocalStore.put, MemoryStore.get, MemorySession._change, ZooKeeperStore._change)


def test_a_class_that_is_made_while_somebody_listens_is_told_too() -> None:
    kind = uuid.uuid4().hex
    heard: list[Done] = []
    ends = [observe(kind, heard.append), observe(kind, heard.append)]

    @observed(kind, _one="", two="second")
    class Late:
        def _one(self, verb: str) -> str:
            return verb

        def two(self) -> str:
            return self._one("get_it")

    assert Late().two() == Late()._one("get_it") == "get_it"
    assert [(each.operation, each.result) for each in heard[::2]] == [("second", "get_it"), ("get", "get_it")]
    for end in ends:
        end()
        end()
    Late().two()
    assert len(heard) == 4


def test_a_listener_that_fails_breaks_no_request(caplog: pytest.LogCaptureFixture) -> None:
    def fail(done: Done) -> None:
        raise ValueError("no")

    store = MemoryStore.open(uuid.uuid4().hex)
    end = observe("store", fail)
    store.put("a", b"1")
    end()
    assert store.get("a") == b"1"
    assert "a listener to store failed" in caplog.text


def test_metrics_count_requests_by_store_operation_and_outcome(tmp_path: Path, registry: CollectorRegistry) -> None:
    store = MemoryStore.open(uuid.uuid4().hex)
    store.disk.capacity_bytes = 3
    store.put("a", b"1")
    with pytest.raises(StorageFull):
        store.put("b", b"1234")
    LocalStore(f"file://{tmp_path}").put("a", b"1")
    for where in (
        {"store": "memory", "operation": "put", "outcome": "ok"},
        {"store": "memory", "operation": "put", "outcome": "StorageFull"},
        {"store": "file", "operation": "put", "outcome": "ok"},
    ):
        assert registry.get_sample_value("sluice_store_requests_total", where) == 1
    assert registry.get_sample_value("sluice_store_request_duration_seconds_count", {"store": "memory", "operation": "put"}) == 2


def test_metrics_count_requests_to_the_coordinator_and_lost_sessions(registry: CollectorRegistry) -> None:
    address = f"memory://{uuid.uuid4().hex}"
    session = connect(address)
    assert isinstance(session, MemorySession)
    session.create("/a", b"1")
    session.read("/a")
    session.barrier()
    for operation in ("write", "read", "barrier"):
        assert registry.get_sample_value(COORDINATED, {"operation": operation, "outcome": "ok"}) == 1
        assert registry.get_sample_value("sluice_coordinator_request_duration_seconds_count", {"operation": operation}) == 1
    assert registry.get_sample_value("sluice_sessions_lost_total") == 0
    session.close()
    assert registry.get_sample_value("sluice_sessions_lost_total") == 0
    other = connect(address)
    assert isinstance(other, MemorySession)
    other.expire()
    assert registry.get_sample_value("sluice_sessions_lost_total") == 1
    with pytest.raises(sluice.errors.SessionLost):
        other.read("/a")
    assert registry.get_sample_value(COORDINATED, {"operation": "read", "outcome": "SessionLost"}) == 1


@pytest.mark.zookeeper
def test_a_session_that_zookeeper_ended_is_counted_and_one_that_was_closed_is_not(
    zookeeper_hosts: str, zookeeper_chroot: str, registry: CollectorRegistry
) -> None:
    session = ZooKeeperStore.connect(zookeeper_hosts, chroot=zookeeper_chroot, retry_s=5)
    other = ZooKeeperStore.connect(zookeeper_hosts, chroot=zookeeper_chroot, retry_s=5)
    session.create("/a", b"1")
    session.read("/a")
    assert (registry.get_sample_value(COORDINATED, {"operation": "write", "outcome": "ok"}) or 0) >= 1
    other.close()
    assert registry.get_sample_value("sluice_sessions_lost_total") == 0
    session._notice("LOST")  # as the library tells when the server no longer knows the session
    assert session.lost
    assert registry.get_sample_value("sluice_sessions_lost_total") == 1


def test_metrics_count_what_a_vacuum_deletes(tmp_path: Path, registry: CollectorRegistry) -> None:
    table = sluice.Table.create(tmp_path / "table", ROWS.schema, coordinator=f"memory://{uuid.uuid4().hex}")
    table.append(ROWS)
    table.overwrite(ROWS)
    old = time.time() - 40 * 86400
    for path in (tmp_path / "table").rglob("*"):
        os.utime(path, (old, old))
    report = table.vacuum(retain_hours=0, force=True)
    assert report.garbage
    where = {"table": table.location}
    assert registry.get_sample_value("sluice_vacuumed_objects_total", where) == len(report.garbage)
    assert registry.get_sample_value("sluice_vacuumed_bytes_total", where) == report.size_bytes > 0
    assert table.vacuum(retain_hours=0, force=True, dry_run=True).dry_run
    assert registry.get_sample_value("sluice_vacuumed_objects_total", where) == len(report.garbage)


def test_a_forked_process_goes_on_telling(registry: CollectorRegistry) -> None:
    store = MemoryStore.open(uuid.uuid4().hex)
    child = os.fork()
    if child == 0:  # pragma: no cover - its exit status is what counts
        signal.alarm(20)
        store.put("a", b"1")
        counted = registry.get_sample_value("sluice_store_requests_total", {"store": "memory", "operation": "put", "outcome": "ok"})
        os._exit(0 if counted == 1 and observing._listeners["store"] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
