"""Heads of several tables as of one moment, however they are read, and while others commit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from sluice.coordinator.commit.outcomes import version_beside, versions_together
from sluice.coordinator.errors import SessionLost
from sluice.coordinator.nodes.layout import VerdictName
from sluice.coordinator.service.memory import Call, Fault, MemorySession
from sluice.coordinator.service.store import ANY_VERSION, Node
from tests.coordinator.joint_world import JointClient, JointWorld, alone
from tests.coordinator.world import QUICK, append_intent, commit_one, soon


def between_reads(monkeypatch: pytest.MonkeyPatch, writer: JointClient) -> None:
    """Nodes are read one after the other, as by requests in a row; others commit before each of them."""
    honest, inside = MemorySession.look, [False]

    def one_by_one(session: MemorySession, nodes: Sequence[str], parents: Sequence[str]) -> Any:
        if inside[0] or len(parents) < 2 or len(nodes) != 2:
            return honest(session, nodes, parents)
        found: tuple[list[Node | None], list[list[str] | None]] = ([], [])
        inside[0] = True
        for path in (*nodes, *parents):
            writer.append("ab")
            shown = honest(session, [path], []) if path in nodes else honest(session, [], [path])
            found[0].extend(shown[0])
            found[1].extend(shown[1])
        inside[0] = False
        return found

    monkeypatch.setattr(MemorySession, "look", one_by_one)


@pytest.mark.notices("one-moment-of-several-heads")
def test_versions_of_two_tables_are_those_of_one_moment_however_busy_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every transaction writes both tables, so that they have the same version at every moment; they never stand still."""
    world = JointWorld("ab")
    writer, reader = world.client(), world.client()
    writer.append("ab")
    between_reads(monkeypatch, writer)
    for _ in range(3):
        acknowledged = writer.head("b").version
        versions = versions_together([reader.coordinated[name].context for name in "ab"], soon())
        assert versions[0] == versions[1] > acknowledged
    world.check()


def test_versions_that_were_not_written_together_stood_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """`b` is committed only after `a`, and once for each of its commits: it is never seen ahead, nor two behind."""
    world = JointWorld("ab")
    reader, writers = world.client(), world.client()
    world.client().append("ab")
    honest, inside = MemorySession.look, [False]

    def by_turns(session: MemorySession, nodes: Sequence[str], parents: Sequence[str]) -> Any:
        if inside[0] or len(nodes) != 2:
            return honest(session, nodes, parents)
        inside[0] = True
        first = honest(session, nodes[:1], [])
        for name in "abab":
            alone(writers, name, append_intent(writers.head(name)))
        second = honest(session, nodes[1:], parents)
        inside[0] = False
        return [*first[0], *second[0]], second[1]

    monkeypatch.setattr(MemorySession, "look", by_turns)
    for _ in range(3):
        a, b = versions_together([reader.coordinated[name].context for name in "ab"], soon())
        assert a in (b, b + 1)


def test_a_client_that_slept_while_records_went_looks_again() -> None:
    world = JointWorld("ab")
    few = replace(QUICK, backlog_versions_max=1, verdicts_kept=2)
    writer, reader = world.client(few), world.client()
    writer.append("ab")
    seen: list[Call] = []

    def overtake(call: Call) -> None:
        if call.verb == "look" and call.session_id == reader.session.session_id:
            seen.append(call)
            if len(seen) == 1:
                for _ in range(5):
                    writer.append("ab")

    world.coordination.after = overtake
    versions = versions_together([reader.coordinated[name].context for name in "ab"], soon())
    world.coordination.after = None
    assert versions == [5, 5]
    assert len(seen) == 2


def test_a_tree_without_records_has_the_version_of_its_head() -> None:
    world = JointWorld("ab")
    client = world.client()
    assert versions_together([client.coordinated[name].context for name in "ab"], soon()) == [-1, -1]
    alone(client, "a", append_intent(client.head("a")))
    assert versions_together([client.coordinated[name].context for name in "ab"], soon()) == [0, -1]


@pytest.mark.parametrize("fault", [Fault.EXPIRED_BEFORE, Fault.REQUEST_LOST, Fault.REPLY_LOST, Fault.EXPIRED_AFTER])
@pytest.mark.parametrize("skip", [0, 1])
def test_a_session_that_expires_meanwhile_is_replaced(fault: Fault, skip: int) -> None:
    """What is read hangs on no session, and checks change nothing: nobody hears of it."""
    world = JointWorld("ab")
    client = world.client()
    client.append("ab")
    world.coordination.inject(fault, session=client.session, skip=skip)
    assert versions_together([client.coordinated[name].context for name in "ab"], soon()) == [0, 0]


def test_a_coordinator_that_stays_away_is_told_as_such() -> None:
    world = JointWorld("ab")
    client = world.client()
    for _ in range(2):
        world.coordination.inject(Fault.EXPIRED_BEFORE)
    with pytest.raises(SessionLost, match="expired"):
        versions_together([client.coordinated[name].context for name in "ab"], soon(0.0))


@pytest.mark.notices("a-moment-before-all-ends")
def test_a_version_beside_others_is_one_that_stood_with_all_of_them() -> None:
    """One that is asked for later is shown as it was before the first of the others went on."""
    world = JointWorld("abc")
    client = world.client()
    client.append("abc")
    client.append("ac", a="a1", c="c1")
    commit_one(client.coordinated["b"], append_intent(client.head("b")), client.head("b"), soon())
    client.append("abc")
    contexts = {name: client.coordinated[name].context for name in "abc"}
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


@pytest.mark.notices("a-moment-that-is-known")
@pytest.mark.parametrize(("name", "version"), [("a", 1), ("b", 0), ("b", 1)])
def test_a_moment_whose_records_were_pruned_is_not_guessed(name: str, version: int) -> None:
    """What is left tells of commits that are not next to each other: `a` had its version 0 before `b` had its last one."""
    world = JointWorld("ab")
    client = world.client()
    client.append("ab")
    for each in "aabb":
        commit_one(client.coordinated[each], append_intent(client.head(each)), client.head(each), soon())
    contexts = {name: client.coordinated[name].context for name in "ab"}
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
    contexts = {name: client.coordinated[name].context for name in "ab"}
    world.coordination.inject(Fault.EXPIRED_BEFORE, verb=verb, skip=skip)
    assert version_beside([(contexts["a"], 0)], contexts["b"]) == 0
