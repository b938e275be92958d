"""Living clients of an ensemble whose data are lost, and rebuilt: with real servers."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import sluice
from sluice.coordinator.errors import CoordinatorUnavailable, SessionLost, TreeReplaced, WrongCoordinator
from sluice.coordinator.service.connect import release
from sluice.coordinator.service.zookeeper.session import ZooKeeperStore
from sluice.storage.errors import NotATable
from tests.chaos.ensemble import Ensemble

pytestmark = pytest.mark.zookeeper


@pytest.fixture
def ensemble(tmp_path: Path) -> Iterator[Ensemble]:
    servers = Ensemble(tmp_path / "servers", servers=1)
    servers.start()
    yield servers
    servers.close()


def lose_everything(servers: Ensemble, folder: Path) -> None:
    servers.kill(0)
    shutil.rmtree(folder / "servers" / "server-1" / "data" / "version-2")
    servers.start_server(0)
    servers.await_service()


def rows(number: int) -> pa.Table:
    return pa.table({"id": [number]})


@pytest.mark.costly
@pytest.mark.notices("lost-data-are-noticed")
def test_a_session_ends_with_the_data_it_was_opened_on(ensemble: Ensemble, tmp_path: Path) -> None:
    store = ZooKeeperStore.connect(ensemble.hosts, chroot="/test", retry_s=30, session_timeout_s=10)
    for number in range(20):
        store.create(f"/n{number}")
    lose_everything(ensemble, tmp_path)
    began = time.monotonic()
    with pytest.raises(SessionLost, match="lost its data"):
        store.read("/n1")
    assert time.monotonic() - began < 20
    assert store.lost
    again = ZooKeeperStore.connect(ensemble.hosts, chroot="/test")
    assert again.read("/n1") is None
    again.close()
    store.close()


@pytest.mark.costly
def test_a_session_outlives_a_restart_of_the_server(ensemble: Ensemble) -> None:
    store = ZooKeeperStore.connect(ensemble.hosts, chroot="/test", retry_s=30, session_timeout_s=30)
    store.create("/here", ephemeral=True)
    ensemble.kill(0)
    time.sleep(3)  # time to ask whether data were lost; they were not
    ensemble.start_server(0)
    assert store.read("/here") is not None
    assert not store.lost
    store.close()


@pytest.mark.long
def test_what_a_server_that_is_behind_has_is_not_taken_for_the_newest(tmp_path: Path) -> None:
    """With local sessions a newcomer's session is no transaction: what it sees may be older than what this client saw."""
    servers = Ensemble(tmp_path / "servers")
    for settings in (tmp_path / "servers").glob("*/zoo.cfg"):
        settings.write_text(settings.read_text() + "\nlocalSessionsEnabled=true\nlocalSessionsUpgradingEnabled=true\n")
    try:
        servers.start()
        store = ZooKeeperStore.connect(servers.hosts, chroot="/test", retry_s=30)
        store.create("/here")
        asked = store._newest_transaction()
        assert asked is not None
        assert asked > store._client.last_zxid
        store.close()
    finally:
        servers.close()


@pytest.mark.shows("old-data")
@pytest.mark.notices("a-loss-is-told-by-most-hosts")
@pytest.mark.long
def test_a_server_that_left_with_its_old_data_is_no_ensemble_that_lost_them(ensemble: Ensemble, tmp_path: Path) -> None:
    """The address still names it. While the ensemble is away it answers alone, and is a quorum of its own."""
    left = Ensemble(tmp_path / "left", servers=1)
    try:
        left.start()
        store = ZooKeeperStore.connect(ensemble.hosts, chroot="/test", retry_s=30)
        for number in range(20):
            store.create(f"/n{number}")
        store._hosts = f"{left.hosts},{ensemble.hosts}"
        ensemble.kill(0)
        assert store._newest_of(left.hosts) is not None
        assert store._newest_transaction() is None
        ensemble.start_server(0)
        ensemble.await_service()
        assert store.read("/n1") is not None
        asked = store._newest_transaction()
        assert asked is not None
        assert asked >= store._client.last_zxid
        store.close()
    finally:
        left.close()


@pytest.mark.costly
def test_living_clients_come_back_after_a_recovery(ensemble: Ensemble, tmp_path: Path) -> None:
    coordinator = f"zk://{ensemble.hosts}/sluice?retry_s=20&connect_timeout_s=20"
    location = str(tmp_path / "table")
    table = sluice.Table.create(location, rows(0).schema, coordinator=coordinator)
    for number in range(12):
        table.append(rows(number))
    lose_everything(ensemble, tmp_path)
    with pytest.raises((CoordinatorUnavailable, NotATable), match="recover"):
        table.append(rows(100), timeout_s=60)
    with pytest.raises(WrongCoordinator) as wrong:
        sluice.recover(location, coordinator=coordinator, wait_s=0)
    sluice.recover(location, coordinator=coordinator, former=wrong.value.details["owner"], wait_s=0)
    with pytest.raises(TreeReplaced, match="open the table again"):
        table.append(rows(101), timeout_s=60)
    again = sluice.Table.open(location, coordinator=coordinator)
    again.append(rows(102))
    assert sorted(again.snapshot().to_arrow()["id"].to_pylist()) == [*range(12), 102]
    release(coordinator)
