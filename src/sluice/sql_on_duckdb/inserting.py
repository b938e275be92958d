"""INSERT and CREATE TABLE AS SELECT: rows come from DuckDB, and the Python API writes them."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from ..coordinator.api import DEFAULT_TIMEOUT_S
from ..sql_plain.definitions.creating import Definition
from ..sql_plain.definitions.tables import with_rows
from ..sql_plain.inserting import left_to_table, names_for
from ..sql_plain.partitions import equals, partition_of
from ..sql_plain.place import Place, at_one_moment, catalog_of, current_of, opened
from ..sql_plain.reports import NOTHING, Answer
from ..statements.rows import Insert
from ..statements.tables import Create
from ..storage.dataclass import dataclass
from ..storage.schema.arrow_schema import arrow_type
from ..storage.schema.computed import is_filled
from ..storage.schema.datatypes import StructType, as_nullable
from ..storage.schema.schema import from_arrow
from ..tables.client.address import TableAddress
from ..tables.planned_writes import abandon_plan, commit_creation, plan_creation
from ..tables.transaction import Transaction
from .plain import Plain, filled_in
from .queries import Reading, SoFar, query, require_place
from .storing import stored

# -- INSERT --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Source:
    """What an INSERT writes: the rows, in the types of the table's columns, and the condition of those that they replace.

    "" is all of them, None is none.
    """

    rows: pa.Table
    replaces: str | None


def insert(asked: Plain, statement: Insert, place: Place) -> Answer:
    """Add or replace rows; of rows that are read of the table itself the commit depends."""
    table = opened(place)
    read_version = table.refresh().version
    read = [opened(require_place(asked, each.name)) for each in current_of(asked, statement.relations)]
    if table.location in [each.location for each in read]:
        snapshots = at_one_moment(read, table, asked.if_version)
        with table.begin(read_version=snapshots[table.location].version, if_version=asked.if_version) as part:
            insert_into(asked, statement, part, table.partition_columns, lambda _: {**snapshots, table.location: SoFar(part)})
        return NOTHING
    source = source_of(asked, statement, table.struct, table.partition_columns)
    with filled_in(asked, statement.target):
        if source.replaces is None:
            table.append(source.rows, merge_schema=statement.evolves, if_version=asked.if_version)
        else:
            read_at = read_version if asked.if_version is None else None
            evolves, replaces = statement.evolves, source.replaces or None
            table.overwrite(source.rows, replaces, merge_schema=evolves, read_version=read_at, if_version=asked.if_version)
    return NOTHING


def insert_into(asked: Plain, statement: Insert, part: Transaction, partition_columns: Sequence[str], reading: Reading) -> None:
    """Add or replace rows in an open transaction."""
    source = source_of(asked, statement, part.struct, partition_columns, reading)
    with filled_in(asked, statement.target):
        if source.replaces is None:
            part.append(source.rows, merge_schema=statement.evolves)
        else:
            part.overwrite(source.rows, source.replaces or None, merge_schema=statement.evolves)


def source_of(
    asked: Plain, statement: Insert, schema: StructType, partition_columns: Sequence[str], reading: Reading | None = None
) -> Source:
    """What an INSERT into a table with this schema writes."""
    fixed = partition_of(asked, statement.partition, schema, partition_columns)
    replaces = _replaced_by(asked, statement, schema, partition_columns)
    spans = [span for span in (statement.prefix, statement.query) if span is not None]
    defaults, left_out = left_to_table(asked, statement, schema, fixed)
    rows = query(asked, spans, statement.relations, defaults, reading)
    rows = rows.rename_columns(names_for(asked, statement, rows.column_names, schema, fixed)).drop_columns(left_out)
    given = {name.lower() for name in rows.column_names}
    for name in partition_columns:  # other columns may be left out as they are
        if name.lower() not in given and (name in fixed or not is_filled(schema.named(name))):
            rows = rows.append_column(name, pa.repeat(pa.scalar(fixed.get(name), arrow_type(schema.named(name).type)), rows.num_rows))
    return Source(stored(asked, statement.query, rows, schema), replaces)


def _replaced_by(asked: Plain, statement: Insert, schema: StructType, partition_columns: Sequence[str]) -> str | None:
    """The condition of the rows that an INSERT replaces; "" for all, None for none."""
    if statement.if_not_exists:
        raise asked.unsupported(statement.target, "INSERT ... IF NOT EXISTS is not there: leave it out, or use MERGE", "IF NOT EXISTS")
    if statement.where is not None:
        return asked.expression(statement.where)
    fixed = partition_of(asked, statement.partition, schema, partition_columns)
    return (equals(fixed, schema) if fixed else "") if statement.overwrite else None


# -- CREATE TABLE AS SELECT ----------------------------------------------------------------------------------------------


def create_with_rows(asked: Plain, statement: Create, wanted: Definition) -> Answer:
    """The table, its name and its rows as one commit."""
    name, catalog = statement.target, catalog_of(asked)
    assert statement.query is not None
    query_of = statement.query

    def write(replaces: bool) -> None:
        place = Place(name.path or catalog.locate(name.quoted), asked.coordinator, asked.options) if replaces else None
        table = None if place is None else opened(place)
        read_version = 0 if table is None else table.version
        rows = query(asked, (query_of,), statement.relations)
        schema = StructType(as_nullable(each) for each in from_arrow(rows.schema).fields)
        if table is None:
            _create(asked, wanted, wanted.location or catalog.new_location(name.quoted), schema, rows)
            return
        with table.begin(read_version=read_version) as part:  # the query may have read the table itself
            part.replace(
                schema,
                rows,
                partition_by=wanted.partition_by,
                cluster_by=wanted.cluster_by,
                properties=wanted.properties,
                create=wanted.how == "createOrReplace",
            )

    with_rows(asked, statement, write)
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
