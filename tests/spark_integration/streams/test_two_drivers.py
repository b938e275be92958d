"""Two living drivers with one checkpoint, or with copies of it: whichever commits a batch first goes on, and the other one is refused."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

import sluice

from ..conftest import ROOT, Place
from .conftest import Feed, ids

pytestmark = [pytest.mark.spark, pytest.mark.zookeeper, pytest.mark.long]

PATIENCE_S = 240.0


def until(what: str, is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < end, what
        time.sleep(0.05)


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
