"""Ranges that hold the keys of some rows: a few with wide gaps between them, so that files in the gaps are not read.

The usual source of an upsert has old keys and new ones, which lie far apart: one range over both covers the files between them, too.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["ranges_of"]

_RANGES_MAX: Final = 16
# A gap that takes a smaller share of the whole extent is not worth a range of its own.
_GAP_MIN: Final = 1 / 64


def _has_distances(kind: pa.DataType) -> bool:
    """Whether differences of values of a type tell how far apart they lie: integers, dates and timestamps."""
    return bool(pa.types.is_integer(kind) or pa.types.is_date32(kind) or pa.types.is_timestamp(kind))


def ranges_of(lows: pa.Array, highs: pa.Array) -> list[tuple[Any, Any]]:
    """At most 16 ranges, lowest and highest value of each, that cover the given ones, with the widest gaps between them.

    `lows` and `highs` are of one type and length, at least one, without null. Values of a type without distances get one range.
    """
    if not _has_distances(lows.type):
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
