"""The typed tree of an SQL expression.

Nodes are immutable values. Make them with `build`, which checks types and coerces; a node made directly is not checked.
Every node knows its Arrow type. If operands have different types (`Compare`, `In`, `Case`, `Arithmetic`), the node has their
common type, and the operands stay as written, so that the tree prints as the SQL it came from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from typing import Final, TypeAlias, cast

import pyarrow as pa

from ..dataclass import dataclass

# Timestamps are datetimes in UTC, timestamps without time zone are naive datetimes, a float may be NaN, None is NULL.
Value: TypeAlias = bool | int | float | Decimal | str | bytes | date | datetime | None

OPPOSITE: Final = {"=": "<>", "<>": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
FLIPPED: Final = {"=": "=", "<>": "<>", "<": ">", ">": "<", "<=": ">=", ">=": "<=", "<=>": "<=>"}


class _Condition:
    """A node whose value is TRUE, FALSE or null."""

    __slots__ = ()

    @property
    def type(self) -> pa.DataType:
        """BOOLEAN."""
        return pa.bool_()


@dataclass(frozen=True, slots=True)
class Column:
    """A column, or a field nested in struct columns: `path` has the names in the schema's spelling."""

    path: tuple[str, ...]
    type: pa.DataType


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant; `value` has the Python type that belongs to `type`."""

    value: Value
    type: pa.DataType


@dataclass(frozen=True, slots=True)
class Compare(_Condition):
    """`op` is one of = <> < <= > >= <=>; both sides are cast to `at` first."""

    op: str
    left: Node
    right: Node
    at: pa.DataType


@dataclass(frozen=True, slots=True)
class And(_Condition):
    """Two or more terms, none of them an And."""

    terms: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Or(_Condition):
    """Two or more terms, none of them an Or."""

    terms: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Not(_Condition):
    """NOT term."""

    term: Node


@dataclass(frozen=True, slots=True)
class In(_Condition):
    """`options` are literals of type `at`, none of them null; `with_null`: the list also had NULL."""

    term: Node
    options: tuple[Literal, ...]
    with_null: bool
    at: pa.DataType


@dataclass(frozen=True, slots=True)
class IsNull(_Condition):
    """`term` IS NULL; the term may be of any type."""

    term: Node


@dataclass(frozen=True, slots=True)
class Like(_Condition):
    """`parts` is the split pattern: a string is literal text, True is `%` and False is `_`."""

    term: Node
    parts: tuple[str | bool, ...]


@dataclass(frozen=True, slots=True)
class Cast:
    """CAST(term AS type)."""

    term: Node
    type: pa.DataType


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """`op` is one of + - * / % div."""

    op: str
    left: Node
    right: Node
    type: pa.DataType


@dataclass(frozen=True, slots=True)
class Call:
    """A function of `functions.FUNCTIONS`, by its first name."""

    name: str
    args: tuple[Node, ...]
    type: pa.DataType


@dataclass(frozen=True, slots=True)
class Case:
    """CASE WHEN condition THEN value ... ELSE otherwise END; all values are cast to `type`."""

    branches: tuple[tuple[Node, Node], ...]
    otherwise: Node
    type: pa.DataType


Node: TypeAlias = Column | Literal | Compare | And | Or | Not | In | IsNull | Like | Cast | Arithmetic | Call | Case


def children(node: Node) -> tuple[Node, ...]:
    """The direct children of `node`, from left to right."""
    match node:
        case Column() | Literal():
            return ()
        case Compare() | Arithmetic():
            return (node.left, node.right)
        case And() | Or():
            return node.terms
        case Not() | In() | IsNull() | Like() | Cast():
            return (node.term,)
        case Call():
            return node.args
        case Case():
            return (*(part for branch in node.branches for part in branch), node.otherwise)
    return ()


def walk(node: Node) -> Iterator[Node]:
    """The node and everything below it."""
    left = [node]
    while left:
        part = left.pop()
        yield part
        left.extend(reversed(children(part)))


def columns(node: Node) -> frozenset[tuple[str, ...]]:
    """The paths of all columns the node reads."""
    return frozenset({part.path for part in walk(node) if isinstance(part, Column)})


def rewrite(node: Node, change: Callable[[Node], Node]) -> Node:
    """The tree with `change` applied to every direct child of `node`."""
    match node:
        case Compare() | Arithmetic():
            return replace(node, left=change(node.left), right=change(node.right))
        case And() | Or():
            return replace(node, terms=tuple(map(change, node.terms)))
        case Not() | In() | IsNull() | Like() | Cast():
            return replace(node, term=change(node.term))
        case Call():
            return replace(node, args=tuple(map(change, node.args)))
        case Case():
            branches = tuple((change(condition), change(value)) for condition, value in node.branches)
            return replace(node, branches=branches, otherwise=change(node.otherwise))
    return cast(Node, node)
