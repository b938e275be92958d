"""What DuckDB and the Python API do for statements."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pyarrow as pa

from ...storage.errors import UnsupportedFeature
from ...storage.schema.datatypes import PrimitiveType
from ...storage.schema.schema import to_arrow
from ...storage.schema.sqltypes import quoted_name
from ...tables.table import Table
from .. import definitions
from ..concurrency import ANY, written_out
from ..engine import AboutNames, NewRows, RowChange
from ..parse.cursor import Span
from ..parse.maintenance import Optimize
from ..parse.namespaces import Comment, CreateNamespace, DropNamespace, ShowNamespaces
from ..parse.reading import Malformed, Other, Statement
from ..parse.rows import Insert, Merge, Update
from ..parse.tables import Create, Drop, Like, ShowTables
from ..places import not_found, required_place, target_edits
from ..reports import Answer
from ..request import Edit
from ..showing import tables_of
from ..sources import latest, without_rows
from .changing import SOURCE, TARGET, change, source_edits, source_of
from .database import NEEDS_SPARK, LocalRequest, assigned, condition_of, known_part, run
from .inserting import create_with_rows, insert, rows_of
from .queries import as_views, whole_query

__all__ = ["about_names", "carry_out", "change", "create_with_rows", "creates", "insert", "new_rows", "result", "sought"]


def result(_: LocalRequest, answer: Answer) -> pa.Table:
    """The answer's rows as Arrow data."""
    if not answer.columns:
        return pa.table({})
    schema = to_arrow(answer.struct)
    columns = list(zip(*answer.rows, strict=True)) or [()] * len(schema)
    return pa.table([pa.array(values, each.type) for values, each in zip(columns, schema, strict=True)], schema=schema)


def carry_out(request: LocalRequest, statement: Statement) -> pa.Table:
    """A query's rows. Raises TableNotFound for a statement about an unknown table."""
    if isinstance(statement, Other):
        return whole_query(request, statement)
    if isinstance(statement, Drop) and statement.if_exists:
        return pa.table({})
    target = getattr(statement, "target", None)
    if target is None:
        raise request.needs_spark(Span(0, len(request.text)), "a statement of this kind")
    raise not_found(request, target)


def about_names(request: LocalRequest, statement: AboutNames) -> pa.Table:
    """The result of a statement about names, all of which are the coordinator's."""
    match statement:
        case CreateNamespace():
            answer = definitions.create_namespace(request, statement)
        case DropNamespace():
            answer = definitions.drop_namespace(request, statement)
        case ShowNamespaces():
            answer = definitions.show_namespaces(request, statement)
        case ShowTables():
            shown = tables_of(request, statement)
            if shown is None:
                raise request.refused(statement.namespace or Span(0, 0), "there is no such namespace; SHOW NAMESPACES lists them")
            answer = shown
        case Like():
            answer = definitions.create_like(request, statement, required_place(request, statement.source))
        case Comment():
            commented = definitions.comment_on(request, statement)
            if commented is None:
                raise not_found(request, statement.target)
            answer = commented
    return result(request, answer)


def creates(request: LocalRequest, statement: Create | Malformed) -> bool:
    """True. Raises UnsupportedFeature ("Spark") for a table of another format."""
    if (statement.provider or "sluice").lower() not in ("sluice", "delta"):
        at = Span(0, len(request.text)) if statement.target is None else statement.target
        raise request.needs_spark(at, f"a table of {statement.provider}")
    return True


# Types whose values mean the same in a condition, whatever the time zone.
_PLAIN: Final = frozenset({"string", "boolean", "byte", "short", "integer", "long", "date"})


def sought(request: LocalRequest, statement: RowChange | Optimize, table: Table) -> str:
    """What is known of the rows that a statement looks for, as a condition."""
    schema, called, edits = table.struct, TARGET, list[Edit]()
    if not isinstance(statement, Optimize):
        called, edits = statement.called, target_edits(request, statement, schema.names)
    if isinstance(statement, Update):
        with _passing():
            assigned(request, statement, statement.assignments, schema)
    where = statement.on if isinstance(statement, Merge) else statement.where
    if where is None:
        return ANY
    with _passing():  # DuckDB resolves the condition over tables without rows
        sources = without_rows(request, () if isinstance(statement, Optimize) else statement.relations)
        of, tables, more_edits = f"{TARGET} AS {quoted_name(called)}", {TARGET: to_arrow(schema).empty_table()}, edits
        if isinstance(statement, Merge):
            tables[SOURCE] = source_of(request, statement, sources)
            of += f", {SOURCE} AS {quoted_name(statement.source_called or SOURCE)}"
            more_edits = [*edits, *source_edits(request, statement, tables[SOURCE].column_names)]
            sources = [each for each in sources if each.relation.start >= statement.source.end]
        views, others = as_views(request, sources)
        condition = request.sql((where,), [*more_edits, *views])
        run(request, where, f"SELECT 1 FROM {of} WHERE ({condition})", {**others, **tables})  # noqa: S608 - names are quoted
    part = known_part(condition_of(request.expression(where, edits)), schema, called)
    return ANY if part is None else part.to_sql()


def new_rows(request: LocalRequest, statement: Insert, table: Table) -> NewRows:
    """What is known of the rows that an INSERT would write."""
    schema = table.struct
    sources = latest(request, statement.relations)
    reads_itself = any(each.relation.is_current and each.table.location == table.location for each in sources)
    rows, replaces = rows_of(request, statement, schema, table.partition_columns, sources)
    reads = ANY if reads_itself else None
    if statement.relations:
        return NewRows(ANY, replaces, reads)
    # the rows are written in the statement itself
    columns = [schema.named(name) for name in rows.column_names]
    comparable = [each.name for each in columns if isinstance(each.type, PrimitiveType) and each.type.name in _PLAIN]
    adds = ANY
    if comparable:
        adds = written_out(rows.rename_columns([each.name for each in columns]).select(comparable).to_pylist(), schema)
    return NewRows(adds, replaces, reads)


@contextmanager
def _passing() -> Iterator[None]:
    """Whatever only Spark evaluates passes."""
    try:
        yield
    except UnsupportedFeature as error:
        if error.features != [NEEDS_SPARK]:
            raise
