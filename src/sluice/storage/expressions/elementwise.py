"""Functions on terms that Arrow lacks, or computes differently from Spark.

A term is an array, a scalar, or an expression of a dataset's filter. For expressions, exact Python functions are registered
with Arrow under their own names (`sluice.<name>:<takes>-><gives>`). A scan raises their exceptions unchanged. `round`, `floor` and `ceil`
have the types of results that Spark gives them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import ROUND_HALF_UP, Context, Decimal
from functools import partial
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from ..caches import ForkSafeLock
from ..errors import PredicateError
from . import types
from .nodes import Literal, Node

__all__ = ["Term", "and_", "is_nan", "or_", "per_array", "per_value", "round_type", "rounded", "whole", "whole_type"]

Term: TypeAlias = pa.Array | pa.Scalar | pc.Expression

_REGISTERED: Final[set[str]] = set()
_LOCK: Final = ForkSafeLock()


def or_(left: Term, right: Term) -> Term:
    """Null if either side is null; for expressions, pyarrow's own wrapper calls a function that does not exist."""
    return pc.Expression._call("or", [left, right]) if isinstance(left, pc.Expression) else pc.or_(left, right)


def and_(left: Term, right: Term) -> Term:
    """Null if either side is null."""
    return pc.Expression._call("and", [left, right]) if isinstance(left, pc.Expression) else pc.and_(left, right)


def is_nan(term: Term, kind: pa.DataType) -> Term:
    """Whether the float `term` is NaN, computed so that Arrow cannot use Parquet's statistics, which omit NaN.

    If a row group's smallest and largest value are equal, Arrow assumes that value for every row. The result of a random
    number (always less than 2) cannot be known beforehand.
    """
    if not isinstance(term, pc.Expression):
        return pc.is_nan(term)
    always = pc.less(pc.Expression._call("random", [], pc.RandomOptions(initializer=0)), 2.0)
    return pc.is_nan(pc.if_else(always, term, pa.scalar(None, kind)))


def per_value(name: str, change: Callable[[Any], Any], term: Term, takes: pa.DataType, gives: pa.DataType) -> Term:
    """`change` applied to every non-null value of `term`, once per distinct value of a batch."""

    def run(values: pa.Array) -> pa.Array:
        encoded = values.dictionary_encode()
        changed = [None if value is None else change(value) for value in encoded.dictionary.to_pylist()]
        return pa.array(changed, gives).take(encoded.indices)

    return per_array(name, run, term, takes, gives)


def per_array(name: str, change: Callable[[pa.Array], pa.Array], term: Term, takes: pa.DataType, gives: pa.DataType) -> Term:
    """`change` applied to the whole of `term`, batch by batch; it must preserve the length."""

    def run(_: Any, values: pa.Array | pa.Scalar) -> pa.Array | pa.Scalar:
        if isinstance(values, pa.Scalar):
            return change(pa.array([values.as_py()], takes))[0]
        return change(values)

    if not isinstance(term, pc.Expression):
        return run(None, term)
    full = f"sluice.{name}:{takes}->{gives}"
    with _LOCK:
        if full not in _REGISTERED:
            about = {"summary": f"{name} as Spark does it", "description": f"from {takes} to {gives}"}
            pc.register_scalar_function(run, full, about, {"values": takes}, gives)
            _REGISTERED.add(full)
    return pc.Expression._call(full, [term])


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
        return per_value(f"round.{places}", partial(_rounded_float, places=places), terms[0], kind, kind)
    result_type = round_type(args)
    return per_value(f"round.{places}", partial(_rounded, places=places, kind=result_type), terms[0], kind, result_type)


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
