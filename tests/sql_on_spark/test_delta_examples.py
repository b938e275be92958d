"""The SQL of Delta Lake's documentation (docs.delta.io) that Spark carries out, as it is there but for places, versions and providers."""

from __future__ import annotations

import pytest

import sluice

from ..sql_on_duckdb.delta_merges import merges
from .conftest import Warehouse

pytestmark = [pytest.mark.spark, pytest.mark.zookeeper]


def test_merges(warehouse: Warehouse) -> None:
    merges(warehouse.sql, warehouse.rows)


def test_batch_writes_and_reads(warehouse: Warehouse) -> None:
    warehouse.sql(
        """CREATE TABLE default.people10m (
             id INT, firstName STRING, gender STRING, birthDate TIMESTAMP,
             dateOfBirth DATE GENERATED ALWAYS AS (CAST(birthDate AS DATE)), salary INT
           ) USING sluice PARTITIONED BY (gender)"""
    )
    warehouse.sql(
        """INSERT INTO default.people10m (id, firstName, gender, birthDate, salary) VALUES
             (9999998, 'Billy', 'M', '1992-09-17T04:00:00.000+0000', 55250), (9999999, 'Elias', 'M', '1984-05-22T04:00:00.000+0000', 48500),
             (10000000, 'Joshua', 'F', '1968-07-22T04:00:00.000+0000', 90000)"""
    )
    warehouse.sql("CREATE TABLE morePeople USING sluice AS SELECT * FROM default.people10m WHERE gender = 'F'")
    warehouse.spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    try:
        warehouse.sql("INSERT OVERWRITE TABLE default.people10m SELECT * FROM morePeople")
        assert warehouse.rows("SELECT count(*) FROM default.people10m") == [(3,)]
    finally:
        warehouse.spark.conf.unset("spark.sql.sources.partitionOverwriteMode")
    warehouse.sql("INSERT INTO TABLE default.people10m REPLACE WHERE gender >= 'F' AND gender <= 'G' SELECT * FROM morePeople")
    moment = warehouse.sql("DESCRIBE HISTORY default.people10m LIMIT 1").collect()[0]["timestamp"]
    assert warehouse.rows(f"SELECT count(*) FROM default.people10m TIMESTAMP AS OF '{moment}'") == [(3,)]
    assert warehouse.rows("SELECT count(distinct id) - (SELECT count(distinct id) FROM people10m VERSION AS OF 0) FROM people10m") == [(3,)]
    with pytest.raises(sluice.VersionNotFound):
        warehouse.sql("SELECT count(distinct id) FROM people10m TIMESTAMP AS OF date_sub(current_date(), 7)")
    assert warehouse.rows("SELECT count(*) FROM table_changes('default.people10m', 1, 1)") == [(3,)]
    assert warehouse.rows(f"SELECT _change_type FROM table_changes('default.people10m', '{moment}') GROUP BY ALL")[0] == ("delete",)
    warehouse.sql(
        """MERGE WITH SCHEMA EVOLUTION INTO people10m
           USING (SELECT id, firstName, gender, birthDate, salary, 'Ms' AS title FROM morePeople) source ON source.id = people10m.id
           WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT * WHEN NOT MATCHED BY SOURCE THEN DELETE"""
    )
    assert warehouse.rows("SELECT firstName, CAST(dateOfBirth AS STRING), title FROM people10m") == [("Joshua", "1968-07-22", "Ms")]
