"""Transactions over several tables that are refused: lists and slots that lie, tables that vanished, what another table refused."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import orjson
import pytest

from sluice.coordinator.commit import decision
from sluice.coordinator.commit.decider import Decider, QueueView
from sluice.coordinator.commit.decision import SIBLINGS, DecisionInput, Queued, resolve
from sluice.coordinator.commit.transactions import settle_queue
from sluice.coordinator.errors import ConcurrentTransactionException, CoordinatorUnavailable, NotCommitted, OutcomeUnknown, Refused
from sluice.coordinator.formats import MalformedRecord, typed
from sluice.coordinator.rules.intent import TABLES_MAX, Intent, Joint
from sluice.coordinator.rules.winner import Member
from sluice.coordinator.service.memory import Call
from sluice.coordinator.service.store import Create, Write
from sluice.storage.errors import InvariantBroken
from tests.coordinator.commit.test_joint import joint_rewrite, single, world
from tests.coordinator.joint_world import JointClient, JointWorld
from tests.coordinator.world import DIRECT, QUICK, app_intent, append_intent, no_vectors, ratifies, rewrite_intent, soon

__all__ = ["world"]


@pytest.mark.notices("never-with-one-table-alone")
def test_i11_a_joint_slot_is_never_decided_with_one_table(world: JointWorld) -> None:
    client = world.client()
    joint = Joint((world.location("a"), world.location("b")))
    intent = replace(append_intent(client.head("a")), joint=joint)
    queue = [Queued(0, intent.transaction_id, Member(intent, intent.actions.encode()))]
    with pytest.raises(InvariantBroken, match="I11"):
        resolve(DecisionInput(client.head("a"), queue, {}, QUICK, no_vectors), room=8)


@pytest.mark.notices("all-tables-or-none")
def test_i11_a_decision_that_leaves_a_table_out_is_not_recorded(world: JointWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused in one table and committed in the other: not even when deciding were wrong."""
    client = world.client()
    client.append("ab", a="old.parquet")
    doomed = joint_rewrite(client, "a", "old.parquet", "b")
    single(client, "a", rewrite_intent(client.head("a"), "old.parquet", "new.parquet"))
    monkeypatch.setattr(decision, "_objection", lambda _: None)
    with pytest.raises(InvariantBroken, match="I11"):
        client.commit(doomed)
    assert len(world.tables["b"].log()) == 1
    monkeypatch.undo()
    assert client.outcome("b", doomed["b"].transaction_id).state == "refused"


def test_who_is_overtaken_in_one_table_records_nothing_in_the_others(world: JointWorld) -> None:
    """The multi succeeds only with all heads."""
    slow, fast = world.client(), world.client(DIRECT)
    overtaken: list[int] = []

    def overtake(call: Call) -> None:
        if ratifies(call) and call.session_id == slow.session.session_id and not overtaken:
            overtaken.append(call.number)
            state = fast.coordinated["b"].context.read_head()
            assert state is not None
            fast.session.apply([Write(world.tables["b"].tree.head, state[0].encode(), state[1].version)])
            assert world.tables["a"].log() == world.tables["b"].log() == []

    world.coordination.before = overtake
    commits = slow.append("ab")
    assert overtaken
    assert commits["a"].version == commits["b"].version == 0


def lying(client: JointClient, names: str, listed: str, *, at_once: bool = True, guid: str | None = None) -> str:
    """Slots in some tables that name others."""
    intents = client.intents(names)
    guid = guid or next(iter(intents.values())).transaction_id
    joint = Joint(tuple(sorted(client.world.location(name) for name in listed)))
    ops = [
        Create(client.world.tables[n].tree.slot_prefix(0, guid), replace(i, joint=joint, transaction_id=guid).encode(), sequential=True)
        for n, i in intents.items()
    ]
    for some in [ops] if at_once else [[op] for op in ops]:
        client.session.apply(some)
    return guid


@pytest.mark.parametrize(("names", "listed", "at_once"), [("a", "ab", True), ("ab", "abc", True), ("ab", "ab", False)])
def test_slots_that_lie_are_refused_and_stop_nobody(world: JointWorld, names: str, listed: str, at_once: bool) -> None:
    liar, client = world.client(), world.client()
    guid = lying(liar, names, listed, at_once=at_once)
    for name in names:
        single(client, name, append_intent(client.head(name)))
        outcome = client.outcome(name, guid)
        assert isinstance(outcome.error, Refused)
        assert outcome.error.rule == SIBLINGS
    assert client.append("abc")["c"].version == 0


@pytest.mark.notices("siblings-were-made-together")
def test_slots_made_one_by_one_in_opposite_orders_are_no_circle(world: JointWorld) -> None:
    liar, client = world.client(), world.client()
    one = lying(liar, "ab", "ab", at_once=False)
    first = lying(liar, "b", "ab")
    lying(liar, "a", "ab", guid=first)
    client.append("ab")
    assert {client.outcome(name, guid).state for name in "ab" for guid in (one, first)} == {"refused"}


@pytest.mark.notices("siblings-say-the-same")
def test_lists_that_differ_are_refused(world: JointWorld) -> None:
    liar, client = world.client(), world.client()
    guid = "11111111-1111-1111-1111-111111111111"
    ops = []
    for name, listed in (("a", "ab"), ("b", "bc")):
        joint = Joint(tuple(sorted(world.location(each) for each in listed)))
        intent = replace(append_intent(client.head(name)), transaction_id=guid, joint=joint)
        ops.append(Create(world.tables[name].tree.slot_prefix(0, guid), intent.encode(), sequential=True))
    liar.session.apply(ops)
    client.append("abc")
    assert [client.outcome(name, guid).state for name in "ab"] == ["refused", "refused"]


def test_a_table_that_vanished_refuses_it_in_the_others(world: JointWorld) -> None:
    dead, client = world.client(), world.client()
    intents = dead.intents("abc")
    dead.file(intents)
    world.vanish("b")
    dead.session.close()
    single(client, "a", append_intent(client.head("a")))
    single(client, "c", append_intent(client.head("c")))
    outcome = client.outcome("c", intents["c"].transaction_id)
    assert isinstance(outcome.error, Refused)
    assert outcome.error.facts["table"] == world.location("b")


@pytest.mark.parametrize(
    "tables",
    [
        [],
        ["memory://x"],
        ["memory://y", "memory://x"],
        ["memory://x", "memory://x"],
        ["ftp://x", "memory://y"],
        ["memory://a\n", "memory://y"],
        [7, "memory://y"],
        [{"location": "memory://x"}, {"location": "memory://y"}],
        [f"memory://{n:04}" for n in range(TABLES_MAX + 1)],
    ],
)
def test_a_list_of_tables_that_is_none_is_malformed(tables: object) -> None:
    with pytest.raises(MalformedRecord):
        typed({"tables": tables}, Joint, "intent.joint")


def test_a_malformed_one_is_refused_alone(world: JointWorld) -> None:
    liar, client = world.client(), world.client()
    intent = append_intent(client.head("a"))
    fields = orjson.loads(intent.encode()) | {"joint": {"tables": ["../../x"]}}
    liar.session.create(world.tables["a"].tree.slot_prefix(0, intent.transaction_id), orjson.dumps(fields), sequential=True)
    single(client, "a", append_intent(client.head("a")))
    assert client.outcome("a", intent.transaction_id).state == "refused"


def test_actions_that_are_missing_in_one_table_refuse_all(world: JointWorld) -> None:
    client = world.client()
    intents = client.intents("ab")
    intents["b"] = replace(intents["b"], actions="", staged="_delta_log/_staged_commits/gone.json")
    with pytest.raises(Refused, match="missing"):
        client.commit(intents)
    assert client.append("ab")["a"].version == 0


def refused_elsewhere(world: JointWorld) -> tuple[str, str]:
    """A transaction that has no slot in a, refused in b; its slot in c is behind one of a single table. The ids of both."""
    dead, other = world.client(), world.client()
    first = append_intent(dead.head("c"))
    dead.session.create(world.tables["c"].tree.slot_prefix(0, first.transaction_id), first.encode(), sequential=True)
    guid = lying(dead, "bc", "abc")
    dead.session.close()
    assert other.outcome("b", guid).state == "refused"
    assert other.head("c").slot == -1
    return guid, first.transaction_id


@pytest.mark.parametrize("serial", [True, False])
def test_what_another_table_refused_is_decided_where_it_is_asked_for(world: JointWorld, serial: bool) -> None:
    """So are the slots before it: a "serial" read waits for those, and garbage collection for the slot."""
    guid, before = refused_elsewhere(world)
    client = world.client()
    if serial:
        settle_queue(client.coordinated["c"], soon())
    else:
        error = client.outcome("c", guid).error
        assert isinstance(error, NotCommitted)
        assert error.rule == SIBLINGS
    assert client.head("c").slot == 1
    assert world.tables["c"].transactions() == [before]


def test_what_another_table_refused_is_waited_for_as_long_as_it_cannot_be_decided(
    world: JointWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    guid, before = refused_elsewhere(world)
    client, decide, asked = world.client(), Decider.decide, itertools.count()

    def away(decider: Decider, front: QueueView, *rest: Any) -> Any:
        if next(asked) < 2:
            raise CoordinatorUnavailable("away")
        return decide(decider, front, *rest)

    monkeypatch.setattr(Decider, "decide", away)
    with pytest.raises(OutcomeUnknown):
        client.outcome("c", guid, timeout_s=0.0)
    assert client.outcome("c", guid).state == "refused"
    assert next(asked) == 4
    assert world.tables["c"].transactions() == [before]


@pytest.mark.notices("repeated-in-one-is-said")
def test_an_application_number_that_one_table_has_already(world: JointWorld) -> None:
    client = world.client()
    single(client, "a", app_intent(client.head("a"), 7))
    head = client.head("a")
    intents = {name: app_intent(replace(head, version=-1) if name == "a" else client.head(name), 7) for name in "ab"}
    guid = intents["a"].transaction_id
    intents = {name: replace(intent, transaction_id=guid) for name, intent in intents.items()}
    with pytest.raises(ConcurrentTransactionException, match=world.location("a")):
        client.commit(intents)
    assert world.tables["b"].log() == []


def test_the_same_application_number_in_all_tables_happens_once(world: JointWorld) -> None:
    client = world.client()

    def numbered() -> dict[str, Intent]:
        made = {name: app_intent(replace(client.head(name), version=-1), 7) for name in "ab"}
        return {name: replace(intent, transaction_id=made["a"].transaction_id) for name, intent in made.items()}

    first, second = client.commit(numbered()), client.commit(numbered())
    assert not any(commit.repeated for commit in first.values())
    assert all(commit.repeated for commit in second.values())
    assert {name: commit.version for name, commit in second.items()} == {"a": 0, "b": 0}
