"""`configure_spark_with_delta_pip`, the way in which jobs written for Delta Lake make their session."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import SparkSession

from ..spark_session import configure

_PACKAGES: Final = "spark.jars.packages"


def configure_spark_with_delta_pip(
    spark_session_builder: SparkSession.Builder, extra_packages: Sequence[str] | None = None
) -> SparkSession.Builder:
    """`sluice.configure` under Delta Lake's name: the session needs no jars, and gets `extra_packages` only.

    As in Delta Lake, they replace the builder's own setting spark.jars.packages. The variable SLUICE_COORDINATOR names the coordinator;
    `sluice.configure` takes it, and the store's options, as arguments. Raises TypeError for what is no builder.
    """
    if not isinstance(spark_session_builder, SparkSession.Builder):
        raise TypeError(f"the builder is {spark_session_builder!r} of {type(spark_session_builder)}; give a SparkSession.Builder")
    spark_session_builder._options.pop(_PACKAGES, None)
    if extra_packages:
        spark_session_builder.config(_PACKAGES, ",".join(extra_packages))
    return configure(spark_session_builder)
