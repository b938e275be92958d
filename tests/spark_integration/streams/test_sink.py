"""Streams into a table by sessions of `sluice.configure`: every batch is one commit, once, by one run of the query at a time."""

from __future__ import annotations

import shutil
import threading
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, StreamingQueryException

import sluice
from sluice.spark_integration.data_source import write_plan
from sluice.spark_integration.session import saving
from sluice.tables.maintain.background import FILES_MIN
from sluice.tables.write.terms import mark_of, marked

from ..conftest import Place, configured
from .conftest import Feed, forget_last_commit, ids, query_of

pytestmark = [pytest.mark.spark, pytest.mark.zookeeper]


@pytest.mark.costly
def test_each_batch_is_a_commit_under_the_querys_id(place: Place, feed: Feed) -> None:
    feed.ids(1, 2)
    feed.ids(3)
    feed.drain(place, partitionBy="k", userMetadata="from a stream", maxRecordsPerFile=1)
    table = place.table()
    assert ids(place) == [1, 2, 3]
    assert table.partition_columns == ("k",)
    assert table.version == 2  # the first one made it
    known = table.snapshot().raw.app_transactions[query_of(feed.checkpoint)]
    assert known.version == 1
    assert [entry.user_metadata for entry in table.history()] == ["from a stream"] * 3
    assert table.history(None)[-1].operation == "CREATE TABLE"  # a stream makes its table before its first batch
    feed.ids(4)
    feed.drain(place)
    assert ids(place) == [1, 2, 3, 4]
    assert place.table().version == 3


def test_a_new_table_is_clustered_and_may_be_clustered_otherwise_between_batches(place: Place, feed: Feed) -> None:
    told = {"coordinator": place.coordinator, "checkpointLocation": str(feed.checkpoint)}
    for number in (1, 2):
        feed.ids(number)
        writer = feed.frame().writeStream.clusterBy("k", "id").trigger(availableNow=True)
        query = writer.start(place.location, "sluice", "append", queryName="q", **told)
        assert query.name == "q"
        query.awaitTermination()
        assert place.table().clustering_columns == (("k", "id") if number == 1 else ("id",))
        place.table().cluster_by("id")
    assert ids(place) == [1, 2]


@pytest.mark.costly
def test_complete_mode_replaces_the_table(place: Place, feed: Feed) -> None:
    feed.ids(1, 2, 3)
    feed.drain(place, mode="complete", partitionBy="k")
    feed.ids(4)
    feed.drain(place, mode="complete")
    assert {row["k"]: row["count"] for row in place.rows()} == {"a": 2, "b": 2}
    forget_last_commit(feed.checkpoint)
    feed.drain(place, mode="complete")
    assert place.table().version == 2
    feed.ids(5)
    few = feed.frame().groupBy("k").count().where("count < 3")
    with configured(place.spark, {"spark.sql.sources.partitionOverwriteMode": "dynamic"}):
        feed.drain(place, mode="complete", frame=few)  # the repeated batch has brought its counts along
    assert {row["k"]: row["count"] for row in place.rows()} == {"a": 2}, "also partitions without a row are replaced"


def test_a_batch_that_is_there_is_not_written_again(place: Place, feed: Feed) -> None:
    feed.ids(1)
    feed.ids(2)
    feed.drain(place)
    version = place.table().version
    assert forget_last_commit(feed.checkpoint) == 1
    feed.drain(place)
    assert ids(place) == [1, 2]
    assert place.table().version == version
    feed.ids(3)
    feed.drain(place)
    assert ids(place) == [1, 2, 3]


@pytest.mark.long
def test_several_queries_write_one_table(place: Place, feed: Feed) -> None:
    feed.ids(1, 2)
    feed.ids(3)
    queries = [feed.write(place, checkpoint=feed.checkpoint.with_name(f"checkpoint-{number}")) for number in range(3)]
    for query in queries:
        query.awaitTermination()
    assert ids(place) == sorted([1, 2, 3] * 3)


@pytest.mark.costly
@pytest.mark.shows("stream-checkpoint-twice")
@pytest.mark.parametrize("first", ["the original", pytest.param("the copy", marks=pytest.mark.long)])
def test_of_two_runs_with_one_checkpoint_the_second_is_refused(place: Place, feed: Feed, first: str) -> None:
    feed.ids(1)
    feed.drain(place)
    runs = [feed.checkpoint, feed.copy_of_checkpoint("copied")]
    winner, loser = runs if first == "the original" else reversed(runs)
    feed.ids(2)
    feed.drain(place, checkpoint=winner)
    feed.ids(3)
    query = feed.write(place, checkpoint=loser)
    with pytest.raises(sluice.errors.ConcurrentTransactionException, match="other rows as batch 1") as refused:
        query.awaitTermination()
    assert isinstance(refused.value, StreamingQueryException)
    assert refused.value.facts["batch"] == 1
    assert isinstance(query.exception(), sluice.errors.ConcurrentTransactionException)
    with pytest.raises(sluice.errors.ConcurrentTransactionException):  # started again, it repeats its batch
        feed.drain(place, checkpoint=loser)
    feed.drain(place, checkpoint=winner)
    assert ids(place) == [1, 2, 3]


@pytest.mark.costly
def test_another_run_commits_between_the_look_and_the_commit(place: Place, feed: Feed, monkeypatch: pytest.MonkeyPatch) -> None:
    feed.ids(1)
    feed.drain(place)
    batch = query_of(feed.checkpoint), 1
    feed.ids(2)
    real = write_plan.commit

    def commit(*arguments: Any) -> None:
        with marked(batch, mark_of(1, b"other offsets")):
            place.table().append(pa.table({"id": [3], "k": ["b"]}), transaction=batch)
        real(*arguments)

    monkeypatch.setattr(saving, "commit", commit)
    with pytest.raises(sluice.errors.ConcurrentTransactionException, match="other rows as batch 1"):
        feed.drain(place)
    monkeypatch.undo()
    with pytest.raises(sluice.errors.ConcurrentTransactionException, match="other rows as batch 1"):
        feed.drain(place)
    assert ids(place) == [1, 3]


@pytest.mark.costly
def test_a_copied_checkpoint_that_fell_behind_is_refused(place: Place, feed: Feed) -> None:
    feed.ids(1)
    feed.drain(place)
    copied = feed.copy_of_checkpoint("copied")
    feed.ids(2)
    feed.ids(3)
    feed.drain(place)
    feed.ids(4)
    with pytest.raises(sluice.errors.ConcurrentTransactionException, match="has batch 2"):
        feed.drain(place, checkpoint=copied)
    feed.drain(place)
    assert ids(place) == [1, 2, 3, 4]


@pytest.mark.costly
@pytest.mark.shows("stream-target-dropped")
def test_a_table_that_was_dropped_is_not_made_again_by_a_running_query(place: Place, feed: Feed) -> None:
    feed.ids(1)
    query = feed.write(place, trigger={"processingTime": "0 seconds"})
    query.processAllAvailable()
    place.table().drop()
    feed.ids(2)
    with pytest.raises(sluice.errors.TableNotFound, match="was there when this query started"):
        query.processAllAvailable()
    with pytest.raises(sluice.errors.TableNotFound, match="wrote its batches up to 0 into a table"):
        feed.write(place)
    with pytest.raises(sluice.errors.TableNotFound):
        place.table()
    place.create(pa.schema([("id", pa.int64()), ("k", pa.string())]))
    feed.drain(place)
    assert ids(place) == [2]


@pytest.mark.costly
def test_new_columns_need_merge_schema(place: Place, feed: Feed) -> None:
    feed.ids(1)
    feed.drain(place)
    feed.put({"id": 2, "k": "b", "n": 5})
    wide = "id long, k string, n int"
    with pytest.raises(sluice.errors.SchemaMismatch, match="mergeSchema"):
        feed.drain(place, schema=wide)
    feed.drain(place, schema=wide, mergeSchema=True)
    assert [(row["id"], row["n"]) for row in place.rows()] == [(1, None), (2, 5)]


@pytest.mark.costly
def test_small_files_are_merged_beside_the_stream(place: Place, feed: Feed) -> None:
    feed.ids(*range(FILES_MIN))
    feed.drain(place, maxRecordsPerFile=1, properties='{"delta.autoOptimize.autoCompact": "true"}')
    rows = FILES_MIN
    while True:
        for thread in [each for each in threading.enumerate() if each.name == "sluice-auto-compaction"]:
            thread.join()
        if "OPTIMIZE" in [entry.operation for entry in place.table().history(None)]:
            break
        assert rows < FILES_MIN + 5, "nobody merged the small files"
        feed.ids(rows)  # the coordinator may have been too slow for a compaction, which the next batch begins again
        feed.drain(place)
        rows += 1
    assert ids(place) == list(range(rows))
    assert place.table().snapshot().raw.num_files < 5


def test_a_batch_leaves_one_file_in_each_partition_where_writes_are_optimised(place: Place, feed: Feed) -> None:
    feed.ids(*range(20))
    writer = feed.frame().repartition(4).writeStream.format("sluice").partitionBy("k").trigger(availableNow=True)
    told = {"coordinator": place.coordinator, "checkpointLocation": str(feed.checkpoint)}
    writer.options(properties='{"delta.autoOptimize.optimizeWrite": "true"}', **told).start(place.location).awaitTermination()
    assert ids(place) == list(range(20))
    assert sorted(str(each.partition_values["k"]) for each in place.table().snapshot().raw.add_files()) == ["a", "b"]


def test_names_of_the_catalog(place: Place, feed: Feed, tmp_path: Any) -> None:
    catalog = sluice.Catalog(place.coordinator, root=str(tmp_path / "root"))
    catalog.create_namespace("sales")
    for number in (1, 2):
        feed.ids(number)
        writer = feed.frame().writeStream.trigger(availableNow=True).partitionBy("K")
        writer = writer.options(coordinator=place.coordinator, checkpointLocation=str(feed.checkpoint))
        writer.toTable("sales.orders", format="sluice").awaitTermination()
    feed.ids(3)
    writer = feed.frame().writeStream.trigger(availableNow=True)  # a name that is known needs no format
    writer.options(coordinator=place.coordinator, checkpointLocation=str(feed.checkpoint)).toTable("sales.orders").awaitTermination()
    table = sluice.Table.open(catalog.locate("sales.orders"), coordinator=place.coordinator)
    assert sorted(table.snapshot().to_arrow()["id"].to_pylist()) == [1, 2, 3]
    assert table.partition_columns == ("k",)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"outputMode": "update"}, "merge_into.*foreachBatch"),
        ({"checkpointLocation": None}, "checkpointLocation"),
        ({"txnAppId": "mine"}, "their own numbers"),
        ({"mergeSchema": "perhaps"}, "mergeSchema"),
        ({"replaceWhere": "id = 1"}, "replaceWhere was given for a stream"),
        ({"noSuchOption": 1}, "noSuchOption"),
    ],
)
def test_what_a_stream_cannot_have_is_refused_at_its_start(place: Place, feed: Feed, change: dict[str, Any], match: str) -> None:
    told = {"checkpointLocation": str(feed.checkpoint), "coordinator": place.coordinator} | change
    output = told.pop("outputMode", "append")
    writer = feed.frame().writeStream.format("sluice").outputMode(output).options(**told)
    with pytest.raises(AnalysisException, match=match):
        writer.start(place.location)
    assert place.spark.streams.active == []


def test_other_sinks_are_pysparks_own(place: Place, feed: Feed) -> None:
    feed.ids(1, 2)
    target, checkpoint = feed.folder.with_name("files"), str(feed.checkpoint)
    writer = feed.frame().writeStream.partitionBy("k").format("parquet").trigger(availableNow=True)
    writer.option("checkpointLocation", checkpoint).start(str(target)).awaitTermination()
    assert sorted(each.name for each in target.iterdir() if each.is_dir() and "=" in each.name) == ["k=a", "k=b"]
    shutil.rmtree(checkpoint)
    feed.frame().writeStream.format("memory").queryName("kept").trigger(availableNow=True).start().awaitTermination()
    assert place.spark.table("kept").count() == 2
