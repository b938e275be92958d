"""`sluice.transact`: a transaction over several tables that is repeated when it loses, and cannot lose for ever."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import sluice

from .conftest import Place, flights, rows_of
from .elsewhere import beside_fast_writers


@pytest.fixture
def places(tmp_path: Path) -> list[Place]:
    """Three tables of one coordinator, with two rows each."""
    return made(tmp_path, f"memory://{uuid.uuid4().hex}")


def made(folder: Path, coordinator: str) -> list[Place]:
    found = [Place(str(folder / name), coordinator) for name in ("a", "b", "c")]
    for place in found:
        place.create(properties={"delta.isolationLevel": "Serializable"}).append(flights(("JFK", 1, 0), ("LGA", 1, 0)))
    return found


def content(place: Place) -> list[tuple[object, ...]]:
    return rows_of(place.open().snapshot().to_arrow())


def by_another(work: Callable[[], object]) -> None:
    """Do it in a thread of its own, as somebody who holds no lease."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(work).result(30)


def test_it_is_run_once_where_nobody_is_in_the_way(places: list[Place]) -> None:
    ran: list[str] = []

    def work(tx: sluice.JointTransaction) -> str:
        ran.append(tx.id)
        for place in places[:2]:
            tx[place.location].update({"delay": "delay + 1"}, "origin = 'JFK'")
        return "done"

    assert sluice.transact(work, places[0].coordinator, tables=[place.location for place in places[:2]]) == "done"
    assert len(ran) == 1
    assert [content(place) for place in places] == [[("JFK", 1, 1), ("LGA", 1, 0)]] * 2 + [[("JFK", 1, 0), ("LGA", 1, 0)]]


def test_after_three_losses_all_that_was_read_is_leased(places: list[Place]) -> None:
    """The rival adds rows to another of the tables each time, so that a lease over one of them would not help."""
    a, b, c = places
    attempts = 0
    stopped: list[sluice.errors.LeaseHeld] = []

    def rival(place: Place, origin: str) -> None:
        place.open(timeout_s=2).append(flights((origin, 1, 1)))

    def work(tx: sluice.JointTransaction) -> int:
        nonlocal attempts
        attempts += 1
        assert tx[a.open()].scan(where="origin = 'JFK'").num_rows >= 1
        tx[b.open()].update({"delay": "delay + 100"}, "origin = 'JFK'")
        tx[c.open()].append(flights(("EWR", 1, 0)))  # reads nothing, so that nobody has to be kept out of it
        if attempts < 4:
            by_another(lambda: rival((a, b)[attempts % 2], "JFK"))
            return attempts
        for place in (a, b):
            with pytest.raises(sluice.errors.LeaseHeld) as held:
                by_another(lambda place=place: rival(place, "JFK"))  # type: ignore[misc]
            stopped.append(held.value)
            by_another(lambda place=place: rival(place, "LGA"))  # type: ignore[misc]
        by_another(lambda: rival(c, "JFK"))
        return attempts

    assert sluice.transact(work, a.coordinator) == 4
    assert {held.facts["where"] for held in stopped} == {"origin = 'JFK'"}
    assert {held.facts["name"] for held in stopped} == {"after 3 losses"}
    assert content(b) == [("JFK", 1, 100), ("JFK", 1, 101), ("JFK", 1, 101), ("LGA", 1, 0), ("LGA", 1, 1)]  # attempts 1 and 3 met it there
    assert ("EWR", 1, 0) in content(c)
    by_another(lambda: rival(a, "JFK"))  # the leases are gone


def test_it_gives_up_after_its_attempts(places: list[Place]) -> None:
    a, b, _ = places

    def work(tx: sluice.JointTransaction) -> None:
        tx[a.open()].update({"delay": "delay + 100"}, "origin = 'JFK'")
        tx[b.open()].append(flights(("EWR", 1, 0)))
        by_another(lambda: a.open().append(flights(("JFK", 1, 1))))

    with pytest.raises(sluice.errors.ConcurrentModification) as lost:
        sluice.transact(work, attempts=2)
    assert lost.value.facts["table"] == a.open().location
    assert content(a) == [("JFK", 1, 0), ("JFK", 1, 1), ("JFK", 1, 1), ("LGA", 1, 0)]
    assert len(content(b)) == 2


def test_what_the_work_raises_ends_it(places: list[Place]) -> None:
    def work(tx: sluice.JointTransaction) -> None:
        tx[places[0].open()].append(flights(("EWR", 1, 0)))
        raise KeyError("mine")

    with pytest.raises(KeyError):
        sluice.transact(work)
    assert len(content(places[0])) == 2


@pytest.mark.costly
@pytest.mark.zookeeper
def test_a_long_transaction_over_two_tables_beside_twenty_fast_writers_gets_through(tmp_path: Path, zookeeper_address: str) -> None:
    places = made(tmp_path, zookeeper_address)[:2]
    attempts = 0
    tables = [place.open() for place in places]

    def merge(tx: sluice.JointTransaction) -> None:
        nonlocal attempts
        attempts += 1
        for table in tables:
            tx[table].upsert(flights(("EWR", 1, 7)), on=["origin", "month"])
            tx[table].update({"delay": "delay + 1000000"}, "origin = 'JFK'")
        time.sleep(0.5)

    done = beside_fast_writers(places, lambda: sluice.transact(merge, tables=tables, timeout_s=60))
    assert attempts <= 2
    for number, place in enumerate(places):
        assert content(place) == [("EWR", 1, 7), ("JFK", 1, 1_000_000 + done[number]), ("LGA", 1, 0)]
