"""Transaction ids name their owner, and presence is the node that owns a client's transactions while it lives.

A transaction id is a UUID of version 8, which leaves its bits to the application (RFC 9562). Every object a transaction
writes has the id in its key, so an object's owner is known from its name:

- for a client's transaction, the last 48 bits are the client's id: its owner is the ephemeral node `clients/<client>`. The 14
  bits before them count the client's terms. The first 32 bits are the second since 1970 in which the id was made, and the next
  28 number the client's transactions;
- for a plan's transaction, made in one process and committed in another, the first 8 of these 48 bits are 0: its owner is the
  persistent node `open/<plan>`, which exists from planning until the commit and is named by the first 60 bits, which are
  random. The 14 bits count attempts, and the last 40 are the second in which the id was made.

So an id tells the earliest moment its transaction can be in a log, as far as its maker's clock is right. A transaction is filed
in a multi that checks its owner's node. Once the node is gone and kept from coming back, the transaction is never filed. An id
of any other form has no owner, and nothing is known about it.

A client is present as the ephemeral node `clients/<id>`. When its session expires the node goes, and the client makes it again in
its next session, so its work goes on. Unless it was *buried*: garbage collection makes the node `graves/<id>` in a multi that fails
if the client is present, and the client comes back only in a multi that fails if the grave exists. After the burial nothing that
the client began can be filed, and its staged files are garbage.

A client that lives long counts *terms* of some minutes. Its node names the oldest term of which the process still holds a
transaction: files from earlier terms that are in no version are garbage, too.
"""

from __future__ import annotations

import getpass
import os
import re
import secrets
import socket
import sys
import time
import uuid
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import field
from functools import partial
from pathlib import Path
from typing import Final

from ...installation import __version__
from ...storage.caches import ForkSafeLock
from ...storage.dataclass import dataclass
from ..errors import SessionLost
from ..formats import MalformedRecord, NodeData, node_data
from ..rules.intent import ClientName
from ..service.address import Address
from ..service.clock import Clock, SystemClock
from ..service.connect import connect
from ..service.store import ANY_VERSION, ApplyRefused, CoordinationStore, Create, Delete, NodeExists, NoNode, Op, ReplyLost, nodes_below
from .layout import CLIENTS, GRAVES, OPEN
from .quotas import KnownQuotas

_CLIENT_BITS: Final = 48
_SECOND_BITS: Final = 40
"""Bits of the second in a plan's id: no client has an id this small."""
_NUMBER_BITS: Final = 28
_COUNT_BITS: Final = 14
TERM_MAX: Final = (1 << _COUNT_BITS) - 1
"""A client stays in its last term."""
_VERSION: Final = 8 << 76
_VARIANT: Final = 2 << 62
_NODE: Final = (1 << _CLIENT_BITS) - 1
_COUNT: Final = TERM_MAX << _CLIENT_BITS
_HEX: Final = "[0-9a-f]"
_ID: Final = re.compile(rf"(?<![0-9a-fA-F]){_HEX}{{8}}-{_HEX}{{4}}-8{_HEX}{{3}}-[89ab]{_HEX}{{3}}-{_HEX}{{12}}(?![0-9a-fA-F])")


@dataclass(frozen=True, slots=True, order=True)
class Owner:
    """The owner of a client's or a plan's transactions: the node `path`."""

    path: str

    @property
    def is_client(self) -> bool:
        """Whether the owner is a client's presence, not a plan's node."""
        return self.path.startswith(f"{CLIENTS}/")

    @property
    def name(self) -> str:
        """The node's own name: the client's or the plan's id."""
        return self.path.rpartition("/")[2]


def this_user() -> str:
    """The user and the host of this process, for people to read: "ann@host-7"."""
    user = "somebody"
    with suppress(OSError, KeyError):
        user = getpass.getuser()
    return f"{user}@{socket.gethostname()}"


def new_client() -> str:
    """A new client id: 12 hexadecimal digits that do not begin with 00."""
    return f"{secrets.randbelow(_NODE - (1 << _SECOND_BITS)) + (1 << _SECOND_BITS):012x}"


def new_id(client: str, term: int, number: int, now_ms: int) -> str:
    """A transaction id of a client in one of its terms; the client must not use a number twice in one second."""
    second = now_ms // 1000 & 0xFFFF_FFFF
    return _text(second << _NUMBER_BITS | number & (1 << _NUMBER_BITS) - 1, term, int(client, 16))


def new_plan_id(now_ms: int) -> str:
    """The transaction id of a plan's first attempt."""
    return _text(secrets.randbits(60), 0, now_ms // 1000 & (1 << _SECOND_BITS) - 1)


def made_ms(transaction_id: str) -> int | None:
    """When an id was made by its maker's clock, in milliseconds since 1970; None for an id of another form."""
    if not _ID.fullmatch(transaction_id):
        return None
    number = uuid.UUID(transaction_id).int
    client = number & _NODE
    return (number >> 96 if client >> _SECOND_BITS else client) * 1000


def another_id(transaction_id: str) -> str:
    """Another id with the same owner, for filing the same files again after a refusal.

    A plan's attempts are counted, so a second commit of the same plan tries the same ids.
    """
    owner = owner_of(transaction_id)
    if owner is None:
        return str(uuid.uuid4())
    if owner.is_client:
        return new_id(owner.name, term_of(transaction_id), secrets.randbits(_NUMBER_BITS), made_ms(transaction_id) or 0)
    number = uuid.UUID(transaction_id).int
    attempt = (number + (1 << _CLIENT_BITS)) & _COUNT
    return str(uuid.UUID(int=number & ~_COUNT | attempt))


def run_of(plan: str, now_ms: int) -> str:
    """The transaction id of one run of a plan that several runs take up, one after the other: the same owner, another id."""
    first = uuid.UUID(plan).int
    free = (first >> 80) << 12 | (first >> 64) & 0xFFF
    return _text(free, secrets.randbits(_COUNT_BITS), now_ms // 1000 & (1 << _SECOND_BITS) - 1)


def owner_of(transaction_id: str) -> Owner | None:
    """The owner of a transaction; None for an id of another form."""
    if not _ID.fullmatch(transaction_id):
        return None
    number = uuid.UUID(transaction_id).int
    client = number & _NODE
    if client >> _SECOND_BITS:
        return Owner(f"{CLIENTS}/{client:012x}")
    plan = (number >> 80) << 12 | (number >> 64) & 0xFFF
    return Owner(f"{OPEN}/{plan:015x}")


def term_of(transaction_id: str) -> int:
    """The client's term in which an id was made."""
    return (uuid.UUID(transaction_id).int & _COUNT) >> _CLIENT_BITS


def id_in(key: str) -> str | None:
    """The first transaction id in an object's key; None if there is none of this form."""
    match = _ID.search(key)
    return None if match is None else match[0]


def _text(first: int, count: int, client: int) -> str:
    """An id from its first 60 bits, the 14 counting bits and the last 48."""
    free = first >> 12 << 80 | (first & 0xFFF) << 64
    return str(uuid.UUID(int=free | _VERSION | _VARIANT | min(count, TERM_MAX) << _CLIENT_BITS | client))


# -- presence ----------------------------------------------------------------------------------------------------------------

_TERM_S: Final = 600.0
_SESSIONS_MAX: Final = 5
_UNSIGNED: Final = 2**64 - 1
_DAY_MS: Final = 24 * 3600 * 1000
_AWAY_MAX_MS: Final = 30 * _DAY_MS
"""A client that was away longer does not come back: its grave may have been cleared."""
GRAVES_KEPT_MS: Final = 3 * _AWAY_MAX_MS
"""How long a grave is kept: much longer than a client may be away, whatever their clocks say."""


@dataclass(frozen=True, slots=True)
class Client:
    """One connected process, in its own words; `since_ms` is milliseconds since 1970 by its own clock."""

    id: str
    host: str
    pid: int
    application: str
    since_ms: int
    version: str


@node_data("client")
class ClientNode(NodeData):
    """What a client's node says."""

    host: str
    pid: int
    application: str
    since_ms: int
    version: str
    oldest_term: int
    """The oldest term of which the client may still file a transaction."""


@node_data("grave")
class Grave(NodeData):
    """The record of a client that garbage collection gave up: which client did so (`by`), and when."""

    by: str
    at_ms: int


class TransactionId(str):
    """A transaction's id as its client holds it: the transaction may still be filed while this very object is alive."""

    __slots__ = ("__weakref__",)


@dataclass(slots=True)
class _Life:
    """A client's id, the transactions begun under it, and its node's content."""

    client: str = field(default_factory=new_client)
    term: int = 0
    term_since_s: float = 0.0
    begun: int = 0
    """Transactions begun so far; each id contains its number."""
    held: dict[int, weakref.WeakSet[TransactionId]] = field(default_factory=dict[int, "weakref.WeakSet[TransactionId]"])
    session: int | None = None
    told_oldest: int = 0
    seen_ms: int = 0

    @property
    def path(self) -> str:
        return f"{CLIENTS}/{self.client}"

    def oldest(self) -> int:
        """The oldest term of which a transaction is held, or the present one; forgets earlier terms."""
        for term in sorted(self.held):
            # check: terms-are-held (without self.held[term] or)
            if self.held[term] or term == self.term:
                return term
            del self.held[term]
        return self.term


class Presence:
    """One process as a coordinator sees it. Safe for several threads; a forked process is another client."""

    def __init__(self, connection: Callable[[], CoordinationStore], *, application: str = "", clock: Clock | None = None) -> None:
        self._connect = connection
        self._application = application
        self._clock = clock or SystemClock()
        self._since_ms = self._clock.now_ms()
        self._lock = ForkSafeLock(reentrant=True)
        self._pid = os.getpid()
        self._life = self._born()
        self.quotas = KnownQuotas()
        self._guests: dict[str, _Life] = {}
        """The lives of this process at coordinators from which tables moved here."""
        self._guests_in: int | None = None
        """The session in which they are present."""

    def announce(self) -> None:
        """Be present in the current session. Costs nothing if nothing changed."""
        with self._lock:
            self._present()

    def begin(self) -> TransactionId:
        """A new transaction id of this client."""
        with self._lock:
            life = self._present()
            return self._next(life, life.term)

    def again(self, transaction_id: str) -> str:
        """Another id of the same owner and term, held as long as this object."""
        owner = owner_of(transaction_id)
        with self._lock:
            if owner is None or owner.path != self._life.path or self._pid != os.getpid():
                return another_id(transaction_id)
            return self._next(self._life, term_of(transaction_id))

    def restore(self, owner: Owner) -> bool:
        """Whether this client is present again after its session expired; False if it was buried."""
        with self._lock:
            if self._pid == os.getpid() and owner.path in self._guests:
                return self._put_guest(self._guests[owner.path])
            return self._pid == os.getpid() and self._life.path == owner.path and self._put(self._life)

    def owns(self, transaction_id: str) -> bool:
        """Whether this process began the transaction."""
        return self._pid == os.getpid() and owner_of(transaction_id) == Owner(self._life.path)

    def stand_in_for(self, former: Presence) -> None:
        """Be present here under another coordinator's id of this process, too: what was begun under it is filed here."""
        with self._lock:
            for life in (former._life, *former._guests.values()):
                # check: the-begun-is-owned-elsewhere
                if self._pid == os.getpid() == former._pid and life is not self._life and self._put_guest(life):
                    self._guests[life.path] = life

    def _put_guest(self, life: _Life) -> bool:
        # their graves may have been cleared, too
        return self._now_ms() - self._life.seen_ms <= _AWAY_MAX_MS and _put(self._connect(), life.client, self._body(life))

    def _next(self, life: _Life, term: int) -> TransactionId:
        """The next id of a term, which is held as long as this object."""
        life.begun += 1
        held = TransactionId(new_id(life.client, term, life.begun, self._clock.now_ms()))
        life.held.setdefault(term, weakref.WeakSet()).add(held)
        return held

    def _born(self) -> _Life:
        return _Life(term_since_s=self._clock.monotonic_s(), seen_ms=self._now_ms())

    def _now_ms(self) -> int:
        """A clock that does not stop when the calendar is set back: it measures how long the client was away."""
        return max(self._clock.now_ms(), time.monotonic_ns() // 1_000_000)

    def _present(self) -> _Life:
        """The client's life, with its node present and current; a new life if the client was buried."""
        if self._pid != os.getpid():
            self._pid, self._life, self._guests = os.getpid(), self._born(), {}
            self.quotas = KnownQuotas()  # no watch of this process has been set
        life, session = self._life, self._connect().session_id
        while life.session != session and not self._put(life):
            life, self._guests = self._born(), {}
            self._life = life
        # check: guests-are-present-in-the-next-session
        if self._guests_in != life.session:
            with suppress(SessionLost):  # then they are announced in the next one
                self._guests = {path: guest for path, guest in self._guests.items() if self._put_guest(guest)}
                self._guests_in = life.session
        if self._clock.monotonic_s() - life.term_since_s > _TERM_S and life.term < TERM_MAX:
            life.term, life.term_since_s = life.term + 1, self._clock.monotonic_s()
        oldest = life.oldest()
        if oldest > life.told_oldest:
            with suppress(NoNode, ReplyLost, SessionLost):  # then it is written in the next session, or the next time
                self._connect().write(life.path, self._body(life), version=ANY_VERSION)
                life.told_oldest, life.seen_ms = oldest, self._now_ms()
        return life

    def _body(self, life: _Life) -> bytes:
        return ClientNode(socket.gethostname(), self._pid, self._application, self._since_ms, __version__, life.oldest()).encode()

    def _put(self, life: _Life) -> bool:
        """Announce a life in the current session; False if it was buried."""
        # check: away-for-too-long-is-away
        if self._now_ms() - life.seen_ms > _AWAY_MAX_MS and life.session is not None:
            return False
        for attempt in range(_SESSIONS_MAX):
            session = self._connect()
            try:
                if not _put(session, life.client, self._body(life)):
                    return False
            except SessionLost:
                if attempt == _SESSIONS_MAX - 1:
                    raise
                continue
            life.session, life.told_oldest, life.seen_ms = session.session_id, life.oldest(), self._now_ms()
            break
        return True


def _put(session: CoordinationStore, client: str, body: bytes) -> bool:
    """Make the ephemeral node, or find that it exists; False if its grave does."""
    path, grave = f"{CLIENTS}/{client}", f"{GRAVES}/{client}"
    # check: the-buried-stay-away (without Create(grave), Delete(grave),)
    ops: list[Op] = [Create(grave), Delete(grave), Create(path, body, ephemeral=True)]
    while True:
        try:
            session.apply(ops)
            return True
        except ReplyLost:
            session.barrier()
        except ApplyRefused as refused:
            if isinstance(refused.cause, NoNode):
                _make_parents(session)
        if session.read(grave) is not None:
            return False
        node = session.read(path)
        if node is not None and node.owner_session & _UNSIGNED == session.session_id & _UNSIGNED:
            return True
        # The node is of an earlier session of ours that has not expired yet, and would go with it.
        gone: list[Op] = [] if node is None else [Delete(path, node.version)]
        ops = [Create(grave), Delete(grave), *gone, Create(path, body, ephemeral=True)]


def _make_parents(session: CoordinationStore) -> None:
    session.ensure_path(CLIENTS)
    session.ensure_path(GRAVES)


def bury(session: CoordinationStore, owner: Owner, *, by: str, now_ms: int, while_standing: Sequence[Op] = ()) -> bool:
    """Make sure that nothing of a client is filed any more; False if the client is present, or may be, or a check fails."""
    body = Grave(by, now_ms).encode()
    grave = f"{GRAVES}/{owner.name}"
    try:
        # check: the-living-are-not-buried (without Create(owner.path), Delete(owner.path),)
        session.apply([*while_standing, Create(owner.path), Delete(owner.path), Create(grave, body)])
    except ReplyLost:
        session.barrier()
    except ApplyRefused as refused:
        if isinstance(refused.cause, NoNode):  # all data were lost a moment ago
            _make_parents(session)
        elif not isinstance(refused.cause, NodeExists):
            raise
    return session.read(grave) is not None


def clear_graves(session: CoordinationStore, *, now_ms: int) -> int:
    """Remove the graves from which no client can come back; returns how many there were."""
    old = [node for node in nodes_below(session, GRAVES) if now_ms - Grave.decode(node.data).at_ms > GRAVES_KEPT_MS]
    for node in old:
        with suppress(NoNode, ReplyLost):
            session.delete(node.path, version=node.version)
    return len(old)


def this_client(application: str | None = None) -> ClientName:
    """This process's name in the history; `application` defaults to the program's name."""
    name = application or os.environ.get("SLUICE_APPLICATION") or Path(sys.argv[0] or "python").name
    return ClientName(socket.gethostname(), os.getpid(), name)


_presences: dict[Address, Presence] = {}
_presences_lock = ForkSafeLock(reentrant=True)


def presence_of(address: Address, application: str) -> Presence:
    """This process's presence at a coordinator, announced; the first application named is the one shown."""
    with _presences_lock:
        presence = _presences.get(address)
        if presence is None:
            presence = _presences[address] = Presence(partial(connect, address), application=application)
    presence.announce()
    return presence


def list_clients(store: CoordinationStore) -> list[Client]:
    """The connected clients, oldest first. A killed client is listed until its session times out."""
    clients: list[Client] = []
    for node in nodes_below(store, CLIENTS):
        try:
            client = ClientNode.decode(node.data)
        except MalformedRecord as problem:  # one strange node hides no other
            client = ClientNode("", 0, f"(unreadable: {problem.message})", node.created_ms, "", 0)
        clients.append(Client(node.name, client.host, client.pid, client.application, client.since_ms, client.version))
    return sorted(clients, key=lambda client: (client.since_ms, client.id))
