"""The embedded ZooKeeper's life: started once, joined by all, stopped with the last, whatever is killed on the way."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from sluice.coordinator.errors import CoordinatorUnavailable
from sluice.coordinator.service.embedded import default_directory, join, lifecycle
from sluice.coordinator.service.embedded import servers as embedded_servers
from sluice.coordinator.service.embedded.servers import choose_ports, mark_of
from sluice.coordinator.service.zookeeper.session import ZooKeeperStore
from sluice.storage.errors import InvalidRequest
from tests.releases import BEING_COMPILED

pytestmark = pytest.mark.zookeeper

StartClient: TypeAlias = "Callable[[], subprocess.Popen[str]]"

CLIENT = """
import sys
from sluice.coordinator.service.embedded import join, servers
servers.LINGER_S = 0.5
membership = join(sys.argv[1])
print(membership.hosts, flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(embedded_servers, "LINGER_S", 0.5)
    folder = tmp_path / "größe und\u2028spaces"
    yield folder
    eventually(lambda: not running(folder), "everything has stopped", seconds=15)


def eventually(holds: Callable[[], bool], what: str, *, seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.05)


def running(directory: Path) -> dict[int, str]:
    """The supervisors and servers of this directory, by process id."""
    found: dict[int, str] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        words = [os.fsdecode(word) for word in command]  # other programs have arguments that are no UTF-8
        if str(directory) in words and any(word.endswith("supervisor.py") for word in words):
            found[int(folder.name)] = "supervisor"
        elif mark_of(directory) in words:
            found[int(folder.name)] = "java"
    return found


def state(directory: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((directory / "state.json").read_text())
    return loaded


@pytest.fixture
def start_client(directory: Path) -> Iterator[StartClient]:
    """Starts processes that join and stay until told to end; those that still run are killed."""
    started: list[subprocess.Popen[str]] = []

    def start() -> subprocess.Popen[str]:
        command = [sys.executable, "-c", CLIENT, str(directory)]
        started.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        return started[-1]

    yield start
    for client in started:
        if client.poll() is None:
            kill(client)


def hosts_of(client: subprocess.Popen[str]) -> str:
    assert client.stdout is not None
    return client.stdout.readline().strip()


def end(client: subprocess.Popen[str]) -> None:
    client.communicate("\n", timeout=30)


def kill(client: subprocess.Popen[str]) -> None:
    client.kill()
    client.communicate()


def use(hosts: str) -> list[str]:
    """Write to the servers and read what is there."""
    store = ZooKeeperStore.connect(hosts)
    store.create("/used-", sequential=True)
    names = store.children("/") or []
    store.close()
    return names


def test_a_server_is_started_used_and_stopped_and_keeps_its_data(directory: Path) -> None:
    for times in (1, 2):
        membership = join(directory)
        assert len(use(membership.hosts)) == times
        membership.leave()
        membership.leave()
        eventually(lambda: not running(directory), "the server has stopped")
        assert not (directory / "state.json").exists()


def test_the_server_listens_on_the_loopback_interface_only(directory: Path) -> None:
    membership = join(directory)
    assert membership.hosts.startswith("127.0.0.1:")
    listening = Path("/proc/net/tcp").read_text() + Path("/proc/net/tcp6").read_text()
    port = f":{int(membership.hosts.rpartition(':')[2]):04X}"
    addresses = {line.split()[1] for line in listening.splitlines() if port in line.split()[1] and line.split()[3] == "0A"}
    assert addresses <= {f"0100007F{port}", f"0000000000000000FFFF00000100007F{port}"}
    assert addresses
    membership.leave()


def test_a_program_that_follows_another_finds_the_server_running(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded_servers, "LINGER_S", 1.0)
    first = join(directory)
    before = running(directory)
    first.leave()
    second = join(directory)
    time.sleep(1.5)
    assert running(directory) == before
    second.leave()


@pytest.mark.slow
def test_eight_processes_at_once_start_one_server_and_nothing_is_left_of_it(directory: Path, start_client: StartClient) -> None:
    clients = [start_client() for _ in range(8)]
    assert len({hosts_of(client) for client in clients}) == 1
    assert sorted(running(directory).values()) == ["java", "supervisor"]
    for client in clients[:4]:
        end(client)
    for client in clients[4:]:
        kill(client)
    eventually(lambda: not running(directory), "nothing is left")


@pytest.mark.long
def test_processes_that_come_and_go_always_find_a_server(directory: Path, start_client: StartClient) -> None:
    for pause_s in (0.0, 0.3, 0.5, 0.6, 0.7, 0.9):
        pair = [start_client() for _ in range(2)]
        for client in pair:
            assert use(hosts_of(client))
            end(client)
        time.sleep(pause_s)


@pytest.mark.shows("embedded-killed")
def test_a_killed_server_comes_back_at_the_same_place_with_sessions_and_data(directory: Path) -> None:
    membership = join(directory)
    store = ZooKeeperStore.connect(membership.hosts)
    store.create("/e", b"mine", ephemeral=True)
    [java] = state(directory)["java"]
    os.kill(java, signal.SIGKILL)
    store.barrier()
    found = store.read("/e")
    assert found is not None
    assert found.owner_session == store.session_id
    eventually(lambda: state(directory)["java"] != [java], "the new process is known")
    store.close()
    membership.leave()


@pytest.mark.shows("supervisor-killed")
def test_a_killed_supervisor_takes_its_server_along_and_is_replaced(directory: Path) -> None:
    membership = join(directory)
    store = ZooKeeperStore.connect(membership.hosts)
    store.create("/a", b"1")
    former, [java] = state(directory)["supervisor"], state(directory)["java"]
    os.kill(former, signal.SIGKILL)
    try:
        eventually(lambda: java not in running(directory), "the server is gone")
        eventually(lambda: sorted(running(directory).values()) == ["java", "supervisor"], "others have taken their places")
        store.barrier()
        eventually((directory / "state.json").exists, "the new supervisor says where its server is")
        assert state(directory)["supervisor"] != former
        assert store.read("/a") is not None
    finally:
        store.close()
        membership.leave()


def test_a_supervisor_killed_when_nobody_is_left_is_replaced_by_the_next_client(directory: Path, start_client: StartClient) -> None:
    client = start_client()
    hosts = hosts_of(client)
    former = set(running(directory))
    kill(client)
    os.kill(state(directory)["supervisor"], signal.SIGKILL)
    membership = join(directory)
    try:
        assert membership.hosts == hosts
        assert use(membership.hosts)
        assert former.isdisjoint(running(directory))
    finally:
        membership.leave()


def test_a_server_without_supervisor_is_ended_by_the_next_client(directory: Path) -> None:
    """Where the kernel does not end it together with its supervisor."""
    membership = join(directory)
    plan = json.loads((directory / "plan.json").read_text())
    membership.leave()
    eventually(lambda: not running(directory), "the server has stopped")
    [server] = plan["servers"]
    orphan = subprocess.Popen(server["command"], cwd=server["folder"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    eventually(lambda: orphan.pid in running(directory), "the server without supervisor runs")
    last = json.loads((directory / "last.json").read_text())
    (directory / "state.json").write_text(json.dumps({**last, "supervisor": orphan.pid, "java": [orphan.pid]}))
    membership = join(directory)
    assert orphan.wait(10) == -signal.SIGKILL
    assert use(membership.hosts)
    membership.leave()


def test_a_process_id_that_was_used_again_is_left_alone(directory: Path) -> None:
    bystander = subprocess.Popen(["sleep", "60"])
    directory.mkdir()
    (directory / "clients.lock").touch()
    stale = {"supervisor": bystander.pid, "java": [bystander.pid], "hosts": "127.0.0.1:1", "ports": [], "servers": 1}
    (directory / "state.json").write_text(json.dumps(stale))
    membership = join(directory)
    assert membership.hosts != "127.0.0.1:1"
    assert use(membership.hosts)
    membership.leave()
    assert bystander.poll() is None
    bystander.kill()
    bystander.wait()


@pytest.mark.parametrize("rubbish", ["{", "[]"])
def test_a_state_file_that_does_not_parse_is_no_state(directory: Path, rubbish: str) -> None:
    directory.mkdir()
    (directory / "clients.lock").touch()
    (directory / "state.json").write_text(rubbish)
    membership = join(directory)
    assert use(membership.hosts)
    membership.leave()


def test_ports_that_somebody_took_are_given_up(directory: Path) -> None:
    membership = join(directory)
    hosts = membership.hosts
    membership.leave()
    eventually(lambda: not running(directory), "the server has stopped")
    with socket.create_server(("127.0.0.1", int(hosts.rpartition(":")[2]))):
        membership = join(directory)
        assert membership.hosts != hosts
        assert use(membership.hosts)
        membership.leave()


def test_ports_that_are_taken_at_the_last_moment_are_replaced(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    choices: list[list[int]] = []
    with socket.create_server(("127.0.0.1", 0)) as taken:

        def choose(servers: int) -> list[int]:
            ports = choose_ports(servers)
            choices.append(ports if choices else [int(taken.getsockname()[1]), *ports[1:]])
            return choices[-1]

        monkeypatch.setattr(lifecycle, "choose_ports", choose)
        membership = join(directory)
        assert membership.hosts == f"127.0.0.1:{choices[1][0]}"
        membership.leave()


def test_a_server_that_does_not_start_is_reported_with_what_it_said(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java = tmp_path / "home" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text('#!/bin/sh\n[ "$1" = -version ] && echo \'openjdk version "17"\' && exit 0\necho "no space left on device"; exit 3\n')
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    with pytest.raises(CoordinatorUnavailable, match="does not start: no space left on device") as failed:
        join(directory)
    assert str(directory) in str(failed.value)


def test_java_is_only_needed_to_start(directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    membership = join(directory)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    again = join(directory)
    assert again.hosts == membership.hosts
    again.leave()
    membership.leave()
    eventually(lambda: not running(directory), "the server has stopped")
    with pytest.raises(InvalidRequest, match="JAVA_HOME"):
        join(directory)


@pytest.mark.slow
def test_three_servers_survive_the_loss_of_one(directory: Path) -> None:
    membership = join(directory, servers=3)
    assert membership.hosts.count(",") == 2
    assert sorted(running(directory).values()) == ["java", "java", "java", "supervisor"]
    store = ZooKeeperStore.connect(membership.hosts)
    store.create("/a")
    os.kill(state(directory)["java"][0], signal.SIGKILL)
    store.barrier()
    assert store.children("/") == ["a"]
    store.close()
    again = join(directory)
    assert again.hosts == membership.hosts
    again.leave()
    membership.leave()


def test_the_number_of_servers_of_a_directory_cannot_be_changed(directory: Path) -> None:
    membership = join(directory, servers=1)
    with pytest.raises(InvalidRequest, match=r"servers=1, which cannot be changed to servers=3.*another directory"):
        join(directory, servers=3)
    membership.leave()
    with pytest.raises(InvalidRequest, match="servers=1"):
        join(directory, servers=3)


@pytest.mark.parametrize("servers", [0, -1, 2, 4])
def test_a_number_of_servers_without_a_majority_to_gain_is_refused(directory: Path, servers: int) -> None:
    with pytest.raises(InvalidRequest, match="odd number"):
        join(directory, servers=servers)
    assert not directory.exists()


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InvalidRequest, match=rf"{tmp_path}/file/embedded cannot be used .*SLUICE_HOME"):
        join(tmp_path / "file" / "embedded")


def test_a_directory_that_cannot_be_written_is_named() -> None:
    with pytest.raises(InvalidRequest, match=r"/proc/sluice cannot be used .*SLUICE_HOME"):
        join("/proc/sluice")


def test_a_full_disk_is_named(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def prepare(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(lifecycle, "prepare", prepare)
    with pytest.raises(CoordinatorUnavailable, match=r"no room in .*No space left on device.*free some"):
        join(directory)


def test_a_directory_of_another_user_is_refused(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory.mkdir()
    monkeypatch.setattr(os, "geteuid", lambda: directory.stat().st_uid + 1)
    with pytest.raises(InvalidRequest, match=r"belongs to user .*zk://"):
        join(directory)


def test_a_directory_with_other_things_is_refused(directory: Path) -> None:
    directory.mkdir()
    (directory / "thesis.txt").touch()
    with pytest.raises(InvalidRequest, match="has other contents"):
        join(directory)


def test_a_directory_that_somebody_keeps_for_himself_is_named(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory.mkdir()
    monkeypatch.setattr(lifecycle, "JOIN_LIMIT_S", 0.3)
    with (directory / "clients.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(InvalidRequest, match=r"another process holds .*clients\.lock"):
            join(directory)


def test_a_start_that_takes_too_long_elsewhere_is_reported(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory.mkdir()
    (directory / "clients.lock").touch()
    monkeypatch.setattr(lifecycle, "JOIN_LIMIT_S", 0.3)
    with (directory / "supervisor.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(CoordinatorUnavailable, match="another process is starting it"):
            join(directory)


def test_removing_the_directory_stops_the_server(directory: Path, start_client: StartClient) -> None:
    client = start_client()
    hosts_of(client)
    shutil.rmtree(directory)
    eventually(lambda: not running(directory), "the server has stopped")
    kill(client)


def test_a_forked_child_does_not_keep_the_server(directory: Path) -> None:
    membership = join(directory)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(writer)
        os.read(reader, 1)  # until the parent closes its end
        os._exit(0)
    os.close(reader)
    membership.leave()
    eventually(lambda: not running(directory), "the server has stopped")
    os.close(writer)
    os.waitpid(child, 0)


def test_a_child_that_leaves_does_not_end_the_parents_membership(directory: Path) -> None:
    membership = join(directory)
    child = os.fork()
    if child == 0:
        membership.leave()
        os._exit(0)
    os.waitpid(child, 0)
    time.sleep(1.5)
    assert use(membership.hosts)
    membership.leave()


def test_the_default_directory_is_below_the_users_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SLUICE_HOME", str(tmp_path))
    assert default_directory() == tmp_path / "embedded"
    monkeypatch.delenv("SLUICE_HOME")
    assert default_directory() == Path.home() / ".sluice" / "embedded"


# -- several environments and releases -----------------------------------------------------------------------------------


@pytest.fixture
def another_copy(tmp_path: Path) -> Path:
    """A folder with a second copy of the package, as a second virtual environment has one."""
    folder = tmp_path / "another environment"
    shutil.copytree(Path(lifecycle.__file__).parents[3], folder / "sluice", ignore=shutil.ignore_patterns(BEING_COMPILED))
    return folder


def start_copy(folder: Path, directory: Path) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    program = f"import sluice; assert sluice.__file__.startswith({str(folder)!r})\n{CLIENT}"
    return subprocess.Popen(
        [sys.executable, "-c", program, str(directory)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    )


@pytest.mark.parametrize("first", [pytest.param("this", marks=pytest.mark.long), "another"])
def test_programs_of_two_environments_share_one_server(directory: Path, another_copy: Path, start_client: StartClient, first: str) -> None:
    starts: list[StartClient] = [start_client, lambda: start_copy(another_copy, directory)]
    began = time.monotonic()
    one, two = (start() for start in (starts if first == "this" else reversed(starts)))
    try:
        hosts = hosts_of(one)
        assert hosts_of(two) == hosts
        assert time.monotonic() - began < 30
        assert sorted(running(directory).values()) == ["java", "supervisor"]
        end(one)
        os.kill(state(directory)["supervisor"], signal.SIGKILL)  # who is left starts its own in the same place
        eventually(lambda: sorted(running(directory).values()) == ["java", "supervisor"] and bool(use(hosts)), "it serves again")
    finally:
        kill(two)


@pytest.mark.parametrize("running_still", [True, False])
def test_a_state_file_of_a_later_release_is_refused_in_words(directory: Path, start_client: StartClient, running_still: bool) -> None:
    client = start_client()
    hosts_of(client)
    path = directory / "state.json"
    if not running_still:
        end(client)
        eventually(lambda: not running(directory), "nothing runs")
        path = directory / "plan.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": 99}))
    with pytest.raises(InvalidRequest, match=r"format 99.*Upgrade sluice here, or name another directory"):
        join(directory)
    if running_still:
        end(client)


def test_a_state_file_without_its_keys_is_named(directory: Path, start_client: StartClient) -> None:
    client = start_client()
    hosts_of(client)
    whole = (directory / "state.json").read_text()
    (directory / "state.json").write_text("{}")
    with pytest.raises(InvalidRequest, match=r"state\.json is damaged"):
        join(directory)
    (directory / "state.json").write_text(whole)
    end(client)


def test_no_outgoing_connection_takes_the_port_of_a_server_that_restarts() -> None:
    outgoing = Path("/proc/sys/net/ipv4/ip_local_port_range")
    first = int(outgoing.read_text().split()[0]) if outgoing.exists() else 49152
    ports = choose_ports(5)
    assert len(set(ports)) == 15
    assert all(20_000 <= port < first for port in ports)
