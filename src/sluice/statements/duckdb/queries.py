"""A request to carry out a statement without Spark, and its queries: each table of sluice in them is an Arrow table, all of one moment.

Of each table only the columns that the query mentions are read, and, if it is alone in the query, only files that may have rows
for its WHERE.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import field
from datetime import datetime
from difflib import get_close_matches
from typing import Any, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from ...storage.dataclass import dataclass
from ...storage.errors import UnsupportedFeature
from ...storage.expressions.render import literal_sql
from ...storage.schema.datatypes import StructType
from ...tables.read.table_snapshot import TableSnapshot
from ..parse.cursor import Name, Span, tokens_of, words_in
from ..parse.reading import FIRST_WORDS, Other
from ..places import edits_of, known_place
from ..request import Edit, Locks, Place
from ..sources import ChangeRange, Source, TransactionRows, latest
from .database import Connected, bound_name, known_part, needs_spark, parsed, run
from .dialect import named_as_in_spark


@dataclass(frozen=True, slots=True)
class LocalRequest(Connected):
    """A statement that this process carries out."""

    text: str
    args: Mapping[str, Any] | Sequence[Any] | None = None
    coordinator: str | None = None
    storage_options: Mapping[str, str] | None = None
    max_bytes: int | None = None
    """Queries that would read more bytes of data files are left to Spark; None: no query is."""
    session_locks: Locks | None = field(default=None, repr=False)
    if_version: int | None = None
    connections: list[Any] = field(default_factory=list, repr=False, compare=False)
    has_only_sluice: ClassVar[bool] = True

    @property
    def options(self) -> dict[str, str]:
        """Of the object store."""
        return dict(self.storage_options or {})

    @property
    def locks(self) -> Locks:
        """The leases of the session."""
        if self.session_locks is None:
            raise self.unsupported(Span(0, len(self.text)), "a lock belongs to a session, and this call has none", "sessions")
        return self.session_locks

    def under_locks(self) -> AbstractContextManager[None]:
        """What this thread commits in the block depends on the leases of the session."""
        return nullcontext() if self.session_locks is None else self.session_locks.bound()

    def place_of(self, name: Name) -> Place | None:
        """Where the table is; None for an unknown name."""
        return known_place(self, name)

    def is_own(self, name: Name) -> bool:
        """Never: DuckDB has no tables of its own here."""
        return False

    def check_columns(self, schema: StructType) -> None:
        """Nothing: the tables' own checks are all there are."""

    def literal(self, value: Any) -> str:
        """The value of a parameter as sluice's own expressions take it."""
        return literal_sql(value, pa.scalar(value).type)

    def evaluate(self, span: Span, kind: str | None = None) -> Any:
        """What an expression without columns gives, as a type of Spark's if one is given; None for null."""
        text = self.sql((span,)) if kind is None else f"CAST({self.sql((span,))} AS {kind})"
        return run(self, span, f"SELECT ({text}) AS value").column(0)[0].as_py()

    def selected(self, columns: Span, rows: pa.Table) -> pa.Table:
        """What SELECT with these columns gives of rows."""
        return run(self, columns, f"SELECT {self.sql((columns,))} FROM __sluice_rows", {"__sluice_rows": rows})  # noqa: S608 - bound

    def milliseconds(self, span: Span, text: str | None = None) -> int:
        """Milliseconds since the epoch, of what DuckDB casts to a time, in the machine's time zone."""
        value = f"({self.sql((span,))})" if text is None else text
        try:
            at = run(self, span, f"SELECT TRY_CAST({value} AS TIMESTAMP) AS value").column(0)[0].as_py()
            if isinstance(at, datetime):
                return int(at.timestamp() * 1000)
        except (OverflowError, ValueError) as error:
            raise self.beyond_years(span) from error
        raise self.no_time(span)

    def sql(self, spans: Sequence[Span], edits: Sequence[Edit] = ()) -> str:
        """These parts of the text with edits, in which parameters have the names by which `run` binds their values."""
        names = [Edit(at.start, at.end, f":{bound_name(at)}") for span in spans for at, _ in self.parameters(span)]
        return self.edited(spans, [*edits, *names])[spans[0].start :].strip()

    def needs_spark(self, at: Span | Name, why: str) -> UnsupportedFeature:
        """The refusal of what only Spark can carry out."""
        return needs_spark(self, at, why)


@contextmanager
def filled_in(request: LocalRequest, at: Span | Name) -> Iterator[None]:
    """A default or a generated column that only Spark evaluates makes a statement Spark's."""
    try:
        yield
    except UnsupportedFeature as error:
        if not {*error.features} <= {"allowColumnDefaults", "generatedColumns"}:
            raise
        raise request.needs_spark(at, error.message) from error


QUERIES: Final = frozenset({"SELECT", "WITH", "FROM", "VALUES", "TABLE", "("})
"""First words of queries."""
_BEGIN_TRANSACTIONS: Final = frozenset(
    {("BEGIN",), ("BEGIN", ";"), *(("BEGIN", word) for word in words_in("TRANSACTION TRAN WORK")), ("START", "TRANSACTION")}
)
_AS_A_BLOCK: Final = "a transaction is one statement here: BEGIN ATOMIC statement; statement; END commits all of them, or none"


def whole_query(request: LocalRequest, statement: Other) -> pa.Table:
    """The rows of a statement that is a query. Raises InvalidRequest for no statement, UnsupportedFeature ("Spark") for another one."""
    whole = Span(0, len(request.text))
    if not statement.words:
        raise request.refused(whole, "a string, a quoted name or a comment in this does not end, or it is empty")
    first = statement.words[0]
    begin = next(each.start for each in tokens_of(request.text) or ())
    place = Span(begin, begin + len(first))
    if statement.words[:2] in _BEGIN_TRANSACTIONS or first in ("COMMIT", "ROLLBACK"):
        raise request.refused(place, _AS_A_BLOCK)
    if first not in FIRST_WORDS:
        near = get_close_matches(first, sorted(FIRST_WORDS), 3, 0.6)
        hint = f"; did you mean {', '.join(near)}?" if near else ""
        raise request.refused(place, f"no statement begins with this word{hint}")
    if first not in QUERIES:
        raise request.needs_spark(whole, f"{first} is no statement that sluice carries out itself")
    edits = [Edit(begin, begin + len("TABLE"), "SELECT * FROM")] if first == "TABLE" else []
    return query(request, (whole,), latest(request, statement.relations), edits)


def query(
    request: LocalRequest,
    spans: Sequence[Span],
    sources: Sequence[Source],
    edits: Sequence[Edit] = (),
) -> pa.Table:
    """The rows of the query in these parts of the text; `sources` are the tables of the statement.

    Raises UnsupportedFeature ("Spark") for what DuckDB cannot run.
    """
    whole = Span(spans[0].start, spans[-1].end)
    inside = [each for each in sources if whole.start <= each.relation.start and each.relation.end <= whole.end]
    views, names = _views(request, inside)
    tree = named_as_in_spark(parsed(request, whole, request.sql(spans, [*edits, *names])))
    mentioned = _mentioned(tree)
    where = _where(tree, next(iter(views.values()))) if len(views) == 1 and tree.find(exp.Placeholder) is None else None
    _check_size(request, whole, views.values(), where)
    columns = [name for each in views.values() for name in each.columns]
    return run(request, whole, tree, {view: _rows(request, each, mentioned, where) for view, each in views.items()}, columns)


def as_views(request: LocalRequest, sources: Sequence[Source]) -> tuple[list[Edit], dict[str, pa.Table]]:
    """The whole tables of subqueries by the names that the edits put in the places of theirs."""
    views, names = _views(request, sources)
    _check_size(request, Span(0, len(request.text)), views.values(), None)
    return names, {view: _rows(request, each, None, None) for view, each in views.items()}


def _views(request: LocalRequest, sources: Sequence[Source]) -> tuple[dict[str, Source], list[Edit]]:
    """What is read, by the names of the views, and the edits that put these names into the text."""
    views = {f"__sluice_t{number}": each for number, each in enumerate(sources)}
    return views, [edit for view, each in views.items() for edit in edits_of(request.text, each.relation, view, each.columns)]


def _rows(request: LocalRequest, source: Source, mentioned: frozenset[str] | None, where: str | None) -> pa.Table:
    if isinstance(source.rows, ChangeRange):
        after, up_to = source.rows.after, source.rows.up_to
        if up_to is not None and up_to.by != after.by:
            raise request.needs_spark(source.relation.name, "one bound is a version and the other one a time")
        return source.table.changes(after.value, None if up_to is None else up_to.value, by=after.by)
    names = source.rows.struct.names
    columns = [name for name in names if mentioned is None or name.lower() in mentioned]
    return source.rows.to_arrow(columns or names[:1], where)


def _check_size(request: LocalRequest, whole: Span, sources: Iterable[Source], where: str | None) -> None:
    """Leave a query that reads much to Spark."""
    if request.max_bytes is None:
        return
    rows = [each.rows for each in sources if not isinstance(each.rows, ChangeRange)]
    size = sum(pc.sum(each.files(where)["size"]).as_py() or 0 for each in rows)
    if size > request.max_bytes:
        said = f"the query reads {size >> 20} MiB of data files, more than the {request.max_bytes >> 20} MiB that one process takes"
        raise request.needs_spark(whole, said)


def _mentioned(tree: exp.Query) -> frozenset[str] | None:
    """Every name in a query, in lower case; None if it may mean columns that it does not name."""
    stars = [each for each in tree.find_all(exp.Star) if not isinstance(each.parent, exp.Count)]
    natural = any(each.args.get("method") == "NATURAL" for each in tree.find_all(exp.Join))
    tables = {each.alias_or_name.lower() for each in tree.find_all(exp.Table)}
    whole = any(not each.table and each.name.lower() in tables for each in tree.find_all(exp.Column))
    if stars or natural or whole or any(True for _ in tree.find_all(exp.Pivot)):
        return None
    return frozenset(each.name.lower() for each in tree.find_all(exp.Identifier))


def _where(tree: exp.Query, source: Source) -> str | None:
    """The part of the WHERE of a plain SELECT that sluice's own conditions can say."""
    where = tree.args.get("where") if isinstance(tree, exp.Select) else None
    if where is None or not isinstance(source.rows, (TableSnapshot, TransactionRows)) or len(list(tree.find_all(exp.Query))) > 1:
        return None
    part = known_part(where.this, source.rows.struct)
    return None if part is None else part.to_sql()
