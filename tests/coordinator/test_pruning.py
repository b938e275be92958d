"""Verdict records go, and what was refused is told all the same, at the same price however much was refused (I10)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from sluice.coordinator import publisher
from sluice.coordinator.bootstrap import make_tree
from sluice.coordinator.clock import Deadline, SystemClock
from sluice.coordinator.errors import ConcurrentModification, NotCommitted, TreeReplaced, Withdrawn
from sluice.coordinator.layout import newest_first
from sluice.coordinator.limits import Limits
from sluice.coordinator.memory import Call, Fault
from sluice.coordinator.outcomes import withdrawal
from sluice.coordinator.pruning import prune
from sluice.coordinator.records import Head, Intent
from sluice.coordinator.tree import Tree
from sluice.storage.paths import commit_path

from .world import QUICK, Client, World, append_intent, rewrite_intent

KEPT = 3
DAYS = 2
FEW = QUICK.but(backlog_versions_max=2, verdicts_kept=KEPT, refusals_kept_s=(DAYS - 0.5) * 24 * 3600.0)
DAY_MS = 24 * 3600 * 1000


class Calendar(SystemClock):
    """A calendar that can be turned."""

    days = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.days * DAY_MS


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.check()


@pytest.fixture
def client(world: World) -> Client:
    made = world.client(FEW)
    made.append("0.parquet")
    return made


def soon() -> Deadline:
    return Deadline.after(5, SystemClock())


def stale(client: Client) -> Callable[[], Intent]:
    """What makes intents that are refused."""
    base = client.head()
    client.commit(rewrite_intent(base, "0.parquet", "1.parquet"))
    return lambda: rewrite_intent(base, "0.parquet", "2.parquet")


def refuse(client: Client, intent: Intent) -> str:
    with pytest.raises(ConcurrentModification):
        client.committer.commit(intent, client.head(), soon())
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


def is_refused(client: Client, guid: str) -> bool:
    return isinstance(client.committer.outcome(guid, soon()).error, ConcurrentModification)


def calls_of(world: World, ask: Callable[[], object]) -> list[Call]:
    calls: list[Call] = []
    world.coordination.before = calls.append
    ask()
    world.coordination.before = None
    return calls


def test_refusals_leave_the_records_and_are_told_with_their_reason(world: World, client: Client) -> None:
    refused = stale(client)
    guids = [refuse(client, refused()) for _ in range(4 * KEPT)]
    forget(client)
    assert len(newest_first(client.session.children(world.tree.verdicts) or ())) == KEPT
    assert sum(days_of(world).values()) == len(guids)
    asking = world.client()
    assert all(is_refused(asking, guid) for guid in guids)
    assert asking.committer.outcome(append_intent(Head()).transaction_id, soon()).state == "unknown"


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
    owner, other = world.client(FEW.but(patience_s=5.0, patience_s_max=5.0)), world.client(FEW)
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


def test_what_was_refused_stays_so_for_an_owner_that_slept(world: World, client: Client) -> None:
    """The reply that it was filed is lost, and it looks again when its verdict is put away: it does not file it once more."""
    owner = world.client(QUICK)
    intent = append_intent(owner.head())
    guid = intent.transaction_id
    world.coordination.inject(Fault.REPLY_LOST, verb="apply", path="/i-", session=owner.session)

    def meddle(call: Call) -> None:
        if call.verb == "barrier" and call.session_id == owner.session.session_id:
            world.coordination.before = None
            assert client.committer.outcome(guid, soon(), against=withdrawal(guid)).state == "refused"
            forget(client)

    world.coordination.before = meddle
    with pytest.raises(Withdrawn):
        owner.commit(intent)
    assert world.coordination.before is None
    assert world.transactions().count(guid) == 0


def test_what_was_committed_before_is_told_though_its_version_left_the_log() -> None:
    world = World()
    client = world.client(FEW)
    intent = append_intent(client.head(), "mine.parquet")
    client.commit(intent)
    client.append()
    assert client.commit(replace(intent, filed_again=True)).repeated
    forget(client)
    del world.objects.disk.objects[commit_path(0)]
    outcome = world.client().committer.outcome(intent.transaction_id, soon())
    assert outcome.commit is not None
    assert (outcome.commit.version, outcome.commit.timestamp) == (0, 0)


def test_a_record_that_is_put_away_between_two_requests_is_found(world: World, client: Client) -> None:
    guid = refuse(client, stale(client)())
    client.append()
    asking = world.client()

    def meddle(call: Call) -> None:
        if call.verb == "children" and call.path == world.tree.verdicts and call.session_id == asking.session.session_id:
            world.coordination.after = None
            forget(client)

    world.coordination.after = meddle
    assert is_refused(asking, guid)
    assert world.coordination.after is None
    assert sum(days_of(world).values()) == 1


@pytest.mark.parametrize("fault", [Fault.REPLY_LOST, Fault.REQUEST_LOST])
def test_a_client_that_fails_while_it_puts_away_leaves_the_rest_to_the_next(world: World, client: Client, fault: Fault) -> None:
    refused = stale(client)
    guids = [refuse(client, refused()) for _ in range(4)]
    for _ in range(KEPT):
        client.append()
    world.coordination.inject(fault, verb="apply", path="/t-", session=client.session)
    prune(client.context)
    assert sum(days_of(world).values()) == (1 if fault is Fault.REPLY_LOST else 0)  # none before an earlier one
    prune(world.client(FEW).context)
    assert sum(days_of(world).values()) == 4
    assert all(is_refused(world.client(), guid) for guid in guids)


def test_a_large_batch_is_put_away_in_pieces_and_again_after_a_crash(world: World, client: Client) -> None:
    refused = stale(client)
    intents = [refused() for _ in range(150)]
    for intent in intents:
        prefix = world.tree.slot_prefix(0, intent.transaction_id)
        client.session.create(prefix, intent.encode(), sequential=True)
    client.append()
    pieces: list[Call] = []

    def crash(call: Call) -> Fault | None:
        if call.verb != "apply" or "/t-" not in call.path:
            return None
        pieces.append(call)
        return Fault.REQUEST_LOST if len(pieces) == 2 else None

    world.coordination.before = crash
    forget(client)
    assert 0 < sum(days_of(world).values()) < 150
    assert all(is_refused(world.client(), intent.transaction_id) for intent in intents[::50])
    prune(client.context)
    world.coordination.before = None
    assert sum(days_of(world).values()) == 150
    assert len(newest_first(client.session.children(world.tree.verdicts) or ())) == KEPT
    assert all(is_refused(world.client(), intent.transaction_id) for intent in intents[::50])


def test_two_who_prune_at_once(world: World, client: Client) -> None:
    refused = stale(client)
    guids = [refuse(client, refused()) for _ in range(6)]
    other = world.client(FEW)
    for _ in range(KEPT):
        client.append()
    turns = iter([1, 4])
    seen: list[Call] = []

    def meddle(call: Call) -> None:
        if call.verb == "read" and "/verdicts/" in call.path and call.session_id == client.session.session_id:
            seen.append(call)
            if len(seen) == next_turn[0]:
                next_turn[0] = next(turns, 0)
                prune(other.context)

    next_turn = [next(turns)]
    world.coordination.after = meddle
    prune(client.context)
    world.coordination.after = None
    prune(client.context)
    assert sum(days_of(world).values()) == 6
    assert all(is_refused(world.client(), guid) for guid in guids)


def test_refusals_go_by_the_day_when_they_are_old(world: World, client: Client) -> None:
    calendar = Calendar()
    aged = Client(world, FEW)
    object.__setattr__(aged.context, "clock", calendar)
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
    prune(aged.context)
    assert list(days_of(world)) == [str(int(day) + DAYS)]
    assert world.client().committer.outcome(first, soon()).state == "unknown"
    assert is_refused(world.client(), second)


def test_of_old_refusals_so_many_go_at_once(world: World, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sluice.coordinator.pruning._FORGOTTEN_AT_ONCE", 2)
    refused = stale(client)
    for _ in range(5):
        refuse(client, refused())
    forget(client)
    calendar = Calendar()
    calendar.days = DAYS + 2
    object.__setattr__(client.context, "clock", calendar)
    left = []
    for _ in range(4):
        left.append(sum(days_of(world).values()))
        prune(client.context)
    assert left == [5, 3, 1, 0]
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
        raise client.committer.outcome("..", soon()).error or AssertionError


def test_nothing_is_put_away_in_a_tree_that_was_lost(world: World, client: Client) -> None:
    """All nodes are gone while somebody prunes, who makes none again."""
    refuse(client, stale(client)())
    for _ in range(KEPT):
        client.append()

    def lose(call: Call) -> None:
        if call.verb == "read" and "/verdicts/" in call.path:
            world.coordination.after = None
            world.coordination.tree = Tree()

    world.coordination.after = lose
    prune(client.context)
    assert world.coordination.after is None
    assert [node.path for node in world.coordination.tree.walk()] == ["/"]


def test_nothing_is_put_away_in_a_tree_that_was_rebuilt(world: World, client: Client) -> None:
    """It has a record of the same name, which is of another batch."""
    refuse(client, stale(client)())
    for _ in range(KEPT):
        client.append()

    def rebuild(call: Call) -> None:
        if call.verb == "read" and "/verdicts/" in call.path:
            world.coordination.after = None
            [day] = map(int, days_of(world))
            world.coordination.tree = Tree()
            other = world.client(FEW)
            make_tree(other.context, Head())
            other.session.create(world.tree.refused_on(day))
            other.session.create(call.path, b"another batch")

    world.coordination.after = rebuild
    with pytest.raises(TreeReplaced):
        prune(client.context)
    session = world.client().session
    assert len(session.children(world.tree.verdicts) or ()) == 1
    assert sum(days_of(world).values()) == 0


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
    assert "after: " in str(world.client().committer.outcome(guid, soon()).error)


def test_whoever_publishes_prunes_now_and_then(world: World, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publisher, "_PRUNE_EVERY", 4)
    guid = refuse(client, stale(client)())
    for _ in range(4 * KEPT):
        client.append()
    assert len(client.session.children(world.tree.verdicts) or ()) < 4 + KEPT
    assert sum(days_of(world).values()) == 1
    assert is_refused(world.client(Limits()), guid)
