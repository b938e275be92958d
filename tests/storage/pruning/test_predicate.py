"""What predicates mean, what they are refused for, and what becomes of them on the way to SQL and to Arrow."""

from __future__ import annotations

import pickle
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlglot.dialects.spark import Spark

from sluice.storage.errors import PredicateError
from sluice.storage.pruning.predicate import Filter, Predicate
from sluice.storage.schema.partitions import decode_column
from sluice.storage.schema.schema import PrimitiveType, StructField, StructType, from_arrow
from tests.storage import conditions
from tests.storage.conditions import PARTITIONS, SCHEMA, Condition, Row
from tests.storage.strategies import unhurried

rows = st.lists(conditions.row(), max_size=8)


@unhurried
@given(conditions.condition(), rows)
def test_a_mask_a_filter_of_arrow_and_its_sql_say_what_the_naive_evaluator_says(condition: Condition, rows: list[Row]) -> None:
    predicate, table = Predicate.parse(condition.sql, SCHEMA), conditions.table(rows)
    expected = [condition.holds(row) for row in rows]
    assert predicate.mask(table).to_pylist() == expected
    numbered = table.append_column("number", pa.array(range(len(rows)), pa.int64()))
    selected = ds.dataset(numbered).to_table(filter=predicate.to_arrow())["number"].to_pylist()
    assert selected == [number for number, holds in enumerate(expected) if holds]
    again = Predicate.parse(predicate.to_sql(), SCHEMA)
    assert (again.mask(table).to_pylist(), again.columns) == (expected, predicate.columns)
    assert Predicate.parse(again.to_sql(), SCHEMA) == again


@unhurried
@given(conditions.condition(), conditions.condition(), rows)
def test_and_or_not_and_the_parts_put_together_again(one: Condition, other: Condition, rows: list[Row]) -> None:
    left, right, table = Predicate.parse(one.sql, SCHEMA), Predicate.parse(other.sql, SCHEMA), conditions.table(rows)
    predicate = left.and_(right)
    inside, rest = predicate.split(PARTITIONS)
    assert inside is None or inside.columns <= set(PARTITIONS)
    parts = [part for part in (inside, rest) if part is not None]
    joined = parts[0] if len(parts) == 1 else parts[0].and_(parts[1])
    assert joined.mask(table).to_pylist() == predicate.mask(table).to_pylist()
    assert predicate.mask(table).to_pylist() == [conditions.both(one.holds(row), other.holds(row)) for row in rows]
    assert left.or_(right).mask(table).to_pylist() == [conditions.either(one.holds(row), other.holds(row)) for row in rows]
    assert Predicate.parse(f"NOT ({one.sql})", SCHEMA).mask(table).to_pylist() == [conditions.negated(one.holds(row)) for row in rows]


def test_parquet_row_groups_are_pruned_but_never_one_with_a_nan(tmp_path: Any) -> None:
    # Parquet's statistics leave NaN out: the first row group's say that all its values are 5.
    path = tmp_path / "values.parquet"
    pq.write_table(pa.table({"d": [5.0, float("nan"), 5.0, 1.0, 2.0, 3.0]}), path, row_group_size=3)
    dataset = ds.dataset(path)
    schema = from_arrow(dataset.schema)
    for hits, conditions_ in {
        1: ("d > 6", "NOT (d <= 5)", "isnan(d)", "d + 1 > 6"),
        2: ("d = 5", "d IN (5)"),
        4: ("d <> 5", "NOT (d = 5)", "d NOT IN (5)", "CASE WHEN d = 5 THEN FALSE ELSE TRUE END", "NOT (d <=> 5)"),
    }.items():
        for sql in conditions_:
            assert dataset.count_rows(filter=Predicate.parse(sql, schema).to_arrow()) == hits, sql
    fragment = next(iter(dataset.get_fragments()))
    assert len(fragment.subset(filter=Predicate.parse("d < 0", schema).to_arrow()).row_groups) == 0
    assert len(fragment.subset(filter=Predicate.parse("d <= 4 AND d = 2", schema).to_arrow()).row_groups) == 1


def test_long_lists_are_pruned_too(tmp_path: Any) -> None:
    path = tmp_path / "values.parquet"
    pq.write_table(pa.table({"i": [1, 2, 3, 1000, 1001, 1002]}), path, row_group_size=3)
    dataset = ds.dataset(path)
    predicate = Predicate.parse(f"i IN ({', '.join(map(str, range(500)))})", from_arrow(dataset.schema))
    assert dataset.count_rows(filter=predicate.to_arrow()) == 3
    assert [group.id for group in next(iter(dataset.get_fragments())).subset(filter=predicate.to_arrow()).row_groups] == [0]


def test_names_match_whatever_their_case_and_the_schema_spells_them() -> None:
    schema = StructType([StructField("Carrier", PrimitiveType("string")), StructField("a b", PrimitiveType("long"))])
    predicate = Predicate.parse("CARRIER = 'UA' AND `A B` > 1", schema)
    assert predicate.columns == {"Carrier", "a b"}
    assert predicate.to_sql() == "Carrier = 'UA' AND `a b` > 1"
    assert predicate.mask(pa.table({"carrier": ["UA", "AA"], "A B": [2, 2]})).to_pylist() == [True, False]


def test_every_keyword_can_be_a_column() -> None:
    words = sorted({word.strip().lower() for word in Spark.Tokenizer.KEYWORDS} | {"x", "b", "r", "n", "e", "if", "any", "year", "left"})
    schema = StructType([StructField(word, PrimitiveType("long")) for word in words if word])
    for word in schema.names:
        equal: Filter = ("EqualTo", (word,), 1)
        for predicate in (Predicate.from_filters([equal], schema), Predicate.from_filters([("Not", (), equal)], schema)):
            assert Predicate.parse(predicate.to_sql(), schema) == predicate


def test_evaluates_columns_stored_in_another_representation() -> None:
    schema = StructType([StructField("s", PrimitiveType("string")), StructField("l", PrimitiveType("long"))])
    table = pa.table({"s": pa.array(["a", "b"]).dictionary_encode(), "l": pa.array([1, 2], pa.int32())})
    assert Predicate.parse("s = 'b' AND l = 2", schema).mask(table).to_pylist() == [False, True]


def test_a_table_of_several_chunks_or_none_and_a_predicate_without_columns() -> None:
    table = pa.concat_tables([conditions.table([]), *(conditions.table([dict.fromkeys(conditions.KINDS)]) for _ in range(3))])
    assert Predicate.parse("i IS NULL", SCHEMA).mask(table).to_pylist() == [True] * 3
    assert Predicate.parse("1 < 2", SCHEMA).mask(table).to_pylist() == [True] * 3
    assert [Predicate.parse(sql, SCHEMA).mask(conditions.table([])).to_pylist() for sql in ("i = 1", "1 < 2")] == [[], []]


def test_is_a_value() -> None:
    predicate = Predicate.parse("i > 1 AND ts < '2020-01-01' AND m = 1.5 AND s LIKE 'a%'", SCHEMA)
    assert pickle.loads(pickle.dumps(predicate)) == predicate
    assert hash(Predicate.parse("i>1", SCHEMA)) == hash(Predicate.parse("I > 1", SCHEMA))
    assert str(predicate) == predicate.to_sql()


@pytest.mark.parametrize(
    ("sql", "told"),
    [
        ("i =", "does not parse: an operand is missing"),
        ("i = 'it", "does not parse"),
        *((sql, "exactly one expression") for sql in ("", "i = 1; i = 2")),
        ("i = 1 oops", "oops"),
        ("nowhere = 1", "'nowhere' is unknown; the columns are part, place, i"),
        ("t.i = 1", "'t.i' is unknown"),
        ("i.a = 1", "'i.a' is unknown; the fields of i are none"),
        ("i", "must be BOOLEAN, and this is INT"),
        ("i AND b", "must be BOOLEAN"),
        ("i = b", "INT = BOOLEAN"),
        ("i = 'a'", "'a' cannot be cast to BIGINT"),
        ("day = 'today'", "'today' cannot be cast to DATE"),
        ("day = '2020-02-30'", "'2020-02-30' is no DATE: day is out of range"),
        ("tn = '2020-01-01 00:00:00Z'", "has no zone"),
        ("day + 1 > day", "DATE + INT cannot be evaluated exactly"),
        ("rand() < 0.5", "rand has no fixed value"),
        ("current_date() = day", "current_date has no fixed value"),
        ("day = current_date", "'current_date' is unknown"),
        ("uuid() = s", "write the value itself"),
        ("my_udf(i) = 1", "does not evaluate the function my_udf: compute it in a column first"),
        *((sql, "a subquery") for sql in ("i IN (SELECT 1)", "EXISTS (SELECT 1)")),
        (r"s RLIKE '(a)\\1'", "has \\1 at position 3, which cannot be evaluated exactly as Spark does"),
        ("s RLIKE s", "argument 2 of rlike must be a constant"),
        ("i RLIKE 'a'", "RLIKE needs a STRING"),
        ("i ILIKE 'a'", "ILIKE needs a STRING"),
        ("s ILIKE s", "the pattern of LIKE must be a string constant"),
        ("size(s) = 1", "size needs an array or a map"),
        ("TRY_CAST(day AS INT) = 1", "does not evaluate a CAST from DATE to INT"),
        ("i | 1 & 2 = 3", "mixes operators of different strength: write parentheses"),
        ("s & 1 = 1", "& needs whole numbers, and this is STRING"),
        ("d | 1 = 1", "needs whole numbers, and this is DOUBLE"),
        ("`&`(i, 1) = 1", 'does not evaluate the function "&"'),
        ("s LIKE 'a\\\\b'", "may stand before %, _ and itself only"),
        ("s LIKE place", "must be a string constant"),
        ("i LIKE '1'", "CAST it to STRING"),
        ("i IN ()", "at least one value"),
        ("CAST(d AS STRING) = '1'", "CAST from DOUBLE to STRING"),
        ("CAST(i AS INTERVAL) = 1", "cannot cast to INTERVAL"),
        ("d % 2 = 1", "DOUBLE % INT"),
        ("i = 99999999999999999999999999999999999999999", "more than 38 digits"),
        ("substring(s, i) = 'a'", "must be a constant"),
        ("length(s, s) = 1", "takes 1 arguments, not 2"),
        ("year(i) = 2020", "needs DATE, and this is INT"),
        *((sql, "cannot be evaluated") for sql in ("s ILIKE ANY ('a')", "s LIKE ANY ('a', 'b')", "count(*) > 1", "i = ?", "i = :x")),
        ("i BETWEEN SYMMETRIC 2 AND 1", "cannot be evaluated"),
        ("x = X'0G'", "parse"),
    ],
)
def test_refuses_what_it_cannot_use_and_says_why(sql: str, told: str) -> None:
    with pytest.raises(PredicateError) as refused:
        Predicate.parse(sql, SCHEMA)
    assert told in str(refused.value)
    assert refused.value.predicate == sql
    assert repr(sql) in str(refused.value)


def test_a_parse_error_tells_where_and_data_must_have_the_columns() -> None:
    with pytest.raises(PredicateError) as refused:
        Predicate.parse("i = 1 AND\n l ==", SCHEMA)
    assert refused.value.line == 2
    with pytest.raises(PredicateError, match=r"no column 'i'.*it has l"):
        Predicate.parse("i = 1", SCHEMA).mask(pa.table({"l": [1]}))


@pytest.mark.parametrize("sql", ["10 / i > 1", "i * 2 > 0", "CAST(s AS INT) = 1", "CAST(l AS INT) = 1", "abs(i) > 0"])
def test_a_row_that_cannot_be_evaluated_is_an_error_unless_it_is_not_reached(sql: str) -> None:
    nothing = dict.fromkeys(conditions.KINDS)
    rows: list[Row] = [
        nothing | {"part": 1, "i": 0, "l": 0, "s": "x"},
        nothing | {"part": 2, "i": -(2**31), "l": 2**40, "s": "1", "b": True},
    ]
    table = conditions.table(rows)
    with pytest.raises(PredicateError):
        Predicate.parse(sql, SCHEMA).mask(table)
    assert Predicate.parse(f"part = 5 AND ({sql})", SCHEMA).mask(table).to_pylist() == [False, False]
    guarded = Predicate.parse(f"CASE WHEN part = 5 THEN {sql} ELSE TRUE END AND (part < 5 OR {sql})", SCHEMA)
    assert guarded.mask(table).to_pylist() == [True, True]


FILTERS: list[tuple[Filter, str]] = [
    (("EqualTo", ("i",), 1), "i = 1"),
    (("EqualTo", ("I",), 1), "i = 1"),
    (("EqualNullSafe", ("i",), None), "i <=> NULL"),
    (("GreaterThan", ("d",), 1.5), "d > 1.5D"),
    (("GreaterThanOrEqual", ("m",), Decimal("1.5")), "m >= 1.5"),
    (("LessThan", ("day",), date(2020, 1, 1)), "day < DATE '2020-01-01'"),
    (("LessThanOrEqual", ("ts",), datetime(2020, 1, 1, tzinfo=timezone.utc)), "ts <= TIMESTAMP '2020-01-01 00:00:00Z'"),
    (("LessThan", ("tn",), datetime(2020, 1, 1)), "tn < TIMESTAMP_NTZ '2020-01-01 00:00:00'"),  # noqa: DTZ001
    (("In", ("s",), ["a", "b", None]), "s IN ('a', 'b', NULL)"),
    (("In", ("l",), (1, 2**40)), "l IN (1, 1099511627776)"),
    (("IsNull", ("i",), None), "i IS NULL"),
    (("IsNotNull", ("i",), None), "i IS NOT NULL"),
    (("Not", (), ("EqualTo", ("b",), True)), "NOT (b = TRUE)"),
    (("StringStartsWith", ("s",), "a%"), "s LIKE 'a\\\\%%'"),
    (("StringEndsWith", ("s",), "c_"), "s LIKE '%c\\\\_'"),
    (("StringContains", ("s",), "x\\"), "s LIKE '%x\\\\\\\\%'"),
    (("EqualTo", ("x",), b"a"), "x = X'61'"),
]


@pytest.mark.parametrize(("filter_", "sql"), FILTERS)
def test_filters_that_spark_pushes_down(filter_: Filter, sql: str) -> None:
    assert Predicate.from_filters([filter_], SCHEMA) == Predicate.parse(sql, SCHEMA)


def test_several_filters_are_a_conjunction_and_none_is_true() -> None:
    filters: list[Filter] = [("IsNotNull", ("i",), None), ("GreaterThan", ("i",), 1)]
    assert Predicate.from_filters(filters, SCHEMA) == Predicate.parse("i IS NOT NULL AND i > 1", SCHEMA)
    assert Predicate.from_filters([], SCHEMA).mask(conditions.table([dict.fromkeys(conditions.KINDS)])).to_pylist() == [True]


def test_a_filter_on_a_nested_field() -> None:
    schema = from_arrow(pa.schema([("r", pa.struct([("a.b", pa.int64())]))]))
    predicate = Predicate.from_filters([("EqualTo", ("r", "a.b"), 1)], schema)
    assert predicate.columns == {"r"}
    assert predicate.to_sql() == "r.`a.b` = 1"
    assert predicate.mask(pa.table({"r": [{"a.b": 1}, None, {"a.b": None}]})).to_pylist() == [True, None, None]


@pytest.mark.parametrize(
    "filter_", [("Like", ("s",), "a"), ("EqualTo", ("gone",), 1), ("EqualTo", ("i",), object()), ("EqualTo", ("b",), 1)]
)
def test_filters_that_cannot_be_used(filter_: Filter) -> None:
    with pytest.raises(PredicateError):
        Predicate.from_filters([filter_], SCHEMA)


@pytest.mark.parametrize(
    ("kind", "texts"),
    [
        ("float", ["0.1", "NaN", "-Infinity", None]),
        ("double", ["0.1", "NaN", "1.5E300", None]),
        ("decimal(38,18)", ["12345678901234567890.123456789012345678", "12345678901234567890.123456789012345679", None]),
        ("string", ["it's", "a\\b", "日本", None]),
        ("timestamp", ["2020-01-01T00:00:00.000001Z", "2020-01-01 00:00:00", None]),
        ("timestamp_ntz", ["2020-01-01 00:00:00.000001", None]),
        ("boolean", ["true", "false", None]),
        ("byte", ["-128", "127", None]),
        ("date", ["2020-01-01", None]),
    ],
)
def test_partitions_are_told_apart_exactly(kind: str, texts: list[str | None]) -> None:
    schema = StructType([StructField("p", PrimitiveType(kind)), StructField("q", PrimitiveType("integer"))])
    table = pa.table({"p": decode_column(pa.array(texts, pa.string()), PrimitiveType(kind)), "q": pa.array([1] * len(texts), pa.int32())})
    for number, text in enumerate(texts):
        predicate = Predicate.in_partitions([{"p": text, "q": "1"}, {"p": text, "q": "1"}, {"p": text, "q": "2"}], schema)
        for each in (predicate, Predicate.parse(predicate.to_sql(), schema)):
            hits = [hit is True for hit in each.mask(table).to_pylist()]
            assert hits == [n == number for n in range(len(texts))]


def test_no_partitions_and_the_one_partition_of_a_table_without_columns() -> None:
    table = pa.table({"i": pa.array([1], pa.int32())})
    later = StructType([*SCHEMA.fields, StructField("v", PrimitiveType("a type of a later protocol"))])
    for schema in (SCHEMA, later):
        assert Predicate.in_partitions([], schema).mask(table).to_pylist() == [False]
        assert Predicate.in_partitions([{}], schema).mask(table).to_pylist() == [True]


@pytest.mark.costly
@pytest.mark.slow
@pytest.mark.parametrize("many", [300, 3_000, pytest.param(9_900, marks=pytest.mark.long)])
def test_conditions_of_very_many_terms(many: int) -> None:
    """Arrow recurses into each term; a null stays null until a term decides."""
    schema = from_arrow(pa.schema([("p", pa.int64())]))
    table = pa.table({"p": pa.array([0, many - 1, many, None], pa.int64())})
    one_of = Predicate.parse(" OR ".join(f"p = {n}" for n in range(many)), schema)
    none_of = Predicate.parse(" AND ".join(f"p <> {n}" for n in range(many)), schema)
    assert one_of.mask(table).to_pylist() == [True, True, False, None]
    assert none_of.mask(table).to_pylist() == [False, False, True, None]
