"""One Delta Lake on Spark, one DuckDB and one session of sluice for all of these tests."""

from __future__ import annotations

from ..delta_spark.conftest import delta, duckdb, python
from ..spark_integration.conftest import spark

__all__ = ["delta", "duckdb", "python", "spark"]
