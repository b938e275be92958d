"""Transactions over several tables where messages are lost, servers are behind, and others are in the way."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from sluice.coordinator.commit.transactions import outcome_of
from sluice.coordinator.errors import OutcomeUnknown
from sluice.coordinator.nodes.records import BatchRecord
from sluice.coordinator.service.memory import Call, Fault
from sluice.coordinator.service.tree import Tree
from sluice.storage.actions.texts import sha256
from sluice.storage.log.paths import commit_path
from tests.coordinator.joint_world import JointWorld, alone
from tests.coordinator.world import QUICK, append_intent, barrier_of, claim_slot, files_slots, once, ratifies, rewrite_intent, soon
from tests.mending import mend


@pytest.fixture
def world() -> Iterator[JointWorld]:
    made = JointWorld("ab")
    yield made
    made.check()


@pytest.mark.notices("the-queue-ends-before-it")
def test_what_stands_behind_it_is_decided_behind_it(world: JointWorld) -> None:
    """One of a single table before it and one after it; a client that asks for the last one decides all three, in order."""
    dead, asking = world.client(), world.client()
    context = dead.coordinated["a"].context
    before, after = append_intent(dead.head("a")), append_intent(dead.head("a"))
    claim_slot(context, before, dead.head("a"), soon())
    both = dead.intents("ab")
    dead.file(both)
    claim_slot(context, after, dead.head("a"), soon())
    dead.session.close()
    assert asking.outcome("a", after.transaction_id).state == "committed"
    assert world.tables["a"].transactions() == [each.transaction_id for each in (before, both["a"], after)]


@pytest.mark.notices("slot-is-looked-for")
def test_slots_whose_reply_was_lost_are_not_made_again(world: JointWorld) -> None:
    client = world.client()
    filed: list[Call] = []
    world.coordination.after = lambda call: filed.append(call) if files_slots(call) else None
    world.coordination.inject(Fault.REPLY_LOST, verb="apply", path="/i-")
    commits = client.append("ab")
    assert not any(commit.repeated for commit in commits.values())
    assert len(filed) == 1


@pytest.mark.notices("filed-again-is-said")
def test_slots_that_are_decided_and_gone_when_their_owner_looks(world: JointWorld) -> None:
    """Their reply was lost, and others decided and published them meanwhile: filed again they are found in the logs."""
    owner, other = world.client(), world.client()
    world.coordination.inject(Fault.REPLY_LOST, verb="apply", path="/i-", session=owner.session)

    def meddle() -> None:
        for name in "ab":
            alone(other, name, append_intent(other.head(name)))

    once(world.coordination, meddle, barrier_of(owner.session))
    intents = owner.intents("ab")
    commits = owner.commit(intents)
    assert all(commit.repeated for commit in commits.values())
    for name, table in world.tables.items():
        assert table.transactions().count(intents[name].transaction_id) == 1


@pytest.mark.notices("batch-is-recognised")
def test_a_record_of_the_same_name_that_somebody_else_wrote(world: JointWorld) -> None:
    """The multi was lost, and another client decided the same at another time: what is published is what that record says."""
    slow, fast = world.client(), world.client()
    intents = slow.intents("ab")
    disks = [table.objects.disk for table in world.tables.values()]

    def decide_and_die(call: Call) -> Fault | None:
        if call.session_id != slow.session.session_id or not ratifies(call):
            return None
        world.coordination.before = None
        time.sleep(0.005)  # so that the time in the record is another one
        for disk in disks:
            disk.fail_before("put_if_absent", times=10_000)
        commit = fast.outcome("a", intents["a"].transaction_id).commit
        assert commit is not None
        assert not commit.published
        for disk in disks:
            mend(disk)
        return Fault.REQUEST_LOST

    world.coordination.before = decide_and_die
    commits = slow.commit(intents)
    assert {name: commit.version for name, commit in commits.items()} == {"a": 0, "b": 0}
    for table in world.tables.values():
        [name] = list(slow.session.children(table.tree.verdicts) or ())
        node = slow.session.read(f"{table.tree.verdicts}/{name}")
        assert node is not None
        [plan] = BatchRecord.decode(node.data).versions
        assert sha256(table.objects.get(commit_path(0))) == plan.digest


@pytest.mark.notices("joint-committed-before")
def test_what_was_only_read_may_have_changed_since_it_was_committed(world: JointWorld) -> None:
    """Filed again after a lost reply it is found in the table that it writes; the one that it read has no trace of it."""
    owner, other = world.client(), world.client()
    other.append("ab", a="read.parquet")
    intents = owner.reading("read.parquet")
    world.coordination.inject(Fault.REPLY_LOST, verb="apply", path="/i-", session=owner.session)

    def meddle() -> None:
        assert other.outcome("b", intents["b"].transaction_id).state == "committed"
        alone(other, "a", rewrite_intent(other.head("a"), "read.parquet", "new.parquet"))
        alone(other, "b", append_intent(other.head("b")))

    once(world.coordination, meddle, barrier_of(owner.session))
    commits = owner.commit(intents)
    assert (commits["b"].version, commits["b"].repeated) == (1, True)
    assert owner.outcome("b", intents["b"].transaction_id).state == "committed"
    assert world.tables["b"].transactions().count(intents["b"].transaction_id) == 1


@pytest.mark.notices("taken-back-though-committed")
def test_what_is_committed_is_not_taken_back_by_the_slots_it_was_filed_in_again(world: JointWorld) -> None:
    """A transaction over two tables, and one of one table."""
    client = world.client()
    both, one = client.intents("ab"), append_intent(client.head("a"))
    client.commit(both)
    alone(client, "a", one)
    client.append("ab")
    client.file({name: replace(intent, filed_again=True) for name, intent in both.items()})
    claim_slot(client.coordinated["a"].context, replace(one, filed_again=True), client.head("a"), soon())
    for transaction_id, version in ((both["a"].transaction_id, 0), (one.transaction_id, 1)):
        outcome = outcome_of(client.coordinated["a"], transaction_id, soon(), withdrawing=True)
        assert outcome.commit is not None
        assert (outcome.commit.version, outcome.commit.repeated) == (version, True)
    alive = [intent.transaction_id for intent in (both["a"], one)]
    assert [world.tables["a"].transactions().count(each) for each in alive] == [1, 1]


@pytest.mark.notices("not-refused-by-who-is-behind")
def test_it_is_not_refused_because_a_server_that_is_behind_shows_one_of_its_slots_only(world: JointWorld) -> None:
    """The session that showed the slot in one table expires, and the next one's server does not know the other table yet."""
    dead, asking = world.client(), world.client()
    asking.next_lag = 100
    both = dead.intents("ab")
    dead.file(both)
    dead.session.close()

    def expire(call: Call) -> None:
        if call.session_id == asking.session.session_id and call.verb == "read" and "/slots/" in call.path:
            reads.append(call.path)
            if len(reads) == 2:  # the second one is read to decide it
                world.coordination.after = None
                asking.session.expire()

    reads: list[str] = []
    world.coordination.after = expire
    assert asking.outcome("a", both["a"].transaction_id).state == "committed"
    assert len(reads) == 2
    assert [len(table.log()) for table in world.tables.values()] == [1, 1]


def test_a_full_backlog_that_cannot_be_published_lets_nothing_more_be_ratified(world: JointWorld) -> None:
    client = world.client(replace(QUICK, backlog_versions_max=1, publication_wait_s=0.1))
    alone(client, "b", append_intent(client.head("b"), "old.parquet"))
    disk = world.tables["b"].objects.disk
    disk.fail_before("put_if_absent", times=10_000)
    alone(client, "b", rewrite_intent(client.head("b"), "old.parquet", "new.parquet"), ack="ratified")
    with pytest.raises(OutcomeUnknown):
        client.commit(client.intents("ab"), timeout_s=0.3)
    published = client.coordinated["b"].context.read_published()
    assert published is not None
    assert client.head("b").version - published[0].version == 1
    mend(disk)
    for name in "ab":
        alone(client, name, append_intent(client.head(name)))


@pytest.mark.parametrize(("when", "ack"), [(files_slots, "published"), (files_slots, "ratified"), (ratifies, "published")])
def test_a_waiting_client_looks_now_and_then_while_the_nodes_of_all_tables_are_lost(
    world: JointWorld, when: Callable[[Call], bool], ack: str
) -> None:
    """Nothing can be done before they are rebuilt: it looks again after a patience, and not at once."""
    client = world.client()
    looks: list[Call] = []

    def lose(call: Call) -> None:
        if when(call):
            client.session.expire()
            world.coordination.tree = Tree()
            world.coordination.after = looks.append

    world.coordination.after = lose
    if when is ratifies:  # the coordinator acknowledged that, and then lost it
        for table in world.tables.values():
            table.objects.disk.fail_before("put_if_absent", times=10_000)
        commits = client.commit(client.intents("ab"), timeout_s=2)
        assert not any(commit.published for commit in commits.values())
    else:
        with pytest.raises(OutcomeUnknown):
            client.commit(client.intents("ab"), timeout_s=0.6, ack=ack)
    published = [call for call in looks if call.path == world.tables["a"].tree.published]
    assert 1 < len(published) < 25
