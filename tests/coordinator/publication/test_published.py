"""A commit is "published" only when every client that the coordinator tells so finds its file in the log.

What one process does in the background for all its tables.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import orjson
import pytest

import sluice
from sluice.coordinator.commit.decider import Batch
from sluice.coordinator.commit.outcomes import Claim, Commit, commit_of
from sluice.coordinator.commit.transactions import settle_queue
from sluice.coordinator.errors import NotCommitted, OutcomeUnknown
from sluice.coordinator.formats import MalformedRecord
from sluice.coordinator.limits import Limits
from sluice.coordinator.nodes.records import NO_SLOT, BatchRecord, Published, Rendering, Verdict, VersionPlan
from sluice.coordinator.publication import ratified_log
from sluice.coordinator.publication.background import _THREADS_MAX, Background
from sluice.coordinator.publication.ratified_log import store_objects
from sluice.coordinator.rules.intent import Intent
from sluice.coordinator.rules.refusal import Refusal
from sluice.coordinator.service.clock import Deadline, SystemClock
from sluice.coordinator.service.memory import Call
from sluice.coordinator.service.store import Delete, Write
from sluice.storage.actions.texts import pieces, put_text
from sluice.storage.errors import ObjectNotFound, Unavailable
from sluice.storage.log.paths import commit_path, staged_path
from tests.coordinator.world import DIRECT, QUICK, World, append_intent, rewrite_intent, see_through
from tests.mending import mend
from tests.tables.conftest import FLIGHTS, flights

BOTH_PATHS = pytest.mark.parametrize("limits", [QUICK, DIRECT], ids=["queue", "fast path"])


def is_there(world: World, version: int) -> bool:
    try:
        return bool(world.objects.get(commit_path(version)))
    except ObjectNotFound:
        return False


@pytest.mark.notices("published-when-it-is-there")
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


@pytest.mark.notices("answered-when-published")
@BOTH_PATHS
def test_who_is_answered_finds_the_file(world: World, limits: Limits) -> None:
    world.objects.disk.slow("put_if_absent", lambda: time.sleep(0.05), times=10)
    client = world.client(limits)
    for version in range(3):
        commit = client.commit(append_intent(client.head()))
        assert commit.published
        assert is_there(world, version)


@pytest.mark.notices("fast-path-when-idle")
@BOTH_PATHS
def test_no_more_is_ratified_than_may_wait(world: World, limits: Limits) -> None:
    """While nothing can be published the backlog fills, and then nothing more is decided: records of what waits are not pruned."""
    client = world.client(replace(limits, backlog_versions_max=2, verdicts_kept=3, publication_wait_s=0.05))
    client.append("0.parquet")
    world.objects.disk.fail_before("put_if_absent", times=10_000)
    for n in range(2):
        client.commit(rewrite_intent(client.head(), f"{n}.parquet", f"{n + 1}.parquet"), ack="ratified", timeout_s=30)
    intent = rewrite_intent(client.head(), "2.parquet", "3.parquet")
    with pytest.raises(OutcomeUnknown):
        client.commit(intent, ack="ratified", timeout_s=0.3)
    assert client.head().version - client.published().version == 2
    mend(world.objects.disk)
    client.append("last.parquet")


@pytest.mark.notices("the-first-batch-of-a-number-made-it")
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
    content = b"".join(pieces(world.client().coordinated.log.content(1)))
    assert b"1.parquet" in content
    mend(world.objects.disk)
    client.append()
    assert world.objects.get(commit_path(1)) == content


@pytest.mark.notices("published-though-a-slot-is-gone")
@pytest.mark.timeout(20)
def test_published_is_raised_though_one_of_the_slots_is_gone(world: World) -> None:
    """The multi that raises it removes the slots too: where one is gone already, the rest is done one by one."""
    client, other = world.client(), world.client()
    intents = [append_intent(client.head()) for _ in range(2)]
    for intent in intents:
        client.claim(intent)

    def withdraw(call: Call) -> None:
        gone = [op.path for op in call.ops if isinstance(op, Delete)]
        if gone and any(op.path == world.tree.published for op in call.ops):
            world.coordination.before = None
            other.session.delete(gone[0])

    world.coordination.before = withdraw
    assert client.committed(intents[1].transaction_id).published
    assert client.published().version == client.head().version
    assert other.session.children(world.tree.slots(0)) == []


@pytest.mark.notices("late-publishers-find-it-published")
def test_a_publisher_who_is_late_finds_what_was_staged_gone(world: World) -> None:
    """The version was published, and its staged actions were collected, between two looks of his."""
    dying, late, fast = (world.client() for _ in range(3))
    intent = append_intent(dying.head(), "x.parquet")
    key = staged_path(intent.transaction_id)
    world.objects.put(key, intent.actions.encode())
    world.objects.disk.fail_before("put_if_absent", times=10_000)
    dying.commit(replace(intent, actions="", staged=key), ack="ratified")
    assert not dying.coordinated.background.drain(5.0)
    dying.session.close()
    mend(world.objects.disk)

    def collect() -> None:
        fast.coordinated.publisher.publish_pending()
        world.objects.delete(key)

    def of_slots(call: Call) -> bool:
        paths = (call.path, *[op.path for op in call.ops])
        return call.session_id == late.session.session_id and any(world.tree.slots(0) in path for path in paths)

    world.once(collect, of_slots, after=True)
    assert late.coordinated.publisher.publish_pending().version == 0
    assert world.coordination.after is None
    assert world.files() == {"x.parquet"}


def last_record(world: World) -> BatchRecord:
    """The record of the batch published last."""
    client = world.client()
    return client.record(client.published().record)


def decided_by_another(world: World, count: int) -> list[tuple[Claim, Intent]]:
    """That many appends in one batch, which a client published that none of them belongs to."""
    owner, other = world.client(), world.client()
    intents = [append_intent(owner.head()) for _ in range(count)]
    claims = [owner.claim(intent) for intent in intents]
    settle_queue(other.coordinated, Deadline.after(20, SystemClock()))
    return list(zip(claims, intents, strict=True))


@pytest.mark.parametrize("count", [1, 3, 100])
def test_who_waits_reads_what_became_of_it_where_it_reads_that_it_is_published(world: World, count: int) -> None:
    """Waiters of a small batch read no record; waiters of a large batch find the same in its record."""
    waiting = decided_by_another(world, count)
    client = world.client()
    record = last_record(world)
    read: list[str] = []
    world.coordination.before = lambda call: read.append(call.path)
    for at, (claim, intent) in enumerate(waiting):
        read.clear()
        commit = see_through(client.coordinated, claim, intent, Deadline.after(5, SystemClock()))
        verdict = record.verdict_of(claim.slot)
        assert verdict is not None
        assert (commit.version, commit.ordinal, commit.transaction_id) == (verdict.version, verdict.ordinal, intent.transaction_id)
        assert (commit.timestamp, commit.published, commit.repeated) == (record.versions[0].timestamp_ms, True, False)
        assert any(path.startswith(world.tree.verdicts) for path in read) == (at >= 64)


@pytest.mark.notices("published-tells-of-its-own-slots")
def test_a_slot_that_only_bears_the_name_of_a_transaction_is_not_told_that_this_is_committed(world: World) -> None:
    """What `published` says of a transaction counts for its own slot and generation."""
    [(claim, _)] = decided_by_another(world, 1)
    client = world.client()
    state, find = client.published(), client.coordinated.verdicts.find

    def settled(claim: Claim, published: Published) -> Commit:
        told = find(claim, published)
        assert told is not None
        return commit_of(told)

    assert settled(claim, state).version == 0
    assert "another" not in state.commits
    with pytest.raises(NotCommitted):
        settled(replace(claim, transaction_id="another"), state)
    later = replace(state, commits={claim.transaction_id: (claim.slot + 1, 7, 0, 1)})
    assert settled(claim, later).version == 0
    assert settled(claim, replace(later, generation=1, commits={claim.transaction_id: (claim.slot, 7, 0, 1)})).version == 0


@pytest.mark.notices("published-tells-of-commits-only")
def test_what_is_refused_or_repeated_is_told_by_its_record() -> None:
    verdicts = (
        Verdict(4, "a", 7, 0),
        Verdict(5, "b", refusal=Refusal("rule", "Refused", "no")),
        Verdict(6, "a", 7, 0, repeats=True),
        Verdict(7, "c", 3, 1, repeats=True),
        Verdict(8, "d", 8, 0),
        Verdict(NO_SLOT, "e", 8, 1),
    )
    record = BatchRecord("batch", 0, Rendering(1), verdicts, (VersionPlan(7, 100, (4,)), VersionPlan(8, 101, (8,))))
    assert record.commits(64) == {"a": (4, 7, 0, 100), "d": (8, 8, 0, 101)}
    assert record.commits(1) == {"a": (4, 7, 0, 100)}


@pytest.mark.parametrize("place", ["x", [1, 2, 3], [1, 2, 3, 4, 5], [1, 2, 3, None], {}])
def test_a_place_in_published_that_is_none_is_malformed(place: object) -> None:
    data = orjson.dumps({**orjson.loads(Published().encode()), "commits": {"t": place}})
    with pytest.raises(MalformedRecord, match="commits"):
        Published.decode(data)


def test_a_ratified_version_whose_slot_was_removed_is_not_tried_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """It cannot be published; a client that looks reports that, and does not ask the coordinator all the time."""
    world = World()
    client = world.client(QUICK)
    client.append()
    monkeypatch.setattr(Batch, "publish", lambda _: False)
    monkeypatch.setattr(client.coordinated.background, "submit", lambda *_, **__: None)
    client.commit(append_intent(client.head()), ack="ratified")
    for name in client.session.children(world.tree.slots(0)) or ():
        client.session.delete(f"{world.tree.slots(0)}/{name}")
    calls: list[Call] = []
    other = world.client(QUICK)

    def count(call: Call) -> None:
        calls.append(call)
        assert len(calls) < 200

    world.coordination.before = count
    with pytest.raises(Unavailable, match=r"could not be published.*removed by hand"):
        other.coordinated.publisher.publish_pending()


@pytest.fixture
def background() -> Iterator[Background]:
    background = Background(lambda _: None)
    yield background
    assert background.drain(10)


def test_open_tables_have_no_threads_of_their_own() -> None:
    coordinator = f"memory://{uuid.uuid4().hex}"
    before = threading.active_count()
    tables = [sluice.Table.create(f"memory://{uuid.uuid4().hex}", FLIGHTS, coordinator=coordinator, ack="ratified") for _ in range(100)]
    for table in tables:
        table.append(flights(("JFK", 1, 1)))
    assert threading.active_count() - before <= _THREADS_MAX
    for table in tables:
        table.close()
        assert table.snapshot(consistency="published").to_arrow().num_rows == 1


def test_one_tables_publications_run_one_after_the_other(background: Background) -> None:
    order: list[int] = []
    for number in range(50):
        background.submit(lambda number=number: order.append(number))  # type: ignore[misc]
    assert background.drain(10)
    assert order == list(range(50))


def test_one_that_fails_does_not_keep_the_next_from_running(background: Background, caplog: pytest.LogCaptureFixture) -> None:
    ran = threading.Event()
    background.submit(lambda: 1 / 0)
    background.submit(ran.set)
    assert background.drain(10)
    assert ran.is_set()
    assert "ZeroDivisionError" in caplog.text


def test_a_table_whose_publication_waits_holds_up_no_other(background: Background) -> None:
    go = threading.Event()
    background.submit(go.wait)
    other = Background(lambda _: None)
    ran = threading.Event()
    other.submit(ran.set)
    assert ran.wait(10)
    go.set()


def test_a_busy_one_is_left_alone(background: Background) -> None:
    go, ran = threading.Event(), threading.Event()
    background.submit(go.wait)
    background.submit(ran.set, unless_busy=True)
    go.set()
    assert background.drain(10)
    assert not ran.is_set()


def test_objects_of_a_version_are_stored_beside_each_other(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A change that meets a compaction of a thousand files has a vector for each: one after the other would hold the queue up."""
    both = threading.Barrier(2, timeout=20)

    def meets(*where: Any) -> None:
        both.wait()
        put_text(*where)

    monkeypatch.setattr(ratified_log, "put_text", meets)
    store_objects(world.client().context, {"a.bin": b"a", "b.bin": b"b"})
    assert (world.objects.get("a.bin"), world.objects.get("b.bin")) == (b"a", b"b")
