"""What DuckDB and the Python API do for statements, and `run`, which carries one out without Spark.

INSERT casts by Spark's ANSI rule, by which no text becomes another type; UPDATE and MERGE cast any type, as Delta's do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa

from ...coordinator.rules.intent import Terms
from ...storage.errors import UnsupportedFeature
from ...storage.log.snapshot import Snapshot
from ...storage.schema.datatypes import PrimitiveType, StructType, arrow_type, as_nullable
from ...storage.schema.schema import from_arrow, to_arrow
from ...storage.schema.sqltypes import quoted_name
from ...tables.client.address import TableAddress
from ...tables.manage.creation import new_table
from ...tables.planned_writes import abandon_plan, commit_creation, plan_creation
from ...tables.table import Table
from ...tables.transaction import Transaction
from ...tables.write.evolution import types_for
from .. import definitions
from .. import run as statements
from ..concurrency import ANY, written_out
from ..definitions import Definition
from ..engine import AboutNames, Engine, NewRows, RowChange
from ..parse.concurrency import Atomic, ExplainConflict
from ..parse.cursor import Cursor, Span, tokens_of, words_in
from ..parse.maintenance import Optimize
from ..parse.namespaces import Comment, CreateNamespace, DropNamespace, ShowNamespaces
from ..parse.reading import Malformed, Other, Statement, bare, read
from ..parse.rows import Delete, Insert, Merge, Update
from ..parse.tables import Create, Drop, Like, ShowTables
from ..partitions import Insertion
from ..places import Source, catalog_of, latest, not_found, opened, required_place, target_edits, without_rows
from ..request import Answer, Edit, Locks, Place
from ..showing import tables_of
from .changing import SOURCE, TARGET, change, source_edits, source_of
from .database import NEEDS_SPARK, LocalRequest, assigned, condition_of, known_part, run_query
from .queries import QUERIES, as_views, filled_in, query, stored, whole_query


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


# -- rows of INSERT and CREATE TABLE AS SELECT: DuckDB's, in the types of the table's columns -----------------------------------


def insert(request: LocalRequest, statement: Insert, part: Transaction, table: Table, sources: Sequence[Source]) -> None:
    """Add or replace rows in an open transaction, which depends on the rows of its own table that the query reads."""
    read = [replace(each, rows=part) if each.relation.is_current and each.table.location == table.location else each for each in sources]
    rows, replaces = rows_of(request, statement, part.struct, table.partition_columns, read, part.basis[0] if statement.evolves else None)
    with filled_in(request, statement.target):
        if replaces is None:
            part.append(rows, merge_schema=statement.evolves)
        else:
            part.overwrite(rows, replaces or None, merge_schema=statement.evolves)


def rows_of(
    request: LocalRequest,
    statement: Insert,
    schema: StructType,
    partition_columns: Sequence[str],
    sources: Sequence[Source],
    evolves: Snapshot | None = None,
) -> tuple[pa.Table, str | None]:
    """The rows that an INSERT writes, in the types of the table's columns, and what they replace, as `Insertion` says it.

    `evolves`: the version whose columns may get the rows' wider types.
    """
    said = Insertion(request, statement, schema, partition_columns)
    rows = query(request, said.spans, sources, said.defaults)
    rows = rows.rename_columns(said.filled(rows.column_names)).drop_columns(said.left_out)
    for name in said.missing(rows.column_names):
        rows = rows.append_column(name, pa.repeat(pa.scalar(said.fixed.get(name), arrow_type(schema.named(name).type)), rows.num_rows))
    schema = schema if evolves is None else types_for(evolves, schema, from_arrow(rows.schema))
    return stored(request, statement.query, rows, schema), said.replaces


def create_with_rows(request: LocalRequest, statement: Create, definition: Definition, place: Place | None) -> None:
    """Create a table with its name and rows in one commit. With a `place` the rows replace the table there."""
    assert statement.query is not None
    table = None if place is None else opened(place)
    read_version = 0 if table is None else table.version
    rows = query(request, (statement.query,), latest(request, statement.relations))
    schema = StructType(as_nullable(each) for each in from_arrow(rows.schema).fields)
    if table is not None:
        with table.begin(read_version=read_version) as part:  # the query may have read the table itself
            part.replace(
                schema,
                rows,
                partition_by=definition.partition_by,
                cluster_by=definition.cluster_by,
                properties=definition.properties,
                create=definition.how == "createOrReplace",
            )
        return
    location = definition.location or catalog_of(request).new_location(statement.target.quoted)
    new = new_table(schema, definition.partition_by, definition.properties, cluster_by=definition.cluster_by)
    plan = plan_creation(TableAddress.of(location, request.coordinator, request.options), new, Terms())
    try:
        commit_creation(plan, plan.write(rows), only_new=True, name=definition.name, managed=definition.location is None)
    except BaseException:
        abandon_plan(plan)
        raise


# -- statements as EXPLAIN CONFLICT compares them ------------------------------------------------------------------------------

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
        run_query(request, where, f"SELECT 1 FROM {of} WHERE ({condition})", {**others, **tables})  # noqa: S608 - names are quoted
    part = known_part(condition_of(request.expression(where, edits)), schema, called)
    return ANY if part is None else part.to_sql()


def new_rows(request: LocalRequest, statement: Insert, table: Table) -> NewRows:
    """What is known of the rows that an INSERT would write."""
    schema = table.struct
    sources = latest(request, statement.relations)
    rows, replaces = rows_of(request, statement, schema, table.partition_columns, sources)
    reads = ANY if any(each.relation.is_current and each.table.location == table.location for each in sources) else None
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


ENGINE: Final = Engine(result, carry_out, about_names, creates, create_with_rows, insert, change, sought, new_rows)
_WITH_EXPRESSIONS: Final = (Insert, Update, Delete, Merge, Atomic, ExplainConflict, Create)
_BEFORE_LIST: Final = words_in("( [ , SELECT")
_AFTER_LIST: Final = (")", "]", "FROM", "WHERE", "HAVING", "UNION", "INTERSECT", "EXCEPT", "GROUP BY", "ORDER BY")
_UNFINISHED: Final = words_in(
    "SELECT FROM WHERE JOIN ON AND OR NOT BY HAVING LIMIT OF VALUES WHEN THEN ELSE CASE IN LIKE BETWEEN = < > + - /"
)


def run(
    text: str,
    args: Mapping[str, Any] | Sequence[Any] | None = None,
    *,
    coordinator: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    max_bytes: int | None = None,
    locks: Locks | None = None,
) -> pa.Table:
    """Carry out one statement; returns its rows. `locks` are the session's: LOCK TABLE needs some.

    Raises UnsupportedFeature with the feature "Spark", before anything is written, for what needs Spark: also for queries that read
    more than `max_bytes` of data files. Otherwise as `sluice.sql`.
    """
    request = LocalRequest(text, args, coordinator, storage_options, max_bytes, locks)
    try:
        statement = read(text)
        _require_something_at_commas(request, bare(statement))
        return statements.run(ENGINE, request, statement)
    finally:
        for each in request.connections:
            each.close()


def _require_something_at_commas(request: LocalRequest, statement: Statement) -> None:
    """Raise InvalidRequest for a comma that nothing follows, or nothing precedes: sqlglot passes over it, Spark does not.

    Also for a last word that something has to follow, of which sqlglot and DuckDB say other things.
    """
    is_query = isinstance(statement, Other) and statement.words[:1] and statement.words[0] in QUERIES
    tokens = (tokens_of(request.text) or ()) if is_query or isinstance(statement, _WITH_EXPRESSIONS) else ()
    *before, last = [None, *[token for token in tokens if token.upper != ";"]]
    if last is not None and last.upper in _UNFINISHED:
        previous = before[-1]
        if previous is None or previous.upper not in (".", "AS") or last.upper == "OF":
            raise request.refused(Span(last.start, last.end), f"the statement is not complete: something is missing after {last.upper}")
    for number in [number for number, token in enumerate(tokens) if token.upper == ","]:
        token, after = tokens[number], Cursor(request.text, tokens, number + 1)
        if after.is_done() or after.sees_one(*_AFTER_LIST) or number == 0 or tokens[number - 1].upper in _BEFORE_LIST:
            raise request.refused(Span(token.start, token.end), "this comma separates nothing: leave it out, or write what is missing")
