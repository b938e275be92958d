"""Every way to write by path in a session of `sluice.configure`: modes, partitioning, options, and what is refused."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.readwriter import DataFrameWriter

import sluice

from ..conftest import Place

pytestmark = pytest.mark.spark


def numbers(place: Place, *values: tuple[Any, ...], columns: str = "k string, v long") -> DataFrame:
    return place.spark.createDataFrame(list(values), columns)


def writer(place: Place, *values: tuple[Any, ...], **options: Any) -> DataFrameWriter:
    return numbers(place, *values).write.format("sluice").options(coordinator=place.coordinator, **options)


def held(place: Place) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in place.rows()), key=repr)


def test_the_default_mode_creates_a_table_and_refuses_another(place: Place) -> None:
    writer(place, ("a", 1), ("b", 2)).partitionBy("K").save(place.location)
    assert held(place) == [("a", 1), ("b", 2)]
    assert place.table().partition_columns == ("k",), "as the data spell it"
    files = sorted(Path(place.location).rglob("*.parquet"))
    for mode in (None, "error", "errorifexists", "ErrorIfExists"):
        with pytest.raises(AnalysisException, match="a table already exists") as failed:
            writer(place, ("c", 3)).mode(mode).save(place.location)
        assert isinstance(failed.value, sluice.errors.TableExists)
        assert failed.value.getCondition() == "PATH_ALREADY_EXISTS"
    assert sorted(Path(place.location).rglob("*.parquet")) == files, "nothing was written"


def test_ignore_writes_a_new_table_only(place: Place) -> None:
    for value in (1, 2):
        writer(place, ("a", value)).mode("ignore").save(place.location)
        assert held(place) == [("a", 1)]
    assert place.table().version == 0


def test_append_and_overwrite_with_arguments_of_save(place: Place) -> None:
    for mode in ("append", "overwrite", "append"):
        numbers(place, ("a", 1)).write.save(place.location, "sluice", mode, "k", coordinator=place.coordinator, txnAppId=None)
    assert held(place) == [("a", 1), ("a", 1)]
    assert [entry.operation for entry in place.table().history()] == ["WRITE", "WRITE", "WRITE"]
    numbers(place, ("b", 2)).write.format("SLUICE").option("path", place.location).option("coordinator", place.coordinator).mode(
        "append"
    ).save()
    assert held(place) == [("a", 1), ("a", 1), ("b", 2)]


def test_overwriting_by_condition_and_by_partition(place: Place) -> None:
    writer(place, ("a", 1), ("b", 2), ("c", 3)).partitionBy("k").save(place.location)
    writer(place, ("b", 20), replaceWhere="k = 'b'").mode("overwrite").save(place.location)
    assert held(place) == [("a", 1), ("b", 20), ("c", 3)]
    with pytest.raises(sluice.errors.ConstraintViolated, match="do not satisfy") as failed:
        writer(place, ("z", 2), replaceWhere="k = 'b'").mode("overwrite").save(place.location)
    assert isinstance(failed.value, PySparkException)
    writer(place, ("a", 10), partitionOverwriteMode="dynamic").mode("overwrite").save(place.location)
    assert held(place) == [("a", 10), ("b", 20), ("c", 3)]
    # the session's own setting counts where no option says otherwise
    place.spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    try:
        writer(place, ("a", 11)).mode("overwrite").save(place.location)
        assert held(place) == [("a", 11), ("b", 20), ("c", 3)]
        writer(place, ("a", 12), partitionOverwriteMode="static").mode("overwrite").save(place.location)
        assert held(place) == [("a", 12)]
    finally:
        place.spark.conf.unset("spark.sql.sources.partitionOverwriteMode")


def test_a_schema_evolves_with_permission_only(place: Place) -> None:
    writer(place, ("a", 1)).save(place.location)
    wider = numbers(place, ("b", 2, 3), columns="k string, v long, w long")
    with pytest.raises(AnalysisException, match="mergeSchema") as failed:
        wider.write.format("sluice").option("coordinator", place.coordinator).mode("append").save(place.location)
    assert isinstance(failed.value, sluice.errors.SchemaMismatch)
    assert len(list(Path(place.location).rglob("*.parquet"))) == 1
    wider.write.format("sluice").option("coordinator", place.coordinator).option("mergeSchema", True).mode("append").save(place.location)
    assert held(place) == [("a", 1, None), ("b", 2, 3)]


def test_what_cannot_be_is_refused_before_rows_are_written(place: Place) -> None:
    with pytest.raises(AnalysisException, match="'day', which the data lack") as failed:
        writer(place, ("a", 1)).partitionBy("day").save(place.location)
    assert failed.value.getCondition() == "PARTITION_COLUMN_NOT_FOUND_IN_SCHEMA"
    with pytest.raises(AnalysisException, match="bucketBy was called"):
        writer(place, ("a", 1)).bucketBy(2, "k").save(place.location)
    with pytest.raises(AnalysisException, match="column 'day' is not in the table"):
        writer(place, ("a", 1)).clusterBy("day").save(place.location)
    with pytest.raises(AnalysisException, match="give one of them"):
        writer(place, ("a", 1), partitionBy="v").partitionBy("k").save(place.location)
    with pytest.raises(AnalysisException, match="unknown option 'mergeSchemas'"):
        writer(place, ("a", 1), mergeSchemas="true").save(place.location)
    with pytest.raises(AnalysisException, match="no path"):
        writer(place, ("a", 1)).save()
    with pytest.raises(Exception, match="INVALID_SAVE_MODE"):
        writer(place, ("a", 1)).mode("replace").save(place.location)
    assert not Path(place.location).exists()
    writer(place, ("a", 1)).partitionBy("k").save(place.location)
    with pytest.raises(AnalysisException, match="is partitioned by k"):
        writer(place, ("a", 1)).partitionBy("v").mode("append").save(place.location)
    with pytest.raises(AnalysisException, match="'v'"):
        numbers(place, ("a", "x"), columns="k string, v string").write.format("sluice").options(coordinator=place.coordinator).mode(
            "append"
        ).save(place.location)
    assert held(place) == [("a", 1)]


def test_a_table_is_clustered_by_columns_that_later_writes_repeat(place: Place) -> None:
    writer(place, ("a", 1)).clusterBy("k").save(place.location)
    with pytest.raises(AnalysisException, match=r"clusterBy is 'v', but .* is clustered by k"):
        writer(place, ("b", 1)).clusterBy("v").mode("append").save(place.location)
    writer(place, ("b", 1)).clusterBy("K").mode("append").save(place.location)
    writer(place, ("c", 1), overwriteSchema="true").clusterBy("v").mode("overwrite").save(place.location)
    assert place.table().clustering_columns == ("v",)


def test_files_have_at_most_so_many_rows(place: Place) -> None:
    rows = place.spark.range(0, 100, numPartitions=1).selectExpr("id % 2 AS p", "id")
    rows.write.format("sluice").options(coordinator=place.coordinator, maxRecordsPerFile=20).partitionBy("p").save(place.location)
    counts = [pq.read_metadata(path).num_rows for path in Path(place.location).rglob("*.parquet")]
    assert sorted(counts) == [10, 10, 20, 20, 20, 20]
    place.spark.conf.set("spark.sql.files.maxRecordsPerFile", "50")
    try:
        rows.write.format("sluice").options(coordinator=place.coordinator).mode("overwrite").save(place.location)
        assert place.table().snapshot().files().num_rows == 2
        rows.write.format("sluice").options(coordinator=place.coordinator, maxRecordsPerFile=25).mode("overwrite").save(place.location)
        assert place.table().snapshot().files().num_rows == 4
    finally:
        place.spark.conf.unset("spark.sql.files.maxRecordsPerFile")


def test_a_write_happens_once(place: Place) -> None:
    for mode in ("error", "error", "append", "overwrite"):
        writer(place, ("a", 1), txnAppId="job", txnVersion=7).mode(mode).save(place.location)
    assert place.table().version == 0
    writer(place, ("a", 1), txnAppId="job", txnVersion=8).mode("append").save(place.location)
    writer(place, ("a", 1), idempotencyKey="monday").mode("append").save(place.location)
    writer(place, ("a", 1), idempotencyKey="monday").mode("append").save(place.location)
    assert len(held(place)) == 3


def test_who_creates_at_once_is_one(place: Place) -> None:
    created: list[int] = []
    refused: list[BaseException] = []

    def create(number: int) -> None:
        try:
            writer(place, ("a", number)).save(place.location)
            created.append(number)
        except sluice.errors.TableExists as error:
            refused.append(error)

    threads = [threading.Thread(target=create, args=(number,)) for number in range(3)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(created) == 1
    assert len(refused) == 2
    assert held(place) == [("a", created[0])]


def test_a_conflict_is_raised_as_what_it_is(place: Place) -> None:
    writer(place, ("a", 1), ("b", 2)).partitionBy("k").save(place.location)
    table = place.table()
    table.append(pa.table({"k": ["a"], "v": pa.array([4], pa.int64())}))
    with pytest.raises(sluice.errors.ConcurrentAppendException) as failed:
        writer(place, ("a", 2), replaceWhere="k = 'a'", readVersion=0, isolation="Serializable").mode("overwrite").save(place.location)
    assert isinstance(failed.value, PySparkException)
    assert failed.value.retryable
    assert failed.value.details, "facts, not only text"


def test_a_table_is_overwritten_by_what_was_read_from_it(place: Place) -> None:
    writer(place, ("a", 1), ("b", 2)).save(place.location)
    doubled = place.load().selectExpr("k", "v * 2 AS v")
    doubled.write.format("sluice").options(coordinator=place.coordinator).mode("overwrite").save(place.location)
    assert held(place) == [("a", 2), ("b", 4)]
