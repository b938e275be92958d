"""What every CoordinationStore promises when something happens to it: watches, lost replies, servers that cannot be reached."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

import pytest

from sluice.coordinator.errors import CoordinatorUnavailable, SessionLost
from sluice.coordinator.service.memory import MemoryCoordination
from sluice.coordinator.service.store import ANY_VERSION, ApplyRefused, Check, CoordinationStore, Create, Delete, Op, ReplyLost, Write
from sluice.coordinator.service.zookeeper.session import ZooKeeperStore
from tests.coordinator.service.test_coordination_store import WAIT_S, World, every_verb, node, other, store, world
from tests.coordinator.world import eventually

__all__ = ["other", "store", "world"]


class Bell:
    """A watch that counts how often it was called."""

    def __init__(self) -> None:
        self.rings = 0
        self._rung = threading.Event()

    def __call__(self) -> None:
        self.rings += 1
        self._rung.set()

    def rang(self) -> bool:
        return self._rung.wait(WAIT_S)


class TestWatches:
    @pytest.mark.parametrize("change", ["write", "delete"])
    def test_a_node_that_changes_rings_once(self, store: CoordinationStore, other: CoordinationStore, change: str) -> None:
        store.create("/a")
        bell, after = Bell(), Bell()
        store.read("/a", bell)
        other.write("/a", b"1", version=ANY_VERSION) if change == "write" else other.delete("/a")
        assert bell.rang()
        store.barrier()
        store.read("/a", after)
        other.write("/a", b"2", version=ANY_VERSION) if change == "write" else other.create("/a")
        assert after.rang()
        assert bell.rings == 1

    def test_a_node_that_appears_rings(self, store: CoordinationStore, other: CoordinationStore) -> None:
        bell = Bell()
        assert store.read("/a", bell) is None
        other.create("/a")
        assert bell.rang()

    @pytest.mark.parametrize("change", ["create", "delete", "apply"])
    def test_children_that_change_ring_once(self, store: CoordinationStore, other: CoordinationStore, change: str) -> None:
        store.ensure_path("/a/b")
        bell = Bell()
        assert store.children("/a", bell) == ["b"]
        if change == "create":
            other.create("/a/c")
        elif change == "delete":
            other.delete("/a/b")
        else:
            other.apply([Create("/a/c"), Create("/a/d"), Delete("/a/b")])
        assert bell.rang()
        other.create("/a/e")
        last = Bell()
        store.barrier()
        store.children("/a", last)
        other.create("/a/f")
        assert last.rang()
        assert bell.rings == 1

    def test_children_of_a_node_that_appears_or_goes_ring(self, store: CoordinationStore, other: CoordinationStore) -> None:
        appears, goes = Bell(), Bell()
        assert store.children("/a", appears) is None
        other.create("/a")
        assert appears.rang()
        store.barrier()
        assert store.children("/a", goes) == []
        other.delete("/a")
        assert goes.rang()

    def test_a_change_elsewhere_does_not_ring(self, store: CoordinationStore, other: CoordinationStore) -> None:
        store.ensure_path("/a/b")
        data, children, fence = Bell(), Bell(), Bell()
        store.read("/a", data)
        store.children("/a", children)
        other.write("/a/b", b"1", version=0)
        other.create("/a/b/c")
        store.read("/fence", fence)
        other.create("/fence")
        assert fence.rang()
        assert (data.rings, children.rings) == (0, 0)

    def test_an_ephemeral_node_that_goes_rings(self, world: World, store: CoordinationStore) -> None:
        short = world.connect()
        short.create("/e", ephemeral=True)
        store.barrier()
        bell = Bell()
        assert store.read("/e", bell) is not None
        short.close()
        assert bell.rang()

    def test_losing_and_finding_the_connection_rings(self, world: World, store: CoordinationStore) -> None:
        lost, found = Bell(), Bell()
        store.read("/a", lost)
        world.cut(store)
        assert lost.rang()
        eventually(lambda: not store.connected, "the cut is noticed")
        world.restore(store)
        eventually(lambda: store.connected, "the connection is back")
        assert store.read("/a", found) is None
        store.create("/a")
        assert found.rang()
        assert (lost.rings, found.rings) == (1, 1)

    def test_the_end_of_the_session_rings(self, world: World) -> None:
        store = world.connect()
        expired = Bell()
        store.read("/a", expired)
        world.expire(store)
        assert expired.rang()
        store.close()


class TestAmbiguousReplies:
    def test_a_create_whose_request_was_lost_did_not(self, world: World, store: CoordinationStore, other: CoordinationStore) -> None:
        world.lose_request(store)
        with pytest.raises(ReplyLost, match="/a"):
            store.create("/a", b"1")
        store.barrier()
        assert store.read("/a") is None
        assert other.read("/a") is None

    def test_every_mutating_verb_says_so(self, world: World, store: CoordinationStore) -> None:
        store.create("/a")
        store.create("/s")
        store.create("/gone")
        attempts: list[Callable[[], object]] = [
            lambda: store.create("/s/i-", sequential=True),
            lambda: store.write("/a", b"1", version=0),
            lambda: store.delete("/gone"),
            lambda: store.apply([Write("/a", b"2", 1), Create("/s/i-", sequential=True)]),
        ]
        for attempt in attempts:
            world.lose_reply(store)
            with pytest.raises(ReplyLost):
                attempt()
            store.barrier()
        assert (node(store, "/a").data, node(store, "/a").version) == (b"2", 2)
        assert store.read("/gone") is None
        assert sorted(store.children("/s") or []) == ["i-0000000000", "i-0000000001"]

    def test_a_refusal_whose_reply_was_lost_is_ambiguous_too(self, world: World, store: CoordinationStore) -> None:
        store.create("/a")
        world.lose_reply(store)
        with pytest.raises(ReplyLost):
            store.create("/a")
        world.lose_reply(store)
        with pytest.raises(ReplyLost):
            store.apply([Check("/a", 7)])

    @pytest.mark.parametrize("lose", ["lose_request", "lose_reply"])
    def test_reads_barriers_and_ensure_path_are_sent_again(self, world: World, store: CoordinationStore, lose: str) -> None:
        store.create("/a", b"1")
        store.create("/a/b")
        attempts: dict[Callable[[], object], object] = {
            lambda: node(store, "/a").data: b"1",
            lambda: store.children("/a"): ["b"],
            lambda: [found and found.data for found in store.read_many(["/a"])]: [b"1"],
            store.barrier: None,
            lambda: store.ensure_path("/new/path"): None,
        }
        for attempt, result in attempts.items():
            getattr(world, lose)(store)
            assert attempt() == result
        assert store.read("/new/path") is not None

    def test_a_session_survives_a_lost_reply(self, world: World, store: CoordinationStore) -> None:
        store.create("/e", ephemeral=True)
        world.lose_reply(store)
        with pytest.raises(ReplyLost):
            store.create("/f", ephemeral=True)
        store.barrier()
        assert node(store, "/e").owner_session == node(store, "/f").owner_session == store.session_id


class TestUnreachable:
    def test_every_verb_says_so_and_sends_nothing(self, world: World) -> None:
        store = world.connect()
        world.cut(store)
        eventually(lambda: not store.connected, "the cut is noticed")
        for attempt in every_verb(store)[:3]:
            with pytest.raises(CoordinatorUnavailable) as unavailable:
                attempt()
            assert not isinstance(unavailable.value, SessionLost)
        world.restore(store)
        eventually(lambda: store.connected, "the connection is back")
        store.barrier()
        assert store.children("/") == []
        store.close()


@pytest.mark.zookeeper
@pytest.mark.parametrize("seed", range(8))
def test_the_twin_answers_any_sequence_of_requests_as_zookeeper_does(zookeeper_hosts: str, zookeeper_chroot: str, seed: int) -> None:
    chance = random.Random(seed)
    twin, real = MemoryCoordination().connect(), ZooKeeperStore.connect(zookeeper_hosts, chroot=zookeeper_chroot)
    for _ in range(250):
        ops = [any_op(chance) for _ in range(chance.choice([1, 1, 2, 4]))]
        assert answer(twin, ops) == answer(real, ops), f"seed {seed}: {ops}"
    assert picture(twin, "/") == picture(real, "/")
    real.close()


def any_op(chance: random.Random) -> Op:
    path = chance.choice(["/a", "/b", "/a/x", "/a/y", "/b/x", "/a/x/p", "/c-0000000001"])
    version = chance.choice([ANY_VERSION, ANY_VERSION, 0, 1, 2])
    data = chance.randbytes(chance.randrange(3))
    match chance.randrange(8):
        case 0 | 1 | 2:
            return Create(path, data, ephemeral=chance.random() < 0.2)
        case 3:
            return Create(chance.choice(["/c-", "/a/s-", "/b/s-"]), data, sequential=True, ephemeral=chance.random() < 0.2)
        case 4:
            return Write(path, data, version)
        case 5:
            return Check(path, version)
        case _:
            return Delete(path, version)


def answer(store: CoordinationStore, ops: list[Op]) -> object:
    try:
        return store.apply(ops)
    except ApplyRefused as refused:
        return refused.index, type(refused.cause)


def picture(store: CoordinationStore, path: str) -> object:
    found = node(store, path)
    below = {name: picture(store, f"{path.rstrip('/')}/{name}") for name in sorted(store.children(path) or [])}
    return found.data, found.version, found.owner_session == store.session_id, below
