"""The coordinator's tree: where things are, and what their names mean (the node protocol).

::

    /tables/<key>                 data: node protocol number and location of the table
    /tables/<key>/head            the compare-and-set point (records.Head)
    /tables/<key>/slots/<gen>     parent of slots only: its counter is the order
        i-<guid>-<sequence>       one intent
    /tables/<key>/verdicts/<gen>-<slot>-<version>-<c|r>   one record per ratified batch, named after the last slot it decided
    /tables/<key>/refused/<day>/t-<guid>   the verdict on a transaction that is in no version, after its batch's record went
    /tables/<key>/published       the highest published version (records.Published)
    /tables/<key>/checkpoint      the last attempt to write a checkpoint (checkpoint_claim.py)
    /tables/<key>/leases          which lease requests are granted (lease_places.py, lease_records.py)
        l-<guid>-<sequence>       one request: ephemeral
    /tables/<key>/pins/p-<guid>   a version that somebody reads: ephemeral (leases/pins.py)
    /tables/<key>/horizon         the version from which on garbage collection keeps files (leases/pins.py)
    /tables/<key>/consumers/<name>   the position of a named consumer of the table's changes (consumer_records.py)
    /tables/<key>/incarnation-<id>   identifies the tree: a rebuilt tree has another one
    /tables/<key>/closed          the table was dropped or forgotten, and its nodes go
    /clients/<id>                 presence of clients: ephemeral (presence.py)
    /graves/<id>                  a client that is gone for good: its files were given to garbage collection
    /open/<plan>                  a planned write that is not committed yet
    /recovering/<key>             ephemeral: the client that rebuilds a table's nodes
    /dropped/<key>                tombstone of a table that was dropped or forgotten (removal.py)
        deleter, left             the client that deletes its data: ephemeral, and persistent until done (removal.py)
    /identity                     the coordinator's id, which its tables name in their properties (coordinator_id.py)
    /tables/<key>/name            the node of the table's name, if it has one (catalog_records.py)
    /catalog                      data: the root of managed tables
    /catalog/namespaces/<ns>      a namespace; nodes have its name in lower case
        <name>                    a name in it: the table's location and id
    /catalog/dropped/<id>         a table that was dropped by its name and can be brought back
    /catalog/changes/<id>         a change whose client has not had its answer yet (catalog/meaning.py)
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final
from urllib.parse import quote

from ...storage.dataclass import dataclass

TABLES = "/tables"
CLIENTS = "/clients"
GRAVES = "/graves"
OPEN = "/open"
RECOVERING = "/recovering"
IDENTITY = "/identity"
DROPPED = "/dropped"
CATALOG = "/catalog"
NAMESPACES = f"{CATALOG}/namespaces"
CATALOG_DROPPED = f"{CATALOG}/dropped"
CATALOG_CHANGES = f"{CATALOG}/changes"

NODES_OF_TABLES: Final = frozenset(
    (
        *("checkpoint", "closed", "consumers", "head", "horizon", "leases"),
        *("name", "pins", "published", "refused", "slots", "verdicts"),
    )
)
"""The names of the nodes directly below a table's, besides its incarnation."""

_SLOT_PREFIX = "i-"
_REFUSAL_PREFIX = "t-"  # a GUID may be "..", which cannot be a node's name
_SEQUENCE_DIGITS = 10
_SEQUENCE_MAX = 2**31 - 1
# A name that differs in any way from these forms is not ours: it could not be rebuilt from its parts.
_SLOT = re.compile(r"i-([A-Za-z0-9._-]{1,100})-([0-9]{10})")
_VERDICT = re.compile(r"([0-9]{6,})-([0-9]{10,})-([0-9]{20})-([cr])")


@dataclass(frozen=True, slots=True, order=True)
class SlotName:
    """The name of a slot: ZooKeeper's sequence gives the order, the GUID names the transaction."""

    sequence: int
    transaction_id: str

    @staticmethod
    def parse(name: str) -> SlotName | None:
        """The parts of a child's name, or None for a node that is not a slot."""
        match = _SLOT.fullmatch(name)
        return None if match is None or int(match[2]) > _SEQUENCE_MAX else SlotName(int(match[2]), match[1])

    def __str__(self) -> str:
        return f"{_SLOT_PREFIX}{self.transaction_id}-{self.sequence:0{_SEQUENCE_DIGITS}d}"


@dataclass(frozen=True, slots=True, order=True)
class VerdictName:
    """The name of a verdict record: the last slot and version of its batch, and whether anything was refused."""

    generation: int
    slot: int
    version: int
    refusals: bool

    @staticmethod
    def parse(name: str) -> VerdictName | None:
        """The parts of a child's name, or None for a node that is not a verdict record."""
        match = _VERDICT.fullmatch(name)
        if match is None:
            return None
        # slot and version are stored plus one, so that "none yet" (-1) needs no sign
        return VerdictName(int(match[1]), int(match[2]) - 1, int(match[3]) - 1, match[4] == "r")

    def __str__(self) -> str:
        return f"{self.generation:06d}-{self.slot + 1:010d}-{self.version + 1:020d}-{'r' if self.refusals else 'c'}"


def newest_first(names: Iterable[str]) -> list[VerdictName]:
    """The verdict records among these names, latest batch first."""
    return sorted((v for v in map(VerdictName.parse, names) if v is not None), reverse=True)


@lru_cache(maxsize=1024)
def _root(location: str) -> str:
    return f"{TABLES}/{quote(location, safe='')}"


@dataclass(frozen=True, slots=True)
class TableTree:
    """The nodes of one table, from its normalised location."""

    location: str

    @property
    def root(self) -> str:
        """The table's node; the location is percent-encoded into one name."""
        return _root(self.location)

    def incarnation(self, identity: str) -> str:
        """The node that only the tree of this identity has."""
        return f"{self.root}/incarnation-{identity}"

    @property
    def closed(self) -> str:
        """The node that exists while a tree is being removed."""
        return f"{self.root}/closed"

    @property
    def tombstone(self) -> str:
        """The record of a table that was dropped or forgotten."""
        return f"{DROPPED}/{self.root.rpartition('/')[2]}"

    @property
    def deleter(self) -> str:
        """The ephemeral node of the client that deletes the data of a dropped table."""
        return f"{self.tombstone}/deleter"

    @property
    def deleter_left(self) -> str:
        """The node left by a client that deleted a dropped table's data and did not say that it was done."""
        return f"{self.tombstone}/left"

    @property
    def name(self) -> str:
        """The node that holds the path of the table's name; tables without a name have none."""
        return f"{self.root}/name"

    @property
    def head(self) -> str:
        """The compare-and-set point."""
        return f"{self.root}/head"

    @property
    def published(self) -> str:
        """The highest published version."""
        return f"{self.root}/published"

    @property
    def checkpoint(self) -> str:
        """The last attempt to write a checkpoint."""
        return f"{self.root}/checkpoint"

    @property
    def consumers(self) -> str:
        """The parent of the consumers' positions."""
        return f"{self.root}/consumers"

    def consumer(self, name: str) -> str:
        """The position of a consumer; its name may be any text."""
        return f"{self.consumers}/{quote(name, safe='').replace('.', '%2E')}"

    @property
    def generations(self) -> str:
        """The parent of the slot generations."""
        return f"{self.root}/slots"

    def slots(self, generation: int) -> str:
        """The parent of one generation's slots."""
        return f"{self.root}/slots/{generation}"

    def slot_prefix(self, generation: int, transaction_id: str) -> str:
        """The prefix that a sequential create completes to a slot."""
        return f"{self.slots(generation)}/{_SLOT_PREFIX}{transaction_id}-"

    def slot(self, generation: int, name: SlotName) -> str:
        """One slot."""
        return f"{self.slots(generation)}/{name}"

    @property
    def verdicts(self) -> str:
        """The parent of the verdict records."""
        return f"{self.root}/verdicts"

    def verdict(self, name: VerdictName) -> str:
        """One verdict record."""
        return f"{self.verdicts}/{name}"

    @property
    def refused(self) -> str:
        """The parent of the days under which verdicts on transactions in no version are kept."""
        return f"{self.root}/refused"

    def refused_on(self, day: int) -> str:
        """The verdicts kept for a day, counted from the epoch (UTC)."""
        return f"{self.refused}/{day}"

    def refusal(self, day: int, transaction_id: str) -> str:
        """The verdict on one transaction, kept for a day."""
        return f"{self.refused_on(day)}/{_REFUSAL_PREFIX}{transaction_id}"
