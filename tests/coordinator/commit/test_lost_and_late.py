"""Replies that are lost, servers that are behind, and others that are faster, where nobody looked first."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace

import pyarrow as pa
import pytest

import sluice
from sluice.coordinator.commit.outcomes import Claim
from sluice.coordinator.commit.transactions import outcome_of
from sluice.coordinator.errors import CoordinatorUnavailable
from sluice.coordinator.limits import Limits
from sluice.coordinator.nodes.context import require_head
from sluice.coordinator.nodes.creation import check_tree, make_tree, reopen_tree
from sluice.coordinator.nodes.layout import TableTree, VerdictName
from sluice.coordinator.nodes.records import BatchRecord, Head, Published
from sluice.coordinator.service.connect import connect, release
from sluice.coordinator.service.memory import Call, Fault, MemorySession
from sluice.coordinator.service.store import Write
from sluice.coordinator.service.tree import Tree
from sluice.storage.actions.texts import sha256
from sluice.storage.errors import InvariantBroken
from sluice.storage.log.paths import commit_path
from sluice.storage.stores.memory import MemoryStore
from tests.coordinator.joint_world import JointWorld
from tests.coordinator.world import DIRECT, QUICK, Client, World, append_intent, decide, prune, rewrite_intent, soon
from tests.mending import mend, publishers_are_idle

SCHEMA = pa.schema([pa.field("a", pa.int64())])


@pytest.fixture
def place() -> Iterator[str]:
    """Where a table and its coordinator are."""
    made = f"memory://{uuid.uuid4().hex}"
    yield made
    MemoryStore(made).forget()


@pytest.fixture
def table(place: str) -> sluice.Table:
    return sluice.Table.create(place, SCHEMA, coordinator=place)


@pytest.mark.notices("trees-are-made-once")
@pytest.mark.parametrize("fault", [Fault.REQUEST_LOST, Fault.REPLY_LOST])
def test_a_tree_is_made_although_an_answer_is_lost(fault: Fault) -> None:
    world = World()
    world.tree = TableTree("memory://another")
    client = Client(world)
    world.coordination.inject(fault, verb="apply")
    make_tree(client.context, Head())
    assert check_tree(client.context)


def test_an_outcome_is_told_as_published_when_it_is() -> None:
    """The client that ratified it died before it was published."""
    world = World()
    dead, asking = world.client(DIRECT), world.client()
    world.objects.disk.throttle("put_if_absent", times=10_000)
    intent = append_intent(dead.head())
    assert not dead.commit(intent, ack="ratified").published
    assert not asking.committed(intent.transaction_id).published
    assert not dead.coordinated.background.drain(5)
    mend(world.objects.disk)
    assert asking.committed(intent.transaction_id).published
    assert intent.transaction_id in world.transactions()


def test_a_server_that_is_behind_makes_no_commit_a_foreign_one(place: str, table: sluice.Table) -> None:
    for number in range(3):
        table.append(pa.table({"a": [number]}, SCHEMA))
    release(place)
    session = connect(place)  # a new one has seen nothing yet
    assert isinstance(session, MemorySession)
    session.lag = 4
    try:
        stale = session.read(TableTree(place).head)
        assert stale is not None
        assert Head.decode(stale.data).version < 3
        assert sluice.Table.open(place, coordinator=place).version == 3
    finally:
        session.lag = 0


@pytest.mark.parametrize("is_published", [True, False])
def test_a_version_is_read_although_its_session_is_over_and_the_next_ones_server_behind(is_published: bool) -> None:
    """A session never goes back, but the next one may be with a server that has not heard of what the former one showed."""
    world = World()
    writer, reader = world.client(), world.client()
    for _ in range(3):
        writer.append()
    if not is_published:
        world.objects.disk.throttle("put_if_absent", times=10_000)
    intent = append_intent(writer.head())
    version = writer.commit(intent, ack="published" if is_published else "ratified").version
    assert reader.head().version == version
    reader.session.expire()
    reader.session = world.coordination.connect()
    reader.session.lag = 6
    stale = reader.session.read(world.tree.head)
    assert stale is not None
    assert Head.decode(stale.data).version < version
    assert [info.get("txnId") for info in (reader.coordinated.log.info(version),)] == [intent.transaction_id]
    mend(world.objects.disk)
    assert writer.coordinated.background.drain(30.0)


def test_a_checkpoint_is_one_of_the_published_version_while_others_commit(place: str, table: sluice.Table) -> None:
    other = sluice.Table.open(place, coordinator=place, ack="ratified")
    table.append(pa.table({"a": [1]}, SCHEMA))
    coordinated = table.coordinated
    publish_pending = coordinated.publisher.publish_pending

    def and_somebody_commits() -> Published:
        reached = publish_pending()
        MemoryStore(place).disk.throttle("put_if_absent", times=1000)
        other.append(pa.table({"a": [2]}, SCHEMA))
        return reached

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(coordinated.publisher, "publish_pending", and_somebody_commits)
        assert table.checkpoint() == 1
    mend(MemoryStore(place).disk)
    other.close()
    assert table.snapshot(consistency="latest").version == 2


def test_a_session_shows_what_it_was_told_to_be_committed_already(place: str, table: sluice.Table) -> None:
    """A plan that another process committed, as a job that was restarted hears it."""
    other = sluice.Table.open(place, coordinator=place)
    plan = table.plan_write(SCHEMA)
    files = plan.write(pa.table({"a": [1]}, SCHEMA))
    made = other.commit_write(plan, files)
    told = table.commit_write(plan, files)
    assert made is not None
    assert told is not None
    assert (told.version, told.repeated) == (made.version, True)
    assert table.snapshot(consistency="session").version == made.version


@pytest.mark.notices("detached-tables-refuse", "brought-in-again-when-attached")
def test_nobody_commits_to_a_table_that_is_about_to_be_brought_in_again(place: str, table: sluice.Table) -> None:
    """Its tree goes on, and the log still says that it belongs to other engines."""
    other = sluice.Table.open(place, coordinator=place)
    table.detach()
    context = table.coordinated.context
    state = context.read_head()
    assert state is not None
    reopen_tree(context, replace(state[0], detached=False))
    with pytest.raises(sluice.errors.NotCommitted, match="detached"):
        other.append(pa.table({"a": [1]}, SCHEMA))
    assert sluice.Table.attach(place, coordinator=place).version == 2
    commit = other.append(pa.table({"a": [1]}, SCHEMA))
    assert commit is not None
    assert commit.version == 3


def test_a_transaction_over_several_tables_is_published_by_who_asks_though_its_generation_is_over() -> None:
    """It was ratified with the last slots of them, and its owner died before it was published."""
    world = JointWorld("ab")
    dead, asking = world.client(replace(QUICK, generation_slots_max=1)), world.client()
    for table in world.tables.values():
        table.objects.disk.throttle("put_if_absent", times=10_000)
    intents = dead.intents("ab")
    dead.commit(intents, ack="ratified")
    for table in world.tables.values():
        mend(table.objects.disk)
    for coordinated in asking.coordinated.values():
        assert outcome_of(coordinated, intents["a"].transaction_id, soon()).state == "committed"
    assert all(len(table.log()) == 1 for table in world.tables.values())
    for coordinated in dead.coordinated.values():
        coordinated.background.drain(30.0)


def test_what_is_committed_is_not_unknown_to_who_asks_over_two_sessions() -> None:
    world = World()
    writer, asking = world.client(), world.client()
    asking.next_lag = 6
    *_, transaction_id = (writer.append().transaction_id for _ in range(3))
    world.coordination.inject(Fault.EXPIRED_BEFORE, session=asking.session, verb="read", path=world.tree.head)
    assert asking.outcome(transaction_id).state == "committed"
    assert asking.session.lag == 6


def test_a_table_is_not_taken_for_unknown_on_the_word_of_a_server_behind() -> None:
    """It was created a moment ago, and the session is new."""
    world = World()
    client = world.client()
    client.append()
    client.session.expire()
    client.context.connect().lag = 1_000  # type: ignore[attr-defined]
    assert check_tree(client.context)
    client.session.expire()
    client.context.connect().lag = 1_000  # type: ignore[attr-defined]
    assert require_head(client.context).version == 0


def test_what_was_decided_before_all_data_were_lost_is_not_taken_for_refused() -> None:
    """Its decision was seen, and with the records went what it was: the log may have it."""
    world = World()
    client = world.client()
    claim = Claim(client.append().transaction_id, 0, 0)
    world.coordination.tree = Tree()
    with pytest.raises(CoordinatorUnavailable, match="sluice recover"):
        client.coordinated.verdicts.find(claim)


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


@pytest.mark.notices("batch-is-recognised")
def test_a_record_of_the_same_name_that_somebody_else_wrote(world: World) -> None:
    """It decides the same slot in the same way, at another time: what is published is what that record says."""
    slow, fast = world.client(), world.client()
    intent = append_intent(slow.head(), "slow.parquet")

    def decide_and_die() -> None:
        time.sleep(0.005)  # so that the time in the record is another one
        world.objects.disk.fail_before("put_if_absent", times=1)
        assert decide(fast.coordinated)

    instead_of_ratifying(world, slow, decide_and_die)
    assert slow.commit(intent).version == 0
    slow.coordinated.publisher.publish_pending()  # where its own time to publish was over
    [record] = records(world)
    assert [sha256(world.objects.get(commit_path(plan.version))) for plan in record.versions] == [p.digest for p in record.versions]


@pytest.mark.notices("batch-is-recognised")
def test_a_record_of_the_same_name_on_the_fast_path(world: World) -> None:
    """It is about another transaction: one's own is not committed yet."""
    slow, fast = world.client(DIRECT), world.client(DIRECT)
    instead_of_ratifying(world, slow, lambda: fast.append("fast.parquet"))
    slow.append("slow.parquet")
    assert world.files() == {"fast.parquet", "slow.parquet"}


@pytest.mark.notices("barrier-before-an-outcome")
@pytest.mark.parametrize("limits", [QUICK, DIRECT], ids=["queue", "fast path"])
def test_who_asks_a_server_that_is_behind_is_not_told_that_there_is_nothing(world: World, limits: Limits) -> None:
    """An outcome, and what became of a lost request, are asked for after a barrier."""
    writer, asking = world.client(limits), world.client()
    writer.append("first.parquet")
    undecided = append_intent(writer.head(), "late.parquet")
    asking.head()
    asking.session.lag = 2
    writer.claim(undecided)
    outcome = asking.outcome(undecided.transaction_id)
    assert outcome.commit is not None, "its slot stood before it was asked for"


@pytest.mark.notices("barrier-after-a-lost-reply")
def test_a_lost_claim_is_looked_for_after_a_barrier(world: World) -> None:
    client = world.client()
    client.append("first.parquet")
    client.session.lag = 2
    world.coordination.inject(Fault.REPLY_LOST, verb="apply", path="/i-")
    commit = client.append("x.parquet")
    client.session.lag = 0
    assert not commit.repeated, "the slot was there, and is not made twice"


@pytest.mark.notices("gaps-are-looked-at-again")
def test_a_publisher_that_slept_while_others_published_and_pruned(world: World) -> None:
    """It read how far publication got, fell asleep, and finds records that begin much later."""
    limits = replace(QUICK, backlog_versions_max=1, verdicts_kept=2)
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
            publishers_are_idle()  # it is their put that fails

    world.coordination.after = overtake
    sleeping.coordinated.publisher.publish_pending()
    assert "last.parquet" in world.files()


def test_a_gap_among_the_records_is_no_end_of_looking(world: World) -> None:
    """A record that is gone for good is reported, however often it is looked for."""
    client = world.client()
    client.append("first.parquet")
    world.objects.disk.fail_before("put_if_absent", times=10_000)
    client.commit(rewrite_intent(client.head(), "first.parquet", "second.parquet"), ack="ratified")
    client.commit(rewrite_intent(client.head(), "second.parquet", "third.parquet"), ack="ratified")
    mend(world.objects.disk)
    lost = VerdictName(0, 1, 1, False)
    other = world.client()
    other.session.delete(world.tree.verdict(lost))
    with pytest.raises(InvariantBroken, match="I6"):
        other.coordinated.publisher.publish_pending()


@pytest.mark.notices("first-pending-batch-first")
def test_of_two_batches_that_wait_the_first_is_published_first(world: World) -> None:
    first, second = world.client(), world.client()
    first.append("old.parquet")
    world.objects.disk.fail_before("put_if_absent", times=10_000)
    first.commit(rewrite_intent(first.head(), "old.parquet", "new.parquet"), ack="ratified")
    second.commit(rewrite_intent(second.head(), "new.parquet", "newer.parquet"), ack="ratified")
    mend(world.objects.disk)
    second.coordinated.publisher.publish_pending()
    assert world.files() == {"newer.parquet"}
    assert len(world.log()) == 3
