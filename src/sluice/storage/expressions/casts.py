"""Casts of terms like Spark's in ANSI mode.

Arrow's own cast is used where it agrees; otherwise values are converted one by one with `values.convert`.
"""

from __future__ import annotations

from decimal import Decimal
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from ..errors import PredicateError
from . import elementwise, types, values
from .elementwise import Term

__all__ = ["cast", "check", "decimal_result", "may_fail", "try_cast"]


def check(source: pa.DataType, target: pa.DataType) -> None:
    """Raise PredicateError unless `cast` supports it."""
    if pa.types.is_null(source):
        return
    moments = (pa.date32(), types.TIMESTAMP, types.TIMESTAMP_NTZ)
    if pa.types.is_boolean(target) and pa.types.is_floating(source):
        known = False  # write <> 0, which defines the result for NaN
    elif types.is_numeric(source) or pa.types.is_boolean(source):
        known = types.is_numeric(target) or pa.types.is_boolean(target) or (pa.types.is_string(target) and not pa.types.is_floating(source))
    elif source in moments:
        known = target in moments or pa.types.is_string(target)
    else:
        known = (pa.types.is_string(source) and types.is_atomic(target)) or (pa.types.is_binary(source) and pa.types.is_binary(target))
    if not known:
        raise PredicateError(
            f"sluice does not evaluate a CAST from {types.name(source)} to {types.name(target)}: use a column of that type"
        )


def may_fail(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether some value of `source` cannot be cast to `target`."""
    if source == target or pa.types.is_null(source) or pa.types.is_string(target) or pa.types.is_binary(target):
        return False
    if pa.types.is_string(source):
        return True
    if pa.types.is_integer(target):
        return not (pa.types.is_boolean(source) or (pa.types.is_integer(source) and source.bit_width <= target.bit_width))
    if types.is_decimal(target):
        if pa.types.is_floating(source):
            return True
        digits, scale = (1, 0) if pa.types.is_boolean(source) else types.decimal_parts(source)
        return bool(digits - scale > target.precision - target.scale or scale > target.scale)
    return False


def cast(term: Term, source: pa.DataType, target: pa.DataType) -> Term:
    """The value of `term`, of type `source`, as `target`; raises where Spark's cast raises."""
    check(source, target)
    if pa.types.is_string(source) or (types.is_decimal(source) and pa.types.is_string(target)):
        return _by_value(term, source, target)
    if pa.types.is_timestamp(source) and pa.types.is_string(target):
        return _moment_text(term)
    if pa.types.is_boolean(target):
        return pc.not_equal(term, pa.scalar(Decimal(0) if types.is_decimal(source) else 0, source))
    if types.is_decimal(target):
        return _by_value(term, source, target) if pa.types.is_floating(source) else _to_decimal(term, source, target)
    if pa.types.is_floating(target):
        if types.is_decimal(source):
            return _by_value(term, source, target)
        return (
            term.cast(pa.float64(), safe=False).cast(target, safe=False) if pa.types.is_integer(source) else term.cast(target, safe=False)
        )
    if pa.types.is_integer(target):
        if pa.types.is_integer(source) or pa.types.is_boolean(source):
            return term.cast(target)
        return pc.trunc(_with_room(term, source) if types.is_decimal(source) else term).cast(target)
    if pa.types.is_date(target):
        return pc.floor_temporal(term, unit="day").cast(target)
    return term.cast(target)


def try_cast(term: Term, source: pa.DataType, target: pa.DataType) -> Term:
    """Like `cast`, but null where Spark's cast raises."""
    if not may_fail(source, target):
        return cast(term, source, target)
    check(source, target)
    return elementwise.per_value("try_cast", partial(values.converted, kind=target), term, source, target)


def _by_value(term: Term, source: pa.DataType, target: pa.DataType) -> Term:
    return elementwise.per_value("cast", partial(values.convert, target=target), term, source, target)


def _moment_text(term: Term) -> Term:
    """The time in UTC, without trailing zeros of its fraction."""
    text = term.cast(types.TIMESTAMP_NTZ).cast(pa.string())
    for pattern, replacement in ((r"(\.\d*?)0+$", r"\1"), (r"\.$", "")):
        text = pc.replace_substring_regex(text, pattern=pattern, replacement=replacement)
    return text


def _to_decimal(term: Term, source: pa.DataType, target: pa.DataType) -> Term:
    if pa.types.is_boolean(source):
        term, source = term.cast(pa.int8()), pa.int8()
    if types.is_decimal(source):
        if source.scale > target.scale:
            term = pc.round(_with_room(term, source), ndigits=target.scale, round_mode="half_towards_infinity")
        return term.cast(target)
    # Arrow requires room for every integer of the type before it checks the values.
    digits, _ = types.decimal_parts(source)
    return term.cast(types.decimal(digits + target.scale, target.scale)).cast(target)


def _with_room(term: Term, source: pa.DataType) -> Term:
    """Room for one more digit: rounding up may need it, and Arrow requires it for any rounding."""
    return term.cast(types.decimal(source.precision + 1, source.scale))


def decimal_result(op: str, left: tuple[Term, pa.DataType], right: tuple[Term, pa.DataType], kind: pa.DataType) -> Term:
    """`left op right` for decimals, at Spark's precision and scale of the result; division is rounded half up."""
    (one, one_type), (other, other_type) = left, right
    if op == "*":
        return pc.multiply(one, other).cast(kind)
    if op in ("+", "-"):
        wide = pa.decimal256(kind.precision, kind.scale)
        return (pc.add if op == "+" else pc.subtract)(one.cast(wide), other.cast(wide)).cast(kind)
    # Arrow truncates the quotient: it is computed with one extra digit, so that rounding half up is exact.
    scale = max(one_type.scale, kind.scale + 1 - other_type.precision + other_type.scale - 1)
    dividend = one.cast(pa.decimal256(one_type.precision - one_type.scale + scale, scale))
    quotient = pc.divide_checked(dividend, other.cast(pa.decimal256(other_type.precision, other_type.scale)))
    return pc.round(quotient, ndigits=kind.scale, round_mode="half_towards_infinity").cast(kind)
