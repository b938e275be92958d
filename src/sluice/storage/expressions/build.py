"""Makers of typed nodes: each one checks the types of its operands, coerces literals and folds constants.

A literal in a comparison takes the other side's type if its value is exactly one of that type: `small = 5L` compares
SMALLINTs, so that statistics and Parquet's own pruning apply. Otherwise (`small < 70000`, `whole = 1.5`) both sides are
converted to a type that holds both, so that nothing wraps around. Refusals are PredicateErrors.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import date, datetime, timezone
from decimal import Decimal

import pyarrow as pa

from ..errors import PredicateError
from . import evaluate, types, values
from .nodes import (
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
)

__all__ = [
    "FALSE",
    "NULL",
    "TRUE",
    "and_",
    "arithmetic",
    "as_literal",
    "as_string",
    "case",
    "cast",
    "column",
    "common_of",
    "compare",
    "folded",
    "in_",
    "is_null",
    "like",
    "literal",
    "match",
    "negate",
    "not_",
    "number",
    "or_",
    "require_boolean",
    "try_cast",
]

NULL = Literal(None, pa.null())
TRUE = Literal(True, pa.bool_())
FALSE = Literal(False, pa.bool_())


def column(path: Sequence[str], schema: pa.Schema) -> Column:
    """The column (or nested field) of that name, ignoring case."""
    fields: Iterable[pa.Field] = schema
    found: list[str] = []
    kind: pa.DataType = pa.null()
    for step in path:
        known = list(fields)
        same = [field for field in known if field.name == step] or [field for field in known if field.name.lower() == step.lower()]
        if len(same) != 1:
            asked, where = ".".join(path), f"fields of {'.'.join(found)}" if found else "columns"
            what = f"names several {where} that differ only in case" if same else "is unknown"
            names = tuple(field.name for field in known)
            raise PredicateError(f"the column {asked!r} {what}; the {where} are {', '.join(names) or 'none'}", column=asked, columns=names)
        kind = same[0].type
        found.append(same[0].name)
        fields = kind if pa.types.is_struct(kind) else ()
    return Column(tuple(found), kind)


def number(text: str) -> Literal:
    """A numeric literal, with or without sign, as Spark reads it: INT, BIGINT or DECIMAL by size, DOUBLE with an exponent."""
    if "e" in text.lower():
        return Literal(float(text), pa.float64())
    return literal(Decimal(text) if "." in text else int(text))


def literal(value: Value) -> Literal:
    """A Python value as a literal; an integer beyond BIGINT is a decimal, a naive datetime has no time zone."""
    match value:
        case None:
            return NULL
        case bool():
            return TRUE if value else FALSE
        case int():
            for kind in (pa.int32(), pa.int64()):
                low, high = types.integer_bounds(kind)
                if low <= value <= high:
                    return Literal(value, kind)
            return literal(Decimal(value))
        case Decimal():
            return Literal(value, _decimal_type(value))
        case float():
            return Literal(value, pa.float64())
        case str():
            return Literal(value, pa.string())
        case bytes():
            return Literal(value, pa.binary())
        case datetime():
            return Literal(value.astimezone(timezone.utc), types.TIMESTAMP) if value.tzinfo else Literal(value, types.TIMESTAMP_NTZ)
        case date():
            return Literal(value, pa.date32())
    raise PredicateError(f"{value!r} is no value a predicate can hold: use a number, string, bytes, date or datetime", value=value)


def _decimal_type(value: Decimal) -> pa.DataType:
    _, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int) or max(len(digits) + max(exponent, 0), -exponent) > 38:
        raise PredicateError(f"{value} is no DECIMAL: it has more than 38 digits; write it as a DOUBLE", value=value)
    scale = max(-exponent, 0)
    return pa.decimal128(max(len(digits) + max(exponent, 0), scale, 1), scale)


def require_boolean(node: Node) -> Node:
    """`node` as a condition; NULL is allowed."""
    if pa.types.is_null(node.type):
        return Literal(None, pa.bool_())
    if not pa.types.is_boolean(node.type):
        raise PredicateError(f"a condition must be BOOLEAN, and this is {types.name(node.type)}: compare it with something", wrong=True)
    return node


def compare(op: str, left: Node, right: Node) -> Node:
    """`left op right` for = <> < <= > >= <=>."""
    left, right, at = _meet(op, left, right)
    return folded(Compare(op, left, right, at))


def _meet(op: str, left: Node, right: Node) -> tuple[Node, Node, pa.DataType]:
    """Both operands, with literals converted to the type of the comparison, and that type."""
    if isinstance(right, Literal) and not isinstance(left, Literal):
        right = _fitted(right, left.type)
    elif isinstance(left, Literal) and not isinstance(right, Literal):
        left = _fitted(left, right.type)
    at = types.common(left.type, right.type)
    if at is not None and pa.types.is_null(at):
        at = pa.bool_()
    if at is None or not types.is_atomic(at):
        kinds = f"{types.name(left.type)} {op} {types.name(right.type)}"
        raise PredicateError(f"{kinds} cannot be evaluated: CAST one side to the type of the other, or name a field")
    left, right = as_literal(left, at), as_literal(right, at)
    # A string constant is a number by now, and may fit the column's own type.
    if isinstance(right, Literal) and not isinstance(left, Literal):
        right = _fitted(right, left.type)
    elif isinstance(left, Literal) and not isinstance(right, Literal):
        left = _fitted(left, right.type)
    return left, right, left.type if left.type == right.type else at


def _fitted(term: Literal, kind: pa.DataType) -> Literal:
    """The literal at type `kind`, if comparing at `kind` has the same results as at the common type."""
    value = term.value
    if not isinstance(value, (int, float, Decimal)) or isinstance(value, bool) or not types.is_numeric(kind) or term.type == kind:
        return term
    if isinstance(value, float) and (not math.isfinite(value) or pa.types.is_decimal(kind) or abs(value) >= 2**53):
        return term  # a DECIMAL or a large BIGINT is rounded to a DOUBLE before a comparison with one
    if pa.types.is_float64(kind):
        return Literal(float(value), kind)
    try:
        fitted = values.convert(value, kind)
    except PredicateError:
        return term
    return Literal(fitted, kind) if fitted == value else term


def as_literal(term: Node, kind: pa.DataType) -> Node:
    """A constant converted to type `kind`; anything else, and a decimal beside a decimal, stays unchanged."""
    if isinstance(term, Literal) and term.type != kind and not (types.is_decimal(kind) and types.is_decimal(term.type)):
        return Literal(values.convert(term.value, kind), kind)
    return term


def and_(*terms: Node) -> Node:
    """The conjunction; nested ones are flattened, TRUE terms dropped."""
    flat = [part for term in map(require_boolean, terms) for part in (term.terms if isinstance(term, And) else (term,))]
    kept = tuple(term for term in flat if term != TRUE)
    return And(kept) if len(kept) > 1 else kept[0] if kept else TRUE


def or_(*terms: Node) -> Node:
    """The disjunction; nested ones are flattened, FALSE terms dropped."""
    flat = [part for term in map(require_boolean, terms) for part in (term.terms if isinstance(term, Or) else (term,))]
    kept = tuple(term for term in flat if term != FALSE)
    return Or(kept) if len(kept) > 1 else kept[0] if kept else FALSE


def not_(term: Node) -> Node:
    """NOT term."""
    term = require_boolean(term)
    return term.term if isinstance(term, Not) else folded(Not(term))


def is_null(term: Node) -> Node:
    """`term` IS NULL."""
    return folded(IsNull(term))


def in_(term: Node, options: Sequence[Node]) -> Node:
    """`term IN (options)`; options that are not constants become comparisons."""
    if not options:
        raise PredicateError("IN needs at least one value in its list")
    constants = [option for option in options if isinstance(option, Literal)]
    if isinstance(term, Literal) or len(constants) < len(options):
        return or_(*(compare("=", term, option) for option in options))
    fitted = [_fitted(option, term.type) for option in constants if option.value is not None]
    at: pa.DataType | None = term.type
    for option in fitted:
        at = types.common(at, option.type) if at is not None else None
    if at is None or not types.is_atomic(at):
        kinds = ", ".join(dict.fromkeys(types.name(option.type) for option in fitted))
        raise PredicateError(f"{types.name(term.type)} IN a list of {kinds} cannot be evaluated: write the list as {types.name(term.type)}")
    converted = [Literal(values.convert(option.value, at), at) for option in fitted]
    refitted = [_fitted(option, term.type) for option in converted]
    if all(option.type == term.type for option in refitted):
        converted, at = refitted, term.type
    return In(term, tuple(dict.fromkeys(converted)), len(converted) < len(constants), at)


def like(term: Node, pattern: Node, escape: str = "\\") -> Node:
    """`term LIKE pattern ESCAPE escape`."""
    if not isinstance(pattern, Literal) or not isinstance(pattern.value, (str, type(None))):
        raise PredicateError("the pattern of LIKE must be a string constant")
    term = as_string(term, "LIKE")
    if pattern.value is None:
        return Literal(None, pa.bool_())
    return match(term, _pattern(pattern.value, escape))


def match(term: Node, parts: tuple[str | bool, ...]) -> Node:
    """`term` LIKE a pattern that is already split into parts (see `Like`)."""
    if all(isinstance(part, str) for part in parts):
        return compare("=", term, literal("".join(map(str, parts))))
    return folded(Like(term, parts))


def _pattern(text: str, escape: str) -> tuple[str | bool, ...]:
    parts: list[str | bool] = []
    letters = iter(text)
    for letter in letters:
        if letter == escape:
            letter = next(letters, "")
            if letter not in ("%", "_", escape) or not letter:
                raise PredicateError(
                    f"the LIKE pattern {text!r} has {escape!r} before {letter!r}: it may stand before %, _ and itself only"
                )
        elif letter in "%_":
            parts.append(letter == "%")
            continue
        if parts and isinstance(parts[-1], str):
            parts[-1] += letter
        else:
            parts.append(letter)
    return tuple(parts)


def as_string(term: Node, what: str) -> Node:
    """`term`, which must be a STRING or NULL as required by `what`."""
    if pa.types.is_null(term.type):
        return Literal(None, pa.string())
    if not pa.types.is_string(term.type):
        raise PredicateError(f"{what} needs a STRING, and this is {types.name(term.type)}: CAST it to STRING")
    return term


def cast(term: Node, kind: pa.DataType) -> Node:
    """CAST(term AS kind); PredicateError if sluice does not evaluate that cast exactly."""
    if term.type == kind:
        return term
    if isinstance(term, Literal):
        return Literal(values.convert(term.value, kind), kind)
    evaluate.check_cast(term.type, kind)
    return Cast(term, kind)


def try_cast(term: Node, kind: pa.DataType) -> Node:
    """TRY_CAST(term AS kind): NULL for a value that CAST refuses."""
    if term.type == kind:
        return term
    if isinstance(term, Literal):
        return Literal(values.converted(term.value, kind), kind)
    evaluate.check_cast(term.type, kind)
    return Call("try_cast", (term,), kind)


def negate(term: Node) -> Node:
    """`-term`."""
    if isinstance(term, Literal) and isinstance(term.value, (int, float, Decimal)) and not isinstance(term.value, bool):
        return Literal(-term.value, term.type)
    if types.is_decimal(term.type):
        return folded(Arithmetic("-", Literal(Decimal(0), term.type), term, term.type))
    return arithmetic("-", Literal(0, pa.int8()), term)


def arithmetic(op: str, left: Node, right: Node) -> Node:
    """`left op right` for + - * / % div; integers overflow, and division by zero fails, when a row is evaluated."""
    if pa.types.is_null(left.type) or pa.types.is_null(right.type):
        return NULL
    kinds = [types.operand(one.type, getattr(one, "value", None), other.type) for one, other in ((left, right), (right, left))]
    kind = types.arithmetic(op, *kinds)
    if kind is None:
        what = f"{types.name(left.type)} {op} {types.name(right.type)}"
        raise PredicateError(f"{what} cannot be evaluated exactly: CAST the operands to BIGINT, DOUBLE or narrower decimals")
    return folded(Arithmetic(op, left, right, kind))


def case(branches: Iterable[tuple[Node, Node]], otherwise: Node = NULL) -> Node:
    """CASE WHEN condition THEN value ... ELSE otherwise END."""
    checked = tuple((require_boolean(condition), value) for condition, value in branches)
    kind = common_of([*(value for _, value in checked), otherwise], "CASE")
    return folded(Case(tuple((condition, as_literal(value, kind)) for condition, value in checked), as_literal(otherwise, kind), kind))


def common_of(terms: Iterable[Node], what: str) -> pa.DataType:
    """The common type of all terms."""
    kind: pa.DataType | None = pa.null()
    for term in terms:
        kind = types.common(kind, term.type) if kind is not None else None
    if kind is None or (not types.is_atomic(kind) and not pa.types.is_null(kind)) or (types.is_decimal(kind) and kind.precision > 38):
        raise PredicateError(f"the values of {what} have no common type: CAST them to one")
    return kind


def folded(node: Node) -> Node:
    """The node's value if it depends on no column. Errors are left to the rows that reach it."""
    if columns(node) or isinstance(node, Literal):
        return node
    try:
        return Literal(evaluate.constant(node), node.type)
    except PredicateError:
        return node
