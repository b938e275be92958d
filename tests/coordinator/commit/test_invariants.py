"""One test per invariant of the commit protocol; each fails when the invariant's check is taken out of the code.

Those of I9 (leases) are in test_leases.py, those of I11 (several tables) in test_joint.py.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sluice.coordinator.commit import decision as resolving
from sluice.coordinator.commit.decision import DecisionInput, Queued, resolve
from sluice.coordinator.errors import ConcurrentDeleteReadException, SessionLost
from sluice.coordinator.limits import Limits
from sluice.coordinator.nodes.layout import SlotName, VerdictName
from sluice.coordinator.nodes.records import BatchRecord, Rendering, VersionPlan
from sluice.coordinator.rules.intent import DeclaredReads
from sluice.coordinator.rules.winner import Member, footprint_of
from sluice.coordinator.service.memory import Call, Fault
from sluice.storage.errors import InvariantBroken
from sluice.storage.log.paths import commit_path
from tests.coordinator.world import DIRECT, QUICK, Client, World, add, append_intent, claim_slot, no_vectors, remove, rewrite_intent, soon
from tests.mending import mend, publishers_are_idle


def queued(slot: int, client: Client, **changes: Any) -> Queued:
    intent = append_intent(client.head(), **changes)
    return Queued(slot, intent.transaction_id, Member(intent, intent.actions.encode()))


@pytest.mark.notices("head-is-compared", "head-is-compared")
@pytest.mark.parametrize("limits", [QUICK, DIRECT], ids=["queue", "fast path"])
def test_i1_a_version_is_ratified_at_most_once(world: World, limits: Limits) -> None:
    """A decision computed on an old head is not recorded: head moves only by compare-and-set."""
    slow, fast = world.client(limits), world.client()
    decided: list[int] = []

    def overtake(call: Call) -> Fault | None:
        if call.session_id == slow.session.session_id and any(op.path == world.tree.head for op in call.ops):
            world.coordination.before = None
            fast.append("fast.parquet")
            decided.append(fast.head().slot)
        return None

    world.coordination.before = overtake
    slow.append("slow.parquet")
    assert world.files() == {"fast.parquet", "slow.parquet"}
    assert sorted(world.transactions()) == sorted({*world.transactions()})
    assert slow.head().version == len(world.log()) - 1
    assert [slow.head().slot >= slot for slot in decided] == [True], "what the other one decided stays decided"


@pytest.mark.notices("versions-are-dense")
def test_i2_versions_are_dense(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A decision that would leave a version out is not recorded."""
    honest = resolving._Group

    def skipping(version: int, timestamp_ms: int, *, open: bool, first_row_id: int | None) -> Any:  # noqa: A002
        return honest(version + 1, timestamp_ms, open=open)

    client = world.client()
    queue = [queued(0, client)]
    monkeypatch.setattr(resolving, "_Group", skipping)
    with pytest.raises(InvariantBroken, match="I2"):
        resolve(DecisionInput(client.head(), queue, {}, Limits(), no_vectors), room=8)


@pytest.mark.notices("slot-order-is-checked")
def test_i3_slots_are_decided_in_slot_order_each_once(world: World) -> None:
    client = world.client()
    for slots in ([1, 0], [3, 3]):
        with pytest.raises(InvariantBroken, match="I3"):
            resolve(DecisionInput(client.head(), [queued(s, client) for s in slots], {}, Limits(), no_vectors), room=8)
    with pytest.raises(InvariantBroken, match="I3"):
        resolve(DecisionInput(replace(client.head(), slot=5), [queued(5, client)], {}, Limits(), no_vectors), room=8)


@pytest.mark.notices("history-is-complete")
def test_i4_nothing_is_decided_without_the_history_it_depends_on(world: World) -> None:
    client = world.client()
    client.append("old.parquet")
    head = client.head()
    stale = rewrite_intent(replace(head, version=-1), "old.parquet", "new.parquet")
    queue = [Queued(head.slot + 1, stale.transaction_id, Member(stale, stale.actions.encode()))]
    with pytest.raises(InvariantBroken, match="I4"):
        resolve(DecisionInput(head, queue, {}, Limits(), no_vectors), room=8)


@pytest.mark.notices("content-has-its-digest")
def test_i5_what_is_published_is_what_was_ratified(world: World) -> None:
    """A slot that was tampered with after ratification is not published as something else."""
    ratifier, other = world.client(), world.client()
    world.objects.disk.fail_before("put_if_absent", times=10_000)
    intent = append_intent(ratifier.head(), "honest.parquet")
    ratifier.commit(intent, ack="ratified")
    mend(world.objects.disk)
    path = world.tree.slot(0, SlotName(0, intent.transaction_id))
    forged = replace(append_intent(ratifier.head(), "forged.parquet"), transaction_id=intent.transaction_id)
    other.session.write(path, forged.encode(), version=0)
    with pytest.raises(InvariantBroken, match="I5"):
        other.coordinated.publisher.publish_pending()
    assert world.log() == []
    ratifier.coordinated.publisher.publish_pending()
    assert world.files() == {"honest.parquet"}


@pytest.mark.notices("publication-order-is-checked")
def test_i6_a_version_is_published_only_after_the_one_before(world: World) -> None:
    client = world.client()
    client.append("first.parquet")
    state = client.context.read_published()
    assert state is not None
    ahead = BatchRecord("b", 0, Rendering(0), (), (VersionPlan(5, 1, (9,), "x"),))
    client.coordinated.log.remember(5, b"{}\n")
    with pytest.raises(InvariantBroken, match="I6"):
        client.coordinated.publisher.publish(VerdictName(0, 9, 5, False), ahead, *state)
    assert len(world.log()) == 1


@pytest.mark.notices("published-is-compared")
def test_i6_published_only_moves_up(world: World) -> None:
    """A publisher that slept over others' progress does not move `published` back."""
    slow, fast = world.client(), world.client()
    stale = slow.context.read_published()
    assert stale is not None
    fast.append("first.parquet")
    name = VerdictName(0, 0, 0, False)
    record = slow.record(name)
    fast.append("second.parquet")
    slow.coordinated.log.remember(0, world.objects.get(commit_path(0)))  # it was about to publish this when it fell asleep
    assert not slow.coordinated.publisher.publish(name, record, *stale)
    assert slow.published().version == 1


@pytest.mark.notices("publisher-has-its-session")
def test_i6_who_lost_the_session_stops_publishing(world: World) -> None:
    client = world.client()
    state = client.context.read_published()
    assert state is not None
    world.objects.disk.fail_before("put_if_absent", times=1)
    client.commit(append_intent(client.head(), "x.parquet"), ack="ratified")
    publishers_are_idle()
    name = VerdictName(0, 0, 0, False)
    record = client.record(name)
    before = len(world.objects.disk.calls)
    client.session.disconnect()
    with pytest.raises(SessionLost):
        client.coordinated.publisher.publish(name, record, *state)
    assert not [verb for verb, _ in world.objects.disk.calls[before:] if verb == "put_if_absent"]
    client.session.reconnect()
    client.coordinated.publisher.publish_pending()


def test_i7_nothing_is_deleted_when_a_commit_fails(world: World) -> None:
    """Refused, lost or unanswered: what was uploaded stays, somebody may still commit it."""
    client = world.client()
    for name in ("old.parquet", "x.parquet"):
        world.objects.put(name, b"rows")
    client.append("old.parquet")
    base = client.head()
    client.commit(rewrite_intent(base, "old.parquet", "new.parquet"))
    with pytest.raises(ConcurrentDeleteReadException):
        client.commit(rewrite_intent(base, "old.parquet", "x.parquet"))
    assert not [key for verb, key in world.objects.disk.calls if verb == "delete"]


@pytest.mark.notices("patience-ends")
def test_i8_no_step_waits_for_another_client_to_be_alive(world: World) -> None:
    """A claims and dies; B claims and dies after ratifying; C gets through all the same, and finishes their work."""
    a, b, c = world.client(), world.client(), world.client()
    claim_slot(a.context, append_intent(a.head(), "a.parquet"), a.head(), soon())
    a.session.close()
    world.objects.disk.fail_before("put_if_absent", times=1)
    b.commit(append_intent(b.head(), "b.parquet"), ack="ratified")
    b.session.close()
    c.append("c.parquet")
    assert world.files() == {"a.parquet", "b.parquet", "c.parquet"}


@pytest.mark.notices("patience-publishes")
def test_i8_what_a_dead_ratifier_decided_is_published_by_who_waits(world: World) -> None:
    waiting, dying = world.client(), world.client()
    intent = append_intent(waiting.head(), "mine.parquet")
    waiting.claim(intent)
    world.objects.disk.fail_before("put_if_absent", times=10_000)
    dying.commit(append_intent(dying.head(), "theirs.parquet"), ack="ratified")
    assert not dying.coordinated.background.drain(5.0)
    dying.session.close()
    mend(world.objects.disk)
    assert waiting.committed(intent.transaction_id).published


@pytest.mark.notices("undecided-is-decided-by-who-asks")
def test_i10_every_outcome_can_be_asked_for_by_anyone(world: World) -> None:
    client, asking = world.client(), world.client()
    committed = client.append("old.parquet")
    base = client.head()
    client.commit(rewrite_intent(base, "old.parquet", "new.parquet"))
    losing = rewrite_intent(base, "old.parquet", "x.parquet")
    with pytest.raises(ConcurrentDeleteReadException):
        client.commit(losing)
    undecided = append_intent(client.head(), "late.parquet")
    client.claim(undecided)
    outcomes = [asking.outcome(i) for i in (committed.transaction_id, losing.transaction_id, undecided.transaction_id)]
    assert [o.state for o in outcomes] == ["committed", "refused", "committed"]
    assert outcomes[0].commit is not None
    assert outcomes[0].commit.version == committed.version
    assert isinstance(outcomes[1].error, ConcurrentDeleteReadException)


def test_i12_a_success_is_never_reported_as_a_failure(world: World) -> None:
    """After the ratifying multi, nothing that breaks can turn the commit into an error."""
    client = world.client()
    world.objects.disk.fail_before("put_if_absent", times=10_000)
    commit = client.append("x.parquet")
    assert not commit.published
    mend(world.objects.disk)
    world.coordination.inject(Fault.REPLY_LOST, verb="apply", path="/head")
    assert client.append("y.parquet").version == 1
    assert world.files() == {"x.parquet", "y.parquet"}


def test_who_declares_nothing_is_no_blind_append() -> None:
    """Forgetting a field must not weaken a check."""
    assert not footprint_of(DeclaredReads(), [add("x.parquet")]).blind_append
    assert footprint_of(DeclaredReads(nothing=True), [add("x.parquet")]).blind_append


def test_who_declares_to_have_read_nothing_is_not_believed() -> None:
    """What it declares beside that, and its actions, say otherwise."""
    assert not footprint_of(DeclaredReads(nothing=True, predicates=("i = 1",)), [add("x.parquet")]).blind_append
    assert not footprint_of(DeclaredReads(nothing=True), [add("x.parquet"), remove("y.parquet")]).blind_append
