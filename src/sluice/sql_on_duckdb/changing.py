"""UPDATE, DELETE and MERGE in an open transaction.

Without subqueries sluice evaluates conditions and values itself, file by file. Subqueries and MERGE are DuckDB's: it gets the rows of the
files that may hold rows to change, and returns the numbers of those that change, with their new values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeAlias

from ..coordinator.rules.operation_kinds import Kind
from ..sql_plain.place import Place, at_one_moment, called, current_of, opened
from ..sql_plain.reports import Answer, affected, merged
from ..statements.cursor import Name, Span
from ..statements.relations import Relation
from ..statements.rows import Delete, Merge, Update
from ..storage.errors import PredicateError
from ..storage.schema.sqltypes import quoted_name
from ..tables.joint_transaction import JointTransaction
from ..tables.read.table_snapshot import TableSnapshot
from ..tables.table import Table
from ..tables.transaction import Transaction
from ..tables.write.merging import RowCounts
from ..tables.write.operation_records import Step
from ..tables.write.row_operations import require_no_keys, target_of, with_those_made_of
from .engine import run
from .expressions import assigned, condition_of, known_part, unqualified, with_defaults
from .merging import merge_rows
from .plain import Plain, filled_in
from .queries import Reading, as_views, require_place
from .storing import new_values
from .targets import NUMBER, TARGET, Changes, Rows, apply_to

Changing: TypeAlias = Update | Delete | Merge


def update(asked: Plain, statement: Update, place: Place) -> Answer:
    """Change rows. Answers one row: num_affected_rows."""
    return affected(_committed(asked, statement, place))


def delete(asked: Plain, statement: Delete, place: Place) -> Answer:
    """Delete rows. Answers one row: num_affected_rows."""
    return affected(_committed(asked, statement, place))


def merge(asked: Plain, statement: Merge, place: Place) -> Answer:
    """Merge a source into the table. Answers one row: the counts of Delta Lake's MERGE."""
    return merged(_committed(asked, statement, place))


def _committed(asked: Plain, statement: Changing, place: Place) -> RowCounts:
    """Run a change as a transaction. All tables that it reads are read as of one moment."""
    table = opened(place)
    others = [opened(require_place(asked, each.name)) for each in current_of(asked, statement.relations)]
    if not others:
        return table.transact(lambda part: change(asked, statement, part, at_one_moment), attempts=1, if_version=asked.if_version)
    tables = list({each.location: each for each in (*others, table)}.values())
    expected = None if asked.if_version is None else {table: asked.if_version}
    with JointTransaction(tables=tables, if_version=expected) as joint:

        def reading(read: Sequence[Table]) -> Mapping[str, TableSnapshot]:
            return {each.location: each.snapshot(joint.read_versions[each.location]) for each in read}

        def work(part: Transaction) -> RowCounts:
            if any(each.location == table.location for each in others):
                part.depend_on()
            return change(asked, statement, part, reading)

        return joint.do(table, work)


def change(asked: Plain, statement: Changing, part: Transaction, reading: Reading) -> RowCounts:
    """Carry a change out in an open transaction; `reading` gives the rows of the tables that it reads."""
    with filled_in(asked, statement.target):
        match statement:
            case Update():
                return _update(asked, statement, part, reading)
            case Delete():
                return _delete(asked, statement, part, reading)
            case Merge():
                return merge_rows(asked, statement, part, reading)


def _update(asked: Plain, statement: Update, part: Transaction, reading: Reading) -> RowCounts:
    alias = statement.alias or called(statement.target)
    values = assigned(asked, statement.assignments, alias, part.struct)
    if statement.relations:
        return _by_duckdb(asked, statement, part, reading, values)
    texts = {column: unqualified(asked, value, alias, part.struct) for column, value in values.items()}
    where = None if statement.where is None else unqualified(asked, statement.where, alias, part.struct)
    with _evaluating(asked, statement.target):
        return RowCounts(updated=_counted(part, lambda: part.update(texts, where), "numUpdatedRows"))


def _delete(asked: Plain, statement: Delete, part: Transaction, reading: Reading) -> RowCounts:
    if statement.relations:
        return _by_duckdb(asked, statement, part, reading, {})
    where = "TRUE"
    if statement.where is not None:
        where = unqualified(asked, statement.where, statement.alias or called(statement.target), part.struct)
    with _evaluating(asked, statement.where or statement.target):
        return RowCounts(deleted=_counted(part, lambda: part.delete(where), "numDeletedRows"))


@contextmanager
def _evaluating(asked: Plain, at: Span | Name) -> Iterator[None]:
    """An expression that only Spark evaluates has another error than a wrong one."""
    try:
        yield
    except PredicateError as error:
        if "columns" in error.details or error.details.get("wrong"):  # a column that the table lacks, or what Spark refuses, too
            raise asked.refused(at, error.message) from error
        raise asked.needs_spark(at, error.message) from error


def _counted(part: Transaction, operation: Callable[[], None], metric: str) -> int:
    """How many rows an operation changed."""
    before = len(part.steps)
    operation()
    return part.steps[-1].metrics.get(metric, 0) if len(part.steps) > before else 0


def _by_duckdb(asked: Plain, statement: Update | Delete, part: Transaction, reading: Reading, values: Mapping[str, Span]) -> RowCounts:
    """An UPDATE or DELETE (without values) with subqueries."""
    is_update = isinstance(statement, Update)
    views, tables = as_views(asked, statement.relations, reading)
    spans = [*values.values(), *([] if statement.where is None else [statement.where])]
    placed, bound = asked.placed(spans, _besides(statement.relations))
    alias = statement.alias or called(statement.target) or TARGET

    def text(span: Span) -> str:
        return f"({asked.edited((span,), [*views, *placed])[span.start :].strip()})"

    verb, metric = ("UPDATE", "numUpdatedRows") if is_update else ("DELETE", "numDeletedRows")
    with part.operation(verb) as operation:
        draft = operation.draft
        require_no_keys(draft, with_those_made_of(draft.schema, list(values)))
        where = None if statement.where is None else asked.expression(statement.where, views)
        known = None if where is None else known_part(condition_of(where), draft.schema, alias)
        target = target_of(draft, known, known)
        rows = Rows.of(asked, draft, target.files)
        given = with_defaults(asked, values, draft.schema)
        texts = {column: text(value) if isinstance(value, Span) else f"({value})" for column, value in given.items()}
        columns = "".join(f", {value} AS {quoted_name(column)}" for column, value in texts.items())
        condition = "" if statement.where is None else f" WHERE {text(statement.where)}"
        asked_for = f"SELECT {NUMBER}{columns} FROM {TARGET} AS {quoted_name(alias)}{condition}"  # noqa: S608 - bound
        found = run(asked, Span(0, len(asked.text)), asked_for, bound, {**tables, TARGET: rows.data})
        numbers = found.column(NUMBER)
        changes = Changes(deleted=numbers)
        if is_update:
            new = new_values(asked, spans[0], found.drop_columns([NUMBER]), draft.schema)
            changes = Changes(replaced=rows.with_values(numbers, new, draft.schema))
        apply_to(draft, rows, changes, operation.label)
        parameters = {} if statement.where is None else {"predicate": statement.where.of(asked.text)}
        step = Step(verb, Kind.CHANGE, parameters, {metric: found.num_rows}, target.reads)
        operation.done(step if found.num_rows else None, target.reads)
    return changes.counts


def _besides(relations: Sequence[Relation]) -> list[Span]:
    """The parts of the text that the names of views replace."""
    return [Span(each.start, each.end) for each in relations]
