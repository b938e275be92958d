"""What an expression gives over the rows of a table is what it gives as an Arrow expression in a scan of them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.storage.errors import PredicateError
from sluice.storage.expressions import evaluate
from sluice.storage.expressions.evaluate import compile_expression, run
from sluice.storage.expressions.nodes import Node
from sluice.storage.expressions.parse import parse
from sluice.storage.pruning.predicate import Predicate
from sluice.storage.schema.schema import to_arrow
from tests.storage import conditions
from tests.storage.conditions import SCHEMA, Condition, Row
from tests.storage.strategies import unhurried

ARROW = to_arrow(SCHEMA)


def scanned(node: Node, table: pa.Table) -> Any:
    """The values that a scan of the table projects; None where it raises."""
    expression = compile_expression(node)
    try:
        return ds.dataset(table).scanner(columns={"value": expression}).to_table()["value"].to_pylist()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, PredicateError):
        return None


def computed(node: Node, table: pa.Table) -> Any:
    """The values that `run` gives; None where it raises."""
    try:
        values = run(node, table)
    except PredicateError:
        return None
    assert (values.type, len(values)) == (node.type, table.num_rows)
    return values.to_pylist()


def same(one: Any, other: Any) -> bool:
    return str(one) == str(other)  # NaN is NaN


@unhurried
@given(conditions.condition(), st.lists(conditions.row(), max_size=4))
def test_a_condition_is_what_a_scan_says(condition: Condition, rows: list[Row]) -> None:
    node, table = Predicate.parse(condition.sql, SCHEMA).root, conditions.table(rows)
    assert same(computed(node, table), scanned(node, table))


@pytest.mark.parametrize(
    "sql",
    [
        *("i + 1", "i + l", "l - i * 2", "l % 3", "l % i", "i % -1", "-i", "i", "7", "NULL", "i + NULL", "l * l", "1 + 1", "2 > 1"),
        *("i = 1 AND l % 2 = 0", "i <> 0 AND l % i = 1", "i = 0 OR l % i = 1", "i IN (1, 2, NULL)", "i IN (1, 2)", "NOT (i IN (1, l))"),
        *("s = 'a'", "s < 'b' OR s IS NULL", "b", "NOT b", "day >= DATE '2020-01-01'", "ts < TIMESTAMP '2020-01-01 00:00:00Z'", "i = l"),
        *("i <=> NULL", "f = 0.5", "d > 1", "m = 2.00", "i / 2", "i div 2", "CAST(i AS STRING)", "x = X'61'", "i = s", "s || 'a' = 'aa'"),
        *("upper(s)", "round(d, 1)", "round(m, 1)", "floor(d)", "isnan(d)", "greatest(d, 1D)", "try_cast(s AS INT)", "CAST(ts AS STRING)"),
        *("CASE WHEN i = 0 THEN 0 ELSE l % i END", "coalesce(i, 5) + 1", "s LIKE '%a_'", "CAST(d AS DECIMAL(8,2))", "m * 2.5", "m / 3"),
        *("upper('a')", "round(1.25, 1)", "CAST('7' AS INT) + i", "CASE WHEN TRUE THEN 1 ELSE i END", "date_trunc('month', ts)"),
        *("shiftleft(i, 33)", "abs(i)", "substring(s, 1, 1)", "replace(s, 'a', 'b')", "year(day) + 1", "date_add(day, 1)", "ceil(m)"),
    ],
)
def test_an_expression_is_what_a_scan_says(sql: str) -> None:
    node = parse(sql, ARROW)
    every: list[Row] = [{**dict.fromkeys(conditions.KINDS), **row} for row in ROWS]
    for rows in ([], *([row] for row in every), every):
        table = conditions.table(rows)
        assert same(computed(node, table), scanned(node, table))


ROWS: list[Row] = [
    {},
    {"i": 1, "l": 2, "s": "a", "b": True, "f": 0.5, "d": 2.0},
    {"i": 0, "l": -7, "s": "b", "b": False},
    {"i": 2, "l": 3, "day": conditions.VALUES["date"][1], "ts": conditions.EPOCH, "d": float("nan")},
    {"i": 2**31 - 1, "l": 2**63 - 1},
    {"i": -(2**31), "l": -(2**63), "s": ""},
]


def test_what_fails_belongs_to_the_rows_that_reach_it() -> None:
    division = parse("i <> 0 AND l % i = 1", ARROW)
    table = conditions.table([{**dict.fromkeys(conditions.KINDS), "i": n, "l": 3} for n in (0, 2)])
    assert run(division, table).to_pylist() == [False, True]


def test_many_rows_are_computed_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluate, "_PIECE_ROWS", 3)
    table = pa.table({"i": pa.chunked_array([pa.array([0, None, 2, 3], pa.int32()), pa.array([4, 5, 6, 7], pa.int32())])})
    assert run(parse("i % 2 = 0", ARROW), table).to_pylist() == [True, None, True, False, True, False, True, False]
    assert run(parse("7", ARROW), table).to_pylist() == [7] * 8
