"""Transactions over several tables: all of one or nothing of it, whatever happens on the way."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from sluice.coordinator.commit.outcomes import Commit
from sluice.coordinator.errors import ConcurrentDeleteReadException, ConcurrentModification, CoordinatorUnavailable, OutcomeUnknown
from sluice.coordinator.rules.intent import Intent
from sluice.coordinator.service.clock import Deadline, SystemClock
from sluice.coordinator.service.memory import Call, Fault
from sluice.coordinator.service.store import Create, Write
from tests.coordinator.joint_world import JointClient, JointWorld
from tests.coordinator.world import DIRECT, QUICK, append_intent, commit_one, ratifies, rewrite_intent
from tests.mending import mend

CALLS_MAX = 60


class Killed(BaseException):
    """The client died just here."""


@pytest.fixture
def world() -> Iterator[JointWorld]:
    made = JointWorld()
    yield made
    made.check()


def single(client: JointClient, name: str, intent: Intent) -> Commit:
    return commit_one(client.coordinated[name], intent, client.head(name), Deadline.after(10, SystemClock()))


def joint_rewrite(client: JointClient, name: str, old: str, others: str) -> dict[str, Intent]:
    """A file of one table is replaced, and one is added in each of the others."""
    intents = client.intents(others)
    guid = next(iter(intents.values())).transaction_id
    return {name: rewrite_intent(client.head(name), old, f"{guid}.parquet", transaction_id=guid), **intents}


def test_all_tables_get_a_version_and_say_so(world: JointWorld) -> None:
    client = world.client()
    commits = client.append("abc")
    assert {name: commit.version for name, commit in commits.items()} == {"a": 0, "b": 0, "c": 0}
    assert all(commit.published for commit in commits.values())
    for name in "abc":
        info: Any = world.tables[name].log()[0][0]["commitInfo"]
        told = info["sluice"]["transactions"][0]
        assert told["joint"] == {world.location(each): 0 for each in "abc"}
        assert told["id"] == commits[name].transaction_id
        assert world.tables[name].tree.root
        assert client.session.children(world.tables[name].tree.slots(0)) == []


@pytest.mark.notices("all-heads-in-one-multi", "slots-in-all-tables-or-none")
def test_one_multi_files_it_and_one_ratifies_it(world: JointWorld) -> None:
    client = world.client()
    multis: list[Call] = []
    world.coordination.before = lambda call: multis.append(call) if call.verb == "apply" else None
    client.append("abc")
    world.coordination.before = None
    filing = [call for call in multis if any(isinstance(op, Create) and op.sequential for op in call.ops)]
    ratifying = [call for call in multis if any(isinstance(op, Write) and op.path.endswith("/head") for op in call.ops)]
    assert len(filing) == len(ratifying) == 1
    assert sum(isinstance(op, Create) and op.sequential for op in filing[0].ops) == 3
    assert sum(isinstance(op, Write) and op.path.endswith("/head") for op in ratifying[0].ops) == 3


def test_a_transaction_of_one_table_asks_for_nothing_more_than_before(world: JointWorld) -> None:
    """Neither in the queue nor on the fast path: only a slot of a transaction over several tables costs such requests."""
    for limits in (QUICK, DIRECT):
        client = world.client(limits)
        single(client, "a", append_intent(client.head("a")))
        seen: list[str] = []
        world.coordination.before = lambda call, seen=seen: seen.append(call.path)
        single(client, "a", append_intent(client.head("a")))
        world.coordination.before = None
        others = [world.tables[name].tree.root for name in "bc"]
        assert not [path for path in seen if any(path.startswith(root) for root in others)]
        assert len(seen) <= (14 if limits is QUICK else 9)


@pytest.mark.notices("refused-in-one-refused-in-all")
@pytest.mark.parametrize("refusing", ["a", "b", "c"])
def test_refused_in_one_table_is_refused_in_all_and_names_it(world: JointWorld, refusing: str) -> None:
    client = world.client()
    client.append("abc", **{refusing: "old.parquet"})
    doomed = joint_rewrite(client, refusing, "old.parquet", "abc".replace(refusing, ""))
    single(client, refusing, rewrite_intent(client.head(refusing), "old.parquet", "new.parquet"))
    with pytest.raises(ConcurrentDeleteReadException, match=world.location(refusing)) as caught:
        client.commit(doomed)
    assert caught.value.facts["table"] == world.location(refusing)
    for name in "abc":
        guid = doomed[name].transaction_id
        assert guid not in world.tables[name].transactions()
        outcome = client.outcome(name, guid)
        assert outcome.state == "refused"
        assert isinstance(outcome.error, ConcurrentDeleteReadException)
    assert client.append("abc")["a"].published


@pytest.mark.notices("what-stands-before-is-decided-before")
def test_what_stands_before_it_anywhere_is_decided_first(world: JointWorld) -> None:
    """Dead owners everywhere: older ones over other tables, and transactions of one table before and between them."""
    dead = world.client()
    filed: list[dict[str, Intent]] = []
    for names in ("ab", "bc", "c", "ca", "b", "abc", "a"):
        intents = dead.intents(names)
        if len(intents) > 1:
            dead.file(intents)
        else:
            intent = intents[names]
            dead.session.create(world.tables[names].tree.slot_prefix(0, intent.transaction_id), intent.encode(), sequential=True)
        filed.append(intents)
    dead.session.close()
    client = world.client()
    client.append("ac")
    for intents in filed:
        for name, intent in intents.items():
            assert client.outcome(name, intent.transaction_id).state == "committed"
    for name in "abc":
        expected = [intents[name].transaction_id for intents in filed if name in intents]
        assert world.tables[name].transactions()[: len(expected)] == expected


def test_orders_that_are_opposite_do_not_wait_for_each_other(world: JointWorld) -> None:
    """Two clients, the tables named in opposite order, at once and many times."""
    ends = [world.client(), world.client()]

    def run(client: JointClient, order: str) -> int:
        return sum(len(client.append(order)) for _ in range(15))

    with ThreadPoolExecutor(2) as pool:
        assert sum(pool.map(run, ends, ("abc", "cba"))) == 90
    assert all(len(world.tables[name].transactions()) == 30 for name in "abc")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
@pytest.mark.many
def test_random_transactions_with_lost_messages_servers_behind_and_owners_that_die(seed: int) -> None:
    """Tokens are moved between tables, by clients of which some die in the middle: afterwards there are as many as before."""
    world, lock, doomed = JointWorld("abcd"), threading.Lock(), set[int]()
    world.client().append("abcd", **dict.fromkeys("abcd", "token-0"))
    hail = random.Random(seed)

    def strike(call: Call) -> Fault | None:
        with lock:
            chance = hail.random()
            if call.session_id in doomed and chance < 0.03:
                raise Killed
            return hail.choice(list(Fault)) if chance < 0.02 else None

    def work(number: int) -> int:
        dice, client, done = random.Random(100 * seed + number), world.client(DIRECT if number % 2 else QUICK), 0
        for turn in range(8):
            client.session.lag = dice.choice((0, 0, 0, 3, 6))
            if dice.random() < 0.2:
                doomed.add(client.session.session_id)
            try:
                step(dice, client, f"token-{number}-{turn}")
                done += 1
            except (ConcurrentModification, OutcomeUnknown):
                continue
            except (Killed, CoordinatorUnavailable):
                client.session.close()
                client = world.client()
        return done

    def step(dice: random.Random, client: JointClient, renamed: str) -> None:
        source, target = dice.sample("abcd", 2)
        known = len(world.tables[source].log()) - 1
        tokens = sorted(path for path in world.tables[source].files(known) if path.startswith("token"))
        if dice.random() < 0.3:
            single(client, source, append_intent(client.head(source)))
        elif dice.random() < 0.3 or not tokens:
            client.append("".join(dice.sample("abcd", 3)))
        else:
            client.commit(moving(client, (source, known), target, dice.choice(tokens), renamed))

    world.coordination.before = strike
    with ThreadPoolExecutor(5) as pool:
        assert sum(pool.map(work, range(5))) > 10
    world.coordination.before = None
    last = world.client()
    for name in "abcd":
        single(last, name, append_intent(last.head(name)))
    world.check()
    assert sum(path.startswith("token") for name in "abcd" for path in world.tables[name].files()) == 4


def moving(client: JointClient, source: tuple[str, int], target: str, token: str, renamed: str) -> dict[str, Intent]:
    """A file goes from one table, as of a version, to another."""
    intents = client.intents(target, {target: renamed})
    guid = intents[target].transaction_id
    name, known = source
    gone = rewrite_intent(client.head(name), token, f"{guid}.parquet", transaction_id=guid)
    return {name: replace(gone, read_version=known, validated_through=known), **intents}


# -- lost messages and crashes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", list(Fault))
def test_every_call_loses_its_request_or_reply_in_turn(fault: Fault) -> None:
    """Whatever is lost, the transaction happens once in every table, and its owner hears of that."""
    for number in range(CALLS_MAX):
        world = JointWorld("ab")
        client = world.client()
        client.append("ab", a="old.parquet")
        intents = joint_rewrite(client, "a", "old.parquet", "b")
        seen = itertools.count()

        def lose(call: Call, number: int = number, seen: Iterator[int] = seen, client: JointClient = client) -> Fault | None:
            return fault if next(seen) == number else None

        world.coordination.before = lose
        commits = client.commit(intents)
        world.coordination.before = None
        world.check()
        assert {name: commit.version for name, commit in commits.items()} == {"a": 1, "b": 1}
        if next(seen) <= number:
            return
    raise AssertionError(f"a commit took more than {CALLS_MAX} calls")


def test_the_owner_dies_at_every_call() -> None:
    """Before or after every call: the others find all of it or nothing, and go on."""
    for number, after in itertools.product(range(CALLS_MAX), (False, True)):
        world = JointWorld("ab")
        doomed, other = world.client(), world.client()
        doomed.append("ab", a="old.parquet")
        intents = joint_rewrite(doomed, "a", "old.parquet", "b")
        seen = itertools.count()

        def die(call: Call, number: int = number, seen: Iterator[int] = seen, session: int = doomed.session.session_id) -> None:
            if call.session_id == session and next(seen) == number:
                raise Killed

        world.coordination.before, world.coordination.after = (None, die) if after else (die, None)
        survived = False
        try:
            doomed.commit(intents)
            survived = True
        except Killed:
            doomed.session.close()
        world.coordination.before = world.coordination.after = None
        for name in "ba":
            single(other, name, append_intent(other.head(name)))
        outcomes = {other.outcome(name, intents[name].transaction_id).state for name in "ab"}
        assert outcomes in ({"committed"}, {"unknown"})
        world.check()
        if survived:
            return
    raise AssertionError(f"a commit took more than {CALLS_MAX} calls")


def test_a_table_that_cannot_be_published_to_does_not_fail_the_commit(world: JointWorld) -> None:
    client = world.client()
    world.tables["b"].objects.disk.fail_before("put_if_absent", times=10_000)
    commits = client.append("ab")
    assert commits["a"].published
    assert not commits["b"].published
    mend(world.tables["b"].objects.disk)
    assert world.client().outcome("b", commits["b"].transaction_id).commit is not None


def test_the_owner_is_told_that_the_outcome_is_open_and_may_ask_again(world: JointWorld) -> None:
    client, intents = world.client(), {}
    intents = client.intents("ab")
    world.coordination.before = lambda call: Fault.REQUEST_LOST if ratifies(call) else None
    with pytest.raises(OutcomeUnknown) as caught:
        client.commit(intents, timeout_s=0.3)
    assert caught.value.stage == "intent"
    world.coordination.before = None
    assert client.outcome("a", intents["a"].transaction_id).state == "committed"


def test_a_table_that_is_only_read_gets_no_version_and_is_compared_all_the_same(world: JointWorld) -> None:
    client = world.client()
    client.append("ab", a="read.parquet")
    commits = client.commit(client.reading("read.parquet"))
    assert commits["a"].version == 0
    assert commits["b"].version == 1
    assert len(world.tables["a"].log()) == 1
    told: Any = world.tables["b"].log()[1][0]["commitInfo"]
    assert told["sluice"]["transactions"][0]["joint"] == {world.location("b"): 1}
    late = client.reading("read.parquet")
    single(client, "a", rewrite_intent(client.head("a"), "read.parquet", "new.parquet"))
    with pytest.raises(ConcurrentModification, match=world.location("a")):
        client.commit(late)


def test_acknowledged_when_ratified(world: JointWorld) -> None:
    client = world.client()
    for name in "ab":
        world.tables[name].objects.disk.fail_before("put_if_absent", times=10_000)
    commits = client.commit(client.intents("ab"), ack="ratified")
    assert not any(commit.published for commit in commits.values())
    for name in "ab":
        mend(world.tables[name].objects.disk)
        assert client.coordinated[name].background.drain(30.0)
    assert all(len(world.tables[name].log()) == 1 for name in "ab")


def test_a_full_backlog_is_published_before_more_is_ratified(world: JointWorld) -> None:
    client = world.client(replace(QUICK, backlog_versions_max=1))
    world.tables["b"].objects.disk.fail_before("put_if_absent", times=3)
    threads = [threading.Thread(target=client.append, args=("ab",)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert [len(world.tables[name].log()) for name in "ab"] == [4, 4]
