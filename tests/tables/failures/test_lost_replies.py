"""Requests and replies lost one by one on the line to a real ZooKeeper: every commit happens exactly once, and can be asked for.

Goal: whichever message of a commit is lost, the caller hears of a success, the log has the transaction once, and nothing is
missing in between. Method: a proxy breaks the connection at the n-th message of a commit, for every n there is.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

import sluice
from sluice.coordinator.limits import Limits
from sluice.coordinator.service import connect
from sluice.coordinator.service.memory import Call, Fault, MemoryCoordination
from tests.fixtures.zookeeper import Proxy
from tests.tables.conftest import Place, flights, rows_of

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
    table = sluice.Table.open(location, coordinator=address, limits=IMPATIENT.but(fast_path=fast_path))
    write(table, 0)  # what only a first commit asks is behind us
    commits: list[sluice.Commit] = []
    for number in itertools.count(1):
        assert number < MESSAGES_MAX, "a commit takes ever more messages"
        line.arm(lost, number)
        commit = write(table, number)
        fired = line.disarm()
        assert commit is not None
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
    limits = IMPATIENT.but(verdicts_kept=9)
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
        commit = table.append(flights(("JFK", 1, 1)))
    finally:
        coordination.before = coordination.after = None
    assert lost
    assert commit is not None
    assert [entry.transaction_id for entry in table.history(limit=None)].count(commit.transaction_id) == 1
    assert rows_of(table.refresh().snapshot().to_arrow(where="origin = 'JFK'")) == [("JFK", 1, 0), ("JFK", 1, 1)]
    assert table.snapshot().to_arrow().num_rows == 82
    outcome = table.outcome(commit.transaction_id)
    assert outcome.commit is not None
    assert outcome.commit.version == commit.version == 2
