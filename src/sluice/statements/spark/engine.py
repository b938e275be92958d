"""What Spark does for statements, and `sluice.sql`, which is `spark.sql` in sessions of sluice: statements about tables of sluice are
carried out by sluice, all others by Spark. INSERT, UPDATE, DELETE and MERGE hand Spark's own text to the operations of the DataFrame API.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from pyspark.errors import PySparkAttributeError
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import BooleanType, ByteType, DateType, IntegerType, LongType, ShortType, StringType

from ...coordinator.errors import InvalidName
from ...spark_integration.active_session import evolves_schemas, is_classic, sparks_catalog
from ...spark_integration.errors import as_spark_users_know
from ...spark_integration.jvm import quoted
from ...spark_integration.rows.analysis import Clause, MergeRequest
from ...spark_integration.rows.assignments import as_the_table_stores
from ...spark_integration.rows.conditions import depend_on_reads, names_of, predicate_of, reads_of, resolved, written_with_reads
from ...spark_integration.rows.merge import merge_rows
from ...spark_integration.schemas import to_spark
from ...spark_integration.session.names import Options, default_format, is_sluice
from ...spark_integration.session.saving import Write, save
from ...storage.arguments import checked
from ...storage.errors import UnknownScheme, UnsupportedFeature
from ...storage.schema.schema import StructType
from ...storage.stores.location import normalise
from ...tables.catalog import DroppedTable, NamedTable
from ...tables.table import Table
from ...tables.transaction import Transaction
from ...tables.write.merging import RowCounts
from .. import definitions
from .. import run as statements
from ..concurrency import ANY, ROWS_MAX, written_out
from ..definitions import Definition
from ..engine import AboutNames, Engine, NewRows, RowChange
from ..parse.concurrency import Atomic, ExplainConflict
from ..parse.cursor import Name, Span
from ..parse.maintenance import Optimize
from ..parse.namespaces import Comment, CreateNamespace, DropNamespace, ShowNamespaces
from ..parse.reading import Malformed, Other, Statement, bare, read
from ..parse.rows import Assignment, Delete, Insert, Merge, Update
from ..parse.tables import Create, Like, ShowTables
from ..partitions import Insertion, overwrites_partitions
from ..places import Source, catalog_of, latest, relations_of_sluice, target_edits
from ..request import Answer, Edit, Place
from ..showing import tables_of
from .queries import SparkRequest, by_spark, query, views_of

_log: Final = logging.getLogger(__name__)


def result(request: SparkRequest, answer: Answer) -> DataFrame:
    """The answer's rows as a DataFrame."""
    return request.spark.createDataFrame(list(answer.rows), to_spark(answer.struct))


def carry_out(request: SparkRequest, statement: Statement) -> DataFrame:
    """A query's rows, or what Spark's own statement gives; tables of sluice may be read in it."""
    if isinstance(statement, Other):
        return query(request, statement)
    relations = getattr(statement, "relations", ())
    target = None if isinstance(statement, Create) else getattr(statement, "target", None)
    return by_spark(request, relations, [each for each in (target, *(each.name for each in relations)) if each is not None])


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
                return result(request, definitions.create_namespace(request, statement))
            return request.by_spark() if statement.provider is not None else _created_by_both(request, statement)
        case DropNamespace():
            return _dropped(request, statement)
        case ShowNamespaces():
            ours = definitions.show_namespaces(request, statement)
            theirs = [(each[0],) for each in request.by_spark().collect()]
            listed = {name.lower() for (name,) in theirs}
            return result(request, replace(ours, rows=(*theirs, *(row for row in ours.rows if row[0].lower() not in listed))))
        case ShowTables():
            return _show_tables(request, statement)
        case Like():
            source = request.place_of(statement.source)
            if source is None or not is_sluice(statement.provider or "sluice", request.spark):
                return request.by_spark()
            return result(request, definitions.create_like(request, statement, source))
        case Comment():
            name, is_sparks = statement.target, False
            if statement.what == "namespace":
                is_sparks = request.spark.catalog.databaseExists(name.title) or not definitions.has_namespace(request, name)
            answer = None if is_sparks else definitions.comment_on(request, statement)
            return request.by_spark() if answer is None else result(request, answer)


def _show_tables(request: SparkRequest, statement: ShowTables) -> DataFrame:
    """The tables of a namespace that the coordinator keeps, and Spark's own of that name."""
    ours = tables_of(request, statement)
    if ours is None:
        return request.by_spark()
    if request.spark.catalog.databaseExists("default" if statement.namespace is None else statement.namespace.title):
        listed = {(namespace.lower(), table.lower()) for namespace, table, _ in ours.rows}
        theirs = [tuple(each) for each in request.by_spark().collect() if (each[0].lower(), each[1].lower()) not in listed]
        ours = replace(ours, rows=(*ours.rows, *theirs))
    return result(request, ours)


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
    answer = result(request, definitions.drop_namespace(request, statement)) if ours else None
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


# -- INSERT --------------------------------------------------------------------------------------------------------------


def insert(request: SparkRequest, statement: Insert, part: Transaction, table: Table, sources: Sequence[Source]) -> None:
    """Add or replace rows in an open transaction, which depends on what Spark's plan reads of tables that take part in it."""
    with views_of(request, sources) as edits:
        frame, replaces = insertion(request, statement, part.struct, table.partition_columns, edits)
        evolves = statement.evolves or evolves_schemas(request.spark)
        with as_the_table_stores(frame, part.struct, evolves=part.basis[0] if evolves else None) as fitting:
            rows = written_with_reads(fitting)
            if replaces is None:
                part.append(rows, merge_schema=evolves)
            else:
                dynamic = not replaces and bool(table.partition_columns) and overwrites_partitions(request)
                part.overwrite(rows, replaces or None, dynamic=dynamic, merge_schema=evolves)


def insertion(
    request: SparkRequest, statement: Insert, schema: StructType, partition_columns: Sequence[str], edits: Sequence[Edit]
) -> tuple[DataFrame, str | None]:
    """The rows that an INSERT into a table with this schema writes, and what they replace, as `Insertion` says it."""
    said = Insertion(request, statement, schema, partition_columns)
    frame = request.query(said.spans, [*edits, *said.defaults])
    frame = frame.toDF(*said.filled(frame.columns)).drop(*said.left_out)
    for name in said.missing(frame.columns):  # in the table's type
        frame = frame.withColumn(name, F.lit(said.fixed.get(name)).cast(to_spark(schema)[name].dataType))
    return frame, said.replaces


def create_with_rows(request: SparkRequest, statement: Create, definition: Definition, place: Place | None) -> None:
    """Create a table with its rows in one commit. With a `place` the rows replace the table there."""
    assert statement.query is not None
    name, partition_by = statement.target, definition.partition_by if statement.is_partitioned else None
    cluster_by = definition.cluster_by or None
    options = Options()
    options.set("coordinator", request.coordinator)
    for key, value in request.options.items():
        options.set(f"s3.{key}", value)
    if definition.properties:
        options.set("properties", json.dumps(definition.properties))
    with views_of(request, latest(request, statement.relations)) as edits:
        frame = request.query([statement.query], edits)
        if place is not None:
            replacing = options.but(overwriteSchema="true")
            write = Write("overwrite", replacing, partition_by or (), replaces=True, cluster_by=definition.cluster_by)
            save(frame, place.location, write)
            return
        write = Write("error", options, partition_by, cluster_by=cluster_by, defines=True)
        if name.path is not None:
            save(frame, name.path, write)
        else:
            location = statement.location or catalog_of(request).new_location(name.quoted)
            save(frame, location, write, name=name.quoted, managed=statement.location is None)


# -- UPDATE, DELETE, MERGE -----------------------------------------------------------------------------------------------


def change(request: SparkRequest, statement: RowChange, part: Transaction, sources: Sequence[Source]) -> RowCounts:
    """Change rows. The transaction depends on what Spark's views in subqueries read of the table; a MERGE's source has those of its own."""
    source = statement.source if isinstance(statement, Merge) else Span(0, 0)
    for name in [each.name for each in statement.relations if not source.start <= each.start < source.end]:
        if name.path is None and request.place_of(name) is None and request.is_own(name):
            depend_on_reads(part, request.spark.table(name.quoted))
    with views_of(request, sources) as edits:
        edits += target_edits(request, statement, part.struct.names)
        alias = statement.called
        if isinstance(statement, Merge):
            clauses = []
            for each in statement.clauses:
                condition = None if each.condition is None else request.expression(each.condition, edits)
                clauses.append(Clause(each.matched, each.action, condition, _assigned(request, each.assignments, edits)))
            rows, on = source_rows(request, statement, edits), request.expression(statement.on, edits)
            changes = MergeRequest(rows, on, clauses, alias, statement.source_called, schema_evolution=statement.evolves, subqueries=True)
        else:
            where = None if statement.where is None else request.expression(statement.where, edits)
            if isinstance(statement, Delete):
                changes = MergeRequest.delete(where, alias=alias, subqueries=True)
            else:
                changes = MergeRequest.update(_assigned(request, statement.assignments, edits), where, alias=alias, subqueries=True)
        return merge_rows(part, request.spark, changes)


def source_rows(request: SparkRequest, statement: Merge, edits: Sequence[Edit]) -> DataFrame:
    """The rows of a MERGE's source."""
    inside = [each for each in edits if statement.source.start <= each.start and each.end <= statement.source.end]
    return request.query([statement.source], [Edit(statement.source.start, statement.source.start, "SELECT * FROM "), *inside])


def _assigned(request: SparkRequest, assignments: Sequence[Assignment], edits: Sequence[Edit]) -> dict[str, Column | str]:
    return {request.expression(each.column, edits): request.expression(each.value, edits) for each in assignments}


# -- statements as EXPLAIN CONFLICT compares them ------------------------------------------------------------------------------

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
    predicate, _ = predicate_of([resolved(rows, text, what, subqueries=True)], names_of(target), schema)
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
    planned: Any = getattr(frame, "_jdf", None)
    if planned is None:
        return ANY
    plan = planned.queryExecution().optimizedPlan()
    kind = str(plan.nodeName())
    if kind != "LocalRelation" and not (kind == "Project" and str(plan.child().nodeName()) == "OneRowRelation"):
        return ANY  # Spark does not have the rows at hand: neither VALUES, nor SELECT without FROM
    kinds = {each.name.lower(): each for each in to_spark(schema).fields}
    comparable = [kinds[name.lower()] for name in frame.columns if name.lower() in kinds]
    stored = [frame[quoted(each.name)].cast(each.dataType).alias(each.name) for each in comparable if isinstance(each.dataType, _PLAIN)]
    return written_out([row.asDict() for row in frame.select(*stored).take(ROWS_MAX + 1)], schema) if stored else ANY


ENGINE: Final = Engine(result, carry_out, about_names, creates, create_with_rows, insert, change, sought, new_rows)


@checked
def sql(
    spark: SparkSession,
    text: str,
    args: Mapping[str, Any] | Sequence[Any] | None = None,
    *,
    coordinator: str | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> DataFrame:
    """Carry out one statement: one about tables of sluice by sluice, any other by Spark.

    `args` are the values of the parameters, by name for `:name`, or in the order of the question marks. Queries read all tables of
    sluice as of one moment. `coordinator` and `storage_options` default to those given to `sluice.configure`. Statements that Spark
    has return what Spark returns; docs/sql.md lists the others. Errors are sluice's and, at the same time, those that Spark users
    catch; a statement that raises has written nothing.
    """
    with as_spark_users_know():
        request, statement = SparkRequest(spark, text, args, coordinator, storage_options), read(text)
        if not is_classic(spark):
            _require_classic(request, bare(statement))
        try:
            return statements.run(ENGINE, request, statement)
        except PySparkAttributeError as missing:
            if is_classic(spark):
                raise
            raise _over_connect("this statement, with such conditions or parameters,", "write them as plain literals") from missing


_INSTEAD: Final[Mapping[type, tuple[str, str]]] = {
    Insert: ("INSERT", "df.write.format('sluice').mode('append').save(path) adds rows, overwrite with replaceWhere replaces some"),
    Update: ("UPDATE", "sluice.Table.update changes rows"),
    Delete: ("DELETE", "sluice.Table.delete deletes rows"),
    Merge: ("MERGE", "sluice.Table.upsert replaces rows by a key"),
    Atomic: ("BEGIN ATOMIC", "sluice.transaction(spark, ...) appends to several tables and overwrites them"),
    ExplainConflict: ("EXPLAIN CONFLICT", "sluice sql --engine local runs it"),
    Create: ("CREATE TABLE ... AS SELECT", "create the table with its columns, and append the rows with df.write.format('sluice')"),
}
"""What Spark Connect cannot run of tables of sluice, and what does instead."""
_READ: Final = "spark.read.format('sluice').load(path) or sluice.read reads it: give that DataFrame a temporary view, and query the view"


def _require_classic(request: SparkRequest, statement: Statement) -> None:
    """Raise UnsupportedFeature for a statement that needs Spark's JVM, which Spark Connect hides."""
    title, instead = _INSTEAD.get(type(statement), ("", ""))
    if isinstance(statement, Create):
        is_ours = statement.query is not None and creates(request, statement)
    else:
        is_ours = not isinstance(statement, (Insert, Update, Delete, Merge)) or request.place_of(statement.target) is not None
    title = title if is_ours else ""
    if not title and relations_of_sluice(request, getattr(statement, "relations", ())):
        title, instead = "a query of a table of sluice", _READ
    if title:
        raise _over_connect(title, instead)


def _over_connect(what: str, instead: str) -> UnsupportedFeature:
    return UnsupportedFeature(
        f"{what} needs Spark's JVM, which Spark Connect hides: {instead}; or run the statement in a classic session",
        features=["Spark Connect"],
        access="write",
    )
