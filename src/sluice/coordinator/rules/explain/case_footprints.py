"""A case's table, its transaction's footprint and its winners, in the form that the engine takes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from ....storage.actions import Action, AddFile, Metadata, Protocol, RemoveFile
from ....storage.actions.features import reader_features, writer_features
from ....storage.actions.filetable import adds_of
from ....storage.actions.metadata_change import describe, describe_protocol
from ....storage.dataclass import dataclass
from ....storage.errors import Corrupt, InvalidRequest, PredicateError, SluiceError
from ....storage.expressions.sql import parse_widely
from ....storage.jsontext import dumps, loads
from ....storage.log.replay import ReplayState
from ....storage.pruning.predicate import Predicate
from ....storage.schema.schema import StructField, StructType, schema_to_json, to_arrow
from ..conflicts import DELTA_LAKE
from ..intent import DeclaredReads
from ..isolation import ISOLATION_PROPERTY, ConflictPolicy, IsolationLevel, table_isolation, table_policy
from ..operation_kinds import Kind, class_of
from ..read_scope import ReadScope
from ..winner import Footprint, Winner, footprint_of, partition_key, winner_of
from .cases import Case

BACKFILLS: Final = ("ROW TRACKING BACKFILL", "ROW TRACKING UNBACKFILL")
"""Delta Lake's operations that only number rows: the files they add were in the table before."""

_NO_FEATURES: Final = Protocol(1, 1)
_VECTORS: Final = "deletionVectors"
_ROW_CHANGES: Final = (Kind.CHANGE, Kind.MINOR, Kind.MAJOR)

# Names that people and matrices use for operations, with those of Delta's commitInfo; other names are kept.
_OPERATIONS: Final[Mapping[str, tuple[str, Kind]]] = {
    "APPEND": ("WRITE", Kind.APPEND),
    "INSERT": ("WRITE", Kind.APPEND),
    "INSERT INTO": ("WRITE", Kind.APPEND),
    "INSERT OVERWRITE": ("WRITE", Kind.OVERWRITE),
    "OVERWRITE": ("WRITE", Kind.OVERWRITE),
    "OVERWRITE/TRUNCATE": ("WRITE", Kind.OVERWRITE),
    "TRUNCATE": ("TRUNCATE", Kind.OVERWRITE),
    "UPDATE DELETE": ("UPDATE", Kind.CHANGE),
    "UPDATE/DELETE": ("UPDATE", Kind.CHANGE),
    "UPDATE DELETE MERGE": ("UPDATE", Kind.CHANGE),
    "UPDATE/DELETE/MERGE": ("UPDATE", Kind.CHANGE),
    "UPDATE": ("UPDATE", Kind.CHANGE),
    "DELETE": ("DELETE", Kind.CHANGE),
    "MERGE": ("MERGE", Kind.CHANGE),
    "UPSERT": ("MERGE", Kind.CHANGE),
    "COMPACT": ("OPTIMIZE", Kind.MINOR),
    "SMALL FILE MERGE": ("OPTIMIZE", Kind.MINOR),
    "MINOR COMPACT": ("OPTIMIZE", Kind.MINOR),
    "MAJOR COMPACT": ("OPTIMIZE", Kind.MAJOR),
    "REORG": ("REORG", Kind.MAJOR),
}


@dataclass(frozen=True, slots=True)
class CaseTable:
    """The table before the transaction, and before each winner."""

    case: Case
    state: ReplayState
    strict: bool
    policy: ConflictPolicy

    @staticmethod
    def of(case: Case, *, strict: bool) -> CaseTable:
        """The table of a case's setup. MaxCompute's policies have no stricter original, so `strict` means nothing there."""
        state = ReplayState().after([case.setup])
        policy = case.policy or table_policy(state.metadata.configuration if state.metadata else {})
        return CaseTable(case, state, strict and policy is ConflictPolicy.DELTA, policy)

    @property
    def protocol(self) -> Protocol:
        """The setup's protocol; by default one without features."""
        return self.state.protocol or _NO_FEATURES

    @property
    def metadata(self) -> Metadata:
        """The setup's metadata, with defaults for what it omits."""
        return self.state.metadata or Metadata("", schema_to_json(self.case.schema), self.case.partition_columns, {})

    @property
    def configuration(self) -> Mapping[str, str]:
        """The table's properties."""
        return self.state.metadata.configuration if self.state.metadata else {}

    @property
    def level(self) -> IsolationLevel:
        """The case's level, else the table's; else the default, which for Delta Lake's own verdict is Delta's."""
        if self.case.isolation is not None:
            return self.case.isolation
        if self.strict and ISOLATION_PROPERTY not in self.configuration:
            return IsolationLevel.SERIALIZABLE
        return table_isolation(self.configuration)

    @property
    def row_level(self) -> bool:
        """Whether rows are compared: deletion vectors are on, and the setup's protocol allows them.

        Tables with MaxCompute's Delta policy have them unless the setup says otherwise, since sluice creates them so.
        """
        default = str(self.policy is ConflictPolicy.MAXCOMPUTE_DELTA)
        enabled = self.configuration.get("delta.enableDeletionVectors", default).lower() == "true"
        known = self.state.protocol
        return enabled and not self.strict and (known is None or _VECTORS in reader_features(known) & writer_features(known))

    def files(self) -> list[AddFile]:
        """The table's files."""
        return list(adds_of(self.state.files.table))

    def after(self, actions: Sequence[Action]) -> CaseTable:
        """The table after a commit."""
        return replace(self, state=self.state.after([actions]))


# -- the transaction -------------------------------------------------------------------------------------------------------


def named_operation(name: str) -> tuple[str, Kind | None]:
    """An operation's name as in Delta's commitInfo, and its kind if the name alone determines it."""
    words = " ".join(name.upper().replace("_", " ").replace("-", " ").split())
    if words.startswith("OPTIMIZE"):
        return "OPTIMIZE", Kind.MINOR
    operation, kind = _OPERATIONS.get(words, (name.upper(), None))
    replaced = next((known for known in ("CREATE OR REPLACE TABLE", "REPLACE TABLE") if words.startswith(known)), operation)
    return replaced, kind


def _kind(named: Kind | None, done: Kind) -> Kind:
    """The kind of an operation, from its name or else its actions: a MERGE that changes no data merges small files."""
    return done if named is None or (named is Kind.CHANGE and done in (Kind.MINOR, Kind.MAJOR)) else named


def footprint_of_case(table: CaseTable) -> tuple[Footprint, list[str]]:
    """The footprint of the case's transaction, and what its predicates leave open."""
    case, actions = table.case, table.case.own_actions
    adds = [a for a in actions if isinstance(a, AddFile)]
    removes = [a for a in actions if isinstance(a, RemoveFile)]
    operation, kind = named_operation(case.own_operation)
    kind = _kind(kind, class_of(operation, adds, removes))
    predicates, notes = _predicates(case)
    files = _files_read(table, kind, predicates)
    declared = DeclaredReads(
        nothing=not predicates and not files,
        predicates=tuple(predicates.values()),
        partition_types=case.partition_types(),
        column_types=_column_types(case),
        read_files=tuple(files),
        whole_table=any(read.op == "readWholeTable" for read in case.reads),
        read_apps=tuple(read.app_id for read in case.reads if read.op == "txnVersion"),
        kind=kind.value,
        policy=DELTA_LAKE if table.strict else table.policy.value,
        row_level=table.row_level,
        scope=_scope(case, predicates, adds, removes) if kind is Kind.OVERWRITE else None,
    )
    return replace(footprint_of(declared, actions), partitions=_partitions(table, kind, adds, removes)), notes


def _column_types(case: Case) -> dict[str, str]:
    """The data columns with their types as in a schema's JSON."""
    data = [field for field in case.schema.fields if field.name not in case.partition_columns]
    return {field.name: dumps(loads(schema_to_json(StructType([field])).encode())["fields"][0]["type"]).decode() for field in data}


def _predicates(case: Case) -> tuple[dict[int, str], list[str]]:
    """The condition of each read that has one, by the read's number ("" is the whole table as a filter)."""
    found: dict[int, str] = {}
    notes: list[str] = []
    for number, read in enumerate(case.reads):
        match read.op:
            case "filterFiles":
                notes.extend(note for sql in read.predicates for note in _checked(case, sql, f"txn_reads[{number}].predicates"))
                found[number] = " AND ".join(f"({sql}\n)" if "--" in sql else f"({sql})" for sql in read.predicates)
            case "readWholeTable":
                found[number] = ""
            case "partitionsOf":
                found[number] = _inside(case, read.partitions, f"txn_reads[{number}].partitionValues")
    return found, notes


def _inside(case: Case, partitions: Iterable[Mapping[str, str | None]], field: str) -> str:
    try:
        return Predicate.in_partitions(partitions, case.schema).to_sql()
    except (Corrupt, PredicateError) as cause:
        message = f"{case.name}: {field} cannot be used: {cause.message}; write partition values as the log does"
        raise InvalidRequest(message, case=case.name, field=field) from cause


def _checked(case: Case, sql: str, field: str) -> list[str]:
    """Remarks on parts of a predicate that cannot be evaluated and so count as TRUE. Raises InvalidRequest if it is malformed."""
    schema = StructType(field for field in case.schema.fields if _is_evaluable(field))
    try:
        parse_widely(sql, to_arrow(schema))
    except PredicateError as cause:
        raise InvalidRequest(f"{case.name}: {field}: {cause.message}", case=case.name, field=field) from cause
    try:
        Predicate.parse(sql, schema)
    except PredicateError as cause:
        return [f"{cause.message}; what cannot be evaluated counts as TRUE"]
    return []


def _is_evaluable(field: StructField) -> bool:
    try:
        to_arrow(StructType([field]))
    except SluiceError:
        return False
    return True


def _files_read(table: CaseTable, kind: Kind, predicates: Mapping[int, str]) -> list[str]:
    """The paths of files whose rows matter, besides those that the transaction itself changes."""
    case = table.case
    found = {path: None for read in case.reads if read.op == "readFiles" for path in read.paths}
    if table.row_level and kind in _ROW_CHANGES:
        return list(found)  # rows are compared
    for number, sql in predicates.items():
        if case.reads[number].op == "filterFiles":
            found |= dict.fromkeys(add.path for add in _selected(table, sql))
    return list(found)


def _selected(table: CaseTable, sql: str) -> list[AddFile]:
    """The table's files that a scan would have opened.

    Delta Lake skips by conjuncts on partition columns and by conjuncts on data columns, not by those that mix both.
    """
    partition_types, column_types = table.case.partition_types(), _column_types(table.case)
    scope = ReadScope.of((sql,), partition_types, column_types)
    if not table.strict:
        return scope.touched(table.files())
    by_values = scope.touched(table.files(), statistics=False)
    return ReadScope.of((sql,), {}, column_types).touched(by_values)


# -- for MaxCompute's policies -----------------------------------------------------------------------------------------------


def _partitions(table: CaseTable, kind: Kind, adds: Sequence[AddFile], removes: Sequence[RemoveFile]) -> tuple[str, ...] | None:
    """The partitions the transaction touches; None for all, or if a removed file does not name its own."""
    case = table.case
    if kind is Kind.OTHER:
        return ()
    if not case.partition_columns:
        return (partition_key({}),)
    named = [partition for read in case.reads for partition in read.partitions]
    known = {add.path: add.partition_values for add in table.files()}
    values = [add.partition_values for add in adds]
    for remove in removes:
        own = remove.partition_values if remove.partition_values is not None else known.get(remove.path)
        if own is None:
            return None
        values.append(own)
    if any(set(partition) != set(case.partition_columns) for partition in named) or not (named or values):
        return None
    return tuple(dict.fromkeys(partition_key(each) for each in (*named, *values)))


def _scope(case: Case, predicates: Mapping[int, str], adds: Sequence[AddFile], removes: Sequence[RemoveFile]) -> str:
    """What an overwrite replaces: the scope it read, else the partitions of its own files; "" is the whole table."""
    if predicates:
        return "" if "" in predicates.values() else " OR ".join(f"({sql})" for sql in predicates.values())
    given = [add.partition_values for add in adds] + [each.partition_values for each in removes if each.partition_values is not None]
    return _inside(case, given, "own_actions") if case.partition_columns and given else ""


# -- the commits that came first -----------------------------------------------------------------------------------------------


def winner_of_case(table: CaseTable, read: CaseTable, version: int, actions: Sequence[Action], *, skip_adds: bool) -> Winner:
    """A winner, completed with what it does not say: its kind, and its changes of metadata and protocol."""
    winner = winner_of(version, actions)
    known = {add.path: add.partition_values for add in table.files()}
    removed = {
        path: replace(each, partition_values=known.get(path)) if each.partition_values is None else each
        for path, each in winner.removed.items()
    }
    operation = winner.operation or table.case.winning_operation
    says_kind = bool(winner.transactions) and "kind" in winner.transactions[0]
    named = named_operation(table.case.winning_operation)[1] or named_operation(operation)[1]
    kind = winner.kind if says_kind else _kind(named, winner.kind)
    metadata, domains = table.metadata, winner.domains
    if table.strict:
        skip_adds = skip_adds or operation in BACKFILLS
        supporting = [each for each in (table.state.protocol, winner.protocol) if each is not None]
        if supporting and "domainMetadata" not in writer_features(supporting[-1]):
            domains = frozenset()  # Delta Lake compares these only in tables with the feature
    return replace(
        winner,
        operation=operation,
        adds=() if table.strict and skip_adds else winner.adds,
        removed=removed,
        domains=domains,
        kind=kind,
        metadata_change=describe(metadata, winner.metadata) if winner.metadata else None,
        protocol_change=describe_protocol(read.protocol, winner.protocol) if winner.protocol else None,
    )
