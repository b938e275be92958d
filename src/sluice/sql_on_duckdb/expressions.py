"""Names and conditions in statements that change rows; what sluice evaluates of a condition itself, to skip files and for the footprint."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import reduce
from typing import Any

from sqlglot import exp
from sqlglot.errors import ParseError, TokenError

from ..sql_plain.place import unknown_column
from ..sql_plain.request import Edit
from ..statements.cursor import Span
from ..statements.rows import Assignment
from ..statements.tokens import tokens_of
from ..storage.errors import PredicateError
from ..storage.pruning.predicate import Predicate
from ..storage.schema.computed import with_values_of_defaults
from ..storage.schema.datatypes import StructType
from .engine import tree_of
from .plain import Plain


def condition_of(text: str) -> exp.Expr | None:
    """The tree of a condition in Spark's SQL; None if it cannot be read."""
    try:
        return tree_of(text)
    except (ParseError, TokenError):
        return None


def conjuncts(tree: exp.Expr) -> Iterator[exp.Expr]:
    """The parts of a condition that all must hold."""
    if isinstance(tree, exp.Paren):
        yield from conjuncts(tree.this)
    elif isinstance(tree, exp.And):
        for part in tree.flatten():
            yield from conjuncts(part)
    else:
        yield tree


def known_part(tree: exp.Expr | None, schema: StructType, alias: str | None = None) -> Predicate | None:
    """A predicate that holds wherever the condition does, of those parts that sluice evaluates; None if there is none.

    With an `alias`, columns of other tables are no columns of this one.
    """
    found: list[Predicate] = []
    for part in conjuncts(tree) if tree is not None else ():
        named = {each.table.lower() for each in part.find_all(exp.Column) if each.table}
        if alias is not None and named - {alias.lower()}:
            continue
        if any(schema.get(name) is not None for name in named):  # `s.a` may be the field of a column
            continue
        try:
            found.append(Predicate.parse(part.transform(_unqualified).sql(dialect="spark"), schema))
        except PredicateError:
            continue
    return reduce(Predicate.and_, found) if found else None


def _unqualified(node: Any) -> Any:
    return exp.column(node.this) if isinstance(node, exp.Column) and node.table and not node.args.get("db") else node


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
    """The values by column, as the schema spells it. Raises InvalidRequest for an unknown column."""
    found: dict[str, Span] = {}
    for each in assignments:
        first, *inner = [token.value for token in tokens_of(unqualified(asked, each.column, alias, schema)) or () if token.upper != "."]
        column = schema.get(first)
        if inner:
            raise asked.needs_spark(each.column, "a field of a struct gets a value")
        if column is None:
            raise unknown_column(asked, each.column, first, schema)
        found[column.name] = each.value
    return found


def with_defaults(asked: Plain, values: Mapping[str, Span], schema: StructType) -> dict[str, Span | str]:
    """The values with text in place of those that are a column's DEFAULT."""
    texts = {column: value.of(asked.text) for column, value in values.items()}
    found = with_values_of_defaults(texts, schema)
    return {column: values[column] if text == texts[column] else text for column, text in found.items()}
