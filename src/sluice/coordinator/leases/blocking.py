"""Which lease or request makes which other request wait. Operators see it here, deadlocks are detected by it, and operators break leases.

A deadlock is a cycle of waits. An edge leads from a request to every earlier request in its way, from a lease to the request
that its holder waits for, and from one request of a call to the call's other requests. The last two kinds are published: a
client that waits while it holds something, or waits for several leases at once, has a node below `waits`, created in the same
multi as its requests. A cycle is closed only by beginning to wait, so the newest request of a cycle sees all the others, and
each waiter looks only once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...storage.dataclass import dataclass
from ...storage.errors import InvalidRequest, TableNotFound
from ..nodes.layout import FENCE, WAITS, LeaseName, Place, TableTree
from ..nodes.records import Broken, Grants, LeaseNode, WaitNode, need_here, tokens_from
from ..service.store import ApplyRefused, CoordinationStore, Delete, NoNode, ReplyLost, Write, nodes_below
from .guard import Request, held_facts, held_in_words, read_requests
from .scopes import clash


def _blockers(mine: Request, requests: Sequence[Request]) -> Iterator[Request]:
    """The earlier ones of a place's requests that are in the way of one of them, the nearest first."""
    for each in reversed(requests):
        if each.name < mine.name and each.name.guid != mine.name.guid and clash(mine.node, each.node, each.path):
            yield each


@dataclass(frozen=True, slots=True)
class LeaseEntry:
    """A request: `held`, or waiting for the one named in `waits_for` (None: nothing is in its way, its owner is about to see it).

    `since_ms` is the time of the request by its owner's clock, `made_ms` by the coordinator's; `token` is the holder's fencing token.
    """

    lease: str
    held: bool
    waits_for: str | None
    mode: str
    where: str
    name: str
    application: str
    host: str
    pid: int
    since_ms: int
    token: int
    made_ms: int


def place_of_table(session: CoordinationStore, location: str) -> Place:
    """The place of the leases on a table. Raises TableMoved, or TableNotFound for another table that the coordinator does not keep."""
    tree = TableTree(location)
    need_here(session, location)
    if session.read(tree.root) is None:
        message = f"the coordinator keeps no table at {location}: check the location and the coordinator's address"
        raise TableNotFound(message, location=location)
    return Place.of_table(tree)


def list_leases(store: CoordinationStore, place: Place) -> list[LeaseEntry]:
    """The requests of a place as of now, in the order they were made."""
    store.barrier()
    parent, fence = store.read_many([place.leases, FENCE])
    if parent is None:
        return []
    children = store.children(place.leases) or ()
    granted = Grants.understood(parent.data, children).granted
    requests, before = read_requests(store, place, children), tokens_from(fence)
    entries: list[LeaseEntry] = []
    for each in requests:
        name, node, client = str(each.name), each.node, each.node.client
        held = name in granted
        nearest = None if held else next((str(other.name) for other in _blockers(each, requests)), None)
        who = (client.application, client.host, client.pid, node.since_ms)
        entries.append(LeaseEntry(name, held, nearest, node.mode, node.where, node.name, *who, before + each.token, each.made_ms))
    return entries


def break_lease(store: CoordinationStore, place: Place, lease: str, *, by: str, reason: str, at_ms: int) -> Broken:
    """Break a lease or a waiting request, and record the user. Commits that depend on it are refused from then on.

    Raises InvalidRequest if no such request exists, also when its holder released it meanwhile.
    """
    if LeaseName.parse(lease) is None:
        raise InvalidRequest(f"{lease!r} is not the name of a lease; `sluice leases` shows them", lease=lease)
    path = place.node(lease)
    broken: Broken | None = None
    while True:
        node, parent = store.read(path), store.read(place.leases)
        if broken is not None and parent is not None and broken in Grants.understood(parent.data, ()).broken:
            return broken  # the request took effect, though its reply was lost
        if node is None or parent is None:
            raise InvalidRequest(f"no lease {lease} exists on {place} (any more); `sluice leases` lists those that do", lease=lease)
        request = LeaseNode.understood(node.data)
        who = f"{request.client.application} on {request.client.host} (process {request.client.pid})"
        broken = Broken(lease, request.name, who, by, at_ms, reason)
        grants = Grants.understood(parent.data, store.children(place.leases) or ())
        try:
            store.apply([Delete(path), Write(place.leases, grants.with_broken(broken).encode(), parent.version)])
        except ApplyRefused as refused:
            if isinstance(refused.cause, NoNode):
                broken = None
        except ReplyLost:
            store.barrier()
        else:
            return broken


class _Picture:
    """All waiting clients, as of one look. Requests are read on demand."""

    def __init__(self, store: CoordinationStore) -> None:
        self._store = store
        self._requests: dict[Place, list[Request]] = {}
        self.waits: dict[str, tuple[WaitNode, int]] = {}
        """By GUID, with the zxid of the node's creation."""
        for node in nodes_below(store, WAITS):
            wait = WaitNode.readable(node.data)
            if wait is not None and wait.path == node.path:
                self.waits[wait.guid] = wait, node.created_zxid

    def requests(self, place: Place | None) -> list[Request]:
        """The requests of a place."""
        if place is None:
            return []
        if place not in self._requests:
            self._requests[place] = read_requests(self._store, place)
        return self._requests[place]

    def blockers(self, path: str) -> list[str]:
        """The nodes that a request waits for: the earlier ones in its way."""
        requests = self.requests(Place.of_node(path))
        return [each.path for mine in requests if mine.path == path for each in _blockers(mine, requests)]

    def awaited_by(self, wait: WaitNode) -> Iterator[str]:
        """The nodes that a wait depends on directly."""
        yield from wait.waits_for
        for leases in wait.places:
            for request in self.requests(Place(leases.removesuffix("/leases"))):
                if request.name.guid == wait.guid:
                    yield from self.blockers(request.path)

    def waiting_for(self, path: str) -> Iterator[WaitNode]:
        """The waits that must end before a node goes away: its holder's, and the call's that the node is part of."""
        name = LeaseName.parse(path.rpartition("/")[2])
        for wait, _ in self.waits.values():
            if path in wait.holds or (name is not None and wait.guid == name.guid):
                yield wait

    def in_words(self, path: str) -> str:
        """A request and its holder."""
        place = Place.of_node(path)
        if place is None:
            return path
        holder = (held_in_words(held_facts(path, each.node)) for each in self.requests(place) if each.path == path)
        return f"{place}: {next(holder, 'already gone')}"


def find_cycle(store: CoordinationStore, mine: WaitNode) -> tuple[str, ...]:
    """The cycle that `mine` closes, one text per lease; () if there is none, or if a younger request is part of it."""
    picture = _Picture(store)
    if mine.guid not in picture.waits:
        return ()
    seen: set[str] = set()
    to_visit: list[tuple[str, tuple[str, ...], int]] = [(path, (path,), 0) for path in picture.awaited_by(mine)]
    born = picture.waits[mine.guid][1]
    while to_visit:
        path, trail, youngest = to_visit.pop()
        if path in seen:
            continue
        seen.add(path)
        for wait in picture.waiting_for(path):
            if wait.guid == mine.guid:
                # check: the-youngest-gives-in (always)
                if youngest < born:
                    return tuple(picture.in_words(each) for each in trail)
                continue
            age = max(youngest, picture.waits[wait.guid][1])
            to_visit += [(each, (*trail, each), age) for each in picture.awaited_by(wait)]
        to_visit += [(each, (*trail, each), youngest) for each in picture.blockers(path)]
    return ()
