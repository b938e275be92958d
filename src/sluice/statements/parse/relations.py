"""Where a query names tables: the places of the names, their aliases, and the versions asked for.

Only the shape of a query matters here: brackets, clauses, and what comes after FROM and JOIN. Expressions are passed over; the
queries in their brackets are not. A name that the query defines itself (WITH) is no table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Final

from ...storage.dataclass import dataclass
from .cursor import CLOSING, DEPTH_MAX, NUMBER, OPENING, STRING, WORD, Cursor, Name, Span, Token, Unreadable, qualified_in, words_in

_QUERY: Final = frozenset({"SELECT", "WITH", "FROM", "VALUES", "TABLE"})
# Words that end the list of tables after FROM.
_AFTER_FROM: Final = words_in(
    """CLUSTER DISTRIBUTE EXCEPT GROUP HAVING INTERSECT LIMIT MINUS OFFSET ORDER PIVOT QUALIFY SELECT SETMINUS SORT UNION UNPIVOT WHERE
    WINDOW |>"""
)
_BEFORE_RELATION: Final = frozenset({"LATERAL", "STREAM"})
_SETS: Final = frozenset({"UNION", "EXCEPT", "INTERSECT", "MINUS", "SETMINUS", "ALL", "DISTINCT"})
_MOMENTS: Final = (
    *("VERSION AS OF", "SYSTEM_VERSION AS OF", "TIMESTAMP AS OF", "SYSTEM_TIME AS OF"),
    *("VERSION BETWEEN", "TIMESTAMP BETWEEN"),
)
_TYPED: Final = frozenset({"DATE", "TIMESTAMP", "TIMESTAMP_NTZ", "TIMESTAMP_LTZ"})


@dataclass(frozen=True, slots=True)
class AsOf:
    """`VERSION AS OF` or `TIMESTAMP AS OF`: the expression that says which, at its place; or `@` with the version or time itself."""

    is_version: bool
    value: Span
    literal: str | None = None


@dataclass(frozen=True, slots=True)
class Changes:
    """The arguments of `table_changes('name', from, to)`, at their places."""

    arguments: tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class Between:
    """`VERSION BETWEEN after AND up_to`, or TIMESTAMP: the changes in between, the first bound left out, the last included."""

    is_version: bool
    after: Span
    up_to: Span


@dataclass(frozen=True, slots=True)
class Relation:
    """A table in a query: everything at `text[start:end]` names it. An alias may be put at `alias_at`, unless `has_alias`: it has one, or
    can have none (TABLE t). Without one it is `called` something. `again` is the place of a second version, time or range.
    """

    name: Name
    start: int
    end: int
    alias_at: int
    has_alias: bool
    called: str
    as_of: AsOf | None = None
    changes: Changes | None = None
    between: Between | None = None
    again: Span | None = None

    @property
    def is_current(self) -> bool:
        """Whether it means the table as it is now."""
        return self.as_of is None and self.changes is None and self.between is None


@dataclass(frozen=False, slots=True)
class _Level:
    """What is known within one pair of brackets: whether a table comes next, which is `bare` in TABLE t; whether commas separate tables."""

    is_query: bool
    expects: bool = False
    lists: bool = False
    values: bool = False
    bare: bool = False


def relations_in(
    cursor: Cursor, *, is_query: bool = True, expects: bool = False, defined: frozenset[str] = frozenset(), target: Name | None = None
) -> tuple[Relation, ...]:
    """The tables that are named between the cursor and its end, in the order of the text; in brackets only unless `is_query`.

    `expects`: a table comes first. `defined` are names, in lower case, that queries in front of it define. `target` is the table that the
    statement changes, if it has no alias. Nothing that is not a query is an error here, since it is one to Spark. Nesting that is deeper
    than DEPTH_MAX, and brackets that do not match, hide what is in them.
    """
    relations: list[Relation] = []
    _scan(relations, Cursor(cursor.text, cursor.tokens, cursor.at, cursor.end), _Level(is_query, expects), defined, 0)
    relations.sort(key=attrgetter("start"))
    names = [each.name for each in relations if not each.has_alias] + ([] if target is None else [target])
    return tuple([replace(each, called=called_among(each.name, names, cursor)) for each in relations])


def called_among(name: Name, names: Sequence[Name], cursor: Cursor) -> str:
    """What a table without an alias is called: its last part; its whole name if the text has that before columns, and another the part."""
    whole, last = [part.lower() for part in name.parts], name.parts[-1]
    others = [[part.lower() for part in each.parts] for each in names]
    if not [each for each in others if each != whole and each[-1] == whole[-1]]:
        return last
    qualified = [[part.value.lower() for part in parts[:-1]] for parts in qualified_in(cursor.tokens[cursor.at : cursor.end])]
    return name.title if whole in [each[: len(whole)] for each in qualified] else last


def definitions_before(here: Cursor) -> tuple[tuple[Relation, ...], frozenset[str]]:
    """Go past the definitions of a statement that begins with WITH; returns the tables in them, and the names they define."""
    relations: list[Relation] = []
    defined = _definitions(relations, here, frozenset(), 0)
    return tuple(sorted(relations, key=attrgetter("start"))), defined


def _scan(relations: list[Relation], here: Cursor, level: _Level, defined: frozenset[str], depth: int) -> None:
    """Add the tables between the cursor and its end, where the names in `defined` are the query's own."""
    if depth > DEPTH_MAX:
        return
    begin = here.at
    while here.at < here.end:
        token = here.tokens[here.at]
        word, before = token.upper, here.tokens[here.at - 1].upper if here.at > begin else ""
        is_word = token.kind == WORD and before != "."
        if word in OPENING:
            _brackets(relations, here, level, defined, depth)
        elif level.expects and token.names and not (token.kind == WORD and word in (*_BEFORE_RELATION, "VALUES")):
            _relation(relations, here, level, defined, depth)
        elif level.is_query and is_word and word == "WITH" and (here.at == begin or before in CLOSING):
            defined = _definitions(relations, here, defined, depth)
        else:
            if is_word or word in (",", "|>"):
                _note(level, here, begin)
            else:
                level.expects &= token.kind != STRING  # a location without sluice, which the engine refuses
            here.at += 1


def _note(level: _Level, here: Cursor, begin: int) -> None:
    """What a word outside of brackets says about what comes next."""
    word, before = here.tokens[here.at].upper, here.tokens[here.at - 1].upper if here.at > begin else ""
    if word == "TABLE" and (before in ("", "(", ",", "=>") or before in _SETS):
        level.expects = level.bare = level.is_query or before in ("", ",", "=>")
    elif not level.is_query:
        return
    elif word == "FROM":
        is_comparison = before == "DISTINCT" and here.at - 2 >= begin and here.tokens[here.at - 2].upper in ("IS", "NOT")
        level.expects = level.lists = not is_comparison
        level.values = level.bare = False
    elif word == "JOIN":
        level.expects, level.bare = True, False
    elif word == "VALUES":
        level.expects, level.values = False, True
    elif word == "VIEW" and before == "LATERAL":
        level.expects = level.lists = False
    elif word in _AFTER_FROM:
        level.expects = level.lists = level.values = False
    elif word == "," and level.lists:
        level.bare = False
        following, after = here.peek(1), here.peek(2)
        is_name = following is not None and following.names and not (after is not None and after.upper == "(")
        level.expects = not level.values or is_name


def _brackets(relations: list[Relation], here: Cursor, level: _Level, defined: frozenset[str], depth: int) -> None:
    begin = here.at
    try:
        close = here.closing()
    except Unreadable:
        here.at = here.end
        return
    here.at = close + 1
    is_query = _begins_query(here.tokens, begin, close)
    joins = level.expects and (not is_query or here.tokens[begin + 1].upper == "(")  # FROM (a JOIN b)
    inside = _Level(joins or is_query, joins, joins, bare=joins and level.bare)
    _scan(relations, Cursor(here.text, here.tokens, begin + 1, close), inside, defined, depth + 1)
    level.expects = False


def _begins_query(tokens: Sequence[Token], at: int, end: int) -> bool:
    """Whether only opening brackets come before a query."""
    while at < end and tokens[at].upper == "(":
        at += 1
    return at < end and tokens[at].kind == WORD and tokens[at].upper in _QUERY


def _definitions(relations: list[Relation], here: Cursor, defined: frozenset[str], depth: int) -> frozenset[str]:
    """Go past `WITH name AS (query), ...`; returns the names with those it defines."""
    here.take("WITH")
    recursive = here.take("RECURSIVE")
    while (token := here.peek()) is not None and token.names:
        here.at += 1
        while not here.is_done() and not here.sees("AS") and not (here.sees("(") and _begins_query(here.tokens, here.at + 1, here.end)):
            here.at = _closed(here) if here.sees("(") else here.at + 1
        here.take("AS")
        if not here.sees("("):
            break
        begin, here.at = here.at, _closed(here)
        inside = defined | {token.value.lower()} if recursive else defined
        _scan(relations, Cursor(here.text, here.tokens, begin + 1, here.at - 1), _Level(is_query=True), inside, depth + 1)
        defined |= {token.value.lower()}
        if not here.take(","):
            break
    return defined


def _closed(here: Cursor) -> int:
    """The place after the brackets that begin here."""
    try:
        return here.closing() + 1
    except Unreadable:
        return here.end


def _relation(relations: list[Relation], here: Cursor, level: _Level, defined: frozenset[str], depth: int) -> None:
    """Go past the table that is named here, and add it unless it is a function or the query's own."""
    level.expects = False
    name = here.name()
    if here.sees("("):
        begin = here.at
        try:
            arguments = here.inside().listed("an argument") if name.title.lower() == "table_changes" else None
        except Unreadable:
            arguments = None  # they cannot be a table's name and a range
        if arguments is None:
            here.at = begin
            _brackets(relations, here, level, defined, depth)
            return
        end, changes = here.tokens[here.at - 1].end, Changes(tuple(arguments))
        relations.append(Relation(name, name.start, end, end, here.has_alias(), name.parts[-1], changes=changes))
        return
    moment, begin = _moment(here), here.at
    again = here.since(begin) if moment is not None and _moment(here) is not None else None
    end = here.tokens[here.at - 1].end
    if here.sees("WITH", "("):
        here.at += 1
        here.at = _closed(here)
    if here.take("TABLESAMPLE"):
        here.at = _closed(here) if here.sees("(") else here.at
        if here.take("REPEATABLE") and here.sees("("):
            here.at = _closed(here)
    if len(name.parts) != 1 or name.parts[0].lower() not in defined:
        as_of, between = moment if isinstance(moment, AsOf) else None, moment if isinstance(moment, Between) else None
        alias_at, has_alias = here.tokens[here.at - 1].end, level.bare or here.has_alias()
        relations.append(Relation(name, name.start, end, alias_at, has_alias, name.parts[-1], as_of, None, between, again))


def _moment(here: Cursor) -> AsOf | Between | None:
    """The version, time or range of changes that is asked for, going past it."""
    if (marked := _marked(here)) is not None:
        return marked
    begin = here.at
    here.take("FOR")
    kind = here.take_one(*_MOMENTS)
    value = None if kind is None else _bound(here)
    if kind is not None and value is not None:
        if kind.endswith("AS OF"):
            return AsOf("VERSION" in kind, value)
        up_to = _bound(here) if here.take("AND") else None
        if up_to is not None:
            return Between("VERSION" in kind, value, up_to)
    here.at = begin
    return None


def _bound(here: Cursor) -> Span | None:
    """The place of operands with + and - between them, going past it; None if there is none."""
    begin = here.at
    if not _operand(here):
        return None
    while here.sees_one("+", "-"):
        here.at += 1
        if not _operand(here):
            break
    return here.since(begin)


def _marked(here: Cursor) -> AsOf | None:
    """`t@v3`, `t@20260131120000000`: without spaces."""
    mark, value = here.peek(), here.peek(1)
    if mark is None or value is None or mark.upper != "@" or mark.start != here.tokens[here.at - 1].end or value.start != mark.end:
        return None
    text = value.value
    span = Span(value.start, value.end)
    if value.kind == WORD and text[:1] in "vV" and text[1:].isdecimal():
        as_of = AsOf(True, span, text[1:])
    elif value.kind == NUMBER and text.isdecimal():
        as_of = AsOf(False, span, text)
    else:
        return None
    here.at += 2
    return as_of


def _operand(here: Cursor) -> bool:
    """Go past a literal, a parameter, a call, an interval or brackets; whether there is one."""
    token = here.peek()
    if token is None:
        return False
    if token.upper == "INTERVAL":  # INTERVAL 1 DAY, INTERVAL '1' DAY, INTERVAL '1 day'
        value = here.peek(1)
        if value is None:
            return False
        here.at += 2
        unit = here.peek()
        if value.kind == NUMBER or (value.kind == STRING and value.value.strip("+- ").isdecimal()):
            here.at += unit is not None and unit.kind == WORD
        return True
    if token.upper in ("-", "+") and (number := here.peek(1)) is not None and number.kind == NUMBER:
        here.at += 2
        return True
    if token.upper == "(":
        here.at = _closed(here)
        return True
    if token.upper == "?" or token.kind in (STRING, NUMBER):
        here.at += 1
        return True
    if token.upper == ":" and (after := here.peek(1)) is not None and after.names:
        here.at += 2
        return True
    if not token.names:
        return False
    following = here.peek(1)
    here.at += 1
    if token.upper in _TYPED and following is not None and following.kind == STRING:
        here.at += 1
    elif here.sees("("):
        here.at = _closed(here)
    return True
