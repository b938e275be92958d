"""Tables by name: saveAsTable, insertInto, writeTo, table.

`readStream` of a routed session.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.functions.partitioning import years
from pyspark.sql.readwriter import DataFrameWriter, DataFrameWriterV2

import sluice
from sluice.coordinator.service.connect import release
from tests.spark_integration.conftest import Place, is_native

pytestmark = pytest.mark.spark


@dataclass(frozen=True)
class Names:
    """A coordinator's names, and ways to them."""

    spark: SparkSession
    coordinator: str
    catalog: sluice.Catalog

    def frame(self, *values: tuple[Any, ...], columns: str = "k string, v long") -> DataFrame:
        return self.spark.createDataFrame(list(values), columns)

    def write(self, *values: tuple[Any, ...], columns: str = "k string, v long", **options: Any) -> DataFrameWriter:
        return self.frame(*values, columns=columns).write.format("sluice").options(coordinator=self.coordinator, **options)

    def write_to(self, name: str, *values: tuple[Any, ...], columns: str = "k string, v long") -> DataFrameWriterV2:
        return self.frame(*values, columns=columns).writeTo(name).using("sluice").option("coordinator", self.coordinator)

    def read(self, name: str, **options: Any) -> DataFrame:
        return self.spark.read.format("sluice").options(coordinator=self.coordinator, **options).table(name)

    def held(self, name: str) -> list[tuple[Any, ...]]:
        return sorted(tuple(row.values()) for row in self.catalog.open(name).snapshot().to_arrow().to_pylist())

    def of(self, name: str) -> sluice.Table:
        return self.catalog.open(name)


@contextmanager
def refused(condition: str) -> Iterator[None]:
    """The block raises Spark's error of this condition."""
    with pytest.raises(AnalysisException) as failed:
        yield
    assert failed.value.getCondition() == condition


@pytest.fixture
def names(spark: SparkSession, zookeeper_address: str, tmp_path: Path) -> Iterator[Names]:
    catalog = sluice.Catalog(zookeeper_address, root=tmp_path)
    catalog.create_namespace("sales")
    yield Names(spark, zookeeper_address, catalog)
    release(zookeeper_address)


@pytest.mark.costly
def test_save_as_table_in_every_mode(names: Names, tmp_path: Path) -> None:
    names.write(("a", 1), ("b", 2)).partitionBy("k").saveAsTable("sales.orders")
    described = names.catalog.describe("Sales.Orders")
    assert described.managed
    assert described.location.startswith(f"file://{tmp_path}/sales/")
    assert names.of("sales.orders").partition_columns == ("k",)
    with pytest.raises(AnalysisException, match=r"a table sales.ORDERS already") as failed:
        names.write(("c", 3)).saveAsTable("sales.ORDERS")
    assert failed.value.getCondition() == "TABLE_OR_VIEW_ALREADY_EXISTS"
    assert isinstance(failed.value, sluice.errors.TableExists)
    names.write(("c", 3)).mode("ignore").saveAsTable("sales.orders")
    assert names.held("sales.orders") == [("a", 1), ("b", 2)]
    names.frame(("c", 3)).write.saveAsTable("sales.orders", "sluice", "append", "k", coordinator=names.coordinator)
    assert names.held("sales.orders") == [("a", 1), ("b", 2), ("c", 3)]
    names.write(("d", 4)).mode("overwrite").saveAsTable("sales.orders")
    assert names.held("sales.orders") == [("d", 4)]
    read = names.read("sales.orders")
    assert is_native(read)
    assert read.collect() == [("d", 4)]
    assert names.read("sales.orders", versionAsOf=0).count() == 2


def test_a_table_at_a_place_of_its_own(names: Names, tmp_path: Path) -> None:
    place = str(tmp_path / "elsewhere")
    names.write(("a", 1), path=place).mode("append").saveAsTable("outside")
    described = names.catalog.describe("outside")
    assert (described.location, described.managed) == (f"file://{place}", False)
    with pytest.raises(AnalysisException, match="without the name another"):
        names.write(("a", 1), path=place).mode("append").saveAsTable("another")
    assert not names.catalog.exists("another")


@pytest.mark.costly
def test_a_name_may_be_a_path(names: Names, tmp_path: Path) -> None:
    path = f"{tmp_path}/by `path`"
    name = f"sluice.`{path.replace('`', '``')}`"
    for act in ("append", "replace"):
        with pytest.raises(AnalysisException, match="there is no table at") as failed:
            getattr(names.write_to(name, ("a", 1)), act)()
        assert failed.value.getCondition() == "PATH_NOT_FOUND"
    names.write_to(name, ("a", 1)).create()
    for make in (names.write_to(name, ("b", 2)).create, lambda: names.write(("b", 2)).saveAsTable(name)):
        with pytest.raises(sluice.errors.TableExists):
            make()
    names.write(("b", 2)).mode("append").saveAsTable(name)
    names.frame(("c", 3)).write.option("coordinator", names.coordinator).insertInto(name)
    names.frame(("d", 4)).writeTo(name).option("coordinator", names.coordinator).append()
    assert sorted(row["v"] for row in names.read(name).collect()) == [1, 2, 3, 4]
    assert names.spark.read.option("coordinator", names.coordinator).table(name).where("k = 'd'").count() == 1
    names.write_to(f"delta{name.removeprefix('sluice')}", ("e", 5)).createOrReplace()
    assert names.read(name).collect() == [("e", 5)]
    with pytest.raises(AnalysisException, match="different paths"):
        names.write(("a", 1), path=f"{tmp_path}/other").saveAsTable(f"sluice.`{tmp_path}/new`")
    assert names.catalog.tables() == []


def test_what_is_not_there(names: Names) -> None:
    with refused("TABLE_OR_VIEW_NOT_FOUND"):
        names.read("sales.nothing")
    with refused("SCHEMA_NOT_FOUND"):
        names.write_to("nowhere.nothing", ("a", 1)).append()
    for act in ("append", "replace", "overwritePartitions"):
        with refused("TABLE_OR_VIEW_NOT_FOUND"):
            getattr(names.write_to("sales.nothing", ("a", 1)), act)()
    with refused("SCHEMA_NOT_FOUND"):
        names.write(("a", 1)).saveAsTable("nowhere.orders")
    with pytest.raises(AnalysisException):
        names.write(("a", 1)).saveAsTable("a.b.c.d")


@pytest.mark.costly
def test_write_to_creates_and_replaces(names: Names) -> None:
    new = names.write_to("sales.orders", ("a", 1), ("b", 2)).partitionedBy("k")
    new.tableProperty("delta.appendOnly", "false").tableProperty("owner", "me").create()
    table = names.of("sales.orders")
    assert (table.partition_columns, table.properties["owner"], table.version) == (("k",), "me", 0)
    with refused("TABLE_OR_VIEW_ALREADY_EXISTS"):
        names.write_to("sales.orders", ("a", 1)).create()
    names.write_to("sales.orders", (1.5, "x"), columns="w double, p string").partitionedBy(F.col("p")).createOrReplace()
    table = names.of("sales.orders")
    assert (table.schema.names, table.partition_columns, table.version) == (["w", "p"], ("p",), 1)
    assert "owner" not in table.properties
    assert names.held("sales.orders") == [(1.5, "x")]
    names.write_to("sales.orders", ("c", 3)).replace()
    table = names.of("sales.orders")
    assert (table.schema.names, table.partition_columns) == (["k", "v"], ())
    assert names.held("sales.orders") == [("c", 3)]
    assert names.catalog.describe("sales.orders").location == table.location
    names.write_to("sales.new", ("c", 3)).createOrReplace()
    assert names.held("sales.new") == [("c", 3)]
    with pytest.raises(AnalysisException, match="partitioned by columns"):
        names.write_to("sales.years", ("c", 3)).partitionedBy(years("k")).create()
    with pytest.raises(AnalysisException, match="describe a new table"):
        names.write_to("sales.orders", ("c", 3)).tableProperty("owner", "me").append()
    with pytest.raises(AnalysisException, match="describe a new table"):
        names.write_to("sales.orders", ("c", 3)).clusterBy("k").append()
    names.write_to("sales.clustered", ("c", 3)).clusterBy("k", "v").create()
    assert names.of("sales.clustered").clustering_columns == ("k", "v")
    names.write_to("sales.clustered", ("c", 3)).clusterBy("v").createOrReplace()
    assert names.of("sales.clustered").clustering_columns == ("v",)
    names.write_to("sales.clustered", ("c", 3)).replace()
    assert names.of("sales.clustered").clustering_columns == ()


def test_write_to_appends_and_overwrites(names: Names) -> None:
    names.write_to("orders", ("a", 1), ("b", 2), ("it's", 3)).partitionedBy("k").create()
    names.write_to("orders", ("b", 20)).append()
    assert names.held("orders") == [("a", 1), ("b", 2), ("b", 20), ("it's", 3)]
    names.write_to("orders", ("b", 7)).overwrite((F.col("k") == "b") & (F.col("v") < 100))
    assert names.held("orders") == [("a", 1), ("b", 7), ("it's", 3)]
    names.write_to("orders", ("it's", 4)).overwrite(F.col("k") == "it's")
    with pytest.raises(sluice.errors.ConstraintViolated):
        names.write_to("orders", ("z", 7)).overwrite(F.col("k") == "b")
    with pytest.raises(AnalysisException, match="cannot evaluate"):
        names.write_to("orders", ("z", 7)).overwrite(F.upper("k") == "B")
    with pytest.raises(AnalysisException) as failed:
        names.write_to("orders", ("z", 7)).overwrite(F.col("day") == "B")
    assert str(failed.value.getCondition()).startswith("UNRESOLVED_COLUMN")
    names.write_to("orders", ("a", 10), ("n", 5)).overwritePartitions()
    assert names.held("orders") == [("a", 10), ("b", 7), ("it's", 4), ("n", 5)]
    names.write_to("whole", ("a", 1), ("b", 2)).create()
    names.write_to("whole", ("c", 3)).overwritePartitions()
    assert names.held("whole") == [("c", 3)]


def test_insert_into_goes_by_position(names: Names) -> None:
    names.write(("a", 1)).partitionBy("k").saveAsTable("sales.orders")
    names.write(("b", 2), columns="x string, y long").insertInto("sales.orders")
    assert names.held("sales.orders") == [("a", 1), ("b", 2)]
    names.write(("b", 2), columns="x string, y long").insertInto("sales.orders", overwrite=True)
    assert names.held("sales.orders") == [("b", 2)]
    for columns, condition in (("x string", "NOT_ENOUGH"), ("x string, y long, z long", "TOO_MANY")):
        row = ("b", 1, 1)[: columns.count(",") + 1]
        with refused(f"INSERT_COLUMN_ARITY_MISMATCH.{condition}_DATA_COLUMNS"):
            names.write(row, columns=columns).insertInto("sales.orders")


@pytest.mark.costly
def test_names_without_a_format_are_sparks_first(names: Names) -> None:
    names.write(("sluice", 1)).saveAsTable("both")
    names.write(("sluice", 1)).saveAsTable("only")
    spark = names.spark
    at = {"coordinator": names.coordinator}
    assert [row["k"] for row in spark.read.options(**at).table("only").collect()] == ["sluice"]
    names.frame(("more", 2)).write.options(**at).insertInto("only")
    names.frame(("more", 3)).writeTo("only").options(**at).append()
    assert len(names.held("only")) == 3
    names.frame(("spark", 1)).createOrReplaceTempView("both")
    try:
        assert [row["k"] for row in spark.read.options(**at).table("both").collect()] == ["spark"]
        assert [row["k"] for row in names.read("both").collect()] == ["sluice"]
    finally:
        spark.catalog.dropTempView("both")


def test_the_schema_is_overwritten_with_permission_only(names: Names) -> None:
    names.write(("a", 1)).partitionBy("k").saveAsTable("orders")
    writer = names.write((1, 2.5), columns="day int, w double").mode("overwrite")
    with pytest.raises(AnalysisException):
        writer.saveAsTable("orders")
    assert names.held("orders") == [("a", 1)]
    writer.option("overwriteSchema", True).option("userMetadata", "the new form").partitionBy("day").saveAsTable("orders")
    table = names.of("orders")
    assert (table.schema.names, table.partition_columns, names.held("orders")) == (["day", "w"], ("day",), [(1, 2.5)])
    assert table.history(1)[0].user_metadata == "the new form"
    with pytest.raises(AnalysisException, match=r"overwrite_schema|overwriteSchema"):
        writer.option("replaceWhere", "day = 1").saveAsTable("orders")


@pytest.mark.costly
def test_sparks_catalog_knows_the_names(names: Names, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLUICE_COORDINATOR", names.coordinator)
    names.write(("a", 1)).saveAsTable("sales.orders")
    names.write(("a", 1)).saveAsTable("orders_of_old")
    catalog, place = names.spark.catalog, names.catalog.locate("sales.orders")
    assert catalog.tableExists("Sales.Orders")
    with pytest.warns(FutureWarning, match="dbName"):  # PySpark deprecates it
        assert catalog.tableExists("orders", "sales")
    assert catalog.tableExists(f"sluice.`{place}`")
    assert not catalog.tableExists("sales.others")
    names.spark.range(1).createOrReplaceTempView("orders_of_spark")
    try:
        assert {"orders_of_old", "orders_of_spark"} <= {each.name for each in catalog.listTables()}
        assert [each.name for each in catalog.listTables(pattern="ORDERS_OF_O*|none")] == ["orders_of_old"]
        [ours] = [each for each in catalog.listTables("sales") if not each.isTemporary]
        assert (ours.name, ours.namespace, ours.tableType) == ("orders", ["sales"], "MANAGED")
        with pytest.raises(AnalysisException):
            catalog.listTables("nowhere")
    finally:
        names.spark.catalog.dropTempView("orders_of_spark")
    names.spark.range(1).write.format("sluice").mode("append").option("coordinator", names.coordinator).saveAsTable("sales.numbers")
    assert names.held("sales.numbers") == [(0,)]


ROWS = pa.table({"id": [1, 2], "k": ["a", "b"]})


@pytest.mark.costly
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
