"""A transaction that is begun `after` one that lost has priority: until it ends nobody changes what that one read."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

import pytest

import sluice
from sluice.coordinator.commit import transactions
from sluice.coordinator.limits import Limits
from sluice.coordinator.service.clock import Timeout
from sluice.tables.write.transaction_end import repeated
from tests.tables.conftest import FLIGHTS, Place, by_another, flights, rows_of

JFK = "origin = 'JFK'"


@pytest.fixture
def table(place: Place) -> sluice.Table:
    place.create().append(flights(("JFK", 1, 0), ("LGA", 1, 0)))
    return place.open(application="long")


def add_one(place: Place, where: str = JFK) -> Callable[[], object]:
    return lambda: place.open(timeout_s=0.3, application="short").update({"delay": "delay + 1"}, where)


def lose(table: sluice.Table, place: Place, after: sluice.Transaction | None = None, origin: str = "JFK") -> sluice.Transaction:
    """A transaction that read and changed an airport, and lost to somebody else."""
    begun = table.begin(after=after)
    begun.update({"delay": "delay + 100"}, f"origin = '{origin}'")
    by_another(add_one(place, f"origin = '{origin}'"))
    with pytest.raises(sluice.errors.ConcurrentModification):
        begun.commit()
    return begun


@pytest.mark.notices("losers-have-their-turn", "turns-stop-others", "appends-pass-turns")
def test_after_a_loss_nobody_changes_what_was_read(place: Place, table: sluice.Table) -> None:
    lost = lose(table, place)
    with table.begin(after=lost) as again:
        again.update({"delay": "delay + 100"}, JFK)
        with pytest.raises(sluice.errors.LeaseHeld, match=r"a reserved turn 'after 1 loss'.*held by long") as held:
            by_another(add_one(place))
        assert held.value.retryable
        by_another(add_one(place, "origin = 'LGA'"))
        by_another(lambda: place.open().append(flights(("JFK", 1, 7))))
    by_another(add_one(place))
    assert rows_of(table.refresh().snapshot().to_arrow()) == [("JFK", 1, 8), ("JFK", 1, 102), ("LGA", 1, 1)]


def test_who_waits_goes_on_when_the_turn_is_over(place: Place, table: sluice.Table) -> None:
    lost = lose(table, place)
    with ThreadPoolExecutor(1) as pool, table.begin(after=lost) as again:
        again.update({"delay": "delay + 100"}, JFK)
        other = pool.submit(lambda: place.open(application="short").update({"delay": "delay + 1"}, "origin = 'LGA' AND delay = 0"))
        assert other.result(30) is not None
        waiting = pool.submit(
            lambda: place.open(application="short").delete("origin = 'JFK' AND delay < 0 OR origin = 'JFK' AND delay = 1")
        )
        time.sleep(0.3)
        again.commit()
        with pytest.raises(sluice.errors.ConcurrentModification):
            waiting.result(30)


def test_without_a_loss_there_is_no_turn(place: Place, table: sluice.Table) -> None:
    with table.begin() as begun:
        begun.update({"delay": "delay + 1"}, "origin = 'LGA'")
        by_another(add_one(place))


def test_a_second_loss_reserves_the_whole_table(place: Place, table: sluice.Table) -> None:
    lost = lose(table, place, lose(table, place), origin="LGA")  # other data than before
    assert lost.losses == 2
    with table.begin(after=lost) as again:
        again.update({"delay": "delay + 100"}, JFK)
        for origin in ("JFK", "LGA"):
            with pytest.raises(sluice.errors.LeaseHeld, match="after 2 losses"):
                by_another(add_one(place, f"origin = '{origin}'"))


def test_an_attempt_that_was_given_up_hands_its_priority_on(place: Place, table: sluice.Table) -> None:
    given_up = table.begin(after=lose(table, place))
    given_up.scan(where=JFK)
    given_up.abort()
    by_another(add_one(place))
    with table.begin(after=given_up) as again:
        again.update({"delay": "delay + 100"}, JFK)
        with pytest.raises(sluice.errors.LeaseHeld, match="after 1 loss'"):
            by_another(add_one(place))


def test_one_that_committed_gives_none(place: Place, table: sluice.Table) -> None:
    with table.begin(after=lose(table, place)) as won:
        won.update({"delay": "delay + 100"}, JFK)
    assert won.losses == 0
    with table.begin(after=won):
        by_another(add_one(place))


def test_at_the_third_loss_appends_wait_too(place: Place, table: sluice.Table) -> None:
    lost = lose(table, place)
    for _ in range(2):  # the others were there when it began
        begun = table.begin(after=lost)
        begun.update({"delay": "delay + 100"}, JFK)
        begun._priority.end()
        by_another(add_one(place))
        with pytest.raises((sluice.errors.ConcurrentModification, sluice.errors.LeaseLost)):
            begun.commit()
        lost = begun
    assert lost.losses == 3
    with table.begin(after=lost) as again:
        again.update({"delay": "delay + 100"}, JFK)
        with pytest.raises(sluice.errors.LeaseHeld, match="an exclusive lease 'after 3 losses' on origin = 'JFK'"):
            by_another(lambda: place.open(timeout_s=0.3).append(flights(("JFK", 1, 7))))
        by_another(add_one(place, "origin = 'LGA'"))


def test_an_attempt_whose_priority_was_broken_is_refused_and_repeated(place: Place, table: sluice.Table) -> None:
    """Its commit depends on its lease as on any other; that counts as one more loss."""
    lost, losses = lose(table, place), []

    def work(again: sluice.Transaction) -> None:
        losses.append(again.losses)
        again.update({"delay": "delay + 100"}, JFK)
        if again.losses == 1:
            for path in again._priority.nodes:
                table.coordinated.context.coordination.delete(path)

    repeated(lambda after: table.begin(after=after or lost), work, attempts=2)
    assert losses == [1, 2]


def test_a_lease_of_its_callers_that_is_lost_ends_it(place: Place, table: sluice.Table) -> None:
    with table.lease(wait_s=5) as lease:

        def work(tx: sluice.Transaction) -> None:
            tx.update({"delay": "delay + 100"}, JFK)
            for path in lease.nodes:
                table.coordinated.context.coordination.delete(path)

        with pytest.raises(sluice.errors.LeaseLost):
            table.transact(work)
        with suppress(sluice.errors.LeaseLost):
            lease.release()


def test_who_cannot_have_priority_in_time_goes_on_without(place: Place, table: sluice.Table) -> None:
    lost = lose(table, place)
    held, done = threading.Event(), threading.Event()

    def holder() -> None:
        with place.open(application="holder").lease():
            held.set()
            done.wait(30)

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(holder)
        held.wait(30)
        begun = table.begin(after=lost, timeout_s=0.3)
        assert begun._priority.nodes == ()
        begun.abort()
        done.set()
        running.result(30)


def test_leases_of_its_own_are_no_obstacle(place: Place, table: sluice.Table) -> None:
    lost = lose(table, place)
    with table.lease(wait_s=5), table.begin(after=lost, timeout_s=5) as again:
        again.update({"delay": "delay + 100"}, JFK)


def test_it_commits_in_another_thread_too(place: Place, table: sluice.Table) -> None:
    again = table.begin(after=lose(table, place))
    again.update({"delay": "delay + 100"}, JFK)
    by_another(again.commit)
    assert again.state == "committed"


@pytest.mark.notices("no-answer-gives-priority-up")
def test_an_attempt_without_an_answer_lets_the_others_go_on(place: Place, table: sluice.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its caller may never ask again. It was filed, so it is decided: refused, since its lease is gone."""
    slow = place.open(application="long", limits=Limits(fast_path=False))
    again = slow.begin(after=lose(table, place))
    again.update({"delay": "delay + 100"}, JFK)
    with monkeypatch.context() as patch:
        patch.setattr(transactions.CommitLoop, "run", lambda loop, _=(): loop._give_up())
        with pytest.raises(sluice.errors.OutcomeUnknown):
            again.commit()
    by_another(lambda: place.open(timeout_s=20, application="short").update({"delay": "delay + 1"}, JFK))
    with pytest.raises(sluice.errors.LeaseLost):
        again.commit()
    assert rows_of(table.refresh().snapshot().to_arrow()) == [("JFK", 1, 2), ("LGA", 1, 0)]


def test_other_transactions_of_its_thread_pass(place: Place, table: sluice.Table) -> None:
    """A thread that works on two transactions at once would wait for itself."""
    first = table.begin(after=lose(table, place))
    first.update({"delay": "delay + 100"}, JFK)
    assert place.open(timeout_s=5, application="long").update({"delay": "delay + 1"}, JFK) is not None
    with pytest.raises(sluice.errors.ConcurrentModification):
        first.commit()


def test_two_tables(place: Place, table: sluice.Table) -> None:
    other = Place(place.location + "-2", place.coordinator)
    other.create().append(flights(("JFK", 1, 0), ("LGA", 1, 0)))
    second, lost = other.open(), None
    for attempt in range(2):
        joint = sluice.transaction(tables=[table, second], after=lost)
        joint[second].scan(where=JFK)
        joint[table].update({"delay": "delay + 100"}, JFK)
        if attempt == 0:
            by_another(add_one(other))
            with pytest.raises(sluice.errors.ConcurrentModification):
                joint.commit()
            lost = joint
            continue
        for there in (place, other):
            with pytest.raises(sluice.errors.LeaseHeld):
                by_another(add_one(there))
        joint.commit()
    for there in (place, other):
        by_another(add_one(there))


def test_a_part_that_notices_its_loss_counts_for_the_whole(place: Place, table: sluice.Table) -> None:
    joint = sluice.transaction(tables=[table])
    joint[table].update({"delay": "delay + 100"}, JFK)
    by_another(add_one(place))
    with pytest.raises(sluice.errors.ConcurrentModification):
        joint[table].check()
    joint.abort()
    assert joint.losses == 1


@contextmanager
def writers(place: Place, count: int) -> Iterator[None]:
    """So many threads that change JFK's rows all the time."""
    stop = threading.Event()

    def write(number: int) -> None:
        mine = place.open(application=f"short-{number}")
        while not stop.is_set():
            try:
                mine.update({"delay": "delay + 1"}, JFK)
            except sluice.errors.ConcurrentModification:
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
    table, losses = place.open(application="long"), []

    def work(long: sluice.Transaction) -> None:
        losses.append(long.losses)
        read = long.scan(where=JFK)
        time.sleep(1.0)
        long.overwrite(read, where=JFK)

    with writers(place, 15):
        table.transact(work, timeout_s=60)
    assert losses == [0, 1]


def test_two_attempts_that_wait_for_each_other_get_through(place: Place) -> None:
    """Each has priority in one table and changes the other: one of them is refused, and repeated with priority in both."""
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
        with pytest.raises(sluice.errors.ConcurrentModification):
            losing.commit()
        first = [losing]

        def change(both: sluice.JointTransaction) -> None:
            for table in (mine, other):
                both[table].update({"delay": "delay + 100"}, f"origin = '{origin}'")
            if first:
                first.clear()
                met.wait(20)

        repeated(lambda after: sluice.transaction(tables=[mine, other], timeout_s=30, after=after or losing), change, attempts=3)

    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(work, number) for number in range(2)]:
            done.result(60)
    left, right = (dict(row[::2] for row in rows_of(table.refresh().snapshot().to_arrow())) for table in tables)
    assert left == {"JFK": 111, "EWR": 102}
    assert right == {"JFK": 101, "EWR": 112}


@pytest.mark.parametrize("timeout", [lambda: 10.0, lambda: sluice.Deadline.after(10.0)], ids=["seconds", "deadline"])
def test_waiting_for_priority_leaves_time_to_commit(place: Place, table: sluice.Table, timeout: Callable[[], Timeout]) -> None:
    """A lease on the whole table is not to be had while somebody leases another part of it."""
    lost = lose(table, place, lose(table, place), origin="LGA")
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
            with table.begin(after=lost, timeout_s=timeout()) as again:
                again.update({"delay": "delay + 100"}, JFK)
            assert time.monotonic() - began < 9.9
        finally:
            done.set()
