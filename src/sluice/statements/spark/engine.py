"""What Spark does for statements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql.types import BooleanType, ByteType, DateType, IntegerType, LongType, ShortType, StringType

from ...spark_integration.jvm import quoted
from ...spark_integration.rows.conditions import conjuncts, names_of, predicate_of, predicate_text, resolved
from ...spark_integration.rows.plan_reads import reads_of
from ...spark_integration.schemas import to_spark
from ...spark_integration.session.format_and_options import default_format, is_sluice
from ...storage.schema.schema import StructType
from ...tables.table import Table
from ..concurrency.conflicts import ANY, ROWS_MAX, written_out
from ..engine import NewRows, RowChange
from ..parse.cursor import Span
from ..parse.maintenance import Optimize
from ..parse.reading import Malformed, Other, Statement
from ..parse.rows import Insert, Merge
from ..parse.tables import Create
from ..places import target_edits
from ..reports import Answer
from ..request import Edit
from ..sources import latest
from .names import about_names
from .queries import by_spark, frame, query, views_of
from .request import SparkRequest
from .rows import change, create_with_rows, insert, insertion, source_rows

__all__ = ["about_names", "carry_out", "change", "create_with_rows", "creates", "insert", "lease_condition", "new_rows"]
__all__ += ["result", "sought"]


def result(request: SparkRequest, answer: Answer) -> DataFrame:
    """The answer's rows as a DataFrame."""
    return frame(request.spark, answer)


def carry_out(request: SparkRequest, statement: Statement) -> DataFrame:
    """A query's rows, or what Spark's own statement gives; tables of sluice may be read in it."""
    if isinstance(statement, Other):
        return query(request, statement)
    relations = getattr(statement, "relations", ())
    target = None if isinstance(statement, Create) else getattr(statement, "target", None)
    names = [each for each in (target, *(each.name for each in relations)) if each is not None]
    return by_spark(request, relations, names)


def creates(request: SparkRequest, statement: Create | Malformed) -> bool:
    """Whether a CREATE TABLE makes a table of sluice: by its provider, its name, or the session's default format."""
    target = statement.target
    first = target.parts[0] if isinstance(statement, Create) and target is not None and target.path is not None else None
    return is_sluice(first or statement.provider or default_format(request.spark), request.spark)


def lease_condition(request: SparkRequest, table: Table, where: Span) -> str:
    """The condition as Spark's analyser resolves it."""
    return predicate_text(request.spark, table.struct, request.expression(where), "LOCK TABLE ... WHERE")


# Types whose values in Python mean the same in a condition, whatever the session's time zone.
_PLAIN: Final = (StringType, BooleanType, ByteType, ShortType, IntegerType, LongType, DateType)


def sought(request: SparkRequest, statement: RowChange | Optimize, table: Table) -> str:
    """What is known of the rows that a statement looks for, as a condition."""
    if isinstance(statement, Optimize):
        return ANY if statement.where is None else _condition(request, table.struct, request.expression(statement.where), None)
    with views_of(request, latest(request, statement.relations)) as edits:
        edits = [*edits, *target_edits(request, statement, table.struct.names)]
        if isinstance(statement, Merge):
            return _matching(request, statement, table.struct, edits)
        if statement.where is None:
            return ANY
        return _condition(request, table.struct, request.expression(statement.where, edits), statement.called)


def new_rows(request: SparkRequest, statement: Insert, table: Table) -> NewRows:
    """What is known of the rows that an INSERT would write."""
    schema = table.struct
    with views_of(request, latest(request, statement.relations)) as edits:
        inserted = insertion(request, statement, schema, table.partition_columns, edits)
        reads = reads_of(inserted.frame, table.location, schema)
        return NewRows(_values(inserted.frame, schema), inserted.replaces, None if reads is None else reads.where)


def _condition(request: SparkRequest, schema: StructType, text: str, alias: str | None) -> str:
    """What of a condition sluice can evaluate; ANY if nothing."""
    frame = request.spark.createDataFrame([], to_spark(schema))
    frame = frame if alias is None else frame.alias(alias)
    tree = resolved(frame, text, "the statement", subqueries=True)
    predicate, _ = predicate_of(list(conjuncts(tree)), names_of(frame), schema)
    return ANY if predicate is None else predicate.to_sql()


def _values(frame: DataFrame, schema: StructType) -> str:
    """A condition that rows satisfy which are written in the statement itself; ANY for those that only a run would tell."""
    if not _is_written_out(frame):
        return ANY
    kinds = {each.name.lower(): each for each in to_spark(schema).fields}
    comparable = [kinds[name.lower()] for name in frame.columns if name.lower() in kinds]
    stored = [frame[quoted(each.name)].cast(each.dataType).alias(each.name) for each in comparable if isinstance(each.dataType, _PLAIN)]
    if not stored:
        return ANY
    return written_out([row.asDict() for row in frame.select(*stored).take(ROWS_MAX + 1)], schema)


def _is_written_out(frame: DataFrame) -> bool:
    """Whether Spark has the rows at hand: VALUES, or SELECT without FROM."""
    planned: Any = getattr(frame, "_jdf", None)
    if planned is None:
        return False
    plan = planned.queryExecution().optimizedPlan()
    kind = str(plan.nodeName())
    return kind == "LocalRelation" or (kind == "Project" and str(plan.child().nodeName()) == "OneRowRelation")


def _matching(request: SparkRequest, statement: Merge, schema: StructType, edits: Sequence[Edit]) -> str:
    """What a MERGE's ON says of the table alone."""
    target, source = request.spark.createDataFrame([], to_spark(schema)).alias(statement.called), statement.source_called
    rows = source_rows(request, statement, edits)
    pairs = target.crossJoin(rows if source is None else rows.alias(source))
    tree = resolved(pairs, request.expression(statement.on, edits), "the merge", subqueries=True)
    predicate, _ = predicate_of(list(conjuncts(tree)), names_of(target), schema)
    return ANY if predicate is None else predicate.to_sql()
