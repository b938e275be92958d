"""Deadlock detection: the newest request of a wait cycle finds the cycle when it begins to wait.

An edge leads from a request to every earlier request in its way, from a lease to the request that its holder waits for, and
from one request of a call to the call's other requests. The last two kinds are published: a client that waits while it holds
something, or waits for several leases at once, has a node below `waits`, created in the same multi as its requests. A cycle
is closed only by beginning to wait, so the newest request of a cycle sees all the others, and each waiter looks only once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field

from ...storage.dataclass import dataclass
from ..nodes.lease_places import LeaseName, Place
from ..nodes.lease_records import WAITS, LeaseNode, WaitNode
from ..service.store import CoordinationStore
from .guard import held_facts, held_in_words
from .scopes import clash


@dataclass(slots=True)
class _Picture:
    """All waiting clients, as of one look. Requests are read on demand."""

    store: CoordinationStore
    waits: dict[str, tuple[WaitNode, int]] = field(default_factory=dict[str, tuple[WaitNode, int]])
    """By GUID, with the zxid of the node's creation."""
    requests: dict[str, dict[LeaseName, LeaseNode]] = field(default_factory=dict[str, dict[LeaseName, LeaseNode]])

    def look(self) -> None:
        """Read the waiting clients."""
        paths = [f"{WAITS}/{name}" for name in self.store.children(WAITS) or ()]
        for node in self.store.read_many(paths):
            wait = None if node is None else WaitNode.readable(node.data)
            if node is not None and wait is not None and wait.path == node.path:
                self.waits[wait.guid] = wait, node.created_zxid

    def in_place(self, leases: str) -> dict[LeaseName, LeaseNode]:
        """The requests of a place, by name."""
        if leases not in self.requests:
            names = [n for n in map(LeaseName.parse, self.store.children(leases) or ()) if n is not None]
            nodes = self.store.read_many([f"{leases}/{name}" for name in names])
            self.requests[leases] = {n: LeaseNode.understood(node.data) for n, node in zip(names, nodes, strict=True) if node is not None}
        return self.requests[leases]

    def blockers(self, path: str) -> Iterator[str]:
        """The nodes a request waits for: the earlier ones in its way."""
        place = Place.of_node(path)
        name = LeaseName.parse(path.rpartition("/")[2])
        if place is None or name is None:
            return
        known = self.in_place(place.leases)
        mine = known.get(name)
        for other, theirs in known.items() if mine is not None else ():
            if mine is not None and other < name and other.guid != name.guid and clash(mine, theirs, place.node(other)):
                yield place.node(other)

    def awaited_by(self, wait: WaitNode) -> Iterator[str]:
        """The nodes that a wait depends on directly."""
        yield from wait.waits_for
        for leases in wait.places:
            for name in self.in_place(leases):
                if name.guid == wait.guid:
                    yield from self.blockers(f"{leases}/{name}")

    def waiting_for(self, path: str) -> Iterator[WaitNode]:
        """The waits that must end before a node goes away: its holder's, and the call's that the node is part of."""
        name = LeaseName.parse(path.rpartition("/")[2])
        for wait, _ in self.waits.values():
            if path in wait.holds or (name is not None and wait.guid == name.guid):
                yield wait


def find_cycle(store: CoordinationStore, mine: WaitNode) -> tuple[str, ...]:
    """The cycle that `mine` closes, one text per lease; () if there is none, or if a younger request is part of it."""
    picture = _Picture(store)
    picture.look()
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
                    return tuple(_description(picture, each) for each in trail)
                continue
            age = max(youngest, picture.waits[wait.guid][1])
            to_visit += [(each, (*trail, each), age) for each in picture.awaited_by(wait)]
        to_visit += [(each, (*trail, each), youngest) for each in picture.blockers(path)]
    return ()


def _description(picture: _Picture, path: str) -> str:
    place, name = Place.of_node(path), LeaseName.parse(path.rpartition("/")[2])
    if place is None or name is None:
        return path
    request = picture.in_place(place.leases).get(name)
    return f"{place}: already gone" if request is None else f"{place}: {held_in_words(held_facts(path, request))}"
