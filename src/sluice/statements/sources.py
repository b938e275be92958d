"""What a statement reads: for each table of sluice in it a version, rows of an open transaction, or the changes between two versions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

import pyarrow as pa

from ..storage.dataclass import dataclass
from ..storage.schema.datatypes import StructType
from ..storage.schema.schema import to_arrow
from ..tables.client.address import time_of_digits
from ..tables.joint_transaction import read_together
from ..tables.read.table_snapshot import TableSnapshot
from ..tables.table import Table
from ..tables.transaction import Transaction
from .parse.cursor import Span
from .parse.relations import AsOf, Between, Relation
from .places import SluiceRelation, relations_of_sluice
from .request import Request

_DIGITS: Final = len("yyyyMMddHHmmssSSS")


@dataclass(frozen=True, slots=True)
class TransactionRows:
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


Rows: TypeAlias = "TableSnapshot | TransactionRows | NoRows"


@dataclass(frozen=True, slots=True)
class Source:
    """A table of sluice in a query, and what of it is read."""

    relation: Relation
    table: Table
    rows: Rows | ChangeRange

    @property
    def columns(self) -> Sequence[str]:
        """The names of the table's columns."""
        return (self.table if isinstance(self.rows, ChangeRange) else self.rows).struct.names


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
    assert relation.as_of is not None
    return _as_of(request, table, relation.as_of)


def _as_of(request: Request, table: Table, as_of: AsOf) -> TableSnapshot:
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
    first, *last = (_bound(request, each) for each in bounds)
    return ChangeRange(Bound(first.by, first.value - 1), last[0] if last else None)


def _bound(request: Request, span: Span) -> Bound:
    value = request.evaluate(span)
    if isinstance(value, int) and not isinstance(value, bool):
        return Bound("version", request.version(span, value))
    return Bound("timestamp", request.milliseconds(span))


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
    return sources_of(request, ours, {each.location: NoRows(each.struct) for each in current_tables(ours)})
