from __future__ import annotations

import datetime as dt
import json
import math
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.storage.data.statistics import StatsCollector, read_written_footer
from sluice.storage.schema.schema import PrimitiveType, StructType, from_arrow
from tests.storage.logs import statistics_of
from tests.storage.strategies import schemas, tables, unhurried

UTC = dt.timezone.utc


def stats_of(values: list[Any], dtype: pa.DataType) -> tuple[Any, Any, int]:
    """Least, greatest and null count of one column; None where a bound is left out."""
    table = pa.table({"c": pa.array(values, dtype)})
    found = json.loads(statistics_of(table, from_arrow(table.schema), []), parse_float=Decimal)
    return found["minValues"].get("c"), found["maxValues"].get("c"), found["nullCount"]["c"]


@pytest.mark.parametrize(
    ("values", "dtype", "expected"),
    [
        ([3, None, 1], pa.int8(), (1, 3, 1)),
        ([2**63 - 1, -(2**63)], pa.int64(), (-(2**63), 2**63 - 1, 0)),
        ([None, None], pa.int64(), (None, None, 2)),
        ([True, False, None], pa.bool_(), (None, None, 1)),
        ([b"a"], pa.binary(), (None, None, 0)),
        ([[1], None], pa.list_(pa.int64()), (None, None, 1)),
        (["b", "", None], pa.string(), ("", "b", 1)),
        (["x" * 33], pa.string(), ("x" * 32, "x" * 31 + "y", 0)),
        (["x" * 32], pa.string(), ("x" * 32, "x" * 32, 0)),
        (["x" * 31 + "\U0010ffff" * 2], pa.string(), ("x" * 31 + "\U0010ffff", "x" * 30 + "y", 0)),
        (["\U0010ffff" * 33], pa.string(), ("\U0010ffff" * 32, None, 0)),
        (["\ud7ff" * 33], pa.string(), ("\ud7ff" * 32, "\ud7ff" * 31 + "\ue000", 0)),
        ([dt.date(2020, 1, 2), dt.date(1, 1, 1)], pa.date32(), ("0001-01-01", "2020-01-02", 0)),
        ([10**8], pa.date32(), (None, None, 0)),
        ([Decimal("1.50"), Decimal("-0.01")], pa.decimal128(5, 2), (Decimal("-0.01"), Decimal("1.50"), 0)),
        ([Decimal("9" * 38)], pa.decimal128(38, 0), (int("9" * 38), int("9" * 38), 0)),
        ([Decimal("1E-38")], pa.decimal128(38, 38), (Decimal("1E-38"), Decimal("1E-38"), 0)),
        ([1, 1999], pa.timestamp("us", "UTC"), ("1970-01-01T00:00:00.000Z", "1970-01-01T00:00:00.002Z", 0)),
        ([-1], pa.timestamp("us"), ("1969-12-31T23:59:59.999", "1970-01-01T00:00:00.000", 0)),
        ([2**62], pa.timestamp("us", "UTC"), (None, None, 0)),
        ([1.5, -2.0], pa.float64(), (Decimal("-2.0"), Decimal("1.5"), 0)),
        ([0.1], pa.float32(), (Decimal("0.10000000149011612"), Decimal("0.10000000149011612"), 0)),
        ([math.nan, 1.0], pa.float64(), (Decimal("1.0"), None, 0)),
        ([math.nan], pa.float32(), (None, None, 0)),
        ([math.inf, 1.0], pa.float64(), (Decimal("1.0"), None, 0)),
        ([-math.inf, 1.0], pa.float64(), (None, Decimal("1.0"), 0)),
    ],
)
def test_bounds_and_null_counts(values: list[Any], dtype: pa.DataType, expected: tuple[Any, Any, int]) -> None:
    assert stats_of(values, dtype) == expected


def test_an_upper_bound_beyond_the_year_9999_is_left_out() -> None:
    low, high, _ = stats_of([dt.datetime(9999, 12, 31, 23, 59, 59, 999999, UTC)], pa.timestamp("us", "UTC"))
    assert (low, high) == ("9999-12-31T23:59:59.999Z", None)


def test_nested_columns_are_nested_and_count_the_nulls_of_their_parents() -> None:
    table = pa.table({"s": [{"a": 1, "t": {"b": "x"}}, {"a": None, "t": None}, None]})
    assert json.loads(statistics_of(table, from_arrow(table.schema), [])) == {
        "numRecords": 3,
        "minValues": {"s": {"a": 1, "t": {"b": "x"}}},
        "maxValues": {"s": {"a": 1, "t": {"b": "x"}}},
        "nullCount": {"s": {"a": 2, "t": {"b": 2}}},
    }


@pytest.mark.parametrize(("indexed", "counted"), [(0, {}), (2, {"a": 0, "s": {"x": 0}}), (-1, {"a": 0, "s": {"x": 0, "y": 0}, "l": 0})])
def test_only_the_first_leaves_are_indexed_and_partition_columns_are_none(indexed: int, counted: dict[str, Any]) -> None:
    table = pa.table({"p": [1], "a": [1], "s": [{"x": 1, "y": 2}], "l": [[1]]})
    found = json.loads(statistics_of(table, from_arrow(table.schema), ["p"], indexed))
    assert found["nullCount"] == counted
    assert found["numRecords"] == 1


@unhurried
@given(st.data())
def test_bounds_bound_every_value(data: st.DataObject) -> None:
    schema, partitions = data.draw(schemas())
    pieces = data.draw(st.lists(tables(schema), min_size=1, max_size=2))
    collector = StatsCollector(schema, partitions, -1)
    for piece in pieces:
        collector.update(piece)
    found = json.loads(collector.to_json(), parse_float=Decimal)
    rows = [row for piece in pieces for row in piece.to_pylist()]
    assert found["numRecords"] == len(rows)
    for path, dtype in leaves(schema.without(partitions), ()):
        column = [reach(row, path) for row in rows]
        assert reach(found["nullCount"], path) == sum(value is None for value in column)
        low, high = reach(found["minValues"], path), reach(found["maxValues"], path)
        for value in column:
            if value is not None and (low is not None or high is not None):
                assert low is None or typed(low, dtype) <= ordered(value)
                assert high is None or ordered(value) <= typed(high, dtype)


def test_a_footer_that_counts_no_nulls_has_bounds_nevertheless(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parquet's bounds are those of the values that are not null; the log may have them without a count."""

    def group(low: int, high: int, **count: Any) -> Any:
        bounds = SimpleNamespace(has_min_max=True, min_raw=low, max_raw=high, **count)
        return SimpleNamespace(column=lambda _: SimpleNamespace(num_values=2, statistics=bounds))

    groups = [group(3, 9, has_null_count=True, null_count=1), group(1, 4, has_null_count=False)]
    footer = SimpleNamespace(num_columns=1, num_rows=4, num_row_groups=2, row_group=groups.__getitem__)
    monkeypatch.setattr(pq, "read_metadata", lambda _: footer)
    found = read_written_footer(Path("file"), from_arrow(pa.schema([("c", pa.int64())])), -1)
    assert json.loads(found.stats) == {"numRecords": 4, "minValues": {"c": 1}, "maxValues": {"c": 9}, "nullCount": {}}
    assert found.nulls == {}


def leaves(schema: StructType, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    for each in schema.fields:
        if isinstance(each.type, StructType):
            yield from leaves(each.type, (*path, each.name))
        else:
            yield (*path, each.name), each.type


def reach(value: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        value = None if value is None else value.get(name)
    return value


def ordered(value: Any) -> Any:
    """A value as SQL orders it: text by code points, NaN greatest, floats exactly."""
    if isinstance(value, float):
        return Decimal("Infinity") if math.isnan(value) else Decimal(value)
    return value


def typed(bound: Any, dtype: PrimitiveType) -> Any:
    match dtype.name:
        case "date":
            return dt.date.fromisoformat(bound)
        case "timestamp":
            return dt.datetime.fromisoformat(bound.replace("Z", "+00:00"))
        case "timestamp_ntz":
            return dt.datetime.fromisoformat(bound)
        case "float" | "double":
            return Decimal(float(bound))
        case _:
            return bound
