"""DELETE and UPDATE by Spark, as operations of an open transaction."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from ...coordinator.rules.operation_kinds import Kind
from ...storage.actions.filetable import picked
from ...storage.errors import InvalidRequest
from ...storage.pruning.predicate import Predicate
from ...storage.schema.computed import generated_of
from ...tables.write.draft import Draft
from ...tables.write.merging import RowCounts
from ...tables.write.operation_records import RowOperation, Step
from ...tables.write.row_operations import Target, require_no_keys, target_of, with_those_made_of
from ..jvm import named
from .assignments import Assigned, assigned_in, defaults_in, new_values, old_values, path_of
from .change_job import Located, Work
from .conditions import attributes_in, column_of, conjuncts, names_of, predicate_of, resolved, used_by
from .request import MergeRequest
from .writer import DELETE, Done, Hidden


def delete_rows(session: SparkSession, operation: RowOperation, request: MergeRequest) -> RowCounts:
    """Delete the rows that satisfy the condition. Files of which statistics or partition values show that all rows do are not read."""
    [clause] = request.clauses
    draft, condition = operation.draft, clause.condition
    work = Work(session, operation, attributes_in(request.frames, request.expressions))
    which, predicate, exact = _which(work, condition, request.target_alias, "DELETE", subqueries=request.subqueries)
    target = target_of(draft, predicate, predicate)
    rest, rows = _drop_whole(draft, target, predicate, exact=exact)
    if rest.num_rows:
        rows += _delete_from(work, replace(target, files=rest), which)
    parameters = {} if condition is None else {"predicate": _told(condition)}
    operation.done(Step("DELETE", Kind.CHANGE, parameters, {"numDeletedRows": rows}, target.reads) if rows else None, target.reads)
    return RowCounts(deleted=rows)


def update_rows(session: SparkSession, operation: RowOperation, request: MergeRequest) -> RowCounts:
    """Give columns new values in the rows that satisfy the condition."""
    [clause] = request.clauses
    draft, condition, assignments, alias = operation.draft, clause.condition, clause.assignments, request.target_alias
    work = Work(session, operation, attributes_in(request.frames, request.expressions))
    empty = work.empty(alias)
    values = {path_of(session, name, work.schema, alias): value for name, value in assignments.items()}
    if len(values) < len(assignments):
        raise InvalidRequest(f"the update assigns a column twice: {', '.join(assignments)}")
    values = defaults_in(session, values, work.schema)
    require_no_keys(draft, with_those_made_of(work.schema, [path[0] for path in values]))
    assigned = assigned_in(empty, values, "the update", subqueries=request.subqueries)
    new_values(session, assigned, work.schema, old_values(empty))
    which, predicate, _ = _which(work, condition, alias, "UPDATE", subqueries=request.subqueries)
    target = target_of(draft, predicate, predicate)
    rows = _update_in(work, target, assigned, which) if target.files.num_rows else 0
    parameters = {} if condition is None else {"predicate": _told(condition)}
    operation.done(Step("UPDATE", Kind.CHANGE, parameters, {"numUpdatedRows": rows}, target.reads) if rows else None, target.reads)
    return RowCounts(updated=rows)


def _which(
    work: Work, condition: Column | str | None, alias: str | None, what: str, *, subqueries: bool
) -> tuple[Column | None, Predicate | None, bool]:
    """A condition as Spark resolves it, the part of it that sluice can evaluate, and whether that is all of it."""
    if condition is None:
        return None, None, True
    empty = work.empty(alias)
    tree = resolved(empty, condition, what, subqueries=subqueries)
    return column_of(work.session, tree), *predicate_of(list(conjuncts(tree)), names_of(empty), work.schema)


def _told(condition: Column | str) -> str:
    """A condition for the history."""
    return condition if isinstance(condition, str) else str(condition).removeprefix("Column<'").removesuffix("'>")


def _drop_whole(draft: Draft, target: Target, predicate: Predicate | None, *, exact: bool) -> tuple[pa.Table, int]:
    """Remove the files of which certainly all rows satisfy the condition; returns the other files, and the number of removed rows."""
    files = target.files
    if predicate is None and exact:
        surely = pa.repeat(pa.scalar(True), files.num_rows)
    elif predicate is not None and exact:
        surely = predicate.matches_all(files, schema=draft.schema, partition_columns=draft.partition_columns)
    else:
        return files, 0
    surely = pc.fill_null(surely, False)
    if draft.captures_changes and not pc.all(surely).as_py():
        return files, 0  # change data files tell all of a version's changes, or none
    whole = picked(files, surely)
    rows = draft.count(whole, exactly=True)
    draft.drop_all(whole)
    return picked(files, pc.invert(surely)), rows


def _chosen(work: Work, target: Target, condition: Column | None, assigned: Assigned | None = None) -> tuple[Located, DataFrame]:
    """The rows of the target with their places, and those of them that satisfy the condition; `assigned` to them will be what."""
    names = work.name("file"), work.name("row")
    needed = partial(_needed, work, condition, assigned)
    located = work.located(target, names, needed, writes=assigned is not None)
    return located, located.frame if condition is None else located.frame.where(condition)


def _needed(work: Work, condition: Column | None, assigned: Assigned | None) -> frozenset[str]:
    """The columns that the condition uses, and those that the new rows take over or are made of."""
    kept = frozenset[str]() if assigned is None else assigned.kept_in(work.schema)
    values = [*([] if assigned is None else assigned.values.values()), *([] if condition is None else [condition])]
    return kept | used_by(work.session, values, names_of(work.empty(None)))


def _before(work: Work, located: Located) -> tuple[str | None, list[Column]]:
    if not work.records:
        return None, []
    name = work.name("before")
    return name, [F.struct(*located.columns.values()).alias(name)]


def _delete_from(work: Work, target: Target, condition: Column | None) -> int:
    located, chosen = _chosen(work, target, condition)
    before, told = _before(work, located)
    hidden = Hidden(work.name("what"), work.name("file"), work.name("row"), None, before)
    return _carried_out(work, chosen.select(F.lit(DELETE).alias(hidden.what), located.file, located.row, *told), hidden, located)


def _update_in(work: Work, target: Target, assigned: Assigned, condition: Column | None) -> int:
    located, chosen = _chosen(work, target, condition, assigned)
    before, told = _before(work, located)
    hidden = Hidden(work.name("what"), work.name("file"), work.name("row"), None, before)
    new = new_values(work.session, assigned, work.schema, located.columns)
    values = [named(new.get(name, located.columns[name]), name) for name in work.schema.names]
    values += [named(row_id, name) for name, row_id in located.ids.items()]
    what = work.replacing(located.file, located.paths).alias(hidden.what)
    changed = chosen.select(what, located.file, located.row, *told, *values)
    given = {each.name: assigned.gives(each.name) for each in work.schema.fields if generated_of(each) is not None}
    return _carried_out(work, work.with_generated(changed, given, F.col(hidden.what)), hidden, located)


def _carried_out(work: Work, frame: DataFrame, hidden: Hidden, located: Located) -> int:
    done: Done = work.done_by_tasks(frame, hidden)
    if done.changed:
        work.apply(done, located.paths)
    return done.changed
