"""ALTER TABLE: columns, properties, constraints, features, the name."""

from __future__ import annotations

from collections.abc import Mapping

from ...storage.dataclass import dataclass
from .columns import PLACED, Check, Column, clustering_in, column_after_name, properties_in, property_key, require_only
from .cursor import Cursor, Name, Span, Unreadable
from .maintenance import Compact, compaction
from .rows import partition_values


@dataclass(frozen=True, slots=True)
class AddedColumn:
    """A column to add to the struct at `path` (() is the table itself): at the end, first, or after one."""

    path: tuple[str, ...]
    column: Column
    first: bool = False
    after: str | None = None


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


@dataclass(frozen=True, slots=True)
class Alter:
    """ALTER TABLE target ...: `action` is one of the words below, with what belongs to it.

    "add columns" (added, if_not_exists), "alter columns" (changes), "set properties" (properties), "unset properties" (names, if_exists),
    "add check" (check), "drop constraint" (names, if_exists), "add feature" and "drop feature" (names), "rename" (new_name), "cluster by"
    (names), or "other": something else, whose words are `other`.
    """

    target: Name
    action: str
    added: tuple[AddedColumn, ...] = ()
    changes: tuple[ColumnAction, ...] = ()
    properties: Mapping[str, str] | None = None
    names: tuple[str, ...] = ()
    if_exists: bool = False
    if_not_exists: bool = False
    check: Check | None = None
    new_name: Name | None = None
    other: str = ""


@dataclass(frozen=True, slots=True)
class DropPartitions:
    """ALTER TABLE target DROP [IF EXISTS] PARTITION (column = value, ...), PARTITION (...) [PURGE]."""

    target: Name
    partitions: tuple[tuple[tuple[str, Span | None], ...], ...]
    if_exists: bool
    purge: bool


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
    if here.take_one("ADD COLUMNS", "ADD COLUMN") is not None:
        missing_only = here.take("IF", "NOT", "EXISTS")
        read = here.bracketed if here.sees("(") else here.each_once
        added = read(_added, "column", lambda each: ".".join([*each.path, each.column.name]))
        return Alter(target, "add columns", added=added, if_not_exists=missing_only)
    if here.take_one("ALTER COLUMN", "CHANGE COLUMN", "ALTER", "CHANGE") is not None:
        return Alter(target, "alter columns", changes=here.each_once(_change, "column", lambda each: ".".join(each.path)))
    if here.take("SET", "TBLPROPERTIES"):
        return Alter(target, "set properties", properties=properties_in(here))
    if here.take("UNSET", "TBLPROPERTIES"):
        if_exists = here.take("IF", "EXISTS")
        return Alter(target, "unset properties", names=here.bracketed(property_key, "the key"), if_exists=if_exists)
    if here.take("ADD", "CONSTRAINT"):
        begin = here.at
        name = here.word("the name of a constraint")
        here.expect("CHECK")
        condition = here.inside().until("a condition")
        return Alter(target, "add check", check=Check(name, condition, here.since(begin)))
    if here.take("DROP", "CONSTRAINT"):
        if_exists = here.take("IF", "EXISTS")
        return Alter(target, "drop constraint", names=(here.word("the name of a constraint"),), if_exists=if_exists)
    verb = here.take_one("ADD FEATURE", "DROP FEATURE")
    if verb is not None:
        return Alter(target, verb.lower(), names=(here.word("the name of a table feature"),))
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
    verb = here.take_one("SET MASK", "DROP MASK", "SYNC IDENTITY", "SET TAGS")
    if verb is not None:
        if not (here.is_done() or here.sees(",")):
            here.until("a value", ",")
        return ColumnAction(path, at, other=verb)
    if here.sees_one(*PLACED):
        first, after = _place(here)
        return ColumnAction(path, at, first=first, after=after)
    begin = here.at
    if here.take("TYPE"):
        column = column_after_name(here, name.parts[-1])
        require_only(here, column, begin)
        return ColumnAction(path, at, type=column.type)
    return _as_hive(here, path, at)


def _as_hive(here: Cursor, path: tuple[str, ...], at: Span) -> ColumnAction:
    """CHANGE COLUMN name name type [COMMENT '...'] [FIRST | AFTER name]."""
    following, begin = here.peek(), here.at
    if following is None or not following.names:
        raise here.unreadable("expected COMMENT, SET NOT NULL, DROP NOT NULL, FIRST, AFTER or TYPE")
    new = here.name().parts
    column = column_after_name(here, new[-1])
    require_only(here, column, begin, "COMMENT")
    if column.type is None:
        raise here.unreadable("expected COMMENT, SET NOT NULL, DROP NOT NULL, FIRST, AFTER or TYPE")
    first, after = _place(here)
    renamed = "" if new == path else "RENAME COLUMN"
    return ColumnAction(path, at, column.type, column.comment, None, first, after, renamed)
