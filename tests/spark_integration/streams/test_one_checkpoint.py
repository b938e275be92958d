"""Two queries on one checkpoint, or on copies of it.

In one driver Spark lets them run, if they have different ids, until both write down one batch.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame

import sluice

from ..conftest import ROOT, Place
from .conftest import SCHEMA, Feed, ids

pytestmark = [pytest.mark.spark, pytest.mark.zookeeper]

IDLE = {"processingTime": "0 seconds"}


def give_another_id(checkpoint: Path) -> None:
    """Spark refuses a second run of an id that it knows to be active."""
    (checkpoint / "metadata").write_text(json.dumps({"id": str(uuid.uuid4())}), encoding="utf-8")
    (checkpoint / ".metadata.crc").unlink(missing_ok=True)


@pytest.mark.costly
def test_the_slower_of_two_queries_is_refused(place: Place, feed: Feed) -> None:
    """Each reads files of its own, so that the other one has nothing to do while one of them writes down its batch."""

    def frame(files: str) -> DataFrame:
        return feed.spark.readStream.schema(SCHEMA).option("pathGlobFilter", files).json(str(feed.folder))

    feed.ids(1)
    mine = feed.write(place, frame=frame("000[13].json"), trigger=IDLE)
    try:
        mine.processAllAvailable()
        give_another_id(feed.checkpoint)
        theirs = feed.write(place, frame=frame("000[2].json"), trigger=IDLE)
        try:
            feed.ids(2)
            theirs.processAllAvailable()
            feed.ids(3)
            with pytest.raises(
                sluice.errors.ConcurrentTransactionException, match="another query that runs with the same checkpoint"
            ) as refused:
                mine.processAllAvailable()
            assert isinstance(refused.value, StreamingQueryException)
            assert isinstance(mine.exception(), sluice.errors.ConcurrentTransactionException)
            assert theirs.isActive
        finally:
            theirs.stop()
    finally:
        mine.stop()
    assert ids(place) == [1, 2]


@pytest.mark.costly
def test_a_batch_whose_offsets_another_query_wrote_down_is_refused(place: Place, feed: Feed) -> None:
    """A table of sluice as the source, which keeps no files of its own in the checkpoint."""
    source = place.spark.range(1)
    location = str(feed.folder.parent / "source")
    source.write.format("sluice").options(**place.options).save(location)
    frame = place.spark.readStream.format("sluice").options(**place.options).load(location)
    mine = feed.write(place, frame=frame, trigger=IDLE)
    try:
        mine.processAllAvailable()
        shutil.copy(feed.checkpoint / "offsets" / "0", feed.checkpoint / "offsets" / "1")
        source.write.format("sluice").options(**place.options).mode("append").save(location)
        with pytest.raises(sluice.errors.ConcurrentTransactionException, match="another query that runs with the same checkpoint"):
            mine.processAllAvailable()
    finally:
        mine.stop()
    assert ids(place) == [0]


# -- two living drivers: whichever commits a batch first goes on, and the other one is refused --------------------------------

PATIENCE_S = 240.0


def until(what: str, is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < end, what
        time.sleep(0.05)


@pytest.mark.long
@pytest.mark.shows("stream-checkpoint-twice")
@pytest.mark.parametrize("second", ["a copy", "the same checkpoint"])
def test_the_second_of_two_living_drivers_is_refused(place: Place, feed: Feed, second: str) -> None:
    feed.ids(1)
    feed.drain(place)
    checkpoint = feed.copy_of_checkpoint("copied") if second == "a copy" else feed.checkpoint
    order = {"location": place.table().location, "coordinator": place.coordinator, "folder": str(feed.folder.parent)}
    command = [sys.executable, "-m", "tests.spark_integration.streams.live_stream", json.dumps({**order, "checkpoint": str(checkpoint)})]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        try:
            assert other.stdout is not None
            assert other.stdout.readline() == "ready\n"
            mine = feed.write(place, trigger={"processingTime": "0 seconds"})
            mine.processAllAvailable()
            feed.ids(2)
            until("nobody was refused", lambda: not mine.isActive or other.poll() is not None)
            until("the other one wrote nothing", lambda: ids(place) == [1, 2])
            feed.ids(3)
            until("who was first does not go on", lambda: ids(place) == [1, 2, 3])
            if mine.isActive:
                mine.stop()
                assert other.stdout.read() == "ConcurrentTransactionException\n"
            else:
                assert isinstance(mine.exception(), sluice.errors.ConcurrentTransactionException)
                said, _ = other.communicate("", timeout=PATIENCE_S)
                assert said == "stopped\n"
        finally:
            other.kill()
            for query in place.spark.streams.active:
                query.stop()
    assert ids(place) == [1, 2, 3]
    assert place.table().version == 3, "the table was made, and three batches came"
