"""A change: the reads of an operation in a table, the actions to commit, and on what terms."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import field, replace

from ...storage.actions import Action
from ...storage.data.vectors import Rows
from ...storage.dataclass import dataclass
from ...storage.log.snapshot import Snapshot
from ...storage.schema.schema import StructType
from ..commit.outcomes import Commit
from ..rules.operation_kinds import Kind
from ..rules.terms import Terms


@dataclass(frozen=True, slots=True)
class Reads:
    """The reads of an operation: conditions as SQL ("" for the whole table as a filter), files by log path.

    `files` (None: very many) are those whose rows the outcome depends on beyond the rows it changes: a change of rows in a
    table with deletion vectors lists none, since the rows themselves are compared. `rows` are the rows it read of further
    files, by log path. `locks` are those of the predicates that were read for update.
    """

    predicates: tuple[str, ...] = ()
    files: tuple[str, ...] | None = ()
    rows: Mapping[str, Rows] = field(default_factory=dict)
    locks: tuple[str, ...] = ()
    whole_table: bool = False
    apps: tuple[str, ...] = ()

    @property
    def nothing(self) -> bool:
        """Whether it read no rows. An application's number that was read says nothing about rows."""
        return not (self.predicates or self.files is None or self.files or any(self.rows.values()) or self.whole_table)


@dataclass(frozen=True, slots=True)
class Change:
    """The changes that an operation wants to commit, made on `snapshot` (None: it creates the table)."""

    transaction_id: str
    operation: str
    snapshot: Snapshot | None
    actions: Collection[Action]
    reads: Reads | None = None
    """None: it read nothing of this table."""
    reads_elsewhere: bool = False
    """Whether what it appends may depend on rows that `reads` does not name: of other tables, or of an unknown source. Then it is no blind
    append.
    """
    terms: Terms = Terms()
    parameters: Mapping[str, str] = field(default_factory=dict)
    metrics: Mapping[str, str] = field(default_factory=dict)
    schema: StructType | None = None
    table_id: str = ""
    detach: bool = False
    claimed_ms: int | None = None
    filed_after: int | None = None
    """If it may have been filed before, perhaps by another process: a version up to which it was not committed."""
    kind: Kind = Kind.OTHER
    scope: str | None = None
    """The part that an overwrite replaces: "" the table, or a partition condition."""
    keeps_id: bool = False
    """Whether its outcome is asked for under this very transaction id, so that it is never filed under another one."""
    numbered_since: int | None = None
    """The version at which its application's number was free, and from which it depends on that application; None: `snapshot`'s."""
    leases: tuple[str, ...] = ()
    """Nodes of leases it depends on, in addition to the committing thread's leases."""

    def measured(self, commit: Commit) -> Commit:
        """The commit of this change, with the metrics; a commit that was there before is not this change's."""
        return commit if commit.repeated else replace(commit, metrics={name: int(value) for name, value in self.metrics.items()})

    def on(self, terms: Terms) -> Change:
        """The change on its caller's terms, beside those that it needs itself: a level, or the version that it must follow."""
        own = self.terms
        if_version = own.if_version if terms.if_version is None else terms.if_version
        return replace(self, terms=replace(terms, isolation=own.isolation or terms.isolation, if_version=if_version))

    @property
    def read_version(self) -> int:
        """The version it was made on; -1 before the first."""
        return self.snapshot.version if self.snapshot else -1

    @property
    def began(self) -> int:
        """The version from which on it depends on its application."""
        return self.read_version if self.numbered_since is None else min(self.numbered_since, self.read_version)
