"""Where PySpark finds `format("sluice")`: it imports every module named `pyspark_*` and looks for a `DefaultSource`."""

from __future__ import annotations

from sluice.spark_integration.data_source.source import SluiceDataSource

__all__ = ["DefaultSource"]

DefaultSource = SluiceDataSource
