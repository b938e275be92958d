"""What would happen to a transaction: a case decided offline, by the rules and the engine that decide commits.

First a case is completed with what people leave out of actions: the partitions of removed files, and where the rows of a compaction went.
sluice records it; cases written by hand do not, and where a z-order's or a cluster's rows went is not in the log. So a compaction in a case
is treated as one of sluice's that keeps the order of rows.

Only the case itself is known. Deletion vectors in the log are read; the rows of vectors in files are unknown, so two changes
of such a file count as changes of the same row.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from ....storage.actions import Action, AddFile, DeletionVector, Metadata, Protocol, RemoveFile
from ....storage.actions.features import FEATURE_READER_VERSION, FEATURE_WRITER_VERSION, deletion_vectors, writer_features
from ....storage.actions.file_removals import Moved, moved_rows, with_moves
from ....storage.actions.filetable import adds_of
from ....storage.actions.metadata_change import describe, describe_protocol
from ....storage.actions.records import record_count
from ....storage.constants import DELETION_VECTORS_KEY
from ....storage.data.vectors import Rows, read_vector
from ....storage.dataclass import dataclass
from ....storage.errors import Corrupt, InvalidRequest, MissingObject, PredicateError
from ....storage.expressions.sql import parse_widely
from ....storage.log.replay import ReplayState
from ....storage.pruning.predicate import Predicate
from ....storage.schema.datatypes import types_of
from ....storage.schema.schema import schema_to_json, to_arrow
from ....storage.stores.memory import MemoryStore
from ..conflicts import APPENDED, DELTA_LAKE, RULES, Conflict, effective_level, refusal
from ..intent import ISOLATION_PROPERTY, ConflictPolicy, DeclaredReads, IsolationLevel, Kind, class_of, table_isolation, table_policy
from ..policies import MATRICES
from ..read_scope import ReadScope, evaluable
from ..rebase import Candidate, check_against
from ..winner import Footprint, Winner, footprint_of, partition_key, winner_of
from .cases import Case

# The assumed number of rows of a file that does not say it.
_ROWS: Final = 1 << 20
_BACKFILLS: Final = ("ROW TRACKING BACKFILL", "ROW TRACKING UNBACKFILL")
"""Delta Lake's operations that only number rows: the files they add were in the table before."""
_NO_FEATURES: Final = Protocol(1, 1)
_WITH_VECTORS: Final = Protocol(FEATURE_READER_VERSION, FEATURE_WRITER_VERSION, ("deletionVectors",), ("deletionVectors",))

# Names that people and matrices use for operations, with those of Delta's commitInfo; other names are kept.
_NAMES: Final[Mapping[tuple[str, Kind], tuple[str, ...]]] = {
    ("WRITE", Kind.APPEND): ("APPEND", "INSERT", "INSERT INTO"),
    ("WRITE", Kind.OVERWRITE): ("INSERT OVERWRITE", "OVERWRITE", "OVERWRITE TRUNCATE"),
    ("TRUNCATE", Kind.OVERWRITE): ("TRUNCATE",),
    ("UPDATE", Kind.CHANGE): ("UPDATE", "UPDATE DELETE", "UPDATE DELETE MERGE"),
    ("DELETE", Kind.CHANGE): ("DELETE",),
    ("MERGE", Kind.CHANGE): ("MERGE", "UPSERT"),
    ("OPTIMIZE", Kind.MINOR): ("COMPACT", "SMALL FILE MERGE", "MINOR COMPACT"),
    ("OPTIMIZE", Kind.MAJOR): ("MAJOR COMPACT",),
    ("REORG", Kind.MAJOR): ("REORG",),
}
_OPERATIONS: Final[Mapping[str, tuple[str, Kind | None]]] = {name: meaning for meaning, names in _NAMES.items() for name in names}

# Delta Lake 4 implements these; its verdict about a table that needs anything else is that the client is too old.
_DELTA_FEATURES: Final = frozenset(
    re.findall(
        r"\S+",
        """
        allowColumnDefaults appendOnly catalogManaged catalogOwned-preview changeDataFeed checkConstraints checkpointProtection clustering
        collations-preview columnMapping coordinatedCommits-preview deletionVectors domainMetadata generatedColumns icebergCompatV1
        icebergCompatV2 icebergCompatV3 icebergWriterCompatV1 identityColumns inCommitTimestamp inCommitTimestamp-preview invariants
        materializePartitionColumns redirectReaderWriter-preview redirectWriterOnly-preview rowTracking timestampNtz typeWidening
        typeWidening-preview v2Checkpoint vacuumProtocolCheck variantShredding-preview variantType variantType-preview
        """,
    )
)


@dataclass(frozen=True, slots=True)
class Explanation:
    """What would happen to a case's transaction."""

    verdict: str
    """"ok", or the name of the error."""
    rule: str | None
    because: str
    winning_version: int | None
    winning_operation: str | None
    isolation: str
    """The level it was compared at."""
    policy: str
    case: str
    rebased: tuple[str, ...] = ()
    """Its adaptations."""
    notes: tuple[str, ...] = ()
    """What the case left open."""
    winner_did: str = ""
    """What the winner of a refused one did, in words: "concerns row 3 of file a"."""


def explain(case: Case, *, strict: bool = False) -> Explanation:
    """Decide a case; `strict` gives Delta Lake's own verdict. Raises InvalidRequest, naming the field, for a malformed predicate and the
    like."""
    read = table = _Table.of(case, strict=strict)
    operation, _ = _named(case.own_operation)
    own, _ = table.completed(case.own_actions)
    footprint, notes = _footprint(table, own)
    candidate = Candidate("explain", operation, footprint, table.level, actions=own)
    level = effective_level(footprint, table.level, operation)
    explained = Explanation("ok", None, "", None, None, level.value, table.policy.value, case.name, notes=(*case.notes, *notes))
    for version, commit in enumerate(case.winning_commits if not table.strict and footprint.app_versions else (), start=1):
        if footprint.app_versions.items() <= winner_of(version, commit).app_versions.items():
            written = " and ".join(f"number {number} of application {app}" for app, number in footprint.app_versions.items())
            return replace(explained, because=f"version {version} wrote {written} already: that commit is the answer")
    for version, commit in enumerate(case.winning_commits, start=1):
        actions, assumed = table.completed(commit)
        if files := sorted(assumed.intersection(candidate.footprint.removes or ())):
            note = f"the case does not say where the rows of {', '.join(files)} went; the compaction is assumed to keep their order"
            explained = replace(explained, notes=(*explained.notes, note))
        winner = _winner(table, read, version, actions)
        if table.strict and (operation in _BACKFILLS or winner.operation in _BACKFILLS):
            winner = replace(winner, adds=())
        checked = (_unsupported(winner) if table.strict else None) or check_against(candidate, winner, _inline_rows)
        if isinstance(checked, Conflict):
            refused = refusal(checked)
            return replace(
                explained,
                verdict=refused.error,
                rule=refused.rule,
                because=refused.message,
                winning_version=version,
                winning_operation=winner.operation or None,
                notes=(*explained.notes, *_unknown_rows(candidate, checked)),
                winner_did=f"concerns {checked.what}",
            )
        candidate, table = checked, replace(table, state=table.state.after([actions]))
    return replace(explained, because=_why_not(candidate, table, level), rebased=candidate.rebased)


@dataclass(frozen=True, slots=True)
class _Table:
    """The table of a case, before its transaction or before one of its winners."""

    case: Case
    state: ReplayState
    policy: ConflictPolicy
    strict: bool
    level: IsolationLevel
    """The case's, else the table's; else the default, which for Delta Lake's own verdict is Delta's."""
    row_level: bool
    """Whether rows are compared: deletion vectors are on, and the setup's protocol, if it has one, allows them."""

    @staticmethod
    def of(case: Case, *, strict: bool) -> _Table:
        """The table of the setup. MaxCompute's policies have no stricter original, so `strict` means nothing there.

        Tables with MaxCompute's Delta policy have deletion vectors unless the setup says otherwise, since sluice creates them so.
        """
        state = ReplayState().after([case.setup])
        configuration = state.metadata.configuration if state.metadata else {}
        policy = case.policy or table_policy(configuration)
        strict = strict and policy is ConflictPolicy.DELTA
        default = {ISOLATION_PROPERTY: IsolationLevel.SERIALIZABLE.value} if strict else {}
        default |= {DELETION_VECTORS_KEY: "true"} if policy is ConflictPolicy.MAXCOMPUTE_DELTA else {}
        completed = Metadata("", "", (), {**default, **configuration})
        level = case.isolation or table_isolation(completed.configuration)
        row_level = not strict and deletion_vectors(state.protocol or _WITH_VECTORS, completed)
        return _Table(case, state, policy, strict, level, row_level)

    @property
    def protocol(self) -> Protocol:
        return self.state.protocol or _NO_FEATURES

    @property
    def metadata(self) -> Metadata:
        return self.state.metadata or Metadata("", schema_to_json(self.case.schema), self.case.partition_columns, {})

    def files(self) -> list[AddFile]:
        return list(adds_of(self.state.files.table))

    def completed(self, actions: Sequence[Action]) -> tuple[tuple[Action, ...], frozenset[str]]:
        """A commit's actions with what a case may leave out: see `completed`."""
        return completed(actions, {add.path: add for add in self.files()}, traced=self.row_level)


# -- the transaction -------------------------------------------------------------------------------------------------------


def _named(name: str) -> tuple[str, Kind | None]:
    """An operation's name as in Delta's commitInfo, and its kind if the name alone determines it."""
    words = " ".join(re.split(r"[\s_/-]+", name.strip().upper()))
    if words.startswith("OPTIMIZE"):
        return "OPTIMIZE", Kind.MINOR
    replacing = next((each for each in ("CREATE OR REPLACE TABLE", "REPLACE TABLE") if words.startswith(each)), None)
    return (replacing, None) if replacing else _OPERATIONS.get(words, (name.upper(), None))


def _kind(named: Kind | None, derived: Kind) -> Kind:
    """The kind of an operation, from its name or else its actions: a MERGE that changes no data merges small files."""
    return derived if named is None or (named is Kind.CHANGE and derived in (Kind.MINOR, Kind.MAJOR)) else named


def _footprint(table: _Table, actions: Sequence[Action]) -> tuple[Footprint, list[str]]:
    """The footprint of the case's transaction, and what its predicates leave open."""
    case = table.case
    adds = [a for a in actions if isinstance(a, AddFile)]
    removes = [a for a in actions if isinstance(a, RemoveFile)]
    operation, named = _named(case.own_operation)
    kind = _kind(named, class_of(operation, adds, removes))
    policy = (
        ConflictPolicy.DELTA if kind is Kind.OTHER and table.policy in MATRICES else table.policy
    )  # as every commit outside all classes
    predicates: list[str] = []
    files: list[str] = []
    notes: list[str] = []
    for number, each in enumerate(case.reads):
        match each.op:
            case "filterFiles":
                notes += [note for sql in each.predicates for note in _checked(case, sql, f"txn_reads[{number}].predicates")]
                predicates.append(" AND ".join(f"({sql}\n)" if "--" in sql else f"({sql})" for sql in each.predicates))
                if not (table.row_level and kind in (Kind.CHANGE, Kind.MINOR, Kind.MAJOR)):  # else rows are compared
                    files += [add.path for add in _selected(table, predicates[-1])]
            case "readWholeTable":
                predicates.append("")
            case "partitionsOf":
                predicates.append(_inside(case, each.partitions, f"txn_reads[{number}].partitionValues"))
        files += each.paths
    declared = DeclaredReads(
        nothing=not predicates and not files,
        predicates=tuple(predicates),
        partition_types=case.partition_types(),
        column_types=case.column_types(),
        read_files=tuple(files),
        whole_table=any(each.op == "readWholeTable" for each in case.reads),
        read_apps=tuple(each.app_id for each in case.reads if each.op == "txnVersion"),
        kind=kind.value,
        policy=DELTA_LAKE if table.strict else policy.value,
        row_level=table.row_level,
        scope=_scope(case, predicates, [*adds, *removes]) if kind is Kind.OVERWRITE else None,
    )
    footprint = footprint_of(declared, actions)
    if footprint.partitions is not None:
        # A table without partitions is one; a dynamic overwrite depends on partitions in which it may have no files.
        named_places = [place for each in case.reads for place in each.partitions] if case.partition_columns else [{}]
        footprint = replace(footprint, partitions=tuple({*footprint.partitions, *map(partition_key, named_places)}))
    return footprint, notes


def _inside(case: Case, partitions: Iterable[Mapping[str, str | None]], field: str) -> str:
    try:
        return Predicate.in_partitions(partitions, case.schema).to_sql()
    except (Corrupt, PredicateError) as cause:
        message = f"{case.name}: {field} cannot be used: {cause.message}; write partition values as the log does"
        raise InvalidRequest(message, case=case.name, field=field) from cause


def _checked(case: Case, sql: str, field: str) -> list[str]:
    """Remarks on parts of a predicate that cannot be evaluated and so count as TRUE. Raises InvalidRequest if it is malformed."""
    schema = evaluable(types_of(case.schema.fields))
    try:
        parse_widely(sql, to_arrow(schema))
    except PredicateError as cause:
        raise InvalidRequest(f"{case.name}: {field}: {cause.message}", case=case.name, field=field) from cause
    try:
        Predicate.parse(sql, schema)
    except PredicateError as cause:
        return [f"{cause.message}; what cannot be evaluated counts as TRUE"]
    return []


def _selected(table: _Table, sql: str) -> list[AddFile]:
    """The files that a scan would have opened. Delta Lake skips by conjuncts on partition columns or on data columns, not by those on
    both."""
    files, partition_types, column_types = table.files(), table.case.partition_types(), table.case.column_types()
    if table.strict:
        files = ReadScope.of((sql,), {}, column_types).touched(files)
    return ReadScope.of((sql,), partition_types, column_types).touched(files, statistics=not table.strict)


def _scope(case: Case, predicates: Sequence[str], files: Sequence[AddFile | RemoveFile]) -> str:
    """What an overwrite replaces: the scope it read, else the partitions of its own files; "" is the whole table."""
    if predicates:
        return "" if "" in predicates else " OR ".join(f"({sql})" for sql in predicates)
    places = [each.partition_values for each in files if each.partition_values is not None]
    return _inside(case, places, "own_actions") if case.partition_columns and places else ""


# -- the commits that came first -----------------------------------------------------------------------------------------------


def _winner(table: _Table, read: _Table, version: int, actions: Sequence[Action]) -> Winner:
    """A winner, completed with what it does not say: its kind, and its changes of metadata and protocol."""
    winner = winner_of(version, actions)
    operation = winner.operation or table.case.winning_operation
    named = _named(table.case.winning_operation)[1] or _named(operation)[1]
    says_kind = bool(winner.transactions) and "kind" in winner.transactions[0]
    protocol = table.state.after([actions]).protocol
    # Delta Lake compares domains only in tables with the feature.
    no_domains = table.strict and protocol is not None and "domainMetadata" not in writer_features(protocol)
    return replace(
        winner,
        operation=operation,
        domains=frozenset() if no_domains else winner.domains,
        kind=winner.kind if says_kind else _kind(named, winner.kind),
        metadata_change=describe(table.metadata, winner.metadata) if winner.metadata else None,
        protocol_change=describe_protocol(read.protocol, winner.protocol) if winner.protocol else None,
    )


def _unsupported(winner: Winner) -> Conflict | None:
    """Delta Lake's refusal of a protocol that it does not implement; what the table had before counts as implemented."""
    protocol, change = winner.protocol, winner.protocol_change
    if protocol is None or change is None:
        return None
    lacking = sorted(set(change["added"]) - _DELTA_FEATURES)
    if protocol.min_reader_version > FEATURE_READER_VERSION or protocol.min_writer_version > FEATURE_WRITER_VERSION:
        error, what = "InvalidProtocolVersion", f"versions {protocol.min_reader_version} and {protocol.min_writer_version} of the protocol"
    elif lacking:
        error, what = "UnsupportedTableFeature", f"the features {', '.join(lacking)}"
    else:
        return None
    rule = replace(RULES[0], error=error, advice="use a newer Delta Lake")
    return Conflict(rule, winner, f"{what}, which Delta Lake does not implement")


def completed(actions: Sequence[Action], files: Mapping[str, AddFile], *, traced: bool) -> tuple[tuple[Action, ...], frozenset[str]]:
    """The actions, with the partition of each removed file that the table has.

    If `traced`, each removed source of a compaction says where its rows went; returns also the sources that did not say it themselves.
    `files` are those of the table.
    """
    outputs = [each for each in actions if isinstance(each, AddFile) and not each.data_change]
    added = {each.path for each in actions if isinstance(each, AddFile)}
    filled: dict[str, int] = {}
    made: list[Action] = []
    assumed: set[str] = set()
    for each in actions:
        if isinstance(each, RemoveFile):
            source = files.get(each.path)
            if source is not None and each.partition_values is None:
                each = replace(each, partition_values=source.partition_values)
            if traced and outputs and not each.data_change and each.path not in added and not isinstance(moved_rows(each), tuple):
                output = next((add for add in outputs if add.partition_values == each.partition_values), outputs[0])
                rows = record_count(each.stats) or (None if source is None else record_count(source.stats))
                dead = 0 if each.deletion_vector is None else each.deletion_vector.cardinality
                count = _ROWS if rows is None else max(rows - dead, 0)
                each = with_moves(each, [Moved(output.path, 0, count, filled.get(output.path, 0))])
                filled[output.path] = filled.get(output.path, 0) + count
                assumed.add(each.path)
        made.append(each)
    return tuple(made), frozenset(assumed)


def _inline_rows(vector: DeletionVector) -> Rows:
    """The rows of a vector in the log. Raises MissingObject for a vector in a file."""
    if vector.storage_type != "i":
        raise MissingObject(f"a case has no files, so the rows of deletion vector {vector.unique_id} are not known")
    return read_vector(MemoryStore.open("no-files"), vector)


# -- in words ------------------------------------------------------------------------------------------------------------------


def _why_not(candidate: Candidate, table: _Table, level: IsolationLevel) -> str:
    """Why nothing stops the transaction."""
    count = len(table.case.winning_commits)
    if not count:
        return "no commit came first"
    came = f"the {count} commits that came first" if count > 1 else "the commit that came first"
    if candidate.rebased:
        return f"no rule applies to {came}; {'; '.join(candidate.rebased)}"
    if candidate.footprint.policy in MATRICES:
        return f"the matrix of {table.policy.value} allows a later {candidate.footprint.kind} after {came}"
    if candidate.footprint.plain_append:
        return f"it only adds files and read nothing, so nothing that {came} added or removed matters"
    if level is not table.level:
        return f"it changes no data, so only the writes of both are compared, and no rule applies to {came}"
    return f"no rule applies to {came}"


def _unknown_rows(candidate: Candidate, conflict: Conflict) -> list[str]:
    """A remark if the verdict depends on rows, which a case does not have."""
    if not candidate.footprint.row_level:
        return []
    if conflict.rule.name == APPENDED:
        return ["a commit would read the added files, and be refused only if they contain rows that were read"]
    both = conflict.winner.removed.keys() & {a.path for a in candidate.each() if isinstance(a, RemoveFile)}
    files = [a for a in (*candidate.each(), *conflict.winner.adds) if isinstance(a, AddFile) and a.path in both]
    if not any(add.deletion_vector is not None and add.deletion_vector.storage_type != "i" for add in files):
        return []
    return ["deletion vectors in files are not read here: write them inline (storageType i) to have rows compared"]
