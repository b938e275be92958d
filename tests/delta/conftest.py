"""The session and the places of the Spark floor's tests, and a table that a DeltaTable shows."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa
import pytest

from sluice.delta import DeltaTable

from ..spark_integration.conftest import Place, place, spark
from ..spark_integration.streams.conftest import feed

__all__ = ["SCHEMA", "Made", "Place", "feed", "made", "place", "spark"]

SCHEMA = pa.schema([pa.field("day", pa.string()), pa.field("id", pa.int64()), pa.field("v", pa.string())])

Made = Callable[..., DeltaTable]


@pytest.fixture
def made(place: Place) -> Made:
    """Makes the place's table with these rows, partitioned by day."""

    def make(*rows: tuple[str, int, str], properties: Mapping[str, str] | None = None) -> DeltaTable:
        table = place.create(SCHEMA, partition_by=["day"], properties=dict(properties or {}))
        if rows:
            table.append(pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], schema=SCHEMA))
        return DeltaTable.forPath(place.spark, place.location, coordinator=place.coordinator)

    return make
