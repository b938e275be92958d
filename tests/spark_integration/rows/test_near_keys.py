"""Which bounds of a merge's keys become a condition on the scan of the table."""

from __future__ import annotations

from datetime import date
from typing import Any, cast

import pyarrow as pa
import pytest

from sluice.spark_integration.rows.source import CachedSource, FileStatistics, key_range_filter
from sluice.storage.schema.datatypes import PrimitiveType, StructField, StructType

MANY = 40_000_000
SCHEMA = StructType(tuple(StructField(name, PrimitiveType(kind)) for name, kind in (("id", "long"), ("day", "date"), ("name", "string"))))


def cached(name: str, low: Any, high: Any) -> CachedSource:
    nothing = cast("Any", None)
    return CachedSource(nothing, nothing, 2, [(name, pa.array([low]), pa.array([high]))])


@pytest.mark.parametrize(
    ("rows", "low", "high", "condition"),
    [
        (MANY, 0, 1000, None),  # no row is outside
        (MANY, -5, 2000, None),
        (MANY, 100, 1000, None),  # a tenth is
        (MANY, 500, 1000, "id >= 500"),
        (MANY, 0, 500, "id <= 500"),
        (MANY, 400, 600, "id >= 400 AND id <= 600"),
        (MANY, 100, 500, "id <= 500"),
        (MANY, 5000, 6000, "id >= 5000"),
        (MANY // 10, 990, 1000, None),  # so few rows are read faster than the condition is compiled
        (None, 990, 1000, "id >= 990"),  # nobody knows how many they are
    ],
)
def test_bounds_that_exclude_many_rows_are_a_condition(rows: int | None, low: int, high: int, condition: str | None) -> None:
    assert key_range_filter(cached("id", low, high), FileStatistics(rows, {"id": (0, 1000)}), SCHEMA) == condition


def test_bounds_are_a_condition_where_statistics_lack() -> None:
    assert key_range_filter(cached("id", 0, 1000), FileStatistics(MANY, {}), SCHEMA) == "id >= 0 AND id <= 1000"


def test_dates_are_counted_as_numbers_are() -> None:
    held = FileStatistics(MANY, {"day": (date(2020, 1, 1), date(2024, 1, 1))})
    assert key_range_filter(cached("day", date(2023, 1, 1), date(2024, 1, 1)), held, SCHEMA) == "day >= DATE '2023-01-01'"
    assert key_range_filter(cached("day", date(2020, 3, 1), date(2024, 1, 1)), held, SCHEMA) is None


def test_texts_are_not_counted_but_compared() -> None:
    held = FileStatistics(MANY, {"name": ("b", "y")})
    assert key_range_filter(cached("name", "a", "z"), held, SCHEMA) is None
    assert key_range_filter(cached("name", "c", "z"), held, SCHEMA) == "name >= 'c'"


def test_files_of_one_value_are_read_whole_or_not_at_all() -> None:
    assert key_range_filter(cached("id", 7, 7), FileStatistics(MANY, {"id": (7, 7)}), SCHEMA) is None
    assert key_range_filter(cached("id", 8, 9), FileStatistics(MANY, {"id": (7, 7)}), SCHEMA) == "id >= 8"
