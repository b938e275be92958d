"""Heads of several tables as of one moment, however they are read and whoever commits meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from sluice.coordinator.clock import Deadline, SystemClock
from sluice.coordinator.errors import CoordinatorUnavailable, SessionLost
from sluice.coordinator.instants import heads_together, version_beside
from sluice.coordinator.layout import VerdictName
from sluice.coordinator.memory import Fault, MemorySession
from sluice.coordinator.store import ANY_VERSION, Node

from .joint_world import JointClient, JointWorld
from .world import append_intent


def soon(seconds: float = 5.0) -> Deadline:
    return Deadline.after(seconds, SystemClock())


def between_reads(monkeypatch: pytest.MonkeyPatch, writer: JointClient, *, times: int) -> None:
    """Heads are read one after the other, as by requests in a row; others commit in between."""
    honest = MemorySession.read_many
    left = [times]

    def one_by_one(session: MemorySession, paths: Sequence[str]) -> Any:
        found: list[Node | None] = []
        for path in paths:
            found += honest(session, [path])
            if left[0] > 0 and len(paths) > 1 and path.endswith("/head"):
                left[0] -= 1
                writer.append("ab")
        return found

    monkeypatch.setattr(MemorySession, "read_many", one_by_one)


def test_heads_of_two_tables_are_those_of_one_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every transaction writes both tables, so that they have the same version at every moment."""
    world = JointWorld("ab")
    writer, reader = world.client(), world.client()
    writer.append("ab")
    between_reads(monkeypatch, writer, times=3)
    heads = heads_together([reader.committers[name].context for name in "ab"], soon())
    assert heads[0].version == heads[1].version > 0
    world.check()


def test_a_moment_that_never_comes_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    world = JointWorld("ab")
    writer, reader = world.client(), world.client()
    between_reads(monkeypatch, writer, times=10_000)
    with pytest.raises(CoordinatorUnavailable, match="no moment was found"):
        heads_together([reader.committers[name].context for name in "ab"], soon(0.05))


@pytest.mark.parametrize("fault", [Fault.EXPIRED_BEFORE, Fault.REQUEST_LOST, Fault.REPLY_LOST, Fault.EXPIRED_AFTER])
@pytest.mark.parametrize("skip", [0, 1])
def test_a_session_that_expires_meanwhile_is_replaced(fault: Fault, skip: int) -> None:
    """What is read hangs on no session, and checks change nothing: nobody hears of it."""
    world = JointWorld("ab")
    client = world.client()
    client.append("ab")
    world.coordination.inject(fault, session=client.session, skip=skip)
    assert [head.version for head in heads_together([client.committers[name].context for name in "ab"], soon())] == [0, 0]


def test_a_coordinator_that_stays_away_is_told_as_such() -> None:
    world = JointWorld("ab")
    client = world.client()
    for _ in range(2):
        world.coordination.inject(Fault.EXPIRED_BEFORE)
    with pytest.raises(SessionLost, match="expired"):
        heads_together([client.committers[name].context for name in "ab"], soon(0.0))


def test_a_version_beside_others_is_one_that_stood_with_all_of_them() -> None:
    """One that is asked for later is shown as it was before the first of the others went on."""
    world = JointWorld("abc")
    client = world.client()
    client.append("abc")
    client.append("ac", a="a1", c="c1")
    other = client.committers["b"]
    other.commit(append_intent(client.head("b")), client.head("b"), soon())
    client.append("abc")
    contexts = {name: client.committers[name].context for name in "abc"}
    assert version_beside([(contexts["a"], 0), (contexts["c"], 0)], contexts["b"]) == 0
    assert version_beside([(contexts["a"], 1), (contexts["c"], 1)], contexts["b"]) == 1
    assert version_beside([(contexts["a"], 1), (contexts["c"], 0)], contexts["b"]) == 0
    assert version_beside([(contexts["a"], 2)], contexts["b"]) is None


def forget(client: JointClient, name: str, version: int) -> None:
    """Remove the record of a version, as it is pruned some time after its publication."""
    tree = client.world.tables[name].tree
    for child in client.session.children(tree.verdicts) or ():
        record = VerdictName.parse(child)
        if record is not None and record.version == version:
            client.session.delete(f"{tree.verdicts}/{child}", version=ANY_VERSION)


@pytest.mark.parametrize(("name", "version"), [("a", 1), ("b", 0), ("b", 1)])
def test_a_moment_whose_records_were_pruned_is_not_guessed(name: str, version: int) -> None:
    """What is left tells of commits that are not next to each other: `a` had its version 0 before `b` had its last one."""
    world = JointWorld("ab")
    client = world.client()
    client.append("ab")
    for each in "aabb":
        client.committers[each].commit(append_intent(client.head(each)), client.head(each), soon())
    contexts = {name: client.committers[name].context for name in "ab"}
    assert version_beside([(contexts["a"], 0)], contexts["b"]) == 0
    forget(client, name, version)
    assert version_beside([(contexts["a"], 0)], contexts["b"]) is None


@pytest.mark.parametrize("verb", ["children", "read"])
@pytest.mark.parametrize("skip", [0, 1])
def test_a_session_that_expires_while_records_are_read_is_replaced(verb: str, skip: int) -> None:
    world = JointWorld("ab")
    client = world.client()
    client.append("ab")
    client.append("ab")
    contexts = {name: client.committers[name].context for name in "ab"}
    world.coordination.inject(Fault.EXPIRED_BEFORE, verb=verb, skip=skip)
    assert version_beside([(contexts["a"], 0)], contexts["b"]) == 0
