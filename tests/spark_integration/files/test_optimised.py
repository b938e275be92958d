"""Optimised writes: rows meet by partition before they are written, so that a job leaves few files; who says whether they do."""

from __future__ import annotations

import json
import logging
from typing import Any
from unittest import mock

import pytest
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

import sluice
from sluice.delta import DeltaTable
from sluice.spark_integration.data_source.source import SluiceDataSource
from sluice.spark_integration.rows import source
from sluice.spark_integration.writing import SETTING, is_wanted
from sluice.tables.client.property_rules import OPTIMIZE_WRITE

from ..conftest import Place, configured

TASKS, PARTITIONS, ROWS = 4, 3, 24


@pytest.mark.parametrize(
    ("told", "setting", "has", "wanted"),
    [
        (None, "", "false", False),
        (None, "", "true", True),
        (None, "false", "true", False),
        (None, "TRUE", "false", True),
        (False, "true", "true", False),
        (True, "false", "false", True),
    ],
)
def test_the_option_counts_before_the_setting_and_that_before_the_table(told: bool | None, setting: str, has: str, wanted: bool) -> None:
    assert is_wanted(told, setting, {OPTIMIZE_WRITE: has}) is wanted


def test_a_setting_without_meaning_is_refused() -> None:
    with pytest.raises(sluice.errors.InvalidRequest, match=r"optimizeWrite\.enabled is 'perhaps'"):
        is_wanted(None, "perhaps", {})


def rows(place: Place) -> DataFrame:
    """Rows of every partition in each of some tasks."""
    return place.spark.range(ROWS, numPartitions=TASKS).selectExpr("id", f"CAST(id % {PARTITIONS} AS INT) AS p")


def save(place: Place, frame: DataFrame, location: str, *by: str, properties: dict[str, str] | None = None, **options: Any) -> list[str]:
    """Write the rows; the files of the table, which has them all."""
    named = {"coordinator": place.coordinator, "properties": json.dumps(properties or {}), **options}
    frame.write.format("sluice").partitionBy(*by).options(**named).save(location)
    snapshot = sluice.Table.open(location, coordinator=place.coordinator).snapshot()
    assert sorted(snapshot.to_arrow()["id"].to_pylist()) == list(range(ROWS))
    return [each.path for each in snapshot.raw.add_files()]


@pytest.mark.costly
@pytest.mark.spark
@pytest.mark.zookeeper
def test_a_job_leaves_one_file_in_each_partition(place: Place) -> None:
    frame, spark = rows(place), place.spark
    assert len(save(place, frame, f"{place.location}-as-they-come", "p")) == TASKS * PARTITIONS
    with configured(spark, {"spark.sql.adaptive.enabled": "false"}):  # as in a stream's batch
        assert len(save(place, frame, f"{place.location}-option", "p", optimizeWrite=True)) == PARTITIONS
        assert len(save(place, frame, f"{place.location}-property", properties={OPTIMIZE_WRITE: "true"})) == 1
        # by Python tasks: footers do not tell whether rows satisfy the constraint
        checked = {"delta.constraints.positive": "id >= 0"}
        assert len(save(place, frame, f"{place.location}-checked", properties=checked, optimizeWrite=True)) == 1
        assert spark.conf.get("spark.sql.adaptive.enabled") == "false"


@pytest.mark.spark
@pytest.mark.zookeeper
def test_the_session_says_it_for_transactions_too(place: Place) -> None:
    with configured(place.spark, {SETTING: "true"}):
        assert len(save(place, rows(place), place.location, "p")) == PARTITIONS
        with sluice.transaction(place.spark, coordinator=place.coordinator) as t:
            t[place.table()].append(rows(place))
        assert place.table().snapshot().raw.num_files == 2 * PARTITIONS


def merged(place: Place, location: str, *, optimised: bool) -> int:
    """How many files a MERGE adds that updates half of its rows and inserts the others, from many tasks."""
    properties = {OPTIMIZE_WRITE: str(optimised).lower(), "delta.enableDeletionVectors": "true"}
    save(place, rows(place), location, "p", properties=properties, optimizeWrite=True)
    half = f"id + {ROWS // 2} AS id"
    with mock.patch.multiple(source, _LOCAL_ROWS_MAX=0, _TASK_BYTES=1):  # as if it were a large source
        table = DeltaTable.forPath(place.spark, location, coordinator=place.coordinator)
        merge = table.alias("t").merge(rows(place).selectExpr(half, "p").alias("s"), "t.id = s.id")
        merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
    snapshot = sluice.Table.open(location, coordinator=place.coordinator).snapshot()
    assert sorted(snapshot.to_arrow()["id"].to_pylist()) == list(range(ROWS + ROWS // 2))
    return snapshot.raw.num_files - PARTITIONS


@pytest.mark.spark
@pytest.mark.zookeeper
@pytest.mark.long
def test_the_new_rows_of_a_merge_meet_too(place: Place) -> None:
    as_they_come = merged(place, f"{place.location}-as-they-come", optimised=False)
    assert as_they_come > 2 * PARTITIONS
    assert merged(place, place.location, optimised=True) <= 2 * PARTITIONS, (
        "one file of updated rows in each partition, and one of new ones"
    )


@pytest.mark.spark
@pytest.mark.zookeeper
def test_rows_whose_metrics_are_observed_are_written_as_they_come(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    seen = Observation("seen")
    with caplog.at_level(logging.INFO, logger="sluice"):
        save(place, rows(place).observe(seen, F.count(F.lit(1)).alias("rows")), place.location, optimizeWrite=True)
    assert seen.get == {"rows": ROWS}
    assert "not shuffled before they are written: their metrics are observed" in caplog.text


def test_the_data_source_refuses_what_it_cannot_do() -> None:
    source = SluiceDataSource({"path": "memory://nowhere", "optimizeWrite": "true"})
    for writer in (source.writer, source.streamWriter):
        with pytest.raises(sluice.errors.InvalidRequest, match="a Python data source gets them afterwards"):
            writer(StructType(), False)
