"""Contents of the nodes of leases.

::

    /tables/<key>/leases          data: the granted and the broken requests (Grants); every change changes its data version
        l-<guid>-<sequence>       one request: ephemeral, immutable (LeaseNode); the parent's counter is the order
    /names/<name>/leases          the same for names that are not tables
    /waits/w-<guid>               ephemeral: a client that waits while it holds something, or for several leases (WaitNode)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Annotated, ClassVar, Final

from ...storage.dataclass import dataclass
from ..formats import MalformedRecord, NodeData, node_data, one_of
from ..rules.intent import ClientName

WAITS: Final = "/waits"
SHARED: Final = "shared"
EXCLUSIVE: Final = "exclusive"
MODES: Final = (SHARED, EXCLUSIVE)
PASSING: Final = "commit"
"""A commit waiting in the lease queue: it keeps out leases, but no commits."""
TURN: Final = "turn"
"""A turn reserved for the next attempt of a transaction that lost: it keeps out changes of what it covers, except plain appends."""

_BROKEN_KEPT: Final = 20


@node_data
class LeaseNode(NodeData):
    """A request: immutable while it exists, gone when it is released or its owner's session ends.

    `where` is a condition over the table's partition columns, whose types are in `partition_types`; "" is everything.
    `holds` are the nodes its owner held when asking: they are not in its own way. `name` is for people, `since_ms` the
    owner's wall clock when it asked (shown, never decided on).
    """

    KIND: ClassVar = "lease"

    mode: Annotated[str, one_of(*MODES, PASSING, TURN)]
    where: str = ""
    partition_types: Mapping[str, str] = field(default_factory=dict)
    name: str = ""
    client: ClientName = field(default_factory=ClientName)
    since_ms: int = 0
    holds: tuple[str, ...] = ()

    @staticmethod
    def understood(data: bytes) -> LeaseNode:
        """Decode what another client wrote: a request that cannot be read asks for everything."""
        try:
            return LeaseNode.decode(data)
        except MalformedRecord as problem:
            return LeaseNode(EXCLUSIVE, name=f"(unreadable: {problem.message})")


@dataclass(frozen=True, slots=True)
class Broken:
    """A lease that was broken: its node's name, its holder, who broke it, and when (by that client's clock)."""

    node: str
    name: str
    holder: str
    by: str
    at_ms: int
    reason: str = ""


@node_data
class Grants(NodeData):
    """The granted requests of a place, by the names of their nodes; one whose node is gone was released.

    Every grant is written here in the multi that makes it, so the version of the node's data tells a committer whether its
    view of the grants is current. If they cannot be read, every request may have been granted.
    """

    KIND: ClassVar = "grants"

    granted: tuple[str, ...] = ()
    broken: tuple[Broken, ...] = ()

    def with_granted(self, names: Sequence[str], *, existing: Sequence[str]) -> Grants:
        """With more grants, and without those whose nodes are gone."""
        there = set(existing)
        return replace(self, granted=tuple(dict.fromkeys([*(n for n in self.granted if n in there), *names])))

    def with_broken(self, broken: Broken) -> Grants:
        """With one lease broken; keeps the last few."""
        left = tuple(n for n in self.granted if n != broken.node)
        return Grants(left, (*self.broken, broken)[-_BROKEN_KEPT:])


@node_data
class WaitNode(NodeData):
    """A client that waits while it holds other leases (`holds`), or in several places at once.

    In each of `places` (parents of requests) its request, of `guid`, waits for earlier ones. `waits_for` are nodes that it
    waits for directly: a commit that waits for a lease.
    """

    KIND: ClassVar = "wait"

    guid: str
    places: tuple[str, ...] = ()
    holds: tuple[str, ...] = ()
    waits_for: tuple[str, ...] = ()

    @property
    def path(self) -> str:
        """The node's path."""
        return f"{WAITS}/w-{self.guid}"
