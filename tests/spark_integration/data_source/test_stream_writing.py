"""Streams through the data source, as any session writes them: what sessions of `sluice.configure` do, done by Python tasks."""

from __future__ import annotations

from typing import Any

import pytest

import sluice

from ..conftest import Place, refused
from ..streams.conftest import Feed, forget_last_commit, ids, query_of

pytestmark = [pytest.mark.spark, pytest.mark.zookeeper]


def routed(place: Place, feed: Feed, **named: Any) -> None:
    place.spark.conf.set("spark.sluice.routing", "true")
    feed.drain(place, **named)
    place.spark.conf.set("spark.sluice.routing", "false")


@pytest.mark.costly
def test_a_checkpoint_goes_from_one_way_to_the_other(place: Place, feed: Feed) -> None:
    feed.ids(1, 2)
    feed.drain(place, partitionBy="k")
    version = place.table().version
    for write in (routed, lambda place, feed: feed.drain(place)):
        forget_last_commit(feed.checkpoint)
        write(place, feed)
        assert place.table().version == version
        feed.ids(3)
        write(place, feed)
        version += 1
        assert place.table().version == version
    assert ids(place) == [1, 2, 3, 3]
    known = place.table().snapshot().raw.app_transactions
    assert known[query_of(feed.checkpoint)].version == 2


@pytest.mark.long
def test_complete_mode(place: Place, feed: Feed) -> None:
    feed.ids(1, 2, 3)
    feed.drain(place, mode="complete")
    feed.ids(4)
    feed.drain(place, mode="complete")
    assert {row["k"]: row["count"] for row in place.rows()} == {"a": 2, "b": 2}


@pytest.mark.costly
def test_other_rows_under_the_same_number_are_refused(place: Place, feed: Feed) -> None:
    feed.ids(1)
    feed.drain(place)
    copied = feed.copy_of_checkpoint("copied")
    feed.ids(2)
    routed(place, feed)
    feed.ids(3)
    assert isinstance(refused(lambda: feed.drain(place, checkpoint=copied)), sluice.errors.ConcurrentTransactionException)
    assert ids(place) == [1, 2]


@pytest.mark.costly
def test_errors_name_the_option(place: Place, feed: Feed) -> None:
    feed.ids(1)
    feed.drain(place)
    feed.put({"id": 2, "k": "b", "n": 5})
    found = refused(lambda: feed.drain(place, schema="id long, k string, n int"))
    assert isinstance(found, sluice.errors.SchemaMismatch)
    assert "mergeSchema" in found.message
    feed.drain(place, schema="id long, k string, n int", mergeSchema=True)
    assert [(row["id"], row["n"]) for row in place.rows()] == [(1, None), (2, 5)]
