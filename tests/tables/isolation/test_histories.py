"""Histories of random transactions are serializable as far as the table's level says, with deletion vectors and without.

Bank transfers: threads move money between accounts whose rows are in one file. Nothing is lost, and few transfers conflict.
"""

from __future__ import annotations

import itertools
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pytest

import sluice
from sluice.coordinator.limits import Limits
from tests.tables.conftest import Place
from tests.tables.elsewhere import Writer
from tests.tables.isolation.histories import SCHEMA, History, race, run, settings, state_of

LEVELS = ("Serializable", "WriteSerializable", "SnapshotIsolation")


def create(place: Place, level: str, *, vectors: bool, partitioned: bool = False, feed: bool = False) -> None:
    properties = settings(level, vectors, **{"delta.enableChangeDataFeed": str(feed).lower()})
    partition_by = ["k"] if partitioned else []
    sluice.Table.create(place.location, SCHEMA, partition_by=partition_by, properties=properties, coordinator=place.coordinator)


def history(place: Place, seed: int, level: str, *, vectors: bool, partitioned: bool) -> History:
    create(place, level, vectors=vectors, partitioned=partitioned)
    return run(seed, place.open, level)


ALL = list(itertools.product(LEVELS, [False, True], [False, True]))
PAIRS = [each for each in ALL if (LEVELS.index(each[0]) + each[1] + each[2]) % 2 == 0]
"""Of a level, vectors and partitions each two in all their combinations."""


MANY = [pytest.param(seed, *each, marks=pytest.mark.long) for seed in range(1000, 1050) for each in ALL]


@pytest.mark.parametrize(("seed", "level", "vectors", "partitioned"), [*((0, *each) for each in PAIRS), *MANY])
@pytest.mark.many
def test_a_history_is_what_its_level_says(place: Place, seed: int, level: str, vectors: bool, partitioned: bool) -> None:
    assert history(place, seed, level, vectors=vectors, partitioned=partitioned).committed > 0


RACES = [
    pytest.param(*each, marks=[pytest.mark.long] * (number % 5 > 0))
    for number, each in enumerate(itertools.product(LEVELS[:2], [False, True], [False, True], [False, True]))
]


@pytest.mark.slow
@pytest.mark.parametrize(("level", "vectors", "feed", "direct"), RACES)
@pytest.mark.many
def test_several_threads_at_once(place: Place, level: str, vectors: bool, feed: bool, direct: bool) -> None:
    limits = Limits(fast_path=direct)
    create(place, level, vectors=vectors, feed=feed)
    done = race(11, lambda: place.open(limits=limits), level)
    assert done.committed


@pytest.mark.long
@pytest.mark.parametrize("vectors", [False, True], ids=["copies", "vectors"])
@pytest.mark.parametrize("level", LEVELS[:2])
@pytest.mark.parametrize("seed", range(2000, 2025))
def test_many_races(place: Place, seed: int, level: str, vectors: bool) -> None:
    create(place, level, vectors=vectors)
    assert race(seed, lambda: place.open(limits=Limits(fast_path=False)), level, writers=6, rounds=12).committed


@pytest.mark.slow
@pytest.mark.parametrize("partitioned", [False, True], ids=["unpartitioned", "partitioned"])
@pytest.mark.parametrize("vectors", [False, True], ids=["copies", "vectors"])
@pytest.mark.parametrize("seed", [200, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(201, 220))])
@pytest.mark.many
def test_a_history_loses_nothing_to_vacuums(place: Place, seed: int, vectors: bool, partitioned: bool) -> None:
    """Garbage is collected in between, with nothing kept for older versions, while clients lose their sessions and come back."""
    create(place, "WriteSerializable", vectors=vectors, partitioned=partitioned)
    writers: list[Writer] = []

    def open_table() -> sluice.Table:
        writers.append(Writer(place))
        return writers[-1].table

    def disturb(dice: random.Random) -> None:
        if dice.random() < 0.4:
            dice.choice(writers).dies()

    done = run(seed, open_table, "WriteSerializable", steps=60, vacuums=0.15, disturb=disturb)
    assert done.committed > 0
    assert done.collected > 0 or seed > 201  # few of the other seeds leave nothing to collect
    shown = place.open().snapshot()
    assert state_of(shown.to_arrow()) == done.states[-1]
    for writer in writers:
        writer.dies()
    place.open().vacuum(retain_hours=0, force=True)
    left = {str(path.relative_to(place.location)) for path in Path(place.location).rglob("*.parquet") if "_delta_log" not in path.parts}
    assert left == {unquote(file.path) for file in shown.raw.add_files()}, "exactly what the latest version shows is left"


ACCOUNTS = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("balance", pa.int64(), nullable=False)])
COUNT, FIRST = 64, 1000


def transfer(table: sluice.Table, dice: random.Random, for_update: bool) -> None:
    """Read two accounts, and move money from one to the other."""
    giver, taker = dice.sample(range(COUNT), 2)
    amount = dice.randint(1, 10)
    with table.refresh().begin() as t:
        balances = {each: t.scan(where=f"id = {each}", for_update=for_update)["balance"][0].as_py() for each in (giver, taker)}
        t.update({"balance": str(balances[giver] - amount)}, f"id = {giver}")
        t.update({"balance": str(balances[taker] + amount)}, f"id = {taker}")


def transfers(place: Place, level: str, *, threads: int = 4, rounds: int = 5, for_update: bool = False) -> tuple[int, int]:
    """How many transfers succeeded, and how many were tried, by threads that begin each round together."""
    table = sluice.Table.create(place.location, ACCOUNTS, properties=settings(level, True), coordinator=place.coordinator)
    table.append(pa.table([pa.array(range(COUNT), pa.int64()), pa.array([FIRST] * COUNT, pa.int64())], schema=ACCOUNTS))
    together = threading.Barrier(threads)

    def client(number: int) -> int:
        mine, dice, won = place.open(), random.Random(number), 0
        for _ in range(rounds):
            together.wait()
            try:
                transfer(mine, dice, for_update)
                won += 1
            except sluice.errors.ConcurrentModification:
                continue
        return won

    with ThreadPoolExecutor(threads) as pool:
        won = sum(pool.map(client, range(threads)))
    shown = table.snapshot().to_arrow()
    assert sum(shown["balance"].to_pylist()) == COUNT * FIRST
    assert sorted(shown["id"].to_pylist()) == list(range(COUNT))
    return won, threads * rounds


@pytest.mark.slow
@pytest.mark.parametrize("for_update", [False, True], ids=["read", "read for update"])
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.many
def test_transfers_between_different_accounts_do_not_meet(place: Place, level: str, for_update: bool) -> None:
    won, tried = transfers(place, level, for_update=for_update)
    assert won >= 0.75 * tried, f"{won} of {tried} transfers succeeded"
