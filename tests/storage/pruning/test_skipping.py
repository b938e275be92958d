"""Data skipping: a file with a matching row is never left out, and a file is never taken for whole when one of its rows does not match."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from decimal import Decimal
from functools import partial
from typing import Any
from unittest.mock import patch

import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.storage.expressions.nodes import Column
from sluice.storage.pruning import files as file_stats
from sluice.storage.pruning.predicate import Predicate
from sluice.storage.schema.schema import PrimitiveType, StructField, StructType, from_arrow
from tests.storage import conditions
from tests.storage.conditions import KINDS, PARTITIONS, SCHEMA, Condition, Row
from tests.storage.logs import statistics_of
from tests.storage.strategies import examples, unhurried

MAP = pa.map_(pa.string(), pa.string())


def files(texts: Sequence[str | None], partition_values: Sequence[Mapping[str, str | None]] | None = None) -> pa.Table:
    """A snapshot's file table, as far as skipping looks at it."""
    values = partition_values or [{}] * len(texts)
    return pa.table({"partition_values": pa.array([list(each.items()) for each in values], MAP), "stats": pa.array(texts, pa.string())})


def answered(
    question: str, sql: str, table: pa.Table, schema: StructType = SCHEMA, partition_columns: tuple[str, ...] = PARTITIONS
) -> list[bool]:
    """What `may_match` or `matches_all` says of each file."""
    asked = partial(getattr(Predicate.parse(sql, schema), question), table, schema=schema, partition_columns=partition_columns)
    answers: pa.BooleanArray = asked()
    with patch.object(file_stats, "_FEW", -1):  # many texts are read in another way
        assert asked() == answers
    assert (answers.null_count, len(answers)) == (0, table.num_rows)
    return list(answers.to_pylist())


may, all_match = partial(answered, "may_match"), partial(answered, "matches_all")


def check(sql: str, of: tuple[pa.Table, StructType], could: bool, surely: bool) -> None:
    """Whether a row of the one file could match, and whether all surely do."""
    assert (may(sql, *of), all_match(sql, *of)) == ([could], [surely])


Answers = tuple[bool, bool]
ALL, SOME, NONE = (True, True), (True, False), (False, False)
"""Of a file's rows all match surely, some may, or none can."""


def by_answers(cases: Mapping[Answers, Sequence[Any]]) -> list[tuple[Any, Answers]]:
    return [(case, answers) for answers, each in cases.items() for case in each]


def one(
    kind: str, low: Any = None, high: Any = None, nulls: int | None = 0, records: int | None = 5, **more: Any
) -> tuple[pa.Table, StructType]:
    """One file with a column `c` and statistics about it."""
    body: dict[str, Any] = {"numRecords": records, "minValues": {"c": low}, "maxValues": {"c": high}, "nullCount": {"c": nulls}, **more}
    return files([json.dumps(body)]), StructType([StructField("c", PrimitiveType(kind))])


@st.composite
def file(draw: st.DrawFn) -> tuple[list[Row], str | None, dict[str, str | None]]:
    """Rows of one partition, statistics about them, and the partition's values as the log writes them."""
    place = {name: draw(conditions.value(KINDS[name])) for name in PARTITIONS}
    rows: list[Row] = [{**row, **place} for row in draw(st.lists(conditions.row(), min_size=1, max_size=4))]
    texts = {name: None if value is None else str(value) for name, value in place.items()}
    for name, value in texts.items():
        # An empty string is null for Delta.
        rows = [{**row, name: None if value == "" else row[name]} for row in rows]
    return rows, draw(conditions.stats(rows)), texts


@pytest.mark.costly
@examples(300)
@given(conditions.condition(), st.lists(file(), min_size=1, max_size=3))
def test_never_wrong(condition: Condition, drawn: list[tuple[list[Row], str | None, dict[str, str | None]]]) -> None:
    table = files([text for _, text, _ in drawn], [values for _, _, values in drawn])
    answers = [[condition.holds(row) for row in rows] for rows, _, _ in drawn]
    could, surely = may(condition.sql, table), all_match(condition.sql, table)
    for number, hits in enumerate(answers):
        assert could[number] or not any(hits), "a file with a matching row was left out"
        assert not surely[number] or all(hits), "a file with a row that does not match was taken for whole"


@unhurried
@given(conditions.condition(), st.lists(conditions.row(), min_size=1, max_size=4))
def test_never_wrong_with_the_statistics_sluice_writes(condition: Condition, rows: list[Row]) -> None:
    rows = [{**row, "part": 1, "place": "a"} for row in rows]
    table = files([statistics_of(conditions.table(rows).drop_columns(list(PARTITIONS)), SCHEMA, PARTITIONS)], [{"part": "1", "place": "a"}])
    hits = [condition.holds(row) for row in rows]
    assert may(condition.sql, table)[0] or not any(hits)
    assert not all_match(condition.sql, table)[0] or all(hits)


@unhurried
@given(conditions.condition(), conditions.value("integer"), conditions.value("string"))
def test_partition_values_decide_exactly(condition: Condition, part: Any, place: Any) -> None:
    predicate = Predicate.parse(condition.sql, SCHEMA)
    inside, rest = predicate.split(PARTITIONS)
    table = files([None], [{"part": None if part is None else str(part), "place": place}])
    holds = condition.holds({**dict.fromkeys(KINDS), "part": part, "place": place or None})
    if inside is not None and rest is None:
        assert may(condition.sql, table) == [holds is True]
        assert all_match(condition.sql, table) == [holds is True]


LISTS = ([20, 200], [-100, 0, 11, 200], [-100, 0, 7, 8, 11, 200])
OUTSIDE, AROUND, WITH_SEVEN = (
    f"c IN ({', '.join(str(n) for begin, end in zip(each[::2], each[1::2], strict=True) for n in range(begin, end))})" for each in LISTS
)


@pytest.mark.parametrize(
    ("sql", "answers"),
    by_answers(
        {
            ALL: [
                *("c <> 11", "c <= 10", "c >= 0", "11 > c", "c < 3000000000", "c < 10.5", "c BETWEEN -1 AND 20", "c NOT IN (11, 12)"),
                *("c IS NOT NULL", "NOT (c <=> 11)", "NOT (c > 10 OR c < 0)", "NOT c > 10 AND NOT c < 0", "c > 10 OR c IS NOT NULL"),
                *("CAST(c AS DOUBLE) <= 10", "TRUE"),
            ],
            SOME: [
                *("c = 5", "c <> 5", "c >= 10", "5 < c", "c IN (11, 3)", WITH_SEVEN, "c > 10 OR c = 5", "c + 1 > 100"),
                "coalesce(c, 1) > 100",
            ],
            NONE: [
                *("c = 11", "c = -1", "c > 10", "c < 0", "c > 10.5", "c BETWEEN 11 AND 20", "c NOT BETWEEN 0 AND 10", "c IN (11, 12)"),
                *("c NOT IN (11, NULL)", OUTSIDE, AROUND, "c IN (-1, 11, NULL)", "NOT (c IN (-1, 11, NULL))", "FALSE", "NULL"),
                *("c IN (-1, 11) OR c IS NULL", "c IS NULL", "c <=> NULL", "c > 10 AND c < 0", "CAST(c AS BIGINT) > 10"),
            ],
        }
    ),
)
def test_bounds(sql: str, answers: Answers) -> None:
    check(sql, one("integer", 0, 10), *answers)


@pytest.mark.parametrize(
    ("case", "answers"),
    by_answers(
        {
            ALL: [(5, 5, "c IS NULL"), (5, 5, "c <=> NULL"), (0, None, "c IS NOT NULL")],
            SOME: [
                *((2, 5, "c IS NULL"), (2, 5, "c <= 10"), (2, 5, "c <= 10 OR c IS NULL"), (None, 5, "c IS NULL")),
                *((None, 5, "c IS NOT NULL"), (5, None, "c IS NOT NULL")),
            ],
            NONE: [
                *((0, 5, "c IS NULL"), (5, 5, "c IS NOT NULL"), (5, 5, "c = 5"), (5, 5, "NOT c = 5")),
                (5, 5, "c IN (5)"),
            ],
        }
    ),
)
def test_null_counts(case: tuple[int | None, int | None, str], answers: Answers) -> None:
    nulls, records, sql = case
    check(sql, one("integer", 0, 10, nulls, records), *answers)


@pytest.mark.parametrize(
    ("case", "answers"),
    by_answers(
        {
            ALL: [(0, "c <= 10")],
            SOME: [(3, "c IS NULL"), (3, "c IS NOT NULL")],
            NONE: [(0, "c IS NULL"), (5, "c IS NOT NULL"), (0, "c > 10")],
        }
    ),
)
def test_wide_bounds_still_bound(case: tuple[int, str], answers: Answers) -> None:
    nulls, sql = case
    check(sql, one("integer", 0, 10, nulls, tightBounds=False), *answers)


DAY = "2020-01-01T00:00:00.000Z"
WRITERS: list[tuple[str, Any, Any, Mapping[Answers, Sequence[str]]]] = [
    # NaN is left out of statistics, and greater than everything.
    (
        "double",
        1.0,
        2.0,
        {
            ALL: ["c >= 1"],
            SOME: ["c > 5", "c <= 2", "c >= 3 OR c <= 0", "isnan(c)"],
            NONE: ["c < 1", "c = 5", "c BETWEEN 3 AND 4", "c >= 3 AND c IN (4, 5)"],
        },
    ),
    ("double", 1.0, 1.0, {SOME: ["c = 1", "c <> 1"]}),
    ("double", "-Infinity", 2.0, {SOME: ["c < 1"]}),
    # The shortest text of a 32-bit float is not the number it stands for.
    ("float", 0.1, 0.1, {ALL: ["c > 0.1D"], SOME: ["c = CAST('0.1' AS FLOAT)"], NONE: ["c <= 0.1D"]}),
    # Text is cut: the smallest to a prefix, the largest rounded up.
    (
        *("string", "abc", "abd"),
        {
            ALL: ["c LIKE 'ab%'"],
            SOME: ["c = 'abcdef'", "c LIKE '%x'", "c LIKE '%'"],
            NONE: ["c LIKE 'abx%'", "c LIKE 'aa%'", "c LIKE 'abx_y'", "c NOT LIKE 'ab%'", "startswith(c, 'ac')"],
        },
    ),
    # By code points: the highest one, and those beside the surrogates, which are none.
    (
        *("string", "a\U0010ffff", "\ue000"),
        {
            SOME: ["c LIKE 'a%'", "c LIKE 'a\U0010ffff%'", "c LIKE 'a\U0010ffff\U0010ffff%'", "c LIKE '\ud7ff%'", "c LIKE '\ue000%'"],
            NONE: ["c LIKE 'a\ud7ff%'", "c LIKE 'a\ue000%'", "c LIKE '\ue001%'", "c LIKE '\U0010ffff%'"],
        },
    ),
    ("string", "a", "é", {SOME: ["c < 'é'"]}),
    ("string", "a", "b", {SOME: ["lower(c) = 'z'"], NONE: ["c > 'é'"]}),
    # Timestamps are cut to milliseconds.
    (
        "timestamp",
        DAY,
        DAY,
        {answers: [f"c > TIMESTAMP '2020-01-01 00:00:00.{us}Z'"] for answers, us in ((SOME, "000999"), (NONE, "001001"))},
    ),
    ("timestamp", "2020-01-01T01:00:00.000+01:00", DAY, {NONE: ["c < '2019-12-31'"]}),
    ("timestamp", DAY, "2020-06-01T00:00:00.000Z", {NONE: ["year(c) = 2021"]}),
    (
        "timestamp",
        "2020-02-01T00:00:00.000Z",
        "2020-06-01T00:00:00.000Z",
        {ALL: ["year(c) = 2020"], NONE: ["date(c) = '2020-07-01'", "date_trunc('month', c) = '2020-07-01'"]},
    ),
    ("timestamp_ntz", "2020-01-01T00:00:00.000", "2020-01-01T00:00:00.000", {SOME: ["c = TIMESTAMP_NTZ '2020-01-01'"]}),
    ("timestamp_ntz", DAY, "2020-01-02T00:00:00.000Z", {NONE: ["c > '2020-01-03'"]}),
    ("date", "2020-01-01", "2020-01-02", {NONE: ["c > '2020-01-02'", "c < TIMESTAMP '2020-01-01 00:00:00Z'"]}),
    ("date", "2020-01-01", "2020-13-02", {SOME: ["c > '2020-01-02'"]}),
    ("date", "2020-13-01", "2020-01-02", {NONE: ["c > '2020-01-02'"]}),
    ("boolean", None, None, {SOME: ["c"]}),
    ("boolean", False, False, {NONE: ["c"]}),
    ("boolean", True, True, {ALL: ["c"], NONE: ["NOT c"]}),
    ("boolean", False, True, {SOME: ["c = FALSE"]}),
    ("boolean", 0, 0, {SOME: ["c"]}),
    ("binary", None, None, {SOME: ["c = X'61'"]}),
]


@pytest.mark.parametrize(
    ("kind", "low", "high", "sql", "could", "surely"),
    [(kind, low, high, sql, *answers) for kind, low, high, cases in WRITERS for sql, answers in by_answers(cases)],
)
def test_what_writers_do_to_bounds(kind: str, low: Any, high: Any, sql: str, could: bool, surely: bool) -> None:
    check(sql, one(kind, low, high), could, surely)


@pytest.mark.parametrize(
    ("low", "high", "sql", "could"),
    [
        *(("1.50", "2.50", "c > 2.5", False), ("1.5", "2.5", "c < 1.5", False), ("1", "2", "c > 2.00", False)),
        ("1.50", "2.50", "c = 2", True),
        # More digits than a double holds may have been rounded on their way.
        ("1.50", "123456789012345678.50", "c > 123456789012345678.50", True),
        ("1.50", "1.2345678901234567e17", "c > 99999999999999999999", True),
        *(("1.50", "1e2", "c > 100", False), ("1.501", "2.50", "c < 1.5", True), ("1.501", "2.50", "c > 2.5", False)),
    ],
)
def test_decimal_bounds_are_exact_or_not_used(low: str, high: str, sql: str, could: bool) -> None:
    text = f'{{"numRecords":5,"minValues":{{"c":{low}}},"maxValues":{{"c":{high}}},"nullCount":{{"c":0}}}}'
    schema = StructType([StructField("c", PrimitiveType("decimal(38,2)"))])
    assert may(sql, files([text]), schema) == [could]


def test_nested_fields_and_lists_have_statistics_too() -> None:
    schema = from_arrow(pa.schema([("r", pa.struct([("a", pa.struct([("b.c", pa.int32())]))])), ("l", pa.list_(pa.int32()))]))
    text = {"numRecords": 3, "minValues": {"r": {"a": {"b.c": 1}}}, "maxValues": {"r": {"a": {"b.c": 3}}}}
    text["nullCount"] = {"r": {"a": {"b.c": 0}}, "l": 3}
    table = files([json.dumps(text)])
    could = {"r.a.`b.c` > 3": False, "r.a.`b.c` = 3": True, "r.a.`b.c` IS NULL": False, "r.a IS NULL": True, "l IS NOT NULL": False}
    assert {sql: may(sql, table, schema) for sql in could} == {sql: [answer] for sql, answer in could.items()}


@pytest.mark.parametrize(
    "bad", [None, "", "{", "null", "[1]", "7", '"x"', "{}{}", '{"numRecords":"many"}', '{"minValues":{"i":"NaN"}}', "{}\n{}"]
)
def test_statistics_that_are_none_do_not_spoil_the_others(bad: str | None) -> None:
    good = json.dumps({"numRecords": 1, "minValues": {"i": 1, "d": 1.5}, "maxValues": {"i": 1, "d": 1.5}, "nullCount": {"i": 0}})
    table = files([good, bad, good])
    assert may("i > 1", table) == [False, True, False]
    assert may("i > 1 AND d = 1.5", table) == [False, True, False]
    assert all_match("i = 1", table) == [True, False, True]


def test_bounds_that_are_no_numbers_in_json_leave_the_other_columns_alone() -> None:
    text = json.dumps(
        {"numRecords": 2, "minValues": {"i": 1, "d": "-Infinity"}, "maxValues": {"i": 1, "d": "NaN"}, "nullCount": {"i": 0, "d": 0}}
    )
    assert may("i > 1 AND d > 0", files([text])) == [False]
    assert may("i = 1 AND d > 0", files([text])) == [True]


@pytest.mark.parametrize("many", [-1, 1000])
def test_what_is_said_of_a_file_does_not_depend_on_the_others(many: int) -> None:
    bodies = [{"i": 1, "day": "2020-01-01", "m": 1.5}, {"i": 2**40, "day": "2020-13-01", "m": "x"}, {"i": "1", "day": 7, "m": 1.501}]
    texts = [json.dumps({"numRecords": 1, "minValues": body, "maxValues": body, "nullCount": dict.fromkeys(body, 0)}) for body in bodies]
    with patch.object(file_stats, "_FEW", many):
        for sql in ("i > 1", "day > DATE '2020-01-01'", "m > 1.5", "i > 1 AND day > DATE '2020-01-01' AND m > 1.5"):
            predicate = Predicate.parse(sql, SCHEMA)
            found = predicate.may_match(files(texts), schema=SCHEMA, partition_columns=PARTITIONS)
            assert found.to_pylist() == [False, True, True], sql


def test_a_column_the_file_does_not_know_of_is_unknown() -> None:
    table = files(['{"numRecords":5,"minValues":{},"maxValues":{},"nullCount":{}}'])
    assert (may("i = 1", table), may("i IS NULL", table), all_match("i IS NULL", table)) == ([True], [True], [False])


@pytest.mark.parametrize(
    ("kind", "text", "sql"),
    [
        ("integer", "7", "p = 7"),
        ("string", "a b", "p = 'a b'"),
        ("date", "2020-01-01", "p = '2020-01-01'"),
        ("timestamp", "2020-01-01T00:00:00.000000Z", "p = '2020-01-01'"),
        ("timestamp", "2020-01-01 00:00:00", "p = '2020-01-01'"),
        ("decimal(10,2)", "1.50", "p = 1.5"),
        ("double", "NaN", "isnan(p)"),
        ("double", "0.1", "p = 0.1D"),
        ("boolean", "true", "p"),
        ("string", None, "p IS NULL"),
        ("integer", "", "p IS NULL"),
    ],
)
def test_partition_values_of_every_type(kind: str, text: str | None, sql: str) -> None:
    schema = StructType([StructField("p", PrimitiveType(kind)), StructField("i", PrimitiveType("integer"))])
    table = files([None], [{"p": text}])
    for condition, holds in ((sql, True), (f"NOT ({sql})", False)):
        assert (may(condition, table, schema, ("p",)), all_match(condition, table, schema, ("p",))) == ([holds], [holds])


def test_partition_values_beside_statistics() -> None:
    stats = json.dumps({"numRecords": 2, "minValues": {"i": 5}, "maxValues": {"i": 9}, "nullCount": {"i": 0}})
    table = files([stats] * 3, [{"part": "1"}, {"part": "7"}, {"part": None}])
    assert may("i = part", table) == [False, True, False]
    assert may("i > part", table) == [True, True, False]
    assert all_match("i > part", table) == [True, False, False]
    assert all_match("i > part OR part IS NULL", table) == [True, False, True]
    assert may("part = 1 OR i > 9", table) == [True, False, False]
    assert may("part % 2 = 1 AND lower(place) = 'x'", table) == [False, False, False]


def test_a_partition_that_cannot_be_evaluated_is_not_left_out_and_tells_nothing_of_others() -> None:
    table = files([None, None], [{"part": "0"}, {"part": "20"}])
    assert may("i > 0 AND 10 / part > 1", table) == [True, False]


def test_no_files() -> None:
    assert may("i = 1", files([])) == all_match("i = 1", files([])) == []


def test_chunks_and_slices() -> None:
    stats = [json.dumps({"numRecords": 1, "minValues": {"i": n}, "maxValues": {"i": n}, "nullCount": {"i": 0}}) for n in range(6)]
    table = pa.concat_tables([files(stats[:4], [{"part": str(n)} for n in range(4)]).slice(1), files(stats[4:], [{"part": "9"}] * 2)])
    assert may("i >= 3", table) == [False, False, True, True, True]
    assert may("part = 9 AND i > 4", table) == [False, False, False, False, True]


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        pytest.param([(5, 9)], (5, 9), id="one file"),
        pytest.param([(5, 9), (-3, 7)], (-3, 9), id="files that overlap"),
        pytest.param([(5, 9), (None, None)], None, id="a file that does not tell"),
        pytest.param([(5, 9), (6, None)], None, id="a file that tells one side"),
        pytest.param([], None, id="no files"),
    ],
)
def test_the_extent_of_a_column_in_all_files(bounds: list[tuple[int | None, int | None]], expected: tuple[int, int] | None) -> None:
    table = files([json.dumps({"numRecords": 2, "minValues": {"i": low}, "maxValues": {"i": high}}) for low, high in bounds])
    assert file_stats.Files.of_table(table).extent(Column(("i",), pa.int64())) == expected


def test_a_bound_moved_beyond_time_itself_is_no_bound() -> None:
    table, schema = one("timestamp", "2020-01-01T00:00:00.000Z", "+300000-01-01T00:00:00.000Z")
    assert may("c > '2021-01-01'", table, schema) == [True]


def test_the_statistics_module_and_skipping_agree_on_precision() -> None:
    moment = datetime(2020, 1, 1, 0, 0, 0, 999_999, tzinfo=timezone.utc)
    data = pa.table({"ts": pa.array([moment], pa.timestamp("us", "UTC")), "m": pa.array([Decimal("1.50")], pa.decimal128(8, 2))})
    schema = from_arrow(data.schema)
    text = statistics_of(data, schema, ())
    assert orjson.loads(text)["numRecords"] == 1
    assert may("ts = TIMESTAMP '2020-01-01 00:00:00.999999Z' AND m = 1.5", files([text]), schema, ()) == [True]
    assert may("ts > '2020-01-02' OR m > 1.5", files([text]), schema, ()) == [False]
