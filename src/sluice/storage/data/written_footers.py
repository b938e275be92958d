"""Statistics like those of our own writer, from the footers of files that Spark has just written by our rules.

`footers` reads files of any writer. Here the writer is known (parquet-mr, with the table's schema, times in microseconds, no
old calendars). So places of columns are known, nested ones, too, and bounds of floating-point numbers hold: parquet-mr takes NaN
for the largest number, and the footer has it as such.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from ..dataclass import dataclass
from ..errors import InvariantBroken
from ..schema.arrow_schema import kind
from ..schema.datatypes import ArrayType, DataType, MapType, PrimitiveType, StructType
from ..schema.value_limits import is_legal
from .statistics import leaves, text_of


@dataclass(frozen=True, slots=True)
class WrittenFooter:
    """The number of rows, the text of `add.stats`, the number of nulls by top-level column of a primitive type, and the columns with
    values beyond the limits of `schema.value_limits`, as paths.
    """

    rows: int
    stats: str
    nulls: Mapping[str, int]
    illegal: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Place:
    """A column of Parquet: `path` through structs; not `direct` if an array or map is on the way."""

    path: tuple[str, ...]
    type: PrimitiveType
    direct: bool


@dataclass(frozen=True, slots=True)
class _Found:
    """The bounds and nulls of a column over all row groups; `nulls` is None if one does not say it, bounds are None if none holds."""

    low: Any
    high: Any
    nulls: int | None


def read_written_footer(path: Path, stored: StructType, indexed_columns: int) -> WrittenFooter:
    """The footer of a file whose columns are exactly those of `stored`. Raises InvariantBroken if they are not."""
    footer = pq.read_metadata(path)
    places = _places(stored)
    if footer.num_columns != len(places):
        raise InvariantBroken(f"{path} has {footer.num_columns} columns, and was to have the {len(places)} of {stored}")
    found = {place: _found(footer, number, place.type) for number, place in enumerate(places)}
    direct = {place.path: each for place, each in found.items() if place.direct}
    unknown = _Found(None, None, None)
    known = [
        (leaf, each.low, None if _is_nan(each.high) else each.high, each.nulls)
        for leaf in leaves(stored, (), indexed_columns)
        for each in (direct.get(leaf.path, unknown),)
    ]
    nulls = {path[0]: each.nulls for path, each in direct.items() if len(path) == 1 and each.nulls is not None}
    odd = [place.path for place, each in found.items() if any(v is not None and not is_legal(v, place.type) for v in (each.low, each.high))]
    return WrittenFooter(footer.num_rows, text_of(footer.num_rows, known), nulls, tuple(".".join(path) for path in odd))


@lru_cache(maxsize=256)
def _places(stored: StructType) -> tuple[_Place, ...]:
    return tuple(place for each in stored.fields for place in _inside(each.type, (each.name,), direct=True))


def _inside(dtype: DataType, path: tuple[str, ...], *, direct: bool) -> Iterator[_Place]:
    match dtype:
        case PrimitiveType():
            yield _Place(path, dtype, direct)
        case StructType(fields):
            for each in fields:
                yield from _inside(each.type, (*path, each.name), direct=direct)
        case ArrayType(element, _):
            yield from _inside(element, (*path, "element"), direct=False)
        case MapType(key, value, _):
            yield from _inside(key, (*path, "key"), direct=False)
            yield from _inside(value, (*path, "value"), direct=False)


def _found(footer: pq.FileMetaData, number: int, dtype: PrimitiveType) -> _Found:
    nulls: int | None = 0
    bounds: list[Any] | None = []
    for group in range(footer.num_row_groups):
        chunk = footer.row_group(group).column(number)
        known = chunk.statistics
        if known is None or not known.has_null_count:
            return _Found(None, None, None)
        nulls += known.null_count
        if known.null_count == chunk.num_values:
            continue
        if not known.has_min_max:
            bounds = None
        elif bounds is not None:
            bounds += (_value(known.min_raw, dtype), _value(known.max_raw, dtype))
    if not bounds or any(value is None for value in bounds):
        return _Found(None, None, nulls)
    numbers = [value for value in bounds if not _is_nan(value)]
    return _Found(min(numbers, default=None), max(numbers) if len(numbers) == len(bounds) else math.nan, nulls)


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _value(raw: Any, dtype: PrimitiveType) -> Any:
    """A bound as statistics of rows have it: dates in days, times in microseconds; None for text that is cut amid a character."""
    match kind(dtype):
        case "decimal":
            unscaled = int.from_bytes(raw, "big", signed=True) if isinstance(raw, bytes) else raw
            digits = tuple(int(digit) for digit in str(abs(unscaled)))
            return Decimal((int(unscaled < 0), digits, -dtype.scale))
        case "string":
            try:
                return raw.decode()
            except UnicodeDecodeError:
                return None
    return raw
