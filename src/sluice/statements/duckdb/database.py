"""DuckDB runs queries in Spark's SQL, which sqlglot translates, and sluice evaluates what it can of conditions.

DuckDB sees the tables that it is given, and nothing else of the machine. What sluice evaluates skips files, and is the footprint.

sqlglot translates names. A list says here which functions mean the same; a text with any other function needs Spark. So an answer, or a
value that a statement writes, does not depend on the engine. Arithmetic is Spark's ANSI: a division by zero is an error.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import field
from datetime import datetime
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, ClassVar, Final

import pyarrow as pa
from sqlglot import ErrorLevel, exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError, TokenError, UnsupportedError

from ...installation import install_command
from ...storage.dataclass import dataclass
from ...storage.errors import InvalidRequest, PredicateError, UnsupportedFeature
from ...storage.expressions.parse import beyond_limits
from ...storage.expressions.sql import literal_sql
from ...storage.pruning.predicate import Predicate
from ...storage.schema.datatypes import StructType, with_values_of_defaults
from ..parse.cursor import Name, Span, location_hint, tokens_of, words_in
from ..parse.rows import Assignment, Delete, Merge, Update
from ..places import known_place, renaming, unknown_column
from ..request import Edit, Locks, Place, Request
from .variants import ONE_VALUE, SECRET, misused, swapped

if TYPE_CHECKING:
    import duckdb

NEEDS_SPARK: Final = "Spark"
"""The feature that refusals name."""
_BOUND: Final = "__sluice_"
"""What the names begin with by which DuckDB gets the values of parameters: their places follow."""
_ALONE: Final[dict[str, str | bool | int | float | list[str]]] = {
    "enable_external_access": "false",
    "autoload_known_extensions": "false",
    "autoinstall_known_extensions": "false",
    "python_enable_replacements": "false",
    "lock_configuration": "true",
}
"""Neither files, nor the network, nor variables of this process can be read by a query."""
_TOO_DEEP: Final = "it is nested too deeply: leave out what changes nothing, or write it in parts"
_DEEPEST: Final = "Max expression depth limit"
_LACKS: Final = ("CatalogException", "NotImplementedException", "InternalException")
_CLASS: Final = re.compile(r"Required keyword: '\w+' missing for <class .*>")
_SENTINEL: Final = "TokenType.SENTINEL"
_TOKEN: Final = re.compile(r"Expected (.+) but got <Token .*?text: (.*), line: .*>")
"""How sqlglot shows a token, and the end of a text."""
_LACKING: Final = re.compile(r'Referenced column "([^"]+)" not found|not have a column named "([^"]+)"')
_QUOTED: Final = re.compile(r'"([^"]+)"')
_DIVISION_BY_ZERO: Final = "sluice: division by zero"
_TAKEN_APART: Final = "a VARIANT is one value, in which no field has a name: variant_get looks into it, in Spark"
_OTHER_CAST: Final = "sluice: other cast"
"""What DuckDB's error says when a value comes that it would cast otherwise than Spark."""

_SAME: Final[tuple[type[exp.Expr], ...]] = tuple(
    getattr(exp, name)
    for name in words_in(
        """Abs And AnyValue Array Avg Case Cast Ceil Coalesce Concat ConcatWs Count CountIf CumeDist CurrentDate CurrentTimestamp
        DateDiff Day DenseRank EndsWith Exists Exp Explode Extract FirstValue Floor Greatest Hour If Lag LastDay LastValue Lead
        Least Left Length Ln LogicalAnd LogicalOr Lower Max Min Minute Month NthValue Ntile Nullif Or PercentRank Pow Quarter Rank
        RegexpLike Replace Round RowNumber SafeDivide Sign Sqrt StartsWith Stddev StddevPop StddevSamp StrPosition Struct Substring
        Sum TimestampTrunc Trim TryCast TsOrDsAdd TsOrDsToDate Upper Variance VariancePop VarMap Xor Year"""
    )
)
"""The functions that mean the same in both; a text with any other needs Spark."""
_HAVE_NAMES: Final = (exp.Alias, exp.Aliases, exp.Column, exp.Dot, exp.Bracket, exp.Explode, exp.Subquery)
_WHOLE: Final = frozenset({exp.DataType.Type.TINYINT, exp.DataType.Type.SMALLINT, exp.DataType.Type.INT, exp.DataType.Type.BIGINT})
_UNITS: Final = frozenset({"YEAR", "QUARTER", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND"})
_FRACTION: Final = "[.]0*[1-9]|[0-9][eE]"
"""Texts of numbers that are not whole, or that do not show whether they are."""


def tree_of(text: str) -> exp.Expr | None:
    """The one statement or expression of a text in Spark's SQL; None for none or several. Raises ParseError and TokenError."""
    if (why := beyond_limits(text)) is not None:
        raise ParseError(why)
    spark = Spark()
    parser = spark.parser()
    # As Spark is now: CAST fails where it cannot cast, TRY_CAST gives null.
    setattr(parser, "STRICT_CAST", True)  # noqa: B010 - sqlglot types it as a constant of the class
    try:
        trees = parser.parse(spark.tokenize(text), text)
    except RecursionError as error:
        raise ParseError(_TOO_DEEP) from error
    return trees[0] if len(trees) == 1 else None


def parsed(request: LocalRequest, at: Span, text: str) -> exp.Query:
    """The query. Raises UnsupportedFeature for what is no query, or has a function that DuckDB may compute otherwise."""
    try:
        tree = tree_of(text)
    except (ParseError, TokenError) as error:
        raise _unreadable(request, at, error) from error
    if not isinstance(tree, (exp.Query, exp.Values)):
        raise request.needs_spark(at, "this is no query that DuckDB runs")
    defined = {each.alias for each in tree.find_all(exp.CTE)}
    for table in tree.find_all(exp.Table):
        place = _place(request, at, table.name)
        hint = "" if table.name in defined or table.db else location_hint(request.text, place.start)
        if hint:
            raise request.refused(place, f"a string is no table{hint}")
    if (double := _doubled(tree)) is not None:
        said = f"two columns of an inner query are called {double}, of which DuckDB takes the first"
        raise request.needs_spark(_place(request, at, double), said)
    others = [node for node in tree.find_all(exp.Func, exp.Like) if not _means_the_same(node)]
    if others:
        other = others[0]
        names: tuple[str, ...] = ("LIKE",)  # what it may be called in SQL: as Spark calls it, then as sqlglot does
        if isinstance(other, exp.Func):
            names = (other.name,) if isinstance(other, exp.Anonymous) else (_text(other).partition("(")[0], *other.sql_names())
        place = next((each for name in names if (each := _place(request, at, name)) != at), at)
        name = (names[0] if place is at else place.of(request.text)).lower()
        raise request.needs_spark(place, f"DuckDB has no {name}, or one that may give another answer than Spark's")
    return tree  # type: ignore[return-value]  # VALUES is a query in all but sqlglot's types


# -- where DuckDB would give other answers than Spark ------------------------------------------------------------------------


def _doubled(tree: exp.Expr) -> str | None:
    """A name that an inner query gives to two columns, in lower case: DuckDB renames the second one, where Spark refuses to choose."""
    for inner in tree.find_all(exp.Subquery, exp.CTE):
        if isinstance(inner.this, exp.Query) and not inner.alias_column_names:
            names = Counter(name.lower() for name in inner.this.named_selects if name not in ("", "*"))
            if names and max(names.values()) > 1:
                return max(names, key=lambda name: names[name])
    return None


def _text(node: exp.Expr) -> str:
    return node.sql("spark", normalize_functions="lower")


def named_as_in_spark(tree: exp.Query) -> exp.Query:
    """The query with names for results that have none, as Spark calls them in the common cases: `count(1)`, `sum(v)`, `(id + 1)`."""
    for each in list(tree.find_all(exp.Select)):
        each.set("expressions", [_named(result) for result in each.expressions])
    return tree


def _named(node: exp.Expr) -> exp.Expr:
    if isinstance(node, exp.Subquery) and not node.alias:
        return exp.alias_(node, "scalarsubquery()", quoted=True)
    if isinstance(node, exp.Exists):
        return exp.alias_(node, "exists()", quoted=True)
    if node.is_star or isinstance(node, _HAVE_NAMES) or node.find(exp.Placeholder, exp.Query) is not None:
        return node
    is_count = isinstance(node, exp.Count) and isinstance(node.this, exp.Star)
    text = node.name if isinstance(node, exp.Literal) else "count(1)" if is_count else _text(node)
    return exp.alias_(node, f"({text})" if isinstance(node, exp.Binary) else text, quoted=True)


def _means_the_same(node: exp.Expr) -> bool:
    """Whether DuckDB computes a function, with these arguments, as Spark does."""
    if isinstance(node, exp.Func) and not isinstance(node, _SAME):
        return False
    match node:
        case exp.Substring():
            return _is_number(node.args.get("start"), at_least=1)
        case exp.Left():
            return _is_number(node.expression, at_least=0)
        case exp.Ceil() | exp.Floor():
            return node.args.get("decimals") is None
        case exp.Cast():
            return all(each.this != exp.DataType.Type.VARIANT for each in node.to.find_all(exp.DataType))
        case exp.TimestampTrunc():
            return node.text("unit").upper() in _UNITS
        case exp.Extract():
            return node.name.upper() in _UNITS - {"SECOND"}
        case exp.DateDiff():
            return node.text("unit").upper() in ("", "DAY")
        case exp.TsOrDsToDate():
            return node.args.get("format") is None
        case exp.Like():
            return isinstance(node.expression, exp.Literal) and "\\" not in node.expression.name
        case _:
            return True


def _is_number(node: object, *, at_least: int) -> bool:
    return isinstance(node, exp.Literal) and not node.is_string and node.name.isdigit() and int(node.name) >= at_least


def _as_in_spark(node: exp.Expr) -> exp.Expr:
    """A part of a query with the operator or cast that gives Spark's answer, or an error."""
    match node:
        case exp.Div() | exp.IntDiv() | exp.Mod():
            node.set("safe", False)
            divisor = node.expression
            inner = divisor.unnest()
            if not isinstance(inner, exp.Literal) or inner.is_string or inner.name.strip("0.") == "":  # it may be zero
                is_zero = exp.EQ(this=exp.paren(divisor.copy()), expression=exp.Literal.number(0))
                node.set("expression", exp.If(this=is_zero, true=_error(_DIVISION_BY_ZERO), false=divisor.copy()))
        case exp.Ceil() | exp.Floor() if node.parent is None or not isinstance(node.parent, exp.Cast):
            return exp.cast(node, "BIGINT")
        case exp.TsOrDsAdd():
            return exp.cast(node, "DATE")
        case exp.TsOrDsToDate():
            return exp.cast(node.this, "DATE")
        case exp.Cast():
            return _checked_cast(node)
        case _:
            pass
    return node


def _checked_cast(node: exp.Cast) -> exp.Expr:
    """A fraction becomes a whole number by rounding in DuckDB, and by cutting in Spark; doubles have other texts."""
    kind, value = node.to.this, node.this
    if isinstance(value, exp.Literal) and not value.is_string and value.name.isdigit():
        return node
    if kind in _WHOLE:
        other: exp.Expr = exp.Anonymous(
            this="REGEXP_MATCHES", expressions=[exp.cast(value.copy(), "VARCHAR"), exp.Literal.string(_FRACTION)]
        )
    elif kind in exp.DataType.TEXT_TYPES:
        kinds = [exp.Literal.string("DOUBLE"), exp.Literal.string("FLOAT")]
        other = exp.In(this=exp.Anonymous(this="TYPEOF", expressions=[value.copy()]), expressions=kinds)
    else:
        return node
    return exp.If(this=other, true=_error(_OTHER_CAST), false=node.copy())


def _error(text: str) -> exp.Expr:
    return exp.Anonymous(this="ERROR", expressions=[exp.Literal.string(text)])


# -- requests ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LocalRequest(Request):
    """A statement that this process carries out. Its queries share a connection, which it has from the first one on; whoever makes the
    request closes it.
    """

    text: str
    args: Mapping[str, Any] | Sequence[Any] | None = None
    coordinator: str | None = None
    storage_options: Mapping[str, str] | None = None
    max_bytes: int | None = None
    """Queries that would read more bytes of data files are left to Spark; None: no query is."""
    session_locks: Locks | None = field(default=None, repr=False)
    if_version: int | None = None
    connections: list[duckdb.DuckDBPyConnection] = field(default_factory=list, repr=False, compare=False)
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

    def literal(self, value: Any) -> str:
        """The value of a parameter as sluice's own expressions take it."""
        return literal_sql(value, pa.scalar(value).type)

    def evaluate(self, span: Span, kind: str | None = None) -> Any:
        """What an expression without columns gives, as a type of Spark's if one is given; None for null."""
        text = self.sql((span,)) if kind is None else f"CAST({self.sql((span,))} AS {kind})"
        return run_query(self, span, f"SELECT ({text}) AS value").column(0)[0].as_py()

    def selected(self, columns: Span, rows: pa.Table) -> pa.Table:
        """What SELECT with these columns gives of rows."""
        return run_query(self, columns, f"SELECT {self.sql((columns,))} FROM __sluice_rows", {"__sluice_rows": rows})  # noqa: S608 - bound

    def instant(self, span: Span, text: str | None) -> float | None:
        """Milliseconds since the epoch, of what DuckDB casts to a time, in the machine's time zone; None for what is no time."""
        value = f"({self.sql((span,))})" if text is None else text
        rows = run_query(self, span, f"SELECT TRY_CAST({value} AS TIMESTAMP) AS value")
        try:
            at = rows.column(0)[0].as_py()
            return int(at.timestamp() * 1000) if isinstance(at, datetime) else None
        except (OverflowError, ValueError):  # Python has no such year
            return math.inf

    def sql(self, spans: Sequence[Span], edits: Sequence[Edit] = ()) -> str:
        """These parts of the text with edits, in which parameters have the names by which `run_query` binds their values."""
        names = [Edit(at.start, at.end, f":{_BOUND}{at.start}") for span in spans for at, _ in self.parameters(span)]
        return self.edited(spans, [*edits, *names])[spans[0].start :].strip()

    def needs_spark(self, at: Span | Name, why: str) -> UnsupportedFeature:
        """The refusal of what only Spark can carry out; its attribute `why` has the reason alone."""
        said = f"{why}; that needs Spark (--engine spark, or sluice.sql with a session)"
        return self.error(UnsupportedFeature, at, said, features=[NEEDS_SPARK], why=why)


def run_query(
    request: LocalRequest,
    at: Span,
    query: str | exp.Query,
    tables: Mapping[str, pa.Table] | None = None,
    columns: Sequence[str] | None = None,
) -> pa.Table:
    """The rows of a query over these tables, with the values of its parameters; `at` is its place in the statement's text.

    `columns` are all names that the query might have used, if the tables have not all of them: the error about a wrong name shows the
    nearest ones.
    """
    tree = parsed(request, at, query) if isinstance(query, str) else query
    tables, whole = tables or {}, Span(0, len(request.text))
    wrong = misused(tree, tables.values())
    # check: variants-are-not-computed-with
    if wrong is not None:
        raise request.needs_spark(_place(request, at, wrong.name), ONE_VALUE)
    try:
        import duckdb
    except ModuleNotFoundError as missing:
        raise request.needs_spark(at, f"queries without it need DuckDB: {install_command('sql')}") from missing
    try:
        text = tree.transform(_as_in_spark).sql(dialect="duckdb", unsupported_level=ErrorLevel.RAISE)
    except RecursionError as error:
        raise request.refused(at, _TOO_DEEP) from error
    except UnsupportedError as error:
        raise request.needs_spark(at, f"DuckDB has no counterpart of this ({error})") from error
    connection = request.connections[0] if request.connections else duckdb.connect(":memory:", config=_ALONE)
    request.connections[:] = [connection]
    try:
        for name, rows in tables.items():
            connection.register(name, swapped(rows))
        named = {each.name for each in tree.find_all(exp.Placeholder)}
        values = {name: value for at, value in request.parameters(whole) if (name := f"{_BOUND}{at.start}") in named} if named else None
        relation = connection.sql(text, params=values)
        sums = [name for name, kind in zip(relation.columns, relation.types, strict=True) if str(kind) == "HUGEINT"]
        rows = swapped(relation.to_arrow_table())
    except duckdb.Error as error:
        raise _refused(request, at, error, columns or [name for rows in tables.values() for name in rows.column_names]) from error
    finally:
        for name in tables:
            connection.unregister(name)
    # check: variants-are-not-taken-apart
    if any(SECRET in name for name in rows.column_names):
        raise request.refused(at, _TAKEN_APART)
    return _as_spark_sums(rows, sums)


def _as_spark_sums(rows: pa.Table, names: Sequence[str]) -> pa.Table:
    """The rows with sums of whole numbers as BIGINT; those that are greater stay decimals."""
    for name in names if len(set(rows.column_names)) == rows.num_columns else ():
        at = rows.column_names.index(name)
        with suppress(pa.ArrowInvalid):
            rows = rows.set_column(at, name, rows.column(at).cast(pa.int64()))
    return rows


def _unreadable(request: LocalRequest, at: Span, error: ParseError | TokenError) -> InvalidRequest:
    """What sqlglot says of a text, with the place."""
    details = error.errors[0] if isinstance(error, ParseError) and error.errors else {}
    if _SENTINEL in str(error):
        return request.refused(Span(at.end, at.end), "the query is not complete: something is missing at its end")
    said = str(details.get("description") or error).splitlines()[0].rstrip(".")
    why = _TOKEN.sub(r"expected \1 before \2", _CLASS.sub("something is missing here", said))
    return request.refused(_place(request, at, str(details.get("highlight") or "")), f"the query cannot be read: {why}")


def _refused(request: LocalRequest, at: Span, error: duckdb.Error, columns: Sequence[str]) -> InvalidRequest:
    """What DuckDB says of a query, with the place of the name that it says it of."""
    message = " ".join(str(error).split("LINE ")[0].split())
    if lacking := _LACKING.search(message):
        name = lacking[1] or lacking[2]
        spelled = {each.lower(): each for each in columns if not each.startswith("__sluice")}
        near = [spelled[each] for each in get_close_matches(name.lower(), spelled, 3, 0.6) if each != name.lower()]
        hint = f"did you mean {' or '.join(near)}?" if near else f"the columns are {', '.join(spelled.values())}"
        return request.refused(_place(request, at, name), f"there is no column {name}; {hint}")
    if SECRET in message:
        return request.refused(at, _TAKEN_APART)
    named = _QUOTED.search(message)
    if _DEEPEST in message:
        return request.refused(at, _TOO_DEEP)
    if _DIVISION_BY_ZERO in message:
        return request.refused(at, "a division by zero; try_divide(a, b) gives null instead")
    if _OTHER_CAST in message:
        said = "DuckDB would cast a value here otherwise than Spark: a fraction to a whole number, or a double to text"
        return request.needs_spark(at, said)
    place = _place(request, at, named[1] if named else "")
    if type(error).__name__ in _LACKS or "is not supported" in message:
        return request.needs_spark(place, f"DuckDB says: {message}")
    return request.refused(place, f"DuckDB says: {message}")


def _place(request: LocalRequest, at: Span, word: str) -> Span:
    """Where a word is in that part of the text; all of it if it is nowhere."""
    for token in tokens_of(request.text) or ():
        if word and at.start <= token.start and token.end <= at.end and token.value.lower() == word.lower():
            return Span(token.start, token.end)
    return at


def condition_of(text: str) -> exp.Expr | None:
    """The tree of a condition in Spark's SQL; None if it cannot be read."""
    try:
        return tree_of(text)
    except (ParseError, TokenError):
        return None


def conjuncts(tree: exp.Expr) -> Iterator[exp.Expr]:
    """The parts of a condition that all must hold."""
    if isinstance(tree, exp.Paren):
        yield from conjuncts(tree.this)
    elif isinstance(tree, exp.And):
        for part in tree.flatten():
            yield from conjuncts(part)
    else:
        yield tree


def known_part(tree: exp.Expr | None, schema: StructType, alias: str | None = None) -> Predicate | None:
    """A predicate that holds wherever the condition does, of those parts that sluice evaluates; None if there is none.

    With an `alias`, columns of other tables are no columns of this one.
    """
    predicates: list[Predicate] = []
    for part in conjuncts(tree) if tree is not None else ():
        named = {each.table.lower() for each in part.find_all(exp.Column) if each.table}
        if alias is not None and named - {alias.lower()}:
            continue
        if any(schema.get(name) is not None for name in named):  # `s.a` may be the field of a column
            continue
        try:
            predicates.append(Predicate.parse(part.transform(_unqualified).sql(dialect="spark"), schema))
        except PredicateError:
            continue
    return Predicate.all_of(predicates)


def _unqualified(node: Any) -> Any:
    return exp.column(node.this) if isinstance(node, exp.Column) and node.table and not node.args.get("db") else node


def unqualified(request: LocalRequest, span: Span, statement: Update | Delete | Merge, schema: StructType) -> str:
    """The text of an expression, in which columns are not qualified by the name of the table that the statement changes."""
    return request.expression(span, [edit for parts in statement.qualifiers for edit in renaming(request.text, parts, "", schema.names)])


def assigned(request: LocalRequest, statement: Update | Merge, assignments: Sequence[Assignment], schema: StructType) -> dict[str, Span]:
    """The values by column, as the schema spells it. Raises InvalidRequest for an unknown column."""
    values: dict[str, Span] = {}
    for each in assignments:
        path = [token.value for token in tokens_of(unqualified(request, each.column, statement, schema)) or () if token.upper != "."]
        column = schema.get(path[0])
        if column is None:
            raise unknown_column(request, each.column, ".".join(path), schema)
        if len(path) > 1:
            raise request.needs_spark(each.column, "a field of a struct gets a value")
        values[column.name] = each.value
    return values


def with_defaults(request: LocalRequest, values: Mapping[str, Span], schema: StructType) -> dict[str, Span | str]:
    """The values with text in place of those that are a column's DEFAULT."""
    texts = {column: value.of(request.text) for column, value in values.items()}
    return {column: values[column] if text == texts[column] else text for column, text in with_values_of_defaults(texts, schema).items()}
