"""Where a name in a statement leads: to a table of sluice, to Spark's catalog, or nowhere."""

from __future__ import annotations

from typing import Final

from pyspark.sql import SparkSession

from ..spark_integration.session.format_and_options import default_format, is_sluice
from ..sql_plain.place import Place, known_place
from ..statements.cursor import Name
from .spark_request import Asked

_DELTA: Final = "DeltaSparkSessionExtension"


def place_of(asked: Asked, name: Name) -> Place | None:
    """Where the table of a name is, if it is one of sluice's; None if the name is Spark's, or unknown.

    As for `spark.table`, Spark's own views and tables come first, unless sluice is the session's default format.
    """
    if name.path is not None:
        is_delta = name.parts[0].lower() == "delta"
        if is_delta and _DELTA in (asked.spark.conf.get("spark.sql.extensions", "") or ""):
            return None
        return known_place(asked, name)
    if len(name.parts) > 2 or (not is_sluice(default_format(asked.spark)) and is_spark_table(asked.spark, name)):
        return None
    return known_place(asked, name)


def is_spark_table(spark: SparkSession, name: Name) -> bool:
    """Whether Spark has a view or a table of this name."""
    return spark.catalog.tableExists(name.quoted)
