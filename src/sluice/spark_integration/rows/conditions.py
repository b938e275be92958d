"""Conditions and expressions as Spark resolves them, and what a DataFrame reads of the table that it is written to.

Spark's analyser resolves names (case, aliases, backticks, nested fields) and inserts casts. The resolved trees are read through
the JVM; what sluice can evaluate of them becomes its predicates (`scan.catalyst`) for skipping files and the transaction's footprint.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import DataType as SparkType

from ...coordinator.rules.intent import table_policy
from ...storage.dataclass import dataclass
from ...storage.errors import InvalidRequest
from ...storage.pruning.predicate import Predicate
from ...storage.schema.schema import StructType
from ...tables.transaction import ForeignRows, Transaction
from ...tables.write.requirements import require_no_later_version
from ..jvm import analysed, class_in_jvm, column_of, has_subquery, items, of_plan
from ..scan.catalyst import predicate_in
from ..scan.file_rows import version_read, versions_read
from ..schemas import to_spark
from ..writing import rows_at_most, written_by_executors

Names = Mapping[int, str]
"""The top-level columns of a frame by the number that Spark's analyser gave them."""

_PASSING: Final = frozenset({"Filter", "Project", "SubqueryAlias", "View", "Union"})
_PASSING_JOINS: Final = {"Inner": (0, 1), "Cross": (0, 1), "LeftOuter": (0,), "LeftSemi": (0,), "LeftAnti": (0,), "RightOuter": (1,)}
"""Nodes, and sides of joins, whose rows come one by one from the rows below: a condition above them chooses among these."""
_WHOLE: Final = ("tinyint", "smallint", "int", "bigint")


def as_column(expression: Column | str) -> Column:
    """An expression given as a Column or as SQL."""
    return F.expr(expression) if isinstance(expression, str) else expression


def resolved(frame: DataFrame, condition: Column | str, what: str, *, subqueries: bool = False) -> Any:
    """The condition as Spark's analyser resolves it over the frame: a Catalyst expression. Raises AnalysisException where Spark does, and
    InvalidRequest for a condition that is not deterministic or, unless `subqueries`, has a subquery.
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
        why = f"the condition of {what} is not deterministic: {tree.sql()}"
        raise InvalidRequest(f"{why}; whether a row satisfies it must depend on the row alone")
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


def numbers_in(tree: Any) -> set[int]:
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
    """A condition on a table's rows in the SQL of `storage.pruning.predicate`; a text is one in Spark's SQL. Raises AnalysisException where
    Spark does, and InvalidRequest for what sluice cannot evaluate exactly.
    """
    frame = session.createDataFrame([], to_spark(schema))
    predicate, is_exact = predicate_of([resolved(frame, condition, what)], names_of(frame), schema)
    if predicate is None or not is_exact:
        raise InvalidRequest(f"{what} cannot evaluate {condition}: compare columns with values")
    return predicate.to_sql()


def equal_keys(tree: Any, target: Names, source: Names, spark: SparkSession) -> list[tuple[str, Column]]:
    """The conjuncts `column of the target = expression of the source`, without subqueries: the column, and the expression. Structs and
    arrays are none of them: files have no bounds of them.
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
            numbers = numbers_in(theirs)
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
    """The columns, by name, of that one of the `frames` of the table (the latest, if several) of which the expressions use a column. None
    of them if the source of a merge has such columns itself: then they are the source's.
    """
    columns = [each for each in expressions if isinstance(each, Column)]
    if not frames or not columns:
        return {}
    converter = getattr(class_in_jvm(frames[0].sparkSession, "org.apache.spark.sql.classic.ColumnNodeToExpressionConverter$"), "MODULE$")
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


# -- what a frame reads of the table that it is written to -------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PlanReads:
    """The lowest `version` of the table that is read, and the condition that all rows satisfy which count; "": the whole table. The version
    is None if it will be the latest one when the rows are read.
    """

    version: int | None
    where: str


def reads_of(frame: DataFrame, location: str, schema: StructType) -> PlanReads | None:
    """What the frame reads of the table at `location` with this schema; None if it reads nothing of it.

    A version that the reader named counts for nothing: whatever others commit, it stays what it is. Rows that left Spark's plan
    (`checkpoint`, `rdd`, `toPandas`) do not say where they come from.
    """
    if not hasattr(frame, "_jdf"):
        return None
    plan, columns = analysed(frame), frozenset(schema.names)
    versions: list[int | None] = []
    wheres: list[Predicate | None] = []
    for root in (plan, *items(plan.subqueriesAll())):
        for leaf, above in _leaves(root, ()):
            read = version_read(leaf)
            if read is None or read.location != location or read.chosen:
                continue
            names = {each.exprId().id(): each.name() for each in items(leaf.output()) if each.name() in columns}
            trees: list[Any] = []  # conditions that the rows of all children of a node satisfy which it passes on
            for node, number in reversed(above):
                names |= _renamed(node, number, names)
                if node.nodeName() == "Filter":
                    trees.append(node.condition())
                elif node.nodeName() == "Join" and str(node.joinType().toString()) in ("Inner", "Cross") and node.condition().isDefined():
                    trees.append(node.condition().get())
            versions.append(read.version)
            wheres.append(predicate_of(trees, names, schema)[0])
    if not versions:
        return None
    where, read_versions = Predicate.any_of(wheres), [each for each in versions if each is not None]
    return PlanReads(min(read_versions) if len(read_versions) == len(versions) else None, "" if where is None else where.to_sql())


def depend_on_reads(part: Transaction, frame: DataFrame, *, moves: bool = False) -> None:
    """A transaction depends on what the frame reads of its table, and of the other tables that take part.

    `moves`: it works on the version that was read from now on, if it may: then rows that others added since stay. Raises InvalidRequest for
    a later version of a table than its part works on, and the conflict if others changed rows meanwhile that an earlier version held.
    MaxCompute's policies compare no rows.
    """
    if not hasattr(frame, "_jdf"):
        return
    for location in {each.location for each in versions_read(frame)}:
        part.with_part(location, partial(_depend, frame, location, moves))


def _depend(frame: DataFrame, location: str, moves: bool, part: Transaction) -> None:
    for each in versions_read(frame):
        if each.location == location:
            version = part.latest_version() if each.version is None else each.version
            require_no_later_version(location, version, part.read_version)
    base, _ = part.basis
    reads = None if table_policy(base.configuration).by_classes else reads_of(frame, location, base.metadata.schema)
    if reads is not None:
        if moves and reads.version is not None:
            part.move_to(reads.version)
        part.depend_on(reads.where or None, version=reads.version)


def written_with_reads(frame: DataFrame) -> ForeignRows:
    """A DataFrame, as a transaction has it written by executors; the transaction depends on what it reads."""
    return ForeignRows(*written_by_executors(frame), partial(depend_on_reads, frame=frame, moves=True), partial(rows_at_most, frame))


def _leaves(plan: Any, above: Sequence[tuple[Any, int]]) -> Iterator[tuple[Any, Sequence[tuple[Any, int]]]]:
    """The leaves of a plan, each with the nodes above whose conditions choose among its rows, and the number of the child it is in."""
    kind, children = plan.nodeName(), items(plan.children())
    if not children:
        yield plan, above
    passing = _PASSING_JOINS.get(str(plan.joinType().toString()), ()) if kind == "Join" else ()
    for number, child in enumerate(children):
        yield from _leaves(child, (*above, (plan, number)) if kind in _PASSING or number in passing else ())


def _renamed(node: Any, number: int, names: Mapping[int, str]) -> dict[int, str]:
    """The table's columns under the numbers that a node gives them, for the rows of its child of that number."""
    match node.nodeName():
        case "Union":
            below = items(items(node.children())[number].output())
            pairs = [(each.exprId().id(), old) for each, old in zip(items(node.output()), below, strict=True)]
        case "Project":
            pairs = [(each.exprId().id(), each.child()) for each in items(node.projectList()) if each.nodeName() == "Alias"]
        case _:
            return {}
    columns = {new: names.get(old.exprId().id()) for new, old in pairs if old.nodeName() == "AttributeReference"}
    return {new: name for new, name in columns.items() if name is not None}
