"""Casts like Spark's in ANSI mode: of single values in exact Python, and of terms.

Values are cast when an expression is built, and one by one where Arrow's own cast differs from Spark's. A value that cannot be cast
raises PredicateError, where Spark raises. A timestamp without a zone is read in UTC: sluice has no session time zone.
"""

from __future__ import annotations

import math
import re
from datetime import date, datetime, time, timedelta, timezone
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from functools import partial
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import pyarrow as pa
import pyarrow.compute as pc

from ..errors import PredicateError
from . import types
from .functions import Term, per_value, with_room
from .nodes import Value

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
    if pa.types.is_decimal(target) and _NUMBER.fullmatch(bare):
        return _number(Decimal(bare), target)
    shape = _DATE if pa.types.is_date(target) else _TIMESTAMP if pa.types.is_timestamp(target) else None
    if shape is None or (parts := shape.fullmatch(bare)) is None:
        raise _cannot(text, target)
    try:
        return date(*(int(part or 1) for part in parts.groups())) if shape is _DATE else _timestamp(parts, zoned=target.tz is not None)
    except (ValueError, OverflowError) as error:
        raise PredicateError(f"{text!r} is no {types.name(target)}: {error}", value=text, type=types.name(target)) from None


def _number(value: bool | float | Decimal, target: pa.DataType) -> Value:
    if pa.types.is_float64(target):
        return float(value)
    if pa.types.is_float32(target):
        nearest: float = pa.scalar(float(value), target).as_py()  # infinite beyond the largest
        return nearest
    if isinstance(value, float) and not math.isfinite(value):
        raise _cannot(value, target)
    if pa.types.is_decimal(target):
        exact = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
        try:
            return exact.quantize(Decimal(1).scaleb(-target.scale), ROUND_HALF_UP, Context(prec=target.precision))
        except InvalidOperation:
            raise _cannot(value, target) from None
    whole = int(value)
    low, high = types.integer_bounds(target)
    if not low <= whole <= high:
        raise _cannot(value, target)
    return whole


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
    if not zoned and match[8]:
        raise ValueError("a timestamp without time zone has no zone")
    zone: timezone | ZoneInfo = timezone.utc
    if offset := _OFFSET.fullmatch(match[8] or ""):
        width = timedelta(hours=int(offset[2]), minutes=int(offset[3] or 0))
        zone = timezone(-width if offset[1] == "-" else width)
    elif match[8] not in (None, "Z", "UTC", "GMT", "UT"):
        try:
            zone = ZoneInfo(match[8])
        except (ZoneInfoNotFoundError, ValueError):
            raise ValueError(f"{match[8]!r} is no time zone") from None
    moment = datetime(year, month, day, hour, minute, second, int((match[7] or "").ljust(6, "0")[:6]), zone).astimezone(timezone.utc)
    return moment if zoned else moment.replace(tzinfo=None)


def _cannot(value: Value, target: pa.DataType) -> PredicateError:
    return PredicateError(
        f"{value!r} cannot be cast to {types.name(target)}: write a value of that type", value=value, type=types.name(target)
    )


def check(source: pa.DataType, target: pa.DataType) -> None:
    """Raise PredicateError unless `cast` supports it."""
    if pa.types.is_null(source):
        return
    if pa.types.is_boolean(target) and pa.types.is_floating(source):
        fits = False  # write <> 0, which defines the result for NaN
    elif types.is_numeric(source) or pa.types.is_boolean(source):
        fits = types.is_numeric(target) or pa.types.is_boolean(target) or (pa.types.is_string(target) and not pa.types.is_floating(source))
    elif source in types.MOMENTS:
        fits = target in types.MOMENTS or pa.types.is_string(target)
    else:
        fits = (pa.types.is_string(source) and types.is_atomic(target)) or (pa.types.is_binary(source) and pa.types.is_binary(target))
    if not fits:
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
    if pa.types.is_decimal(target):
        if pa.types.is_floating(source):
            return True
        digits, scale = (1, 0) if pa.types.is_boolean(source) else types.decimal_parts(source)
        return bool(digits - scale > target.precision - target.scale or scale > target.scale)
    return False


def cast(term: Term, source: pa.DataType, target: pa.DataType) -> Term:
    """The value of `term`, of type `source`, as `target`; raises where Spark's cast raises."""
    check(source, target)
    if pa.types.is_string(source) or (pa.types.is_decimal(source) and pa.types.is_string(target)):
        return _by_value(term, source, target)
    if pa.types.is_timestamp(source) and pa.types.is_string(target):
        text = term.cast(types.TIMESTAMP_NTZ).cast(pa.string())  # in UTC, with six digits of a second
        return pc.replace_substring_regex(text, pattern=r"\.?0+$", replacement="")
    if pa.types.is_boolean(target):
        return pc.not_equal(term, pa.scalar(Decimal(0) if pa.types.is_decimal(source) else 0, source))
    if pa.types.is_decimal(target):
        if pa.types.is_floating(source):
            return _by_value(term, source, target)
        if pa.types.is_decimal(source):
            if source.scale > target.scale:
                term = pc.round(with_room(term, source), ndigits=target.scale, round_mode="half_towards_infinity")
            return term.cast(target)
        if pa.types.is_boolean(source):
            term, source = term.cast(pa.int8()), pa.int8()
        # Arrow requires room for every integer of the type before it checks the values.
        digits, _ = types.decimal_parts(source)
        return term.cast(types.decimal(digits + target.scale, target.scale)).cast(target)
    if pa.types.is_floating(target):
        if pa.types.is_decimal(source):
            return _by_value(term, source, target)
        return (
            term.cast(pa.float64(), safe=False).cast(target, safe=False) if pa.types.is_integer(source) else term.cast(target, safe=False)
        )
    if pa.types.is_integer(target):
        if pa.types.is_integer(source) or pa.types.is_boolean(source):
            return term.cast(target)
        return pc.trunc(with_room(term, source) if pa.types.is_decimal(source) else term).cast(target)
    return pc.floor_temporal(term, unit="day").cast(target) if pa.types.is_date(target) else term.cast(target)


def try_cast(term: Term, source: pa.DataType, target: pa.DataType) -> Term:
    """Like `cast`, but null where Spark's cast raises."""
    if not may_fail(source, target):
        return cast(term, source, target)
    check(source, target)
    return per_value("try_cast", partial(converted, kind=target), term, source, target)


def _by_value(term: Term, source: pa.DataType, target: pa.DataType) -> Term:
    """A cast of each value, where Arrow's own differs from Spark's."""
    return per_value("cast", partial(convert, target=target), term, source, target)


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
