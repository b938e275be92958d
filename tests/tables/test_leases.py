"""Leases as users take them: commits of others wait, losses are reported, transactions do not starve; and real processes."""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar, cast

import pytest

import sluice
from sluice.coordinator.api import Reads, touched_by_reads
from sluice.coordinator.leases import lease as of_coordinator
from sluice.coordinator.leases.blocking import list_leases
from sluice.coordinator.leases.pins import EVERYTHING, pinned_versions
from sluice.coordinator.nodes.context import TableContext
from sluice.coordinator.nodes.layout import Place as LeasedPlace
from sluice.coordinator.service.connect import connect
from sluice.coordinator.service.memory import MemorySession

from .conftest import FLIGHTS, Place, flights, present, rows_of

T = TypeVar("T")


@pytest.fixture(autouse=True)
def nothing_is_held_afterwards() -> Iterator[None]:
    yield
    assert of_coordinator.held_by_this_thread() == []


@contextmanager
def elsewhere(work: Callable[[], T]) -> Iterator[Future[T]]:
    """Run it in a thread of its own, as another writer."""
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(work)


def by_another(work: Callable[[], T]) -> T:
    with elsewhere(work) as running:
        return running.result(30)


def expire(coordinator: str) -> None:
    """End this process's session with a coordinator in memory, from the server's side."""
    session = connect(coordinator)
    assert isinstance(session, MemorySession)
    session.expire()


def context_of(table: sluice.Table) -> TableContext:
    return table.coordinated.context


def queue_of(place: Place) -> list[tuple[str, bool]]:
    """Who holds or waits for the table, in the order of asking: the mode, and whether it is held."""
    entries = list_leases(connect(place.coordinator), LeasedPlace.of_table(context_of(place.open()).tree))
    return [(each.mode, each.held) for each in entries]


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


# -- commits of others ---------------------------------------------------------------------------------------------------


def test_others_wait_until_the_lease_is_released(place: Place) -> None:
    table = place.create()
    with table.lease(where="origin = 'JFK'") as lease:
        with elsewhere(lambda: place.open().append(flights(("JFK", 1, 1)))) as waiting:
            until(lambda: queue_of(place)[1:] == [("commit", False)])
            place.open().append(flights(("LGA", 1, 2)))
            with by_another(lambda: place.open().lease(where="origin = 'LGA'", wait_s=0)):  # other partitions are in nobody's way
                by_another(lambda: place.open().append(flights(("EWR", 1, 3))))
            table.append(flights(("JFK", 1, 4)))
            assert by_another(lambda: place.open().snapshot(consistency="serial").to_arrow()).num_rows == 3, "readers are never disturbed"
            assert not waiting.done()
            lease.release()
            commit = present(waiting.result(10))
        assert commit.version == 4
    assert [delay for *_, delay in rows_of(table.refresh().snapshot().to_arrow())] == [3, 1, 4, 2]


def test_a_commit_that_waits_has_its_turn_before_leases_that_were_asked_for_later(place: Place) -> None:
    """Holders who follow one another without a gap, and a commit among them: it comes when those before it are done."""
    table = place.create()
    for turn in range(8):
        first = table.lease(where="origin = 'JFK'")
        with ThreadPoolExecutor(2) as pool:
            writing = pool.submit(place.open().append, flights(("JFK", 1, turn)))
            until(lambda: queue_of(place) == [("exclusive", True), ("commit", False)])
            leasing = pool.submit(place.open().lease, "exclusive", None)
            until(lambda: queue_of(place) == [("exclusive", True), ("commit", False), ("exclusive", False)])
            first.release()
            next_one = leasing.result(10)
            assert table.refresh().snapshot().to_arrow().num_rows == turn + 1, "the later one was granted before the commit was made"
            assert writing.result(10) is not None
            next_one.release()
    assert queue_of(place) == []


def test_all_commits_that_wait_go_on_together(place: Place) -> None:
    table = place.create()
    lease = table.lease("shared")
    with ThreadPoolExecutor(5) as pool:
        writing = [pool.submit(place.open().append, flights(("JFK", 1, n))) for n in range(5)]
        until(lambda: queue_of(place) == [("shared", True)] + [("commit", False)] * 5)
        assert place.open().snapshot().to_arrow().num_rows == 0
        lease.release()
        assert all(each.result(10) is not None for each in writing)
    assert queue_of(place) == []
    assert table.refresh().snapshot().to_arrow().num_rows == 5


def test_a_holder_may_take_more_though_commits_wait_for_it(place: Place) -> None:
    """The commit waits for the holder, so that the holder does not wait for the commit."""
    table = place.create()
    with table.lease(where="origin = 'JFK'"), elsewhere(lambda: place.open().append(flights(("JFK", 1, 1)))) as writing:
        until(lambda: queue_of(place)[1:] == [("commit", False)])
        with table.lease(wait_s=0):
            assert not writing.done()
            table.append(flights(("JFK", 1, 2)))
        table.append(flights(("JFK", 1, 3)))
        for held in of_coordinator.held_by_this_thread():
            held.release()
        assert writing.result(10) is not None
    assert [delay for *_, delay in rows_of(table.refresh().snapshot().to_arrow())] == [1, 2, 3]


def test_a_commit_that_gives_up_names_the_holder_of_that_time(place: Place) -> None:
    """The one that stopped it first may be gone by then."""
    table = place.create()
    first = table.lease(name="first job")
    with elsewhere(lambda: place.open().lease(name="second job")) as leasing:
        until(lambda: queue_of(place) == [("exclusive", True), ("exclusive", False)])
        with elsewhere(lambda: place.open(timeout_s=2).append(flights(("JFK", 1, 1)))) as writing:
            until(lambda: queue_of(place)[2:] == [("commit", False)])
            first.release()
            second = leasing.result(10)
            message = r"^another client has an exclusive lease 'second job', held by .*; wait until it is released"
            with pytest.raises(sluice.errors.LeaseHeld, match=message) as held:
                writing.result(10)
    assert held.value.facts["name"] == "second job"
    second.release()


@pytest.mark.shows("leases-without-gap")
@pytest.mark.zookeeper
def test_a_commit_beside_holders_who_never_pause_gets_through(tmp_path: Path, zookeeper_address: str) -> None:
    place = Place(str(tmp_path / "t"), zookeeper_address)
    table, stop = place.create(), threading.Event()

    def hold(_: int) -> int:
        mine, granted = place.open(), 0
        while not stop.is_set():
            with mine.lease():
                granted += 1
                time.sleep(0.02)
        return granted

    with ThreadPoolExecutor(4) as pool:
        holding = [pool.submit(hold, n) for n in range(4)]
        try:
            for n in range(10):
                table.append(flights(("JFK", 1, n)), timeout_s=30)
        finally:
            stop.set()
        granted = sum(each.result(30) for each in holding)
    assert table.refresh().snapshot().to_arrow().num_rows == 10
    assert granted > 10


OPERATIONS: dict[str, Callable[[sluice.Table], object]] = {
    "append": lambda t: t.append(flights(("JFK", 1, 1))),
    "overwrite": lambda t: t.overwrite(flights(("JFK", 1, 1)), where="origin = 'JFK'"),
    "overwrite all": lambda t: t.overwrite(flights(("LGA", 1, 1))),
    "delete": lambda t: t.delete("delay = 7"),
    "update": lambda t: t.update({"delay": "0"}, "origin = 'JFK'"),
    "upsert": lambda t: t.upsert(flights(("JFK", 1, 1)), on=["origin", "month"]),
    "truncate": lambda t: t.truncate("origin = 'JFK'"),
    "properties": lambda t: t.set_properties({"delta.appendOnly": "true"}),
}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_operation_that_touches_the_scope_is_stopped(place: Place, operation: str) -> None:
    table = place.create()
    table.append(flights(("JFK", 1, 7), ("LGA", 1, 7)))
    with table.lease(where="origin = 'JFK'", name="nightly") as lease:
        other = place.open(timeout_s=0.3, application="other")
        with pytest.raises(sluice.errors.LeaseHeld, match="'nightly' on origin = 'JFK', held by") as caught:
            by_another(lambda: OPERATIONS[operation](other))
        assert caught.value.facts["pid"] == os.getpid()
        assert caught.value.facts["lease"] in lease.nodes
        assert caught.value.facts["name"] == "nightly"
        assert caught.value.retryable
        assert queue_of(place) == [("exclusive", True)], "who gives up leaves nothing behind"
        assert table.refresh().version == 1
        OPERATIONS[operation](table)
    assert table.refresh().version == 2


def test_a_transaction_that_read_the_scope_and_writes_elsewhere_is_stopped(place: Place) -> None:
    table = place.create()
    table.append(flights(("JFK", 1, 7)))

    def copy() -> None:
        with place.open(timeout_s=2).begin() as transaction:
            transaction.append(transaction.scan(where="origin = 'JFK'").slice(0, 0))
            transaction.append(flights(("LGA", 1, 1)))

    with table.lease(where="origin = 'JFK'"), pytest.raises(sluice.errors.LeaseHeld):
        by_another(copy)
    with table.lease("shared", where="origin = 'JFK'"):
        by_another(copy)
    assert table.refresh().version == 2


def test_what_waited_is_compared_with_what_the_holder_did(place: Place) -> None:
    table = place.create()
    table.append(flights(("JFK", 1, 7)))
    with table.lease() as lease, elsewhere(lambda: place.open().update({"delay": "delay + 1"}, "origin = 'JFK'")) as waiting:
        time.sleep(0.1)
        table.update({"delay": "delay + 10"}, "origin = 'JFK'")
        lease.release()
        with pytest.raises(sluice.errors.ConcurrentModification):
            waiting.result(10)
    assert rows_of(table.refresh().snapshot().to_arrow()) == [("JFK", 1, 17)]


# -- losing it -----------------------------------------------------------------------------------------------------------


@pytest.mark.notices("commits-name-their-leases")
@pytest.mark.parametrize("take", ["table", "name"])
def test_a_commit_under_a_lease_whose_session_expired_is_refused(place: Place, take: str) -> None:
    table = place.create()
    lease = table.lease() if take == "table" else sluice.lease("nightly-load", coordinator=place.coordinator)

    def lose_it() -> None:
        with lease:
            expire(place.coordinator)
            with pytest.raises(sluice.errors.LeaseLost, match="take the lease again"):
                table.append(flights(("JFK", 1, 1)))
            assert lease.lost.wait(5)
            assert not lease.held

    with pytest.raises(sluice.errors.LeaseLost, match="while the block ran"):
        lose_it()
    assert table.refresh().version == 0
    table.append(flights(("JFK", 1, 1)))


def test_a_lease_of_another_coordinator_has_no_say(place: Place) -> None:
    table = place.create()
    elsewhere_address = f"memory://{uuid.uuid4().hex}"
    lease = sluice.lease("a", coordinator=elsewhere_address)
    expire(elsewhere_address)
    table.append(flights(("JFK", 1, 1)))
    lease.release()
    assert table.refresh().version == 1


def test_a_thread_that_works_for_the_holder_says_so(place: Place) -> None:
    table = place.create(ack="ratified")
    with table.lease() as lease:

        def work() -> sluice.Commit | None:
            with lease.bind():
                return place.open().append(flights(("JFK", 1, 1)))

        assert by_another(work) is not None
        with pytest.raises(sluice.errors.LeaseHeld):
            by_another(lambda: place.open(timeout_s=0.3).append(flights(("JFK", 1, 1))))


def test_a_plan_depends_on_the_leases_it_was_made_under_whoever_commits_it(place: Place) -> None:
    table = place.create()
    with table.lease() as lease:
        plans = [table.plan_write(FLIGHTS) for _ in range(2)]
        assert lease.reference.split(",") == list(plans[0].leases) == list(lease.nodes)
        assert by_another(lambda: place.open().commit_write(plans[0], plans[0].write(flights(("JFK", 1, 1))))) is not None
    with pytest.raises(sluice.errors.LeaseLost):
        by_another(lambda: place.open().commit_write(plans[1], plans[1].write(flights(("JFK", 1, 1)))))
    assert table.refresh().version == 1


def test_a_transaction_over_several_tables_depends_on_the_leases_too(place: Place, tmp_path: Path) -> None:
    orders = place.create()
    stock = Place(str(tmp_path / "stock"), place.coordinator).create()

    def both(timeout_s: float = 5.0) -> None:
        with sluice.transaction(timeout_s=timeout_s) as transaction:
            for table in (orders, stock):
                transaction[table].append(flights(("JFK", 1, 1)))

    with stock.lease():
        both()
        with pytest.raises(sluice.errors.LeaseHeld, match="/stock: "):
            by_another(lambda: both(0.3))
    lease = stock.lease()
    expire(place.coordinator)
    with pytest.raises(sluice.errors.LeaseLost):
        both()
    lease.release()
    assert (orders.refresh().version, stock.refresh().version) == (1, 1)


# -- asking --------------------------------------------------------------------------------------------------------------


def test_several_at_once(place: Place, tmp_path: Path) -> None:
    orders = place.create()
    stock = Place(str(tmp_path / "stock"), place.coordinator).create()
    with sluice.leases([stock, orders.lease_on(where="origin = 'JFK'"), sluice.lease_on("load", coordinator=place.coordinator)]) as lease:
        assert len(lease.nodes) == 3
        for ask in (lambda: stock.lease(wait_s=0), lambda: sluice.lease("load", coordinator=place.coordinator, wait_s=0)):
            with pytest.raises(sluice.errors.LeaseHeld):
                by_another(ask)
        by_another(lambda: orders.lease(where="origin <> 'JFK'", wait_s=0).release())


def test_holding_one_and_waiting_for_the_other_in_a_circle_is_told(place: Place, tmp_path: Path) -> None:
    orders = place.create()
    stock = Place(str(tmp_path / "stock"), place.coordinator).create()
    other_holds, i_wait = threading.Event(), threading.Event()

    def other() -> None:
        with stock.lease():
            other_holds.set()
            i_wait.wait(5)
            with pytest.raises(sluice.errors.DeadlockDetected, match="release the leases held"):
                orders.append(flights(("JFK", 1, 1)))

    with orders.lease(), elsewhere(other) as running:
        other_holds.wait(5)
        threading.Timer(0.2, i_wait.set).start()
        with stock.lease(wait_s=10):
            running.result(10)


BAD: dict[str, Callable[[sluice.Table], object]] = {
    "mode is 'read' of type str: give one of shared, exclusive": lambda t: t.lease("read"),
    "a lease covers whole partitions, but delay = 1 depends on rows; name its partition columns": lambda t: t.lease(
        where="origin = 'JFK' AND delay = 1"
    ),
    "nowhere": lambda t: t.lease(where="nowhere = 1"),
    "wait_s is -1": lambda t: t.lease(wait_s=-1),
    "wait_s is 'soon'": lambda t: t.lease(wait_s=cast("float", "soon")),
    "name is 'a": lambda t: t.lease(name="a\nb"),
    "1 to 200": lambda t: t.lease(name="a" * 201),
    "give a list": lambda _: sluice.leases([]),
    "give a list of": lambda _: sluice.leases("load"),
    "name is ''": lambda _: sluice.lease(""),
    "several coordinators": lambda t: sluice.leases([t, sluice.lease_on("a", coordinator="memory://another")]),
    "attempts is 0": lambda t: t.transact(lambda _: None, attempts=0),
}


@pytest.mark.parametrize("message", BAD)
def test_what_cannot_be_asked_for(place: Place, message: str) -> None:
    table = place.create()
    with pytest.raises(sluice.errors.InvalidRequest, match=message):
        BAD[message](table)


def test_a_table_without_partitions_is_leased_as_a_whole(tmp_path: Path) -> None:
    table = sluice.Table.create(tmp_path / "t", FLIGHTS, coordinator=f"memory://{uuid.uuid4().hex}")
    with pytest.raises(sluice.errors.InvalidRequest, match="the table has no partitions"):
        table.lease(where="origin = 'JFK'")
    with table.lease():
        table.append(flights(("JFK", 1, 1)))


# -- transactions that cannot starve --------------------------------------------------------------------------------------


def test_a_transaction_gives_up_after_its_attempts(place: Place) -> None:
    table = place.create(properties={"delta.isolationLevel": "Serializable"})
    table.append(flights(("JFK", 1, 0)))

    def work(transaction: sluice.Transaction) -> None:
        transaction.update({"delay": "delay + 100"}, "origin = 'JFK'")
        by_another(lambda: place.open().append(flights(("JFK", 1, 1))))

    with pytest.raises(sluice.errors.ConcurrentModification):
        table.transact(work, attempts=2)
    assert rows_of(table.refresh().snapshot().to_arrow()) == [("JFK", 1, 0), ("JFK", 1, 1), ("JFK", 1, 1)]


SCOPES = [
    (None, None),
    (Reads(whole_table=True), None),
    (Reads(predicates=("",)), None),
    (Reads(predicates=("delay = 1",)), None),
    (Reads(predicates=("origin = 'JFK' AND delay = 1", "month = 2")), "origin = 'JFK' OR month = 2"),
    (Reads(files=("a.parquet",)), None),
    (Reads(predicates=(f"origin IN ({', '.join(repr(str(n)) for n in range(5000))})",)), None),
]


@pytest.mark.parametrize(("reads", "expected"), SCOPES, ids=range(len(SCOPES)))
def test_the_scope_of_what_was_read(place: Place, reads: Reads | None, expected: str | None) -> None:
    scope = touched_by_reads(place.create().snapshot().raw, reads)
    assert (None if scope is None else scope.sql) == expected


# -- pins ----------------------------------------------------------------------------------------------------------------


def test_a_pinned_version_is_told_to_those_who_collect(place: Place) -> None:
    table = place.create()
    table.append(flights(("JFK", 1, 0)))
    context = context_of(table)
    assert pinned_versions(context) == set()
    with table.snapshot().pin(), table.snapshot(version=0).pin() as first:
        assert first.held
        assert pinned_versions(context) == {0, 1}
        first.release()
        assert pinned_versions(context) == {1}
        connect(place.coordinator).create(f"{context.tree.pins}/p-strange", b"?", ephemeral=True)
        assert pinned_versions(context) == {1, EVERYTHING}
    assert pinned_versions(context) == {EVERYTHING}


def test_a_version_that_is_gone_is_not_pinned(place: Place) -> None:
    table = place.create()
    table.append(flights(("JFK", 1, 0)))
    snapshot = table.snapshot(version=0)
    log = Path(place.location) / "_delta_log"
    (log / f"{0:020d}.json").unlink()
    with pytest.raises(sluice.errors.SluiceError):
        snapshot.pin()
    assert pinned_versions(context_of(table)) == set()
    published = sluice.TableSnapshot(snapshot._store, snapshot.raw)
    with pytest.raises(sluice.errors.InvalidRequest, match="without a coordinator"):
        published.pin()
