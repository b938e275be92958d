"""New values for rows: the SET of an UPDATE or of an upsert.

Expressions are Spark SQL over the old row. All of them are evaluated before any takes effect, so `a = b, b = a` swaps.
Their results are cast to the column's type, as Delta's UPDATE does: texts, too, into other types, with an error for a value that does
not fit. A column's default is stored by Spark's ANSI store assignment: among numbers, among dates and timestamps, and as text, but never
from text to another type. `current_timestamp()`, `current_date()` and the like have one
value for the whole update, taken when it is parsed, as in Spark: a repeated commit writes the same rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone
from functools import cached_property

import pyarrow as pa

from ..dataclass import dataclass
from ..errors import InvalidRequest, NullNotAllowed, PredicateError, SchemaMismatch
from ..expressions import types, values
from ..expressions.evaluate import check_cast, run
from ..expressions.nodes import Cast, Column, Node, Value, columns
from ..expressions.sql import parse
from ..schema.schema import StructField, StructType, arrow_type, to_arrow

_MOMENTS = (pa.date32(), types.TIMESTAMP, types.TIMESTAMP_NTZ)


@dataclass(frozen=True)
class Assignment:
    """`column` gets the value of `node`, which is `expression` in SQL, cast to `type`."""

    column: StructField
    expression: str
    node: Node
    type: pa.DataType

    def of(self, rows: pa.Table) -> pa.Array:
        """The new values. Raises PredicateError if a row cannot be evaluated, SchemaMismatch if its value cannot be stored."""
        name = self.column.name
        if not rows.num_rows:
            return pa.array([], self.type)
        try:
            found = run(self.node, rows)
        except PredicateError as error:
            said = f"column {name!r} cannot be set to {self.expression!r}: {error.message}"
            raise PredicateError(said, **{**error.details, "column": name}) from None
        stored = cast_to(name, self.type, found, self.expression)
        if not self.column.nullable and stored.null_count:
            raise NullNotAllowed(
                f"column {name!r} is NOT NULL, and {self.expression!r} is null for {stored.null_count} of {rows.num_rows} rows;"
                " exclude them with a condition, or give them a value with coalesce",
                column=name,
                count=stored.null_count,
            )
        return stored


def cast_to(name: str, kind: pa.DataType, found: pa.Array, expression: str) -> pa.Array:
    """The values of an expression in the type of the column `name`, cast as Spark casts them in ANSI mode.

    Raises SchemaMismatch for a value that does not fit, which it names, and PredicateError for a type that sluice cannot cast.
    """
    if found.type == kind:
        return found
    if pa.types.is_null(found.type):
        return pa.nulls(len(found), kind)
    check_cast(found.type, kind)
    try:
        return run(Cast(Column(("value",), found.type), kind), pa.table({"value": found}))
    except PredicateError as error:
        value = _first_that_fails(found, kind)
        raise SchemaMismatch(
            f"column {name!r} is {types.name(kind)}, and {value!r}, a value of {expression!r}, does not fit it:"
            " exclude such rows with a condition, or give a value that fits",
            column=name,
            value=value,
        ) from error


@dataclass(frozen=True)
class Assignments:
    """The assignments of an update; immutable."""

    assignments: tuple[Assignment, ...]

    @classmethod
    def parse(cls, assignments: Mapping[str, str], schema: StructType, *, now: datetime | None = None) -> Assignments:
        """The assignments column -> Spark SQL expression over the columns of `schema`; names ignore case.

        `now`, a time with a zone, is the value of `current_timestamp()` (by default the present). Raises InvalidRequest,
        SchemaMismatch or PredicateError, naming the cause: no assignments, an unknown column, a field of a struct, a column
        set twice, an expression that cannot be evaluated, a type that cannot be cast to the column's.
        """
        if not isinstance(assignments, Mapping) and assignments is not None:
            raise InvalidRequest(f"set is {assignments!r}; give a mapping of columns to expressions, such as {{'delay': 'delay + 1'}}")
        if not assignments:
            raise InvalidRequest("there is nothing to set: give at least one column with an expression")
        moment = datetime.now(timezone.utc) if now is None else now
        found: dict[str, Assignment] = {}
        for key, expression in assignments.items():
            field = _target(key, schema)
            if field.name in found:
                raise InvalidRequest(f"the column {field.name!r} is set twice (case does not count); set it once", column=field.name)
            found[field.name] = assignment(field, expression, schema, moment, casts=True)
        return cls(tuple(found.values()))

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The assigned columns, as the schema spells them."""
        return tuple(each.column.name for each in self.assignments)

    @cached_property
    def reads(self) -> frozenset[str]:
        """The columns whose old values the new ones depend on."""
        return frozenset(path[0] for each in self.assignments for path in columns(each.node))

    def apply(self, rows: pa.Table) -> pa.Table:
        """The rows with the new values. They must have all columns that are set or read, with the schema's names and types.

        Raises PredicateError if a row cannot be evaluated, SchemaMismatch if a value does not fit its column or is null and
        must not be.
        """
        values = [(each.column.name, each.type, each.of(rows)) for each in self.assignments]
        for name, kind, column in values:
            index = rows.schema.get_field_index(name)
            rows = rows.set_column(index, rows.schema.field(index).with_type(kind), column)
        return rows


def _target(key: str, schema: StructType) -> StructField:
    """The column that a key of the mapping names, with or without backquotes."""
    bare = key[1:-1].replace("``", "`") if len(key) > 1 and key.startswith("`") and key.endswith("`") else key
    field = schema.get(bare)
    if field is not None and not (field.name != bare and sum(name.lower() == bare.lower() for name in schema.names) > 1):
        return field
    top, dot, _ = key.partition(".")
    outer = schema.get(top.strip("`"))
    if dot and outer is not None:
        raise InvalidRequest(
            f"{key!r} is a field inside of column {outer.name!r}, and only whole columns can be set", column=outer.name, field=key
        )
    raise InvalidRequest(f"there is no column {key!r} to set; the columns are {', '.join(schema.names)}", column=key)


def assignment(field: StructField, expression: str, schema: StructType, now: datetime | None = None, *, casts: bool = False) -> Assignment:
    """The expression over the columns of `schema` as values of a column; see `Assignments.parse`, which raises the same.

    Without `casts` the type must be one that ANSI store assignment stores in the column.
    """
    if not isinstance(expression, str):
        raise InvalidRequest(
            f'column {field.name!r} is set to {expression!r}, which is not SQL text: write a string as "\'text\'", a number as "1"',
            column=field.name,
        )
    try:
        node = parse(expression, to_arrow(schema), noun="expression", now=now)
    except PredicateError as error:
        raise PredicateError(f"column {field.name!r} cannot be set: {error.message}", **{**error.details, "column": field.name}) from None
    target = arrow_type(field.type, field.name)
    _require_storable(field.name, expression, node.type, target, casts=casts)
    return Assignment(field, expression, node, target)


def _require_storable(name: str, expression: str, source: pa.DataType, target: pa.DataType, *, casts: bool) -> None:
    """Raise SchemaMismatch unless ANSI store assignment allows a `source` in a `target` column, or any cast may, and sluice can cast it."""
    if source == target or pa.types.is_null(source):
        return
    among_numbers = types.is_numeric(source) and types.is_numeric(target)
    among_moments = source in _MOMENTS and target in _MOMENTS
    if among_numbers or among_moments or (types.is_atomic(source) and (pa.types.is_string(target) or (casts and types.is_atomic(target)))):
        try:
            check_cast(source, target)
        except PredicateError as error:
            raise SchemaMismatch(f"column {name!r} cannot be set to {expression!r}: {error.message}", column=name) from None
        return
    remedy = f"write it as one, or CAST({expression} AS {types.name(target)})" if types.is_atomic(target) else "set it to a column like it"
    raise SchemaMismatch(
        f"column {name!r} is {types.name(target)}, and {expression!r} is {types.name(source)}, which needs an explicit cast: {remedy}",
        column=name,
    )


def _first_that_fails(found: pa.Array, target: pa.DataType) -> Value:
    """The first value that cannot be cast."""
    for candidate in found.drop_null().to_pylist():
        value: Value = candidate
        try:
            values.convert(value, target)
        except PredicateError:
            return value
    return None
