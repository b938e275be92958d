"""EXPLAIN CONFLICT by Spark: its analyser resolves two statements, which are not run."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql.types import BooleanType, ByteType, DateType, IntegerType, LongType, ShortType, StringType

from ..coordinator.facade.conflict_prediction import Foreseen
from ..delta.metrics import frame as answered
from ..spark_integration.jvm import quoted
from ..spark_integration.rows.conditions import conjuncts, names_of, predicate_of, resolved
from ..spark_integration.schemas import to_spark
from ..sql_plain.concurrency import foreseeing
from ..sql_plain.concurrency.foreseeing import ANY, ROWS_MAX, Foreseeable, Known
from ..sql_plain.naming import at_one_moment
from ..sql_plain.place import opened
from ..sql_plain.request import Edit
from ..statements.compound import ExplainConflict
from ..statements.maintenance import Optimize
from ..statements.rows import Insert, Merge, Truncate
from ..storage.schema.schema import StructType
from ..tables.table import Table
from .queries import found_in, table_of, views_of
from .rows import called, insertion, source_called, source_rows
from .spark_request import Asked

# Types whose values in Python mean the same in a condition, whatever the session's time zone.
_PLAIN: Final = (StringType, BooleanType, ByteType, ShortType, IntegerType, LongType, DateType)


def explain_conflict(asked: Asked, statement: ExplainConflict) -> DataFrame:
    """The verdict on two statements, at each isolation level and in both orders."""
    table = partial(table_of, asked, takes_no="part in transactions")
    return answered(asked.spark, foreseeing.explain_conflict(asked, statement, table, partial(_foreseen, asked)))


def _foreseen(asked: Asked, statement: Foreseeable, table: Table) -> Foreseen:
    """What the statement would do, as far as Spark's analyser shows it."""
    schema = table.struct
    if isinstance(statement, (Truncate, Optimize)):
        return foreseeing.without_rows(asked, statement, table, lambda where: _condition(asked, schema, asked.expression(where), None))
    found = found_in(asked, statement.relations)
    with views_of(asked, found, at_one_moment) as edits:
        if isinstance(statement, Insert):
            source = insertion(asked, statement, schema, table.partition_columns, edits)
            replaces = None if source.mode == "append" else source.told.get("replaceWhere") or ANY
            return foreseeing.inserting(asked, statement, table, _values(source.frame, schema), replaces)
        reads_itself = any(each.relation.is_current and opened(each.place).location == table.location for each in found)
        if isinstance(statement, Merge):
            return foreseeing.merging(statement, Known(_matching(asked, statement, schema, edits), reads_itself))
        where = None
        if statement.where is not None:
            where = _condition(asked, schema, asked.expression(statement.where, edits), statement.alias or called(statement.target))
        return foreseeing.changing_rows(asked, statement, Known(where or ANY, reads_itself), schema)


def _condition(asked: Asked, schema: StructType, text: str, alias: str | None) -> str | None:
    """What of a condition sluice can evaluate; None if nothing."""
    frame = asked.spark.createDataFrame([], to_spark(schema))
    frame = frame if alias is None else frame.alias(alias)
    tree = resolved(frame, text, "the statement", subqueries=True)
    predicate, _ = predicate_of(list(conjuncts(tree)), names_of(frame), schema)
    return None if predicate is None else predicate.to_sql()


def _values(frame: DataFrame, schema: StructType) -> str:
    """A condition that rows satisfy which are written in the statement itself; ANY for those that only a run would tell."""
    if not _is_written_out(frame):
        return ANY
    kinds = {each.name.lower(): each for each in to_spark(schema).fields}
    known = [kinds[name.lower()] for name in frame.columns if name.lower() in kinds]
    stored = [frame[quoted(each.name)].cast(each.dataType).alias(each.name) for each in known if isinstance(each.dataType, _PLAIN)]
    if not stored:
        return ANY
    return foreseeing.written_out([row.asDict() for row in frame.select(*stored).take(ROWS_MAX + 1)], schema)


def _is_written_out(frame: DataFrame) -> bool:
    """Whether Spark has the rows at hand: VALUES, or SELECT without FROM."""
    planned: Any = getattr(frame, "_jdf", None)
    if planned is None:
        return False
    plan = planned.queryExecution().optimizedPlan()
    kind = str(plan.nodeName())
    return kind == "LocalRelation" or (kind == "Project" and str(plan.child().nodeName()) == "OneRowRelation")


def _matching(asked: Asked, statement: Merge, schema: StructType, edits: Sequence[Edit]) -> str:
    """What a MERGE's ON says of the table alone."""
    target = asked.spark.createDataFrame([], to_spark(schema))
    alias, source = statement.alias or called(statement.target), source_called(statement)
    target = target if alias is None else target.alias(alias)
    rows = source_rows(asked, statement, edits)
    pairs = target.crossJoin(rows if source is None else rows.alias(source))
    tree = resolved(pairs, asked.expression(statement.on, edits), "the merge", subqueries=True)
    predicate, _ = predicate_of(list(conjuncts(tree)), names_of(target), schema)
    return ANY if predicate is None else predicate.to_sql()
