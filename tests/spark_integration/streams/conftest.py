"""What the tests of streams share: a folder of files that a query reads, one file for each batch."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.chaos.ensemble import Ensemble

from ..conftest import ROOT, Place
from ..data_source.streaming import run_to_end
from ..rows import faults

SCHEMA = "id long, k string"


@dataclass
class Feed:
    """A folder of JSON files; each becomes one batch of a stream."""

    spark: SparkSession
    folder: Path
    checkpoint: Path
    count: int = field(default=0)
    began: float = field(default_factory=time.time)

    def put(self, *rows: dict[str, Any]) -> None:
        self.count += 1
        waiting = self.folder.parent / "waiting.json"
        waiting.write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
        os.utime(waiting, (self.began + self.count, self.began + self.count))  # Spark takes files in the order of these times
        waiting.rename(self.folder / f"{self.count:04d}.json")

    def ids(self, *numbers: int) -> None:
        self.put(*({"id": number, "k": "ab"[number % 2]} for number in numbers))

    def frame(self, schema: str = SCHEMA) -> DataFrame:
        return self.spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).json(str(self.folder))

    def copy_of_checkpoint(self, name: str) -> Path:
        copied = self.checkpoint.with_name(name)
        shutil.copytree(self.checkpoint, copied)
        return copied

    def write(
        self,
        place: Place,
        *,
        schema: str = SCHEMA,
        checkpoint: Path | None = None,
        mode: str = "append",
        frame: DataFrame | None = None,
        trigger: dict[str, Any] | None = None,
        sink: str = "sluice",
        **options: Any,
    ) -> StreamingQuery:
        """Start a query that ends when it has read everything, unless another trigger is given: the files of the folder, or `frame`."""
        if frame is None:
            frame = self.frame(schema).groupBy("k").count() if mode == "complete" else self.frame(schema)
        writer = frame.writeStream.format(sink).outputMode(mode).trigger(**(trigger or {"availableNow": True}))
        told = {"checkpointLocation": str(checkpoint or self.checkpoint), **place.options}
        return writer.options(**told, **options).start(place.location)

    def drain(self, place: Place, **named: Any) -> None:
        """Write everything there is to write."""
        run_to_end(lambda: self.write(place, **named))


@pytest.fixture
def feed(spark: SparkSession, tmp_path: Path) -> Feed:
    (tmp_path / "feed").mkdir()
    return Feed(spark, tmp_path / "feed", tmp_path / "checkpoint")


@pytest.fixture
def ensemble(tmp_path: Path) -> Iterator[Ensemble]:
    """Three servers of ZooKeeper."""
    servers = Ensemble(tmp_path / "servers")
    try:
        servers.start()
        yield servers
    finally:
        servers.close()


def run_dying(place: Place, feed: Feed, step: str, victim: str, *, source: str | None = None, **environment: str) -> None:
    """Run a driver in whose stream somebody is killed at a step (see `dying_stream`) to its end."""
    order: dict[str, Any] = {"location": place.location, "coordinator": place.coordinator, "folder": str(feed.folder.parent), "step": step}
    order |= {"victim": victim, "storage_options": dict(place.storage_options), "source": source}
    command = [sys.executable, "-m", "tests.spark_integration.streams.dying_stream", json.dumps(order)]
    given = {**os.environ, **environment}
    done = subprocess.run(command, env=given, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert faults.passed(source or place.location), f"{step} was not passed: {done.stderr}"
    if victim == "driver":
        assert done.returncode == -signal.SIGKILL, f"{step}: exit status {done.returncode}\n{done.stdout}{done.stderr}"
    assert done.stdout.endswith("written\n") == (victim == "executor"), done.stderr


def ids(place: Place) -> list[int]:
    return sorted(row["id"] for row in place.rows())


def forget_last_commit(checkpoint: Path) -> int:
    """Make a checkpoint what it is if the driver dies between the commit of its last batch and Spark's note of it. The batch's number."""
    commits = checkpoint / "commits"
    last = max(int(each.name) for each in commits.iterdir() if each.name.isdigit())
    (commits / str(last)).unlink()
    (commits / f".{last}.crc").unlink(missing_ok=True)
    return last


def query_of(checkpoint: Path) -> str:
    return str(json.loads((checkpoint / "metadata").read_text(encoding="utf-8"))["id"])
