"""Evaluates expressions with Arrow: over the rows of a table, or as the filter of a dataset.

Semantics are Spark's in ANSI mode: three-valued logic; NaN equals NaN and is greater than every other number; -0.0 equals 0.0; strings and
binaries compare by their bytes; overflow, division by zero and an impossible cast are errors. An error belongs to the rows that reach it:
in `b <> 0 AND a / b > 1` the division happens only where the left side is not false. Such guarded operands become null.

Arrow's functions compute values from arrays and scalars, and expressions from expressions. So both evaluations are the same walk through
the tree; they differ in what a column and a constant are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from ..dataclass import dataclass
from ..errors import PredicateError
from . import casts, types
from .functions import FUNCTIONS, Term, and_, is_nan, or_
from .nodes import FLIPPED, And, Arithmetic, Call, Case, Cast, Column, Compare, In, IsNull, Like, Literal, Node, Not, Or, Value, walk

_COMPARISONS: Final = {"=": pc.equal, "<>": pc.not_equal, "<": pc.less, "<=": pc.less_equal, ">": pc.greater, ">=": pc.greater_equal}
_CHECKED: Final = {
    "+": pc.add_checked,
    "-": pc.subtract_checked,
    "*": pc.multiply_checked,
    "/": pc.divide_checked,
    "div": pc.divide_checked,
}
# Longer lists are looked up in a hash table, with additional bounds for Parquet's pruning.
_MOST_EQUALITIES: Final = 16
# The intermediate values of this many rows need little memory.
_PIECE_ROWS: Final = 131_072
_TRUE: Final = pa.scalar(True)
_FALSE: Final = pa.scalar(False)


def run(node: Node, table: pa.Table) -> pa.Array:
    """The value of `node` for every row of `table`, which has the tree's names and types. Raises PredicateError if a row has none."""
    if table.num_rows > _PIECE_ROWS:
        return pa.concat_arrays([run(node, table.slice(first, _PIECE_ROWS)) for first in range(0, table.num_rows, _PIECE_ROWS)])

    def column(part: Column) -> pa.Array:
        name, *inner = part.path
        chunks = table.column(name)
        values = chunks.chunk(0) if chunks.num_chunks == 1 else chunks.combine_chunks()
        return pc.struct_field(values, inner) if inner else values

    return run_over(node, column, table.num_rows)


def run_over(node: Node, column: Callable[[Column], pa.Array], rows: int, *, fails: bool | None = None) -> pa.Array:
    """`node` for rows whose columns are looked up; `fails`: the result of `may_fail`, if known. PredicateError if a row has no value."""
    try:
        values = _Evaluation(column, may_fail(node) if fails is None else fails).value(node, None)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        said = f"the expression cannot be evaluated for every row: {error}; exclude such rows first"
        raise PredicateError(said, wrong=isinstance(error, pa.ArrowInvalid)) from error
    return pa.repeat(values, rows) if isinstance(values, pa.Scalar) else values


def constant(node: Node) -> Value:
    """The value of a node without columns."""
    value: Value = run(node, pa.table({"": pa.nulls(1)}))[0].as_py()
    return value


def compile_expression(node: Node) -> pc.Expression:
    """The Arrow expression of `node`, for the filter of a dataset."""
    return _Evaluation(lambda column: pc.field(*column.path), may_fail(node), compiles=True).value(node, None)


@dataclass(frozen=True, slots=True)
class _Evaluation:
    """One walk through a tree. `fails`: some part may raise for some row. With `compiles` the value is an expression. Every part is
    evaluated under a guard: where the guard is false, the part does not raise, and its value does not matter.
    """

    column: Callable[[Column], Term]
    fails: bool
    compiles: bool = False

    def value(self, node: Node, guard: Term | None) -> Term:
        match node:
            case Column():
                return self.column(node)
            case Literal():
                return self._constant(node.value, node.type)
            case And() | Or():
                return self._connected(node, guard)
            case Not():
                return pc.invert(self.value(node.term, guard))
            case IsNull():
                return pc.is_null(self.value(node.term, guard))
            case Compare():
                return self._compared(node.op, self._at(node.left, node.at, guard), self._at(node.right, node.at, guard), node)
            case In():
                return self._contained(node, self._at(node.term, node.at, guard))
            case Like():
                return _matched(self.value(node.term, guard), node.parts)
            case Cast():
                return self._at(node.term, node.type, guard)
            case Arithmetic():
                return self._computed(node, guard)
            case Case():
                return self._chosen(node, guard)
            case Call(name="coalesce"):
                return self._first(node, guard)
            case Call(name="try_cast", args=(term,)):
                return casts.try_cast(self.value(term, guard), term.type, node.type)
            case Call():
                function = FUNCTIONS[node.name]
                terms = [self.value(arg, guard) for arg in node.args]
                if function.fails:
                    terms[0] = _shielded(terms[0], node.args[0].type, guard)
                return function.run(terms, node.args)
        raise TypeError(f"not a node: {node!r}")

    def _constant(self, value: Value, kind: pa.DataType) -> Term:
        scalar = pa.scalar(value, kind)
        return pc.scalar(scalar) if self.compiles else scalar

    def _at(self, node: Node, kind: pa.DataType, guard: Term | None) -> Term:
        if (isinstance(node, Literal) and node.value is None) or (pa.types.is_null(node.type) and node.type != kind):
            return self._constant(None, kind)
        if isinstance(node, Literal) and pa.types.is_integer(kind) and not casts.may_fail(node.type, kind):
            return self._constant(node.value, kind)
        term = self.value(node, guard)
        if node.type == kind:
            return term
        return casts.cast(_shielded(term, node.type, guard) if casts.may_fail(node.type, kind) else term, node.type, kind)

    def _connected(self, node: And | Or, guard: Term | None) -> Term:
        """A term is reached where earlier terms leave the result open; if that is nowhere, it is not evaluated."""
        conjunction = isinstance(node, And)
        join = pc.and_kleene if conjunction else pc.or_kleene
        joined: list[Term] = []
        found: Term = None
        for term in node.terms:
            reached = guard
            if self.fails and joined and may_fail(term):
                joined = [_balanced(joined, join)]
                open_still = pc.coalesce(joined[0] if conjunction else pc.invert(joined[0]), _TRUE)
                reached = _both(guard, open_still)
            found = self.value(term, reached)
            if isinstance(found, pa.BooleanArray):
                decided, undecided = (found.false_count, found.true_count) if conjunction else (found.true_count, found.false_count)
                if decided == len(found):
                    return found
                if undecided == len(found):
                    continue
            joined.append(found)
        return _balanced(joined, join) if joined else found

    def _compared(self, op: str, left: Term, right: Term, node: Compare) -> Term:
        if pa.types.is_null(node.at):  # two void columns, which Arrow cannot compare
            return pc.is_null(left) if op == "<=>" else self._constant(None, pa.bool_())
        if op == "<=>":
            return or_(and_(pc.is_null(left), pc.is_null(right)), pc.coalesce(self._compared("=", left, right, node), _FALSE))
        plain = _COMPARISONS[op](left, right)
        if not pa.types.is_floating(node.at):
            return plain
        if op == "<>":
            return pc.invert(self._compared("=", left, right, node))
        if op in (">", ">="):
            op, left, right, first, second = FLIPPED[op], right, left, node.right, node.left
        else:
            first, second = node.left, node.right
        # Spark's result for = < <= from Arrow's, which follows IEEE 754: with a NaN all of them are false. The places of NaN are looked up
        # even where Arrow agrees, because that keeps Arrow from taking the result from Parquet's statistics. Unlike their Kleene twins,
        # `or` and `and` return null where an operand is null.
        left_nan, right_nan = (None if is_number(side) else is_nan(term, node.at) for term, side in ((left, first), (right, second)))
        if left_nan is None and right_nan is None:
            return plain
        if right_nan is None or (left_nan is None and op == "="):
            return pc.and_kleene(plain, pc.invert(right_nan if left_nan is None else left_nan))
        if left_nan is None or op == "<=":
            return or_(plain, right_nan)
        return or_(plain, and_(left_nan, right_nan) if op == "=" else and_(right_nan, pc.invert(left_nan)))

    def _contained(self, node: In, term: Term) -> Term:
        if not node.options:
            found = self._constant(None, pa.bool_())
        elif len(node.options) <= _MOST_EQUALITIES or pa.types.is_floating(node.at):
            options = ((self._constant(option.value, node.at), Compare("=", node.term, option, node.at)) for option in node.options)
            found = _balanced([self._compared("=", term, option, same) for option, same in options], pc.or_kleene)
        else:
            values = pa.array([option.value for option in node.options], node.at)
            bounds = pc.min_max(values)
            within = pc.and_kleene(pc.greater_equal(term, bounds["min"]), pc.less_equal(term, bounds["max"]))
            listed = pc.or_kleene(pc.is_in(term, value_set=values), pc.not_equal(term, term))  # the latter is null for null, else false
            found = pc.and_kleene(within, listed)
        return pc.or_kleene(found, self._constant(None, pa.bool_())) if node.with_null and node.options else found

    def _computed(self, node: Arithmetic, guard: Term | None) -> Term:
        if pa.types.is_decimal(node.type):
            operands: list[tuple[Term, pa.DataType]] = []
            for side, other in ((node.left, node.right), (node.right, node.left)):
                constant = side.value if isinstance(side, Literal) else None
                kind = types.decimal(*types.decimal_parts(types.operand(side.type, constant, other.type)))
                operands.append((_shielded(self._at(side, kind, guard), kind, guard), kind))
            return casts.decimal_result(node.op, operands[0], operands[1], node.type)
        at = types.arithmetic("+", node.left.type, node.right.type) if node.op == "div" else node.type
        left, right = (_shielded(self._at(side, at, guard), at, guard) for side in (node.left, node.right))
        if node.op != "%":
            result = _CHECKED[node.op](left, right)
            return result.cast(node.type) if node.op == "div" and at != node.type else result
        # Not every version of Arrow has a remainder. x % -1 is 0, even where x / -1 would overflow.
        divisor = pc.if_else(pc.equal(right, pa.scalar(-1, at)), pa.scalar(1, at), right)
        return pc.subtract(left, pc.multiply(pc.divide_checked(left, divisor), divisor))

    def _chosen(self, node: Case, guard: Term | None) -> Term:
        conditions: list[Term] = []
        chosen: list[Term] = []
        fails = may_fail(node)
        for condition, value in node.branches:
            conditions.append(pc.coalesce(self.value(condition, guard), _FALSE))
            chosen.append(self._at(value, node.type, _both(guard, conditions[-1]) if may_fail(Cast(value, node.type)) else guard))
            if fails:
                guard = _both(guard, pc.invert(conditions[-1]))
        result = self._at(node.otherwise, node.type, guard)
        for condition_, value_ in zip(reversed(conditions), reversed(chosen), strict=True):
            result = pc.if_else(condition_, value_, result)
        return result

    def _first(self, node: Call, guard: Term | None) -> Term:
        """COALESCE: an argument is reached where the earlier ones are null."""
        terms: list[Term] = []
        for arg in node.args:
            reached = _both(guard, pc.is_null(pc.coalesce(*terms))) if terms and may_fail(Cast(arg, node.type)) else guard
            terms.append(self._at(arg, node.type, reached))
        return pc.coalesce(*terms)


def may_fail(node: Node) -> bool:
    """Whether `node` could raise for some row."""
    for part in walk(node):
        match part:
            case Arithmetic():
                return True
            case Call() if part.name in FUNCTIONS and FUNCTIONS[part.name].fails:
                return True
            case Cast() | In():
                meets = [(part.term, part.type if isinstance(part, Cast) else part.at)]
            case Compare():
                meets = [(part.left, part.at), (part.right, part.at)]
            case Case():
                meets = [(value, part.type) for _, value in part.branches] + [(part.otherwise, part.type)]
            case Call(name="coalesce"):
                meets = [(arg, part.type) for arg in part.args]
            case _:
                continue
        for term, kind in meets:
            if casts.may_fail(term.type, kind):
                return True
    return False


def _shielded(term: Term, kind: pa.DataType, guard: Term | None) -> Term:
    return term if guard is None else pc.if_else(guard, term, pa.scalar(None, kind))


def _both(guard: Term | None, more: Term) -> Term:
    """The guard of a part that is reached only where `more` is true (not where it is null)."""
    known = pc.coalesce(more, _FALSE)
    return known if guard is None else and_(guard, known)


def is_number(node: Node) -> bool:
    """Whether `node` is certainly not NaN."""
    return isinstance(node, Literal) and node.value is not None and node.value == node.value


def _balanced(terms: Sequence[Term], join: Callable[[Term, Term], Term]) -> Term:
    """The terms joined in a tree of logarithmic depth, since Arrow recurses into it."""
    while len(terms) > 1:
        terms = [join(*pair) if len(pair) > 1 else pair[0] for pair in (terms[i : i + 2] for i in range(0, len(terms), 2))]
    return terms[0]


def _matched(term: Term, parts: tuple[str | bool, ...]) -> Term:
    match parts:
        case (str() as text, True):
            return pc.starts_with(term, pattern=text)
        case (True, str() as text):
            return pc.ends_with(term, pattern=text)
        case (True, str() as text, True):
            return pc.match_substring(term, pattern=text)
    pattern = "".join(re.escape(part) if isinstance(part, str) else ".*" if part else "." for part in parts)
    return pc.match_substring_regex(term, pattern=rf"(?s)\A{pattern}\z")
