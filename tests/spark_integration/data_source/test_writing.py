"""Append and overwrite through Spark, with everything that can be said to them."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

import sluice
from sluice.spark_integration import original, use_session
from sluice.spark_integration.data_source.writer import SluiceWriter
from sluice.spark_integration.options import WriteOptions

from ..conftest import Place

pytestmark = pytest.mark.spark


def numbers(place: Place, *values: tuple[Any, ...], columns: str = "k string, v long") -> DataFrame:
    return place.spark.createDataFrame(list(values), columns)


def held(place: Place) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in place.rows()), key=repr)


def refused(place: Place, frame: DataFrame, mode: str = "append", **options: Any) -> sluice.errors.SluiceError:
    """The error a write ends with, as sluice raised it; Spark's own text must show it too."""
    with pytest.raises(PySparkException) as failed:
        place.write(frame, mode, **options)
    error = original(failed.value)
    assert error is not None
    assert type(error).__name__ in str(failed.value)
    assert error.message in str(failed.value)
    return error


def test_the_first_write_creates_the_table_with_its_rows(place: Place) -> None:
    place.write(numbers(place, ("a", 1), ("b", 2)), partitionBy="k", properties='{"delta.appendOnly": "true"}', application="first job")
    table = place.table()
    assert table.version == 0
    assert table.partition_columns == ("k",)
    assert table.properties["delta.appendOnly"] == "true"
    assert held(place) == [("a", 1), ("b", 2)]
    [entry] = table.history()
    assert (entry.operation, entry.application) == ("WRITE", "first job")
    # saying again what is so is no mistake: a job that runs daily says it each day
    place.write(numbers(place, ("c", 3)), partitionBy="k", properties='{"delta.appendOnly": "true"}')
    assert held(place) == [("a", 1), ("b", 2), ("c", 3)]
    assert "partitioned by k" in refused(place, numbers(place, ("c", 3)), partitionBy="v").message
    assert "delta.appendOnly" in refused(place, numbers(place, ("c", 3)), properties='{"delta.appendOnly": "false"}').message
    assert "append-only" in refused(place, numbers(place, ("c", 3)), "overwrite").message


@pytest.mark.costly
def test_overwriting(place: Place) -> None:
    place.write(numbers(place, ("a", 1), ("b", 2), ("c", 3)), "overwrite", partitionBy="k")
    place.write(numbers(place, ("b", 20), ("b", 21)), "overwrite", replaceWhere="k = 'b'")
    assert held(place) == [("a", 1), ("b", 20), ("b", 21), ("c", 3)]
    error = refused(place, numbers(place, ("b", 1), ("z", 2)), "overwrite", replaceWhere="k = 'b'")
    assert isinstance(error, sluice.errors.ConstraintViolated)
    place.write(numbers(place, ("a", 10), ("d", 4)), "overwrite", partitionOverwriteMode="dynamic")
    assert held(place) == [("a", 10), ("b", 20), ("b", 21), ("c", 3), ("d", 4)]
    place.write(numbers(place, ("x", 0)), "overwrite")
    assert held(place) == [("x", 0)]
    assert place.table().version == 3


@pytest.mark.costly
def test_an_overwrite_keeps_what_came_after_the_version_it_was_made_on(place: Place) -> None:
    place.write(numbers(place, ("a", 1), ("b", 2)), partitionBy="k")
    table = place.table()
    doubled = place.load(versionAsOf=0).where("k = 'a'").withColumn("v", F.col("v") * 2)
    table.append(pa.table({"k": ["b"], "v": pa.array([3], pa.int64())}))
    place.write(doubled, "overwrite", replaceWhere="k = 'a'", readVersion=0)
    assert held(place) == [("a", 2), ("b", 2), ("b", 3)]
    table.append(pa.table({"k": ["a"], "v": pa.array([4], pa.int64())}))
    error = refused(place, doubled, "overwrite", replaceWhere="k = 'a'", readVersion=0)
    assert isinstance(error, sluice.errors.ConcurrentModification)
    assert error.retryable
    assert held(place) == [("a", 2), ("a", 4), ("b", 2), ("b", 3)], "a commit that fails leaves nothing"


@pytest.mark.costly
def test_a_lost_overwrite_is_told_before_its_rows_are_written(place: Place) -> None:
    place.write(numbers(place, ("a", 1), ("b", 2)), partitionBy="k")
    place.table().delete("k = 'a'")
    ran = place.spark.sparkContext.accumulator(0)

    def told(rows: Iterable[Any]) -> Iterator[Any]:
        for row in rows:
            ran.add(1)
            yield row

    made = numbers(place, ("a", 10), ("a", 11))
    watched = place.spark.createDataFrame(made.rdd.mapPartitions(told), made.schema)
    before = sorted(Path(place.location).rglob("*.parquet"))
    error = refused(place, watched, "overwrite", replaceWhere="k = 'a'", readVersion=0)
    assert isinstance(error, sluice.errors.ConcurrentDeleteReadException)
    assert ran.value == 0
    assert sorted(Path(place.location).rglob("*.parquet")) == before
    # the other partition is as it was
    place.write(numbers(place, ("b", 20)), "overwrite", replaceWhere="k = 'b'", readVersion=0)
    assert held(place) == [("b", 20)]


def test_a_write_may_be_stricter_than_its_table(place: Place) -> None:
    place.write(numbers(place, ("a", 1), ("b", 2)), partitionBy="k")
    table = place.table()
    table.append(pa.table({"k": ["a"], "v": pa.array([3], pa.int64())}))
    doubled = numbers(place, ("a", 2))
    error = refused(place, doubled, "overwrite", replaceWhere="k = 'a'", readVersion=0, isolation="Serializable")
    assert isinstance(error, sluice.errors.ConcurrentAppendException)
    assert "weaker" in refused(place, doubled, isolation="SnapshotIsolation").message
    assert "isolation" in refused(place, doubled, isolation="strict").message
    place.write(doubled, "overwrite", replaceWhere="k = 'a'", readVersion=0)
    assert held(place) == [("a", 2), ("a", 3), ("b", 2)]


def test_columns_are_checked_before_anything_is_written(place: Place) -> None:
    place.create(pa.schema([pa.field("k", pa.string(), nullable=False), pa.field("v", pa.int64())]))
    for columns, named in {"k string, v string": "v", "v string": "k", "k string, v long, w long": "w"}.items():
        rows = [("1",) * len(columns.split(","))] if "long" not in columns else [("1", 1, 1)]
        error = refused(place, numbers(place, *rows, columns=columns))
        assert isinstance(error, sluice.errors.SchemaMismatch)
        assert repr(named) in error.message
        assert "merge_schema" not in error.message
    error = refused(place, numbers(place, (None, 1)))
    assert isinstance(error, sluice.errors.SchemaMismatch)
    assert "'k'" in error.message
    assert isinstance(refused(place, place.spark.sql("SELECT '1' AS k, INTERVAL 1 DAY AS v")), sluice.errors.UnsupportedFeature)
    assert held(place) == []
    assert place.table().version == 0
    # a narrower type and another spelling fit
    place.write(place.spark.sql("SELECT CAST(7 AS SMALLINT) AS V, 'x' AS K"))
    assert held(place) == [("x", 7)]


def test_nullable_columns_that_the_data_lacks_are_null(place: Place) -> None:
    place.create(
        pa.schema(
            [pa.field("k", pa.string(), nullable=False), ("v", pa.int64()), ("s", pa.struct([("x", pa.int64()), ("y", pa.string())]))]
        )
    )
    place.write(place.spark.sql("SELECT 'a' AS k"))
    place.write(place.spark.sql("SELECT named_struct('y', 'b') AS s, 'c' AS K"))
    rows = [{"k": "a", "v": None, "s": None}, {"k": "c", "v": None, "s": {"x": None, "y": "b"}}]
    assert place.rows() == rows
    table = place.table()
    with sluice.transaction() as begun:
        begun.part(table).append(place.spark.sql("SELECT 'd' AS k"))
    assert len(place.rows()) == 3
    error = refused(place, place.spark.sql("SELECT 1L AS v"))
    assert isinstance(error, sluice.errors.SchemaMismatch)
    assert "'k' is NOT NULL" in error.message


def test_merge_schema_adds_columns(place: Place) -> None:
    place.write(numbers(place, ("a", 1)))
    place.write(numbers(place, ("b", 2, 2.5), columns="k string, v long, w double"), mergeSchema="true")
    assert held(place) == [("a", 1, None), ("b", 2, 2.5)]
    place.write(numbers(place, (3,), columns="v long"), mergeSchema="true")
    assert held(place) == [("a", 1, None), ("b", 2, 2.5), (None, 3, None)]
    assert sorted(map(tuple, place.scan().collect()), key=repr) == held(place)
    assert isinstance(
        refused(place, numbers(place, ("b", "x"), columns="k string, v string"), mergeSchema="true"), sluice.errors.SchemaMismatch
    )


def test_a_transaction_or_a_key_is_written_once_also_where_it_creates_the_table(place: Place) -> None:
    for version in (1, 1, 2, 1):
        place.write(numbers(place, ("a", version)), idempotencyKey=f"nightly-2026-01-0{version}")
    for version in (3, 3, 4, 3):
        place.write(numbers(place, ("a", version)), txnAppId="app", txnVersion=version)
    assert held(place) == [("a", 1), ("a", 2), ("a", 3), ("a", 4)]
    assert place.table().version == 3
    place.write(numbers(place, ("b", 3)), mode="overwrite", idempotencyKey="nightly-2026-01-02")
    assert place.table().version == 3


def planned(place: Place) -> SluiceWriter:
    options = WriteOptions.parse({"path": place.location, "coordinator": place.coordinator}, overwrite=False)
    return SluiceWriter(options, numbers(place).schema)


def batches(k: str, v: int) -> Iterator[pa.RecordBatch]:
    return iter([pa.record_batch([pa.array([k]), pa.array([v], pa.int64())], names=["k", "v"])])


def test_a_second_creator_at_the_same_time_appends(place: Place) -> None:
    for number, writer in enumerate([planned(place) for _ in range(3)]):
        writer.commit([writer.write(batches("a", number))])
    assert held(place) == [("a", 0), ("a", 1), ("a", 2)]
    assert [entry.operation for entry in place.table().history()] == ["WRITE", "WRITE", "WRITE"]


@pytest.mark.costly
def test_a_creator_with_another_schema_is_told(place: Place) -> None:
    writer = planned(place)
    place.write(numbers(place, (1.5,), columns="w double"))
    with pytest.raises(sluice.errors.SchemaMismatch, match="created by another writer"):
        writer.commit([writer.write(batches("a", 1))])
    assert held(place) == [(1.5,)]


def test_committing_twice_commits_once(place: Place) -> None:
    place.write(numbers(place, ("a", 1)))
    writer = planned(place)
    messages = [writer.write(batches("b", 2)), None]
    writer.commit(messages)
    writer.commit(messages)
    writer.abort(messages)
    assert held(place) == [("a", 1), ("b", 2)]


@pytest.mark.costly
def test_sql_writes_through_a_view(place: Place) -> None:
    place.write(numbers(place, ("a", 1)))
    spark = place.spark
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW flights USING sluice OPTIONS (path '{place.location}', coordinator '{place.coordinator}')")
    spark.sql("INSERT INTO flights SELECT 'b', 2")
    assert sorted(map(tuple, spark.sql("SELECT * FROM flights").collect())) == [("a", 1), ("b", 2)]


def test_a_thread_of_its_own_needs_the_session(place: Place) -> None:
    failures: list[BaseException] = []

    def work() -> None:
        try:
            use_session(place.spark)
            place.write(numbers(place, ("a", 1)))
        except BaseException as error:  # noqa: BLE001 -- told to the test below
            failures.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert failures == []
    assert held(place) == [("a", 1)]


def test_options_spark_passes_on_are_checked(place: Place) -> None:
    error = refused(place, numbers(place, ("a", 1)), mergeSchemas="true")
    assert isinstance(error, sluice.errors.InvalidRequest)
    assert "mergeschemas" in error.message.lower()
    assert isinstance(refused(place, numbers(place, ("a", 1)), partitionBy="nix"), sluice.errors.InvalidRequest)


@pytest.mark.costly
def test_spark_writes_the_checkpoint_that_is_due(place: Place) -> None:
    """Also where a client that never lives to write one, such as a job that is killed, commits each multiple of the interval."""
    others = place.create(pa.schema([("k", pa.string()), ("v", pa.int64())]), properties={"delta.checkpointInterval": "2"})
    others._checkpointer.committed = lambda *_: None  # type: ignore[method-assign]
    for n in range(3):
        place.write(numbers(place, ("a", n)))
        others.append(pa.table({"k": ["b"], "v": [n]}))
    names = [each.name for each in (Path(place.location) / "_delta_log").glob("*.checkpoint.parquet")]
    edges = [0, *sorted(int(name.split(".")[0]) for name in names), 6]
    assert max(high - low for low, high in itertools.pairwise(edges)) <= 4


def test_an_append_that_was_computed_from_the_table_depends_on_what_it_read(place: Place) -> None:
    place.write(numbers(place, ("a", 1), ("b", 2)))
    place.table().delete("k = 'a'")
    error = refused(place, numbers(place, ("sum", 3)), "append", readVersion=0)
    assert isinstance(error, sluice.errors.ConcurrentModification)
    error = refused(place, numbers(place, ("sum", 1)), "append", readVersion=0, readWhere="k = 'a'")
    assert isinstance(error, sluice.errors.ConcurrentModification)
    place.write(numbers(place, ("sum", 3)), "append", readVersion=1)
    place.write(numbers(place, ("blind", 3)), "append")


@pytest.mark.costly
def test_an_append_whose_source_is_unknown_is_not_blind(place: Place) -> None:
    """PySpark shows a data source the rows alone: they may have been read from the table itself."""
    place.write(numbers(place, ("a", 1), ("b", 2)))
    place.write(numbers(place, ("c", 3)))
    assert place.table().history(limit=1)[0].is_blind_append is False
    stale = place.table().begin(isolation="WriteSerializable")
    stale.delete("v < 9")
    place.write(place.load())
    assert place.table().history(limit=1)[0].is_blind_append is False
    with pytest.raises(sluice.errors.ConcurrentAppendException):
        stale.commit()
