"""The embedded ZooKeeper's life: started once, joined by all, stopped with the last, whatever is killed on the way."""

from __future__ import annotations

import contextlib
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
from sluice.coordinator.service.embedded import lifecycle
from sluice.coordinator.service.embedded.lifecycle import Membership, default_directory, join
from sluice.coordinator.service.embedded.server import choose_port, mark_of, server_command
from sluice.coordinator.service.zookeeper.session import ZooKeeperStore
from sluice.storage.errors import InvalidRequest
from tests.coordinator.world import eventually
from tests.releases import BEING_COMPILED

pytestmark = pytest.mark.zookeeper

StartClient: TypeAlias = "Callable[[], subprocess.Popen[str]]"

CLIENT = """
import sys
from sluice.coordinator.service.embedded import lifecycle
from sluice.coordinator.service.embedded.lifecycle import join
lifecycle.LINGER_S = 0.5
membership = join(sys.argv[1])
print(membership.hosts, flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(lifecycle, "LINGER_S", 0.5)
    folder = tmp_path / "größe und\u2028spaces"
    yield folder
    await_end(folder)


def running(directory: Path) -> dict[int, str]:
    """The supervisor and server of this directory, by process id."""
    found: dict[int, str] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        words = [os.fsdecode(word) for word in command]  # other programs have arguments that are no UTF-8
        if mark_of(directory) in words:
            found[int(folder.name)] = "supervisor" if any(word.endswith("supervisor.py") for word in words) else "java"
    return found


def await_end(directory: Path) -> None:
    eventually(lambda: not running(directory), "everything has stopped")


@contextlib.contextmanager
def joined(directory: Path) -> Iterator[Membership]:
    membership = join(directory)
    try:
        yield membership
    finally:
        membership.leave()


def supervisor(directory: Path) -> int:
    [found] = [pid for pid, program in running(directory).items() if program == "supervisor"]
    return found


def state(directory: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((directory / "server.json").read_text())
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
        with joined(directory) as membership:
            assert len(use(membership.hosts)) == times
            membership.leave()
        await_end(directory)


def test_the_server_listens_on_the_loopback_interface_only(directory: Path) -> None:
    with joined(directory) as membership:
        assert membership.hosts.startswith("127.0.0.1:")
        listening = Path("/proc/net/tcp").read_text() + Path("/proc/net/tcp6").read_text()
    port = f":{int(membership.hosts.rpartition(':')[2]):04X}"
    addresses = {line.split()[1] for line in listening.splitlines() if port in line.split()[1] and line.split()[3] == "0A"}
    assert addresses <= {f"0100007F{port}", f"0000000000000000FFFF00000100007F{port}"}
    assert addresses


def test_a_program_that_follows_another_finds_the_server_running(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle, "LINGER_S", 1.0)
    with joined(directory):
        before = running(directory)
    with joined(directory):
        time.sleep(1.5)
        assert running(directory) == before


@pytest.mark.costly
@pytest.mark.slow
def test_eight_processes_at_once_start_one_server_and_nothing_is_left_of_it(directory: Path, start_client: StartClient) -> None:
    clients = [start_client() for _ in range(8)]
    assert len({hosts_of(client) for client in clients}) == 1
    assert sorted(running(directory).values()) == ["java", "supervisor"]
    for client in clients[:4]:
        end(client)
    for client in clients[4:]:
        kill(client)
    await_end(directory)


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
    with joined(directory) as membership:
        store = ZooKeeperStore.connect(membership.hosts)
        store.create("/e", b"mine", ephemeral=True)
        hosts, java = membership.hosts, state(directory)["pid"]
        os.kill(java, signal.SIGKILL)
        store.barrier()
        found = store.read("/e")
        assert found is not None
        assert found.owner_session == store.session_id
        eventually(lambda: state(directory)["pid"] != java, "the new process is known")
        assert membership.hosts == hosts
        store.close()


@pytest.mark.shows("supervisor-killed")
def test_a_killed_supervisor_takes_its_server_along_and_is_replaced(directory: Path) -> None:
    with joined(directory) as membership:
        store = ZooKeeperStore.connect(membership.hosts)
        store.create("/a", b"1")
        former, java = supervisor(directory), state(directory)["pid"]
        os.kill(former, signal.SIGKILL)
        eventually(lambda: java not in running(directory), "the server is gone")
        eventually(lambda: sorted(running(directory).values()) == ["java", "supervisor"], "others have taken their places")
        store.barrier()
        eventually(lambda: state(directory)["pid"] != java, "the new supervisor says where its server is")
        assert supervisor(directory) != former
        assert store.read("/a") is not None
        store.close()


def test_a_server_without_supervisor_is_ended_by_the_next_client(directory: Path) -> None:
    """Where the kernel does not end it together with its supervisor."""
    with joined(directory):
        pass
    await_end(directory)
    orphan = subprocess.Popen(server_command(directory), cwd=directory, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    eventually(lambda: orphan.pid in running(directory), "the server without supervisor runs")
    (directory / "server.json").write_text(json.dumps({**state(directory), "pid": orphan.pid}))
    with joined(directory) as membership:
        assert orphan.wait(10) == -signal.SIGKILL
        assert use(membership.hosts)


def test_a_process_id_that_was_used_again_is_left_alone(directory: Path) -> None:
    bystander = subprocess.Popen(["sleep", "60"])
    directory.mkdir()
    (directory / "users.lock").touch()
    (directory / "server.json").write_text(json.dumps({"format": 2, "pid": bystander.pid, "port": 1}))
    with joined(directory) as membership:
        assert state(directory)["pid"] != bystander.pid
        assert use(membership.hosts)
    assert bystander.poll() is None
    bystander.kill()
    bystander.wait()


@pytest.mark.parametrize("rubbish", ["", "{", "[]"])
def test_a_state_file_that_does_not_parse_is_no_state(directory: Path, rubbish: str) -> None:
    directory.mkdir()
    (directory / "users.lock").touch()
    (directory / "server.json").write_text(rubbish)
    with joined(directory) as membership:
        assert use(membership.hosts)


def test_ports_that_somebody_took_are_given_up(directory: Path) -> None:
    with joined(directory) as membership:
        hosts = membership.hosts
    await_end(directory)
    with socket.create_server(("127.0.0.1", int(hosts.rpartition(":")[2]))), joined(directory) as membership:
        assert membership.hosts != hosts
        assert use(membership.hosts)


def test_ports_that_are_taken_at_the_last_moment_are_replaced(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    choices: list[int] = []
    with socket.create_server(("127.0.0.1", 0)) as taken:

        def choose(former: int | None) -> int:
            choices.append(choose_port(former) if choices else int(taken.getsockname()[1]))
            return choices[-1]

        monkeypatch.setattr(lifecycle, "choose_port", choose)
        with joined(directory) as membership:
            assert membership.hosts == f"127.0.0.1:{choices[1]}"


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
    with joined(directory) as membership:
        monkeypatch.setenv("JAVA_HOME", str(tmp_path))
        with joined(directory) as again:
            assert again.hosts == membership.hosts
    await_end(directory)
    with pytest.raises(InvalidRequest, match="JAVA_HOME"):
        join(directory)


def test_acknowledged_writes_and_the_place_survive_the_kill_of_everybody(directory: Path, start_client: StartClient) -> None:
    client = start_client()
    hosts = hosts_of(client)
    names = [use(hosts) for _ in range(3)][-1]
    processes = running(directory)
    kill(client)
    for pid in processes:
        with contextlib.suppress(ProcessLookupError):  # the server ends with its supervisor
            os.kill(pid, signal.SIGKILL)
    with joined(directory) as membership:
        assert membership.hosts == hosts
        assert set(names) < set(use(membership.hosts))
        assert processes.keys().isdisjoint(running(directory))


def test_what_a_supervisor_left_unfinished_is_started_again(directory: Path, start_client: StartClient) -> None:
    """Killed after it started the server, and before it told where."""
    client = start_client()
    eventually(lambda: "java" in running(directory).values(), "the server starts", seconds=30)
    os.kill(supervisor(directory), signal.SIGKILL)
    other = start_client()
    hosts = {hosts_of(client), hosts_of(other)} - {""}  # the first one may say that its start failed
    assert len(hosts) == 1
    assert use(hosts.pop())
    for each in (client, other):
        kill(each)


def test_a_directory_of_an_earlier_layout_is_refused_with_what_to_do(directory: Path, tmp_path: Path) -> None:
    with joined(tmp_path / "now") as membership:
        names = use(membership.hosts)
    await_end(tmp_path / "now")
    (directory / "server-1").mkdir(parents=True)
    (directory / "clients.lock").touch()
    (tmp_path / "now" / "data").rename(directory / "server-1" / "data")
    before = sorted(directory.rglob("*"))
    with pytest.raises(InvalidRequest, match=r"made by an earlier sluice.*move its server-1/data into the new directory, as data"):
        join(directory)
    (tmp_path / "new").mkdir()
    assert sorted(directory.rglob("*")) == before, "nothing was changed"
    (directory / "server-1" / "data").rename(tmp_path / "new" / "data")
    with joined(tmp_path / "new") as membership:
        assert set(names) < set(use(membership.hosts))
    await_end(tmp_path / "new")


def test_a_directory_of_several_servers_is_refused_with_what_to_do(directory: Path) -> None:
    for name in ("server-1", "server-2", "server-3"):
        (directory / name).mkdir(parents=True)
    (directory / "clients.lock").touch()
    with pytest.raises(InvalidRequest, match=r"made by an earlier sluice.*as an ensemble.*zk://"):
        join(directory)


def test_a_directory_that_cannot_be_made_or_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder in (f"{tmp_path}/file/embedded", "/proc/sluice"):
        with pytest.raises(InvalidRequest, match=rf"{folder} cannot be used .*SLUICE_HOME"):
            join(folder)


def test_a_full_disk_is_named(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def configure(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(lifecycle, "configure", configure)
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
    with (directory / "users.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(InvalidRequest, match=r"another process holds .*users\.lock"):
            join(directory)


def test_a_start_that_takes_too_long_elsewhere_is_reported(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory.mkdir()
    (directory / "users.lock").touch()
    monkeypatch.setattr(lifecycle, "JOIN_LIMIT_S", 0.3)
    with (directory / "server.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(CoordinatorUnavailable, match="another process is starting it"):
            join(directory)


def test_removing_the_directory_stops_the_server(directory: Path, start_client: StartClient) -> None:
    client = start_client()
    hosts_of(client)
    shutil.rmtree(directory)
    await_end(directory)
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
    await_end(directory)
    os.close(writer)
    os.waitpid(child, 0)


def test_a_child_that_leaves_does_not_end_the_parents_membership(directory: Path) -> None:
    with joined(directory) as membership:
        child = os.fork()
        if child == 0:
            membership.leave()
            os._exit(0)
        os.waitpid(child, 0)
        time.sleep(1.5)
        assert use(membership.hosts)


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
        os.kill(supervisor(directory), signal.SIGKILL)  # who is left starts its own in the same place
        eventually(lambda: sorted(running(directory).values()) == ["java", "supervisor"] and bool(use(hosts)), "it serves again")
    finally:
        kill(two)


@pytest.mark.parametrize("running_still", [True, False])
def test_a_state_file_of_a_later_release_is_refused_in_words(directory: Path, start_client: StartClient, running_still: bool) -> None:
    client = start_client()
    hosts_of(client)
    path = directory / "server.json"
    if not running_still:
        end(client)
        await_end(directory)
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": 99}))
    with pytest.raises(InvalidRequest, match=r"format 99.*Upgrade sluice here, or name another directory"):
        join(directory)
    if running_still:
        end(client)


def test_a_state_file_without_its_keys_is_named(directory: Path, start_client: StartClient) -> None:
    client = start_client()
    hosts_of(client)
    whole = (directory / "server.json").read_text()
    (directory / "server.json").write_text("{}")
    with pytest.raises(InvalidRequest, match=r"server\.json is damaged"):
        join(directory)
    (directory / "server.json").write_text(whole)
    end(client)


def test_no_outgoing_connection_takes_the_port_of_a_server_that_restarts() -> None:
    outgoing = Path("/proc/sys/net/ipv4/ip_local_port_range")
    first = int(outgoing.read_text().split()[0]) if outgoing.exists() else 49152
    assert all(20_000 <= choose_port() < first for _ in range(15))
