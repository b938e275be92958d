"""Streaming queries as tests run them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from ..conftest import Place

__all__ = ["SLOW_START", "Stream", "run_to_end"]

SLOW_START = "Python worker failed to connect back"
"""Spark gives the process of a query ten seconds to start, whatever else the machine does."""


def run_to_end(start: Callable[[], StreamingQuery]) -> StreamingQuery:
    """Start a query, and wait for its end; again if Spark could not start its process in time."""
    for _ in range(5):
        query = start()
        try:
            query.awaitTermination()
        except StreamingQueryException as failed:
            if SLOW_START not in str(failed):
                raise
        else:
            return query
    raise AssertionError(f"Spark started no process for the query: {SLOW_START}")


@dataclass
class Stream:
    """A query of a table, its checkpoint, and the rows of its batches."""

    place: Place
    checkpoint: Path
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    batches: dict[int, list[tuple[Any, ...]]] = field(default_factory=dict[int, list[tuple[Any, ...]]])
    instead: Callable[[DataFrame, int], None] | None = None
    """What is done with a batch; its rows are noted by default."""
    source: str = "sluice"
    """The data source that reads the table."""

    def frame(self) -> DataFrame:
        reader = self.place.spark.readStream.format(self.source)
        return reader.options(**(self.place.options | dict(self.options))).load(self.place.location)

    def start(self, frame: DataFrame | None = None, **trigger: Any) -> StreamingQuery:
        writer = (self.frame() if frame is None else frame).writeStream.foreachBatch(self.instead or self._note)
        return writer.option("checkpointLocation", str(self.checkpoint)).trigger(**(trigger or {"processingTime": "0 seconds"})).start()

    def _note(self, batch: DataFrame, number: int) -> None:
        self.batches[number] = sorted(map(tuple, batch.collect()), key=repr)

    def run(self, frame: DataFrame | None = None) -> StreamingQuery:
        """All that is there, to its end."""
        return run_to_end(lambda: self.start(frame, availableNow=True))

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        """The rows of all batches, in the order of batches."""
        return [row for number in sorted(self.batches) for row in self.batches[number]]
