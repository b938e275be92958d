"""Evaluates expressions for one row of plain Python values, in a microsecond: what a decision about a handful of files can afford.

The answers are those of `evaluate`: what Python says exactly as Arrow is asked of Python, every other tree of Arrow. Plain values are what
Python has for a type, save that dates are days and timestamps microseconds since the epoch, so that every value of the type has one.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import pyarrow as pa

from . import casts, types
from .evaluate import run
from .nodes import And, Column, Compare, In, IsNull, Like, Literal, Node, Not, Or, Value, walk

__all__ = ["Plain", "Row", "compile_row", "converter", "of_arrow", "plain", "remembered"]

Plain: TypeAlias = Any
Row: TypeAlias = tuple[Plain, ...]

_OPERATORS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_DAY_US: Final = 86_400_000_000
_REMEMBERED: Final = 2048


def plain(value: Value, kind: pa.DataType) -> Plain:
    """The plain value of a literal's value of type `kind`."""
    if value is not None and (pa.types.is_date(kind) or pa.types.is_timestamp(kind)):
        return pa.scalar(value, kind).value
    return value


def remembered(function: Callable[[Any], Plain]) -> Callable[[Any], Plain]:
    """`function` with the answers of its latest arguments kept; what it raises is not."""
    known: dict[Any, Plain] = {}

    def ask(value: Any) -> Plain:
        try:
            return known[value]
        except KeyError:
            answer = function(value)
        if len(known) >= _REMEMBERED:
            known.clear()
        known[value] = answer
        return answer

    return ask


def compile_row(node: Node, names: Sequence[str]) -> Callable[[Row], Plain]:
    """A function that gives the value of `node` for a row, whose values are those of the top-level columns `names`, in this order.

    It raises PredicateError where the row cannot be evaluated.
    """
    found = _compiled(node, {name: place for place, name in enumerate(names)})
    return found if found is not None else remembered(_by_arrow(node, names))


def _by_arrow(node: Node, names: Sequence[str]) -> Callable[[Row], Plain]:
    kinds = {part.path[0]: part.type for part in walk(node) if isinstance(part, Column)}
    read = [(place, name) for place, name in enumerate(names) if name in kinds]

    def evaluate(row: Row) -> Plain:
        arrays = {name: pa.array([row[place]], kinds[name]) for place, name in read}
        return of_arrow(run(node, pa.table(arrays or {"": pa.nulls(1)})))

    return evaluate


def of_arrow(values: pa.Array) -> Plain:
    """The plain value of an array's only value."""
    only = values[0]
    return only.value if pa.types.is_date(values.type) or pa.types.is_timestamp(values.type) else only.as_py()


def converter(source: pa.DataType, target: pa.DataType) -> Callable[[Plain], Plain] | None:
    """A function that casts plain values that are not null, or None when Python does not say exactly as Spark's cast does.

    An integer may stand for a decimal, a float of 32 bits for one of 64: they compare as what they stand for.
    """
    if source == target:
        return _same
    moments = (types.TIMESTAMP, types.TIMESTAMP_NTZ)
    if source in moments:
        return _same if target in moments else _day if pa.types.is_date(target) else None
    if pa.types.is_date(source):
        return _midnight if target in moments else None
    if pa.types.is_integer(source) and pa.types.is_float64(target):
        return float
    wider = (
        (pa.types.is_integer(source) or types.is_decimal(source))
        and (pa.types.is_integer(target) or types.is_decimal(target))
        and not casts.may_fail(source, target)
    )
    return _same if wider or (pa.types.is_float32(source) and pa.types.is_float64(target)) else None


def _same(value: Plain) -> Plain:
    return value


def _day(value: int) -> int:
    return value // _DAY_US


def _midnight(value: int) -> int:
    return value * _DAY_US


def _compiled(node: Node, places: Mapping[str, int]) -> Callable[[Row], Plain] | None:
    """The node in Python, or None when a part of it is left to Arrow."""
    match node:
        case Literal():
            constant = plain(node.value, node.type)
            return lambda _: constant
        case Column(path=(name,)) if name in places:
            return operator.itemgetter(places[name])
        case Compare():
            return _comparison(node, places)
        case And() | Or():
            terms = [_compiled(term, places) for term in node.terms]
            return _connection(isinstance(node, And), [term for term in terms if term is not None]) if None not in terms else None
        case Not() | IsNull() | In() | Like():
            term = _compiled(node.term, places)
            return None if term is None else _of_one(node, term)
    return None


def _at(node: Node, kind: pa.DataType, places: Mapping[str, int]) -> Callable[[Row], Plain] | None:
    """The value of `node`, cast to `kind`."""
    inner, convert = _compiled(node, places), converter(node.type, kind)
    if inner is None or convert is _same:
        return inner
    if convert is None:
        return None
    return lambda row: None if (value := inner(row)) is None else convert(value)


def _comparison(node: Compare, places: Mapping[str, int]) -> Callable[[Row], Plain] | None:
    left, right = _at(node.left, node.at, places), _at(node.right, node.at, places)
    if left is None or right is None:
        return None
    null_safe = node.op == "<=>"
    compare = _OPERATORS["=" if null_safe else node.op]
    floating = pa.types.is_floating(node.at)

    def evaluate(row: Row) -> bool | None:
        one, other = left(row), right(row)
        if one is None or other is None:
            return one is other if null_safe else None
        return compare(_ordered(one), _ordered(other)) if floating else compare(one, other)

    return evaluate


def _ordered(value: float) -> tuple[bool, float]:
    """What orders as SQL does: NaN equals NaN and comes last."""
    return (True, 0.0) if value != value else (False, value)


def _connection(conjunction: bool, terms: Sequence[Callable[[Row], Plain]]) -> Callable[[Row], Plain]:
    decisive = not conjunction

    def evaluate(row: Row) -> bool | None:
        result: bool | None = conjunction
        for term in terms:
            truth = term(row)
            if truth is decisive:
                return bool(decisive)
            if truth is None:
                result = None
        return result

    return evaluate


def _of_one(node: Not | IsNull | In | Like, term: Callable[[Row], Plain]) -> Callable[[Row], Plain] | None:
    match node:
        case Not():
            return lambda row: None if (truth := term(row)) is None else not truth
        case IsNull():
            return lambda row: term(row) is None
        case Like():
            pattern = _regex(node)
            return lambda row: None if (text := term(row)) is None else pattern.fullmatch(text) is not None
        case In():
            return _membership(node, term)


def _regex(node: Like) -> re.Pattern[str]:
    """The pattern of a LIKE, for `fullmatch`."""
    return re.compile("".join(re.escape(part) if isinstance(part, str) else ".*" if part else "." for part in node.parts), re.DOTALL)


def _membership(node: In, term: Callable[[Row], Plain]) -> Callable[[Row], Plain] | None:
    convert = converter(node.term.type, node.at)
    if convert is None:
        return None
    known = [plain(option.value, option.type) for option in node.options]
    options, with_nan = frozenset(known), any(value != value for value in known)
    missing = None if node.with_null else False

    def evaluate(row: Row) -> bool | None:
        value = term(row)
        if value is None:
            return None
        value = convert(value)
        return True if value in options or (with_nan and value != value) else missing

    return evaluate
