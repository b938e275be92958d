"""MERGE by Spark in one pass over the table, as an operation of an open transaction."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, SparkSession

from ...coordinator.facade.values import Reads
from ...coordinator.rules.operation_kinds import Kind
from ...storage.dataclass import dataclass
from ...storage.errors import InvalidRequest
from ...storage.pruning.predicate import Predicate
from ...tables.transaction import Transaction
from ...tables.write.data_writing import WritePlan
from ...tables.write.draft import Draft
from ...tables.write.merging import (
    MATCHED,
    NOT_MATCHED,
    NOT_MATCHED_BY_SOURCE,
    RowCounts,
    check_clauses,
    merge_metrics,
    merge_parameters,
)
from ...tables.write.operation_records import Step
from ...tables.write.row_operations import Target, target_of
from ..jvm import in_session
from .assignments import Assigned, old_values
from .change_job import Work
from .clauses import Clause, assigned_by, evolved, source_columns
from .conditions import attributes_in, conjuncts, equal_keys, names_of, predicate_of, resolved, used_by
from .matching import carry_out
from .session import session_for_changes
from .source import KeyValues, keep, key_values, require_no_later_version


def merge_rows(
    part: Transaction,
    spark: SparkSession,
    source: DataFrame,
    on: Column | str,
    clauses: Sequence[Clause],
    *,
    target_alias: str | None = None,
    source_alias: str | None = None,
    schema_evolution: bool = False,
    frames: Sequence[DataFrame] = (),
    subqueries: bool = False,
) -> RowCounts:
    """Change the rows of the table by those of `source`: for each pair that satisfies `on`, each row of the source without one
    ("not_matched") and each row of the table without one ("not_matched_by_source") the first clause that applies.

    `on` and the clauses' conditions and values are Columns or SQL over both sides, by their aliases; Columns of the source, or of one of
    `frames`, which are the table's, if the source is not such a frame itself, mean what they say without an alias. With `schema_evolution`,
    columns of the source that clauses write and the table lacks are added to the table. The source is evaluated once. With
    `subqueries` conditions and values may have them, as for `delete_rows`.

    Raises AnalysisException for what Spark cannot resolve, InvalidRequest for clauses that cannot be, for a source that reads a later
    version of the table than the transaction, and if two rows of the source change one row of the table; SchemaMismatch and
    ConstraintViolated for new rows that do not fit the table.
    """
    check_clauses(clauses)
    if not isinstance(source, DataFrame):
        raise InvalidRequest(f"the source is of type {type(source).__name__}; give a Spark DataFrame")
    counted: list[RowCounts] = []

    def change(draft: Draft, plan: WritePlan, label: str) -> tuple[Reads | None, Step | None]:
        given = in_session(session, source)
        require_no_later_version(given, part, plan.address.location)
        given = given if source_alias is None else given.alias(source_alias)
        plan, evolves = evolved(session, plan, given, clauses, target_alias) if schema_evolution else (plan, False)
        values = [value for clause in clauses for value in (clause.condition, *clause.assignments.values())]
        work = Work(session, draft, plan, label, attributes_in(frames, [on, *values], given))
        asked = _Asked(on, clauses, target_alias, schema_evolution, subqueries)
        found = _analysed(work, given, asked)
        if evolves:
            draft.adopt(plan.metadata)
        counts, reads, rows = _merge(work, given, asked, found)
        counted.append(counts)
        if not counts.affected and not evolves:
            return reads, None
        told = [(each, None if each.condition is None else str(each.condition)) for each in clauses]
        metrics, parameters = merge_metrics(counts, rows), merge_parameters(str(on), told)
        return reads, Step("MERGE", Kind.CHANGE, parameters, metrics, reads)

    with session_for_changes(spark) as session:
        part.change_elsewhere("MERGE", change, replaces=any(not clause.inserts for clause in clauses))
    return counted[0]


@dataclass(frozen=True, slots=True)
class _Asked:
    on: Column | str
    clauses: Sequence[Clause]
    target_alias: str | None
    evolves: bool
    subqueries: bool


@dataclass(frozen=True, slots=True)
class _Found:
    """What the conditions say of the target: the predicate that rows to match satisfy, the one of rows without a match that are
    changed (None: any), the columns that equal expressions of the source, and whether these equalities are all. And what the clauses
    assign.
    """

    matching: Predicate | None
    unmatched: Predicate | None
    keys: Sequence[tuple[str, Column]]
    only_keys: bool
    assigned: Sequence[Assigned]


def _analysed(work: Work, given: DataFrame, asked: _Asked) -> _Found:
    """Have Spark resolve everything, before rows are read. Raises AnalysisException and InvalidRequest."""
    target = work.empty(asked.target_alias)
    pairs = target.crossJoin(given)
    sides = {MATCHED: pairs, NOT_MATCHED: given, NOT_MATCHED_BY_SOURCE: target}
    mine, theirs = names_of(target), names_of(given)
    old, source = old_values(target, work.schema), source_columns(given)
    assigned: list[Assigned] = []
    parts = list(conjuncts(resolved(pairs, asked.on, "the merge", subqueries=asked.subqueries)))
    keys = equal_keys(parts, mine, theirs, work.session)
    unmatched: Predicate | None = None
    is_any = False
    for clause in asked.clauses:
        frame, alias, may_ask = sides[clause.matched], asked.target_alias, asked.subqueries
        tree = None if clause.condition is None else resolved(frame, clause.condition, clause.name, subqueries=may_ask)
        if clause.matched == NOT_MATCHED_BY_SOURCE:
            predicate = None if tree is None else predicate_of(list(conjuncts(tree)), mine, work.schema)[0]
            is_any = is_any or predicate is None
            unmatched = predicate if unmatched is None or predicate is None else unmatched.or_(predicate)
        assigned.append(assigned_by(clause, frame, source, old, work, alias, keys=keys, evolves=asked.evolves, subqueries=may_ask))
    matching, _ = predicate_of(parts, mine, work.schema)
    return _Found(matching, None if is_any else unmatched, keys, len(keys) == len(parts), assigned)


def _merge(work: Work, given: DataFrame, asked: _Asked, found: _Found) -> tuple[RowCounts, Reads, int]:
    """The counts, what was read, and the number of rows of the source (0 if it was not counted)."""
    kept = keep(given, work.name("number", given), found.keys)
    try:
        values = key_values(kept, work.schema)
        target = _target(work, asked, found, values)
        counts, reads = carry_out(
            work,
            kept,
            target,
            asked.on,
            asked.clauses,
            found.assigned,
            asked.target_alias,
            lambda: _needed(work, given, asked, found.assigned),
            keys=found.keys,
            only_keys=found.only_keys,
        )
    finally:
        kept.forget()
    return counts, reads, kept.rows or 0


def _needed(work: Work, given: DataFrame, asked: _Asked, assigned: Sequence[Assigned]) -> frozenset[str]:
    """The table's columns that conditions use, and those that new rows take over or are made of."""
    target = work.empty(asked.target_alias)
    pairs = target.crossJoin(given)
    mine = names_of(target)
    needed = used_by(pairs, [asked.on], mine)
    for clause, new in zip(asked.clauses, assigned, strict=True):
        if clause.inserts:
            continue  # they use the source alone
        rows = pairs if clause.matched == MATCHED else target
        needed |= used_by(rows, [*new.values.values(), *([] if clause.condition is None else [clause.condition])], mine)
        needed |= new.kept_in(work.schema) if clause.writes else frozenset()
    return needed


def _target(work: Work, asked: _Asked, found: _Found, values: KeyValues) -> Target:
    """The files that may have rows to change or to match, and what is read of the table."""
    unmatched = any(clause.matched == NOT_MATCHED_BY_SOURCE for clause in asked.clauses)
    if values.nothing and not unmatched:
        empty = target_of(work.draft, None, None)
        return Target(empty.files.slice(0, 0), {}, Reads())
    skipping, read = (_both(found.matching, each) for each in (values.skipping, values.remembered))
    if unmatched:
        skipping, read = (None if each is None or found.unmatched is None else each.or_(found.unmatched) for each in (skipping, read))
    return target_of(work.draft, skipping, read)


def _both(one: Predicate | None, other: Predicate | None) -> Predicate | None:
    return other if one is None else one if other is None else one.and_(other)
