"""What every CoordinationStore promises, asked of the twin in memory and of a real ZooKeeper."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import pytest
from kazoo.client import KazooClient

from sluice.coordinator.errors import SessionLost
from sluice.coordinator.service.memory import Fault, MemoryCoordination
from sluice.coordinator.service.store import (
    ANY_VERSION,
    ApplyRefused,
    BadVersion,
    Check,
    CoordinationStore,
    Create,
    Delete,
    Node,
    NodeExists,
    NoNode,
    NotEmpty,
    Op,
    ParentIsEphemeral,
    StoreError,
    Write,
)
from sluice.coordinator.service.zookeeper.session import ZooKeeperStore
from sluice.storage.errors import InvalidRequest
from tests.coordinator.world import eventually
from tests.fixtures.zookeeper import Proxy

WAIT_S = 10.0


class MemoryWorld:
    """The twin in memory, with the means to hurt it."""

    def __init__(self) -> None:
        self.coordination = MemoryCoordination()

    def connect(self) -> CoordinationStore:
        return self.coordination.connect()

    def lose_request(self, store: Any) -> None:
        """Cut the connection when the store's next request is sent, before it arrives."""
        self.coordination.inject(Fault.REQUEST_LOST, session=store)

    def lose_reply(self, store: Any) -> None:
        """Cut the connection after the store's next request took effect, before its reply arrives."""
        self.coordination.inject(Fault.REPLY_LOST, session=store)

    def expire(self, store: Any) -> None:
        store.expire()

    def cut(self, store: Any) -> None:
        """Make the service unreachable for the store until `restore`."""
        store.disconnect()

    def restore(self, store: Any) -> None:
        store.reconnect()


class ZooKeeperWorld:
    """A real server; every session has a lossy line of its own to it."""

    RETRY_S = 1.5

    def __init__(self, hosts: str, chroot: str) -> None:
        self._hosts = hosts
        self._chroot = chroot
        self._proxies: dict[int, Proxy] = {}

    def connect(self) -> CoordinationStore:
        proxy = Proxy(self._hosts)
        store = ZooKeeperStore.connect(proxy.hosts, chroot=self._chroot, retry_s=self.RETRY_S)
        self._proxies[store.session_id] = proxy
        return store

    def lose_request(self, store: Any) -> None:
        self._proxies[store.session_id].lose_request()

    def lose_reply(self, store: Any) -> None:
        self._proxies[store.session_id].lose_reply()

    def expire(self, store: Any) -> None:
        """A client that knows a session's password can take it over, and end it."""
        thief = KazooClient(self._hosts, client_id=store._client.client_id)
        thief.start()
        thief.stop()
        thief.close()

    def cut(self, store: Any) -> None:
        self._proxies[store.session_id].cut()

    def restore(self, store: Any) -> None:
        self._proxies[store.session_id].restore()

    def close(self) -> None:
        for proxy in self._proxies.values():
            proxy.close()


World: TypeAlias = MemoryWorld | ZooKeeperWorld


@pytest.fixture(params=["memory", pytest.param("zookeeper", marks=pytest.mark.zookeeper)])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    if request.param == "memory":
        yield MemoryWorld()
        return
    world = ZooKeeperWorld(request.getfixturevalue("zookeeper_hosts"), request.getfixturevalue("zookeeper_chroot"))
    yield world
    world.close()


@pytest.fixture
def store(world: World) -> Iterator[CoordinationStore]:
    store = world.connect()
    yield store
    store.close()


@pytest.fixture
def other(world: World) -> Iterator[CoordinationStore]:
    store = world.connect()
    yield store
    store.close()


def node(store: CoordinationStore, path: str) -> Node:
    found = store.read(path)
    assert found is not None, f"{path} is not there"
    return found


class TestNodes:
    def test_a_created_node_is_read_back(self, store: CoordinationStore) -> None:
        assert store.create("/a", b"one") == "/a"
        found = node(store, "/a")
        assert (found.path, found.data, found.version, found.owner_session) == ("/a", b"one", 0, 0)

    def test_what_is_not_there_reads_as_none(self, store: CoordinationStore) -> None:
        assert store.read("/nothing") is None
        assert store.children("/nothing") is None

    def test_the_root_is_there(self, store: CoordinationStore) -> None:
        assert node(store, "/").path == "/"
        assert store.children("/") == []

    def test_creating_twice_is_refused(self, store: CoordinationStore) -> None:
        store.create("/a", b"one")
        with pytest.raises(NodeExists, match="/a"):
            store.create("/a", b"two")
        assert node(store, "/a").data == b"one"

    def test_creating_without_parent_is_refused(self, store: CoordinationStore) -> None:
        with pytest.raises(NoNode):
            store.create("/a/b")

    def test_ensure_path_makes_the_parents_and_leaves_what_is_there(self, store: CoordinationStore) -> None:
        store.create("/a", b"one")
        store.ensure_path("/a/b/c")
        store.ensure_path("/a/b/c")
        store.ensure_path("/")
        assert node(store, "/a").data == b"one"
        assert node(store, "/a/b/c").data == b""

    def test_a_write_needs_the_current_version(self, store: CoordinationStore) -> None:
        store.create("/a", b"0")
        assert store.write("/a", b"1", version=0) == 1
        with pytest.raises(BadVersion, match="/a"):
            store.write("/a", b"2", version=0)
        assert store.write("/a", b"3", version=ANY_VERSION) == 2
        assert (node(store, "/a").data, node(store, "/a").version) == (b"3", 2)
        with pytest.raises(NoNode):
            store.write("/b", b"", version=ANY_VERSION)

    def test_a_delete_needs_the_current_version_and_no_children(self, store: CoordinationStore) -> None:
        store.ensure_path("/a/b")
        with pytest.raises(NotEmpty, match="/a"):
            store.delete("/a")
        with pytest.raises(BadVersion):
            store.delete("/a/b", version=3)
        store.delete("/a/b", version=0)
        store.delete("/a")
        with pytest.raises(NoNode):
            store.delete("/a")

    def test_a_recreated_node_starts_again_with_a_greater_zxid(self, store: CoordinationStore) -> None:
        store.create("/a")
        store.write("/a", b"x", version=0)
        first = node(store, "/a").created_zxid
        store.delete("/a")
        store.create("/a")
        assert node(store, "/a").version == 0
        assert node(store, "/a").created_zxid > first > 0

    def test_children_are_names(self, store: CoordinationStore) -> None:
        store.ensure_path("/a/b/c")
        store.create("/a/d")
        assert sorted(store.children("/a") or []) == ["b", "d"]
        assert store.children("/a/d") == []

    def test_read_many_keeps_the_order(self, store: CoordinationStore) -> None:
        for number in range(50):
            store.create(f"/n{number}", str(number).encode())
        found = store.read_many(["/n7", "/missing", *(f"/n{number}" for number in range(50)), "/n7"])
        assert found[1] is None
        assert [one.data.decode() for one in found if one] == ["7", *map(str, range(50)), "7"]
        assert store.read_many([]) == []

    def test_a_look_gives_nodes_and_the_names_of_children(self, store: CoordinationStore) -> None:
        store.ensure_path("/a/b")
        store.create("/a/c", b"1")
        nodes, names = store.look(["/a/c", "/missing", "/a"], ["/a", "/a/b", "/missing"])
        assert [each and each.data for each in nodes] == [b"1", None, b""]
        assert [None if each is None else sorted(each) for each in names] == [["b", "c"], [], None]
        assert store.look([], []) == ([], [])

    @pytest.mark.parametrize("path", ["a", "", "/a/", "//a", "/a//b", "/./a", "/../a", "/a\0"])
    def test_a_malformed_path_is_refused(self, store: CoordinationStore, path: str) -> None:
        for attempt in every_verb(store, path)[:-1]:
            with pytest.raises(InvalidRequest, match="node path"):
                attempt()

    def test_the_root_cannot_be_created_or_deleted(self, store: CoordinationStore) -> None:
        with pytest.raises(InvalidRequest, match="root"):
            store.create("/")
        with pytest.raises(InvalidRequest, match="root"):
            store.delete("/")

    def test_a_request_that_is_too_large_is_refused_before_it_is_sent(self, store: CoordinationStore) -> None:
        store.create("/a")
        large = b"x" * 1_000_000
        attempts: list[Callable[[], object]] = [
            lambda: store.create("/large", large),
            lambda: store.write("/a", large, version=0),
            lambda: store.apply([Write("/a", large[:500_000], 0), Create("/b", large[:500_000])]),
        ]
        for attempt in attempts:
            with pytest.raises(InvalidRequest, match="1,000,000"):
                attempt()
        assert node(store, "/a").version == 0
        assert store.connected

    def test_a_request_just_below_the_limit_fits(self, store: CoordinationStore) -> None:
        store.create("/a", b"x" * 999_800)
        store.apply([Write("/a", b"y" * 499_800, 0), Create("/b", b"z" * 499_800)])
        assert len(node(store, "/a").data) == 499_800


class TestSequences:
    def test_the_counter_counts_every_child_and_survives_deletes(self, store: CoordinationStore) -> None:
        store.create("/s")
        assert store.create("/s/i-", sequential=True) == "/s/i-0000000000"
        store.create("/s/plain")
        assert store.create("/s/j-", sequential=True) == "/s/j-0000000002"
        store.delete("/s/j-0000000002")
        assert store.create("/s/i-", sequential=True) == "/s/i-0000000003"

    def test_a_failed_create_does_not_count(self, store: CoordinationStore) -> None:
        store.create("/s")
        store.create("/s/a")
        with pytest.raises(NodeExists):
            store.create("/s/a")
        assert store.create("/s/i-", sequential=True) == "/s/i-0000000001"

    def test_two_in_one_apply_follow_each_other_and_share_a_zxid(self, store: CoordinationStore) -> None:
        store.create("/s")
        created = store.apply([Create("/s/i-", b"1", sequential=True), Create("/s/i-", b"2", sequential=True)])
        assert created == ["/s/i-0000000000", "/s/i-0000000001"]
        assert node(store, "/s/i-0000000000").created_zxid == node(store, "/s/i-0000000001").created_zxid

    def test_a_failed_apply_leaves_the_counter(self, store: CoordinationStore) -> None:
        store.create("/s")
        with pytest.raises(ApplyRefused):
            store.apply([Create("/s/i-", sequential=True), Create("/s/i-", sequential=True), Check("/nothing", 0)])
        assert store.create("/s/i-", sequential=True) == "/s/i-0000000000"


class TestApply:
    def test_the_results_are_those_of_the_operations(self, store: CoordinationStore) -> None:
        store.create("/a")
        store.create("/gone")
        ops: list[Op] = [Check("/a", 0), Write("/a", b"1", 0), Create("/b", b"2"), Delete("/gone"), Write("/a", b"3", 1)]
        assert store.apply(ops) == [None, 1, "/b", None, 2]
        assert node(store, "/a").data == b"3"

    def test_an_empty_apply_does_nothing(self, store: CoordinationStore) -> None:
        assert store.apply([]) == []

    @pytest.mark.parametrize(
        ("op", "cause"),
        [
            (Check("/nothing", 0), NoNode),
            (Check("/nothing", ANY_VERSION), NoNode),
            (Check("/a", 7), BadVersion),
            (Write("/nothing", b"", 0), NoNode),
            (Write("/a", b"", 7), BadVersion),
            (Create("/a"), NodeExists),
            (Create("/nothing/b"), NoNode),
            (Delete("/nothing"), NoNode),
            (Delete("/a", 7), BadVersion),
            (Delete("/full"), NotEmpty),
        ],
    )
    @pytest.mark.parametrize("index", [0, 2])
    def test_one_refused_operation_refuses_all_and_is_named(
        self, store: CoordinationStore, op: Op, cause: type[StoreError], index: int
    ) -> None:
        store.create("/a", b"before")
        store.ensure_path("/full/child")
        ops: list[Op] = [Create("/new"), Create("/newer")]
        ops.insert(index, op)
        with pytest.raises(ApplyRefused) as refused:
            store.apply(ops)
        assert refused.value.index == index
        assert type(refused.value.cause) is cause
        assert op.path in str(refused.value)
        assert store.read("/new") is None
        assert store.read("/newer") is None

    def test_effects_of_all_kinds_are_taken_back(self, store: CoordinationStore) -> None:
        store.create("/a", b"before")
        store.create("/gone", b"here")
        store.create("/parent")
        store.create("/parent/child-", sequential=True)
        store.delete("/parent/child-0000000000")
        ops: list[Op] = [Write("/a", b"after", 0), Delete("/gone"), Delete("/parent"), Create("/parent"), Check("/a", 0)]
        with pytest.raises(ApplyRefused):
            store.apply(ops)
        assert (node(store, "/a").data, node(store, "/a").version) == (b"before", 0)
        assert node(store, "/gone").data == b"here"
        assert store.create("/parent/child-", sequential=True) == "/parent/child-0000000001"

    def test_an_operation_sees_those_before_it(self, store: CoordinationStore) -> None:
        assert store.apply([Create("/a"), Create("/a/b"), Delete("/a/b"), Delete("/a")]) == ["/a", "/a/b", None, None]

    def test_any_version_fits_every_check(self, store: CoordinationStore) -> None:
        store.create("/a")
        store.write("/a", b"x", version=0)
        assert store.apply([Check("/a", ANY_VERSION), Check("/", ANY_VERSION)]) == [None, None]


class TestSessions:
    def test_ephemeral_nodes_carry_their_session_and_go_with_it(self, world: World, store: CoordinationStore) -> None:
        short = world.connect()
        short.create("/e", b"mine", ephemeral=True)
        short.apply([Create("/f-", ephemeral=True, sequential=True)])
        short.create("/stays")
        store.barrier()
        assert node(store, "/e").owner_session == short.session_id != 0
        assert node(store, "/f-0000000001").owner_session == short.session_id
        short.close()
        store.barrier()
        assert store.children("/") == ["stays"]

    def test_ephemeral_nodes_have_no_children(self, store: CoordinationStore) -> None:
        store.create("/e", ephemeral=True)
        with pytest.raises(ParentIsEphemeral):
            store.create("/e/child")
        with pytest.raises(ApplyRefused) as refused:
            store.apply([Create("/e/child")])
        assert type(refused.value.cause) is ParentIsEphemeral

    def test_another_session_sees_what_was_acknowledged_after_a_barrier(self, store: CoordinationStore, other: CoordinationStore) -> None:
        for number in range(10):
            store.create(f"/a{number}")
            other.barrier()
            assert other.read(f"/a{number}") is not None

    def test_sessions_differ(self, store: CoordinationStore, other: CoordinationStore) -> None:
        assert store.session_id != other.session_id
        assert store.connected
        assert other.connected

    def test_everything_is_refused_after_close(self, world: World) -> None:
        store = world.connect()
        store.close()
        store.close()
        assert not store.connected
        for attempt in every_verb(store):
            with pytest.raises(SessionLost):
                attempt()

    def test_everything_is_refused_after_expiry(self, world: World, other: CoordinationStore) -> None:
        store = world.connect()
        store.create("/e", ephemeral=True)
        world.expire(store)
        eventually(lambda: not store.connected, "the store notices that its session expired")
        for attempt in every_verb(store):
            with pytest.raises(SessionLost):
                attempt()
        other.barrier()
        assert other.read("/e") is None
        store.close()


def every_verb(store: CoordinationStore, path: str = "/x") -> list[Callable[[], object]]:
    return [
        lambda: store.create(path),
        lambda: store.ensure_path(path),
        lambda: store.read(path),
        lambda: store.read_many([path]),
        lambda: store.look(["/", path], ["/"]),
        lambda: store.look(["/"], [path]),
        lambda: store.children(path),
        lambda: store.write(path, b"", version=ANY_VERSION),
        lambda: store.delete(path),
        lambda: store.apply([Check(path, ANY_VERSION)]),
        store.barrier,
    ]
