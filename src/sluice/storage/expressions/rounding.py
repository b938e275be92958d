"""round, floor and ceil like Spark's: the type of the result, and the term that computes it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import ROUND_HALF_UP, Context, Decimal
from functools import partial
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from ..errors import PredicateError
from . import elementwise, types
from .elementwise import Term
from .nodes import Literal, Node

__all__ = ["round_type", "rounded", "whole", "whole_type"]

_MAX_DIGITS: Final = 38
_EXACT: Final = Context(prec=800)  # the largest double has 309 digits, the smallest 324 after the point and 17 more
_MOST_PLACES: Final = 400  # more change nothing


def _places(args: Sequence[Node]) -> int:
    """The second argument of `round`, which `calls.call` has checked to be a constant."""
    value = args[1].value if len(args) > 1 and isinstance(args[1], Literal) else 0
    return max(-_MOST_PLACES, min(value, _MOST_PLACES)) if isinstance(value, int) else 0


def round_type(args: Sequence[Node]) -> pa.DataType:
    """The type of `round(number, places)`: a decimal may need one more digit."""
    kind, places = args[0].type, _places(args)
    if not types.is_decimal(kind):
        return kind
    digits, scale = kind.precision - kind.scale + 1, min(kind.scale, max(places, 0))
    return pa.decimal128(min(max(digits + scale, 1 - places), _MAX_DIGITS), scale)


def rounded(terms: Sequence[Term], args: Sequence[Node]) -> Term:
    """`round(number, places)`: half away from zero; a float by its shortest decimal text, like BigDecimal."""
    kind, places = args[0].type, _places(args)
    if pa.types.is_integer(kind) and places >= 0:
        return terms[0]
    if types.is_decimal(kind) and places >= 0:
        room = terms[0].cast(types.decimal(kind.precision + 1, kind.scale))
        return pc.round(room, ndigits=min(places, kind.scale), round_mode="half_towards_infinity").cast(round_type(args))
    if pa.types.is_floating(kind):
        return elementwise.per_value(f"round.{places}", partial(_rounded_float, places=places), terms[0], kind, kind)
    given = round_type(args)
    return elementwise.per_value(f"round.{places}", partial(_rounded, places=places, kind=given), terms[0], kind, given)


def _quantized(value: Decimal, places: int) -> Decimal:
    return value.quantize(Decimal(1).scaleb(-places), ROUND_HALF_UP, _EXACT)


def _rounded(value: int | Decimal, places: int, kind: pa.DataType) -> int | Decimal:
    whole = int(_quantized(Decimal(value), places))
    low, high = types.integer_bounds(kind) if pa.types.is_integer(kind) else (1 - 10**kind.precision, 10**kind.precision - 1)
    if not low <= whole <= high:
        raise PredicateError(f"round({value}, {places}) is no {types.name(kind)}: it overflows", value=value)
    return whole if pa.types.is_integer(kind) else Decimal(whole)


def _rounded_float(value: float, places: int) -> float:
    if not math.isfinite(value):
        return value
    return float(_quantized(Decimal(repr(value)), places)) + 0.0  # decimals have no -0.0


def whole_type(args: Sequence[Node]) -> pa.DataType:
    """The type of `floor` and `ceil`."""
    kind = args[0].type
    if not types.is_decimal(kind):
        return pa.int64()
    return kind if kind.scale == 0 else pa.decimal128(kind.precision - kind.scale + 1, 0)


def whole(change: Callable[[Term], Term], term: Term, kind: pa.DataType) -> Term:
    """`floor` or `ceil`; a float beyond BIGINT overflows, but NaN becomes 0."""
    if pa.types.is_integer(kind):
        return term.cast(pa.int64())
    if types.is_decimal(kind):
        room = term.cast(types.decimal(kind.precision + 1, kind.scale))
        return term if kind.scale == 0 else change(room).cast(pa.decimal128(kind.precision - kind.scale + 1, 0))
    number = term.cast(pa.float64())
    return change(pc.if_else(pc.is_nan(number), pa.scalar(0.0), number)).cast(pa.int64())
