"""Z-order: rows that are close in several columns at once come close together in the files.

Every column's values become ranks, the ranks are scaled to as many bits as fit, and the bits of all columns are interleaved
into one number, most significant first: rows sorted by it follow a Z-shaped curve through the space of the columns. Ranks
instead of values, so that a skewed column is divided as finely as an even one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from ...storage.errors import InvalidRequest
from ...storage.schema.schema import PrimitiveType, StructType

Z_COLUMNS_MAX: Final = 8
# A scaled rank times the number of rows stays below 64 bits.
_BITS_MAX: Final = 31
_WORD_BITS: Final = 64


def z_columns(names: str | Sequence[str], schema: StructType, partition_columns: Sequence[str]) -> tuple[str, ...]:
    """The columns to order by, as the schema spells them. Raises InvalidRequest for columns without an order."""
    asked = [names] if isinstance(names, str) else list(names)
    if not 0 < len(asked) <= Z_COLUMNS_MAX:
        raise InvalidRequest(f"z_order_by names {len(asked)} columns; name 1 to {Z_COLUMNS_MAX}, or leave it out")
    found: list[str] = []
    for name in asked:
        field = schema.get(name) if isinstance(name, str) else None
        if field is None:
            raise InvalidRequest(f"z_order_by names {name!r}, which is not in the table; its columns are {', '.join(schema.names)}")
        if field.name in partition_columns:
            raise InvalidRequest(
                f"z_order_by names the partition column {field.name!r}: all rows of a file have one value of it; leave it out",
                column=field.name,
            )
        if not isinstance(field.type, PrimitiveType):
            raise InvalidRequest(
                f"z_order_by names {field.name!r} of type {field.type}, whose values have no order; name columns of plain values",
                column=field.name,
            )
        if field.name in found:
            raise InvalidRequest(f"z_order_by names {field.name!r} twice; name it once", column=field.name)
        found.append(field.name)
    return tuple(found)


def z_values(columns: Sequence[pa.Array | pa.ChunkedArray]) -> pa.Array:
    """Each row's place on the curve, as 64-bit numbers; nulls come before all values of a column.

    With one column this is its order, except for ties in the scaled ranks; all columns have one length, below 2**31.
    """
    bits = min(_BITS_MAX, _WORD_BITS // len(columns))
    z: Any = None
    for number, column in enumerate(columns):
        ranks = _scaled_ranks(column, bits)
        for bit in range(bits):
            place = bit * len(columns) + len(columns) - 1 - number
            part = pc.shift_left(pc.bit_wise_and(pc.shift_right(ranks, _word(bit)), _word(1)), _word(place))
            z = part if z is None else pc.bit_wise_or(z, part)
    return z


def z_positions(columns: Sequence[pa.Array | pa.ChunkedArray]) -> pa.Array:
    """For each row its position in the new order, from 0; rows at the same place keep their order."""
    return pc.sort_indices(pc.sort_indices(z_values(columns)))


def _scaled_ranks(column: pa.Array | pa.ChunkedArray, bits: int) -> pa.Array:
    """How many rows have a smaller value, scaled to [0, 2**bits); equal values have equal ranks, nulls have 0."""
    ranks = pc.rank(column, sort_keys="ascending", tiebreaker="min")  # from 1; nulls would be last
    before = pc.add(pc.subtract(ranks, _word(1)), pa.scalar(column.null_count, pa.uint64()))
    before = pc.if_else(_flat(pc.is_null(column)), _word(0), before)
    return pc.divide(pc.shift_left(before, _word(bits)), _word(max(1, len(column))))


def _flat(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    return values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values


def _word(number: int) -> pa.Scalar:
    return pa.scalar(number, pa.uint64())
