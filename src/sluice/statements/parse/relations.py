"""Where a query names tables: the places of the names, their aliases, and the versions asked for.

Only the shape of a query matters here: brackets, clauses, and what comes after FROM and JOIN. Expressions are passed over; the
queries in their brackets are not. A name that the query defines itself (WITH) is no table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from operator import attrgetter
from typing import Final

from ...storage.dataclass import dataclass
from .cursor import CLOSING, DEPTH_MAX, NUMBER, OPENING, STRING, WORD, Cursor, Name, Span, Token, Unreadable, qualified_in, words_in

# Words that follow a table and are not what it is called.
NO_ALIAS: Final = words_in(
    """ANTI CLUSTER CROSS DISTRIBUTE EXCEPT FOR FULL GROUP HAVING INNER INSERT INTERSECT JOIN LATERAL LEFT LIMIT MINUS NATURAL OFFSET ON
    ORDER PIVOT QUALIFY RIGHT SELECT SEMI SET SETMINUS SORT TABLESAMPLE UNION UNPIVOT USING VALUES WHEN WHERE WINDOW WITH"""
)
_QUERY: Final = frozenset({"SELECT", "WITH", "FROM", "VALUES", "TABLE"})
# Words that end the list of tables after FROM.
_AFTER_FROM: Final = words_in(
    """CLUSTER DISTRIBUTE EXCEPT GROUP HAVING INTERSECT LIMIT MINUS OFFSET ORDER PIVOT QUALIFY SELECT SETMINUS SORT UNION UNPIVOT WHERE
    WINDOW |>"""
)
_BEFORE_RELATION: Final = frozenset({"LATERAL", "STREAM"})
_SETS: Final = frozenset({"UNION", "EXCEPT", "INTERSECT", "MINUS", "SETMINUS", "ALL", "DISTINCT"})
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
    """A table in a query: everything at `text[start:end]` names it.

    An alias may be put at `alias_at`, unless `has_alias`: it has one, or can have none (TABLE t). Without one it is `called` something.
    `again` is the place of a second version, time or range.
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


@dataclass(frozen=True, slots=True)
class _Search:
    text: str
    tokens: Sequence[Token]
    found: list[Relation] = field(default_factory=list)


def relations_in(
    cursor: Cursor, *, is_query: bool = True, expects: bool = False, defined: frozenset[str] = frozenset(), target: Name | None = None
) -> tuple[Relation, ...]:
    """The tables that are named between the cursor and its end, in the order of the text; in brackets only unless `is_query`.

    `expects`: a table comes first. `defined` are names, in lower case, that queries in front of it define. `target` is the table that the
    statement changes, if it has no alias. Nothing that is not a query is an error here, since it is one to Spark. Nesting that is deeper
    than DEPTH_MAX, and brackets that do not match, hide what is in them.
    """
    search = _Search(cursor.text, cursor.tokens)
    _scan(search, cursor.at, cursor.end, _Level(is_query, expects), defined, 0)
    relations = sorted(search.found, key=attrgetter("start"))
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


def definitions_before(cursor: Cursor) -> tuple[int, tuple[Relation, ...], frozenset[str]]:
    """For a statement that begins with WITH: the number of the token after the definitions, the tables in them, the names they define."""
    search = _Search(cursor.text, cursor.tokens)
    here = Cursor(cursor.text, cursor.tokens, cursor.at, cursor.end)
    after, defined = _definitions(search, here, frozenset(), 0)
    return after, tuple(sorted(search.found, key=attrgetter("start"))), defined


def _scan(search: _Search, at: int, end: int, level: _Level, defined: frozenset[str], depth: int) -> None:
    """Find the tables in `tokens[at:end]`, where the names in `defined` are the query's own."""
    if depth > DEPTH_MAX:
        return
    tokens, begin = search.tokens, at
    while at < end:
        token = tokens[at]
        word = token.upper
        here = Cursor(search.text, tokens, at, end)
        if word in OPENING:
            at = _brackets(search, here, level, defined, depth)
            continue
        if level.expects and token.names and not (token.kind == WORD and word in (*_BEFORE_RELATION, "VALUES")):
            at = _relation(search, here, level, defined, depth)
            continue
        is_word = token.kind == WORD and not (at > begin and tokens[at - 1].upper == ".")
        if level.is_query and is_word and word == "WITH" and (at == begin or tokens[at - 1].upper in CLOSING):
            at, defined = _definitions(search, here, defined, depth)
            continue
        if not is_word and word not in (",", "|>"):
            level.expects &= token.kind != STRING  # a location without sluice, which the engine refuses
            at += 1
            continue
        _note(level, tokens, at, begin, end)
        at += 1


def _note(level: _Level, tokens: Sequence[Token], at: int, begin: int, end: int) -> None:
    """What a word outside of brackets says about what comes next."""
    word = tokens[at].upper
    before = tokens[at - 1].upper if at > begin else ""
    if word == "TABLE" and (before in ("", "(", ",", "=>") or before in _SETS):
        level.expects = level.bare = level.is_query or before in ("", ",", "=>")
    elif not level.is_query:
        return
    elif word == "FROM":
        is_comparison = before == "DISTINCT" and at - 2 >= begin and tokens[at - 2].upper in ("IS", "NOT")
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
        is_name = at + 1 < end and tokens[at + 1].names and not (at + 2 < end and tokens[at + 2].upper == "(")
        level.expects = not level.values or is_name


def _brackets(search: _Search, here: Cursor, level: _Level, defined: frozenset[str], depth: int) -> int:
    """Look into brackets; returns the place after them."""
    try:
        close = here.closing()
    except Unreadable:
        return here.end
    first = here.peek(1)
    is_query = first is not None and first.kind == WORD and first.upper in _QUERY and close > here.at + 1
    is_nested = first is not None and first.upper == "(" and not level.expects and _begins_query(here.tokens, here.at, close)
    joins = level.expects and not is_query  # FROM (a JOIN b)
    _scan(search, here.at + 1, close, _Level(joins or is_query or is_nested, joins, joins, bare=joins and level.bare), defined, depth + 1)
    level.expects = False
    return close + 1


def _begins_query(tokens: Sequence[Token], at: int, end: int) -> bool:
    """Whether only opening brackets come before a query."""
    while at < end and tokens[at].upper == "(":
        at += 1
    return at < end and tokens[at].kind == WORD and tokens[at].upper in _QUERY


def _definitions(search: _Search, here: Cursor, defined: frozenset[str], depth: int) -> tuple[int, frozenset[str]]:
    """Go past `WITH name AS (query), ...`; returns the place after it, and the names with those it defines."""
    here.take("WITH")
    recursive = here.take("RECURSIVE")
    while (token := here.peek()) is not None and token.names:
        here.at += 1
        while not here.is_done() and not here.sees("AS") and not (here.sees("(") and _begins_query(here.tokens, here.at + 1, here.end)):
            if here.sees("("):
                here.at = _closed(here)
            else:
                here.at += 1
        here.take("AS")
        if not here.sees("("):
            break
        close = _closed(here)
        inside = defined | {token.value.lower()} if recursive else defined
        _scan(search, here.at + 1, close - 1, _Level(is_query=True), inside, depth + 1)
        defined |= {token.value.lower()}
        here.at = close
        if not here.take(","):
            break
    return here.at, defined


def _closed(here: Cursor) -> int:
    """The place after the brackets that begin here."""
    try:
        return here.closing() + 1
    except Unreadable:
        return here.end


def _relation(search: _Search, here: Cursor, level: _Level, defined: frozenset[str], depth: int) -> int:
    """Note the table that is named here, unless it is a function or the query's own; returns the place after it."""
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
            return _brackets(search, here, level, defined, depth)
        end, changes = here.tokens[here.at - 1].end, Changes(tuple(arguments))
        search.found.append(Relation(name, name.start, end, end, _has_alias(here), name.parts[-1], changes=changes))
        return here.at
    as_of, between = _as_of(here), _between(here)
    again, begin = None, here.at
    if as_of is not None and between is not None:
        again = Span(between.after.start, between.up_to.end)
    elif (as_of is not None or between is not None) and (_as_of(here) is not None or _between(here) is not None):
        again = here.since(begin)
    end = here.tokens[here.at - 1].end
    if here.sees("WITH", "("):
        here.at += 1
        here.at = _closed(here)
    if here.take("TABLESAMPLE"):
        here.at = _closed(here) if here.sees("(") else here.at
        if here.take("REPEATABLE") and here.sees("("):
            here.at = _closed(here)
    if len(name.parts) != 1 or name.parts[0].lower() not in defined:
        alias_at = here.tokens[here.at - 1].end
        has_alias = level.bare or _has_alias(here)
        search.found.append(Relation(name, name.start, end, alias_at, has_alias, name.parts[-1], as_of, None, between, again))
    return here.at


def _has_alias(here: Cursor) -> bool:
    token = here.peek()
    return token is not None and (token.upper == "AS" or (token.names and not (token.kind == WORD and token.upper in NO_ALIAS)))


def _as_of(here: Cursor) -> AsOf | None:
    """The version or time that is asked for, going past it."""
    marked = _marked(here)
    if marked is not None:
        return marked
    at = here.at
    here.take("FOR")
    kind = here.take_one("VERSION AS OF", "SYSTEM_VERSION AS OF", "TIMESTAMP AS OF", "SYSTEM_TIME AS OF")
    if kind is None:
        here.at = at
        return None
    value = _bound(here)
    if value is None:
        here.at = at
        return None
    return AsOf("VERSION" in kind, value)


def _between(here: Cursor) -> Between | None:
    """The range of changes that is asked for, going past it."""
    at = here.at
    here.take("FOR")
    kind = here.take_one("VERSION BETWEEN", "TIMESTAMP BETWEEN")
    after = None if kind is None else _bound(here)
    up_to = _bound(here) if after is not None and here.take("AND") else None
    if kind is None or after is None or up_to is None:
        here.at = at
        return None
    return Between(kind.startswith("VERSION"), after, up_to)


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
    if token.upper == "INTERVAL":
        return _interval(here)
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


def _interval(here: Cursor) -> bool:
    """Go past INTERVAL 1 DAY, INTERVAL '1' DAY, INTERVAL '1 day'."""
    value = here.peek(1)
    if value is None:
        return False
    here.at += 2
    unit = here.peek()
    if value.kind == NUMBER or (value.kind == STRING and value.value.strip("+- ").isdecimal()):
        here.at += unit is not None and unit.kind == WORD
    return True
