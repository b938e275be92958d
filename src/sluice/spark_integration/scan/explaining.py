"""Which files Spark's scans read, for EXPLAIN: Spark's own text names the table only, since it is written before files are listed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import SparkSession

from ..jvm import class_in_jvm, items
from .file_index import index_of

TITLE = "== Files of sluice's tables =="


def files_read(session: SparkSession, execution: Any) -> list[str]:
    """A line for each scan of a table in a query (Spark's QueryExecution): how many files its conditions leave; a title before them."""
    subquery = class_in_jvm(session, "org.apache.spark.sql.catalyst.trees.TreePattern").PLAN_EXPRESSION()
    lines: list[str] = []
    for scan in _scans(execution.sparkPlan()):
        index = index_of(scan.relation().location())
        if index is not None:
            # conditions that Spark finds while the query runs leave fewer
            filters = [each for each in items(scan.partitionFilters()) if not each.containsPattern(subquery)]
            lines.append(index.described(filters, items(scan.dataFilters())))
    return [TITLE, *lines] if lines else []


def _scans(plan: Any) -> Iterator[Any]:
    for part in (plan, *items(plan.subqueriesAll())):
        for leaf in items(part.collectLeaves()):
            if leaf.getClass().getSimpleName() == "FileSourceScanExec":
                yield leaf
