"""New values for rows: the SET of an UPDATE or of an upsert, and what a writer fills in.

Expressions are Spark SQL over the old row. All of them are evaluated before any takes effect, so `a = b, b = a` swaps.
Their results are cast to the column's type, as Delta's UPDATE does: texts, too, into other types, with an error for a value that does
not fit. A column's default is stored by Spark's ANSI store assignment: among numbers, among dates and timestamps, and as text, but never
from text to another type. `current_timestamp()`, `current_date()` and the like have one
value for the whole update, taken when it is parsed, as in Spark: a repeated commit writes the same rows.

A writer fills in defaults of columns, and columns generated from others (`schema.datatypes` names them), evaluated in the same way with UTC
as the time zone. `check_definitions` decides which ones a table may have.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timezone
from typing import TYPE_CHECKING

import pyarrow as pa

from ..caches import LazyProperty
from ..dataclass import dataclass
from ..errors import InvalidRequest, NullNotAllowed, PredicateError, SchemaMismatch, UnsupportedFeature
from ..expressions import types
from ..expressions.casts import check as check_cast
from ..expressions.casts import converted
from ..expressions.evaluate import run
from ..expressions.nodes import Cast, Column, Node, columns
from ..expressions.sql import outline_of, parse
from ..schema.conform import conform
from ..schema.datatypes import (
    VARIANT,
    StructField,
    StructType,
    as_nullable,
    default_of,
    generated_of,
    is_filled,
    is_identity,
    nested_with_value,
    to_give,
    types_inside,
)
from ..schema.schema import arrow_type, from_arrow, to_arrow
from ..schema.sqltypes import type_sql

if TYPE_CHECKING:
    from ..expressions.parse import Outline

_ONE_ROW = pa.table({"row": [0]})


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
        value = next((each for each in found.drop_null().to_pylist() if converted(each, kind) is None), None)
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

    @LazyProperty
    def columns(self) -> tuple[str, ...]:
        """The assigned columns, as the schema spells them."""
        return tuple(each.column.name for each in self.assignments)

    @LazyProperty
    def reads(self) -> frozenset[str]:
        """The columns whose old values the new ones depend on."""
        return frozenset(path[0] for each in self.assignments for path in columns(each.node))

    def apply(self, rows: pa.Table) -> pa.Table:
        """The rows with the new values. They must have all columns that are set or read, with the schema's names and types.

        Raises PredicateError if a row cannot be evaluated, SchemaMismatch if a value does not fit its column or is null and must not be.
        """
        for name, kind, column in [(each.column.name, each.type, each.of(rows)) for each in self.assignments]:
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
    among_moments = source in types.MOMENTS and target in types.MOMENTS
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


@dataclass(frozen=True)
class Filling:
    """The columns that rows lack and their writer fills in."""

    schema: StructType
    defaults: tuple[Assignment, ...]
    generated: tuple[Assignment, ...]

    @classmethod
    def of(cls, schema: StructType, given: Collection[str], now: datetime) -> Filling:
        """The columns that rows with the columns `given` lack, but for identity columns, which are numbered; `now`, a time with a zone, is
        the value of `current_timestamp()`.

        Raises UnsupportedFeature for an expression that only Spark evaluates.
        """
        names = {each.lower() for each in given}
        lacking = [each for each in schema.fields if each.name.lower() not in names and is_filled(each) and not is_identity(each)]
        generated = [_computed(each, schema) for each in lacking if generated_of(each) is not None]
        defaults: list[Assignment] = []
        for each in lacking:
            if generated_of(each) is None:
                text = default_of(each) or ""
                task = f"evaluate the DEFAULT {text} of column {each.name!r}"
                with _evaluated(each, text, "allowColumnDefaults", task, "give the column, or "):
                    defaults.append(assignment(each, text, StructType(()), now))
        return cls(schema, tuple(defaults), tuple(generated))

    def apply(self, rows: pa.Table | pa.RecordBatch) -> pa.Table | pa.RecordBatch:
        """The rows with those columns. Raises SchemaMismatch for rows that do not fit the table, PredicateError for one that fails."""
        if not self.defaults and not self.generated:
            return rows
        table = rows if isinstance(rows, pa.Table) else pa.Table.from_batches([rows])
        for each in self.defaults:
            table = table.append_column(each.column.name, pa.repeat(each.of(_ONE_ROW)[0], table.num_rows))
        if self.generated:
            table = conform(table, to_give(self.schema, table.column_names))
            for name, column in [(each.column.name, each.of(table)) for each in self.generated]:
                table = table.append_column(name, column)
        return table


def renewing(schema: StructType, assigned: Collection[str]) -> Assignments:
    """The generated columns, except those `assigned`, computed anew. Raises UnsupportedFeature for one that only Spark evaluates."""
    return Assignments(
        tuple(_computed(each, schema) for each in schema.fields if generated_of(each) is not None and each.name not in assigned)
    )


def _computed(field: StructField, schema: StructType) -> Assignment:
    text = generated_of(field) or ""
    with _evaluated(field, text, "generatedColumns", f"compute column {field.name!r}, which is GENERATED ALWAYS AS ({text})"):
        return assignment(field, text, schema)


@contextmanager
def _evaluated(field: StructField, text: str, feature: str, task: str, remedy: str = "") -> Iterator[None]:
    try:
        yield
    except (PredicateError, SchemaMismatch) as error:
        raise UnsupportedFeature(
            f"sluice cannot {task}: {error.message}; {remedy}write with Spark",
            features=(feature,),
            access="write",
            column=field.name,
            expression=text,
        ) from error


def check_definitions(schema: StructType) -> None:
    """Raise InvalidRequest or SchemaMismatch, naming column, rule and remedy, unless columns may have these defaults and expressions.

    Of an expression that only Spark evaluates the columns are checked, and no type: Spark does that.
    """
    if (nested := nested_with_value(schema)) is not None:
        raise InvalidRequest(f"{nested} is inside a column: only columns of the table itself have defaults or are generated", column=nested)
    base = StructType(each for each in schema.fields if generated_of(each) is None and not is_identity(each))
    for each in schema.fields:
        default, generated = default_of(each), generated_of(each)
        if default is not None and generated is not None:
            raise InvalidRequest(
                f"column {each.name!r} has a DEFAULT and is GENERATED, too: its values are always made from other columns; leave the "
                "DEFAULT out",
                column=each.name,
            )
        # check: no-generated-variants
        if generated is not None and any(kind == VARIANT for _, kind in types_inside(each.type)):
            raise InvalidRequest(f"column {each.name!r} is {each.type}, and Delta generates no variants: write them", column=each.name)
        if default is not None:
            what = f"the DEFAULT of column {each.name!r}, {default},"
            outline = outline_of(default, clock=True)
            if outline.columns:
                named = ", ".join(sorted(outline.columns))
                raise InvalidRequest(
                    f"{what} refers to {named}: a default is one value for all rows; write a constant, or GENERATED ALWAYS AS ({default})",
                    column=each.name,
                    expression=default,
                )
            _require_one_value(each, what, default, outline)
            with _usable(each, what, default):
                assignment(each, default, StructType(()), datetime.now(timezone.utc)).of(_ONE_ROW)
        elif generated is not None:
            _check_generated(each, generated, base, schema)


def _check_generated(field: StructField, text: str, base: StructType, schema: StructType) -> None:
    what = f"the expression of generated column {field.name!r}, {text},"
    outline = outline_of(text, clock=False)
    if unknown := sorted(each for each in outline.columns if base.get(each) is None):
        others = [name for name in unknown if schema.get(name) is not None]
        rule = "which is generated itself" if others else "which the table lacks"
        raise InvalidRequest(
            f"{what} refers to {(others or unknown)[0]}, {rule}; it may refer to {', '.join(base.names) or 'no column'}",
            column=field.name,
            expression=text,
        )
    _require_one_value(field, what, text, outline)
    made: Assignment | None = None
    with _usable(field, what, text):
        made = assignment(field, text, base)
    if made is None:
        return
    [kind] = from_arrow(pa.schema([(field.name, made.node.type)])).fields
    if as_nullable(kind).type != as_nullable(field).type:
        declared, computed = type_sql(field.type), type_sql(kind.type)
        raise SchemaMismatch(
            f"column {field.name!r} is {declared}, and {text}, from which it is generated, is {computed}: "
            f"write CAST({text} AS {declared}), or make the column {computed}",
            column=field.name,
            expression=text,
        )


def _require_one_value(field: StructField, what: str, text: str, outline: Outline) -> None:
    if outline.several:
        raise InvalidRequest(f"{what} has {outline.several[0]}: it must be made of one row", column=field.name, expression=text)
    if outline.changing:
        raise InvalidRequest(
            f"{what} has {outline.changing[0]}, whose value changes from call to call: it must be the same for everybody at any time",
            column=field.name,
            expression=text,
        )


@contextmanager
def _usable(field: StructField, what: str, text: str) -> Iterator[None]:
    """Refuse an expression that fails, unless it may be one that Spark evaluates: it parses, and its columns are there."""
    try:
        yield
    except (PredicateError, SchemaMismatch) as error:
        if isinstance(error, SchemaMismatch) or "line" in error.details or "columns" in error.details:
            details = {**error.details, "column": field.name, "expression": text}
            raise type(error)(f"{what} cannot be used: {error.message}", **details) from error
