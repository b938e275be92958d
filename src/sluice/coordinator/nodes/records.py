"""Records: the contents of the nodes of tables and names, with a JSON codec.

Every record has what a later client needs to decide or to publish on its own, and the number of its format. A record of a
known format has known fields only; a client leaves a record with a higher number to a newer release (formats.py).
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import Annotated, Any, ClassVar, Final

import orjson

from ...installation import ENGINE
from ...storage.dataclass import dataclass
from ...storage.errors import TableDropped
from ..errors import ProtocolMismatch, TableMoved, UnknownFormat, table_dropped, table_moved
from ..formats import (
    BATCH_FORMAT,
    CATALOG_FORMAT,
    HEAD_FORMAT,
    INTENT_FORMAT,
    NODE_PROTOCOL,
    PUBLISHED_FORMAT,
    RENDERING,
    MalformedRecord,
    NodeData,
    Record,
    load,
    node_data,
    one_of,
)
from ..rules.intent import ClientName, Intent
from ..rules.refusal import Refusal
from ..service.store import CoordinationStore, Node
from .layout import CATALOG_CHANGES, CATALOG_DROPPED, NAMESPACES, WAITS, LeaseName, TableTree

NO_SLOT: Final = -1
"""The slot of a transaction that has none."""


@node_data("head")
class Head(Record):
    """The decided state of a table: everything a decision needs to know without reading the log.

    `version` is the last ratified one (-1 before the first); `slot` the last decided slot of `generation`; `timestamp_ms`
    that version's in-commit timestamp; `metadata_version` the last version that changed metadata or protocol; `table_id`
    Delta's id of the table; `row_ids` the highest row id given so far (-1: none), None if the table does not track rows.
    `intents` is the highest format of intents that the table's writers file: an intent of a higher format is refused. `digest` is the
    SHA-256 of that version's bytes, `files` the hash of the files live after it (`storage.actions.chain`); both are "" if they were not
    determined yet: then another engine wrote the version, or a release of sluice without chains.
    """

    LATER: ClassVar = frozenset({"digest", "files"})

    version: int = -1
    generation: int = 0
    slot: int = -1
    timestamp_ms: int = 0
    metadata_version: int = -1
    table_id: str = ""
    detached: bool = False
    row_ids: int | None = None
    intents: int = INTENT_FORMAT
    digest: str = ""
    files: str = ""
    format: int = HEAD_FORMAT


@node_data("published")
class Published(Record):
    """How far publication got: `version` is in the log, and every slot up to (`generation`, `slot`) is finished.

    Finished slots are removed together with raising this. `record` names the verdict record of the batch published last. `commits`
    repeats what that record says of the batch's committed slots, so that their owners need not read it: by transaction id the slot, the
    version, the ordinal and the version's timestamp. It may omit any of them; the record has them all.
    """

    version: int = -1
    generation: int = 0
    slot: int = -1
    record: str = ""
    commits: Mapping[str, tuple[int, int, int, int]] = field(default_factory=dict)
    format: int = PUBLISHED_FORMAT

    def covers(self, generation: int, slot: int) -> bool:
        """Whether a decided slot is published, too (or was refused, and the refusal is recorded)."""
        return (self.generation, self.slot) >= (generation, slot)


@node_data("move")
class Move(NodeData):
    """A table's way to another coordinator: what whoever finishes it must know.

    The table goes on there from `head`, after a version that names that coordinator and is rendered from this record alone.
    """

    id: str
    to: str
    """The other coordinator's address, for people and programs, without options."""
    identity: str
    """Its id."""
    head: Head
    previous: str
    """The SHA-256 of the last version here."""
    transaction_id: str
    client: ClientName
    engine: str
    former: tuple[str, ...] = ()
    """The last identities of the table's trees, oldest first."""
    tokens: int = 0
    """No fencing token of the table was higher, before the lease under which it left."""


@node_data("tombstone")
class Tombstone(NodeData):
    """The record of a table whose nodes are gone: it was dropped or forgotten, or it `moved`."""

    last: int
    """The table's last version."""
    at_ms: int
    """When it was removed, in milliseconds since the epoch."""
    deleting: bool = False
    """Whether data remain to be deleted."""
    moved: Move | None = None


def gone_error(location: str, tombstone: Node | None) -> TableMoved | TableDropped:
    """The error for a table whose nodes are closed or gone: it moved, or it was dropped or forgotten."""
    moved = None if tombstone is None else Tombstone.decode(tombstone.data).moved
    return table_dropped(location) if moved is None else table_moved(location, moved.to)


def whereabouts(session: CoordinationStore, tree: TableTree) -> tuple[Node | None, Node | None]:
    """A table's own node, and the tombstone at its location if that node is missing or closed.

    Both are of one moment: a table that left may be back before its tombstone is read.
    """
    root = session.read(tree.root)
    while root is None or is_closed(root):
        tombstone, again = session.read_many([tree.tombstone, tree.root])
        # check: a-table-that-came-back-is-here (again == root -> True)
        if again == root:
            return root, tombstone
        root = again
    return root, None


def need_here(session: CoordinationStore, location: str) -> None:
    """Raise TableMoved if the table at a location went to another coordinator."""
    _, tombstone = whereabouts(session, TableTree(location))
    gone = gone_error(location, tombstone)
    if isinstance(gone, TableMoved):
        raise gone


def root_field(root: Node, name: str) -> Any:
    """A field in the data of a table's own node; None if it has none."""
    try:
        return orjson.loads(root.data).get(name)
    except (orjson.JSONDecodeError, AttributeError):
        return None


def tokens_from(fence: Node | None) -> int:
    """What is added to the numbers of requests to make fencing tokens of them."""
    return 0 if fence is None else int(fence.data)


def require_protocol(root: Node, location: str) -> dict[str, Any]:
    """The fields of a table's own node. Raises ProtocolMismatch if it names another node protocol than this sluice's, or none."""
    fields: dict[str, Any] = {}
    try:
        fields = orjson.loads(root.data)
        protocol = fields.get("protocol")
    except (orjson.JSONDecodeError, AttributeError):
        protocol = root.data[:40]
    if protocol != NODE_PROTOCOL:
        raise ProtocolMismatch(
            f"the coordinator keeps {location} by node protocol {protocol!r}, but this sluice uses {NODE_PROTOCOL}; "
            "use the version of sluice that the other writers use",
            found=protocol,
            expected=NODE_PROTOCOL,
        )
    return fields


def is_closed(root: Node) -> bool:
    """Whether a table's node says that its tree is being removed."""
    return bool(root_field(root, "closed"))


def incarnation_of(root: Node) -> str:
    """The identity of a table's tree, from the table's node; "" if its data do not have one."""
    return str(root_field(root, "incarnation") or "")


def read_intent(data: bytes, head: Head) -> Intent:
    """The intent in an undecided slot.

    Raises MalformedRecord, also for a format that no writer of the table files according to its head; UnknownFormat for one
    that only newer releases file.
    """
    try:
        intent = Intent.decode(data)
    except UnknownFormat as unknown:
        # check: formats-are-admitted (always)
        if unknown.found <= head.intents:
            raise
        raise _not_admitted(unknown.found, head) from unknown
    if intent.format > head.intents:
        raise _not_admitted(intent.format, head)
    return intent


def _not_admitted(number: int, head: Head) -> MalformedRecord:
    text = f"intent.format is {number}, and no writer of this table files a higher one than {head.intents}"
    return MalformedRecord(text, kind="intent")


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of one slot: committed as (`version`, `ordinal`), or refused; `repeats` if it was committed before."""

    slot: int
    transaction_id: str
    version: int = -1
    ordinal: int = -1
    refusal: Refusal | None = None
    repeats: bool = False


@dataclass(frozen=True, slots=True)
class Rebased:
    """A slot's actions after they were adapted to commits that came first; `what` describes the change.

    The actions are in `actions`, or in the object `staged`; `digest` is their SHA-256.
    """

    slot: int
    what: tuple[str, ...]
    actions: str = ""
    staged: str = ""
    digest: str = ""


@dataclass(frozen=True, slots=True)
class VersionPlan:
    """One ratified version: its slots in the order of their actions, its in-commit timestamp and its digest.

    `rebased` replaces the actions of a slot's intent; `first_row_id` is where the row ids of its new files begin, None in a
    table that does not track rows. `joint` has, by location, the versions that were ratified together in several tables, its
    own included. `previous` and `files` are what its commitInfo says of the chain; both are "" in the records of a release without chains.
    """

    version: int
    timestamp_ms: int
    slots: tuple[int, ...]
    digest: str = ""
    rebased: tuple[Rebased, ...] = ()
    first_row_id: int | None = None
    joint: Mapping[str, int] | None = None
    previous: str = ""
    files: str = ""


@dataclass(frozen=True, slots=True)
class Rendering:
    """What a version's bytes depend on besides its plan and its transactions, as recorded by its ratifier.

    `ratified_ms` is the ratifier's wall clock (shown, never decided on), `engine` the name it signs versions with, `number`
    the number of the rendering. A client that helps to publish takes all of it from here, and nothing from its own process.
    """

    ratified_ms: int
    engine: str = ENGINE
    number: int = RENDERING


@node_data("verdict")
class BatchRecord(Record):
    """What one ratifying multi decided, and how its versions are rendered.

    `direct` is the intent of a transaction that was ratified without a slot; its verdict and version name slot NO_SLOT.
    """

    LATER: ClassVar = frozenset({"previous", "files"})
    CHANGED: ClassVar = False

    batch_id: str
    generation: int
    rendering: Rendering
    verdicts: tuple[Verdict, ...]
    versions: tuple[VersionPlan, ...]
    direct: str = ""
    format: int = BATCH_FORMAT

    @property
    def last_version(self) -> int | None:
        """The highest version this batch ratified, or None if it only refused."""
        return self.versions[-1].version if self.versions else None

    def commits(self, most: int) -> dict[str, tuple[int, int, int, int]]:
        """Up to `most` of its committed slots, in the form of `Published.commits`."""
        timestamps = {plan.version: plan.timestamp_ms for plan in self.versions}
        # check: published-tells-of-commits-only (without and not v.repeats)
        committed = [v for v in self.verdicts if v.slot != NO_SLOT and v.refusal is None and not v.repeats and v.version in timestamps]
        return {v.transaction_id: (v.slot, v.version, v.ordinal, timestamps[v.version]) for v in committed[:most]}

    def verdict_of(self, slot: int) -> Verdict | None:
        """The verdict of one slot, or None if this batch did not decide it."""
        for verdict in self.verdicts:
            if verdict.slot == slot:
                return verdict
        return None


def is_batch(data: bytes, batch_id: str) -> bool:
    """Whether a verdict record is this batch's, whatever its format."""
    return bool(load(data, "verdict").get("batch_id") == batch_id)


# -- leases ----------------------------------------------------------------------------------------------------------------

SHARED: Final = "shared"
EXCLUSIVE: Final = "exclusive"
MODES: Final = (SHARED, EXCLUSIVE)
PASSING: Final = "commit"
"""A commit waiting in the lease queue: it keeps out leases, but no commits."""
TURN: Final = "turn"
"""A turn reserved for the next attempt of a transaction that lost: it keeps out changes of what it covers, except plain appends."""

_BROKEN_KEPT: Final = 20


@node_data("lease")
class LeaseNode(NodeData):
    """A request: immutable while it exists, gone when it is released or its owner's session ends.

    `where` is a condition over the table's partition columns, whose types are in `partition_types`; "" is everything.
    `holds` are the nodes its owner held when asking: they are not in its own way. `name` is for people, `since_ms` the
    owner's wall clock when it asked (shown, never decided on).
    """

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


@node_data("grants")
class Grants(NodeData):
    """The granted requests of a place, by the names of their nodes; one whose node is gone was released.

    Every grant is written here in the multi that makes it, so the version of the node's data tells a committer whether its
    view of the grants is current.
    """

    granted: tuple[str, ...] = ()
    broken: tuple[Broken, ...] = ()

    @staticmethod
    def understood(data: bytes, children: Iterable[str]) -> Grants:
        """Decode what another client wrote: if it cannot be read, every one of the place's requests may have been granted."""
        return Grants.readable(data) or Grants(tuple(name for name in children if LeaseName.parse(name) is not None))

    def with_granted(self, names: Sequence[str], *, existing: Sequence[str]) -> Grants:
        """With more grants, and without those whose nodes are gone."""
        there = set(existing)
        return replace(self, granted=tuple(dict.fromkeys([*(n for n in self.granted if n in there), *names])))

    def with_broken(self, broken: Broken) -> Grants:
        """With one lease broken; keeps the last few."""
        left = tuple(n for n in self.granted if n != broken.node)
        return Grants(left, (*self.broken, broken)[-_BROKEN_KEPT:])


@node_data("wait")
class WaitNode(NodeData):
    """A client that waits while it holds other leases (`holds`), or in several places at once.

    In each of `places` (parents of requests) its request, of `guid`, waits for earlier ones. `waits_for` are nodes that it
    waits for directly: a commit that waits for a lease.
    """

    guid: str
    places: tuple[str, ...] = ()
    holds: tuple[str, ...] = ()
    waits_for: tuple[str, ...] = ()

    @property
    def path(self) -> str:
        """The node's path."""
        return f"{WAITS}/w-{self.guid}"


# -- names: the nodes below `/catalog` ---------------------------------------------------------------------------------------

# A name is looked up without regard to case, so nodes are named in lower case; the record keeps the spelling. A table's own
# node `name` leads back from the table to its name: a table has one name at most.

DEFAULT: Final = "default"
"""The namespace of names with one part; it always exists."""


def key_of(name: str) -> str:
    """What two spellings of one name have in common: a node's name."""
    return unicodedata.normalize("NFC", name.lower())


def namespace_path(namespace: str) -> str:
    """The node of a namespace."""
    return f"{NAMESPACES}/{key_of(namespace)}"


def name_path(namespace: str, name: str) -> str:
    """The node of a table's name."""
    return f"{namespace_path(namespace)}/{key_of(name)}"


def ensure_catalog(session: CoordinationStore) -> None:
    """Make the nodes that all names share, with the namespace `default`."""
    for path in (namespace_path(DEFAULT), CATALOG_DROPPED, CATALOG_CHANGES):
        session.ensure_path(path)


@node_data("catalog")
class CatalogRecord(Record):
    """The data of `/catalog`: the normalised location below which managed tables are made; "" if none is set."""

    root: str = ""
    format: int = CATALOG_FORMAT

    @staticmethod
    def of(node: Node | None) -> CatalogRecord:
        """The record of a node; an empty one for a node without data."""
        return CatalogRecord() if node is None or not node.data else CatalogRecord.decode(node.data)


@node_data("namespace")
class NamespaceRecord(Record):
    """A namespace as it was spelled; `location` is where its managed tables are made, "" for the default below the root."""

    name: str = DEFAULT
    location: str = ""
    comment: str = ""
    properties: Mapping[str, str] = field(default_factory=dict)
    created_ms: int = 0
    format: int = CATALOG_FORMAT

    @staticmethod
    def of(node: Node | None) -> NamespaceRecord:
        """The record of a node; an empty one for a node without data, like that of `default`."""
        return NamespaceRecord() if node is None or not node.data else NamespaceRecord.decode(node.data)


@node_data("name")
class NameRecord(Record):
    """A table's name as it was spelled, without its namespace.

    It counts while the table at `location` is the one of `table_id` (Delta's id). `managed`: the catalog chose the location.
    `creator` is empty, and was not in earlier versions.
    """

    name: str
    location: str
    table_id: str
    managed: bool = False
    named_ms: int = 0
    creator: str = ""
    format: int = CATALOG_FORMAT


@node_data("dropped table")
class DroppedRecord(Record):
    """A table that was dropped by its name: the name it had, when and by whom. `purging`: its data are being deleted."""

    namespace: str
    name: str
    location: str
    table_id: str
    managed: bool
    dropped_ms: int
    by: str = ""
    purging: bool = False
    format: int = CATALOG_FORMAT
