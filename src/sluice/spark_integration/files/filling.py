"""Columns that their writer fills in, computed by Spark: defaults, and columns generated from others.

Expressions mean the same in every session, and without Spark: they are resolved with ANSI rules and UTC as the time zone, in a copy of
the session. What is resolved then becomes part of the rows' own plan.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import DataType as SparkType
from pyspark.sql.types import StructType as SparkStruct

from ...storage.expressions.sql import outline_of
from ...storage.schema.computed import default_of, features_of_columns, generated_of
from ...storage.schema.schema import StructField, StructType
from ...tables.write.data_writing import WritePlan
from ..active_session import copied
from ..jvm import analysed, class_in_jvm, in_session, named, of_plan, quoted
from ..schemas import to_spark

_RULES: Final = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.caseSensitive": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.storeAssignmentPolicy": "ANSI",
}


def in_utc(spark: SparkSession) -> AbstractContextManager[SparkSession]:
    """A copy of a classic session in which expressions of tables are resolved; it is the thread's own within the block."""
    return copied(spark, _RULES)


def default_value(spark: SparkSession, field: StructField) -> Column:
    """The default of a column, in its type; null without one. Raises AnalysisException if Spark cannot resolve it."""
    kind = _kind(field)
    with in_utc(spark) as own:
        nothing = own.createDataFrame([], SparkStruct([]))
        tree = analysed(nothing.select(F.expr(default_of(field) or "NULL").cast(kind).alias(field.name))).projectList().apply(0).child()
        return Column(class_in_jvm(spark, "org.apache.spark.sql.classic.ExpressionUtils").column(tree))


def filled(frame: DataFrame, plan: WritePlan) -> tuple[DataFrame, WritePlan]:
    """The rows with computed and default columns filled in and given values checked, and a plan that says that this is done.

    Over Spark Connect, and if no column has to be filled in, both are returned unchanged: the plan's writer fills in then. A job that
    meets a wrong value of a generated column fails with ConstraintViolated.
    """
    schema = plan.schema
    if plan.computed or not features_of_columns(schema) or not hasattr(frame.sparkSession, "_jsparkSession"):
        return frame, plan
    given = {name.lower(): name for name in frame.columns}
    lacking = [each for each in schema.fields if each.name.lower() not in given]
    values = [F.lit(None).cast(_kind(each)) if default_of(each) is None else default_value(frame.sparkSession, each) for each in lacking]
    columns = [value.alias(each.name) for value, each in zip(values, lacking, strict=True)]
    whole = frame.select("*", *columns) if columns else frame
    known = {each.name: given[each.name.lower()] for each in schema.fields if each.name.lower() in given}
    return _computed(whole, schema, lambda name: F.lit(name in known), known), replace(plan, computed=True)


def renewed(frame: DataFrame, schema: StructType, given: Mapping[str, str | bool], makes: Column) -> DataFrame:
    """Rows that are changed or added, with the values of generated columns that nobody gave; given ones are checked.

    `given` says of each generated column whether it was given: True, False, or the name of a boolean column, which is dropped at the end.
    `makes`: whether a row makes a new one.
    """
    flags = [flag for flag in given.values() if isinstance(flag, str)]

    def was_given(name: str) -> Column:
        flag = given[name]
        return F.col(quoted(flag)) if isinstance(flag, str) else F.lit(flag)

    return _computed(frame, schema, was_given, {}, makes).drop(*flags)


def _computed(
    frame: DataFrame,
    schema: StructType,
    was_given: Callable[[str], Column],
    known: Mapping[str, str],
    makes: Column | None = None,
) -> DataFrame:
    """The frame with right values in its generated columns; `known` has its spelling of columns."""
    session = frame.sparkSession
    made = {each.name: each for each in schema.fields if generated_of(each) is not None}
    if not made:
        return frame
    spelled = {known.get(name, name): field for name, field in made.items()}
    with in_utc(session) as own:
        there = in_session(own, frame)
        columns: list[Column] = []
        for name in there.columns:
            field = spelled.get(name)
            value = F.col(quoted(name))
            if field is not None:
                value = _value(field, value, was_given(field.name))
                value = value if makes is None else F.when(makes, value)
            columns.append(named(value, name))
        plan = analysed(there.select(*columns))
    return of_plan(session, plan)


def _value(field: StructField, given: Column, was_given: Column) -> Column:
    """The expression's value; a given one that differs fails the job, with the error that Python tasks would raise."""
    text = generated_of(field) or ""
    expected = F.expr(text).cast(_kind(field))
    # the line is read by `errors.original`
    told = (
        f"\nsluice.storage.errors.ConstraintViolated: a row breaks the constraint generated column {field.name} "
        f"({quoted(field.name)} <=> ({text})): "
    )
    shown = [F.col(quoted(name)) for name in sorted(outline_of(text, clock=False).columns, key=str.lower)]
    values = F.to_json(F.struct(*shown, given.alias(field.name)), {"ignoreNullFields": "false"})
    failed = F.raise_error(F.concat(F.lit(told), values, F.lit("; leave the column out, and it is computed\n")))
    return F.when(was_given & ~given.eqNullSafe(expected), failed).when(was_given, given).otherwise(expected)


def _kind(field: StructField) -> SparkType:
    return to_spark(StructType([field])).fields[0].dataType
