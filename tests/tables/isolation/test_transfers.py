"""Bank transfers: threads move money between accounts whose rows are in one file. Nothing is lost, and few transfers conflict."""

from __future__ import annotations

import random
import threading
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

import sluice
from tests.tables.conftest import Place
from tests.tables.isolation.histories import settings

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
@pytest.mark.parametrize("level", ["Serializable", "WriteSerializable", "SnapshotIsolation"])
def test_transfers_between_different_accounts_do_not_meet(place: Place, level: str, for_update: bool) -> None:
    won, tried = transfers(place, level, for_update=for_update)
    assert won >= 0.75 * tried, f"{won} of {tried} transfers succeeded"
