"""Spark's plans and expressions in the JVM, through py4j, which has no types."""

from __future__ import annotations

from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession

__all__ = ["analysed", "items", "jvm_of", "named", "of_plan", "optimised", "patterns_of", "quoted"]


def jvm_of(session: SparkSession) -> Any:
    """The JVM of a classic session."""
    return session._jvm


def of_plan(session: SparkSession, plan: Any) -> DataFrame:
    """The frame of a logical plan."""
    return DataFrame(jvm_of(session).org.apache.spark.sql.classic.Dataset.ofRows(session._jsparkSession, plan), session)


def analysed(frame: DataFrame) -> Any:
    """The plan of a frame with all names resolved."""
    jdf: Any = frame._jdf
    return jdf.queryExecution().analyzed()


def optimised(frame: DataFrame) -> Any:
    """The plan of a frame as the optimiser leaves it."""
    jdf: Any = frame._jdf
    return jdf.queryExecution().optimizedPlan()


def patterns_of(frame: DataFrame) -> Any:
    """The kinds of nodes that plans can be searched for."""
    return jvm_of(frame.sparkSession).org.apache.spark.sql.catalyst.trees.TreePattern


def items(sequence: Any) -> list[Any]:
    """The elements of a Scala sequence."""
    return [sequence.apply(number) for number in range(sequence.size())]


def named(column: Column, name: str) -> Column:
    """Like `Column.alias`, which asks the JVM ten times to note the line of the user's program that called it."""
    jvm_column: Any = column._jc
    return Column(getattr(jvm_column, "as")(name))


def quoted(name: str) -> str:
    """A column's name as Spark's parser takes it for exactly that name."""
    return "`" + name.replace("`", "``") + "`"
