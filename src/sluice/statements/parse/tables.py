"""Statements that make, change, drop and describe tables; and those of Spark that mean nothing for a table of sluice, if they name one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeAlias

from ...storage.dataclass import dataclass
from .columns import (
    PLACED,
    Check,
    Column,
    clustering_in,
    column_after_name,
    columns_in,
    definitions_in,
    properties_in,
    property_key,
    require_only,
)
from .cursor import STRING, Cursor, Name, Once, Span, Unreadable
from .maintenance import Compact, compaction, when
from .relations import Relation, relations_in
from .rows import partition_values


@dataclass(frozen=True, slots=True)
class Foreign:
    """Such a statement about a table: `what` is "REPAIR", "REFRESH", "CACHE", "LOAD" or "EXPLAIN". It reads `relations`."""

    target: Name
    what: str
    relations: tuple[Relation, ...] = ()


def cache(here: Cursor) -> Foreign | None:
    """CACHE [LAZY] TABLE t, UNCACHE TABLE [IF EXISTS] t; with a query it makes a view, as always."""
    here.take("LAZY")
    has_query = any(token.upper in ("AS", "SELECT", "WITH", "FROM", "VALUES") for token in here.tokens[here.at : here.end])
    if has_query or not here.take("TABLE"):
        return None
    here.take("IF", "EXISTS")
    return _foreign("CACHE", here)


def load(here: Cursor) -> Foreign | None:
    """LOAD DATA [LOCAL] INPATH '...' [OVERWRITE] INTO TABLE t."""
    while not here.is_done() and not here.take("INTO", "TABLE"):
        here.at += 1
    return None if here.is_done() else _foreign("LOAD", here)


def explain(here: Cursor) -> Foreign | None:
    """EXPLAIN [EXTENDED ...] of a statement that changes rows."""
    here.take_one("EXTENDED", "FORMATTED", "CODEGEN", "COST")
    if here.take_one("DELETE FROM", "UPDATE", "MERGE INTO", "MERGE WITH SCHEMA EVOLUTION INTO", "INSERT INTO", "INSERT OVERWRITE") is None:
        return None
    here.take("TABLE")
    return _foreign("EXPLAIN", here)


def _foreign(what: str, here: Cursor) -> Foreign:
    statement = Foreign(here.name(), what, relations_in(here))
    here.at = here.end
    return statement


@dataclass(frozen=True, slots=True)
class Create:
    """CREATE [OR REPLACE] TABLE, REPLACE TABLE; with a query if `query` has its place, `relations` are the query's tables.

    `how` is "create", "createIfNotExists", "replace" or "createOrReplace". `refused` are the words and the place of a clause that sluice
    does not know.
    """

    target: Name
    how: str
    columns: tuple[Column, ...]
    checks: tuple[Check, ...]
    key: tuple[str, ...]
    provider: str | None = None
    partitioned_by: tuple[Column, ...] = ()
    location: str | None = None
    comment: str | None = None
    properties: Mapping[str, str] | None = None
    query: Span | None = None
    refused: tuple[str, Span] | None = None
    relations: tuple[Relation, ...] = ()
    is_partitioned: bool = False
    cluster_by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Clone:
    """CREATE [OR REPLACE] TABLE [IF NOT EXISTS] target [SHALLOW|DEEP] CLONE source [VERSION|TIMESTAMP AS OF ...] [TBLPROPERTIES (...)]
    [LOCATION '...']; `how` is as for Create.
    """

    target: Name
    how: str
    source: Name
    shallow: bool
    as_of: tuple[bool, Span] | None = None
    properties: Mapping[str, str] | None = None
    location: str | None = None


@dataclass(frozen=True, slots=True)
class Like:
    """CREATE TABLE [IF NOT EXISTS] target LIKE source [USING provider] [TBLPROPERTIES (...)] [LOCATION '...']; `how` is as for Create."""

    target: Name
    how: str
    source: Name
    provider: str | None = None
    properties: Mapping[str, str] | None = None
    location: str | None = None


@dataclass(frozen=True, slots=True)
class Drop:
    """DROP TABLE [IF EXISTS] target [PURGE]."""

    target: Name
    if_exists: bool
    purge: bool


@dataclass(frozen=True, slots=True)
class Undrop:
    """UNDROP TABLE target [AS new_name]; `new_name` if the old one is taken."""

    target: Name
    new_name: Name | None = None


@dataclass(frozen=True, slots=True)
class Show:
    """SHOW what target: `what` is "columns", "partitions", "properties" or "create". `key` names one property; `partition` has the values
    of the partitions to show, with their places.
    """

    target: Name
    what: str
    key: str | None = None
    partition: tuple[tuple[str, Span | None], ...] = ()


@dataclass(frozen=True, slots=True)
class ShowTables:
    """SHOW TABLES [IN namespace] [LIKE 'pattern']."""

    namespace: Name | None
    pattern: str | None


@dataclass(frozen=True, slots=True)
class Describe:
    """DESCRIBE what target: `what` is "detail", "history" (the newest `limit`) or "table" (with `extended`, or one `column`)."""

    target: Name
    what: str
    limit: str | None = None
    extended: bool = False
    column: str | None = None


@dataclass(frozen=True, slots=True)
class AddedColumn:
    """A column to add to the struct at `path` (() is the table itself): at the end, first, or after one."""

    path: tuple[str, ...]
    column: Column
    first: bool = False
    after: str | None = None


SYNC: Final = "SYNC IDENTITY"
"""What becomes of an identity column by itself."""


@dataclass(frozen=True, slots=True)
class ColumnAction:
    """What becomes of the column at `path`, whose name is at `at`; None leaves it. `default` is the place of a new default,
    `drops_default` takes it away. `other` are words that tell something else.
    """

    path: tuple[str, ...]
    at: Span
    type: Span | None = None
    comment: str | None = None
    nullable: bool | None = None
    first: bool = False
    after: str | None = None
    other: str = ""
    default: Span | None = None
    drops_default: bool = False
    new_name: str | None = None


@dataclass(frozen=True, slots=True)
class Alter:
    """ALTER TABLE target ...: `action` is one of the words below, with what belongs to it.

    "add columns" (added, if_not_exists), "alter columns" (changes), "drop columns" (columns, if_exists), "replace columns" (added), "set
    properties" (properties), "unset properties" (names, if_exists), "add check" (check), "drop constraint" (names, if_exists), "add
    feature" (names), "drop feature" (names, truncates), "rename" (new_name), "cluster by" (names), or "other": something else, whose words
    are `other`.
    """

    target: Name
    action: str
    added: tuple[AddedColumn, ...] = ()
    changes: tuple[ColumnAction, ...] = ()
    columns: tuple[Name, ...] = ()
    properties: Mapping[str, str] | None = None
    names: tuple[str, ...] = ()
    if_exists: bool = False
    if_not_exists: bool = False
    check: Check | None = None
    new_name: Name | None = None
    truncates: bool = False
    other: str = ""


@dataclass(frozen=True, slots=True)
class DropPartitions:
    """ALTER TABLE target DROP [IF EXISTS] PARTITION (column = value, ...), PARTITION (...) [PURGE]."""

    target: Name
    partitions: tuple[tuple[tuple[str, Span | None], ...], ...]
    if_exists: bool
    purge: bool


Statement: TypeAlias = Create | Clone | Like | Drop | Undrop | Alter | DropPartitions | Compact | Show | ShowTables | Describe | Foreign


def create(here: Cursor) -> Create | Clone | Like | None:
    """CREATE: tables only."""
    replaces = here.clause("OR", "REPLACE", of="table that is there")
    here.take("EXTERNAL")
    if not here.take("TABLE"):
        return None
    if_not_exists = here.clause("IF", "NOT", "EXISTS", of="table that is there")
    return _created(here, "createOrReplace" if replaces else "createIfNotExists" if if_not_exists else "create")


def replace(here: Cursor) -> Create | Clone | Like | None:
    """REPLACE TABLE."""
    return _created(here, "replace") if here.take("TABLE") else None


def _created(here: Cursor, how: str) -> Create | Clone | Like:
    target = here.name()
    if (depth := here.take_one("SHALLOW CLONE", "DEEP CLONE", "CLONE")) is not None:
        source = here.name()
        as_of, properties, location = None, None, None
        while not here.is_done():
            if here.clause("TBLPROPERTIES"):
                properties = properties_in(here)
            elif here.sees_one("VERSION", "TIMESTAMP"):
                as_of = when(here)
            else:
                here.required("LOCATION")
                location = location_in(here, target)
        return Clone(target, how, source, depth == "SHALLOW CLONE", as_of, properties, location)
    said: dict[str, Any] = {}
    if here.take("LIKE"):
        source = here.name()
        while not here.is_done():
            _clause(here, target, (), said)
            if said.keys() - {"provider", "properties", "location"}:
                raise here.unreadable("a table like another takes USING, TBLPROPERTIES and LOCATION only")
        return Like(target, how, source, **said)
    columns, checks, key = definitions_in(here) if here.sees("(") else ((), (), ())
    while not here.is_done() and not here.sees("AS"):
        _clause(here, target, columns, said)
    has_query = here.take("AS")
    here.clauses = Once()  # a query has its own
    relations = relations_in(here) if has_query else ()
    return Create(target, how, columns, checks, key, query=here.until("a query") if has_query else None, relations=relations, **said)


def _clause(here: Cursor, target: Name, columns: Sequence[Column], said: dict[str, Any]) -> None:
    """One of the clauses between a table's columns and its query, in any order, each once, by the fields of `Create`."""
    begin = here.at
    if here.clause("USING"):
        said["provider"] = here.name().title
    elif here.clause("PARTITIONED", "BY", of=_LAYOUT):
        said["is_partitioned"], at = True, here.at
        within, tokens = here.inside(), here.tokens
        for place in range(within.at, within.end - 1):
            # years(day): in a list of columns a type comes after a name, here a name and brackets come first
            if tokens[place].names and tokens[place + 1].upper == "(" and tokens[place - 1].upper in ("(", ","):
                said["refused"] = ("PARTITIONED BY with functions of columns", here.since(at))
                return
        here.at = at
        said["partitioned_by"] = columns_in(here)
        names = {each.name.lower() for each in columns}
        for each in said["partitioned_by"]:
            if each.type is not None and each.name.lower() in names:
                raise Unreadable(f"column {each.name} is among the table's columns already; name it here without a type", each.type)
    elif here.clause("CLUSTER", "BY", of=_LAYOUT):
        if (cluster_by := clustering_in(here)) is None:
            said["refused"] = ("CLUSTER BY AUTO", here.since(begin))
        elif cluster_by:
            said["cluster_by"] = cluster_by
    elif here.clause("LOCATION"):
        said["location"] = location_in(here, target)
    elif here.clause("COMMENT"):
        said["comment"] = here.string("a comment")
    elif here.clause("TBLPROPERTIES"):
        said["properties"] = properties_in(here)
    else:
        word = here.take_one("CLUSTERED BY", "OPTIONS", "ROW FORMAT", "STORED", "SKEWED BY", "DEFAULT COLLATION")
        if word is None:
            raise here.unreadable("expected USING, PARTITIONED BY, CLUSTER BY, LOCATION, COMMENT, TBLPROPERTIES or AS")
        if not here.is_done():
            here.until("something", "USING", "PARTITIONED", "CLUSTER BY", "LOCATION", "COMMENT", "TBLPROPERTIES", "AS")
        said["refused"] = (word, here.since(begin))


_LAYOUT: Final = "PARTITIONED BY or CLUSTER BY"


def location_in(here: Cursor, target: Name) -> str:
    """What follows LOCATION. Raises Unreadable if the table is named by its path."""
    begin = here.at - 1
    location = here.string("a location")
    if target.path is not None:
        raise here.contradicting("LOCATION", here.since(begin), Span(target.start, target.end))
    return location


def drop(here: Cursor) -> Drop | None:
    """DROP TABLE."""
    if not here.take("TABLE"):
        return None
    if_exists = here.take("IF", "EXISTS")
    return Drop(here.name(), if_exists, here.clause("PURGE"))


def undrop(here: Cursor) -> Undrop:
    """UNDROP TABLE."""
    here.expect("TABLE")
    return Undrop(here.name(), here.name() if here.take("AS") else None)


def alter(here: Cursor) -> Alter | DropPartitions | Compact | None:
    """ALTER TABLE."""
    if not here.take("TABLE"):
        return None
    target = here.name()
    if here.sees_one("COMPACT", "PARTITION"):
        partition = partition_values(here) if here.clause("PARTITION") else ()
        if here.take("COMPACT"):
            return compaction(here, target, partition)
        if here.sees("PARTITION"):
            raise here.unreadable("expected COMPACT")
    if (of_columns := _of_columns(here, target)) is not None:
        return of_columns
    if here.take("SET", "TBLPROPERTIES"):
        return Alter(target, "set properties", properties=properties_in(here))
    if here.take("UNSET", "TBLPROPERTIES"):
        if_exists = here.take("IF", "EXISTS")
        return Alter(target, "unset properties", names=here.bracketed(property_key, "the key"), if_exists=if_exists)
    if here.take("ADD", "CONSTRAINT"):
        begin = here.at
        name = here.word("the name of a constraint")
        here.expect("CHECK")
        return Alter(target, "add check", check=Check(name, here.inside().until("a condition"), here.since(begin)))
    if here.take("DROP", "CONSTRAINT"):
        if_exists = here.take("IF", "EXISTS")
        return Alter(target, "drop constraint", names=(here.word("the name of a constraint"),), if_exists=if_exists)
    if (verb := here.take_one("ADD FEATURE", "DROP FEATURE")) is not None:
        names = (here.word("the name of a table feature"),)
        return Alter(target, verb.lower(), names=names, truncates=verb == "DROP FEATURE" and here.take("TRUNCATE", "HISTORY"))
    if here.sees_one("DROP PARTITION", "DROP IF EXISTS PARTITION"):
        here.expect("DROP")
        if_exists = here.take("IF", "EXISTS")
        partitions: list[tuple[tuple[str, Span | None], ...]] = []
        while not partitions or here.take(","):
            here.expect("PARTITION")
            partitions.append(partition_values(here))
        return DropPartitions(target, tuple(partitions), if_exists, here.clause("PURGE"))
    if here.take("RENAME", "TO"):
        return Alter(target, "rename", new_name=here.name())
    if here.take("CLUSTER", "BY"):
        columns = clustering_in(here)
        return Alter(target, "other", other="CLUSTER BY AUTO") if columns is None else Alter(target, "cluster by", names=columns)
    said = here.until("what to change")
    words = [word for word in said.of(here.text).upper().split() if word not in ("IF", "NOT", "EXISTS")]
    return Alter(target, "other", other=" ".join(words[:2]))


def _of_columns(here: Cursor, target: Name) -> Alter | None:
    """What ALTER TABLE says of columns; None if it says something else."""
    if here.take_one("ADD COLUMNS", "ADD COLUMN") is not None:
        missing_only = here.take("IF", "NOT", "EXISTS")
        read = here.bracketed if here.sees("(") else here.each_once
        added = read(_added, "column", lambda each: ".".join([*each.path, each.column.name]))
        return Alter(target, "add columns", added=added, if_not_exists=missing_only)
    if here.take_one("ALTER COLUMN", "CHANGE COLUMN", "ALTER", "CHANGE") is not None:
        return Alter(target, "alter columns", changes=here.each_once(_change, "column", lambda each: ".".join(each.path)))
    if here.take("RENAME", "COLUMN"):
        column = here.name()
        here.expect("TO")
        change = ColumnAction(column.parts, Span(column.start, column.end), new_name=here.word("a new name"))
        return Alter(target, "alter columns", changes=(change,))
    if here.take_one("DROP COLUMNS", "DROP COLUMN") is not None:
        if_exists = here.take("IF", "EXISTS")
        read = here.bracketed if here.sees("(") else here.each_once
        return Alter(target, "drop columns", columns=read(Cursor.name, "column", lambda each: each.title), if_exists=if_exists)
    if here.take("REPLACE", "COLUMNS"):
        return Alter(target, "replace columns", added=here.bracketed(_added, "column", lambda each: each.column.name))
    return None


def _added(here: Cursor) -> AddedColumn:
    begin, name = here.at, here.name()
    column = column_after_name(here, name.parts[-1])
    require_only(here, column, begin, "NOT NULL", "COMMENT", "DEFAULT", "GENERATED")
    return AddedColumn(name.parts[:-1], column, *_place(here))


def _place(here: Cursor) -> tuple[bool, str | None]:
    begin = here.at
    is_first = here.take("FIRST")
    after = here.word("the name of a column") if here.take("AFTER") else None
    if here.sees_one(*PLACED) or (is_first and after is not None):
        at = Span(here.tokens[begin].start, here.tokens[min(here.at, here.end - 1)].end)
        raise Unreadable("FIRST or AFTER is given twice; give one of them", at)
    return is_first, after


def _change(here: Cursor) -> ColumnAction:
    name = here.name()
    path, at = name.parts, Span(name.start, name.end)
    if here.take("COMMENT"):
        return ColumnAction(path, at, comment=here.string("a comment"))
    if here.take("SET", "NOT", "NULL"):
        return ColumnAction(path, at, nullable=False)
    if here.take("DROP", "NOT", "NULL"):
        return ColumnAction(path, at, nullable=True)
    if here.take("SET", "DEFAULT"):
        return ColumnAction(path, at, default=here.until("a value", ","))
    if here.take("DROP", "DEFAULT"):
        return ColumnAction(path, at, drops_default=True)
    if (verb := here.take_one("SET MASK", "DROP MASK", SYNC, "SET TAGS")) is not None:
        if not (here.is_done() or here.sees(",")):
            here.until("a value", ",")
        return ColumnAction(path, at, other=verb)
    if here.sees_one(*PLACED):
        first, after = _place(here)
        return ColumnAction(path, at, first=first, after=after)
    begin, following = here.at, here.peek()
    if here.take("TYPE"):
        column = column_after_name(here, name.parts[-1])
        require_only(here, column, begin)
        return ColumnAction(path, at, type=column.type)
    if following is not None and following.names:  # as Hive has it: CHANGE COLUMN name name type [COMMENT '...'] [FIRST | AFTER name]
        new = here.name().parts
        column = column_after_name(here, new[-1])
        require_only(here, column, begin, "COMMENT")
        if column.type is not None:
            first, after = _place(here)
            renamed = None if new[-1] == path[-1] else new[-1]
            return ColumnAction(path, at, column.type, column.comment, None, first, after, new_name=renamed)
    raise here.unreadable("expected COMMENT, SET NOT NULL, DROP NOT NULL, FIRST, AFTER or TYPE")


def show(here: Cursor) -> Show | ShowTables | None:
    """SHOW: TABLES, COLUMNS, PARTITIONS, TBLPROPERTIES, CREATE TABLE."""
    if here.take("TABLES"):
        namespace = here.name() if here.clause("IN") or here.clause("FROM") else None
        has_pattern = here.clause("LIKE") or not here.is_done()
        return ShowTables(namespace, here.string("a pattern") if has_pattern else None)
    if here.take("COLUMNS"):
        if here.take_one("IN", "FROM") is None:
            raise here.unreadable("expected IN")
        table = here.name()
        space = here.name() if here.clause("IN") or here.clause("FROM") else None
        if space is not None and len(table.parts) > 1:
            raise here.contradicting("the namespace", Span(space.start, space.end), Span(table.start, table.end))
        return Show(table if space is None else Name((*space.parts, *table.parts), table.start, space.end), "columns")
    if here.take("PARTITIONS"):
        return Show(here.name(), "partitions", partition=partition_values(here) if here.clause("PARTITION") else ())
    if here.take("TBLPROPERTIES"):
        target = here.name()
        if not here.sees("("):
            return Show(target, "properties")
        within = here.inside()
        key = property_key(within)
        within.finish()
        return Show(target, "properties", key)
    return Show(here.name(), "create") if here.take("CREATE", "TABLE") else None


def describe(here: Cursor) -> Describe | None:
    """DESCRIBE: DETAIL, HISTORY and tables."""
    following = here.peek(1)  # without one the word is itself the name
    if here.sees_one("DETAIL", "HISTORY") and following is not None and (following.names or following.kind == STRING):
        what = here.word("DETAIL or HISTORY").lower()
        here.take("TABLE")
        target = here.table()
        return Describe(target, what, here.number("a number of versions") if what == "history" and here.clause("LIMIT") else None)
    if here.take_one("QUERY", "FUNCTION", "DATABASE", "SCHEMA", "NAMESPACE", "CATALOG", "PROCEDURE", "SELECT", "WITH", "FROM", "VALUES"):
        return None
    here.take("TABLE")
    extended = here.take_one("EXTENDED", "FORMATTED") is not None
    target = here.name()
    return Describe(target, "table", extended=extended, column=None if here.is_done() else here.name().title)


READERS: Final[Mapping[tuple[str, ...], Callable[[Cursor], Statement | None]]] = {
    ("CREATE",): create,
    ("REPLACE",): replace,
    ("DROP",): drop,
    ("UNDROP",): undrop,
    ("ALTER",): alter,
    ("SHOW",): show,
    ("DESCRIBE",): describe,
    ("DESC",): describe,
    ("MSCK", "REPAIR", "TABLE"): partial(_foreign, "REPAIR"),
    ("MSCK", "TABLE"): partial(_foreign, "REPAIR"),
    ("REPAIR", "TABLE"): partial(_foreign, "REPAIR"),
    ("REFRESH", "TABLE"): partial(_foreign, "REFRESH"),
    ("CACHE",): cache,
    ("UNCACHE",): cache,
    ("LOAD", "DATA"): load,
    ("EXPLAIN",): explain,
}
"""The reader of what follows these words; it returns None for a statement that is Spark's alone."""
