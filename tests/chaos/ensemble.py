"""Three real ZooKeeper servers, as processes that can be killed, stopped and started again one by one."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from sluice.coordinator.service.embedded.server import choose_port, configure, server_command
from sluice.operating.servers import ask_server

__all__ = ["Ensemble", "free_ports"]

_START_LIMIT_S = 60.0
_SYNC_LIMIT = 4
"""After so many seconds a leader that was stopped is replaced, and when it goes on it takes itself for the leader a little longer."""

_MEMBER = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
_ALONE = "org.apache.zookeeper.server.ZooKeeperServerMain"

_STALE_EPOCH = "is older than the last zxid"
"""ZooKeeper's refusal of data that came from a leader whose epoch the server did not note before it was killed."""
_PR_SET_PDEATHSIG = 1


class Ensemble:
    """The servers of one directory, started by `start` and ended by `close`, whatever state they are in."""

    def __init__(self, directory: Path, servers: int = 3) -> None:
        self._folders = [directory / f"server-{number}" for number in range(1, servers + 1)]
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._killed: set[int] = set()
        ports = free_ports(3 * servers)
        self.ports, peers = ports[:servers], zip(ports[servers : 2 * servers], ports[2 * servers :], strict=True)
        members = "".join(f"server.{number}=127.0.0.1:{data}:{election}\n" for number, (data, election) in enumerate(peers, 1))
        for number, (folder, port) in enumerate(zip(self._folders, self.ports, strict=True), 1):
            folder.mkdir(parents=True)
            configure(folder, port)
            (folder / "data" / "myid").write_text(f"{number}\n")
            if servers > 1:
                with (folder / "zoo.cfg").open("a") as settings:
                    settings.write(f"initLimit=20\nsyncLimit={_SYNC_LIMIT}\n{members}")

    @property
    def hosts(self) -> str:
        """Where the servers listen, without any proxy."""
        return ",".join(f"127.0.0.1:{port}" for port in self.ports)

    def start(self) -> None:
        for number in range(len(self._folders)):
            self.start_server(number)
        self.await_service()

    def await_service(self) -> None:
        """Wait until every server has found its place. Raises TimeoutError.

        A server that was killed while it took over a leader's data may refuse to start with its own ever after: if all others serve, it
        starts without data, as an operator would have it do, and gets theirs.
        """
        deadline = time.monotonic() + _START_LIMIT_S
        while not all(modes := [self._mode(number) for number in range(len(self._folders))]):
            if time.monotonic() > deadline:
                raise TimeoutError(f"the servers do not serve after {_START_LIMIT_S:.0f} s: {modes}")
            if modes.count("") == 1 and self._refuses_its_data(modes.index("")):
                shutil.rmtree(self._folders[modes.index("")] / "data" / "version-2")
                self.start_server(modes.index(""))
            time.sleep(0.1)

    def _refuses_its_data(self, number: int) -> bool:
        ended = number in self._processes and self._processes[number].poll() is not None
        log = self._folders[number] / "server.log"
        return ended and any(_STALE_EPOCH in line for line in log.read_text(errors="replace").splitlines()[-20:])

    def start_server(self, number: int) -> None:
        self._killed.discard(number)
        if number in self._processes and self._processes[number].poll() is None:
            return
        folder = self._folders[number]
        command = [_MEMBER if word == _ALONE and len(self._folders) > 1 else word for word in server_command(folder)]
        with (folder / "server.out").open("ab") as output:
            self._processes[number] = subprocess.Popen(
                command,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                preexec_fn=die_with_parent,  # noqa: PLW1509 - called by the main thread before others matter
            )

    def pid(self, number: int) -> int:
        return self._processes[number].pid

    def kill(self, number: int) -> None:
        """SIGKILL, and see it gone."""
        self._killed.add(number)
        process = self._processes[number]
        process.kill()
        process.wait()

    def look(self) -> int:
        """Start those again that ended by themselves, as what watches over servers does; how many there were."""
        ended = [number for number, process in self._processes.items() if number not in self._killed and process.poll() is not None]
        for number in ended:
            self.start_server(number)
        return len(ended)

    def pause(self, number: int) -> None:
        """SIGSTOP; when this returns no thread of it runs any more, where /proc tells."""
        self._processes[number].send_signal(signal.SIGSTOP)
        tasks = Path("/proc", str(self._processes[number].pid), "task")
        end = time.monotonic() + 5
        while tasks.is_dir() and not all(map(_stands_still, tasks.iterdir())) and time.monotonic() < end:
            time.sleep(0.001)

    def go_on(self, number: int) -> None:
        """SIGCONT; nothing happens to one that runs or is gone."""
        self._processes[number].send_signal(signal.SIGCONT)

    def leader(self) -> int:
        """The leading server, or the first one where nobody leads at the moment."""
        modes = [self._mode(number) for number in range(len(self._folders))]
        return modes.index("leader") if "leader" in modes else 0

    def close(self) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait()

    def _mode(self, number: int) -> str:
        """What a server is in the ensemble; "" when it does not answer."""
        server = ask_server(f"127.0.0.1:{self.ports[number]}", None, 0.5)
        return server.state if server.serves else ""


def free_ports(number: int) -> list[int]:
    """Different ports that nobody uses."""
    ports: dict[int, None] = {}
    while len(ports) < number:
        ports[choose_port()] = None
    return list(ports)


def die_with_parent() -> None:
    """In the new process: ask Linux for a SIGKILL when the one that started it dies."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    os.setpgid(0, 0)  # Ctrl-C in a terminal is for the one that runs all this


def _stands_still(task: Path) -> bool:
    try:
        return (task / "stat").read_text().rpartition(")")[2].split()[0] in "TtZX"
    except OSError:
        return True
