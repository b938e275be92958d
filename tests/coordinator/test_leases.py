"""Leases on the in-memory twin: order, scopes, herds, expiry, circles, lost replies, and what they do to commits (I9)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from sluice.coordinator.errors import DeadlockDetected, LeaseHeld, LeaseLost, NotCommitted
from sluice.coordinator.leases import lease as leases
from sluice.coordinator.leases.deadlocks import find_cycle
from sluice.coordinator.leases.guard import LeaseView
from sluice.coordinator.leases.lease import Lease, acquire, held_by_this_thread
from sluice.coordinator.leases.queue import LeaseHome, LeaseRequest, Wanted
from sluice.coordinator.leases.scopes import scopes_meet
from sluice.coordinator.limits import Limits
from sluice.coordinator.nodes.lease_records import EXCLUSIVE, SHARED, WAITS, Grants, LeaseName, LeaseNode, Place, WaitNode
from sluice.coordinator.nodes.records import Head
from sluice.coordinator.rules.footprint import Footprint
from sluice.coordinator.rules.intent import ClientName, Intent
from sluice.coordinator.service.clock import Deadline, SystemClock
from sluice.coordinator.service.memory import Call, Fault
from sluice.coordinator.service.store import Delete, Write

from .world import DIRECT, QUICK, Client, World, add, append_intent, intent_of

TYPES = (("p", "string"), ("d", "date"))


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.check()
    assert requests(made) == [], "a request was left behind"


def home(client: Client) -> LeaseHome:
    return LeaseHome(client._connect, client.world.tree.location, client.context.clock, ClientName("host-7", 12, "job"))


def requests(world: World) -> list[str]:
    return [n.path for n in world.coordination.tree.walk() if LeaseName.parse(n.path.rpartition("/")[2]) or n.path.startswith(f"{WAITS}/")]


def wanted(client: Client, mode: str = EXCLUSIVE, where: str = "", place: Place | None = None) -> Wanted:
    return Wanted(place or Place.of_table(client.world.tree), mode, where, TYPES if where else ())


def take(client: Client, mode: str = EXCLUSIVE, where: str = "", wait_s: float | None = 5.0, place: Place | None = None) -> Lease:
    """Take one as if every client were another process: what one thread takes for several does not count together."""
    return apart(hold(client, mode, where, wait_s, place))


def apart(lease: Lease) -> Lease:
    leases._stack().remove(lease)
    return lease


def hold(client: Client, mode: str = EXCLUSIVE, where: str = "", wait_s: float | None = 5.0, place: Place | None = None) -> Lease:
    return acquire(home(client), [wanted(client, mode, where, place)], wait_s)


def until(condition: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < end, f"not in time: {what}"
        time.sleep(0.002)


class Waiter:
    """A thread that asks for a lease, holds it until it is told, and is known to stand in the queue when it is made."""

    def __init__(self, world: World, mode: str = EXCLUSIVE, where: str = "") -> None:
        self.client = world.client()
        self.granted, self.let_go = threading.Event(), threading.Event()
        self.token = 0
        before = len(requests(world))
        self.thread = threading.Thread(target=self._run, args=(mode, where))
        self.thread.start()
        until(lambda: len(requests(world)) > before, "a waiter in the queue")

    def _run(self, mode: str, where: str) -> None:
        with take(self.client, mode, where) as lease:
            self.token = lease.token
            self.granted.set()
            self.let_go.wait(5)

    def end(self) -> None:
        self.let_go.set()
        self.thread.join(5)


@contextmanager
def ended(*waiters: Waiter) -> Iterator[None]:
    try:
        yield
    finally:
        for each in waiters:
            each.end()


# -- order ---------------------------------------------------------------------------------------------------------------


def test_exclusive_leases_are_granted_in_the_order_of_asking_with_growing_tokens(world: World) -> None:
    first = take(world.client())
    waiters = [Waiter(world) for _ in range(4)]
    with ended(*waiters):
        tokens = [first.token]
        assert not any(w.granted.wait(0.01) for w in waiters)
        first.release()
        for n, waiter in enumerate(waiters):
            assert waiter.granted.wait(5)
            assert not any(w.granted.is_set() for w in waiters[n + 1 :]), "the next one waits for this one"
            tokens.append(waiter.token)
            waiter.end()
    assert tokens == sorted(set(tokens))


def test_shared_leases_stand_together_and_nobody_overtakes(world: World) -> None:
    shared = Waiter(world, SHARED)
    beside = Waiter(world, SHARED)
    assert shared.granted.wait(5)
    assert beside.granted.wait(5)
    exclusive = Waiter(world)
    late = Waiter(world, SHARED)
    with ended(shared, beside, exclusive, late):
        assert not exclusive.granted.wait(0.02)
        assert not late.granted.is_set(), "it came after somebody who waits and must not be starved"
        shared.end()
        assert not exclusive.granted.wait(0.02)
        beside.end()
        assert exclusive.granted.wait(5)
        assert not late.granted.wait(0.02)
        exclusive.end()
        assert late.granted.wait(5)


def test_leases_on_different_partitions_do_not_meet(world: World) -> None:
    with take(world.client(), where="p = 'a'"), take(world.client(), where="p IN ('b', 'c')", wait_s=0):
        with pytest.raises(LeaseHeld) as caught:
            take(world.client(), where="p >= 'c'", wait_s=0)
        assert caught.value.facts["host"] == "host-7"
        assert caught.value.facts["where"] == "p IN ('b', 'c')"
        assert "job on host-7 (process 12) since 20" in str(caught.value)
        with take(world.client(), where="p > 'c' AND d = DATE '2013-01-01'", wait_s=0):
            assert len(requests(world)) == 3


MEETING = [
    ("p = 'a'", "p = 'b'", False),
    ("p <> 'a'", "p = 'a'", False),
    ("NOT (p = 'a')", "p = 'a'", False),
    ("p IS NULL", "p = 'a'", False),
    ("p IS NULL", "p <=> NULL", True),
    ("p NOT IN ('a', 'b')", "p = 'b'", False),
    ("d >= DATE '2013-01-01' AND d < DATE '2013-02-01'", "d BETWEEN DATE '2013-02-01' AND DATE '2013-02-28'", False),
    ("d >= DATE '2013-01-01' AND d <= DATE '2013-02-01'", "d BETWEEN DATE '2013-02-01' AND DATE '2013-02-28'", True),
    ("(p = 'a' AND d = DATE '2013-01-01') OR (p = 'b' AND d = DATE '2013-01-02')", "p = 'b' AND d = DATE '2013-01-01'", False),
    ("p = 'a' OR rows_of_it = 7", "p = 'b'", True),
    ("p = 'a' AND rows_of_it = 7", "p = 'b'", False),
    ("length(p) = 1", "p = 'bb'", True),
    ("this is no condition", "p = 'b'", True),
    ("FALSE", "p = 'b'", False),
    ("p > 'a'", "p < 'b'", True),
]


@pytest.mark.parametrize(("one", "other", "expected"), MEETING)
def test_conditions_meet_unless_no_partition_can_satisfy_both(one: str, other: str, expected: bool) -> None:
    types = dict(TYPES)
    assert scopes_meet(one, types, other, types) is expected
    assert scopes_meet(other, types, one, types) is expected


def test_conditions_over_another_partitioning_meet() -> None:
    assert scopes_meet("p = 'a'", {"p": "string"}, "p = 1", {"p": "integer"})


def test_a_release_wakes_only_who_waited_for_it(world: World) -> None:
    first = take(world.client())
    waiters = [Waiter(world) for _ in range(6)]
    with ended(*waiters):
        time.sleep(0.05)  # all have set their watch
        before = world.coordination.calls["children"]
        first.release()
        assert waiters[0].granted.wait(5)
        time.sleep(0.05)
        looks = world.coordination.calls["children"] - before
        assert looks <= 3, f"{looks} looks at the queue: the one whose turn it is looks for the way and for the grant, nobody else"
        for waiter in waiters:
            assert waiter.granted.wait(5)
            waiter.end()


def test_who_gives_up_in_the_middle_lets_nobody_pass(world: World) -> None:
    first = take(world.client())
    giving_up = world.client()
    with ThreadPoolExecutor(1) as pool:
        impatient: Future[Lease] = pool.submit(take, giving_up, wait_s=0.2)
        until(lambda: len(requests(world)) == 2, "the impatient one in the queue")
        last = Waiter(world)
        with ended(last):
            with pytest.raises(LeaseHeld):
                impatient.result(5)
            until(lambda: len(requests(world)) == 2, "it withdrew its request")
            assert not last.granted.wait(0.02), "the first one still holds it"
            first.release()
            assert last.granted.wait(5)


def test_several_are_granted_together_or_not_at_all(world: World) -> None:
    one, other = world.client(), world.client()
    names = [Place.of_name(name) for name in ("b", "a")]
    held = take(one, place=names[0])
    asked = [wanted(other, place=place) for place in (*names, Place.of_table(world.tree))]
    with pytest.raises(LeaseHeld):
        acquire(home(other), asked, 0)
    assert len(requests(world)) == 1
    held.release()
    with apart(acquire(home(other), asked, 0)) as all_of_them:
        assert len(all_of_them.nodes) == 3
        for place in names:
            with pytest.raises(LeaseHeld):
                take(one, place=place, wait_s=0)


def test_many_requests_for_the_same_in_any_order_all_get_through(world: World) -> None:
    places = [Place.of_name(name) for name in "abc"]
    clients = [world.client() for _ in range(6)]
    inside: set[str] = set()

    def work(number: int) -> None:
        for turn in range(5):
            mine = [places[(number + turn + n) % 3] for n in range(1 + (number + turn) % 3)]
            with acquire(home(clients[number]), [wanted(clients[number], place=place) for place in mine], 20):
                roots = {place.root for place in mine}
                assert not (roots & inside), "two hold one name"
                inside.update(roots)
                time.sleep(0.001)
                inside.difference_update(roots)

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(6)))


# -- losing it -----------------------------------------------------------------------------------------------------------


def test_an_expired_holder_is_told_and_the_next_one_gets_it(world: World) -> None:
    client = world.client()
    lease = hold(client)
    assert lease.held
    waiter = Waiter(world)
    with ended(waiter):
        client.session.expire()
        assert waiter.granted.wait(5)
        assert waiter.token > lease.token
        assert lease.lost.wait(5)
        assert not lease.held
        with pytest.raises(LeaseLost, match="session"):
            lease.check()
        with pytest.raises(LeaseLost, match="while the block ran"), lease:
            assert held_by_this_thread() == [lease], "what is done under it goes on depending on it"
    assert held_by_this_thread() == []


def test_an_expired_waiter_queues_again(world: World) -> None:
    first = take(world.client())
    waiter = Waiter(world)
    with ended(waiter):
        waiter.client.session.expire()
        until(lambda: len(requests(world)) == 2, "it queues again")
        first.release()
        assert waiter.granted.wait(5)


def test_what_a_former_session_asked_for_is_not_taken_for_the_request(world: World) -> None:
    """A server that is behind still shows it, under the same GUID."""
    client = world.client()
    request = LeaseRequest(home(client), [wanted(client, EXCLUSIVE, "", None)], ())
    [place], [asked] = request._places, request._asked
    former = world.coordination.connect()
    former.create(place.node(LeaseName.prefix(request.guid)), asked.encode(), ephemeral=True, sequential=True)
    request.obtain(Deadline.after(2, SystemClock()))
    assert len(request.nodes) == 1
    former.expire()
    client.session.expire()


def test_an_expired_waiter_that_held_something_is_told(world: World) -> None:
    holder, client = world.client(), world.client()
    first = take(holder)
    with hold(client, place=Place.of_name("held")) as held, ThreadPoolExecutor(1) as pool:

        def ask() -> None:
            with held.bind(), pytest.raises(LeaseLost):
                hold(client)

        asking = pool.submit(ask)
        until(lambda: len(requests(world)) == 4, "it waits, and says what it holds")
        client.session.expire()
        asking.result(5)
        held.release()
    first.release()


def test_trouble_while_letting_go_is_no_trouble_of_the_caller(world: World) -> None:
    client = world.client()
    lease = take(client)
    client.session.disconnect()
    assert not lease.held
    lease.release()
    assert requests(world)
    client.session.reconnect()
    until(lambda: not requests(world), "the node is removed later")


@pytest.mark.parametrize("fault", list(Fault))
def test_losing_the_reply_of_every_call_in_turn(fault: Fault) -> None:
    """Count the calls of taking and letting go, then do it again with each of them failing."""

    def run(world: World, client: Client) -> int:
        places = [Place.of_name("other"), Place.of_table(world.tree)]
        with acquire(home(client), [wanted(client, place=place) for place in places], 5) as lease:
            return lease.token

    for nth in range(40):
        world = World()
        client, other = world.client(), world.client()
        with take(other, SHARED):
            pass
        world.coordination.inject(fault, session=client.session, skip=nth)
        lost = False
        try:
            run(world, client)
        except LeaseLost:
            lost = True
        assert not lost or fault.expires, "only a session that is over loses a lease"
        reached = not world.coordination._script._lines
        world.coordination._script._lines.clear()
        until(lambda: not requests(world), f"nothing is left behind by call {nth}")  # noqa: B023 - called at once
        assert run(world, client) > 0
        take(other, wait_s=0).release()
        if not reached:
            assert nth > 10, "the faults reached the calls"
            return
    pytest.fail("more calls than expected")


def before_the_grant(world: World, client: Client, step: Callable[[], object]) -> None:
    """Take a step of somebody else after the client saw its turn, right before it is granted."""
    place = Place.of_table(world.tree)

    def before(call: Call) -> None:
        mine = call.session_id == client.session.session_id
        if mine and any(isinstance(op, Write) and op.path == place.leases for op in call.ops):
            world.coordination.before = None
            step()

    world.coordination.before = before


def test_a_request_that_is_broken_right_before_its_grant_is_not_granted(world: World) -> None:
    client, admin = world.client(), world.client()
    before_the_grant(world, client, lambda: admin.session.delete(requests(world)[0]))
    with pytest.raises(LeaseLost, match="ask again"):
        take(client)


def test_two_who_are_granted_at_once_are_both_on_record(world: World) -> None:
    one, other = world.client(), world.client()
    taken: list[Lease] = []
    before_the_grant(world, one, lambda: taken.append(take(other, SHARED)))
    taken.append(take(one, SHARED))
    node = one.session.read(Place.of_table(world.tree).leases)
    grants = None if node is None else Grants.decode(node.data)
    assert grants is not None
    assert sorted(grants.granted) == sorted(path.rpartition("/")[2] for path in requests(world))
    for lease in taken:
        lease.release()


# -- circles -------------------------------------------------------------------------------------------------------------


def circle(world: World, size: int) -> list[str]:
    """Everybody holds one name and asks for the next one's; what each got."""
    clients = [world.client() for _ in range(size)]
    places = [Place.of_name(f"n{n}") for n in range(size)]
    told = ["" for _ in clients]
    holding = threading.Barrier(size)
    turns = [threading.Event() for _ in range(size + 1)]
    turns[0].set()

    def work(n: int) -> None:
        with hold(clients[n], place=places[n]):
            holding.wait(5)
            turns[n].wait(5)
            threading.Timer(0.05, turns[n + 1].set).start()
            try:
                with hold(clients[n], place=places[(n + 1) % size]):
                    told[n] = "granted"
            except DeadlockDetected as error:
                told[n] = f"deadlock of {len(error.facts['circle'])}"

    threads = [threading.Thread(target=work, args=(n,)) for n in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    return told


@pytest.mark.parametrize("size", [2, 3, 4])
def test_the_youngest_of_a_circle_is_told_and_the_others_go_on(world: World, size: int) -> None:
    assert circle(world, size) == ["granted"] * (size - 1) + [f"deadlock of {size}"]


def test_asking_for_more_of_the_same_behind_somebody_who_waits_is_a_circle(world: World) -> None:
    client = world.client()
    with hold(client, SHARED) as held:
        with hold(client, EXCLUSIVE, wait_s=0) as raised:
            assert raised.held, "what one holds oneself is not in the way"
        waiter = Waiter(world)
        with ended(waiter):
            with pytest.raises(DeadlockDetected):
                hold(client, EXCLUSIVE)
            held.release()
            assert waiter.granted.wait(5)


def test_of_a_circle_only_the_youngest_has_to_give_in(world: World) -> None:
    client = world.client()
    places = [Place.of_name(name) for name in "ab"]
    for path in (WAITS, *(place.leases for place in places)):
        client.session.ensure_path(path)

    def ask(guid: str, place: Place) -> str:
        prefix, body = place.node(LeaseName.prefix(guid)), LeaseNode(EXCLUSIVE).encode()
        return client.session.create(prefix, body, ephemeral=True, sequential=True)

    held = [ask(f"held-{n}", place) for n, place in enumerate(places)]
    waits: list[WaitNode] = []
    for n, guid in enumerate(("older", "younger")):
        ask(guid, places[1 - n])
        waits.append(WaitNode(guid, (places[1 - n].leases,), (held[n],)))
        client.session.create(waits[n].path, waits[n].encode(), ephemeral=True)
    assert find_cycle(client.session, waits[0]) == ()
    assert len(find_cycle(client.session, waits[1])) == 2
    client.session.close()


def test_waiting_without_a_circle_is_no_deadlock(world: World) -> None:
    client = world.client()
    with hold(client, place=Place.of_name("mine")):
        other = Waiter(world)
        assert other.granted.wait(5)
        threading.Timer(0.05, other.end).start()
        with hold(client):
            assert len(held_by_this_thread()) == 2


# -- commits -------------------------------------------------------------------------------------------------------------


def in_partition(head: Head, partition: str, **changes: object) -> Intent:
    """An append into one partition."""
    footprint = Footprint(blind_append=True, partition_types=dict(TYPES), partitions=(f'{{"d":null,"p":"{partition}"}}',))
    file = add(f"p={partition}/{time.time_ns()}.parquet", partition_values={"d": None, "p": partition})
    return intent_of(head, [file], footprint, dict(changes))


def reading(head: Head, predicate: str, writes: str) -> Intent:
    footprint = Footprint(predicates=(predicate,), partition_types=dict(TYPES), partitions=(f'{{"d":null,"p":"{writes}"}}',))
    return intent_of(head, [add(f"p={writes}/{time.time_ns()}.parquet", partition_values={"d": None, "p": writes})], footprint)


def nodes(lease: Lease) -> tuple[str, ...]:
    return tuple(lease.nodes)


BOTH_PATHS = pytest.mark.parametrize("limits", [QUICK, DIRECT], ids=["queue", "fast path"])


@BOTH_PATHS
def test_an_exclusive_lease_stops_what_it_covers_and_nothing_else(world: World, limits: Limits) -> None:
    holder, other = world.client(limits), world.client(limits)
    other.append("first.parquet")
    lease = take(holder, where="p = 'a'")
    other.commit(in_partition(other.head(), "b"))
    with pytest.raises(LeaseHeld) as caught:
        other.commit(in_partition(other.head(), "a"))
    assert caught.value.facts["lease"] in lease.nodes
    with pytest.raises(LeaseHeld):
        other.commit(reading(other.head(), "p = 'a' AND x = 7", "b"))
    other.commit(reading(other.head(), "p = 'b' AND x = 7", "b"))
    with pytest.raises(LeaseHeld):
        other.commit(intent_of(other.head(), [], Footprint(metadata=True, partitions=())))
    holder.commit(in_partition(holder.head(), "a", leases=nodes(lease)))
    lease.release()
    other.commit(in_partition(other.head(), "a"))
    assert len(world.transactions()) == 5


def test_shared_leases_keep_changes_of_others_out(world: World) -> None:
    one, two, other = (world.client() for _ in range(3))
    mine, theirs = take(one, SHARED, "p = 'a'"), take(two, SHARED, "p <= 'b'")
    with pytest.raises(LeaseHeld, match="a shared lease on"):
        other.commit(in_partition(other.head(), "a"))
    other.commit(reading(other.head(), "p = 'a'", "c"))
    one.commit(in_partition(one.head(), "a", leases=nodes(mine)))
    two.commit(in_partition(two.head(), "b", leases=nodes(theirs)))
    mine.release()
    theirs.release()


@BOTH_PATHS
def test_i9_a_commit_under_a_lost_lease_is_refused(world: World, limits: Limits) -> None:
    client = world.client(limits)
    lease = take(client)
    client.session.expire()
    lease.lost.wait(5)
    with pytest.raises(LeaseLost):
        client.append(leases=nodes(lease))
    assert world.files() == set()


def before_the_multi(world: World, client: Client, step: Callable[[], object]) -> None:
    """Take a step of somebody else after the client decided, right before it ratifies."""

    def before(call: Call) -> None:
        if call.verb == "apply" and any(isinstance(op, Write) and op.path == world.tree.head for op in call.ops):
            world.coordination.before = None
            step()

    world.coordination.before = before


@BOTH_PATHS
def test_i9_a_lease_that_is_lost_between_decision_and_ratification(world: World, limits: Limits) -> None:
    client, admin = world.client(limits), world.client(limits)
    client.append("first.parquet")
    lease = take(client)
    before_the_multi(world, client, lambda: admin.session.apply([Delete(path) for path in nodes(lease)]))
    with pytest.raises(LeaseLost):
        client.append("second.parquet", leases=nodes(lease))
    assert world.files() == {"first.parquet"}
    assert lease.lost.wait(5)
    lease.release()


@BOTH_PATHS
def test_a_grant_between_decision_and_ratification_stops_the_commit(world: World, limits: Limits) -> None:
    holder, client = world.client(limits), world.client(limits)
    client.append("first.parquet")
    taken: list[Lease] = []
    before_the_multi(world, client, lambda: taken.append(take(holder)))
    with pytest.raises(LeaseHeld):
        client.append("second.parquet")
    assert world.files() == {"first.parquet"}
    taken[0].release()
    client.append("third.parquet")


def test_i9_breaks_without_its_checks(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the two tests above hold is held by the checks of the multi and by nothing else."""
    client, holder = world.client(), world.client()
    client.append("first.parquet")
    monkeypatch.setattr(LeaseView, "checks", lambda *_: [])
    taken: list[Lease] = []
    before_the_multi(world, client, lambda: taken.append(take(holder)))
    client.append("second.parquet")
    assert world.files() == {"first.parquet", "second.parquet"}, "a commit under a view older than the grant"
    taken[0].release()


def test_of_a_batch_only_the_one_without_its_lease_is_refused(world: World) -> None:
    dead, alive = world.client(), world.client()
    lease = take(dead)
    path = nodes(lease)
    alive.session.delete(path[0])
    lease.lost.wait(5)
    lease.release()
    world.objects.disk.slow("put_if_absent", lambda: time.sleep(0.01), times=100)
    clients = [world.client() for _ in range(6)]

    def work(n: int) -> str:
        intent = append_intent(clients[n].head(), f"{n}.parquet", leases=path if n == 3 else (), filed_again=True)
        try:
            clients[n].commit(intent)
        except NotCommitted as refused:
            return type(refused).__name__
        return "committed"

    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(work, range(6))) == ["committed"] * 3 + ["LeaseLost"] + ["committed"] * 2


@pytest.mark.parametrize(
    "path",
    ["", "/", "/tables/../../zookeeper", "/names/../leases/l-x-0000000001", "/clients/x", "/names/a/leases/l-x-1", "/tables/a/head/b/c"],
)
def test_a_path_that_is_no_lease_is_a_lost_one(world: World, path: str) -> None:
    with pytest.raises(LeaseLost):
        world.client().append(leases=(path,))
    with pytest.raises(LeaseLost):
        world.client().append(leases=(path,), filed_again=True)


def test_a_request_that_cannot_be_read_asks_for_everything(world: World) -> None:
    strange, client = world.client(), world.client()
    place = Place.of_table(world.tree)
    path = strange.session.create(place.node(LeaseName.prefix("newer")), b'{"mode": "upside-down"}', ephemeral=True, sequential=True)
    node = strange.session.read(place.leases)
    assert node is not None
    strange.session.write(place.leases, b"{}{", version=node.version)
    with pytest.raises(LeaseHeld, match="unreadable"):
        client.append()
    strange.session.delete(path)
    client.append()


@BOTH_PATHS
def test_the_usual_commit_costs_no_read_for_leases(world: World, limits: Limits) -> None:
    client = world.client(limits)
    client.append()
    seen: list[str] = []
    world.coordination.after = lambda call: seen.append(call.path) if call.verb in ("read", "read_many", "children") else None
    client.append()
    assert [path for path in seen if "leases" in path] == []


def test_a_tree_made_before_there_were_leases(world: World) -> None:
    client = world.client()
    client.session.delete(Place.of_table(world.tree).leases)
    client.append()
    client.session.delete(Place.of_table(world.tree).leases)
    with take(world.client()) as lease, pytest.raises(LeaseHeld):
        world.client().append()
    assert not lease.held


def test_a_released_lease_costs_nobody_anything_for_long(world: World) -> None:
    client, holder = world.client(), world.client()
    with take(holder), pytest.raises(LeaseHeld):
        client.append()
    client.append()
    assert client.committer.leases._free is not None


def test_grants_forget_what_is_gone() -> None:
    grants = Grants(("l-a-0000000001", "l-b-0000000002"))
    assert grants.with_granted(["l-c-0000000003"], existing=["l-b-0000000002", "l-c-0000000003"]).granted == (
        "l-b-0000000002",
        "l-c-0000000003",
    )
