"""A session of `sluice.configure` sends sluice's tables to sluice; everything else, and every other session, is PySpark's own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.classic import dataframe
from pyspark.sql.readwriter import DataFrameReader, DataFrameWriter

import sluice
from sluice.spark_integration.session.routing import ROUTING, Builder, Session, is_routed

from ..conftest import Place, is_native

pytestmark = pytest.mark.spark


@contextmanager
def switched_off(spark: SparkSession) -> Iterator[None]:
    spark.conf.set(ROUTING, "false")
    try:
        yield
    finally:
        spark.conf.set(ROUTING, "true")


def save(frame: DataFrame, place: Place, mode: str = "error", location: str | None = None) -> None:
    frame.write.format("sluice").option("coordinator", place.coordinator).mode(mode).save(location or place.location)


@pytest.mark.costly
def test_reads_use_sparks_own_scan(place: Place) -> None:
    save(place.spark.range(10), place)
    frame = place.load()
    assert is_native(frame)
    assert frame.count() == 10
    save(place.spark.range(5), place, "append")
    assert frame.count() == 10, "it keeps its version"
    assert place.load().count() == 15
    assert place.load(versionAsOf=0).count() == 10
    assert place.load(where="id < 3").count() == 6
    assert is_native(place.load(consistency="published"))
    assert is_native(place.load(schema="id long"))
    # changes are for the data source
    assert place.load(readChangeFeed="true", startingVersion=1).count() == 5
    reader = place.spark.read.format("sluice").option("coordinator", place.coordinator)
    assert reader.load([place.location]).count() == 15
    for told, error, options in (
        ("latest version is 1", sluice.errors.VersionNotFound, {"readChangeFeed": "true", "startingVersion": 9}),
        ("'idd' of the given schema is not in", sluice.errors.SchemaMismatch, {"schema": "idd long"}),
    ):
        with pytest.raises(AnalysisException, match=told) as refused:
            place.load(**options)
        assert isinstance(refused.value, error)
        assert "Traceback" not in str(refused.value)
    with pytest.raises(AnalysisException, match="several paths"):
        reader.load([place.location, place.location])
    with pytest.raises(AnalysisException) as failed:
        reader.load(place.location + "-none")
    assert isinstance(failed.value, sluice.errors.TableNotFound)
    with pytest.raises(AnalysisException, match="unknown option"):
        reader.option("versionasoff", 1).load(place.location)


@pytest.mark.costly
def test_every_dataframe_of_the_session_is_routed(place: Place) -> None:
    one = place.spark.range(4).withColumn("p", F.col("id") % 2)
    made = [
        one.join(one, "id").select("id"),
        one.groupBy("p").agg(F.sum("id").alias("id")).select("id"),
        place.spark.sql("SELECT id FROM range(3)"),
        place.spark.createDataFrame([(1,)], "id long"),
        one.select("id").union(one.select("id")).cache(),
    ]
    for number, frame in enumerate(made):
        save(frame, place, location=f"{place.location}-{number}")
        assert (
            sluice.Table.open(f"{place.location}-{number}", coordinator=place.coordinator).snapshot().to_arrow().num_rows == frame.count()
        )


def test_sessions_made_from_it_are_routed(place: Place) -> None:
    with switched_off(place.spark):
        assert not is_routed(place.spark.newSession())
    other = place.spark.newSession()
    assert isinstance(other, Session)
    save(other.range(3), place)
    assert is_native(other.read.format("sluice").option("coordinator", place.coordinator).load(place.location))
    sluice.use_session(place.spark)


@pytest.mark.costly
def test_a_batch_of_a_stream_is_written_in_any_mode(place: Place, tmp_path: Path) -> None:
    source = tmp_path / "source"
    place.spark.range(3).write.parquet(str(source))

    def write(batch: DataFrame, number: int) -> None:
        save(batch, place, "error" if number == 0 else "append")
        kept = batch.sparkSession.read.format("sluice").option("coordinator", place.coordinator).load(place.location)
        seen.append((is_native(kept), kept.count()))

    seen: list[tuple[bool, int]] = []

    stream = place.spark.readStream.schema("id long").parquet(str(source)).writeStream.foreachBatch(write)
    for _ in range(2):
        query = stream.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
        query.awaitTermination()
        place.spark.range(3, 5).write.mode("append").parquet(str(source))
    assert sorted(row["id"] for row in place.rows()) == [0, 1, 2, 3, 4]
    assert seen == [(True, 3), (True, 5)]


@pytest.mark.costly
def test_other_formats_go_pysparks_own_way(place: Place, tmp_path: Path) -> None:
    spark = place.spark

    def observed(folder: Path) -> list[Any]:
        """What the session does with formats that are not sluice's."""
        frame = spark.createDataFrame([(1, "a"), (2, "b")], "id long, k string")
        seen: list[Any] = []
        frame.write.partitionBy("k").parquet(str(folder / "p"))
        frame.write.mode("append").format("parquet").partitionBy("k").save(str(folder / "p"))
        seen += [sorted(each.name for each in (folder / "p").iterdir() if each.is_dir()), spark.read.parquet(str(folder / "p")).count()]
        frame.write.option("header", True).csv(str(folder / "c"))
        seen += [spark.read.option("header", True).csv(str(folder / "c")).columns, spark.read.csv(str(folder / "c")).count()]
        frame.write.mode("ignore").json(str(folder / "c"))
        seen.append(sorted(each.suffix for each in (folder / "c").glob("part*")))
        frame.write.format("json").save(str(folder / "j"))
        seen.append(spark.read.schema("id long").load(str(folder / "j"), format="json").orderBy("id").collect())
        for failing in (
            lambda: frame.write.parquet(str(folder / "p")),
            lambda: frame.write.format("nothing").save(str(folder / "n")),
            lambda: frame.write.mode("replace"),
            lambda: frame.write.bucketBy(2, "id").parquet(str(folder / "b")),
            frame.write.save,
            lambda: spark.read.format("nothing").load("x"),
            lambda: spark.read.load(str(folder / "none")),
            lambda: spark.table("no_such_table"),
            lambda: frame.write.insertInto("no_such_table"),
        ):
            with pytest.raises((PySparkException, Py4JJavaError)) as failed:
                failing()
            seen.append((type(failed.value), failed.value.getCondition() if isinstance(failed.value, PySparkException) else ""))
        frame.createOrReplaceTempView("a_view")
        seen += [spark.table("a_view").count(), spark.read.table("a_view").schema]
        table = f"a_table_{folder.name}"
        frame.write.format("parquet").option("path", str(folder / "t")).saveAsTable(table)
        frame.write.insertInto(table)
        frame.writeTo(table)  # the object alone
        seen += [spark.table(table).count(), spark.sql(f"SELECT max(id) FROM {table}").collect()]
        spark.sql(f"DROP TABLE {table}")
        frame.write.format("noop").mode("overwrite").save()
        return seen

    routed = observed(tmp_path / "routed")
    with switched_off(spark):
        assert type(spark.range(1).write) is DataFrameWriter
        assert type(spark.read) is DataFrameReader
        assert observed(tmp_path / "plain") == routed


@pytest.mark.costly
def test_the_setting_switches_routing_off(place: Place) -> None:
    frame = place.spark.range(3)
    with switched_off(place.spark):
        with pytest.raises(AnalysisException, match="SAVE_MODE"):
            save(frame, place)
        save(frame, place, "append")
        assert not is_native(place.load())
    save(frame, place, "ignore")
    assert is_native(place.load())


def test_a_session_that_sluice_did_not_make_has_pysparks_own_objects(spark: SparkSession) -> None:
    jvm_session: Any = spark._jsparkSession
    plain = SparkSession(spark.sparkContext, jvm_session.newSession())
    plain.conf.set(ROUTING, "false")
    assert type(plain) is SparkSession
    assert not is_routed(plain)
    assert type(plain.read) is DataFrameReader
    assert type(plain.range(1).write) is DataFrameWriter
    assert type(plain.range(1).select("id").write) is DataFrameWriter


def test_everything_is_taken_back(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sluice.spark_session.start_embedded", lambda _: None)
    spark = place.spark
    assert type(spark) is Session
    assert dataframe.DataFrame.write.fget.__module__.startswith("sluice.")  # type: ignore[attr-defined]
    try:
        sluice.unroute(spark)
        assert type(spark) is SparkSession
        assert dataframe.DataFrame.write.fget.__module__ == dataframe.__name__  # type: ignore[attr-defined]
        assert type(spark.range(1).write) is DataFrameWriter
        assert dataframe.DataFrame.sparkSession.fget.__module__ == dataframe.__name__  # type: ignore[attr-defined]
        sluice.unroute()  # once more does no harm
    finally:
        again = sluice.configure(SparkSession.builder).getOrCreate()
    assert again is spark
    assert type(spark) is Session
    assert isinstance(spark, SparkSession)
    save(spark.range(2), place)


def test_routing_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sluice.spark_session.start_embedded", lambda _: None)
    builder = SparkSession.Builder()
    assert type(sluice.configure(builder, routing=False)) is SparkSession.Builder
    assert ROUTING not in builder._options
    assert type(sluice.configure(builder)) is Builder
