"""Defaults and generated columns on Spark, in a session whose time zone is not UTC: what every way to write stores, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, timezone
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, DataFrameWriter, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import LongType, StringType, StructField

import sluice
from sluice.delta import DeltaTable
from sluice.spark_integration import original
from sluice.storage.errors import ConstraintViolated, SchemaMismatch, UnsupportedFeature

from .conftest import Place

pytestmark = pytest.mark.spark

BUCKET = "pmod(hash(id), 4)"
STATUS = StructField("status", StringType(), False, {"CURRENT_DEFAULT": "'new'", "comment": "what became of it"})
SEEN = StructField("seen", StringType(), True, {"CURRENT_DEFAULT": "CAST(TIMESTAMP'2024-05-01 23:00:00' AS STRING)"})


def created(place: Place, **options: Any) -> DeltaTable:
    """id, at, the day of at in UTC, a bucket that only Spark computes, two defaults."""
    builder = DeltaTable.createIfNotExists(place.spark, coordinator=place.coordinator).location(place.location)
    builder = builder.addColumn("id", LongType()).addColumn("at", "TIMESTAMP")
    builder = builder.addColumn("day", "DATE", generatedAlwaysAs="CAST(at AS DATE)")
    builder = builder.addColumn("bucket", "INT", generatedAlwaysAs=BUCKET).addColumns([STATUS, SEEN])
    for key, value in options.items():
        builder = builder.property(key, value)
    return builder.partitionedBy("day").execute()


def rows(spark: SparkSession, *days: int, **more: Any) -> DataFrame:
    """A row with an id for each day of May, an hour before it ends in UTC."""
    made = [(day, datetime(2024, 5, day, 23, tzinfo=timezone.utc)) for day in days]
    frame = spark.createDataFrame(made, "id long, at timestamp")
    return frame.select("*", *(F.lit(value).alias(name) for name, value in more.items()))


def held(place: Place) -> list[tuple[int, int | None, str]]:
    """(id, day of the month, status) of all rows, read without Spark; the bucket is Spark's and the other default is in UTC."""
    found = place.table().snapshot().to_arrow().sort_by("id").to_pylist()
    buckets = place.spark.createDataFrame([(each["id"],) for each in found], "id long").selectExpr("id", f"{BUCKET} AS b").collect()
    assert {each["id"]: each["bucket"] for each in found} == {row.id: row.b for row in buckets}
    assert {each["seen"] for each in found} <= {"2024-05-01 23:00:00", "never"}
    return [(each["id"], each["day"] and each["day"].day, each["status"]) for each in found]


@pytest.mark.costly
@pytest.mark.parametrize("vectors", ["true", pytest.param("false", marks=pytest.mark.long)])
def test_every_way_to_write_fills_columns_in(place: Place, vectors: str) -> None:
    table = created(place, **{"delta.enableDeletionVectors": vectors, "delta.enableChangeDataFeed": "true"})
    place.write(rows(place.spark, 1, 2))
    place.write(rows(place.spark, 3, status="old", DAY=date(2024, 5, 3)))
    assert held(place) == [(1, 1, "new"), (2, 2, "new"), (3, 3, "old")]
    table.update("id = 2", {"at": "TIMESTAMP'2024-05-09 12:00:00Z'", "status": "'moved'"})
    table.update("id = 3", {"status": "DEFAULT"})
    assert held(place) == [(1, 1, "new"), (2, 9, "moved"), (3, 3, "new")]
    source = (
        rows(place.spark, 1, 2, 4)
        .withColumn("at", F.expr("at + INTERVAL 1 DAY"))
        .withColumn("day", F.expr("date_add(DATE'2024-05-01', int(id))"))
    )
    merge = table.alias("t").merge(source.alias("s"), "t.id = s.id")
    merge = merge.whenMatchedUpdate("s.id = 1", {"at": "s.at", "day": "s.day"}).whenMatchedUpdate(set={"at": "s.at", "status": "DEFAULT"})
    merge.whenNotMatchedInsert(values={"id": "s.id", "at": "s.at"}).execute()
    assert held(place) == [(1, 2, "new"), (2, 3, "new"), (3, 3, "new"), (4, 5, "new")]
    whole = rows(place.spark, 4, 5, status="all", seen="never")
    table.alias("t").merge(whole.alias("s"), "t.id = s.id").whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
    assert held(place)[3:] == [(4, 4, "all"), (5, 5, "all")]
    changes = place.table().changes(1).to_pylist()
    moved = [each["day"].day for each in changes if each["id"] == 2 and each["_change_type"] == "update_postimage"]
    assert sorted(moved) == [3, 9]
    place.write(rows(place.spark, 6), "overwrite", partitionOverwriteMode="dynamic")
    with sluice.transaction(place.spark, place.table()) as joint:
        joint[place.table()].append(rows(place.spark, 7))
    assert [day for _, day, _ in held(place)] == [2, 3, 3, 4, 5, 6, 7]


def test_wrong_values_are_refused_before_anything_is_written(place: Place) -> None:
    table = created(place)
    place.write(rows(place.spark, 1))
    version = place.table().version
    wrong = rows(place.spark, 2, day=date(2024, 5, 9))
    mine, theirs = table.alias("t"), wrong.alias("s")
    seen = r"generated column day \(`day` <=> \(CAST\(at AS DATE\)\)\): .*2024-05-09.*leave the column out, and it is computed"
    writes: list[Callable[[], Any]] = [
        lambda: place.write(wrong),
        lambda: table.update(set={"day": "DATE'2024-05-09'"}),
        lambda: mine.merge(theirs, "t.id = s.id").whenNotMatchedInsert(values={"id": "s.id", "at": "s.at", "day": "s.day"}).execute(),
    ]
    for write in writes:
        with pytest.raises(ConstraintViolated, match=seen):
            write()
    with pytest.raises(SchemaMismatch, match="no column 'status'"):
        mine.merge(theirs, "t.id = s.id").whenMatchedUpdateAll().execute()
    assert place.table().version == version


@pytest.mark.costly
def test_tasks_of_the_plain_data_source_evaluate_what_python_can(place: Place) -> None:
    created(place)
    plain = DataFrameWriter(rows(place.spark, 1)).format("sluice").mode("append").options(**place.options)
    with pytest.raises(PySparkException) as failed:
        plain.save(place.location)
    refused = original(failed.value)
    assert isinstance(refused, UnsupportedFeature)
    assert "pmod" in refused.message
    assert "sluice.configure" in refused.message
    day = pa.field("day", pa.date32(), metadata={"delta.generationExpression": "CAST(at AS DATE)"})
    table = place.table()
    table.replace(pa.schema([pa.field("id", pa.int64()), pa.field("at", pa.timestamp("us", "UTC")), day]))
    plain.save(place.location)
    assert place.table().snapshot().to_arrow(["day"]).to_pylist() == [{"day": date(2024, 5, 1)}]


def test_spark_checks_definitions(spark: SparkSession) -> None:
    spark.udf.register("mine", lambda x: x, "int")
    cases = [
        ("INT", "nosuch(id)", AnalysisException, "nosuch"),
        ("BIGINT", BUCKET, AnalysisException, "is bigint, and pmod.* is int: write CAST"),
        ("INT", "mine(1)", AnalysisException, "mine.*a function of this session"),
        ("INT", "CAST(shuffle(array(id))[0] AS INT)", AnalysisException, "changes"),
        ("DATE", "CAST(day AS DATE)", AnalysisException, "refers to day, which is generated itself"),
    ]
    for kind, text, error, why in cases:
        builder = DeltaTable.create(spark).location("/tmp/nowhere").addColumn("id", "INT").addColumn("day", kind, generatedAlwaysAs=text)
        with pytest.raises(error, match=why):
            builder.execute()
