"""The nodes of leases: where they are, and what they hold.

::

    /tables/<key>/leases          data: which requests are granted, and which were broken (Grants); its data version moves with each
        l-<guid>-<sequence>       one request: ephemeral, immutable (LeaseNode); the parent's counter is the order
    /names/<name>/leases          the same for names that are no tables
    /waits/w-<guid>               ephemeral: who waits while holding something else, or for several at once (WaitNode)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Any, Final

import orjson

from ...storage.dataclass import dataclass
from ..fields import MalformedRecord, load, strings, typed
from ..rules.intent import ClientName
from .lease_places import NAMES, LeaseName, Place

__all__ = [
    "EXCLUSIVE",
    "MODES",
    "NAMES",
    "PASSING",
    "SHARED",
    "TURN",
    "WAITS",
    "Broken",
    "Grants",
    "LeaseName",
    "LeaseNode",
    "Place",
    "WaitNode",
]

WAITS: Final = "/waits"
SHARED: Final = "shared"
EXCLUSIVE: Final = "exclusive"
MODES: Final = (SHARED, EXCLUSIVE)
PASSING: Final = "commit"
"""The place in the queue of a commit that waits for a lease: it keeps out leases, and no commits."""
TURN: Final = "turn"
"""What a transaction that lost before reserves for its next attempt: it keeps out what changes something there, but plain appends."""

_BROKEN_KEPT: Final = 20


@dataclass(frozen=True, slots=True)
class LeaseNode:
    """A request: immutable from the moment it exists, gone when it is released or its owner's session is.

    `where` is a condition over the table's partition columns, whose types are in `partition_types`; "" is everything.
    `holds` are the nodes its owner held when asking: they are not in its own way. `name` is what people call it,
    `since_ms` the owner's wall clock when it asked (told, never decided on).
    """

    mode: str
    where: str = ""
    partition_types: Mapping[str, str] = field(default_factory=dict)
    name: str = ""
    client: ClientName = field(default_factory=ClientName)
    since_ms: int = 0
    holds: tuple[str, ...] = ()

    def encode(self) -> bytes:
        """As JSON."""
        return orjson.dumps(self)

    @staticmethod
    def decode(data: bytes) -> LeaseNode:
        """From JSON; raises MalformedRecord."""
        f = load(data, "lease")
        client = typed(f.get("client", {}), dict, "lease.client")
        types = typed(f.get("partition_types", {}), dict, "lease.partition_types")
        mode = _mode(f.get("mode"))
        return LeaseNode(
            mode=mode,
            where=typed(f.get("where", ""), str, "lease.where"),
            partition_types={str(k): typed(v, str, "lease.partition_types") for k, v in types.items()},
            name=typed(f.get("name", ""), str, "lease.name"),
            client=ClientName(
                typed(client.get("host", ""), str, "lease.client.host"),
                typed(client.get("pid", 0), int, "lease.client.pid"),
                typed(client.get("application", ""), str, "lease.client.application"),
            ),
            since_ms=typed(f.get("since_ms", 0), int, "lease.since_ms"),
            holds=strings(f.get("holds", []), "lease.holds"),
        )

    @staticmethod
    def understood(data: bytes) -> LeaseNode:
        """The same for what others wrote: a request that cannot be read asks for everything."""
        try:
            return LeaseNode.decode(data)
        except MalformedRecord as problem:
            return LeaseNode(EXCLUSIVE, name=f"(unreadable: {problem.message})")


def _mode(value: object) -> str:
    """ "shared", "exclusive", "commit" or "turn". Raises MalformedRecord."""
    mode = typed(value, str, "lease.mode")
    known = (*MODES, PASSING, TURN)
    if mode not in known:
        raise MalformedRecord(f"lease.mode is {mode!r}; use one of {', '.join(known)}", kind="lease.mode")
    return mode


@dataclass(frozen=True, slots=True)
class Broken:
    """A lease that somebody took from its holder: its node's name, whose it was, who did it and when (by that one's clock)."""

    node: str
    name: str
    holder: str
    by: str
    at_ms: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Grants:
    """Which requests of a place are granted, by the names of their nodes; one that is not there any more was released.

    Every grant is written here in the multi that makes it, so that the version of the node's data tells a committer
    whether its view of the granted leases is the present one.
    """

    granted: tuple[str, ...] = ()
    broken: tuple[Broken, ...] = ()

    def encode(self) -> bytes:
        """As JSON."""
        return orjson.dumps(self)

    @staticmethod
    def decode(data: bytes) -> Grants | None:
        """From JSON; None for what cannot be read: then everybody who asked may have been granted it."""
        if not data:
            return Grants()
        try:
            f = load(data, "grants")
            broken = tuple(Broken(**{k: v for k, v in b.items() if k in Broken.__slots__}) for b in f.get("broken", ()))
            return Grants(strings(f.get("granted", []), "grants.granted"), broken)
        except (MalformedRecord, TypeError, AttributeError):
            return None

    def with_granted(self, names: Sequence[str], *, existing: Sequence[str]) -> Grants:
        """With more granted, and without those that are gone."""
        there = set(existing)
        return replace(self, granted=tuple(dict.fromkeys([*(n for n in self.granted if n in there), *names])))

    def with_broken(self, broken: Broken) -> Grants:
        """With one taken away; the last few are remembered."""
        left = tuple(n for n in self.granted if n != broken.node)
        return Grants(left, (*self.broken, broken)[-_BROKEN_KEPT:])


@dataclass(frozen=True, slots=True)
class WaitNode:
    """Somebody waits who holds other leases (`holds`), or waits in several places at once.

    What it waits for: in each of `places` (parents of requests) the request of `guid` waits for those before it; and for
    the nodes `waits_for`, where a commit waits for a lease.
    """

    guid: str
    places: tuple[str, ...] = ()
    holds: tuple[str, ...] = ()
    waits_for: tuple[str, ...] = ()

    @property
    def path(self) -> str:
        """Where it is kept."""
        return f"{WAITS}/w-{self.guid}"

    def encode(self) -> bytes:
        """As JSON."""
        return orjson.dumps(self)

    @staticmethod
    def decode(data: bytes) -> WaitNode | None:
        """From JSON; None for what cannot be read."""
        try:
            f: dict[str, Any] = load(data, "wait")
            lists = {name: strings(f.get(name, []), f"wait.{name}") for name in ("places", "holds", "waits_for")}
            return WaitNode(typed(f.get("guid"), str, "wait.guid"), **lists)
        except MalformedRecord:
            return None
