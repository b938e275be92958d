"""Delta Lake on Spark, DuckDB and Polars read the tables whose rows sluice's Spark engine changed, version by version; Delta Lake also
their changes.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

import sluice
from sluice.delta import DeltaTable
from tests.spark_integration.conftest import spark

from .engine import Delta, DuckDB
from .test_delta_spark import PROPERTIES, SCHEMA, of_delta, of_sluice, rows

__all__ = ["spark"]

pytestmark = [pytest.mark.delta_spark, pytest.mark.spark, pytest.mark.timeout(600)]

WITH_CHANGES = [name for name, properties in PROPERTIES.items() if properties.get("delta.enableChangeDataFeed") == "true"]


@pytest.fixture(params=PROPERTIES)  # test_it_reads_the_changes names its own
def table(request: pytest.FixtureRequest, tmp_path: Path, zookeeper_address: str, spark: SparkSession) -> sluice.Table:
    """A table after each kind of change, with a checkpoint on the way; those with change data have no partitions."""
    properties = {**PROPERTIES[request.param], "delta.checkpointInterval": "5"}
    partition_by = [] if request.param == "changes" else ["p"]
    made = sluice.Table.create(tmp_path / "t", SCHEMA, partition_by=partition_by, properties=properties, coordinator=zookeeper_address)
    for first in (0, 60):
        made.append(rows(first, first + 60))
    changed = DeltaTable.forPath(spark, made.location, coordinator=zookeeper_address).alias("t")
    changed.delete("t.id % 7 = 3")
    changed.update("id % 5 = 2", {"v": "v + 1", "inner.a": "coalesce(inner.a, 0) - 1", "p": "concat(p, '!')"})
    source = spark.createDataFrame(rows(110, 140)).alias("s")
    changed.merge(source, "t.id = s.id").whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
    made.compact()
    merge = changed.merge(source, "t.id = s.id - 100").whenMatchedUpdate("s.id % 2 = 0", {"price": "t.price + s.price"}).whenMatchedDelete()
    merge.whenNotMatchedBySourceUpdate("t.id > 130", {"many": F.array(F.lit(7))}).whenNotMatchedBySourceDelete("t.id = 64").execute()
    changed.delete("p = 'x=1/ä'")
    return made.refresh()


def test_they_read_every_version(table: sluice.Table, delta: Delta, duckdb: DuckDB) -> None:
    assert [entry.operation for entry in table.history(None)][::-1][3:] == ["DELETE", "UPDATE", "MERGE", "OPTIMIZE", "MERGE", "DELETE"]
    for version in range(1, table.version + 1):
        ours = of_sluice(table.snapshot(version).to_arrow())
        assert of_delta(delta.read(table.location, versionAsOf=version)) == ours, f"version {version}"
        assert of_sluice(duckdb.read(table.location, version)) == ours, f"version {version}, DuckDB"
        # polars 2.1 overlooks the deletion vectors of files whose paths are escaped, as those of these partitions are
        if not (table.partition_columns and table.properties.get("delta.enableDeletionVectors") == "true"):
            assert of_sluice(pl.read_delta(table.location, version=version).to_arrow()) == ours, f"version {version}, Polars"


@pytest.mark.parametrize("table", WITH_CHANGES, indirect=True)
def test_it_reads_the_changes(table: sluice.Table, delta: Delta) -> None:
    told = ("_change_type", "_commit_version")
    theirs = delta.read(table.location, readChangeFeed="true", startingVersion=1)
    assert of_delta(theirs, *told) == of_sluice(table.changes(after=0), *told)
    assert {row["_change_type"] for row in theirs} == {"insert", "delete", "update_preimage", "update_postimage"}
