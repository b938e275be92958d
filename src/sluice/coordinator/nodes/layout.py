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
    /tables/<key>/leases          the granted and the broken lease requests (records.Grants); every change changes its data version
        l-<guid>-<sequence>       one request: ephemeral, immutable (records.LeaseNode); the parent's counter is the order
    /tables/<key>/pins/p-<guid>   a version that somebody reads: ephemeral (leases/pins.py)
    /tables/<key>/horizon         the version from which on garbage collection keeps files (leases/pins.py)
    /tables/<key>/examined        changed when a daemon examines the table (examination.py)
    /tables/<key>/consumers/<name>   the position of a named consumer of the table's changes (leases/consumers.py)
    /tables/<key>/counters        the next numbers of identity columns (counters.py)
    /tables/<key>/incarnation-<id>   identifies the tree: a rebuilt tree has another one
    /tables/<key>/closed          the table was dropped or forgotten, and its nodes go
    /names/<name>/leases          the same for a name that is not a table
    /waits/w-<guid>               a client that waits while it holds something, or for several leases: ephemeral (records.WaitNode)
    /clients/<id>                 presence of clients: ephemeral (presence.py)
    /graves/<id>                  a client that is gone for good: its files were given to garbage collection
    /open/<plan>                  a planned write that is not committed yet
    /recovering/<key>             ephemeral: the client that rebuilds a table's nodes
    /arriving/<id>                a table is on its way to this coordinator (commit/moving.py)
    /dropped/<key>                tombstone of a table that was dropped, forgotten or moved away (removal.py)
        deleter, left             the client that deletes its data: ephemeral, and persistent until done (removal.py)
    /fence                        what is added to numbers of requests to make fencing tokens of them, after a loss of data (creation.py)
    /restored                     the id of the coordinator whose backup was put into this tree (preserving.py)
    /identity                     the coordinator's id, which its tables name in their properties (creation.py)
    /tables/<key>/name            the path of the node of the table's name, if it has one (records.py)
    /quotas                       what each application may use of each table (quotas.py)
    /contention                   rows of refusals and waits, until they are in a table (contention.py)
    /catalog                      data: the root of managed tables
    /catalog/namespaces/<ns>      a namespace; nodes have its name in lower case
        <name>                    a name in it: the table's location and id
    /catalog/dropped/<id>         a table that was dropped by its name and can be brought back
    /catalog/changes/<id>         a change whose client has not had its answer yet (catalog/names.py)
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final
from urllib.parse import quote, unquote

from ...storage.dataclass import dataclass

TABLES = "/tables"
CLIENTS = "/clients"
GRAVES = "/graves"
OPEN = "/open"
RECOVERING = "/recovering"
ARRIVING = "/arriving"
IDENTITY = "/identity"
FENCE = "/fence"
RESTORED = "/restored"
DROPPED = "/dropped"
NAMES = "/names"
WAITS = "/waits"
QUOTAS = "/quotas"
CATALOG = "/catalog"
NAMESPACES = f"{CATALOG}/namespaces"
CATALOG_DROPPED = f"{CATALOG}/dropped"
CATALOG_CHANGES = f"{CATALOG}/changes"

NODES_OF_TABLES: Final = frozenset(
    "checkpoint closed consumers counters examined head horizon leases name pins published refused slots verdicts".split()  # noqa: SIM905
)
"""The names of the nodes directly below a table's, besides its incarnation."""

_SEQUENCE_MAX = 2**31 - 1
# A name that differs in any way from these forms is not ours: it could not be rebuilt from its parts.
_SLOT = re.compile(r"i-([A-Za-z0-9._-]{1,100})-([0-9]{10})")
_VERDICT = re.compile(r"([0-9]{6,})-([0-9]{10,})-([0-9]{20})-([cr])")
_LEASE = re.compile(r"l-(.+)-([0-9]{10})", re.DOTALL)


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
        return f"i-{self.transaction_id}-{self.sequence:010d}"


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
    return sorted(filter(None, map(VerdictName.parse, names)), reverse=True)


class TableTree:
    """The nodes of one table, from its normalised location, which is percent-encoded into one name. The module says what each is."""

    def __init__(self, location: str) -> None:
        self.location = location
        key = quote(location, safe="")
        self.root = f"{TABLES}/{key}"
        self.tombstone = f"{DROPPED}/{key}"
        self.deleter = f"{self.tombstone}/deleter"
        self.deleter_left = f"{self.tombstone}/left"
        self.closed = f"{self.root}/closed"
        self.name = f"{self.root}/name"
        self.head = f"{self.root}/head"
        self.published = f"{self.root}/published"
        self.checkpoint = f"{self.root}/checkpoint"
        self.pins = f"{self.root}/pins"
        self.horizon = f"{self.root}/horizon"
        self.examined = f"{self.root}/examined"
        self.consumers = f"{self.root}/consumers"
        self.counters = f"{self.root}/counters"
        self.generations = f"{self.root}/slots"
        self.verdicts = f"{self.root}/verdicts"
        self.refused = f"{self.root}/refused"

    def incarnation(self, identity: str) -> str:
        """The node that only the tree of this identity has."""
        return f"{self.root}/incarnation-{identity}"

    def consumer(self, name: str) -> str:
        """The position of a consumer; its name may be any text."""
        return f"{self.consumers}/{_one_name(name)}"

    def slots(self, generation: int) -> str:
        """The parent of one generation's slots."""
        return f"{self.generations}/{generation}"

    def slot_prefix(self, generation: int, transaction_id: str) -> str:
        """The prefix that a sequential create completes to a slot."""
        return f"{self.slots(generation)}/i-{transaction_id}-"

    def slot(self, generation: int, name: SlotName) -> str:
        """One slot."""
        return f"{self.slots(generation)}/{name}"

    def verdict(self, name: VerdictName) -> str:
        """One verdict record."""
        return f"{self.verdicts}/{name}"

    def refused_on(self, day: int) -> str:
        """The verdicts kept for a day, counted from the epoch (UTC)."""
        return f"{self.refused}/{day}"

    def refusal(self, day: int, transaction_id: str) -> str:
        """The verdict on one transaction, kept for a day."""
        return f"{self.refused_on(day)}/t-{transaction_id}"  # an id may be "..", which cannot be a node's name


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """What leases are taken on: a table or a name, given by its node."""

    root: str

    @staticmethod
    def of_table(tree: TableTree) -> Place:
        """A table."""
        return Place(tree.root)

    @staticmethod
    def of_name(name: str) -> Place:
        """A name that is not a table; any text."""
        return Place(f"{NAMES}/{_one_name(name)}")

    @staticmethod
    def of_node(path: str) -> Place | None:
        """The place of a lease's node; None for any other path, since paths come from others' intents."""
        parts = path.split("/")
        proper = len(parts) == 5 and not parts[0] and f"/{parts[1]}" in (TABLES, NAMES) and parts[3] == "leases"
        if not proper or parts[2] in ("", ".", "..") or "\0" in path or LeaseName.parse(parts[4]) is None:
            return None
        return Place("/".join(parts[:3]))

    @property
    def leases(self) -> str:
        """The parent of the requests."""
        return f"{self.root}/leases"

    def node(self, name: LeaseName | str) -> str:
        """One request."""
        return f"{self.leases}/{name}"

    def __str__(self) -> str:
        return unquote(self.root.rpartition("/")[2])


@dataclass(frozen=True, slots=True, order=True)
class LeaseName:
    """The name of a request: ZooKeeper's sequence gives the order, the GUID names the call that made it."""

    sequence: int
    guid: str

    @staticmethod
    def parse(name: str) -> LeaseName | None:
        """The parts of a child's name, or None for a node that is not a request."""
        match = _LEASE.fullmatch(name)
        return None if match is None else LeaseName(int(match[2]), match[1])

    @staticmethod
    def prefix(guid: str) -> str:
        """The prefix that a sequential create completes to a name."""
        return f"l-{guid}-"

    def __str__(self) -> str:
        return f"{self.prefix(self.guid)}{self.sequence:010d}"


def _one_name(text: str) -> str:
    """Any text as the name of a node, which cannot be "." or ".."."""
    return quote(text, safe="").replace(".", "%2E")
