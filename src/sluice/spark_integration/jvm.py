"""Spark's plans and expressions in the JVM, through py4j, which has no types."""

from __future__ import annotations

from typing import Any, Final
from weakref import WeakKeyDictionary

from py4j.java_gateway import JavaClass  # type: ignore[import-untyped]
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.types import StructType

_classes: Final[WeakKeyDictionary[Any, dict[str, Any]]] = WeakKeyDictionary()


def class_in_jvm(session: SparkSession, name: str) -> Any:
    """A class by its full name. The first use asks the JVM once, where `jvm.org.apache...` asks for each part of the name each time."""
    return class_of_view(session._jvm, name)


def class_of_view(jvm: Any, name: str) -> Any:
    """Like `class_in_jvm`, of the JVM behind this view of py4j's."""
    classes = _classes.setdefault(jvm, {})
    if name in classes:
        return classes[name]
    value = getattr(jvm, name)
    if isinstance(value, JavaClass):  # py4j takes a class that is not there yet for a package
        classes[name] = value
    return value


def of_plan(session: SparkSession, plan: Any) -> DataFrame:
    """The frame of a logical plan."""
    return DataFrame(class_in_jvm(session, "org.apache.spark.sql.classic.Dataset").ofRows(session._jsparkSession, plan), session)


def in_session(session: SparkSession, frame: DataFrame) -> DataFrame:
    """The same frame in another session of the same JVM; its columns stay what they are."""
    return of_plan(session, analysed(frame))


def without_rows(session: SparkSession, schema: StructType) -> DataFrame:
    """A frame with these columns, as part of its plan; `createDataFrame` would write a file for an RDD without rows."""
    jvm_session: Any = session._jsparkSession
    kind = class_in_jvm(session, "org.apache.spark.sql.types.DataType").fromJson(schema.json())
    return DataFrame(jvm_session.createDataFrame([], kind), session)


def analysed(frame: DataFrame) -> Any:
    """The plan of a frame with all names resolved."""
    jdf: Any = frame._jdf
    return jdf.queryExecution().analyzed()


def has_subquery(session: SparkSession, tree: Any) -> bool:
    """Whether an expression has one."""
    return bool(tree.containsPattern(class_in_jvm(session, "org.apache.spark.sql.catalyst.trees.TreePattern").PLAN_EXPRESSION()))


def items(sequence: Any) -> list[Any]:
    """The elements of a Scala sequence."""
    return [sequence.apply(number) for number in range(sequence.size())]


def called(column: Column, method: str, *values: Any) -> Column:
    """What a method of Spark's Column in the JVM returns for these values, some of which may be Columns. PySpark's own methods and
    operators ask the JVM ten times more, to note the line of the user's program that called them.
    """
    jvm_column: Any = column._jc
    return Column(getattr(jvm_column, method)(*[each._jc if isinstance(each, Column) else each for each in values]))


def named(column: Column, name: str) -> Column:
    """Like `Column.alias`."""
    return called(column, "as", name)


def column_named(session: SparkSession, name: str) -> Column:
    """Like `functions.col`: the column with exactly this name."""
    return Column(class_in_jvm(session, "org.apache.spark.sql.functions").col(quoted(name)))


def column_of(session: SparkSession, tree: Any) -> Column:
    """A resolved expression as a Column, which means the same in every frame that has the columns it uses: no name is looked up again."""
    return Column(class_in_jvm(session, "org.apache.spark.sql.classic.ExpressionUtils").column(tree))


def tree_of(session: SparkSession, column: Column) -> Any:
    """The expression of such a Column."""
    jvm_column: Any = column._jc
    return class_in_jvm(session, "org.apache.spark.sql.classic.ExpressionUtils").expression(jvm_column)


def quoted(name: str) -> str:
    """A column's name as Spark's parser takes it for exactly that name."""
    return "`" + name.replace("`", "``") + "`"
