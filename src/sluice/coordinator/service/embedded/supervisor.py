"""The process that owns an embedded ZooKeeper server: starts it, tells where it serves, and stops it after its last user left.

It runs as a file (`python -I supervisor.py DIRECTORY LOCK_FD PORT LINGER_S JAVA ARGUMENT...`) and uses the standard library alone: so
it starts at once, stays small, and does not depend on the location of sluice. `lifecycle.py` starts it.

It leaves its parent's session, so that Ctrl-C in a terminal does not reach it, and ends when its server ends. Two file locks,
which the kernel releases however a process ends, record the state:

- `server.lock`, exclusive, inherited as LOCK_FD: a supervisor exists.
- `users.lock`: each user's process holds it shared. When the supervisor can take it exclusively for a while, no user is left.
  It then keeps the lock, so that a user who arrives while the server stops waits, and then starts it again.

The server dies with the supervisor if the kernel supports it (Linux); elsewhere the next user ends it by the process id in
`server.json`.
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

FORMAT = 2
"""The format of server.json, which programs of other releases read, too. Format 1 had other files, for several servers.

Keys may be added under the same number: readers ignore unknown keys. Removing a key or changing its meaning needs the next
number, which older releases refuse.
"""

POLL_S = 0.1
START_LIMIT_S = 60.0
STOP_LIMIT_S = 5.0

_PR_SET_PDEATHSIG = 1


class Stop(Exception):
    """Raised to end the supervisor in an orderly way."""


class Supervisor:
    """The owner of the server of one directory."""

    def __init__(self, directory: Path, port: int, linger_s: float) -> None:
        self.directory = directory
        self.port = port
        self.linger_s = linger_s
        self.users = os.open(directory / "users.lock", os.O_RDWR | os.O_CREAT, 0o600)
        self.idle_since: float | None = None

    def run(self, command: list[str]) -> None:
        """Run the server until it ends, nobody needs it, or a signal comes."""
        server = subprocess.Popen(
            command,
            cwd=self.directory,
            stdin=subprocess.DEVNULL,
            preexec_fn=_die_with_parent,  # noqa: PLW1509  (there is one thread)
        )
        try:
            deadline = time.monotonic() + START_LIMIT_S
            while not serves(self.port):
                if server.poll() is not None:
                    raise Stop(f"the server ended with status {server.returncode} while starting")
                if time.monotonic() > deadline:
                    raise Stop(f"the server did not serve within {START_LIMIT_S:g} s")
                self.stop_if_unused()
                time.sleep(POLL_S / 5)
            fresh = self.directory / "server.json.new"  # users see the whole file or none
            fresh.write_text(json.dumps({"format": FORMAT, "port": self.port, "pid": server.pid}))
            fresh.replace(self.directory / "server.json")
            while server.poll() is None:
                time.sleep(POLL_S)
                self.stop_if_unused()
            say(f"the server ended with status {server.returncode}")
        except Stop as reason:
            say(str(reason))
        finally:
            end(server)

    def stop_if_unused(self) -> None:
        """Raise Stop if no user held the lock for a while, or the directory is gone."""
        try:
            there = (self.directory / "users.lock").stat().st_ino == os.fstat(self.users).st_ino
        except OSError:
            there = False
        if not there:
            raise Stop("the directory was removed")
        try:
            fcntl.flock(self.users, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.idle_since = None
            return
        if self.idle_since is None:
            self.idle_since = time.monotonic()
        if time.monotonic() - self.idle_since >= self.linger_s:
            raise Stop("the last user has left")
        fcntl.flock(self.users, fcntl.LOCK_UN)


def serves(port: int) -> bool:
    """Whether a server answers there."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1.0) as connection:
            connection.settimeout(1.0)
            connection.sendall(b"srvr")
            answer = b""
            while chunk := connection.recv(4096):
                answer += chunk
    except OSError:
        return False
    return b"Mode:" in answer


def end(server: subprocess.Popen[bytes]) -> None:
    """End the server, by force if it takes too long."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    server.terminate()
    try:
        server.wait(STOP_LIMIT_S)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()


def _die_with_parent() -> None:
    """In the new process, before the server's program starts: ask Linux for a SIGKILL when the supervisor dies."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def say(text: str) -> None:
    """Write a line to `server.out`, which is the standard output; a full disk must not end the supervisor."""
    with contextlib.suppress(OSError):
        print(time.strftime("%Y-%m-%d %H:%M:%S"), text, flush=True)  # noqa: T201


def _told_to_stop(number: int, _frame: object) -> None:
    raise Stop(f"told to stop by signal {number}")


def main() -> None:
    """Detach from the starting process, then supervise. The open descriptor holds the lock."""
    directory, _, port, linger_s, *command = sys.argv[1:]
    if os.fork():
        os._exit(0)  # the starting process has nothing to wait for, and no child to reap
    os.setsid()
    os.chdir("/")
    signal.signal(signal.SIGTERM, _told_to_stop)
    Supervisor(Path(directory), int(port), float(linger_s)).run(command)


if __name__ == "__main__":
    main()
