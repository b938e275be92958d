"""A transaction is decided once, committed or refused, however often it is filed, and however late somebody looks.

The driver keeps nothing of a transaction when it has answered.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from dataclasses import replace

import pytest

from sluice.coordinator.commit.decision import _Resolution
from sluice.coordinator.commit.outcomes import Claim
from sluice.coordinator.errors import ConcurrentModification, Refused
from sluice.coordinator.limits import Limits
from sluice.coordinator.nodes.layout import SlotName, VerdictName
from sluice.coordinator.nodes.presence import TransactionId
from sluice.coordinator.nodes.records import BatchRecord, Rendering, Verdict
from sluice.coordinator.rules.intent import Intent
from sluice.coordinator.rules.refusal import Refusal
from sluice.coordinator.service.memory import Call, Fault
from sluice.storage.errors import InvalidRequest
from tests.coordinator.joint_world import JointWorld
from tests.coordinator.world import (
    DIRECT,
    QUICK,
    Client,
    World,
    append_intent,
    barrier_of,
    claim_slot,
    files_slots,
    prune,
    rewrite_intent,
    soon,
)

KEEPING_FEW = replace(QUICK, backlog_versions_max=1, verdicts_kept=2)


def slot_of(client: Client, intent: Intent) -> str:
    """Make a slot by hand, as often as one likes."""
    prefix = client.world.tree.slot_prefix(client.head().generation, intent.transaction_id)
    return client.session.create(prefix, intent.encode(), sequential=True)


@pytest.mark.notices("filed-again-is-said-after-the-fast-path", "lost-on-the-fast-path-is-told")
def test_a_lost_reply_of_the_fast_path_whose_record_is_pruned_when_its_owner_looks(world: World) -> None:
    """It took effect, and nothing in the tree tells of it any more: the decision in the queue finds it in the log."""
    owner, other = world.client(DIRECT), world.client(KEEPING_FEW)
    intent = append_intent(owner.head(), "mine.parquet")
    world.coordination.inject(Fault.REPLY_LOST, verb="apply", path="/head", session=owner.session)

    def meddle() -> None:
        for _ in range(4):
            other.append()
        prune(other.context)

    world.once(meddle, barrier_of(owner.session))
    commit = owner.commit(intent)
    assert commit.repeated
    assert commit.version == 0
    assert world.transactions().count(intent.transaction_id) == 1


def test_of_two_calls_for_one_plan_the_one_whose_request_was_lost_finds_the_others_slot(world: World) -> None:
    """It gets the same place. Nothing shows whose slot it is: `repeated` says that this is the transaction's first one."""
    first, second = world.client(QUICK), world.client(QUICK)
    intent = replace(append_intent(first.head(), "x.parquet"), filed_again=True)
    claims: list[Claim] = []
    sent = second.session.session_id
    world.once(lambda: claims.append(first.claim(intent)), lambda call: call.verb == "apply" and call.session_id == sent)
    world.coordination.inject(Fault.REQUEST_LOST, verb="apply", path="/i-", session=second.session)
    told = second.commit(intent)
    again = first.commit(intent)
    assert len(claims) == 1
    assert (told.version, told.ordinal, told.repeated) == (0, 0, False)
    assert (again.version, again.ordinal, again.repeated) == (0, 0, True)
    assert world.transactions().count(intent.transaction_id) == 1


@pytest.mark.notices("committed-once-in-a-batch")
def test_two_slots_of_one_transaction_in_one_batch(world: World) -> None:
    """A client that may create slots may create one twice, and need not say so."""
    client, asking = world.client(), world.client()
    intent = append_intent(client.head(), "x.parquet")
    for _ in range(2):
        slot_of(client, intent)
    assert asking.outcome(intent.transaction_id).commit is not None
    asking.append("y.parquet")
    assert world.transactions().count(intent.transaction_id) == 1


@pytest.mark.notices("records-outlast-the-backlog")
def test_limits_by_which_a_record_could_go_before_its_version_is_published_are_none() -> None:
    with pytest.raises(InvalidRequest, match="contradict"):
        Limits(verdicts_kept=8, backlog_versions_max=8)


@pytest.mark.notices("lost-session-is-replaced")
def test_an_expired_session_is_no_trouble_of_who_reads(world: World) -> None:
    client = world.client()
    for verb in ("read", "barrier"):
        world.coordination.inject(Fault.EXPIRED_BEFORE, verb=verb)
        client.context.barrier()
        assert client.head().version == -1


@pytest.mark.notices("made-up-slot-is-not-mine")
def test_the_verdict_on_a_slot_of_the_same_number_is_not_mine(world: World) -> None:
    client = world.client()
    claim = claim_slot(client.context, append_intent(client.head(), "x.parquet"), client.head(), soon())
    record = BatchRecord("b", 0, Rendering(0), (Verdict(claim.slot, "somebody-else", 0, 0),), ())
    told = client.coordinated.verdicts.recorded_by(record, claim)
    assert told is not None
    assert told.verdict.transaction_id == claim.transaction_id
    assert told.verdict.refusal is not None


@pytest.mark.notices("verdicts-are-looked-for-again")
def test_a_verdict_is_not_forgotten_because_the_next_server_is_behind(world: World) -> None:
    """The session that showed that it is decided expires, and the next one's server does not show by what."""
    waiting, other = world.client(), world.client()
    waiting.next_lag = 100
    waiting.append("first.parquet")

    def meddle(call: Call) -> None:
        if call.session_id == waiting.session.session_id and files_slots(call):
            world.coordination.after = expire
            other.append("other.parquet")
            other.append("later.parquet")  # so `published` tells of another batch

    def expire(call: Call) -> None:
        if call.session_id == waiting.session.session_id and call.verb == "read" and call.path == world.tree.published:
            world.coordination.after = None
            waiting.session.expire()

    world.coordination.after = meddle
    assert waiting.append("mine.parquet").version >= 1
    assert world.files() == {"first.parquet", "other.parquet", "mine.parquet", "later.parquet"}


def test_names_of_slots_and_records_sort_by_what_they_count() -> None:
    assert SlotName(2, "b").sequence < SlotName(10, "a").sequence
    assert VerdictName(0, 9, 9, False) < VerdictName(0, 10, 9, False) < VerdictName(1, -1, 10, False)


def refuse_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next decision refuses, and the ones after it find nothing in the way."""
    honest = _Resolution.objection
    refusals = [Refusal("in-the-way", "Refused", "something is in the way")]

    def objection(self: _Resolution, intent: object) -> Refusal | None:
        return refusals.pop() if refusals else honest(self, intent)  # type: ignore[arg-type]

    monkeypatch.setattr(_Resolution, "objection", objection)


def when_it_looks(verbs: list[str], then: Callable[[], object]) -> Callable[[Call], Fault | None]:
    """Lose the reply to the claim, and let something happen when its owner begins to look for it."""

    def hook(call: Call) -> Fault | None:
        if call.verb == verbs[0]:
            verbs.pop(0)
            if not verbs:
                verbs.append("nothing more")
                then()
                return None
            return Fault.REPLY_LOST
        return None

    return hook


@pytest.mark.notices("refused-stays-refused")
def test_a_refusal_that_was_cleaned_up_before_its_owner_looks_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    owner, other = world.client(), world.client()
    intent = append_intent(owner.head(), "x.parquet")
    refuse_once(monkeypatch)
    heard: list[str] = []

    def decide() -> None:
        outcome = other.outcome(intent.transaction_id)
        heard.append(outcome.state)

    world.coordination.before = when_it_looks(["apply", "barrier"], decide)
    with pytest.raises(Refused):
        owner.commit(intent)
    assert heard == ["refused"]
    assert world.log() == []
    assert other.outcome(intent.transaction_id).state == "refused"


def test_the_same_over_two_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    world = JointWorld("ab")
    owner, other = world.client(), world.client()
    intents = owner.intents("ab")
    transaction = intents["a"].transaction_id
    refuse_once(monkeypatch)
    heard: list[str] = []
    world.coordination.before = when_it_looks(["apply", "barrier"], lambda: heard.append(other.outcome("a", transaction).state))
    with pytest.raises(Refused):
        owner.commit(intents)
    assert heard == ["refused"]
    assert [table.log() for table in world.tables.values()] == [[], []]


def test_a_refused_transaction_is_not_held_by_its_refusal() -> None:
    """Its client's files are kept while it is held, so that must not wait for Python's next collection."""
    world = World()
    client = world.client()
    client.append("old.parquet")
    stale = client.head()
    client.commit(rewrite_intent(stale, "old.parquet", "theirs.parquet"))
    intent = rewrite_intent(stale, "old.parquet", "mine.parquet")
    intent = replace(intent, transaction_id=TransactionId(intent.transaction_id))
    held = weakref.ref(intent.transaction_id)
    gc.collect()
    gc.disable()
    try:
        with pytest.raises(ConcurrentModification) as refused:
            client.commit(intent)
        del intent, refused
        assert held() is None
    finally:
        gc.enable()
