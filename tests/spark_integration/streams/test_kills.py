"""A batch of a stream whose driver, JVM, worker or commit process is killed, or whose ZooKeeper or store goes away, at each of its steps.

Goal: the query, started again with its checkpoint, goes on; every row is there once, and every batch is one version. Method:
`rows.faults`. Processes beside the driver are killed in the tests' own JVM; a driver that dies has a JVM of its own, as streams call back.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from sluice.coordinator.service.connect import release
from tests.chaos.ensemble import Ensemble
from tests.fixtures.zookeeper import Proxy

from ..conftest import Place
from ..rows import faults as common
from . import faults
from .conftest import Feed, ids, run_dying

pytestmark = [pytest.mark.spark, pytest.mark.zookeeper, pytest.mark.slow]

WRITTEN = ("copies-staged", *faults.POINTS)
IN_DRIVER = (*faults.IN_PLANNING, *WRITTEN, "batch-written")

RECOVERY_S = 60.0
"""It takes a second: nothing is waited for, neither the end of a dead session nor the time a call may take at most, two minutes."""


def check(place: Place, feed: Feed) -> None:
    """Go on from the checkpoint: what must hold then."""
    common.forget(place.location)
    begun_s = time.monotonic()
    feed.drain(place)
    assert time.monotonic() - begun_s < RECOVERY_S
    assert ids(place) == [1, 2, 3]
    feed.ids(4)
    feed.drain(place)
    assert ids(place) == [1, 2, 3, 4]
    assert place.table().version == 3, "the table was made, and three batches came"


def begun(place: Place, feed: Feed) -> None:
    """A stream with a batch that is written and one that waits."""
    feed.ids(1)
    feed.drain(place)
    feed.ids(2, 3)


# -- the driver and its JVM ------------------------------------------------------------------------------------------------


def dies(place: Place, feed: Feed, step: str, victim: str) -> None:
    begun(place, feed)
    run_dying(place, feed, step, victim)
    check(place, feed)


@pytest.mark.costly
@pytest.mark.shows("stream-driver-killed")
def test_a_driver_is_killed_after_its_commit(place: Place, feed: Feed) -> None:
    dies(place, feed, "batch-written", "driver")


# Spark's own writer stages its files beside a table on disk; tasks in Python write to S3 at once.
ON_S3 = [pytest.param("s3", step, marks=pytest.mark.s3) for step in IN_DRIVER if step != "copies-staged"]


@pytest.mark.shows("stream-driver-killed")
@pytest.mark.long
@pytest.mark.parametrize("victim", ["driver", "jvm"])
@pytest.mark.parametrize(("place", "step"), [*(("disk", step) for step in IN_DRIVER), *ON_S3], indirect=["place"])
def test_a_driver_is_killed_at_any_step(place: Place, feed: Feed, step: str, victim: str) -> None:
    dies(place, feed, step, victim)


# -- processes beside the driver ---------------------------------------------------------------------------------------------


def killed(place: Place, feed: Feed, step: str) -> None:
    begun(place, feed)
    place.spark.dataSource.register(faults.FaultySource)
    location = place.table().location
    common.plan(location, step, "kill 0")
    writer = feed.frame().writeStream.format("faulty_sluice").trigger(availableNow=True)
    writer = writer.options(checkpointLocation=str(feed.checkpoint), **place.options)
    try:
        writer.start(place.location).awaitTermination()
    except PySparkException:
        assert step not in faults.IN_TASKS, "the task should have been done again"
    else:
        assert step in faults.IN_TASKS
    assert common.passed(location), f"{step} was not passed"
    check(place, feed)


@pytest.mark.costly
@pytest.mark.parametrize("step", ["after-commit"])
def test_a_process_beside_the_driver_is_killed(place: Place, feed: Feed, step: str) -> None:
    killed(place, feed, step)


@pytest.mark.shows("stream-process-killed")
@pytest.mark.long
@pytest.mark.parametrize("place", ["disk", pytest.param("s3", marks=pytest.mark.s3)], indirect=True)
@pytest.mark.parametrize("step", [*faults.IN_PLANNING, *faults.IN_TASKS, *faults.COMMITTING])
def test_a_process_beside_the_driver_is_killed_at_any_step(place: Place, feed: Feed, step: str) -> None:
    killed(place, feed, step)


# -- ZooKeeper and the store go away ---------------------------------------------------------------------------------------


@pytest.mark.shows("stream-coordinator-fails")
@pytest.mark.long
@pytest.mark.parametrize("lost", ["request", "reply"])
@pytest.mark.parametrize("step", faults.POINTS)
def test_a_message_is_lost(place: Place, feed: Feed, step: str, lost: str, zookeeper_proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    arm = zookeeper_proxy.lose_request if lost == "request" else zookeeper_proxy.lose_reply
    begun(place, feed)
    far = place.behind(zookeeper_proxy)
    in_this_driver(far, feed, step, arm, monkeypatch)
    release(far.coordinator)
    check(place, feed)


@pytest.mark.shows("stream-coordinator-fails")
@pytest.mark.long
@pytest.mark.parametrize("step", WRITTEN)
def test_zookeeper_is_away(place: Place, feed: Feed, step: str, zookeeper_proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    begun(place, feed)
    far = place.behind(zookeeper_proxy)
    back = threading.Timer(2.0, zookeeper_proxy.restore)

    def cut() -> None:
        zookeeper_proxy.cut()
        back.start()

    in_this_driver(far, feed, step, cut, monkeypatch)
    back.join()
    release(far.coordinator)
    check(place, feed)


@pytest.mark.shows("stream-coordinator-fails")
@pytest.mark.long
@pytest.mark.parametrize("step", WRITTEN)
def test_the_leader_of_three_servers_is_killed(
    spark: SparkSession, ensemble: Ensemble, feed: Feed, tmp_path: Path, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place(spark, str(tmp_path / "table"), f"zk://{ensemble.hosts}/{step}")
    begun(place, feed)
    in_this_driver(place, feed, step, lambda: ensemble.kill(ensemble.leader()), monkeypatch)
    check(place, feed)
    release(place.coordinator)


@pytest.mark.shows("stream-store-fails")
@pytest.mark.long
@pytest.mark.parametrize("step", WRITTEN)
def test_the_store_is_away(place: Place, feed: Feed, step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    begun(place, feed)
    folder = Path(place.location)
    back = threading.Timer(2.0, lambda: common.come_back(place.location))

    def away() -> None:
        folder.rename(f"{folder}.away")
        folder.touch()
        back.start()

    in_this_driver(place, feed, step, away, monkeypatch)
    back.join()
    check(place, feed)


def in_this_driver(place: Place, feed: Feed, step: str, happens: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write the waiting batch, with a fault at a step; it may fail."""
    location = place.table().location
    for owner, name, value in common.patches(location):
        monkeypatch.setattr(owner, name, value)
    monkeypatch.setattr(common, "_happens", lambda _location, _what: happens())  # type: ignore[operator]
    common.plan(location, step, "happens")
    try:
        feed.drain(place)
    except PySparkException as failed:
        print(f"the query failed: {failed}")
    finally:
        assert common.passed(location), f"{step} was not passed"
        monkeypatch.undo()
