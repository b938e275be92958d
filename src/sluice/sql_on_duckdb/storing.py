"""Rows of a query with the types of a table's columns: by Spark's ANSI rule for INSERT, which casts no text into another type, or cast into
any type, as Delta's UPDATE and MERGE do.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from ..statements.cursor import Span
from ..storage.data.assignments import cast_to
from ..storage.errors import PredicateError, SchemaMismatch
from ..storage.schema.arrow_schema import arrow_type
from ..storage.schema.datatypes import ArrayType, DataType, MapType, PrimitiveType, StructType
from ..storage.schema.sqltypes import quoted_name, type_sql
from ..tables.write.data_writing import require_whole_structs
from .engine import run
from .plain import Plain

_WHOLE: Final = frozenset({"byte", "short", "integer", "long"})


def stored(asked: Plain, at: Span, rows: pa.Table, schema: StructType) -> pa.Table:
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
            raise SchemaMismatch(asked.shown(at, said), column=column.name)
        whole = column.type.name in _WHOLE and (pa.types.is_decimal(field.type) or pa.types.is_floating(field.type))
        value = f"IF({name} < 0, CEIL({name}), FLOOR({name}))" if whole else name
        casts.append(f"CAST({value} AS {type_sql(column.type)}) AS {name}")
    if len(set(rows.column_names)) != len(rows.column_names):
        raise SchemaMismatch(asked.shown(at, "two columns of these rows have one name; name each once"))
    if all(" " not in each for each in casts):
        return rows
    text = f"SELECT {', '.join(casts)} FROM __sluice_rows"  # noqa: S608 - names are quoted, types are the table's own
    return run(asked, at, text, {}, {"__sluice_rows": rows})


def new_values(asked: Plain, at: Span, rows: pa.Table, schema: StructType) -> pa.Table:
    """New values in the types of the table's columns: texts and others are cast, too, and structs must have all fields of the table's.

    Raises SchemaMismatch for a type or a value that cannot be cast, and for a struct; InvalidRequest for a value that is too large.
    """
    try:
        require_whole_structs(rows.schema, schema)
    except SchemaMismatch as error:
        raise SchemaMismatch(asked.shown(at, error.message), **error.details) from error
    return stored(asked, at, _cast(asked, at, rows, schema), schema)


def _fits(kind: pa.DataType, wanted: PrimitiveType) -> bool:
    """Whether Spark would cast such values in an INSERT."""
    numeric = wanted.name in _WHOLE or wanted.name in ("float", "double") or wanted.is_decimal
    if pa.types.is_null(kind):
        return True
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return numeric or wanted.name == "string"
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return wanted.name in ("date", "timestamp", "timestamp_ntz", "string")
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return wanted.name == "string"
    if pa.types.is_boolean(kind):
        return wanted.name in ("boolean", "string")
    return (pa.types.is_binary(kind) or pa.types.is_large_binary(kind)) and wanted.name == "binary"


def _cast(asked: Plain, at: Span, rows: pa.Table, schema: StructType) -> pa.Table:
    """The rows, with columns cast that an INSERT would not cast. DuckDB's own casts of texts differ from Spark's."""
    for index, field in enumerate(rows.schema):
        column = schema.get(field.name)
        if column is None or _all_fit(field.type, column.type):
            continue
        if not isinstance(column.type, PrimitiveType):
            said = f"column {column.name!r} is {type_sql(column.type)}, and these values are {field.type}: casting them"
            raise asked.needs_spark(at, said)
        kind = arrow_type(column.type)
        try:
            values = cast_to(column.name, kind, rows.column(index).combine_chunks(), field.name)
        except (PredicateError, SchemaMismatch) as error:
            raise SchemaMismatch(asked.shown(at, error.message), **{**error.details, "column": column.name}) from error
        rows = rows.set_column(index, field.with_type(kind), values)
    return rows


def _all_fit(given: pa.DataType, kind: DataType) -> bool:
    """Whether an INSERT would cast such values, or those in them; whatever has another shape is refused elsewhere."""
    match kind:
        case PrimitiveType():
            return _fits(given, kind)
        case StructType() if pa.types.is_struct(given):
            known = ((part.type, kind.get(part.name)) for part in given)
            return all(field is None or _all_fit(part, field.type) for part, field in known)
        case ArrayType() if pa.types.is_list(given):
            return _all_fit(given.value_type, kind.element_type)
        case MapType() if pa.types.is_map(given):
            return _all_fit(given.key_type, kind.key_type) and _all_fit(given.item_type, kind.value_type)
    return True
