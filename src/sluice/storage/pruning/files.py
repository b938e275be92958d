"""What the log says about files, as Arrow columns: their partition values, and the bounds and counts of their statistics.

A missing or unreliable bound is null. Timestamps are in milliseconds, truncated by some writers: their bounds are moved apart by one.
Floats are the shortest decimal text of 32 or of 64 bits: they are read at their own width, and a double's so that they hold for the nearest
float, too, which a file from before the column was widened has. Some writers convert decimals to doubles: a
bound of more than 15 digits is not trusted. The facts about one file never depend on the others.
"""

from __future__ import annotations

import re
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from itertools import compress, pairwise
from typing import Any, Final, TypeAlias

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from ..actions import AddFile
from ..caches import LazyProperty
from ..expressions.nodes import Column
from ..schema.partitions import decode_column, partition_texts
from ..schema.schema import PrimitiveType

__all__ = ["HIGH", "LOW", "NULLS", "RECORDS", "VALUES", "AddedFiles", "Files", "bound_type", "ranges_of"]

_Path: TypeAlias = tuple[str, ...]

# A table's column among the columns of files, under the log's names.
VALUES: Final = "partitionValues"
LOW: Final = "minValues"
HIGH: Final = "maxValues"
NULLS: Final = "nullCount"
RECORDS: Final = Column(("numRecords",), pa.int64())

_BLOCK_BYTES: Final = 16 << 20
_FEW: Final = 256
"""Up to this number, texts are parsed one by one faster than with Arrow's reader."""
_KEPT_BYTES_MAX: Final = 64 << 20
"""Beyond this size the columns made before are forgotten."""
_DOUBLE_DIGITS: Final = 15
_USUAL: Final = {pa.string().id: str, pa.int64().id: int, pa.float64().id: float}
"""The JSON values that Arrow takes as they are, by the id of the Arrow type."""
_MILLISECOND: Final = pa.scalar(1000, pa.duration("us"))
_NUMBER: Final = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?", re.ASCII)


class Files:
    """Some files. A column is made on first use, and kept. Threads may share it."""

    __slots__ = ("_columns", "_stats", "_values", "rows")

    def __init__(self, values: pa.ChunkedArray | Sequence[Mapping[str, str | None]], stats: pa.ChunkedArray | Sequence[str | None]) -> None:
        """`values` and `stats` are `add.partitionValues` and `add.stats`."""
        self._values: Any = values
        self._stats: Any = stats
        self._columns: dict[Column, pa.Array] = {}
        self.rows = len(stats)

    @staticmethod
    def of_table(files: pa.Table) -> Files:
        """The files of a snapshot; the same object for the same table of files, as long as that is in use."""
        key = id(files)
        shared = _of_tables.get(key)
        if shared is not None and shared[0]() is files:
            return shared[1]
        made = Files(files["partition_values"], files["stats"])
        _of_tables[key] = weakref.ref(files, lambda _: _of_tables.pop(key, None)), made
        return made

    @staticmethod
    def of_adds(adds: Sequence[AddFile]) -> Files:
        """The files that a commit added."""
        return Files([add.partition_values for add in adds], [add.stats for add in adds])

    @staticmethod
    def of_columns(rows: int, columns: Mapping[_Path, pa.Array]) -> Files:
        """Files about which only these columns are known."""
        files = Files([{}] * rows, [None] * rows)
        files._columns.update({Column(path, values.type): values for path, values in columns.items()})
        return files

    def slice(self, first: int, count: int) -> Files:
        """Some of the files, in order."""
        end = first + count
        if isinstance(self._stats, pa.ChunkedArray):
            return Files(self._values.slice(first, count), self._stats.slice(first, count))
        return Files(self._values[first:end], self._stats[first:end])

    def filter(self, mask: pa.BooleanArray) -> Files:
        """The files for which `mask` is true."""
        if isinstance(self._stats, pa.ChunkedArray):
            return Files(self._values.filter(mask), self._stats.filter(mask))
        kept = mask.to_pylist()
        return Files(list(compress(self._values, kept)), list(compress(self._stats, kept)))

    def columns(self, wanted: Sequence[Column], partitions: Mapping[str, PrimitiveType]) -> Callable[[Column], pa.Array]:
        """A function that returns each of the columns `wanted`; `partitions` are the table's partition columns. It raises Corrupt if a
        partition value is not of its type. For many files, all wanted columns are read at once.
        """
        known, parsed = self._columns, dict[_Path, list[Any]]()

        def column(node: Column) -> pa.Array:
            if (array := known.get(node)) is not None:
                return array
            of_partition = node.path[0] == VALUES
            some: Sequence[Column] = (node,)
            if self.rows > _FEW:
                some = [each for each in wanted if (each.path[0] == VALUES) is of_partition and each not in known]
            fresh = self._partition_values(some, partitions) if of_partition else self._statistics(some, parsed)
            if sum([each.nbytes for each in (*known.values(), *fresh.values())]) > _KEPT_BYTES_MAX:
                known.clear()
            known.update(fresh)
            return fresh[node]

        return column

    def extent(self, column: Column) -> tuple[Any, Any] | None:
        """The lowest and the highest value that rows may have in a column (no partition column); None unless all files tell it."""
        sides = [Column((side, *column.path), column.type) for side in (LOW, HIGH)]
        lows, highs = map(self.columns(sides, {}), sides)
        return None if not self.rows or lows.null_count or highs.null_count else (pc.min(lows).as_py(), pc.max(highs).as_py())

    def _partition_values(self, wanted: Sequence[Column], partitions: Mapping[str, PrimitiveType]) -> dict[Column, pa.Array]:
        names = [each.path[1] for each in wanted]
        if isinstance(self._values, pa.ChunkedArray):
            texts = partition_texts(self._values, names)
        else:
            texts = [pa.array([values.get(name) for values in self._values], pa.string()) for name in names]
        return {each: decode_column(of, partitions[name]) for each, of, name in zip(wanted, texts, names, strict=True)}

    def _statistics(self, wanted: Sequence[Column], parsed: dict[_Path, list[Any]]) -> dict[Column, pa.Array]:
        """Bounds and counts from `add.stats`; `parsed` caches intermediate results."""
        read = {each.path: bound_type(each.type) if each.path[0] in (LOW, HIGH) else each.type for each in wanted}
        values = _at_once(self._stats, read) if self.rows > _FEW else None
        if values is None:
            if not parsed:
                parsed[()] = list(map(_body, self._stats.to_pylist() if isinstance(self._stats, pa.ChunkedArray) else self._stats))
            values = {path: _array(_leaves(parsed, path), kind) for path, kind in read.items()}
        return {
            each: _bound(values[each.path], each.path[0], each.type) if each.path[0] in (LOW, HIGH) else values[each.path]
            for each in wanted
        }


_of_tables: Final[dict[int, tuple[weakref.ref[pa.Table], Files]]] = {}


class AddedFiles(tuple[AddFile, ...]):  # noqa: SLOT001 - it keeps its columns
    """The files that a commit added, with their columns: many transactions are compared with the same commit."""

    @LazyProperty
    def files(self) -> Files:
        """The same files, in the skipper's form."""
        return Files.of_adds(self)


def bound_type(kind: pa.DataType) -> pa.DataType | None:
    """The type for reading a bound of such values from JSON; None for types without bounds."""
    if pa.types.is_integer(kind):
        return pa.int64()
    if pa.types.is_floating(kind):
        return pa.float64()
    if pa.types.is_decimal(kind):
        return pa.decimal128(38, kind.scale)
    if pa.types.is_boolean(kind):
        return kind
    return pa.string() if pa.types.is_string(kind) or pa.types.is_date(kind) or pa.types.is_timestamp(kind) else None


def _bound(values: pa.Array, side: str, kind: pa.DataType) -> pa.Array:
    """The bounds as values of the column's type; null for invalid ones."""
    try:
        if pa.types.is_floating(kind):
            single = values.cast(pa.float32(), safe=False).cast(pa.float64())
            outer = (pc.min_element_wise if side == LOW else pc.max_element_wise)(values, pc.if_else(pc.is_finite(single), single, values))
            # check: floats-under-a-double (outer -> values)
            return outer if pa.types.is_float64(kind) else single.cast(kind)
        if pa.types.is_decimal(kind):
            limit = pa.scalar(Decimal(10**_DOUBLE_DIGITS - 1).scaleb(-kind.scale), values.type)
            return pc.if_else(pc.less_equal(pc.abs(values), limit), values, pa.scalar(None, values.type)).cast(kind)
        if not pa.types.is_timestamp(kind):
            return values if values.type == kind else values.cast(kind)
        moments = (pc.replace_substring_regex(values, "Z$", "") if kind.tz is None else values).cast(kind)
        return pc.subtract_checked(moments, _MILLISECOND) if side == LOW else pc.add_checked(moments, _MILLISECOND)
    except pa.ArrowInvalid:
        if len(values) == 1:
            return pa.nulls(1, kind)
    half = len(values) // 2
    return pa.concat_arrays([_bound(part, side, kind) for part in (values.slice(0, half), values.slice(half))])


def _body(text: str | None) -> Any:
    """The JSON of one file; as for many at once, it must begin with its brace and be on one line."""
    if text is None or not text.startswith("{") or "\n" in text:
        return None
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return None


def _leaves(inner: dict[_Path, list[Any]], path: _Path) -> list[Any]:
    """The JSON value of each file at a path of nested objects, None if missing; `inner` caches intermediate results."""
    if path not in inner:
        inner[path] = [outer.get(path[-1]) if type(outer) is dict else None for outer in _leaves(inner, path[:-1])]
    return inner[path]


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    """The values; null for those not of the type."""
    if {_USUAL.get(kind.id), type(None)}.issuperset(map(type, values)):
        with suppress(OverflowError):  # for a number beyond 64 bits
            return pa.array(values, kind)
    return pa.array([_fitting(value, kind) for value in values], kind)


def _fitting(value: Any, kind: pa.DataType) -> Any:
    if pa.types.is_string(kind):
        return value if type(value) is str else None
    if pa.types.is_int64(kind):
        return value if type(value) is int and -(2**63) <= value < 2**63 else None
    if pa.types.is_boolean(kind):
        return value if type(value) is bool else None
    if pa.types.is_floating(kind):
        return float(value) if type(value) in (int, float) else None
    # A decimal: up to 15 digits, a double's shortest text is its original text; longer ones are not trusted.
    if type(value) not in (int, float) and (type(value) is not str or not _NUMBER.fullmatch(value)):
        return None
    number = Decimal(repr(value)) if type(value) is float else Decimal(value)
    unscaled = number.scaleb(kind.scale)
    return number if unscaled == unscaled.to_integral_value() and abs(unscaled) < 10**_DOUBLE_DIGITS else None


def _at_once(texts: pa.ChunkedArray | Sequence[str | None], leaves: Mapping[_Path, pa.DataType]) -> dict[_Path, pa.Array] | None:
    """The values of very many texts at these paths; None if one of them does not have these types."""
    lines = (texts if isinstance(texts, pa.ChunkedArray) else pa.chunked_array([pa.array(texts, pa.string())])).cast(pa.large_string())
    fine = pc.and_(pc.starts_with(lines, "{"), pc.invert(pc.match_substring(lines, "\n")))
    lines = pc.if_else(pc.fill_null(fine, False), lines, pa.scalar("{}", pa.large_string()))
    joined = pc.binary_join_element_wise(lines, pa.scalar("", pa.large_string()), pa.scalar("\n", pa.large_string())).combine_chunks()
    # The concatenated text of all rows, without a copy.
    _, offsets, data = joined.buffers()
    bounds = pa.Array.from_buffers(pa.int64(), len(joined) + 1, [None, offsets], offset=joined.offset)
    text = data.slice(bounds[0].as_py(), bounds[-1].as_py() - bounds[0].as_py())
    options = pj.ParseOptions(explicit_schema=pa.schema(list(_struct(leaves))), unexpected_field_behavior="ignore")
    try:
        table = pj.read_json(pa.BufferReader(text), pj.ReadOptions(block_size=_BLOCK_BYTES), options)
    except pa.ArrowInvalid:
        return None
    if table.num_rows != len(texts):
        return None
    values: dict[_Path, pa.Array] = {}
    for path in leaves:
        top = table[path[0]].combine_chunks()
        values[path] = pc.struct_field(top, list(path[1:])) if path[1:] else top
    return values


def _struct(leaves: Mapping[_Path, pa.DataType]) -> pa.DataType:
    nested: dict[str, dict[_Path, pa.DataType]] = {}
    for path, kind in leaves.items():
        nested.setdefault(path[0], {})[path[1:]] = kind
    return pa.struct([(name, inner[()] if () in inner else _struct(inner)) for name, inner in nested.items()])


# -- ranges of keys --------------------------------------------------------------------------------------------------------

_RANGES_MAX: Final = 16
# A gap that takes a smaller share of the whole extent is not worth a range of its own.
_GAP_MIN: Final = 1 / 64


def ranges_of(lows: pa.Array, highs: pa.Array) -> list[tuple[Any, Any]]:
    """At most 16 ranges, lowest and highest value of each, that cover the given ones, with the widest gaps between them.

    So files in the gaps are not read. The usual source of an upsert has old keys and new ones, which lie far apart: one range over both
    covers the files between them, too.

    `lows` and `highs` are of one type and length, at least one, without null. Values of a type without distances get one range.
    """
    if not (pa.types.is_integer(lows.type) or pa.types.is_date32(lows.type) or pa.types.is_timestamp(lows.type)):
        return [(pc.min(lows).as_py(), pc.max(highs).as_py())]
    order = pc.sort_indices(lows)
    lows, highs = lows.take(order), highs.take(order)
    tops = pc.cumulative_max(_numbers(highs))
    # of numbers with fractions, because the whole extent of 64-bit integers is no 64-bit integer
    starts, ends = (each.cast(pa.float64(), safe=False) for each in (_numbers(lows), tops))
    gaps = pc.subtract(starts[1:], ends[:-1])
    wide = pc.greater_equal(gaps, (ends[-1].as_py() - starts[0].as_py()) * _GAP_MIN)
    found = pc.indices_nonzero(pc.and_(wide, pc.greater(gaps, 1.0)))
    widest = found.take(pc.sort_indices(pc.negate(gaps.take(found)))[: _RANGES_MAX - 1])
    edges = [0, *(place + 1 for place in sorted(widest.to_pylist())), len(lows)]
    return [(lows[begin].as_py(), pc.max(highs[begin:end]).as_py()) for begin, end in pairwise(edges)]


def _numbers(values: pa.Array) -> pa.Array:
    return (values.cast(pa.int32()) if pa.types.is_date32(values.type) else values).cast(pa.int64())
