"""INSERT, UPDATE, DELETE, MERGE and CREATE TABLE AS SELECT: Spark's own text, handed to the operations of the DataFrame API."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from ...spark_integration.active_session import evolves_schemas
from ...spark_integration.rows.analysis import Clause, MergeRequest
from ...spark_integration.rows.assignments import as_the_table_stores
from ...spark_integration.rows.conditions import predicate_text
from ...spark_integration.rows.merge import merge_rows
from ...spark_integration.rows.plan_reads import depend_on_reads, written_with_reads
from ...spark_integration.schemas import to_spark
from ...spark_integration.session.format_and_options import Options
from ...spark_integration.session.saving import Write, save
from ...storage.dataclass import dataclass
from ...storage.schema.computed import is_filled
from ...storage.schema.schema import StructType
from ...tables.table import Table
from ...tables.transaction import Transaction
from ...tables.write.merging import RowCounts
from ..definitions.tables import Definition
from ..engine import RowChange
from ..parse.cursor import Span
from ..parse.rows import Assignment, Delete, Insert, Merge, MergeClause
from ..parse.tables import Create
from ..partitions import equals, left_to_table, names_for, partition_of
from ..places import catalog_of, target_edits
from ..request import Edit, Place
from ..sources import Source, latest
from .queries import views_of
from .request import SparkRequest

# -- INSERT --------------------------------------------------------------------------------------------------------------


def insert(request: SparkRequest, statement: Insert, part: Transaction, table: Table, sources: Sequence[Source]) -> None:
    """Add or replace rows in an open transaction, which depends on what Spark's plan reads of tables that take part in it."""
    with views_of(request, sources) as edits:
        inserted = insertion(request, statement, part.struct, table.partition_columns, edits)
        evolves = statement.evolves or evolves_schemas(request.spark)
        with as_the_table_stores(inserted.frame, part.struct, evolves=evolves) as fitting:
            rows = written_with_reads(fitting)
            if inserted.replaces is None:
                part.append(rows, merge_schema=evolves)
            else:
                dynamic = not inserted.replaces and bool(table.partition_columns) and _overwrites_partitions(request)
                part.overwrite(rows, inserted.replaces or None, dynamic=dynamic, merge_schema=evolves)


@dataclass(frozen=True, slots=True)
class InsertedRows:
    """What an INSERT writes."""

    frame: DataFrame
    replaces: str | None
    """The condition of the rows that they replace; None for none, "" for all, or for the partitions of the new rows if the session
    says so.
    """


def insertion(
    request: SparkRequest, statement: Insert, schema: StructType, partition_columns: Sequence[str], edits: Sequence[Edit]
) -> InsertedRows:
    """What an INSERT into a table with this schema writes."""
    if statement.if_not_exists:
        raise request.unsupported(statement.target, "INSERT ... IF NOT EXISTS is not there: leave it out, or use MERGE", "IF NOT EXISTS")
    fixed = partition_of(request, statement.partition, schema, partition_columns)
    replaces = _replaced_by(request, statement, schema, fixed)
    spans = [span for span in (statement.prefix, statement.query) if span is not None]
    defaults, left_out = left_to_table(request, statement, schema, fixed)
    frame = request.query(spans, [*edits, *defaults])
    frame = frame.toDF(*names_for(request, statement, frame.columns, schema, fixed)).drop(*left_out)
    lacking = [name for name in partition_columns if name.lower() not in {each.lower() for each in frame.columns}]
    # in the table's type; other columns may be left out as they are
    for name in [each for each in lacking if each in fixed or not is_filled(schema.named(each))]:
        frame = frame.withColumn(name, F.lit(fixed.get(name)).cast(to_spark(schema)[name].dataType))
    return InsertedRows(frame, replaces)


def _replaced_by(request: SparkRequest, statement: Insert, schema: StructType, fixed: Mapping[str, Any]) -> str | None:
    """What an INSERT replaces, whose partition is `fixed`."""
    if statement.where is not None:
        return predicate_text(request.spark, schema, request.expression(statement.where), "REPLACE WHERE")
    if not statement.overwrite:
        return None
    is_dynamic = len(fixed) < len(statement.partition) and _overwrites_partitions(request)
    return equals(fixed, schema) if fixed and not is_dynamic else ""


def _overwrites_partitions(request: SparkRequest) -> bool:
    """Whether an overwrite that names no rows replaces the partitions of the new ones, as the session's setting says."""
    return str(request.spark.conf.get("spark.sql.sources.partitionOverwriteMode")).lower() == "dynamic"


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
    """Change rows. The transaction depends on what Spark's views in subqueries read of the table."""
    for view in _views_in_subqueries(request, statement):
        depend_on_reads(part, view)
    with views_of(request, sources) as edits:
        own = target_edits(request, statement, part.struct.names)
        return merge_rows(part, request.spark, _merge_request(request, statement, [*edits, *own]))


def _views_in_subqueries(request: SparkRequest, statement: RowChange) -> list[DataFrame]:
    """The views and tables of Spark's that conditions and values name; those in a MERGE's source are part of its plan."""
    source = statement.source if isinstance(statement, Merge) else Span(0, 0)
    names = [each.name for each in statement.relations if not source.start <= each.start < source.end]
    of_spark = [name for name in names if name.path is None and request.place_of(name) is None and request.is_own(name)]
    return [request.spark.table(name.quoted) for name in of_spark]


def _merge_request(request: SparkRequest, statement: RowChange, edits: Sequence[Edit]) -> MergeRequest:
    alias = statement.called
    if isinstance(statement, Merge):
        return MergeRequest(
            source_rows(request, statement, edits),
            request.expression(statement.on, edits),
            [_clause(request, each, edits) for each in statement.clauses],
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


def _clause(request: SparkRequest, clause: MergeClause, edits: Sequence[Edit]) -> Clause:
    condition = None if clause.condition is None else request.expression(clause.condition, edits)
    return Clause(clause.matched, clause.action, condition, _assigned(request, clause.assignments, edits))


def _assigned(request: SparkRequest, assignments: Sequence[Assignment], edits: Sequence[Edit]) -> dict[str, Column | str]:
    return {request.expression(each.column, edits): request.expression(each.value, edits) for each in assignments}
