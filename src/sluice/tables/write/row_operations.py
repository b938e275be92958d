"""The effects of delete, update, truncate and overwrite on a draft, and of changes that another engine (Spark's tasks) made.

Each is a `Step`. Another engine finds rows by file and position and writes the files with new rows; `apply_changes` makes them part of an
open transaction.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Final

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from ...coordinator.api import Reads
from ...coordinator.rules.intent import OWN_PARTITIONS, Kind
from ...storage.actions import AddCDCFile, AddFile
from ...storage.actions.features import clustering_columns, dotted
from ...storage.actions.file_removals import Removals
from ...storage.actions.filetable import adds_of, picked
from ...storage.actions.records import record_count
from ...storage.data.assignments import Assignments, renewing
from ...storage.data.vectors import Rows
from ...storage.dataclass import dataclass
from ...storage.errors import InvalidRequest, InvariantBroken
from ...storage.expressions.sql import outline_of
from ...storage.jsontext import dumps
from ...storage.pruning.predicate import Predicate
from ...storage.schema.datatypes import StructType, features_of_columns, generated_of, with_values_of_defaults
from ...storage.schema.identity import check_given
from ..client.property_rules import is_kept_by_sluice, primary_key_of
from .data_writing import WritePlan, check_rows
from .draft import Draft, Finished
from .numbering import Numbering

_COMPACTIONS = (Kind.MAJOR, Kind.MINOR)
_STRICTEST = (Kind.CHANGE, Kind.OVERWRITE, Kind.APPEND, Kind.OTHER, *_COMPACTIONS)
LISTED_MAX: Final = 10_000
"""More files than any footprint lists."""
_LOOKED_UP_BYTES_MAX: Final = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Step:
    """One operation of a transaction, as the history describes it. `operation`, `parameters` and `metrics` have Delta's names."""

    operation: str
    kind: Kind
    parameters: Mapping[str, str] = field(default_factory=dict)
    metrics: Mapping[str, int] = field(default_factory=dict)
    reads: Reads | None = None
    """What it read of the table; None if nothing: a plain append."""
    scope: str | None = None
    """What an overwrite replaces ("" is the whole table)."""
    changes: bool = True
    """Whether it changed something: the history shows no others."""

    @staticmethod
    def reading(operation: str, reads: Reads | None) -> Step:
        """One that only reads."""
        return Step(operation, Kind.OTHER, reads=reads, changes=False)


@dataclass(frozen=False)
class RowOperation:
    """An operation of an open transaction in which another engine changes rows."""

    draft: Draft
    """In which the changes are made."""
    plan: WritePlan
    """How new rows are written; it adds no columns."""
    label: str
    """Distinguishes the operation's files from those of others of its transaction."""
    step: Step
    """Set at last; the transaction takes it when the block ends."""
    numbering: Numbering | None
    """Takes numbers for the identity columns of new rows."""
    numbered: Sequence[AddFile] | None = None
    """The files of tasks that had numbers."""


@dataclass(frozen=True, slots=True)
class ReplacedRows:
    """The rows that a plan replaces: those of `files` that satisfy the predicate (None: the whole table)."""

    predicate: Predicate | None
    files: pa.Table
    reads: Reads
    kind: Kind
    scope: str | None


def reads_in(draft: Draft, predicate: Predicate | None, files: pa.Table, *, whole_files: bool = False) -> Reads:
    """The reads of a change of rows: its condition, and its candidate files if rows cannot be compared, or if it replaces `whole_files`."""
    sql = "" if predicate is None else predicate.to_sql()
    if draft.uses_vectors and not whole_files:
        return Reads(predicates=(sql,))
    listed = None if files.num_rows > LISTED_MAX else tuple([path for path in files["path"].to_pylist() if not draft.is_own(path)])
    return Reads(predicates=(sql,), files=listed)


def rows_read(draft: Draft, where: str | None) -> Reads:
    """The reads of rows that satisfy `where` (None: all) and were read elsewhere: the rows, if they are few enough to look them up."""
    predicate = None if where is None else Predicate.parse(where, draft.schema)
    files = draft.candidates(predicate)
    reads = Reads(predicates=("" if predicate is None else predicate.to_sql(),))
    if predicate is not None and draft.uses_vectors and (pc.sum(files["size"]).as_py() or 0) <= _LOOKED_UP_BYTES_MAX:
        return replace(reads, rows=draft.read_rows([], predicate, files)[1])
    return replace(reads, files=tuple(files["path"].to_pylist()))


def _delete_matching(draft: Draft, predicate: Predicate | None, files: pa.Table, *, exactly: bool = False) -> int:
    """Delete the rows of `files` that satisfy the predicate (None: all); returns how many, as `Draft.count` knows.

    Files of which certainly all rows do are not read.
    """
    if predicate is None:
        surely = pa.repeat(pa.scalar(True), files.num_rows)
    else:
        surely = predicate.matches_all(files, schema=draft.schema, partition_columns=draft.partition_columns)
    whole = picked(files, surely)
    rows = draft.count(whole, exactly=exactly)
    draft.drop_all(whole)
    for found in draft.find(predicate, picked(files, pc.invert(surely)), columns=[]):
        draft.delete(found.file, found.positions)
        rows += len(found.positions)
    return rows


def delete_rows(draft: Draft, where: str) -> Step:
    """Delete the rows that satisfy `where`."""
    predicate = Predicate.parse(where, draft.schema)
    files = draft.candidates(predicate)
    reads = reads_in(draft, predicate, files)
    rows = _delete_matching(draft, predicate, files, exactly=True)
    return Step("DELETE", Kind.CHANGE, {"predicate": where}, {"numDeletedRows": rows}, reads, changes=rows > 0)


def update_rows(draft: Draft, assigned: Mapping[str, str], where: str | None, *, label: str) -> Step:
    """Give the rows that satisfy `where` (None: all) new values.

    Raises PredicateError for an unusable expression, ConstraintViolated and SchemaMismatch for a row's new values.
    """
    require_no_keys(draft, assigned)
    if features_of_columns(draft.schema):
        check_given(draft.schema, [str(name).strip("`") for name in assigned or ()], changes=True)
    values = with_values_of_defaults(assigned, draft.schema)
    assignments = Assignments(()) if assigned and not values else Assignments.parse(values, draft.schema)
    changes = assignments, renewing(draft.schema, assignments.columns)  # generated columns follow from the others
    require_no_keys(draft, with_those_made_of(draft.schema, assignments.columns))
    predicate = None if where is None else Predicate.parse(where, draft.schema)
    files = draft.candidates(predicate)
    reads = reads_in(draft, predicate, files)
    # Rows that this transaction added itself stay new to the table.
    is_new = pa.array([draft.is_new(path) for path in files["path"].to_pylist()], pa.bool_())
    rows = _rewritten(draft, changes, predicate, picked(files, pc.invert(is_new)), label)
    if pc.any(is_new).as_py():
        rows += _rewritten(draft, changes, predicate, files.filter(is_new), f"{label}n")
    return Step("UPDATE", Kind.CHANGE, {} if where is None else {"predicate": where}, {"numUpdatedRows": rows}, reads, changes=rows > 0)


def _rewritten(draft: Draft, changes: Sequence[Assignments], predicate: Predicate | None, files: pa.Table, label: str) -> int:
    """Write the rows of `files` that satisfy the predicate, after these changes in turn, to new files; returns how many."""
    gone: list[tuple[AddFile, pa.Array]] = []

    def updated() -> Iterator[pa.Table]:
        nbytes = 0
        for found in draft.find(predicate, files, with_ids=True):
            gone.append((found.file, found.positions))
            draft.require_room(nbytes := nbytes + Removals.least_bytes_of([found.file]))
            rows = found.rows
            for change in changes:
                rows = change.apply(rows)
            # readers give rows that store no commit version the version of the commit
            yield rows if draft.row_ids is None else rows.drop_columns([draft.row_ids.commit_version])

    are_new = files.num_rows > 0 and draft.is_new(files["path"][0].as_py())
    written_files = draft.write(updated(), label=label, check=check_rows(draft.metadata), with_ids=True)
    draft.replace(gone, [] if are_new else written_files)
    if are_new:
        draft.add(written_files)
    return sum(len(positions) for _, positions in gone)


def with_those_made_of(schema: StructType, columns: Sequence[str]) -> list[str]:
    """These columns, and those that are generated from them."""
    lowered = {name.lower() for name in columns}
    others = {each.name: text for each in schema.fields if each.name.lower() not in lowered and (text := generated_of(each)) is not None}
    made = [name for name, text in others.items() if lowered & {each.lower() for each in outline_of(text, clock=False).columns}]
    return [*columns, *made]


def keys_among(draft: Draft, columns: Iterable[str]) -> list[str]:
    """The columns that identify rows: those of the primary key and, beside it, of the partition."""
    key = primary_key_of(draft.metadata.configuration, draft.schema)
    keys = {name.lower() for name in (*key, *draft.partition_columns)} if key else set()
    return [name for name in columns if str(name).lower() in keys]


def require_no_keys(draft: Draft, assigned: Iterable[str]) -> None:
    """Raise InvalidRequest if an update sets columns that identify rows."""
    if named := keys_among(draft, assigned):
        raise keys_changed(named)


def keys_changed(columns: Sequence[str]) -> InvalidRequest:
    """The refusal of a change of columns that identify rows."""
    return InvalidRequest(
        f"update sets {', '.join(map(repr, columns))}, but a row is identified by its partition and its primary key (sluice.primaryKey): "
        "delete such rows and upsert the new ones, in one transaction (Table.begin)",
        columns=columns,
    )


def truncate_rows(draft: Draft, where: str | None) -> Step:
    """Remove whole files: all of them, or the partitions that satisfy `where`."""
    predicate = None if where is None else Predicate.parse(where, draft.schema)
    if predicate is not None and predicate.split(draft.partition_columns)[1] is not None:
        raise InvalidRequest(
            f"truncate empties whole partitions, but {where!r} is not about partition columns alone "
            f"({', '.join(draft.partition_columns) or 'there are none'}); use delete({where!r})",
            where=where,
        )
    files = draft.candidates(predicate)
    reads = reads_in(draft, predicate, files, whole_files=True)
    metrics = {"numDeletedRows": _delete_matching(draft, predicate, files)}
    parameters = {} if where is None else {"predicate": where}
    return Step("TRUNCATE", Kind.OVERWRITE, parameters, metrics, reads, where or "", changes=files.num_rows > 0)


def require_room_for(draft: Draft, plan: WritePlan) -> None:
    """Raise InvalidRequest, before rows are written, if a plan replaces more than one transaction can remove."""
    if plan.mode not in ("append", "dynamic"):
        draft.require_room(Removals.least_bytes(replaced_whole(draft, replaced_by(draft, plan, ()))))


def replaced_whole(draft: Draft, replaced: ReplacedRows) -> pa.Table:
    """The files that are certainly removed as a whole, without reading them."""
    predicate, files = replaced.predicate, replaced.files
    if predicate is None:
        return files
    return files.filter(pc.fill_null(predicate.matches_all(files, schema=draft.schema, partition_columns=draft.partition_columns), False))


def add_files(draft: Draft, plan: WritePlan, files: Sequence[AddFile]) -> Step:
    """Add what a plan's writers wrote, in place of what its mode replaces."""
    redefines = plan.redefines
    if plan.changes_metadata:
        draft.adopt(plan.metadata, redefines)
    parameters: dict[str, str] = {}
    if redefines is None or not redefines.replaces_table:
        parameters["mode"] = "Append" if plan.mode == "append" else "Overwrite"
    if redefines is not None:
        parameters["partitionBy"] = dumps(list(plan.metadata.partition_columns)).decode()
        if redefines.replaces_table:
            properties = {key: value for key, value in plan.metadata.configuration.items() if not is_kept_by_sluice(key)}
            parameters["properties"] = dumps(properties).decode()
        clustered_by = [dotted(path) for each in redefines.clustering for path in clustering_columns({each.domain: each}, plan.schema)]
        if clustered_by:
            parameters["clusterBy"] = dumps(clustered_by).decode()
    if plan.mode == "dynamic":
        parameters["partitionOverwriteMode"] = "dynamic"
    if plan.where is not None:
        parameters["predicate"] = plan.where
    step = Step("WRITE", Kind.APPEND, parameters, written(files))
    if plan.mode != "append":
        gone = replaced_by(draft, plan, files)
        metrics = {**step.metrics, "numDeletedRows": _delete_matching(draft, gone.predicate, gone.files)}
        step = Step("WRITE" if redefines is None else redefines.operation, gone.kind, parameters, metrics, gone.reads, gone.scope)
    draft.add(files)
    return step


def replaced_by(draft: Draft, plan: WritePlan, files: Sequence[AddFile]) -> ReplacedRows:
    """The rows that an overwrite's plan replaces if it wrote `files`; reads no rows."""
    if plan.mode == "dynamic":
        predicate: Predicate | None = Predicate.in_partitions((f.partition_values for f in files), draft.schema)
    else:
        predicate = None if plan.where is None else Predicate.parse(plan.where, draft.schema)
    found = draft.candidates(predicate)
    if predicate is None or predicate.split(draft.partition_columns)[1] is None:  # it is about partition columns alone
        scope = "" if predicate is None else predicate.to_sql()
        return ReplacedRows(predicate, found, reads_in(draft, predicate, found, whole_files=True), Kind.OVERWRITE, scope)
    return ReplacedRows(predicate, found, reads_in(draft, predicate, found), Kind.CHANGE, None)


@dataclass(frozen=True, slots=True)
class Target:
    """The files in which an engine looks for rows, the rows they have lost already, and what it will have read of the table.

    No other rows than those that satisfy `predicate` (None: any) change.
    """

    files: pa.Table
    lost: Mapping[str, Rows]
    reads: Reads
    predicate: Predicate | None = None


@dataclass(frozen=True, slots=True)
class RowChanges:
    """Rows by path and position that were `deleted`, or `replaced` by those of the files `successors`; `added` has new rows.

    `recorded` are the change data files of all of it; None if there are none.
    """

    deleted: Mapping[str, Rows] = field(default_factory=dict)
    replaced: Mapping[str, Rows] = field(default_factory=dict)
    successors: Sequence[AddFile] = ()
    added: Sequence[AddFile] = ()
    recorded: Sequence[AddCDCFile] | None = None


def target_of(draft: Draft, predicate: Predicate | None, read: Predicate | None) -> Target:
    """The target of a change of rows that satisfy `predicate` (None: any); `read` is remembered as read."""
    files = draft.candidates(predicate)
    return Target(files, draft.deleted_in(files), reads_in(draft, read, files), predicate)


def apply_changes(draft: Draft, changes: RowChanges) -> None:
    """Make the changes part of the draft. Raises InvalidRequest if they are more than one commit can have."""
    pristine, live = draft.is_pristine, draft.files
    paths = {*changes.deleted, *changes.replaced}
    chosen = pc.is_in(live["path"], value_set=pa.array(sorted(paths), pa.string())).combine_chunks()
    files = {add.path: add for add in adds_of(picked(live, chosen))}
    if missing := paths - files.keys():
        raise InvariantBroken(f"rows were changed in files that the transaction does not know: {', '.join(sorted(missing)[:3])}")
    draft.foresee(files.values())
    draft.replace([(files[path], rows) for path, rows in changes.replaced.items()], changes.successors)
    for path, rows in changes.deleted.items():
        # the same row is either replaced or deleted, so the file may be gone only if all its rows are
        draft.delete(files[path], rows)
    draft.add(changes.added)
    if changes.recorded is not None and pristine:
        draft.recorded = tuple(changes.recorded)


# -- how the history describes them ----------------------------------------------------------------------------------------


def row_count(adds: Iterable[AddFile]) -> int:
    """The number of remaining rows in files, by their statistics; a file without statistics counts none."""
    rows = 0
    for add in adds:
        counted, vector = record_count(add.stats), add.deletion_vector
        rows += 0 if counted is None else counted if vector is None else counted - vector.cardinality
    return rows


def written(files: Sequence[AddFile]) -> dict[str, int]:
    """The metrics of written rows."""
    return {"numFiles": len(files), "numOutputRows": row_count(files), "numOutputBytes": sum([add.size for add in files])}


def operation_of(steps: Sequence[Step]) -> tuple[Kind, str, dict[str, str]]:
    """The kind of the steps together (the strictest among them), its name and its parameters."""
    kind = min([step.kind for step in steps], key=_STRICTEST.index, default=Kind.OTHER)
    if len(steps) == 1:
        return kind, steps[0].operation, dict(steps[0].parameters)
    return kind, "TRANSACTION", {"operations": orjson.dumps([{"operation": step.operation, **step.parameters} for step in steps]).decode()}


def scope_of(steps: Sequence[Step]) -> str:
    """The scope that the steps replace together."""
    if all(step.parameters.get("partitionOverwriteMode") == "dynamic" for step in steps):
        return OWN_PARTITIONS
    scopes = list(dict.fromkeys(step.scope for step in steps if step.scope is not None))
    return "" if "" in scopes or not scopes else scopes[0] if len(scopes) == 1 else " OR ".join(f"({scope})" for scope in scopes)


def reads_of(parts: Iterable[Reads | None]) -> Reads | None:
    """Everything that was read; None if nothing was."""
    found = [part for part in parts if part is not None]
    if len(found) <= 1:
        return found[0] if found else None
    rows: dict[str, Rows] = {}
    for part in found:
        for path, read in part.rows.items():
            rows[path] = rows[path] | read if path in rows else read
    return Reads(
        predicates=tuple(dict.fromkeys(p for part in found for p in part.predicates)),
        files=None if any(part.files is None for part in found) else tuple(dict.fromkeys(f for part in found for f in part.files or ())),
        rows=rows,
        locks=tuple(dict.fromkeys(p for part in found for p in part.locks)),
        whole_table=any(part.whole_table for part in found),
        apps=tuple(dict.fromkeys(a for part in found for a in part.apps)),
    )


def commit_metrics(steps: Sequence[Step], finished: Finished, change_files: int, worked_ms: int) -> dict[str, str]:
    """The metrics of a commit: the steps' counts and, unless they only append or compact, its files and how long the steps took."""
    total: Counter[str] = Counter()
    merges = len(steps) == 1 and steps[0].operation == "MERGE"
    counts = [step.metrics for step in steps]
    if merges or [step for step in steps if step.reads is not None and step.kind not in _COMPACTIONS]:
        # Delta's names, and those that a MERGE has for the same
        files = [
            ("numAddedFiles", "numTargetFilesAdded", len(finished.added)),
            ("numAddedBytes", "numTargetBytesAdded", sum([add.size for add in finished.added])),
            ("numRemovedFiles", "numTargetFilesRemoved", finished.removed),
            ("numRemovedBytes", "numTargetBytesRemoved", finished.removed_bytes),
            ("numAddedChangeFiles", "numTargetChangeFilesAdded", change_files),
            ("numCopiedRows", "numTargetRowsCopied", finished.copied_rows),
            ("numDeletionVectorsAdded", "numTargetDeletionVectorsAdded", finished.vectors_added),
            ("numDeletionVectorsUpdated", "numTargetDeletionVectorsUpdated", finished.vectors_updated),
            ("numDeletionVectorsRemoved", "numTargetDeletionVectorsRemoved", finished.vectors_removed),
        ]
        counts += [{of_merge if merges else name: count for name, of_merge, count in files}, {"executionTimeMs": max(worked_ms, 0)}]
    for each in counts:
        total.update(each)
    return {name: str(value) for name, value in total.items()}
