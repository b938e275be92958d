"""Requests and replies lost one by one on the line to a real ZooKeeper: every commit happens exactly once, and can be asked for.

Goal: whichever message of a commit is lost, the caller hears of a success, the log has the transaction once, and nothing is
missing in between. Method: a proxy breaks the connection at the n-th message of a commit, for every n there is.

One deadline for a call, or for several calls together: every wait ends with it, whichever service is away.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

import sluice
from sluice.coordinator.limits import Limits
from sluice.coordinator.service import connect
from sluice.coordinator.service.clock import SystemClock, bounded_s, bounding
from sluice.coordinator.service.memory import Call, Fault, MemoryCoordination
from tests.fixtures.zookeeper import Proxy
from tests.tables.conftest import FLIGHTS, Place, flights, present, rows_of

SCHEMA = pa.schema([pa.field("part", pa.string(), nullable=False), pa.field("value", pa.int64())])
MESSAGES_MAX = 40
IMPATIENT = Limits(patience_s=0.05, patience_s_max=0.5)


class BreakingProxy(Proxy):
    """Loses the n-th request since `arm`, or the reply to it."""

    def __init__(self, target: str) -> None:
        super().__init__(target)
        self._left = 0
        self._kind = ""

    def arm(self, kind: str, number: int) -> None:
        self._kind, self._left = kind, number

    def disarm(self) -> bool:
        """Whether the message was lost; none is from now on."""
        lost, self._left = self._left <= 0, 0
        return lost

    def take_fault(self) -> str | None:
        self._left -= 1
        return self._kind if self._left == 0 else None


@pytest.fixture
def line(zookeeper_hosts: str) -> Iterator[BreakingProxy]:
    proxy = BreakingProxy(zookeeper_hosts)
    yield proxy
    proxy.close()


@pytest.fixture
def address(line: BreakingProxy, zookeeper_chroot: str) -> Iterator[str]:
    """A coordinator that is reached over the breaking line."""
    address = f"zk://{line.hosts}{zookeeper_chroot}?session_timeout_s=20&retry_s=20"
    yield address
    connect.release(address)


def rows(part: str, value: int) -> pa.Table:
    return pa.table({"part": [part], "value": pa.array([value], pa.int64())}, schema=SCHEMA)


def append(table: sluice.Table, value: int) -> sluice.Commit | None:
    return table.append(rows("appended", value))


def overwrite(table: sluice.Table, value: int) -> sluice.Commit | None:
    return table.overwrite(rows("replaced", value), where="part = 'replaced'")


@pytest.mark.shows("lost-request")
@pytest.mark.zookeeper
@pytest.mark.slow
@pytest.mark.parametrize("fast_path", [True, False], ids=["direct", "queued"])
@pytest.mark.parametrize("write", [append, overwrite])
@pytest.mark.parametrize("lost", ["request", "reply"])
@pytest.mark.many
def test_every_message_of_a_commit_may_be_lost(
    tmp_path: Path,
    line: BreakingProxy,
    address: str,
    lost: str,
    write: Callable[[sluice.Table, int], sluice.Commit | None],
    fast_path: bool,
) -> None:
    location = tmp_path / "table"
    sluice.Table.create(location, SCHEMA, coordinator=address)
    table = sluice.Table.open(location, coordinator=address, limits=replace(IMPATIENT, fast_path=fast_path))
    write(table, 0)  # what only a first commit asks is behind us
    commits: list[sluice.Commit] = []
    for number in itertools.count(1):
        assert number < MESSAGES_MAX, "a commit takes ever more messages"
        line.arm(lost, number)
        commit = present(write(table, number))
        fired = line.disarm()
        assert commit.published
        outcome = table.outcome(commit.transaction_id)
        assert outcome.state == "committed"
        assert outcome.commit is not None
        assert (outcome.commit.version, outcome.commit.ordinal) == (commit.version, commit.ordinal)
        commits.append(commit)
        if not fired:
            break
    assert len(commits) > 4, "hardly anything was lost"
    assert [commit.version for commit in commits] == list(range(2, len(commits) + 2))

    values = list(range(len(commits) + 1)) if write is append else [len(commits)]
    found = table.refresh().snapshot().to_arrow()
    assert sorted(found["value"].to_pylist()) == values
    assert sorted(deltalake.DeltaTable(location).to_pyarrow_table()["value"].to_pylist()) == values
    names = sorted(path.name for path in (location / "_delta_log").glob("*.json"))
    assert names == [f"{version:020d}.json" for version in range(len(commits) + 2)]
    listed = [entry.transaction_id for entry in table.history(limit=None)]
    assert len(set(listed)) == len(listed) == len(commits) + 2


@pytest.mark.parametrize("fault", [Fault.REPLY_LOST, Fault.EXPIRED_AFTER])
def test_a_verdict_that_nobody_keeps_any_more_when_its_owner_asks(place: Place, fault: Fault) -> None:
    """The reply to a commit is lost, and the others commit so much meanwhile that the record of its verdict is pruned."""
    place.create()
    limits = replace(IMPATIENT, verdicts_kept=9)
    table, others = place.open(limits=limits), place.open(limits=limits)
    table.append(flights(("JFK", 1, 0)))
    coordination = MemoryCoordination.named(place.coordinator.removeprefix("memory://"))
    lost: list[int] = []

    def lose(call: Call) -> Fault | None:
        """The multi that ratifies is the one that writes the head."""
        if lost or call.verb != "apply" or not any(op.path.endswith("/head") for op in call.ops):
            return None
        lost.append(call.number)
        return fault

    def overtake(call: Call) -> None:
        if lost and call.number == lost[0]:
            coordination.before = coordination.after = None
            for number in range(80):
                others.append(flights(("EWR", 2, number)))

    coordination.before, coordination.after = lose, overtake
    try:
        commit = present(table.append(flights(("JFK", 1, 1))))
    finally:
        coordination.before = coordination.after = None
    assert lost
    assert [entry.transaction_id for entry in table.history(limit=None)].count(commit.transaction_id) == 1
    assert rows_of(table.refresh().snapshot().to_arrow(where="origin = 'JFK'")) == [("JFK", 1, 0), ("JFK", 1, 1)]
    assert table.snapshot().to_arrow().num_rows == 82
    outcome = table.outcome(commit.transaction_id)
    assert present(outcome.commit).version == commit.version == 2


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
