"""PARTITION (...) in a statement, and the columns that an INSERT fills besides; TRUNCATE and DROP PARTITION."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ..storage.errors import InvalidRequest
from ..storage.pruning.predicate import Predicate
from ..storage.schema.computed import default_of, generated_of, is_filled
from ..storage.schema.conform import other_number_of_columns
from ..storage.schema.datatypes import PrimitiveType, StructType
from ..storage.schema.partitions import decode_column, partition_texts
from ..storage.schema.sqltypes import type_sql
from ..tables.table import Table
from .parse.altering import DropPartitions
from .parse.cursor import Span, position
from .parse.rows import Insert, Truncate
from .places import opened, unknown_column
from .reports import NOTHING, Answer
from .request import Edit, Place, Request

Partition = tuple[tuple[str, Span | None], ...]


def partition_of(request: Request, partition: Partition, schema: StructType, partition_columns: Sequence[str]) -> dict[str, Any]:
    """The values that PARTITION (...) gives to columns."""
    columns = {name.lower(): name for name in partition_columns}
    fixed: dict[str, Any] = {}
    for name, value in partition:
        column = columns.get(name.lower())
        if column is None:
            at = value or Span(0, 0)
            raise request.refused(at, f"{name} is no partition column; those are {', '.join(partition_columns) or 'none'}")
        if value is not None:
            fixed[column] = request.evaluate(value, type_sql(schema.named(column).type))
    return fixed


def equals(fixed: Mapping[str, Any], schema: StructType) -> str:
    """The condition that columns have these values."""
    filters = [("IsNull" if value is None else "EqualTo", (name,), value) for name, value in fixed.items()]
    return Predicate.from_filters(filters, schema).to_sql()


def partition_condition(request: Request, partition: Partition, schema: StructType, partition_columns: Sequence[str]) -> str | None:
    """The condition that PARTITION (...) means; None if it gives no column a value."""
    fixed = partition_of(request, partition, schema, partition_columns)
    return equals(fixed, schema) if fixed else None


def partitions_with(table: Table, fixed: Mapping[str, Any]) -> set[tuple[Any, ...]]:
    """The values of the partitions that have files, of those with these values; from the log alone."""
    names = table.partition_columns
    texts = partition_texts(table.snapshot().raw.files.column("partition_values"), names)
    kinds = [kind for name in names if isinstance(kind := table.struct.named(name).type, PrimitiveType)]
    values = [decode_column(each, kind).to_pylist() for each, kind in zip(texts, kinds, strict=True)]
    return {row for row in zip(*values, strict=True) if all(row[names.index(name)] == value for name, value in fixed.items())}


def drop(request: Request, statement: DropPartitions, place: Place) -> Answer:
    """Remove the rows of partitions, in one commit. Raises InvalidRequest for one that is not there, without IF EXISTS."""
    table = opened(place)
    if statement.purge:
        raise request.unsupported(statement.target, "PURGE is not there: leave it out, and VACUUM deletes the files later", "PURGE")
    conditions: list[str] = []
    for partition in statement.partitions:
        fixed = partition_of(request, partition, table.struct, table.partition_columns)
        if not statement.if_exists and not partitions_with(table, fixed):
            shown = ", ".join(f"{name} = {value}" for name, value in fixed.items())
            said = f"the table has no partition ({shown}): add IF EXISTS, or SHOW PARTITIONS lists them"
            raise request.error(InvalidRequest, statement.target, said, condition="PARTITIONS_NOT_FOUND")
        conditions.append(f"({equals(fixed, table.struct)})")
    table.truncate(" OR ".join(conditions), **request.terms)
    return NOTHING


def truncate(request: Request, statement: Truncate, place: Place) -> Answer:
    """Remove all rows, or those of a partition."""
    table = opened(place)
    where = partition_condition(request, statement.partition, table.struct, table.partition_columns)
    table.truncate(where, **request.terms)
    return NOTHING


def names_for(request: Request, statement: Insert, query_columns: Sequence[str], schema: StructType, fixed: Collection[str]) -> list[str]:
    """The table's columns that the `query_columns` fill, in the order of the query.

    They are the query's own names (BY NAME), those that the statement lists, or by position the table's without those that PARTITION
    (...) has `fixed`. Raises InvalidRequest for a listed column that the table does not have, SchemaMismatch for another number of columns.
    """
    if statement.by_name:
        _require_once(request, statement, query_columns, fixed)
        return list(query_columns)
    names = _asked_for(statement, schema, fixed)
    if statement.columns is not None:
        unknown = [name for name in statement.columns if schema.get(name) is None]
        if unknown and not statement.evolves:
            raise unknown_column(request, statement.target, unknown[0], schema)
    if len(names) != len(query_columns):
        error = other_number_of_columns(query_columns, names)
        raise request.error(type(error), statement.query, error.message, **error.details)
    return names


def _require_once(request: Request, statement: Insert, query_columns: Sequence[str], fixed: Collection[str]) -> None:
    """Raise InvalidRequest for a column that the query of BY NAME gives twice, or that PARTITION (...) gives, too."""
    places = {name.lower(): value for name, value in statement.partition if value is not None}
    for number, name in enumerate(query_columns):
        if name.lower() in {each.lower() for each in query_columns[:number]}:
            raise request.refused(
                statement.query, f"two columns of this query are called {name}, and BY NAME needs one of each; rename one"
            )
        if name.lower() in {each.lower() for each in fixed}:
            at = position(request.text, places[name.lower()])
            raise request.refused(statement.query, f"this query has a column {name}, which PARTITION gives a value at {at}; leave one out")


def _asked_for(statement: Insert, schema: StructType, fixed: Collection[str]) -> list[str]:
    """The columns listed, or all but those that PARTITION (...) has fixed."""
    return [name for name in schema.names if name not in fixed] if statement.columns is None else list(statement.columns)


def left_to_table(request: Request, statement: Insert, schema: StructType, fixed: Collection[str]) -> tuple[list[Edit], list[str]]:
    """Values in the place of the word DEFAULT in VALUES, and the columns to leave out since every row leaves them to the table.

    Raises InvalidRequest for a generated column that some rows give a value, and others do not.
    """
    names = _asked_for(statement, schema, fixed)
    edits: list[Edit] = []
    numbers = [number for number, _ in statement.defaults]
    left_out = {number for number in numbers if numbers.count(number) == statement.value_rows}
    dropped: list[str] = []
    for number, at in statement.defaults:
        field = schema.get(names[number]) if number < len(names) else None
        text = "NULL"
        if field is not None and is_filled(field):
            if number in left_out:
                dropped += [] if names[number] in dropped else [names[number]]
            elif generated_of(field) is not None:
                raise request.refused(
                    at,
                    f"column {field.name!r} is generated: give it in no row (DEFAULT in all, or leave it out), or in all of them",
                )
            else:
                text = f"CAST(({default_of(field)}) AS {type_sql(field.type)})"
        edits.append(Edit(at.start, at.end, text))
    return edits, dropped
