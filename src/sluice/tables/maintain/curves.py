"""Curves through the space of several columns: rows that are neighbours on one are close in each column. Pure.

Every column's values become ranks, and the ranks are scaled to as many bits as fit: the coordinates of a cell. The Z-curve takes the bits
of all coordinates in turn, most significant first. The Hilbert curve turns each half of the space before it does so: from one cell to the
next it changes one coordinate by one, where the Z-curve jumps.

Source: J. Skilling, "Programming the Hilbert curve", AIP Conference Proceedings 707 (2004).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

_BITS_MAX: Final = 31
"""A scaled rank times the number of rows stays below 64 bits."""
_WORD_BITS: Final = 64


def places_on_curve(columns: Sequence[pa.Array | pa.ChunkedArray], *, hilbert: bool) -> pa.Array:
    """For each row its place in the order of the curve, from 0; rows of one cell keep their order. Columns are shorter than 2**31."""
    return pc.sort_indices(pc.sort_indices(on_curve(columns, hilbert=hilbert)))


def on_curve(columns: Sequence[pa.Array | pa.ChunkedArray], *, hilbert: bool) -> pa.Array:
    """For each row the place of its cell on the curve."""
    # As many bits as tell all ranks apart, if they fit.
    bits = max(1, min(_BITS_MAX, _WORD_BITS // len(columns), len(columns[0]).bit_length()))
    cells = [_scaled(column, bits) for column in columns]
    return interleaved(turned(cells, bits) if hilbert else cells, bits)


def interleaved(cells: Sequence[pa.Array], bits: int) -> pa.Array:
    """The bits of all coordinates in turn, most significant first, as one number: the place on the Z-curve."""
    z = None
    for number, cell in enumerate(cells):
        for bit in range(bits):
            place = bit * len(cells) + len(cells) - 1 - number
            part = pc.shift_left(pc.bit_wise_and(pc.shift_right(cell, word(bit)), word(1)), word(place))
            z = part if z is None else pc.bit_wise_or(z, part)
    return z


def turned(cells: Sequence[pa.Array], bits: int) -> list[pa.Array]:
    """The coordinates (uint64) whose place on the Z-curve is the cells' place on the Hilbert curve: Skilling's transpose."""
    first, *others = cells
    if not others:
        return [first]
    for bit in range(bits - 1, 0, -1):
        below = word((1 << bit) - 1)
        # Where the bit is set, the lower bits of the first coordinate are inverted, otherwise exchanged with this one's.
        first = pc.bit_wise_xor(first, _where_set(first, bit, below))
        for number, other in enumerate(others):
            inverted = _where_set(other, bit, below)
            exchanged = pc.bit_wise_and(pc.bit_wise_xor(first, other), pc.subtract(below, inverted))
            others[number] = pc.bit_wise_xor(other, exchanged)
            first = pc.bit_wise_xor(first, pc.bit_wise_xor(exchanged, inverted))
    gray = [first]
    for other in others:
        gray.append(pc.bit_wise_xor(gray[-1], other))
    parity, step = pc.shift_right(gray[-1], word(1)), 1  # in each bit, of all higher bits
    while step < bits:
        parity, step = pc.bit_wise_xor(parity, pc.shift_right(parity, word(step))), 2 * step
    return [pc.bit_wise_xor(each, parity) for each in gray]


def _where_set(cell: pa.Array, bit: int, value: pa.Scalar) -> pa.Array:
    return pc.multiply(pc.bit_wise_and(pc.shift_right(cell, word(bit)), word(1)), value)


def _scaled(column: pa.Array | pa.ChunkedArray, bits: int) -> pa.Array:
    """How many rows have a smaller value, scaled to [0, 2**bits); equal values have equal ranks, nulls come before all values."""
    ranks = pc.rank(column, sort_keys="ascending", tiebreaker="min")  # from 1; nulls would be last
    before = pc.add(pc.subtract(ranks, word(1)), word(column.null_count))
    is_null = pc.is_null(column)
    is_null = is_null.combine_chunks() if isinstance(is_null, pa.ChunkedArray) else is_null
    return pc.divide(pc.shift_left(pc.if_else(is_null, word(0), before), word(bits)), word(max(1, len(column))))


def word(number: int) -> pa.Scalar:
    """A number as Arrow's unsigned 64 bits."""
    return pa.scalar(number, pa.uint64())
