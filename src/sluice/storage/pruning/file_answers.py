"""What partition values and statistics prove about the rows of one file, node by node: `skipping` in plain Python.

Nodes become functions of a partition's values (plain ones, see `expressions.scalars`) and of the statistics' JSON object.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import pyarrow as pa

from ..errors import PredicateError
from ..expressions.nodes import (
    FLIPPED,
    OPPOSITE,
    And,
    Call,
    Cast,
    Column,
    Compare,
    In,
    IsNull,
    Like,
    Literal,
    Node,
    Not,
    Or,
    columns,
    rewrite,
)
from ..expressions.scalars import Plain, Row, compile_row, converter, plain
from .file_bounds import Body, bound_readers, count, leaf
from .skipping import MONOTONE, MOST_OPTIONS, after_all, is_monotone

__all__ = ["MAY_BE_TRUE", "AnswerMaker"]

# Which answers a condition could have for some row of the file, as a sum.
MAY_BE_TRUE, _FALSE, _NULL, _ANY = 1, 2, 4, 7

# What a value could be: low, high, whether null, whether not null, whether NaN; see `skipping`.
_Span: TypeAlias = tuple[Plain, Plain, bool, bool, bool]
_Answers: TypeAlias = Callable[[Row, Body], int]
_Spans: TypeAlias = Callable[[Row, Body], _Span]

_ANYTHING: Final[_Span] = (None, None, True, True, True)


class AnswerMaker:
    """Turns the nodes of a condition into functions of a file's partition values and statistics."""

    def __init__(self, names: tuple[str, ...], numbers: frozenset[Node]) -> None:
        """`names` are the partition columns whose values a row holds; the columns `numbers` are not NaN in the rows asked about."""
        self._names = names
        self._numbers = numbers

    def _is_exact(self, node: Node) -> bool:
        return all(path[0] in self._names for path in columns(node))

    def could_hold(self, node: Node) -> Callable[[Row, Body], object]:
        """Whether `node` could be TRUE: the same as `answers` says, sooner; soonest for what is asked most, a column beside a constant."""
        match node:
            case And() | Or() if not self._is_exact(node):
                return _all_or_any(isinstance(node, And), [self.could_hold(term) for term in node.terms])
            case In(term=Column() as column) if self._is_bounded(column, node.at):
                return _among(node, column)
            case Compare(left=Column() as column, right=Literal() as limit) if self._is_plain(node, column, limit):
                return _beside(node.op, column, plain(limit.value, limit.type))
            case Compare(left=Literal() as limit, right=Column() as column) if self._is_plain(node, column, limit):
                return _beside(FLIPPED[node.op], column, plain(limit.value, limit.type))
        answers = self.answers(node)
        return lambda row, body: answers(row, body) & MAY_BE_TRUE

    def _is_plain(self, node: Compare, column: Column, limit: Literal) -> bool:
        """Whether two bounds are all that `column <op> limit` depends on."""
        return node.op in _BOUNDED and limit.value is not None and self._is_bounded(column, node.at)

    def _is_bounded(self, column: Column, at: pa.DataType) -> bool:
        """Whether statistics bound all values of a column, as they are compared at the type `at`."""
        is_number = not pa.types.is_floating(column.type) or column in self._numbers
        return column.type == at and is_number and not self._is_exact(column)

    def answers(self, node: Node) -> _Answers:
        """Which answers `node` could have."""
        if self._is_exact(node):
            return _exact_answers(compile_row(node, self._names))
        match node:
            case Not():
                inner = self.answers(node.term)
                return lambda row, body: _NEGATED[inner(row, body)]
            case And() | Or():
                return _joined(_BOTH if isinstance(node, And) else _EITHER, [self.answers(term) for term in node.terms])
            case IsNull():
                span = self.span(node.term)
                return lambda row, body: (MAY_BE_TRUE if (found := span(row, body))[2] else 0) + (_FALSE if found[3] else 0)
            case Compare():
                return _compared(node.op, self.span_at(node.left, node.at), self.span_at(node.right, node.at))
            case In():
                return _contained(node, self.span_at(node.term, node.at))
            case Like():
                return _matched(node, self.span(node.term))
            case Column():
                span = self.span(node)
                return lambda row, body: (MAY_BE_TRUE + _FALSE if (found := span(row, body))[3] else 0) + (_NULL if found[2] else 0)
        return lambda _row, _body: _ANY

    def span(self, node: Node) -> _Spans:
        """What the value of `node` could be."""
        if self._is_exact(node):
            return _exact_span(compile_row(node, self._names))
        if isinstance(node, Column) and not pa.types.is_struct(node.type):
            return _stats_span(node, may_be_nan=pa.types.is_floating(node.type) and node not in self._numbers)
        if isinstance(node, Cast) and is_monotone(node.term.type, node.type):
            return self.span_at(node.term, node.type)
        if isinstance(node, Call) and node.name in MONOTONE:
            return self._moved(node, next(arg for arg in node.args if not isinstance(arg, Literal)))
        return _anything

    def span_at(self, node: Node, kind: pa.DataType) -> _Spans:
        """What the value of `node` could be once it is cast to `kind`."""
        if node.type == kind:
            return self.span(node)
        moved = Cast(node, kind)
        if self._is_exact(node):
            return _exact_span(compile_row(moved, self._names))
        return self._moved(moved, node) if is_monotone(node.type, kind) else _anything

    def _moved(self, node: Cast | Call, inner: Node) -> _Spans:
        """The span of a function of `inner` that never falls where `inner` rises."""
        span = self.span(inner)
        convert = converter(inner.type, node.type) if isinstance(node, Cast) else None
        if convert is None:
            stand_in = Column(("value",), inner.type)
            compiled = compile_row(rewrite(node, lambda child: stand_in if child == inner else child), ("value",))
            move: Callable[[Plain], Plain] = lambda value: compiled((value,))  # noqa: E731
        else:
            move = convert

        def evaluate(row: Row, body: Body) -> _Span:
            low, high, *rest = span(row, body)
            try:
                low, high = None if low is None else move(low), None if high is None else move(high)
            except PredicateError:
                low = high = None
            return low, high, rest[0], rest[1], rest[2]

        return evaluate


def _anything(_row: Row, _body: Body) -> _Span:
    return _ANYTHING


def _exact_answers(value: Callable[[Row], Plain]) -> _Answers:
    def evaluate(row: Row, _: Body) -> int:
        try:
            truth = value(row)
        except PredicateError:
            return _ANY  # a row may never reach it: the rest of the condition decides
        return _NULL if truth is None else MAY_BE_TRUE if truth else _FALSE

    return evaluate


def _exact_span(value: Callable[[Row], Plain]) -> _Spans:
    def evaluate(row: Row, _: Body) -> _Span:
        try:
            found = value(row)
        except PredicateError:
            return _ANYTHING
        if found is None:
            return None, None, True, False, False
        return (None, None, False, True, True) if found != found else (found, found, False, True, False)

    return evaluate


def _stats_span(column: Column, *, may_be_nan: bool) -> _Spans:
    path = column.path
    read_low, read_high = bound_readers(path, column.type)

    def evaluate(_: Row, body: Body) -> _Span:
        nulls, records = count(leaf(body.get("nullCount"), path)), count(body.get("numRecords"))
        value = True if nulls is None or records is None else nulls < records
        return read_low(body), read_high(body), nulls is None or nulls > 0, value, value and may_be_nan

    return evaluate


def _all_or_any(conjunction: bool, terms: Sequence[Callable[[Row, Body], object]]) -> Callable[[Row, Body], bool]:
    """A conjunction could be TRUE where all of its terms could, a disjunction where one of them could."""

    def evaluate(row: Row, body: Body) -> bool:
        for term in terms:
            if bool(term(row, body)) is not conjunction:
                return not conjunction
        return conjunction

    return evaluate


def _beside(op: str, column: Column, limit: Plain) -> Callable[[Row, Body], bool]:
    """Whether `column op limit` could be TRUE, for a limit that is neither null nor NaN and a column that is not NaN."""
    path = column.path
    read_low, read_high = bound_readers(path, column.type)
    low_fits, high_fits = _BOUNDED[op]

    def evaluate(_: Row, body: Body) -> bool:
        if low_fits and (low := read_low(body)) is not None and not low_fits(low, limit):
            return False
        if high_fits and (high := read_high(body)) is not None and not high_fits(high, limit):
            return False
        return _has_value(body, path)

    return evaluate


def _among(node: In, column: Column) -> Callable[[Row, Body], bool]:
    """Whether a column that is not NaN could have one of the values of a list."""
    read_low, read_high = bound_readers(column.path, column.type)
    ranges = _ranges(node)

    def evaluate(_: Row, body: Body) -> bool:
        low, high = read_low(body), read_high(body)
        return any(_below(low, last) and _below(first, high) for first, last in ranges) and _has_value(body, column.path)

    return evaluate


def _ranges(node: In) -> list[tuple[Plain, Plain]]:
    """The values of a list that are not NaN, as ranges; a long list is one range."""
    options = [value for option in node.options if (value := plain(option.value, option.type)) == value]
    if len(options) > MOST_OPTIONS:
        return [(min(options), max(options))]
    return [(value, value) for value in options]


def _has_value(body: Body, path: tuple[str, ...]) -> bool:
    """Whether a column could have a value that is not null."""
    nulls, records = count(leaf(body.get("nullCount"), path)), count(body.get("numRecords"))
    return nulls is None or records is None or nulls < records


# What the smallest and the largest value must be to a limit, for some value between them to be `op` the limit.
_BOUNDED: Final[Mapping[str, tuple[Callable[[Any, Any], bool] | None, Callable[[Any, Any], bool] | None]]] = {
    "<": (operator.lt, None),
    "<=": (operator.le, None),
    ">": (None, operator.gt),
    ">=": (None, operator.ge),
    "=": (operator.le, operator.ge),
}


def _both(left: int, right: int) -> int:
    not_false = left & (MAY_BE_TRUE | _NULL) and right & (MAY_BE_TRUE | _NULL)
    null = _NULL if not_false and (left | right) & _NULL else 0
    return (left & right & MAY_BE_TRUE) | ((left | right) & _FALSE) | null


_NEGATED: Final = [
    (answers & _NULL) | (_FALSE if answers & MAY_BE_TRUE else 0) | (MAY_BE_TRUE if answers & _FALSE else 0) for answers in range(_ANY + 1)
]
_BOTH: Final = [[_both(left, right) for right in range(_ANY + 1)] for left in range(_ANY + 1)]
_EITHER: Final = [[_NEGATED[_both(_NEGATED[left], _NEGATED[right])] for right in range(_ANY + 1)] for left in range(_ANY + 1)]


def _joined(table: Sequence[Sequence[int]], terms: Sequence[_Answers]) -> _Answers:
    first, *others = terms

    def evaluate(row: Row, body: Body) -> int:
        result = first(row, body)
        for term in others:
            result = table[result][term(row, body)]
        return result

    return evaluate


def _compared(op: str, left: _Spans, right: _Spans) -> _Answers:
    null_safe = op == "<=>"
    same = "=" if null_safe else op
    holds, fails = _COULD[same], _COULD[OPPOSITE[same]]

    def evaluate(row: Row, body: Body) -> int:
        one, other = left(row, body), right(row, body)
        both = one[3] and other[3]
        result = (MAY_BE_TRUE if both and holds(one, other) else 0) | (_FALSE if both and fails(one, other) else 0)
        if not null_safe:
            return result | (_NULL if one[2] or other[2] else 0)
        one_null = (one[2] and other[3]) or (one[3] and other[2])
        return result | (MAY_BE_TRUE if one[2] and other[2] else 0) | (_FALSE if one_null else 0)

    return evaluate


def _contained(node: In, span: _Spans) -> _Answers:
    known = frozenset(plain(option.value, option.type) for option in node.options)
    with_nan, ranges = any(value != value for value in known), _ranges(node)

    def evaluate(row: Row, body: Body) -> int:
        low, high, null, value, nan = span(row, body)
        result = _NULL if null else 0
        if value:
            if (with_nan and nan) or any(_below(low, last) and _below(first, high) for first, last in ranges):
                result |= MAY_BE_TRUE
            if nan or low is None or low != high or low not in known:
                result |= _NULL if node.with_null else _FALSE
        return result

    return evaluate


def _matched(node: Like, span: _Spans) -> _Answers:
    prefix = node.prefix
    after, is_prefix = after_all(prefix), node.parts == (prefix, True)

    def evaluate(row: Row, body: Body) -> int:
        low, high, null, value, _ = span(row, body)
        result = _NULL if null else 0
        if value:
            if _below(prefix, high) and (after is None or low is None or low < after):
                result |= MAY_BE_TRUE
            if not (is_prefix and low is not None and high is not None and low.startswith(prefix) and high.startswith(prefix)):
                result |= _FALSE
        return result

    return evaluate


def _below(low: Plain, high: Plain) -> bool:
    """Whether something from `low` up could be at most `high`."""
    return low is None or high is None or bool(low <= high)


def _could_be_less(left: _Span, right: _Span) -> bool:
    return right[4] or left[0] is None or right[1] is None or bool(left[0] < right[1])


def _could_be_at_most(left: _Span, right: _Span) -> bool:
    return right[4] or _below(left[0], right[1])


def _could_be_equal(left: _Span, right: _Span) -> bool:
    return (left[4] and right[4]) or (_below(left[0], right[1]) and _below(right[0], left[1]))


def _could_differ(left: _Span, right: _Span) -> bool:
    low = left[0]
    return left[4] or right[4] or low is None or not low == left[1] == right[0] == right[1]


_COULD: Final[Mapping[str, Callable[[_Span, _Span], bool]]] = {
    "=": _could_be_equal,
    "<>": _could_differ,
    "<": _could_be_less,
    "<=": _could_be_at_most,
    ">": lambda left, right: _could_be_less(right, left),
    ">=": lambda left, right: _could_be_at_most(right, left),
}
