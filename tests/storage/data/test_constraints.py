"""CHECK constraints and invariants: what is checked, what the errors say, and what makes a table unwritable."""

from __future__ import annotations

import json
import pickle

import pyarrow as pa
import pytest

from sluice.storage.actions import Metadata
from sluice.storage.data.constraints import Constraints
from sluice.storage.errors import ConstraintViolated, UnsupportedFeature
from sluice.storage.schema.schema import ArrayType, PrimitiveType, StructField, StructType, schema_to_json

LONG, TEXT = PrimitiveType("long"), PrimitiveType("string")


def invariant(expression: str) -> dict[str, str]:
    return {"delta.invariants": json.dumps({"expression": {"expression": expression}})}


def constraints(schema: StructType, **checks: str) -> Constraints:
    configuration = {f"delta.constraints.{name}": sql for name, sql in checks.items()} | {"delta.appendOnly": "false"}
    return Constraints.of(schema, Metadata("id", schema_to_json(schema), (), configuration))


SCHEMA = StructType([StructField("x", LONG), StructField("s", TEXT)])


def test_rows_that_satisfy_all_pass() -> None:
    checked = constraints(SCHEMA, positive="x > 0", text="s IS NULL OR length(s) < 3")
    assert [each.name for each in checked.constraints] == ["positive", "text"]
    checked.check(pa.table({"x": [1, 2], "s": ["a", None]}))
    checked.check(pa.table({"x": pa.array([], pa.int64()), "s": pa.array([], pa.string())}))
    constraints(SCHEMA).check(pa.table({"x": [None], "s": [None]}))


@pytest.mark.parametrize(("bad", "value"), [(-1, -1), (None, None)])
def test_false_and_null_break_a_constraint(bad: int | None, value: int | None) -> None:
    table = pa.table({"x": pa.chunked_array([[1, 2], pa.array([3, bad, bad], pa.int64())]), "s": ["a"] * 5})
    with pytest.raises(ConstraintViolated) as refused:
        constraints(SCHEMA, positive="x > 0").check(table)
    error = refused.value
    assert (error.constraint, error.expression, error.row, error.values, error.count) == ("positive", "x > 0", 3, {"x": value}, 2)
    assert f"row 3 breaks the constraint positive (x > 0): x = {value!r}; 2 of 5 rows break it" in str(error)
    assert pickle.loads(pickle.dumps(error)).row == 3


def test_a_row_that_cannot_be_evaluated_breaks_it() -> None:
    with pytest.raises(ConstraintViolated, match=r"ratio \(10 / x > 1\) cannot be evaluated for every row: .*divide by zero"):
        constraints(SCHEMA, ratio="10 / x > 1").check(pa.table({"x": [0], "s": ["a"]}))


def test_a_constraint_without_columns() -> None:
    with pytest.raises(ConstraintViolated, match="it is never true"):
        constraints(SCHEMA, never="1 > 2").check(pa.table({"x": [1], "s": ["a"]}))


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("my_udf(x) > 0", "my_udf"),
        ("y > 0", "'y' is unknown"),
        ("x >", "does not parse"),
        ("x", "must be BOOLEAN"),
        ("x < rand()", "no fixed value"),
    ],
)
def test_what_cannot_be_evaluated_refuses_the_table(sql: str, why: str) -> None:
    with pytest.raises(UnsupportedFeature) as refused:
        constraints(SCHEMA, odd=sql)
    assert why in str(refused.value)
    assert f"the constraint odd ({sql})" in str(refused.value)
    assert (refused.value.features, refused.value.access, refused.value.constraint) == (("checkConstraints",), "write", "odd")


def test_invariants_of_columns_and_nested_fields() -> None:
    inner = StructType([StructField("a", LONG, metadata=invariant("r.a < 10"))])
    schema = StructType([StructField("x", LONG, metadata=invariant("x > 0")), StructField("r", inner)])
    checked = constraints(schema)
    assert [each.name for each in checked.constraints] == ["invariant of x", "invariant of r.a"]
    checked.check(pa.table({"x": [1], "r": [{"a": 9}]}))
    with pytest.raises(ConstraintViolated, match=r"invariant of x \(x > 0\): x = 0"):
        checked.check(pa.table({"x": [0], "r": [{"a": 9}]}))
    with pytest.raises(ConstraintViolated, match=r"invariant of r.a \(r.a < 10\): r = \{'a': 10\}"):
        checked.check(pa.table({"x": [1], "r": [{"a": 10}]}))


@pytest.mark.parametrize("text", ["", "{", "x > 0", "{}", '{"expression":{}}', '{"expression":"x > 0"}', '{"expression":{"expression":1}}'])
def test_an_invariant_that_is_none_refuses_the_table(text: str) -> None:
    schema = StructType([StructField("x", LONG, metadata={"delta.invariants": text})])
    with pytest.raises(UnsupportedFeature, match="the invariant of column x"):
        constraints(schema)


def test_an_invariant_inside_an_array_refuses_the_table() -> None:
    element = StructType([StructField("a", LONG, metadata=invariant("a > 0"))])
    with pytest.raises(UnsupportedFeature, match=r"invariant of xs\.element\.a"):
        constraints(StructType([StructField("xs", ArrayType(element))]))
