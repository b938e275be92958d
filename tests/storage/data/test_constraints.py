"""CHECK constraints and invariants: what is checked, what the errors say, and what makes a table unwritable.

Defaults and generated columns: which definitions are good, what is filled in, what an update computes again.
"""

from __future__ import annotations

import json
import pickle
from datetime import date, datetime, timezone
from typing import Any

import pyarrow as pa
import pytest

from sluice.storage.actions import Metadata
from sluice.storage.actions.features import new_protocol
from sluice.storage.data.assignments import Filling, check_definitions, renewing
from sluice.storage.data.constraints import Constraints
from sluice.storage.errors import ConstraintViolated, InvalidRequest, PredicateError, SchemaMismatch, UnsupportedFeature
from sluice.storage.schema.datatypes import DEFAULT_KEY, GENERATED_KEY, defined, to_give, with_values_of_defaults
from sluice.storage.schema.schema import ArrayType, PrimitiveType, StructField, StructType, parse_schema, schema_to_json

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


NOW = datetime(2024, 2, 29, 23, 30, tzinfo=timezone.utc)
KINDS = {"id": "long", "at": "timestamp", "day": "date", "status": "string", "n": "integer"}


def schema(generated: dict[str, str] | None = None, defaults: dict[str, str] | None = None) -> StructType:
    """The columns of KINDS, of which some have expressions."""
    said: dict[str, dict[str, Any]] = {name: {} for name in KINDS}
    for name, text in (generated or {}).items():
        said[name][GENERATED_KEY] = text
    for name, text in (defaults or {}).items():
        said[name][DEFAULT_KEY] = text
    return StructType(StructField(name, PrimitiveType(kind), metadata=said[name]) for name, kind in KINDS.items())


GOOD = schema({"day": "CAST(at AS DATE)"}, {"status": "concat('n', 'ew')", "n": "-3"})


@pytest.mark.parametrize(
    ("generated", "defaults"),
    [
        ({"day": "CAST(At AS DATE)", "n": "year(at)"}, {}),
        ({"n": "length(status) + 1"}, {"status": "'x'", "at": "current_timestamp()", "day": "current_date"}),
        ({"n": "pmod(hash(id), 16)"}, {"status": "soundex('x')"}),  # only Spark evaluates them
        ({}, {"n": "NULL", "id": "7"}),  # an INT is stored in a BIGINT
    ],
)
def test_good_definitions(generated: dict[str, str], defaults: dict[str, str]) -> None:
    check_definitions(schema(generated, defaults))


@pytest.mark.parametrize(
    ("generated", "defaults", "kind", "why"),
    [
        ({"day": "to_day(at"}, {}, PredicateError, "does not parse"),
        (
            {"day": "CAST(att AS DATE)"},
            {},
            InvalidRequest,
            "'day', CAST.att AS DATE., refers to att, which the table lacks; .* id, at, status",
        ),
        ({"day": "CAST(at AS DATE)", "n": "year(day)"}, {}, InvalidRequest, "refers to day, which is generated itself"),
        ({"n": "n + 1"}, {}, InvalidRequest, "refers to n, which is generated itself"),
        ({"n": "pmod(hash(idd), 16)"}, {}, InvalidRequest, "refers to idd, which the table lacks"),
        ({"n": "CAST(rand() AS INT)"}, {}, InvalidRequest, "has rand, whose value changes"),
        ({"day": "current_date"}, {}, InvalidRequest, "has current_date, whose value changes"),
        ({"n": "max(id)"}, {}, InvalidRequest, "has the aggregate max: it must be made of one row"),
        ({"n": "(SELECT 1)"}, {}, InvalidRequest, "has a subquery"),
        ({"n": "row_number() OVER (ORDER BY id)"}, {}, InvalidRequest, "has a window function"),
        ({"id": "year(at)"}, {}, SchemaMismatch, "is bigint, and year.at., .* is int: write CAST.year.at. AS bigint."),
        ({"n": "status"}, {}, SchemaMismatch, "needs an explicit cast"),
        ({}, {"n": "id"}, InvalidRequest, "refers to id: a default is one value for all rows"),
        ({}, {"n": "'x'"}, SchemaMismatch, "the DEFAULT of column 'n', 'x', cannot be used: .*explicit cast"),
        ({}, {"n": "3000000000"}, SchemaMismatch, "does not fit it"),
        ({}, {"n": "1 +"}, PredicateError, "does not parse"),
        ({}, {"status": "uuid()"}, InvalidRequest, "has uuid, whose value changes"),
        ({}, {"n": "(SELECT max(a) FROM t)"}, InvalidRequest, "refers to a|has a subquery"),
        ({"n": "1"}, {"n": "2"}, InvalidRequest, "has a DEFAULT and is GENERATED"),
    ],
)
def test_bad_definitions(generated: dict[str, str], defaults: dict[str, str], kind: type[InvalidRequest], why: str) -> None:
    with pytest.raises(kind, match=why):
        check_definitions(schema(generated, defaults))


def test_fields_inside_columns_have_none() -> None:
    inner = StructType([StructField("a", PrimitiveType("long"), metadata={DEFAULT_KEY: "1"})])
    with pytest.raises(InvalidRequest, match=r"s\.a is inside a column"):
        check_definitions(StructType([StructField("s", inner)]))


def test_what_rows_lack_is_filled_in() -> None:
    rows = pa.table({"ID": [1, 2], "at": [datetime(2024, 1, 1, 5, tzinfo=timezone.utc), None]})
    filled = Filling.of(GOOD, rows.column_names, NOW).apply(rows.set_column(1, "at", rows["at"].cast(pa.timestamp("us", "UTC"))))
    assert filled.select(["day", "status", "n"]).to_pylist() == [
        {"day": date(2024, 1, 1), "status": "new", "n": -3},
        {"day": None, "status": "new", "n": -3},
    ]


def test_what_rows_give_stays() -> None:
    rows = pa.table({"id": [1], "at": pa.array([NOW]), "DAY": [date(2000, 1, 1)], "status": pa.array([None], pa.string()), "n": [1]})
    assert Filling.of(GOOD, rows.column_names, NOW).apply(rows) is rows


def test_the_time_is_the_moment_given() -> None:
    timed = schema(defaults={"at": "current_timestamp()", "day": "current_date()"})
    filled = Filling.of(timed, ["id"], NOW).apply(pa.table({"id": [1]}))
    assert filled.select(["at", "day"]).to_pylist() == [{"at": NOW, "day": NOW.date()}]


def test_no_rows() -> None:
    rows = pa.table({"id": pa.array([], pa.int64()), "at": pa.array([], pa.timestamp("us", "UTC"))})
    assert Filling.of(GOOD, rows.column_names, NOW).apply(rows).num_rows == 0


@pytest.mark.parametrize(
    ("columns", "why", "feature"),
    [
        (
            schema({"n": "pmod(id, 3)"}),
            r"cannot compute column 'n', which is GENERATED ALWAYS AS \(pmod.*; write with Spark",
            "generatedColumns",
        ),
        (schema(defaults={"status": "soundex('a')"}), "cannot evaluate the DEFAULT soundex", "allowColumnDefaults"),
    ],
)
def test_what_only_spark_evaluates_is_refused_without_it(columns: StructType, why: str, feature: str) -> None:
    with pytest.raises(UnsupportedFeature, match=why) as refused:
        Filling.of(columns, ["id"], NOW)
    assert refused.value.features == (feature,)


def test_given_values_of_generated_columns_are_checked() -> None:
    checked = Constraints.of_generated(GOOD)
    rows = pa.table(
        {"id": [1, 2], "at": pa.array([None, NOW]), "day": pa.array([None, NOW.date()], pa.date32()), "status": ["", ""], "n": [1, 2]}
    )
    checked.check(rows)
    wrong = rows.set_column(2, "day", pa.array([None, date(2024, 3, 1)], pa.date32()))
    with pytest.raises(
        ConstraintViolated, match=r"row 1 breaks the constraint generated column day .*day = .*leave the column out"
    ) as broken:
        checked.check(wrong)
    assert broken.value.expression == "`day` <=> (CAST(at AS DATE))"


def test_an_update_computes_generated_columns_again() -> None:
    two = schema({"day": "CAST(at AS DATE)", "n": "length(status)"})
    rows = pa.table({"id": [1], "at": pa.array([NOW]), "day": [date(2000, 1, 1)], "status": ["abc"], "n": pa.array([7], pa.int32())})
    assert renewing(two, ["n"]).columns == ("day",)
    assert renewing(two, []).apply(rows).select(["day", "n"]).to_pylist() == [{"day": NOW.date(), "n": 3}]


def test_the_word_default_in_assignments() -> None:
    assigned = {"status": "default", "`id`": " DEFAULT ", "day": "DEFAULT", "n": "n + 1"}
    assert with_values_of_defaults(assigned, GOOD) == {"status": "concat('n', 'ew')", "`id`": "NULL", "n": "n + 1"}
    with_column = StructType([*GOOD.fields, StructField("Default", PrimitiveType("string"))])
    assert with_values_of_defaults({"status": "default"}, with_column) == {"status": "default"}


def test_rows_may_lack_what_is_filled_in() -> None:
    assert to_give(GOOD, ["id", "N"]).names == ("id", "at", "n")
    assert to_give(schema(), ["id"]) == schema()


def test_arrow_fields_define_columns() -> None:
    said = {GENERATED_KEY: "CAST(at AS DATE)", "comment": "the day", "PARQUET:field_id": "3"}
    given = pa.schema([pa.field("at", pa.timestamp("us", "UTC")), pa.field("day", pa.date32(), metadata=said)])
    assert [each.metadata for each in defined(given).fields] == [{}, {GENERATED_KEY: "CAST(at AS DATE)", "comment": "the day"}]
    assert json.loads(schema_to_json(defined(given)))["fields"][1]["metadata"][GENERATED_KEY] == "CAST(at AS DATE)"


@pytest.mark.parametrize(
    ("columns", "features"),
    [(schema(), set()), (schema({"n": "1"}), {"generatedColumns"}), (GOOD, {"generatedColumns", "allowColumnDefaults"})],
)
def test_columns_ask_for_features(columns: StructType, features: set[str]) -> None:
    named = set(new_protocol(parse_schema(schema_to_json(columns))).writer_features or ())
    assert named & {"generatedColumns", "allowColumnDefaults"} == features
