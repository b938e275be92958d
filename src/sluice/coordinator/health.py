"""Whether all is well with a coordinator and its tables, and so whether a server may be taken out.

Five questions, each answered yes, no, or "this cannot be known from here", with a sentence about the observation.

Each server is asked for its state with the four-letter word `srvr`, which is open by default (see "ZooKeeper Commands: The Four
Letter Words" in ZooKeeper's administrator's guide). If an operator has closed it (`4lw.commands.whitelist`), an answer shows only
that the server runs.
"""

from __future__ import annotations

import re
import socket
import time
import uuid
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

from ..storage.arguments import checked
from ..storage.caches import at_once
from ..storage.dataclass import dataclass
from ..storage.errors import SluiceError
from .errors import UnknownFormat
from .formats import MalformedRecord
from .nodes.context import undecided
from .nodes.creation import known_locations
from .nodes.layout import TableTree, VerdictName
from .nodes.records import BatchRecord, Head, Published
from .rules.intent import Intent
from .service.address import Address
from .service.clock import Clock, SystemClock, bounding
from .service.connect import connect, hosts_of
from .service.store import CoordinationStore, Create, Delete
from .service.zookeeper.trust import Line, Tls, Trust

DEFAULT_BOUND_S: Final = 10.0
"""The longest acceptable wait of a commit or a publication, in seconds."""

_ASKING_S: Final = 2.0
_NAMED_MAX: Final = 5
_ANSWER_MAX: Final = 1 << 16
_PAUSE_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class Server:
    """One server: `state` is "leader", "follower", "observer", "standalone", "not serving", "away" or "closed".

    "not serving": it runs but belongs to no quorum; "away": it does not answer; "closed": it answers without its state.
    `zxid` is the number of its last transaction; -1 if it is unknown.
    """

    host: str
    state: str
    zxid: int = -1

    @property
    def serves(self) -> bool | None:
        """Whether clients may use it; None if unknown."""
        return None if self.state == "closed" else self.state in ("leader", "follower", "observer", "standalone")


@dataclass(frozen=True, slots=True)
class Check:
    """The answer to one question: `ok` is None if it cannot be known from here; `told` describes the observation."""

    name: str
    ok: bool | None
    told: str


@dataclass(frozen=True, slots=True)
class Health:
    """All answers. `servers` are those in the address, with their states; () without an ensemble."""

    checks: tuple[Check, ...]
    servers: tuple[Server, ...] = ()

    @property
    def ok(self) -> bool | None:
        """True if every answer is yes, False if one is no, else None: nothing is wrong, but something is unknown."""
        answers = {check.ok for check in self.checks}
        return False if False in answers else None if None in answers else True


@checked
def health(coordinator: str | None = None, *, bound_s: float = DEFAULT_BOUND_S, timeout_s: float = 5.0) -> Health:
    """Examine the coordinator and all its tables; leaves no changes.

    "servers": every server in the address serves. "in sync": all have what the leader had when it was asked. "commits": a
    write of this client goes through the quorum. "publication": no ratified version has waited longer than `bound_s` seconds
    for its log. "waiting": no commit has waited longer to be decided. The last two compare the writers' clocks with this
    one. `timeout_s` limits the requests to the servers and those to the tables, each. A bad state is not an exception;
    raises InvalidRequest and UnknownScheme for an invalid address or time.
    """
    address, clock, began = Address.parse(coordinator), SystemClock(), time.monotonic()
    path = f"/health-{uuid.uuid4().hex}"
    with bounding(timeout_s, clock):
        try:
            session = connect(coordinator)
            session.apply([Create(path, ephemeral=True), Delete(path)])
        except SluiceError as trouble:
            commits = Check("commits", False, f"a write of this client does not go through: {trouble.message}")
            tables = _unseen("the coordinator cannot be asked")
        else:
            took_ms = 1000 * (time.monotonic() - began)
            commits = Check("commits", True, f"a write of this client went through the quorum in {took_ms:.0f} ms")
            tables = _tables(session, clock, bound_s)
    servers, ensemble = _ensemble(address, min(timeout_s, _ASKING_S))
    return Health((*ensemble, commits, *tables), servers)


# -- the servers -----------------------------------------------------------------------------------------------------------


def _ensemble(address: Address, timeout_s: float) -> tuple[tuple[Server, ...], tuple[Check, ...]]:
    if address.scheme == "memory":
        told = "the coordinator is in this process's memory and has no servers"
        return (), (Check("servers", True, told), Check("in sync", True, told))
    hosts = hosts_of(address)
    if not hosts:
        reason = "where the embedded server is cannot be known: it does not run"
        return (), (Check("servers", None, reason), Check("in sync", None, reason))
    servers, behind = _await_sync(hosts.split(","), Trust.of(address).tls if address.tls else None, timeout_s)
    return servers, judge_servers(servers, behind)


def _await_sync(names: Sequence[str], tls: Tls | None, timeout_s: float) -> tuple[tuple[Server, ...], tuple[str, ...]]:
    """The servers, and those that did not reach, in time, the transaction that the leader had at the first look.

    All are asked in parallel.
    """
    target: int | None = None
    end = 0.0
    while True:
        servers = tuple(at_once(partial(_ask, tls=tls, timeout_s=timeout_s), names, len(names), "sluice-health"))
        if target is None:
            target = max((each.zxid for each in servers if each.state == "leader"), default=-1)
            end = time.monotonic() + timeout_s  # a server that does not answer may take the first look's whole time
        behind = tuple(each.host for each in servers if each.serves and 0 <= each.zxid < target)
        if not behind or time.monotonic() >= end:
            return servers, behind
        time.sleep(_PAUSE_S)


def _ask(name: str, tls: Tls | None, timeout_s: float) -> Server:
    host, _, port = name.rpartition(":")
    address = (host.strip("[]"), int(port))
    try:
        with Line(tls).connect(address, timeout=timeout_s) if tls else socket.create_connection(address, timeout_s) as connection:
            connection.settimeout(timeout_s)
            connection.sendall(b"srvr")
            answer = b""
            while len(answer) < _ANSWER_MAX and (chunk := connection.recv(4096)):
                answer += chunk
    except OSError:
        return Server(name, "away")
    return _server(name, answer.decode(errors="replace"))


def _server(name: str, answer: str) -> Server:
    mode = re.search(r"^Mode: (\w+)", answer, re.MULTILINE)
    if mode is None:
        return Server(name, "not serving" if "not currently serving" in answer else "closed")
    zxid = re.search(r"^Zxid: 0x([0-9a-f]+)", answer, re.MULTILINE)
    return Server(name, mode[1], int(zxid[1], 16) if zxid else -1)


def judge_servers(servers: Sequence[Server], behind: Sequence[str]) -> tuple[Check, Check]:
    """Whether every server serves, and whether they are in sync."""
    missing = [f"{each.host} ({each.state})" for each in servers if each.serves is False]
    closed = [each.host for each in servers if each.serves is None]
    serving = [each for each in servers if each.serves]
    if missing:
        told = f"{len(missing)} of {len(servers)} servers do not serve: {', '.join(missing)}; take no other out before they do"
        all_serve = Check("servers", False, told)
    elif closed:
        told = f"{', '.join(closed)} answer but do not show their state: allow srvr in 4lw.commands.whitelist of their configuration"
        all_serve = Check("servers", None, told)
    elif serving[0].state == "standalone":
        all_serve = Check("servers", True, "the only server serves; when it is taken out, all commits wait until it is back")
    else:
        all_serve = Check("servers", True, f"all {len(servers)} servers serve")
    if behind:
        return all_serve, Check("in sync", False, f"{', '.join(behind)} did not catch up with the leader")
    if all(each.state == "standalone" for each in servers):
        return all_serve, Check("in sync", True, "there is one server, which keeps all data")
    if not any(each.state == "leader" for each in servers):
        why = "no server says that it leads: name all servers of the ensemble in the address, and allow srvr"
        return all_serve, Check("in sync", None if closed or not missing else False, why)
    if closed:
        return all_serve, Check("in sync", None, f"how far {', '.join(closed)} got cannot be known")
    told = f"{len(serving)} servers have what the leader had when it was asked"
    return all_serve, Check("in sync", not missing, told if not missing else f"{told}, {len(missing)} cannot have it")


# -- the tables ------------------------------------------------------------------------------------------------------------


def _unseen(why: str) -> tuple[Check, Check]:
    return Check("publication", None, why), Check("waiting", None, why)


def _tables(session: CoordinationStore, clock: Clock, bound_s: float) -> tuple[Check, Check]:
    try:
        locations = known_locations(session)
        late: list[str] = []
        waiting: list[str] = []
        unread: list[str] = []
        for location in locations:
            try:
                late += _late(session, TableTree(location), clock, bound_s)
                waiting += _waiting(session, TableTree(location), clock, bound_s)
            except (MalformedRecord, UnknownFormat) as unknown:
                unread.append(f"{location} ({unknown.message})")
    except SluiceError as trouble:
        return _unseen(f"the tables cannot be read: {trouble.message}")
    return (
        _check("publication", late, unread, f"of {len(locations)} tables none has a ratified version that waits for its log"),
        _check("waiting", waiting, unread, f"of {len(locations)} tables none has a commit that waits to be decided"),
    )


def _check(name: str, bad: Sequence[str], unread: Sequence[str], well: str) -> Check:
    if bad:
        more = f", and {len(bad) - _NAMED_MAX} more" if len(bad) > _NAMED_MAX else ""
        return Check(name, False, "; ".join(bad[:_NAMED_MAX]) + more)
    if unread:
        return Check(name, None, f"what this release cannot read: {'; '.join(unread[:_NAMED_MAX])}")
    return Check(name, True, well)


def _late(session: CoordinationStore, tree: TableTree, clock: Clock, bound_s: float) -> Iterator[str]:
    """Tables whose oldest unpublished version has waited too long."""
    node = session.read(tree.published)
    if node is None:
        return
    published = Published.decode(node.data)
    names = filter(None, map(VerdictName.parse, session.children(tree.verdicts) or ()))
    reached = (published.generation, published.slot, published.version)
    pending = min((n for n in names if (n.generation, n.slot, n.version) > reached), default=None)
    record = None if pending is None else session.read(tree.verdict(pending))
    if record is None:
        return
    waits_s = (clock.now_ms() - BatchRecord.decode(record.data).rendering.ratified_ms) / 1000
    if waits_s > bound_s:
        yield f"{tree.location}: transactions that were decided after version {published.version}, {waits_s:.0f} s ago, are not in the log"


def _waiting(session: CoordinationStore, tree: TableTree, clock: Clock, bound_s: float) -> Iterator[str]:
    """Tables whose first undecided commit has waited too long."""
    node = session.read(tree.head)
    if node is None:
        return
    head = Head.decode(node.data)
    queue = undecided(session.children(tree.slots(head.generation)) or (), head)
    slot = session.read(tree.slot(head.generation, queue[0])) if queue else None
    if slot is None:
        return
    waits_s = (clock.now_ms() - Intent.decode(slot.data).claimed_ms) / 1000
    if waits_s > bound_s:
        yield f"{tree.location}: transaction {queue[0].transaction_id} has waited to be decided for {waits_s:.0f} s"
