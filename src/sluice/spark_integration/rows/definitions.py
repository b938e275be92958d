"""Definitions of tables whose columns have defaults or are generated, checked by Spark before a table has them."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType as SparkStruct

from ...storage.data.filling import check_definitions
from ...storage.errors import InvalidRequest, SchemaMismatch
from ...storage.schema.computed import default_of, features_of_columns, generated_of
from ...storage.schema.schema import StructField, StructType
from ..files.filling import in_utc
from ..jvm import items
from ..schemas import from_spark, to_spark
from .assignments import as_stored
from .conditions import resolved_values, tree_of


def defined_in(spark: SparkSession, schema: SparkStruct) -> StructType:
    """The columns that a schema of Spark defines for a new table. Raises what `check_by_spark` does."""
    found = from_spark(schema, defines=True)
    check_by_spark(spark, found)
    return found


def check_by_spark(spark: SparkSession, schema: StructType) -> None:
    """Raise InvalidRequest, SchemaMismatch or AnalysisException unless columns may have these defaults and expressions, as Spark sees them.

    Spark Connect has no session here to ask.
    """
    if not features_of_columns(schema) or not hasattr(spark, "_jsparkSession"):
        return
    check_definitions(schema)
    kinds = to_spark(schema)
    base = StructType(each for each in schema.fields if generated_of(each) is None)
    with in_utc(spark) as session:
        nothing = session.createDataFrame([], SparkStruct([]))
        rows = session.createDataFrame([], to_spark(base))
        for each in schema.fields:
            text = generated_of(each) or default_of(each)
            if text is None:
                continue
            frame = nothing if generated_of(each) is None else rows
            what = f"column {each.name!r}, whose expression is {text},"
            [(value, kind)] = resolved_values(frame, [F.expr(text)], what)
            _check_tree(each, text, tree_of(session, value))
            if frame is nothing:
                as_stored(session, value, kind, kinds[each.name].dataType, (each.name,))
            elif kind.simpleString() != kinds[each.name].dataType.simpleString():
                wanted, made = kinds[each.name].dataType.simpleString(), kind.simpleString()
                raise SchemaMismatch(
                    f"column {each.name!r} is {wanted}, and {text}, from which it is generated, is {made}: write CAST({text} AS {wanted})",
                    column=each.name,
                    expression=text,
                )


def _check_tree(field: StructField, text: str, tree: Any) -> None:
    """Raise InvalidRequest for what has not one value for everybody: functions of this session, and those that change."""
    own = _functions_of_users(tree)
    if own:
        raise InvalidRequest(
            f"column {field.name!r}, whose expression is {text}, calls {own[0]}, a function of this session, which other writers do not "
            "have: use built-in functions",
            column=field.name,
            expression=text,
        )
    if not tree.deterministic():
        raise InvalidRequest(
            f"column {field.name!r} has an expression whose value changes from call to call: {text}; it must be the same for everybody",
            column=field.name,
            expression=text,
        )


def _functions_of_users(tree: Any) -> list[str]:
    name = str(tree.getClass().getSimpleName())
    found = [str(tree.sql())] if name.endswith(("UDF", "UDAF", "Aggregator")) else []
    return [*found, *(each for child in items(tree.children()) for each in _functions_of_users(child))]
