"""Predicates over the rows of a table: the WHERE of reads, deletes, overwrites and conflict checks.

A predicate has its meaning in Spark SQL's ANSI mode (see `expressions.evaluate`), with UTC as the session's time zone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from ..caches import cached_by_size
from ..dataclass import dataclass
from ..errors import InvalidRequest, PredicateError
from ..expressions import build
from ..expressions.evaluate import compile_expression, run
from ..expressions.nodes import And, Column, Literal, Node, columns, walk
from ..expressions.sql import parse, to_sql
from ..schema.mapping import is_mapped, logical_name
from ..schema.partitions import decode_value
from ..schema.schema import PrimitiveType, StructType, to_arrow
from .files import Files
from .skipping import Skipper, in_files

__all__ = ["Filter", "Predicate"]

# (operation, path of the column, value): operations are those of Spark's pushed filters, for example ("LessThan", ("a",), 3),
# ("In", ("a", "b"), [1, 2]), ("IsNull", ("a",), None), and ("Not", (), another filter).
Filter: TypeAlias = tuple[str, Sequence[str], Any]

# A tree takes some hundred times the memory of its text, and conditions may be long: a dynamic overwrite names thousands of
# partitions.
_PARSED_BYTES_MAX: Final = 64 * 1024 * 1024

_COMPARISONS = {
    "EqualTo": "=",
    "EqualNullSafe": "<=>",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
}
_SEARCHES = {"StringStartsWith": "startswith", "StringEndsWith": "endswith", "StringContains": "contains"}


@dataclass(frozen=True, slots=True)
class Predicate:
    """A checked condition over a table's columns. Immutable; equal if its tree is."""

    root: Node

    @classmethod
    def parse(cls, sql: str, schema: StructType) -> Predicate:
        """The condition `sql`, as in a WHERE clause of Spark SQL; names ignore case. Raises PredicateError if it does not parse, names an
        unknown column, is not a condition, or cannot be evaluated exactly.
        """
        if not isinstance(sql, str):
            raise PredicateError(f'the condition is {sql!r}, which is no text; write one as in a WHERE clause, such as "delay > 0"')
        return _parse(sql, schema)

    @classmethod
    def from_filters(cls, filters: Iterable[Filter], schema: StructType) -> Predicate:
        """The conjunction of filters as Spark pushes them down; no filters are TRUE. Raises PredicateError for an unusable one."""
        arrow = to_arrow(schema)
        return cls(build.and_(*[_filter(each, arrow) for each in filters]))

    @classmethod
    def in_partitions(cls, places: Iterable[Mapping[str, str | None]], schema: StructType) -> Predicate:
        """True exactly in the partitions with these values, as actions have them; no places are FALSE."""
        partitions: list[Node] = []
        for place in dict.fromkeys(tuple(place.items()) for place in places):
            terms: list[Node] = []
            for in_log, text in place:
                name = logical_name(in_log, schema)
                column, field = build.column((name,), to_arrow(schema)), schema.get(name)
                if field is None or not isinstance(field.type, PrimitiveType):
                    raise PredicateError(f"the column {name!r} cannot be a partition column: it is no plain value", column=name)
                value = decode_value(text, field.type)
                # at the column's own type: compared with a string, a DECIMAL or FLOAT would be converted to DOUBLE
                terms.append(build.is_null(column) if value is None else build.compare("=", column, Literal(value, column.type)))
            partitions.append(build.and_(*terms))
        return cls(build.or_(*partitions))

    @classmethod
    def over_partitions(cls, sql: str, schema: StructType, partition_columns: Sequence[str], why: str) -> Predicate:
        """The condition `sql`, which must depend on partition columns alone; `why` says so in the error. Raises PredicateError, and
        InvalidRequest for a condition that depends on rows.
        """
        predicate = cls.parse(sql, schema)
        _, rest = predicate.split(partition_columns)
        if rest is not None:
            columns = ", ".join(partition_columns)
            remedy = f"name its partition columns ({columns}) only" if columns else "leave it out, the table has no partitions"
            raise InvalidRequest(f"where={sql!r}: {why}, but {rest.to_sql()} depends on rows; {remedy}", where=sql)
        return predicate

    @property
    def columns(self) -> frozenset[str]:
        """The top-level columns it reads, in the schema's spelling."""
        return frozenset({path[0] for path in columns(self.root)})

    def physical(self, schema: StructType) -> Predicate:
        """The condition over the columns of files, see `schema.mapping`."""
        return Predicate(in_files(self.root, schema)) if is_mapped(schema) else self

    def and_(self, other: Predicate) -> Predicate:
        """The conjunction of both."""
        return Predicate(build.and_(self.root, other.root))

    def or_(self, other: Predicate) -> Predicate:
        """The disjunction of both."""
        return Predicate(build.or_(self.root, other.root))

    @staticmethod
    def all_of(parts: Iterable[Predicate | None]) -> Predicate | None:
        """The conjunction of those that are known; None if none is."""
        predicates = [each for each in parts if each is not None]
        return reduce(Predicate.and_, predicates) if predicates else None

    @staticmethod
    def any_of(parts: Iterable[Predicate | None]) -> Predicate | None:
        """The disjunction of all; None, which always holds, if one of them is None, or if there is none."""
        either = list(parts)
        return None if None in either or not either else reduce(Predicate.or_, (each for each in either if each is not None))

    def split(self, partition_columns: Iterable[str]) -> tuple[Predicate | None, Predicate | None]:
        """The conjuncts that read partition columns only, and the others; their conjunction is this predicate."""
        partitions = frozenset(partition_columns)
        inside: list[Node] = []
        rest: list[Node] = []
        for term in self.root.terms if isinstance(self.root, And) else (self.root,):
            (inside if all(path[0] in partitions for path in columns(term)) else rest).append(term)
        one, other = (Predicate(build.and_(*terms)) if terms else None for terms in (inside, rest))
        return one, other

    def mask(self, table: pa.Table) -> pa.BooleanArray:
        """TRUE, FALSE or null for every row; only TRUE selects it. `table` has the schema's columns, or at least `columns`. Raises
        PredicateError if a row cannot be evaluated (division by zero, overflow, a cast that fails).
        """
        names = sorted(self.columns)
        # If only the representation of the table's columns differs, they are cast.
        kinds = {part.path: part.type for part in walk(self.root) if isinstance(part, Column)}
        lowered = [name.lower() for name in table.column_names]
        read = []
        for name in names:
            index = table.schema.get_field_index(name)
            if index < 0:
                index = lowered.index(name.lower()) if name.lower() in lowered else -1
            if index < 0:
                raise PredicateError(
                    f"the data has no column {name!r}, which the predicate reads; it has {', '.join(table.column_names)}", column=name
                )
            values, kind = table.column(index), kinds.get((name,))
            read.append(values if kind is None or values.type == kind else values.cast(kind))
        return run(self.root, pa.table(read, names=names) if names else table)

    def to_arrow(self) -> pc.Expression:
        """A pyarrow dataset's filter, sound for pruning by statistics; a scan raises ArrowInvalid or PredicateError where `mask` raises."""
        return compile_expression(self.root)

    def may_match(self, files: pa.Table, *, schema: StructType, partition_columns: Sequence[str]) -> pa.BooleanArray:
        """For every row of a snapshot's file table: false if, by partition values and statistics, no row of that file can match."""
        return Skipper(self.root, schema, partition_columns).may_match(Files.of_table(files))

    def matches_all(self, files: pa.Table, *, schema: StructType, partition_columns: Sequence[str]) -> pa.BooleanArray:
        """For every row of a snapshot's file table: true only if every row of that file certainly matches."""
        return Skipper(self.root, schema, partition_columns).matches_all(Files.of_table(files))

    def to_sql(self) -> str:
        """SQL that parses to an equal predicate over the same schema."""
        return to_sql(self.root)

    __str__ = to_sql


@cached_by_size(_PARSED_BYTES_MAX)
def _parse(sql: str, schema: StructType) -> Predicate:
    node = parse(sql, to_arrow(schema))
    try:
        return Predicate(build.require_boolean(node))
    except PredicateError as error:
        raise PredicateError(f"the predicate {sql!r} cannot be used: {error.message}", **{**error.details, "predicate": sql}) from None


def _filter(each: Filter, schema: pa.Schema) -> Node:
    operation, path, value = each
    if operation == "Not":
        return build.not_(_filter(value, schema))
    column = build.column(tuple(path), schema)
    if operation in _COMPARISONS:
        return build.compare(_COMPARISONS[operation], column, build.literal(value))
    if operation in _SEARCHES:
        return build.call(_SEARCHES[operation], [column, build.literal(value)])
    match operation:
        case "In":
            return build.in_(column, [build.literal(option) for option in value])
        case "IsNull":
            return build.is_null(column)
        case "IsNotNull":
            return build.not_(build.is_null(column))
    known = ", ".join([*_COMPARISONS, *_SEARCHES, "In", "IsNull", "IsNotNull", "Not"])
    raise PredicateError(f"the filter {operation} is not known: leave it to Spark; known are {known}", filter=operation)
