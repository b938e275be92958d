"""Conditions of Spark's plans as predicates: a tree of Catalyst crosses to Python as one text, and becomes sluice's own expressions.

What sluice cannot evaluate as Spark does has no predicate. Of a conjunction the other parts remain: every row that satisfies the
tree satisfies the predicate.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, timedelta, timezone
from typing import Any, Final, TypeAlias

import orjson
import pyarrow as pa
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from ...storage.dataclass import dataclass
from ...storage.errors import PredicateError, UnsupportedFeature
from ...storage.expressions import build
from ...storage.expressions.casts import convert
from ...storage.expressions.nodes import Literal, Node, Value
from ...storage.pruning.predicate import Predicate
from ...storage.schema.datatypes import arrow_type
from ...storage.schema.schema import PrimitiveType, StructType, to_arrow

Names: TypeAlias = "Callable[[Mapping[str, Any]], str | None]"
"""The table's column that an attribute of Catalyst is; None if it is none."""

_COMPARED: Final = {
    "EqualTo": "=",
    "EqualNullSafe": "<=>",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
}
_SEARCHED: Final = {"StartsWith": "startswith", "EndsWith": "endswith", "Contains": "contains"}
_ARITHMETIC: Final = {"Add": "+", "Subtract": "-", "Multiply": "*", "Remainder": "%"}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)
_IN_JVM: Final = frozenset({"timestamp", "timestamp_ntz", "binary"})
"""Types whose literals the text does not have, or has in a session's time zone."""
_SEPARATOR: Final = "\0"


@dataclass(frozen=True, slots=True)
class _Part:
    """What a subtree means; None: sluice has no equal. `exact`: it is all of the subtree, not only implied by it."""

    node: Node | None = None
    exact: bool = False


_UNKNOWN: Final = _Part()


def attribute_named(attribute: Mapping[str, Any]) -> str | None:
    """The name of an attribute of a scan, which has the table's own names; None for Spark's metadata of files."""
    hidden = any("metadata_col" in key for key in attribute.get("metadata") or {})
    return None if hidden else str(attribute["name"])


def predicate_in(tree: Any, names: Names, schema: StructType) -> tuple[Predicate | None, bool]:
    """A predicate that holds wherever the tree (a Catalyst expression) does; None if sluice has none. And whether it is all of it."""
    part = _Translation(tree, names, to_arrow(schema)).part()
    try:
        return (None, False) if part.node is None else (Predicate(build.require_boolean(part.node)), part.exact)
    except PredicateError:
        return None, False


class _Translation:
    """One tree. Its nodes are in the order of the text: a node, then its children."""

    def __init__(self, tree: Any, names: Names, schema: pa.Schema) -> None:
        self._tree = tree
        self._names = names
        self._schema = schema
        self._nodes: Sequence[Mapping[str, Any]] = ()

    def part(self) -> _Part:
        """The whole tree, from its leaves up, without recursion: conditions may be long."""
        try:
            self._nodes = orjson.loads(self._tree.toJSON())
        except (Py4JJavaError, PySparkException):  # a tree with a part that has no text
            return _UNKNOWN
        stack: list[_Part] = []
        for number in reversed(range(len(self._nodes))):
            children = [stack.pop() for _ in range(self._nodes[number]["num-children"])]
            try:
                stack.append(self._meaning(number, self._nodes[number], children))
            except (PredicateError, UnsupportedFeature, ValueError, OverflowError, Py4JJavaError, PySparkException):
                stack.append(_UNKNOWN)  # no type or value of ours; its ancestors decide what remains
        return stack.pop()

    def _meaning(self, number: int, fields: Mapping[str, Any], children: Sequence[_Part]) -> _Part:
        kind = fields["class"].rpartition(".")[2]
        nodes = [each.node for each in children if each.node is not None]
        if kind == "And":
            return _Part(build.and_(*nodes), all(each.exact for each in children)) if nodes else _UNKNOWN
        if len(nodes) < len(children):
            return _UNKNOWN
        if kind == "Or":
            return _Part(build.or_(*nodes), all(each.exact for each in children))
        if not all(each.exact for each in children):
            return _UNKNOWN
        node = self._exact(kind, number, fields, nodes)
        return _UNKNOWN if node is None else _Part(node, exact=True)

    def _exact(self, kind: str, number: int, fields: Mapping[str, Any], nodes: Sequence[Node]) -> Node | None:
        if kind in _COMPARED:
            return build.compare(_COMPARED[kind], *nodes)
        if kind in _SEARCHED:
            return build.call(_SEARCHED[kind], nodes)
        match kind:
            case "AttributeReference" | "GetStructField":
                return self._column(number)
            case "Literal":
                return self._literal(number, fields)
            case "Not":
                return build.not_(*nodes)
            case "IsNull":
                return build.is_null(*nodes)
            case "IsNotNull":
                return build.not_(build.is_null(*nodes))
            case "In":
                return build.in_(nodes[0], nodes[1:])
            case "InSet":
                return build.in_(nodes[0], self._options(number, nodes[0].type))
            case "Like":
                return build.like(nodes[0], nodes[1], self._tree.apply(number).escapeChar())
            case "Cast" if (node := self._cast(number, fields, nodes[0])) is not None:
                return node
        if kind in _ARITHMETIC and all(pa.types.is_integer(each.type) for each in nodes) and self._is_ansi(number):
            return build.arithmetic(_ARITHMETIC[kind], *nodes)
        return self._constant(number) if nodes and all(isinstance(each, Literal) for each in nodes) else None

    def _column(self, number: int) -> Node | None:
        """A column, or a field of a struct: the chain of fields below, down to a column."""
        path: list[str] = []
        while self._nodes[number]["class"].endswith(".GetStructField"):
            step = self._nodes[number].get("name")
            path.append(self._tree.apply(number).extractFieldName() if step is None else step)
            number += 1
        fields = self._nodes[number]
        name = self._names(fields) if fields["class"].endswith(".AttributeReference") else None
        if name is None or name not in self._schema.names:
            return None
        column, kind = build.column((name, *reversed(path)), self._schema), fields["dataType"]
        # text in another order than that of its bytes has a type of its own
        return column if not isinstance(kind, str) or arrow_type(PrimitiveType(kind)) == column.type else None

    def _literal(self, number: int, fields: Mapping[str, Any]) -> Node | None:
        kind, text = fields["dataType"], fields["value"]
        if not isinstance(kind, str):
            return None
        if kind == "void":
            return build.NULL
        if text is None:
            return Literal(None, arrow_type(PrimitiveType(kind)))
        return _typed(self._tree.apply(number).value(), kind) if kind in _IN_JVM else _typed(text, kind)

    def _options(self, number: int, kind: pa.DataType) -> list[Node]:
        """The values of a set, which Spark makes of a longer list."""
        values, null = self._tree.apply(number).hset(), Literal(None, kind)
        name = str(self._tree.apply(number).child().dataType().json()).strip('"')
        if name == "binary":
            raise PredicateError("a set of bytes has no text")
        texts = str(values.mkString(_SEPARATOR)).split(_SEPARATOR)
        if len(texts) != int(values.size()):
            raise PredicateError("a value of the set contains NUL")
        has_null = bool(values.contains(None))
        if has_null:
            texts.remove("null")
        return [*(_typed(int(text) if name in _COUNTED else text, name) for text in texts), *([null] if has_null else [])]

    def _cast(self, number: int, fields: Mapping[str, Any], term: Node) -> Node | None:
        kind = fields["dataType"]
        if not isinstance(kind, str):
            return None
        target = arrow_type(PrimitiveType(kind))
        if pa.types.is_timestamp(target) or pa.types.is_timestamp(term.type):
            return None  # in the session's time zone
        return build.cast(term, target) if _widens(term.type, target) or self._is_ansi(number) else None

    def _constant(self, number: int) -> Node | None:
        """The value of an expression without columns."""
        tree = self._tree.apply(number)
        kind = str(tree.dataType().json()).strip('"')
        if not tree.foldable():
            return None
        value = tree.eval(None)
        return Literal(None, arrow_type(PrimitiveType(kind))) if value is None else _typed(value, kind)

    def _is_ansi(self, number: int) -> bool:
        return bool(self._tree.apply(number).evalMode().toString() == "ANSI")


_COUNTED: Final = frozenset({"date", "timestamp", "timestamp_ntz"})
"""Types whose values Spark keeps as numbers of days or microseconds."""


def _typed(value: Any, kind: str) -> Literal:
    """A literal from Spark's value or its text. Raises ValueError and the like for a value that Python lacks."""
    typed = arrow_type(PrimitiveType(kind))
    literal: Value
    if kind in ("timestamp", "timestamp_ntz"):
        moment = _EPOCH + timedelta(microseconds=value)
        literal = moment if kind == "timestamp" else moment.replace(tzinfo=None)
    elif kind == "date" and isinstance(value, int):
        literal = date(1970, 1, 1) + timedelta(days=value)
    else:
        literal = bytes(value) if kind == "binary" else convert(str(value), typed)
    return Literal(literal, typed)


def _widens(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether every value of one type is a value of the other, so that a cast means the same in every mode."""
    if pa.types.is_integer(source) and pa.types.is_integer(target):
        return bool(source.bit_width <= target.bit_width)
    if pa.types.is_decimal(source) and pa.types.is_decimal(target):
        return bool(source.scale <= target.scale and source.precision - source.scale <= target.precision - target.scale)
    if pa.types.is_integer(source) and pa.types.is_decimal(target):
        return bool(target.precision - target.scale >= {8: 3, 16: 5, 32: 10, 64: 19}[source.bit_width])
    return bool(pa.types.is_float32(source) and pa.types.is_float64(target))
