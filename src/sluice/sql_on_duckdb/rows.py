"""INSERT, UPDATE, DELETE and MERGE by the Python API, and CREATE TABLE AS SELECT; rows come from DuckDB."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import pyarrow as pa

from ..coordinator.facade.values import DEFAULT_TIMEOUT_S, Commit
from ..sql_plain.creating import Definition
from ..sql_plain.inserting import left_to_table, names_for
from ..sql_plain.partitions import equals, partition_of
from ..sql_plain.place import Place, catalog_of, exists, opened, title
from ..sql_plain.reports import NOTHING, Answer
from ..sql_plain.request import Edit
from ..statements.cursor import Name, Span
from ..statements.rows import Delete, Insert, Merge, Update
from ..statements.tables import Create
from ..statements.tokens import Token, tokens_of
from ..storage.errors import PredicateError, TableExists, TableNotFound, UnsupportedFeature
from ..storage.schema.computed import is_filled
from ..storage.schema.datatypes import StructType, as_nullable
from ..storage.schema.schema import from_arrow
from ..tables.client.address import TableAddress
from ..tables.planned_writes import abandon_plan, commit_creation, plan_creation
from ..tables.read.history import entries_of
from ..tables.table import Table
from .plain import Plain
from .queries import query
from .storing import stored

__all__ = ["create_with_rows", "delete", "insert", "merge", "update"]

_UPSERT: Final = (("matched", "update_all"), ("not_matched", "insert_all"))


# -- INSERT --------------------------------------------------------------------------------------------------------------


def insert(asked: Plain, statement: Insert, place: Place) -> Answer:
    """Add or replace rows."""
    table = opened(place)
    if statement.if_not_exists:
        raise asked.unsupported(statement.target, "INSERT ... IF NOT EXISTS is not there: leave it out, or use MERGE", "IF NOT EXISTS")
    fixed = partition_of(asked, statement.partition, table.struct, table.partition_columns)
    where = None if statement.where is None else asked.expression(statement.where)
    if statement.overwrite and fixed:
        where = equals(fixed, table.struct)
    spans = [span for span in (statement.prefix, statement.query) if span is not None]
    read_version = table.refresh().version
    defaults, left_out = left_to_table(asked, statement, table.struct, fixed)
    rows = query(asked, spans, statement.relations, defaults)
    rows = rows.rename_columns(names_for(asked, statement, rows.column_names, table.struct, fixed)).drop_columns(left_out)
    given = {name.lower() for name in rows.column_names}
    for name in table.partition_columns:  # other columns may be left out as they are
        if name.lower() not in given and (name in fixed or not is_filled(table.struct.named(name))):
            kind = table.schema.field(name).type
            rows = rows.append_column(name, pa.repeat(pa.scalar(fixed.get(name), kind), rows.num_rows))
    rows = stored(asked, statement.query, rows, table.struct)
    with _filled_in(asked, statement.target):
        if statement.overwrite or where is not None:
            table.overwrite(rows, where, merge_schema=statement.evolves, read_version=read_version)
        else:
            table.append(rows, merge_schema=statement.evolves)
    return NOTHING


# -- UPDATE, DELETE, MERGE -----------------------------------------------------------------------------------------------


def update(asked: Plain, statement: Update, place: Place) -> Answer:
    """Change rows. Answers one row: num_affected_rows."""
    _check_no_subquery(asked, statement)
    table, alias = opened(place), statement.alias or _alias(statement.target)
    values: dict[str, str] = {}
    for each in statement.assignments:
        column = _expression(asked, each.column, alias, table.struct).replace("`", "")
        if column in values:
            raise asked.refused(each.column, f"{column} is assigned twice; assign it once")
        if table.struct.get(column) is None:
            if "." in column:
                raise asked.needs_spark(each.column, "a field of a struct gets a value")
            raise asked.refused(each.column, f"column {column!r} is not in the table; its columns are {', '.join(table.struct.names)}")
        values[column] = _expression(asked, each.value, alias, table.struct)
    where = None if statement.where is None else _expression(asked, statement.where, alias, table.struct)
    commit = _evaluated(asked, statement.target, lambda: table.update(values, where))
    return Answer("num_affected_rows bigint", ((_count(table, commit, "numUpdatedRows"),),))


def delete(asked: Plain, statement: Delete, place: Place) -> Answer:
    """Delete rows. Answers one row: num_affected_rows."""
    _check_no_subquery(asked, statement)
    table = opened(place)
    where = "TRUE"
    if statement.where is not None:
        where = _expression(asked, statement.where, statement.alias or _alias(statement.target), table.struct)
    commit = _evaluated(asked, statement.where or statement.target, lambda: table.delete(where))
    return Answer("num_affected_rows bigint", ((_count(table, commit, "numDeletedRows"),),))


def merge(asked: Plain, statement: Merge, place: Place) -> Answer:
    """Replace and add rows by a key (`Table.upsert`); other merges need Spark. Answers one row: the counts of Delta Lake's MERGE."""
    clauses = tuple((each.matched, each.action) for each in statement.clauses)
    plain = clauses == _UPSERT and not statement.evolves and all(each.condition is None for each in statement.clauses)
    if not plain:
        raise asked.needs_spark(statement.target, "a MERGE other than WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *")
    table = opened(place)
    keys = _keys(asked, statement)
    begin = Edit(statement.source.start, statement.source.start, "SELECT * FROM ")
    relations = [each for each in statement.relations if each.end <= statement.source.end]
    rows = stored(asked, statement.source, query(asked, (statement.source,), relations, [begin]), table.struct)
    with _filled_in(asked, statement.target):
        commit = table.upsert(rows, on=[table.struct.named(key).name for key in keys])
    updated, inserted = (_count(table, commit, name) for name in ("numTargetRowsUpdated", "numTargetRowsInserted"))
    columns = "num_affected_rows bigint, num_updated_rows bigint, num_deleted_rows bigint, num_inserted_rows bigint"
    return Answer(columns, ((updated + inserted, updated, 0, inserted),))


def _keys(asked: Plain, statement: Merge) -> list[str]:
    """The columns of a condition `t.a = s.a AND t.b = s.b`."""
    found: list[str] = []
    tokens = [each for each in tokens_of(asked.text) or () if statement.on.start <= each.start and each.end <= statement.on.end]
    sides = {(statement.alias or _alias(statement.target) or "").lower(), _source_alias(statement).lower()}
    for at in range(0, len(tokens), 8):
        part = tokens[at : at + 8]
        shape = [each.upper for each in part if not each.names]
        joined = len(part) == 7 or (len(part) == 8 and part[7].upper == "AND")
        if not joined or shape != [".", "=", "."] or _side(part[0], part[4]) != sides or part[2].value.lower() != part[6].value.lower():
            raise asked.needs_spark(statement.on, "a MERGE whose condition is not t.key = s.key [AND ...]")
        found.append(part[2].value)
    return found


def _side(mine: Token, theirs: Token) -> set[str]:
    return {mine.value.lower(), theirs.value.lower()}


def _source_alias(statement: Merge) -> str:
    if statement.source_alias is not None:
        return statement.source_alias
    first = next((each for each in statement.relations if each.start == statement.source.start), None)
    return "" if first is None else _alias(first.name) or ""


def _alias(name: Name) -> str | None:
    """What a table is called in a statement that gives it no alias."""
    return None if name.path is not None else name.parts[-1]


def _check_no_subquery(asked: Plain, statement: Update | Delete) -> None:
    if statement.relations:
        raise asked.needs_spark(statement.relations[0].name, "a subquery in a condition or a value")


def _expression(asked: Plain, span: Span, alias: str | None, schema: StructType) -> str:
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


@contextmanager
def _filled_in(asked: Plain, at: Span | Name) -> Iterator[None]:
    """A default or a generated column that only Spark evaluates makes a statement Spark's."""
    try:
        yield
    except UnsupportedFeature as error:
        if not {*error.features} <= {"allowColumnDefaults", "generatedColumns"}:
            raise
        raise asked.needs_spark(at, error.message) from error


def _evaluated(asked: Plain, at: Span | Name, change: Callable[[], Commit | None]) -> Commit | None:
    """What the change commits; an expression that only Spark evaluates has another error than a wrong one."""
    try:
        with _filled_in(asked, at):
            return change()
    except PredicateError as error:
        if "columns" in error.details:  # a column that the table lacks
            raise asked.refused(at, error.message) from error
        raise asked.needs_spark(at, error.message) from error


def _count(table: Table, commit: Commit | None, name: str) -> int:
    """A number of rows that a commit tells in the history; 0 without a commit."""
    if commit is None:
        return 0
    [entry] = [each for each in entries_of(table.access, commit.version) if each.transaction_id == commit.transaction_id]
    return int(entry.metrics.get(name) or 0)


# -- CREATE TABLE AS SELECT ----------------------------------------------------------------------------------------------


def create_with_rows(asked: Plain, statement: Create, wanted: Definition) -> Answer:
    """The table, its name and its rows as one commit."""
    name = statement.target
    assert statement.query is not None
    catalog = catalog_of(asked)
    there = exists(Place(name.path, asked.coordinator, asked.options)) if name.path else catalog.exists(name.quoted)
    if there and wanted.how == "createIfNotExists":
        return NOTHING
    if there and wanted.how == "create":
        raise TableExists(asked.shown(name, f"there is a table {title(name)} already"), name=title(name))
    if not there and wanted.how == "replace":
        raise TableNotFound(asked.shown(name, f"there is no table {title(name)} to replace"), name=title(name))
    rows = query(asked, (statement.query,), statement.relations)
    schema = StructType(as_nullable(each) for each in from_arrow(rows.schema).fields)
    if there:
        table = opened(Place(name.path or catalog.locate(name.quoted), asked.coordinator, asked.options))
        create = wanted.how == "createOrReplace"
        table.replace(
            schema, rows, partition_by=wanted.partition_by, cluster_by=wanted.cluster_by, properties=wanted.properties, create=create
        )
        return NOTHING
    location = wanted.location or catalog.new_location(name.quoted)
    _create(asked, wanted, location, schema, rows)
    return NOTHING


def _create(asked: Plain, wanted: Definition, location: str, schema: StructType, rows: pa.Table) -> None:
    address = TableAddress.of(location, asked.coordinator, asked.options)
    plan = plan_creation(address, schema, wanted.partition_by, wanted.properties, None, cluster_by=wanted.cluster_by)
    try:
        files = plan.write(rows)
        commit_creation(
            plan,
            files,
            ack="published",
            timeout_s=DEFAULT_TIMEOUT_S,
            only_new=True,
            name=wanted.name,
            managed=wanted.location is None,
        )
    except BaseException:
        abandon_plan(plan)
        raise
