"""Joining and leaving an embedded ZooKeeper, for any number of concurrent processes, however they end.

A directory holds one ensemble::

    clients.lock      every client process holds a shared file lock on it while it is a member
    supervisor.lock   the supervisor (supervisor.py) holds an exclusive lock on it while it lives
    state.json        exists while the servers serve: hosts, ports, process ids; replaced by one atomic rename
    last.json         the state of the previous servers: their ports are used again if they are free
    plan.json         the command lines of the servers; the first start fixes their number
    supervisor.log    the supervisor's messages
    server-<n>/       configuration, data and log of each server

A process that finds the supervisor's lock free takes it, prepares the directory, and starts a supervisor that inherits the
lock, so two processes can never start one at the same time. A member that finds its supervisor gone (killed) does the same,
so the servers come back on the ports that the clients know, with the sessions in their log.

Programs of several environments and releases share a directory. Its supervisor is the process that state.json names, whose
command line names the directory, while the supervisor's lock is held, whichever copy of supervisor.py it runs. The JSON
files have a format number (supervisor.py); a program that finds a higher number than its own reports it and changes nothing.

File locks are inherited over fork. A child forked by Python gives its copy up at once and joins by itself when it connects;
a child forked by other means keeps the servers alive until it ends.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from pathlib import Path
from typing import Any

from ....storage.errors import InvalidRequest, SluiceError
from ....version import __version__
from ...errors import CoordinatorUnavailable
from .servers import choose_ports, mark_of, ports_are_free, prepare
from .supervisor import FORMAT

JOIN_LIMIT_S = 60.0
"""How long `join` waits for the servers, in seconds."""

START_ATTEMPTS = 3
"""How often the servers are started before giving up; every attempt after the first chooses new ports."""

_POLL_S = 0.03
_KEEP_S = 1.0
_PORTS_PATIENCE_S = 1.0
_KEEP_S_MAX = 15.0
_SUPERVISOR = Path(__file__).with_name("supervisor.py")

log = logging.getLogger("sluice.embedded")


def default_directory() -> Path:
    """`embedded` below SLUICE_HOME, which defaults to `~/.sluice`."""
    return Path(os.environ.get("SLUICE_HOME") or "~/.sluice").expanduser() / "embedded"


class Membership:
    """One process's membership, which keeps the servers up. `hosts` is where they listen; call `leave` when done.

    A thread watches the supervisor meanwhile and starts another one if it is gone.
    """

    def __init__(self, directory: Path, *, lock: int, jars: str | None) -> None:
        self.directory = directory
        self.hosts = ""
        self.servers = 0
        self._lock: int | None = lock
        self._jars = jars
        self._left = threading.Event()
        self._starts = 0
        _memberships.add(self)

    def leave(self) -> None:
        """Stop being a client; the servers stop after the last one left. Doing so again does nothing."""
        self._left.set()
        if self._lock is not None:
            fcntl.flock(self._lock, fcntl.LOCK_UN)  # also for forked children that still hold a copy
            self._close()

    def forget(self) -> None:
        """In a forked child: close the inherited copy of the lock, which leaves the parent's membership alone.

        Nothing is signalled: a thread of the parent may hold the event's lock, and it does not exist here.
        """
        self._left = threading.Event()
        self._close()

    def _close(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def await_servers(self, asked: int | None, deadline: float) -> None:
        """Find the servers, or start them. Raises CoordinatorUnavailable if that fails, InvalidRequest like `join`."""
        self._starts = 0
        while not self._find():
            lock = _try_lock(self.directory / "supervisor.lock", fcntl.LOCK_EX)
            if lock is not None:
                try:
                    if self._starts:
                        self._judge_failed_start()
                    self._start(asked, lock)
                finally:
                    os.close(lock)  # the supervisor has its own copy
            elif time.monotonic() > deadline:
                raise CoordinatorUnavailable(
                    f"the embedded ZooKeeper in {self.directory} was not ready within {JOIN_LIMIT_S:g} s, another process is "
                    f"starting it: see {self.directory / 'supervisor.log'}",
                    directory=str(self.directory),
                )
            time.sleep(_POLL_S)
        self._check_servers(asked, self.servers)

    def watch_over_supervisor(self) -> None:
        """Start the thread that replaces a supervisor that was killed."""
        threading.Thread(target=self._keep, name="sluice-embedded-keeper", daemon=True).start()

    def _find(self) -> bool:
        path = self.directory / "state.json"
        state = _load(path)
        if state is None or not _is_held(self.directory / "supervisor.lock"):
            return False
        _require_format(path, state)
        try:
            supervisor, hosts, servers = int(state["supervisor"]), str(state["hosts"]), int(state["servers"])
        except (KeyError, TypeError, ValueError) as damage:
            raise InvalidRequest(
                f"{path} is damaged ({type(damage).__name__} {damage}): end the programs that use this directory, remove the file, and "
                "try again",
                file=str(path),
            ) from damage
        if not _runs(supervisor, str(self.directory)):  # it is about to be replaced
            return False
        self.hosts, self.servers = hosts, servers
        return True

    def _start(self, asked: int | None, lock: int) -> None:
        for name in ("plan.json", "state.json", "last.json"):
            _require_format(self.directory / name, _load(self.directory / name))
        plan = _load(self.directory / "plan.json")
        settled = len(plan["servers"]) if plan and isinstance(plan.get("servers"), list) else asked or 1
        self._check_servers(asked, settled)
        with contextlib.suppress(FileNotFoundError):
            (self.directory / "state.json").replace(self.directory / "last.json")
        last = _load(self.directory / "last.json") or {}
        for pid in _numbers(last, "java"):
            _end_server(pid, self.directory)
        known = _numbers(last, "ports")
        usable = self._starts == 0 and len(known) > 0 and ports_are_free(known, patience_s=_PORTS_PATIENCE_S)
        ports = known if usable else choose_ports(settled)
        prepare(self.directory, servers=settled, ports=ports, jars=self._jars)
        self._starts += 1
        with (self.directory / "supervisor.log").open("ab") as output:
            command = [sys.executable, "-I", str(_SUPERVISOR), str(self.directory), str(lock)]
            subprocess.run(command, pass_fds=[lock], stdin=subprocess.DEVNULL, stdout=output, stderr=output, check=True)

    def _check_servers(self, asked: int | None, settled: int) -> None:
        if asked not in (None, settled):
            raise InvalidRequest(
                f"the embedded ZooKeeper in {self.directory} has servers={settled}, which cannot be changed to servers={asked}: leave "
                "servers out of the address, or name another directory",
                directory=str(self.directory),
                servers=settled,
            )

    def _judge_failed_start(self) -> None:
        """After a supervisor that we started is gone: go on if other ports may help, otherwise raise the reason."""
        outputs = [path.read_text(errors="replace") for path in sorted(self.directory.glob("server-*/server.out"))]
        logs = [path.read_text(errors="replace")[-2000:] for path in sorted(self.directory.glob("server-*/server.log"))]
        said = "\n".join([*outputs, *logs])
        if "Address already in use" in said and self._starts < START_ATTEMPTS:
            return
        tail = "\n".join(said.strip().splitlines()[-5:]) or (self.directory / "supervisor.log").read_text(errors="replace")[-500:]
        raise CoordinatorUnavailable(
            f"the embedded ZooKeeper in {self.directory} does not start: {tail or 'no message'}; see supervisor.log and "
            "server-*/server.log there",
            directory=str(self.directory),
        )

    def _keep(self) -> None:
        pause_s = _KEEP_S
        while not self._left.wait(pause_s):
            pause_s = _KEEP_S
            try:
                if not self._find():
                    self.await_servers(None, time.monotonic() + JOIN_LIMIT_S)
            except Exception:
                log.exception("the embedded ZooKeeper in %s cannot be kept up", self.directory)
                pause_s = _KEEP_S_MAX


_memberships: weakref.WeakSet[Membership] = weakref.WeakSet()


def _forget_after_fork() -> None:
    for membership in list(_memberships):
        membership.forget()


os.register_at_fork(after_in_child=_forget_after_fork)


def join(directory: str | os.PathLike[str] | None = None, *, servers: int | None = None, jars: str | None = None) -> Membership:
    """Become a client of the embedded ZooKeeper in `directory`; starts it if it does not run.

    `servers` is 1 or a larger odd number; None takes the directory's number, else 1. `jars` is a folder to start from.
    Raises InvalidRequest if the directory cannot be used or has another number of servers, or if Java or the jars are
    missing; CoordinatorUnavailable if the servers do not come up.
    """
    deadline = time.monotonic() + JOIN_LIMIT_S
    folder = Path(directory or default_directory()).expanduser().resolve()
    if servers is not None and (servers < 1 or servers % 2 == 0):
        raise InvalidRequest(f"servers={servers}: an ensemble has 1, 3 or 5 servers, an odd number", servers=servers)
    try:
        _own(folder)
        membership = Membership(folder, lock=_become_client(folder, deadline), jars=jars)
        try:
            membership.await_servers(servers, deadline)
        except BaseException:
            membership.leave()
            raise
    except OSError as error:
        raise _unusable(folder, error) from error
    membership.watch_over_supervisor()
    return membership


def _unusable(folder: Path, error: OSError) -> SluiceError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return CoordinatorUnavailable(
            f"the embedded ZooKeeper has no room in {folder} ({error.strerror}): free some, or name a directory on another disk with "
            "coordinator='embedded:///directory'",
            directory=str(folder),
        )
    return InvalidRequest(
        f"the directory {folder} cannot be used for the embedded ZooKeeper ({error.strerror}): set SLUICE_HOME, or name a directory "
        "on a writable disk with coordinator='embedded:///directory'",
        directory=str(folder),
    )


def _own(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    owner = folder.stat().st_uid
    if owner != os.geteuid():
        raise InvalidRequest(
            f"the directory {folder} belongs to user {owner}, not to you ({os.geteuid()}): an embedded ZooKeeper serves one user, "
            "name another directory with coordinator='embedded:///directory', or share a server with coordinator='zk://host:2181'",
            directory=str(folder),
            owner=owner,
        )
    if not (folder / "clients.lock").exists() and any(folder.iterdir()):
        raise InvalidRequest(
            f"the directory {folder} has other contents than an embedded ZooKeeper: name an empty or new one",
            directory=str(folder),
        )


def _become_client(folder: Path, deadline: float) -> int:
    """Take the clients' lock; a supervisor that is stopping its servers holds it until it is done."""
    while True:
        lock = _try_lock(folder / "clients.lock", fcntl.LOCK_SH)
        if lock is not None:
            return lock
        if time.monotonic() > deadline:
            raise InvalidRequest(
                f"another process holds an exclusive lock on {folder / 'clients.lock'}: end it (lsof names it), or use "
                "another directory with coordinator='embedded:///directory'",
                directory=str(folder),
            )
        time.sleep(_POLL_S)


def _try_lock(path: Path, kind: int) -> int | None:
    """A descriptor that holds the lock, or None if another process's lock is in the way."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _numbers(record: dict[str, Any], key: str) -> list[int]:
    """Numbers listed in one of our files; none if it is damaged."""
    listed = record.get(key)
    return [each for each in listed if type(each) is int] if isinstance(listed, list) else []


def _load(path: Path) -> dict[str, Any] | None:
    """The file's contents; None if it does not exist or was cut off by a crash of the machine."""
    try:
        loaded = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return loaded if isinstance(loaded, dict) else None


def _require_format(path: Path, loaded: dict[str, Any] | None) -> None:
    """Raise InvalidRequest for a file of a later release, whose meaning is unknown."""
    found = 0 if loaded is None else loaded.get("format", 0)  # the first format had no number
    if type(found) is not int or found > FORMAT:
        raise InvalidRequest(
            f"{path} has format {found!r}, and this sluice ({__version__}) reads formats up to {FORMAT}: another program runs the embedded "
            "ZooKeeper of this directory with a later release. Upgrade sluice here, or name another directory with "
            "coordinator='embedded:///directory'",
            file=str(path),
            format=found,
        )


def _is_held(path: Path) -> bool:
    """Whether somebody holds the lock exclusively."""
    lock = _try_lock(path, fcntl.LOCK_SH)
    if lock is None:
        return True
    os.close(lock)
    return False


def _runs(pid: int, mark: str) -> bool:
    """Whether the process exists and its command line contains `mark`, so that a reused process id is not mistaken for it."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        if Path("/proc/self").exists():
            return False
        command = subprocess.run(["ps", "-ww", "-o", "command=", "-p", str(pid)], capture_output=True, check=False).stdout
    return os.fsencode(mark) in command


def _end_server(pid: int, directory: Path) -> None:
    """End a server whose supervisor is gone; it must not write to the directory together with its successor."""
    while _runs(pid, mark_of(directory)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        time.sleep(_POLL_S)
