"""Columns that a MERGE adds to the table because its source has them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from ...storage.data.row_ids import refuse_reserved
from ...storage.schema.schema import PrimitiveType, StructField, StructType, merge, schema_to_json
from ...tables.write.data_writing import WritePlan
from ..jvm import items, jvm_of, quoted
from ..schemas import for_new_table, from_spark
from .clauses import Clause


def evolved(
    session: SparkSession, plan: WritePlan, source: DataFrame, clauses: Sequence[Clause], alias: str | None
) -> tuple[WritePlan, bool]:
    """The plan with the source's columns that the clauses write, and whether there is a new one.

    Clauses for all columns write all of the source's, others those that they assign. Columns that the table has keep their
    types; structs get new fields. Raises SchemaMismatch for columns that cannot be added.
    """
    wanted = {name.lower() for clause in clauses for name in _written(session, clause, source, alias)}
    fields = [each for each in for_new_table(from_spark(source.select(*_named(source, wanted)).schema)).fields if _adds(each, plan.schema)]
    merged = merge(plan.schema, StructType(fields))
    if merged == plan.schema:
        return plan, False
    refuse_reserved(plan.metadata.configuration, merged)
    metadata = replace(plan.metadata, schema_string=schema_to_json(merged))
    return replace(plan, metadata=metadata, changes_metadata=True), True


def _written(session: SparkSession, clause: Clause, source: DataFrame, alias: str | None) -> list[str]:
    """The names of top-level columns that a clause writes."""
    if clause.action.endswith("_all"):
        return source.columns
    jvm = jvm_of(session)
    names: list[str] = []
    for text in clause.assignments:
        parsed = jvm.org.apache.spark.sql.catalyst.analysis.UnresolvedAttribute.parseAttributeName(text)
        parts = [str(each) for each in items(parsed)]
        names.append(parts[1] if alias is not None and len(parts) > 1 and parts[0].lower() == alias.lower() else parts[0])
    return names


def _named(source: DataFrame, wanted: set[str]) -> list[Any]:
    return [source[quoted(name)] for name in source.columns if name.lower() in wanted]


def _adds(field: StructField, table: StructType) -> bool:
    """Whether a column may bring something new: plain columns that the table has do not."""
    known = table.get(field.name)
    return known is None or not (isinstance(known.type, PrimitiveType) or isinstance(field.type, PrimitiveType))
