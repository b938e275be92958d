"""A load reads of a log only what is new since the last load of this process; it shows what a first load would show."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

import sluice
from sluice.spark_integration.active_session import run_stop_hooks
from sluice.spark_integration.scan import read
from sluice.storage.log.snapshot import Snapshot
from sluice.storage.stores.objects import ObjectStore
from sluice.tables.client.address import TableAddress

from ..conftest import Place

SCHEMA = pa.schema([("id", pa.int64())])
LEVELS = ("latest", "published")


@pytest.fixture(autouse=True)
def from_the_beginning() -> Iterator[None]:
    run_stop_hooks()
    yield
    run_stop_hooks()


@pytest.fixture
def logs_read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Where logs are read from their last checkpoint on, each time."""
    load, locations = Snapshot.load, list[str]()

    def counting(store: ObjectStore, *, version: int | None = None) -> Snapshot:
        locations.append(store.location)
        return load(store, version=version)

    monkeypatch.setattr(Snapshot, "load", counting)
    return locations


def ids(numbers: list[int]) -> pa.Table:
    return pa.table({"id": numbers}, schema=SCHEMA)


def an_hour_old(folder: Path) -> None:
    """Sets the times of the commits, one of which might end with a second."""
    for commit in (folder / "_delta_log").glob("*.json"):
        hour_ago = time.time() - 3600
        os.utime(commit, (hour_ago, hour_ago))


def shown(place: Place, level: str) -> list[int]:
    return sorted(row[0] for row in place.load(consistency=level).collect())


# -- in sessions ---------------------------------------------------------------------------------------------------------


@pytest.mark.spark
@pytest.mark.parametrize("level", LEVELS)
def test_a_second_load_reads_what_is_new(place: Place, level: str, logs_read: list[str]) -> None:
    table = place.create(SCHEMA)
    table.append(ids([1]))
    an_hour_old(Path(place.location))
    assert shown(place, level) == [1]
    logs_read.clear()
    assert shown(place, level) == [1]
    table.append(ids([2]))
    assert shown(place, level) == [1, 2]
    assert logs_read == []


@pytest.mark.spark
@pytest.mark.parametrize("level", LEVELS)
def test_a_load_shows_what_another_process_committed(place: Place, level: str) -> None:
    place.create(SCHEMA).append(ids([1]))
    before = place.load(consistency=level)
    program = (
        "import sys, pyarrow as pa, sluice\n"
        "table = sluice.Table.open(sys.argv[1], coordinator=sys.argv[2])\n"
        "table.append(pa.table({'id': [2]}, schema=pa.schema([('id', pa.int64())])))\n"
    )
    subprocess.run([sys.executable, "-c", program, place.location, place.coordinator], check=True)
    assert shown(place, level) == [1, 2]
    assert [row[0] for row in before.collect()] == [1]  # two loads are two moments


@pytest.mark.spark
@pytest.mark.parametrize("level", LEVELS)
def test_a_load_shows_the_table_that_is_there_now(place: Place, level: str) -> None:
    place.create(SCHEMA).append(ids([1]))
    assert shown(place, level) == [1]
    place.table().drop()
    with pytest.raises(PySparkException):
        place.load(consistency=level)
    place.create(pa.schema([("id", pa.int64()), ("new", pa.string())])).append(pa.table({"id": [7], "new": ["x"]}))
    assert [tuple(row) for row in place.load(consistency=level).collect()] == [(7, "x")]


@pytest.mark.spark
def test_another_version_or_coordinator_is_asked_for_itself(place: Place) -> None:
    table = place.create(SCHEMA)
    table.append(ids([1]))
    table.append(ids([2]))
    assert shown(place, "latest") == [1, 2]
    assert [row[0] for row in place.load(versionAsOf=1).collect()] == [1]
    with pytest.raises(sluice.errors.WrongCoordinator):
        place.spark.read.format("sluice").option("coordinator", "memory://loading-again").load(place.location)
    assert shown(place, "latest") == [1, 2]


# -- the logs of one process ---------------------------------------------------------------------------------------------


def published(folder: Path, numbers: list[int]) -> TableAddress:
    """A table in a folder, by an address without a coordinator."""
    sluice.Table.create(folder, SCHEMA, coordinator=f"memory://{folder.name}-{time.time_ns()}").append(ids(numbers))
    an_hour_old(folder)
    return TableAddress.of(folder)


def latest(address: TableAddress) -> Snapshot:
    return read._latest_in_log(address, address.store())


def last_commit(folder: Path) -> Path:
    return max((folder / "_delta_log").glob("*.json"))


def test_a_log_without_news_gives_the_same_snapshot(tmp_path: Path, logs_read: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    address = published(tmp_path / "t", [1])
    store = address.store()
    logs_read.clear()
    first = read._latest_in_log(address, store)
    other = TableAddress(address.location, None, {"region": "eu-west-1"})
    assert read._latest_in_log(other, store) is not first, "other storage options are another way to the table"
    assert read._latest_in_log(address, store) is first
    assert len(logs_read) == 2
    with monkeypatch.context() as patched:
        patched.setattr(os, "getpid", lambda: 1)
        assert latest(address) is not first, "a child process reads for itself"
    assert latest(address) is first
    run_stop_hooks()
    assert latest(address) is not first, "a stopped session keeps nothing"


def test_few_logs_are_kept(tmp_path: Path) -> None:
    addresses = [published(tmp_path / f"t{number}", [number]) for number in range(read._LOGS_KEPT + 1)]
    first, *_, last = [latest(each) for each in addresses]
    assert latest(addresses[-1]) is last
    assert latest(addresses[0]) is not first
    assert len(read._logs) == read._LOGS_KEPT


def test_large_logs_are_not_kept_beside_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read, "_LOGS_BYTES_MAX", 1)
    one, other = published(tmp_path / "a", [1]), published(tmp_path / "b", [2])
    assert latest(one).num_files == 1
    first = latest(one)
    assert latest(one) is first
    latest(other)
    assert latest(one) is not first


@pytest.mark.parametrize(("age_s", "is_kept"), [(0, False), (60, True)])
def test_a_time_in_whole_seconds_is_trusted_once_it_is_over(tmp_path: Path, age_s: int, is_kept: bool) -> None:
    """Stores tell such times: within the second another table's file of the same size would look the same."""
    address = published(tmp_path / "t", [1])
    second = int(time.time()) - age_s
    os.utime(last_commit(tmp_path / "t"), (second, second))
    first = latest(address)
    assert (latest(address) is first) == is_kept


def test_a_log_that_is_gone_is_read_anew(tmp_path: Path) -> None:
    address = published(tmp_path / "t", [1])
    latest(address)
    shutil.rmtree(tmp_path / "t")
    with pytest.raises(sluice.errors.TableNotFound):
        latest(address)


def test_after_very_many_commits_the_checkpoint_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, logs_read: list[str]) -> None:
    monkeypatch.setattr("sluice.storage.log.snapshot._REFRESHED_MAX", 2)
    table = sluice.Table.create(tmp_path / "t", SCHEMA, coordinator="memory://loading-again-many")
    address = TableAddress.of(tmp_path / "t")
    an_hour_old(tmp_path / "t")
    latest(address)
    for commits, loads in ((2, 0), (3, 1)):
        for number in range(commits):
            table.append(ids([number]))
        logs_read.clear()
        assert latest(address).version == table.version
        assert len(logs_read) == loads
