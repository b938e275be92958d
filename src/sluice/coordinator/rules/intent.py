"""The intent: all that any client needs to decide and publish a transaction without its owner; with its terms, level, policy and kind.

It declares what the transaction read; what it does, its actions say (`footprint`). The intents of a transaction over several
tables name all of them: one multi makes their slots, so the slots of two such transactions have the same order in all tables
they share, and a client that meets one slot can find the others.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import field
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, TypeVar

from ...storage.actions import AddFile, RemoveFile
from ...storage.arguments import RULES, check_key
from ...storage.dataclass import dataclass
from ...storage.errors import InvalidRequest
from ...storage.stores.location import SCHEMES, normalise
from ..formats import INTENT_FORMAT, MalformedRecord, Record, node_data, one_of
from ..limits import DEFAULT_TIMEOUT_S

if TYPE_CHECKING:
    from ..service.clock import Timeout

ISOLATION_PROPERTY = "delta.isolationLevel"
POLICY_PROPERTY = "sluice.conflictPolicy"
_E = TypeVar("_E", bound=Enum)

# Operations in Delta's commitInfo that say more than the actions do; for others the actions decide.
_REPLACING: Final = ("TRUNCATE", "RESTORE", "CLONE", "REPLACE TABLE", "CREATE OR REPLACE TABLE")
_CHANGING: Final = ("DELETE", "UPDATE", "MERGE")
ADOPTING: Final = "ADOPT"
"""The operation that makes files which other programs wrote a table's own."""


class IsolationLevel(str, Enum):
    """How strict a commit is about what others committed since it read; the strictest first. Delta Lake's names and meaning."""

    SERIALIZABLE = "Serializable"
    """The log is a serial order of all reads and writes."""
    WRITE_SERIALIZABLE = "WriteSerializable"
    """Writes are serializable, but blind appends may be later in the log than in the serial order."""
    SNAPSHOT = "SnapshotIsolation"
    """Only writes are compared; used for commits that reorganise without changing data."""


class ConflictPolicy(str, Enum):
    """Whose rules decide conflicts; chosen per table."""

    DELTA = "delta"
    """Delta Lake's rules, at the table's isolation level."""
    DATABRICKS = "databricks"
    """The tables of Databricks' documentation, cell by cell; every change of protocol or metadata stops all concurrent writes."""
    MAXCOMPUTE_TABLE = "maxcompute-table"
    """MaxCompute's ordinary tables."""
    MAXCOMPUTE_TRANSACTIONAL = "maxcompute-transactional"
    """MaxCompute's transactional tables."""
    MAXCOMPUTE_DELTA = "maxcompute-delta"
    """MaxCompute's Delta tables."""

    @property
    def by_classes(self) -> bool:
        """Whether it compares classes of operations by partition, and neither files nor rows."""
        return self not in (ConflictPolicy.DELTA, ConflictPolicy.DATABRICKS)


def table_isolation(configuration: Mapping[str, str]) -> IsolationLevel:
    """The level in a table's properties; WriteSerializable by default. Raises InvalidRequest."""
    return _named(IsolationLevel, configuration.get(ISOLATION_PROPERTY, IsolationLevel.WRITE_SERIALIZABLE.value), ISOLATION_PROPERTY)


def table_policy(configuration: Mapping[str, str]) -> ConflictPolicy:
    """The conflict policy in a table's properties; Delta's by default. Raises InvalidRequest."""
    return _named(ConflictPolicy, configuration.get(POLICY_PROPERTY, ConflictPolicy.DELTA.value), POLICY_PROPERTY)


def stricter(table: IsolationLevel, asked: str | IsolationLevel | None) -> IsolationLevel:
    """The level of one transaction: the table's, or a stricter one if requested. Raises InvalidRequest for a weaker one."""
    if asked is None:
        return table
    level, by_strength = _named(IsolationLevel, asked, "isolation"), list(IsolationLevel)
    if by_strength.index(level) > by_strength.index(table):
        raise InvalidRequest(
            f"isolation={level.value!r} is weaker than the table's {table.value}; a transaction may only be stricter than its table",
            value=level.value,
            table=table.value,
        )
    return level


def _named(kind: type[_E], value: str, what: str) -> _E:
    try:
        return kind(value)
    except ValueError:
        names = ", ".join(each.value for each in kind)
        raise InvalidRequest(f"{what} is {value!r}; use one of {names}", property=what, value=value) from None


class Kind(str, Enum):
    """The classes of MaxCompute's matrices. A transaction belongs to the strictest of its operations: CHANGE over OVERWRITE over APPEND."""

    APPEND = "append"
    """Adds rows and removes none (INSERT INTO)."""
    OVERWRITE = "overwrite"
    """Replaces or empties the table or whole partitions (INSERT OVERWRITE, TRUNCATE)."""
    CHANGE = "change"
    """Changes or deletes rows (UPDATE, DELETE, MERGE, upsert, an overwrite whose condition names data columns)."""
    MINOR = "minor-compaction"
    """Merges small files; changes no data."""
    MAJOR = "major-compaction"
    """Writes a new base without deleted rows; changes no data."""
    OTHER = "other"
    """Changes no rows and reorganises none: properties, attach, detach."""


def class_of(operation: str, adds: Collection[AddFile], removes: Collection[RemoveFile], *, mode: str = "") -> Kind:
    """The kind of a commit that does not name it, from its operation, its write mode (as in commitInfo) and its actions."""
    name = operation.upper()
    if name.startswith(_REPLACING):
        return Kind.OVERWRITE
    if not adds and not removes:
        return Kind.OTHER
    if not any(add.data_change for add in adds) and not any(remove.data_change for remove in removes):
        return Kind.MAJOR if name.startswith("REORG") else Kind.MINOR
    removed = {remove.path for remove in removes}
    if name.startswith(_CHANGING) or any(add.path in removed for add in adds):
        return Kind.CHANGE
    if mode.lower() == "overwrite" or not adds:
        return Kind.OVERWRITE
    if not removes:
        return Kind.APPEND
    return Kind.OVERWRITE if name == "WRITE" else Kind.CHANGE


OWN_PARTITIONS: Final = "*"
"""The scope of a dynamic overwrite: all partitions in which it adds files."""


@dataclass(frozen=True, slots=True)
class DeclaredReads:
    """What a transaction read, and the rules that it is compared by: what its actions do not show.

    A list that is too long to file is omitted, which means "everything": it may become coarser, never smaller.
    """

    nothing: bool = False
    """Whether it read nothing, here or in other tables."""
    predicates: tuple[str, ...] = ()
    """The conditions under which it read, as SQL; "" is the whole table as a filter."""
    partition_types: Mapping[str, str] = field(default_factory=dict)
    """The table's partition columns with their types."""
    column_types: Mapping[str, str] = field(default_factory=dict)
    """The data columns that the conditions name, with their types as in Delta's schema JSON."""
    read_files: tuple[str, ...] | None = ()
    """The log paths of the files it read as a whole; None: too many to list, so that every removal counts as read."""
    read_rows: Mapping[str, str] = field(default_factory=dict)
    """The rows it read of further files, as `vectors.to_text` writes them."""
    locks: tuple[str, ...] = ()
    """Those of the predicates that are compared as under Serializable at every level."""
    whole_table: bool = False
    """Whether it depends on the complete table."""
    read_apps: tuple[str, ...] = ()
    """The application ids whose `txn` it read."""
    kind: Annotated[str, one_of(*Kind)] = Kind.OTHER.value
    policy: Annotated[str, one_of(*ConflictPolicy)] = ConflictPolicy.DELTA.value
    row_level: bool = False
    """Whether deletion vectors may be merged and carried over."""
    scope: str | None = None
    """What an overwrite replaces: "" the table, a condition, OWN_PARTITIONS; None if it does not matter."""
    keeps_row_ids: bool = True
    """Whether no rows were copied to new files without their ids."""

    @property
    def reads_here(self) -> bool:
        """Whether it read rows of this table."""
        return bool(self.predicates or self.read_files != () or self.read_rows or self.whole_table)

    @property
    def compares_rows(self) -> bool:
        """Whether changes of one file are compared row by row. Databricks does so only in tables without partitions."""
        return self.row_level and not (self.policy == ConflictPolicy.DATABRICKS.value and self.partition_types)

    @property
    def by_partitions(self) -> bool:
        """Whether files added by others count by partition, whatever their statistics say: Databricks' rule where rows are not compared."""
        return self.policy == ConflictPolicy.DATABRICKS.value and not self.compares_rows


TABLES_MAX: Final = 64
"""Tables of one transaction: their intents, and later their verdicts, have to fit into one request."""


@dataclass(frozen=True, slots=True)
class Joint:
    """The tables of a transaction over several."""

    tables: tuple[str, ...]
    """Their normalised locations, in order; at least two, each once."""

    def __post_init__(self) -> None:
        """Raises MalformedRecord for a list that no correct client makes."""
        for each in self.tables:
            if not _is_place(each):
                raise MalformedRecord(f"intent.joint names {each!r}, which is not a place of a table", kind="intent")
        locations = list(self.tables)
        if locations != sorted(set(locations)) or not 2 <= len(locations) <= TABLES_MAX:
            raise MalformedRecord(f"intent.joint.tables names {locations}: 2 to {TABLES_MAX} tables in order, each once", kind="intent")


def _is_place(location: str) -> bool:
    """Whether it may be a table's location, decided without I/O: a path of this machine may be a link elsewhere."""
    scheme, separator, rest = location.partition("://")
    if not separator or scheme not in SCHEMES or not location.isprintable():
        return False
    try:
        return rest.startswith("/") and bool(check_key(rest[1:])) if scheme == "file" else normalise(location) == location
    except InvalidRequest:
        return False


@dataclass(frozen=True, slots=True)
class ClientName:
    """The client of a transaction, as the history shows it."""

    host: str = ""
    pid: int = 0
    application: str = ""


@node_data("intent")
class Intent(Record):
    """A filed transaction: immutable from the moment its slot exists.

    `read_version` is the snapshot it was made on, `validated_through` the last version its owner found no conflict with.
    `actions` are its log lines (newline-delimited JSON), or "" if they are staged in the object `staged`; `actions_digest`
    is their SHA-256. `expected_version`, if given, is the only version it may become. `table_id` is set by a commit that
    creates or attaches the table, with the highest row id given so far in `row_ids` if it tracks rows; `detach` by the one
    that detaches it. `rebased` describes what its owner adapted to commits it met while validating; `metadata_change` and
    `protocol_change` the difference that its metaData and protocol actions make. `leases` are the nodes of the leases it depends on: it is
    committed only while they all exist (I9). `joint` names the tables of a transaction over several: it is committed in all of them or in
    none (I11).
    """

    CHANGED: ClassVar = False

    transaction_id: str
    operation: str
    read_version: int
    validated_through: int
    claimed_ms: int
    isolation: Annotated[str, one_of(*IsolationLevel)] = IsolationLevel.WRITE_SERIALIZABLE.value
    reads: DeclaredReads = field(default_factory=DeclaredReads)
    actions: str = ""
    staged: str = ""
    actions_digest: str = ""
    parameters: Mapping[str, str] = field(default_factory=dict)
    metrics: Mapping[str, str] = field(default_factory=dict)
    client: ClientName = field(default_factory=ClientName)
    expected_version: int | None = None
    table_id: str = ""
    detach: bool = False
    filed_again: bool = False
    rebased: tuple[str, ...] = ()
    metadata_change: Mapping[str, Any] | None = None
    protocol_change: Mapping[str, Any] | None = None
    row_ids: int | None = None
    leases: tuple[str, ...] = ()
    joint: Joint | None = None
    user_metadata: str = ""
    format: int = INTENT_FORMAT

    @property
    def only_reads(self) -> bool:
        """Whether this table's share of a transaction over several tables only reads, so that no version comes of it."""
        return self.joint is not None and not self.actions and not self.staged


NOTHING_YET: Final = -1
"""The `if_version` of what creates a table: there is no version before it."""


@dataclass(frozen=True, slots=True)
class Terms:
    """On what terms an operation commits. Its caller says them once; they travel unchanged until an intent copies what others must see."""

    isolation: str | None = None
    """A level that is stricter than the table's; None: the table's."""
    once: tuple[str, int] | None = None
    """The application's transaction (id, number), by which the operation happens once; a key is one of these, too."""
    read_version: int | None = None
    """The version from which the caller computed the rows, so that the operation depends on it; None: the caller named none."""
    if_version: int | None = None
    """The version that the commit must follow as the very next one; None: any may come in between."""
    user_metadata: str | None = None
    """A text of the caller's for the history (Delta's `userMetadata`)."""
    ack: str = "published"
    """When the commit is acknowledged: "published" (any engine reads it) or "ratified" (decided for good)."""
    timeout_s: Timeout = DEFAULT_TIMEOUT_S
    """How long each of the operation's calls may take."""

    def __post_init__(self) -> None:
        """Raises InvalidRequest for terms that contradict, or that no commit can have."""
        for name, value in (("transaction", self.once), ("user_metadata", self.user_metadata)):
            if value is not None:
                RULES[name].check(name, value)
        if None not in (self.read_version, self.if_version) and self.read_version != self.if_version:
            raise InvalidRequest(
                f"read_version={self.read_version} and if_version={self.if_version} were given; give one of them, or the same version"
            )

    @property
    def version(self) -> int | None:
        """The version that the operation works on; None: the latest one."""
        return self.read_version if self.if_version is None else self.if_version
