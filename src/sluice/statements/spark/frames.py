"""DataFrames of the results of statements, and the rows of DataFrames as Arrow data."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import ArrayType, DataType, MapType, StructType, VariantType, YearMonthIntervalType

from ...spark_integration.schemas import to_spark
from ..reports import Answer


def frame(spark: SparkSession, answer: Answer) -> DataFrame:
    """The answer's rows."""
    return spark.createDataFrame(list(answer.rows), to_spark(answer.struct) if answer.columns else StructType())


def as_arrow(frame: DataFrame) -> pa.Table:
    """The rows. Columns of types that Arrow lacks are texts, as CAST(x AS STRING) gives them; months of a year are Arrow's intervals."""
    names, kinds = frame.columns, [field.dataType for field in frame.schema.fields]
    numbered = frame.toDF(*(f"c{number}" for number in range(len(names))))
    columns = []
    for number, kind in enumerate(kinds):
        column = F.col(f"c{number}")
        if isinstance(kind, YearMonthIntervalType):
            whole = column.cast("interval year to month")
            column = F.extract(F.lit("YEAR"), whole) * 12 + F.extract(F.lit("MONTH"), whole)
        elif not _in_arrow(kind):
            column = column.cast("string")
        columns.append(column.alias(f"c{number}"))
    rows = numbered.select(*columns).toArrow()
    for number, kind in enumerate(kinds):
        if isinstance(kind, YearMonthIntervalType):
            months = rows.column(number).to_pylist()
            intervals = pa.array([None if each is None else (each, 0, 0) for each in months], pa.month_day_nano_interval())
            rows = rows.set_column(number, f"c{number}", intervals)
    return rows.rename_columns(names)


def _in_arrow(kind: DataType) -> bool:
    inside: list[Any] = [kind]
    while inside:
        each = inside.pop()
        if isinstance(each, ArrayType):
            inside.append(each.elementType)
        elif isinstance(each, MapType):
            inside += [each.keyType, each.valueType]
        elif isinstance(each, StructType):
            inside += [field.dataType for field in each.fields]
        elif isinstance(each, VariantType):
            return False
        else:
            try:
                to_arrow_type(each)
            except Exception:  # noqa: BLE001 - PySpark has a class for each reason
                return False
    return True
