"""Addresses of coordinators, and the sessions a process keeps with them."""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from sluice.coordinator.errors import CoordinatorUnavailable, SessionLost
from sluice.coordinator.service import connect as sessions
from sluice.coordinator.service.address import Address
from sluice.coordinator.service.connect import close_all, connect, release
from sluice.coordinator.service.embedded.supervisor import serves
from sluice.coordinator.service.memory import MemorySession
from sluice.coordinator.service.zookeeper.session import ZooKeeperStore
from sluice.storage.errors import InvalidRequest, UnknownScheme
from tests.coordinator.world import eventually


@pytest.fixture(autouse=True)
def no_sessions_are_left() -> Iterator[None]:
    yield
    close_all()


class TestAddresses:
    @pytest.mark.parametrize(
        ("text", "address"),
        [
            ("embedded://", Address("embedded", "")),
            ("embedded:///data/zk", Address("embedded", "/data/zk")),
            ("embedded:///with%20space", Address("embedded", "/with space")),
            ("embedded://?jars=/opt/zookeeper/lib", Address("embedded", "", jars="/opt/zookeeper/lib")),
            ("zk://h1", Address("zk", "h1:2181")),
            ("zk://h1:2181,h2,h3:2183/my/tables", Address("zk", "h1:2181,h2:2181,h3:2183", "/my/tables")),
            ("zk://h1/", Address("zk", "h1:2181", "/sluice")),
            ("zk://[::1]:2182", Address("zk", "[::1]:2182")),
            ("zk://[::1]", Address("zk", "[::1]:2181")),
            ("zk://h1?retry_s=5&session_timeout_s=30", Address("zk", "h1:2181", retry_s=5.0, session_timeout_s=30.0)),
            ("memory://name", Address("memory", "name")),
            ("zk://h1/x?tls=true&ca=/a.pem&cert=/b.pem", Address("zk", "h1:2181", "/x", tls=True, ca="/a.pem", cert="/b.pem")),
            (
                "zk://h1?tls=true&cert=/b.pem&key=/c.pem&verify_hostname=false",
                Address("zk", "h1:2181", tls=True, cert="/b.pem", key="/c.pem", verify_hostname=False),
            ),
            ("zk://h1?auth=sasl&credentials=/d", Address("zk", "h1:2181", auth="sasl", credentials="/d")),
        ],
    )
    def test_what_is_written_and_what_it_means(self, text: str, address: Address) -> None:
        assert Address.parse(text) == address

    @pytest.mark.parametrize(
        ("text", "hint"), [("etcd://h1", ""), ("h1:2181", "written zk://h1:2181"), ("zk:/h1", ""), ("ZK://h1", ""), ("/data", "")]
    )
    def test_an_unknown_scheme_is_named_with_the_known_ones(self, text: str, hint: str) -> None:
        with pytest.raises(UnknownScheme, match=rf"{text}.*embedded://, zk:// or memory://.*{hint}"):
            Address.parse(text)

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("zk://", "host:port"),
            ("zk://h1:port", "host:port"),
            ("zk://h1:99999", "host:port"),
            ("zk://h1,,h2", "host:port"),
            ("zk://h1/a//b", "node path"),
            ("zk://h1?servers=3", r"unknown option 'servers', known are auth, ca, cert, connect_timeout_s, credentials, key, retry_s"),
            ("zk://h1?retry_s=soon", "retry_s in the address .* is 'soon'"),
            ("embedded://data/zk", r"three slashes, embedded:///data/zk"),
            ("embedded:///d?servers=3", r"servers=3 in the address .*has one server; .*an ensemble \(docker-compose\.yml.*zk://"),
            ("memory://name?retry_s=1", "unknown option 'retry_s', known are none"),
            ("zk://h1?ca=/a.pem", "ca need tls=true"),
            ("zk://h1?tls=true&key=/k.pem", "needs its certificate"),
            ("zk://h1?tls=yes", "tls in the address .* is 'yes': give true or false"),
            ("zk://h1?tls=true&ca=", "ca in the address .* is '': give the path of a file"),
            ("zk://h1?auth=kerberos", "auth in the address .* is 'kerberos': give one of digest, sasl, x509"),
            ("zk://h1?auth=x509", "needs tls=true and cert=FILE"),
            ("zk://h1?tls=true&cert=/c.pem&auth=x509&credentials=/f", "without credentials"),
            ("embedded://?tls=true", "unknown option 'tls'"),
            ("zk://h1/a\nb", "control character"),
        ],
    )
    def test_a_malformed_address_is_refused_with_the_right_form(self, text: str, message: str) -> None:
        with pytest.raises(InvalidRequest, match=message):
            Address.parse(text)

    def test_nothing_means_the_environment_and_then_the_embedded_one(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("SLUICE_COORDINATOR", raising=False)
        assert Address.parse(None) == Address("embedded", "")
        monkeypatch.setenv("SLUICE_COORDINATOR", "zk://h1")
        assert Address.parse(None) == Address("zk", "h1:2181")
        assert Address.parse("zk://h2") == Address("zk", "h2:2181")


class TestSessions:
    def test_the_same_address_is_the_same_session(self) -> None:
        one = connect("memory://connect-1")
        assert connect("memory://connect-1") is one
        assert connect("memory://connect-2") is not one
        one.create("/a")
        assert connect("memory://connect-2").read("/a") is None

    def test_a_lost_session_is_replaced(self) -> None:
        one = connect("memory://connect-3")
        one.create("/e", ephemeral=True)
        assert isinstance(one, MemorySession)
        one.expire()
        other = connect("memory://connect-3")
        assert other is not one
        assert other.read("/e") is None
        with pytest.raises(SessionLost):
            one.read("/e")

    def test_release_closes_it_and_the_next_connect_opens_another(self) -> None:
        one = connect("memory://connect-4")
        release("memory://connect-4")
        release("memory://connect-4")
        with pytest.raises(SessionLost, match="closed"):
            one.read("/")
        assert connect("memory://connect-4").read("/") is not None

    def test_threads_that_connect_at_once_get_one_session(self, monkeypatch: pytest.MonkeyPatch) -> None:
        opened: list[Address] = []
        open_session = sessions._open

        def slow(address: Address) -> sessions._Session:
            opened.append(address)
            time.sleep(0.1)
            return open_session(address)

        monkeypatch.setattr(sessions, "_open", slow)
        start = threading.Barrier(8)

        def work() -> object:
            start.wait()
            return connect("memory://connect-5")

        with ThreadPoolExecutor(8) as pool:
            found = [pool.submit(work) for _ in range(8)]
        assert len({id(one.result()) for one in found}) == 1
        assert len(opened) == 1

    def test_a_failure_to_connect_leaves_nothing_and_can_be_repeated(self) -> None:
        for _ in range(2):
            with pytest.raises(CoordinatorUnavailable, match=r"127\.0\.0\.1:1 within 0\.3 s"):
                connect("zk://127.0.0.1:1/?connect_timeout_s=0.3")


@pytest.mark.zookeeper
class TestProcesses:
    def test_a_forked_process_gets_a_session_of_its_own(self, zookeeper_address: str) -> None:
        parents = connect(zookeeper_address)
        parents.create("/parent", ephemeral=True)
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            mine = connect(zookeeper_address)
            mine.create("/child", str(mine.session_id).encode(), ephemeral=True)
            os.write(writer, b"ready")
            close_all()
            os._exit(0 if mine is not parents else 1)
        assert os.read(reader, 5) == b"ready"
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        os.close(reader)
        os.close(writer)
        parents.barrier()
        assert parents.children("/") == ["parent"]
        assert connect(zookeeper_address) is parents

    @pytest.mark.parametrize("method", ["fork", "spawn"])
    def test_a_process_of_multiprocessing_closes_its_session_when_it_ends(self, zookeeper_address: str, method: str) -> None:
        context: Any = multiprocessing.get_context(method)
        process = context.Process(target=leave_an_ephemeral_node, args=(zookeeper_address,))
        process.start()
        process.join(30)
        assert process.exitcode == 0
        process.close()
        store = connect(zookeeper_address)
        store.barrier()
        assert store.children("/") == []

    def test_a_program_closes_its_sessions_when_it_ends(self, zookeeper_address: str) -> None:
        program = f"from sluice.coordinator.service.connect import connect\nconnect({zookeeper_address!r}).create('/e', ephemeral=True)"
        ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
        assert (ran.returncode, ran.stderr) == (0, "")
        store = connect(zookeeper_address)
        store.barrier()
        assert store.children("/") == []

    def test_an_embedded_server_lives_as_long_as_the_session(self, tmp_path: Path) -> None:
        address = f"embedded://{tmp_path}/embedded"
        store = connect(address)
        assert isinstance(store, ZooKeeperStore)
        store.create("/a")
        port = json.loads((tmp_path / "embedded" / "server.json").read_text())["port"]
        assert serves(port)
        release(address)
        eventually(lambda: not serves(port), "the server stops")

    def test_an_expired_session_with_an_embedded_server_is_replaced_while_the_server_stays(self, tmp_path: Path) -> None:
        address = f"embedded://{tmp_path}/embedded"
        former = connect(address)
        former.create("/a")
        former.close()
        fresh = connect(address)
        assert fresh is not former
        assert fresh.children("/") == ["a"]


def leave_an_ephemeral_node(address: str) -> None:
    connect(address).create("/e", ephemeral=True)
