"""A stream that reads a table whose processes are killed, or whose ZooKeeper or store goes away, at each step of a batch.

Goal: started again with its checkpoint, the query goes on; every row of the table is read once. Method: as in `test_kills`, with steps
in the process of the query that asks for offsets and plans batches, and in the tasks that read.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from sluice.coordinator.service.connect import release
from tests.chaos.ensemble import Ensemble

from ..conftest import Place
from ..data_source.streaming import SLOW_START, Stream
from ..rows import faults as common
from . import faults
from .conftest import Feed, ids, run_dying

pytestmark = [pytest.mark.spark, pytest.mark.zookeeper, pytest.mark.slow]

SCHEMA = pa.schema([("id", pa.int64()), ("k", pa.string())])
PLACES = ["disk", pytest.param("s3", marks=pytest.mark.s3)]
PATIENCE_S = 60.0


def append(place: Place, *numbers: int) -> None:
    place.table().append(pa.table({"id": list(numbers), "k": ["ab"[number % 2] for number in numbers]}, schema=SCHEMA))


def begun(place: Place, tmp_path: Path) -> Stream:
    """A stream that has read two batches, and has another one to read."""
    place.spark.dataSource.register(faults.FaultySource)
    place.create(SCHEMA)
    append(place, 1)
    stream = Stream(place, tmp_path / "checkpoint", source="faulty_sluice")
    stream.run()
    append(place, 2)
    stream.run()
    append(place, 3, 4)
    return stream


def check(stream: Stream) -> None:
    """Go on from the checkpoint: what must hold then."""
    common.forget(stream.place.table().location)
    append(stream.place, 5)
    stream.run()
    assert [row[0] for row in sorted(stream.rows)] == [1, 2, 3, 4, 5]


def broken(place: Place, tmp_path: Path, step: str, what: str) -> Stream:
    """Read the batch while something happens at a step; the query may fail."""
    stream = begun(place, tmp_path)
    location = place.table().location
    common.plan(location, step, what)
    for _ in range(5):
        try:
            stream.start(availableNow=True).awaitTermination()
        except PySparkException as failed:
            print(f"the query failed: {failed}")
            if SLOW_START in str(failed) and not common.passed(location):
                continue
        break
    assert common.passed(location), f"{step} was not passed"
    return stream


@pytest.mark.shows("stream-process-killed")
@pytest.mark.long
@pytest.mark.parametrize("place", PLACES, indirect=True)
@pytest.mark.parametrize("step", [*faults.READING, *faults.IN_READING_TASKS])
def test_a_process_that_reads_is_killed_at_any_step(place: Place, tmp_path: Path, step: str) -> None:
    check(broken(place, tmp_path, step, "kill 0"))


@pytest.mark.shows("stream-driver-killed")
@pytest.mark.long
@pytest.mark.parametrize("place", PLACES, indirect=True)
@pytest.mark.parametrize("victim", ["driver", "jvm"])
@pytest.mark.parametrize("step", [*faults.READING, *faults.IN_READING_TASKS])
def test_a_driver_is_killed_while_it_reads(place: Place, feed: Feed, step: str, victim: str) -> None:
    """Its batches go into another table, where each row has to be once."""
    place.create(SCHEMA)
    append(place, 1, 2)
    target = Place(place.spark, f"{place.location}-copy", place.coordinator, place.storage_options)
    source = place.table().location
    run_dying(target, feed, step, victim, source=source)
    common.forget(source)
    append(place, 3)
    rows = place.spark.readStream.format("sluice").options(**place.options).load(place.location)
    feed.drain(target, frame=rows)
    assert ids(target) == [1, 2, 3]


@pytest.mark.shows("stream-store-fails")
@pytest.mark.long
@pytest.mark.parametrize("step", [*faults.READING, *faults.IN_READING_TASKS])
def test_the_store_is_away(place: Place, tmp_path: Path, step: str) -> None:
    back = threading.Thread(target=_bring_back, args=[place.location])
    back.start()
    stream = broken(place, tmp_path, step, "away")
    back.join()
    check(stream)


def _bring_back(location: str) -> None:
    """Wait until the folder is away, and bring it back two seconds later."""
    end = time.monotonic() + PATIENCE_S
    while not Path(f"{location}.away").exists() and time.monotonic() < end:
        time.sleep(0.05)
    time.sleep(2.0)
    common.come_back(location)


@pytest.fixture
def waiting(spark: SparkSession, ensemble: Ensemble, tmp_path: Path) -> Iterator[Stream]:
    """A stream that waits for news, by a coordinator of three servers."""
    place = Place(spark, str(tmp_path / "table"), f"zk://{ensemble.hosts}/waiting")
    place.create(SCHEMA)
    append(place, 1)
    yield Stream(place, tmp_path / "checkpoint")
    for query in spark.streams.active:
        query.stop()
    release(place.coordinator)


@pytest.mark.shows("stream-coordinator-fails")
@pytest.mark.long
def test_the_leader_of_three_servers_is_killed(waiting: Stream, ensemble: Ensemble) -> None:
    """The query goes on by itself: before, between and after commits that it waits for."""
    query = waiting.start()
    query.processAllAvailable()
    for number in range(2, 6):
        leader = ensemble.leader()
        if number % 2:
            append(waiting.place, number)
        ensemble.kill(leader)
        if not number % 2:
            append(waiting.place, number)
        end = time.monotonic() + PATIENCE_S
        while [row[0] for row in waiting.rows] != list(range(1, number + 1)):
            assert query.isActive, query.exception()
            assert time.monotonic() < end, f"row {number} did not come: {waiting.rows}"
            time.sleep(0.05)
        ensemble.start_server(leader)
        ensemble.await_service()
    query.stop()
