"""Values of Arrow arrays as JSON has them; docs/sql.md has the table of their forms. No value of any type is an error."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final

import orjson
import pyarrow as pa
import pyarrow.compute as pc

_DAY_US: Final = 86_400_000_000


def values_of(array: pa.Array) -> list[Any]:
    """The values of an array: None, booleans, numbers, texts, lists, and dictionaries with texts as keys."""
    types, kind = pa.types, array.type
    if isinstance(kind, pa.BaseExtensionType):
        return values_of(array.storage)
    if types.is_dictionary(kind):
        return values_of(array.dictionary_decode())
    if types.is_struct(kind):
        columns = [values_of(each) for each in array.flatten()]
        rows = zip(*columns, strict=True) if columns else [()] * len(array)
        names = [each.name for each in kind]
        return [dict(zip(names, row, strict=True)) if valid else None for valid, row in zip(_valid(array), rows, strict=True)]
    if types.is_map(kind):
        keys, items = values_of(array.keys), values_of(array.items)
        pairs = [(text_of(key), item) for key, item in zip(keys, items, strict=True)]
        return [dict(each) if valid else None for valid, each in zip(_valid(array), _slices(array.offsets, pairs), strict=True)]
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        inner, lengths = values_of(array.flatten()), pc.list_value_length(array).to_pylist()
        lists, at = [], 0
        for length in lengths:
            lists.append(None if length is None else inner[at : at + length])
            at += length or 0
        return lists
    return _plain(array)


def text_of(value: Any, null: str = "null") -> str:
    """A value as people read it, and as CSV has it."""
    if value is None:
        return null
    if isinstance(value, str):
        return value
    return orjson.dumps(value).decode() if isinstance(value, (bool, dict, list)) else str(value)


def _valid(array: pa.Array) -> list[bool]:
    valid: list[bool] = array.is_valid().to_pylist()
    return valid


def _slices(offsets: pa.Array, pairs: Sequence[Any]) -> list[Sequence[Any]]:
    edges = offsets.to_pylist()
    return [pairs[first:last] for first, last in pairwise(edges)]


def _plain(array: pa.Array) -> list[Any]:
    types, kind = pa.types, array.type
    if types.is_boolean(kind) or types.is_integer(kind) or types.is_null(kind) or types.is_string(kind) or types.is_large_string(kind):
        return list(array.to_pylist())
    if types.is_floating(kind):  # a FLOAT has the digits that it needs, not those of its DOUBLE
        values = array.to_pylist() if kind == pa.float64() else [_or_null(each, float) for each in array.cast(pa.string()).to_pylist()]
        return [value if value is None or value - value == 0 else _infinite(value) for value in values]
    if types.is_decimal(kind):
        return [_or_null(each, "{:f}".format) for each in array.to_pylist()]
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
        return [_or_null(each, lambda value: value.hex().upper()) for each in array.to_pylist()]
    if types.is_timestamp(kind):
        microseconds = array.cast(pa.timestamp("us", None if kind.tz is None else "UTC"), safe=False)
        texts = microseconds.cast(pa.timestamp("us")).cast(pa.string()).to_pylist()
        return [_or_null(each, lambda text: _moment(text, "" if kind.tz is None else "Z")) for each in texts]
    if types.is_date(kind):
        return list(array.cast(pa.date32()).cast(pa.string()).to_pylist())
    if types.is_time(kind):
        return [_or_null(each, _time) for each in array.cast(pa.time64("us"), safe=False).cast(pa.string()).to_pylist()]
    if types.is_duration(kind):
        microseconds = array.cast(pa.duration("us"), safe=False).cast(pa.int64()).to_pylist()
        return [_or_null(each, lambda value: _interval(0, value)) for each in microseconds]
    if kind == pa.month_day_nano_interval():
        return [_or_null(each, lambda value: _interval(value[0], value[1] * _DAY_US + value[2] // 1000)) for each in array.to_pylist()]
    return [_or_null(each, str) for each in array.to_pylist()]


def _or_null(value: Any, form: Any) -> Any:
    return None if value is None else form(value)


def _infinite(value: float) -> str:
    return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"


def _moment(text: str, zone: str) -> str:
    """A time as ISO 8601 has it; Arrow writes those beyond its years as <value out of range: ...>."""
    return text if text.startswith("<") else _time(text.replace(" ", "T")) + zone


def _time(text: str) -> str:
    """Without a fraction of zeros."""
    return text.removesuffix(".000000")


def _interval(months: int, microseconds: int) -> str:
    """In ISO 8601, where each number has the sign: P1Y2M3DT4H5M6.5S, PT0S. A day has 24 hours."""
    parts = [(months, 12, "Y", "M"), (microseconds, _DAY_US, "D", "")]
    date = ""
    for value, unit, large, small in parts:
        whole, rest = _divided(value, unit)
        date += (f"{whole}{large}" if whole else "") + (f"{rest}{small}" if rest and small else "")
    _, rest = _divided(microseconds, _DAY_US)
    hours, rest = _divided(rest, 3_600_000_000)
    minutes, rest = _divided(rest, 60_000_000)
    seconds = f"{'-' if rest < 0 else ''}{abs(rest) // 1_000_000}.{abs(rest) % 1_000_000:06d}".rstrip("0").rstrip(".") if rest else ""
    clock = "".join(f"{value}{unit}" for value, unit in ((hours, "H"), (minutes, "M"), (seconds, "S")) if value)
    return f"P{date}{'T' if clock else ''}{clock}" if date or clock else "PT0S"


def _divided(value: int, unit: int) -> tuple[int, int]:
    """Quotient and remainder with the value's sign."""
    sign = -1 if value < 0 else 1
    whole, rest = divmod(abs(value), unit)
    return sign * whole, sign * rest
