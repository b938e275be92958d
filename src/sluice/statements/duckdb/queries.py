"""Queries without Spark: each table of sluice in them is an Arrow table, all of one moment. Also casts to the types of a table's columns.

Of each table only the columns that the query mentions are read, and, if it is alone in the query, only files that may have rows
for its WHERE.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from ...storage.data.assignments import cast_to
from ...storage.errors import PredicateError, SchemaMismatch, UnsupportedFeature
from ...storage.schema.datatypes import VARIANT, ArrayType, DataType, MapType, PrimitiveType, StructType, arrow_type, is_variant
from ...storage.schema.schema import to_arrow
from ...storage.schema.sqltypes import quoted_name, type_sql
from ...tables.read.table_snapshot import TableSnapshot
from ...tables.transaction import Transaction
from ...tables.write.data_writing import require_whole_structs
from ..parse.cursor import Name, Span, tokens_of, words_in
from ..parse.reading import FIRST_WORDS, Other
from ..places import ChangeRange, Source, edits_of, latest
from ..request import Edit
from .database import LocalRequest, known_part, named_as_in_spark, parsed, run_query


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
    columns = [name for each in views.values() for name in each.struct.names]
    return run_query(request, whole, tree, {view: _rows(request, each, mentioned, where) for view, each in views.items()}, columns)


def as_views(request: LocalRequest, sources: Sequence[Source]) -> tuple[list[Edit], dict[str, pa.Table]]:
    """The whole tables of subqueries by the names that the edits put in the places of theirs."""
    views, names = _views(request, sources)
    _check_size(request, Span(0, len(request.text)), views.values(), None)
    return names, {view: _rows(request, each, None, None) for view, each in views.items()}


def _views(request: LocalRequest, sources: Sequence[Source]) -> tuple[dict[str, Source], list[Edit]]:
    """What is read, by the names of the views, and the edits that put these names into the text."""
    views = {f"__sluice_t{number}": each for number, each in enumerate(sources)}
    return views, [edit for view, each in views.items() for edit in edits_of(request.text, each.relation, view, each.struct.names)]


def _rows(request: LocalRequest, source: Source, mentioned: frozenset[str] | None, where: str | None) -> pa.Table:
    if isinstance(source.rows, ChangeRange):
        after, up_to = source.rows.after, source.rows.up_to
        if up_to is not None and up_to.by != after.by:
            raise request.needs_spark(source.relation.name, "one bound is a version and the other one a time")
        return source.table.changes(after.value, None if up_to is None else up_to.value, by=after.by)
    names = source.struct.names
    columns = [name for name in names if mentioned is None or name.lower() in mentioned] or names[:1]
    if isinstance(source.rows, StructType):
        return to_arrow(source.rows).empty_table().select(columns)
    return source.rows.scan(columns, where) if isinstance(source.rows, Transaction) else source.rows.to_arrow(columns, where)


def _check_size(request: LocalRequest, whole: Span, sources: Iterable[Source], where: str | None) -> None:
    """Leave a query that reads much to Spark."""
    if request.max_bytes is None:
        return
    size = 0
    for each in sources:
        if isinstance(each.rows, TableSnapshot):
            size += pc.sum(each.rows.files(where)["size"]).as_py() or 0
        elif isinstance(each.rows, Transaction):  # the files of the version read, whatever the transaction did
            size += pc.sum(each.rows.basis[0].files["size"]).as_py() or 0
    if size > request.max_bytes:
        said = f"the query reads {size >> 20} MiB of data files, more than the {request.max_bytes >> 20} MiB that one process takes"
        raise request.needs_spark(whole, said)


def _mentioned(tree: exp.Query) -> frozenset[str] | None:
    """Every name in a query, in lower case; None if it may mean columns that it does not name."""
    stars = [each for each in tree.find_all(exp.Star) if not isinstance(each.parent, exp.Count)]
    natural = [each for each in tree.find_all(exp.Join) if each.args.get("method") == "NATURAL"]
    tables = {each.alias_or_name.lower() for each in tree.find_all(exp.Table)}
    whole = [each for each in tree.find_all(exp.Column) if not each.table and each.name.lower() in tables]
    if stars or natural or whole or tree.find(exp.Pivot) is not None:
        return None
    return frozenset([each.name.lower() for each in tree.find_all(exp.Identifier)])


def _where(tree: exp.Query, source: Source) -> str | None:
    """The part of the WHERE of a plain SELECT that sluice's own conditions can say."""
    where = tree.args.get("where") if isinstance(tree, exp.Select) else None
    if where is None or not isinstance(source.rows, (TableSnapshot, Transaction)) or len(list(tree.find_all(exp.Query))) > 1:
        return None
    part = known_part(where.this, source.rows.struct)
    return None if part is None else part.to_sql()


# -- values -----------------------------------------------------------------------------------------------------------------

_WHOLE: Final = frozenset({"byte", "short", "integer", "long"})
_NUMBERS: Final = frozenset({*_WHOLE, "float", "double", "decimal", "string"})
_TIMES: Final = frozenset({"date", "timestamp", "timestamp_ntz", "string"})
_CASTS: Final[tuple[tuple[Callable[[pa.DataType], bool], frozenset[str]], ...]] = (
    (pa.types.is_integer, _NUMBERS),
    (pa.types.is_floating, _NUMBERS),
    (pa.types.is_decimal, _NUMBERS),
    (pa.types.is_date, _TIMES),
    (pa.types.is_timestamp, _TIMES),
    (pa.types.is_string, frozenset({"string"})),
    (pa.types.is_large_string, frozenset({"string"})),
    (pa.types.is_boolean, frozenset({"boolean", "string"})),
    (pa.types.is_binary, frozenset({"binary"})),
    (pa.types.is_large_binary, frozenset({"binary"})),
)
"""The values that Spark would cast in an INSERT, and the types to which."""


def stored(request: LocalRequest, at: Span, rows: pa.Table, schema: StructType) -> pa.Table:
    """The rows in the types of the table's columns. Raises SchemaMismatch for a type that does not fit, InvalidRequest for a value."""
    casts: list[str] = []
    for field in rows.schema:
        column = schema.get(field.name)
        name = quoted_name(field.name)
        if column is None or not isinstance(column.type, PrimitiveType) or field.type == arrow_type(column.type):
            casts.append(name)
            continue
        if not _fits(field.type, column.type):
            said = f"column {column.name!r} is {type_sql(column.type)}, and these values are {field.type}: CAST them"
            raise request.error(SchemaMismatch, at, said, column=column.name)
        whole = column.type.name in _WHOLE and (pa.types.is_decimal(field.type) or pa.types.is_floating(field.type))
        value = f"IF({name} < 0, CEIL({name}), FLOOR({name}))" if whole else name
        casts.append(name if column.type == VARIANT else f"CAST({value} AS {type_sql(column.type)}) AS {name}")
    if len(set(rows.column_names)) != len(rows.column_names):
        raise request.error(SchemaMismatch, at, "two columns of these rows have one name; name each once")
    if casts == [quoted_name(name) for name in rows.column_names]:
        return rows
    text = f"SELECT {', '.join(casts)} FROM __sluice_rows"  # noqa: S608 - names are quoted, types are the table's own
    return run_query(request, at, text, {"__sluice_rows": rows})


def new_values(request: LocalRequest, at: Span, rows: pa.Table, schema: StructType) -> pa.Table:
    """New values in the types of the table's columns: texts and others are cast, too, and structs must have all fields of the table's.

    Raises SchemaMismatch for a type or a value that cannot be cast, and for a struct; InvalidRequest for a value that is too large.
    """
    try:
        require_whole_structs(rows.schema, schema)
    except SchemaMismatch as error:
        raise request.error(SchemaMismatch, at, error.message, **error.details) from error
    for index, field in enumerate(rows.schema):
        column = schema.get(field.name)
        if column is None or _fits(field.type, column.type):
            continue
        if not isinstance(column.type, PrimitiveType):
            said = f"column {column.name!r} is {type_sql(column.type)}, and these values are {field.type}: casting them"
            raise request.needs_spark(at, said)
        kind = arrow_type(column.type)
        try:  # DuckDB's own casts of texts differ from Spark's
            values = cast_to(column.name, kind, rows.column(index).combine_chunks(), field.name)
        except (PredicateError, SchemaMismatch) as error:
            raise request.error(SchemaMismatch, at, error.message, **{**error.details, "column": column.name}) from error
        rows = rows.set_column(index, field.with_type(kind), values)
    return stored(request, at, rows, schema)


def _fits(kind: pa.DataType, column: DataType) -> bool:
    """Whether an INSERT would cast such values, or those in them; whatever has another shape is refused elsewhere."""
    match column:
        case PrimitiveType("variant"):
            return is_variant(kind) or pa.types.is_null(kind)
        case PrimitiveType():
            name = column.name.partition("(")[0]
            for is_one, names in _CASTS:
                if is_one(kind):
                    return name in names
            return bool(pa.types.is_null(kind))
        case StructType() if pa.types.is_struct(kind):
            parts = [(part.type, column.get(part.name)) for part in kind]
            return all(field is None or _fits(part, field.type) for part, field in parts)
        case ArrayType() if pa.types.is_list(kind):
            return _fits(kind.value_type, column.element_type)
        case MapType() if pa.types.is_map(kind):
            return _fits(kind.key_type, column.key_type) and _fits(kind.item_type, column.value_type)
    return True
