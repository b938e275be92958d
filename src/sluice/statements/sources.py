"""What a statement reads: for each table of sluice in it a version, rows of an open transaction, or the changes between two versions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

from ..storage.dataclass import dataclass
from ..storage.schema.datatypes import StructType
from ..tables.client.address import time_of_digits
from ..tables.joint_transaction import read_together
from ..tables.read.table_snapshot import TableSnapshot
from ..tables.table import Table
from ..tables.transaction import Transaction
from .parse.cursor import Span
from .parse.relations import Between, Relation
from .places import SluiceRelation, relations_of_sluice
from .request import Request

_DIGITS: Final = len("yyyyMMddHHmmssSSS")


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
    """The version, or the changes, that a relation asks for."""
    if relation.changes is not None:
        return _table_changes(request, relation, relation.changes.arguments[1:])
    if relation.between is not None:
        return _between(request, relation.between)
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
        said = "table_changes takes a table's name, a first version or time, and a last one if there is one"
        raise request.refused(relation.name, said)
    read: list[Bound] = []
    for each in bounds:
        value = request.evaluate(each)
        if isinstance(value, int) and not isinstance(value, bool):
            read.append(Bound("version", request.version(each, value)))
        else:
            read.append(Bound("timestamp", request.milliseconds(each)))
    first, *last = read
    return ChangeRange(Bound(first.by, first.value - 1), last[0] if last else None)


def _between(request: Request, between: Between) -> ChangeRange:
    by = "version" if between.is_version else "timestamp"
    after, up_to = (
        int(request.value(each, "BIGINT")) if between.is_version else request.milliseconds(each) for each in (between.after, between.up_to)
    )
    if after > up_to:
        raise request.refused(between.up_to, f"this is before the first bound, {after}: give the earlier one first")
    return ChangeRange(Bound(by, after), Bound(by, up_to))


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
