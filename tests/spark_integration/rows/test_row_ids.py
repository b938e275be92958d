"""Rows keep their ids when Spark's tasks change them, and Spark reads the ids."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

import sluice
from sluice.spark_integration.rows.analysis import Clause, MergeRequest
from sluice.spark_integration.rows.merge import merge_rows
from sluice.storage.errors import InvalidRequest, SchemaMismatch

from ..conftest import Place
from .test_changes import of_every_kind, set_size

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("k", pa.int64()), ("p", pa.int64()), ("v", pa.int64())])
Ids = dict[int, tuple[int, int]]


def version_of(transaction: sluice.Transaction) -> int:
    commit = transaction.commit()
    assert commit is not None
    return commit.version


def made(place: Place, vectors: str = "true", changes: str = "false") -> sluice.Table:
    """Forty rows, of which some have carried their ids to other files before."""
    properties = {"delta.enableRowTracking": "true", "delta.enableDeletionVectors": vectors, "delta.enableChangeDataFeed": changes}
    table = place.create(SCHEMA, partition_by=["p"], properties=properties)
    for start in (0, 20):
        keys = range(start, start + 20)
        table.append(pa.table({"k": keys, "p": [k % 2 for k in keys], "v": [0] * 20}, schema=SCHEMA))
    table.update({"v": "v - 1"}, "k % 10 = 0")
    table.delete("k = 39")
    return table


def ids_of(table: sluice.Table) -> Ids:
    found = table.refresh().snapshot().to_arrow(["k"], row_ids=True).to_pylist()
    assert len({row["_row_id"] for row in found}) == len(found), "an id was given twice"
    info = table.snapshot().raw.commit_info
    assert info is not None
    assert info.fields["tags"] == {"delta.rowTracking.preserved": "true"}
    return {row["k"]: (row["_row_id"], row["_row_commit_version"]) for row in found}


def kept(before: Ids, after: Ids, changed: set[int], version: int) -> None:
    """Rows that both have keep their ids; `changed` ones have the version, and so do new ones, whose ids nobody had."""
    for key, (row_id, at) in after.items():
        if key in before:
            assert (row_id, at) == (before[key][0], version if key in changed else before[key][1]), f"row {key}"
        else:
            assert at == version
            assert row_id > max(each for each, _ in before.values())


@pytest.mark.costly
@of_every_kind(("disk", "false", "true"))
def test_updated_and_deleted_rows(spark: SparkSession, place: Place, vectors: str, changes: str) -> None:
    table = made(place, vectors, changes)
    before = ids_of(table)
    with table.begin() as tx:
        merge_rows(tx, spark, MergeRequest.update({"v": "v + 1", "p": "1 - p"}, "k % 5 = 0"))
    after = ids_of(table)
    kept(before, after, set(range(0, 40, 5)), version_of(tx))
    assert after.keys() == before.keys()
    with table.begin() as tx:
        merge_rows(tx, spark, MergeRequest.delete("k % 3 = 1"))
        merge_rows(tx, spark, MergeRequest.update({"v": "7"}, "k < 10"))
        merge_rows(tx, spark, MergeRequest.update({"v": "8"}, "k < 5"))
    last = ids_of(table)
    kept(after, last, set(range(10)), version_of(tx))
    assert last.keys() == {k for k in after if k % 3 != 1}


@pytest.mark.costly
@of_every_kind(("s3", "true", "true"))
def test_merged_rows(spark: SparkSession, place: Place, vectors: str, changes: str, monkeypatch: pytest.MonkeyPatch) -> None:
    set_size(monkeypatch, small=vectors == "true")  # a large source is joined in another way
    table = made(place, vectors, changes)
    before = ids_of(table)
    source = spark.range(30, 50).select(F.col("id").alias("k"), (F.col("id") % 2).alias("p"), F.lit(5).cast("long").alias("v"))
    clauses = [
        Clause("matched", "delete", "s.k % 4 = 1"),
        Clause("matched", "update_all"),
        Clause("not_matched", "insert_all"),
        Clause("not_matched_by_source", "update", "t.k < 3", {"v": "t.v + 100"}),
        Clause("not_matched_by_source", "delete", "t.k % 7 = 0"),
    ]
    with table.begin() as tx:
        merge_rows(tx, spark, MergeRequest(source, "t.k = s.k", clauses, "t", "s"))
    after = ids_of(table)
    updated = {k for k in range(30, 39) if k % 4 != 1} | {0, 1, 2}
    kept(before, after, updated, version_of(tx))
    gone = {33, 37, *(k for k in range(3, 30) if k % 7 == 0)}
    assert after.keys() == (before.keys() - gone) | set(range(39, 50))


@pytest.mark.costly
def test_spark_reads_ids_and_does_not_show_their_columns(spark: SparkSession, place: Place) -> None:
    table = made(place)
    with table.begin() as tx:
        merge_rows(tx, spark, MergeRequest.update({"v": "v + 1"}, "k % 5 = 0"))
    frame = sluice.read(spark, table.location, coordinator=place.coordinator, columns=["k"], where="k < 25", row_ids=True)
    assert frame.columns == ["k", "_row_id", "_row_commit_version"]
    assert {row[0]: (row[1], row[2]) for row in frame.collect()} == {k: row for k, row in ids_of(table).items() if k < 25}
    assert sluice.read(spark, table.location, coordinator=place.coordinator).columns == SCHEMA.names
    assert place.load().columns == SCHEMA.names
    assert place.load().count() == 39
    nothing = sluice.read(spark, table.location, coordinator=place.coordinator, where="k > 1000", row_ids=True)
    assert nothing.columns == [*SCHEMA.names, "_row_id", "_row_commit_version"]
    plain = sluice.Table.create(place.location + "-plain", SCHEMA, coordinator=place.coordinator)
    with pytest.raises(InvalidRequest, match="keep no ids"):
        sluice.read(spark, plain.location, coordinator=place.coordinator, row_ids=True)


def test_a_merge_adds_no_column_of_that_name(spark: SparkSession, place: Place) -> None:
    table = made(place)
    name = table.properties["delta.rowTracking.materializedRowIdColumnName"]
    source = spark.range(3).select(F.col("id").alias("k"), F.lit(0).cast("long").alias("p"), F.lit(5).cast("long").alias(name))
    before = table.version
    clauses = [Clause("matched", "update_all")]
    begun = table.begin()
    with pytest.raises(SchemaMismatch, match="reserved for the rows' ids"):
        merge_rows(begun, spark, MergeRequest(source, "t.k = s.k", clauses, "t", "s", schema_evolution=True))
    begun.abort()
    assert table.refresh().version == before
