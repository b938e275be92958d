"""New values for rows: evaluated on the old row, stored as ANSI store assignment says, refused by name."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sluice.storage.data.assignments import Assignments
from sluice.storage.errors import InvalidRequest, NullNotAllowed, PredicateError, SchemaMismatch
from sluice.storage.expressions.parse import parse
from sluice.storage.expressions.sql import to_sql
from sluice.storage.pruning.predicate import Predicate
from sluice.storage.schema.schema import ArrayType, PrimitiveType, StructField, StructType, to_arrow
from tests.storage.pruning.test_predicate_spark import COLUMNS

UTC = timezone.utc
FIRST = date(2020, 1, 1)
NOW = datetime(2024, 2, 29, 23, 30, 1, 234567, UTC)
KINDS = {"Tiny": "byte", "s": "string", "m": "decimal(5,2)", "d": "double", "b": "boolean", "day": "date", "ts": "timestamp"}
KINDS |= {"tn": "timestamp_ntz", "x": "binary"}
INTEGER = PrimitiveType("integer")
SCHEMA = StructType(
    [
        StructField("id", PrimitiveType("long"), nullable=False),
        *(StructField(name, PrimitiveType(kind)) for name, kind in KINDS.items()),
        StructField("r", StructType([StructField("a", INTEGER)])),
        StructField("list", ArrayType(INTEGER)),
        StructField("odd name", INTEGER),
    ]
)
ROWS = pa.Table.from_pylist(
    [
        {"id": 1, "Tiny": 5, "s": "a", "m": Decimal("1.50"), "d": 0.5, "b": True, "day": FIRST, "r": {"a": 1}, "list": [1], "odd name": 1},
        {"id": 2, "Tiny": 120, "s": "B", "m": Decimal("-2.00"), "d": 300.0, "b": False, "ts": datetime(2020, 1, 1, tzinfo=UTC), "x": b"x"},
        {"id": 3},
    ],
    to_arrow(SCHEMA),
)


def after(assignments: Mapping[str, str], rows: pa.Table = ROWS) -> list[Any]:
    """The new values of the columns that are set; of a single column without tuples."""
    parsed = Assignments.parse(assignments, SCHEMA, now=NOW)
    changed = parsed.apply(rows)
    assert changed.schema.types == rows.schema.types
    assert changed.column_names == rows.column_names
    others = [name for name in rows.column_names if name not in parsed.columns]
    assert changed.select(others).equals(rows.select(others))
    columns = [changed.column(name).to_pylist() for name in parsed.columns]
    return columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))


@pytest.mark.parametrize(
    ("column", "sql", "values"),
    [
        ("id", "id + 1", [2, 3, 4]),
        ("id", "Tiny * 0 + id", None),
        ("tiny", "Tiny + 1", [6, 121, None]),
        ("Tiny", "id", [1, 2, 3]),
        ("Tiny", "NULL", [None] * 3),
        ("Tiny", "1.9", [1, 1, 1]),
        ("m", "d", [Decimal("0.50"), Decimal("300.00"), None]),
        ("m", "id * 1.005", [Decimal("1.01"), Decimal("2.01"), Decimal("3.02")]),
        ("m", "m * -1", [Decimal("-1.50"), Decimal("2.00"), None]),
        ("d", "id / 2", [0.5, 1.0, 1.5]),
        ("s", "concat(upper(s), '-', id)", ["A-1", "B-2", None]),
        ("s", "id", ["1", "2", "3"]),
        ("s", "b", ["true", "false", None]),
        ("s", "m", ["1.50", "-2.00", None]),
        ("s", "ts", [None, "2020-01-01 00:00:00", None]),
        ("s", "coalesce(s, 'none')", ["a", "B", "none"]),
        ("s", "CASE WHEN id = 1 THEN 'one' WHEN b IS NULL THEN 'unknown' END", ["one", None, "unknown"]),
        ("b", "id > 1 AND Tiny IS NULL", [False, False, True]),
        ("day", "DATE '2024-01-01'", [date(2024, 1, 1)] * 3),
        ("day", "date_add(day, 31)", [date(2020, 2, 1), None, None]),
        ("day", "ts", [None, date(2020, 1, 1), None]),
        ("ts", "day", [datetime(2020, 1, 1, tzinfo=UTC), None, None]),
        ("ts", "current_timestamp()", [NOW] * 3),
        ("ts", "CURRENT_TIMESTAMP", [NOW] * 3),
        ("ts", "now()", [NOW] * 3),
        ("day", "current_date()", [date(2024, 2, 29)] * 3),
        ("day", "curdate()", [date(2024, 2, 29)] * 3),
        ("tn", "localtimestamp()", [NOW.replace(tzinfo=None)] * 3),
        ("x", "X'00FF'", [b"\x00\xff"] * 3),
        ("r", "r", [{"a": 1}, None, None]),
        ("r", "NULL", [None] * 3),
        ("list", "list", [[1], None, None]),
        ("odd name", "`odd name` + 1", [2, None, None]),
        ("`odd name`", "r.a", [1, None, None]),
        # texts and booleans are cast to other types
        ("id", "concat(' ', CAST(id AS STRING))", [1, 2, 3]),
        ("day", "'2020-02-29'", [date(2020, 2, 29)] * 3),
        ("b", "'no'", [False] * 3),
        ("b", "id - 1", [False, True, True]),
        ("m", "'1.239'", [Decimal("1.24")] * 3),
        # only rows that are reached are evaluated
        ("id", "CASE WHEN id > 1 THEN id DIV (id - 1) ELSE 0 END", [0, 2, 1]),
        ("d", "if(d = 0, 0, round(1 / d, 2))", [2.0, 0.0, None]),
    ],
)
def test_values(column: str, sql: str, values: list[Any] | None) -> None:
    if values is None:
        with pytest.raises(SchemaMismatch, match="is NOT NULL"):
            after({column: sql})
    else:
        assert after({column: sql}) == values


def test_every_assignment_sees_the_old_row() -> None:
    assert after({"id": "Tiny + 0", "Tiny": "id"}, ROWS.slice(0, 2)) == [(5, 1), (120, 2)]


def test_what_is_set_and_what_is_read() -> None:
    parsed = Assignments.parse({"S": "concat(s, R.a)", "tiny": "5", "`Odd Name`": "id"}, SCHEMA)
    assert parsed.columns == ("s", "Tiny", "odd name")
    assert parsed.reads == {"s", "r", "id"}


def test_the_time_is_taken_once() -> None:
    parsed = Assignments.parse({"ts": "current_timestamp()"}, SCHEMA)
    first, second = (parsed.apply(ROWS)["ts"].to_pylist() for _ in range(2))
    assert first == second == [first[0]] * 3
    assert datetime.now(UTC) - first[0] < timedelta(minutes=1)


def test_a_column_called_like_a_function_is_a_column() -> None:
    schema = StructType([StructField("now", INTEGER), StructField("current_date", INTEGER)])
    rows = pa.table({"now": pa.array([1], pa.int32()), "current_date": pa.array([2], pa.int32())})
    parsed = Assignments.parse({"now": "current_date"}, schema)
    assert parsed.apply(rows)["now"].to_pylist() == [2]


def test_a_predicate_has_no_time() -> None:
    with pytest.raises(PredicateError, match="current_timestamp has no fixed value"):
        Predicate.parse("ts < current_timestamp()", SCHEMA)


def test_no_rows_and_no_columns_in_an_expression() -> None:
    assert after({"id": "1 / 0", "s": "'x'"}, ROWS.slice(0, 0)) == []
    assert after({"s": "'x'"}, pa.concat_tables([ROWS, ROWS.slice(1)])) == ["x"] * 5


@pytest.mark.parametrize(
    ("assignments", "error", "match"),
    [
        ({}, InvalidRequest, "nothing to set"),
        ({"zz": "1"}, InvalidRequest, "no column 'zz' to set; the columns are id, Tiny"),
        ({"r.a": "1"}, InvalidRequest, "'r.a' is a field inside of column 'r'"),
        ({"`r`.a": "1"}, InvalidRequest, "is a field inside of column 'r'"),
        ({"s.t": "1"}, InvalidRequest, "'s.t' is a field inside of column 's'"),
        ({"id": "1", "ID": "2"}, InvalidRequest, "'id' is set twice"),
        ({"id": 5}, InvalidRequest, "not SQL text"),
        ({"id": "nobody"}, PredicateError, "column 'id' cannot be set: .*'nobody' is unknown"),
        ({"id": "id +"}, PredicateError, "the expression 'id \\+' does not parse"),
        ({"id": ""}, PredicateError, "exactly one expression"),
        ({"id": "1; 2"}, PredicateError, "exactly one expression"),
        ({"id": "id AS x"}, PredicateError, "ALIAS"),
        ({"id": "sum(id)"}, PredicateError, "sum is an aggregate"),
        ({"id": "COUNT(*)"}, PredicateError, "COUNT|STAR"),
        ({"id": "row_number() OVER (ORDER BY id)"}, PredicateError, "WINDOW"),
        ({"id": "(SELECT 1)"}, PredicateError, "a subquery"),
        ({"s": "soundex(s)"}, PredicateError, "does not evaluate the function soundex"),
        ({"d": "rand()"}, PredicateError, "rand has no fixed value"),
        ({"s": "uuid()"}, PredicateError, "uuid has no fixed value"),
        ({"ts": "id"}, SchemaMismatch, "CAST from BIGINT to TIMESTAMP"),
        ({"day": "1"}, SchemaMismatch, "CAST from INT to DATE"),
        ({"x": "d"}, SchemaMismatch, "CAST from DOUBLE to BINARY"),
        ({"s": "d"}, SchemaMismatch, "CAST from DOUBLE to STRING"),
        ({"s": "r"}, SchemaMismatch, "column 's' is STRING"),
        ({"r": "1"}, SchemaMismatch, "set it to a column like it"),
        ({"list": "r"}, SchemaMismatch, "set it to a column like it"),
    ],
)
def test_refused_by_name_before_any_row(assignments: Any, error: type[InvalidRequest], match: str) -> None:
    with pytest.raises(error, match=match) as caught:
        Assignments.parse(assignments, SCHEMA)
    assert type(caught.value) is error


@pytest.mark.parametrize(
    ("assignments", "error", "match"),
    [
        ({"Tiny": "Tiny + id * 4"}, SchemaMismatch, "column 'Tiny' is TINYINT, and 128, a value of"),
        ({"Tiny": "300"}, SchemaMismatch, "and 300, a value of '300'"),
        ({"m": "d * 10"}, SchemaMismatch, r"column 'm' is DECIMAL\(5,2\), and 3000.0"),
        ({"Tiny": "CAST('NaN' AS DOUBLE)"}, SchemaMismatch, "and nan, a value of"),
        ({"id": "s"}, SchemaMismatch, "column 'id' is BIGINT, and 'a', a value of 's', does not fit it"),
        ({"day": "'2020-02-30'"}, SchemaMismatch, "column 'day' is DATE, and '2020-02-30', a value of"),
        ({"b": "'maybe'"}, SchemaMismatch, "column 'b' is BOOLEAN, and 'maybe', a value of"),
        ({"id": "Tiny"}, NullNotAllowed, "'id' is NOT NULL, and 'Tiny' is null for 1 of 3 rows"),
        ({"id": "NULL"}, NullNotAllowed, "is null for 3 of 3 rows"),
        ({"id": "id DIV (id - 1)"}, PredicateError, "column 'id' cannot be set to .*divide by zero"),
        ({"id": "id + 9223372036854775806"}, PredicateError, "overflow"),
        ({"id": "CAST(s AS BIGINT)"}, PredicateError, "'a' cannot be cast to BIGINT"),
    ],
)
def test_a_row_that_cannot_be_stored_is_named(assignments: Mapping[str, str], error: type[InvalidRequest], match: str) -> None:
    parsed = Assignments.parse(assignments, SCHEMA)
    with pytest.raises(error, match=match) as caught:
        parsed.apply(ROWS)
    assert type(caught.value) is error
    assert caught.value.column in parsed.columns


@pytest.mark.parametrize("sql", Path(__file__).with_name("spark_expressions.sql").read_text().splitlines())
def test_expressions_come_back_from_their_sql(sql: str) -> None:
    schema = pa.schema([(name, kind) for name, (kind, _) in COLUMNS.items()])
    node = parse(sql, schema)
    again = parse(to_sql(node), schema)
    assert again == node or repr(again) == repr(node)  # NaN is not equal to itself
