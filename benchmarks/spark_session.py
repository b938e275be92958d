"""The Spark session of a benchmark's program, in which one of the systems works."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import SparkSession

__all__ = ["session"]


def session(system: str, folder: str, settings: Mapping[str, str], of_delta: Mapping[str, str]) -> SparkSession:
    """A local session for "sluice", "delta" (with the settings `of_delta`, too) or plain Parquet; Spark's own files lie in `folder`."""
    builder = SparkSession.builder.master("local[2]").appName("benchmark")
    common = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.warehouse.dir": f"{folder}/warehouse",
        "spark.driver.extraJavaOptions": f"-Dderby.system.home={folder}",
    }
    for name, value in {**common, **settings}.items():
        builder = builder.config(name, value)
    if system == "delta":
        from delta import configure_spark_with_delta_pip  # type: ignore[import-not-found,unused-ignore]

        builder = builder.config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        builder = builder.config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        for name, value in of_delta.items():
            builder = builder.config(name, value)
        builder = configure_spark_with_delta_pip(builder)
    if system == "sluice":
        import sluice

        builder = sluice.configure(builder)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark
