"""Settings of a builder that name Delta Lake's classes, as jobs that were moved still have them."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

import sluice
from sluice.delta.pip_utils import configure_spark_with_delta_pip

EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"


@pytest.fixture(autouse=True)
def no_coordinator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sluice.spark_session.start_embedded", lambda _: None)
    monkeypatch.setenv("SLUICE_APPLICATION", "test")


def settings(**more: str) -> tuple[SparkSession.Builder, dict[str, Any]]:
    builder = SparkSession.Builder()
    builder.config("spark.sql.extensions", f"a.Extension, {EXTENSION}").config("spark.sql.catalog.spark_catalog", CATALOG)
    for name, value in more.items():
        builder.config(name.replace("_", "."), value)
    return builder, builder._options


def test_they_are_left_out() -> None:
    builder, options = settings()
    sluice.configure(builder)
    assert (options["spark.sql.extensions"], options.get("spark.sql.catalog.spark_catalog")) == ("a.Extension", None)
    builder = SparkSession.Builder().config("spark.sql.extensions", EXTENSION)
    assert "spark.sql.extensions" not in sluice.configure(builder)._options


@pytest.mark.parametrize("name", ["spark_jars", "spark_jars_packages"])
def test_they_stay_where_delta_lakes_jars_are_named(name: str) -> None:
    builder, options = settings(**{name: "io.delta:delta-spark_2.13:4.3.0"})
    sluice.configure(builder)
    assert (options["spark.sql.extensions"], options["spark.sql.catalog.spark_catalog"]) == (f"a.Extension, {EXTENSION}", CATALOG)


def test_deltas_own_function() -> None:
    builder, options = settings(spark_jars_packages="io.delta:delta-spark_2.13:4.3.0")
    assert "spark.jars.packages" not in configure_spark_with_delta_pip(builder)._options
    assert (options["spark.sql.extensions"], options.get("spark.sql.catalog.spark_catalog")) == ("a.Extension", None)
    with_more = configure_spark_with_delta_pip(SparkSession.Builder(), extra_packages=["a:b:1", "c:d:2"])
    assert with_more._options["spark.jars.packages"] == "a:b:1,c:d:2"
    wrong: Any = "builder"
    with pytest.raises(TypeError, match=r"give a SparkSession\.Builder"):
        configure_spark_with_delta_pip(wrong)
