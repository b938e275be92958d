"""Transactions over several tables when the records of their verdicts are pruned: a table that was only read has nothing else."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from sluice.coordinator.errors import OutcomeUnknown
from sluice.coordinator.nodes.layout import newest_first
from sluice.coordinator.publication.background import Background
from sluice.coordinator.service.memory import Call, Fault
from tests.coordinator.joint_world import JointClient, JointWorld, alone
from tests.coordinator.world import QUICK, append_intent, barrier_of, files_slots, once, prune, rewrite_intent
from tests.mending import mend

FEW = replace(QUICK, backlog_versions_max=3, verdicts_kept=4)


@pytest.fixture
def world() -> Iterator[JointWorld]:
    made = JointWorld("abc")
    made.client().append("ab", a="0.parquet")
    yield made
    made.check()


def forget(client: JointClient, name: str) -> None:
    """Let so much be committed that no record of what was before is kept."""
    for _ in range(FEW.verdicts_kept):
        alone(client, name, append_intent(client.head(name)))


@pytest.mark.notices("records-are-kept")
def test_what_waits_to_be_published_keeps_its_record_whatever_else_is_decided(world: JointWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few versions may wait; of transactions that only read the table as many are decided behind them as there are."""
    monkeypatch.setattr(Background, "note", lambda *_: None)  # nobody looks for a record that is gone, should it be
    client = world.client(FEW)
    disk = world.tables["a"].objects.disk
    disk.fail_before("put_if_absent", times=10_000)
    for number in range(2):
        alone(client, "a", rewrite_intent(client.head("a"), f"{number}.parquet", f"{number + 1}.parquet"), ack="ratified")
    for _ in range(FEW.verdicts_kept):
        client.commit(client.reading(), ack="ratified")
    prune(client.coordinated["a"].context)
    names = newest_first(client.session.children(world.tables["a"].tree.verdicts) or ())
    assert len(names) == 2 + FEW.verdicts_kept
    mend(disk)
    client.coordinated["a"].publisher.publish_pending()
    assert world.tables["a"].files() == {"2.parquet"}


def test_records_go_from_a_table_that_nobody_writes(world: JointWorld) -> None:
    client = world.client(FEW)
    for _ in range(3 * FEW.verdicts_kept):
        client.commit(client.reading())
    assert len(client.session.children(world.tables["a"].tree.verdicts) or ()) == FEW.verdicts_kept


@pytest.mark.notices("forgotten-where-it-was-read")
def test_it_is_committed_though_the_table_that_it_read_has_forgotten_it(world: JointWorld) -> None:
    """Others decide it, and commit much to the table that it read, before its owner looks."""
    owner, other = world.client(FEW), world.client(FEW)
    intents = owner.reading()

    def meddle() -> None:
        assert other.outcome("b", intents["b"].transaction_id).state == "committed"
        forget(other, "a")

    once(world.coordination, meddle, files_slots, after=True)
    commits = owner.commit(intents)
    assert {name: commit.version for name, commit in commits.items()} == {"b": 1}
    assert commits["b"].published
    assert not commits["b"].repeated


def test_it_is_committed_though_nothing_of_it_is_left_in_the_table_that_it_read(world: JointWorld) -> None:
    """Its owner, whose reply was lost, finds its slot in the table that it writes, where publishing is in trouble, and nowhere else."""
    owner, other = world.client(FEW), world.client(FEW)
    intents = owner.reading()
    world.coordination.inject(Fault.REPLY_LOST, verb="apply", path="/i-", session=owner.session)
    disk = world.tables["b"].objects.disk
    disk.fail_before("put_if_absent", times=10_000)

    def meddle() -> None:
        outcome = other.outcome("b", intents["b"].transaction_id)
        assert outcome.commit is not None
        assert not outcome.commit.published
        forget(other, "a")

    once(world.coordination, meddle, barrier_of(owner.session), after=True)
    begun = time.monotonic()
    commits = owner.commit(intents, timeout_s=20.0)
    assert time.monotonic() - begun < 15.0  # it is not waited for what is not told any more
    assert {name: (commit.version, commit.published) for name, commit in commits.items()} == {"b": (1, False)}
    mend(disk)
    other.coordinated["b"].publisher.publish_pending()


def test_who_asks_in_the_table_that_it_read_is_not_told_that_it_was_refused(world: JointWorld) -> None:
    """It is decided, and forgotten there, while somebody asks."""
    dead, asking, other = world.client(FEW), world.client(FEW), world.client(FEW)
    intents = dead.reading()
    guid = intents["b"].transaction_id
    dead.file(intents)
    dead.session.close()

    def meddle() -> None:
        assert other.outcome("b", guid).state == "committed"
        forget(other, "a")

    slots = world.tables["a"].tree.slots(0)
    looks: list[Call] = []

    def second_look(call: Call) -> bool:
        if call.verb == "children" and call.path == slots and call.session_id == asking.session.session_id:
            looks.append(call)
        return len(looks) == 2

    once(world.coordination, meddle, second_look, after=True)
    assert asking.outcome("a", guid).state == "unknown"  # nothing of it is in this table
    assert len(looks) > 1
    assert asking.outcome("b", guid).state == "committed"


@pytest.mark.notices("any-table-may-know-it")
def test_its_owner_whose_time_is_over_is_not_told_that_nothing_was_filed(world: JointWorld) -> None:
    """The reply was lost, it was committed, and the first of its tables, which it only read, has forgotten it."""
    owner, other = world.client(FEW), world.client(FEW)
    intents = owner.reading()
    world.coordination.inject(Fault.REPLY_LOST, verb="apply", path="/i-", session=owner.session)

    def meddle() -> None:
        assert other.outcome("b", intents["b"].transaction_id).state == "committed"
        forget(other, "a")
        time.sleep(0.3)

    once(world.coordination, meddle, barrier_of(owner.session), after=True)
    with pytest.raises(OutcomeUnknown) as unknown:
        owner.commit(intents, timeout_s=0.3)
    assert unknown.value.stage == "intent"
    assert owner.outcome("b", intents["b"].transaction_id).state == "committed"


@pytest.mark.notices("too-late-the-second-time")
@pytest.mark.parametrize("reads", [False, True])
def test_what_was_committed_is_not_refused_in_the_slots_it_was_filed_in_again(world: JointWorld, reads: bool) -> None:
    """Its reply was lost, so that it was filed again, and one of its tables is gone since; another one it may have read only."""
    client, dead = world.client(), world.client()
    intents = {**(client.reading() if reads else client.intents("ab")), **client.intents("c")}
    intents = {name: replace(intent, transaction_id=intents["b"].transaction_id) for name, intent in intents.items()}
    client.commit(intents)
    dead.file({name: replace(intent, filed_again=True) for name, intent in intents.items()})
    world.vanish("c")
    alone(client, "a", append_intent(client.head("a")))
    assert client.coordinated["a"].verdicts.search(intents["a"].transaction_id).state == "committed"


def test_what_is_known_of_it_is_not_asked_of_a_server_that_is_behind(world: JointWorld) -> None:
    asking, other = world.client(), world.client()
    asking.session.lag = 100
    intent = append_intent(other.head("a"))
    alone(other, "a", intent)
    assert asking.coordinated["a"].verdicts.knows(intent.transaction_id)
