"""Random merges against a reference in plain Python: rows, changes told, and what is ambiguous.

`EXAMPLES=1000 pytest -m long` tries that many, else 300.
"""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

import sluice
from sluice.spark_integration.rows import source as sources
from sluice.spark_integration.rows.analysis import Clause, MergeRequest
from sluice.spark_integration.rows.merge import merge_rows
from sluice.tables.write.merging import RowCounts

from ..conftest import Place
from .model import ALWAYS, Ambiguous, Condition, Row, Ruled, changes, null_plus

pytestmark = pytest.mark.spark

INNER = pa.struct([("a", pa.int32()), ("b", pa.string())])
SCHEMA = pa.schema([("id", pa.int32()), ("p", pa.string()), ("v", pa.int64()), ("n", INNER), ("l", pa.list_(pa.int32()))])
SOURCE = "id long, p string, w int"
NEW = "w"
"""The column of the source that evolving schemas get; rows of the model always have a place for it, the last one."""

OF_TARGET = [Condition("t.v > 2", lambda t, _s: t[2] is not None and t[2] > 2), Condition("t.p IS NULL", lambda t, _s: t[1] is None)]
OF_SOURCE = [Condition("s.w % 2 = 0", lambda _t, s: s[2] is not None and s[2] % 2 == 0), Condition("s.p = 'a'", lambda _t, s: s[1] == "a")]
ONS = [
    Condition("t.id = s.id", lambda t, s: t[0] is not None and t[0] == s[0]),
    Condition("t.id = s.id AND t.p = s.p", lambda t, s: None not in (t[0], t[1]) and t[:2] == s[:2]),
    Condition("t.id <=> s.id AND t.v > 1", lambda t, s: t[0] == s[0] and t[2] is not None and t[2] > 1),
    Condition("t.id + 1 = s.id AND s.w > 1", lambda t, s: None not in (t[0], s[0], s[2]) and t[0] + 1 == s[0] and s[2] > 1),
]


MATCHED = [
    (Clause("matched", "update", None, {"v": "t.v + s.w"}), lambda t, s: (*t[:2], null_plus(t[2], s[2]), *t[3:])),
    (Clause("matched", "update", None, {"t.p": "s.p", "id": "s.id"}), lambda t, s: (s[0], s[1], *t[2:])),
    (Clause("matched", "update", None, {"n.a": "s.w"}), lambda t, s: (*t[:3], (s[2], t[3] and t[3][1]), *t[4:])),
    (
        Clause("matched", "update", None, {"N": "named_struct('b', s.p, 'a', s.w)", "l": "array(s.w, t.id)"}),
        lambda t, s: (*t[:3], (s[2], s[1]), (s[2], t[0]), t[5]),
    ),
    (Clause("matched", "delete"), lambda _t, _s: None),
]
NOT_MATCHED = [
    (Clause("not_matched", "insert", None, {"id": "s.id", "p": "s.p", "v": "s.w"}), lambda _t, s: (*s, None, None, None)),
    (
        Clause("not_matched", "insert", None, {"v": "s.w * 10", "n.b": "s.p"}),
        lambda _t, s: (None, None, None if s[2] is None else s[2] * 10, (None, s[1]), None, None),
    ),
]
BY_SOURCE = [
    (Clause("not_matched_by_source", "update", None, {"p": "'x'"}), lambda t, _s: (t[0], "x", *t[2:])),
    (Clause("not_matched_by_source", "delete"), lambda _t, _s: None),
]
EVOLVING = {
    "matched": [(Clause("matched", "update_all"), lambda t, s: (s[0], s[1], *t[2:5], s[2]))],
    "not_matched": [(Clause("not_matched", "insert_all"), lambda _t, s: (s[0], s[1], None, None, None, s[2]))],
}


@st.composite
def clause_lists(draw: st.DrawFn) -> list[Ruled]:
    found: list[Ruled] = []
    evolves = draw(st.booleans())
    for pool, conditions in ((MATCHED, [*OF_TARGET, *OF_SOURCE]), (NOT_MATCHED, OF_SOURCE), (BY_SOURCE, OF_TARGET)):
        more = EVOLVING.get(pool[0][0].matched, []) if evolves else []
        chosen = draw(st.lists(st.sampled_from([*pool, *more]), max_size=2))
        for number, (clause, becomes) in enumerate(chosen):
            last = number == len(chosen) - 1
            condition = draw(st.sampled_from([ALWAYS, *conditions] if last else conditions))
            found.append(Ruled(replace(clause, condition=condition.sql), condition.holds, becomes))
    return found or [Ruled(MATCHED[0][0], ALWAYS.holds, MATCHED[0][1])]


IDS = st.one_of(st.none(), st.integers(0, 6))
TEXTS = st.sampled_from([None, "a", "b", "c d"])
NUMBERS = st.one_of(st.none(), st.integers(0, 5))
STRUCTS = st.one_of(st.none(), st.tuples(NUMBERS, TEXTS))
LISTS = st.one_of(st.none(), st.lists(NUMBERS, max_size=2).map(tuple))
TARGETS = st.lists(st.tuples(IDS, TEXTS, NUMBERS, STRUCTS, LISTS, st.none()), max_size=10)
SOURCES = st.lists(st.tuples(IDS, TEXTS, NUMBERS), max_size=6)


def reference(target: Sequence[Row], source: Sequence[Row], on: Condition, rules: Sequence[Ruled]) -> Counter[Row]:
    """What the merge makes of the rows."""
    result = Counter(target)
    for before, after in changes(target, source, on, rules):
        result.subtract([] if before is None else [before])
        result.update([] if after is None else [after])
    return +result


def as_row(found: Mapping[str, Any]) -> Row:
    """A row of the table as the model has it."""
    inner, listed = found["n"], found["l"]
    nested = (None if inner is None else (inner["a"], inner["b"]), None if listed is None else tuple(listed))
    return (found["id"], found["p"], found["v"], *nested, found.get(NEW))


def arrow(found: Sequence[Row]) -> pa.Table:
    """Rows of the model as a table without the new column has them."""
    rows = [dict(zip(SCHEMA.names, row[:5], strict=True)) for row in found]
    return pa.Table.from_pylist([{**row, "n": row["n"] and dict(zip("ab", row["n"], strict=True))} for row in rows], SCHEMA)


def rows_of(table: sluice.Table) -> Counter[Row]:
    return Counter(as_row(row) for row in table.refresh().snapshot().to_arrow().to_pylist())


def told(table: sluice.Table, version: int) -> Counter[Row]:
    """What the changes of a version add, less what they take away."""
    found: Counter[Row] = Counter()
    for row in table.changes(version - 1, version).to_pylist():
        found[as_row(row)] += -1 if row["_change_type"] in ("delete", "update_preimage") else 1
    return found


@dataclass(frozen=True)
class Layout:
    """Properties of the table, and how a merge gets at its source."""

    vectors: bool
    tells: bool
    partitioned: bool
    own: bool
    """Half of the rows are the transaction's own."""
    source: str
    """"local" in the plan, "sent" to every task, "kept" and joined, or "read" again, as one larger than a GiB is."""
    listed: bool
    """Files are skipped by the source's values, and the footprint lists them; else by bounds."""

    def set_limits(self, patch: pytest.MonkeyPatch) -> None:
        """So that a small source goes the way of a large one."""
        patch.setattr(sources, "_LOCAL_BYTES_MAX", 2**22 if self.source == "local" else -1)
        patch.setattr(sources, "_SENT_ROWS_MAX", 2_000_000 if self.source == "sent" else 0)
        patch.setattr(sources, "_KEPT_BYTES_MAX", -1 if self.source == "read" else 2**30)
        patch.setattr(sources, "_VALUES_MAX", 4096 if self.listed else 1)
        patch.setattr(sources, "_REMEMBERED_MAX", 64 if self.listed else 0)

    def frame(self, spark: SparkSession, rows: Sequence[Row]) -> DataFrame:
        """The source; one that is read again consists of literals."""
        if self.source != "read":
            return spark.createDataFrame(list(rows), SOURCE).alias("s")
        values = [f"({literal(i)}, {literal(p)}, {literal(w)})" for i, p, w in [*rows, (None, None, None)]]
        numbered = [f"({number}, {value[1:]}" for number, value in enumerate(values)]
        selected = f"SELECT CAST(a AS BIGINT) id, CAST(b AS STRING) p, CAST(c AS INT) w FROM VALUES {', '.join(numbered)} AS v(n, a, b, c)"
        return spark.sql(f"{selected} WHERE n < {len(rows)}").alias("s")


def literal(value: Any) -> str:
    return "NULL" if value is None else repr(value)


def check(
    spark: SparkSession, place: Place, target: list[Row], source: list[Row], on: Condition, rules: list[Ruled], layout: Layout
) -> None:
    properties = {"delta.enableDeletionVectors": str(layout.vectors).lower(), "delta.enableChangeDataFeed": str(layout.tells).lower()}
    where = Place(spark, f"{place.location}-{next(TABLES)}", place.coordinator)
    table = where.create(SCHEMA, partition_by=["p"] if layout.partitioned else [], properties=properties)
    half = len(target) // 2 if layout.own else len(target)
    before, mine = target[:half], target[half:]
    for part in (before[::2], before[1::2]):
        if part:
            table.append(arrow(part))
    try:
        expected: Counter[Row] | None = reference(target, source, on, rules)
    except Ambiguous:
        expected = None
    tx = table.begin()
    if mine:
        tx.append(arrow(mine))
    clauses = [rule.clause for rule in rules]
    evolves = any(clause.action.endswith("_all") for clause in clauses)

    def merge() -> RowCounts:
        with pytest.MonkeyPatch.context() as patch:
            layout.set_limits(patch)
            frame = layout.frame(spark, source)
            return merge_rows(tx, spark, MergeRequest(frame, str(on.sql), clauses, target_alias="t", schema_evolution=evolves))

    if expected is None:
        with pytest.raises(sluice.errors.InvalidRequest, match="several rows of the source"):
            merge()
        return
    counts = merge()
    commit = tx.commit()
    assert rows_of(table) == expected
    assert counts.inserted - counts.deleted == expected.total() - len(target)
    if commit is None:
        assert expected == Counter(before), "the transaction changes nothing, taken together"
    else:
        assert counts.affected or mine or evolves
    if layout.tells and commit is not None:
        after = Counter(before)
        after.update(told(table, commit.version))
        assert +after == expected
        assert min(after.values(), default=0) >= 0


TABLES = itertools.count()
LAYOUTS = st.builds(Layout, *[st.booleans()] * 4, st.sampled_from(["local", "sent", "kept", "read"]), st.booleans())
EXAMPLES = int(os.environ.get("EXAMPLES", "300"))
RANDOM = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture], database=None)


def merges(examples: int) -> Callable[..., None]:
    """The test of so many merges."""

    @settings(RANDOM, max_examples=examples)
    @given(TARGETS, SOURCES, st.sampled_from(ONS), clause_lists(), LAYOUTS)
    def test(
        spark: SparkSession, place: Place, target: list[Row], source: list[Row], on: Condition, rules: list[Ruled], layout: Layout
    ) -> None:
        check(spark, place, target, source, on, rules, layout)

    return test


test_merges_are_what_the_reference_says = merges(3)
test_many_merges_are_what_the_reference_says = pytest.mark.long(pytest.mark.timeout(3600)(merges(EXAMPLES)))
