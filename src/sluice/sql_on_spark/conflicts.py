"""EXPLAIN CONFLICT: whether two statements can conflict, decided by the engine that decides commits, without running them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

from pyspark.sql import DataFrame
from pyspark.sql.types import BooleanType, ByteType, DateType, IntegerType, LongType, ShortType, StringType

from ..coordinator.facade.foreseen import Explanation, Foreseen, ForeseenTable, advice_of
from ..coordinator.rules.isolation import IsolationLevel
from ..spark_integration.jvm import quoted
from ..spark_integration.rows.conditions import conjuncts, names_of, predicate_of, resolved
from ..spark_integration.schemas import to_spark
from ..sql_plain.naming import at_one_moment
from ..sql_plain.partitions import partition_condition
from ..sql_plain.place import opened, title
from ..statements.care import Optimize
from ..statements.compound import ExplainConflict, Part
from ..statements.reading import Malformed
from ..statements.rows import Delete, Insert, Merge, Truncate, Update
from ..storage.errors import PredicateError
from ..storage.pruning.predicate import Predicate
from ..storage.schema.schema import StructType
from ..tables.table import Table
from .asked import Asked, Edit
from .queries import found_in, table_of, views_of
from .rows import called, insertion, source_called, source_rows

__all__ = ["explain_conflict"]

_COLUMNS: Final = "second int, isolation string, verdict string, error string, rule string, why string, remedy string"
_KINDS: Final = (Insert, Update, Delete, Merge, Truncate, Optimize)
_ROWS_MAX: Final = 64
_ANY: Final = ""
# Types whose values in Python mean the same in a condition, whatever the session's time zone.
_PLAIN: Final = (StringType, BooleanType, ByteType, ShortType, IntegerType, LongType, DateType)

Changing: TypeAlias = Insert | Update | Delete | Merge | Truncate | Optimize


def explain_conflict(asked: Asked, statement: ExplainConflict) -> DataFrame:
    """One row for each isolation level, and for each of the two statements as the one that commits second.

    `verdict` is "cannot conflict" or "may conflict"; then `error` and `rule` are those of the refusal, `remedy` says what avoids it.
    """
    one, other = (_statement(asked, part) for part in (statement.one, statement.other))
    tables = [table_of(asked, each.target, "part in transactions") for each in (one, other)]
    levels = [level.value for level in IsolationLevel] if statement.isolation is None else [statement.isolation]
    if tables[0].location != tables[1].location:
        names = title(one.target), title(other.target)
        why = f"the statements change different tables, {names[0]} and {names[1]}; what a statement reads of another table does not count"
        rows: list[tuple[Any, ...]] = [(second, level, "cannot conflict", None, None, why, None) for level in levels for second in (2, 1)]
        return asked.spark.createDataFrame(rows, _COLUMNS)
    table = tables[0]
    foreseen = [_foreseen(asked, each, table) for each in (one, other)]
    known = ForeseenTable(table.snapshot().raw)
    rows = []
    for level in levels:
        for second in (2, 1):
            mine, theirs = foreseen[second - 1], foreseen[2 - second]
            rows.append((second, level, *_told(known.meets(mine, theirs, IsolationLevel(level)))))
    return asked.spark.createDataFrame(rows, _COLUMNS)


def _told(found: Explanation) -> tuple[str | None, ...]:
    if found.verdict == "ok":
        return "cannot conflict", None, None, found.because, None
    what = found.because.split(" came first and ", 1)[-1].split("; ", 1)[0]
    return "may conflict", found.verdict, found.rule, f"the first statement {what}", advice_of(found.rule)


def _statement(asked: Asked, part: Part) -> Changing:
    statement = part.statement
    if isinstance(statement, Malformed):
        raise asked.refused(statement.at, statement.message)
    if not isinstance(statement, _KINDS):
        raise asked.refused(part.at, "EXPLAIN CONFLICT takes INSERT, UPDATE, DELETE, MERGE, TRUNCATE and OPTIMIZE")
    return statement


def _foreseen(asked: Asked, statement: Changing, table: Table) -> Foreseen:
    """What the statement would do, as far as Spark's analyser tells."""
    schema, columns = table.struct, table.partition_columns
    if isinstance(statement, Truncate):
        where = partition_condition(asked, statement.partition, schema, columns) or _ANY
        return Foreseen("TRUNCATE", reads=where, removes=where, whole_files=True)
    if isinstance(statement, Optimize):
        where = _ANY if statement.where is None else _condition(asked, schema, asked.expression(statement.where), None) or _ANY
        orders = statement.z_order_by or table.clustering_columns
        return Foreseen("OPTIMIZE ZORDER" if orders else "OPTIMIZE", removes=where, changes_data=False)
    found = found_in(asked, statement.relations)
    with views_of(asked, found, at_one_moment) as edits:
        if isinstance(statement, Insert):
            return _inserting(asked, statement, schema, columns, edits)
        reads_itself = any(each.relation.is_current and opened(each.place).location == table.location for each in found)
        if isinstance(statement, Merge):
            return _merging(asked, statement, schema, edits, reads_itself=reads_itself)
        where = _ANY
        if statement.where is not None:
            where = _condition(asked, schema, asked.expression(statement.where, edits), statement.alias or called(statement.target)) or _ANY
        reads = _ANY if reads_itself else where
        if isinstance(statement, Delete):
            return Foreseen("DELETE", reads=reads, removes=where)
        return Foreseen("UPDATE", reads=reads, removes=where, adds=_updated(asked, statement, schema, where))


def _condition(asked: Asked, schema: StructType, text: str, alias: str | None) -> str | None:
    """What of a condition sluice can evaluate; None if nothing."""
    frame = asked.spark.createDataFrame([], to_spark(schema))
    frame = frame if alias is None else frame.alias(alias)
    tree = resolved(frame, text, "the statement", subqueries=True)
    predicate, _ = predicate_of(list(conjuncts(tree)), names_of(frame), schema)
    return None if predicate is None else predicate.to_sql()


def _updated(asked: Asked, statement: Update, schema: StructType, where: str) -> str:
    """What the new rows satisfy: the parts of the condition about columns that keep their values."""
    if not where:
        return _ANY
    texts = {each.column.of(asked.text).replace("`", "").lower() for each in statement.assignments}
    assigned = {part for text in texts for part in (text, text.split(".")[0], text.split(".")[-1])}
    kept, _ = Predicate.parse(where, schema).split(name for name in schema.names if name.lower() not in assigned)
    return _ANY if kept is None else kept.to_sql()


def _inserting(asked: Asked, statement: Insert, schema: StructType, columns: Sequence[str], edits: Sequence[Edit]) -> Foreseen:
    source = insertion(asked, statement, schema, columns, edits)
    adds = _values(source.frame, schema) or partition_condition(asked, statement.partition, schema, columns) or _ANY
    if source.mode == "append":
        return Foreseen("INSERT", adds=adds)
    where = source.told.get("replaceWhere") or _ANY
    return Foreseen("INSERT OVERWRITE", reads=where, removes=where, adds=adds, whole_files=True)


def _values(frame: DataFrame, schema: StructType) -> str:
    """A condition that rows satisfy which are written in the statement itself; "" for those that only a run would tell."""
    if not _is_written_out(frame):
        return _ANY
    kinds = {each.name.lower(): each for each in to_spark(schema).fields}
    known = [kinds[name.lower()] for name in frame.columns if name.lower() in kinds]
    stored = [frame[quoted(each.name)].cast(each.dataType).alias(each.name) for each in known if isinstance(each.dataType, _PLAIN)]
    if not stored:
        return _ANY
    rows = frame.select(*stored).take(_ROWS_MAX + 1)
    if len(rows) > _ROWS_MAX:
        return _ANY
    found: Predicate | None = None
    for row in rows:
        each = _equals(row.asDict(), schema)
        if each is None:
            return _ANY
        found = each if found is None else found.or_(each)
    return _ANY if found is None else found.to_sql()


def _is_written_out(frame: DataFrame) -> bool:
    """Whether Spark has the rows at hand: VALUES, or SELECT without FROM."""
    planned: Any = getattr(frame, "_jdf", None)
    if planned is None:
        return False
    plan = planned.queryExecution().optimizedPlan()
    kind = str(plan.nodeName())
    return kind == "LocalRelation" or (kind == "Project" and str(plan.child().nodeName()) == "OneRowRelation")


def _equals(values: dict[str, Any], schema: StructType) -> Predicate | None:
    """The condition that columns have these values, as far as it can be written."""
    both: Predicate | None = None
    for name, value in values.items():
        try:
            each = Predicate.from_filters([("IsNull" if value is None else "EqualTo", (name,), value)], schema)
        except PredicateError:
            continue
        both = each if both is None else both.and_(each)
    return both


def _merging(asked: Asked, statement: Merge, schema: StructType, edits: Sequence[Edit], *, reads_itself: bool) -> Foreseen:
    target = asked.spark.createDataFrame([], to_spark(schema))
    alias, source = statement.alias or called(statement.target), source_called(statement)
    target = target if alias is None else target.alias(alias)
    rows = source_rows(asked, statement, edits)
    pairs = target.crossJoin(rows if source is None else rows.alias(source))
    tree = resolved(pairs, asked.expression(statement.on, edits), "the merge", subqueries=True)
    predicate, _ = predicate_of(list(conjuncts(tree)), names_of(target), schema)
    kinds = {clause.matched for clause in statement.clauses}
    matching = _ANY if predicate is None or "not_matched_by_source" in kinds else predicate.to_sql()
    changes = kinds != {"not_matched"}
    adds = any(not clause.action.startswith("delete") for clause in statement.clauses)
    return Foreseen("MERGE", reads=_ANY if reads_itself else matching, removes=matching if changes else None, adds=_ANY if adds else None)
