"""Joining and leaving an embedded ZooKeeper, for any number of concurrent processes, however they end.

A directory holds one server::

    users.lock    every process that uses the server holds a shared file lock on it
    server.lock   the supervisor (supervisor.py) holds an exclusive lock on it while it lives
    server.json   where the server serves: port, process id, format; replaced by one atomic rename
    server.out    what the supervisor and the server said since the last start
    server.log    the server's log
    data/         the server's data, beside its settings

A process that finds the supervisor's lock free takes it and starts a supervisor that inherits the lock, so two processes can
never start one at the same time. The others wait for `server.json`. A member that finds supervisor or server gone (killed)
starts them again, on the port that the clients know, with the sessions in the server's data.

Programs of several environments and releases share a directory, whichever copy of supervisor.py runs its server. The format
number of `server.json` (supervisor.py) tells a program when another one follows later rules: it then changes nothing.

File locks are inherited over fork. A child forked by Python gives its copy up at once and joins by itself when it connects;
a child forked by other means keeps the server alive until it ends.
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

from ....installation import __version__
from ....storage.errors import InvalidRequest
from ...errors import CoordinatorUnavailable
from .server import choose_port, configure, mark_of, server_command
from .supervisor import FORMAT

JOIN_LIMIT_S = 60.0
"""How long `join` waits for the server, in seconds."""

START_ATTEMPTS = 3
"""How often the server is started before giving up, if others take its port meanwhile."""

LINGER_S = 2.0
"""How long an unused server stays, in seconds, so that the next program finds it running."""

_POLL_S = 0.03
_KEEP_S = 1.0
_KEEP_S_MAX = 15.0
_SUPERVISOR = Path(__file__).with_name("supervisor.py")

log = logging.getLogger("sluice.embedded")


def default_directory() -> Path:
    """`embedded` below SLUICE_HOME, which defaults to `~/.sluice`."""
    return Path(os.environ.get("SLUICE_HOME") or "~/.sluice").expanduser() / "embedded"


class Membership:
    """One process's membership, which keeps the server up. `hosts` is where it listens; call `leave` when done.

    A thread watches the server meanwhile and starts another one if it is gone.
    """

    def __init__(self, directory: Path, *, lock: int, jars: str | None) -> None:
        self.directory = directory
        self.hosts = ""
        self._lock: int | None = lock
        self._jars = jars
        self._left = threading.Event()
        _memberships.add(self)

    def leave(self) -> None:
        """Stop being a user; the server stops after the last one left. Doing so again does nothing."""
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

    def await_server(self, deadline: float) -> None:
        """Find the server, or start it. Raises CoordinatorUnavailable if that fails, InvalidRequest like `join`."""
        starts = 0
        while not self._find():
            lock = _try_lock(self.directory / "server.lock", fcntl.LOCK_EX)
            if lock is not None:
                try:
                    if starts:
                        self._judge_failed_start(starts)
                    self._start(lock)
                    starts += 1
                finally:
                    os.close(lock)  # the supervisor has its own copy
            elif time.monotonic() > deadline:
                raise CoordinatorUnavailable(
                    f"the embedded ZooKeeper in {self.directory} was not ready within {JOIN_LIMIT_S:g} s, another process is "
                    f"starting it: see {self.directory / 'server.out'}",
                    directory=str(self.directory),
                )
            time.sleep(_POLL_S)

    def _find(self) -> bool:
        """Whether the server serves; `hosts` then tells where."""
        state = self._state()
        if state is None:
            return False
        lock = _try_lock(self.directory / "server.lock", fcntl.LOCK_SH)
        if lock is not None:  # no supervisor holds it
            os.close(lock)
            return False
        port, pid = state
        if not _runs(pid, mark_of(self.directory)):  # it was killed, and is about to be started again
            return False
        self.hosts = f"127.0.0.1:{port}"
        return True

    def _state(self) -> tuple[int, int] | None:
        """The port and the process id of the last server; None if there is none. Raises InvalidRequest if it cannot be understood."""
        path = self.directory / "server.json"
        try:
            state = json.loads(path.read_bytes())
        except (OSError, ValueError):  # it does not exist, or was cut off by a crash of the machine
            return None
        if not isinstance(state, dict):
            return None
        number = state.get("format", 0)
        if type(number) is not int or number > FORMAT:
            raise InvalidRequest(
                f"{path} has format {number!r}, and this sluice ({__version__}) reads formats up to {FORMAT}: another program runs the "
                "embedded ZooKeeper of this directory with a later release. Upgrade sluice here, or name another directory with "
                "coordinator='embedded:///directory'",
                file=str(path),
                format=number,
            )
        try:
            return int(state["port"]), int(state["pid"])
        except (KeyError, TypeError, ValueError) as damage:
            raise InvalidRequest(
                f"{path} is damaged ({type(damage).__name__} {damage}): end the programs that use this directory, remove the file, and "
                "try again",
                file=str(path),
            ) from damage

    def _start(self, lock: int) -> None:
        former_port, former_pid = self._state() or (None, None)
        command = server_command(self.directory, self._jars)
        while former_pid is not None and _runs(former_pid, mark_of(self.directory)):  # it must not write beside its successor
            with contextlib.suppress(ProcessLookupError):
                os.kill(former_pid, signal.SIGKILL)
            time.sleep(_POLL_S)
        port = choose_port(former_port)
        configure(self.directory, port)
        with (self.directory / "server.out").open("wb") as output:
            program = [sys.executable, "-I", str(_SUPERVISOR), str(self.directory), str(lock), str(port), str(LINGER_S)]
            subprocess.run([*program, *command], pass_fds=[lock], stdin=subprocess.DEVNULL, stdout=output, stderr=output, check=True)

    def _judge_failed_start(self, starts: int) -> None:
        """After a supervisor that we started is gone: go on if another port may help, otherwise raise the reason."""
        files = [self.directory / name for name in ("server.log", "server.out")]
        output = "\n".join(path.read_text(errors="replace")[-2000:] for path in files if path.exists())
        if "Address already in use" in output and starts < START_ATTEMPTS:
            return
        why = "\n".join(output.strip().splitlines()[-5:]) or "no message"
        message = f"the embedded ZooKeeper in {self.directory} does not start: {why}; see server.out and server.log there"
        raise CoordinatorUnavailable(message, directory=str(self.directory))

    def keep_up(self) -> None:
        """Start the server again when it, or its supervisor, was killed, until this process leaves; runs in its own thread."""
        pause_s = _KEEP_S
        while not self._left.wait(pause_s):
            pause_s = _KEEP_S
            try:
                self.await_server(time.monotonic() + JOIN_LIMIT_S)
            except Exception:
                log.exception("the embedded ZooKeeper in %s cannot be kept up", self.directory)
                pause_s = _KEEP_S_MAX


_memberships: weakref.WeakSet[Membership] = weakref.WeakSet()


def _forget_after_fork() -> None:
    for membership in list(_memberships):
        membership.forget()


os.register_at_fork(after_in_child=_forget_after_fork)


def join(directory: str | os.PathLike[str] | None = None, *, jars: str | None = None) -> Membership:
    """Become a user of the embedded ZooKeeper in `directory` (by default `default_directory()`); starts it if it does not run.

    `jars` is a folder to start from. Raises InvalidRequest if Java or the jars are missing, or the directory cannot be used;
    CoordinatorUnavailable if the server does not start.
    """
    deadline = time.monotonic() + JOIN_LIMIT_S
    folder = Path(directory or default_directory()).expanduser().resolve()
    try:
        _own(folder)
        membership = Membership(folder, lock=_become_user(folder, deadline), jars=jars)
        try:
            membership.await_server(deadline)
        except BaseException:
            membership.leave()
            raise
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise CoordinatorUnavailable(
                f"the embedded ZooKeeper has no room in {folder} ({error.strerror}): free some, or name a directory on another disk with "
                "coordinator='embedded:///directory'",
                directory=str(folder),
            ) from error
        raise InvalidRequest(
            f"the directory {folder} cannot be used for the embedded ZooKeeper ({error.strerror}): set SLUICE_HOME, or name a directory "
            "on a writable disk with coordinator='embedded:///directory'",
            directory=str(folder),
        ) from error
    threading.Thread(target=membership.keep_up, name="sluice-embedded-keeper", daemon=True).start()
    return membership


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
    contents = {each.name for each in folder.iterdir()}
    if "users.lock" in contents or contents <= {"data"}:
        return
    if "clients.lock" in contents:
        one = "move its server-1/data into the new directory, as data"
        several = "start its servers as an ensemble (each server-*/ has its zoo.cfg), which you name with coordinator='zk://host:port,...'"
        raise InvalidRequest(
            f"the directory {folder} was made by an earlier sluice, which this one does not continue: name another directory with "
            f"coordinator='embedded:///directory'. To keep the data, end the programs that use it, and "
            f"{several if 'server-2' in contents else one}",
            directory=str(folder),
        )
    message = f"the directory {folder} has other contents than an embedded ZooKeeper: name an empty or new one"
    raise InvalidRequest(message, directory=str(folder))


def _become_user(folder: Path, deadline: float) -> int:
    """Take the users' lock; a supervisor that is stopping its server holds it until it is done."""
    while True:
        lock = _try_lock(folder / "users.lock", fcntl.LOCK_SH)
        if lock is not None:
            return lock
        if time.monotonic() > deadline:
            raise InvalidRequest(
                f"another process holds an exclusive lock on {folder / 'users.lock'}: end it (lsof names it), or use "
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


def _runs(pid: int, mark: str) -> bool:
    """Whether the process exists and its command line contains `mark`, so that a reused process id is not mistaken for it."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        if Path("/proc/self").exists():
            return False
        command = subprocess.run(["ps", "-ww", "-o", "command=", "-p", str(pid)], capture_output=True, check=False).stdout
    return os.fsencode(mark) in command
