"""Where things are in the coordinator's tree, and what the names mean (the node protocol).

::

    /tables/<key>                 data: node protocol number and location of the table
    /tables/<key>/head            the compare-and-set point (records.Head)
    /tables/<key>/slots/<gen>     parent of slots only: its counter is the order
        i-<guid>-<sequence>       one intent
    /tables/<key>/verdicts/<gen>-<slot>-<version>-<c|r>   one record per ratified batch, named by what it decided last
    /tables/<key>/refused/<day>/t-<guid>   the verdict on a transaction that is in no version, once its batch's record went
    /tables/<key>/published       the highest published version (records.Published)
    /tables/<key>/checkpoint      who tried to write the next checkpoint (checkpoint_claim.py)
    /tables/<key>/incarnation-<id>   which tree this is: a tree that was rebuilt has another one
    /clients/<id>                 presence of clients: ephemeral (presence.py)
    /graves/<id>                  a client that is gone for good: its files were given to garbage collection
    /open/<plan>                  a write that was planned and is not committed yet
    /recovering/<key>             ephemeral: who is rebuilding a table's nodes
    /dropped/<key>                what is left of a table that was dropped or forgotten (removal.py)
        deleter, left             who deletes its data: ephemeral, and what stays until that is done (deleting.py)
    /identity                     the coordinator's id, which its tables name in their properties (coordinator_id.py)
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from urllib.parse import quote

from ...storage.dataclass import dataclass

__all__ = [
    "CLIENTS",
    "DROPPED",
    "GRAVES",
    "IDENTITY",
    "OPEN",
    "RECOVERING",
    "TABLES",
    "SlotName",
    "TableTree",
    "VerdictName",
    "newest_first",
]

TABLES = "/tables"
CLIENTS = "/clients"
GRAVES = "/graves"
OPEN = "/open"
RECOVERING = "/recovering"
IDENTITY = "/identity"
DROPPED = "/dropped"

_SLOT_PREFIX = "i-"
_REFUSAL_PREFIX = "t-"  # a GUID may be "..", which is no name of a node
_SEQUENCE_DIGITS = 10
_SEQUENCE_MAX = 2**31 - 1
# What is not exactly what is written here is nothing of ours: its name could not be made again from its parts.
_SLOT = re.compile(r"i-([A-Za-z0-9._-]{1,100})-([0-9]{10})")
_VERDICT = re.compile(r"([0-9]{6,})-([0-9]{10,})-([0-9]{20})-([cr])")


@dataclass(frozen=True, slots=True, order=True)
class SlotName:
    """The name of a slot: ZooKeeper's sequence gives the order, the GUID tells whose it is."""

    sequence: int
    transaction_id: str

    @staticmethod
    def parse(name: str) -> SlotName | None:
        """The parts of a child's name, or None for a node that is no slot."""
        match = _SLOT.fullmatch(name)
        return None if match is None or int(match[2]) > _SEQUENCE_MAX else SlotName(int(match[2]), match[1])

    def __str__(self) -> str:
        return f"{_SLOT_PREFIX}{self.transaction_id}-{self.sequence:0{_SEQUENCE_DIGITS}d}"


@dataclass(frozen=True, slots=True, order=True)
class VerdictName:
    """The name of a verdict record: the last slot and version its batch decided, and whether anything was refused."""

    generation: int
    slot: int
    version: int
    refusals: bool

    @staticmethod
    def parse(name: str) -> VerdictName | None:
        """The parts of a child's name, or None for a node that is no verdict record."""
        match = _VERDICT.fullmatch(name)
        if match is None:
            return None
        # slot and version are stored one higher, so that "none yet" (-1) needs no sign
        return VerdictName(int(match[1]), int(match[2]) - 1, int(match[3]) - 1, match[4] == "r")

    def __str__(self) -> str:
        return f"{self.generation:06d}-{self.slot + 1:010d}-{self.version + 1:020d}-{'r' if self.refusals else 'c'}"


def newest_first(names: Iterable[str]) -> list[VerdictName]:
    """The verdict records among these names, the latest batch first."""
    return sorted((v for v in map(VerdictName.parse, names) if v is not None), reverse=True)


@lru_cache(maxsize=1024)
def _root(location: str) -> str:
    return f"{TABLES}/{quote(location, safe='')}"


@dataclass(frozen=True, slots=True)
class TableTree:
    """The nodes of one table, by its normalised location."""

    location: str

    @property
    def root(self) -> str:
        """The table's node; the location is percent-encoded into one name."""
        return _root(self.location)

    def incarnation(self, identity: str) -> str:
        """What only the tree of this identity has."""
        return f"{self.root}/incarnation-{identity}"

    @property
    def closed(self) -> str:
        """What is there while a tree is being removed."""
        return f"{self.root}/closed"

    @property
    def tombstone(self) -> str:
        """What is left of a table that was dropped or forgotten."""
        return f"{DROPPED}/{self.root.rpartition('/')[2]}"

    @property
    def deleter(self) -> str:
        """The ephemeral node of the client that deletes the data of a dropped table."""
        return f"{self.tombstone}/deleter"

    @property
    def deleter_left(self) -> str:
        """What stays of somebody who deleted the data of a dropped table and did not say that it is done."""
        return f"{self.tombstone}/left"

    @property
    def head(self) -> str:
        """The compare-and-set point."""
        return f"{self.root}/head"

    @property
    def published(self) -> str:
        """The highest published version."""
        return f"{self.root}/published"

    @property
    def losses(self) -> str:
        """What lost and may be repeated by another process."""
        return f"{self.root}/losses"

    @property
    def checkpoint(self) -> str:
        """The last attempt to write a checkpoint."""
        return f"{self.root}/checkpoint"

    @property
    def generations(self) -> str:
        """The parent of the slot generations."""
        return f"{self.root}/slots"

    def slots(self, generation: int) -> str:
        """The parent of one generation's slots."""
        return f"{self.root}/slots/{generation}"

    def slot_prefix(self, generation: int, transaction_id: str) -> str:
        """What a sequential create completes to a slot."""
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
        """The parent of the days on which verdicts were put away that no version tells."""
        return f"{self.root}/refused"

    def refused_on(self, day: int) -> str:
        """What was put away on a day, counted from the epoch (UTC)."""
        return f"{self.refused}/{day}"

    def refusal(self, day: int, transaction_id: str) -> str:
        """The verdict on one transaction, put away on a day."""
        return f"{self.refused_on(day)}/{_REFUSAL_PREFIX}{transaction_id}"
