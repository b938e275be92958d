"""DataFrames of the results of operations."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType as SparkStruct

from ..spark_integration.schemas import to_spark
from ..sql_plain.reports import Answer


def empty(spark: SparkSession) -> DataFrame:
    """No row and no column, as VACUUM returns."""
    return spark.createDataFrame([], SparkStruct())


def frame(spark: SparkSession, answer: Answer) -> DataFrame:
    """The answer's rows."""
    return spark.createDataFrame(list(answer.rows), to_spark(answer.struct)) if answer.columns else empty(spark)
