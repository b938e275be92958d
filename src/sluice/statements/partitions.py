"""PARTITION (...) in a statement, and the columns that an INSERT fills besides; TRUNCATE and DROP PARTITION."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ..storage.errors import InvalidRequest
from ..storage.pruning.predicate import Predicate
from ..storage.schema.conform import other_number_of_columns
from ..storage.schema.datatypes import PrimitiveType, StructType, default_of, is_filled
from ..storage.schema.partitions import decode_column, partition_texts
from ..storage.schema.sqltypes import type_sql
from ..tables.table import Table
from .parse.cursor import Span, position
from .parse.rows import Insert, Truncate
from .parse.tables import DropPartitions
from .places import opened, unknown_column
from .request import NOTHING, Answer, Edit, Place, Request

Partition = tuple[tuple[str, Span | None], ...]


def partition_of(request: Request, partition: Partition, schema: StructType, partition_columns: Sequence[str]) -> dict[str, Any]:
    """The values that PARTITION (...) gives to columns."""
    columns = {name.lower(): name for name in partition_columns}
    fixed: dict[str, Any] = {}
    for name, value in partition:
        column = columns.get(name.lower())
        if column is None:
            raise request.refused(value or Span(0, 0), f"{name} is no partition column; those are {', '.join(partition_columns) or 'none'}")
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
    names, raw = table.partition_columns, table.snapshot().raw
    texts = partition_texts(raw.files.column("partition_values"), raw.metadata.physical_partitions)
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
    table.truncate(partition_condition(request, statement.partition, table.struct, table.partition_columns), **request.terms)
    return NOTHING


def overwrites_partitions(request: Request) -> bool:
    """Whether an overwrite that names no rows replaces the partitions of the new ones, and not all rows."""
    return request.setting("spark.sql.sources.partitionOverwriteMode", "static") == "dynamic"


class Insertion:
    """An INSERT into a table with this schema: what it says beside the rows of its query, which the engine runs."""

    def __init__(self, request: Request, statement: Insert, schema: StructType, partition_columns: Sequence[str]) -> None:
        if statement.if_not_exists:
            said = "INSERT ... IF NOT EXISTS is not there: leave it out, or use MERGE"
            raise request.unsupported(statement.target, said, "IF NOT EXISTS")
        self._request = request
        self._statement = statement
        self._schema = schema
        self._partition_columns = partition_columns
        self.fixed: Final = partition_of(request, statement.partition, schema, partition_columns)
        """The values that PARTITION (...) gives to columns."""
        self.replaces: str | None = None
        """The condition of the rows that the new ones replace; None for none, "" for all, or for the partitions of the new rows if the
        session says so.
        """
        if statement.where is not None:
            self.replaces = request.condition(statement.where, schema, "REPLACE WHERE")
        elif statement.overwrite:
            is_dynamic = len(self.fixed) < len(statement.partition) and overwrites_partitions(request)
            self.replaces = equals(self.fixed, schema) if self.fixed and not is_dynamic else ""
        self.spans: Final = [span for span in (statement.prefix, statement.query) if span is not None]
        """The places of the query."""
        # The columns listed, or all but those that PARTITION (...) has fixed.
        listed = statement.columns
        self._names = [name for name in schema.names if name not in self.fixed] if listed is None else list(listed)
        self.defaults, self.left_out = self._left_to_table()

    def _left_to_table(self) -> tuple[list[Edit], list[str]]:
        """Values in the place of the word DEFAULT in VALUES, and the columns to leave out since every row leaves them to the table.

        Raises InvalidRequest for a generated column that some rows give a value, and others do not.
        """
        statement, names = self._statement, self._names
        edits: list[Edit] = []
        numbers = [number for number, _ in statement.defaults]
        left_out = {number for number in numbers if numbers.count(number) == statement.value_rows}
        dropped: list[str] = []
        for number, at in statement.defaults:
            field = self._schema.get(names[number]) if number < len(names) else None
            text = "NULL"
            if field is not None and is_filled(field):
                if number in left_out:
                    dropped += [] if names[number] in dropped else [names[number]]
                elif default_of(field) is None:
                    said = "is generated: give it in no row (DEFAULT in all, or leave it out), or in all of them"
                    raise self._request.refused(at, f"column {field.name!r} {said}")
                else:
                    text = f"CAST(({default_of(field)}) AS {type_sql(field.type)})"
            edits.append(Edit(at.start, at.end, text))
        return edits, dropped

    def filled(self, query_columns: Sequence[str]) -> list[str]:
        """The table's columns that the `query_columns` fill, in the order of the query.

        They are the query's own names (BY NAME), those that the statement lists, or by position the table's without those that PARTITION
        (...) has fixed. Raises InvalidRequest for a listed column that the table does not have, SchemaMismatch for another number of
        columns; for BY NAME InvalidRequest for a column that the query gives twice, or that PARTITION (...) gives, too.
        """
        request, statement, names = self._request, self._statement, self._names
        if statement.by_name:
            places = {name.lower(): value for name, value in statement.partition if value is not None}
            fixed = {each.lower() for each in self.fixed}
            for number, name in enumerate(query_columns):
                if name.lower() in {each.lower() for each in query_columns[:number]}:
                    said = f"two columns of this query are called {name}, and BY NAME needs one of each; rename one"
                    raise request.refused(statement.query, said)
                if name.lower() in fixed:
                    at = position(request.text, places[name.lower()])
                    said = f"this query has a column {name}, which PARTITION gives a value at {at}; leave one out"
                    raise request.refused(statement.query, said)
            return list(query_columns)
        unknown = [name for name in statement.columns or () if self._schema.get(name) is None]
        if unknown and not statement.evolves:
            raise unknown_column(request, statement.target, unknown[0], self._schema)
        if len(names) != len(query_columns):
            error = other_number_of_columns(query_columns, names)
            raise request.error(type(error), statement.query, error.message, **error.details)
        return names

    def missing(self, columns: Sequence[str]) -> list[str]:
        """The partition columns to add to these: each with its value in PARTITION (...), or null. Others may be left out as they are."""
        there = {each.lower() for each in columns}
        lacking = [name for name in self._partition_columns if name.lower() not in there]
        return [name for name in lacking if name in self.fixed or not is_filled(self._schema.named(name))]
