"""INSERT: which columns of the table the rows of a query fill, and what the word DEFAULT means among them."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ..statements.cursor import position
from ..statements.rows import Insert
from ..storage.schema.computed import default_of, generated_of, is_filled
from ..storage.schema.conform import other_number_of_columns
from ..storage.schema.schema import StructType
from ..storage.schema.sqltypes import type_sql
from .place import unknown_column
from .request import Edit, Request


def names_for(asked: Request, statement: Insert, given: Sequence[str], schema: StructType, fixed: Collection[str]) -> list[str]:
    """The table's columns that the columns `given` by the query fill, in the order of the query.

    They are the query's own names (BY NAME), those that the statement lists, or by position the table's without those that PARTITION
    (...) has `fixed`. Raises InvalidRequest for a listed column that the table does not have, SchemaMismatch for another number of columns.
    """
    if statement.by_name:
        _require_once(asked, statement, given, fixed)
        return list(given)
    names = _asked_for(statement, schema, fixed)
    if statement.columns is not None:
        unknown = [name for name in statement.columns if schema.get(name) is None]
        if unknown and not statement.evolves:
            raise unknown_column(asked, statement.target, unknown[0], schema)
    if len(names) != len(given):
        raise other_number_of_columns(given, names, shown=lambda said: asked.shown(statement.query, said))
    return names


def _require_once(asked: Request, statement: Insert, given: Sequence[str], fixed: Collection[str]) -> None:
    """Raise InvalidRequest for a column that the query of BY NAME gives twice, or that PARTITION (...) gives, too."""
    places = {name.lower(): value for name, value in statement.partition if value is not None}
    for number, name in enumerate(given):
        if name.lower() in {each.lower() for each in given[:number]}:
            raise asked.refused(statement.query, f"two columns of this query are called {name}, and BY NAME needs one of each; rename one")
        if name.lower() in {each.lower() for each in fixed}:
            at = position(asked.text, places[name.lower()])
            raise asked.refused(statement.query, f"this query has a column {name}, which PARTITION gives a value at {at}; leave one out")


def _asked_for(statement: Insert, schema: StructType, fixed: Collection[str]) -> list[str]:
    """The columns listed, or all but those that PARTITION (...) has fixed."""
    return [name for name in schema.names if name not in fixed] if statement.columns is None else list(statement.columns)


def left_to_table(asked: Request, statement: Insert, schema: StructType, fixed: Collection[str]) -> tuple[list[Edit], list[str]]:
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
                raise asked.refused(
                    at,
                    f"column {field.name!r} is generated: give it in no row (DEFAULT in all, or leave it out), or in all of them",
                )
            else:
                text = f"CAST(({default_of(field)}) AS {type_sql(field.type)})"
        edits.append(Edit(at.start, at.end, text))
    return edits, dropped
