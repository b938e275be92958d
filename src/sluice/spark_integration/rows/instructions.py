"""What the tasks of a MERGE have to do: frames each of whose rows is one instruction (see `writer`), made by a join of both sides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from ...storage.dataclass import dataclass
from ...storage.schema.computed import generated_of
from ...tables.write.merging import MATCHED, NOT_MATCHED, NOT_MATCHED_BY_SOURCE
from ..files.filling import renewed
from ..jvm import called, column_named, named
from ..schemas import to_spark
from .analysis import AnalysedMerge
from .assignments import new_values
from .located import Located
from .source import CachedSource, key_range_filter, outside_all_files, statistics_of
from .writer import ADD, DELETE, NOTHING, RENEW, REPLACE, HelperColumns


def helper_columns(merge: AnalysedMerge, source: CachedSource | None) -> HelperColumns:
    """The columns of the instructions beside the new values.

    If the source can be sent to every task, the tasks report which of its rows matched, and a job that reads the source alone inserts
    the others.
    """
    words = ("action", "file", "row", "source", "before", "clause")
    action, file, position, number, before, clause = merge.names(words, None if source is None else source.frame)
    reports = source is not None and source.small and merge.inserts
    return HelperColumns(action, file, position, number if reports else None, before if merge.records else None, clause)


@dataclass(frozen=True, slots=True)
class Joined:
    """The pairs, and the rows of either side without one as far as clauses need them; for UPDATE and DELETE the rows that change."""

    frame: DataFrame
    """The rows."""
    located: Located
    """The table's side."""
    is_pair: Column
    """Whether a row is a pair."""
    outside: Column | None = None
    """A condition on rows of the source which certainly match nothing, so that they were left out; None: there are none."""


def join(merge: AnalysedMerge, source: CachedSource | None, located: Located, helpers: HelperColumns) -> Joined:
    """The table's rows with those of the source; the table's are read once."""
    if source is None:
        condition = merge.clauses[0].condition
        return Joined(located.frame if condition is None else located.frame.where(condition), located, F.lit(False))
    statistics = statistics_of(located.files, source, merge.schema)
    # a source in this process is inserted without a job
    outside = outside_all_files(source, merge.keys, statistics) if helpers.source is not None and not source.local else None
    in_range = None if merge.keeps_target else key_range_filter(source, statistics, merge.schema)
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
    replaces = _replacing(merge, located)
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


def _replacing(merge: AnalysedMerge, located: Located) -> Column:
    """What a task does with a row that changes: rows that the transaction added itself stay new to the table."""
    own = [key for key, uri in located.paths.items() if merge.draft.is_new(uri)] if merge.draft.captures_changes else []
    return F.when(located.file.isin(own), F.lit(RENEW)).otherwise(F.lit(REPLACE)) if own else F.lit(REPLACE)


def _values(merge: AnalysedMerge, old: Mapping[str, Column], clause: Column | None, kinds: Sequence[str]) -> list[Column]:
    """The new values of all columns, null where a clause makes no new row; `old` are the values in the table, `clause` is the number of
    a row's clause (None: there is one, which applies to all).
    """
    assigned = {
        number: new_values(merge.session, each.assigned, merge.schema, {} if each.clause.inserts else old)
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
    for field in to_spark(merge.schema).fields:
        name = field.name
        cases = [
            (tests.get(number), value)
            for number, new in assigned.items()
            if (value := new.get(name, None if merge.clauses[number].clause.inserts else old[name])) is not None
        ]
        values.append(named(_by_case(cases, F.lit(None).cast(field.dataType)), name))
    return values


def _with_values(
    merge: AnalysedMerge,
    rows: DataFrame,
    columns: Sequence[Column],
    helpers: HelperColumns,
    clause: Column | None,
    kinds: Sequence[str],
) -> DataFrame:
    """These columns of rows, with generated ones computed, unless the clause of a row gives them."""
    gives: dict[str, str | bool] = {}
    flags: list[Column] = []
    writing = [number for number, each in enumerate(merge.clauses) if each.clause.matched in kinds and each.clause.writes]
    for field in merge.schema.fields if writing else ():
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
    return renewed(frame, merge.schema, gives, makes) if gives else frame
