"""What DuckDB and the Python API do for statements."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import pyarrow as pa

from ...storage.errors import UnsupportedFeature
from ...storage.schema.datatypes import PrimitiveType, StructType
from ...storage.schema.schema import to_arrow
from ...storage.schema.sqltypes import quoted_name
from ...tables.table import Table
from ..concurrency.conflicts import ANY, written_out
from ..engine import AboutNames, NewRows, RowChange
from ..parse.cursor import Span
from ..parse.maintenance import Optimize
from ..parse.reading import Malformed, Other, Statement
from ..parse.rows import Insert, Merge, Update
from ..parse.tables import Create, Drop
from ..places import not_found, target_edits
from ..reports import Answer
from ..request import Edit
from ..run import names_answer
from ..sources import Source, latest, without_rows
from .changing import SOURCE, TARGET, change, source_edits, source_of
from .database import NEEDS_SPARK, assigned, condition_of, known_part, run
from .inserting import create_with_rows, insert, rows_of
from .queries import LocalRequest, as_views, whole_query

__all__ = ["about_names", "carry_out", "change", "create_with_rows", "creates", "insert", "lease_condition", "new_rows"]
__all__ += ["result", "sought"]


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
    return result(request, names_answer(request, statement))


def creates(request: LocalRequest, statement: Create | Malformed) -> bool:
    """True. Raises UnsupportedFeature ("Spark") for a table of another format."""
    if (statement.provider or "sluice").lower() not in ("sluice", "delta"):
        at = Span(0, len(request.text)) if statement.target is None else statement.target
        raise request.needs_spark(at, f"a table of {statement.provider}")
    return True


def lease_condition(request: LocalRequest, _: Table, where: Span) -> str:
    """The condition as it is written: leases read Spark's SQL."""
    return request.expression(where)


# Types whose values mean the same in a condition, whatever the time zone.
_PLAIN: Final = frozenset({"string", "boolean", "byte", "short", "integer", "long", "date"})


def sought(request: LocalRequest, statement: RowChange | Optimize, table: Table) -> str:
    """What is known of the rows that a statement looks for, as a condition."""
    schema, called, edits = table.struct, TARGET, list[Edit]()
    if not isinstance(statement, Optimize):
        called, edits = statement.called, target_edits(request, statement, table.struct.names)
    if isinstance(statement, Merge):
        _check_merge(request, statement, schema)
    if isinstance(statement, Update):
        with _passing():
            assigned(request, statement, statement.assignments, schema)
    where = statement.on if isinstance(statement, Merge) else statement.where
    if where is not None and not isinstance(statement, Merge):
        relations, of = () if isinstance(statement, Optimize) else statement.relations, f"{TARGET} AS {quoted_name(called)}"
        with _passing():
            _resolve(request, where, without_rows(request, relations), of, {TARGET: to_arrow(schema).empty_table()}, edits)
    part = None if where is None else known_part(condition_of(request.expression(where, edits)), schema, called)
    return ANY if part is None else part.to_sql()


def new_rows(request: LocalRequest, statement: Insert, table: Table) -> NewRows:
    """What is known of the rows that an INSERT would write."""
    schema = table.struct
    sources = latest(request, statement.relations)
    reads_itself = any(each.relation.is_current and each.table.location == table.location for each in sources)
    inserted = rows_of(request, statement, schema, table.partition_columns, sources)
    return NewRows(ANY if statement.relations else _values(inserted.rows, schema), inserted.replaces, ANY if reads_itself else None)


def _check_merge(request: LocalRequest, statement: Merge, schema: StructType) -> None:
    """Raise InvalidRequest for a column in ON that neither side has. What only Spark evaluates passes."""
    both = f"{TARGET} AS {quoted_name(statement.called)}, {SOURCE} AS {quoted_name(statement.source_called or SOURCE)}"
    with _passing():
        sources = without_rows(request, statement.relations)
        source = source_of(request, statement, sources)
        outside = [each for each in sources if each.relation.start >= statement.source.end]
        edits = [*target_edits(request, statement, schema.names), *source_edits(request, statement, source.column_names)]
        _resolve(request, statement.on, outside, both, {TARGET: to_arrow(schema).empty_table(), SOURCE: source}, edits)


def _resolve(
    request: LocalRequest, where: Span, sources: Sequence[Source], of: str, tables: dict[str, pa.Table], edits: list[Edit]
) -> None:
    """Have DuckDB resolve a condition over tables without rows. Raises InvalidRequest, UnsupportedFeature ("Spark")."""
    views, others = as_views(request, sources)
    condition = request.sql((where,), [*edits, *views])
    run(request, where, f"SELECT 1 FROM {of} WHERE ({condition})", {**others, **tables})  # noqa: S608 - names are quoted


@contextmanager
def _passing() -> Iterator[None]:
    """Whatever only Spark evaluates passes."""
    try:
        yield
    except UnsupportedFeature as error:
        if error.features != [NEEDS_SPARK]:
            raise


def _values(rows: pa.Table, schema: StructType) -> str:
    """A condition that rows satisfy which are written in the statement itself."""
    kinds = {each.name: each.type for each in schema.fields}
    named = [schema.named(name).name for name in rows.column_names]
    comparable = [name for name in named if isinstance(kind := kinds[name], PrimitiveType) and kind.name in _PLAIN]
    return written_out(rows.rename_columns(named).select(comparable).to_pylist(), schema) if comparable else ANY
