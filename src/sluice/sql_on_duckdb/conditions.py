"""The parts of a condition that sluice evaluates itself, to skip files and for the footprint."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from typing import Any

from sqlglot import exp
from sqlglot.errors import ParseError, TokenError

from ..storage.errors import PredicateError
from ..storage.pruning.predicate import Predicate
from ..storage.schema.datatypes import StructType
from .engine import tree_of


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
