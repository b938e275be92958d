"""Common types by Spark's ANSI type coercion. Types are Arrow types; nothing here depends on values."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from ..errors import PredicateError
from ..schema.datatypes import is_variant

TIMESTAMP: Final = pa.timestamp("us", "UTC")
TIMESTAMP_NTZ: Final = pa.timestamp("us")
MOMENTS: Final = (pa.date32(), TIMESTAMP, TIMESTAMP_NTZ)

# By ascending width; `name` and `parse` add DECIMAL(p,s).
_NAMES: Final = {
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "STRING": pa.string(),
    "BINARY": pa.binary(),
    "BOOLEAN": pa.bool_(),
    "DATE": pa.date32(),
    "TIMESTAMP": TIMESTAMP,
    "TIMESTAMP_NTZ": TIMESTAMP_NTZ,
}
_INTEGERS: Final = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
_DIGITS: Final = {pa.int8(): 3, pa.int16(): 5, pa.int32(): 10, pa.int64(): 20}
_MAX_DIGITS: Final = 38


def name(kind: pa.DataType) -> str:
    """The type's name in SQL."""
    if pa.types.is_decimal(kind):
        return f"DECIMAL({kind.precision},{kind.scale})"
    return "VARIANT" if is_variant(kind) else next((text for text, each in _NAMES.items() if each == kind), str(kind).upper())


def parse(text: str, precision: int | None = None, scale: int | None = None) -> pa.DataType:
    """The type of that name; PredicateError if sluice has no such type."""
    if text in ("DECIMAL", "DEC", "NUMERIC"):
        precision, scale = 10 if precision is None else precision, scale or 0
        if not 1 <= precision <= _MAX_DIGITS or not 0 <= scale <= precision:
            raise PredicateError(f"DECIMAL({precision},{scale}) is not a type: use 1 to {_MAX_DIGITS} digits, and no more after the point")
        return pa.decimal128(precision, scale)
    aliases = {"BYTE": "TINYINT", "SHORT": "SMALLINT", "INTEGER": "INT", "LONG": "BIGINT", "REAL": "FLOAT", "TIMESTAMP_LTZ": "TIMESTAMP"}
    try:
        return _NAMES[aliases.get(text, text)]
    except KeyError:
        raise PredicateError(f"a predicate cannot cast to {text}; it can to DECIMAL and {', '.join(_NAMES)}", type=text) from None


def is_numeric(kind: pa.DataType) -> bool:
    """Whether the type is an integer, a float or a decimal."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def is_atomic(kind: pa.DataType) -> bool:
    """Whether values of the type are plain, not structs, lists or maps."""
    return kind in _NAMES.values() or pa.types.is_decimal(kind)


def integer_bounds(kind: pa.DataType) -> tuple[int, int]:
    """The smallest and the largest value of an integer type."""
    half = 1 << (kind.bit_width - 1)
    return -half, half - 1


def decimal(precision: int, scale: int) -> pa.DataType:
    """May exceed SQL's 38 digits: comparisons use such types, so that they are exact."""
    return pa.decimal128(precision, scale) if precision <= _MAX_DIGITS else pa.decimal256(precision, scale)


def decimal_parts(kind: pa.DataType) -> tuple[int, int]:
    """The digits and the scale of a decimal, or of the decimal for every integer of a type."""
    return (kind.precision, kind.scale) if pa.types.is_decimal(kind) else (_DIGITS[kind], 0)


def operand(kind: pa.DataType, constant: object, other: pa.DataType) -> pa.DataType:
    """The type of an operand of arithmetic: an integer constant beside a decimal has only the digits it needs."""
    if isinstance(constant, int) and pa.types.is_decimal(other) and pa.types.is_integer(kind):
        return pa.decimal128(len(str(abs(constant))), 0)
    return kind


def common(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    """The type at which two values are compared, or None if Spark's ANSI mode refuses. A string meets an integer at BIGINT, another number
    at DOUBLE, and anything else at the other's type.
    """
    if left == right:
        return left
    if pa.types.is_null(left) or pa.types.is_null(right):
        return right if pa.types.is_null(left) else left
    for one, other in ((left, right), (right, left)):
        if pa.types.is_string(one):
            if pa.types.is_integer(other):
                return pa.int64()
            return pa.float64() if is_numeric(other) else other if is_atomic(other) else None
    if is_numeric(left) and is_numeric(right):
        if pa.types.is_floating(left) or pa.types.is_floating(right):
            return pa.float64()  # a FLOAT meets any other type at DOUBLE, which holds both
        if left in _INTEGERS and right in _INTEGERS:
            return max(left, right, key=_INTEGERS.index)
        (p1, s1), (p2, s2) = decimal_parts(left), decimal_parts(right)
        scale = max(s1, s2)
        return decimal(max(p1 - s1, p2 - s2) + scale, scale)
    if left in MOMENTS and right in MOMENTS:
        return TIMESTAMP if TIMESTAMP in (left, right) else TIMESTAMP_NTZ
    return None


def arithmetic(op: str, left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    """The type of `left op right`, or None if it cannot be evaluated exactly like Spark."""
    if not (is_numeric(left) and is_numeric(right)):
        return None
    if op == "div":
        return pa.int64() if left in _INTEGERS and right in _INTEGERS else None
    if pa.types.is_floating(left) or pa.types.is_floating(right):
        if op == "%":
            return None
        return pa.float32() if left == right == pa.float32() and op != "/" else pa.float64()
    if left in _INTEGERS and right in _INTEGERS:
        return pa.float64() if op == "/" else max(left, right, key=_INTEGERS.index)
    (p1, s1), (p2, s2) = decimal_parts(left), decimal_parts(right)
    if op in ("+", "-"):
        scale = max(s1, s2)
        precision = max(p1 - s1, p2 - s2) + scale + 1
    elif op == "*":
        precision, scale = p1 + p2 + 1, s1 + s2
    elif op == "/":
        scale = max(6, s1 + p2 + 1)
        precision = p1 - s1 + s2 + scale
    else:
        return None
    return pa.decimal128(precision, scale) if precision <= _MAX_DIGITS else None
