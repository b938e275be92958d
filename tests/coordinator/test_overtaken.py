"""Somebody else is faster, with the very record one was about to write: whose it is tells its batch id, and its bytes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import wait

import pytest

from sluice.coordinator.commit.claims import claim_slot
from sluice.coordinator.commit.rendering import version_digest
from sluice.coordinator.limits import Limits
from sluice.coordinator.nodes.layout import VerdictName
from sluice.coordinator.nodes.records import BatchRecord
from sluice.coordinator.service.clock import Deadline, SystemClock
from sluice.coordinator.service.memory import Call, Fault
from sluice.coordinator.service.store import Write
from sluice.storage.errors import InvariantBroken
from sluice.storage.log.paths import commit_path

from .world import DIRECT, QUICK, Client, World, append_intent, prune, rewrite_intent


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.check()


def soon() -> Deadline:
    return Deadline.after(20, SystemClock())


def instead_of_ratifying(world: World, client: Client, step: Callable[[], object]) -> None:
    """The client's ratifying multi is lost on its way, and meanwhile somebody takes a step."""

    def before(call: Call) -> Fault | None:
        if call.session_id == client.session.session_id and any(isinstance(op, Write) and op.path == world.tree.head for op in call.ops):
            world.coordination.before = None
            step()
            return Fault.REQUEST_LOST
        return None

    world.coordination.before = before


def records(world: World) -> list[BatchRecord]:
    session = world.coordination.connect()
    names = [f"{world.tree.verdicts}/{name}" for name in session.children(world.tree.verdicts) or ()]
    return [BatchRecord.decode(node.data) for node in session.read_many(names) if node is not None]


def test_a_record_of_the_same_name_that_somebody_else_wrote(world: World) -> None:
    """It decides the same slot in the same way, at another time: what is published is what that record says."""
    slow, fast = world.client(), world.client()
    intent = append_intent(slow.head(), "slow.parquet")

    def decide_and_die() -> None:
        time.sleep(0.005)  # so that the time in the record is another one
        world.objects.disk.fail_before("put_if_absent", times=1)
        state = fast.context.look()
        assert state is not None
        assert fast.committer.decide(state) is not None

    instead_of_ratifying(world, slow, decide_and_die)
    assert slow.commit(intent).version == 0
    [record] = records(world)
    assert [version_digest(world.objects.get(commit_path(plan.version))) for plan in record.versions] == [p.digest for p in record.versions]


def test_a_record_of_the_same_name_on_the_fast_path(world: World) -> None:
    """It is about another transaction: one's own is not committed yet."""
    slow, fast = world.client(DIRECT), world.client(DIRECT)
    instead_of_ratifying(world, slow, lambda: fast.append("fast.parquet"))
    slow.append("slow.parquet")
    assert world.files() == {"fast.parquet", "slow.parquet"}


def test_the_head_never_goes_back_to_who_was_overtaken(world: World) -> None:
    """What was decided on an old head is not recorded, though its record has a name of its own."""
    slow, fast = world.client(), world.client()
    seen: list[int] = []

    def overtake(call: Call) -> None:
        if call.session_id == slow.session.session_id and any(isinstance(op, Write) and op.path == world.tree.head for op in call.ops):
            world.coordination.before = None
            fast.append("fast.parquet")
            seen.append(fast.head().slot)

    world.coordination.before = overtake
    slow.append("slow.parquet")
    assert seen
    assert slow.head().slot >= seen[0]
    assert world.files() == {"fast.parquet", "slow.parquet"}


@pytest.mark.parametrize("limits", [QUICK, DIRECT], ids=["queue", "fast path"])
def test_who_asks_a_server_that_is_behind_is_not_told_that_there_is_nothing(world: World, limits: Limits) -> None:
    """An outcome, and what became of a lost request, are asked for after a barrier."""
    writer, asking = world.client(limits), world.client()
    writer.append("first.parquet")
    undecided = append_intent(writer.head(), "late.parquet")
    asking.head()
    asking.session.lag = 2
    claim_slot(writer.context, undecided, writer.head(), soon())
    outcome = asking.committer.outcome(undecided.transaction_id, soon())
    assert outcome.commit is not None, "its slot stood before it was asked for"


def test_a_lost_claim_is_looked_for_after_a_barrier(world: World) -> None:
    client = world.client()
    client.append("first.parquet")
    client.session.lag = 2
    world.coordination.inject(Fault.REPLY_LOST, verb="apply", path="/i-")
    commit = client.append("x.parquet")
    client.session.lag = 0
    assert not commit.repeated, "the slot was there, and is not made twice"


def test_a_publisher_that_slept_while_others_published_and_pruned(world: World) -> None:
    """It read how far publication got, fell asleep, and finds records that begin much later."""
    limits = QUICK.but(backlog_versions_max=1, verdicts_kept=2)
    sleeping, others = world.client(), world.client(limits)
    others.append("first.parquet")

    def overtake(call: Call) -> None:
        if call.session_id == sleeping.session.session_id and call.path == world.tree.published:
            world.coordination.after = None
            for n in range(5):
                others.append(f"{n}.parquet")
            prune(others.context)
            world.objects.disk.fail_before("put_if_absent", times=1)
            others.commit(append_intent(others.head(), "last.parquet"), ack="ratified")
            wait(set(others.committer.background._running), 10)  # it is their put that fails

    world.coordination.after = overtake
    sleeping.committer.publisher.publish_pending()
    assert "last.parquet" in world.files()


def test_a_gap_among_the_records_is_no_end_of_looking(world: World) -> None:
    """A record that is gone for good is told, however often it is looked for."""
    client = world.client()
    client.append("first.parquet")
    world.objects.disk.fail_before("put_if_absent", times=10_000)
    client.commit(rewrite_intent(client.head(), "first.parquet", "second.parquet"), ack="ratified")
    client.commit(rewrite_intent(client.head(), "second.parquet", "third.parquet"), ack="ratified")
    client.committer.background.drain(0.0)
    world.objects.disk.faults.clear()
    lost = VerdictName(0, 1, 1, False)
    other = world.client()
    other.session.delete(world.tree.verdict(lost))
    with pytest.raises(InvariantBroken, match="I6"):
        other.committer.publisher.publish_pending()


def test_of_two_batches_that_wait_the_first_is_published_first(world: World) -> None:
    first, second = world.client(), world.client()
    first.append("old.parquet")
    world.objects.disk.fail_before("put_if_absent", times=10_000)
    first.commit(rewrite_intent(first.head(), "old.parquet", "new.parquet"), ack="ratified")
    second.commit(rewrite_intent(second.head(), "new.parquet", "newer.parquet"), ack="ratified")
    world.objects.disk.faults.clear()
    second.committer.publisher.publish_pending()
    assert world.files() == {"newer.parquet"}
    assert len(world.log()) == 3
