"""Conditions and expressions as Spark resolves them, and the parts of a condition that depend on the target alone.

Spark's analyser resolves names (case, aliases, backticks, nested fields) and inserts casts. The resolved trees are read through
the JVM; what sluice can evaluate of them becomes its predicates (`scan.catalyst`) for skipping files and the transaction's footprint.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import DataType as SparkType

from ...storage.errors import InvalidRequest
from ...storage.pruning.predicate import Predicate
from ...storage.schema.schema import StructType
from ..jvm import analysed, class_in_jvm, has_subquery, items, of_plan
from ..scan.catalyst import predicate_in
from ..schemas import to_spark

Names = Mapping[int, str]
"""The top-level columns of a frame by the number that Spark's analyser gave them."""

_CLASSIC: Final = "org.apache.spark.sql.classic"
_WHOLE: Final = ("tinyint", "smallint", "int", "bigint")


def as_column(expression: Column | str) -> Column:
    """An expression given as a Column or as SQL."""
    return F.expr(expression) if isinstance(expression, str) else expression


def resolved(frame: DataFrame, condition: Column | str, what: str, *, subqueries: bool = False) -> Any:
    """The condition as Spark's analyser resolves it over the frame: a Catalyst expression.

    Raises AnalysisException where Spark does, and InvalidRequest for a condition that is not deterministic or, unless `subqueries`, has
    a subquery.
    """
    if not isinstance(condition, (Column, str)):
        raise InvalidRequest(f"the condition of {what} is {condition!r}; give a Column, or SQL as text")
    session, plan = frame.sparkSession, analysed(frame.where(as_column(condition)))
    with suppress(Py4JJavaError):  # a constant that has no value fails where rows are compared with it
        # a bound text with a quote, say, is a cast of bytes before
        plan = class_in_jvm(session, "org.apache.spark.sql.catalyst.optimizer.ConstantFolding").apply(plan)
    tree = plan.condition()
    if not subqueries and has_subquery(session, tree):
        raise InvalidRequest(
            f"the condition of {what} has a subquery: {tree.sql()}; DELETE and UPDATE in SQL (sluice.sql) take one, or join what it asks "
            "for into the source of a merge"
        )
    if not tree.deterministic():
        raise InvalidRequest(
            f"the condition of {what} is not deterministic: {tree.sql()}; whether a row satisfies it must depend on the row alone"
        )
    return tree


def resolved_values(frame: DataFrame, values: Sequence[Column], what: str, *, subqueries: bool = False) -> list[tuple[Column, SparkType]]:
    """Expressions over the frame as Spark's analyser resolves them, see `column_of`, and their types.

    Raises AnalysisException where Spark does, and InvalidRequest for expressions that are not of one row: aggregates, windows,
    generators, and subqueries unless they are allowed.
    """
    if not values:
        return []
    selected = frame.select(*values)
    plan = analysed(selected)
    is_plain = plan.nodeName() == "Project" and plan.child().fastEquals(analysed(frame))
    fields = selected.schema.fields
    if not is_plain or len(fields) != len(values) or not (subqueries or plan.subqueries().isEmpty()):
        others = "or a generator" if subqueries else "a generator or a subquery"
        raise InvalidRequest(f"{what} assigns an aggregate, a window function, {others}; a new value is made of one row")
    trees = [each.child() if each.nodeName() == "Alias" else each for each in items(plan.projectList())]
    return [(column_of(frame.sparkSession, tree), field.dataType) for tree, field in zip(trees, fields, strict=True)]


def column_of(session: SparkSession, tree: Any) -> Column:
    """A resolved expression as a Column, which means the same in every frame that has the columns it uses: no name is looked up again."""
    return Column(class_in_jvm(session, f"{_CLASSIC}.ExpressionUtils").column(tree))


def tree_of(session: SparkSession, column: Column) -> Any:
    """The expression of such a Column."""
    column_of_jvm: Any = column._jc
    return class_in_jvm(session, f"{_CLASSIC}.ExpressionUtils").expression(column_of_jvm)


def used_by(session: SparkSession, values: Iterable[Column], names: Names) -> frozenset[str]:
    """Those of the columns `names` that resolved expressions use."""
    numbers = {number for value in values for number in _numbers_in(tree_of(session, value))}
    return frozenset(name for number, name in names.items() if number in numbers)


def _numbers_in(tree: Any) -> set[int]:
    """The numbers of the columns that a resolved expression uses."""
    return {each.exprId().id() for each in items(tree.references().toSeq())}


def names_of(frame: DataFrame) -> Names:
    """The frame's columns by number."""
    return {each.exprId().id(): name for name, each in zip(frame.columns, items(analysed(frame).output()), strict=True)}


def _conjuncts(tree: Any) -> Iterator[Any]:
    """The parts of a condition that all must hold."""
    if tree.nodeName() == "And":
        for child in items(tree.children()):
            yield from _conjuncts(child)
    else:
        yield tree


def predicate_of(trees: Iterable[Any], names: Names, schema: StructType) -> tuple[Predicate | None, bool]:
    """A predicate that holds wherever all `trees` do, from what sluice can evaluate over the table's columns alone; None if there is
    nothing. And whether it is all of them.
    """
    parts = [
        predicate_in(part, lambda attribute: names.get(attribute["exprId"]["id"]), schema) for tree in trees for part in _conjuncts(tree)
    ]
    both = Predicate.all_of([part for part, _ in parts])
    return both, both is not None and all(exact for _, exact in parts)


def predicate_text(session: SparkSession, schema: StructType, condition: Column | str, what: str) -> str:
    """A condition on a table's rows in the SQL of `storage.pruning.predicate`; a text is one in Spark's SQL.

    Raises AnalysisException where Spark does, and InvalidRequest for what sluice cannot evaluate exactly.
    """
    frame = session.createDataFrame([], to_spark(schema))
    predicate, is_exact = predicate_of([resolved(frame, condition, what)], names_of(frame), schema)
    if predicate is None or not is_exact:
        raise InvalidRequest(f"{what} cannot evaluate {condition}: compare columns with values")
    return predicate.to_sql()


def equal_keys(tree: Any, target: Names, source: Names, spark: SparkSession) -> list[tuple[str, Column]]:
    """The conjuncts `column of the target = expression of the source`, without subqueries: the column, and the expression.

    Structs and arrays are none of them: files have no bounds of them.
    """
    keys: list[tuple[str, Column]] = []
    for part in _conjuncts(tree):
        if part.nodeName() != "EqualTo" or has_subquery(spark, part):
            continue
        one, other = items(part.children())
        for mine, theirs in ((one, other), (other, one)):
            name = _plain_column(mine, target)
            if name is None or str(mine.dataType().simpleString()).startswith(("struct<", "array<")):
                continue
            numbers = _numbers_in(theirs)
            if numbers and numbers <= source.keys():
                keys.append((name, column_of(spark, theirs)))
                break
    return keys


def _plain_column(tree: Any, names: Names) -> str | None:
    """The column that the tree is, apart from a cast to a wider whole number."""
    if tree.nodeName() == "Cast":
        kinds = [each.dataType().simpleString() for each in (tree.child(), tree)]
        if any(kind not in _WHOLE for kind in kinds) or _WHOLE.index(kinds[0]) > _WHOLE.index(kinds[1]):
            return None
        tree = tree.child()
    return names.get(tree.exprId().id()) if tree.nodeName() == "AttributeReference" else None


# -- columns of other frames ---------------------------------------------------------------------------------------------

# Spark's analyser knows a column of a frame, such as `DeltaTable.toDF()`, by the number that it has in that frame, not by its name. So
# all frames of the table in one change give its columns the same numbers, and what was resolved over one holds in the others.


def attributes_in(
    frames: Sequence[DataFrame], expressions: Iterable[Column | str | None], source: DataFrame | None = None
) -> dict[str, Any]:
    """The columns, by name, of that one of the `frames` of the table (the latest, if several) of which the expressions use a column.

    None of them if the source of a merge has such columns itself: then they are the source's.
    """
    columns = [each for each in expressions if isinstance(each, Column)]
    if not frames or not columns:
        return {}
    converter = getattr(class_in_jvm(frames[0].sparkSession, f"{_CLASSIC}.ColumnNodeToExpressionConverter$"), "MODULE$")
    used: set[int] = set()
    for column in columns:
        column_of_jvm: Any = column._jc
        leaves = items(converter.apply(column_of_jvm.node()).collectLeaves())
        used |= {each.exprId().id() for each in leaves if each.nodeName() == "AttributeReference"}
    taken = set() if source is None else {each.exprId().id() for each in items(analysed(source).output())}
    for frame in reversed(frames):
        output = {each.exprId().id(): each for each in items(analysed(frame).output())}
        if used & output.keys() and not taken & output.keys():
            return {each.name(): each for each in output.values()}
    return {}


def numbered_as(frame: DataFrame, attributes: Mapping[str, Any]) -> DataFrame:
    """The same frame, in which columns have the numbers of these `attributes` of the same names."""
    if not attributes:
        return frame
    session = frame.sparkSession
    sequence = class_in_jvm(session, "org.apache.spark.api.python.PythonUtils").toSeq
    nothing = class_in_jvm(session, "scala.Option").empty()
    none, alias = sequence([]), class_in_jvm(session, "org.apache.spark.sql.catalyst.expressions.Alias")
    columns = [
        alias(each, name, attributes[name].exprId(), none, nothing, none) if name in attributes else each
        for name, each in zip(frame.columns, items(analysed(frame).output()), strict=True)
    ]
    plan = class_in_jvm(session, "org.apache.spark.sql.catalyst.plans.logical.Project")(sequence(columns), analysed(frame))
    return of_plan(session, plan)
