"""Whether a condition can be TRUE at all, told by the constants its columns are compared with.

A condition becomes a union of boxes, and a box one domain (a range, a set of points, without some points) per column. A part
that is not of this simple kind allows everything, so "cannot be" is certain and "can be" may be wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Final, TypeAlias

import pyarrow as pa

from ...storage.dataclass import dataclass
from ...storage.expressions.nodes import FLIPPED, OPPOSITE, And, Column, Compare, In, IsNull, Literal, Node, Not, Or

__all__ = ["satisfiable"]

_BOXES_MAX: Final = 128
_Value: TypeAlias = Any
"""A value that is ordered among those of its column: bool, int, Decimal, str, date or datetime."""


@dataclass(frozen=True, slots=True)
class _Domain:
    """The values a column may have: in a range, among `points` where given, none of `without`; `null` and `known` say what may be."""

    low: _Value = None
    low_open: bool = False
    high: _Value = None
    high_open: bool = False
    points: frozenset[_Value] | None = None
    without: frozenset[_Value] = field(default_factory=frozenset)
    null: bool = True
    known: bool = True

    def meet(self, other: _Domain) -> _Domain:
        """The values that both allow."""
        low, low_open = _tighter((self.low, self.low_open), (other.low, other.low_open), highest=True)
        high, high_open = _tighter((self.high, self.high_open), (other.high, other.high_open), highest=False)
        points = self.points if other.points is None else other.points if self.points is None else self.points & other.points
        without = self.without | other.without
        return _Domain(low, low_open, high, high_open, points, without, self.null and other.null, self.known and other.known)

    @property
    def empty(self) -> bool:
        """Whether certainly no value is allowed."""
        return not self.null and (not self.known or self._no_value())

    def _no_value(self) -> bool:
        if self.points is not None:
            return not any(map(self._allows, self.points - self.without))
        if self.low is None or self.high is None:
            return False
        if self.low == self.high:
            return self.low_open or self.high_open or self.low in self.without
        return bool(self.low > self.high)

    def _allows(self, value: _Value) -> bool:
        above = self.low is None or value > self.low or (value == self.low and not self.low_open)
        below = self.high is None or value < self.high or (value == self.high and not self.high_open)
        return bool(above and below)


_Box: TypeAlias = Mapping[str, _Domain]
_ANYTHING: Final[Sequence[_Box]] = ({},)
_NOTHING: Final[Sequence[_Box]] = ()


def satisfiable(node: Node) -> bool:
    """False when the condition is TRUE for no values of its columns whatever."""
    try:
        return bool(_boxes(node, wanted=True))
    except TypeError:  # constants of one column that cannot be compared with each other
        return True


def _tighter(one: tuple[_Value, bool], other: tuple[_Value, bool], *, highest: bool) -> tuple[_Value, bool]:
    """The bound that allows less; each is (value or None, open)."""
    if one[0] is None or other[0] is None:
        return other if one[0] is None else one
    if one[0] == other[0]:
        return one[0], one[1] or other[1]
    return one if (one[0] > other[0]) == highest else other


def _boxes(node: Node, *, wanted: bool) -> Sequence[_Box]:
    """Where the node is TRUE (or, with `wanted` false, where it is FALSE)."""
    match node:
        case Not():
            return _boxes(node.term, wanted=not wanted)
        case And() | Or():
            parts = [_boxes(term, wanted=wanted) for term in node.terms]
            return _all_of(parts) if isinstance(node, And) == wanted else _any_of(parts)
        case Literal():
            return _ANYTHING if node.value is not None and bool(node.value) == wanted else _NOTHING
        case Compare():
            return _compared(node, wanted=wanted)
        case In():
            return _listed(node, wanted=wanted)
        case IsNull(term=Column(path=(name,))):
            return ({name: _Domain(known=False) if wanted else _Domain(null=False)},)
        case _:
            return _ANYTHING


def _all_of(parts: Iterable[Sequence[_Box]]) -> Sequence[_Box]:
    whole = _ANYTHING
    for part in parts:
        if len(whole) * len(part) > _BOXES_MAX:
            continue  # leaving a part out allows more
        whole = [met for one in whole for other in part if (met := _meet(one, other)) is not None]
    return whole


def _any_of(parts: Iterable[Sequence[_Box]]) -> Sequence[_Box]:
    whole = [box for part in parts for box in part]
    return whole if len(whole) <= _BOXES_MAX else _ANYTHING


def _meet(one: _Box, other: _Box) -> _Box | None:
    met = dict(one)
    for name, domain in other.items():
        met[name] = met[name].meet(domain) if name in met else domain
        if met[name].empty:
            return None
    return met


def _compared(node: Compare, *, wanted: bool) -> Sequence[_Box]:
    left, right, op = node.left, node.right, node.op
    if isinstance(left, Literal) and isinstance(right, Column):
        left, right, op = right, left, FLIPPED[op]
    if not (isinstance(left, Column) and isinstance(right, Literal)) or len(left.path) != 1:
        return _ANYTHING
    if right.value is None:
        if op != "<=>":
            return _NOTHING  # never TRUE, never FALSE
        return ({left.path[0]: _Domain(known=False) if wanted else _Domain(null=False)},)
    if not _exact(left.type, node.at, right.value):
        return _ANYTHING
    if op == "<=>" and not wanted:
        return ({left.path[0]: _Domain(without=frozenset((right.value,)))},)
    op = "=" if op == "<=>" else op if wanted else OPPOSITE[op]
    return ({left.path[0]: _domain(op, right.value)},)


def _domain(op: str, value: _Value) -> _Domain:
    match op:
        case "=":
            return _Domain(points=frozenset((value,)), null=False)
        case "<>":
            return _Domain(without=frozenset((value,)), null=False)
        case "<" | "<=":
            return _Domain(high=value, high_open=op == "<", null=False)
        case _:
            return _Domain(low=value, low_open=op == ">", null=False)


def _listed(node: In, *, wanted: bool) -> Sequence[_Box]:
    if not isinstance(node.term, Column) or len(node.term.path) != 1:
        return _ANYTHING
    if not all(_exact(node.term.type, node.at, option.value) for option in node.options):
        return _ANYTHING
    values = frozenset(option.value for option in node.options)
    if wanted:
        return ({node.term.path[0]: _Domain(points=values, null=False)},)
    return _NOTHING if node.with_null else ({node.term.path[0]: _Domain(without=values, null=False)},)


def _exact(column: pa.DataType, at: pa.DataType, value: object) -> bool:
    """Whether comparing the column with the constant is comparing plain Python values: no rounding, no other order."""
    if pa.types.is_integer(column) or pa.types.is_decimal(column):
        return isinstance(value, int | Decimal) and not isinstance(value, bool) and not pa.types.is_floating(at)
    if column != at:
        return False
    if pa.types.is_string(column):
        return isinstance(value, str)
    if pa.types.is_boolean(column):
        return isinstance(value, bool)
    if pa.types.is_date(column):
        return isinstance(value, date) and not isinstance(value, datetime)
    return pa.types.is_timestamp(column) and isinstance(value, datetime)
