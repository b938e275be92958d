"""INSERT, UPDATE, DELETE, MERGE and CREATE TABLE AS SELECT: Spark's own text, handed to the operations of the DataFrame API."""

from __future__ import annotations

import json
from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from ...spark_integration.active_session import evolves_schemas
from ...spark_integration.rows.analysis import Clause, MergeRequest
from ...spark_integration.rows.assignments import as_the_table_stores
from ...spark_integration.rows.merge import merge_rows
from ...spark_integration.rows.plan_reads import depend_on_reads, written_with_reads
from ...spark_integration.schemas import to_spark
from ...spark_integration.session.names import Options
from ...spark_integration.session.saving import Write, save
from ...storage.schema.schema import StructType
from ...tables.table import Table
from ...tables.transaction import Transaction
from ...tables.write.merging import RowCounts
from ..definitions import Definition
from ..engine import RowChange
from ..parse.cursor import Span
from ..parse.rows import Assignment, Delete, Insert, Merge
from ..parse.tables import Create
from ..partitions import Insertion
from ..places import catalog_of, target_edits
from ..request import Edit, Place
from ..sources import Source, latest
from .queries import SparkRequest, views_of

# -- INSERT --------------------------------------------------------------------------------------------------------------


def insert(request: SparkRequest, statement: Insert, part: Transaction, table: Table, sources: Sequence[Source]) -> None:
    """Add or replace rows in an open transaction, which depends on what Spark's plan reads of tables that take part in it."""
    with views_of(request, sources) as edits:
        frame, replaces = insertion(request, statement, part.struct, table.partition_columns, edits)
        evolves = statement.evolves or evolves_schemas(request.spark)
        with as_the_table_stores(frame, part.struct, evolves=evolves) as fitting:
            rows = written_with_reads(fitting)
            if replaces is None:
                part.append(rows, merge_schema=evolves)
            else:
                dynamic = not replaces and bool(table.partition_columns) and request.overwrites_partitions
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
        own = target_edits(request, statement, part.struct.names)
        return merge_rows(part, request.spark, _merge_request(request, statement, [*edits, *own]))


def _merge_request(request: SparkRequest, statement: RowChange, edits: Sequence[Edit]) -> MergeRequest:
    alias = statement.called
    if isinstance(statement, Merge):
        clauses = []
        for each in statement.clauses:
            condition = None if each.condition is None else request.expression(each.condition, edits)
            clauses.append(Clause(each.matched, each.action, condition, _assigned(request, each.assignments, edits)))
        return MergeRequest(
            source_rows(request, statement, edits),
            request.expression(statement.on, edits),
            clauses,
            alias,
            statement.source_called,
            schema_evolution=statement.evolves,
            subqueries=True,
        )
    where = None if statement.where is None else request.expression(statement.where, edits)
    if isinstance(statement, Delete):
        return MergeRequest.delete(where, alias=alias, subqueries=True)
    return MergeRequest.update(_assigned(request, statement.assignments, edits), where, alias=alias, subqueries=True)


def source_rows(request: SparkRequest, statement: Merge, edits: Sequence[Edit]) -> DataFrame:
    """The rows of a MERGE's source."""
    inside = [each for each in edits if statement.source.start <= each.start and each.end <= statement.source.end]
    return request.query([statement.source], [Edit(statement.source.start, statement.source.start, "SELECT * FROM "), *inside])


def _assigned(request: SparkRequest, assignments: Sequence[Assignment], edits: Sequence[Edit]) -> dict[str, Column | str]:
    return {request.expression(each.column, edits): request.expression(each.value, edits) for each in assignments}
