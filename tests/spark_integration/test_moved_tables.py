"""Jobs of Spark and tables that move to another coordinator between their statements."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import sluice
from sluice.coordinator.service.connect import release
from sluice.delta import DeltaTable

from .conftest import Place

pytestmark = pytest.mark.spark


@pytest.mark.costly
def test_every_way_leads_to_the_new_place(place: Place, tmp_path: Path) -> None:
    new = f"{place.coordinator}-new"
    place.create(pa.schema([("k", pa.string()), ("v", pa.int64())]), properties={"delta.enableDeletionVectors": "true"})
    frame = place.spark.createDataFrame([("a", 1)], "k string, v long")
    place.write(frame)
    read, kept = place.scan(), DeltaTable.forPath(place.spark, place.location, coordinator=place.coordinator)
    query = (
        place.spark.readStream.format("rate-micro-batch")
        .options(rowsPerBatch=1, startTimestamp=0)
        .load()
        .selectExpr("'s' AS k", "value AS v")
        .writeStream.format("sluice")
        .options(coordinator=place.coordinator, checkpointLocation=str(tmp_path / "checkpoint"))
        .trigger(processingTime="1 second")
        .start(place.location)
    )
    try:
        while not [row for row in place.rows() if row["k"] == "s"]:
            assert query.isActive, query.exception()
        sluice.move(place.location, new, coordinator=place.coordinator)
        streamed = len([row for row in place.rows() if row["k"] == "s"])
        assert read.where("k = 'a'").count() == 1
        place.write(frame)
        kept.update("k = 'a'", {"v": "v + 1"})
        sluice.sql(place.spark, f"DELETE FROM sluice.`{place.location}` WHERE v > 1 AND k = 'a'", coordinator=place.coordinator)
        place.write(frame)
        while len([row for row in place.rows() if row["k"] == "s"]) < streamed + 2:
            assert query.isActive, query.exception()
    finally:
        query.stop()
    there = sluice.Table.open(place.location, coordinator=new)
    assert [row for row in there.snapshot().to_arrow().to_pylist() if row["k"] == "a"] == [{"k": "a", "v": 1}]
    streamed_rows = sorted(row["v"] for row in there.snapshot().to_arrow().to_pylist() if row["k"] == "s")
    assert streamed_rows == list(range(len(streamed_rows)))
    assert place.load().where("k = 'a'").count() == 1
    release(new)
