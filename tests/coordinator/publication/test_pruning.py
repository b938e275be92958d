"""Verdict records go, and refusals can still be asked for, at the same price however many there are (I10)."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest

from sluice.coordinator.commit.transactions import outcome_of, settle_queue
from sluice.coordinator.errors import ConcurrentModification, NotCommitted, TreeReplaced, Withdrawn
from sluice.coordinator.nodes.creation import make_tree
from sluice.coordinator.nodes.layout import newest_first
from sluice.coordinator.nodes.records import Head
from sluice.coordinator.publication import publisher
from sluice.coordinator.publication.publisher import forget as forget_old
from sluice.coordinator.rules.intent import Intent
from sluice.coordinator.service.clock import Deadline, SystemClock
from sluice.coordinator.service.memory import Call, Fault, MemoryCoordination
from sluice.coordinator.service.store import Delete, Write
from sluice.coordinator.service.tree import Tree
from sluice.storage.log.paths import commit_path
from sluice.storage.stores.memory import MemoryStore
from tests.coordinator.joint_world import JointWorld
from tests.coordinator.world import (
    DIRECT,
    PARTITIONED,
    QUICK,
    Client,
    World,
    add,
    append_intent,
    barrier_of,
    commit_one,
    intent_of,
    prune,
    rewrite_intent,
    soon,
)

KEPT = 3
DAYS = 2
FEW = replace(QUICK, backlog_versions_max=2, verdicts_kept=KEPT, refusals_kept_s=(DAYS - 0.5) * 24 * 3600.0)


@pytest.fixture
def client(world: World) -> Client:
    made = world.client(FEW)
    made.append("0.parquet")
    return made


def stale(client: Client) -> Callable[[], Intent]:
    """What makes intents that are refused."""
    base = client.head()
    client.commit(rewrite_intent(base, "0.parquet", "1.parquet"))
    return lambda: rewrite_intent(base, "0.parquet", "2.parquet")


def refuse(client: Client, intent: Intent) -> str:
    with pytest.raises(ConcurrentModification):
        commit_one(client.coordinated, intent, client.head(), soon())
    return intent.transaction_id


def forget(client: Client) -> None:
    """Let so much be committed that no record of what was before is left, and prune."""
    for _ in range(KEPT):
        client.append()
    prune(client.context)


def days_of(world: World) -> dict[str, int]:
    """How many refusals are put away, by day."""
    session = world.client().session
    return {day: len(session.children(f"{world.tree.refused}/{day}") or ()) for day in session.children(world.tree.refused) or ()}


def file_all(client: Client, intents: Iterable[Intent]) -> None:
    """Make slots by hand."""
    for intent in intents:
        client.session.create(client.world.tree.slot_prefix(0, intent.transaction_id), intent.encode(), sequential=True)


def puts_away(call: Call) -> bool:
    return call.verb == "apply" and any("/t-" in op.path for op in call.ops)


def is_refused(client: Client, guid: str) -> bool:
    return isinstance(client.outcome(guid).error, ConcurrentModification)


def calls_of(world: World, ask: Callable[[], object]) -> list[Call]:
    calls: list[Call] = []
    world.coordination.before = calls.append
    ask()
    world.coordination.before = None
    return calls


@pytest.mark.notices("refusals-are-kept")
def test_refusals_leave_the_records_and_are_told_with_their_reason(world: World, client: Client) -> None:
    refused = stale(client)
    guids = [refuse(client, refused()) for _ in range(4 * KEPT)]
    forget(client)
    assert len(newest_first(client.session.children(world.tree.verdicts) or ())) == KEPT
    assert sum(days_of(world).values()) == len(guids)
    asking = world.client()
    assert all(is_refused(asking, guid) for guid in guids)
    assert outcome_of(asking.coordinated, append_intent(Head()).transaction_id, soon()).state == "unknown"


def test_asking_costs_the_same_however_much_was_refused(world: World, client: Client) -> None:
    refused = stale(client)
    costs: list[int] = []
    for _ in range(2):
        guids = [refuse(client, refused()) for _ in range(10)]
        forget(client)
        asking = world.client()
        costs.append(len(calls_of(world, lambda guid=guids[0], asking=asking: is_refused(asking, guid))))  # type: ignore[misc]
    assert costs[0] == costs[1]


def test_who_looks_late_for_a_verdict_hears_why_it_was_refused(world: World) -> None:
    """It sleeps while it waits for its slot; others decide it, and the record is put away."""
    owner, other = world.client(replace(FEW, patience_s=5.0, patience_s_max=5.0)), world.client(FEW)
    other.append("0.parquet")
    intent = stale(other)()

    def meddle(call: Call) -> None:
        if call.verb in ("read", "children") and call.session_id == owner.session.session_id and not newest_first(waiting()):
            return
        if call.session_id == owner.session.session_id and call.verb == "children" and call.path.endswith("/slots/0"):
            world.coordination.before = None
            assert is_refused(other, intent.transaction_id)
            forget(other)

    def waiting() -> list[str]:
        return list(world.client().session.children(world.tree.verdicts) or ())

    world.coordination.before = meddle
    with pytest.raises(ConcurrentModification):
        owner.commit(intent)
    assert sum(days_of(world).values()) == 1


@pytest.mark.notices("refusals-stay")
def test_what_was_refused_stays_so_for_an_owner_that_slept(world: World, client: Client) -> None:
    """The reply that it was filed is lost, and it looks again when its verdict is put away: it does not file it once more."""
    owner = world.client(QUICK)
    intent = append_intent(owner.head())
    guid = intent.transaction_id
    world.coordination.inject(Fault.REPLY_LOST, verb="apply", path="/i-", session=owner.session)

    def meddle() -> None:
        assert outcome_of(client.coordinated, guid, soon(), withdrawing=True).state == "refused"
        forget(client)

    world.once(meddle, barrier_of(owner.session))
    with pytest.raises(Withdrawn):
        owner.commit(intent)
    assert world.coordination.before is None
    assert world.transactions().count(guid) == 0


@pytest.mark.parametrize("pruned", [False, True])
def test_what_was_committed_before_is_told_though_its_version_left_the_log(pruned: bool) -> None:
    """The record of its repetition names a version of which the log has no file any more; when that was is not known."""
    world = World()
    client = world.client(FEW)
    intent = append_intent(client.head(), "mine.parquet")
    client.commit(intent)
    client.append()
    assert client.commit(replace(intent, filed_again=True)).repeated
    if pruned:
        forget(client)
    del world.objects.disk.objects[commit_path(0)]
    outcome = world.client().committed(intent.transaction_id)
    assert (outcome.version, outcome.timestamp) == (0, 0)


@pytest.mark.notices("refusals-are-found")
def test_a_record_that_is_put_away_between_two_requests_is_found(world: World, client: Client) -> None:
    guid = refuse(client, stale(client)())
    client.append()
    asking = world.client()
    lists = ("children", world.tree.verdicts, asking.session.session_id)
    world.once(lambda: forget(client), lambda call: (call.verb, call.path, call.session_id) == lists, after=True)
    assert is_refused(asking, guid)
    assert world.coordination.after is None
    assert sum(days_of(world).values()) == 1


@pytest.mark.parametrize("fault", [Fault.REPLY_LOST, Fault.REQUEST_LOST, Fault.EXPIRED_BEFORE, Fault.EXPIRED_AFTER])
def test_a_client_that_fails_while_it_puts_away_leaves_that_to_the_next(world: World, client: Client, fault: Fault) -> None:
    refused = stale(client)
    world.coordination.inject(fault, verb="apply", path="/published", session=client.session)
    guid = refuse(client, refused())
    assert is_refused(world.client(), guid)
    forget(client)
    assert sum(days_of(world).values()) == 1
    assert is_refused(world.client(), guid)


def test_a_large_batch_is_put_away_in_pieces_and_again_after_a_crash(world: World, client: Client) -> None:
    refused = stale(client)
    intents = [refused() for _ in range(150)]
    file_all(client, intents)
    pieces: list[Call] = []

    def crash(call: Call) -> Fault | None:
        if call.verb != "apply" or "/refused/" not in call.path:
            return None
        pieces.append(call)
        return Fault.REQUEST_LOST if len(pieces) == 2 else None

    world.coordination.before = crash
    client.append()
    world.coordination.before = None
    assert len(pieces) > 3
    forget(client)
    assert sum(days_of(world).values()) == 150
    assert len(newest_first(client.session.children(world.tree.verdicts) or ())) == KEPT
    assert all(is_refused(world.client(), intent.transaction_id) for intent in intents[::50])


@pytest.mark.notices("the-node-for-refusals-is-made-again")
@pytest.mark.parametrize("count", [6, 150])
def test_refusals_are_put_away_although_somebody_removed_the_node_for_them(world: World, client: Client, count: int) -> None:
    refused = stale(client)
    intents = [refused() for _ in range(count)]
    file_all(client, intents)
    client.session.delete(world.tree.refused)
    assert client.append().published
    forget(client)
    assert sum(days_of(world).values()) == count
    assert all(is_refused(world.client(), intent.transaction_id) for intent in intents[:: max(1, count // 3)])


@pytest.mark.parametrize("count", [6, 150])
def test_two_who_put_away_the_same_batch_at_once(world: World, client: Client, count: int) -> None:
    """Another client does all of it, right before the first one's request arrives."""
    refused = stale(client)
    intents = [refused() for _ in range(count)]
    file_all(client, intents)
    world.once(world.client(FEW).coordinated.publisher.publish_pending, puts_away)
    client.append()
    assert world.coordination.before is None
    forget(client)
    assert sum(days_of(world).values()) == count
    assert all(is_refused(world.client(), intent.transaction_id) for intent in intents[:: max(1, count // 3)])


def test_refusals_go_by_the_day_when_they_are_old(world: World, client: Client) -> None:
    aged = Client(world, FEW)
    calendar = aged.with_calendar()
    refused = stale(client)
    first = refuse(aged, refused())
    forget(aged)
    (day,) = days_of(world)
    calendar.days = DAYS
    second = refuse(aged, refused())
    forget(aged)
    assert is_refused(world.client(), first)
    assert list(days_of(world).values()) == [1, 1]
    calendar.days = DAYS + 1
    forget_old(aged.context)
    assert list(days_of(world)) == [str(int(day) + DAYS)]
    assert world.client().outcome(first).state == "unknown"
    assert is_refused(world.client(), second)


def test_of_old_refusals_so_many_go_at_once(world: World, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sluice.coordinator.publication.publisher._FORGOTTEN_AT_ONCE", 2)
    refused = stale(client)
    for _ in range(5):
        refuse(client, refused())
    client.with_calendar(DAYS + 2)
    left = []
    for _ in range(4):
        left.append(sum(days_of(world).values()))
        forget_old(client.context)
    assert left == [5, 3, 1, 0]
    assert days_of(world) == {}


def test_whoever_publishes_forgets_old_refusals_now_and_then(world: World, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Off its path, and what goes wrong is left to the next time."""
    monkeypatch.setattr(publisher, "FORGET_EVERY", 4)
    aged = Client(world, FEW)
    calendar = aged.with_calendar()
    refuse(aged, stale(client)())
    calendar.days = DAYS + 2
    world.coordination.inject(Fault.REPLY_LOST, verb="apply", path="/t-")
    for _ in range(12):
        aged.append()
        assert aged.coordinated._helping.drain(30.0)
    assert days_of(world) == {}


def test_a_record_that_nobody_can_read_stops_nothing(world: World, client: Client) -> None:
    refused = stale(client)
    guid = refuse(client, refused())
    names = newest_first(client.session.children(world.tree.verdicts) or ())
    bad = next(name for name in names if name.refusals)
    client.session.create(world.tree.verdict(replace(bad, slot=0, version=0)), b"nonsense")
    forget(client)
    assert is_refused(world.client(), guid)
    assert len(newest_first(client.session.children(world.tree.verdicts) or ())) == KEPT


def test_a_transaction_whose_id_is_no_name_of_a_node_stops_nothing(world: World, client: Client) -> None:
    client.session.create(world.tree.slot_prefix(0, ".."), b"nonsense", sequential=True)
    client.append()
    forget(client)
    with pytest.raises(NotCommitted, match="not acceptable"):
        raise client.outcome("..").error or AssertionError


@pytest.mark.notices("refusals-of-this-tree")
def test_nothing_is_put_away_in_a_tree_that_was_rebuilt(world: World, client: Client) -> None:
    """It was lost and made again while somebody was about to raise `published`, and has the same nodes in the same versions."""
    intent = stale(client)()
    other = world.client(FEW)

    def rebuild(call: Call) -> None:
        if puts_away(call):
            world.coordination.before = None
            [raised] = [op for op in call.ops if isinstance(op, Write) and op.path == world.tree.published]
            world.coordination.tree = Tree()
            make_tree(other.context, Head())
            for number in range(raised.version):
                other.session.write(world.tree.published, b"{}", version=number)
            for op in call.ops:
                if isinstance(op, Delete):
                    other.session.create(op.path)

    world.coordination.before = rebuild
    with pytest.raises((TreeReplaced, ConcurrentModification)):
        client.commit(intent)
    assert world.coordination.before is None
    assert sum(days_of(world).values()) == 0
    object.__setattr__(world, "coordination", MemoryCoordination())
    world.__post_init__()


def test_of_two_verdicts_that_were_put_away_the_later_counts(world: World, client: Client) -> None:
    """A transaction is refused, filed again, and found to be refused for something else days later."""
    guid = refuse(client, stale(client)())
    forget(client)
    (day,) = map(int, days_of(world))
    node = client.session.read(world.tree.refusal(day, guid))
    assert node is not None
    for days, message in ((-1, b"before"), (1, b"after")):
        client.session.create(world.tree.refused_on(day + days))
        client.session.create(world.tree.refusal(day + days, guid), node.data.replace(b'"message":"', b'"message":"' + message + b": "))
    assert "after: " in str(world.client().outcome(guid).error)


def decided_at_once(client: Client, intents: list[Intent]) -> None:
    """File these, and let the next commit decide all of them."""
    file_all(client, intents)
    settle_queue(client.coordinated, Deadline.after(60, SystemClock()))
    client.coordinated.publisher.publish_pending()


@pytest.mark.costly
@pytest.mark.slow
@pytest.mark.notices("records-go")
@pytest.mark.parametrize(
    ("kind", "size"),
    [(kind, size) for kind in ("appends", "refusals", "own versions", "mixed") for size in (1, 2, 3, 7, 32)]
    + [pytest.param("appends", 512), pytest.param("refusals", 512, marks=pytest.mark.long)],
)
@pytest.mark.many
def test_the_nodes_of_a_table_stay_below_a_bound_whatever_batches_are_like(size: int, kind: str) -> None:
    world = World()
    client = world.client(replace(FEW, backlog_versions_max=3, verdicts_kept=4))
    client.append("0.parquet")
    base = client.head()
    client.commit(rewrite_intent(base, "0.parquet", "1.parquet"))
    refused = 0
    for _ in range(2 if size >= 32 and kind in ("own versions", "mixed") else 4 if size == 512 else 8):
        head = client.head()
        own = [intent_of(head, [add(f"{uuid.uuid4()}.parquet")], PARTITIONED) for _ in range(size)]
        lost = [rewrite_intent(base, "0.parquet", f"{uuid.uuid4()}.parquet") for _ in range(size)]
        intents = {
            "appends": [append_intent(head) for _ in range(size)],
            "own versions": own,
            "refusals": lost,
            "mixed": [*own[: size // 2], *lost[size // 2 :]],
        }[kind]
        refused += sum(each in lost for each in intents)
        decided_at_once(client, intents)
        below = [node.path for node in world.coordination.tree.walk() if node.path.startswith(world.tree.root)]
        rest = [path for path in below if "/t-" not in path]
        assert len(rest) <= 4 + 12, sorted(rest)
        assert len(below) - len(rest) == refused
    world.check()


def test_the_nodes_of_tables_stay_below_a_bound_when_transactions_go_over_several() -> None:
    world = JointWorld("ab")
    client = world.client(replace(FEW, verdicts_kept=4))
    for _ in range(20):
        client.append("ab")
        client.commit(client.reading())
        for table in world.tables.values():
            below = [node.path for node in world.coordination.tree.walk() if node.path.startswith(f"{table.tree.root}/")]
            assert len(below) <= 4 + 12, sorted(below)
    world.check()


def test_what_an_acknowledgement_waits_for_is_the_same_with_every_commit(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Old refusals are looked for off its path."""
    client = world.client(replace(DIRECT, verdicts_kept=40))
    client.append()
    client.append()  # now it knows that nobody has a lease
    monkeypatch.setattr(client.coordinated.publisher, "_later", lambda _: None)
    costs = {len(calls_of(world, client.append)) for _ in range(100)}
    assert len(costs) == 1


@pytest.mark.parametrize("lost", [0, 60])
def test_a_batch_of_a_table_with_a_long_name_is_published(lost: int) -> None:
    """What goes with a raise may be more than ZooKeeper takes in one request."""
    world = World(objects=MemoryStore.open(f"{uuid.uuid4()}/{'漢' * 330}"))
    client = world.client(FEW)
    client.append("0.parquet")
    base = client.head()
    client.commit(rewrite_intent(base, "0.parquet", "1.parquet"))
    head = client.head()
    intents = [rewrite_intent(base, "0.parquet", f"{uuid.uuid4()}.parquet") for _ in range(lost)]
    decided_at_once(client, [*intents, *(append_intent(head) for _ in range(500 - lost))])
    assert world.client().context.coordination.children(world.tree.slots(0)) == []
    assert sum(days_of(world).values()) == lost
    world.check()
