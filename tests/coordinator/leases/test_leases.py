"""Leases on the in-memory twin: order, scopes, herds, expiry, circles, lost replies, and what they do to commits (I9)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace

import pytest

from sluice.coordinator.errors import CoordinatorUnavailable, DeadlockDetected, LeaseHeld, LeaseLost, SessionLost
from sluice.coordinator.leases.blocking import find_cycle
from sluice.coordinator.leases.granting import LeaseClient, LeaseRequest, Wanted
from sluice.coordinator.leases.lease import Lease, acquire, held_by_this_thread
from sluice.coordinator.leases.scopes import scopes_meet
from sluice.coordinator.nodes.creation import raise_tokens
from sluice.coordinator.nodes.layout import WAITS, LeaseName, Place
from sluice.coordinator.nodes.records import EXCLUSIVE, SHARED, Grants, LeaseNode, WaitNode
from sluice.coordinator.rules.intent import ClientName
from sluice.coordinator.service.clock import Deadline, SystemClock, bounded_s
from sluice.coordinator.service.memory import Call, Fault
from sluice.coordinator.service.store import Write
from tests.coordinator.world import Client, World, eventually

TYPES = (("p", "string"), ("d", "date"))


@pytest.fixture
def world(world: World) -> Iterator[World]:
    yield world
    assert requests(world) == [], "a request was left behind"


def home(client: Client) -> LeaseClient:
    return LeaseClient(client._connect, client.world.tree.location, client.context.clock, ClientName("host-7", 12, "job"))


def requests(world: World) -> list[str]:
    return [n.path for n in world.coordination.tree.walk() if LeaseName.parse(n.path.rpartition("/")[2]) or n.path.startswith(f"{WAITS}/")]


def wanted(client: Client, mode: str = EXCLUSIVE, where: str = "", place: Place | None = None) -> Wanted:
    return Wanted(place or Place.of_table(client.world.tree), mode, where, TYPES if where else ())


def take(client: Client, mode: str = EXCLUSIVE, where: str = "", wait_s: float | None = 5.0, place: Place | None = None) -> Lease:
    """Take one as if every client were another process: what one thread takes for several does not count together."""
    return apart(hold(client, mode, where, wait_s, place))


def apart(lease: Lease) -> Lease:
    held_by_this_thread().remove(lease)
    return lease


def hold(client: Client, mode: str = EXCLUSIVE, where: str = "", wait_s: float | None = 5.0, place: Place | None = None) -> Lease:
    return acquire(home(client), [wanted(client, mode, where, place)], wait_s)


class Waiter:
    """A thread that asks for a lease, and holds it until the test releases it; the request is in the queue when the object is made."""

    def __init__(self, world: World, mode: str = EXCLUSIVE, where: str = "") -> None:
        self.client = world.client()
        self.granted, self.let_go = threading.Event(), threading.Event()
        self.token = 0
        before = len(requests(world))
        self.thread = threading.Thread(target=self._run, args=(mode, where))
        self.thread.start()
        eventually(lambda: len(requests(world)) > before, "a waiter in the queue")

    def _run(self, mode: str, where: str) -> None:
        with take(self.client, mode, where) as lease:
            self.token = lease.token
            self.granted.set()
            self.let_go.wait(5)

    def end(self) -> None:
        self.let_go.set()
        self.thread.join(30)


@contextmanager
def ended(*waiters: Waiter) -> Iterator[None]:
    try:
        yield
    finally:
        for each in waiters:
            each.end()


# -- order ---------------------------------------------------------------------------------------------------------------


@pytest.mark.notices("who-asked-before-is-before")
def test_exclusive_leases_are_granted_in_the_order_of_asking_with_growing_tokens(world: World) -> None:
    first = take(world.client())
    waiters = [Waiter(world) for _ in range(4)]
    with ended(*waiters):
        tokens = [first.token]
        assert not any(w.granted.wait(0.01) for w in waiters)
        first.release()
        for n, waiter in enumerate(waiters):
            assert waiter.granted.wait(30)
            assert not any(w.granted.is_set() for w in waiters[n + 1 :]), "the next one waits for this one"
            tokens.append(waiter.token)
            waiter.end()
    assert tokens == sorted(set(tokens))


@pytest.mark.notices("nearest-in-the-way-is-waited-for", "shared-stand-together")
def test_shared_leases_stand_together_and_nobody_overtakes(world: World) -> None:
    shared = Waiter(world, SHARED)
    beside = Waiter(world, SHARED)
    assert shared.granted.wait(30)
    assert beside.granted.wait(30)
    exclusive = Waiter(world)
    late = Waiter(world, SHARED)
    with ended(shared, beside, exclusive, late):
        assert not exclusive.granted.wait(0.02)
        assert not late.granted.is_set(), "it came after somebody who waits and must not be starved"
        shared.end()
        assert not exclusive.granted.wait(0.02)
        beside.end()
        assert exclusive.granted.wait(30)
        assert not late.granted.wait(0.02)
        exclusive.end()
        assert late.granted.wait(30)


def test_leases_on_different_partitions_do_not_meet(world: World) -> None:
    with take(world.client(), where="p = 'a'"), take(world.client(), where="p IN ('b', 'c')", wait_s=0):
        with pytest.raises(LeaseHeld) as caught:
            take(world.client(), where="p >= 'c'", wait_s=0)
        assert caught.value.facts["host"] == "host-7"
        assert caught.value.facts["where"] == "p IN ('b', 'c')"
        assert "job on host-7 (process 12) since 20" in str(caught.value)
        with take(world.client(), where="p > 'c' AND d = DATE '2013-01-01'", wait_s=0):
            assert len(requests(world)) == 3


@pytest.mark.notices("unlike-conditions-meet-when-in-doubt")
def test_conditions_over_another_partitioning_meet() -> None:
    assert scopes_meet("p = 'a'", {"p": "string"}, "p = 1", {"p": "integer"})


def test_a_release_wakes_only_who_waited_for_it(world: World) -> None:
    first = take(world.client())
    waiters = [Waiter(world) for _ in range(6)]
    with ended(*waiters):
        time.sleep(0.05)  # all have set their watch
        before = world.coordination.calls["children"]
        first.release()
        assert waiters[0].granted.wait(30)
        time.sleep(0.05)
        looks = world.coordination.calls["children"] - before
        assert looks <= 3, f"{looks} looks at the queue: the one whose turn it is looks for the way and for the grant, nobody else"
        for waiter in waiters:
            assert waiter.granted.wait(30)
            waiter.end()


def test_who_gives_up_in_the_middle_lets_nobody_pass(world: World) -> None:
    first = take(world.client())
    giving_up = world.client()
    with ThreadPoolExecutor(1) as pool:
        impatient: Future[Lease] = pool.submit(take, giving_up, wait_s=1.0)
        eventually(lambda: len(requests(world)) == 2, "the impatient one in the queue")
        last = Waiter(world)
        with ended(last):
            with pytest.raises(LeaseHeld):
                impatient.result(30)
            eventually(lambda: len(requests(world)) == 2, "it withdrew its request")
            assert not last.granted.wait(0.02), "the first one still holds it"
            first.release()
            assert last.granted.wait(30)


class Ahead(SystemClock):
    """A clock that a test puts forward."""

    ahead_s = 0.0

    def monotonic_s(self) -> float:
        return super().monotonic_s() + self.ahead_s


@contextmanager
def slow(world: World, clock: Ahead, each_s: float) -> Iterator[None]:
    """Every request takes so long, and fails if its call gives it less, as requests to ZooKeeper do."""

    def take_its_time(_: Call) -> None:
        if bounded_s(120.0) < each_s:
            raise CoordinatorUnavailable("no answer in time")
        clock.ahead_s += each_s

    world.coordination.before = take_its_time
    try:
        yield
    finally:
        world.coordination.before = None


def test_a_coordinator_that_answers_late_still_says_whether_a_lease_is_free(world: World) -> None:
    client, clock = world.client(), Ahead()
    at = replace(home(client), clock=clock)
    with slow(world, clock, 1.0):
        with apart(acquire(at, [wanted(client)], 0)) as lease:
            with pytest.raises(LeaseHeld, match="job on host-7"):
                acquire(at, [wanted(client)], 0)
            with pytest.raises(CoordinatorUnavailable):
                acquire(at, [wanted(client)], Deadline.after(0, clock))
        assert lease.token > 0


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


@pytest.mark.notices("loss-is-told-at-the-end")
def test_an_expired_holder_is_told_and_the_next_one_gets_it(world: World) -> None:
    client = world.client()
    lease = hold(client)
    assert lease.held
    waiter = Waiter(world)
    with ended(waiter):
        client.session.expire()
        assert waiter.granted.wait(30)
        assert waiter.token > lease.token
        assert lease.lost.wait(5)
        assert not lease.held
        with pytest.raises(LeaseLost, match="session"):
            lease.check()
        with pytest.raises(LeaseLost, match="while the block ran"), lease:
            assert held_by_this_thread() == [lease], "what is done under it goes on depending on it"
    assert held_by_this_thread() == []


def test_a_lease_may_be_released_in_a_block_that_binds_it(world: World) -> None:
    lease = take(world.client())
    with lease.bind():
        lease.release()
    assert held_by_this_thread() == []


def test_a_lease_that_is_added_while_another_one_is_released_counts(world: World) -> None:
    lease = hold(world.client())
    mine = held_by_this_thread()
    lease.release()  # by a signal's handler, for instance, just before `bind` adds the other lease
    other = take(world.client())
    mine.append(other)
    assert held_by_this_thread() == [other]
    apart(other).release()


def test_an_expired_waiter_queues_again(world: World) -> None:
    first = take(world.client())
    waiter = Waiter(world)
    with ended(waiter):
        waiter.client.session.expire()
        eventually(lambda: len(requests(world)) == 2, "it queues again")
        first.release()
        assert waiter.granted.wait(30)


def test_what_a_former_session_asked_for_is_not_taken_for_the_request(world: World) -> None:
    """A server that is behind still shows it, under the same GUID."""
    client = world.client()
    request = LeaseRequest(home(client), [wanted(client, EXCLUSIVE, "", None)], ())
    [(place, asked)] = request._asked
    former = world.coordination.connect()
    former.create(place.node(LeaseName.prefix(request.guid)), asked.encode(), ephemeral=True, sequential=True)
    request.obtain(Deadline.after(30, SystemClock()))
    assert len(request.nodes) == 1
    former.expire()
    client.session.expire()


@pytest.mark.notices("a-new-session-requests-under-a-new-name")
def test_a_lost_session_that_ends_late_is_no_obstacle(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client knows first: its next session asks while ZooKeeper still has the nodes of the lost one."""
    client, former = world.client(), world.coordination.connect()
    request = LeaseRequest(home(client), [wanted(client, place=Place.of_name(name)) for name in ("one", "two")], ())
    request.store = former

    def lost(_: object) -> None:
        raise SessionLost("no server answered for as long as a session lives")

    monkeypatch.setattr(former, "children", lost)  # asked after it queued up
    request.obtain(Deadline.after(30, SystemClock()))
    assert len(requests(world)) == 5, "those that were granted, and what the lost session left"
    assert all(client.session.read(path) is not None for path in request.nodes)
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
        eventually(lambda: len(requests(world)) == 4, "it waits, and says what it holds")
        client.session.expire()
        asking.result(30)
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
    eventually(lambda: not requests(world), "the node is removed later")


@pytest.mark.notices("lost-grant-is-looked-for", "lost-request-is-looked-for")
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
        assert not lost or fault in (Fault.EXPIRED_BEFORE, Fault.EXPIRED_AFTER), "only a session that is over loses a lease"
        reached = not world.coordination._script
        world.coordination._script.clear()
        eventually(lambda: not requests(world), f"nothing is left behind by call {nth}")  # noqa: B023 - called at once
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


def grants(call: Call) -> bool:
    return any(isinstance(op, Write) and op.path.endswith("/leases") for op in call.ops)


@pytest.mark.notices("grants-are-of-requests-that-stand")
def test_a_request_that_is_broken_right_before_its_grant_is_not_granted(world: World) -> None:
    client, admin = world.client(), world.client()
    before_the_grant(world, client, lambda: admin.session.delete(requests(world)[0]))
    with pytest.raises(LeaseLost, match="ask again"):
        take(client)
    node = admin.session.read(Place.of_table(world.tree).leases)
    assert node is not None
    assert not Grants.decode(node.data).granted


@pytest.mark.notices("a-token-is-of-a-lease-still-held")
def test_a_request_that_is_broken_right_after_its_grant_gets_no_token(world: World) -> None:
    client, admin = world.client(), world.client()
    before_the_grant(world, client, lambda: world.once(lambda: admin.session.delete(requests(world)[0]), grants, after=True))
    with pytest.raises(LeaseLost, match="ask again"):
        take(client)


def test_tokens_grow_when_they_are_raised_while_two_requests_are_made(world: World) -> None:
    first, second, table = world.client(), world.client(), wanted(world.client())
    earlier, later = (LeaseRequest(home(client), [table], ()) for client in (first, second))

    def meanwhile() -> None:
        later._file()
        raise_tokens(second.session, 1 << 40)  # a table arrives

    world.once(meanwhile, lambda call: call.session_id == first.session.session_id and call.verb == "apply", after=True)
    earlier.obtain(None)
    first.session.close()
    later._await(None)
    assert earlier.token < later.token
    second.session.close()


@pytest.mark.notices("grants-are-written-by-comparison")
def test_two_who_are_granted_at_once_are_both_on_record(world: World) -> None:
    one, other = world.client(), world.client()
    taken: list[Lease] = []
    before_the_grant(world, one, lambda: taken.append(take(other, SHARED)))
    taken.append(take(one, SHARED))
    node = one.session.read(Place.of_table(world.tree).leases)
    grants = None if node is None else Grants.readable(node.data)
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


@pytest.mark.notices("circles-are-found")
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
            assert waiter.granted.wait(30)


@pytest.mark.notices("the-youngest-gives-in")
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
        assert other.granted.wait(30)
        threading.Timer(0.05, other.end).start()
        with hold(client):
            assert len(held_by_this_thread()) == 2
