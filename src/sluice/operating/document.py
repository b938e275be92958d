"""The status as a document: what its fields mean. Programs read it as JSON, and `docs/reference/status-1.schema.json` is its schema.

A field never changes its meaning. A later release may add fields, and words to lists of words; a change of meaning gets another `format`.
Times are texts of ISO 8601 in UTC, by the coordinator's clock. Durations are seconds. A value is null if it cannot be known from here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

from msgspec import Struct

FORMAT: Final = 1

Limit: TypeAlias = Literal["workload", "store", "coordinator", "publication", "lease", "client"]
"""What limits the commits to a table: nothing but what its writers ask for; the object store, which takes the log slowly or not at all;
the coordinator, which is slow or away; the publication of ratified versions, whose clients are gone; a lease; or a client that is due to
decide and does not.
"""

Severity: TypeAlias = Literal["error", "warning", "note"]


class Server(Struct, frozen=True):
    """One server: `state` is "leader", "follower", "observer", "standalone", "not serving", "away" or "closed".

    "not serving": it runs but belongs to no quorum; "away": it does not answer; "closed": it answers without its state. `zxid` is the
    number of its last transaction, -1 if unknown. `in_sync` says whether it reached what the leader had when it was asked.
    """

    host: str
    state: str
    zxid: int = -1
    in_sync: bool | None = None

    @property
    def serves(self) -> bool | None:
        """Whether clients may use it; None if unknown."""
        return None if self.state == "closed" else self.state in ("leader", "follower", "observer", "standalone")


class Coordinator(Struct, frozen=True, kw_only=True):
    """The coordinator. `write_s` is how long a write of this client took; null if it did not go through, and `trouble` says why.

    `servers` are those in the address, and empty without an ensemble. As many as `may_stop_before_commits_do` may stop, and commits go on.
    As many as `may_be_lost_before_data_are` may lose their disks, and every acknowledged commit remains. `clients` are the numbers of
    connected ones by their release of sluice.
    """

    address: str
    write_s: float | None
    trouble: str | None
    servers: tuple[Server, ...]
    may_stop_before_commits_do: int | None
    may_be_lost_before_data_are: int | None
    clients: Mapping[str, int] | None


class Transaction(Struct, frozen=True, kw_only=True):
    """A transaction that waits to be decided, for `waits_s` seconds. `operation` is "" if this release cannot read what was filed."""

    id: str
    operation: str
    application: str
    host: str
    pid: int
    waits_s: float
    clock_ahead_s: float | None
    """How far its client's clock was ahead of the coordinator's when it was filed."""


class Queue(Struct, frozen=True):
    """The undecided transactions of a table: how many, and the one to be decided first."""

    length: int = 0
    oldest: Transaction | None = None


class Publication(Struct, frozen=True):
    """The versions that are ratified and not in the log yet: how many, and since how many seconds the oldest of them.

    `owner_is_connected` says whether one of the clients that made the oldest is connected; null if there is none, or if they cannot be
    known.
    """

    versions: int = 0
    seconds: float = 0.0
    owner_is_connected: bool | None = None


class HeldLease(Struct, frozen=True, kw_only=True):
    """The lease of a table that was held longest."""

    lease: str
    mode: str
    where: str
    application: str
    host: str
    pid: int
    held_s: float


class LeaseWaiter(Struct, frozen=True):
    """The client that a lease has kept waiting longest: its application, host and process."""

    application: str
    host: str
    pid: int


class Leases(Struct, frozen=True):
    """The leases on a table: how many are held and how many requests wait, the longest wait, the oldest held lease, the first waiter."""

    held: int = 0
    waiting: int = 0
    longest_wait_s: float = 0.0
    oldest: HeldLease | None = None
    waiter: LeaseWaiter | None = None


class Refusals(Struct, frozen=True, kw_only=True):
    """Transactions of the window that were refused alike: by this rule, `application` lost to `winner` with its `operation`.

    "" is a client that is gone, or no winner. `first` and `last` are the times of the first and the last of them.
    """

    rule: str
    application: str
    winner: str
    operation: str
    count: int
    first: str
    last: str


class Consumer(Struct, frozen=True):
    """A named consumer of a table's changes: how many versions it has to go, and how long ago it moved."""

    name: str
    versions_behind: int
    idle_s: float


class Upkeep(Struct, frozen=True, kw_only=True):
    """What maintenance a table needs, from the log of its version `version`.

    `files` and `bytes` are all of its data files; `small_files` and `small_bytes` those that a compaction would put together;
    `files_with_vectors` and `deleted_rows` what deletion vectors hide. `versions_since_checkpoint` is null if the log has no checkpoint.
    `foreign` are versions in the log that the coordinator did not order. `daemon` says whether `sluice daemon` may care for the table,
    `vacuum_hours` how often it vacuums it (0: never), and `moves_rows` whether changes of rows follow a compaction: with deletion vectors.
    `file_bytes` is the size that files should have. In a clustered table `unclustered_files`, of `unclustered_bytes`, belong to no
    cluster, or half of their rows are deleted; none but these count as small. The log keeps versions for
    `log_kept_s`. `table_id` is Delta's id of the table.
    """

    version: int
    files: int
    bytes: int
    small_files: int
    small_bytes: int
    files_with_vectors: int
    deleted_rows: int
    versions_since_checkpoint: int | None
    table_id: str = ""
    foreign: tuple[int, ...] = ()
    daemon: bool = True
    vacuum_hours: int = 168
    moves_rows: bool = False
    file_bytes: int = 0
    unclustered_files: int = 0
    unclustered_bytes: int = 0
    log_kept_s: float = 0.0


class Table(Struct, frozen=True, kw_only=True):
    """One table of the coordinator.

    `name` is its name in lower case; null if it has none. `version` is the last ratified one, `detached` whether other engines write it.
    `ahead_s` is how far the time of the last version is ahead of the coordinator's clock. `committed` and `refused` count the transactions
    of the last `window_s` seconds; the window is shorter than what was wanted if the coordinator kept no more records. `since_made_s` is
    the age of the table's nodes; `since_vacuum_s` is null if no vacuum ran since they were made, `since_examined_s` if no daemon examined
    the table since then. `upkeep` is null unless it was asked for. `trouble` says why a table, or its upkeep, cannot be read. If it is the
    log alone, `log_trouble` says why, all else is what the nodes say, and `upkeep` is what was read last, or null; `log_damaged` says
    whether it is damaged or missing, and not only out of reach.
    """

    location: str
    name: str | None = None
    version: int = -1
    detached: bool = False
    ahead_s: float = 0.0
    window_s: float = 0.0
    committed: int = 0
    refused: int = 0
    commits_per_s: float = 0.0
    refusals: tuple[Refusals, ...] = ()
    queue: Queue = Queue()
    publication: Publication = Publication()
    leases: Leases = Leases()
    consumers: tuple[Consumer, ...] = ()
    since_vacuum_s: float | None = None
    since_examined_s: float | None = None
    since_made_s: float = 0.0
    upkeep: Upkeep | None = None
    limited_by: Limit = "workload"
    trouble: str | None = None
    log_trouble: str | None = None
    log_damaged: bool = False


class Message(Struct, frozen=True, kw_only=True):
    """Something that a person should know. `name` is fixed for each kind, `where` is a location, a host or an address.

    An `error` stops work or endangers data, a `warning` will, or costs much; a `note` does neither. `since` is null if unknown.
    """

    name: str
    severity: Severity
    what: str
    since: str | None
    where: str
    remedy: str


class Status(Struct, frozen=True, kw_only=True):
    """The status of a coordinator and its tables at a time `at`.

    `ok` is true if all is well, false if a message is an error, and null if nothing is wrong but something cannot be known.
    `limited_by` is the strongest limit of all tables.
    """

    format: int = FORMAT
    at: str
    ok: bool | None
    coordinator: Coordinator
    tables: tuple[Table, ...]
    limited_by: Limit
    messages: tuple[Message, ...]
