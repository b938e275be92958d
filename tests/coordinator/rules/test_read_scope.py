"""Which added files a transaction would have read: never too few, and as few as partition values and statistics allow."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.coordinator.rules.read_scope import ReadScope
from sluice.storage.actions import AddFile
from sluice.storage.pruning import files as file_columns
from sluice.storage.pruning.files import AddedFiles
from sluice.storage.pruning.predicate import Predicate
from sluice.storage.pruning.skipping import Skipper
from tests.storage import conditions
from tests.storage.conditions import KINDS, PARTITIONS, SCHEMA, Condition, Row
from tests.storage.pruning.test_skipping import file, files
from tests.storage.strategies import examples

PARTITION_TYPES = {name: KINDS[name] for name in PARTITIONS}
COLUMN_TYPES = {name: json.dumps(kind) for name, kind in KINDS.items() if name not in PARTITIONS}
Drawn = tuple[list[Row], str | None, dict[str, str | None]]


def add(path: str, values: Mapping[str, str | None], stats: str | None = None) -> AddFile:
    return AddFile(path, values, 1, 1, True, stats)


def stats(low: Any, high: Any, *, nulls: int | None = 0, records: int | None = 5, column: str = "i", **more: Any) -> str:
    body = {"numRecords": records, "minValues": {column: low}, "maxValues": {column: high}, "nullCount": {column: nulls}, **more}
    return json.dumps(body)


def scope(*predicates: str) -> ReadScope:
    return ReadScope.of(predicates, PARTITION_TYPES, COLUMN_TYPES)


def touched(sql: str, *adds: AddFile, statistics: bool = True) -> list[str]:
    return [each.path for each in scope(sql).touched(adds, statistics=statistics)]


@pytest.mark.costly
@examples(200)
@given(conditions.condition(), st.lists(file(), min_size=1, max_size=4))
def test_a_file_is_judged_alike_alone_among_others_and_in_a_snapshot(condition: Condition, drawn: list[Drawn]) -> None:
    predicate = Predicate.parse(condition.sql, SCHEMA)
    adds = AddedFiles(add(str(number), values, text) for number, (_, text, values) in enumerate(drawn))
    together = [each in Skipper(predicate.root, SCHEMA, PARTITIONS).picked(adds) for each in adds]
    for found, each, (rows, _, _) in zip(together, adds, drawn, strict=True):
        assert found or not any(condition.holds(row) for row in rows), "a file with a matching row was left out"
        assert found == bool(Skipper(predicate.root, SCHEMA, PARTITIONS).picked([each]))
    table = files([text for _, text, _ in drawn], [values for _, _, values in drawn])
    with patch.object(file_columns, "_FEW", -1):
        assert predicate.may_match(table, schema=SCHEMA, partition_columns=PARTITIONS).to_pylist() == together


@examples(100)
@given(st.lists(conditions.condition(), max_size=3), st.lists(file(), max_size=4))
def test_a_scope_is_the_union_of_its_predicates(drawn: list[Condition], some: list[Drawn]) -> None:
    adds = [add(str(number), values, text) for number, (_, text, values) in enumerate(some)]
    found = scope(*(each.sql for each in drawn)).touched(adds)
    one_by_one = [scope(each.sql).touched(adds) for each in drawn]
    assert found == [each for each in adds if any(each in hits for hits in one_by_one)]


@examples(200)
@given(conditions.condition(), file())
def test_delta_lakes_own_way_is_never_more_precise(condition: Condition, drawn: Drawn) -> None:
    _, text, values = drawn
    there = add("f", values, text)
    own, better = (scope(condition.sql).touched([there], statistics=statistics) for statistics in (False, True))
    assert set(map(id, better)) <= set(map(id, own))


ONE = add("one", {"part": "1", "place": "a"})
SEVEN = add("seven", {"part": "7", "place": "ab"})
NULL = add("null", {"part": None, "place": ""})


@pytest.mark.parametrize(
    ("sql", "names"),
    [
        ("", "one seven null"),
        ("TRUE", "one seven null"),
        ("FALSE", ""),
        ("part = 1", "one"),
        ("part <> 1", "seven"),
        ("part = 10 - 3", "seven"),
        ("part IS NULL", "null"),
        ("part <=> NULL", "null"),
        ("place IS NULL", "null"),
        ("part IN (1, 2)", "one"),
        ("part NOT IN (1, NULL)", ""),
        ("part BETWEEN 2 AND 7", "seven"),
        ("part > 1.5", "seven"),
        ("part < '7'", "one"),
        ("place LIKE 'a_'", "seven"),
        ("upper(place) = 'AB'", "seven"),
        ("part = 1 OR place = 'ab'", "one seven"),
        ("NOT (part = 1 OR place = 'ab')", ""),
        ("CAST(part AS STRING) = '7'", "seven"),
        ("10 / part > 5", "one"),
        ("10 / (part - 1) > 0", "one seven"),  # 10 / 0 has no answer
        ("coalesce(part, 1) = 1", "one null"),
    ],
)
def test_partition_values_are_typed(sql: str, names: str) -> None:
    assert touched(sql, ONE, SEVEN, NULL) == names.split()
    assert touched(sql, ONE, SEVEN, NULL, statistics=False) == names.split()


@pytest.mark.parametrize(
    ("sql", "better", "own"),
    [
        ("part = 1 AND i > 10", "", "one"),
        ("part = 1 AND i > 9", "one", "one"),
        ("part = 1 OR i > 10", "one", "one seven"),
        ("part = 7 OR (part = 1 AND i BETWEEN 11 AND 12)", "seven", "one seven"),
        ("NOT (part = 1 OR i <= 10)", "", "one seven"),
        ("i >= 5 * part", "one", "one seven"),
        ("i > 10 * part", "", "one seven"),
        ("i < part - 1", "seven", "one seven"),
    ],
)
def test_conjunctions_of_partition_and_data_columns(sql: str, better: str, own: str) -> None:
    adds = [add("one", {"part": "1"}, stats(0, 10)), add("seven", {"part": "7"}, stats(0, 10))]
    assert touched(sql, *adds) == better.split()
    assert touched(sql, *adds, statistics=False) == own.split()


@pytest.mark.parametrize(
    ("text", "sql", "may"),
    [
        (stats(0, 10), "i > 10", False),
        (stats(0, 10), "i >= 10", True),
        (stats(0, 10), "i = 11", False),
        (stats(5, 5), "i <> 5", False),
        (stats(0, 10), "i IS NULL", False),
        (stats(0, 10, nulls=1), "i IS NULL", True),
        (stats(None, None, nulls=5), "i > 10", False),
        (stats(None, None, nulls=None), "i > 10", True),
        (stats(0, 10, tightBounds=False), "i > 10", False),
        (stats(0, 10, nulls=1, tightBounds=False), "i IS NOT NULL", True),
        # What is absent excludes nothing.
        (None, "i > 10", True),
        ("", "i > 10", True),
        ("{oops", "i > 10", True),
        ("{}", "i > 10", True),
        ("[]", "i > 10", True),
        (stats(0, None), "i > 10", True),
        (stats("0", "10"), "i > 10", True),
        (stats(0, 2**40), "i > 10", True),
        (stats(0, 10), "l > 10", True),
        # Text may be cut, the largest is then rounded up.
        (stats("a" * 32, "a" * 31 + "b", column="s"), f"s = '{'a' * 39}b'", True),
        (stats("abc", "abd", column="s"), "s LIKE 'abx%'", False),
        # Timestamps are cut to milliseconds.
        (stats("2020-01-01T00:00:00.000Z", "2020-01-01T00:00:00.001Z", column="ts"), "ts > TIMESTAMP '2020-01-01 00:00:00.001999Z'", True),
        (stats("2020-01-01T01:00:00+01:00", "2020-01-02T00:00:00Z", column="ts"), "ts < '2019-12-31'", False),
        (stats("2020-01-01 nonsense", "2020-01-02T00:00:00Z", column="ts"), "ts < '2019-12-31'", True),
        (stats("2020-01-01", "2020-01-32", column="day"), "day >= DATE '2020-02-01'", True),
        (stats("2020-03-01T00:00:00Z", "2020-03-31T00:00:00Z", column="ts"), "CAST(ts AS DATE) = '2020-04-01'", False),
        # NaN is greater than everything, and not among the bounds.
        (stats(0.0, 1.0, column="d"), "d > 5", True),
        # More digits than a double has were perhaps rounded.
        (stats("1.5", "2.5", column="m"), "m > 2.5", False),
        (stats(1.5, 12345678901234567.5, column="m"), "m > 3", True),
    ],
)
def test_statistics_exclude_what_they_can(text: str | None, sql: str, may: bool) -> None:
    assert touched(sql, add("f", {"part": "1"}, text)) == ["f"] * may
    assert touched(sql, add("f", {"part": "1"}, text), statistics=False) == ["f"]


@pytest.mark.parametrize(
    "sql",
    [
        "nobody = 1",
        "part === 1",
        "part = 1; part = 2",
        "i",
        "soundex(place) = 'x'",
        "part IN (SELECT 1)",
        "part = 7 AND",
        "place < 3.5 + X'00'",
        "((((",
        "'",
        "part.x = 1",
        "rand() < 0.5",
        f"{'(' * 3000}part = 7{')' * 3000}",
    ],
)
def test_what_cannot_be_evaluated_reads_everything(sql: str) -> None:
    assert touched(sql, ONE, SEVEN, NULL) == ["one", "seven", "null"]
    assert touched(sql, ONE, SEVEN, NULL, statistics=False) == ["one", "seven", "null"]


@pytest.mark.parametrize(
    ("sql", "names"),
    [
        ("part = 1 AND nobody = 1", "one"),
        ("(part = 1 AND rand() < 0.5) OR part = 7", "one seven"),
        ("part = 1 AND (place = 'x' OR soundex(place) = 'y')", "one"),
        ("part = 1 AND NOT (place = 'a' AND soundex(place) = 'y')", "one"),
        ("part = 1 OR nobody = 1", "one seven null"),
    ],
)
def test_a_part_that_cannot_be_evaluated_does_not_spoil_the_rest(sql: str, names: str) -> None:
    assert touched(sql, ONE, SEVEN, NULL) == names.split()


def test_columns_of_types_that_are_unknown_exclude_nothing() -> None:
    adds = [add("f", {"p": "1", "q": "2"}, stats(0, 1)), add("g", {"p": "2", "q": "2"}, stats(0, 1))]
    for text in ('"variant"', "long", "{", '{"type":"row"}', '["long"]'):
        assert [each.path for each in ReadScope.of(["p = 1 AND i = 7"], {"p": "integer"}, {"i": text}).touched(adds)] == ["f"], text
    odd = ReadScope.of(["p = 1 AND q = 3"], {"p": "integer", "q": "interval"}, {})
    assert [each.path for each in odd.touched(adds)] == [each.path for each in odd.touched(adds, statistics=False)] == ["f"]


def test_nested_columns_have_statistics_too() -> None:
    kind = '{"type":"struct","fields":[{"name":"a b","type":"integer","nullable":true,"metadata":{}}]}'
    text = json.dumps({"numRecords": 2, "minValues": {"r": {"a b": 1}}, "maxValues": {"r": {"a b": 3}}, "nullCount": {"r": {"a b": 0}}})
    for sql, may in (("r.`a b` > 3", False), ("r.`A B` = 3", True), ("r.`a b` IS NULL", False), ("r IS NULL", True)):
        assert bool(ReadScope.of([sql], {}, {"r": kind}).touched([add("f", {}, text)])) == may, sql


def test_a_partition_value_that_is_none_of_its_type_excludes_nothing() -> None:
    adds = [add("f", {"part": "x"}), add("g", {"part": "1"}), add("h", {"part": "3"})]
    assert touched("part = 3 AND i > 5", *adds) == touched("part = 3", *adds) == ["f", "h"]
    assert touched("place = 'b'", add("f", {"part": "x", "place": "a"})) == []


def test_a_value_that_the_log_lacks_is_null() -> None:
    assert touched("part = 1", add("f", {})) == []
    assert touched("part IS NULL", add("f", {})) == ["f"]


def test_without_predicates_nothing_was_read() -> None:
    assert scope().touched([ONE]) == scope().touched([ONE], statistics=False) == []
    assert scope("part = 1").touched([]) == []


def test_a_table_without_partitions_is_read_whole_in_delta_lakes_own_way() -> None:
    data = add("f", {}, stats(0, 10))
    whole = ReadScope.of(["i > 10"], {}, {"i": '"integer"'})
    assert whole.touched([data]) == []
    assert whole.touched([data], statistics=False) == [data]
    assert ReadScope.of([], {}, {}).touched([data], statistics=False) == [data]


def test_a_scope_is_made_once() -> None:
    assert ReadScope.of(["part = 1"], {"part": "integer"}, {}) is ReadScope.of(("part = 1",), {"part": "integer"}, {})


@pytest.mark.parametrize("sql", ["part = 3", "part = 3 AND i > 2000000", "i > 2000000", "ts < '2019-01-01'", "part = 3 OR s LIKE 'x%'"])
def test_one_winner_costs_microseconds(sql: str) -> None:
    asked = scope(sql)
    text = stats(1, 2, column="i")
    winners = [AddedFiles(add(f"{n}-{k}", {"part": str(n), "place": "a"}, text) for k in range(10)) for n in range(200)]

    def once() -> float:
        begun = time.process_time()
        for adds in winners:
            asked.touched(adds)
        return (time.process_time() - begun) / len(winners)

    assert min(once() for _ in range(5)) < 300e-6, "the best of five, six times the budget: a machine may be slow"
