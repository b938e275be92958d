"""The faults: the seed decides them, the lines carry them out; and a run of some seconds.

Servers of ZooKeeper that tests kill: one that refuses its own data gets those of the others.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from tests.chaos.ensemble import Ensemble
from tests.chaos.object_store import KINDS
from tests.chaos.run import Plan, run_chaos, summary
from tests.chaos.schedule import CONSUMERS, PROCESSES, SERVERS, SPARK, STORE, WIRES, fault_schedule
from tests.chaos.wires import Wires

NAMES = ["a", "b", "spark", "consumer"]


def test_the_seed_decides_what_goes_wrong() -> None:
    assert fault_schedule(7, 300, NAMES, "spark") == fault_schedule(7, 300, NAMES, "spark")
    assert fault_schedule(7, 300, NAMES, "spark") != fault_schedule(8, 300, NAMES, "spark")


def test_every_kind_of_fault_happens_in_five_minutes_and_is_over_in_time() -> None:
    faults = fault_schedule(1, 300, NAMES, "spark", ["consumer"])
    assert {fault.kind for fault in faults} == {*PROCESSES, *SERVERS, *STORE, *WIRES}
    by_target = {name: {fault.kind for fault in faults if fault.target == name} & PROCESSES.keys() for name in NAMES}
    assert (by_target["spark"], by_target["consumer"]) == ({*SPARK}, {*CONSUMERS})
    assert all(fault.at_s > 0 and fault.at_s + fault.seconds <= 300 for fault in faults)
    assert len(STORE) == len(KINDS)


def test_twenty_minutes_kill_streams_and_consumers_two_hundred_times() -> None:
    plan = Plan.usual(1, 1200)
    consumers = [name for name, role in plan.roles.items() if role == "consumer"]
    for seed in range(10):
        faults = fault_schedule(seed, plan.seconds, list(plan.roles), "spark", consumers)
        killed = [each for each in faults if each.target in ("spark", *consumers) and each.kind == "process killed"]
        assert len(killed) >= 200


@pytest.fixture
def echo() -> Iterator[int]:
    """A server with answers that the test sets."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                threading.Thread(target=answer, args=(connection,), daemon=True).start()

    def answer(connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection:
            while data := connection.recv(100):
                connection.sendall(data)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield listener.getsockname()[1]
    with contextlib.suppress(OSError):
        listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join(5)


def connect(hosts: str) -> socket.socket:
    host, _, port = hosts.partition(":")
    return socket.create_connection((host, int(port)), timeout=5)


def test_lines_are_silent_cut_and_healed(echo: int) -> None:
    wires = Wires([echo], seed=1)
    try:
        wire = wires.wire("a")
        with connect(wire.hosts) as line:
            line.sendall(b"one")
            assert line.recv(10) == b"one"
            for direction in ("up", "down"):
                wire.silent = frozenset({direction})
                line.sendall(b"two")
                line.settimeout(0.2)
                with pytest.raises(TimeoutError):
                    line.recv(10)
                wire.heal()
                line.settimeout(5)
                assert line.recv(10) == b"two"  # late, and not lost
            wires.cut(wire)
            with pytest.raises(ConnectionError):
                raise ConnectionError(line.recv(10))
        with pytest.raises(ConnectionError), connect(wire.hosts) as refused:
            raise ConnectionError(refused.recv(10))
        wire.heal()
        wire.breaks = 1.0
        with connect(wire.hosts) as broken:
            broken.sendall(b"three")
            with pytest.raises(ConnectionError):
                raise ConnectionError(broken.recv(10))
    finally:
        wires.close()
    assert wires.counts["connections cut"] == 1
    assert wires.counts["data lost with its connection, up"] == 1


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.zookeeper
def test_half_a_minute_of_real_trouble(tmp_path: Path) -> None:
    began = time.monotonic()
    plan = Plan.tiny(seed=1, seconds=25)
    verdict = run_chaos(plan, tmp_path, lambda text: print(f"{time.monotonic() - began:6.1f} s  {text}"))
    told = summary(plan, verdict)
    assert verdict.violations == []
    done = {each: told[each] for each in ("committed", "faults", "reads", "consumed")}
    assert min(done.values()) >= 3, done  # how much of it there is depends on what else runs


@pytest.mark.zookeeper
@pytest.mark.slow
@pytest.mark.long
def test_a_server_whose_epoch_is_older_than_its_data_starts_without_them(tmp_path: Path) -> None:
    """It was killed between the leader's snapshot and its note of the leader's epoch: here the note is put back."""
    servers = Ensemble(tmp_path / "servers")
    try:
        servers.start()
        client = KazooClient(servers.hosts)
        client.start()
        client.create("/there")
        client.stop()
        client.close()
        victim = (servers.leader() + 1) % 3
        servers.kill(victim)
        servers.start_server(victim)
        servers.await_service()  # it has what was written
        servers.kill(victim)
        folder = tmp_path / "servers" / f"server-{victim + 1}"
        note = folder / "data" / "version-2" / "currentEpoch"
        note.write_text("0")
        servers.start_server(victim)
        servers.await_service()
        assert note.read_text().strip() != "0"
        assert "is older than the last zxid" in (folder / "server.log").read_text(), "it never refused its data"
    finally:
        servers.close()
