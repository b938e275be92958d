"""MERGE by Spark in one pass over the table, as an operation of an open transaction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pyspark.sql import Column, DataFrame, SparkSession

from ...coordinator.facade.values import Reads
from ...coordinator.rules.operation_kinds import Kind
from ...storage.dataclass import dataclass
from ...storage.pruning.predicate import Predicate
from ...tables.transaction import Transaction
from ...tables.write.merging import (
    MATCHED,
    NOT_MATCHED,
    NOT_MATCHED_BY_SOURCE,
    RowCounts,
    merge_metrics,
    merge_parameters,
)
from ...tables.write.operation_records import RowOperation, Step
from ...tables.write.row_operations import Target, target_of
from ..active_session import evolves_schemas
from ..jvm import in_session
from .assignments import Assigned, old_values
from .change import delete_rows, update_rows
from .change_job import Work
from .clauses import assigned_by, evolved
from .conditions import attributes_in, column_of, conjuncts, equal_keys, names_of, predicate_of, resolved, used_by
from .matching import Analysed, carry_out
from .plan_reads import depend_on_reads
from .request import Clause, MergeRequest
from .session import session_for_changes
from .source import KeyValues, keep, key_values


def merge_rows(part: Transaction, spark: SparkSession, request: MergeRequest) -> RowCounts:
    """Change the table's rows as requested, as an operation of the transaction.

    Raises AnalysisException for what Spark cannot resolve; InvalidRequest for clauses, names and expressions that cannot be, for a source
    that reads a later version of the table than the transaction, and if two rows of the source change one row of the table;
    SchemaMismatch and ConstraintViolated for new rows that do not fit the table.
    """
    request.check()
    if request.source is not None:
        depend_on_reads(part, request.source)
    with session_for_changes(spark) as session, part.operation(request.operation, replaces=request.replaces) as operation:
        match request.operation:
            case "DELETE":
                return delete_rows(session, operation, request)
            case "UPDATE":
                return update_rows(session, operation, request)
        return _merged(session, operation, request)


def _merged(session: SparkSession, operation: RowOperation, request: MergeRequest) -> RowCounts:
    assert request.source is not None
    assert request.on is not None
    on, clauses, target_alias = request.on, request.clauses, request.target_alias
    evolving = request.schema_evolution or evolves_schemas(session)
    given = in_session(session, request.source)
    given = given if request.source_alias is None else given.alias(request.source_alias)
    plan, evolves = evolved(session, operation.plan, given, clauses, target_alias) if evolving else (operation.plan, False)
    work = Work(session, replace(operation, plan=plan), attributes_in(request.frames, request.expressions, given))
    resolved_merge = _analysed(work, given, _Asked(on, clauses, target_alias, evolving, request.subqueries))
    if evolves:
        operation.draft.adopt(plan.metadata)
    counts, reads, rows = _merge(work, given, resolved_merge)
    told = [(each, None if each.condition is None else str(each.condition)) for each in clauses]
    step = Step("MERGE", Kind.CHANGE, merge_parameters(str(on), told), merge_metrics(counts, rows), reads)
    operation.done(step if counts.affected or evolves else None, reads)
    return counts


@dataclass(frozen=True, slots=True)
class _Asked:
    on: Column | str
    clauses: Sequence[Clause]
    target_alias: str | None
    evolves: bool
    subqueries: bool


def _analysed(work: Work, given: DataFrame, asked: _Asked) -> Analysed:
    """Have Spark resolve everything, each expression against the rows that it is for, before rows are read.

    Raises AnalysisException and InvalidRequest.
    """
    target = work.empty(asked.target_alias)
    pairs = target.crossJoin(given)
    sides = {MATCHED: pairs, NOT_MATCHED: given, NOT_MATCHED_BY_SOURCE: target}
    mine, theirs = names_of(target), names_of(given)
    old = old_values(target)
    on = resolved(pairs, asked.on, "the merge", subqueries=asked.subqueries)
    parts = list(conjuncts(on))
    keys = equal_keys(parts, mine, theirs, work.session)
    matching, _ = predicate_of(parts, mine, work.schema)
    clauses: list[Clause] = []
    assigned: list[Assigned] = []
    unmatched: list[Predicate | None] = []
    used = used_by(work.session, [column_of(work.session, on)], mine)
    for clause in asked.clauses:
        frame, alias, may_ask = sides[clause.matched], asked.target_alias, asked.subqueries
        tree = None if clause.condition is None else resolved(frame, clause.condition, clause.name, subqueries=may_ask)
        if clause.matched == NOT_MATCHED_BY_SOURCE:
            unmatched.append(None if tree is None else predicate_of(list(conjuncts(tree)), mine, work.schema)[0])
        condition = None if tree is None else column_of(work.session, tree)
        new = assigned_by(clause, frame, given, old, work, alias, keys=keys, evolves=asked.evolves, subqueries=may_ask)
        clauses.append(replace(clause, condition=condition))
        assigned.append(new)
        if not clause.inserts:  # they use the source alone
            used |= used_by(work.session, [*new.values.values(), *([] if condition is None else [condition])], mine)
            used |= new.kept_in(work.schema) if clause.writes else frozenset()
    return Analysed(column_of(work.session, on), clauses, assigned, keys, matching, _any_of(unmatched), used)


def _any_of(predicates: Sequence[Predicate | None]) -> Predicate | None:
    """A predicate that holds wherever one of these does; None is one that always holds."""
    either: Predicate | None = None
    for each in predicates:
        if each is None:
            return None
        either = each if either is None else either.or_(each)
    return either


def _merge(work: Work, given: DataFrame, merge: Analysed) -> tuple[RowCounts, Reads, int]:
    """The counts, what was read, and the number of rows of the source (0 if it was not counted)."""
    kept = keep(given, work.name("number", given), merge.keys)
    try:
        target = _target(work, merge, key_values(kept, work.schema))
        counts, reads = carry_out(work, kept, target, merge)
    finally:
        kept.forget()
    return counts, reads, kept.rows or 0


def _target(work: Work, merge: Analysed, values: KeyValues) -> Target:
    """The files that may have rows to change or to match, and what is read of the table."""
    unmatched = any(clause.matched == NOT_MATCHED_BY_SOURCE for clause in merge.clauses)
    if values.nothing and not unmatched:
        empty = target_of(work.draft, None, None)
        return Target(empty.files.slice(0, 0), {}, Reads())
    skipping, read = (_both(merge.matching, each) for each in (values.skipping, values.remembered))
    if unmatched:
        skipping, read = (None if each is None or merge.unmatched is None else each.or_(merge.unmatched) for each in (skipping, read))
    return target_of(work.draft, skipping, read)


def _both(one: Predicate | None, other: Predicate | None) -> Predicate | None:
    return other if one is None else one if other is None else one.and_(other)
