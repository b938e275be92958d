"""A stream whose executor, the JVM that runs its tasks, is killed while it reads or writes: another one does the task.

Goal: the query goes on by itself; each row is there once, and each batch is one version. Method: a driver with two executors that are
processes of their own (Spark's `local-cluster`), whose task kills the one that it runs in. Sessions of `configure` write by Spark's own
writer, without a step of sluice in the task: there the task that reads the rows kills its executor, while the same task writes them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark
import pytest

from ..conftest import ROOT, Place
from ..rows import faults as common
from . import faults
from .conftest import Feed, ids

pytestmark = [pytest.mark.spark, pytest.mark.zookeeper, pytest.mark.long]

SCHEMA = pa.schema([("id", pa.int64()), ("k", pa.string())])


def runs_on(place: Place, feed: Feed, home: Path, step: str, source: str | None) -> None:
    """Run a driver to its end whose executor is killed at a step."""
    home.mkdir()
    for each in Path(pyspark.__file__).parent.iterdir():  # executors have their folders below Spark's home
        (home / each.name).symlink_to(each)
    order: dict[str, Any] = {"location": place.location, "coordinator": place.coordinator, "folder": str(feed.folder.parent)}
    order |= {"step": step, "storage_options": {}, "source": source, "victim": "executor"}
    command = [sys.executable, "-m", "tests.spark_integration.streams.dying_stream", json.dumps(order)]
    environment = {**os.environ, "SPARK_HOME": str(home)}
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=280, check=False)
    assert common.passed(source or place.location), f"{step} was not passed: {done.stderr}"
    assert done.stdout.endswith("written\n"), done.stderr


@pytest.mark.shows("stream-worker-killed")
@pytest.mark.parametrize("step", faults.IN_TASKS)
def test_an_executor_that_writes_by_the_data_source_is_killed(place: Place, feed: Feed, tmp_path: Path, step: str) -> None:
    feed.ids(1)
    feed.drain(place)
    feed.ids(2, 3)
    runs_on(place, feed, tmp_path / "home", step, None)
    assert ids(place) == [1, 2, 3]
    assert place.table().version == 2, "the table was made, and two batches came"


@pytest.mark.shows("stream-worker-killed")
@pytest.mark.parametrize("step", faults.IN_READING_TASKS)
def test_an_executor_that_reads_and_writes_is_killed(place: Place, feed: Feed, tmp_path: Path, step: str) -> None:
    source = place.create(SCHEMA)
    source.append(pa.table({"id": [1, 2, 3], "k": ["b", "a", "b"]}, schema=SCHEMA))
    target = Place(place.spark, f"{place.location}-copy", place.coordinator)
    runs_on(target, feed, tmp_path / "home", step, source.location)
    assert ids(target) == [1, 2, 3]
    assert target.table().version == 1, "the table was made, and one batch came"
