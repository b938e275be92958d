"""Evaluates expressions: the tree becomes one Arrow expression, for a table in memory and for a dataset's filter alike.

Semantics are Spark's in ANSI mode: three-valued logic; NaN equals NaN and is greater than every other number; -0.0 equals 0.0; strings and
binaries compare by their bytes; overflow, division by zero and a cast that cannot be done are errors. An error belongs to the rows that
reach it: in `b <> 0 AND a / b > 1` the division is done only where the left side is not false. Such guarded operands are set to null.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Final

import pyarrow as pa
import pyarrow.acero as acero
import pyarrow.compute as pc

from ..errors import PredicateError
from . import casts, direct, elementwise, types
from .functions import FUNCTIONS
from .nodes import (
    FLIPPED,
    And,
    Arithmetic,
    Call,
    Case,
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
    Value,
    columns,
    walk,
)

__all__ = ["check_cast", "compile_expression", "constant", "run", "run_plan"]

check_cast = casts.check

_COMPARISONS: Final = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
_CHECKED: Final = {
    "+": pc.add_checked,
    "-": pc.subtract_checked,
    "*": pc.multiply_checked,
    "/": pc.divide_checked,
    "div": pc.divide_checked,
}
# Longer lists are looked up in a hash table, with bounds beside it for Parquet's pruning.
_MOST_EQUALITIES: Final = 16
# Arrow recurses into a connective once for each term, and has a C stack only.
_MOST_TERMS: Final = 256


def run(node: Node, table: pa.Table) -> pa.Array:
    """The value of `node` for every row of `table`, whose columns have the names and types the tree was built with.

    PredicateError when a row cannot be evaluated.
    """
    if isinstance(node, (And, Or)) and len(node.terms) > _MOST_TERMS and not any(map(_may_fail, node.terms)):
        parts = (type(node)(node.terms[first : first + _MOST_TERMS]) for first in range(0, len(node.terms), _MOST_TERMS))
        return reduce(pc.and_kleene if isinstance(node, And) else pc.or_kleene, (run(part, table) for part in parts))
    if (values := direct.value_of(node, table)) is not None:
        return values
    return run_plan(node, table)


def run_plan(node: Node, table: pa.Table) -> pa.Array:
    """The same by an Arrow plan, which knows every kind of node."""
    names = sorted({path[0] for path in columns(node)})
    source = table.select(names) if names else pa.table({"": pa.nulls(1)})
    plan = acero.Declaration.from_sequence(
        [
            acero.Declaration("table_source", acero.TableSourceNodeOptions(source)),
            acero.Declaration("project", acero.ProjectNodeOptions([compile_expression(node)], ["value"])),
        ]
    )
    try:
        values = plan.to_table(use_threads=False).column(0)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise PredicateError(f"the expression cannot be evaluated for every row: {error}; exclude such rows first") from error
    array = values.combine_chunks() if values.num_chunks != 1 else values.chunk(0)
    return array if names else pa.repeat(array[0], table.num_rows)


def constant(node: Node) -> Value:
    """The value of a node without columns."""
    value: Value = run(node, pa.table({"": pa.nulls(1)}))[0].as_py()
    return value


def compile_expression(node: Node, guard: pc.Expression | None = None) -> pc.Expression:
    """The Arrow expression of `node`; where `guard` is false it never raises, and its value is of no importance."""
    match node:
        case Column():
            return pc.field(*node.path)
        case Literal():
            return _scalar(node.value, node.type)
        case And() | Or():
            return _connected(node, guard)
        case Not():
            return pc.invert(compile_expression(node.term, guard))
        case IsNull():
            return pc.is_null(compile_expression(node.term, guard))
        case Compare():
            return _compared(node.op, _at(node.left, node.at, guard), _at(node.right, node.at, guard), node)
        case In():
            return _contained(node, _at(node.term, node.at, guard))
        case Like():
            return _matched(compile_expression(node.term, guard), node.parts)
        case Cast():
            return _at(node.term, node.type, guard)
        case Arithmetic():
            return _computed(node, guard)
        case Case():
            return _chosen(node, guard)
        case Call(name="coalesce"):
            return _first(node, guard)
        case Call(name="try_cast", args=(term,)):
            return casts.try_cast(compile_expression(term, guard), term.type, node.type)
        case Call():
            return _called(node, guard)
    raise TypeError(f"not a node: {node!r}")


def _or(left: pc.Expression, right: pc.Expression) -> pc.Expression:
    """Null where either side is null; pyarrow's own wrapper calls a function that does not exist."""
    return pc.Expression._call("or", [left, right])


def _and(left: pc.Expression, right: pc.Expression) -> pc.Expression:
    return pc.Expression._call("and", [left, right])


def _scalar(value: Value, kind: pa.DataType) -> pc.Expression:
    return pc.scalar(pa.scalar(value, kind))


def _may_fail(node: Node) -> bool:
    """Whether some row could make `node` raise."""
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
        if any(casts.may_fail(term.type, kind) for term, kind in meets):
            return True
    return False


def _shielded(term: pc.Expression, kind: pa.DataType, guard: pc.Expression | None) -> pc.Expression:
    return term if guard is None else pc.if_else(guard, term, _scalar(None, kind))


def _both(guard: pc.Expression | None, more: pc.Expression) -> pc.Expression:
    """The guard of what is reached only where `more` is true; where `more` is null it is not."""
    known = pc.coalesce(more, pc.scalar(False))
    return known if guard is None else _and(guard, known)


def _at(node: Node, kind: pa.DataType, guard: pc.Expression | None) -> pc.Expression:
    """The value of `node`, cast to `kind`."""
    if (isinstance(node, Literal) and node.value is None) or (pa.types.is_null(node.type) and node.type != kind):
        return _scalar(None, kind)
    term = compile_expression(node, guard)
    if node.type == kind:
        return term
    return casts.cast(_shielded(term, node.type, guard) if casts.may_fail(node.type, kind) else term, node.type, kind)


def _connected(node: And | Or, guard: pc.Expression | None) -> pc.Expression:
    """A term is reached where those before it leave the answer open."""
    join = pc.and_kleene if isinstance(node, And) else pc.or_kleene
    joined: list[pc.Expression] = []
    for term in node.terms:
        reached = guard
        if joined and _may_fail(term):
            joined = [_balanced(joined, join)]
            open_still = pc.coalesce(joined[0] if isinstance(node, And) else pc.invert(joined[0]), pc.scalar(True))
            reached = _both(guard, open_still)
        joined.append(compile_expression(term, reached))
    return _balanced(joined, join)


def _compared(op: str, left: pc.Expression, right: pc.Expression, node: Compare) -> pc.Expression:
    if pa.types.is_null(node.at):  # two void columns: Arrow compares no such values
        return pc.is_null(left) if op == "<=>" else _scalar(None, pa.bool_())
    if op == "<=>":
        same = pc.coalesce(_compared("=", left, right, node), pc.scalar(False))
        return _or(_and(pc.is_null(left), pc.is_null(right)), same)
    plain = _COMPARISONS[op](left, right)
    if not pa.types.is_floating(node.at):
        return plain
    if op == "<>":
        return pc.invert(_compared("=", left, right, node))
    if op in (">", ">="):
        op, left, right, first, second = FLIPPED[op], right, left, node.right, node.left
    else:
        first, second = node.left, node.right
    return _with_nan(
        op, plain, *(None if _is_number(side) else elementwise.is_nan(term, node.at) for term, side in ((left, first), (right, second)))
    )


def _is_number(node: Node) -> bool:
    """Whether `node` is surely not NaN."""
    return isinstance(node, Literal) and node.value is not None and node.value == node.value


def _with_nan(op: str, plain: pc.Expression, left: pc.Expression | None, right: pc.Expression | None) -> pc.Expression:
    """Spark's answer for = < <= from Arrow's, which follows IEEE 754: beside a NaN all of them are false.

    `left` and `right` say where a NaN is, None where never. They are named also where Arrow agrees, because that keeps Arrow from taking
    the answer from Parquet's statistics. `_or` and `_and`, unlike their Kleene twins, keep the answer null where an operand is null.
    """
    if left is None and right is None:
        return plain
    if left is None or right is None:
        nan = right if left is None else left
        return pc.and_kleene(plain, pc.invert(nan)) if op == "=" or right is None else _or(plain, nan)
    true = _and(left, right) if op == "=" else right if op == "<=" else _and(right, pc.invert(left))
    return _or(plain, true)


def _contained(node: In, term: pc.Expression) -> pc.Expression:
    if not node.options:
        found = _scalar(None, pa.bool_())
    elif len(node.options) <= _MOST_EQUALITIES or pa.types.is_floating(node.at):
        equalities = [
            _compared("=", term, _scalar(option.value, node.at), Compare("=", node.term, option, node.at)) for option in node.options
        ]
        found = _balanced(equalities, pc.or_kleene)
    else:
        options = pa.array([option.value for option in node.options], node.at)
        bounds = pc.min_max(options)
        within = pc.and_kleene(pc.greater_equal(term, bounds["min"]), pc.less_equal(term, bounds["max"]))
        listed = pc.or_kleene(pc.is_in(term, value_set=options), pc.not_equal(term, term))  # the latter is null for null, else false
        found = pc.and_kleene(within, listed)
    return pc.or_kleene(found, _scalar(None, pa.bool_())) if node.with_null and node.options else found


def _balanced(terms: Sequence[pc.Expression], join: Callable[[pc.Expression, pc.Expression], pc.Expression]) -> pc.Expression:
    """The terms joined in a tree of logarithmic depth: Arrow recurses into it."""
    while len(terms) > 1:
        terms = [join(*pair) if len(pair) > 1 else pair[0] for pair in (terms[i : i + 2] for i in range(0, len(terms), 2))]
    return terms[0]


def _matched(term: pc.Expression, parts: tuple[str | bool, ...]) -> pc.Expression:
    match parts:
        case (str() as text, True):
            return pc.starts_with(term, pattern=text)
        case (True, str() as text):
            return pc.ends_with(term, pattern=text)
        case (True, str() as text, True):
            return pc.match_substring(term, pattern=text)
    pattern = "".join(re.escape(part) if isinstance(part, str) else ".*" if part else "." for part in parts)
    return pc.match_substring_regex(term, pattern=rf"(?s)\A{pattern}\z")


def _computed(node: Arithmetic, guard: pc.Expression | None) -> pc.Expression:
    if types.is_decimal(node.type):
        left, right = (_decimal_operand(side, other, guard) for side, other in ((node.left, node.right), (node.right, node.left)))
        return casts.decimal_result(node.op, left, right, node.type)
    at = types.arithmetic("+", node.left.type, node.right.type) if node.op == "div" else node.type
    left, right = (_shielded(_at(side, at, guard), at, guard) for side in (node.left, node.right))
    if node.op != "%":
        result = _CHECKED[node.op](left, right)
        return result.cast(node.type) if node.op == "div" and at != node.type else result
    # Arrow has no remainder that every version knows. x % -1 is 0, also where x / -1 would overflow.
    minus_one = pc.equal(right, _scalar(-1, at))
    divisor = pc.if_else(minus_one, _scalar(1, at), right)
    return pc.subtract(left, pc.multiply(pc.divide_checked(left, divisor), divisor))


def _decimal_operand(side: Node, other: Node, guard: pc.Expression | None) -> tuple[pc.Expression, pa.DataType]:
    kind = types.decimal(*types.decimal_parts(types.operand(side.type, side.value if isinstance(side, Literal) else None, other.type)))
    return _shielded(_at(side, kind, guard), kind, guard), kind


def _chosen(node: Case, guard: pc.Expression | None) -> pc.Expression:
    conditions: list[pc.Expression] = []
    chosen: list[pc.Expression] = []
    for condition, value in node.branches:
        conditions.append(pc.coalesce(compile_expression(condition, guard), pc.scalar(False)))
        chosen.append(_at(value, node.type, _both(guard, conditions[-1]) if _needs_guard(value, node.type) else guard))
        if _may_fail(node):
            guard = _both(guard, pc.invert(conditions[-1]))
    result = _at(node.otherwise, node.type, guard)
    for condition_, value_ in zip(reversed(conditions), reversed(chosen), strict=True):
        result = pc.if_else(condition_, value_, result)
    return result


def _needs_guard(value: Node, kind: pa.DataType) -> bool:
    return _may_fail(value) or casts.may_fail(value.type, kind)


def _called(node: Call, guard: pc.Expression | None) -> pc.Expression:
    function = FUNCTIONS[node.name]
    terms = [compile_expression(arg, guard) for arg in node.args]
    if function.fails:
        terms[0] = _shielded(terms[0], node.args[0].type, guard)
    return function.run(terms, node.args)


def _first(node: Call, guard: pc.Expression | None) -> pc.Expression:
    """COALESCE: an argument is reached where those before it are null."""
    terms: list[pc.Expression] = []
    for arg in node.args:
        reached = _both(guard, pc.is_null(pc.coalesce(*terms))) if terms and _needs_guard(arg, node.type) else guard
        terms.append(_at(arg, node.type, reached))
    return pc.coalesce(*terms)
