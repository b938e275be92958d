"""PARTITION (...) in a statement: the values of its columns, as values and as a condition; TRUNCATE, which takes nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..statements.cursor import Span
from ..statements.rows import Truncate
from ..storage.pruning.predicate import Predicate
from ..storage.schema.datatypes import StructType
from ..storage.schema.sqltypes import quoted_name, type_sql
from .place import Place, opened
from .reports import NOTHING, Answer
from .request import Request

Partition = tuple[tuple[str, Span | None], ...]


def partition_of(asked: Request, partition: Partition, schema: StructType, partition_columns: Sequence[str]) -> dict[str, Any]:
    """The values that PARTITION (...) gives to columns."""
    known = {name.lower(): name for name in partition_columns}
    fixed: dict[str, Any] = {}
    for name, value in partition:
        column = known.get(name.lower())
        if column is None:
            at = value or Span(0, 0)
            raise asked.refused(at, f"{name} is no partition column; those are {', '.join(partition_columns) or 'none'}")
        if value is not None:
            fixed[column] = asked.cast(value, type_sql(schema.named(column).type))
    return fixed


def equals(fixed: Mapping[str, Any], schema: StructType) -> str:
    """The condition that columns have these values."""
    both: Predicate | None = None
    for name, value in fixed.items():
        is_null = Predicate.parse(f"{quoted_name(name)} IS NULL", schema)
        each = is_null if value is None else Predicate.from_filters([("EqualTo", (name,), value)], schema)
        both = each if both is None else both.and_(each)
    assert both is not None
    return both.to_sql()


def partition_condition(asked: Request, partition: Partition, schema: StructType, partition_columns: Sequence[str]) -> str | None:
    """The condition that PARTITION (...) means; None if it gives no column a value."""
    fixed = partition_of(asked, partition, schema, partition_columns)
    return equals(fixed, schema) if fixed else None


def truncate(asked: Request, statement: Truncate, place: Place) -> Answer:
    """Remove all rows, or those of a partition."""
    table = opened(place)
    where = partition_condition(asked, statement.partition, table.struct, table.partition_columns)
    table.truncate(where, user_metadata=asked.user_metadata)
    return NOTHING
