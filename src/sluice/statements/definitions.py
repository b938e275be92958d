"""Statements that define tables: CREATE with columns, ALTER, DROP, UNDROP, and Spark's own that mean nothing for a table of sluice;
namespaces, and comments on tables, columns and namespaces.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, TypeVar

from ..coordinator.api import DEFAULT_TIMEOUT_S, bounding
from ..coordinator.errors import NamespaceNotFound
from ..storage.actions.features import dotted
from ..storage.dataclass import dataclass
from ..storage.errors import InvalidRequest, PredicateError, SchemaMismatch, TableExists, TableNotFound
from ..storage.pruning.predicate import Predicate
from ..storage.schema.datatypes import DEFAULT_KEY, GENERATED_KEY, IDENTITY_KEYS, PrimitiveType, StructField, StructType, arrow_type
from ..storage.schema.schema import field_at, retyped
from ..storage.schema.sqltypes import LENGTH_KEY, column_type_sql, length_limit, parse_sql_type
from ..tables.catalog import Catalog
from ..tables.client.address import TableAddress
from ..tables.manage import creation
from ..tables.manage.creation import TableArgs, beside_others, new_table
from ..tables.manage.definition import ColumnChange, NewColumn
from ..tables.table import Table
from .parse.columns import Check, Column
from .parse.cursor import Name, Span, position
from .parse.namespaces import Comment, CreateNamespace, DropNamespace, ShowNamespaces
from .parse.tables import SYNC, Alter, ColumnAction, Create, Drop, Foreign, Like, Undrop
from .places import catalog_of, exists, opened, unknown_column
from .request import NOTHING, Answer, Place, Request
from .showing import can_be_given, matches


@dataclass(frozen=True, slots=True)
class Definition:
    """A table to make: `how` is "create", "createIfNotExists", "replace" or "createOrReplace"."""

    how: str
    name: str | None
    location: str | None
    schema: StructType
    partition_by: tuple[str, ...]
    properties: dict[str, str]
    comment: str | None
    cluster_by: tuple[str, ...] = ()

    @property
    def described(self) -> TableArgs:
        """What the table is, beside its schema, whose spelling its columns have: case does not count in Spark."""
        spelled = [(name, self.schema.get(name)) for name in self.partition_by]
        return {
            "partition_by": [name if field is None else field.name for name, field in spelled],
            "cluster_by": self.cluster_by,
            "properties": self.properties,
            "comment": self.comment,
        }


def defined(definition: Definition, at: Place | Catalog) -> Table:
    """The table of a path, or of the definition's name, at its location or else where the catalog keeps its own.

    It is as it was, replaced with all its rows in one commit, or new. Raises TableExists, TableNotFound, SchemaMismatch, InvalidRequest,
    UnsupportedFeature.
    """
    how, name = definition.how, (definition.name or "") if isinstance(at, Catalog) else at.location

    def is_there() -> bool:
        return at.exists(name) if isinstance(at, Catalog) else exists(at)

    def attempt() -> Table:
        if how != "create" and is_there():
            table = at.open(name) if isinstance(at, Catalog) else opened(at)
            if how != "createIfNotExists":
                table.replace(definition.schema, create=how == "createOrReplace", **definition.described)
            return table
        if how == "replace":
            raise TableNotFound(f"the table {name}, which is to be replaced, cannot be found: createOrReplace makes it", name=name)
        if isinstance(at, Catalog):
            return at.create(name, definition.schema, location=definition.location, **definition.described)
        with bounding(DEFAULT_TIMEOUT_S) as limit:
            address = TableAddress.of(at.location, at.coordinator, at.storage_options)
            access, _ = creation.create(address, new_table(definition.schema, **definition.described), timeout_s=limit)
        return Table(access)

    return settled(how, attempt, is_there)


T = TypeVar("T")


def settled(how: str, attempt: Callable[[], T], exists: Callable[[], bool]) -> T:
    """What `attempt` gives; of several clients that create a table at once, only those that ask for a new one raise TableExists."""
    return attempt() if how in ("create", "replace") else beside_others(attempt, exists, replaces=how == "createOrReplace")


_VARCHAR: Final = re.compile(r"\s*varchar\s*\(\s*([1-9][0-9]{0,8})\s*\)\s*", re.IGNORECASE)
_LIMITED: Final = re.compile(r"\b(?:var)?char(?:acter)?\s*\(", re.IGNORECASE)


def struct_of(request: Request, columns: Sequence[Column]) -> StructType:
    """The columns as a schema. Raises InvalidRequest for one without a type, and for what sluice does not keep."""
    return StructType(field_of(request, each) for each in columns)


def field_of(request: Request, column: Column) -> StructField:
    """A column of a schema."""
    if column.refused is not None:
        words, at = column.refused
        raise request.unsupported(at, f"sluice keeps no {words}: leave it out, and compute values in the query", words)
    if column.type is None:
        raise InvalidRequest(f"column {column.name!r} has no type; write it as {column.name} BIGINT", column=column.name)
    written = column.type.of(request.text)
    limited = _VARCHAR.fullmatch(written)
    if limited is None and _LIMITED.search(written):
        said = "sluice keeps lengths of whole columns, 1 to 999,999,999, and pads no text: write VARCHAR(n), or STRING inside of others"
        raise request.unsupported(column.type, said, "CHAR(n), and VARCHAR(n) in structs, arrays and maps")
    try:
        kind = parse_sql_type(written)
    except SchemaMismatch as error:
        raise request.error(SchemaMismatch, column.type, error.message, **error.details) from error
    metadata: dict[str, Any] = {} if column.comment is None else {"comment": column.comment}
    if limited is not None:
        metadata[LENGTH_KEY] = f"varchar({limited[1]})"
    for key, place in ((DEFAULT_KEY, column.default), (GENERATED_KEY, column.generated)):
        if place is not None:
            metadata[key] = request.expression(place)
    if column.identity is not None:
        metadata |= zip(IDENTITY_KEYS, column.identity, strict=True)
    return StructField(column.name, kind, column.nullable, metadata)


_CONSTRAINT = "delta.constraints."
_KEY = "sluice.primaryKey"


def definition_of(request: Request, statement: Create) -> Definition:
    """The table that a CREATE describes; without columns if a query gives them. Raises InvalidRequest, UnsupportedFeature."""
    name = statement.target
    if statement.refused is not None:
        words, at = statement.refused
        raise request.unsupported(at, f"sluice's tables have no {words}; leave it out", words)
    properties = _properties(request, statement)
    schema = struct_of(request, statement.columns)
    listed = {each.name.lower() for each in schema.fields}
    added = [each for each in statement.partitioned_by if each.type is not None and each.name.lower() not in listed]
    schema = StructType([*schema.fields, *struct_of(request, added).fields])
    partition_by = tuple(each.name for each in statement.partitioned_by)
    if statement.query is not None and schema.fields:
        raise request.refused(name, "a table that is made by a query has the query's columns: leave the columns out, or cast them there")
    if statement.query is not None and statement.comment is not None:
        raise request.unsupported(
            name, "a table that is made by a query gets no COMMENT; set it afterwards with COMMENT ON TABLE", "COMMENT"
        )
    if statement.query is None and not schema.fields:
        raise request.refused(name, "the table has no columns: list them in brackets, or add AS SELECT ...")
    request.check_columns(schema)
    if schema.fields:
        for each in _checks(statement):
            _require_columns(request, each.condition, schema)
    location = name.path or statement.location
    own = None if name.path else name.quoted
    return Definition(statement.how, own, location, schema, partition_by, properties, statement.comment, statement.cluster_by)


def _require_columns(request: Request, condition: Span, schema: StructType) -> None:
    """Raise InvalidRequest if a CHECK names a column that the table lacks; its own check says what else is wrong with it."""
    try:
        Predicate.parse(request.expression(condition), schema)
    except PredicateError as error:
        if "columns" in error.details:
            raise unknown_column(request, condition, str(error.details.get("column")), schema) from error


def create(request: Request, definition: Definition) -> Answer:
    """Create or replace a table without rows."""
    is_path = definition.name is None
    defined(definition, Place(definition.location or "", request.coordinator, request.options) if is_path else catalog_of(request))
    return NOTHING


def create_table(request: Request, statement: Create, write: Callable[[Definition, Place | None], None]) -> Answer:
    """Create or replace a table. If a query gives its rows, `write` runs it and makes the table, or replaces the one at a place.

    That is repeated, query and all, where others create or replace the same table meanwhile.
    """
    definition, name = definition_of(request, statement), statement.target
    if statement.query is None:
        return create(request, definition)
    own = Place(name.path or "", request.coordinator, request.options)

    def is_there() -> bool:
        return exists(own) if name.path else catalog_of(request).exists(name.quoted)

    def attempt() -> None:
        there = is_there()
        if there and statement.how == "createIfNotExists":
            return
        if there and statement.how == "create":
            raise request.error(TableExists, name, f"a table {name.title} already exists", name=name.title)
        if not there and statement.how == "replace":
            said = f"the table {name.title}, which is to be replaced, cannot be found: CREATE OR REPLACE TABLE makes it"
            raise request.error(TableNotFound, name, said, name=name.title)
        location = name.path or (catalog_of(request).locate(name.quoted) if there else "")
        write(definition, replace(own, location=location) if there else None)

    settled(statement.how, attempt, is_there)
    return NOTHING


def _properties(request: Request, statement: Create) -> dict[str, str]:
    """The table's properties, with its constraints and its key, which are properties, too. Raises InvalidRequest for one given twice."""
    properties = dict(statement.properties or {})
    taken = {name.lower(): "TBLPROPERTIES" for name in properties}
    for check in _checks(statement):
        name = _CONSTRAINT + check.name
        if name.lower() in taken:
            raise request.refused(check.at, f"there is a constraint {check.name} already, by {taken[name.lower()]}; give each another name")
        taken[name.lower()] = f"the one at {position(request.text, check.at)}"
        properties[name] = request.expression(check.condition)
    key = statement.key or tuple(each.name for each in statement.columns if each.is_key)
    if key and _KEY.lower() in taken:
        raise request.refused(statement.target, f"PRIMARY KEY ({', '.join(key)}) and the property {_KEY} are the same; give one of them")
    if key:
        properties[_KEY] = ",".join(key)
    return properties


def _checks(statement: Create) -> tuple[Check, ...]:
    """All constraints: the table's, and those of its columns."""
    return (*statement.checks, *(each for column in statement.columns for each in column.checks))


def drop(request: Request, statement: Drop, _: Place) -> Answer:
    """Take a table and its name away; UNDROP brings it back."""
    name = statement.target
    if name.path is not None:
        raise request.unsupported(name, "a table without a name is dropped by sluice.Table.drop, which deletes its files", "DROP by path")
    if statement.purge:
        raise request.unsupported(name, "PURGE is not there: drop the table, and then call sluice.Catalog.vacuum", "PURGE")
    catalog_of(request).drop(name.quoted)
    return NOTHING


def undrop(request: Request, statement: Undrop) -> Answer:
    """Bring a dropped table back."""
    catalog_of(request).undrop(statement.target.quoted, new_name=None if statement.new_name is None else statement.new_name.quoted)
    return NOTHING


def alter(request: Request, statement: Alter, place: Place) -> Answer:
    """Change properties, constraints or the name of a table."""
    table, name = opened(place), statement.target
    if statement.action == "set properties":
        table.set_properties(statement.properties or {}, **request.terms)
    elif statement.action == "add columns":
        _add_columns(request, statement, table)
    elif statement.action == "alter columns":
        if [each.other for each in statement.changes] == [SYNC]:
            table.sync_identity(dotted(statement.changes[0].path), **request.terms)
        else:
            table.alter_columns([_change(request, each, table) for each in statement.changes], **request.terms)
    elif statement.action == "drop columns":
        _drop_columns(request, statement, table)
    elif statement.action == "replace columns":
        at_places = [each for each in statement.added if each.path or each.first or each.after is not None]
        if at_places:
            raise request.refused(name, f"REPLACE COLUMNS gives {at_places[0].column.name} another place: list the columns in their order")
        table.replace_columns(struct_of(request, [each.column for each in statement.added]), **request.terms)
    elif statement.action == "cluster by":
        table.cluster_by(statement.names, **request.terms)
    elif statement.action == "add feature":
        table.add_feature(statement.names[0], **request.terms)
    elif statement.action == "drop feature":
        table.drop_feature(statement.names[0], truncate_history=statement.truncates, **request.terms)
    elif statement.action == "unset properties":
        _unset(request, statement, place, statement.names)
    elif statement.action == "add check":
        assert statement.check is not None
        key = _CONSTRAINT + statement.check.name
        if key.lower() in {each.lower() for each in table.properties}:
            raise request.refused(name, f"there is a constraint {statement.check.name} already: drop it first")
        _require_columns(request, statement.check.condition, table.struct)
        table.set_properties({key: request.expression(statement.check.condition)}, **request.terms)
    elif statement.action == "drop constraint":
        _unset(request, statement, place, tuple(_CONSTRAINT + each for each in statement.names))
    elif statement.action == "rename":
        assert statement.new_name is not None
        if name.path is not None or statement.new_name.path is not None:
            raise request.refused(name, "a table without a name cannot be renamed: sluice.Catalog.register gives it one")
        new = statement.new_name
        if len(new.parts) == 1 < len(name.parts):  # as in Spark it stays in the namespace
            new = Name((name.parts[0], *new.parts), new.start, new.end)
        catalog_of(request).rename(name.quoted, new.quoted)
    else:
        words = statement.other
        why = f"{words}: {_ALTER[words]}" if words in _ALTER else f"sluice has no ALTER TABLE ... {words}"
        raise request.unsupported(name, why, words or statement.action)
    return NOTHING


def _unset(request: Request, statement: Alter, place: Place, names: tuple[str, ...]) -> None:
    table = opened(place)
    spelled = {each.lower(): each for each in table.properties}
    lacking = [each for each in names if each.lower() not in spelled]
    if lacking and not statement.if_exists:
        raise request.refused(statement.target, f"the table has no {lacking[0].removeprefix(_CONSTRAINT)}; add IF EXISTS")
    table.unset_properties([spelled[each.lower()] for each in names if each.lower() in spelled], **request.terms)


def _add_columns(request: Request, statement: Alter, table: Table) -> None:
    """Add the columns; those that are there are passed over with IF NOT EXISTS."""
    new_columns: list[NewColumn] = []
    for each in statement.added:
        if statement.if_not_exists:
            with suppress(InvalidRequest):  # which says that it is not there
                field_at(table.struct, (*each.path, each.column.name))
                continue
        field = field_of(request, each.column)
        if each.path and each.column.type is not None and length_limit(field) is not None:
            raise request.unsupported(
                each.column.type, "sluice keeps no length of a text in another column: write STRING", "nested VARCHAR"
            )
        new_columns.append(NewColumn(field, each.path, each.first, each.after))
    if new_columns:
        table.add_columns(new_columns, **request.terms)


def _drop_columns(request: Request, statement: Alter, table: Table) -> None:
    """Drop the columns; those that are not there are passed over with IF EXISTS."""
    names: list[str] = []
    for each in statement.columns:
        try:
            field_at(table.struct, each.parts)
        except InvalidRequest:
            if not statement.if_exists:
                raise unknown_column(request, Span(each.start, each.end), each.title, table.struct) from None
        else:
            names.append(dotted(each.parts))
    if names:
        table.drop_columns(names, **request.terms)


def _change(request: Request, action: ColumnAction, table: Table) -> ColumnChange:
    """A change of a column, if Delta has it and sluice, too."""
    if table.struct.get(action.path[0]) is None:
        raise unknown_column(request, action.at, action.path[0], table.struct)
    if action.other:
        raise request.unsupported(action.at, f"{action.other} needs a table feature that sluice does not write", action.other)
    dtype = None
    if action.type is not None:
        new = parse_sql_type(action.type.of(request.text))
        _, old = retyped(table.struct, action.path, new)
        if new == PrimitiveType("string") == old:
            column, written = field_at(table.struct, action.path), "".join(action.type.of(request.text).lower().split())
            if "char" in written and column_type_sql(column) != written:
                said = f"the column is {column_type_sql(column)}, and the length of its texts stays as it is: use a CHECK"
                raise request.unsupported(action.type, said, "ALTER COLUMN ... TYPE VARCHAR")
        dtype = None if old == new else arrow_type(new)
    default = None if action.default is None else request.expression(action.default)
    if default is not None:
        request.check_columns(StructType([replace(field_at(table.struct, action.path), metadata={DEFAULT_KEY: default})]))
    default = "" if action.drops_default else default
    return ColumnChange(action.path, action.comment, action.nullable, action.first, action.after, default, action.new_name, dtype)


def create_like(request: Request, statement: Like, source: Place) -> Answer:
    """Make a table with the columns, partitions, constraints and properties of another one, and no rows."""
    table, name = opened(source), statement.target
    properties = {key: value for key, value in table.properties.items() if can_be_given(key, value)}
    properties |= statement.properties or {}
    own, location, comment = None if name.path else name.quoted, name.path or statement.location, table.detail().description
    definition = Definition(
        statement.how, own, location, table.struct, table.partition_columns, properties, comment, table.clustering_columns
    )
    return create(request, definition)


_FOREIGN: Final[Mapping[str, str]] = {
    "REPAIR": "the log lists the partitions, so there is nothing to look for; FSCK REPAIR TABLE takes files out that the store lacks",
    "REFRESH": "each statement reads the latest version by itself: leave it out",
    "CACHE": "a cached table would stay as it is now; cache the rows of a query: spark.sql('SELECT ...').cache()",
    "EXPLAIN": "Spark has no plan for a change of it; EXPLAIN CONFLICT compares two changes, DESCRIBE HISTORY tells what one did",
    "LOAD": "files become rows of the table by COPY INTO t FROM 'path' FILEFORMAT = PARQUET, CSV or JSON",
}
_ALTER: Final[Mapping[str, str]] = {
    "ADD PARTITION": "a partition comes with its first row: INSERT INTO t PARTITION (day = '...') ...",
    "RECOVER PARTITIONS": "the log lists the partitions, so there is nothing to look for",
    "SET LOCATION": "a table stays where its log is: CREATE TABLE ... SHALLOW CLONE, or CREATE TABLE ... LOCATION '...' AS SELECT",
    "CLUSTER BY AUTO": "sluice does not choose the columns by itself: name them, CLUSTER BY (a, b)",
}


def foreign(request: Request, statement: Foreign, _: Place) -> Answer:
    """Raise UnsupportedFeature for a statement of Spark's about a table of sluice."""
    raise request.unsupported(statement.target, f"this is a table of sluice: {_FOREIGN[statement.what]}", statement.what)


# -- namespaces and comments ---------------------------------------------------------------------------------------------


def has_namespace(request: Request, name: Name) -> bool:
    """Whether the coordinator keeps a namespace of this name."""
    return name.title.lower() in {each.name.lower() for each in catalog_of(request).namespaces()}


def create_namespace(request: Request, statement: CreateNamespace) -> Answer:
    """Make a namespace."""
    catalog_of(request).create_namespace(
        _single(request, statement.name),
        comment=statement.comment,
        properties=statement.properties,
        location=statement.location,
        if_not_exists=statement.if_not_exists,
    )
    return NOTHING


def drop_namespace(request: Request, statement: DropNamespace) -> Answer:
    """Remove a namespace; with CASCADE its tables are dropped before, one by one."""
    name = _single(request, statement.name)
    try:
        catalog_of(request).drop_namespace(name, cascade=statement.cascade)
    except NamespaceNotFound:
        if not statement.if_exists:
            raise
    return NOTHING


def show_namespaces(request: Request, statement: ShowNamespaces) -> Answer:
    """The coordinator's namespaces."""
    names = [each.name for each in catalog_of(request).namespaces()]
    return Answer("namespace string", tuple((each,) for each in names if matches(each, statement.pattern)))


def comment_on(request: Request, statement: Comment) -> Answer | None:
    """Set or remove the comment of a namespace, a table or a column, which may be in a struct; None if there is no such table here."""
    if statement.what == "namespace":
        catalog_of(request).alter_namespace(_single(request, statement.target), comment=statement.comment or "")
        return NOTHING
    if statement.what == "table":
        place = request.place_of(statement.target)
        if place is None:
            return None
        if place.name is None:
            raise request.refused(statement.target, "a table without a name gets no comment here: ATTACH TABLE ... AS gives it a name")
        catalog_of(request).set_comment(statement.target.quoted, statement.comment)
        return NOTHING
    name = statement.target
    for length in (2, 1):  # of the table's parts, after which the column's come
        place = request.place_of(Name(name.parts[:length], name.start, name.end)) if len(name.parts) > length else None
        if place is not None:
            opened(place).alter_columns([ColumnChange(name.parts[length:], comment=statement.comment or "")])
            return NOTHING
    return None


def _single(request: Request, name: Name) -> str:
    if len(name.parts) != 1:
        raise request.refused(name, f"{name.title} has {len(name.parts)} parts; the name of a namespace has one")
    if not name.parts[0].strip():
        raise InvalidRequest("the name of a namespace is empty; give it one")
    return name.parts[0]
