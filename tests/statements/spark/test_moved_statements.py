"""Statements as jobs for Delta Lake write them, on both engines: "delta" means sluice, and a location may be a string."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

import sluice
from sluice.delta import DeltaTable
from sluice.spark_integration.session.names import is_sluice
from sluice.statements.duckdb.engine import run
from sluice.storage.stores.location import normalise

from .conftest import Warehouse

pytestmark = pytest.mark.spark

Rows = Callable[[str], list[tuple[Any, ...]]]
DAYS = pa.schema([pa.field("id", pa.int64()), pa.field("day", pa.string()), pa.field("shop", pa.string())])


@pytest.fixture(params=["Spark", "DuckDB"])
def rows(request: pytest.FixtureRequest, warehouse: Warehouse) -> Rows:
    """Carries out a statement by an engine."""

    def by_duckdb(text: str) -> list[tuple[Any, ...]]:
        return sorted((tuple(row.values()) for row in run(text, coordinator=warehouse.coordinator).to_pylist()), key=repr)

    return warehouse.rows if request.param == "Spark" else by_duckdb


@pytest.fixture
def days(warehouse: Warehouse) -> sluice.Table:
    """A table partitioned by day and shop, with two rows in the partition of the first day."""
    first = [(1, "a", "x"), (2, "a", "x"), (3, "a", "y"), (4, "b", "x"), (5, "c", "y")]
    return warehouse.made("sales.days", DAYS, *first, partition_by=["day", "shop"])


def test_tables_that_are_made_as_delta(rows: Rows, warehouse: Warehouse) -> None:
    place = warehouse.folder / "t"
    rows(f"CREATE TABLE delta.`{place}` (id BIGINT, day STRING) USING delta PARTITIONED BY (day)")
    rows("CREATE TABLE sales.u (id BIGINT) USING DELTA")
    rows("CREATE TABLE sales.v USING delta AS SELECT 1L AS id, 'a' AS day")
    rows(f"INSERT INTO delta.`{place}` SELECT * FROM sales.v")
    assert rows(f"SELECT * FROM delta.`{place}`") == rows(f"SELECT * FROM sluice.`{place}`") == [(1, "a")]
    assert warehouse.held("sales.u") == []
    with pytest.raises(sluice.errors.TableExists, match="already exists"):
        rows("CREATE TABLE sales.u (id BIGINT) USING delta")
    with pytest.raises(sluice.errors.TableNotFound, match="cannot be found"):
        rows("REPLACE TABLE sales.w USING delta AS SELECT 1 AS id")


def test_a_location_as_a_string(rows: Rows, days: sluice.Table) -> None:
    place = days.location.removeprefix("file://")
    [(path, _)] = rows(f"OPTIMIZE '{place}' WHERE day = 'a'")
    assert path == days.location
    assert sorted(each[4] for each in rows(f"DESCRIBE HISTORY '{place}'")) == sorted(each.operation for each in days.history())
    assert [each[4] for each in rows(f"DESC HISTORY '{place}' LIMIT 1")] == [days.history(1)[0].operation]
    [detail] = rows(f"DESCRIBE DETAIL '{place}'")
    assert (detail[0], detail[4], detail[7]) == ("delta", days.location, ["day", "shop"])
    assert rows(f"VACUUM '{place}' RETAIN 168 HOURS") == [(days.location,)]
    with pytest.raises(sluice.errors.TableNotFound):
        rows(f"VACUUM '{place}/none'")


def test_partitions_that_are_dropped(rows: Rows, days: sluice.Table, warehouse: Warehouse) -> None:
    version = days.refresh().version
    for text, message in (
        ("ALTER TABLE sales.days DROP PARTITION (day = 'b'), PARTITION (day = 'z')", "no partition"),
        ("ALTER TABLE sales.days DROP PARTITION (day = 'b', shop = 'y')", "no partition"),
        ("ALTER TABLE sales.days DROP PARTITION (id = 1)", "no partition column"),
        ("ALTER TABLE sales.days DROP PARTITION (day)", "has no value"),
        ("ALTER TABLE sales.days DROP PARTITION (day = 'b') PURGE", "PURGE"),
    ):
        with pytest.raises((sluice.errors.InvalidRequest, sluice.errors.UnsupportedFeature), match=message):
            rows(text)
    assert days.refresh().version == version
    rows("ALTER TABLE sales.days DROP PARTITION (day = 'a', shop = 'x'), PARTITION (day = 'c')")
    assert [row[0] for row in warehouse.held("sales.days")] == [3, 4]
    assert days.refresh().version == version + 1, "one commit"
    rows("ALTER TABLE sales.days DROP IF EXISTS PARTITION (day = 'z'), PARTITION (day = 'b')")
    assert [row[0] for row in warehouse.held("sales.days")] == [3]


def test_databases(warehouse: Warehouse) -> None:
    """Made and dropped by both, each with its own tables in it."""
    warehouse.sql("CREATE DATABASE IF NOT EXISTS lake COMMENT 'c'")
    warehouse.sql("CREATE DATABASE IF NOT EXISTS lake")
    warehouse.sql("CREATE TABLE lake.ours (id BIGINT) USING delta")
    warehouse.sql("CREATE TABLE lake.theirs (id BIGINT) USING parquet")
    warehouse.sql("INSERT INTO lake.ours VALUES (1)")
    assert warehouse.held("lake.ours") == [(1,)]
    listed = warehouse.rows("SHOW TABLES IN lake")
    assert {row[1] for row in listed if row[0]} == {"ours", "theirs"}, "temporary views have no database"
    with pytest.raises(AnalysisException, match="lake"):
        warehouse.sql("DROP DATABASE lake")
    assert warehouse.held("lake.ours") == [(1,)], "nothing was dropped"
    warehouse.sql("DROP TABLE lake.theirs")
    with pytest.raises(sluice.errors.NamespaceNotEmpty):
        warehouse.sql("DROP DATABASE lake")
    assert warehouse.spark.catalog.databaseExists("lake"), "nothing was dropped"
    warehouse.sql("DROP DATABASE lake CASCADE")
    assert "lake" not in {each.name for each in warehouse.catalog.namespaces()}
    assert not warehouse.spark.catalog.databaseExists("lake")
    warehouse.sql("CREATE DATABASE parquet")  # no name for the coordinator
    warehouse.sql("DROP DATABASE parquet")


def test_a_database_whose_folder_has_tables_of_sluice(warehouse: Warehouse) -> None:
    """Spark deletes the folder, and UNDROP could not bring them back."""
    warehouse.sql(f"CREATE DATABASE lake LOCATION '{warehouse.folder}/lake'")
    warehouse.sql("CREATE TABLE lake.t (id BIGINT) USING delta")
    assert warehouse.catalog.locate("lake.t").startswith(f"file://{warehouse.folder}/lake/")
    for _ in ("a table", "a dropped table"):
        with pytest.raises(sluice.errors.InvalidRequest, match="would delete its folder"):
            warehouse.sql("DROP DATABASE lake CASCADE")
        warehouse.sql("DROP TABLE IF EXISTS lake.t")
    warehouse.sql("UNDROP TABLE lake.t")
    warehouse.sql("DROP TABLE lake.t")
    warehouse.catalog.vacuum(retain_hours=0)
    warehouse.sql("DROP DATABASE lake")


def test_a_database_without_a_root_has_its_tables_in_sparks_warehouse(spark: SparkSession, zookeeper_address: str) -> None:
    catalog = sluice.Catalog(zookeeper_address)
    sluice.sql(spark, "CREATE DATABASE lake", coordinator=zookeeper_address)
    try:
        assert catalog.namespace("lake").location == normalise(f"{spark.conf.get('spark.sql.warehouse.dir')}/lake")
    finally:
        sluice.sql(spark, "DROP DATABASE lake", coordinator=zookeeper_address)


@pytest.mark.costly
def test_reads_writes_and_streams_of_delta(warehouse: Warehouse) -> None:
    spark, place = warehouse.spark, f"{warehouse.folder}/t"
    told = {"coordinator": warehouse.coordinator}
    one = spark.range(1)
    one.write.format("delta").options(**told).save(place)
    one.write.save(place, "Delta", "append", **told)
    one.write.format("delta").options(**told).mode("append").saveAsTable(f"delta.`{place}`")
    one.writeTo(f"delta.`{place}`").options(**told).append()
    one.write.options(**told).insertInto(f"delta.`{place}`")
    stream = spark.readStream.format("delta").options(**told).load(place).writeStream.format("delta").options(**told)
    stream.option("checkpointLocation", f"{place}-checkpoint").trigger(availableNow=True).start(f"{place}-copy").awaitTermination()
    for path in (place, f"{place}-copy"):
        assert spark.read.format("delta").options(**told).load(path).count() == 5
        assert spark.read.format("delta").options(**told).schema("id long").load(path).count() == 5
        assert spark.read.options(**told).table(f"delta.`{path}`").count() == 5
    assert [each.operation for each in sluice.Table.open(place, coordinator=warehouse.coordinator).history()] == ["WRITE"] * 5


def test_the_first_save_is_a_write_and_a_statement_makes_a_table(warehouse: Warehouse) -> None:
    told = {"coordinator": warehouse.coordinator}
    one, folder = warehouse.spark.range(1), warehouse.folder
    one.write.format("sluice").options(**told).save(f"{folder}/saved")
    one.write.format("sluice").options(**told).saveAsTable("sales.saved")
    one.writeTo("sales.made").using("sluice").options(**told).create()
    warehouse.sql(f"CREATE TABLE sluice.`{folder}/selected` AS SELECT 1 AS id")
    operations = {
        name: sluice.Table.open(place, coordinator=warehouse.coordinator).history()[0].operation
        for name, place in {
            "save": f"{folder}/saved",
            "saveAsTable": warehouse.catalog.locate("sales.saved"),
            "create": warehouse.catalog.locate("sales.made"),
            "SELECT": f"{folder}/selected",
        }.items()
    }
    made = "CREATE TABLE AS SELECT"
    assert operations == {"save": "WRITE", "saveAsTable": made, "create": made, "SELECT": made}


def test_delta_is_delta_lake_where_the_session_has_it(spark: SparkSession) -> None:
    class Conf:
        def get(self, name: str, default: str = "") -> str:
            return {"spark.sql.extensions": "other.Extension,io.delta.sql.DeltaSparkSessionExtension"}.get(name, default)

    class Both:
        conf = Conf()

    both: Any = Both()
    assert (is_sluice("Delta", spark), is_sluice("Delta", both)) == (True, False)
    assert (is_sluice("Sluice", spark), is_sluice("Sluice", both)) == (True, True)


def test_key_words_of_deltas_messages(warehouse: Warehouse) -> None:
    spark, address = warehouse.spark, warehouse.coordinator
    DeltaTable.create(spark, coordinator=address).tableName("sales.t").addColumn("id", "int").execute()
    for name, builder in (("sales.t", DeltaTable.create), ("sales.none", DeltaTable.replace)):
        with pytest.raises(AnalysisException, match=r"already exists|cannot be found") as refused:
            builder(spark, coordinator=address).tableName(name).addColumn("id", "int").execute()
        assert name in str(refused.value)
    with pytest.raises(AnalysisException, match="cannot be found"):
        DeltaTable.replace(spark, coordinator=address).location(f"{warehouse.folder}/none").addColumn("id", "int").execute()
