"""The data source's streams, asked as Spark asks them, without a JVM."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, cast

from sluice.spark_integration.data_source.source import SluiceDataSource
from sluice.spark_integration.data_source.stream_reader import SluiceStreamReader
from sluice.storage.errors import SluiceError

__all__ = ["Query"]


@dataclass
class Query:
    """A streaming query of one checkpoint."""

    options: dict[str, str]
    place: dict[str, Any] | None = None
    rows: list[dict[str, Any]] = field(default_factory=list)
    batches: int = 0
    error: SluiceError | None = None

    def run(self) -> list[str]:
        """Make the query, and run it until nothing more is there or it stops; the columns that it shows. Offsets pass through JSON."""
        source = SluiceDataSource(dict(self.options))
        schema = source.schema()
        reader = cast("SluiceStreamReader", source.streamReader(schema))
        self.rows, self.error, self.batches = [], None, 0
        try:
            place = self.place or reader.initialOffset()
            while (end := json.loads(json.dumps(reader.latestOffset(place, reader.getDefaultReadLimit())))) != place:
                batch = [row for each in reader.partitions(place, end) for rows in reader.read(each) for row in rows.to_pylist()]
                self.rows += batch  # a batch that failed is not written
                reader.commit(end)
                self.place = place = end
                self.batches += 1
        except SluiceError as stopped:
            self.error = stopped
        finally:
            reader.stop()
        self.rows.sort(key=repr)  # those of a batch come from several tasks
        return schema.names

    @property
    def ids(self) -> list[Any]:
        return [row["id"] for row in self.rows]
