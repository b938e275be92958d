"""What "published" means: the file is in the log, whoever asks and whenever it is said."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from sluice.coordinator.claims import claim_slot
from sluice.coordinator.clock import Deadline, SystemClock
from sluice.coordinator.errors import NotCommitted, OutcomeUnknown
from sluice.coordinator.limits import Limits
from sluice.coordinator.memory import Call
from sluice.coordinator.records import Published
from sluice.coordinator.store import Delete, Write
from sluice.storage.errors import ObjectNotFound
from sluice.storage.paths import commit_path, staged_path

from .world import DIRECT, QUICK, World, append_intent, rewrite_intent

BOTH_PATHS = pytest.mark.parametrize("limits", [QUICK, DIRECT], ids=["queue", "fast path"])


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.check()


def is_there(world: World, version: int) -> bool:
    try:
        return bool(world.objects.get(commit_path(version)))
    except ObjectNotFound:
        return False


@BOTH_PATHS
def test_published_is_raised_when_the_files_are_there(world: World, limits: Limits) -> None:
    raised: dict[int, bool] = {}

    def look(call: Call) -> None:
        for op in call.ops:
            if isinstance(op, Write) and op.path == world.tree.published:
                version = Published.decode(op.data).version
                raised[version] = is_there(world, version)

    world.coordination.before = look
    client = world.client(limits)
    for _ in range(3):
        client.append()
    assert raised == {0: True, 1: True, 2: True}


@BOTH_PATHS
def test_who_is_answered_finds_the_file(world: World, limits: Limits) -> None:
    world.objects.disk.slow("put_if_absent", lambda: time.sleep(0.05), times=10)
    client = world.client(limits)
    for version in range(3):
        commit = client.commit(append_intent(client.head()))
        assert commit.published
        assert is_there(world, version)


@BOTH_PATHS
def test_no_more_is_ratified_than_may_wait(world: World, limits: Limits) -> None:
    """While nothing can be published the backlog fills, and then nothing more is decided: records of what waits are not pruned."""
    client = world.client(limits.but(backlog_versions_max=2, verdicts_kept=3, publication_wait_s=0.05))
    client.append("0.parquet")
    world.objects.disk.fail_before("put_if_absent", times=10_000)
    for n in range(2):
        client.commit(rewrite_intent(client.head(), f"{n}.parquet", f"{n + 1}.parquet"), ack="ratified", timeout_s=30)
    intent = rewrite_intent(client.head(), "2.parquet", "3.parquet")
    with pytest.raises(OutcomeUnknown):
        client.commit(intent, ack="ratified", timeout_s=0.3)
    published = client.context.read_published()
    assert published is not None
    assert client.head().version - published[0].version == 2
    world.objects.disk.faults.clear()
    client.append("last.parquet")


def test_what_waits_to_be_published_is_found_whatever_was_refused_behind_it(world: World) -> None:
    """Records of refusals bear the version that was there; the coordinator tells its nodes in no order."""
    client = world.client()
    stale = client.head()
    client.append("0.parquet")
    world.objects.disk.fail_before("put_if_absent", times=10_000)
    client.commit(rewrite_intent(client.head(), "0.parquet", "1.parquet"), ack="ratified")
    for _ in range(6):
        with pytest.raises(NotCommitted):
            client.commit(rewrite_intent(stale, "0.parquet", "2.parquet"))
    content = world.client().committer.log.content(1)
    assert b"1.parquet" in content
    world.objects.disk.faults.clear()
    client.append()
    assert world.objects.get(commit_path(1)) == content


@pytest.mark.timeout(20)
def test_published_is_raised_though_one_of_the_slots_is_gone(world: World) -> None:
    """The multi that raises it removes the slots too: where one is gone already, the rest is done one by one."""
    client, other = world.client(), world.client()
    intents = [append_intent(client.head()) for _ in range(2)]
    for intent in intents:
        claim_slot(client.context, intent, client.head(), Deadline.after(20, SystemClock()))

    def withdraw(call: Call) -> None:
        gone = [op.path for op in call.ops if isinstance(op, Delete)]
        if gone and any(op.path == world.tree.published for op in call.ops):
            world.coordination.before = None
            other.session.delete(gone[0])

    world.coordination.before = withdraw
    outcome = client.committer.outcome(intents[1].transaction_id, Deadline.after(20, SystemClock()))
    assert outcome.commit is not None
    assert outcome.commit.published
    published = client.context.read_published()
    assert published is not None
    assert published[0].version == client.head().version
    assert other.session.children(world.tree.slots(0)) == []


def test_a_publisher_who_is_late_finds_what_was_staged_gone(world: World) -> None:
    """The version was published, and its staged actions were collected, between two looks of his."""
    dying, late, fast = (world.client() for _ in range(3))
    intent = append_intent(dying.head(), "x.parquet")
    key = staged_path(intent.transaction_id)
    world.objects.put(key, intent.actions.encode())
    world.objects.disk.fail_before("put_if_absent", times=10_000)
    dying.commit(replace(intent, actions="", staged=key), ack="ratified")
    assert not dying.committer.background.drain(5.0)
    dying.session.close()
    world.objects.disk.faults.clear()

    def collect(call: Call) -> None:
        if call.session_id == late.session.session_id and any(world.tree.slots(0) in path for path in (call.path, *_paths(call))):
            world.coordination.after = None
            fast.committer.publisher.publish_pending()
            world.objects.delete(key)

    world.coordination.after = collect
    assert late.committer.publisher.publish_pending().version == 0
    assert world.coordination.after is None
    assert world.files() == {"x.parquet"}


def _paths(call: Call) -> list[str]:
    return [op.path for op in call.ops]
