"""Drivers merge into the same tables at once: the order of versions explains every row (see `serial_order`)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import sluice
from sluice.spark_integration.rows.analysis import Clause
from tests.fixtures.spark_jvm import as_environment

from .concurrent_merges import run
from .model import ALWAYS, Row, Ruled
from .random_operations import TABLE, Operation, arrow
from .serial_order import Judge, Judgement

pytestmark = pytest.mark.zookeeper


FIRST: list[Row] = [(1, "a", 0, "first.0"), (8, "a", 0, "first.1")]
LATE: list[Row] = [(2, "b", 0, "late.0")]
BY_SOURCE = Clause("not_matched_by_source", "update", "t.k < 4", {"v": "t.v + 7"})


def judged(table: sluice.Table, rule: Ruled, level: str | None = None) -> Judgement:
    asked = Operation("driver0-0", "update", [], ALWAYS, [rule], level, 1)
    appended: dict[str, list[Row]] = {"first": FIRST, "late": LATE}
    return Judge(table, {"driver0-0": asked}, appended).follow()


def test_the_judge_sees_what_no_order_explains(tmp_path: Path, zookeeper_address: str) -> None:
    """An UPDATE that missed a row is explained if a blind append added it since, at the level that allows it, and not otherwise."""
    table = sluice.Table.create(tmp_path / "t", TABLE, properties={"delta.enableDeletionVectors": "true"}, coordinator=zookeeper_address)
    table.append(arrow(FIRST), key="first")
    with table.begin(key="driver0-0") as tx:
        tx.update({"v": "v + 7"}, "k < 4")
        table.append(arrow(LATE), key="late")
    rule = Ruled(BY_SOURCE, lambda t, _s: t[0] < 4, lambda t, _s: (*t[:2], t[2] + 7, t[3]))
    result = judged(table, rule)
    assert not result.violations
    assert (result.over_others, result.unseen) == (1, 1)
    assert len(judged(table, rule, "Serializable").violations) == 2, "the level, and the row"
    assert "1 rows differ: first.1" in judged(table, replace(rule, holds=lambda t, _s: t[0] < 9)).violations[0]
    table.delete("k = 8")
    assert "1 rows differ: first.1" in judged(table, rule).violations[0], "a version without a key changes no rows"


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.timeout(600)
def test_merges_of_two_drivers_are_what_some_order_gives(tmp_path: Path, zookeeper_address: str, spark: SparkSession) -> None:
    """They share the tests' own JVM, each with a session of its own."""
    jvm = as_environment(spark.sparkContext._gateway)
    found = run(tmp_path, zookeeper_address, seed=12, drivers=2, seconds=2400, times=1, jvm=jvm)
    assert not found.violations, "\n".join(found.violations)
    assert sum(found.ended.values()) == 8
    assert found.ended["committed"] > 1, found


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.timeout(1800)
def test_merges_of_many_drivers_are_what_some_order_gives(tmp_path: Path, zookeeper_address: str) -> None:
    found = run(tmp_path, zookeeper_address, seed=2026, drivers=4, seconds=600)
    assert not found.violations, "\n".join(found.violations)
    assert found.ended["committed"] > 30, found
    assert found.unseen > 0, found
    assert found.over_others > 0, found
