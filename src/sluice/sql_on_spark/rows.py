"""INSERT, UPDATE, DELETE and MERGE: Spark's own text, handed to the operations of the DataFrame API."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeAlias

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from ..delta.committing import Terms, committed
from ..delta.metrics import empty, frame
from ..spark_integration.active_session import user_metadata_of
from ..spark_integration.rows.conditions import predicate_text
from ..spark_integration.rows.merge import merge_rows
from ..spark_integration.rows.plan_reads import depend_on_reads
from ..spark_integration.rows.request import Clause, MergeRequest
from ..spark_integration.schemas import to_spark
from ..spark_integration.session.format_and_options import Options
from ..spark_integration.session.saving import Write, save
from ..sql_plain.inserting import left_to_table, names_for
from ..sql_plain.partitions import equals, partition_of
from ..sql_plain.place import Place, at_one_moment, called, opened, source_called, title
from ..sql_plain.reports import affected, merged
from ..sql_plain.request import Edit
from ..statements.cursor import Span
from ..statements.relations import Relation
from ..statements.rows import Assignment, Delete, Insert, Merge, MergeClause, Update
from ..storage.dataclass import dataclass
from ..storage.errors import TableNotFound
from ..storage.schema.computed import is_filled
from ..storage.schema.schema import StructType
from ..tables.joint_transaction import JointTransaction
from ..tables.read.table_snapshot import TableSnapshot
from ..tables.table import Table
from ..tables.transaction import Transaction
from ..tables.write.merging import RowCounts
from .queries import Found, found_in, is_spark_table, place_of, views_of
from .spark_request import Asked

Change: TypeAlias = "Callable[[Transaction, Sequence[Edit]], RowCounts]"
"""Changes rows in a table's transaction; the edits name the tables that it reads."""


# -- INSERT --------------------------------------------------------------------------------------------------------------


def insert(asked: Asked, statement: Insert, place: Place) -> DataFrame:
    """Add or replace rows. Returns an empty DataFrame, as Spark does."""
    table = opened(place)
    moment = partial(at_one_moment, target=table, if_version=asked.if_version)
    with views_of(asked, found_in(asked, statement.relations), moment) as edits:
        source = insertion(asked, statement, table.struct, table.partition_columns, edits)
        missing = TableNotFound(f"the table {title(statement.target)} is gone", name=title(statement.target))
        save(source.frame, table.location, Write(source.mode, source.told), missing=missing)
    return empty(asked.spark)


@dataclass(frozen=True, slots=True)
class Source:
    """What an INSERT writes: the rows, the writer's options, and its mode, "append" or "overwrite"."""

    frame: DataFrame
    told: Options
    mode: str


def insertion(asked: Asked, statement: Insert, schema: StructType, partition_columns: Sequence[str], edits: Sequence[Edit]) -> Source:
    """What an INSERT into a table with this schema writes."""
    if statement.if_not_exists:
        raise asked.unsupported(statement.target, "INSERT ... IF NOT EXISTS is not there: leave it out, or use MERGE", "IF NOT EXISTS")
    fixed = partition_of(asked, statement.partition, schema, partition_columns)
    told, mode = _how(asked, statement, schema, fixed)
    spans = [span for span in (statement.prefix, statement.query) if span is not None]
    defaults, left_out = left_to_table(asked, statement, schema, fixed)
    frame = asked.query(spans, [*edits, *defaults])
    frame = frame.toDF(*names_for(asked, statement, frame.columns, schema, fixed)).drop(*left_out)
    lacking = [name for name in partition_columns if name.lower() not in {each.lower() for each in frame.columns}]
    # in the table's type; other columns may be left out as they are
    for name in (each for each in lacking if each in fixed or not is_filled(schema.named(each))):
        frame = frame.withColumn(name, F.lit(fixed.get(name)).cast(to_spark(schema)[name].dataType))
    return Source(frame, told, mode)


def _how(asked: Asked, statement: Insert, schema: StructType, fixed: Mapping[str, Any]) -> tuple[Options, str]:
    """The options of the writer, and its mode."""
    told = Options()
    told.set("coordinator", asked.coordinator)
    for name, value in asked.options.items():
        told.set(f"s3.{name}", value)
    if asked.if_version is not None:
        told.set("ifVersion", str(asked.if_version))
    if statement.evolves:
        told.set("mergeSchema", "true")
    if statement.where is not None:
        told.set("replaceWhere", predicate_text(asked.spark, schema, asked.expression(statement.where), "REPLACE WHERE"))
        return told, "overwrite"
    is_dynamic = str(asked.spark.conf.get("spark.sql.sources.partitionOverwriteMode")).lower() == "dynamic"
    if statement.overwrite and fixed and not (is_dynamic and len(fixed) < len(statement.partition)):
        told.set("replaceWhere", equals(fixed, schema))
    return told, "overwrite" if statement.overwrite else "append"


# -- UPDATE, DELETE, MERGE -----------------------------------------------------------------------------------------------


def update(asked: Asked, statement: Update, place: Place) -> DataFrame:
    """Change rows. Returns one row: num_affected_rows."""
    return frame(asked.spark, affected(_changed(asked, place, statement.relations, change_of(asked, statement))))


def delete(asked: Asked, statement: Delete, place: Place) -> DataFrame:
    """Delete rows. Returns one row: num_affected_rows."""
    return frame(asked.spark, affected(_changed(asked, place, statement.relations, change_of(asked, statement))))


def merge(asked: Asked, statement: Merge, place: Place) -> DataFrame:
    """Merge a source into the table. Returns one row: num_affected_rows, num_updated_rows, num_deleted_rows, num_inserted_rows."""
    return frame(asked.spark, merged(_changed(asked, place, statement.relations, change_of(asked, statement))))


def change_of(asked: Asked, statement: Update | Delete | Merge) -> Change:
    """What a statement does to rows. It depends on what Spark's views in its subqueries read of the table."""
    views = _views_in_subqueries(asked, statement)

    def change(part: Transaction, edits: Sequence[Edit]) -> RowCounts:
        for view in views:
            depend_on_reads(part, view)
        return merge_rows(part, asked.spark, _request(asked, statement, edits))

    return change


def _views_in_subqueries(asked: Asked, statement: Update | Delete | Merge) -> list[DataFrame]:
    """The views and tables of Spark's that conditions and values name; those in a MERGE's source are part of its plan."""
    source = statement.source if isinstance(statement, Merge) else Span(0, 0)
    names = [each.name for each in statement.relations if not source.start <= each.start < source.end]
    of_spark = [name for name in names if name.path is None and place_of(asked, name) is None and is_spark_table(asked.spark, name)]
    return [asked.spark.table(name.quoted) for name in of_spark]


def _request(asked: Asked, statement: Update | Delete | Merge, edits: Sequence[Edit]) -> MergeRequest:
    alias = statement.alias or called(statement.target)
    if isinstance(statement, Merge):
        return MergeRequest(
            source_rows(asked, statement, edits),
            asked.expression(statement.on, edits),
            [_clause(asked, each, edits) for each in statement.clauses],
            alias,
            source_called(statement),
            schema_evolution=statement.evolves,
            subqueries=True,
        )
    where = None if statement.where is None else asked.expression(statement.where, edits)
    if isinstance(statement, Delete):
        return MergeRequest.delete(where, alias=alias, subqueries=True)
    return MergeRequest.update(_assigned(asked, statement.assignments, edits), where, alias=alias, subqueries=True)


def source_rows(asked: Asked, statement: Merge, edits: Sequence[Edit]) -> DataFrame:
    """The rows of a MERGE's source."""
    inside = [each for each in edits if statement.source.start <= each.start and each.end <= statement.source.end]
    return asked.query([statement.source], [Edit(statement.source.start, statement.source.start, "SELECT * FROM "), *inside])


def _clause(asked: Asked, clause: MergeClause, edits: Sequence[Edit]) -> Clause:
    condition = None if clause.condition is None else asked.expression(clause.condition, edits)
    return Clause(clause.matched, clause.action, condition, _assigned(asked, clause.assignments, edits))


def _assigned(asked: Asked, assignments: Sequence[Assignment], edits: Sequence[Edit]) -> dict[str, Column | str]:
    return {each.column.of(asked.text): asked.expression(each.value, edits) for each in assignments}


def _changed(
    asked: Asked, place: Place, relations: Sequence[Relation], change: Callable[[Transaction, Sequence[Edit]], RowCounts]
) -> RowCounts | None:
    """Run a change of the table as a transaction. If it reads tables of sluice, itself among them, all are read as of one moment."""
    table, metadata = opened(place), user_metadata_of(asked.spark)
    found = found_in(asked, relations)
    if not found:
        return committed(table, Terms(user_metadata=metadata, if_version=asked.if_version), lambda part: change(part, ()))
    others = {opened(each.place).location: opened(each.place) for each in found if each.relation.is_current}
    reads_itself = table.location in others
    tables = list({**others, table.location: table}.values())
    expected = None if asked.if_version is None else {table: asked.if_version}
    with (
        JointTransaction(tables=tables, user_metadata=metadata, if_version=expected) as joint,
        _views(asked, found, joint.read_versions) as edits,
    ):

        def work(part: Transaction) -> RowCounts:
            if reads_itself:
                part.depend_on()
            return change(part, edits)

        return joint.do(table, work)


@contextmanager
def _views(asked: Asked, found: Sequence[Found], versions: Mapping[str, int]) -> Iterator[list[Edit]]:
    def moment(tables: Sequence[Table]) -> Mapping[str, TableSnapshot]:
        return {each.location: each.snapshot(versions[each.location]) for each in tables}

    with views_of(asked, found, moment) as edits:
        yield edits
