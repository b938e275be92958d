"""`readStream` of a routed session."""

from __future__ import annotations

import uuid
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F  # noqa: N812

import sluice

from ..conftest import Place

pytestmark = pytest.mark.spark

ROWS = pa.table({"id": [1, 2], "k": ["a", "b"]})


def test_tables_by_name_and_by_place(place: Place, tmp_path: Path) -> None:
    pytest.importorskip("pyspark.sql.streaming.datasource", reason="streams of tables need PySpark 4.2")
    catalog = sluice.Catalog(place.coordinator, root=str(tmp_path / "root"))
    name = f"n{uuid.uuid4().hex[:8]}"
    catalog.create_namespace(name)
    catalog.create(f"{name}.orders", ROWS.schema).append(ROWS)
    reader = place.spark.readStream.option("coordinator", place.coordinator)
    by_name = reader.table(f"{name}.orders")
    assert by_name.isStreaming
    query = by_name.select(F.upper("k").alias("K")).writeStream.format("memory").queryName(name).trigger(availableNow=True).start()
    query.awaitTermination()
    assert sorted(row.K for row in place.spark.table(name).collect()) == ["A", "B"]
    location = catalog.locate(f"{name}.orders")
    assert reader.format("SLUICE").load(location).columns == ["id", "k"]
    assert place.spark.readStream.load(location, format="sluice", coordinator=place.coordinator, schema="k string").columns == ["k"]


def test_errors_are_those_of_spark_and_of_sluice(place: Place) -> None:
    reader = place.spark.readStream.format("sluice").option("coordinator", place.coordinator)
    with pytest.raises(AnalysisException) as missing:
        reader.load(place.location)
    assert isinstance(missing.value, sluice.errors.TableNotFound)
    with pytest.raises(AnalysisException, match="do you mean startingVersion"):
        reader.option("startVersion", 1).load(place.location)
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        place.spark.readStream.option("coordinator", place.coordinator).table("nothing.at_all")


def test_other_formats_stay_sparks(place: Place, tmp_path: Path) -> None:
    place.spark.range(3).write.parquet(str(tmp_path / "p"))
    frame = place.spark.readStream.schema("id long").format("parquet").load(str(tmp_path / "p"))
    assert frame.isStreaming
    assert place.spark.readStream.format("rate").options(rowsPerSecond=1).load().columns == ["timestamp", "value"]
