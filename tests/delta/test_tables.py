"""`DeltaTable` with real Spark: making and opening tables, what describes them, and what reorganises their files."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, IllegalArgumentException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import IntegerType, StructField, StructType

import sluice
from sluice.delta import DeltaTable

from .conftest import Made, Place

pytestmark = pytest.mark.spark

MON, TUE = ("mon", 1, "a"), ("tue", 2, "b")


def time_of(spark: SparkSession, milliseconds: int) -> str:
    """A time as `restoreToTimestamp` takes it, in the session's time zone."""
    zone = ZoneInfo(str(spark.conf.get("spark.sql.session.timeZone")))
    return datetime.fromtimestamp(milliseconds / 1000, zone).strftime("%Y-%m-%d %H:%M:%S.%f")


def test_a_table_is_created_and_found(place: Place) -> None:
    assert not DeltaTable.isDeltaTable(place.spark, place.location)
    made = (
        DeltaTable.create(place.spark, coordinator=place.coordinator)
        .location(place.location)
        .addColumn("id", "bigint", nullable=False, comment="the number")
        .addColumn("price", "decimal(10, 2)")
        .addColumns(StructType([StructField("day", IntegerType())]))
        .partitionedBy("day")
        .property("delta.enableDeletionVectors", "true")
        .property("team", "sales")
        .execute()
    )
    assert DeltaTable.isDeltaTable(place.spark, place.location)
    assert [each.dataType.simpleString() for each in made.toDF().schema] == ["bigint", "decimal(10,2)", "int"]
    [id_, *_] = place.table().struct.fields
    assert (id_.nullable, dict(id_.metadata)) == (False, {"comment": "the number"})
    assert place.table().partition_columns == ("day",)
    assert place.table().properties["team"] == "sales"


def test_create_refuses_a_table_that_exists_and_create_if_not_exists_takes_it(made: Made, place: Place) -> None:
    made(MON)
    with pytest.raises(AnalysisException) as refused:
        DeltaTable.create(place.spark, coordinator=place.coordinator).location(place.location).addColumn("x", "int").execute()
    assert isinstance(refused.value, sluice.errors.TableExists)
    builder = DeltaTable.createIfNotExists(place.spark, coordinator=place.coordinator).location(place.location).addColumn("x", "int")
    assert builder.execute().toDF().columns == ["day", "id", "v"]
    fresh = DeltaTable.createIfNotExists(coordinator=place.coordinator).tableName(f"delta.`{place.location}-2`").addColumn("x", "int")
    assert fresh.execute().toDF().columns == ["x"]


def test_a_table_has_a_name_and_a_comment(place: Place, spark: SparkSession, tmp_path: Path) -> None:
    sluice.Catalog(place.coordinator, root=str(tmp_path / "managed"))
    builder = DeltaTable.create(spark, coordinator=place.coordinator).tableName("Orders").comment("what was sold")
    created = builder.addColumn("id", "bigint").execute()
    found = DeltaTable.forName(spark, "orders", coordinator=place.coordinator)
    assert found.table.location == created.table.location
    assert created.table.location.startswith(f"file://{tmp_path}/managed/")
    [row] = created.detail().collect()
    assert (row["name"], row["description"]) == ("Orders", "what was sold")
    assert found.toDF().columns == ["id"]
    again = DeltaTable.createIfNotExists(spark, coordinator=place.coordinator).tableName("ORDERS").addColumn("x", "int").execute()
    assert again.table.location == created.table.location
    with pytest.raises(AnalysisException) as taken:
        DeltaTable.create(spark, coordinator=place.coordinator).tableName("orders").addColumn("x", "int").execute()
    assert isinstance(taken.value, sluice.errors.TableExists)
    outside = DeltaTable.create(spark, coordinator=place.coordinator).tableName("outside").location(place.location)
    assert outside.addColumn("x", "int").execute().table.location == place.table().location
    with pytest.raises(AnalysisException) as unknown:
        DeltaTable.forName(spark, "nobody", coordinator=place.coordinator)
    assert isinstance(unknown.value, sluice.errors.TableNotFound)


@pytest.mark.parametrize("named", [False, True])
def test_a_table_is_replaced_with_its_rows_or_made(named: bool, place: Place, spark: SparkSession, tmp_path: Path) -> None:
    sluice.Catalog(place.coordinator, root=str(tmp_path / "managed"))

    def wanted(how: str, column: str) -> DeltaTable:
        builder = getattr(DeltaTable, how)(spark, coordinator=place.coordinator)
        builder = builder.tableName("n") if named else builder.location(place.location)
        table: DeltaTable = (
            builder.addColumn(column, "bigint")
            .addColumn("v", "string")
            .partitionedBy(column.upper())
            .property("team", column)
            .comment(f"by {column}")
            .execute()
        )
        return table

    with pytest.raises(AnalysisException) as missing:
        wanted("replace", "a")
    assert isinstance(missing.value, sluice.errors.TableNotFound)
    first = wanted("createOrReplace", "a")
    first.table.append(pa.table({"a": [1], "v": ["x"]}))
    for how, column, operation in (("replace", "b", "REPLACE TABLE"), ("createOrReplace", "c", "CREATE OR REPLACE TABLE")):
        table = wanted(how, column)
        assert table.toDF().columns == [column, "v"]
        assert table.toDF().count() == 0
        assert (table.table.partition_columns, table.table.properties["team"]) == ((column,), column)
        assert table.table.detail().description == f"by {column}"
        assert table.history(1).collect()[0]["operation"] == operation
    assert table.table.location == first.table.location


def test_a_clustered_table_is_made_optimized_and_described(place: Place) -> None:
    builder = DeltaTable.create(place.spark, coordinator=place.coordinator).location(place.location).addColumn("id", "bigint")
    made = builder.addColumn("place", "string").clusterBy("id", "place").execute()
    assert place.table().clustering_columns == ("id", "place")
    place.table().append(pa.table({"id": [2, 1], "place": ["b", "a"]}))
    [row] = made.optimize().executeCompaction().collect()
    assert (row["metrics"]["numFilesAdded"], row["metrics"]["preserveInsertionOrder"]) == (1, False)
    assert made.detail().collect()[0]["clusteringColumns"] == ["id", "place"]
    with pytest.raises(AnalysisException, match="clustered by id, place, and a file has one order"):
        made.optimize().executeZOrderBy("id")


def test_partition_columns_that_do_not_exist_and_contradicting_places_are_refused(place: Place) -> None:
    builder = DeltaTable.create(place.spark, coordinator=place.coordinator).addColumn("x", "int")
    with pytest.raises(AnalysisException, match="different paths"):
        builder.tableName("delta.`/elsewhere`").location(place.location).execute()
    builder = DeltaTable.create(place.spark, coordinator=place.coordinator).addColumn("x", "int")
    with pytest.raises(AnalysisException, match="'y'"):
        builder.location(place.location).partitionedBy("y").execute()
    assert not DeltaTable.isDeltaTable(place.spark, place.location)


def test_where_there_is_no_table_of_sluices_nothing_is_opened(spark: SparkSession, place: Place) -> None:
    with pytest.raises(AnalysisException) as refused:
        DeltaTable.forPath(spark, place.location, coordinator=place.coordinator)
    assert isinstance(refused.value, sluice.errors.TableNotFound)
    with pytest.raises(AnalysisException, match=r"fs\.s3a\.buffer\.dir"):
        DeltaTable.forPath(spark, place.location, {"fs.s3a.buffer.dir": "/tmp"})


def test_to_df_and_alias_give_names_to_columns(made: Made) -> None:
    table = made(MON, TUE)
    assert {tuple(row) for row in table.toDF().collect()} == {MON, TUE}
    assert [row["v"] for row in table.alias("t").toDF().where("t.id = 2").select(F.col("t.v")).collect()] == ["b"]


def test_history_has_deltas_columns_one_row_for_a_version(made: Made, place: Place) -> None:
    table = made(MON)
    place.table().delete("id = 1")
    rows = table.history().collect()
    assert [(row["version"], row["operation"]) for row in rows] == [(2, "DELETE"), (1, "WRITE"), (0, "CREATE TABLE")]
    newest = rows[0]
    assert newest["operationParameters"]["predicate"]
    assert newest["operationMetrics"]["numDeletedRows"] == "1"
    assert (newest["readVersion"], newest["isBlindAppend"], rows[1]["isBlindAppend"]) == (1, False, True)
    assert newest["timestamp"].timestamp() * 1000 == pytest.approx(place.table().history()[0].timestamp, abs=1)
    assert table.history(1).count() == 1
    assert table.history().columns[:6] == ["version", "timestamp", "userId", "userName", "operation", "operationParameters"]


def test_detail_describes_the_latest_version(made: Made, place: Place) -> None:
    table = made(MON, TUE, properties={"delta.enableDeletionVectors": "true"})
    [row] = table.detail().collect()
    assert (row["format"], row["location"], row["numFiles"], row["partitionColumns"]) == ("delta", place.table().location, 2, ["day"])
    assert row["sizeInBytes"] == sum(path.stat().st_size for path in Path(place.location).rglob("*.parquet"))
    assert row["properties"]["delta.enableDeletionVectors"] == "true"
    assert {"deletionVectors", "sluice", "inCommitTimestamp"} <= set(row["tableFeatures"])
    assert (row["minReaderVersion"], row["minWriterVersion"]) == (3, 7)
    assert row["createdAt"] <= row["lastModified"]


def test_optimize_merges_files_of_the_partitions_that_are_asked_for(made: Made, place: Place) -> None:
    table = made(MON, TUE)
    for number in (3, 4):
        rows = [{"day": "mon", "id": number, "v": "c"}, {"day": "tue", "id": number, "v": "c"}]
        place.table().append(pa.Table.from_pylist(rows, schema=pa.schema([("day", pa.string()), ("id", pa.int64()), ("v", pa.string())])))
    frame = table.optimize().where("day = 'mon'").executeCompaction()
    assert frame.columns == ["path", "metrics"]
    [row] = frame.collect()
    metrics = row["metrics"]
    assert row["path"] == place.table().location
    assert (metrics["numFilesAdded"], metrics["numFilesRemoved"], metrics["partitionsOptimized"]) == (1, 3, 1)
    assert (metrics["totalConsideredFiles"], metrics["numBatches"]) == (3, 1)
    assert metrics["filesAdded"]["totalSize"] == metrics["filesAdded"]["max"] > 0
    assert metrics["filesRemoved"]["totalSize"] > metrics["filesAdded"]["totalSize"]
    assert metrics["zOrderStats"] is None
    assert metrics["startTimeMs"] <= metrics["endTimeMs"]
    [again] = table.optimize().where("day = 'mon'").where("day <> 'tue'").executeCompaction().collect()
    assert again["metrics"]["numFilesAdded"] == 0
    [ordered] = table.optimize().executeZOrderBy(["id", "v"]).collect()
    assert ordered["metrics"]["zOrderStats"]["mergedFiles"]["num"] == ordered["metrics"]["numFilesRemoved"] > 0
    assert table.toDF().count() == 6
    with pytest.raises(AnalysisException, match="partition columns"):
        table.optimize().where("id = 1").executeCompaction()


def test_restore_brings_back_a_version_by_number_and_by_time(made: Made, place: Place, spark: SparkSession) -> None:
    table = made(MON)
    place.table().delete("id = 1")
    [row] = table.restoreToVersion(1).collect()
    assert row.asDict() == {
        "table_size_after_restore": row["restored_files_size"],
        "num_of_files_after_restore": 1,
        "num_removed_files": 0,
        "num_restored_files": 1,
        "removed_files_size": 0,
        "restored_files_size": sum(path.stat().st_size for path in Path(place.location).rglob("*.parquet")),
    }
    assert [tuple(each) for each in table.toDF().collect()] == [MON]
    [again] = table.restoreToVersion(1).collect()
    assert (again["num_restored_files"], again["num_of_files_after_restore"]) == (0, 1)
    empty_ms = next(each.timestamp for each in place.table().history() if each.operation == "DELETE")
    table.restoreToTimestamp(time_of(spark, empty_ms))
    assert table.toDF().count() == 0
    with pytest.raises(AnalysisException) as refused:
        table.restoreToVersion(99)
    assert isinstance(refused.value, sluice.errors.VersionNotFound)
    with pytest.raises(AnalysisException, match="2026-01-31"):
        table.restoreToTimestamp("31 January 2026")


def test_a_manifest_lists_the_files_of_each_partition(made: Made, place: Place) -> None:
    table = made(MON, TUE)
    table.generate("SYMLINK_FORMAT_MANIFEST")
    manifest = Path(place.location) / "_symlink_format_manifest" / "day=mon" / "manifest"
    [line] = manifest.read_text().split()
    assert line.endswith(".parquet")
    with pytest.raises(AnalysisException, match="symlink_format_manifest"):
        table.generate("other")


def test_a_clone_shares_the_rows_of_a_version_and_goes_its_own_way(made: Made, place: Place, spark: SparkSession) -> None:
    table = made(MON, TUE)
    place.table().delete("id = 2")
    now = table.clone(f"{place.location}-now", isShallow=True, properties={"team": "copies"})
    assert [tuple(row) for row in now.toDF().collect()] == [MON]
    assert now.table.properties["team"] == "copies"
    then = table.cloneAtVersion(1, f"{place.location}-then", True)
    assert then.toDF().count() == 2
    then.delete()
    assert (then.toDF().count(), table.toDF().count()) == (0, 1)
    with pytest.raises(AnalysisException) as exists:
        table.clone(f"{place.location}-then", True)
    assert isinstance(exists.value, sluice.errors.TableExists)
    written_ms = next(each.timestamp for each in place.table().history() if each.operation == "WRITE")
    assert table.cloneAtTimestamp(time_of(spark, written_ms), f"{place.location}-then", True, True).toDF().count() == 2
    deep = table.clone(f"{place.location}-deep")
    assert [tuple(row) for row in deep.toDF().collect()] == [MON]
    assert list(Path(f"{place.location}-deep").rglob("clone-*.parquet"))


def test_a_folder_of_parquet_files_becomes_a_table(place: Place, spark: SparkSession) -> None:
    frame = spark.createDataFrame([MON, TUE], "day string, id bigint, v string")
    frame.write.partitionBy("day").parquet(place.location)
    table = DeltaTable.convertToDelta(spark, f"parquet.`{place.location}`", "day string", coordinator=place.coordinator)
    assert {(row["day"], row["id"], row["v"]) for row in table.toDF().collect()} == {MON, TUE}
    assert table.detail().collect()[0]["partitionColumns"] == ["day"]
    table.delete("id = 1")
    assert table.toDF().count() == 1
    with pytest.raises(AnalysisException, match=r"parquet\.`"):
        DeltaTable.convertToDelta(spark, place.location, coordinator=place.coordinator)


def test_features_come_and_go(made: Made) -> None:
    table = made(MON)

    def features() -> set[str]:
        return set(table.detail().collect()[0]["tableFeatures"])

    table.addFeatureSupport("changeDataFeed")
    assert "changeDataFeed" in features()
    table.dropFeatureSupport("changeDataFeed")
    assert "changeDataFeed" not in features()
    table.addFeatureSupport("deletionVectors")
    table.upgradeTableProtocol(3, 7)
    [row] = table.detail().collect()
    assert (row["minReaderVersion"], row["minWriterVersion"]) == (3, 7)
    with pytest.raises(AnalysisException) as unknown:
        table.addFeatureSupport("variantShredding")
    with pytest.raises(AnalysisException, match="has no feature 'changeDataFeed'"):
        table.dropFeatureSupport("changeDataFeed")
    with pytest.raises(AnalysisException, match="does not support the table feature 'changeDataFeeds'"):
        table.dropFeatureSupport("changeDataFeeds")
    with pytest.raises(AnalysisException) as truncating:
        table.dropFeatureSupport("appendOnly", True)
    assert isinstance(unknown.value, sluice.errors.UnsupportedFeature)
    assert isinstance(truncating.value, sluice.errors.InvalidRequest)
    assert "a feature of writers" in str(truncating.value)
    table.dropFeatureSupport("deletionVectors", True)
    assert "deletionVectors" not in features(), "no version shows it"


def test_vacuum_keeps_what_readers_need_unless_forced(made: Made, place: Place, spark: SparkSession) -> None:
    table = made(MON)
    place.table().delete("id = 1")
    with pytest.raises(IllegalArgumentException, match="shorter than"):
        table.vacuum(0)
    frame = table.vacuum()
    assert (frame.columns, frame.count()) == ([], 0)
    assert len(list(Path(place.location).rglob("*.parquet"))) == 1
    spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    try:
        table.vacuum(0.0)
    finally:
        spark.conf.unset("spark.databricks.delta.retentionDurationCheck.enabled")
    assert list(Path(place.location).rglob("*.parquet")) == []


def test_every_operation_that_commits_takes_if_version(made: Made, place: Place, spark: SparkSession) -> None:
    table = made(MON)
    for _ in range(2):
        place.table().append(place.table().snapshot().to_arrow())
    table.addFeatureSupport("changeDataFeed")
    past, now = place.table().version - 1, place.table().version
    first = time_of(spark, min(each.timestamp for each in place.table().history()))
    operations: list[Callable[[int], Any]] = [
        lambda version: table.optimize(if_version=version).executeCompaction(),
        lambda version: table.restoreToVersion(0, if_version=version),
        lambda version: table.restoreToTimestamp(first, if_version=version),
        lambda version: table.optimize(if_version=version).executeZOrderBy("id"),
        lambda version: table.addFeatureSupport("deletionVectors", if_version=version),
        lambda version: table.dropFeatureSupport("changeDataFeed", if_version=version),
        lambda version: table.upgradeTableProtocol(3, 7, if_version=version),
    ]
    for operation in operations:
        with pytest.raises(sluice.errors.ConcurrentModification, match="expected-version"):
            operation(past)
        assert place.table().version == now
    for number, operation in enumerate(operations[:2]):
        operation(now + number)
    assert place.table().version == now + 2
