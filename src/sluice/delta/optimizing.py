"""`DeltaOptimizeBuilder`: rewriting files as fewer, larger or ordered ones, and its metrics."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from pyspark.sql import DataFrame

from ..spark_integration.errors import as_spark_users_know
from ..sql_plain.optimizing import Optimize
from .arguments import names, required_type


class DeltaOptimizeBuilder:
    """Which partitions to optimize, and how; `DeltaTable.optimize` makes one."""

    def __init__(self, run: Callable[[Optimize], DataFrame], asked: Optimize | None = None) -> None:
        self._run = run
        self._asked = asked or Optimize()

    def where(self, partitionFilter: str) -> DeltaOptimizeBuilder:
        """Only the partitions that satisfy this condition in SQL, which names partition columns only; of several, all must hold."""
        if type(partitionFilter) is not str:
            required_type("the filter of partitions must be str", [partitionFilter])
        self._asked = replace(self._asked, where=(*self._asked.where, partitionFilter))
        return self

    def executeCompaction(self, *, mode: str = "minor", target_file_size: int | str | None = None) -> DataFrame:
        """Merge small files; with `mode="major"` also rewrite those with deleted rows. Returns one row: path and metrics."""
        with as_spark_users_know():
            return self._run(replace(self._asked, mode=mode, target_file_size=target_file_size))

    def executeZOrderBy(self, *cols: str | list[str] | tuple[str, ...], target_file_size: int | str | None = None) -> DataFrame:
        """Order the rows by up to 8 columns at once, given one by one or as a list. Returns one row: path and metrics."""
        z_order_by = names(cols, "a z-order")
        with as_spark_users_know():
            return self._run(replace(self._asked, mode="major", target_file_size=target_file_size, z_order_by=z_order_by))
