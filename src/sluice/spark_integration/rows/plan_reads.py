"""What a DataFrame reads of the table that it is written to, by Spark's analysed plan: such a write depends on these rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

from pyspark.sql import DataFrame

from ...coordinator.rules.isolation import table_policy
from ...storage.dataclass import dataclass
from ...storage.pruning.predicate import Predicate
from ...storage.schema.schema import StructType, parse_schema
from ...tables.transaction import ForeignRows, Transaction
from ...tables.write.requirements import require_no_later_version
from ..jvm import analysed, items
from ..scan.file_rows import version_read, versions_read
from ..writing import written_by_executors
from .conditions import predicate_of

_PASSING: Final = frozenset({"Filter", "Project", "SubqueryAlias", "View", "Union"})
_PASSING_JOINS: Final = {"Inner": (0, 1), "Cross": (0, 1), "LeftOuter": (0,), "LeftSemi": (0,), "LeftAnti": (0,), "RightOuter": (1,)}
"""Nodes, and sides of joins, whose rows come one by one from the rows below: a condition above them chooses among these."""


@dataclass(frozen=True, slots=True)
class PlanReads:
    """The lowest `version` of the table that is read, and the condition that all rows satisfy which count; "": the whole table.

    The version is None if it will be the latest one when the rows are read.
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
    reads = None if table_policy(base.configuration).by_classes else reads_of(frame, location, parse_schema(base.metadata.schema_string))
    if reads is not None:
        if moves and reads.version is not None:
            part.move_to(reads.version)
        part.depend_on(reads.where or None, version=reads.version)


def written_with_reads(frame: DataFrame) -> ForeignRows:
    """A DataFrame, as a transaction has it written by executors; the transaction depends on what it reads."""
    return ForeignRows(*written_by_executors(frame), partial(depend_on_reads, frame=frame, moves=True))


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
