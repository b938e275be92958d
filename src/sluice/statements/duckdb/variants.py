"""Variants in the queries that DuckDB runs: each is one value there, a struct whose fields no query can name.

DuckDB would compare, sort and cast such structs by their bytes, where Spark refuses or gives the JSON text. So a list says where a query
may have them; anything else needs Spark.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from typing import Final

import pyarrow as pa
from sqlglot import exp

from ...storage.schema.datatypes import TO_ARROW, is_variant
from ..parse.cursor import words_in

ONE_VALUE: Final = "a VARIANT is selected, assigned, counted and tested for NULL here, and no more"
SECRET: Final = secrets.token_hex(8)
"""In the names of the fields of variants, which DuckDB shows where a query takes one apart."""
_HIDDEN: Final = pa.struct([pa.field(f"{each.name} {SECRET}", pa.binary()) for each in TO_ARROW["variant"]])
_SHOWN: Final = pa.struct([each.with_nullable(True) for each in TO_ARROW["variant"]])  # both are null in a variant that is
_KEPT: Final = words_in(
    """Alias.this AnyValue.this Array.expressions Bracket.this Case.default Case.ifs Coalesce.expressions Coalesce.this Column.this Dot.this
    Explode.this FirstValue.this If.false If.true IgnoreNulls.this Lag.default Lag.this LastValue.this Lead.default Lead.this NthValue.this
    Paren.this PropertyEQ.expression Select.expressions Struct.expressions Subquery.this Union.expression Union.this VarMap.values
    Window.this"""
)
"""The parts of a query, by sqlglot's names, whose values are in what comes of them as they are."""
_PASSED: Final = words_in("CTE.this Count.expressions Count.this Exists.this From.this Is.this Join.this Lateral.this")
"""Those whose values do not matter, or have a name by which the query goes on."""


def swapped(rows: pa.Table) -> pa.Table:
    """The rows with the fields of variants under names that no query can know, or, if they have those, under their own."""
    fields = [each.with_type(_swapped(each.type)) for each in rows.schema]
    columns = [
        column if column.type == field.type else pa.chunked_array([chunk.view(field.type) for chunk in column.chunks], field.type)
        for column, field in zip(rows.columns, fields, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=pa.schema(fields, rows.schema.metadata))


def _swapped(kind: pa.DataType) -> pa.DataType:
    if is_variant(kind):
        return _HIDDEN
    if pa.types.is_struct(kind):
        return _SHOWN if kind == _HIDDEN else pa.struct([each.with_type(_swapped(each.type)) for each in kind])
    if pa.types.is_map(kind):
        return pa.map_(_swapped(kind.key_type), _swapped(kind.item_type))
    return pa.list_(_swapped(kind.value_type)) if pa.types.is_list(kind) else kind


def misused(tree: exp.Expr, tables: Iterable[pa.Table]) -> exp.Expr | None:
    """A part of a query that compares, casts or computes with a variant. Names alone decide, whatever table has them."""
    names = {name for rows in tables for field in rows.schema for name in _names(field.name.lower(), field.type)}
    size = 0
    while size != len(names):  # results may have other names
        size = len(names)
        for leaf in tree.find_all(exp.Column, exp.Star):
            if (isinstance(leaf, exp.Star) or leaf.name.lower() in names) and not _is_kept(leaf, names):
                return leaf
    joins = list(tree.find_all(exp.Join)) if names else []
    natural = (each for each in joins if each.args.get("method") == "NATURAL")
    return next(natural, next((name for each in joins for name in each.args.get("using") or () if name.name.lower() in names), None))


def _names(name: str, kind: pa.DataType) -> list[str]:
    """The name of a column that holds variants, and those of the fields in it that do."""
    parts = [kind.key_field, kind.item_field] if pa.types.is_map(kind) else [kind.field(number) for number in range(kind.num_fields)]
    inner = [inside for each in parts for inside in _names(each.name.lower() if pa.types.is_struct(kind) else "", each.type)]
    return [name, *inner] if inner or is_variant(kind) else []


def _is_kept(node: exp.Expr, names: set[str]) -> bool:
    """Whether a query gives on a variant as it is, or does not look at its value; `names` gets what the query calls it."""
    place = ""  # of the variant in the rows, from 1 on; "" for any
    while (parent := node.parent) is not None:
        part = f"{type(parent).__name__}.{node.arg_key}"
        names.update(name.lower() for name in (parent.alias, *parent.alias_column_names) if name)
        if part in _PASSED or (isinstance(parent, exp.Dot) and parent.expression.name.lower() not in names):
            return True
        place = place if not isinstance(parent, exp.Select) or node.is_star or node.index is None else str(node.index + 1)
        if part not in _KEPT or isinstance(parent.args.get("alias"), exp.Placeholder) or _compares(parent, place):
            return False
        node = parent
    return True


def _compares(query: exp.Expr, place: str) -> bool:
    """Whether a query leaves out equal rows, or sorts or groups them by the result at this place."""
    group, order = query.args.get("group"), query.args.get("order")
    terms = [*(group.expressions if group else ()), *(each.this for each in (order.expressions if order else ()))]
    places = {each.name for each in terms if isinstance(each, exp.Literal)}
    by_all = any(each.name.upper() == "ALL" for each in terms) or (group is not None and group.args.get("all"))
    return bool(by_all or (places if not place else place in places) or (isinstance(query, exp.Query) and query.args.get("distinct")))
