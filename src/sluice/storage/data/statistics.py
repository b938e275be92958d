"""Statistics of a data file as Delta defines them ("Per-file Statistics"), by which readers skip files: from its rows, or its footer.

Bounds hold for every value: text is cut to 32 characters, the largest rounded up; timestamps have milliseconds, the smallest
rounded down and the largest up. A bound that JSON cannot represent, or that would not hold for every reader (the largest of
numbers with NaN), is omitted. Booleans, binary, arrays and maps have a count of nulls only.

Of the footer of any Parquet file only bounds that hold for every value are taken: those of whole numbers, decimals, dates, times in
microseconds and text. (Parquet cuts long text so that bounds still hold, and leaves NaN out of those of floating-point numbers, which
therefore get none.)

A `WrittenFooter` has statistics like those of our own writer, of a file that Spark has just written by our rules. Its writer is known
(parquet-mr, with the table's schema, times in microseconds, no old calendars). So places of columns are known, nested ones, too, and
bounds of floating-point numbers hold: parquet-mr takes NaN for the largest number, and the footer has it as such.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..dataclass import dataclass
from ..errors import InvariantBroken, SchemaMismatch
from ..schema.conform import is_legal
from ..schema.datatypes import ArrayType, DataType, MapType, PrimitiveType, StructField, StructType, from_arrow, kind
from ..stores.objects import ObjectStore
from ..stores.streams import arrow_input

# delta.dataSkippingNumIndexedCols
INDEXED_COLUMNS_DEFAULT: Final = 32
_TEXT_MAX: Final = 32
_CODE_POINT_MAX: Final = 0x10FFFF
_SURROGATES: Final = range(0xD800, 0xE000)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)
_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_DAY_MAX: Final = date.max.toordinal()
_WITHOUT_BOUNDS: Final = frozenset({"boolean", "binary", "variant"})


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
        if (low := _bound(lowest, leaf.kind, upper=False)) is not None:
            _put(lows, leaf.path, low)
        if (high := _bound(highest, leaf.kind, upper=True)) is not None:
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
    """Statistics of a file written in pieces: `update` with each, then `to_json`. `indexed_columns`: delta.dataSkippingNumIndexedCols."""

    __slots__ = ("_high", "_leaves", "_low", "_nan", "_nulls", "_rows")

    def __init__(self, schema: StructType, partition_columns: Iterable[str], indexed_columns: int) -> None:
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
            if leaf.kind is None or nulls == len(column):
                continue
            if leaf.kind == "float":
                self._nan[index] = self._nan[index] or pc.any(pc.is_nan(column)).as_py() is True
            elif leaf.kind == "date":
                column = column.cast(pa.int32())
            elif leaf.kind in ("timestamp", "timestamp_ntz"):
                # As numbers: Python's datetime ends in the year 9999, Arrow's does not.
                column = column.cast(pa.int64())
            bounds = pc.min_max(column)
            low, high = bounds["min"].as_py(), bounds["max"].as_py()
            if low is not None and low == low and (self._low[index] is None or low < self._low[index]):
                self._low[index] = low
            if high is not None and high == high and (self._high[index] is None or high > self._high[index]):
                self._high[index] = high

    def to_json(self) -> str:
        """The JSON text for `add.stats`."""
        highs = [None if nan else high for nan, high in zip(self._nan, self._high, strict=True)]
        return text_of(self._rows, zip(self._leaves, self._low, highs, self._nulls, strict=True))


def _put(into: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    for name in path[:-1]:
        into = into.setdefault(name, {})
    into[path[-1]] = value


def _bound(value: Any, kind: str, *, upper: bool) -> Any:
    """The JSON value of a lowest or highest value: dates are days, times microseconds since the epoch. None if there is none that holds."""
    if value is None:
        return None
    match kind:
        case "string":
            return _rounded_up(value[:_TEXT_MAX]) if upper and len(value) > _TEXT_MAX else value[:_TEXT_MAX]
        case "timestamp" | "timestamp_ntz":
            milliseconds = -(-value // 1000) if upper else value // 1000
            try:
                moment = _EPOCH + timedelta(milliseconds=milliseconds)
            except OverflowError:
                return None
            return moment.replace(tzinfo=None).isoformat(timespec="milliseconds") + ("Z" if kind == "timestamp" else "")
        case "float":
            return value if math.isfinite(value) else None
        case "decimal":
            return orjson.Fragment(format(Decimal(value), "f"))
        case "date":
            ordinal = value + _EPOCH_DAY
            return date.fromordinal(ordinal).isoformat() if 1 <= ordinal <= _DAY_MAX else None
    return value


def _rounded_up(prefix: str) -> str | None:
    """The smallest text of at most that length that is greater than every text with this prefix, by code points."""
    for end in range(len(prefix), 0, -1):
        if (point := ord(prefix[end - 1])) < _CODE_POINT_MAX:
            return prefix[: end - 1] + chr(_SURROGATES.stop if point + 1 in _SURROGATES else point + 1)
    return None


_UNKNOWN: Final = (None, None, None)
_BOUNDED: Final = frozenset({"integer", "decimal", "date", "string", "timestamp", "timestamp_ntz"})


@dataclass(frozen=True, slots=True)
class Footer:
    """The footer of a data file: its number of rows, its columns (all nullable), and for top-level columns (lowest, highest, nulls).

    `columns` has only what the footer knows of every row group.
    """

    rows: int
    schema: StructType
    columns: Mapping[str, tuple[Any, Any, int | None]]
    nanoseconds: tuple[str, ...] = ()
    """The columns with times in nanoseconds that are no INT96, which Spark does not read."""

    def statistics(self, schema: StructType, partition_columns: Sequence[str], indexed_columns: int) -> str:
        """The JSON text of `add.stats`, for the first `indexed_columns` columns of the table (-1: all)."""
        known: list[tuple[Leaf, Any, Any, int | None]] = []
        listed = schema.without(partition_columns).fields
        for each in listed if indexed_columns < 0 else listed[:indexed_columns]:
            own = self.schema.get(each.name)
            low, high, count = self.columns.get(own.name, (None, None, None)) if own is not None else (None, None, self.rows)
            same = own is not None and own.type == each.type
            if not isinstance(each.type, StructType):
                bounds = kind(each.type) if same and isinstance(each.type, PrimitiveType) else None
                known.append((Leaf((each.name,), bounds), low, high, count))
        return text_of(self.rows, known)


def read_footer(store: ObjectStore, key: str) -> Footer:
    """The footer of a Parquet file. Raises ObjectNotFound, SchemaMismatch if it is no Parquet file or has types that Delta lacks."""
    try:
        with arrow_input(store.open_input(key)) as source:
            file = pq.ParquetFile(source)
            found, arrow = file.metadata, file.schema_arrow
    except pa.ArrowException as cause:
        raise SchemaMismatch(f"{key!r} cannot be read as a Parquet file: {cause}", key=key) from cause
    instants = {column.path for column in (found.schema.column(n) for n in range(found.num_columns)) if column.physical_type == "INT96"}
    try:
        fields = from_arrow(arrow.remove_metadata()).fields
    except SchemaMismatch as unfit:
        raise SchemaMismatch(f"{key!r}: {unfit.message}", key=key, **unfit.details) from unfit
    if nested := sorted(path for path in instants if path not in arrow.names):
        raise SchemaMismatch(
            f"{key!r}: {nested[0]!r} is a nested INT96 timestamp, which sluice does not convert", key=key, column=nested[0]
        )
    columns = [StructField(f.name, PrimitiveType("timestamp") if f.name in instants else _nullable(f.type)) for f in fields]
    finer = tuple(each.name for each in arrow if "[ns" in str(each.type) and each.name not in instants)
    return Footer(found.num_rows, StructType(columns), dict(_columns(found, StructType(columns), instants)), finer)


def _nullable(dtype: DataType) -> DataType:
    match dtype:
        case StructType():
            return StructType([StructField(each.name, _nullable(each.type)) for each in dtype.fields])
        case ArrayType(element, _):
            return ArrayType(_nullable(element), True)
        case MapType(key, value, _):
            return MapType(_nullable(key), _nullable(value), True)
    return dtype


def _columns(found: pq.FileMetaData, schema: StructType, instants: Iterable[str]) -> Iterator[tuple[str, tuple[Any, Any, int | None]]]:
    places = {found.schema.column(number).path: number for number in range(found.num_columns)}
    for each in schema.fields:
        place = places.get(each.name)
        if place is not None and isinstance(each.type, PrimitiveType) and each.name not in instants:
            low, high, nulls = _statistics_of(found, place, each.type, raw=False)
            yield each.name, (low, high, nulls) if kind(each.type) in _BOUNDED else (None, None, nulls)


@dataclass(frozen=True, slots=True)
class WrittenFooter:
    """The number of rows, the text of `add.stats`, the number of nulls by top-level column of a primitive type, and the columns with
    values beyond the limits of `schema.conform`, as paths.
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


def read_written_footer(path: Path, stored: StructType, indexed_columns: int) -> WrittenFooter:
    """The footer of a file whose columns are exactly those of `stored`. Raises InvariantBroken if they are not."""
    footer = pq.read_metadata(path)
    places = _places(stored)
    if footer.num_columns != len(places):
        raise InvariantBroken(f"{path} has {footer.num_columns} columns, and was to have the {len(places)} of {stored}")
    by_column = {place: _statistics_of(footer, number, place.type, raw=True) for number, place in enumerate(places)}
    direct = {place.path: each for place, each in by_column.items() if place.direct}
    bounds: list[tuple[Leaf, Any, Any, int | None]] = []
    for leaf in leaves(stored, (), indexed_columns):
        low, high, count = direct.get(leaf.path, _UNKNOWN)
        bounds.append((leaf, low, None if _is_nan(high) else high, count))
    nulls = {path[0]: count for path, (_, _, count) in direct.items() if len(path) == 1 and count is not None}
    odd = [
        place.path
        for place, (low, high, _) in by_column.items()
        if any(bound is not None and not is_legal(bound, place.type) for bound in (low, high))
    ]
    return WrittenFooter(footer.num_rows, text_of(footer.num_rows, bounds), nulls, tuple(".".join(path) for path in odd))


@lru_cache(maxsize=256)
def _places(stored: StructType) -> tuple[_Place, ...]:
    return tuple(place for each in stored.fields for place in _inside(each.type, (each.name,), direct=True))


def _inside(dtype: DataType, path: tuple[str, ...], *, direct: bool) -> Iterator[_Place]:
    match dtype:
        case PrimitiveType("variant"):
            # `value` is null where the variant is
            yield _Place(path, dtype, direct)
            yield _Place((*path, "metadata"), dtype, direct)
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


def _statistics_of(footer: pq.FileMetaData, number: int, dtype: PrimitiveType, *, raw: bool) -> tuple[Any, Any, int | None]:
    """The bounds and nulls of a column over all row groups; nulls are None if one does not say it, bounds are None if none holds.

    `raw` takes bounds as the file has them, else as Arrow converts them.
    """
    nulls: int | None = 0
    bounds: list[Any] | None = []
    for group in range(footer.num_row_groups):
        chunk = footer.row_group(group).column(number)
        statistics = chunk.statistics
        count = None if statistics is None or not statistics.has_null_count else statistics.null_count
        nulls = None if nulls is None or count is None else nulls + count
        if count == chunk.num_values:
            continue
        if statistics is None or not statistics.has_min_max:
            bounds = None
        elif bounds is not None:
            try:
                ends = (statistics.min_raw, statistics.max_raw) if raw else (statistics.min, statistics.max)
                bounds += [_value(end, dtype) for end in ends]
            except (ValueError, OverflowError):  # Python's dates end in the year 9999, and have no nanoseconds
                bounds = None
    if not bounds or any(value is None for value in bounds):
        return None, None, nulls
    numbers = [value for value in bounds if not _is_nan(value)]
    return min(numbers, default=None), max(numbers) if len(numbers) == len(bounds) else math.nan, nulls


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _value(value: Any, dtype: PrimitiveType) -> Any:
    """A bound as statistics of rows have it: dates in days, times in microseconds; None for text that is cut amid a character."""
    match value:
        case datetime():
            moment = value if value.tzinfo is not None else value.replace(tzinfo=timezone.utc)
            return (moment - _EPOCH) // timedelta(microseconds=1)
        case date():
            return value.toordinal() - _EPOCH_DAY
        case int() | bytes() if kind(dtype) == "decimal":
            unscaled = int.from_bytes(value, "big", signed=True) if isinstance(value, bytes) else value
            return Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -dtype.scale))
        case bytes() if kind(dtype) == "string":
            try:
                return value.decode()
            except UnicodeDecodeError:
                return None
    return value
