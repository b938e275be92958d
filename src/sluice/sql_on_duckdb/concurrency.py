"""BEGIN ATOMIC ... END and EXPLAIN CONFLICT without Spark.

Each statement of a block is an operation in one transaction. Statements that are compared are not run: their conditions and values tell.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Final

import pyarrow as pa

from ..coordinator.api import Foreseen
from ..sql_plain.concurrency import foreseeing
from ..sql_plain.concurrency.blocks import Done, Step, changing, done_by, rows_written, run_block, truncated
from ..sql_plain.concurrency.foreseeing import ANY, Foreseeable, Known
from ..sql_plain.place import called, current_of, opened
from ..sql_plain.reports import Answer
from ..sql_plain.request import Edit
from ..statements.compound import Atomic, ExplainConflict, Part
from ..statements.cursor import Span
from ..statements.maintenance import Optimize
from ..statements.relations import Relation
from ..statements.rows import Insert, Merge, Truncate, Update
from ..storage.errors import PredicateError, UnsupportedFeature
from ..storage.pruning.predicate import Predicate
from ..storage.schema.datatypes import PrimitiveType, StructType
from ..storage.schema.schema import to_arrow
from ..storage.schema.sqltypes import quoted_name
from ..tables.joint_transaction import JointTransaction
from ..tables.table import Table
from .changing import change
from .engine import NEEDS_SPARK, run
from .expressions import assigned, condition_of, known_part, unqualified
from .inserting import insert_into, source_of
from .merging import SOURCE, matching_of, source_name
from .plain import Plain
from .queries import SoFar, as_views, query, require_place, without_rows
from .targets import TARGET


def atomic(asked: Plain, block: Atomic) -> Answer:
    """Run a block: all of its statements become one commit, or nothing.

    A statement in it that needs Spark raises UnsupportedFeature ("Spark"), and then nothing of the block has happened.
    """
    steps = [_step(asked, part) for part in block.parts]
    return run_block(asked, block, steps, lambda joint, number: _run(asked, joint, steps[number]))


def _step(asked: Plain, part: Part) -> Step:
    statement = changing(asked, part)
    read = [opened(require_place(asked, each.name)) for each in current_of(asked, getattr(statement, "relations", ()))]
    return Step(part.at, statement, opened(require_place(asked, statement.target)), read)


def _run(asked: Plain, joint: JointTransaction, step: Step) -> Done:
    statement, table = step.statement, step.table

    def reading(read: Sequence[Table]) -> Mapping[str, SoFar]:
        return {each.location: joint.do(each, SoFar) for each in read}

    if isinstance(statement, Truncate):
        return truncated(asked, joint, statement, table)
    if isinstance(statement, Insert):
        joint.do(table, lambda part: insert_into(asked, statement, part, table.partition_columns, reading))
        return Done(inserted=joint.do(table, rows_written))
    return done_by(statement, joint.do(table, lambda part: change(asked, statement, part, reading)))


# Types whose values mean the same in a condition, whatever the time zone.
_PLAIN: Final = frozenset({"string", "boolean", "byte", "short", "integer", "long", "date"})


def explain_conflict(asked: Plain, statement: ExplainConflict) -> Answer:
    """The verdict on two statements, at each isolation level and in both orders."""
    return foreseeing.explain_conflict(asked, statement, lambda name: opened(require_place(asked, name)), partial(_foreseen, asked))


def _foreseen(asked: Plain, statement: Foreseeable, table: Table) -> Foreseen:
    """What the statement would do, as far as its text shows it."""
    schema = table.struct

    def condition(where: Span, alias: str | None = None) -> str | None:
        relations = getattr(statement, "relations", ())
        if relations:
            with _passing():
                _resolve(asked, where, relations, f"{TARGET} AS {quoted_name(alias or TARGET)}", {TARGET: to_arrow(schema).empty_table()})
        else:
            _check_columns(asked, where, alias, schema)
        known = known_part(condition_of(asked.expression(where)), schema, alias)
        return None if known is None else known.to_sql()

    if isinstance(statement, (Truncate, Optimize)):
        return foreseeing.without_rows(asked, statement, table, condition)
    places = [require_place(asked, each.name) for each in current_of(asked, statement.relations)]
    reads_itself = any(opened(each).location == table.location for each in places)
    if isinstance(statement, Insert):
        source = source_of(asked, statement, schema, table.partition_columns)
        rows, reads = ANY if statement.relations else _values(source.rows, schema), ANY if reads_itself else None
        return foreseeing.inserting(asked, statement, table, rows, source.replaces, reads)
    if isinstance(statement, Merge):
        _check_merge(asked, statement, schema)
        found = matching_of(asked, statement, schema)
        return foreseeing.merging(statement, Known(ANY if found is None else found.to_sql(), reads_itself))
    alias = statement.alias or called(statement.target)
    if isinstance(statement, Update):
        with _passing():
            assigned(asked, statement.assignments, alias, schema)
    where = None if statement.where is None else condition(statement.where, alias)
    return foreseeing.changing_rows(asked, statement, Known(where or ANY, reads_itself), schema)


def _check_columns(asked: Plain, where: Span, alias: str | None, schema: StructType) -> None:
    """Raise InvalidRequest for a column that the table lacks; what only Spark evaluates passes."""
    try:
        Predicate.parse(unqualified(asked, where, alias, schema), schema)
    except PredicateError as error:
        if "columns" in error.details:
            raise asked.refused(where, error.message) from error


def _check_merge(asked: Plain, statement: Merge, schema: StructType) -> None:
    """Raise InvalidRequest for a column in ON that neither side has. What only Spark evaluates passes."""
    begin = Edit(statement.source.start, statement.source.start, "SELECT * FROM ")
    inside = [each for each in statement.relations if each.end <= statement.source.end]
    outside = [each for each in statement.relations if each not in inside]
    target = quoted_name(statement.alias or called(statement.target) or TARGET)
    both = f"{TARGET} AS {target}, {SOURCE} AS {quoted_name(source_name(statement))}"
    with _passing():
        source = query(asked, (statement.source,), inside, [begin], without_rows)
        _resolve(asked, statement.on, outside, both, {TARGET: to_arrow(schema).empty_table(), SOURCE: source})


def _resolve(asked: Plain, where: Span, relations: Sequence[Relation], of: str, tables: Mapping[str, pa.Table]) -> None:
    """Have DuckDB resolve a condition over tables without rows. Raises InvalidRequest, UnsupportedFeature ("Spark")."""
    views, others = as_views(asked, relations, without_rows)
    placed, bound = asked.placed((where,), [Span(each.start, each.end) for each in relations])
    condition = asked.edited((where,), [*views, *placed])[where.start :].strip()
    run(asked, where, f"SELECT 1 FROM {of} WHERE ({condition})", bound, {**others, **tables})  # noqa: S608 - names are quoted


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
    known = [name for name in named if isinstance(kind := kinds[name], PrimitiveType) and kind.name in _PLAIN]
    return foreseeing.written_out(rows.rename_columns(named).select(known).to_pylist(), schema) if known else ANY
