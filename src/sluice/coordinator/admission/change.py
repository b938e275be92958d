"""A change: the actions that an operation commits, on what terms, what it declares to have read, and the partitions that it touches."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import field, replace
from typing import Final

from ...storage.actions import Action, AddCDCFile, AddFile, Metadata, Protocol, RemoveFile
from ...storage.actions.features import RowIdColumns, deletion_vectors, tracks_rows
from ...storage.data.vectors import Rows, to_text
from ...storage.dataclass import dataclass
from ...storage.errors import InvalidRequest
from ...storage.log.snapshot import Snapshot
from ...storage.pruning.predicate import Predicate
from ...storage.schema.datatypes import types_of
from ...storage.schema.mapping import is_mapped, physical, physical_names
from ...storage.schema.schema import PrimitiveType, StructType
from ..commit.outcomes import Commit
from ..leases.scopes import PartitionScope
from ..rules.intent import OWN_PARTITIONS, ConflictPolicy, DeclaredReads, Kind, Terms, table_policy
from ..rules.winner import Footprint, partition_key


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


_PREDICATE_CHARACTERS_MAX: Final = 8 * 1024
# Together with the actions it has to fit into a node of the coordinator.
_SCOPE_CHARACTERS_MAX: Final = 64 * 1024
_ROWS_CHARACTERS_PER_FILE: Final = 128
"""Room for the rows that were read, on average per listed file."""
_PARTITIONS_MAX: Final = 100
"""A change of more partitions counts as one of the whole table when it waits for leases."""


def declared_reads(change: Change, *, files_max: int) -> DeclaredReads:
    """What a change read, as its intent declares it. Raises InvalidRequest for an overwrite of too long a condition.

    Lists that are too long are omitted, which means "everything": the reads may become coarser, never smaller.
    """
    snapshot, reads = change.snapshot, change.reads or Reads()
    predicates, listed = _conditions(reads.predicates, change.schema), set(reads.files or ())
    texts = {path: to_text(rows) for path, rows in reads.rows.items() if rows and path not in listed}
    read_files, read_rows = _fitting(reads.files, texts, files_max)
    partition_types, column_types = _types(predicates, snapshot, change.schema)
    policy = ConflictPolicy.DELTA if snapshot is None else table_policy(snapshot.configuration)
    if policy.by_classes and change.kind is Kind.OTHER:  # outside all classes of operations: a new constraint reads all rows, say
        policy = ConflictPolicy.DELTA
    scope = _in_files(change.scope, change.schema) if policy.by_classes or change.scope == "" else None
    if scope is not None and len(scope) > _SCOPE_CHARACTERS_MAX:  # it must not become coarser
        raise InvalidRequest(
            f"the overwritten conditions are {len(scope):,} characters long, and a table with a conflict policy accepts "
            f"{_SCOPE_CHARACTERS_MAX:,}: overwrite dynamically and in its own transaction, or part by part",
            characters=len(scope),
        )
    return DeclaredReads(
        # check: appends-after-reading-elsewhere-are-not-blind (without and not change.reads_elsewhere)
        nothing=reads.nothing and not change.reads_elsewhere,
        predicates=predicates,
        partition_types=partition_types,
        column_types=column_types,
        read_files=read_files,
        read_rows=read_rows,
        locks=_conditions(reads.locks, change.schema),
        whole_table=reads.whole_table,
        read_apps=reads.apps,
        kind=change.kind.value,
        policy=policy.value,
        row_level=snapshot is not None and deletion_vectors(snapshot.protocol, snapshot.metadata),
        scope=scope,
        keeps_row_ids=_keeps_row_ids(change),
    )


def _conditions(conditions: Iterable[str], schema: StructType | None) -> tuple[str, ...]:
    predicates = [_in_files(each, schema) or "" for each in conditions]
    # check: long-conditions-are-everything (predicates -> (q for q in predicates if len(q) <= _PREDICATE_CHARACTERS_MAX))
    return tuple([p if len(p) <= _PREDICATE_CHARACTERS_MAX else "" for p in predicates])


def _in_files(sql: str | None, schema: StructType | None) -> str | None:
    """The condition under the names that columns have in files: those of actions, which nobody can change meanwhile."""
    # check: conditions-name-columns-of-files (schema is None -> True)
    if not sql or sql == OWN_PARTITIONS or schema is None or not is_mapped(schema):
        return sql
    return Predicate.parse(sql, schema).physical(schema).to_sql()


def _fitting(files: tuple[str, ...] | None, rows: Mapping[str, str], files_max: int) -> tuple[tuple[str, ...] | None, dict[str, str]]:
    """The files read, and the rows read of further files; if a file's rows take too much room, all its rows count."""
    kept: dict[str, str] = {}
    room = _ROWS_CHARACTERS_PER_FILE * files_max
    for path, text in sorted(rows.items(), key=lambda each: (len(each[1]), each[0])):
        room -= len(path) + len(text)
        if room < 0 or len(kept) == files_max:
            break
        kept[path] = text
    if files is not None:
        files = (*files, *[path for path in rows if path not in kept])
    # check: many-read-files-are-all-files (or len(files) > files_max else files -> else files[:files_max])
    return (None if files is None or len(files) > files_max else files), kept


def bounded(mine: Footprint, *, files_max: int) -> Footprint:
    """The footprint as it is filed: omits lists of files that became too long while it was compared with others."""
    read_files, read_rows = _fitting(mine.read_files, mine.read_rows, files_max)
    return replace(mine, read_files=read_files, read_rows=read_rows)


def _types(predicates: Iterable[str], snapshot: Snapshot | None, schema: StructType | None) -> tuple[dict[str, str], dict[str, str]]:
    """The types of the partition columns; and those of the data columns that conditions name, as in Delta's schema JSON."""
    if snapshot is None or schema is None:
        return {}, {}
    partitions = snapshot.partition_columns
    if is_mapped(schema):
        partitions, schema = physical_names(schema, partitions), physical(schema)
    types = {f.name: f.type for f in schema.fields}
    partitioned = {c: t.name for c in partitions if isinstance(t := types.get(c), PrimitiveType)}
    named = {column for sql in predicates if sql for column in Predicate.parse(sql, schema).columns} - set(partitions)
    return partitioned, types_of([f for f in schema.fields if f.name in named]) if named else {}


def _keeps_row_ids(change: Change) -> bool:
    """Whether rows that it copies keep their ids: the table has columns for them; or no files are removed and others written.

    A file that got a deletion vector or is restored does not count.
    """
    snapshot = change.snapshot
    if snapshot is None or change.kind is Kind.OVERWRITE or not tracks_rows(snapshot.metadata, snapshot.protocol):
        return True
    if RowIdColumns.of(snapshot.metadata, snapshot.protocol) is not None:
        return True
    written = {action.path for action in change.actions if isinstance(action, AddFile) and action.base_row_id is None}
    removed = {action.path for action in change.actions if isinstance(action, RemoveFile)} if written else set()
    # check: lost-row-ids-are-told (not removed or written <= removed -> True)
    return not removed or written <= removed


def touched_by_reads(snapshot: Snapshot, reads: Reads | None) -> PartitionScope | None:
    """Partitions that cover the reads."""
    return None if reads is None else PartitionScope.covering(snapshot, _read_partitions(snapshot, reads))


def touched_by(change: Change) -> PartitionScope | None:
    """Partitions that cover a change's reads and writes."""
    snapshot, reads = change.snapshot, change.reads
    if snapshot is None or not snapshot.partition_columns or change.scope == "":
        return None
    if any(isinstance(action, (Metadata, Protocol)) for action in change.actions):
        return None
    places: dict[str, Mapping[str, str | None]] = {}
    for action in change.actions:
        if isinstance(action, (AddFile, RemoveFile, AddCDCFile)):
            if action.partition_values is None or len(places) > _PARTITIONS_MAX:
                return None
            places[partition_key(action.partition_values)] = action.partition_values
    if len(places) > _PARTITIONS_MAX:
        return None
    scope = Predicate.in_partitions(places.values(), snapshot.metadata.schema) if places else None
    if reads is None:
        return PartitionScope.covering(snapshot, scope)
    read = _read_partitions(snapshot, reads)
    return None if read is None else PartitionScope.covering(snapshot, read if scope is None else scope.or_(read))


def _read_partitions(snapshot: Snapshot, reads: Reads) -> Predicate | None:
    if reads.whole_table or not reads.predicates or not snapshot.partition_columns:
        return None
    schema = snapshot.metadata.schema
    scope: Predicate | None = None
    for sql in reads.predicates:
        inside = Predicate.parse(sql, schema).split(snapshot.partition_columns)[0] if sql else None
        if inside is None:
            return None
        scope = inside if scope is None else scope.or_(inside)
    return scope
