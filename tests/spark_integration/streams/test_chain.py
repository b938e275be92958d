"""Three tables in a row, each the copy of the one before by a stream that merges its changes: the last one equals the first.

Meanwhile the first one is appended to, deleted from, updated and compacted, and all are vacuumed of everything that they replaced.
In another test the driver of both streams is killed at random moments.

A stream whose executor, the JVM that runs its tasks, is killed while it reads or writes: another one does the task.

Goal: the query goes on by itself; each row is there once, and each batch is one version. Method: a driver with two executors that are
processes of their own (Spark's `local-cluster`), whose task kills the one that it runs in. Sessions of `configure` write by Spark's own
writer, without a step of sluice in the task: there the task that reads the rows kills its executor, while the same task writes them.
Streams on Spark whose object store answers with errors, loses replies, or breaks off in the middle: each row is there once.

Goal: whatever requests fail while a query plans, reads, writes and commits, it goes on, or stops with an error that may be retried, and
goes on when it is started again. Method: a service that fails at random (`chaos.object_store`), between two tables of which a stream
copies the one into the other. `data_source.test_stream_store_errors` tries many more moments of the source, without Spark.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark
import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession

import sluice
from sluice.coordinator.service.connect import release
from sluice.spark_integration import original
from sluice.spark_integration.session.routing import ROUTING
from tests.chaos.world import Store
from tests.spark_integration.conftest import ROOT, Place
from tests.spark_integration.data_source.streaming import SLOW_START
from tests.spark_integration.streams import faults
from tests.spark_integration.streams.chain import END_OF_FAILURE, NAMES, Chain, changes
from tests.spark_integration.streams.conftest import Feed, ids, run_dying

PATIENCE_S = 300.0


def vacuum(tables: list[sluice.Table]) -> int:
    """Remove everything that only former versions need; how many files that were."""
    return sum(len(table.vacuum(0, force=True).garbage) for table in tables)


def settle(chain: Chain, place: Place, queries: dict[str, Any]) -> None:
    """Wait until each query has read what there is, the first one first."""
    for number, target in enumerate(NAMES[1:]):
        for attempt in range(5):
            try:
                queries[target].processAllAvailable()
                break
            except StreamingQueryException as failed:
                if SLOW_START not in str(failed) or attempt == 4:
                    raise
                queries[target] = chain.start(place.spark, NAMES[number], target)


@pytest.mark.spark
@pytest.mark.zookeeper
@pytest.mark.long
def test_the_last_of_three_tables_equals_the_first(place: Place, tmp_path: Path) -> None:
    chain = Chain(str(tmp_path), place.coordinator)
    tables = chain.create()
    changing = changes(tables[0], random.Random(1))
    for _ in range(2):
        next(changing)
    queries = chain.start_both(place.spark)
    try:
        gone = 0
        for more in (5, 1):
            for _ in range(more):
                next(changing)
            for query in queries.values():
                query.processAllAvailable()
            assert chain.rows("second") == chain.rows("first") != []
            assert chain.rows("third") == chain.rows("first")
            gone += vacuum(tables)
    finally:
        for query in queries.values():
            query.stop()
    assert gone > 3


def until(met: Callable[[], bool], driver: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not met():
        assert driver.poll() is None, "the driver ended by itself"
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.1)


@pytest.mark.spark
@pytest.mark.zookeeper
@pytest.mark.long
@pytest.mark.timeout(1800)
def test_a_chain_whose_driver_is_killed_at_random(zookeeper_address: str, tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(10**6)
    print(f"seed {seed}")
    dice = random.Random(seed)
    chain = Chain(str(tmp_path), zookeeper_address, files=3)
    tables = chain.create()
    changing = changes(tables[0], dice)
    command = [sys.executable, "-m", "tests.spark_integration.streams.chain", json.dumps(asdict(chain))]

    def third() -> int:
        return tables[2].refresh().snapshot().version

    for _ in range(2):
        for _ in range(2):
            for _ in range(dice.randint(2, 6)):
                next(changing)
            before = third()
            driver = subprocess.Popen(command, cwd=ROOT)
            try:
                until(lambda: third() > before, driver)  # noqa: B023 - called here only
                time.sleep(dice.uniform(0, 2))  # the moment of the kill
            finally:
                driver.kill()
                driver.wait()
        driver = subprocess.Popen(command, cwd=ROOT)
        try:
            for name in NAMES[1:]:
                until(lambda: chain.rows(name) == chain.rows("first"), driver)  # noqa: B023
            vacuum(tables)
        finally:
            driver.kill()
            driver.wait()
    failures = Path(chain.failures).read_text().split(END_OF_FAILURE)[:-1] if Path(chain.failures).exists() else []
    assert all(SLOW_START in failure for failure in failures), failures


SCHEMA = pa.schema([("id", pa.int64()), ("k", pa.string())])


def runs_on(place: Place, feed: Feed, home: Path, step: str, source: str | None) -> None:
    """Run a driver to its end whose executor is killed at a step."""
    home.mkdir()
    for each in Path(pyspark.__file__).parent.iterdir():  # executors have their folders below Spark's home
        (home / each.name).symlink_to(each)
    run_dying(place, feed, step, "executor", source=source, SPARK_HOME=str(home))


@pytest.mark.spark
@pytest.mark.zookeeper
@pytest.mark.long
@pytest.mark.shows("stream-worker-killed")
@pytest.mark.parametrize("step", faults.IN_TASKS)
def test_an_executor_that_writes_by_the_data_source_is_killed(place: Place, feed: Feed, tmp_path: Path, step: str) -> None:
    feed.ids(1)
    feed.drain(place)
    feed.ids(2, 3)
    runs_on(place, feed, tmp_path / "home", step, None)
    assert ids(place) == [1, 2, 3]
    assert place.table().version == 2, "the table was made, and two batches came"


@pytest.mark.spark
@pytest.mark.zookeeper
@pytest.mark.long
@pytest.mark.shows("stream-worker-killed")
@pytest.mark.parametrize("step", faults.IN_READING_TASKS)
def test_an_executor_that_reads_and_writes_is_killed(place: Place, feed: Feed, tmp_path: Path, step: str) -> None:
    source = place.create(SCHEMA)
    source.append(pa.table({"id": [1, 2, 3], "k": ["b", "a", "b"]}, schema=SCHEMA))
    target = Place(place.spark, f"{place.location}-copy", place.coordinator)
    runs_on(target, feed, tmp_path / "home", step, source.location)
    assert ids(target) == [1, 2, 3]
    assert target.table().version == 1, "the table was made, and one batch came"


TROUBLE = {"slowdown": 0.015, "error": 0.015, "cut": 0.015, "mute": 0.015, "lost": 0.015, "torn": 0.015}
RUNS = 60


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    service = Store(tmp_path, 1, "ignored", dict(os.environ))
    yield service
    service.close()


def copied(
    spark: SparkSession, store: Store, coordinator: str, checkpoint: Path, trouble: dict[str, float], batches: int, attempts: int
) -> int:
    """Copy a table of so many versions by a stream, in spite of everything; how often its query was started again."""
    folder = f"s3://honest/{uuid.uuid4().hex}"
    source, target = (Place(spark, f"{folder}/{name}", coordinator, store.options) for name in ("source", "target"))
    table = source.create(SCHEMA, properties={"delta.enableDeletionVectors": "true"})
    target.create(SCHEMA)
    for first in range(0, 2 * batches, 2):
        table.append(pa.table({"id": [first, first + 1], "k": ["a", "b"]}, schema=SCHEMA))
    options = {"s3.max_attempts": str(attempts)}
    store.break_(trouble)
    for again in range(RUNS):
        try:
            reading = spark.readStream.format("sluice").options(startingVersion=0, maxFilesPerTrigger=1, **source.options, **options)
            writing = reading.load(source.location).writeStream.format("sluice").options(**target.options, **options)
            query = writing.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start(target.location)
            query.awaitTermination()
        except PySparkException as failed:
            found = original(failed)
            may_be_repeated = isinstance(found, sluice.errors.OutcomeUnknown) or (found is not None and found.retryable)
            if not may_be_repeated and SLOW_START not in str(failed):
                raise
            continue
        store.break_({})
        assert target.rows() == source.rows()
        assert target.table().version == batches, "each batch is one version"
        return again
    raise AssertionError(f"the query did not get through in {RUNS} runs")


@pytest.mark.spark
@pytest.mark.zookeeper
@pytest.mark.s3
@pytest.mark.slow
@pytest.mark.shows("stream-store-fails")
@pytest.mark.long
def test_a_stream_from_table_to_table_goes_on(spark: SparkSession, store: Store, zookeeper_address: str, tmp_path: Path) -> None:
    copied(spark, store, zookeeper_address, tmp_path / "checkpoint", TROUBLE, batches=2, attempts=6)
    release(zookeeper_address)
    counts = store.finish()["counts"]
    assert sum(counts.get(kind, 0) for kind in TROUBLE) > 0


@pytest.mark.spark
@pytest.mark.zookeeper
@pytest.mark.s3
@pytest.mark.slow
@pytest.mark.shows("stream-store-fails")
@pytest.mark.long
@pytest.mark.timeout(900)
# So much more trouble that both attempts of one request fail in some batch, and that a run gets through: the data source asks more often.
@pytest.mark.parametrize(("routing", "more"), [("true", 3), ("false", 2)], ids=["configured", "data source"])
def test_a_stream_whose_requests_are_hardly_repeated_is_started_again(
    spark: SparkSession, store: Store, zookeeper_address: str, tmp_path: Path, routing: str, more: int
) -> None:
    trouble = {kind: more * share for kind, share in TROUBLE.items()}
    spark.conf.set(ROUTING, routing)
    try:
        checkpoints = (tmp_path / f"checkpoint-{number}" for number in range(5))
        again = (copied(spark, store, zookeeper_address, each, trouble, batches=5, attempts=2) for each in checkpoints)
        assert any(again), "no request failed for good: nothing was tried"
    finally:
        spark.conf.set(ROUTING, "true")
        release(zookeeper_address)
