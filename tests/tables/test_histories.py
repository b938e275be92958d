"""Histories of random transactions are serializable as far as the table's level says, with deletion vectors and without."""

from __future__ import annotations

import pytest

import sluice
from sluice.coordinator.limits import Limits

from .conftest import Place
from .histories import SCHEMA, History, race, run, settings, state_of

LEVELS = ("Serializable", "WriteSerializable", "SnapshotIsolation")


def history(place: Place, seed: int, level: str, *, vectors: bool, partitioned: bool) -> History:
    sluice.Table.create(
        place.location,
        SCHEMA,
        partition_by=["k"] if partitioned else [],
        properties=settings(level, vectors),
        coordinator=place.coordinator,
    )
    return run(seed, place.open, level)


@pytest.mark.parametrize("partitioned", [False, True], ids=["unpartitioned", "partitioned"])
@pytest.mark.parametrize("vectors", [False, True], ids=["copies", "vectors"])
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("seed", range(4))
def test_a_history_is_what_its_level_says(place: Place, seed: int, level: str, vectors: bool, partitioned: bool) -> None:
    done = history(place, seed, level, vectors=vectors, partitioned=partitioned)
    assert done.committed > 0


@pytest.mark.parametrize("feed", [False, True], ids=["derived", "feed"])
@pytest.mark.parametrize("vectors", [False, True], ids=["copies", "vectors"])
@pytest.mark.parametrize("level", LEVELS[:2])
@pytest.mark.parametrize("limits", [Limits(), Limits(fast_path=False)], ids=["direct", "queue"])
def test_several_threads_at_once(place: Place, level: str, vectors: bool, feed: bool, limits: Limits) -> None:
    properties = settings(level, vectors, **{"delta.enableChangeDataFeed": str(feed).lower()})
    sluice.Table.create(place.location, SCHEMA, properties=properties, coordinator=place.coordinator)
    done = race(11, lambda: place.open(limits=limits), level)
    assert done.committed


@pytest.mark.parametrize("seed", range(100, 104))
def test_vectors_make_no_difference_to_the_rows(place: Place, seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    """What a history with deletion vectors committed leaves the same rows when it is done again, one by one, without them."""
    done = history(place, seed, "Serializable", vectors=True, partitioned=False)
    plain = sluice.Table.create(
        str(tmp_path_factory.mktemp("plain") / "t"), SCHEMA, properties=settings("Serializable", False), coordinator=place.coordinator
    )
    first = done.tables[0].snapshot(version=1).to_arrow()
    plain.append(first)
    for made in done.kept:
        with plain.refresh().begin() as again:
            for operation in made.operations:
                operation.do(again)
    assert state_of(plain.snapshot().to_arrow()) == state_of(done.tables[0].snapshot().to_arrow())


@pytest.mark.long
@pytest.mark.parametrize("partitioned", [False, True], ids=["unpartitioned", "partitioned"])
@pytest.mark.parametrize("vectors", [False, True], ids=["copies", "vectors"])
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("seed", range(1000, 1050))
def test_many_histories(place: Place, seed: int, level: str, vectors: bool, partitioned: bool) -> None:
    assert history(place, seed, level, vectors=vectors, partitioned=partitioned).committed > 0


@pytest.mark.long
@pytest.mark.parametrize("vectors", [False, True], ids=["copies", "vectors"])
@pytest.mark.parametrize("level", LEVELS[:2])
@pytest.mark.parametrize("seed", range(2000, 2025))
def test_many_races(place: Place, seed: int, level: str, vectors: bool) -> None:
    sluice.Table.create(place.location, SCHEMA, properties=settings(level, vectors), coordinator=place.coordinator)
    assert race(seed, lambda: place.open(limits=Limits(fast_path=False)), level, writers=6, rounds=12).committed
