"""What Spark does for statements."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql.types import BooleanType, ByteType, DateType, IntegerType, LongType, ShortType, StringType

from ...coordinator.errors import InvalidName
from ...spark_integration.active_session import sparks_catalog
from ...spark_integration.jvm import quoted
from ...spark_integration.rows.conditions import names_of, predicate_of, resolved
from ...spark_integration.rows.plan_reads import reads_of
from ...spark_integration.schemas import to_spark
from ...spark_integration.session.names import default_format, is_sluice
from ...storage.errors import UnknownScheme
from ...storage.schema.schema import StructType
from ...storage.stores.location import normalise
from ...tables.catalog import DroppedTable, NamedTable
from ...tables.table import Table
from .. import definitions
from ..concurrency import ANY, ROWS_MAX, written_out
from ..engine import AboutNames, NewRows, RowChange
from ..parse.cursor import Name
from ..parse.maintenance import Optimize
from ..parse.namespaces import Comment, CreateNamespace, DropNamespace, ShowNamespaces
from ..parse.reading import Malformed, Other, Statement
from ..parse.rows import Insert, Merge
from ..parse.tables import Create, Like, ShowTables
from ..places import catalog_of, target_edits
from ..reports import Answer
from ..showing import tables_of
from ..sources import latest
from .queries import SparkRequest, by_spark, frame, query, views_of
from .rows import change, create_with_rows, insert, insertion, source_rows

__all__ = ["about_names", "carry_out", "change", "create_with_rows", "creates", "insert", "new_rows", "result", "sought"]

_log: Final = logging.getLogger(__name__)


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


def about_names(request: SparkRequest, statement: AboutNames) -> DataFrame:
    """What is Spark's goes there. A new namespace is the coordinator's by USING sluice, or by the session's default format.

    Without either it is made by both, and dropped by both: it may have tables of each. COMMENT means Spark's, of a name that both have.
    """
    match statement:
        case CreateNamespace():
            if is_sluice(statement.provider or default_format(request.spark), request.spark):
                return frame(request.spark, definitions.create_namespace(request, statement))
            return request.by_spark() if statement.provider is not None else _created_by_both(request, statement)
        case DropNamespace():
            return _dropped(request, statement)
        case ShowNamespaces():
            ours = definitions.show_namespaces(request, statement)
            theirs = [(each[0],) for each in request.by_spark().collect()]
            listed = {name.lower() for (name,) in theirs}
            return frame(request.spark, replace(ours, rows=(*theirs, *(row for row in ours.rows if row[0].lower() not in listed))))
        case ShowTables():
            return _show_tables(request, statement)
        case Like():
            source = request.place_of(statement.source)
            if source is None or not is_sluice(statement.provider or "sluice", request.spark):
                return request.by_spark()
            return frame(request.spark, definitions.create_like(request, statement, source))
        case Comment():
            name, is_sparks = statement.target, False
            if statement.what == "namespace":
                is_sparks = request.spark.catalog.databaseExists(name.title) or not definitions.has_namespace(request, name)
            answer = None if is_sparks else definitions.comment_on(request, statement)
            return request.by_spark() if answer is None else frame(request.spark, answer)


def _show_tables(request: SparkRequest, statement: ShowTables) -> DataFrame:
    """The tables of a namespace that the coordinator keeps, and Spark's own of that name."""
    ours = tables_of(request, statement)
    if ours is None:
        return request.by_spark()
    name = "default" if statement.namespace is None else statement.namespace.title
    if request.spark.catalog.databaseExists(name):
        listed = {(namespace.lower(), table.lower()) for namespace, table, _ in ours.rows}
        theirs = [tuple(each) for each in request.by_spark().collect() if (each[0].lower(), each[1].lower()) not in listed]
        ours = replace(ours, rows=(*ours.rows, *theirs))
    return frame(request.spark, ours)


def _created_by_both(request: SparkRequest, statement: CreateNamespace) -> DataFrame:
    """Make Spark's database, and the coordinator's namespace of that name unless it is there or sluice cannot have the name.

    Without a location and without a root of the catalog its tables go where Spark puts its own.
    """
    frame_of_spark, location = request.by_spark(), statement.location
    if location is None and catalog_of(request).root is None:  # beside Spark's folder, which goes with the database: <name>.db
        location = f"{request.spark.conf.get('spark.sql.warehouse.dir')}/{statement.name.title}"
    try:
        definitions.create_namespace(request, replace(statement, if_not_exists=True, location=location))
    except (InvalidName, UnknownScheme) as refusal:
        _log.info("%s is a database of Spark's alone: %s", statement.name.title, refusal)
    return frame_of_spark


def _dropped(request: SparkRequest, statement: DropNamespace) -> DataFrame:
    """Drop a namespace where it is: with the coordinator, in Spark, or both. What can be refused is refused before anything is dropped."""
    name = statement.name.title
    ours, theirs = definitions.has_namespace(request, statement.name), request.spark.catalog.databaseExists(name)
    if ours and theirs:
        if not statement.cascade and any(not each.isTemporary for each in sparks_catalog(request.spark).listTables(name)):
            return request.by_spark()  # refuses it
        _require_none_below(request, statement.name, request.spark.catalog.getDatabase(name).locationUri)
    answer = frame(request.spark, definitions.drop_namespace(request, statement)) if ours else None
    return request.by_spark() if theirs or answer is None else answer


def _require_none_below(request: SparkRequest, name: Name, folder: str) -> None:
    """Raise InvalidRequest if Spark, which deletes a database's folder, would delete tables of sluice in it, dropped ones or others."""
    catalog, below = catalog_of(request), f"{normalise(folder)}/"
    entries: list[NamedTable | DroppedTable] = [*catalog.tables(name.title), *catalog.dropped()]
    there = [each for each in entries if each.location.startswith(below)]
    if there:
        raise request.refused(
            name,
            f"Spark would delete its folder {folder}, and in it {there[0].full_name}, a table of sluice, which nothing could bring back: "
            "drop the tables, and let sluice.Catalog.vacuum delete their data first",
        )


# Types whose values in Python mean the same in a condition, whatever the session's time zone.
_PLAIN: Final = (StringType, BooleanType, ByteType, ShortType, IntegerType, LongType, DateType)


def sought(request: SparkRequest, statement: RowChange | Optimize, table: Table) -> str:
    """What is known of the rows that a statement looks for, as a condition."""
    schema, target = table.struct, request.spark.createDataFrame([], to_spark(table.struct))
    if isinstance(statement, Optimize):
        return ANY if statement.where is None else _known(target, target, request.expression(statement.where), "the statement", schema)
    with views_of(request, latest(request, statement.relations)) as edits:
        edits, target = [*edits, *target_edits(request, statement, schema.names)], target.alias(statement.called)
        if isinstance(statement, Merge):
            source, called = source_rows(request, statement, edits), statement.source_called
            pairs = target.crossJoin(source if called is None else source.alias(called))
            return _known(pairs, target, request.expression(statement.on, edits), "the merge", schema)
        return (
            ANY if statement.where is None else _known(target, target, request.expression(statement.where, edits), "the statement", schema)
        )


def _known(rows: DataFrame, target: DataFrame, text: str, what: str, schema: StructType) -> str:
    """What a condition on rows says of the target alone, and sluice can evaluate; ANY if nothing."""
    tree = resolved(rows, text, what, subqueries=True)
    predicate, _ = predicate_of([tree], names_of(target), schema)
    return ANY if predicate is None else predicate.to_sql()


def new_rows(request: SparkRequest, statement: Insert, table: Table) -> NewRows:
    """What is known of the rows that an INSERT would write."""
    schema = table.struct
    with views_of(request, latest(request, statement.relations)) as edits:
        rows, replaces = insertion(request, statement, schema, table.partition_columns, edits)
        reads = reads_of(rows, table.location, schema)
        return NewRows(_values(rows, schema), replaces, None if reads is None else reads.where)


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
