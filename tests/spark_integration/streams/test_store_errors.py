"""Streams on Spark whose object store answers with errors, loses replies, or breaks off in the middle: each row is there once.

Goal: whatever requests fail while a query plans, reads, writes and commits, it goes on, or stops with an error that may be retried, and
goes on when it is started again. Method: a service that fails at random (`chaos.object_store`), between two tables of which a stream
copies the one into the other. `data_source.test_stream_store_errors` tries many more moments of the source, without Spark.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import sluice
from sluice.coordinator.service.connect import release
from sluice.spark_integration import original
from sluice.spark_integration.session.routing import ROUTING
from tests.chaos.world import Store

from ..conftest import Place
from ..data_source.streaming import SLOW_START

pytestmark = [pytest.mark.spark, pytest.mark.zookeeper, pytest.mark.s3, pytest.mark.slow]

SCHEMA = pa.schema([("id", pa.int64()), ("k", pa.string())])
TROUBLE = {"slowdown": 0.015, "error": 0.015, "cut": 0.015, "mute": 0.015, "lost": 0.015, "torn": 0.015}
# So many that two of one request's attempts fail in some batch.
MORE_TROUBLE = {kind: 2 * share for kind, share in TROUBLE.items()}
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


@pytest.mark.shows("stream-store-fails")
@pytest.mark.long
def test_a_stream_from_table_to_table_goes_on(spark: SparkSession, store: Store, zookeeper_address: str, tmp_path: Path) -> None:
    copied(spark, store, zookeeper_address, tmp_path / "checkpoint", TROUBLE, batches=2, attempts=6)
    release(zookeeper_address)
    counts = store.finish()["counts"]
    assert sum(counts.get(kind, 0) for kind in TROUBLE) > 0


@pytest.mark.shows("stream-store-fails")
@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("routing", ["true", "false"], ids=["configured", "data source"])
def test_a_stream_whose_requests_are_hardly_repeated_is_started_again(
    spark: SparkSession, store: Store, zookeeper_address: str, tmp_path: Path, routing: str
) -> None:
    spark.conf.set(ROUTING, routing)
    try:
        again = copied(spark, store, zookeeper_address, tmp_path / "checkpoint", MORE_TROUBLE, batches=5, attempts=2)
    finally:
        spark.conf.set(ROUTING, "true")
        release(zookeeper_address)
    assert again > 0, "no request failed for good: nothing was tried"
