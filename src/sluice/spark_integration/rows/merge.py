"""MERGE, UPDATE and DELETE by Spark in one pass over the table, as an operation of an open transaction.

Spark's analyser resolves a request (`analysis`). The rows that it may change are located, each with its place (its file, and its position
in it), and joined with the source (`source`) into frames each of whose rows is one instruction. Tasks do what each says (`writer`), and
what they report becomes part of the transaction.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from ...coordinator.api import Reads
from ...coordinator.rules.intent import Kind
from ...storage.actions import AddFile
from ...storage.actions.filetable import add_rows, picked
from ...storage.data.vectors import Rows
from ...storage.dataclass import dataclass
from ...storage.errors import InvalidRequest, InvariantBroken
from ...storage.pruning.predicate import Predicate
from ...storage.schema.datatypes import generated_of
from ...storage.schema.identity import identities
from ...storage.schema.partitions import uri_to_path
from ...tables.transaction import Transaction
from ...tables.write.merging import (
    MATCHED,
    NOT_MATCHED,
    NOT_MATCHED_BY_SOURCE,
    RowCounts,
    ambiguous,
    may_repeat,
    merge_metrics,
    merge_parameters,
)
from ...tables.write.row_operations import RowChanges, Step, Target, apply_changes, target_of
from ..active_session import planned_once, session_for_changes
from ..jvm import analysed, called, column_named, items, named, quoted
from ..scan.file_index import Layout
from ..scan.file_rows import rows_by_python, rows_by_spark, rows_of
from ..schemas import to_spark
from ..writing import SETTING, gathering, is_wanted, numbers_of_tasks, renewed, results_of, written_by_executors
from .analysis import AnalysedMerge, Analyser, MergeRequest
from .assignments import new_values
from .conditions import depend_on_reads, numbered_as
from .source import CachedSource, cached, key_range_filter, key_values, outside_all_files, statistics_of
from .writer import ADD, DELETE, NOTHING, RENEW, REPLACE, HelperColumns, RowTask, TaskResult

_log = logging.getLogger(__name__)

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
            if operation.numbering is not None:
                operation.numbering.metadata = merge.plan.metadata
        if merge.source is None:
            counts, operation.step, operation.numbered = _merged(merge, None)
        else:
            [number] = merge.names(["number"], merge.source)
            source = cached(merge.source, number, merge.keys)
            try:
                counts, operation.step, operation.numbered = _merged(merge, source)
            finally:
                source.forget()
    return counts


def _merged(merge: AnalysedMerge, source: CachedSource | None) -> tuple[RowCounts, Step, Sequence[AddFile]]:
    """The rows that it changed, what the history says, and the new files."""
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
    request = merge.request
    if request.operation == "MERGE":
        conditions = [(each, None if each.condition is None else str(each.condition)) for each in request.clauses]
        parameters = merge_parameters(str(request.on), conditions)
        metrics = merge_metrics(counts, 0 if source is None else source.rows or 0)
    else:
        [clause] = request.clauses
        text = str(clause.condition).removeprefix("Column<'").removesuffix("'>")
        parameters = {} if clause.condition is None else {"predicate": clause.condition if isinstance(clause.condition, str) else text}
        metrics = {"numDeletedRows": counts.deleted} if request.operation == "DELETE" else {"numUpdatedRows": counts.updated}
    is_change = counts.affected > 0 or merge.plan.changes_metadata
    step = Step(request.operation, Kind.CHANGE, parameters, metrics, reads, changes=is_change)
    return counts, step, (*result.successors, *result.added)


# -- what tasks have to do -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Located:
    """Rows of the table with their places."""

    frame: DataFrame
    columns: Mapping[str, Column]
    """The table's columns in the frame, by name."""
    file: Column
    """The name of a row's file in the frame."""
    position: Column
    """The row's position in it."""
    paths: Mapping[str, str]
    """The files' paths in the log, by their names in the frame."""
    files: pa.Table
    """The files, in `filetable.FILES_SCHEMA`."""
    read: frozenset[str]
    """The columns that are read: others are null."""
    ids: Mapping[str, Column]
    """The rows' ids, by the name of the files' column for them, if the rows keep theirs."""


def target_in(merge: AnalysedMerge, source: CachedSource | None) -> Target:
    """The files that may have rows to change or to match, and what is read of the table."""
    if source is None:
        return target_of(merge.draft, merge.unmatched, merge.unmatched)
    values = key_values(source, merge.plan.schema)
    if values is None and not merge.keeps_target:
        return Target(target_of(merge.draft, None, None).files.slice(0, 0), {}, Reads())
    skipping, read = (Predicate.all_of([merge.matching, each]) for each in values or (None, None))
    if merge.keeps_target:
        skipping, read = Predicate.any_of([skipping, merge.unmatched]), Predicate.any_of([read, merge.unmatched])
    return target_of(merge.draft, skipping, read)


def without_whole_files(merge: AnalysedMerge, target: Target) -> tuple[Target, int]:
    """For a DELETE: remove the files of which certainly all rows satisfy its condition, unread. Returns the target with the other files,
    and the number of removed rows.
    """
    draft, files = merge.draft, target.files
    if not merge.is_exact:
        return target, 0
    if target.predicate is None:
        surely = pa.repeat(pa.scalar(True), files.num_rows)
    else:
        surely = target.predicate.matches_all(files, schema=draft.schema, partition_columns=draft.partition_columns)
    surely = pc.fill_null(surely, False)
    if draft.captures_changes and not pc.all(surely).as_py():
        return target, 0  # change data files tell all of a version's changes, or none
    whole = picked(files, surely)
    rows = draft.count(whole, exactly=True)
    draft.drop_all(whole)
    return replace(target, files=picked(files, pc.invert(surely))), rows


def locate(merge: AnalysedMerge, target: Target, helpers: HelperColumns) -> Located:
    """The rows of a target. Unless they get new values, they come without their ids."""
    layout, names = layout_of(merge), (helpers.file or "", helpers.position or "")
    renews = any(each.clause.writes and not each.clause.inserts for each in merge.clauses)
    layout, files = layout if renews else replace(layout, row_ids=None), target.files
    frame, read = rows_by_spark(merge.session, layout, files, target.lost, names), frozenset(merge.plan.schema.names)
    if isinstance(frame, str):
        _log.info("%s is read by Python tasks: %s", layout.location, frame)
        read = read if merge.records else merge.columns_used()
        frame = rows_by_python(merge.session, layout, files, target.lost, names, columns=read, predicate=target.predicate)
    attributes = dict(zip(merge.columns.columns, items(analysed(merge.columns).output()), strict=True))
    frame = numbered_as(frame, attributes)
    columns = {name: frame[quoted(name)] for name in merge.plan.schema.names}
    ids = {} if layout.row_ids is None else {layout.row_ids.row_id: frame[quoted(layout.row_ids.row_id)]}
    paths = {str(number): uri for number, uri in enumerate(files["path"].to_pylist())}
    return Located(frame, columns, frame[names[0]], frame[names[1]], paths, files, read, ids)


def layout_of(merge: AnalysedMerge) -> Layout:
    """What a scan of the table needs to know."""
    address, draft = merge.plan.address, merge.draft
    options = dict(address.storage_options)
    return Layout(address.location, options, merge.plan.schema, draft.partition_columns, draft.base.version, draft.row_ids)


def helper_columns(merge: AnalysedMerge, source: CachedSource | None) -> HelperColumns:
    """The columns of the instructions beside the new values. If the source can be sent to every task, the tasks report which of its rows
    matched, and a job that reads the source alone inserts the others.
    """
    words = ("action", "file", "row", "source", "before", "clause")
    action, file, position, number, before, clause = merge.names(words, None if source is None else source.frame)
    reports = source is not None and source.small and merge.inserts
    return HelperColumns(action, file, position, number if reports else None, before if merge.records else None, clause)


@dataclass(frozen=True, slots=True)
class Joined:
    """The pairs, and the rows of either side without one as far as clauses need them; for UPDATE and DELETE the rows that change."""

    frame: DataFrame
    located: Located
    is_pair: Column
    outside: Column | None = None
    """A condition on rows of the source which certainly match nothing, so that they were left out; None: there are none."""


def join(merge: AnalysedMerge, source: CachedSource | None, located: Located, helpers: HelperColumns) -> Joined:
    """The table's rows with those of the source; the table's are read once."""
    if source is None:
        condition = merge.clauses[0].condition
        return Joined(located.frame if condition is None else located.frame.where(condition), located, F.lit(False))
    statistics = statistics_of(located.files, source, merge.plan.schema)
    # a source in this process is inserted without a job
    outside = outside_all_files(source, merge.keys, statistics) if helpers.source is not None and not source.local else None
    in_range = None if merge.keeps_target else key_range_filter(source, statistics, merge.plan.schema)
    rows = located.frame if in_range is None else located.frame.where(in_range)
    others = source.frame if outside is None else source.frame.where(~outside)
    has_source = called(source.number, "isNotNull")
    if source.small:
        others = F.broadcast(source.in_few_tasks(others))
        return Joined(rows.join(others, merge.on, "left" if merge.keeps_target else "inner"), located, has_source, outside)
    how = {(False, False): "inner", (False, True): "right", (True, False): "left", (True, True): "full"}[merge.keeps_target, merge.inserts]
    return Joined(rows.join(others, merge.on, how), located, called(has_source, "and", called(located.file, "isNotNull")))


def instructions(merge: AnalysedMerge, source: CachedSource | None, pairs: Joined, helpers: HelperColumns) -> DataFrame:
    """What to do with the joined rows, and which of them are pairs if there are rows to insert."""
    located, reports = pairs.located, helpers.source is not None
    kinds = (MATCHED, NOT_MATCHED_BY_SOURCE) if reports else (MATCHED, NOT_MATCHED, NOT_MATCHED_BY_SOURCE)
    are_pairs = source is not None and not merge.keeps_target and (source.small or not merge.inserts)
    is_sole = source is None or (are_pairs and _is_sole(merge, kinds))
    clause = None if is_sole else column_named(merge.session, helpers.clause)
    rows = pairs.frame
    if clause is not None:
        applies = called(clause, "isNotNull")
        rows = rows.select("*", named(_clause_number(merge, source, pairs, kinds), helpers.clause))
        rows = rows.where(called(applies, "or", pairs.is_pair) if merge.inserts else applies)
    replaces = F.lit(REPLACE)
    own = [key for key, uri in located.paths.items() if merge.draft.is_new(uri)] if merge.draft.captures_changes else []
    if own:  # rows that the transaction added itself stay new to the table
        replaces = F.when(located.file.isin(own), F.lit(RENEW)).otherwise(replaces)
    codes = {"update": replaces, "update_all": replaces, "delete": F.lit(DELETE), "insert": F.lit(ADD), "insert_all": F.lit(ADD)}
    action = F.lit(NOTHING)
    for number, each in enumerate(merge.clauses):
        if each.clause.matched in kinds:
            code = codes[each.clause.action]
            action = code if clause is None else called(F.when(called(clause, "equalTo", number), code), "otherwise", action)
    columns = [named(action, helpers.action), located.file, located.position]
    if source is not None and helpers.source is not None:
        columns.append(named(source.number, helpers.source))
    if helpers.before is not None:
        before = F.struct(*located.columns.values())
        changes = None if clause is None else called(called(clause, "isNotNull"), "and", called(located.file, "isNotNull"))
        columns.append(named(before if changes is None else F.when(changes, before), helpers.before))
    # rows of the source that match nothing have no id yet
    ids = [named(row_id, name) for name, row_id in located.ids.items()]
    values = _values(merge, located.columns, clause, kinds)
    return _with_values(merge, rows, [*columns, *values, *ids] if values else columns, helpers, clause, kinds)


def insertions(merge: AnalysedMerge, source: CachedSource, unmatched: DataFrame, helpers: HelperColumns) -> DataFrame:
    """What to do to insert rows of the source; the instructions have the number of the row if `helpers` has a column for it."""
    kinds = (NOT_MATCHED,)
    clause = None if _is_sole(merge, kinds) else column_named(merge.session, helpers.clause)
    rows = source.in_few_tasks(unmatched)
    if clause is not None:
        rows = rows.select("*", named(_clause_number(merge, source, None, kinds), helpers.clause)).where(called(clause, "isNotNull"))
    columns = [named(F.lit(ADD), helpers.action), *([] if helpers.source is None else [named(source.number, helpers.source)])]
    return _with_values(merge, rows, [*columns, *_values(merge, {}, clause, kinds)], helpers, clause, kinds)


def repeated_rows(merge: AnalysedMerge, source: CachedSource, pairs: Joined) -> DataFrame:
    """The table's rows that clauses change for several rows of the source, once each: their `values`, and how many `times`."""
    located = pairs.located
    changes = _clause_number(merge, source, pairs, (MATCHED,)).isNotNull()
    places = [located.file.alias("file"), located.position.alias("row")]
    columns = [value.alias(name) for name, value in located.columns.items() if name in located.read]
    rows = pairs.frame.where(changes).select(F.struct(*places).alias("place"), F.struct(*columns).alias("values"))
    return rows.groupBy("place").agg(F.count(F.lit(1)).alias("times"), F.first("values").alias("values")).where("times > 1")


def _is_sole(merge: AnalysedMerge, kinds: Sequence[str]) -> bool:
    """Whether there is one clause for these kinds of rows, which applies to all of them."""
    clauses = [each for each in merge.clauses if each.clause.matched in kinds]
    return len(clauses) == 1 and clauses[0].condition is None


def _clause_number(merge: AnalysedMerge, source: CachedSource | None, pairs: Joined | None, kinds: Sequence[str]) -> Column:
    """The number of the clause that applies to a row of these kinds; null if none does. Without a join, rows are the source's alone."""
    assert source is not None
    tests = {MATCHED: F.lit(False), NOT_MATCHED: F.lit(True)}
    if pairs is not None:
        # the number is null where there is no row of the source
        tests = {MATCHED: pairs.is_pair, NOT_MATCHED: pairs.located.file.isNull(), NOT_MATCHED_BY_SOURCE: source.number.isNull()}
    cases: list[tuple[Column | None, Column]] = []
    for number, each in enumerate(merge.clauses):
        if each.clause.matched in kinds:
            applies = tests[each.clause.matched]
            cases.append((applies if each.condition is None else called(applies, "and", each.condition), F.lit(number)))
    return _by_case(cases, F.lit(None).cast("int"))


def _by_case(cases: Sequence[tuple[Column | None, Column]], otherwise: Column) -> Column:
    """The value of the first test that holds, null if none does; None always holds. `otherwise` is for no cases at all."""
    value: Column | None = None
    for test, case in cases:
        if test is None:
            return case
        value = F.when(test, case) if value is None else called(value, "when", test, case)
    return otherwise if value is None else value


def _values(merge: AnalysedMerge, old: Mapping[str, Column], clause: Column | None, kinds: Sequence[str]) -> list[Column]:
    """The new values of all columns, null where a clause makes no new row; `old` are the values in the table, `clause` is the number of
    a row's clause (None: there is one, which applies to all).
    """
    kinds_of_columns = to_spark(merge.plan.schema)
    assigned = {
        number: new_values(merge.session, each.assigned, kinds_of_columns, {} if each.clause.inserts else old)
        for number, each in enumerate(merge.clauses)
        if each.clause.matched in kinds and each.clause.writes
    }
    if not assigned:
        return []
    # asked once for all columns; rows to insert are of the only clause if there is one
    tests: dict[int, Column] = {}
    if clause is not None and not (kinds == (NOT_MATCHED,) and len(assigned) == 1):
        tests = {number: called(clause, "equalTo", number) for number in assigned}
    values: list[Column] = []
    for field in kinds_of_columns.fields:
        name = field.name
        cases = [
            (tests.get(number), value)
            for number, new in assigned.items()
            if (value := new.get(name, None if merge.clauses[number].clause.inserts else old[name])) is not None
        ]
        values.append(named(_by_case(cases, F.lit(None).cast(field.dataType)), name))
    return values


def _with_values(
    merge: AnalysedMerge, rows: DataFrame, columns: Sequence[Column], helpers: HelperColumns, clause: Column | None, kinds: Sequence[str]
) -> DataFrame:
    """These columns of rows, with generated ones computed, unless the clause of a row gives them."""
    gives: dict[str, str | bool] = {}
    flags: list[Column] = []
    writing = [number for number, each in enumerate(merge.clauses) if each.clause.matched in kinds and each.clause.writes]
    for field in merge.plan.schema.fields if writing else ():
        if generated_of(field) is None:
            continue
        giving = [number for number in writing if merge.clauses[number].assigned.gives(field.name)]
        gives[field.name] = bool(giving)
        if clause is not None and 0 < len(giving) < len(writing):
            [flag] = merge.names([f"given_{len(flags)}"], rows)
            gives[field.name] = flag
            flags.append(named(clause.isin(giving), flag))
    frame = rows.select(*columns, *flags)
    makes = ~column_named(merge.session, helpers.action).isin(NOTHING, DELETE)
    return renewed(frame, merge.plan.schema, gives, makes) if gives else frame


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
    if helpers.source is None or pairs.outside is not None:
        frame = _numbered(merge, source, frame, helpers)
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
    frame = _numbered(merge, source, insertions(merge, source, unmatched, helpers), helpers)
    if source.local and "variant" not in frame.schema.simpleString():  # toArrow fails where a struct that has one inside is null
        return _task(merge, frame, helpers, step)(frame.toArrow().to_batches())
    return _by_tasks(merge, frame, helpers, step, shuffles=not source.small)


def _numbered(merge: AnalysedMerge, source: CachedSource, frame: DataFrame, helpers: HelperColumns) -> DataFrame:
    """Instructions whose new rows have numbers in the identity columns that no clause gives."""
    inserting = [each.assigned for each in merge.clauses if each.clause.inserts]
    gives = {each.name: {assigned.gives(each.name) for assigned in inserting} for each in identities(merge.plan.schema)}
    lacking = [name for name, given in gives.items() if False in given]
    if any(len(given) > 1 for given in gives.values()):
        raise InvalidRequest("some of the clauses that insert give an identity column, and others do not: give it in all, or in none")
    if merge.numbering is None or not (inserting and lacking):
        return frame
    [counted] = merge.names(["counted"], frame)
    adds = called(column_named(merge.session, helpers.action), "equalTo", ADD)
    rows = frame.select("*", named(F.when(adds, F.monotonically_increasing_id()), counted))
    values = numbers_of_tasks(merge.plan.schema, merge.numbering.for_tasks(source.rows), column_named(merge.session, counted))
    columns = [(name, column_named(merge.session, name)) for name in frame.columns]
    return rows.select(*[named(F.when(adds, values[name]).otherwise(old), name) if name in lacking else old for name, old in columns])


def _by_tasks(merge: AnalysedMerge, frame: DataFrame, helpers: HelperColumns, step: str = "", *, shuffles: bool = False) -> TaskResult:
    """Have tasks follow instructions; `step` distinguishes the jobs of one operation. If writes are optimised, the new rows of a partition
    of the table meet in one task.
    """
    session, task = merge.session, _task(merge, frame, helpers, step)
    has_values = {*merge.plan.schema.names} <= {*frame.columns}
    if has_values and is_wanted(None, session.conf.get(SETTING, "") or "", merge.plan.metadata.configuration):
        with gathering(frame, merge.plan) as shuffled:
            return TaskResult.together(results_of(shuffled, task))
    with nullcontext() if shuffles else planned_once(session):
        return TaskResult.together(results_of(frame, task))


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


def rows_so_far(part: Transaction, spark: SparkSession) -> DataFrame:
    """The rows as the operations so far left them: the files of the version read and the transaction's own, without deleted rows. The
    commit depends on the whole table then. The DataFrame keeps these rows, whatever later operations do.
    """
    with part.operation("READ", replaces=False) as operation:
        draft, files, address = operation.draft, operation.draft.files, operation.plan.address
        paths = tuple(path for path in files["path"].to_pylist() if not draft.is_own(path))
        operation.step = Step.reading("READ", Reads(predicates=("",), files=paths))
        if not files.num_rows:
            return spark.createDataFrame([], to_spark(draft.schema))
        layout = Layout(
            address.location, dict(address.storage_options), draft.schema, draft.partition_columns, draft.base.version, chosen=True
        )  # it counts already
        return rows_of(spark, layout, files, draft.deleted_in(files))
