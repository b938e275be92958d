"""One deadline for a call, or for several calls together: every wait ends with it, whichever service is away."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import sluice
from sluice.coordinator.service import connect
from sluice.coordinator.service.clock import SystemClock, bounded_s, bounding
from tests.fixtures.zookeeper import Proxy
from tests.tables.conftest import FLIGHTS, Place, flights, rows_of


def commit_write(table: sluice.Table, **how: Any) -> None:
    plan = table.plan_write(FLIGHTS)
    table.commit_write(plan, plan.write(flights(("JFK", 1, 1))), **how)


def transaction(begun: sluice.Transaction, **how: Any) -> None:
    begun.delete("delay = 0")
    begun.commit(**how)


def together(table: sluice.Table, **how: Any) -> None:
    with sluice.transaction(tables=[table], **how) as tx:
        tx[table].delete("delay = 0")


WRITES: dict[str, Callable[..., object]] = {
    "append": lambda table, **how: table.append(flights(("JFK", 1, 1)), **how),
    "overwrite": lambda table, **how: table.overwrite(flights(("JFK", 1, 1)), **how),
    "delete": lambda table, **how: table.delete("delay = 0", **how),
    "update": lambda table, **how: table.update({"delay": "delay + 1"}, **how),
    "upsert": lambda table, **how: table.upsert(flights(("JFK", 1, 1)), on="origin", **how),
    "truncate": lambda table, **how: table.truncate(**how),
    "compact": lambda table, **how: table.compact("major", **how),
    "set_properties": lambda table, **how: table.set_properties({"delta.targetFileSize": "1mb"}, **how),
    "unset_properties": lambda table, **how: table.unset_properties(["delta.dataSkippingNumIndexedCols"], **how),
    "set_domain": lambda table, **how: table.set_domain("mine", "1", **how),
    "remove_domain": lambda table, **how: table.remove_domain("other", **how),
    "commit_write": commit_write,
    "begin": lambda table, **how: transaction(table.begin(**how)),
    "transaction.commit": lambda table, **how: transaction(table.begin(), **how),
    "sluice.transaction": together,
    "transact": lambda table, **how: table.transact(lambda tx: tx.delete("delay = 0"), **how),
    "sluice.transact": lambda table, **how: sluice.transact(lambda tx: tx[table].delete("delay = 0"), **how),
    "detach": lambda table, **how: table.detach(**how),
}


class Manual(SystemClock):
    """A monotonic clock that the test moves."""

    def __init__(self) -> None:
        self.at_s = 0.0

    def monotonic_s(self) -> float:
        return self.at_s


@pytest.fixture
def table(place: Place) -> sluice.Table:
    made = place.create(properties={"delta.dataSkippingNumIndexedCols": "3"})
    made.append(flights(("JFK", 1, 0)))
    made.append(flights(("JFK", 1, 5)))
    made.set_domain("other", "x")
    return made


@pytest.mark.parametrize("name", WRITES)
def test_every_write_ends_with_a_deadline_it_shares(place: Place, table: sluice.Table, name: str) -> None:
    clock = Manual()
    deadline = sluice.Deadline.after(60, clock)
    clock.at_s = 60.0
    before = table.refresh().version
    with pytest.raises(sluice.errors.OutcomeUnknown) as over:
        WRITES[name](place.open(), timeout_s=deadline)
    assert over.value.stage == "staged"
    assert table.refresh().version == before
    clock.at_s = 59.0
    WRITES[name](place.open(), timeout_s=deadline)
    assert table.refresh().version == before + 1


def test_it_is_one_time_for_all_its_calls(place: Place, table: sluice.Table) -> None:
    clock = Manual()
    deadline = sluice.Deadline.after(10, clock)
    for _ in range(3):
        table.append(flights(("EWR", 1, 1)), timeout_s=deadline)
        clock.at_s += 4.0
    with pytest.raises(sluice.errors.OutcomeUnknown):
        table.append(flights(("EWR", 1, 1)), timeout_s=deadline)
    assert place.open().snapshot().to_arrow(where="origin = 'EWR'").num_rows == 3
    assert (deadline.over, deadline.left_s) == (True, 0.0)


def test_waiting_for_a_lease_ends_with_it(place: Place, table: sluice.Table) -> None:
    with sluice.lease("load", coordinator=place.coordinator), ThreadPoolExecutor(1) as another:
        waiting = another.submit(sluice.lease, "load", coordinator=place.coordinator, wait_s=sluice.Deadline.after(0.05))
        with pytest.raises(sluice.errors.LeaseHeld):
            waiting.result(30)
    with table.lease(wait_s=sluice.Deadline.after(5)) as lease:
        assert lease.held


@pytest.mark.parametrize("timeout_s", [-1, float("nan"), "5", True])
@pytest.mark.parametrize("name", ["append", "detach", "sluice.transaction"])
def test_what_is_no_time_is_refused(place: Place, table: sluice.Table, name: str, timeout_s: Any) -> None:
    before = table.refresh().version
    with pytest.raises(sluice.errors.InvalidRequest, match="timeout_s"):
        WRITES[name](place.open(), timeout_s=timeout_s)
    assert table.refresh().version == before


def test_requests_wait_for_no_longer_than_their_call_and_a_moment() -> None:
    clock = Manual()
    assert bounded_s(120) == 120
    moment_s = 0.3  # for all requests after the end together
    with bounding(60, clock):
        assert bounded_s(120) == pytest.approx(60 + moment_s)
        with bounding(90, clock):
            assert bounded_s(120) == pytest.approx(60 + moment_s)
        with bounding(sluice.Deadline.after(5, clock), clock):
            assert bounded_s(120) == pytest.approx(5 + moment_s)
            clock.at_s = 5.0
            assert bounded_s(120) == pytest.approx(moment_s)
            clock.at_s = 6.0
            assert bounded_s(120) == pytest.approx(0.01)
            clock.at_s = 5.0
        assert bounded_s(120) == pytest.approx(55 + moment_s)
    assert bounded_s(120) == 120


@pytest.mark.zookeeper
def test_a_coordinator_that_is_away_is_waited_for_only_so_long(tmp_path: Path, zookeeper_proxy: Proxy, zookeeper_chroot: str) -> None:
    address = f"zk://{zookeeper_proxy.hosts}{zookeeper_chroot}?session_timeout_s=30"  # a request alone would wait for two minutes
    table = sluice.Table.create(tmp_path / "flights", FLIGHTS, coordinator=address)
    try:
        table.append(flights(("JFK", 1, 0)))
        begun = table.begin()
        begun.append(flights(("JFK", 1, 1)))
        zookeeper_proxy.cut()
        calls: list[Callable[[sluice.Deadline], object]] = [
            lambda deadline: begun.commit(timeout_s=deadline),
            lambda deadline: begun.withdraw(timeout_s=deadline),
            lambda deadline: table.append(flights(("JFK", 1, 2)), timeout_s=deadline),
            lambda deadline: table.delete("delay = 0", timeout_s=deadline),
            lambda deadline: table.refresh(timeout_s=deadline),
            lambda deadline: table.snapshot(timeout_s=deadline),
            lambda deadline: table.outcome("6b05be2f-0000-8002-8000-3f606a813a77", timeout_s=deadline),
            lambda deadline: sluice.read_together([table], timeout_s=deadline),
        ]
        for call in calls:
            began = time.monotonic()
            with pytest.raises((sluice.errors.CoordinatorUnavailable, sluice.errors.OutcomeUnknown)):
                call(sluice.Deadline.after(0.5))
            assert time.monotonic() - began < 20
        assert table.snapshot(consistency="published").to_arrow().num_rows == 1
        zookeeper_proxy.restore()
        assert begun.commit() is not None
        assert rows_of(table.snapshot().to_arrow()) == [("JFK", 1, 0), ("JFK", 1, 1)]
    finally:
        zookeeper_proxy.restore()
        connect.release(address)


def test_the_wait_for_a_turn_is_part_of_the_time(place: Place, table: sluice.Table) -> None:
    """After a loss the next attempt waits for its turn, and then for what is in the commit's way: within one time."""
    lost = table.begin()
    lost.delete("delay = 0")
    place.open().delete("delay = 0")
    with pytest.raises(sluice.errors.ConcurrentModification):
        lost.commit()
    with ThreadPoolExecutor(1) as another:
        lease = another.submit(lambda: place.open().lease()).result(30)
        began = time.monotonic()
        with pytest.raises((sluice.errors.LeaseHeld, sluice.errors.OutcomeUnknown)):
            table.delete("delay = 5", timeout_s=4)
        assert 3.5 <= time.monotonic() - began <= 20  # the time of a call that names none is longer
        another.submit(lease.release).result(30)
    table.delete("delay = 5", timeout_s=60)
