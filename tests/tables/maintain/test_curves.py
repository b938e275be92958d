"""The curves along which rows are ordered: against the book, one bit at a time, and by what makes a Hilbert curve one."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.tables.maintain.curves import interleaved, on_curve, places_on_curve, turned


def naive_z(columns: Sequence[Sequence[int | None]]) -> list[int]:
    """The Z-curve by the book, a row and a bit at a time."""
    total = len(columns[0])
    bits = min(31, 64 // len(columns), total.bit_length())
    found = []
    for row in range(total):
        z = 0
        ranks = []
        for column in columns:
            mine = column[row]
            before = 0 if mine is None else sum(other is None or other < mine for other in column)
            ranks.append((before << bits) // total)
        for bit in reversed(range(bits)):
            for rank in ranks:
                z = z << 1 | rank >> bit & 1
        found.append(z)
    return found


@given(st.integers(1, 8).flatmap(lambda n: st.lists(st.tuples(*[st.none() | st.integers(-5, 5)] * n), min_size=1, max_size=30)))
def test_z_values_interleave_the_bits_of_scaled_ranks(rows: list[tuple[int | None, ...]]) -> None:
    columns = list(zip(*rows, strict=True))
    assert on_curve([pa.array(column, pa.int64()) for column in columns], hilbert=False).to_pylist() == naive_z(columns)


GRID = [(x, y) for x in range(4) for y in range(4)]


@pytest.mark.parametrize(
    ("hilbert", "walk"),
    [
        (False, [(0, 0), (0, 1), (1, 0), (1, 1), (0, 2), (0, 3), (1, 2), (1, 3)]),
        (True, [(0, 0), (1, 0), (1, 1), (0, 1), (0, 2), (0, 3), (1, 3), (1, 2)]),
    ],
)
def test_a_grid_is_walked_along_the_curve(hilbert: bool, walk: list[tuple[int, int]]) -> None:
    places = places_on_curve([pa.array([x for x, _ in GRID]), pa.array([y for _, y in GRID])], hilbert=hilbert).to_pylist()
    walked = [cell for _, cell in sorted(zip(places, GRID, strict=True))]
    assert walked[:8] == walk


@pytest.mark.parametrize(("dimensions", "bits"), [(1, 6), (2, 1), (2, 2), (2, 5), (3, 1), (3, 3), (4, 1), (4, 2), (4, 3)])
def test_a_hilbert_curve_visits_every_cell_once_and_steps_to_a_neighbour(dimensions: int, bits: int) -> None:
    cells = list(itertools.product(range(1 << bits), repeat=dimensions))
    columns = [pa.array(axis, pa.uint64()) for axis in zip(*cells, strict=True)]
    places = interleaved(turned(columns, bits), bits).to_pylist()
    assert sorted(places) == list(range(len(cells)))
    walk = [cell for _, cell in sorted(zip(places, cells, strict=True))]
    assert walk[0] == (0,) * dimensions
    assert all(sum(abs(a - b) for a, b in zip(one, next_one, strict=True)) == 1 for one, next_one in itertools.pairwise(walk))


@pytest.mark.parametrize("hilbert", [False, True])
@pytest.mark.parametrize(
    "values",
    [
        [None, False, True],
        [None, "", "a", "é", "𝄞"],
        [None, b"", b"\x00", b"\xff"],
        [None, Decimal("-2.50"), Decimal("1.00")],
        [None, date(1900, 1, 1), date(2026, 1, 1)],
        [None, datetime(1969, 1, 1, tzinfo=timezone.utc), datetime(2026, 1, 1, tzinfo=timezone.utc)],
        [None, float("-inf"), -1.5, 0.0, float("inf")],
        [None, -(2**63), 2**63 - 1],
    ],
    ids=lambda values: type(values[1]).__name__,
)
def test_every_type_that_has_an_order_is_ordered_nulls_first(values: list[Any], hilbert: bool) -> None:
    turned_round = pa.chunked_array([pa.array([each], pa.array(values).type) for each in reversed(values)])
    assert places_on_curve([turned_round], hilbert=hilbert).to_pylist() == list(reversed(range(len(values))))


def test_rows_at_one_place_keep_their_order() -> None:
    assert places_on_curve([pa.array([7, 7, None, 7, None])], hilbert=True).to_pylist() == [2, 3, 0, 4, 1]
