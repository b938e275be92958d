"""Casts of single values like Spark's in ANSI mode, in exact Python.

Used for literals when an expression is built, and value by value where Arrow's own cast differs from Spark's. A value that
cannot be cast raises PredicateError, where Spark raises. A timestamp without a zone is read in UTC: sluice has no session
time zone.
"""

from __future__ import annotations

import math
import re
import struct
from datetime import date, datetime, time, timedelta, timezone
from decimal import ROUND_DOWN, ROUND_HALF_UP, Context, Decimal, InvalidOperation
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import pyarrow as pa

from ..errors import PredicateError
from . import types
from .nodes import Value

__all__ = ["convert", "converted", "parse_text", "to_float32"]

# The characters that Spark's UTF8String.trimAll removes: white space and ISO control characters.
_BLANK: Final = "".join(map(chr, (*range(0x21), *range(0x7F, 0xA0))))
_INTEGER: Final = re.compile(r"[+-]?\d+", re.ASCII)
_NUMBER: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_SPECIAL: Final = {
    sign + word: value for word in ("inf", "infinity") for sign, value in (("", math.inf), ("+", math.inf), ("-", -math.inf))
}
_BOOLEANS: Final = {**dict.fromkeys(("t", "true", "y", "yes", "1"), True), **dict.fromkeys(("f", "false", "n", "no", "0"), False)}
_DATE: Final = re.compile(r"(\d{4})(?:-(\d{1,2})(?:-(\d{1,2})(?:[ T].*)?)?)?", re.ASCII | re.DOTALL)
_TIMESTAMP: Final = re.compile(
    r"(\d{4})(?:-(\d{1,2})(?:-(\d{1,2})(?:[ T](\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d{0,9}))?)? ?(\S+)?)?)?)?", re.ASCII
)
_OFFSET: Final = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?(\d{2}))?", re.ASCII)
_EXACT: Final = Context(prec=200)


def convert(value: Value, target: pa.DataType) -> Value:
    """`value` at type `target`: exact, or rounded where Spark rounds; PredicateError if it does not fit."""
    if value is None:
        return None
    if isinstance(value, str):
        return value if pa.types.is_string(target) else parse_text(value, target)
    if pa.types.is_boolean(target) and isinstance(value, (bool, int, float, Decimal)):
        return value != 0
    if isinstance(value, (bool, int, float, Decimal)) and types.is_numeric(target):
        return _number(value, target)
    if isinstance(value, date):
        return _moment(value, target)
    if isinstance(value, bytes) and pa.types.is_binary(target):
        return value
    if isinstance(value, (bool, int, Decimal)) and pa.types.is_string(target):
        return str(value).lower() if isinstance(value, bool) else format(value, "f" if isinstance(value, Decimal) else "d")
    raise _cannot(value, target)


def converted(value: Value, kind: pa.DataType) -> Value:
    """`value` at type `kind`, None if it does not fit."""
    try:
        return convert(value, kind)
    except PredicateError:
        return None


def parse_text(text: str, target: pa.DataType) -> Value:
    """The result of Spark's ANSI cast of a string."""
    if pa.types.is_binary(target):
        return text.encode()
    bare = text.strip(_BLANK)
    if pa.types.is_boolean(target) and bare.lower() in _BOOLEANS:
        return _BOOLEANS[bare.lower()]
    if pa.types.is_integer(target) and _INTEGER.fullmatch(bare):
        return _number(int(bare), target)
    if pa.types.is_floating(target):
        if (word := bare.lower()) in _SPECIAL or word == "nan":
            return _SPECIAL.get(word, math.nan)
        if _NUMBER.fullmatch(bare):
            # Spark parses directly to the nearest float; going through double differs only for texts of 17 digits and more.
            return _number(float(bare), target)
    if types.is_decimal(target) and _NUMBER.fullmatch(bare):
        return _number(Decimal(bare), target)
    shape = _DATE if pa.types.is_date(target) else _TIMESTAMP if pa.types.is_timestamp(target) else None
    if shape is not None and (parts := shape.fullmatch(bare)) is not None:
        return _parsed(text, parts, target)
    raise _cannot(text, target)


def to_float32(value: float) -> float:
    """The nearest 32-bit float; infinite beyond the largest."""
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def _number(value: bool | float | Decimal, target: pa.DataType) -> Value:
    if pa.types.is_float64(target):
        return float(value)
    if pa.types.is_float32(target):
        return to_float32(float(value))
    if isinstance(value, float) and not math.isfinite(value):
        raise _cannot(value, target)
    if types.is_decimal(target):
        exact = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
        rounded = _quantized(exact, target.scale)
        if rounded is None or (len(rounded.as_tuple().digits) > target.precision and rounded != 0):
            raise _cannot(value, target)
        return rounded
    whole = int(value) if not isinstance(value, Decimal) else int(value.to_integral_value(ROUND_DOWN))
    low, high = types.integer_bounds(target)
    if not low <= whole <= high:
        raise _cannot(value, target)
    return whole


def _quantized(value: Decimal, scale: int) -> Decimal | None:
    try:
        return value.quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP, _EXACT)
    except InvalidOperation:
        return None


def _moment(value: date, target: pa.DataType) -> Value:
    if pa.types.is_date(target):
        if isinstance(value, datetime):
            return (value.astimezone(timezone.utc) if value.tzinfo else value).date()
        return value
    if pa.types.is_timestamp(target):
        zone = timezone.utc if target.tz else None
        if not isinstance(value, datetime):
            return datetime.combine(value, time(), zone)
        return value.astimezone(timezone.utc).replace(tzinfo=zone) if value.tzinfo else value.replace(tzinfo=zone)
    if pa.types.is_string(target):
        if not isinstance(value, datetime):
            return value.isoformat()
        text = (value.astimezone(timezone.utc) if value.tzinfo else value).replace(tzinfo=None).isoformat(" ")
        return text.rstrip("0") if value.microsecond else text
    raise _cannot(value, target)


def _timestamp(match: re.Match[str], *, zoned: bool) -> datetime:
    year, month, day = (int(part or 1) for part in match.groups()[:3])
    hour, minute, second = (int(part or 0) for part in match.groups()[3:6])
    microsecond = int((match[7] or "").ljust(6, "0")[:6])
    if not zoned and match[8]:
        raise ValueError("a timestamp without time zone has no zone")
    moment = datetime(year, month, day, hour, minute, second, microsecond, _zone(match[8])).astimezone(timezone.utc)
    return moment if zoned else moment.replace(tzinfo=None)


def _zone(text: str | None) -> timezone | ZoneInfo:
    if text is None or text in ("Z", "UTC", "GMT", "UT"):
        return timezone.utc
    if offset := _OFFSET.fullmatch(text):
        width = timedelta(hours=int(offset[2]), minutes=int(offset[3] or 0))
        return timezone(-width if offset[1] == "-" else width)
    try:
        return ZoneInfo(text)
    except (ZoneInfoNotFoundError, ValueError):
        raise ValueError(f"{text!r} is no time zone") from None


def _parsed(text: str, parts: re.Match[str], target: pa.DataType) -> Value:
    try:
        if pa.types.is_date(target):
            return date(*(int(part or 1) for part in parts.groups()))
        return _timestamp(parts, zoned=target.tz is not None)
    except (ValueError, OverflowError) as error:
        raise PredicateError(f"{text!r} is no {types.name(target)}: {error}", value=text, type=types.name(target)) from None


def _cannot(value: Value, target: pa.DataType) -> PredicateError:
    return PredicateError(
        f"{value!r} cannot be cast to {types.name(target)}: write a value of that type", value=value, type=types.name(target)
    )
