"""Names in statements: where their tables are, similar ones, and the text that comes in their places.

What a statement reads: for each table of sluice in it a version, rows of an open transaction, or the changes between two versions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from typing import Final, TypeAlias

from ..coordinator.api import DEFAULT_TIMEOUT_S, bounding
from ..storage.dataclass import dataclass
from ..storage.errors import InvalidRequest, TableNotFound
from ..storage.log.segment import latest_version
from ..storage.schema.datatypes import StructType
from ..storage.schema.sqltypes import quoted_name
from ..tables.catalog import Catalog
from ..tables.client.address import TableAddress, time_of_digits, version_of_path
from ..tables.client.open_table import kept_open
from ..tables.joint_transaction import read_together
from ..tables.read.table_snapshot import TableSnapshot
from ..tables.table import Table
from ..tables.transaction import Transaction
from .parse.cursor import Name, Span, location_hint, position, qualified_in, tokens_of
from .parse.relations import AsOf, Relation
from .parse.rows import Delete, Merge, Update
from .request import Edit, Place, Request

_DIGITS: Final = len("yyyyMMddHHmmssSSS")


@dataclass(frozen=True, slots=True)
class SluiceRelation:
    """A relation of a query that is a table of sluice, which is open."""

    relation: Relation
    table: Table


def opened(place: Place) -> Table:
    """The table there, which stays open for statements to come. Raises TableNotFound, NotATable and the other errors of `Table.open`."""
    with bounding(DEFAULT_TIMEOUT_S):
        return Table(kept_open(TableAddress.of(place.location, place.coordinator, place.storage_options)))


def exists(place: Place) -> bool:
    """Whether there is a Delta log, be the table sluice's or not."""
    return latest_version(TableAddress.of(place.location, None, place.storage_options).store()) is not None


def catalog_of(request: Request) -> Catalog:
    """The coordinator's names."""
    return Catalog(request.coordinator, storage_options=request.options)


def known_place(request: Request, name: Name) -> Place | None:
    """Where the table is that has this name, or this location; None if the coordinator gives the name to none."""
    if name.path is not None:
        return Place(name.path, request.coordinator, request.options)
    try:
        location = catalog_of(request).locate(name.quoted)
    except InvalidRequest:
        return None
    return Place(location, request.coordinator, request.options, name.title)


def required_place(request: Request, name: Name) -> Place:
    """The place of a table that has to be sluice's. Raises TableNotFound with the nearest names."""
    place = request.place_of(name) or known_place(request, name)
    if place is None:
        raise not_found(request, name)
    return place


def table_of(request: Request, name: Name, takes_no: str) -> Table:
    """The table of sluice with that name. Raises TableNotFound, and InvalidRequest for an engine's own table, which `takes_no` such
    thing.
    """
    if (place := request.place_of(name)) is not None:
        return opened(place)
    if name.path is None and request.is_own(name):
        raise request.refused(name, f"{'.'.join(name.parts)} is Spark's own, which takes no {takes_no}; name a table of sluice")
    raise not_found(request, name)


def relations_of_sluice(request: Request, relations: Sequence[Relation]) -> list[SluiceRelation]:
    """Those of the relations that are tables of sluice; each table is opened once.

    Raises InvalidRequest for one with two versions, times or ranges, and TableNotFound for an unknown one if there are no other tables.
    """
    ours: list[SluiceRelation] = []
    tables: dict[str, Table] = {}
    for relation in [_with_version(request, each) for each in relations]:
        name = relation.name
        if relation.changes is not None:  # the name is the first argument of `table_changes`
            at = relation.changes.arguments[0]
            name = Name(parts_of(str(request.value(at, "STRING"))), at.start, at.end)
        place = request.place_of(name)
        if place is None:
            if request.has_only_sluice:
                raise not_found(request, name)
            continue
        if relation.again is not None:
            first = position(request.text, Span(relation.start, relation.name.end))
            raise request.refused(relation.again, f"the table at {first} has a version or a time already; give one of them")
        if place.location not in tables:
            tables[place.location] = opened(place)
        ours.append(SluiceRelation(relation, tables[place.location]))
    return ours


def _with_version(request: Request, relation: Relation) -> Relation:
    """The relation, in which sluice.`path@v3` is version 3 of the table at the path, unless that path exists."""
    name = relation.name
    named = None if name.path is None or not relation.is_current else version_of_path(name.path, request.options)
    if named is None:
        return relation
    as_of = AsOf(named.version is not None, Span(name.start, name.end), named.time if named.version is None else str(named.version))
    return replace(relation, name=replace(name, parts=(name.parts[0], named.path)), as_of=as_of)


def similar_names(request: Request, name: Name) -> list[str]:
    """Names of tables that are spelled like this one, the most similar first."""
    if name.path is not None or len(name.parts) > 2:
        return []
    catalog, (table, *_) = catalog_of(request), (*reversed(name.parts), "")
    shown_by_key: dict[str, str] = {}
    for namespace in catalog.namespaces():
        for entry in catalog.tables(namespace.name):
            shown = entry.full_name if len(name.parts) > 1 or namespace.name != "default" else entry.name
            shown_by_key[shown.lower()] = shown
    similar = get_close_matches(name.title.lower(), shown_by_key, 3, 0.6)
    similar += [each for each in shown_by_key if each.rpartition(".")[2] == table.lower() and each not in similar]
    return [shown_by_key[each] for each in similar[:3]]


def not_found(request: Request, name: Name) -> TableNotFound:
    """The refusal of an unknown name."""
    similar = similar_names(request, name)
    is_path = request.text[: name.start].endswith((" /", "\n/"))  # FROM /a/path
    location = location_hint(request.text, name.start - is_path)
    hint = f"; did you mean {' or '.join(similar)}?" if similar else location or "; SHOW TABLES IN a namespace lists what there is"
    return request.error(TableNotFound, name, f"there is no table {name.title}{hint}", name=name.title)


def edits_of(text: str, relation: Relation, view: str, columns: Sequence[str]) -> list[Edit]:
    """The view's name in place of the table's; a table without an alias gets what it is called as one."""
    edits = [Edit(relation.start, relation.end, f"`{view}`")]
    if not relation.has_alias and relation.changes is None:
        edits.append(Edit(relation.alias_at, relation.alias_at, f" AS {quoted_name(relation.called)}"))
        edits += renaming(text, relation.name.parts, relation.called, columns)
    return edits


def target_edits(request: Request, statement: Update | Delete | Merge, columns: Sequence[str]) -> list[Edit]:
    """What the target of a change is called, in place of its whole name in front of columns."""
    return renaming(request.text, statement.qualifiers[0], statement.called, columns)


def renaming(text: str, parts: Sequence[str], called: str, columns: Sequence[str]) -> list[Edit]:
    """What a table is called, or nothing, in place of these parts in front of its columns, to which fields of structs give way."""
    count, after = len(parts), {"*", *[each.lower() for each in columns]}
    qualifiers, new = [each.lower() for each in parts], called and f"{quoted_name(called)}."
    edits: list[Edit] = []
    for names in qualified_in(tokens_of(text) or ()):
        values = [each.value.lower() for each in names]
        if values[:count] == qualifiers and {*values[count : count + 1]} & after:
            edits.append(Edit(names[0].start, names[count].start, new))
    return edits


def parts_of(text: str) -> tuple[str, ...]:
    """The parts of a table's name in a string, such as the first argument of `table_changes`."""
    parts = text.split(".") if "`" not in text else [part.strip("`") for part in text.split(".", 1)]
    return tuple(part.replace("``", "`") for part in parts)


def unknown_column(request: Request, at: Span | Name, name: str, schema: StructType) -> InvalidRequest:
    """The refusal of a column that a table lacks."""
    spelled = {each.lower(): each for each in schema.names}
    near = [spelled[each] for each in get_close_matches(name.lower(), spelled, 3, 0.6)]
    hint = f"did you mean {' or '.join(near)}?" if near else f"its columns are {', '.join(schema.names)}"
    return request.refused(at, f"column {name!r} is not in the table; {hint}")


# -- what is read of the tables -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Bound:
    """A bound of changes: `by` is "version" or "timestamp", `value` the version or milliseconds since the epoch."""

    by: str
    value: int


@dataclass(frozen=True, slots=True)
class ChangeRange:
    """The rows that versions after `after` changed, up to and including `up_to`, or all since; a bound is a version or a time."""

    after: Bound
    up_to: Bound | None


Rows: TypeAlias = TableSnapshot | Transaction | StructType
"""A table's rows: those of a version; those that an open transaction sees, on which its commit depends; for a statement that is only
resolved none, and the columns.
"""


@dataclass(frozen=True, slots=True)
class Source:
    """A table of sluice in a query, and what of it is read."""

    relation: Relation
    table: Table
    rows: Rows | ChangeRange

    @property
    def struct(self) -> StructType:
        """The table's schema."""
        if isinstance(self.rows, StructType):
            return self.rows
        return (self.table if isinstance(self.rows, ChangeRange) else self.rows).struct


def sources_of(request: Request, relations: Sequence[SluiceRelation], current: Mapping[str, Rows]) -> list[Source]:
    """What the relations mean; `current` has the rows, by location, of tables that are meant as they are now."""
    return [
        Source(
            each.relation,
            each.table,
            current[each.table.location] if each.relation.is_current else _chosen(request, each.relation, each.table),
        )
        for each in relations
    ]


def _chosen(request: Request, relation: Relation, table: Table) -> Rows | ChangeRange:
    if relation.changes is not None:
        return _table_changes(request, relation, relation.changes.arguments[1:])
    if relation.between is not None:
        between = relation.between
        by = "version" if between.is_version else "timestamp"
        after, up_to = [
            int(request.value(each, "BIGINT")) if between.is_version else request.milliseconds(each)
            for each in (between.after, between.up_to)
        ]
        if after > up_to:
            raise request.refused(between.up_to, f"this is before the first bound, {after}: give the earlier one first")
        return ChangeRange(Bound(by, after), Bound(by, up_to))
    as_of = relation.as_of
    assert as_of is not None
    digits = as_of.literal
    if digits is None:
        return table.snapshot(*request.moment(as_of.is_version, as_of.value))
    if as_of.is_version:
        return table.snapshot(int(digits))
    if len(digits) != _DIGITS:
        raise request.refused(as_of.value, "write the time as yyyyMMddHHmmssSSS")
    return table.snapshot(timestamp=request.milliseconds(as_of.value, f"'{time_of_digits(digits)}'"))


def _table_changes(request: Request, relation: Relation, bounds: Sequence[Span]) -> ChangeRange:
    """What `table_changes` means, which includes both bounds. A whole number is a version, anything else a time."""
    if not 1 <= len(bounds) <= 2:
        raise request.refused(relation.name, "table_changes takes a table's name, a first version or time, and a last one if there is one")
    read: list[Bound] = []
    for each in bounds:
        value = request.evaluate(each)
        if isinstance(value, int) and not isinstance(value, bool):
            read.append(Bound("version", request.version(each, value)))
        else:
            read.append(Bound("timestamp", request.milliseconds(each)))
    first, *last = read
    return ChangeRange(Bound(first.by, first.value - 1), last[0] if last else None)


def current_tables(relations: Sequence[SluiceRelation]) -> list[Table]:
    """Those whose latest rows are read."""
    return [each.table for each in relations if each.relation.is_current]


def at_one_moment(tables: Sequence[Table], target: Table | None = None, if_version: int | None = None) -> Mapping[str, TableSnapshot]:
    """The latest versions of several tables, at one moment; of the `target` the version after which the statement is to commit, if any."""
    by_location = {each.location: each for each in tables}
    if target is not None and if_version is not None and by_location.pop(target.location, None) is not None:
        return {**at_one_moment(list(by_location.values())), target.location: target.snapshot(if_version)}
    if len(by_location) == 1:
        return {location: table.snapshot() for location, table in by_location.items()}
    return dict(zip(by_location, read_together(list(by_location.values())), strict=True)) if by_location else {}


def latest(request: Request, relations: Sequence[Relation]) -> list[Source]:
    """What a query reads whose tables are all read as of one moment."""
    ours = relations_of_sluice(request, relations)
    return sources_of(request, ours, at_one_moment(current_tables(ours)))


def without_rows(request: Request, relations: Sequence[Relation]) -> list[Source]:
    """The same for a query that is only resolved: the latest columns of its tables."""
    ours = relations_of_sluice(request, relations)
    return sources_of(request, ours, {each.location: each.struct for each in current_tables(ours)})
