"""Random merges against a reference in plain Python: rows, changes told, and what is ambiguous."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

import sluice
from sluice.spark_integration.rows import source as sources
from sluice.spark_integration.rows.clauses import Clause
from sluice.spark_integration.rows.merge import merge_rows

from ..conftest import Place

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("id", pa.int32()), ("p", pa.string()), ("v", pa.int64())])
SOURCE = "id long, p string, w int"

Row = tuple[Any, ...]


@dataclass(frozen=True)
class Condition:
    """The same condition in SQL, and over a row of each side."""

    sql: str | None
    holds: Callable[[Row, Row], bool]


ALWAYS = Condition(None, lambda _t, _s: True)
OF_TARGET = [Condition("t.v > 2", lambda t, _s: t[2] is not None and t[2] > 2), Condition("t.p IS NULL", lambda t, _s: t[1] is None)]
OF_SOURCE = [Condition("s.w % 2 = 0", lambda _t, s: s[2] is not None and s[2] % 2 == 0), Condition("s.p = 'a'", lambda _t, s: s[1] == "a")]
ONS = [
    Condition("t.id = s.id", lambda t, s: t[0] is not None and t[0] == s[0]),
    Condition("t.id = s.id AND t.p = s.p", lambda t, s: None not in (t[0], t[1]) and t[:2] == s[:2]),
    Condition("t.id <=> s.id AND t.v > 1", lambda t, s: t[0] == s[0] and t[2] is not None and t[2] > 1),
    Condition("t.id + 1 = s.id AND s.w > 1", lambda t, s: None not in (t[0], s[0], s[2]) and t[0] + 1 == s[0] and s[2] > 1),
]


@dataclass(frozen=True)
class Ruled:
    """A clause, and what it means: the new row, None for a deletion."""

    clause: Clause
    holds: Callable[[Row, Row], bool]
    becomes: Callable[[Row, Row], Row | None]


def null_plus(*terms: Any) -> Any:
    return None if None in terms else sum(terms)


MATCHED = [
    (Clause("matched", "update", None, {"v": "t.v + s.w"}), lambda t, s: (t[0], t[1], null_plus(t[2], s[2]))),
    (Clause("matched", "update", None, {"t.p": "s.p", "id": "s.id"}), lambda t, s: (s[0], s[1], t[2])),
    (Clause("matched", "delete"), lambda _t, _s: None),
]
NOT_MATCHED = [
    (Clause("not_matched", "insert", None, {"id": "s.id", "p": "s.p", "v": "s.w"}), lambda _t, s: s),
    (Clause("not_matched", "insert", None, {"v": "s.w * 10"}), lambda _t, s: (None, None, None if s[2] is None else s[2] * 10)),
]
BY_SOURCE = [
    (Clause("not_matched_by_source", "update", None, {"p": "'x'"}), lambda t, _s: (t[0], "x", t[2])),
    (Clause("not_matched_by_source", "delete"), lambda _t, _s: None),
]


@st.composite
def clause_lists(draw: st.DrawFn) -> list[Ruled]:
    found: list[Ruled] = []
    for pool, conditions in ((MATCHED, [*OF_TARGET, *OF_SOURCE]), (NOT_MATCHED, OF_SOURCE), (BY_SOURCE, OF_TARGET)):
        chosen = draw(st.lists(st.sampled_from(pool), max_size=2))
        for number, (clause, becomes) in enumerate(chosen):
            last = number == len(chosen) - 1
            condition = draw(st.sampled_from([ALWAYS, *conditions] if last else conditions))
            found.append(Ruled(replace(clause, condition=condition.sql), condition.holds, becomes))
    return found or [Ruled(MATCHED[0][0], ALWAYS.holds, MATCHED[0][1])]


IDS = st.one_of(st.none(), st.integers(0, 6))
TEXTS = st.sampled_from([None, "a", "b", "c d"])
TARGETS = st.lists(st.tuples(IDS, TEXTS, st.one_of(st.none(), st.integers(0, 5))), max_size=10)
SOURCES = st.lists(st.tuples(IDS, TEXTS, st.one_of(st.none(), st.integers(0, 5))), max_size=6)


class Ambiguous(Exception):
    """Several rows of the source change one row."""


def first(rules: Sequence[Ruled], kind: str, target: Row, source: Row) -> Ruled | None:
    return next((rule for rule in rules if rule.clause.matched == kind and rule.holds(target, source)), None)


def reference(target: Sequence[Row], source: Sequence[Row], on: Condition, rules: Sequence[Ruled]) -> Counter[Row]:
    """What the merge makes of the rows."""
    matched_rules = [rule for rule in rules if rule.clause.matched == "matched"]
    only_deletes = len(matched_rules) == 1 and matched_rules[0].clause.action == "delete" and matched_rules[0].clause.condition is None
    result: list[Row] = []
    for row in target:
        pairs = [other for other in source if on.holds(row, other)]
        kind, others = ("matched", pairs) if pairs else ("not_matched_by_source", [()])
        apply = [(rule, other) for other in others if (rule := first(rules, kind, row, other)) is not None]
        if len(apply) > 1 and not only_deletes:
            raise Ambiguous
        made = apply[0][0].becomes(row, apply[0][1]) if apply else row
        result += [] if made is None else [made]
    for other in source:
        if not any(on.holds(row, other) for row in target):
            rule = first(rules, "not_matched", (), other)
            made = None if rule is None else rule.becomes((), other)
            result += [] if made is None else [made]
    return Counter(result)


def rows_of(table: sluice.Table) -> Counter[Row]:
    return Counter(tuple(row.values()) for row in table.refresh().snapshot().to_arrow().to_pylist())


def told(table: sluice.Table, version: int) -> Counter[Row]:
    """What the changes of a version add, less what they take away."""
    found: Counter[Row] = Counter()
    for row in table.changes(version - 1, version).to_pylist():
        sign = -1 if row["_change_type"] in ("delete", "update_preimage") else 1
        found[tuple(row[name] for name in SCHEMA.names)] += sign
    return found


def check(
    spark: SparkSession, place: Place, target: list[Row], source: list[Row], on: Condition, rules: list[Ruled], layout: tuple[bool, ...]
) -> None:
    vectors, changes, partitioned, small, own = layout
    properties = {"delta.enableDeletionVectors": str(vectors).lower(), "delta.enableChangeDataFeed": str(changes).lower()}
    where = Place(spark, f"{place.location}-{next(NUMBERS)}", place.coordinator)
    table = where.create(SCHEMA, partition_by=["p"] if partitioned else [], properties=properties)
    halves = (target[: len(target) // 2], target[len(target) // 2 :])
    before, mine = (halves[0], halves[1]) if own else (target, [])
    for part in (before[::2], before[1::2]):
        if part:
            table.append(pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in part], SCHEMA))
    try:
        expected: Counter[Row] | None = reference(target, source, on, rules)
    except Ambiguous:
        expected = None
    sources._SENT_ROWS_MAX = 2_000_000 if small else 0  # type: ignore[misc]
    tx = table.begin()
    if mine:
        tx.append(pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in mine], SCHEMA))
    frame = spark.createDataFrame(source, SOURCE).alias("s")
    clauses = [rule.clause for rule in rules]
    if expected is None:
        with pytest.raises(sluice.InvalidRequest, match="several rows of the source"):
            merge_rows(tx, spark, frame, str(on.sql), clauses, target_alias="t")
        return
    counts = merge_rows(tx, spark, frame, str(on.sql), clauses, target_alias="t")
    commit = tx.commit()
    assert rows_of(table) == expected
    assert counts.inserted - counts.deleted == expected.total() - len(target)
    assert (commit is not None) == bool(counts.affected or mine)
    if changes and commit is not None:
        after = Counter(before)
        after.update(told(table, commit.version))
        assert +after == expected
        assert min(after.values(), default=0) >= 0


NUMBERS = iter(range(1_000_000))
LAYOUTS = st.tuples(st.booleans(), st.booleans(), st.booleans(), st.booleans(), st.booleans())


@pytest.fixture(autouse=True)
def limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "_SENT_ROWS_MAX", sources._SENT_ROWS_MAX)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture], database=None)
@given(TARGETS, SOURCES, st.sampled_from(ONS), clause_lists(), LAYOUTS)
def test_merges_are_what_the_reference_says(
    spark: SparkSession, place: Place, target: list[Row], source: list[Row], on: Condition, rules: list[Ruled], layout: tuple[bool, ...]
) -> None:
    check(spark, place, target, source, on, rules, layout)


@pytest.mark.long
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture], database=None)
@given(TARGETS, SOURCES, st.sampled_from(ONS), clause_lists(), LAYOUTS)
def test_many_merges_are_what_the_reference_says(
    spark: SparkSession, place: Place, target: list[Row], source: list[Row], on: Condition, rules: list[Ruled], layout: tuple[bool, ...]
) -> None:
    check(spark, place, target, source, on, rules, layout)
