"""Columns that were taken from a DataFrame of the table, such as `DeltaTable.toDF()`, in expressions over the rows to change.

Spark's analyser knows such a column by the number that it has in that frame, not by its name. So the frames of rows to change give
their columns the same numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pyspark.sql import Column, DataFrame

from ..jvm import analysed, items, jvm_of


def attributes_in(
    frames: Sequence[DataFrame], expressions: Iterable[Column | str | None], source: DataFrame | None = None
) -> dict[str, Any]:
    """The columns, by name, of that one of the `frames` of the table (the latest, if several) of which the expressions use a column.

    None of them if the source of a merge has such columns itself: then they are the source's.
    """
    columns = [each for each in expressions if isinstance(each, Column)]
    if not frames or not columns:
        return {}
    used = set().union(*(_numbers_in(frames[0], each) for each in columns))
    taken = set() if source is None else {each.exprId().id() for each in items(analysed(source).output())}
    for frame in reversed(frames):
        output = {each.exprId().id(): each for each in items(analysed(frame).output())}
        if used & output.keys() and not taken & output.keys():
            return {each.name(): each for each in output.values()}
    return {}


def _numbers_in(frame: DataFrame, column: Column) -> set[int]:
    """The numbers of the columns that an expression was made of."""
    converter = getattr(jvm_of(frame.sparkSession).org.apache.spark.sql.classic, "ColumnNodeToExpressionConverter$")
    column_of_jvm: Any = column._jc
    tree = getattr(converter, "MODULE$").apply(column_of_jvm.node())
    return {each.exprId().id() for each in items(tree.collectLeaves()) if each.nodeName() == "AttributeReference"}


def numbered_as(frame: DataFrame, attributes: Mapping[str, Any]) -> DataFrame:
    """The same frame, in which columns have the numbers of these `attributes` of the same names."""
    if not attributes:
        return frame
    session = frame.sparkSession
    jvm = jvm_of(session)
    sequence, nothing = jvm.org.apache.spark.api.python.PythonUtils.toSeq, jvm.scala.Option.empty()
    catalyst = jvm.org.apache.spark.sql.catalyst
    columns = [
        catalyst.expressions.Alias(each, each.name(), attributes[each.name()].exprId(), each.qualifier(), nothing, sequence([]))
        if each.name() in attributes
        else each
        for each in items(analysed(frame).output())
    ]
    plan = catalyst.plans.logical.Project(sequence(columns), analysed(frame))
    jvm_session: Any = session._jsparkSession
    return DataFrame(jvm.org.apache.spark.sql.classic.Dataset.ofRows(jvm_session, plan), session)
