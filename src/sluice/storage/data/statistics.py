"""Statistics of a data file as Delta defines them ("Per-file Statistics"), by which readers skip files.

Bounds hold for every value: text is cut to 32 characters, the largest rounded up; timestamps have milliseconds, the smallest
rounded down and the largest up. A bound that JSON cannot represent, or that would not hold for every reader (the largest of
numbers with NaN), is omitted. Booleans, binary, arrays and maps have a count of nulls only.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from ..dataclass import dataclass
from ..schema.arrow_schema import kind
from ..schema.datatypes import PrimitiveType, StructType

# delta.dataSkippingNumIndexedCols
INDEXED_COLUMNS_DEFAULT: Final = 32
_TEXT_MAX: Final = 32
_CODE_POINT_MAX: Final = 0x10FFFF
_SURROGATES: Final = range(0xD800, 0xE000)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)
_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_DAY_MAX: Final = date.max.toordinal()
_WITHOUT_BOUNDS: Final = frozenset({"boolean", "binary"})


def collect(
    table: pa.Table, schema: StructType, partition_columns: Sequence[str], *, indexed_columns: int = INDEXED_COLUMNS_DEFAULT
) -> str:
    """The statistics of a file with these rows, as the JSON text of `add.stats`.

    `indexed_columns` is delta.dataSkippingNumIndexedCols: how many leaves get bounds and null counts (-1: all of them).
    """
    collector = StatsCollector(schema, partition_columns, indexed_columns)
    collector.update(table)
    return collector.to_json()


@dataclass(frozen=True, slots=True)
class Leaf:
    """A column that has statistics: its path through structs, and the kind of its bounds; None: no bounds."""

    path: tuple[str, ...]
    kind: str | None


@lru_cache(maxsize=256)
def leaves(schema: StructType, partition_columns: tuple[str, ...], indexed_columns: int) -> tuple[Leaf, ...]:
    """The columns that have statistics: the first `indexed_columns` (-1: all) beside the partition columns."""
    found = tuple(_walk(schema.without(partition_columns), ()))
    return found if indexed_columns < 0 else found[:indexed_columns]


def text_of(rows: int, known: Iterable[tuple[Leaf, Any, Any, int | None]]) -> str:
    """The JSON text of `add.stats` of so many rows; of each leaf the lowest value, the highest and the number of nulls, None if unknown."""
    lows: dict[str, Any] = {}
    highs: dict[str, Any] = {}
    counts: dict[str, Any] = {}
    for leaf, lowest, highest, nulls in known:
        if nulls is not None:
            _put(counts, leaf.path, nulls)
        if leaf.kind is None:
            continue
        if (low := lower_bound(lowest, leaf.kind)) is not None:
            _put(lows, leaf.path, low)
        if (high := upper_bound(highest, leaf.kind)) is not None:
            _put(highs, leaf.path, high)
    return orjson.dumps({"numRecords": rows, "minValues": lows, "maxValues": highs, "nullCount": counts}).decode()


def _walk(schema: StructType, path: tuple[str, ...]) -> Iterator[Leaf]:
    for each in schema.fields:
        here = (*path, each.name)
        if isinstance(each.type, StructType):
            yield from _walk(each.type, here)
        elif isinstance(each.type, PrimitiveType) and kind(each.type) not in _WITHOUT_BOUNDS:
            yield Leaf(here, kind(each.type))
        else:
            yield Leaf(here, None)


class StatsCollector:
    """Statistics of a file that is written in pieces: call `update` with each, then `to_json`."""

    __slots__ = ("_high", "_leaves", "_low", "_nan", "_nulls", "_rows")

    def __init__(self, schema: StructType, partition_columns: Iterable[str], indexed_columns: int = INDEXED_COLUMNS_DEFAULT) -> None:
        self._leaves = leaves(schema, tuple(partition_columns), indexed_columns)
        self._rows = 0
        self._nulls = [0] * len(self._leaves)
        self._low: list[Any] = [None] * len(self._leaves)
        self._high: list[Any] = [None] * len(self._leaves)
        self._nan = [False] * len(self._leaves)

    def update(self, table: pa.Table) -> None:
        """Add rows of the same file."""
        self._rows += table.num_rows
        for index, leaf in enumerate(self._leaves):
            column = table.column(leaf.path[0])
            if len(leaf.path) > 1:
                column = pc.struct_field(column, list(leaf.path[1:]))
            nulls = column.null_count
            self._nulls[index] += nulls
            if leaf.kind is not None and nulls < len(column):
                self._bound(index, column, leaf.kind)

    def _bound(self, index: int, column: pa.ChunkedArray, kind: str) -> None:
        if kind == "float":
            self._nan[index] = self._nan[index] or pc.any(pc.is_nan(column)).as_py() is True
        elif kind == "date":
            column = column.cast(pa.int32())
        elif kind in ("timestamp", "timestamp_ntz"):
            # As numbers: Python's datetime ends in the year 9999, Arrow's does not.
            column = column.cast(pa.int64())
        found = pc.min_max(column)
        low, high = found["min"].as_py(), found["max"].as_py()
        if low is not None and low == low and (self._low[index] is None or low < self._low[index]):
            self._low[index] = low
        if high is not None and high == high and (self._high[index] is None or high > self._high[index]):
            self._high[index] = high

    def to_json(self) -> str:
        """The JSON text for `add.stats`."""
        highs = (None if nan else high for nan, high in zip(self._nan, self._high, strict=True))
        return text_of(self._rows, zip(self._leaves, self._low, highs, self._nulls, strict=True))


def _put(into: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    for name in path[:-1]:
        into = into.setdefault(name, {})
    into[path[-1]] = value


def lower_bound(value: Any, kind: str) -> Any:
    """The JSON value of a lowest value (dates as days, times as microseconds since the epoch); None if there is none that holds."""
    match kind:
        case "string" if value is not None:
            return value[:_TEXT_MAX]
        case "timestamp" | "timestamp_ntz" if value is not None:
            return _instant(value // 1000, kind)
    return _plain(value, kind)


def upper_bound(value: Any, kind: str) -> Any:
    """The same of a highest value."""
    match kind:
        case "string" if value is not None:
            return value if len(value) <= _TEXT_MAX else _rounded_up(value[:_TEXT_MAX])
        case "timestamp" | "timestamp_ntz" if value is not None:
            return _instant(-(-value // 1000), kind)
    return _plain(value, kind)


def _plain(value: Any, kind: str) -> Any:
    if value is None:
        return None
    match kind:
        case "float":
            return value if math.isfinite(value) else None
        case "decimal":
            return orjson.Fragment(format(Decimal(value), "f"))
        case "date":
            ordinal = value + _EPOCH_DAY
            return date.fromordinal(ordinal).isoformat() if 1 <= ordinal <= _DAY_MAX else None
        case _:
            return value


def _instant(milliseconds: int, kind: str) -> str | None:
    try:
        moment = _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return None
    return moment.replace(tzinfo=None).isoformat(timespec="milliseconds") + ("Z" if kind == "timestamp" else "")


def _rounded_up(prefix: str) -> str | None:
    """The smallest text of at most that length that is greater than every text with this prefix, by code points."""
    for end in range(len(prefix), 0, -1):
        point = ord(prefix[end - 1])
        if point < _CODE_POINT_MAX:
            following = _SURROGATES.stop if point + 1 in _SURROGATES else point + 1
            return prefix[: end - 1] + chr(following)
    return None
