"""Values of parameters as literals, made by Spark. No value can end its literal, or begin anything else."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.types import StringType

from ..spark_integration.jvm import analysed, items
from ..storage.errors import InvalidRequest


def literal_of(spark: SparkSession, value: Any) -> str:
    """A value, or a Column without columns in it, as Spark takes a parameter, as text in SQL."""
    if isinstance(value, str):
        return quoted_text(value)
    frame = SparkSession.sql(spark, "SELECT :value AS value", {"value": value})
    if isinstance(frame.schema["value"].dataType, StringType):
        [[text]] = frame.collect()
        return "CAST(NULL AS STRING)" if text is None else quoted_text(text)
    plan = analysed(frame)
    if plan.nodeName() != "Project":
        raise InvalidRequest(f"the parameter {value!r} is no literal; give a value, or a Column made of literals")
    [named] = items(plan.expressions())
    tree = named.child() if named.nodeName() == "Alias" else named
    return f"({tree.sql()})" if tree.nodeName() != "Literal" else str(tree.sql())


def quoted_text(text: str) -> str:
    """A text as a literal; in hexadecimal digits if it has a character that means something in one."""
    if text.isprintable() and not set(text) & set("'\"\\`"):
        return f"'{text}'"
    return f"CAST(X'{text.encode().hex()}' AS STRING)"
