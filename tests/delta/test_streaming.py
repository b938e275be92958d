"""`sluice.stream`: batches that merge into a table or change several, each once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame

import sluice

from ..spark_integration.conftest import Place
from ..spark_integration.streams.conftest import Feed, forget_last_commit, query_of

pytestmark = [pytest.mark.spark, pytest.mark.zookeeper]

ACCOUNTS = pa.schema([("id", pa.int64()), ("n", pa.int64()), ("k", pa.string())])
WIDE = "id long, n long, k string"


def keys(place: Place) -> dict[int, int]:
    rows = place.rows()
    assert len({row["id"] for row in rows}) == len(rows)
    return {row["id"]: row["n"] for row in rows}


def drained(writer: Any, feed: Feed) -> None:
    writer.option("checkpointLocation", str(feed.checkpoint)).trigger(availableNow=True).start().awaitTermination()


@pytest.mark.costly
def test_batches_are_merged_once(place: Place, feed: Feed) -> None:
    place.create(ACCOUNTS)
    stream = sluice.stream(feed.frame(WIDE), coordinator=place.coordinator)
    feed.put({"id": 1, "n": 1, "k": "a"}, {"id": 2, "n": 1, "k": "a"})
    feed.put({"id": 2, "n": 5, "k": "a"}, {"id": 3, "n": 1, "k": "a"})
    values = {"n": "target.n + source.n"}
    drained(stream.merge_into(place.location, "id", matched_update=values, matched_delete="source.k = 'gone'"), feed)
    assert keys(place) == {1: 1, 2: 6, 3: 1}
    version = place.table().version
    assert forget_last_commit(feed.checkpoint) == 1
    feed.put({"id": 1, "n": 0, "k": "gone"})
    drained(stream.merge_into(place.table(), "target.id = source.id", matched_update=values, matched_delete="source.k = 'gone'"), feed)
    assert keys(place) == {2: 6, 3: 1}
    assert place.table().version == version + 1
    assert place.table().snapshot().raw.app_transactions[query_of(feed.checkpoint)].version == 2
    assert {entry.operation for entry in place.table().history(3)} == {"MERGE"}


@pytest.mark.long
def test_the_newest_row_of_each_key_counts(place: Place, feed: Feed) -> None:
    place.create(ACCOUNTS)
    feed.put({"id": 1, "n": 1, "k": "a"}, {"id": 1, "n": 3, "k": "c"}, {"id": 1, "n": 2, "k": "b"}, {"id": 2, "k": "z"})
    stream = sluice.stream(feed.frame(WIDE), coordinator=place.coordinator)
    drained(stream.merge_into(place.location, ["id"], newest_by="n"), feed)
    assert keys(place) == {1: 3, 2: None}
    feed.put({"id": 1, "n": 9, "k": "x"}, {"id": 2, "n": 4, "k": "y"})
    clauses = stream.merge_into(
        place.location, "id", clauses=lambda built: built.whenMatchedUpdate("source.k = 'x'", set={"n": "source.n"})
    )
    drained(clauses, feed)
    assert keys(place) == {1: 9, 2: None}


@pytest.mark.long
def test_counts_are_kept_up_to_date(place: Place, feed: Feed) -> None:
    place.create(pa.schema([("k", pa.string()), ("count", pa.int64())]))
    for numbers in ((1, 2, 3), (4,)):
        feed.ids(*numbers)
        counts = feed.frame().groupBy("k").count()
        drained(sluice.stream(counts, coordinator=place.coordinator).merge_into(place.location, "k").outputMode("update"), feed)
    assert {row["k"]: row["count"] for row in place.rows()} == {"a": 2, "b": 2}


@pytest.mark.long
def test_a_batch_changes_several_tables_in_one_commit_once(place: Place, feed: Feed) -> None:
    events = place.create(pa.schema([("id", pa.int64()), ("k", pa.string())]))
    states = sluice.Table.create(f"{place.location}-2", pa.schema([("k", pa.string()), ("n", pa.int64())]), coordinator=place.coordinator)
    calls: list[int] = []

    def work(batch: DataFrame, t: sluice.JointTransaction) -> None:
        calls.append(batch.count())
        t[events].append(batch)
        counted = batch.groupBy("k").agg({"id": "count"}).toDF("k", "n")
        merge = t[states].alias("t").merge(counted.alias("s"), "t.k = s.k").whenMatchedUpdate(set={"n": "t.n + s.n"})
        merge.whenNotMatchedInsertAll().execute()
        if fails and len(calls) > 1:
            raise RuntimeError("the second batch fails")

    fails = True
    feed.ids(1, 2, 3)
    feed.ids(4, 5)
    stream = sluice.stream(feed.frame())
    with pytest.raises(Exception, match="the second batch fails"):
        drained(stream.for_each_batch(work, events, states), feed)
    assert len(events.refresh().snapshot().to_arrow()) == 3
    fails = False
    drained(stream.for_each_batch(work, events, states), feed)
    forget_last_commit(feed.checkpoint)
    drained(stream.for_each_batch(work, events, states), feed)
    assert sorted(events.refresh().snapshot().to_arrow()["id"].to_pylist()) == [1, 2, 3, 4, 5]
    assert {row["k"]: row["n"] for row in states.refresh().snapshot().to_arrow().to_pylist()} == {"a": 2, "b": 3}
    assert calls == [3, 2, 2]


def test_what_cannot_be_is_refused_at_once(place: Place, feed: Feed) -> None:
    stream = sluice.stream(feed.frame(), coordinator=place.coordinator)
    with pytest.raises(sluice.errors.TableNotFound):
        stream.merge_into(place.location, "id")
    place.create(ACCOUNTS)
    with pytest.raises(AnalysisException, match="checkpointLocation"):
        stream.merge_into(place.location, "id").start()
    changes = sluice.stream(
        feed.frame().selectExpr("*", "'insert' AS _change_type", "1L AS _commit_version"), coordinator=place.coordinator
    )
    into = place.location
    refused: list[tuple[str, Callable[[], Any]]] = [
        ("newest_by", lambda: stream.merge_into(into, "target.id = source.id", newest_by="id")),
        ("column of the stream", lambda: stream.merge_into(into, "id", newest_by="later")),
        ("the same _commit_version, so it does not say which", lambda: changes.merge_into(into, "id", newest_by="_commit_version")),
        ("columns of the stream", lambda: stream.merge_into(into, ["idd"])),
        ("columns of the stream", lambda: stream.merge_into(into, "idd")),
        ("does nothing", lambda: stream.merge_into(into, "id", matched_update=False, not_matched_insert=False)),
        ("named already", lambda: stream.merge_into(into, "id").format("parquet")),
        ("no table", lambda: stream.for_each_batch(lambda _batch, _t: None)),
        ("no stream", lambda: sluice.stream(place.spark.range(1), coordinator=place.coordinator).merge_into(into, "id")),
    ]
    for message, call in refused:
        with pytest.raises(sluice.errors.InvalidRequest, match=message) as error:
            call()
        assert isinstance(error.value, AnalysisException) == (message != "named already"), message
