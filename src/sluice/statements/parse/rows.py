"""Statements that change rows: INSERT, UPDATE, DELETE, MERGE, TRUNCATE."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from operator import itemgetter
from typing import Final, TypeAlias

from ...storage.dataclass import dataclass
from .cursor import WORD, Cursor, Name, Once, Span, Unreadable, position
from .relations import Relation, called_among, relations_in

_QUERY: Final = frozenset({"SELECT", "WITH", "FROM", "VALUES", "TABLE", "MAP", "REDUCE"})
Qualifiers: TypeAlias = "tuple[tuple[str, ...], ...]"


@dataclass(frozen=True, slots=True)
class Assignment:
    """`column = value`: the places of both."""

    column: Span
    value: Span


@dataclass(frozen=True, slots=True)
class Insert:
    """INSERT INTO, INSERT OVERWRITE and INSERT INTO ... REPLACE WHERE.

    `partition` has the columns of PARTITION (...), with the places of the values that are given. `columns` are those listed. The rows
    are those of `query`, which the definitions at `prefix` (WITH ...) precede; `relations` are the tables in both. If they are VALUES,
    there are `value_rows` of them, and `defaults` has the places of the word DEFAULT, each with its position in the row.
    """

    target: Name
    overwrite: bool
    query: Span
    partition: tuple[tuple[str, Span | None], ...] = ()
    if_not_exists: bool = False
    by_name: bool = False
    columns: tuple[str, ...] | None = None
    where: Span | None = None
    prefix: Span | None = None
    evolves: bool = False
    relations: tuple[Relation, ...] = ()
    value_rows: int = 0
    defaults: tuple[tuple[int, Span], ...] = ()


@dataclass(frozen=True, slots=True)
class Update:
    """UPDATE target [alias] SET ... [WHERE ...]; `relations` are the tables of subqueries, `called` and `qualifiers` as in Merge."""

    target: Name
    called: str
    qualifiers: Qualifiers
    assignments: tuple[Assignment, ...]
    where: Span | None
    relations: tuple[Relation, ...] = ()


@dataclass(frozen=True, slots=True)
class Delete:
    """DELETE FROM target [alias] [WHERE ...]; `relations` are the tables of subqueries, `called` and `qualifiers` as in Merge."""

    target: Name
    called: str
    qualifiers: Qualifiers
    where: Span | None
    relations: tuple[Relation, ...] = ()


@dataclass(frozen=True, slots=True)
class MergeClause:
    """`matched`, `not_matched` or `not_matched_by_source`; `action` is update, update_all, delete, insert or insert_all."""

    matched: str
    action: str
    condition: Span | None
    assignments: tuple[Assignment, ...] = ()


@dataclass(frozen=True, slots=True)
class Merge:
    """MERGE INTO target [alias] USING source [alias] ON on WHEN ...; the source is a table or a query in brackets.

    `relations` are the tables of the source and of subqueries. The target is `called` so, and one of the `qualifiers`
    may precede its columns; `source_called` is None for a query without an alias.
    """

    target: Name
    called: str
    qualifiers: Qualifiers
    source: Span
    source_called: str | None
    on: Span
    clauses: tuple[MergeClause, ...]
    evolves: bool = False
    relations: tuple[Relation, ...] = ()


@dataclass(frozen=True, slots=True)
class Truncate:
    """TRUNCATE TABLE target [PARTITION (column = value, ...)]."""

    target: Name
    partition: tuple[tuple[str, Span | None], ...] = ()


Statement: TypeAlias = Insert | Update | Delete | Merge | Truncate


def insert(here: Cursor, prefix: Span | None = None, before: tuple[Relation, ...] = (), defined: frozenset[str] = frozenset()) -> Insert:
    """INSERT; `prefix` and the relations `before` are of the definitions in front of it, which define the names `defined`."""
    evolves = here.take("WITH", "SCHEMA", "EVOLUTION")
    overwrite = here.take("OVERWRITE")
    if not overwrite:
        here.expect("INTO")
    here.take("TABLE")
    target = here.name()
    partition = partition_in(here) if here.clause("PARTITION") else ()
    if_not_exists = here.clause("IF", "NOT", "EXISTS")
    by_name, columns, where = here.clause("BY", "NAME"), None, None
    if here.sees("(") and not _is_query(here, 1):
        columns = _columns_beside(here, partition)
    begin = here.at
    if not overwrite and here.clause("REPLACE", "WHERE"):
        if (other := here.clauses.places.get("partition")) is not None:
            raise here.contradicting("REPLACE WHERE", here.since(begin), other)
        where = here.until("a condition", ends=lambda at: _is_query(at, 0))
    if not _is_query(here, 0):
        raise here.unreadable("expected VALUES, SELECT or another query")
    relations = (*before, *relations_in(here, defined=defined))
    here.clauses = Once()  # a query has its own
    count, defaults = _defaults(Cursor(here.text, here.tokens, here.at, here.end))
    query = here.until("a query")
    return Insert(target, overwrite, query, partition, if_not_exists, by_name, columns, where, prefix, evolves, relations, count, defaults)


def _columns_beside(here: Cursor, partition: tuple[tuple[str, Span | None], ...]) -> tuple[str, ...]:
    """The columns that INSERT lists, which are in the place of BY NAME, and of values in PARTITION (...). Raises Unreadable."""
    begin = here.at
    columns = here.names()
    if (by_name := here.clauses.places.get("by name")) is not None:
        raise here.contradicting("the list of columns", here.since(begin), by_name)
    fixed = {name.lower(): value for name, value in partition if value is not None}
    for column in columns:
        if column.lower() in fixed:
            said = f"column {column}, which PARTITION gives {fixed[column.lower()].of(here.text)} at"
            raise Unreadable(f"{said} {position(here.text, fixed[column.lower()])}, is listed; leave it out of one", here.since(begin))
    return columns


def _defaults(here: Cursor) -> tuple[int, tuple[tuple[int, Span], ...]]:
    """The number of rows of VALUES, and the places of the word DEFAULT in them."""
    rows, defaults = 0, list[tuple[int, Span]]()
    if not here.take("VALUES"):
        return 0, ()
    while here.sees("(") and not here.sees("(", ")"):
        values = here.inside().listed("a value")
        defaults += [(number, each) for number, each in enumerate(values) if each.of(here.text).upper() == "DEFAULT"]
        rows += 1
        if not here.take(","):
            break
    return rows, tuple(defaults)


def _is_query(here: Cursor, ahead: int) -> bool:
    """Whether a query begins there, which may be in brackets."""
    while (token := here.peek(ahead)) is not None and token.upper == "(":
        ahead += 1
    before = here.tokens[here.at + ahead - 1].upper if here.at + ahead > 0 else ""
    return token is not None and token.kind == WORD and token.upper in _QUERY and not (token.upper == "FROM" and before == "DISTINCT")


def partition_in(here: Cursor) -> tuple[tuple[str, Span | None], ...]:
    """What follows PARTITION: (column [= value], ...), each column once, with the places of the values. Raises Unreadable."""
    return here.bracketed(_partition_value, "partition column", itemgetter(0))


def _partition_value(here: Cursor) -> tuple[str, Span | None]:
    name = here.word("the name of a partition column")
    return name, here.until("a value", ",") if here.take_one("=", "==") is not None else None


def partition_values(here: Cursor) -> tuple[tuple[str, Span | None], ...]:
    """As `partition_in`, with a value for each column. Raises Unreadable."""
    begin = here.at
    values = partition_in(here)
    lacking = [name for name, value in values if value is None]
    if lacking:
        raise Unreadable(f"partition column {lacking[0]} has no value; write {lacking[0]} = value, or leave it out", here.since(begin))
    return values


def update(here: Cursor) -> Update:
    """UPDATE."""
    target = here.name()
    relations, called, qualifiers = _tables(here, target, here.alias())
    here.required("SET")
    assignments = _assignments(here, qualifiers, "WHERE")
    return Update(target, called, qualifiers, assignments, here.until("a condition") if here.clause("WHERE") else None, relations)


def _tables(here: Cursor, target: Name, alias: str | None, *, expects: bool = False) -> tuple[tuple[Relation, ...], str, Qualifiers]:
    """The tables that are named up to the end; what the target is called beside them; what may precede its columns, in lower case."""
    relations = relations_in(here, is_query=expects, expects=expects, target=None if alias else target)
    if alias is not None:
        return relations, alias, ((alias.lower(),),)
    whole = tuple([part.lower() for part in target.parts])
    return relations, called_among(target, [each.name for each in relations if not each.has_alias], here), (whole, whole[-1:])


@dataclass(frozen=True, slots=True)
class _Assigned:
    """The columns that get a value in one list; one of the qualifiers may precede them."""

    qualifiers: Qualifiers
    paths: dict[tuple[str, ...], Span] = field(default_factory=dict)

    def note(self, here: Cursor, name: Name) -> Span:
        """The place of a column. Raises Unreadable if it, a column around it, or a field of it, has a value already."""
        parts = tuple([part.lower() for part in name.parts])
        qualifiers = [each for each in self.qualifiers if len(parts) > len(each) and parts[: len(each)] == each]
        path = parts[len(qualifiers[0]) :] if qualifiers else parts
        at = Span(name.start, name.end)
        for other, first in self.paths.items():
            if other == path:
                raise here.twice(f"a value for column {'.'.join(path)}", first, at)
            if other[: len(path)] == path or path[: len(other)] == other:
                raise here.contradicting(f"a value for {'.'.join(path)}", at, first)
        self.paths[path] = at
        return at


def _assignments(here: Cursor, qualifiers: Qualifiers, *ends: str) -> tuple[Assignment, ...]:
    """column = value, ... up to one of these phrases. Raises Unreadable for a column with two values."""
    assignments: list[Assignment] = []
    assigned = _Assigned(qualifiers)
    while True:
        column = assigned.note(here, here.name())
        if here.take_one("=", "==") is None:
            raise here.unreadable("expected =")
        assignments.append(Assignment(column, here.until("a value", ",", *ends)))
        if not here.take(","):
            return tuple(assignments)


def delete(here: Cursor) -> Delete:
    """DELETE FROM."""
    here.expect("FROM")
    target = here.name()
    relations, called, qualifiers = _tables(here, target, here.alias())
    return Delete(target, called, qualifiers, here.until("a condition") if here.clause("WHERE") else None, relations)


def truncate(here: Cursor) -> Truncate:
    """TRUNCATE TABLE."""
    here.expect("TABLE")
    return Truncate(here.name(), partition_values(here) if here.clause("PARTITION") else ())


def merge(here: Cursor) -> Merge:
    """MERGE INTO."""
    evolves = here.take("WITH", "SCHEMA", "EVOLUTION")
    here.expect("INTO")
    target = here.name()
    alias = here.alias()
    here.expect("USING")
    relations, called, qualifiers = _tables(here, target, alias, expects=True)
    begin = here.at
    if here.sees("("):
        here.inside()
    else:
        here.name()
        if here.sees("("):
            here.inside()
        elif (first := next(iter(relations), None)) is not None:
            while (token := here.peek()) is not None and token.end <= first.end:
                here.at += 1
    source = here.since(begin)
    source_alias = here.alias()
    named = [each.called for each in relations if each.start == source.start and each.changes is None]
    source_called = source_alias or (named[0] if named else None)
    here.expect("ON")
    on = here.until("a condition", *_CLAUSES)
    clauses: list[MergeClause] = []
    while here.take("WHEN"):
        clauses.append(_clause(here, qualifiers))
    return Merge(target, called, qualifiers, source, source_called, on, tuple(clauses), evolves, relations)


_CLAUSES: Final = ("WHEN MATCHED", "WHEN NOT MATCHED")


def _clause(here: Cursor, qualifiers: Qualifiers) -> MergeClause:
    kind = "not_matched" if here.take("NOT") else "matched"
    here.expect("MATCHED")
    if kind == "not_matched" and here.take_one("BY TARGET", "BY SOURCE") == "BY SOURCE":
        kind = "not_matched_by_source"
    condition = here.until("a condition", "THEN") if here.take("AND") else None
    here.expect("THEN")
    if kind != "not_matched" and here.take("DELETE"):
        return MergeClause(kind, "delete", condition)
    if kind != "not_matched" and here.take("UPDATE"):
        here.expect("SET")
        if here.take("*"):
            return MergeClause(kind, "update_all", condition)
        return MergeClause(kind, "update", condition, _assignments(here, qualifiers, *_CLAUSES))
    if kind == "not_matched" and here.take("INSERT"):
        if here.take("*"):
            return MergeClause(kind, "insert_all", condition)
        assigned, within = _Assigned(qualifiers), here.inside()
        names: list[Span] = []
        while not names or within.take(","):
            names.append(assigned.note(here, within.name()))
        within.finish()
        here.expect("VALUES")
        at = here.at
        values = here.inside().listed("a value")
        if len(names) != len(values):
            here.at = at
            raise here.unreadable(f"there are {len(values)} values for {len(names)} columns")
        return MergeClause(kind, "insert", condition, tuple(map(Assignment, names, values)))
    raise here.unreadable("expected INSERT" if kind == "not_matched" else "expected UPDATE SET or DELETE")


READERS: Final[Mapping[tuple[str, ...], Callable[[Cursor], Statement]]] = {
    ("INSERT",): insert,
    ("UPDATE",): update,
    ("DELETE",): delete,
    ("MERGE",): merge,
    ("TRUNCATE",): truncate,
}
