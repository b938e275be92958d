"""Where the rows of a compacted file went: every row, or some that were deleted meanwhile. What shuffles rows stores it as sets of numbers.

A compaction that keeps the order of rows says it in the log: the n-th live row is row n + something of a new file. One that sorts them into
pieces of new files keeps the order of its sources inside each piece. So two sets say where the n live rows of a source went::

    order    {piece * n + live row}: sorted, the live rows in their new order
    places   {new place}: sorted, the places of these

Rows of one piece are neighbours, so `places` are a few runs, and `order` takes at most about two bytes for each row. Both are written as
deletion vectors are, and read only by who meets a change of the same file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from ..actions.file_removals import Moved, Moves, Shuffled
from ..actions.records import DeletionVector
from ..errors import Corrupt
from .vectors import Rows, positions_of, rows_at

VectorLookup: TypeAlias = Callable[[DeletionVector], Rows]
"""The rows in a deletion vector: immutable content, so a decision that looks them up stays a pure function."""


class Sorting:
    """Rows that are sorted into pieces of `piece_rows` each: says for one source after the other where its live rows go."""

    def __init__(self, piece_rows: int) -> None:
        self._piece_rows = piece_rows
        self._filled: dict[int, int] = {}

    def of(self, pieces: pa.Array) -> tuple[Rows, Rows]:
        """(order, places) of the next source, of whose live rows these are the numbers of pieces (uint64)."""
        count = len(pieces)
        order = rows_at(pc.add(pc.multiply(pieces.cast(pa.int64()), count), pa.array(range(count), pa.int64())))
        places = Rows()
        for run in pc.value_counts(pieces).to_pylist():
            piece, rows = run["values"], run["counts"]
            before = self._filled.get(piece, 0)
            start = piece * self._piece_rows + before
            places.add_range(start, start + rows)
            self._filled[piece] = before + rows
        return order, places


def all_moved(moves: Moves, lookup: VectorLookup) -> dict[str, Rows]:
    """The places of all moved rows, by the file they moved to. Raises Corrupt, MissingObject."""
    positions: dict[str, Rows] = {}
    for move in _ranges(moves, lookup):
        positions.setdefault(move.path, Rows()).add_range(move.offset, move.offset + move.count)
    return positions


def followed(rows: Rows, moves: Moves, base: Rows, lookup: VectorLookup) -> dict[str, Rows]:
    """Where rows of a source (physical positions) moved; `base` are the rows already deleted when it was compacted.

    Raises Corrupt if it moved no such rows, and MissingObject.
    """
    # check: rows-are-followed-by-rank (without - base.rank(row))
    live = [row - base.rank(row) for row in rows]  # their numbers among the live rows
    if isinstance(moves, Shuffled):
        live = _in_new_order(live, lookup(moves.order))
    positions: dict[str, Rows] = {}
    ordered = sorted(_ranges(moves, lookup), key=lambda move: move.first)
    at = 0
    for row in live:
        while at < len(ordered) and row >= ordered[at].first + ordered[at].count:
            at += 1
        if at == len(ordered) or row < ordered[at].first:
            raise Corrupt(f"row {row} did not move", reason="it is in none of the places")
        move = ordered[at]
        positions.setdefault(move.path, Rows()).add(move.offset + row - move.first)
    return positions


def _in_new_order(live: Sequence[int], order: Rows) -> list[int]:
    """The places of live rows in the new order of their source, ascending."""
    count = max(1, len(order))
    numbers = positions_of(order)
    # check: shuffled-rows-are-followed (pc.subtract(numbers, pc.multiply(pc.divide(numbers, count), count)) -> numbers)
    rows = pc.subtract(numbers, pc.multiply(pc.divide(numbers, count), count))
    places = pc.index_in(pa.array(live, pa.int64()), value_set=rows)
    if places.null_count:
        raise Corrupt(f"{places.null_count} rows did not move", reason="they are not in the order")
    return sorted(places.to_pylist())


def _ranges(moves: Moves, lookup: VectorLookup) -> Iterator[Moved]:
    """The moves of neighbours that stay neighbours; of shuffled rows, `first` counts in their new order."""
    if not isinstance(moves, Shuffled):
        yield from moves
        return
    places = positions_of(lookup(moves.places))
    gaps = pc.indices_nonzero(pc.not_equal(pc.subtract(places.slice(1), places.slice(0, len(places) - 1)), 1)).to_pylist()
    for first, end in pairwise([0, *(gap + 1 for gap in gaps), len(places)]):
        while first < end:
            number, offset = divmod(places[first].as_py(), moves.file_rows)
            count = min(end - first, moves.file_rows - offset)
            yield Moved(f"{moves.prefix}{number:03d}{moves.suffix}", first, count, offset)
            first += count
