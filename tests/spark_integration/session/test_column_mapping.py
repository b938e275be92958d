"""Tables with column mapping on Spark: its own scan, its own writer, changes of rows, streams and changes, under names that change."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

import sluice
from sluice.spark_integration import read
from tests.spark_integration.conftest import is_native
from tests.tables.manage.test_column_mapping import BY_FEATURES, numbered, written

pytestmark = pytest.mark.spark

COLUMNS = "id BIGINT, `a b` STRING, s STRUCT<x: BIGINT, y: STRING>, l ARRAY<STRUCT<x: BIGINT>>, p STRING"
RENAMES = ("`a b` TO c", "s.x TO xx", "p TO part", "l.element.x TO z")
Sql = Callable[[str], DataFrame]


@pytest.fixture
def sql(spark: SparkSession, zookeeper_address: str) -> Sql:
    return lambda text: sluice.sql(spark, text, coordinator=zookeeper_address)


def filled(sql: Sql, location: Path, mode: str, **properties: str) -> str:
    """A table of ten rows, whose columns were renamed after them; its name in SQL."""
    name = f"sluice.`{location}`"
    settings = ", ".join(f"'{key}' = '{value}'" for key, value in {"delta.columnMapping.mode": mode, **properties}.items())
    sql(f"CREATE TABLE {name} ({COLUMNS}) USING sluice PARTITIONED BY (p) TBLPROPERTIES ({settings})")
    values = "id, concat('v', id), named_struct('x', id, 'y', string(id)), array(named_struct('x', id)), concat('p', id % 2)"
    sql(f"INSERT INTO {name} SELECT {values} FROM range(10)")
    for each in RENAMES:
        sql(f"ALTER TABLE {name} RENAME COLUMN {each}")
    return name


def by_id(rows: DataFrame) -> dict[int, Any]:
    return {row.id: row for row in rows.collect()}


@pytest.mark.costly
@pytest.mark.parametrize("mode", ["name", "id"])
def test_spark_reads_its_own_files_under_the_new_names(sql: Sql, spark: SparkSession, tmp_path: Path, mode: str) -> None:
    name = filled(sql, tmp_path / "t", mode)
    table = sluice.Table.open(tmp_path / "t", consistency="published")
    file = pq.read_schema(tmp_path / "t" / table.snapshot().files()["path"][0].as_py())
    assert all(b"PARQUET:field_id" in file.field(number).metadata for number in range(len(file)))
    assert file.field(2).type.field(0).metadata[b"PARQUET:field_id"]
    frame = read(spark, tmp_path / "t", consistency="published")
    assert is_native(frame)
    assert frame.schema.simpleString() == ("struct<id:bigint,c:string,s:struct<xx:bigint,y:string>,l:array<struct<z:bigint>>,part:string>")
    rows = by_id(frame)
    assert len(rows) == 10
    assert (rows[3].c, rows[3].s.xx, rows[3].s.y, rows[3].l[0].z, rows[3].part) == ("v3", 3, "3", 3, "p1")
    assert [*by_id(frame.where("part = 'p1' AND c = 'v3' AND s.xx = 3 AND l[0].z = 3"))] == [3]
    assert sql(f"SELECT part, max(s.xx) AS most FROM {name} GROUP BY part ORDER BY part").collect() == [("p0", 8), ("p1", 9)]


@pytest.mark.costly
@pytest.mark.parametrize(("mode", "vectors"), [("name", "true"), ("id", "false")])
def test_rows_are_changed_under_the_new_names(
    sql: Sql, spark: SparkSession, tmp_path: Path, zookeeper_address: str, mode: str, vectors: str
) -> None:
    properties = {"delta.enableDeletionVectors": vectors, "delta.enableChangeDataFeed": "true", "delta.enableRowTracking": "true"}
    name = filled(sql, tmp_path / "t", mode, **properties)
    ids = {row.id: row._row_id for row in read(spark, tmp_path / "t", row_ids=True, consistency="published").collect()}
    sql(f"UPDATE {name} SET c = 'new', s.xx = 44 WHERE id = 4")
    sql(f"DELETE FROM {name} WHERE s.xx = 5")
    source = "SELECT 6 AS id, 'm' AS c, 1.5D AS more UNION ALL SELECT 100, 'n', 2.5D"
    clauses = "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    sql(f"MERGE WITH SCHEMA EVOLUTION INTO {name} t USING ({source}) u ON t.id = u.id {clauses}")
    sql(f"ALTER TABLE {name} DROP COLUMN l")
    sql(f"ALTER TABLE {name} ADD COLUMN l STRING")
    sql(f"OPTIMIZE {name}")
    rows = by_id(sql(f"SELECT * FROM {name}"))
    assert len(rows) == 10
    assert (rows[4].c, rows[4].s.xx, rows[4].s.y, rows[4].part, rows[4].l) == ("new", 44, "4", "p0", None)
    assert (rows[6].c, rows[6].more, rows[6].s.xx, rows[100].more) == ("m", 1.5, 6, 2.5)
    kept = {row.id: row._row_id for row in read(spark, tmp_path / "t", row_ids=True, consistency="published").collect()}
    assert {key: kept[key] for key in ids if key in kept} == {key: ids[key] for key in ids if key != 5}
    feed = spark.read.format("sluice").options(coordinator=zookeeper_address, readChangeFeed="true", startingVersion="0")
    changes = feed.load(str(tmp_path / "t"))
    assert [(row._change_type, row.c) for row in changes.where("id = 4").orderBy("_commit_version", "_change_type").collect()] == [
        ("insert", "v4"),
        ("update_postimage", "new"),
        ("update_preimage", "v4"),
    ]


@pytest.mark.costly
def test_frames_and_streams_know_the_new_names(sql: Sql, spark: SparkSession, tmp_path: Path, zookeeper_address: str) -> None:
    name = filled(sql, tmp_path / "t", "id")
    nested = "named_struct('xx', id, 'y', 'q') AS s"
    frame = spark.range(200, 203).selectExpr("id", "'q' AS c", nested, "'p9' AS part")
    frame.write.format("sluice").option("coordinator", zookeeper_address).mode("append").save(str(tmp_path / "t"))
    spark.range(300, 301).selectExpr("id", "'q' AS c", "'p9' AS part").write.format("sluice").option(
        "coordinator", zookeeper_address
    ).option("replaceWhere", "part = 'p9' AND c = 'q'").mode("overwrite").save(str(tmp_path / "t"))
    assert sorted(by_id(sql(f"SELECT * FROM {name} WHERE part = 'p9'"))) == [300]
    stream = (
        spark.readStream.format("sluice").option("coordinator", zookeeper_address).option("ignoreChanges", "true").load(str(tmp_path / "t"))
    )
    query = (
        stream.selectExpr("id", "c", "s.xx AS x")
        .writeStream.format("memory")
        .queryName("mapped_rows")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert sorted((row.id, row.c, row.x) for row in spark.table("mapped_rows").collect()) == [
        *((number, f"v{number}", number) for number in range(10)),
        (300, "q", None),
    ]


def test_by_id_spark_finds_columns_by_field_ids(spark: SparkSession, tmp_path: Path) -> None:
    schema = pa.schema([numbered("col-1", pa.string(), 2), numbered("other", pa.int64(), 1), numbered("col-2", pa.string(), 9)])
    file = pa.table({"col-1": ["one", "two"], "other": [1, 2], "col-2": ["no", "no"]}, schema=schema)
    location = written(tmp_path / "t", "id", BY_FEATURES, file)
    frame = read(spark, location, consistency="published")
    assert is_native(frame)
    assert [tuple(row) for row in frame.orderBy("id").collect()] == [(1, "one"), (2, "two")]
    assert [tuple(row) for row in frame.where("text = 'two' AND id > 1").collect()] == [(2, "two")]
