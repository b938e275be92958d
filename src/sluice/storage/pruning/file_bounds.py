"""The statistics of one file in plain Python: what `file_stats` reads out of many texts at once, out of one.

Values are plain as in `expressions.scalars`. A bound that is missing, is not what the column's type asks for, or cannot be trusted is None.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import date, datetime
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final, TypeAlias

import orjson
import pyarrow as pa

from ..expressions import types
from ..expressions.scalars import Plain, of_arrow
from ..expressions.values import to_float32

__all__ = ["Body", "bound_readers", "count", "day_of", "leaf", "read_body"]

Body: TypeAlias = Mapping[str, Any]

_NOTHING: Final[Body] = {}
_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - compared with others that have no zone either
_DAY_US: Final = 86_400_000_000
_MILLISECOND_US: Final = 1000
_DOUBLE_DIGITS: Final = 15
_LONG: Final = range(-(2**63), 2**63)
_DAY: Final = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_INSTANT: Final = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.(?:\d{3}|\d{6}))?", re.ASCII)
_NUMBER: Final = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?", re.ASCII)


def read_body(text: str | None) -> Body:
    """The JSON object of `add.stats`; an empty one for what is none."""
    if text is None or not text.startswith("{") or "\n" in text:
        return _NOTHING
    try:
        body = orjson.loads(text)
    except orjson.JSONDecodeError:
        return _NOTHING
    return body if isinstance(body, dict) else _NOTHING


def count(value: Any) -> int | None:
    """A number of rows."""
    return value if type(value) is int and value in _LONG else None


def bound_readers(path: tuple[str, ...], kind: pa.DataType) -> tuple[Callable[[Body], Plain], Callable[[Body], Plain]]:
    """Functions that give a lower and an upper bound of a column's values that are neither null nor NaN."""
    typed = _typed(kind)
    apart = _MILLISECOND_US if pa.types.is_timestamp(kind) else 0
    return _reader("minValues", path, typed, -apart), _reader("maxValues", path, typed, apart)


def _reader(part: str, path: tuple[str, ...], typed: Callable[[Any], Plain] | None, shift: int) -> Callable[[Body], Plain]:
    if typed is None:
        return lambda _: None

    def read(body: Body) -> Plain:
        try:
            bound = typed(leaf(body.get(part), path))
        except (ValueError, OverflowError):
            return None
        return bound + shift if shift and bound is not None else bound

    return read


def leaf(tree: Any, path: tuple[str, ...]) -> Any:
    """What stands at the end of a path of nested objects, or None."""
    for name in path:
        if type(tree) is not dict:
            return None
        tree = tree.get(name)
    return tree


def _typed(kind: pa.DataType) -> Callable[[Any], Plain] | None:
    """A function from a bound as JSON has it to a plain value: None for one of another kind, ValueError for no value of the type."""
    if pa.types.is_integer(kind):
        low, high = types.integer_bounds(kind)
        return lambda value: _integer(value, low, high)
    if pa.types.is_floating(kind):
        return _float32 if pa.types.is_float32(kind) else _float
    if pa.types.is_decimal(kind):
        return lambda value: _decimal(value, kind.precision, kind.scale)
    if pa.types.is_string(kind):
        return lambda value: value if isinstance(value, str) else None
    if pa.types.is_date(kind):
        return lambda value: day_of(value) if isinstance(value, str) else None
    if pa.types.is_timestamp(kind):
        zoned = kind.tz is not None
        return lambda value: instant_of(value, zoned=zoned) if isinstance(value, str) else None
    return None


def _integer(value: Any, low: int, high: int) -> int | None:
    if type(value) is not int or value not in _LONG:
        return None
    if not low <= value <= high:
        raise ValueError
    return value


def _float(value: Any) -> float | None:
    return float(value) if type(value) in (int, float) else None


def _float32(value: Any) -> float | None:
    return to_float32(float(value)) if type(value) in (int, float) else None


def _decimal(value: Any, precision: int, scale: int) -> Decimal | None:
    """JSON's numbers come as doubles here, whose shortest text is the text they come from up to 15 digits; more are not trusted."""
    if type(value) not in (int, float) and (type(value) is not str or not _NUMBER.fullmatch(value)):
        return None
    number = Decimal(repr(value)) if type(value) is float else Decimal(value)
    unscaled = number.scaleb(scale)
    if unscaled != unscaled.to_integral_value() or abs(unscaled) >= 10**_DOUBLE_DIGITS:
        return None
    if abs(unscaled) >= 10**precision:
        raise ValueError
    return number


def day_of(text: str) -> int:
    """The day of a date's text, counted from the epoch; ValueError for what is no date."""
    if _DAY.fullmatch(text) and not text.startswith("0000"):
        return date.fromisoformat(text).toordinal() - _EPOCH_DAY
    day: int = _by_arrow(text, pa.date32())
    return day


def instant_of(text: str, *, zoned: bool) -> int:
    """The microsecond of a timestamp's text, counted from the epoch; ValueError for what is none, or has no zone where it should."""
    bare = text.removesuffix("Z")
    if (not zoned or len(bare) < len(text)) and _INSTANT.fullmatch(bare) and not bare.startswith("0000"):
        since = datetime.fromisoformat(bare) - _EPOCH
        return since.days * _DAY_US + since.seconds * 1_000_000 + since.microseconds
    instant: int = _by_arrow(text if zoned else bare, types.TIMESTAMP if zoned else types.TIMESTAMP_NTZ)
    return instant


@lru_cache(maxsize=8192)
def _by_arrow(text: str, kind: pa.DataType) -> Plain:
    return of_arrow(pa.array([text], pa.string()).cast(kind))
