"""The process that owns an embedded ZooKeeper: starts it, restarts it, and stops it after the last client left.

It runs as a file (`python -I supervisor.py DIRECTORY LOCK_FD`) and uses the standard library alone: so it starts at once,
stays small, and does not depend on the location of sluice. `lifecycle.py` prepares the directory and starts it.

It leaves its parent's session, so that Ctrl-C in a terminal does not reach it. Two file locks, which the kernel releases
however a process ends, record the state:

- `supervisor.lock`, exclusive, inherited as LOCK_FD: a supervisor exists.
- `clients.lock`: each client process holds it shared. When the supervisor can take it exclusively for a while, no client is
  left. It then keeps the lock, so that a client that arrives while the servers stop waits, and then starts them again.

The servers die with the supervisor if the kernel supports it (Linux); elsewhere the next supervisor ends them by the process
ids in `last.json`.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

FORMAT = 1
"""The format of state.json, last.json and plan.json, which programs of other releases read, too.

Keys may be added under the same number: readers ignore unknown keys. Removing a key or changing its meaning needs the next
number, which older releases refuse.
"""

POLL_S = 0.1
START_LIMIT_S = 60.0
STOP_LIMIT_S = 5.0
RESTART_PAUSE_S = 0.5
RESTART_PAUSE_S_MAX = 10.0

_PR_SET_PDEATHSIG = 1


class Stop(Exception):
    """Raised to end the supervisor in an orderly way."""


class Server:
    """One server process."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self.command: list[str] = plan["command"]
        self.folder: str = plan["folder"]
        self.port: int = plan["client_port"]
        self.process: subprocess.Popen[bytes] | None = None
        self.started_at = 0.0
        self.pause_s = RESTART_PAUSE_S

    def start(self) -> None:
        """Start the process in its folder."""
        self.started_at = time.monotonic()
        with Path(self.folder, "server.out").open("wb") as output:
            self.process = subprocess.Popen(
                self.command,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                preexec_fn=_die_with_parent,  # noqa: PLW1509  (there is one thread)
            )

    def due_again(self) -> bool:
        """Whether it ended and is due to start again: at once after a long life, after growing pauses otherwise."""
        if self.ended() is None:
            return False
        lived_s = time.monotonic() - self.started_at
        if lived_s < self.pause_s:
            return False
        self.pause_s = RESTART_PAUSE_S if lived_s > 2 * RESTART_PAUSE_S_MAX else min(2 * self.pause_s, RESTART_PAUSE_S_MAX)
        return True

    def ended(self) -> int | None:
        """The exit status, or None while it runs."""
        return self.process.poll() if self.process else 0

    def serves(self) -> bool:
        """Whether the server answers and is part of the ensemble."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1.0) as connection:
                connection.settimeout(1.0)
                connection.sendall(b"srvr")
                answer = b""
                while chunk := connection.recv(4096):
                    answer += chunk
        except OSError:
            return False
        return b"Mode:" in answer


class Supervisor:
    """All servers of one directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.plan: dict[str, Any] = json.loads((directory / "plan.json").read_text())
        self.servers = [Server(plan) for plan in self.plan["servers"]]
        self.clients = os.open(directory / "clients.lock", os.O_RDWR | os.O_CREAT, 0o600)
        self.idle_since: float | None = None

    def run(self) -> None:
        """Run until nobody needs the servers, or until a signal."""
        try:
            for server in self.servers:
                server.start()
            self.await_service()
            self.publish()
            while True:
                time.sleep(POLL_S)
                self.restart_the_dead()
                self.stop_if_unused()
        except Stop as reason:
            say(str(reason))
        finally:
            self.stop()

    def await_service(self) -> None:
        """Wait until every server serves."""
        deadline = time.monotonic() + START_LIMIT_S
        while not all(server.serves() for server in self.servers):
            for number, server in enumerate(self.servers, 1):
                if server.ended() is not None:
                    raise Stop(f"server {number} ended with status {server.ended()} while starting")
            if time.monotonic() > deadline:
                raise Stop(f"the servers did not serve within {START_LIMIT_S:g} s")
            self.stop_if_unused()
            time.sleep(POLL_S / 5)

    def publish(self) -> None:
        """Publish the servers' addresses to the clients, atomically."""
        state = {
            "format": FORMAT,
            "supervisor": os.getpid(),
            "java": [server.process.pid for server in self.servers if server.process],
            "hosts": self.plan["hosts"],
            "ports": self.plan["ports"],
            "servers": len(self.servers),
        }
        fresh = self.directory / "state.json.new"
        fresh.write_text(json.dumps(state))
        fresh.replace(self.directory / "state.json")

    def restart_the_dead(self) -> None:
        """Start servers that died again, on the same ports."""
        restarted = False
        for number, server in enumerate(self.servers, 1):
            if server.due_again():
                say(f"server {number} ended with status {server.ended()}, starting it again")
                server.start()
                restarted = True
        if restarted:
            self.publish()

    def stop_if_unused(self) -> None:
        """Raise Stop if no client held its lock for a while, or the directory is gone."""
        try:
            there = (self.directory / "clients.lock").stat().st_ino == os.fstat(self.clients).st_ino
        except OSError:
            there = False
        if not there:
            raise Stop("the directory was removed")
        try:
            fcntl.flock(self.clients, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.idle_since = None
            return
        if self.idle_since is None:
            self.idle_since = time.monotonic()
        if time.monotonic() - self.idle_since >= self.plan["linger_s"]:
            raise Stop("the last client has left")
        fcntl.flock(self.clients, fcntl.LOCK_UN)

    def stop(self) -> None:
        """Withdraw the state and end the servers."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        try:
            (self.directory / "state.json").replace(self.directory / "last.json")
        except OSError as error:
            say(f"no state to withdraw: {error}")
        running = [server.process for server in self.servers if server.process and server.ended() is None]
        for process in running:
            process.terminate()
        deadline = time.monotonic() + STOP_LIMIT_S
        for process in running:
            try:
                process.wait(max(deadline - time.monotonic(), 0.0))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _die_with_parent() -> None:
    """In the new process, before the server's program starts: ask Linux for a SIGKILL when the supervisor dies."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def say(text: str) -> None:
    """Write a line to the supervisor's log, which is its standard output; a full disk must not end it."""
    with contextlib.suppress(OSError):
        print(time.strftime("%Y-%m-%d %H:%M:%S"), text, flush=True)  # noqa: T201


def _told_to_stop(number: int, _frame: object) -> None:
    raise Stop(f"told to stop by signal {number}")


def main() -> None:
    """Detach from the starting process, then supervise. The open descriptor holds the lock."""
    directory = Path(sys.argv[1])
    if os.fork():
        os._exit(0)  # the starting process has nothing to wait for, and no child to reap
    os.setsid()
    os.chdir("/")
    signal.signal(signal.SIGTERM, _told_to_stop)
    Supervisor(directory).run()


if __name__ == "__main__":
    main()
