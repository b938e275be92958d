"""Names in statements that change rows: what a table is called in one, and the columns that get values."""

from __future__ import annotations

from collections.abc import Mapping

from ..sql_plain.naming import unknown_column
from ..sql_plain.request import Edit
from ..statements.cursor import Name, Span
from ..statements.rows import Assignment
from ..statements.tokens import tokens_of
from ..storage.schema.computed import with_values_of_defaults
from ..storage.schema.datatypes import StructType
from .plain import Plain


def called(name: Name) -> str | None:
    """What a table is called in a statement that gives it no alias."""
    return None if name.path is not None else name.parts[-1]


def unqualified(asked: Plain, span: Span, alias: str | None, schema: StructType) -> str:
    """The text of an expression, in which columns are not qualified by the table's alias."""
    tokens = [each for each in tokens_of(asked.text) or () if span.start <= each.start and each.end <= span.end]
    edits: list[Edit] = []
    if alias is not None and schema.get(alias) is None:
        for number in range(len(tokens) - 2):
            first, dot = tokens[number], tokens[number + 1]
            is_part = number > 0 and tokens[number - 1].upper == "."
            if first.names and first.value.lower() == alias.lower() and dot.upper == "." and not is_part:
                edits.append(Edit(first.start, dot.end, ""))
    return asked.expression(span, edits)


def assigned(asked: Plain, assignments: tuple[Assignment, ...], alias: str | None, schema: StructType) -> dict[str, Span]:
    """The values by column, as the schema spells it. Raises InvalidRequest for an unknown column, and for one that gets two values."""
    found: dict[str, Span] = {}
    for each in assignments:
        first, *inner = [token.value for token in tokens_of(unqualified(asked, each.column, alias, schema)) or () if token.upper != "."]
        column = schema.get(first)
        if inner:
            raise asked.needs_spark(each.column, "a field of a struct gets a value")
        if column is None:
            raise unknown_column(asked, each.column, first, schema)
        if column.name in found:
            raise asked.refused(each.column, f"{column.name} is assigned twice; assign it once")
        found[column.name] = each.value
    return found


def with_defaults(asked: Plain, values: Mapping[str, Span], schema: StructType) -> dict[str, Span | str]:
    """The values with text in place of those that are a column's DEFAULT."""
    texts = {column: value.of(asked.text) for column, value in values.items()}
    found = with_values_of_defaults(texts, schema)
    return {column: values[column] if text == texts[column] else text for column, text in found.items()}
