"""Sends each statement to the function that carries it out without Spark."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from difflib import get_close_matches
from typing import Any, Final

import pyarrow as pa

from ..sql_on_duckdb import changing, inserting
from ..sql_plain import maintenance
from ..sql_plain.concurrency.coordination import show_state
from ..sql_plain.concurrency.expecting import expected
from ..sql_plain.concurrency.locking import Locks, lock, unlock
from ..sql_plain.definitions import namespaces, showing, tables
from ..sql_plain.dispatch import ON_NAMES, ON_PLACES
from ..sql_plain.place import Place, known_place, not_found, opened
from ..sql_plain.reports import Answer
from ..sql_plain.request import Edit
from ..statements.compound import Atomic, ExplainConflict
from ..statements.cursor import Cursor, Name, Span, words_in
from ..statements.loading import Attach
from ..statements.locks import Lock, ShowState, Unlock
from ..statements.maintenance import Convert
from ..statements.namespaces import Comment, CreateNamespace, DropNamespace, ShowNamespaces
from ..statements.reading import FIRST_WORDS, IfVersion, Malformed, Other, Statement, bare, read
from ..statements.rows import Delete, Insert, Merge, Update
from ..statements.tables import Clone, Create, Drop, Like, ShowTables, Undrop
from ..statements.tokens import tokens_of
from ..storage.errors import TableNotFound
from ..storage.schema.schema import to_arrow
from ..tables.table import Table
from .concurrency import atomic, explain_conflict
from .plain import Plain
from .queries import query, require_place

_ON_ROWS: Final[Mapping[type, Callable[[Plain, Any, Place], Answer]]] = {
    Insert: inserting.insert,
    Update: changing.update,
    Delete: changing.delete,
    Merge: changing.merge,
}
_WITH_EXPRESSIONS: Final = (Insert, Update, Delete, Merge, Atomic, ExplainConflict, Create)
_BEFORE_LIST: Final = words_in("( [ , SELECT")
_AFTER_LIST: Final = (*((word,) for word in words_in(") ] ; FROM WHERE HAVING UNION INTERSECT EXCEPT")), ("GROUP", "BY"), ("ORDER", "BY"))
_UNFINISHED: Final = words_in(
    "SELECT FROM WHERE JOIN ON AND OR NOT BY HAVING LIMIT OF VALUES WHEN THEN ELSE CASE IN LIKE BETWEEN = < > + - /"
)
_QUERIES: Final = frozenset({"SELECT", "WITH", "FROM", "VALUES", "TABLE", "("})
_OF_TRANSACTIONS: Final = frozenset(
    {("BEGIN",), ("BEGIN", ";"), *(("BEGIN", word) for word in ("TRANSACTION", "TRAN", "WORK")), ("START", "TRANSACTION")}
)
_AS_A_BLOCK: Final = "a transaction is one statement here: BEGIN ATOMIC statement; statement; END commits all of them, or none"


def run(
    text: str,
    args: Mapping[str, Any] | Sequence[Any] | None = None,
    *,
    coordinator: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    max_bytes: int | None = None,
    locks: Locks | None = None,
) -> pa.Table:
    """Carry out one statement; returns its rows. `locks` are the session's: LOCK TABLE needs some.

    Raises UnsupportedFeature with the feature "Spark", before anything is written, for what needs Spark: also for queries that read
    more than `max_bytes` of data files. Otherwise as `sluice.sql`.
    """
    asked = Plain(text, args, coordinator, storage_options, max_bytes)
    statement = read(text)
    _require_something_at_commas(asked, bare(statement))
    with nullcontext() if locks is None or isinstance(statement, Unlock) else locks.bound():
        return _carried_out(asked, statement, locks)


def _require_something_at_commas(asked: Plain, statement: Statement) -> None:
    """Raise InvalidRequest for a comma that nothing follows, or nothing precedes: sqlglot passes over it, Spark does not.

    Also for a last word that something has to follow, of which sqlglot and DuckDB say other things.
    """
    is_query = isinstance(statement, Other) and statement.words[:1] and statement.words[0] in _QUERIES
    tokens = (tokens_of(asked.text) or ()) if is_query or isinstance(statement, _WITH_EXPRESSIONS) else ()
    *before, last = [None, *(token for token in tokens if token.upper != ";")]
    is_name = any(each is not None and each.upper in (".", "AS") for each in before[-1:])
    if last is not None and last.upper in _UNFINISHED and (not is_name or last.upper == "OF"):
        raise asked.refused(Span(last.start, last.end), f"the statement is not complete: something is missing after {last.upper}")
    for number, token in enumerate(tokens):
        after = Cursor(asked.text, tokens, number + 1)
        is_last = after.is_done() or any(after.sees(*words) for words in _AFTER_LIST)
        if token.upper == "," and (is_last or number == 0 or tokens[number - 1].upper in _BEFORE_LIST):
            raise asked.refused(Span(token.start, token.end), "this comma separates nothing: leave it out, or write what is missing")


def _carried_out(asked: Plain, statement: Statement, locks: Locks | None) -> pa.Table:
    def table_of(name: Name) -> Table:
        return opened(require_place(asked, name))

    match statement:
        case IfVersion():
            return _carried_out(replace(asked, if_version=expected(asked, statement)), statement.statement, locks)
        case Other():
            return _query(asked, statement)
        case Atomic():
            answer = atomic(asked, statement)
        case ExplainConflict():
            answer = explain_conflict(asked, statement)
        case Lock() | Unlock():
            if locks is None:
                raise asked.unsupported(Span(0, len(asked.text)), "a lock belongs to a session, and this call has none", "sessions")
            if isinstance(statement, Unlock):
                answer = unlock(asked, statement, locks, table_of)
            else:
                answer = lock(asked, statement, locks, table_of, lambda _, where: asked.expression(where))
        case Malformed():
            raise asked.refused(statement.at, statement.message)
        case Create():
            answer = _created(asked, statement)
        case Clone():
            answer = maintenance.clone(asked, statement, require_place(asked, statement.source))
        case Convert() | Attach() | Undrop() | CreateNamespace() | DropNamespace() | ShowNamespaces():
            answer = ON_NAMES[type(statement)](asked, statement)
        case ShowTables():
            shown = showing.tables_of(asked, statement)
            if shown is None:
                raise asked.refused(statement.namespace or Span(0, 0), "there is no such namespace; SHOW NAMESPACES lists them")
            answer = shown
        case Comment():
            answer = _comment(asked, statement)
        case Like():
            answer = tables.create_like(asked, statement, require_place(asked, statement.source))
        case ShowState():
            answer = show_state(asked, statement, table_of)
        case Drop() if statement.if_exists and not _is_there(asked, statement):
            return pa.table({})
        case _:
            carry_out: Any = _ON_ROWS.get(type(statement)) or ON_PLACES.get(type(statement))
            if carry_out is None:
                raise asked.needs_spark(Span(0, len(asked.text)), "a statement of this kind")
            target: Name = getattr(statement, "target")  # noqa: B009 - all of these kinds have one
            answer = carry_out(asked, statement, require_place(asked, target))
    return _arrow(answer)


def _comment(asked: Plain, statement: Comment) -> Answer:
    if statement.what == "namespace":
        return namespaces.comment_on_namespace(asked, statement)
    if statement.what == "table":
        return namespaces.comment_on_table(asked, statement, require_place(asked, statement.target))
    found = namespaces.split_column(statement.target, lambda name: known_place(asked, name))
    if found is None:
        raise not_found(asked, statement.target)
    return namespaces.comment_on_column(statement, *found)


def _arrow(answer: Answer) -> pa.Table:
    if not answer.columns:
        return pa.table({})
    schema = to_arrow(answer.struct)
    columns = list(zip(*answer.rows, strict=True)) or [()] * len(schema)
    return pa.table([pa.array(values, each.type) for values, each in zip(columns, schema, strict=True)], schema=schema)


def _query(asked: Plain, statement: Other) -> pa.Table:
    whole = Span(0, len(asked.text))
    if not statement.words:
        raise asked.refused(whole, "a string, a quoted name or a comment in this does not end, or it is empty")
    first = statement.words[0]
    begin = next(each.start for each in tokens_of(asked.text) or ())
    if statement.words[:2] in _OF_TRANSACTIONS or first in ("COMMIT", "ROLLBACK"):
        raise asked.refused(Span(begin, begin + len(first)), _AS_A_BLOCK)
    if first not in FIRST_WORDS:
        near = get_close_matches(first, sorted(FIRST_WORDS), 3, 0.6)
        hint = f"; did you mean {', '.join(near)}?" if near else ""
        raise asked.refused(Span(begin, begin + len(first)), f"no statement begins with this word{hint}")
    if first not in _QUERIES:
        raise asked.needs_spark(whole, f"{first} is no statement that sluice carries out itself")
    edits = [Edit(begin, begin + len("TABLE"), "SELECT * FROM")] if first == "TABLE" else []
    return query(asked, (whole,), statement.relations, edits)


def _created(asked: Plain, statement: Create) -> Answer:
    provider = (statement.provider or "sluice").lower()
    if provider not in ("sluice", "delta"):
        raise asked.needs_spark(statement.target, f"a table of {statement.provider}")
    wanted = tables.definition_of(asked, statement)
    return tables.create(asked, wanted) if statement.query is None else inserting.create_with_rows(asked, statement, wanted)


def _is_there(asked: Plain, statement: Drop) -> bool:
    try:
        require_place(asked, statement.target)
    except TableNotFound:
        return False
    return True
