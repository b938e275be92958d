"""The value of plain expressions over few rows, one Arrow function after the other.

To set up an Arrow execution plan takes longer than to compute a few thousand rows. What is done here is what `evaluate` would do,
function by function, for conditions and sums over whole numbers, texts, booleans, dates and timestamps that meet at one type. Guards are
left out: where nothing fails they change no value, and where something fails there is no answer here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from .nodes import And, Arithmetic, Column, Compare, In, IsNull, Literal, Node, Not, Or

__all__ = ["ROWS_MAX", "value_of"]

ROWS_MAX: Final = 16_384
"""Beyond it a plan pays: it goes through the rows piece by piece."""
_OPTIONS_MAX: Final = 16

_Values: TypeAlias = "pa.Array | pa.Scalar"

_COMPARISONS: Final[dict[str, Callable[[_Values, _Values], _Values]]] = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
_CHECKED: Final[dict[str, Callable[[_Values, _Values], _Values]]] = {
    "+": pc.add_checked,
    "-": pc.subtract_checked,
    "*": pc.multiply_checked,
}


class _NotHere(Exception):
    """Raised for an expression, or a row, that is left to the plan."""


def value_of(node: Node, table: pa.Table) -> pa.Array | None:
    """The value of `node` for every row of `table`; None when the plan has to tell."""
    if table.num_rows > ROWS_MAX:
        return None
    try:
        values = _value(node, table)
    except (_NotHere, pa.ArrowInvalid, pa.ArrowNotImplementedError, OverflowError):
        return None
    return pa.repeat(values, table.num_rows) if isinstance(values, pa.Scalar) else values


def _value(node: Node, table: pa.Table) -> _Values:
    match node:
        case Column(path=(name,)):
            return _column(table, name, node.type)
        case Literal():
            return pa.scalar(node.value, node.type)
        case And():
            return reduce(pc.and_kleene, [_value(term, table) for term in node.terms])
        case Or():
            return reduce(pc.or_kleene, [_value(term, table) for term in node.terms])
        case Not():
            return pc.invert(_value(node.term, table))
        case IsNull():
            return pc.is_null(_value(node.term, table))
        case Compare() if node.op in _COMPARISONS:
            return _COMPARISONS[node.op](_at(node.left, node.at, table), _at(node.right, node.at, table))
        case In() if 0 < len(node.options) <= _OPTIONS_MAX and not node.with_null:
            term = _at(node.term, node.at, table)
            return reduce(pc.or_kleene, [pc.equal(term, _at(option, node.at, table)) for option in node.options])
        case Arithmetic() if pa.types.is_signed_integer(node.type):
            return _computed(node, table)
    raise _NotHere


def _column(table: pa.Table, name: str, kind: pa.DataType) -> pa.Array:
    column = table.column(name)
    if column.type != kind:
        raise _NotHere
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _at(node: Node, kind: pa.DataType, table: pa.Table) -> _Values:
    """The value of `node` at the type where it meets another; floats, decimals and most casts have rules of their own."""
    if not _is_plain(kind):
        raise _NotHere
    if isinstance(node, Literal) and node.value is None:
        return pa.scalar(None, kind)
    if node.type == kind:
        return _value(node, table)
    if not (pa.types.is_signed_integer(node.type) and pa.types.is_signed_integer(kind)):
        raise _NotHere
    return pa.scalar(node.value, kind) if isinstance(node, Literal) else pc.cast(_value(node, table), kind)


def _is_plain(kind: pa.DataType) -> bool:
    rules = (pa.types.is_signed_integer, pa.types.is_string, pa.types.is_boolean, pa.types.is_date, pa.types.is_timestamp)
    return any(rule(kind) for rule in rules)


def _computed(node: Arithmetic, table: pa.Table) -> _Values:
    left, right = (_at(side, node.type, table) for side in (node.left, node.right))
    if node.op in _CHECKED:
        return _CHECKED[node.op](left, right)
    if node.op != "%":
        raise _NotHere
    minus_one = pc.equal(right, pa.scalar(-1, node.type))
    divisor = pc.if_else(minus_one, pa.scalar(1, node.type), right)
    return pc.subtract(left, pc.multiply(pc.divide_checked(left, divisor), divisor))
