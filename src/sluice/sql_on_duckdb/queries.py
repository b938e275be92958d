"""Queries: every table of sluice in them is an Arrow table, and all are read as of one moment.

Of each table only the columns that the query mentions are read, and, if it is alone in the query, only files that may have rows
for its WHERE.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from ..sql_plain.place import (
    Place,
    at_one_moment,
    edits_of,
    known_place,
    not_found,
    opened,
    parts_of,
    require_one_moment,
    with_version,
)
from ..sql_plain.request import Edit
from ..statements.cursor import Name, Span
from ..statements.relations import Between, Changes, Relation
from ..storage.dataclass import dataclass
from ..storage.schema.datatypes import StructType
from ..storage.schema.schema import to_arrow
from ..tables.read.table_snapshot import TableSnapshot
from ..tables.table import Table
from ..tables.transaction import Transaction
from .dialect import named_as_in_spark
from .engine import parsed, run
from .expressions import known_part
from .plain import Plain


@dataclass(frozen=True, slots=True)
class SoFar:
    """A table's rows as an open transaction sees them; the commit depends on those that are read."""

    part: Transaction

    @property
    def struct(self) -> StructType:
        """The schema."""
        return self.part.struct

    def to_arrow(self, columns: Sequence[str], where: str | None = None) -> pa.Table:
        """The rows."""
        return self.part.scan(columns, where)

    def files(self, where: str | None = None) -> pa.Table:
        """The files of the version read, whatever the transaction did."""
        return self.part.basis[0].files


@dataclass(frozen=True, slots=True)
class NoRows:
    """A table's columns, for a statement that is only resolved."""

    struct: StructType

    def to_arrow(self, columns: Sequence[str], where: str | None = None) -> pa.Table:
        """No rows."""
        return to_arrow(self.struct).empty_table().select(list(columns))

    def files(self, where: str | None = None) -> pa.Table:
        """No files."""
        return pa.table({"size": pa.array([], pa.int64())})


def without_rows(tables: Sequence[Table]) -> Mapping[str, NoRows]:
    """The latest columns of tables."""
    return {each.location: NoRows(each.struct) for each in tables}


Reading: TypeAlias = "Callable[[Sequence[Table]], Mapping[str, TableSnapshot | SoFar | NoRows]]"
"""Gives the latest rows of tables, by location."""


@dataclass(frozen=True, slots=True)
class _Source:
    """A table in the query: a version of it, or the changes between two."""

    relation: Relation
    table: Table
    snapshot: TableSnapshot | SoFar | NoRows | None
    view: str


def query(
    asked: Plain,
    spans: Sequence[Span],
    relations: Sequence[Relation],
    edits: Sequence[Edit] = (),
    reading: Reading | None = None,
) -> pa.Table:
    """The rows of the query in these parts of the text; `reading` gives those of its tables, by default as of one moment.

    Raises UnsupportedFeature ("Spark") for what DuckDB cannot run.
    """
    whole = Span(spans[0].start, spans[-1].end)
    sources = _sources(asked, [each for each in relations if whole.start <= each.start and each.end <= whole.end], reading or at_one_moment)
    placed, values = asked.placed(spans, [Span(each.relation.start, each.relation.end) for each in sources])
    names = [edit for each in sources for edit in edits_of(each.relation, each.view)]
    tree = named_as_in_spark(parsed(asked, whole, asked.edited(spans, [*edits, *placed, *names]).strip()))
    mentioned = _mentioned(tree)
    where = _where(tree, sources[0]) if len(sources) == 1 and not values else None
    _check_size(asked, whole, sources, where)
    columns = [name for each in sources for name in (each.snapshot.struct.names if each.snapshot is not None else each.table.struct.names)]
    return run(asked, whole, tree, values, {each.view: _rows(asked, each, mentioned, where) for each in sources}, columns)


def as_views(asked: Plain, relations: Sequence[Relation], reading: Reading) -> tuple[list[Edit], dict[str, pa.Table]]:
    """The whole tables of subqueries by the names that the edits put in the places of theirs."""
    sources = _sources(asked, relations, reading)
    _check_size(asked, Span(0, len(asked.text)), sources, None)
    edits = [edit for each in sources for edit in edits_of(each.relation, each.view)]
    return edits, {each.view: _rows(asked, each, None, None) for each in sources}


def require_place(asked: Plain, name: Name) -> Place:
    """Where the table of a name is. Raises TableNotFound with the nearest names."""
    place = known_place(asked, name)
    if place is None:
        raise not_found(asked, name)
    return place


def _sources(asked: Plain, relations: Sequence[Relation], reading: Reading) -> list[_Source]:
    relations = [with_version(asked, each) for each in relations]
    for each in relations:
        require_one_moment(asked, each)
    places = [require_place(asked, each.name if each.changes is None else _name(asked, each.changes)) for each in relations]
    tables = {place.location: opened(place) for place in places}
    found = [tables[place.location] for place in places]
    current = reading([table for each, table in zip(relations, found, strict=True) if each.is_current])
    return [
        _Source(each, table, _snapshot(asked, each, table) or current.get(table.location), f"__sluice_t{number}")
        for number, (each, table) in enumerate(zip(relations, found, strict=True))
    ]


def _name(asked: Plain, changes: Changes) -> Name:
    """The name of the table that is the first argument of `table_changes`."""
    at = changes.arguments[0]
    return Name(parts_of(str(asked.value(at, "STRING"))), at.start, at.end)


def _snapshot(asked: Plain, relation: Relation, table: Table) -> TableSnapshot | None:
    """The version that is asked for; None for the latest, and for changes."""
    as_of = relation.as_of
    if as_of is None:
        return None
    if as_of.literal is not None and as_of.is_version:
        return table.snapshot(int(as_of.literal))
    if as_of.literal is not None:
        return table.snapshot(timestamp=_marked_time(asked, as_of.value, as_of.literal))
    return table.snapshot(*asked.moment(as_of.is_version, as_of.value))


def _marked_time(asked: Plain, at: Span, digits: str) -> int:
    """Milliseconds since the epoch of the time after @, in the machine's time zone."""
    with suppress(ValueError):
        if len(digits) == len("yyyyMMddHHmmssSSS"):
            return int(datetime.strptime(digits, "%Y%m%d%H%M%S%f").timestamp() * 1000)  # noqa: DTZ007 - local, as in Spark
    raise asked.refused(at, "write the time as yyyyMMddHHmmssSSS")


def _rows(asked: Plain, source: _Source, mentioned: frozenset[str] | None, where: str | None) -> pa.Table:
    if source.relation.between is not None:
        return _between(asked, source.table, source.relation.between)
    if source.relation.changes is not None or source.snapshot is None:
        return _changes(asked, source)
    names = source.snapshot.struct.names
    wanted = [name for name in names if mentioned is None or name.lower() in mentioned]
    return source.snapshot.to_arrow(wanted or names[:1], where)


def _changes(asked: Plain, source: _Source) -> pa.Table:
    """The rows that versions changed, both bounds included, as `table_changes` gives them."""
    assert source.relation.changes is not None
    _, *bounds = source.relation.changes.arguments
    if not 1 <= len(bounds) <= 2:
        said = "table_changes takes a table's name, a first version, and a last one if there is one"
        raise asked.refused(source.relation.name, said)
    found = [_bound(asked, each) for each in bounds]
    if len({by for by, _ in found}) > 1:
        raise asked.refused(source.relation.name, "one bound is a version and the other one a time: give two of a kind")
    (by, first), last = found[0], found[1][1] if len(found) > 1 else None
    return source.table.changes(first - 1, last, by=by)


def _bound(asked: Plain, span: Span) -> tuple[str, int]:
    """A bound of `table_changes`: "version" with a version, or "timestamp" with milliseconds since the epoch."""
    value = asked.value(span, "STRING")
    return ("version", int(value)) if str(value).isdecimal() else ("timestamp", asked.milliseconds(span))


def _between(asked: Plain, table: Table, between: Between) -> pa.Table:
    """The rows that versions after the first bound changed, up to and including the second."""
    after, up_to = (
        int(asked.value(each, "BIGINT")) if between.is_version else asked.milliseconds(each) for each in (between.after, between.up_to)
    )
    if after > up_to:
        raise asked.refused(between.up_to, f"this is before the first bound, {after}: give the earlier one first")
    return table.changes(after, up_to, by="version" if between.is_version else "timestamp")


def _check_size(asked: Plain, whole: Span, sources: Sequence[_Source], where: str | None) -> None:
    """Leave a query that reads much to Spark."""
    if asked.max_bytes is None:
        return
    snapshots = [each.snapshot for each in sources if each.snapshot is not None]
    size = sum(pc.sum(each.files(where)["size"]).as_py() or 0 for each in snapshots)
    if size > asked.max_bytes:
        said = f"the query reads {size >> 20} MiB of data files, more than the {asked.max_bytes >> 20} MiB that one process takes"
        raise asked.needs_spark(whole, said)


def _mentioned(tree: exp.Query) -> frozenset[str] | None:
    """Every name in a query, in lower case; None if it may mean columns that it does not name."""
    stars = [each for each in tree.find_all(exp.Star) if not isinstance(each.parent, exp.Count)]
    natural = any(each.args.get("method") == "NATURAL" for each in tree.find_all(exp.Join))
    tables = {each.alias_or_name.lower() for each in tree.find_all(exp.Table)}
    whole = any(not each.table and each.name.lower() in tables for each in tree.find_all(exp.Column))
    if stars or natural or whole or any(True for _ in tree.find_all(exp.Pivot)):
        return None
    return frozenset(each.name.lower() for each in tree.find_all(exp.Identifier))


def _where(tree: exp.Query, source: _Source) -> str | None:
    """The part of the WHERE of a plain SELECT that sluice's own conditions can say."""
    where = tree.args.get("where") if isinstance(tree, exp.Select) else None
    if where is None or not isinstance(source.snapshot, (TableSnapshot, SoFar)) or len(list(tree.find_all(exp.Query))) > 1:
        return None
    known = known_part(where.this, source.snapshot.struct)
    return None if known is None else known.to_sql()
