"""INSERT and CREATE TABLE AS SELECT: rows come from DuckDB, in the types of the table's columns, and the Python API writes them.

INSERT casts by Spark's ANSI rule, by which no text becomes another type; UPDATE and MERGE cast any type, as Delta's do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import pyarrow as pa

from ...coordinator.rules.intent import Terms
from ...storage.data.assignments import cast_to
from ...storage.errors import PredicateError, SchemaMismatch
from ...storage.schema.datatypes import ArrayType, DataType, MapType, PrimitiveType, StructType, arrow_type, as_nullable
from ...storage.schema.schema import from_arrow
from ...storage.schema.sqltypes import quoted_name, type_sql
from ...tables.client.address import TableAddress
from ...tables.manage.creation import new_table
from ...tables.planned_writes import abandon_plan, commit_creation, plan_creation
from ...tables.table import Table
from ...tables.transaction import Transaction
from ...tables.write.data_writing import require_whole_structs
from ..definitions import Definition
from ..parse.cursor import Span
from ..parse.rows import Insert
from ..parse.tables import Create
from ..partitions import Insertion
from ..places import catalog_of, opened
from ..request import Place
from ..sources import Source, latest
from .database import LocalRequest, run
from .queries import filled_in, query


def insert(request: LocalRequest, statement: Insert, part: Transaction, table: Table, sources: Sequence[Source]) -> None:
    """Add or replace rows in an open transaction, which depends on the rows of its own table that the query reads."""
    read = [replace(each, rows=part) if each.relation.is_current and each.table.location == table.location else each for each in sources]
    rows, replaces = rows_of(request, statement, part.struct, table.partition_columns, read)
    with filled_in(request, statement.target):
        if replaces is None:
            part.append(rows, merge_schema=statement.evolves)
        else:
            part.overwrite(rows, replaces or None, merge_schema=statement.evolves)


def rows_of(
    request: LocalRequest, statement: Insert, schema: StructType, partition_columns: Sequence[str], sources: Sequence[Source]
) -> tuple[pa.Table, str | None]:
    """The rows that an INSERT writes, in the types of the table's columns, and what they replace, as `Insertion` says it."""
    said = Insertion(request, statement, schema, partition_columns)
    rows = query(request, said.spans, sources, said.defaults)
    rows = rows.rename_columns(said.filled(rows.column_names)).drop_columns(said.left_out)
    for name in said.missing(rows.column_names):
        rows = rows.append_column(name, pa.repeat(pa.scalar(said.fixed.get(name), arrow_type(schema.named(name).type)), rows.num_rows))
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
        files = plan.write(rows)
        commit_creation(plan, files, only_new=True, name=definition.name, managed=definition.location is None)
    except BaseException:
        abandon_plan(plan)
        raise


_WHOLE: Final = frozenset({"byte", "short", "integer", "long"})


def stored(request: LocalRequest, at: Span, rows: pa.Table, schema: StructType) -> pa.Table:
    """The rows in the types of the table's columns. Raises SchemaMismatch for a type that does not fit, InvalidRequest for a value."""
    casts: list[str] = []
    for field in rows.schema:
        column = schema.get(field.name)
        name = quoted_name(field.name)
        if column is None or not isinstance(column.type, PrimitiveType) or field.type == arrow_type(column.type):
            casts.append(name)
            continue
        if not _fits(field.type, column.type):
            said = f"column {column.name!r} is {type_sql(column.type)}, and these values are {field.type}: CAST them"
            raise request.error(SchemaMismatch, at, said, column=column.name)
        whole = column.type.name in _WHOLE and (pa.types.is_decimal(field.type) or pa.types.is_floating(field.type))
        value = f"IF({name} < 0, CEIL({name}), FLOOR({name}))" if whole else name
        casts.append(f"CAST({value} AS {type_sql(column.type)}) AS {name}")
    if len(set(rows.column_names)) != len(rows.column_names):
        raise request.error(SchemaMismatch, at, "two columns of these rows have one name; name each once")
    if all(" " not in each for each in casts):
        return rows
    text = f"SELECT {', '.join(casts)} FROM __sluice_rows"  # noqa: S608 - names are quoted, types are the table's own
    return run(request, at, text, {"__sluice_rows": rows})


def new_values(request: LocalRequest, at: Span, rows: pa.Table, schema: StructType) -> pa.Table:
    """New values in the types of the table's columns: texts and others are cast, too, and structs must have all fields of the table's.

    Raises SchemaMismatch for a type or a value that cannot be cast, and for a struct; InvalidRequest for a value that is too large.
    """
    try:
        require_whole_structs(rows.schema, schema)
    except SchemaMismatch as error:
        raise request.error(SchemaMismatch, at, error.message, **error.details) from error
    for index, field in enumerate(rows.schema):
        column = schema.get(field.name)
        if column is None or _all_fit(field.type, column.type):
            continue
        if not isinstance(column.type, PrimitiveType):
            said = f"column {column.name!r} is {type_sql(column.type)}, and these values are {field.type}: casting them"
            raise request.needs_spark(at, said)
        kind = arrow_type(column.type)
        try:  # DuckDB's own casts of texts differ from Spark's
            values = cast_to(column.name, kind, rows.column(index).combine_chunks(), field.name)
        except (PredicateError, SchemaMismatch) as error:
            raise request.error(SchemaMismatch, at, error.message, **{**error.details, "column": column.name}) from error
        rows = rows.set_column(index, field.with_type(kind), values)
    return stored(request, at, rows, schema)


def _fits(kind: pa.DataType, column_type: PrimitiveType) -> bool:
    """Whether Spark would cast such values in an INSERT."""
    numeric = column_type.name in _WHOLE or column_type.name in ("float", "double") or column_type.is_decimal
    if pa.types.is_null(kind):
        return True
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return numeric or column_type.name == "string"
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return column_type.name in ("date", "timestamp", "timestamp_ntz", "string")
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return column_type.name == "string"
    if pa.types.is_boolean(kind):
        return column_type.name in ("boolean", "string")
    return (pa.types.is_binary(kind) or pa.types.is_large_binary(kind)) and column_type.name == "binary"


def _all_fit(value_type: pa.DataType, kind: DataType) -> bool:
    """Whether an INSERT would cast such values, or those in them; whatever has another shape is refused elsewhere."""
    match kind:
        case PrimitiveType():
            return _fits(value_type, kind)
        case StructType() if pa.types.is_struct(value_type):
            parts = ((part.type, kind.get(part.name)) for part in value_type)
            return all(field is None or _all_fit(part, field.type) for part, field in parts)
        case ArrayType() if pa.types.is_list(value_type):
            return _all_fit(value_type.value_type, kind.element_type)
        case MapType() if pa.types.is_map(value_type):
            return _all_fit(value_type.key_type, kind.key_type) and _all_fit(value_type.item_type, kind.value_type)
    return True
