"""Few rows are computed function by function: what comes out is what an Arrow plan makes of them, or it is left to the plan."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.storage.errors import PredicateError
from sluice.storage.expressions import direct
from sluice.storage.expressions.evaluate import run, run_plan
from sluice.storage.expressions.nodes import Node
from sluice.storage.expressions.parse import parse
from sluice.storage.pruning.predicate import Predicate
from sluice.storage.schema.schema import to_arrow

from . import conditions
from .conditions import SCHEMA, Condition, Row
from .strategies import unhurried

ARROW = to_arrow(SCHEMA)


def planned(node: Node, table: pa.Table) -> Any:
    try:
        return run_plan(node, table)
    except PredicateError:
        return None


@unhurried
@given(conditions.condition(), st.lists(conditions.row(), max_size=4))
def test_a_condition_is_what_the_plan_says(condition: Condition, rows: list[Row]) -> None:
    node, table = Predicate.parse(condition.sql, SCHEMA).root, conditions.table(rows)
    found = direct.value_of(node, table)
    if found is not None:
        assert found == planned(node, table)
        assert found.type == pa.bool_()


@pytest.mark.parametrize(
    "sql",
    [
        *("i + 1", "i + l", "l - i * 2", "l % 3", "l % i", "i % -1", "-i", "i", "7", "NULL", "i + NULL", "l * l"),
        *("i = 1 AND l % 2 = 0", "i <> 0 AND l % i = 1", "i = 0 OR l % i = 1", "i IN (1, 2, NULL)", "i IN (1, 2)", "NOT (i IN (1, l))"),
        *("s = 'a'", "s < 'b' OR s IS NULL", "b", "NOT b", "day >= DATE '2020-01-01'", "ts < TIMESTAMP '2020-01-01 00:00:00Z'", "i = l"),
        *("i <=> NULL", "f = 0.5", "d > 1", "m = 2.00", "i / 2", "i div 2", "CAST(i AS STRING)", "x = X'61'", "i = s", "s || 'a' = 'aa'"),
    ],
)
def test_an_expression_is_what_the_plan_says(sql: str) -> None:
    node = parse(sql, ARROW)
    every: list[Row] = [{**dict.fromkeys(conditions.KINDS), **row} for row in ROWS]
    for rows in ([], *([row] for row in every), every):
        table = conditions.table(rows)
        found, wanted = direct.value_of(node, table), planned(node, table)
        assert found is None or found == wanted
        assert found is None or found.type == node.type


ROWS: list[Row] = [
    {},
    {"i": 1, "l": 2, "s": "a", "b": True, "f": 0.5, "d": 2.0},
    {"i": 0, "l": -7, "s": "b", "b": False},
    {"i": 2, "l": 3, "day": conditions.VALUES["date"][1], "ts": conditions.EPOCH},
    {"i": 2**31 - 1, "l": 2**63 - 1},
    {"i": -(2**31), "l": -(2**63), "s": ""},
]


@pytest.mark.parametrize(
    ("sql", "here"),
    [("l % 3 = 1 AND i >= 2", True), ("i + 1", True), ("s = 'a'", True), ("d > 1", False), ("m = 2.00", False), ("i / 2 = 1", False)],
)
def test_what_is_computed_here(sql: str, here: bool) -> None:
    assert (direct.value_of(parse(sql, ARROW), conditions.table([dict.fromkeys(conditions.KINDS)])) is not None) == here


def test_what_fails_is_told_by_the_plan_and_many_rows_are_left_to_it() -> None:
    division = parse("i <> 0 AND l % i = 1", ARROW)
    table = conditions.table([{**dict.fromkeys(conditions.KINDS), "i": n, "l": 3} for n in (0, 2)])
    assert direct.value_of(division, table) is None
    assert run(division, table).to_pylist() == [False, True]
    many = pa.table({"i": pa.nulls(direct.ROWS_MAX + 1, pa.int32())})
    assert direct.value_of(parse("i = 1", ARROW), many) is None
    assert run(parse("i = 1", ARROW), many).null_count == direct.ROWS_MAX + 1
