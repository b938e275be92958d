"""Queries: every table of sluice in them is a temporary view, and all are read as of one moment. A name may also be Spark's.

Results are DataFrames, also of what sluice answers itself; the shell gets their rows as Arrow data.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timezone
from typing import Any

import pyarrow as pa
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import ArrayType, DataType, MapType, StructType, VariantType, YearMonthIntervalType

from ...spark_integration.active_session import use_session
from ...spark_integration.jvm import analysed, class_in_jvm
from ...spark_integration.rows.instructions import rows_so_far
from ...spark_integration.scan.file_index import files_read
from ...spark_integration.scan.read import read_snapshot
from ...spark_integration.schemas import to_spark
from ...tables.read.table_snapshot import TableSnapshot
from ..parse.cursor import Name
from ..parse.reading import Other
from ..parse.relations import Relation
from ..places import edits_of, not_found, relations_of_sluice, similar_names
from ..reports import Answer
from ..request import Edit
from ..sources import Bound, ChangeRange, Source, TransactionRows, latest
from .request import SparkRequest


def query(request: SparkRequest, statement: Other) -> DataFrame:
    """The rows of a query, or whatever Spark's own statement gives, with the tables of sluice that it names."""
    words = statement.words
    is_view = words[:1] == ("CACHE",) or (words[:1] == ("CREATE",) and "VIEW" in request.text.upper())
    if is_view and (ours := relations_of_sluice(request, statement.relations)):
        raise request.unsupported(
            ours[0].relation.name,
            "a view keeps its text, and would look for this table when sluice is not asked; use "
            "spark.sql('SELECT ...').createOrReplaceTempView(name), which keeps the versions of this moment",
            "views",
        )
    return by_spark(request, statement.relations, [each.name for each in statement.relations], explains=words[:1] == ("EXPLAIN",))


def by_spark(request: SparkRequest, relations: Sequence[Relation], names: Sequence[Name], *, explains: bool = False) -> DataFrame:
    """What Spark says to the text, with the tables of sluice in it; an unknown table gets the most similar names."""
    sources = latest(request, relations)
    try:
        with views_of(request, sources) as edits:
            rows = request.by_spark(edits)
            return _with_files(request.spark, rows) if explains and sources else rows
    except ParseException:
        request.require_readable()  # the text that was edited is no text to show
        raise
    except AnalysisException as error:
        if error.getCondition() != "TABLE_OR_VIEW_NOT_FOUND":
            raise
        ours = [each.relation.name for each in sources]
        unknown = next((name for name in names if name not in ours and name.path is None and not request.is_own(name)), None)
        if unknown is None or not similar_names(request, unknown):
            raise
        raise not_found(request, unknown) from error


def _with_files(spark: SparkSession, plan: DataFrame) -> DataFrame:
    """What Spark explains, and how many files the query reads of tables."""
    session: Any = spark._jsparkSession
    mode = class_in_jvm(spark, "org.apache.spark.sql.execution.CommandExecutionMode").SKIP()
    execution = session.sessionState().executePlan(analysed(plan).logicalPlan(), mode)
    [[text]] = plan.collect()
    return spark.createDataFrame([("\n".join([text.rstrip(), "", *files_read(spark, execution)]),)], "plan string")


@contextmanager
def views_of(request: SparkRequest, sources: Sequence[Source]) -> Iterator[list[Edit]]:
    """Within the block the tables are temporary views; gives the edits that put the views' names into the text.

    Spark takes the rows' plans over when it analyses a query, so a query that is made in the block may be run after it.
    """
    use_session(request.spark)
    names: list[str] = []
    try:
        edits: list[Edit] = []
        for source in sources:
            names.append(f"__sluice_{uuid.uuid4().hex}")
            _rows(request, source).createTempView(names[-1])
            edits += edits_of(request.text, source.relation, names[-1], source.columns)
        yield edits
    finally:
        for name in names:
            request.spark.catalog.dropTempView(name)


def _rows(request: SparkRequest, source: Source) -> DataFrame:
    rows, table = source.rows, source.table
    if isinstance(rows, ChangeRange):
        return _changed_rows(request, table.location, rows)
    if isinstance(rows, TransactionRows):
        return rows_so_far(rows.part, request.spark)
    assert isinstance(rows, TableSnapshot)
    options = {} if request.coordinator is None else {"coordinator": request.coordinator}
    return read_snapshot(request.spark, rows, request.options, told=options, chosen=not source.relation.is_current)


def _changed_rows(request: SparkRequest, location: str, changes: ChangeRange) -> DataFrame:
    """The rows of the change data feed, whose options include both bounds."""
    after, up_to = changes.after, changes.up_to
    is_empty = up_to == after
    bounds = {"starting": after if is_empty else Bound(after.by, after.value + 1)}
    if up_to is not None:
        bounds["ending"] = up_to
    options = {"coordinator": request.coordinator, **{f"s3.{name}": value for name, value in request.options.items()}}
    for edge, bound in bounds.items():
        if bound.by == "version":
            options[f"{edge}Version"] = str(bound.value)
        else:
            options[f"{edge}Timestamp"] = f"{datetime.fromtimestamp(bound.value / 1000, timezone.utc):%Y-%m-%d %H:%M:%S.%f}"
    set_options = {name: value for name, value in options.items() if value is not None}
    rows = request.spark.read.format("sluice").options(readChangeFeed="true", **set_options).load(location)
    return rows.where("false") if is_empty else rows


def frame(spark: SparkSession, answer: Answer) -> DataFrame:
    """The answer's rows."""
    return spark.createDataFrame(list(answer.rows), to_spark(answer.struct) if answer.columns else StructType())


def as_arrow(frame: DataFrame) -> pa.Table:
    """The rows. Columns of types that Arrow lacks are texts, as CAST(x AS STRING) gives them; months of a year are Arrow's intervals."""
    names, kinds = frame.columns, [field.dataType for field in frame.schema.fields]
    numbered = frame.toDF(*(f"c{number}" for number in range(len(names))))
    columns = []
    for number, kind in enumerate(kinds):
        column = F.col(f"c{number}")
        if isinstance(kind, YearMonthIntervalType):
            whole = column.cast("interval year to month")
            column = F.extract(F.lit("YEAR"), whole) * 12 + F.extract(F.lit("MONTH"), whole)
        elif not _in_arrow(kind):
            column = column.cast("string")
        columns.append(column.alias(f"c{number}"))
    rows = numbered.select(*columns).toArrow()
    for number, kind in enumerate(kinds):
        if isinstance(kind, YearMonthIntervalType):
            months = rows.column(number).to_pylist()
            intervals = pa.array([None if each is None else (each, 0, 0) for each in months], pa.month_day_nano_interval())
            rows = rows.set_column(number, f"c{number}", intervals)
    return rows.rename_columns(names)


def _in_arrow(kind: DataType) -> bool:
    inside: list[Any] = [kind]
    while inside:
        each = inside.pop()
        if isinstance(each, ArrayType):
            inside.append(each.elementType)
        elif isinstance(each, MapType):
            inside += [each.keyType, each.valueType]
        elif isinstance(each, StructType):
            inside += [field.dataType for field in each.fields]
        elif isinstance(each, VariantType):
            return False
        else:
            try:
                to_arrow_type(each)
            except Exception:  # noqa: BLE001 - PySpark has a class for each reason
                return False
    return True
