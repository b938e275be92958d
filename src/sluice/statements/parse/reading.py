"""What a text in SQL is: a statement that may concern a table of sluice, or one of the engine's with the tables it names.

Only a catalog knows to whom a name belongs, so `read` looks up nothing, and its caller decides. `read` raises for no text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Final, TypeAlias

from ...storage.dataclass import dataclass
from . import concurrency, maintenance, namespaces, rows, tables
from .cursor import Cursor, Name, Span, Token, Unreadable, position, tokens_of, words_in
from .relations import Relation, definitions_before, relations_in


@dataclass(frozen=True, slots=True)
class Other:
    """A statement of the engine's, whose first `words` are these, in upper case, and the tables that it names."""

    words: tuple[str, ...]
    relations: tuple[Relation, ...]


@dataclass(frozen=True, slots=True)
class Malformed:
    """A statement of ours (`words` tell which) that cannot be read: why, and the place. `target` is the first name in it,
    `provider` the one that CREATE names.
    """

    words: tuple[str, ...]
    target: Name | None
    message: str
    at: Span
    relations: tuple[Relation, ...]
    provider: str | None = None


@dataclass(frozen=True, slots=True)
class IfVersion:
    """IF VERSION n statement: it commits only as the version after n. `version` is the place of n, `at` the clause's."""

    version: Span
    at: Span
    statement: Statement


@dataclass(frozen=True, slots=True)
class Parameter:
    """`:name`, or a question mark, the `number`-th of the text, at its place."""

    name: str | None
    number: int
    at: Span


_Plain: TypeAlias = rows.Statement | maintenance.Statement | tables.Statement | namespaces.Statement
Statement: TypeAlias = "_Plain | concurrency.Statement | IfVersion | Other | Malformed"

_READERS: Final[Mapping[tuple[str, ...], Callable[[Cursor], Statement | None]]] = {
    **rows.READERS,
    **maintenance.READERS,
    **tables.READERS,
    **namespaces.READERS,
    **concurrency.READERS,
}
ENGINE_ONLY: Final = words_in("ATTACH COMPACT CONVERT COPY DETACH FSCK GENERATE OPTIMIZE REORG RESTORE UNDROP VACUUM")
"""First words of statements that Spark itself does not have."""
FIRST_WORDS: Final = words_in(
    """( ADD ALTER ANALYZE CACHE CALL CLEAR DECLARE DESC DESCRIBE EXECUTE EXPLAIN EXPORT FROM GET GRANT IMPORT LIST MAP MSCK REDUCE
    IF REFRESH REMOVE REPAIR RESET REVOKE SELECT SET SHOW TABLE UNCACHE UNSET USE VALUES WITH"""
) | {words[0] for words in (*_READERS, *concurrency.COMPOSED)}
"""The words that statements begin with, Spark's and sluice's."""
_IF_VERSION: Final = ("IF", "VERSION")
COORDINATED_ONLY: Final = frozenset({*concurrency.COMPOSED, *concurrency.READERS, _IF_VERSION})
"""First two words, or the first one, of statements that no engine but sluice has."""
# Words before the name of a table that a statement is about.
_BEFORE_TARGET: Final = words_in(
    """ALTER ANALYZE COLUMNS COMPACT CONVERT COPY CREATE DELETE DELTA DESC DESCRIBE DETAIL DROP EVOLUTION EXISTS EXTENDED FOR FORMATTED
    FROM GENERATE HISTORY IF IN INSERT INTO MERGE NOT OPTIMIZE OR OVERWRITE PARTITIONS REPLACE RESTORE SCHEMA SHOW SLUICE
    SYMLINK_FORMAT_MANIFEST TABLE TBLPROPERTIES TO TRUNCATE UNDROP UPDATE VACUUM WITH"""
)


def read(text: str) -> Statement:
    """Say what a text is."""
    tokens = tokens_of(text)
    if tokens is None:
        return Other((), ())
    here = Cursor(text, tokens)
    words = _first_words(here)
    if (composed := concurrency.COMPOSED.get(words[:2])) is not None:
        here.at = 2
        return _told(here, lambda at: composed(at, _single), words, 0)
    return _single(here)


def _first_words(here: Cursor) -> tuple[str, ...]:
    return tuple([token.upper for token in here.tokens[here.at : min(here.at + 3, here.end)]])


def _single(here: Cursor) -> Statement:
    """A statement that is made of no others, from the cursor's place to its end."""
    begin, words = here.at, _first_words(here)
    if words[:2] == _IF_VERSION:
        here.at += len(_IF_VERSION)
        try:
            version = here.value(here.number, "a version")
        except Unreadable as error:
            return Malformed(words, None, error.message, error.at, ())
        return IfVersion(version, here.since(begin), _single(here))
    for length in (3, 2, 1):
        if (reader := _READERS.get(words[:length])) is not None:
            here.at = begin + length
            return _told(here, reader, words, begin)
    if words[:1] == ("WITH",):  # definitions, name AS (query), ..., before a query or another statement
        relations, defined = definitions_before(here)
        after, prefix = here.at, here.since(begin)
        verb = here.tokens[after].upper if after < here.end else ""
        here.at += 1
        if verb == "INSERT":
            return _told(here, lambda at: rows.insert(at, prefix, relations, defined), words, begin)
        if verb in ("UPDATE", "DELETE", "MERGE"):
            message = f"{verb} takes no WITH in front of it: put the query into the condition, or make it a temporary view"
            return Malformed((verb,), _target(here.text, here.tokens[after : here.end]), message, prefix, _relations(here, begin))
    return Other(words, _relations(here, begin))


def bare(statement: Statement) -> Statement:
    """The statement without IF VERSION."""
    return statement.statement if isinstance(statement, IfVersion) else statement


def _relations(here: Cursor, begin: int) -> tuple[Relation, ...]:
    return relations_in(Cursor(here.text, here.tokens, begin, here.end))


def _told(here: Cursor, reader: Callable[[Cursor], Statement | None], words: tuple[str, ...], begin: int) -> Statement:
    """What the reader says, or why it cannot read the statement that begins at that token."""
    try:
        if (statement := reader(here)) is not None:
            here.finish()
            return statement
    except Unreadable as error:
        target, tokens = _target(here.text, here.tokens[begin : here.end]), pairwise(here.tokens[begin : here.end])
        provider = next((after.value for token, after in tokens if token.upper == "USING" and words[0] in ("CREATE", "REPLACE")), None)
        return Malformed(words, target, error.message, error.at, _relations(here, begin), provider)
    return Other(words, _relations(here, begin))


def _target(text: str, tokens: Sequence[Token]) -> Name | None:
    """The first name that can be a table's."""
    at = next((number for number, token in enumerate(tokens) if token.upper not in _BEFORE_TARGET), len(tokens))
    try:
        return Cursor(text, tokens, at).table()
    except Unreadable:
        return None


def parameters_in(text: str) -> tuple[Parameter, ...]:
    """The parameters of a text, in its order."""
    tokens = tokens_of(text) or ()
    parameters: list[Parameter] = []
    marks = 0
    for number, token in enumerate(tokens):
        if token.upper == "?":
            parameters.append(Parameter(None, marks, Span(token.start, token.end)))
            marks += 1
        elif token.upper == ":" and number + 1 < len(tokens):
            following, before = tokens[number + 1], tokens[number - 1] if number > 0 else None
            is_field = before is not None and before.end == token.start and (before.names or before.upper in (")", "]"))  # of JSON: a:b
            if following.names and following.start == token.end and not is_field:  # a struct's type has a space: `a: INT`
                parameters.append(Parameter(following.value, 0, Span(token.start, following.end)))
    return tuple(parameters)


_BEFORE: Final = 80
_SHOWN: Final = 200
"""Characters of a line that a message shows, and how many of them before the place."""


def pointed(text: str, at: Span, message: str) -> str:
    """A message with line and column, the line itself, or the part of a long one around the place, and a caret below the place."""
    begin = text.rfind("\n", 0, at.start) + 1
    line, column = text[begin:].split("\n", 1)[0], at.start - begin
    cut = max(0, column - _BEFORE) if len(line) > _SHOWN else 0
    shown = line[cut : cut + _SHOWN]
    before = "..." if cut else ""
    width = max(1, min(at.end - begin, cut + len(shown)) - column)
    margin = "".join("\t" if character == "\t" else " " for character in before + line[cut:column])
    after = "..." if cut + len(shown) < len(line) else ""
    return f"{position(text, at)}: {message}\n  {before}{shown}{after}\n  {margin}{'^' * width}"
