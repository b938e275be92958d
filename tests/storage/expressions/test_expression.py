"""The typed tree: what it folds, retypes and flattens, and casts of single values.

Conditions that are nested beyond all measure are refused by name, wherever they are used.
Java's regular expressions are translated: spark_predicates.sql has what Spark itself finds with them.
"""

from __future__ import annotations

import math
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.storage.errors import PredicateError
from sluice.storage.expressions import build, casts, types
from sluice.storage.expressions.evaluate import run
from sluice.storage.expressions.nodes import And, Column, Compare, In, Literal, Or, columns
from sluice.storage.expressions.parse import parse, parse_widely
from sluice.storage.expressions.regex import to_re2
from sluice.storage.expressions.sql import to_sql
from sluice.storage.pruning.predicate import Predicate
from sluice.storage.schema.schema import from_arrow
from tests.storage.strategies import unhurried

SCHEMA = pa.schema(
    [
        *(("t", pa.int8()), ("i", pa.int32()), ("l", pa.int64()), ("f", pa.float32()), ("d", pa.float64())),
        *(("m", pa.decimal128(10, 2)), ("s", pa.string()), ("day", pa.date32()), ("b", pa.bool_())),
    ]
)


def compared(sql: str) -> Compare:
    node = parse(sql, SCHEMA)
    assert isinstance(node, Compare)
    return node


@pytest.mark.parametrize(
    ("sql", "value", "kind"),
    [
        ("t = 5", 5, pa.int8()),
        ("l = 5", 5, pa.int64()),
        ("l = 5.0", 5, pa.int64()),
        ("i = 5D", 5, pa.int32()),
        ("i = '5'", 5, pa.int32()),
        ("m = 5", Decimal(5), pa.decimal128(10, 2)),
        ("m = 5.5", Decimal("5.5"), pa.decimal128(10, 2)),
        ("d = 0.1", 0.1, pa.float64()),
        ("f = 0.5", 0.5, pa.float32()),
        ("day = '2020-01-01'", date(2020, 1, 1), pa.date32()),
        ("b = 'yes'", True, pa.bool_()),
        ("t < 1000", 1000, pa.int32()),
        ("l = 9007199254740992D", 9007199254740992.0, pa.float64()),
        ("f = 0.1", 0.1, pa.float64()),
    ],
)
def test_a_constant_takes_the_columns_type_where_that_changes_no_answer(sql: str, value: Any, kind: pa.DataType) -> None:
    node = compared(sql)
    assert node.right == Literal(value, kind)
    assert node.at == kind


@pytest.mark.parametrize(
    ("sql", "folded"),
    [("i = 1 + 2 * 3", 7), ("i = -(5)", -5), ("i = length('abc')", 3), ("i = CAST('7' AS INT)", 7), ("i = IF(1 > 2, 1, 2)", 2)],
)
def test_constants_are_folded(sql: str, folded: int) -> None:
    assert compared(sql).right == Literal(folded, pa.int32())


def test_a_constant_that_fails_fails_when_a_row_reaches_it() -> None:
    node = parse("i > 0 AND 1 / 0 > 1", SCHEMA)
    assert run(node, pa.table({"i": pa.array([0], pa.int32())})).to_pylist() == [False]
    with pytest.raises(PredicateError, match="divide by zero"):
        run(node, pa.table({"i": pa.array([1], pa.int32())}))


def test_and_and_or_are_flat_and_drop_what_does_not_matter() -> None:
    for sql, kind in {"(i = 1 AND (b AND TRUE)) AND NOT NOT b": And, "i = 1 OR (b OR FALSE) OR (i = 2)": Or}.items():
        node = parse(sql, SCHEMA)
        assert isinstance(node, (And, Or))
        assert (type(node), len(node.terms)) == (kind, 3)
    assert (parse("TRUE AND TRUE", SCHEMA), parse("FALSE OR FALSE", SCHEMA)) == (build.TRUE, build.FALSE)


def test_a_list_is_kept_once_each() -> None:
    node = parse("i IN (1, 2, 1, '2', NULL)", SCHEMA)
    assert node == In(Column(("i",), pa.int32()), (Literal(1, pa.int32()), Literal(2, pa.int32())), True, pa.int32())


def test_comparing_needs_no_more_digits_than_there_are() -> None:
    schema = pa.schema([("w", pa.decimal128(38, 0)), ("v", pa.decimal128(38, 38))])
    table = pa.table(
        {"w": pa.array([Decimal(10**37), None], schema.field("w").type), "v": pa.array([Decimal("0.5")] * 2, schema.field("v").type)}
    )
    assert run(parse("w > v", schema), table).to_pylist() == [True, None]
    assert run(parse("w > 0.5 AND v < 1", schema), table).to_pylist() == [True, None]


@pytest.mark.parametrize("digits", ["w * w > 1", "w + 1 > 1", "w / 3 > 1"])
def test_decimal_arithmetic_beyond_38_digits_is_refused(digits: str) -> None:
    with pytest.raises(PredicateError, match="narrower decimals"):
        parse(digits, pa.schema([("w", pa.decimal128(38, 10))]))


def test_columns_are_found_in_structs() -> None:
    schema = pa.schema([("r", pa.struct([("A", pa.struct([("b", pa.int32())]))])), ("x", pa.int32()), ("X", pa.int32())])
    assert columns(parse("R.a.B = 1 AND X = 1", schema)) == {("r", "A", "b"), ("X",)}
    with pytest.raises(PredicateError, match=r"the fields of r\.A are b"):
        parse("r.a.c = 1", schema)
    with pytest.raises(PredicateError, match=r"STRUCT.* cannot be evaluated"):
        parse("r.a = r.a", schema)


def test_names_that_differ_only_in_case_must_be_exact() -> None:
    schema = pa.schema([("ab", pa.int32()), ("AB", pa.int32())])
    assert columns(parse("ab = 1", schema)) == {("ab",)}
    with pytest.raises(PredicateError, match="'aB' names several columns that differ only in case"):
        parse("aB = 1", schema)


CASTS: list[tuple[pa.DataType, dict[str, Any]]] = [
    (pa.int32(), {" 12\t": 12}),
    (pa.int8(), {"+7": 7, "-128": -128}),
    (pa.float64(), {"1e2": 100.0, ".5": 0.5, "-Infinity": -math.inf}),
    (pa.float32(), {"inf": math.inf, "0.1": 0.10000000149011612, "1e300": math.inf}),
    (pa.decimal128(5, 2), {"1.005": Decimal("1.01"), "-1.005": Decimal("-1.01"), "1e2": Decimal(100)}),
    (pa.bool_(), {"Y": True, "f": False}),
    (pa.date32(), {"2020": date(2020, 1, 1), "2020-2": date(2020, 2, 1), "2020-02-03T04:05": date(2020, 2, 3)}),
    (
        types.TIMESTAMP,
        {
            "2020-02-03": datetime(2020, 2, 3, tzinfo=timezone.utc),
            "2020-02-03 4:5:6.7": datetime(2020, 2, 3, 4, 5, 6, 700000, tzinfo=timezone.utc),
            "2020-02-03T04:05:06.1234567+01:30": datetime(2020, 2, 3, 2, 35, 6, 123456, tzinfo=timezone.utc),
            "2020-07-03 04:05:06 Europe/Berlin": datetime(2020, 7, 3, 2, 5, 6, tzinfo=timezone.utc),
        },
    ),
    (types.TIMESTAMP_NTZ, {"2020-02-03 04:05:06": datetime(2020, 2, 3, 4, 5, 6)}),  # noqa: DTZ001
    (pa.binary(), {"é": "é".encode()}),
]


@pytest.mark.parametrize(("kind", "text", "value"), [(kind, *each) for kind, values in CASTS for each in values.items()])
def test_strings_are_cast_as_spark_casts_them(kind: pa.DataType, text: str, value: Any) -> None:
    assert casts.convert(text, kind) == value


IMPOSSIBLE: list[tuple[pa.DataType, list[Any]]] = [
    (pa.int32(), ["1.5", "", "٣", math.nan, date(2020, 1, 1)]),
    (pa.int8(), ["128"]),
    (pa.int64(), [2.0**63]),
    (pa.float64(), ["1,5", "0x1p3"]),
    (pa.decimal128(5, 2), ["1000", "nan", math.inf]),
    (pa.bool_(), ["maybe"]),
    (pa.date32(), ["2020-1-1-1"]),
    (types.TIMESTAMP, ["12:00", *(f"2020-01-01 {time}" for time in ("25:00:00", "00:00:00 Mars/Base", "00:00:00+99:00")), 1]),
    (pa.string(), [1.5]),
]


@pytest.mark.parametrize(("kind", "value"), [(kind, value) for kind, values in IMPOSSIBLE for value in values])
def test_values_that_cannot_be_cast(kind: pa.DataType, value: Any) -> None:
    with pytest.raises(PredicateError, match=r"cannot be cast to|is no"):
        casts.convert(value, kind)


KINDS = [
    *(pa.int8(), pa.int64(), pa.float64(), pa.decimal128(6, 2), pa.decimal128(38, 18), pa.bool_(), pa.string(), pa.date32()),
    types.TIMESTAMP,
]
INPUTS = st.one_of(
    st.integers(-300, 300),
    st.floats(-1000, 1000),
    st.just(math.nan),
    st.decimals(-9999, 9999, places=2),
    st.booleans(),
    st.sampled_from(["1", "-1.5", "true", "2020-01-01", "x", ""]),
    st.dates(),
)


@unhurried
@given(INPUTS, st.sampled_from(KINDS))
def test_a_column_is_cast_as_a_constant_is(value: Any, target: pa.DataType) -> None:
    constant = build.literal(value)
    try:
        casts.check(constant.type, target)
    except PredicateError:
        return
    column = build.cast(Column(("c",), constant.type), target)
    table = pa.table({"c": pa.array([None, value], constant.type)})
    try:
        expected = casts.convert(value, target)
    except PredicateError:
        with pytest.raises(PredicateError):
            run(column, table)
    else:
        found = run(column, table)
        assert (found.type, found.to_pylist()[0]) == (target, None)
        assert found[1].as_py() == expected or expected != expected


@unhurried
@given(INPUTS)
def test_a_literal_comes_back_from_its_sql(value: Any) -> None:
    constant = build.literal(value)
    again = parse(to_sql(constant), SCHEMA)
    assert isinstance(again, Literal)
    assert again.type == constant.type
    assert again.value == constant.value or value != value


@pytest.mark.parametrize(
    "text", ["it's", "back\\slash", "a\nb\tc\0d", "100%_\\%", "\\", "'", '"', "\\n", "日本", "\U0001f600", "$1 ${x} `"]
)
def test_text_comes_back_from_its_sql(text: str) -> None:
    assert parse(to_sql(build.literal(text)), SCHEMA) == build.literal(text)
    node = build.call("startswith", [Column(("s",), pa.string()), build.literal(text)])
    assert parse(to_sql(node), SCHEMA) == node


@pytest.mark.parametrize(
    "sql",
    [
        *("i + 1 - 2 * l DIV 3 % 4 > 0", "-i < 5 AND -m > 1", "NOT (b AND i > 1) OR NOT b", "(i > 1) = b", "(i > 1) IS NULL"),
        *("(i = 1 OR b) AND (i = 2 OR NOT b)", "CASE WHEN b THEN i WHEN i IS NULL THEN t ELSE l END > CAST(m AS BIGINT)"),
        *("s LIKE '%a\\\\%\\\\_b_' OR s NOT LIKE 'x%'", "concat(lower(s), 'x') || s IN ('a', 'b', NULL)", "coalesce(s, '') <=> NULL"),
        *("NOT (i <=> 1) AND i IS NOT NULL", "CAST(s AS DECIMAL(7,3)) >= 0.5 AND f <> CAST('NaN' AS FLOAT) AND d < 1e300"),
        "day > DATE '2020-01-01' AND CAST(day AS TIMESTAMP) < TIMESTAMP '2020-01-01 00:00:00.000001Z'",
        "substring(s, -3, 2) = 'ab' AND date_trunc('month', CAST(day AS TIMESTAMP)) = '2020-01-01'",
        *("m / 3 > 1.5 AND m * 2 < 10 AND i / 2 = 1.5D", "b IS TRUE AND (i IN (1) ) IS NOT FALSE"),
    ],
)
def test_any_construct_comes_back_from_its_sql(sql: str) -> None:
    node = parse(sql, SCHEMA)
    assert parse(to_sql(node), SCHEMA) == node


ONE_COLUMN = pa.schema([("a", pa.int64())])


@pytest.mark.parametrize(
    "text",
    ["(" * 2000 + "a = 1" + ")" * 2000, "NOT " * 2000 + "a = 1", "a = " + "-(" * 2000 + "1" + ")" * 2000, "a" + " + 1" * 5000 + " = 1"],
    ids=["parentheses", "not", "minus", "sum"],
)
def test_what_is_nested_too_deeply_is_refused(text: str) -> None:
    with pytest.raises(PredicateError, match="nested too deeply") as caught:
        parse(text, ONE_COLUMN)
    assert len(str(caught.value)) < 500
    parse_widely("a = 1", ONE_COLUMN)


def test_what_people_write_is_not() -> None:
    for text in ("(" * 20 + "a = 1" + ")" * 20, " OR ".join(f"a = {number}" for number in range(1000))):
        assert Predicate.parse(text, from_arrow(ONE_COLUMN)).mask(pa.table({"a": [1, 2, 3]})).true_count >= 1


NEL, SEPARATOR = "\x85", "\u2028"


@pytest.mark.parametrize(
    ("pattern", "found", "missed"),
    [
        ("", ["", "a"], []),
        ("b.d", ["abxde", "b\td"], ["b\nd", "b\rd", f"b{NEL}d", f"b{SEPARATOR}d"]),
        ("^a", ["ab"], ["ba", "\na"]),
        ("a$", ["a", "ba", "a\n", "a\r\n", "a\r", f"a{NEL}", f"a{SEPARATOR}"], ["ab", "a\n\n", "a\nb"]),
        ("^(?:a|b$|c)", ["ax", "b\n", "c"], ["bx"]),
        (r"\Aa\z", ["a"], ["a\n"]),
        (r"^\s$", [" ", "\x0b", "\t"], ["a", "\u00a0"]),
        (r"^\S+$", ["ab"], ["a\x0bb"]),
        (r"^[\s\d]+$", ["1 \x0b2"], ["a"]),
        (r"^\w{2,3}?$", ["ab", "a_1"], ["a", "é1", "abcd"]),
        ("a{2}", ["aa"], ["a"]),
        ("[^a-c\\-\\]]", ["d", "\n"], ["a-]"]),
        ("日.", ["日本"], ["日"]),
        ("\\x41\\u65e5", ["A日"], ["A"]),
        ("(?:ab)+|x", ["abab", "x"], ["a"]),
        (r"\.\\\$", [r".\$"], [".$"]),
        ("a b-c&d", ["a b-c&d"], []),
        ("[|]$|[)]x", ["|", ")x"], ["|)"]),
    ],
)
def test_what_java_finds_is_found(pattern: str, found: list[str], missed: list[str]) -> None:
    hits = pc.match_substring_regex(pa.array([*found, *missed], pa.string()), pattern=to_re2(pattern)).to_pylist()
    assert hits == [True] * len(found) + [False] * len(missed)


@pytest.mark.parametrize(
    "pattern",
    [
        *(r"(a)\1", r"\k<n>", "(?=a)", "(?!a)", "(?<=a)", "(?<!a)", "(?<n>a)", "(?i)a", "(?>a)", "a++", "a*+", "a?+", "a{1}+"),
        *(r"\ba", r"\B", r"\p{L}", r"\pL", r"\h", r"\R", r"\Z", r"\G", r"\Q.\E", r"\uD83D", "[a[b]]", "[a&&b]", "[]a]", "[", "[a", r"[\S]"),
        *("a**", "*a", "+", "(", ")", "a)", "a{", "a{,2}", "a{2", "\\", "a$b", "a$\n", "(a$)\n", "(a$)*", "(a$|b)c", "a{1001}", "[b-a]"),
    ],
)
def test_what_cannot_be_said_in_re2_is_refused(pattern: str) -> None:
    with pytest.raises(PredicateError, match="of RLIKE"):
        to_re2(pattern)
