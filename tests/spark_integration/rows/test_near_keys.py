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


NUMBERS = {"id": (0, 1000)}
DAYS = {"day": (date(2020, 1, 1), date(2024, 1, 1))}
TEXTS = {"name": ("b", "y")}
ONE_VALUE = {"id": (7, 7)}


@pytest.mark.parametrize(
    ("rows", "extents", "low", "high", "condition"),
    [
        (MANY, NUMBERS, 0, 1000, None),  # no row is outside
        (MANY, NUMBERS, -5, 2000, None),
        (MANY, NUMBERS, 100, 1000, None),  # a tenth is
        (MANY, NUMBERS, 500, 1000, "id >= 500"),
        (MANY, NUMBERS, 0, 500, "id <= 500"),
        (MANY, NUMBERS, 400, 600, "id >= 400 AND id <= 600"),
        (MANY, NUMBERS, 100, 500, "id <= 500"),
        (MANY, NUMBERS, 5000, 6000, "id >= 5000"),
        (MANY // 10, NUMBERS, 990, 1000, None),  # so few rows are read faster than the condition is compiled
        (None, NUMBERS, 990, 1000, "id >= 990"),  # nobody knows how many they are
        (MANY, {"id": None}, 0, 1000, "id >= 0 AND id <= 1000"),  # statistics lack
        (MANY, DAYS, date(2023, 1, 1), date(2024, 1, 1), "day >= DATE '2023-01-01'"),  # counted as numbers are
        (MANY, DAYS, date(2020, 3, 1), date(2024, 1, 1), None),
        (MANY, TEXTS, "a", "z", None),  # not counted, but compared
        (MANY, TEXTS, "c", "z", "name >= 'c'"),
        (MANY, ONE_VALUE, 7, 7, None),  # read whole or not at all
        (MANY, ONE_VALUE, 8, 9, "id >= 8"),
    ],
)
def test_bounds_that_exclude_many_rows_are_a_condition(
    rows: int | None, extents: dict[str, Any], low: Any, high: Any, condition: str | None
) -> None:
    [name] = extents
    held = FileStatistics(rows, {column: extent for column, extent in extents.items() if extent is not None})
    assert key_range_filter(cached(name, low, high), held, SCHEMA) == condition
