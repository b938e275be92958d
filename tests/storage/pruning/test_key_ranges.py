"""Ranges that hold the keys of some rows."""

from __future__ import annotations

import datetime as dt
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.storage.pruning.key_ranges import ranges_of

_INT64 = st.integers(-(2**63), 2**63 - 1)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        pytest.param([7], [(7, 7)], id="one value"),
        pytest.param([5, 1, 3, 2, 4], [(1, 5)], id="neighbours in any order"),
        pytest.param([1, 2, 3, 1_000_000, 1_000_001], [(1, 3), (1_000_000, 1_000_001)], id="old keys and new ones"),
        pytest.param([*range(1000), 1010], [(0, 1010)], id="a gap too small to help"),
        pytest.param([-(2**63), 2**63 - 1], [(-(2**63), -(2**63)), (2**63 - 1, 2**63 - 1)], id="whole 64 bits"),
        pytest.param(["a", "z"], [("a", "z")], id="texts have no distances"),
        pytest.param(
            [dt.date(2020, 1, 1), dt.date(2026, 1, 1), dt.date(2026, 1, 2)],
            [(dt.date(2020, 1, 1), dt.date(2020, 1, 1)), (dt.date(2026, 1, 1), dt.date(2026, 1, 2))],
            id="dates",
        ),
    ],
)
def test_ranges_of_values(values: list[Any], expected: list[Any]) -> None:
    found = pa.array(values)
    assert ranges_of(found, found) == expected


def test_the_widest_of_many_gaps_are_left_out() -> None:
    values = pa.array([number * number for number in range(40)])
    found = ranges_of(values, values)
    assert len(found) == 16
    assert found[0] == (0, 24 * 24)  # the gaps grow
    assert found[1:] == [(number * number, number * number) for number in range(25, 40)]


def test_parts_that_overlap_are_one_range() -> None:
    lows, highs = pa.array([0, 50, 100_000, 10]), pa.array([100, 60, 100_005, 70])
    assert ranges_of(lows, highs) == [(0, 100), (100_000, 100_005)]


@given(st.lists(st.tuples(_INT64, _INT64).map(sorted), min_size=1, max_size=60))
def test_each_part_lies_in_one_range_and_ranges_are_apart(parts: list[list[int]]) -> None:
    found = ranges_of(*(pa.array(side, pa.int64()) for side in zip(*parts, strict=True)))
    assert len(found) <= 16
    assert all(before[1] < after[0] for before, after in pairwise(found))
    assert all(any(low <= part[0] and part[1] <= high for low, high in found) for part in parts)
    assert {low for low, _ in found} <= {low for low, _ in parts}
    assert {high for _, high in found} <= {high for _, high in parts}
