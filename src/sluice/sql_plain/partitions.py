"""PARTITION (...) in a statement: the values of its columns, as values and as a condition; TRUNCATE and DROP PARTITION."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..statements.altering import DropPartitions
from ..statements.cursor import Span
from ..statements.rows import Truncate
from ..storage.errors import InvalidRequest
from ..storage.pruning.partition_maps import partition_texts
from ..storage.pruning.predicate import Predicate
from ..storage.schema.datatypes import PrimitiveType, StructType
from ..storage.schema.partitions import decode_column
from ..storage.schema.sqltypes import quoted_name, type_sql
from ..tables.table import Table
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


def partitions_with(table: Table, fixed: Mapping[str, Any]) -> set[tuple[Any, ...]]:
    """The values of the partitions that have files, of those with these values; from the log alone."""
    names = table.partition_columns
    texts = partition_texts(table.snapshot().raw.files.column("partition_values"), names)
    kinds = [kind for name in names if isinstance(kind := table.struct.named(name).type, PrimitiveType)]
    values = [decode_column(each, kind).to_pylist() for each, kind in zip(texts, kinds, strict=True)]
    return {row for row in zip(*values, strict=True) if all(row[names.index(name)] == value for name, value in fixed.items())}


def drop(asked: Request, statement: DropPartitions, place: Place) -> Answer:
    """Remove the rows of partitions, in one commit. Raises InvalidRequest for one that is not there, without IF EXISTS."""
    table = opened(place)
    if statement.purge:
        raise asked.unsupported(statement.target, "PURGE is not there: leave it out, and VACUUM deletes the files later", "PURGE")
    conditions: list[str] = []
    for partition in statement.partitions:
        fixed = partition_of(asked, partition, table.struct, table.partition_columns)
        if not statement.if_exists and not partitions_with(table, fixed):
            shown = ", ".join(f"{name} = {value}" for name, value in fixed.items())
            message = asked.shown(statement.target, f"the table has no partition ({shown}): add IF EXISTS, or SHOW PARTITIONS lists them")
            raise InvalidRequest(message, condition="PARTITIONS_NOT_FOUND")
        conditions.append(f"({equals(fixed, table.struct)})")
    table.truncate(" OR ".join(conditions), if_version=asked.if_version, user_metadata=asked.user_metadata)
    return NOTHING


def truncate(asked: Request, statement: Truncate, place: Place) -> Answer:
    """Remove all rows, or those of a partition."""
    table = opened(place)
    where = partition_condition(asked, statement.partition, table.struct, table.partition_columns)
    table.truncate(where, if_version=asked.if_version, user_metadata=asked.user_metadata)
    return NOTHING
