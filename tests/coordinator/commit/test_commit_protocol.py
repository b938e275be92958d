"""The commit protocol on the in-memory twins: order, helping, group commit, lost replies, outcomes."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from sluice.coordinator.errors import (
    ConcurrentDeleteReadException,
    ConcurrentTransactionException,
    NotCommitted,
    OutcomeUnknown,
    ProtocolChangedException,
)
from sluice.coordinator.limits import Limits
from sluice.coordinator.service.memory import Call, Fault
from sluice.storage.errors import AccessDenied, ForeignCommit, StorageUnavailable
from sluice.storage.log.paths import commit_path
from tests.coordinator.world import (
    DIRECT,
    PARTITIONED,
    QUICK,
    Client,
    World,
    app_intent,
    append_intent,
    barrier_of,
    files_slots,
    rewrite_intent,
)
from tests.mending import mend


def test_many_writers_lose_nothing_and_share_versions(world: World) -> None:
    clients = [world.client() for _ in range(8)]
    world.objects.disk.slow("put_if_absent", lambda: time.sleep(0.005), times=1_000)

    def work(client: Client) -> list[str]:
        return [client.append().transaction_id for _ in range(20)]

    with ThreadPoolExecutor(8) as pool:
        committed = [t for ids in pool.map(work, clients) for t in ids]
    assert sorted(world.transactions()) == sorted(committed)
    assert len(world.log()) < len(committed), "blind appends that queue up together share a version"


@pytest.mark.notices("slots-are-sorted")
def test_slots_are_decided_in_slot_order(world: World) -> None:
    client = world.client()
    intents = [append_intent(client.head()) for _ in range(5)]
    for intent in intents[:-1]:
        world.client().claim(intent)
    client.commit(intents[-1])
    assert world.transactions() == [i.transaction_id for i in intents]


@pytest.mark.notices("patience-decides")
def test_a_dead_writers_intent_is_decided_by_others(world: World) -> None:
    dead, alive = world.client(), world.client()
    orphan = append_intent(dead.head(), "orphan.parquet")
    dead.claim(orphan)
    dead.session.close()
    alive.append("mine.parquet")
    assert world.files() == {"orphan.parquet", "mine.parquet"}
    outcome = alive.outcome(orphan.transaction_id)
    assert outcome.state == "committed"


@pytest.mark.notices("first-unseen-winner-counts")
@pytest.mark.parametrize("limits", [QUICK, DIRECT], ids=["queue", "fast path"])
def test_the_later_of_two_rewrites_of_a_file_is_refused(world: World, limits: Limits) -> None:
    one, other = world.client(limits), world.client(limits)
    one.append("old.parquet")
    mine, theirs = rewrite_intent(one.head(), "old.parquet", "mine.parquet"), rewrite_intent(one.head(), "old.parquet", "theirs.parquet")
    one.commit(mine)
    with pytest.raises(ConcurrentDeleteReadException) as caught:
        other.commit(theirs)
    assert caught.value.winning_version == 1
    assert "old.parquet" in str(caught.value)
    assert world.files() == {"mine.parquet"}
    told = one.outcome(theirs.transaction_id)
    assert told.state == "refused"
    assert isinstance(told.error, ConcurrentDeleteReadException)


@pytest.mark.notices("winners-of-the-same-batch-count")
def test_conflicts_inside_one_batch_are_seen(world: World) -> None:
    client = world.client()
    client.append("old.parquet")
    first, second = (rewrite_intent(client.head(), "old.parquet", f"{n}.parquet") for n in "ab")
    world.client().claim(first)
    with pytest.raises(ConcurrentDeleteReadException):
        client.commit(second)
    assert world.files() == {"a.parquet"}


@pytest.mark.notices("expected-version-is-compared")
def test_of_two_creators_one_is_told(world: World) -> None:
    client = world.client()
    first, second = (append_intent(client.head(), expected_version=0, table_id=n) for n in "ab")
    client.commit(first)
    with pytest.raises(ProtocolChangedException, match="open the table again and look"):
        client.commit(second)
    assert client.head().table_id == "a"


@pytest.mark.notices("applications-are-depended-on")
@pytest.mark.parametrize("number", [0, 2])
def test_an_application_that_went_on_refuses_another_number(world: World, number: int) -> None:
    client = world.client()
    base = client.head()
    client.commit(app_intent(base, 1))
    with pytest.raises(ConcurrentTransactionException, match="application transaction app"):
        client.commit(app_intent(base, number))
    assert client.commit(app_intent(client.head(), number)).version == 1


@pytest.mark.notices("application-number-once")
@pytest.mark.parametrize("filed", [True, False], ids=["in one batch", "one after the other"])
def test_an_application_transaction_is_committed_once(world: World, filed: bool) -> None:
    client = world.client()
    first, second = (app_intent(client.head(), 7) for _ in range(2))
    if filed:
        world.client().claim(first)
    else:
        client.commit(first)
    again = client.commit(second)
    assert (again.version, again.ordinal, again.repeated) == (0, 0, True)
    assert world.transactions() == [first.transaction_id]


@pytest.mark.parametrize("filed", [pytest.param(True, marks=pytest.mark.notices("repetition-has-every-number")), False])
def test_the_same_number_with_another_one_beside_is_refused(world: World, filed: bool) -> None:
    """Two runs of one stream: the number beside the batch's tells their rows apart."""
    client = world.client()
    base = client.head()
    first, second = (app_intent(base, 7, rows=rows) for rows in (1, 2))
    if filed:
        world.client().claim(first)
    else:
        client.commit(first)
    with pytest.raises(ConcurrentTransactionException, match="application transaction rows"):
        client.commit(second)
    assert world.transactions() == [first.transaction_id]
    assert client.commit(app_intent(base, 7, rows=1)).repeated


# -- lost replies: every mutating call of a commit, before and after its effect ------------------------------------------


@pytest.mark.parametrize("fault", list(Fault))
@pytest.mark.parametrize("path", ["/i-", "/head"])
@pytest.mark.parametrize("nth", [0, 1])
def test_a_lost_reply_never_loses_nor_doubles(world: World, fault: Fault, path: str, nth: int) -> None:
    client = world.client()
    client.append("first.parquet")
    world.coordination.inject(fault, verb="apply", path=path, skip=nth)
    ids = [client.append().transaction_id for _ in range(3)]
    assert world.transactions()[1:] == ids


@pytest.mark.parametrize("fault", list(Fault))
@pytest.mark.parametrize("limits", [QUICK, DIRECT], ids=["queue", "fast path"])
def test_losing_the_reply_of_every_call_in_turn(fault: Fault, limits: Limits) -> None:
    """Run a commit once to count its calls, then once per call with that very call's reply lost."""
    counting = World()
    client = counting.client(limits)
    client.append()
    before = sum(counting.coordination.calls.values())
    client.append()
    calls = sum(counting.coordination.calls.values()) - before
    assert calls > 3
    for number in range(calls):
        world = World()
        writer = world.client(limits)
        writer.append()
        world.coordination.inject(fault, skip=number)
        commit = writer.append("x.parquet")
        assert commit.version == 1
        assert "x.parquet" in world.files()
        world.check()


@pytest.mark.notices("slot-is-looked-for")
def test_the_slot_of_a_lost_reply_is_found_by_its_guid(world: World) -> None:
    client = world.client()
    filed: list[Call] = []
    world.coordination.after = lambda call: filed.append(call) if files_slots(call) else None
    world.coordination.inject(Fault.REPLY_LOST, verb="apply", path="/i-")
    commit = client.append("x.parquet")
    assert not commit.repeated
    assert len(filed) == 1


def test_a_session_that_expires_while_a_lost_reply_is_looked_into(world: World) -> None:
    for limits in (QUICK, DIRECT):
        client = world.client(limits)
        world.coordination.inject(Fault.REPLY_LOST, verb="apply", path="/i-" if limits is QUICK else "/head")
        world.coordination.inject(Fault.EXPIRED_BEFORE, verb="barrier")
        assert not client.append().repeated
    assert len(world.transactions()) == 2


def test_a_ratification_whose_reply_was_lost_is_recognised(world: World) -> None:
    """Without waiting out any patience: the record in the tree is the client's own."""
    client = world.client(replace(QUICK, patience_s=30.0, patience_s_max=30.0))
    world.coordination.inject(Fault.REPLY_LOST, verb="apply", path="/head")
    assert client.append("x.parquet").published


@pytest.mark.notices("filed-again-is-said", "committed-once-by-id")
def test_a_claim_whose_slot_was_decided_before_the_lost_reply_was_noticed(world: World) -> None:
    """The create takes effect, its reply is lost, and another client commits and cleans up before the owner looks."""
    owner, other = world.client(), world.client()
    world.coordination.inject(Fault.REPLY_LOST, verb="apply", path="/i-", session=owner.session)
    world.once(lambda: other.append("other.parquet"), barrier_of(owner.session))
    commit = owner.append("mine.parquet")
    assert commit.repeated or commit.version >= 0
    assert sorted(world.files()) == ["mine.parquet", "other.parquet"]


# -- publication --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limits", [QUICK, DIRECT], ids=["queue", "fast path"])
def test_a_ratified_version_is_published_by_others_when_its_ratifier_dies(world: World, limits: Limits) -> None:
    dying, other = world.client(limits), world.client()
    world.objects.disk.fail_before("put_if_absent", times=50)
    commit = dying.commit(append_intent(dying.head(), "x.parquet"), ack="ratified")
    assert (commit.version, commit.published) == (0, False)
    dying.session.close()
    assert world.log() == []
    mend(world.objects.disk)
    other.append("y.parquet")
    assert world.files() == {"x.parquet", "y.parquet"}


def test_racing_publishers_write_the_same_bytes(world: World) -> None:
    clients = [world.client(replace(QUICK, patience_s=0.001, patience_s_max=0.002)) for _ in range(6)]
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda c: [c.append() for _ in range(10)], clients))
    assert len(world.transactions()) == 60


@pytest.mark.shows("other-engine")
@pytest.mark.notices("foreign-commits-are-noticed")
def test_a_foreign_commit_is_named(world: World) -> None:
    client = world.client()
    client.append()
    world.objects.put(commit_path(1), b'{"commitInfo":{"operation":"somebody else"}}\n')
    with pytest.raises(ForeignCommit, match=r"00000001\.json"):
        client.append()
    world.objects.delete(commit_path(1))
    client.coordinated.publisher.publish_pending()


# -- generations, bounds ------------------------------------------------------------------------------------------------


@pytest.mark.notices("generations-end")
def test_generations_rotate_and_lose_nothing(world: World) -> None:
    limits = replace(QUICK, generation_slots_max=3)
    clients = [world.client(limits) for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        ids = [i for part in pool.map(lambda c: [c.append().transaction_id for _ in range(10)], clients) for i in part]
    assert sorted(world.transactions()) == sorted(ids)
    assert clients[0].head().generation >= 3


def test_a_malformed_intent_is_refused_and_stops_nobody(world: World) -> None:
    client = world.client()
    head = client.head()
    for data in (
        b"",
        b"{}",
        b"[1]",
        b'{"transaction_id": 3}',
        append_intent(head, isolation="Chaos").encode(),
        append_intent(head).encode(),
    ):
        client.session.create(world.tree.slot_prefix(head.generation, "bad"), data, sequential=True)
    lying = append_intent(head, actions='{"add":{}}\n')
    with pytest.raises(NotCommitted):
        client.commit(lying)
    with pytest.raises(NotCommitted):
        client.commit(append_intent(head, staged="_delta_log/_staged_commits/gone.json", actions=""))
    with pytest.raises(NotCommitted):
        client.commit(append_intent(head, validated_through=99))
    client.append("good.parquet")
    assert world.files() == {"good.parquet"}


def test_a_waiting_writer_gives_up_with_the_stage(world: World) -> None:
    client = world.client()
    world.coordination.before = lambda call: Fault.REQUEST_LOST if call.verb == "apply" and not files_slots(call) else None
    with pytest.raises(OutcomeUnknown) as caught:
        client.commit(append_intent(client.head(), "late.parquet"), timeout_s=0.3)
    assert caught.value.stage == "intent"
    world.coordination.before = None
    outcome = client.outcome(caught.value.transaction_id)
    assert outcome.state == "committed"
    assert world.files() == {"late.parquet"}


def test_a_writer_all_of_whose_requests_are_lost_gives_up_in_time(world: World) -> None:
    client = world.client()
    intent = append_intent(client.head(), "never.parquet")
    world.coordination.before = lambda call: Fault.REQUEST_LOST if call.verb == "apply" else None
    with pytest.raises(OutcomeUnknown):
        client.commit(intent, timeout_s=0.3)
    world.coordination.before = None
    assert client.outcome(intent.transaction_id).state == "unknown"


def test_staged_actions_are_published(world: World) -> None:
    client = world.client()
    intent = append_intent(client.head(), "big.parquet")
    world.objects.put("_delta_log/_staged_commits/x.json", intent.actions.encode())
    client.commit(replace(intent, staged="_delta_log/_staged_commits/x.json", actions=""))
    assert world.files() == {"big.parquet"}


def test_two_threads_of_one_client(world: World) -> None:
    client, done = world.client(), []
    threads = [threading.Thread(target=lambda: done.append(client.append())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(done) == 8
    assert len(world.transactions()) == 8


@pytest.mark.notices("trouble-with-deciding-is-waited-out")
def test_an_unavailable_store_during_a_decision_only_delays(world: World) -> None:
    client = world.client()
    client.append("old.parquet")
    other = world.client()
    world.objects.disk.fail_before("get", times=3, error=StorageUnavailable("down"))
    other.commit(rewrite_intent(other.head(), "old.parquet", "new.parquet", validated_through=-1, reads=PARTITIONED))
    assert world.files() == {"new.parquet"}


@pytest.mark.parametrize("failing", [0, 1])
def test_what_was_acknowledged_as_ratified_is_published_in_the_background(world: World, failing: int) -> None:
    client = world.client()
    if failing:
        world.objects.disk.fail_before("put_if_absent", times=failing)
    commits = [client.commit(append_intent(client.head(), f"{n}.parquet"), ack="ratified") for n in range(5)]
    assert [c.published for c in commits] == [False] * 5
    assert client.coordinated.background.drain(30.0)
    assert world.files() == {f"{n}.parquet" for n in range(5)}


# -- the fast path ------------------------------------------------------------------------------------------------------


def test_a_lone_writer_needs_no_slot(world: World) -> None:
    client = world.client(DIRECT)
    world.coordination.before = lambda call: pytest.fail("a slot was filed") if files_slots(call) else None
    commits = [client.append() for _ in range(3)]
    assert [c.version for c in commits] == [0, 1, 2]
    assert client.head().slot == -1
    assert world.client().committed(commits[1].transaction_id).version == 1


@pytest.mark.notices("who-waits-is-not-passed")
def test_who_waits_in_the_queue_is_not_passed(world: World) -> None:
    waiting, direct = world.client(), world.client(DIRECT)
    first = append_intent(waiting.head(), "first.parquet")
    waiting.claim(first)
    second = direct.append("second.parquet")
    assert world.transactions() == [first.transaction_id, second.transaction_id]


def test_queue_and_fast_path_together_lose_nothing(world: World) -> None:
    clients = [world.client(DIRECT if n % 2 else QUICK) for n in range(8)]
    with ThreadPoolExecutor(8) as pool:
        ids = [i for part in pool.map(lambda c: [c.append().transaction_id for _ in range(20)], clients) for i in part]
    assert sorted(world.transactions()) == sorted(ids)


@pytest.mark.notices("trouble-with-publishing-is-no-failure")
def test_no_right_to_publish_is_no_failure_of_what_is_ratified(world: World) -> None:
    for limits in (QUICK, DIRECT):
        client = world.client(limits)
        world.objects.disk.fail_before("put_if_absent", times=10_000, error=AccessDenied("read-only credentials"))
        commit = client.append()
        assert not commit.published
        mend(world.objects.disk)
        client.coordinated.publisher.publish_pending()
    assert len(world.log()) == 2


@pytest.mark.notices("trouble-with-publishing-is-no-obstacle")
def test_what_cannot_be_published_is_decided_after_a_patience_too(world: World) -> None:
    """The patience of a slow client is over before it looks for the first time."""
    client = world.client(replace(QUICK, patience_s=1e-6, patience_s_max=1e-6))
    client.append("0.parquet")
    stale = replace(client.head(), version=-1)
    world.objects.disk.fail_before("put_if_absent", times=10_000)
    commit = client.commit(rewrite_intent(client.head(), "0.parquet", "1.parquet"), ack="ratified", timeout_s=20)
    assert (commit.version, commit.published) == (1, False)
    with pytest.raises(ConcurrentDeleteReadException):
        client.commit(rewrite_intent(stale, "0.parquet", "2.parquet"), timeout_s=20)
    mend(world.objects.disk)
    client.append("last.parquet")
    assert len(world.log()) == 3


@pytest.mark.notices("own-batch-in-its-turn")
def test_a_batch_on_top_of_an_unpublished_direct_version_waits_for_it(world: World) -> None:
    direct, queued = world.client(DIRECT), world.client()
    direct.append("old.parquet")
    tried = threading.Event()

    def down() -> None:
        tried.set()
        raise StorageUnavailable("down")

    world.objects.disk.slow("put_if_absent", down)
    direct.commit(append_intent(direct.head(), "x.parquet"), ack="ratified")
    assert tried.wait(10.0)
    commit = queued.commit(rewrite_intent(queued.head(), "old.parquet", "new.parquet"))
    assert commit.version == 2
    assert world.files() == {"x.parquet", "new.parquet"}
