"""The sessions of this process: one per coordinator, opened on first use and shared by all.

The next `connect` replaces a session that was lost. A forked process begins without sessions. All sessions are closed when
the process ends, so that nobody waits for their ephemeral nodes to time out.
"""

from __future__ import annotations

import atexit
import logging
import multiprocessing.util
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import field
from typing import TypeAlias

from ...storage.dataclass import dataclass
from ...storage.errors import SluiceError
from .address import TIMES, Address
from .embedded.lifecycle import Membership, join
from .memory import MemoryCoordination, MemorySession
from .store import CoordinationStore
from .zookeeper.session import ZooKeeperStore
from .zookeeper.trust import Trust

_log = logging.getLogger(__name__)

_Store: TypeAlias = "ZooKeeperStore | MemorySession"


@dataclass(frozen=True, slots=True)
class _Session:
    store: _Store
    membership: Membership | None
    hosts: str

    @property
    def usable(self) -> bool:
        """Whether the session is alive, and the embedded server is still at the address it uses."""
        return not self.store.lost and (self.membership is None or self.membership.hosts == self.hosts)

    def close(self) -> None:
        self.store.close()
        if self.membership is not None:
            self.membership.leave()


@dataclass(slots=True)
class _Sessions:
    """The sessions of one process."""

    pid: int = field(default_factory=os.getpid)
    lock: threading.Lock = field(default_factory=threading.Lock)
    opening: dict[Address, threading.Lock] = field(default_factory=dict[Address, threading.Lock])
    current: dict[Address, _Session] = field(default_factory=dict[Address, _Session])


_sessions = _Sessions()
_of_parents: list[_Sessions] = []


def _mine() -> _Sessions:
    """The sessions of this process. Those of the process it was forked from are kept from being collected, but never used."""
    global _sessions  # noqa: PLW0603
    if _sessions.pid != os.getpid():
        _of_parents.append(_sessions)
        _sessions = _Sessions()
    return _sessions


def connect(coordinator: str | Address | None = None) -> CoordinationStore:
    """This process's session with the coordinator at this address (see `address.py`); opens one if none is alive.

    Cheap if one is alive, so call it before every use. Raises UnknownScheme, InvalidRequest, CoordinatorUnavailable.
    """
    address = coordinator if isinstance(coordinator, Address) else Address.parse(coordinator)
    sessions = _mine()
    session = sessions.current.get(address)
    if session is not None and session.usable:
        return session.store
    with sessions.lock:
        opening = sessions.opening.setdefault(address, threading.Lock())
    with opening:  # meanwhile, sessions with other coordinators can be opened
        former = sessions.current.get(address)
        if former is not None and former.usable:
            return former.store
        fresh = _open(address)
        sessions.current[address] = fresh
        if former is not None:
            former.close()
    # Processes started by multiprocessing end without atexit, and begin with an empty list of finalizers.
    multiprocessing.util.Finalize(None, close_all, exitpriority=0)
    return fresh.store


def start_embedded(coordinator: str | None = None) -> None:
    """Open this process's session in the background if the coordinator is embedded: its server takes a second or two.

    A failure is only logged: the next `connect` tries again and raises it.
    """
    address = Address.parse(coordinator)
    if address.scheme == "embedded" and _mine().current.get(address) is None:
        threading.Thread(target=_try_connecting, args=(coordinator,), name="sluice-embedded-start", daemon=True).start()


def _try_connecting(coordinator: str | None) -> None:
    try:
        connect(coordinator)
    except SluiceError as error:
        _log.info("the embedded coordinator did not start in advance: %s", error)


@contextmanager
def visiting(address: Address) -> Iterator[CoordinationStore]:
    """A session for the duration of the context, separate from this process's shared ones."""
    session = _open(address)
    try:
        yield session.store
    finally:
        session.close()


def session_of(name: str) -> CoordinationStore | None:
    """This process's session with the coordinator whose address has this `repr`, which may be lost; None if there is none. Opens none."""
    return next((session.store for address, session in list(_mine().current.items()) if repr(address) == name), None)


def hosts_of(address: Address) -> str:
    """The servers of an address, "h1:2181,h2:2181"; "" for an embedded one with which this process has no session."""
    session = _mine().current.get(address)
    return session.hosts if session is not None else address.place if address.scheme == "zk" else ""


def release(coordinator: str | None = None) -> None:
    """Close this process's session with a coordinator before exit; the next `connect` opens another one."""
    session = _mine().current.pop(Address.parse(coordinator), None)
    if session is not None:
        session.close()


def close_all() -> None:
    """Close every session of this process."""
    current = _mine().current
    while current:
        current.popitem()[1].close()


def _open(address: Address) -> _Session:
    if address.scheme == "memory":
        return _Session(MemoryCoordination.named(address.place).connect(), None, address.place)
    trust = Trust.of(address)  # only ensembles started by others authenticate clients
    membership = join(address.place or None, jars=address.jars) if address.scheme == "embedded" else None
    hosts = membership.hosts if membership else address.place
    times = {name: getattr(address, name) for name in TIMES}
    try:
        store = ZooKeeperStore.connect(hosts, chroot=address.chroot, **times, trust=trust)
    except BaseException:
        if membership is not None:
            membership.leave()
        raise
    return _Session(store, membership, hosts)


atexit.register(close_all)
