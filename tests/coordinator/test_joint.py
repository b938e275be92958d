"""Transactions over several tables: all of one or nothing of it, whatever happens on the way."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import orjson
import pytest

from sluice.coordinator.commit import joint_resolve
from sluice.coordinator.commit.decision import Queued, resolve
from sluice.coordinator.commit.joint_decide import JointDecider, JointSlot
from sluice.coordinator.commit.joint_resolve import CLOSED, SIBLINGS
from sluice.coordinator.commit.outcomes import Commit
from sluice.coordinator.errors import (
    ConcurrentDeleteReadException,
    ConcurrentModification,
    ConcurrentTransactionException,
    CoordinatorUnavailable,
    NotCommitted,
    OutcomeUnknown,
    Refused,
)
from sluice.coordinator.fields import MalformedRecord
from sluice.coordinator.nodes.records import digest
from sluice.coordinator.rules.footprint import Footprint
from sluice.coordinator.rules.intent import Intent
from sluice.coordinator.rules.joint_tables import TABLES_MAX, Joint, JointTable
from sluice.coordinator.rules.winner import Member
from sluice.coordinator.service.clock import Deadline, SystemClock
from sluice.coordinator.service.memory import Call, Fault
from sluice.coordinator.service.store import Create, Write
from sluice.storage.errors import InvariantBroken

from .joint_world import JointClient, JointWorld, soon
from .world import DIRECT, QUICK, app_intent, append_intent, no_vectors, rewrite_intent

CALLS_MAX = 60


class Killed(BaseException):
    """The client died just here."""


@pytest.fixture
def world() -> Iterator[JointWorld]:
    made = JointWorld()
    yield made
    made.check()


def single(client: JointClient, name: str, intent: Intent) -> Commit:
    return client.committers[name].commit(intent, client.head(name), Deadline.after(10, SystemClock()))


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
    """Neither in the queue nor on the fast path: what several tables need is only met where such a slot stands."""
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


def test_a_writer_of_one_table_finishes_what_a_dead_owner_filed(world: JointWorld) -> None:
    dead, client = world.client(), world.client()
    intents = dead.intents("abc")
    dead.file(intents)
    dead.session.close()
    single(client, "b", append_intent(client.head("b")))
    guid = intents["a"].transaction_id
    assert all(world.tables[name].transactions()[0] == guid for name in "abc")
    assert world.client().outcome("c", guid).commit is not None


def test_asking_for_an_undecided_one_decides_it(world: JointWorld) -> None:
    dead, client = world.client(), world.client()
    intents = dead.intents("ab")
    dead.file(intents)
    dead.session.close()
    outcome = client.outcome("b", intents["b"].transaction_id)
    assert outcome.commit is not None
    assert outcome.commit.published
    assert client.outcome("a", intents["a"].transaction_id).commit == replace(outcome.commit, timestamp=intents["a"].claimed_ms)


def test_orders_that_are_opposite_do_not_wait_for_each_other(world: JointWorld) -> None:
    """Two clients, the tables named in opposite order, at once and many times."""
    ends = [world.client(), world.client()]

    def run(client: JointClient, order: str) -> int:
        return sum(len(client.append(order)) for _ in range(15))

    with ThreadPoolExecutor(2) as pool:
        assert sum(pool.map(run, ends, ("abc", "cba"))) == 90
    assert all(len(world.tables[name].transactions()) == 30 for name in "abc")


def test_random_transactions_of_one_and_of_several_tables(world: JointWorld) -> None:
    """Moves of a token between files of tables, by threads that lose some: the number of tokens never changes."""
    start = world.client()
    start.append("abc", **dict.fromkeys("abc", "token-0"))
    refusals: list[str] = []

    def run(seed: int) -> int:
        dice, client, done = random.Random(seed), world.client(DIRECT if seed % 2 else QUICK), 0
        for number in range(12):
            source, target = dice.sample("abc", 2)
            try:
                if dice.random() < 0.4:
                    single(client, source, append_intent(client.head(source)))
                else:
                    known = len(world.tables[source].log()) - 1  # what was read is not newer than what it is compared from
                    tokens = sorted(p for p in world.tables[source].files(known) if p.startswith("token"))
                    if not tokens:
                        continue
                    client.commit(moving(client, (source, known), target, dice.choice(tokens), f"token-{seed}-{number}"))
                done += 1
            except ConcurrentModification as lost:
                refusals.append(str(lost))
        return done

    with ThreadPoolExecutor(6) as pool:
        assert sum(pool.map(run, range(6))) > 20
    tokens = [path for name in "abc" for path in world.tables[name].files() if path.startswith("token")]
    assert len(tokens) == 3, tokens


@pytest.mark.parametrize("seed", range(12))
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
    world.tables["b"].objects.disk.faults.clear()
    assert world.client().outcome("b", commits["b"].transaction_id).commit is not None


def test_the_owner_is_told_that_the_outcome_is_open_and_may_ask_again(world: JointWorld) -> None:
    client, intents = world.client(), {}
    intents = client.intents("ab")
    world.coordination.before = lambda call: Fault.REQUEST_LOST if _ratifies(call) else None
    with pytest.raises(OutcomeUnknown) as caught:
        client.commit(intents, timeout_s=0.3)
    assert caught.value.stage == "intent"
    world.coordination.before = None
    assert client.outcome("a", intents["a"].transaction_id).state == "committed"


def _ratifies(call: Call) -> bool:
    return any(isinstance(op, Write) and op.path.endswith("/head") for op in call.ops)


# -- what is not as it should be ----------------------------------------------------------------------------------------


def test_i11_a_joint_slot_is_never_decided_with_one_table(world: JointWorld) -> None:
    client = world.client()
    joint = Joint((JointTable(world.location("a"), 0), JointTable(world.location("b"), 0)))
    intent = replace(append_intent(client.head("a")), joint=joint)
    queue = [Queued(0, intent.transaction_id, Member(intent, intent.actions.encode()))]
    with pytest.raises(InvariantBroken, match="I11"):
        resolve(client.head("a"), queue, {}, QUICK, room=8, lookup=no_vectors)


def test_i11_a_decision_that_leaves_a_table_out_is_not_recorded(world: JointWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused in one table and committed in the other: not even when deciding were wrong."""
    client = world.client()
    client.append("ab", a="old.parquet")
    doomed = joint_rewrite(client, "a", "old.parquet", "b")
    single(client, "a", rewrite_intent(client.head("a"), "old.parquet", "new.parquet"))
    monkeypatch.setattr(joint_resolve, "_objection", lambda _: None)
    with pytest.raises(InvariantBroken, match="I11"):
        client.commit(doomed)
    assert len(world.tables["b"].log()) == 1
    monkeypatch.undo()
    assert client.outcome("b", doomed["b"].transaction_id).state == "refused"


def test_who_is_overtaken_in_one_table_records_nothing_in_the_others(world: JointWorld) -> None:
    """The multi stands or falls with every head."""
    slow, fast = world.client(), world.client(DIRECT)
    overtaken: list[int] = []

    def overtake(call: Call) -> None:
        if _ratifies(call) and call.session_id == slow.session.session_id and not overtaken:
            overtaken.append(call.number)
            state = fast.committers["b"].context.read_head()
            assert state is not None
            fast.session.apply([Write(world.tables["b"].tree.head, state[0].encode(), state[1].version)])
            assert world.tables["a"].log() == world.tables["b"].log() == []

    world.coordination.before = overtake
    commits = slow.append("ab")
    assert overtaken
    assert commits["a"].version == commits["b"].version == 0


def lying(client: JointClient, names: str, listed: str, *, at_once: bool = True, guid: str | None = None) -> str:
    """Slots in some tables that name others."""
    intents = client.intents(names)
    guid = guid or next(iter(intents.values())).transaction_id
    joint = Joint(tuple(sorted(JointTable(client.world.location(name), 0) for name in listed)))
    ops = [
        Create(client.world.tables[n].tree.slot_prefix(0, guid), replace(i, joint=joint, transaction_id=guid).encode(), sequential=True)
        for n, i in intents.items()
    ]
    for some in [ops] if at_once else [[op] for op in ops]:
        client.session.apply(some)
    return guid


@pytest.mark.parametrize(("names", "listed", "at_once"), [("a", "ab", True), ("ab", "abc", True), ("ab", "ab", False)])
def test_slots_that_lie_are_refused_and_stop_nobody(world: JointWorld, names: str, listed: str, at_once: bool) -> None:
    liar, client = world.client(), world.client()
    guid = lying(liar, names, listed, at_once=at_once)
    for name in names:
        single(client, name, append_intent(client.head(name)))
        outcome = client.outcome(name, guid)
        assert isinstance(outcome.error, Refused)
        assert outcome.error.rule == SIBLINGS
    assert client.append("abc")["c"].version == 0


def test_slots_made_one_by_one_in_opposite_orders_are_no_circle(world: JointWorld) -> None:
    liar, client = world.client(), world.client()
    one = lying(liar, "ab", "ab", at_once=False)
    first = lying(liar, "b", "ab")
    lying(liar, "a", "ab", guid=first)
    client.append("ab")
    assert {client.outcome(name, guid).state for name in "ab" for guid in (one, first)} == {"refused"}


def test_lists_that_differ_are_refused(world: JointWorld) -> None:
    liar, client = world.client(), world.client()
    guid = "11111111-1111-1111-1111-111111111111"
    ops = []
    for name, listed in (("a", "ab"), ("b", "bc")):
        joint = Joint(tuple(sorted(JointTable(world.location(each), 0) for each in listed)))
        intent = replace(append_intent(client.head(name)), transaction_id=guid, joint=joint)
        ops.append(Create(world.tables[name].tree.slot_prefix(0, guid), intent.encode(), sequential=True))
    liar.session.apply(ops)
    client.append("abc")
    assert [client.outcome(name, guid).state for name in "ab"] == ["refused", "refused"]


def test_a_table_that_vanished_refuses_it_in_the_others(world: JointWorld) -> None:
    dead, client = world.client(), world.client()
    intents = dead.intents("abc")
    dead.file(intents)
    tree = world.tables["b"].tree.root
    for node in sorted((n for n in world.coordination.tree.walk() if n.path.startswith(tree)), key=lambda n: n.path, reverse=True):
        dead.session.delete(node.path)
    dead.session.close()
    single(client, "a", append_intent(client.head("a")))
    single(client, "c", append_intent(client.head("c")))
    outcome = client.outcome("c", intents["c"].transaction_id)
    assert isinstance(outcome.error, Refused)
    assert outcome.error.facts["table"] == world.location("b")


@pytest.mark.parametrize(
    "tables",
    [
        [],
        [{"location": "memory://x", "generation": 0}],
        [{"location": "memory://y", "generation": 0}, {"location": "memory://x", "generation": 0}],
        [{"location": "memory://x", "generation": 0}, {"location": "memory://x", "generation": 0}],
        [{"location": "memory://x", "generation": -1}, {"location": "memory://y", "generation": 0}],
        [{"location": "ftp://x", "generation": 0}, {"location": "memory://y", "generation": 0}],
        [{"location": "memory://a\n", "generation": 0}, {"location": "memory://y", "generation": 0}],
        [{"location": 7, "generation": 0}, {"location": "memory://y", "generation": 0}],
        ["memory://x", "memory://y"],
        [{"location": f"memory://{n:04}", "generation": 0} for n in range(TABLES_MAX + 1)],
    ],
)
def test_a_list_of_tables_that_is_none_is_malformed(tables: object) -> None:
    with pytest.raises(MalformedRecord):
        Joint.of({"tables": tables})


def test_a_malformed_one_is_refused_alone(world: JointWorld) -> None:
    liar, client = world.client(), world.client()
    intent = append_intent(client.head("a"))
    fields = orjson.loads(intent.encode()) | {"joint": {"tables": ["../../x"]}}
    liar.session.create(world.tables["a"].tree.slot_prefix(0, intent.transaction_id), orjson.dumps(fields), sequential=True)
    single(client, "a", append_intent(client.head("a")))
    assert client.outcome("a", intent.transaction_id).state == "refused"


def test_actions_that_are_missing_in_one_table_refuse_all(world: JointWorld) -> None:
    client = world.client()
    intents = client.intents("ab")
    intents["b"] = replace(intents["b"], actions="", staged="_delta_log/_staged_commits/gone.json")
    with pytest.raises(Refused, match="missing"):
        client.commit(intents)
    assert client.append("ab")["a"].version == 0


def test_it_came_too_late_for_a_generation(world: JointWorld) -> None:
    """In one table the slots were renewed before it was decided: it is refused in all, and what it left stops nobody."""
    short = QUICK.but(generation_slots_max=1)
    owner, other = world.client(), world.client(short)
    for _ in range(2):
        intent = append_intent(other.head("b"))
        owner.session.create(world.tables["b"].tree.slot_prefix(0, intent.transaction_id), intent.encode(), sequential=True)
    intents = owner.intents("ab")
    owner.file(intents)
    single(other, "b", append_intent(other.head("b")))
    assert other.head("b").generation == 1
    guid = intents["a"].transaction_id
    for name in "ab":
        outcome = owner.outcome(name, guid)
        assert isinstance(outcome.error, NotCommitted)
        assert outcome.error.rule == CLOSED
    assert owner.append("ab")["a"].published


def refused_elsewhere(world: JointWorld) -> tuple[str, str]:
    """A transaction over a, b and c, refused in a and b; its slot in c stands behind one of a single table. The ids of both."""
    dead, other = world.client(), world.client(QUICK.but(generation_slots_max=1))
    single_ones = [append_intent(dead.head(name)) for name in "aac"]
    for name, intent in zip("aac", single_ones, strict=True):
        dead.session.create(world.tables[name].tree.slot_prefix(0, intent.transaction_id), intent.encode(), sequential=True)
    intents = dead.intents("abc")
    dead.file(intents)
    dead.session.close()
    single(other, "a", append_intent(other.head("a")))
    guid = intents["a"].transaction_id
    assert other.outcome("b", guid).state == "refused"
    assert other.head("c").slot == -1
    return guid, single_ones[-1].transaction_id


@pytest.mark.parametrize("serial", [True, False])
def test_what_another_table_refused_is_decided_where_it_is_asked_for(world: JointWorld, serial: bool) -> None:
    """And so is what stands before it: who reads "serial" waits for that, and garbage collection for the slot."""
    guid, before = refused_elsewhere(world)
    client = world.client()
    if serial:
        client.committers["c"].settle_queue(soon())
    else:
        error = client.outcome("c", guid).error
        assert isinstance(error, NotCommitted)
        assert error.rule == CLOSED
    assert client.head("c").slot == 1
    assert world.tables["c"].transactions() == [before]


def test_what_another_table_refused_is_waited_for_as_long_as_it_cannot_be_decided(
    world: JointWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    guid, before = refused_elsewhere(world)
    client, decide, asked = world.client(), JointDecider.decide, itertools.count()

    def away(decider: JointDecider, slot: JointSlot, deadline: Deadline) -> None:
        if next(asked) < 2:
            raise CoordinatorUnavailable("away")
        decide(decider, slot, deadline)

    monkeypatch.setattr(JointDecider, "decide", away)
    with pytest.raises(OutcomeUnknown):
        client.outcome("c", guid, timeout_s=0.0)
    assert client.outcome("c", guid).state == "refused"
    assert next(asked) == 3
    assert world.tables["c"].transactions() == [before]


def test_an_application_number_that_one_table_has_already(world: JointWorld) -> None:
    client = world.client()
    single(client, "a", app_intent(client.head("a"), 7))
    head = client.head("a")
    intents = {name: app_intent(replace(head, version=-1) if name == "a" else client.head(name), 7) for name in "ab"}
    guid = intents["a"].transaction_id
    intents = {name: replace(intent, transaction_id=guid) for name, intent in intents.items()}
    with pytest.raises(ConcurrentTransactionException, match=world.location("a")):
        client.commit(intents)
    assert world.tables["b"].log() == []


def test_the_same_application_number_in_all_tables_happens_once(world: JointWorld) -> None:
    client = world.client()

    def numbered() -> dict[str, Intent]:
        made = {name: app_intent(replace(client.head(name), version=-1), 7) for name in "ab"}
        return {name: replace(intent, transaction_id=made["a"].transaction_id) for name, intent in made.items()}

    first, second = client.commit(numbered()), client.commit(numbered())
    assert not any(commit.repeated for commit in first.values())
    assert all(commit.repeated for commit in second.values())
    assert {name: commit.version for name, commit in second.items()} == {"a": 0, "b": 0}


def test_a_table_that_is_only_read_gets_no_version_and_is_compared_all_the_same(world: JointWorld) -> None:
    client = world.client()
    client.append("ab", a="read.parquet")

    def reading() -> dict[str, Intent]:
        intents = client.intents("b")
        footprint = Footprint(read_files=("read.parquet",), data_change=False)
        seen = replace(append_intent(client.head("a")), footprint=footprint, actions="", actions_digest=digest(b""))
        return {"a": replace(seen, transaction_id=intents["b"].transaction_id), **intents}

    commits = client.commit(reading())
    assert commits["a"].version == 0
    assert commits["b"].version == 1
    assert len(world.tables["a"].log()) == 1
    told: Any = world.tables["b"].log()[1][0]["commitInfo"]
    assert told["sluice"]["transactions"][0]["joint"] == {world.location("b"): 1}
    late = reading()
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
        world.tables[name].objects.disk.faults.clear()
        assert client.committers[name].background.drain(10.0)
    assert all(len(world.tables[name].log()) == 1 for name in "ab")


def test_a_full_backlog_is_published_before_more_is_ratified(world: JointWorld) -> None:
    client = world.client(QUICK.but(backlog_versions_max=1))
    world.tables["b"].objects.disk.fail_before("put_if_absent", times=3)
    threads = [threading.Thread(target=client.append, args=("ab",)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert [len(world.tables[name].log()) for name in "ab"] == [4, 4]
