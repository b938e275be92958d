"""EXPLAIN CONFLICT without Spark: what two statements that do not run say in their conditions and values."""

from __future__ import annotations

from functools import partial
from typing import Final

import pyarrow as pa

from ..coordinator.facade.foreseen import Foreseen
from ..sql_plain.concurrency import foreseeing
from ..sql_plain.concurrency.foreseeing import ANY, Foreseeable, Known
from ..sql_plain.place import opened
from ..sql_plain.reports import Answer
from ..statements.care import Optimize
from ..statements.compound import ExplainConflict
from ..statements.cursor import Span
from ..statements.rows import Insert, Merge, Truncate
from ..storage.errors import PredicateError
from ..storage.pruning.predicate import Predicate
from ..storage.schema.datatypes import PrimitiveType, StructType
from ..tables.table import Table
from .conditions import condition_of, known_part
from .inserting import source_of
from .merging import matching_of
from .names import called, unqualified
from .plain import Plain
from .queries import require_place

__all__ = ["explain_conflict"]

# Types whose values mean the same in a condition, whatever the time zone.
_PLAIN: Final = frozenset({"string", "boolean", "byte", "short", "integer", "long", "date"})


def explain_conflict(asked: Plain, statement: ExplainConflict) -> Answer:
    """The verdict on two statements, at each isolation level and in both orders."""
    return foreseeing.explain_conflict(asked, statement, lambda name: opened(require_place(asked, name)), partial(_foreseen, asked))


def _foreseen(asked: Plain, statement: Foreseeable, table: Table) -> Foreseen:
    """What the statement would do, as far as its text tells."""
    schema = table.struct

    def condition(where: Span, alias: str | None = None) -> str | None:
        if not getattr(statement, "relations", ()):
            _check_columns(asked, where, alias, schema)
        known = known_part(condition_of(asked.expression(where)), schema, alias)
        return None if known is None else known.to_sql()

    if isinstance(statement, (Truncate, Optimize)):
        return foreseeing.without_rows(asked, statement, table, condition)
    if isinstance(statement, Insert):
        source = source_of(asked, statement, schema, table.partition_columns)
        return foreseeing.inserting(asked, statement, table, ANY if statement.relations else _values(source.rows, schema), source.replaces)
    places = [require_place(asked, each.name) for each in statement.relations if each.is_current and each.changes is None]
    reads_itself = any(opened(each).location == table.location for each in places)
    if isinstance(statement, Merge):
        found = matching_of(asked, statement, schema)
        return foreseeing.merging(statement, Known(ANY if found is None else found.to_sql(), reads_itself))
    alias = statement.alias or called(statement.target)
    where = None if statement.where is None else condition(statement.where, alias)
    return foreseeing.changing_rows(asked, statement, Known(where or ANY, reads_itself), schema)


def _check_columns(asked: Plain, where: Span, alias: str | None, schema: StructType) -> None:
    """Raise InvalidRequest for a column that the table lacks; what only Spark evaluates passes."""
    try:
        Predicate.parse(unqualified(asked, where, alias, schema), schema)
    except PredicateError as error:
        if "columns" in error.details:
            raise asked.refused(where, error.message) from error


def _values(rows: pa.Table, schema: StructType) -> str:
    """A condition that rows satisfy which are written in the statement itself."""
    kinds = {each.name: each.type for each in schema.fields}
    named = [schema.named(name).name for name in rows.column_names]
    known = [name for name in named if isinstance(kind := kinds[name], PrimitiveType) and kind.name in _PLAIN]
    return foreseeing.written_out(rows.rename_columns(named).select(known).to_pylist(), schema) if known else ANY
