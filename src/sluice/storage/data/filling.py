"""Values that a writer fills in: defaults of columns, and columns generated from others (`schema.computed` names them).

An expression is evaluated as in an UPDATE, with UTC as the time zone. `check_definitions` decides which ones a table may have.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone

import pyarrow as pa

from ..dataclass import dataclass
from ..errors import InvalidRequest, PredicateError, SchemaMismatch, UnsupportedFeature
from ..expressions.sql import outline_of
from ..schema.computed import default_of, generated_of, is_filled, nested_with_value
from ..schema.conform import conform
from ..schema.datatypes import StructField, StructType, as_nullable
from ..schema.schema import from_arrow
from ..schema.sqltypes import type_sql
from .assignments import Assignment, Assignments, assignment

_ONE_ROW = pa.table({"row": [0]})


@dataclass(frozen=True)
class Filling:
    """The columns that rows lack and their writer fills in."""

    schema: StructType
    defaults: tuple[Assignment, ...]
    generated: tuple[Assignment, ...]

    @classmethod
    def of(cls, schema: StructType, given: Collection[str], now: datetime) -> Filling:
        """The columns that rows with the columns `given` lack; `now`, a time with a zone, is the value of `current_timestamp()`.

        Raises UnsupportedFeature for an expression that only Spark evaluates.
        """
        names = {each.lower() for each in given}
        lacking = [each for each in schema.fields if each.name.lower() not in names and is_filled(each)]
        generated = [_computed(each, schema) for each in lacking if generated_of(each) is not None]
        defaults = [_default(each, now) for each in lacking if generated_of(each) is None]
        return cls(schema, tuple(defaults), tuple(generated))

    def apply(self, rows: pa.Table | pa.RecordBatch) -> pa.Table | pa.RecordBatch:
        """The rows with those columns. Raises SchemaMismatch for rows that do not fit the table, PredicateError for one that fails."""
        if not self.defaults and not self.generated:
            return rows
        table = rows if isinstance(rows, pa.Table) else pa.Table.from_batches([rows])
        for each in self.defaults:
            value = each.of(_ONE_ROW)[0]
            table = table.append_column(each.column.name, pa.repeat(value, table.num_rows))
        if self.generated:
            made = {each.column.name for each in self.generated}
            table = conform(table, StructType(each for each in self.schema.fields if each.name not in made))
            values = [(each.column.name, each.of(table)) for each in self.generated]
            for name, column in values:
                table = table.append_column(name, column)
        return table


def renewing(schema: StructType, assigned: Collection[str]) -> Assignments:
    """The generated columns of changed rows, but those `assigned`: computed again from the new values of other columns.

    Raises UnsupportedFeature for an expression that only Spark evaluates.
    """
    return Assignments(
        tuple(_computed(each, schema) for each in schema.fields if generated_of(each) is not None and each.name not in assigned)
    )


def _computed(field: StructField, schema: StructType) -> Assignment:
    text = generated_of(field) or ""
    with _evaluated(field, text, "generatedColumns", f"compute column {field.name!r}, which is GENERATED ALWAYS AS ({text})"):
        return assignment(field, text, schema)


def _default(field: StructField, now: datetime) -> Assignment:
    text = default_of(field) or ""
    with _evaluated(field, text, "allowColumnDefaults", f"evaluate the DEFAULT {text} of column {field.name!r}", "give the column, or "):
        return assignment(field, text, StructType(()), now)


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
    nested = nested_with_value(schema)
    if nested is not None:
        raise InvalidRequest(f"{nested} is inside a column: only columns of the table itself have defaults or are generated", column=nested)
    base = StructType(each for each in schema.fields if generated_of(each) is None)
    for each in schema.fields:
        default, generated = default_of(each), generated_of(each)
        if default is not None and generated is not None:
            raise InvalidRequest(
                f"column {each.name!r} has a DEFAULT and is GENERATED, too: its values are always made from other columns; leave the "
                "DEFAULT out",
                column=each.name,
            )
        if default is not None:
            _check_default(each, default)
        elif generated is not None:
            _check_generated(each, generated, base, schema)


def _check_default(field: StructField, text: str) -> None:
    what = f"the DEFAULT of column {field.name!r}, {text},"
    outline = outline_of(text, clock=True)
    if outline.columns:
        named = ", ".join(sorted(outline.columns))
        raise InvalidRequest(
            f"{what} refers to {named}: a default is one value for all rows; write a constant, or GENERATED ALWAYS AS ({text})",
            column=field.name,
            expression=text,
        )
    _check_outline(field, what, text, outline.changing, outline.several)
    try:
        assignment(field, text, StructType(()), datetime.now(timezone.utc)).of(_ONE_ROW)
    except PredicateError as error:
        if not _is_for_spark(error):
            raise _unusable(field, what, text, error) from error
    except SchemaMismatch as error:
        raise _unusable(field, what, text, error) from error


def _check_generated(field: StructField, text: str, base: StructType, schema: StructType) -> None:
    what = f"the expression of generated column {field.name!r}, {text},"
    outline = outline_of(text, clock=False)
    unknown = sorted(each for each in outline.columns if base.get(each) is None)
    if unknown:
        others = [name for name in unknown if schema.get(name) is not None]
        rule = "which is generated itself" if others else "which the table lacks"
        raise InvalidRequest(
            f"{what} refers to {(others or unknown)[0]}, {rule}; it may refer to {', '.join(base.names) or 'no column'}",
            column=field.name,
            expression=text,
        )
    _check_outline(field, what, text, outline.changing, outline.several)
    try:
        made = assignment(field, text, base)
    except PredicateError as error:
        if not _is_for_spark(error):
            raise _unusable(field, what, text, error) from error
        return
    except SchemaMismatch as error:
        raise _unusable(field, what, text, error) from error
    [kind] = from_arrow(pa.schema([(field.name, made.node.type)])).fields
    if as_nullable(kind).type != as_nullable(field).type:
        wanted, found = type_sql(field.type), type_sql(kind.type)
        raise SchemaMismatch(
            f"column {field.name!r} is {wanted}, and {text}, from which it is generated, is {found}: write CAST({text} AS {wanted}), or "
            f"make the column {found}",
            column=field.name,
            expression=text,
        )


def _check_outline(field: StructField, what: str, text: str, changing: Collection[str], several: Collection[str]) -> None:
    if several:
        raise InvalidRequest(f"{what} has {next(iter(several))}: it must be made of one row", column=field.name, expression=text)
    if changing:
        raise InvalidRequest(
            f"{what} has {next(iter(changing))}, whose value changes from call to call: it must be the same for everybody at any time",
            column=field.name,
            expression=text,
        )


def _is_for_spark(error: PredicateError) -> bool:
    """Whether an expression may be one that Spark evaluates: it parses, and its columns are there."""
    return "line" not in error.details and "columns" not in error.details


def _unusable(field: StructField, what: str, text: str, error: InvalidRequest) -> InvalidRequest:
    return type(error)(f"{what} cannot be used: {error.message}", **{**error.details, "column": field.name, "expression": text})
