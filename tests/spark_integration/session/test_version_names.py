"""Versions in paths, and writes that ask for the next version, in sessions of sluice and by the data source."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from pyspark.errors import AnalysisException

import sluice
from sluice.spark_integration.session.routing import ROUTING

from ..conftest import SMALL, Place

pytestmark = pytest.mark.spark


@pytest.fixture(params=["true", "false"], ids=["routed", "data source"])
def routing(request: pytest.FixtureRequest, place: Place) -> Iterator[bool]:
    place.spark.conf.set(ROUTING, request.param)

    yield request.param == "true"
    place.spark.conf.set(ROUTING, "true")


def digits(ms: int, zone: str) -> str:
    return datetime.fromtimestamp(ms / 1000, timezone.utc).astimezone(ZoneInfo(zone)).strftime("%Y%m%d%H%M%S%f")[:17]


@pytest.mark.parametrize(
    "routing", [pytest.param("true", id="routed"), pytest.param("false", id="data source", marks=pytest.mark.long)], indirect=True
)
def test_a_path_may_name_a_version(place: Place, routing: bool) -> None:
    for number in range(3):
        place.write(place.spark.range(number, number + 1))
    table = place.table()
    reader = place.spark.read.format("sluice").option("coordinator", place.coordinator)
    at = digits(table.snapshot(1).timestamp, SMALL["spark.sql.session.timeZone"] if routing else "UTC")
    for name, expected in (("@v0", 1), ("@V1", 2), (f"@{at}", 2), ("", 3)):
        assert reader.load(place.location + name).count() == expected
        assert reader.schema("id long").load(place.location + name).count() == expected
        reader = place.spark.read.format("sluice").option("coordinator", place.coordinator)
    if routing:
        assert reader.table(f"sluice.`{place.location}@v0`").count() == 1
        for name in ("@v1", f"@{at}"):
            sql = sluice.sql(place.spark, f"SELECT count(*) AS n FROM sluice.`{place.location}{name}`", coordinator=place.coordinator)
            assert sql.collect()[0]["n"] == 2
    with pytest.raises(Exception, match="names a version, and versionAsOf was given"):
        reader.option("versionAsOf", 1).load(f"{place.location}@v0").count()
    sluice.Table.create(f"{place.location}@v0", table.struct, coordinator=place.coordinator)
    reader = place.spark.read.format("sluice").option("coordinator", place.coordinator)
    assert reader.load(f"{place.location}@v0").count() == 0, "what exists wins"
    assert not list(Path(place.location).glob("*@*"))


def test_a_write_may_ask_for_the_next_version(place: Place, routing: bool) -> None:
    place.write(place.spark.range(1))
    place.write(place.spark.range(1))
    for mode in ("append", "overwrite"):
        with pytest.raises(Exception, match="expected-version: version 1 "):
            place.write(place.spark.range(1), mode, ifVersion=0)
    place.write(place.spark.range(1), "append", ifVersion=1)
    place.write(place.spark.range(1), "overwrite", ifVersion=2)
    assert place.table().version == 3
    assert len(place.rows()) == 1
    assert place.table().history()[1].is_blind_append is routing, "it depends on the version alone"


def test_a_setting_of_deltas_lets_appends_add_columns(place: Place) -> None:
    place.write(place.spark.range(1))
    wider = place.spark.range(1).selectExpr("id", "id AS more")
    with pytest.raises(AnalysisException, match="more"):
        place.write(wider)
    place.spark.conf.set("spark.databricks.delta.schema.autoMerge.enabled", "true")
    try:
        with pytest.raises(AnalysisException, match="more"):
            place.write(wider, mergeSchema="false")
        place.write(wider)
    finally:
        place.spark.conf.unset("spark.databricks.delta.schema.autoMerge.enabled")
    assert place.table().struct.names == ("id", "more")
