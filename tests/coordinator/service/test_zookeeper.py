"""What only the real thing has: kazoo's exceptions, sockets, forks, unreachable servers, lost sessions, quorum operations."""

from __future__ import annotations

import inspect
import logging
import os
import queue
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from kazoo import exceptions as kazoo_exceptions
from kazoo.client import KazooClient

from sluice.coordinator.errors import CoordinatorUnavailable, SessionLost
from sluice.coordinator.service.store import Create, ReplyLost
from sluice.coordinator.service.zookeeper.errors import MEANING, translate
from sluice.coordinator.service.zookeeper.session import ZooKeeperStore
from sluice.storage.errors import InvalidRequest
from tests.coordinator.world import eventually
from tests.fixtures.zookeeper import Proxy

pytestmark = pytest.mark.zookeeper


@pytest.fixture
def store(zookeeper_hosts: str, zookeeper_chroot: str) -> Iterator[ZooKeeperStore]:
    store = ZooKeeperStore.connect(zookeeper_hosts, chroot=zookeeper_chroot)
    yield store
    store.close()


def test_every_exception_of_kazoo_has_a_meaning() -> None:
    own = [value for _, value in inspect.getmembers(kazoo_exceptions, inspect.isclass) if issubclass(value, Exception)]
    roots = {"KazooException", "ZookeeperError"}
    assert {value.__name__ for value in own} - roots | {"KazooTimeoutError", "RuntimeError"} == set(MEANING)
    for value in own:
        if value.__name__ not in roots:
            assert "/a" in str(translate(value(), "/a"))


@pytest.mark.parametrize("accepts", [False, True])
def test_a_server_that_says_nothing_is_reported_in_time_with_its_address(accepts: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        if not accepts:
            listener.close()
        started = time.monotonic()
        with pytest.raises(CoordinatorUnavailable, match=rf"127\.0\.0\.1:{port} within 0\.5 s.*check the address"):
            ZooKeeperStore.connect(f"127.0.0.1:{port}", connect_timeout_s=0.5, session_timeout_s=1)
        assert time.monotonic() - started < 10


def test_hosts_that_cannot_be_parsed_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="host:port"):
        ZooKeeperStore.connect("somewhere:port")


def test_a_chroot_of_any_depth_is_made_and_hides_the_rest(zookeeper_hosts: str, zookeeper_chroot: str) -> None:
    deep = ZooKeeperStore.connect(zookeeper_hosts, chroot=f"{zookeeper_chroot}/deep")
    deep.create("/a", b"1")
    top = ZooKeeperStore.connect(zookeeper_hosts, chroot="/")
    found = top.read(f"{zookeeper_chroot}/deep/a")
    assert found is not None
    assert found.data == b"1"
    assert top.children(zookeeper_chroot) == ["deep"]
    assert top.create(f"{zookeeper_chroot}/deep/s-", sequential=True) == f"{zookeeper_chroot}/deep/s-0000000001"
    assert "zookeeper" in (top.children("/") or [])
    top.barrier()
    deep.close()
    top.close()


def test_a_barrier_is_a_transaction_of_the_quorum(store: ZooKeeperStore) -> None:
    store.create("/a")
    for _ in range(5):
        store.barrier()
    store.create("/b")
    before, after = store.read_many(["/a", "/b"])
    assert before is not None
    assert after is not None
    assert after.created_zxid - before.created_zxid >= 6  # other tests write to the same server


def test_a_watch_is_called_by_the_thread_that_reads_the_replies(store: ZooKeeperStore) -> None:
    """Another one would have to be woken for each."""
    store.create("/a")
    rang: queue.SimpleQueue[str] = queue.SimpleQueue()
    store.read("/a", lambda: rang.put(threading.current_thread().name))
    store.write("/a", b"1", version=0)
    assert "zk_loop" in rang.get(timeout=10)


@pytest.mark.parametrize("path", ["/a", "/absent"])
def test_a_watch_that_rings_before_its_read_returns_is_not_kept(store: ZooKeeperStore, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    store.create("/a")
    rang = threading.Event()
    verb = "get_async" if path == "/a" else "exists_async"
    ask = getattr(store._client, verb)

    class Overtaken:
        def __init__(self, reply: Any) -> None:
            self.reply = reply

        def get(self, timeout: float) -> Any:
            found = self.reply.get(timeout=timeout)
            monkeypatch.undo()
            store.write(path, b"1", version=0) if path == "/a" else store.create(path)
            assert rang.wait(10)
            return found

    monkeypatch.setattr(store._client, verb, lambda *args, **options: Overtaken(ask(*args, **options)))
    store.read(path, rang.set)
    assert store._watches._waiting == set()


def test_a_callable_that_watches_again_and_again_is_registered_once(store: ZooKeeperStore) -> None:
    store.create("/a")
    rang = threading.Semaphore(0)
    for _ in range(100):
        store.read("/a", rang.release)
        store.children("/a", rang.release)
        store.read("/absent", rang.release)
    assert [len(watchers) for watchers in store._client._data_watchers.values()] == [1, 1]
    assert [len(watchers) for watchers in store._client._child_watchers.values()] == [1]
    store.write("/a", b"1", version=0)
    assert rang.acquire(timeout=10)
    store.barrier()
    assert not rang.acquire(timeout=0.1)


def test_closing_rings_the_watches_of_those_who_wait(zookeeper_hosts: str, zookeeper_chroot: str) -> None:
    store = ZooKeeperStore.connect(zookeeper_hosts, chroot=zookeeper_chroot)
    rings: list[str] = []
    store.read("/a", lambda: rings.append("a"))
    store.close()
    assert rings == ["a"]


def test_a_watch_that_fails_is_logged_and_harms_nobody(store: ZooKeeperStore, caplog: pytest.LogCaptureFixture) -> None:
    rang = threading.Event()

    def fail() -> None:
        rang.set()
        raise ValueError("a bad watch")

    store.read("/a", fail)
    store.create("/a")
    assert rang.wait(10)
    after = threading.Event()
    store.read("/b", after.set)
    store.create("/b")
    assert after.wait(10)
    assert "a bad watch" in caplog.text


def test_a_fork_cannot_use_the_session_and_does_not_end_it(store: ZooKeeperStore) -> None:
    store.create("/e", ephemeral=True)
    child = os.fork()
    if child == 0:
        try:
            store.read("/e")
        except InvalidRequest as error:
            store.close()
            os._exit(7 if "forked" in str(error) and str(os.getppid()) in str(error) else 1)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    store.barrier()
    assert store.read("/e") is not None


def test_reads_go_on_when_the_server_comes_back_and_writes_say_what_is_open(
    zookeeper_hosts: str, zookeeper_chroot: str, zookeeper_proxy: Proxy
) -> None:
    store = ZooKeeperStore.connect(zookeeper_proxy.hosts, chroot=zookeeper_chroot, retry_s=20)
    store.create("/a")
    zookeeper_proxy.cut()
    threading.Timer(1.0, zookeeper_proxy.restore).start()
    started = time.monotonic()
    assert store.children("/") == ["a"]
    assert store.create("/b") == "/b"  # it found no connection, so it waited for one and was sent once
    assert 0.5 < time.monotonic() - started < 20
    store.close()


def test_an_unreachable_ensemble_is_reported_with_hosts_and_remedy(zookeeper_chroot: str, zookeeper_proxy: Proxy) -> None:
    store = ZooKeeperStore.connect(zookeeper_proxy.hosts, chroot=zookeeper_chroot, retry_s=0.5)
    zookeeper_proxy.cut()
    eventually(lambda: not store.connected, "the cut is noticed")
    attempts: list[Callable[[], object]] = [lambda: store.read("/a"), lambda: store.create("/a"), store.barrier]
    for attempt in attempts:
        started = time.monotonic()
        with pytest.raises(CoordinatorUnavailable, match=rf"{zookeeper_proxy.hosts}.*0\.5 s.*majority") as unavailable:
            attempt()
        assert unavailable.value.retryable
        assert time.monotonic() - started < 10
    started = time.monotonic()
    store.close()
    assert time.monotonic() - started < 10


def test_a_session_that_expires_while_a_call_waits_ends_the_call(
    zookeeper_hosts: str, zookeeper_chroot: str, zookeeper_proxy: Proxy
) -> None:
    store = ZooKeeperStore.connect(zookeeper_proxy.hosts, chroot=zookeeper_chroot, retry_s=20)
    client_id = store._client.client_id
    zookeeper_proxy.cut()
    eventually(lambda: not store.connected, "the cut is noticed")
    waiting = ThreadPoolExecutor(1).submit(store.create, "/e", b"", ephemeral=True)
    thief = KazooClient(zookeeper_hosts, client_id=client_id)
    thief.start()
    thief.stop()
    thief.close()
    zookeeper_proxy.restore()
    with pytest.raises((SessionLost, ReplyLost)):
        waiting.result(timeout=20)
    with pytest.raises(SessionLost, match="expired"):
        store.read("/e")
    store.close()
    fresh = ZooKeeperStore.connect(zookeeper_hosts, chroot=zookeeper_chroot)
    fresh.barrier()
    assert fresh.read("/e") is None
    fresh.close()


# The library's thread ends with the error, as it does in a user's program.
DIES = pytest.mark.filterwarnings("ignore:Exception in thread.*zk_loop:pytest.PytestUnhandledThreadExceptionWarning")


@DIES
@pytest.mark.parametrize("ask", [ZooKeeperStore.barrier, lambda store: store.children("/"), lambda store: store.look(["/a"], ["/"])])
def test_an_answer_out_of_order_ends_the_session(
    store: ZooKeeperStore, monkeypatch: pytest.MonkeyPatch, ask: Callable[[ZooKeeperStore], object]
) -> None:
    out_of_order(store, monkeypatch)
    with pytest.raises(SessionLost):
        ask(store)
    with pytest.raises(SessionLost, match="expired"):
        store.read("/a")


@DIES
def test_an_answer_out_of_order_leaves_open_what_became_of_a_change(
    store: ZooKeeperStore, monkeypatch: pytest.MonkeyPatch, zookeeper_hosts: str, zookeeper_chroot: str
) -> None:
    out_of_order(store, monkeypatch)
    with pytest.raises(ReplyLost, match="may have taken effect"):
        store.create("/a")
    other = ZooKeeperStore.connect(zookeeper_hosts, chroot=zookeeper_chroot)
    assert other.children("/") == ["a"]
    other.close()


def out_of_order(store: ZooKeeperStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the server answer other numbers than the library expects."""
    connection = store._client._connection
    submit = connection._submit
    monkeypatch.setattr(connection, "_submit", lambda request, timeout, number: submit(request, timeout, number + 1))


def test_many_threads_share_one_session(store: ZooKeeperStore) -> None:
    store.create("/s")
    names: list[str] = []

    def work() -> None:
        names.extend(store.create("/s/i-", sequential=True) for _ in range(25))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(names) == [f"/s/i-{number:010d}" for number in range(200)]


def test_thousands_of_nodes_are_read_in_one_go(store: ZooKeeperStore) -> None:
    for start in range(0, 3000, 1000):
        store.apply([Create(f"/n{number}", str(number).encode()) for number in range(start, start + 1000)])
    assert len(store.children("/") or []) == 3000
    read = store.read_many([f"/n{number}" for number in range(3000)])
    assert [int(each.data) for each in read if each] == [*range(3000)]


def test_it_is_quiet_unless_the_program_configures_logging(zookeeper_chroot: str, zookeeper_proxy: Proxy) -> None:
    program = f"""
import sys
from sluice.coordinator.service.zookeeper.session import ZooKeeperStore
store = ZooKeeperStore.connect({zookeeper_proxy.hosts!r}, chroot={zookeeper_chroot!r})
sys.stdin.readline()
print(store.children("/"), flush=True)
store.close()
"""
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    time.sleep(1.0)
    zookeeper_proxy.cut()
    zookeeper_proxy.restore()
    out, err = process.communicate("\n", timeout=30)
    assert (out.strip(), err) == ("[]", "")


def test_it_tells_a_program_that_listens(zookeeper_chroot: str, zookeeper_proxy: Proxy, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="sluice.zookeeper"):
        store = ZooKeeperStore.connect(zookeeper_proxy.hosts, chroot=zookeeper_chroot)
        zookeeper_proxy.cut()
        zookeeper_proxy.restore()
        store.barrier()
        store.close()
    assert "Connection dropped" in caplog.text
