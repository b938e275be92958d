"""Runs statements without Spark. What needs Spark is refused with the feature "Spark"."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from ..parse.concurrency import Atomic, ExplainConflict
from ..parse.cursor import Cursor, Span, tokens_of, words_in
from ..parse.reading import Other, Statement, bare, read
from ..parse.rows import Delete, Insert, Merge, Update
from ..parse.tables import Create
from ..request import Locks
from ..run import run as carry_out
from . import engine
from .database import LocalRequest
from .queries import QUERIES

_WITH_EXPRESSIONS: Final = (Insert, Update, Delete, Merge, Atomic, ExplainConflict, Create)
_BEFORE_LIST: Final = words_in("( [ , SELECT")
_AFTER_LIST: Final = (")", "]", "FROM", "WHERE", "HAVING", "UNION", "INTERSECT", "EXCEPT", "GROUP BY", "ORDER BY")
_UNFINISHED: Final = words_in(
    "SELECT FROM WHERE JOIN ON AND OR NOT BY HAVING LIMIT OF VALUES WHEN THEN ELSE CASE IN LIKE BETWEEN = < > + - /"
)


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
    request = LocalRequest(text, args, coordinator, storage_options, max_bytes, locks)
    try:
        statement = read(text)
        _require_something_at_commas(request, bare(statement))
        return carry_out(engine, request, statement)
    finally:
        for each in request.connections:
            each.close()


def _require_something_at_commas(request: LocalRequest, statement: Statement) -> None:
    """Raise InvalidRequest for a comma that nothing follows, or nothing precedes: sqlglot passes over it, Spark does not.

    Also for a last word that something has to follow, of which sqlglot and DuckDB say other things.
    """
    is_query = isinstance(statement, Other) and statement.words[:1] and statement.words[0] in QUERIES
    tokens = (tokens_of(request.text) or ()) if is_query or isinstance(statement, _WITH_EXPRESSIONS) else ()
    *before, last = [None, *[token for token in tokens if token.upper != ";"]]
    if last is not None and last.upper in _UNFINISHED:
        previous = before[-1]
        if previous is None or previous.upper not in (".", "AS") or last.upper == "OF":
            raise request.refused(Span(last.start, last.end), f"the statement is not complete: something is missing after {last.upper}")
    for number in [number for number, token in enumerate(tokens) if token.upper == ","]:
        token, after = tokens[number], Cursor(request.text, tokens, number + 1)
        if after.is_done() or after.sees_one(*_AFTER_LIST) or number == 0 or tokens[number - 1].upper in _BEFORE_LIST:
            raise request.refused(Span(token.start, token.end), "this comma separates nothing: leave it out, or write what is missing")
