"""Leases for operators: the holders, the waiting requests and their blockers, and breaking a lease."""

from __future__ import annotations

from ...storage.dataclass import dataclass
from ...storage.errors import InvalidRequest, TableNotFound
from ..nodes.layout import TableTree
from ..nodes.lease_places import LeaseName, Place
from ..nodes.lease_records import Broken, Grants, LeaseNode
from ..service.store import ApplyRefused, CoordinationStore, Delete, NoNode, ReplyLost, Write
from .scopes import clash


@dataclass(frozen=True, slots=True)
class LeaseEntry:
    """A request: `held`, or waiting for the one named in `waits_for` (None: nothing is in its way, its owner is about to see it).

    `since_ms` is the time of the request by its owner's clock; `token` is the holder's fencing token.
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


def place_of_table(session: CoordinationStore, location: str) -> Place:
    """The place of the leases on a table. Raises TableNotFound for a table that the coordinator does not keep."""
    tree = TableTree(location)
    if session.read(tree.root) is None:
        raise TableNotFound(
            f"the coordinator keeps no table at {location}: check the location and the coordinator's address", location=location
        )
    return Place.of_table(tree)


def list_leases(store: CoordinationStore, place: Place) -> list[LeaseEntry]:
    """The requests of a place as of now, in the order they were made."""
    store.barrier()
    found, granted = _requests(store, place)
    entries: list[LeaseEntry] = []
    for n, (name, request, token) in enumerate(found):
        earlier = [each for each in reversed(found[:n]) if each[0].guid != name.guid]
        before = (str(other) for other, theirs, _ in earlier if clash(request, theirs, place.node(other)))
        held = str(name) in granted
        entries.append(
            LeaseEntry(
                lease=str(name),
                held=held,
                waits_for=None if held else next(before, None),
                mode=request.mode,
                where=request.where,
                name=request.name,
                application=request.client.application,
                host=request.client.host,
                pid=request.client.pid,
                since_ms=request.since_ms,
                token=token,
            )
        )
    return entries


def list_broken(store: CoordinationStore, place: Place) -> list[Broken]:
    """The last leases that were broken, oldest first."""
    node = store.read(place.leases)
    grants = None if node is None else Grants.readable(node.data)
    return [] if grants is None else list(grants.broken)


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
        if broken is not None and parent is not None and broken in (Grants.readable(parent.data) or Grants()).broken:
            return broken  # the request took effect, though its reply was lost
        if node is None or parent is None:
            raise InvalidRequest(f"no lease {lease} exists on {place} (any more); `sluice leases` lists those that do", lease=lease)
        request = LeaseNode.understood(node.data)
        who = f"{request.client.application} on {request.client.host} (process {request.client.pid})"
        broken = Broken(lease, request.name, who, by, at_ms, reason)
        children = store.children(place.leases) or []
        grants = Grants.readable(parent.data) or Grants(tuple(name for name in children if LeaseName.parse(name)))
        try:
            store.apply([Delete(path), Write(place.leases, grants.with_broken(broken).encode(), parent.version)])
        except ApplyRefused as refused:
            if isinstance(refused.cause, NoNode):
                broken = None
        except ReplyLost:
            store.barrier()
        else:
            return broken


def _requests(store: CoordinationStore, place: Place) -> tuple[list[tuple[LeaseName, LeaseNode, int]], frozenset[str]]:
    """The requests with their tokens, in order, and the names of those that are granted."""
    parent = store.read(place.leases)
    if parent is None:
        return [], frozenset()
    children = store.children(place.leases) or []
    grants = Grants.readable(parent.data)
    names = sorted(name for name in map(LeaseName.parse, children) if name is not None)
    nodes = store.read_many([place.node(name) for name in names])
    there = [(name, node) for name, node in zip(names, nodes, strict=True) if node is not None]
    found = [(name, LeaseNode.understood(node.data), node.created_zxid) for name, node in there]
    return found, frozenset(children if grants is None else grants.granted)
