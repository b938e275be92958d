"""Two leases meet where some partition could satisfy both conditions: compared with trying values."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from itertools import combinations_with_replacement

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.coordinator.leases.scopes import overlap, scopes_meet
from sluice.storage.pruning.predicate import Predicate
from sluice.storage.schema.schema import PrimitiveType, StructField, StructType

from ...storage import conditions
from ...storage.conditions import SCHEMA, Condition, Row
from ...storage.strategies import examples

X = StructType([StructField("x", PrimitiveType("decimal(3,1)"))])
HALVES: Sequence[Decimal | None] = (None, *(Decimal(n) / 2 for n in range(-2, 20)))


@pytest.mark.slow
@examples(200)
@given(conditions.condition(), conditions.condition(), st.lists(conditions.row(), min_size=1, max_size=6))
def test_conditions_that_hold_for_the_same_row_overlap(one: Condition, other: Condition, rows: list[Row]) -> None:
    meets = overlap(Predicate.parse(one.sql, SCHEMA).root, Predicate.parse(other.sql, SCHEMA).root, SCHEMA)
    assert meets or not any(one.holds(row) and other.holds(row) for row in rows)


def _holds(sql: str) -> frozenset[Decimal | None]:
    mask = Predicate.parse(sql, X).mask(pa.table({"x": pa.array(HALVES, pa.decimal128(3, 1))})).to_pylist()
    return frozenset(value for value, found in zip(HALVES, mask, strict=True) if found)


SIMPLE = [
    *(f"x {op} {bound}" for op in ("=", "<>", "<", "<=", ">", ">=") for bound in (1, 3)),
    *("x BETWEEN 1 AND 3", "x > 1 AND x < 3", "x >= 3 AND x < 5", "x NOT IN (1, 3)", "x IN (1, 3)", "x IN (2, 5, NULL)", "x IS NULL"),
    *("x IS NOT NULL", "x <=> 1", "x <=> NULL", "NOT (x <=> 1)", "x = 1 OR x = 5", "x < 1 OR x > 5", "x = 2 OR x IS NULL", "TRUE", "FALSE"),
    *("x = 1 AND x = 3", "(x = 1 OR x = 2) AND x >= 2", "NOT (x < 1 OR x > 3)", "x = NULL", "3 > x", "x + 0 = 3"),
]
UNDECIDED = {"x + 0 = 3"}


@pytest.mark.parametrize(("one", "other"), [*combinations_with_replacement(SIMPLE, 2)])
def test_simple_conditions_overlap_where_a_value_satisfies_both(one: str, other: str) -> None:
    expected = bool(_holds(one) & _holds(other))
    found = overlap(Predicate.parse(one, X).root, Predicate.parse(other, X).root, X)
    if {one, other} & UNDECIDED:
        assert found or not expected
    else:
        assert found == expected


@pytest.mark.parametrize(
    ("kind", "one", "other", "expected"),
    [
        ("boolean", "p", "NOT p", False),
        ("boolean", "p = TRUE", "p IS NOT NULL", True),
        ("timestamp", "p >= TIMESTAMP '2020-01-01 00:00:00.000001Z'", "p < TIMESTAMP '2020-01-01 00:00:00.000001Z'", False),
        ("date", "p = '2020-01-01'", "p = '2020-01-02'", False),
        ("date", "p < TIMESTAMP '2020-01-02 00:00:00Z'", "p >= DATE '2020-01-02'", False),
        ("date", "year(p) = 2020", "p >= DATE '2021-01-01'", False),
        ("integer", "p > 3000000000", "p = 1", False),
        ("long", "p = 9007199254740993", "p = 9007199254740992.0D", True),
        ("decimal(38,2)", "p = 12345678901234567890.12", "p = 12345678901234567890.13", False),
        ("string", "p LIKE 'ab%'", "p = 'ac'", False),
        ("string", "p = 'abcdefghijklmnopqrstuvwxyzabcdefghijkl'", "p = 'abcdefghijklmnopqrstuvwxyzabcdefghijkm'", False),
        ("double", "p = 0.5D", "p = 1.5D", False),
        ("double", "p > 5", "isnan(p)", True),
        ("double", "p > 5", "p = CAST('NaN' AS DOUBLE)", True),
    ],
)
def test_conditions_over_every_type(kind: str, one: str, other: str, expected: bool) -> None:
    assert scopes_meet(one, {"p": kind}, other, {"p": kind}) is expected
    assert scopes_meet(other, {"p": kind}, one, {"p": kind}) is expected


def test_conditions_that_name_very_many_partitions_are_told_apart() -> None:
    types = {"p": "long", "q": "string"}
    even = " OR ".join(f"(p = {n} AND q = 'a')" for n in range(0, 2000, 2))
    odd = " OR ".join(f"(p = {n} AND q = 'a')" for n in range(1, 2000, 2))
    assert not scopes_meet(even, types, odd, types)
    assert scopes_meet(even, types, "p = 4", types)
    assert not scopes_meet(f"p IN ({', '.join(map(str, range(5000)))})", types, "p = 5000", types)
