"""Casts of Arrow expressions as Spark does them in ANSI mode.

Arrow's own cast is used where it agrees; where it does not, values go through `values.convert` one by one.
"""

from __future__ import annotations

from decimal import Decimal
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from ..errors import PredicateError
from . import elementwise, types, values

__all__ = ["cast", "check", "decimal_result", "may_fail", "try_cast"]


def check(source: pa.DataType, target: pa.DataType) -> None:
    """Raise PredicateError unless `cast` can do it."""
    if pa.types.is_null(source):
        return
    moments = (pa.date32(), types.TIMESTAMP, types.TIMESTAMP_NTZ)
    if pa.types.is_boolean(target) and pa.types.is_floating(source):
        known = False  # write <> 0, which tells what becomes of NaN
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


def cast(term: pc.Expression, source: pa.DataType, target: pa.DataType) -> pc.Expression:
    """The value of `term`, of type `source`, as `target`; evaluating it raises where Spark's cast raises."""
    check(source, target)
    if pa.types.is_string(source) or (types.is_decimal(source) and pa.types.is_string(target)):
        return _by_value(term, source, target)
    if pa.types.is_timestamp(source) and pa.types.is_string(target):
        return _moment_text(term)
    if pa.types.is_boolean(target):
        return pc.not_equal(term, pc.scalar(pa.scalar(Decimal(0) if types.is_decimal(source) else 0, source)))
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


def try_cast(term: pc.Expression, source: pa.DataType, target: pa.DataType) -> pc.Expression:
    """The same, but null where Spark's cast raises."""
    if not may_fail(source, target):
        return cast(term, source, target)
    check(source, target)
    return elementwise.per_value("try_cast", partial(values.converted, kind=target), term, source, target)


def _by_value(term: pc.Expression, source: pa.DataType, target: pa.DataType) -> pc.Expression:
    return elementwise.per_value("cast", partial(values.convert, target=target), term, source, target)


def _moment_text(term: pc.Expression) -> pc.Expression:
    """The time in UTC; of its fraction the digits that say something."""
    text = term.cast(types.TIMESTAMP_NTZ).cast(pa.string())
    for pattern, replacement in ((r"(\.\d*?)0+$", r"\1"), (r"\.$", "")):
        text = pc.replace_substring_regex(text, pattern=pattern, replacement=replacement)
    return text


def _to_decimal(term: pc.Expression, source: pa.DataType, target: pa.DataType) -> pc.Expression:
    if pa.types.is_boolean(source):
        term, source = term.cast(pa.int8()), pa.int8()
    if types.is_decimal(source):
        if source.scale > target.scale:
            term = pc.round(_with_room(term, source), ndigits=target.scale, round_mode="half_towards_infinity")
        return term.cast(target)
    # Arrow wants room for every integer of the type before it looks at the values.
    digits, _ = types.decimal_parts(source)
    return term.cast(types.decimal(digits + target.scale, target.scale)).cast(target)


def _with_room(term: pc.Expression, source: pa.DataType) -> pc.Expression:
    """Room for one digit more: rounding up may need it, and Arrow wants it for rounding at all."""
    return term.cast(types.decimal(source.precision + 1, source.scale))


def decimal_result(
    op: str, left: tuple[pc.Expression, pa.DataType], right: tuple[pc.Expression, pa.DataType], kind: pa.DataType
) -> pc.Expression:
    """`left op right` for decimals, at the precision and scale Spark gives the result; division is rounded half up."""
    (one, one_type), (other, other_type) = left, right
    if op == "*":
        return pc.multiply(one, other).cast(kind)
    if op in ("+", "-"):
        wide = pa.decimal256(kind.precision, kind.scale)
        return (pc.add if op == "+" else pc.subtract)(one.cast(wide), other.cast(wide)).cast(kind)
    # Arrow truncates the quotient: it is taken with one digit more than the result has, so that rounding half up is exact.
    scale = max(one_type.scale, kind.scale + 1 - other_type.precision + other_type.scale - 1)
    dividend = one.cast(pa.decimal256(one_type.precision - one_type.scale + scale, scale))
    quotient = pc.divide_checked(dividend, other.cast(pa.decimal256(other_type.precision, other_type.scale)))
    return pc.round(quotient, ndigits=kind.scale, round_mode="half_towards_infinity").cast(kind)
