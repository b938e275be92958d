"""A transaction that lost has its turn at the next attempt of its thread: until it ends nobody changes what it reads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace

import pytest

import sluice
from sluice.coordinator.leases import turns as chances
from sluice.coordinator.leases.turns import losses_of_thread
from sluice.coordinator.service.clock import Timeout
from tests.tables.conftest import FLIGHTS, Place, flights, rows_of

JFK = "origin = 'JFK'"


@pytest.fixture(autouse=True)
def nothing_lost() -> Iterator[None]:
    """What another test lost is forgotten."""
    losses_of_thread().clear()
    yield
    losses_of_thread().clear()


@pytest.fixture
def table(place: Place) -> sluice.Table:
    place.create().append(flights(("JFK", 1, 0), ("LGA", 1, 0)))
    return place.open(application="long")


def by_another(work: Callable[[], object]) -> None:
    """Do it in a thread of its own, as somebody who did not lose."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(work).result(30)


def add_one(place: Place, where: str = JFK) -> Callable[[], object]:
    return lambda: place.open(timeout_s=0.3, application="short").update({"delay": "delay + 1"}, where)


def lose(table: sluice.Table, place: Place) -> sluice.ConcurrentModification:
    """A transaction that reads and changes JFK loses to somebody else."""
    begun = table.begin()
    begun.update({"delay": "delay + 100"}, JFK)
    by_another(add_one(place))
    with pytest.raises(sluice.ConcurrentModification) as lost:
        begun.commit()
    return lost.value


@pytest.mark.notices("losers-have-their-turn", "turns-stop-others", "appends-pass-turns")
def test_after_a_loss_nobody_changes_what_was_read(place: Place, table: sluice.Table) -> None:
    lose(table, place)
    with table.begin() as again:
        again.update({"delay": "delay + 100"}, JFK)
        with pytest.raises(sluice.LeaseHeld, match=r"a reserved turn 'after 1 loss'.*held by long") as held:
            by_another(add_one(place))
        assert held.value.retryable
        by_another(add_one(place, "origin = 'LGA'"))
        by_another(lambda: place.open().append(flights(("JFK", 1, 7))))
    by_another(add_one(place))
    assert rows_of(table.refresh().snapshot().to_arrow()) == [("JFK", 1, 8), ("JFK", 1, 102), ("LGA", 1, 1)]


def test_who_waits_goes_on_when_the_turn_is_over(place: Place, table: sluice.Table) -> None:
    lose(table, place)
    with ThreadPoolExecutor(1) as pool, table.begin() as again:
        again.update({"delay": "delay + 100"}, JFK)
        other = pool.submit(lambda: place.open(application="short").update({"delay": "delay + 1"}, "origin = 'LGA' AND delay = 0"))
        assert other.result(30) is not None
        waiting = pool.submit(
            lambda: place.open(application="short").delete("origin = 'JFK' AND delay < 0 OR origin = 'JFK' AND delay = 1")
        )
        time.sleep(0.3)
        again.commit()
        with pytest.raises(sluice.ConcurrentModification):
            waiting.result(30)


def test_without_a_loss_there_is_no_turn(place: Place, table: sluice.Table) -> None:
    with table.begin() as begun:
        begun.update({"delay": "delay + 1"}, "origin = 'LGA'")
        by_another(add_one(place))


def test_single_operations_have_turns_too(place: Place, table: sluice.Table) -> None:
    lose(table, place)
    assert len(losses_of_thread()) == 1
    assert table.update({"delay": "delay + 100"}, JFK) is not None
    assert losses_of_thread() == {}


def test_a_second_loss_reserves_the_whole_table(place: Place, table: sluice.Table) -> None:
    lose(table, place)
    begun = table.begin()
    begun.update({"delay": "delay + 100"}, "origin = 'LGA'")  # other data than before
    by_another(add_one(place, "origin = 'LGA'"))
    with pytest.raises(sluice.ConcurrentModification):
        begun.commit()
    with table.begin() as again:
        again.update({"delay": "delay + 100"}, JFK)
        for origin in ("JFK", "LGA"):
            with pytest.raises(sluice.LeaseHeld, match="after 2 losses"):
                by_another(add_one(place, f"origin = '{origin}'"))


def test_an_attempt_that_was_given_up_keeps_its_turn_for_the_next(place: Place, table: sluice.Table) -> None:
    lose(table, place)
    table.begin().abort()
    by_another(add_one(place))
    with table.begin() as again:
        again.update({"delay": "delay + 100"}, JFK)
        with pytest.raises(sluice.LeaseHeld):
            by_another(add_one(place))


def test_an_attempt_that_nobody_refers_to_blocks_nobody(place: Place, table: sluice.Table) -> None:
    lose(table, place)
    table.begin()
    by_another(lambda: place.open(timeout_s=20).update({"delay": "delay + 1"}, JFK))


@pytest.mark.notices("turns-end")
def test_a_turn_ends_though_its_attempt_does_not(place: Place, table: sluice.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    lose(table, place)
    monkeypatch.setattr(chances, "_LEAST_S", 0.5)
    again = table.begin()
    by_another(lambda: place.open(timeout_s=20).update({"delay": "delay + 1"}, JFK))
    again.update({"delay": "delay + 100"}, JFK)  # it made its snapshot before
    with pytest.raises(sluice.ConcurrentModification):
        again.commit()


def test_a_loss_is_forgotten(place: Place, table: sluice.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    lose(table, place)
    monkeypatch.setattr(chances, "_REMEMBERED_S", -60.0)
    with table.begin() as again:
        again.scan()
        by_another(add_one(place, "origin = 'LGA'"))
        again.abort()


def test_a_turn_that_was_broken_is_missed_by_nobody(place: Place, table: sluice.Table) -> None:
    """An attempt does not depend on its turn: it may commit without."""
    lose(table, place)
    with table.begin() as again:
        again.update({"delay": "delay + 100"}, JFK)
        context = table.coordinated.context
        for path in again._chance.turns:
            context.coordination.delete(path)
    assert again.state == "committed"


def test_who_cannot_have_the_turn_in_time_goes_on_without(place: Place, table: sluice.Table) -> None:
    lose(table, place)
    held, done = threading.Event(), threading.Event()

    def holder() -> None:
        with place.open(application="holder").lease():
            held.set()
            done.wait(30)

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(holder)
        held.wait(30)
        begun = table.begin(timeout_s=0.3)
        assert begun._chance.turns == ()
        begun.abort()
        done.set()
        running.result(30)


def test_leases_of_its_own_are_no_obstacle(place: Place, table: sluice.Table) -> None:
    lose(table, place)
    with table.lease(wait_s=5), table.begin(timeout_s=5) as again:
        assert again._chance.turns == ()
        again.update({"delay": "delay + 100"}, JFK)


def test_two_tables(place: Place, table: sluice.Table) -> None:
    other = Place(place.location + "-2", place.coordinator)
    other.create().append(flights(("JFK", 1, 0), ("LGA", 1, 0)))
    second = other.open()
    for attempt in range(2):
        joint = sluice.transaction(tables=[table, second])
        joint[second].scan(where=JFK)
        joint[table].update({"delay": "delay + 100"}, JFK)
        if attempt == 0:
            by_another(add_one(other))
            with pytest.raises(sluice.ConcurrentModification):
                joint.commit()
            continue
        for there in (place, other):
            with pytest.raises(sluice.LeaseHeld):
                by_another(add_one(there))
        joint.commit()
    for there in (place, other):
        by_another(add_one(there))


@contextmanager
def writers(place: Place, count: int) -> Iterator[None]:
    """So many threads that change JFK's rows all the time."""
    stop = threading.Event()

    def write(number: int) -> None:
        mine = place.open(application=f"short-{number}")
        while not stop.is_set():
            try:
                mine.update({"delay": "delay + 1"}, JFK)
            except sluice.ConcurrentModification:
                continue

    with ThreadPoolExecutor(count) as pool:
        running = [pool.submit(write, number) for number in range(count)]
        try:
            yield
        finally:
            stop.set()
            for each in running:
                each.result(60)


@pytest.mark.slow
@pytest.mark.parametrize("vectors", ["true", "false"])
def test_a_long_transaction_beside_fifteen_writers_gets_through_at_its_second_attempt(place: Place, vectors: str) -> None:
    place.create(properties={"delta.enableDeletionVectors": vectors}).append(flights(("JFK", 1, 0)))
    table, losses = place.open(application="long"), 0
    with writers(place, 15):
        for _ in range(6):
            try:
                with table.begin(timeout_s=60) as long:
                    read = long.scan(where=JFK)
                    time.sleep(1.0)
                    long.overwrite(read, where=JFK)
                break
            except sluice.ConcurrentModification:
                losses += 1
    assert losses == 1


def test_two_turns_that_wait_for_each_other_are_given_up(place: Place) -> None:
    """Each has its turn on one table and changes the other: nothing depends on a turn, so both commit."""
    tables = [
        sluice.Table.create(
            f"{place.location}-{name}", FLIGHTS, coordinator=place.coordinator, properties={"delta.enableDeletionVectors": "true"}
        )
        for name in ("left", "right")
    ]
    for table in tables:
        table.append(flights(("JFK", 1, 1), ("EWR", 2, 2)))
    met = threading.Barrier(2)

    def work(number: int) -> None:
        mine, other = (
            sluice.Table.open(table.location, coordinator=place.coordinator) for table in (tables if number == 0 else tables[::-1])
        )
        origin = ("JFK", "EWR")[number]
        losing = mine.begin()
        losing.update({"delay": "delay + 1"}, f"origin = '{origin}'")
        mine.update({"delay": "delay + 10"}, f"origin = '{origin}'")
        with pytest.raises(sluice.ConcurrentModification):
            losing.commit()
        with sluice.transaction(tables=[mine, other], timeout_s=30) as both:
            for table in (mine, other):
                both[table].update({"delay": "delay + 100"}, f"origin = '{origin}'")
            met.wait(20)

    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(work, number) for number in range(2)]:
            done.result(60)
    left, right = (dict(row[::2] for row in rows_of(table.refresh().snapshot().to_arrow())) for table in tables)
    assert left == {"JFK": 111, "EWR": 102}
    assert right == {"JFK": 101, "EWR": 112}


@pytest.mark.parametrize("timeout", [lambda: 10.0, lambda: sluice.Deadline.after(10.0)], ids=["seconds", "deadline"])
def test_waiting_for_a_turn_leaves_time_to_commit(place: Place, table: sluice.Table, timeout: Callable[[], Timeout]) -> None:
    """A turn on the whole table is not to be had while somebody leases another part of it."""
    lose(table, place)
    [[key, loss]] = losses_of_thread().items()
    losses_of_thread()[key] = replace(loss, where=None, losses=2)
    leased, done = threading.Event(), threading.Event()

    def lease() -> None:
        with place.open(application="other").lease(where="origin = 'LGA'"):
            leased.set()
            done.wait(60)

    with ThreadPoolExecutor(1) as pool:
        pool.submit(lease)
        assert leased.wait(30)
        try:
            began = time.monotonic()
            assert table.update({"delay": "delay + 100"}, JFK, timeout_s=timeout()) is not None
            assert time.monotonic() - began < 9.9
        finally:
            done.set()


def test_a_turn_does_not_stop_other_transactions_of_its_thread(place: Place, table: sluice.Table) -> None:
    """A thread that works on two transactions at once would wait for itself."""
    lose(table, place)
    first = place.open(timeout_s=30, application="long").begin()
    first.update({"delay": "delay + 100"}, JFK)
    second = place.open(timeout_s=30, application="long")
    begun = time.monotonic()
    assert second.update({"delay": "delay + 1"}, JFK) is not None
    assert time.monotonic() - begun < 14
    with pytest.raises(sluice.ConcurrentModification):
        first.commit()
