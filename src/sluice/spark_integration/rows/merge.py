"""MERGE, UPDATE and DELETE by Spark in one pass over the table, as an operation of an open transaction.

Spark's analyser resolves a request (`analysis`), the rows that it may change are located and joined with the source (`source`,
`instructions`), tasks do what each row says (`writer`), and what they report becomes part of the transaction (here).
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from ...coordinator.api import Reads
from ...coordinator.rules.intent import Kind
from ...storage.actions.filetable import add_rows
from ...storage.data.vectors import Rows
from ...storage.errors import InvariantBroken
from ...storage.schema.partitions import uri_to_path
from ...tables.transaction import Transaction
from ...tables.write.merging import RowCounts, ambiguous, may_repeat, merge_metrics, merge_parameters
from ...tables.write.row_operations import RowChanges, Step, apply_changes
from ..active_session import planned_once, session_for_changes
from ..scan.file_rows import rows_of
from ..writing import SETTING, gathering, is_wanted, written_by_executors
from .analysis import AnalysedMerge, Analyser, MergeRequest
from .instructions import (
    Located,
    helper_columns,
    insertions,
    instructions,
    join,
    layout_of,
    locate,
    repeated_rows,
    target_in,
    without_whole_files,
)
from .plan_reads import depend_on_reads
from .source import CachedSource, cached
from .writer import ADD, DELETE, NOTHING, RENEW, REPLACE, HelperColumns, RowTask, TaskResult, changed_by_tasks, changed_here

_SHOWN: Final = 3
"""The most rows with several matches that a refusal shows."""


def merge_rows(part: Transaction, spark: SparkSession, request: MergeRequest) -> RowCounts:
    """Change the table's rows as requested, as an operation of the transaction.

    Raises AnalysisException for what Spark cannot resolve; InvalidRequest for clauses, names and expressions that cannot be, for a source
    that reads a later version of the table than the transaction, and if two rows of the source change one row of the table;
    SchemaMismatch and ConstraintViolated for new rows that do not fit the table.
    """
    request.check()
    if request.source is not None:
        depend_on_reads(part, request.source)
    replaces = any(not each.inserts for each in request.clauses)  # an append-only table takes no change of its rows
    with session_for_changes(spark) as session, part.operation(request.operation, replaces=replaces) as operation:
        merge = Analyser(session, operation, request).analysed()
        if merge.plan.changes_metadata:
            merge.draft.adopt(merge.plan.metadata)
        if merge.source is None:
            counts, operation.step = _merged(merge, None)
        else:
            [number] = merge.names(["number"], merge.source)
            source = cached(merge.source, number, merge.keys)
            try:
                counts, operation.step = _merged(merge, source)
            finally:
                source.forget()
    return counts


def _merged(merge: AnalysedMerge, source: CachedSource | None) -> tuple[RowCounts, Step]:
    """The rows that it changed, and what the history says."""
    target, removed_rows = target_in(merge, source), 0
    if merge.request.operation == "DELETE":
        target, removed_rows = without_whole_files(merge, target)
    helpers = helper_columns(merge, source)
    rows = locate(merge, target, helpers) if target.files.num_rows else None
    if rows is not None:
        result = _done(merge, source, rows, helpers)
    elif source is not None and merge.inserts:  # every row of the source matches nothing
        result = _inserted(merge, source, source.frame, helpers)
    else:
        result = TaskResult.together([])
    paths = {} if rows is None else rows.paths
    if result.changed or result.new_rows:
        _apply(merge, result, paths)
    new, deleted = result.new_rows, sum(map(len, _positions(result, DELETE, paths).values()))
    counts = RowCounts(new.get(REPLACE, 0) + new.get(RENEW, 0), deleted + removed_rows, new.get(ADD, 0))
    # rows that kept a row of the source from being inserted and stay: if others delete one, the merge is another.
    # Without deletion vectors the files are remembered instead
    kept = _positions(result, NOTHING, paths) if merge.inserts and merge.draft.uses_vectors else {}
    reads = replace(target.reads, rows={path: rows for path, rows in kept.items() if not merge.draft.is_own(path)})
    return counts, _step(merge, counts, 0 if source is None else source.rows or 0, reads)


def _step(merge: AnalysedMerge, counts: RowCounts, source_rows: int, reads: Reads) -> Step:
    request = merge.request
    if request.operation == "MERGE":
        conditions = [(each, None if each.condition is None else str(each.condition)) for each in request.clauses]
        parameters, metrics = merge_parameters(str(request.on), conditions), merge_metrics(counts, source_rows)
    else:
        [clause] = request.clauses
        text = str(clause.condition).removeprefix("Column<'").removesuffix("'>")
        parameters = {} if clause.condition is None else {"predicate": clause.condition if isinstance(clause.condition, str) else text}
        metrics = {"numDeletedRows": counts.deleted} if request.operation == "DELETE" else {"numUpdatedRows": counts.updated}
    return Step(request.operation, Kind.CHANGE, parameters, metrics, reads, changes=counts.affected > 0 or merge.plan.changes_metadata)


# -- what tasks do -------------------------------------------------------------------------------------------------------


def _done(merge: AnalysedMerge, source: CachedSource | None, located: Located, helpers: HelperColumns) -> TaskResult:
    """Have tasks change the rows of the table, and insert those of the source that match nothing.

    Raises InvalidRequest, showing some of them, if rows were changed more than once: which of several rows of the source should win is not
    defined. A row that the only clause for matches, without a condition, deletes may be deleted several times.
    """
    pairs = join(merge, source, located, helpers)
    frame = instructions(merge, source, pairs, helpers)
    if source is None:
        return _by_tasks(merge, frame, helpers)
    if pairs.outside is not None:  # the insertion of these rows need not wait until the target has been read; they show their numbers, too
        new = insertions(merge, source, source.frame.where(pairs.outside), helpers)
        frame = frame.unionByName(new, allowMissingColumns=True)
    result = _by_tasks(merge, frame, helpers, shuffles=not source.small)
    rows: dict[str, Rows] = {}  # of the table, by file: each once, however often it was changed
    for (action, file), positions in result.positions.items():
        if action != NOTHING:
            rows[file] = rows[file] | positions if file in rows else positions
    changed_rows = sum(map(len, rows.values()))
    if changed_rows != result.changed and not may_repeat(merge.request.clauses):
        for each in result.written:
            merge.draft.store.delete(uri_to_path(each.path))
        examples = repeated_rows(merge, source, pairs).limit(_SHOWN).collect()
        raise ambiguous(result.changed, changed_rows, [(row["values"].asDict(), row["times"]) for row in examples])
    if helpers.source is None or len(result.matched) == source.rows:
        return result
    return TaskResult.together([result, _inserted(merge, source, source.without(result.matched), helpers, "i")])


def _inserted(merge: AnalysedMerge, source: CachedSource, unmatched: DataFrame, helpers: HelperColumns, step: str = "") -> TaskResult:
    """Insert rows of the source: those of a local one in this process, others by tasks."""
    helpers = HelperColumns(helpers.action, clause=helpers.clause)
    frame = insertions(merge, source, unmatched, helpers)
    if source.local:
        return changed_here(frame, _task(merge, frame, helpers, step))
    return _by_tasks(merge, frame, helpers, step, shuffles=not source.small)


def _by_tasks(merge: AnalysedMerge, frame: DataFrame, helpers: HelperColumns, step: str = "", *, shuffles: bool = False) -> TaskResult:
    """Have tasks follow instructions; `step` distinguishes the jobs of one operation.

    If writes are optimised, the new rows of a partition of the table meet in one task.
    """
    session, task = merge.session, _task(merge, frame, helpers, step)
    has_values = {*merge.plan.schema.names} <= {*frame.columns}
    if has_values and is_wanted(None, session.conf.get(SETTING, "") or "", merge.plan.metadata.configuration):
        with gathering(frame, merge.plan) as shuffled:
            return changed_by_tasks(shuffled, task)
    with nullcontext() if shuffles else planned_once(session):
        return changed_by_tasks(frame, task)


def _task(merge: AnalysedMerge, frame: DataFrame, helpers: HelperColumns, step: str) -> RowTask:
    ids = merge.draft.row_ids if merge.draft.row_ids is not None and merge.draft.row_ids.row_id in frame.columns else None
    return RowTask(merge.plan, merge.label + step, helpers, apart=merge.draft.captures_changes, records=merge.records, ids=ids)


# -- what becomes of it --------------------------------------------------------------------------------------------------


def _apply(merge: AnalysedMerge, result: TaskResult, paths: Mapping[str, str]) -> None:
    """Make what tasks did part of the draft; without deletion vectors, tasks also copy the rows that remain."""
    changes = RowChanges(
        deleted=_positions(result, DELETE, paths),
        replaced=_positions(result, REPLACE, paths),
        successors=result.successors,
        added=result.added,
        recorded=result.recorded if merge.records else None,
    )
    apply_changes(merge.draft, changes)
    remaining = merge.draft.uncopied
    if remaining:
        files = add_rows(remaining)
        kept = rows_of(merge.session, layout_of(merge), files, merge.draft.deleted_in(files))
        _, write = written_by_executors(kept, merge.draft.row_ids)
        merge.draft.copy_of(remaining, write(merge.plan, f"{merge.label}c"))


def _positions(result: TaskResult, action: int, paths: Mapping[str, str]) -> dict[str, Rows]:
    """The positions at which tasks did something, by the path of the file."""
    by_name = {file: rows for (done, file), rows in result.positions.items() if done == action}
    if unknown := by_name.keys() - paths.keys():
        raise InvariantBroken(f"Spark returned rows of {', '.join(unknown)}, files that it was not given")
    return {paths[file]: rows for file, rows in by_name.items()}
