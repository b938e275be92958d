"""CHECK constraints, column invariants, lengths of VARCHAR columns and generated columns, enforced on written rows.

The first two must be TRUE for every row: null is a violation, too. `schema.conform` checks NOT NULL. If sluice cannot evaluate a
constraint exactly as Spark would, it does not write the table. A generated column must equal its expression, or both are null.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import takewhile

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from ..actions import Metadata
from ..dataclass import dataclass
from ..errors import ConstraintViolated, PredicateError, UnsupportedFeature
from ..expressions.nodes import columns
from ..pruning.predicate import Predicate
from ..schema.datatypes import StructType, fields_inside, generated_of
from ..schema.sqltypes import ELEMENTS, KEYS, column_type_sql, length_limit, nested_limits, quoted_name

_CHECK_PREFIX = "delta.constraints."
INVARIANTS_KEY = "delta.invariants"
_GENERATED = "generated column"


@dataclass(frozen=True, slots=True)
class TextsInside:
    """The condition that texts inside a column, to which the steps lead, have at most `limit` characters."""

    column: str
    steps: tuple[str | int, ...]
    limit: int

    @property
    def columns(self) -> frozenset[str]:
        """The columns it is about."""
        return frozenset({self.column})

    @property
    def path(self) -> tuple[str, ...]:
        """The texts' column, or the field of it that has them, as far as names lead."""
        return (self.column, *map(str, takewhile(lambda step: isinstance(step, str), self.steps)))

    def mask(self, table: pa.Table) -> pa.BooleanArray:
        """For each row, whether it holds."""
        names = [name.lower() for name in table.column_names]
        return self._holds(table.column(names.index(self.column.lower())).combine_chunks(), self.steps)

    def _holds(self, values: pa.Array, steps: tuple[str | int, ...]) -> pa.BooleanArray:
        if not steps:
            return pc.fill_null(pc.less_equal(pc.utf8_length(values), self.limit), True)
        if isinstance(steps[0], str):
            return self._holds(pc.struct_field(values, steps[0]), steps[1:])
        if steps[0] != ELEMENTS:
            values = pa.ListArray.from_arrays(values.offsets, values.keys if steps[0] == KEYS else values.items)
        broken = pc.list_parent_indices(values).filter(pc.invert(self._holds(pc.list_flatten(values), steps[1:])))
        return pc.invert(pc.is_in(pa.array(range(len(values)), broken.type), value_set=broken))


@dataclass(frozen=True, slots=True)
class Constraint:
    """A named condition; `expression` is the SQL in the table's metadata."""

    name: str
    expression: str
    predicate: Predicate | TextsInside

    @property
    def paths(self) -> Collection[tuple[str, ...]]:
        """The columns, or fields inside of them, that it names."""
        return columns(self.predicate.root) if isinstance(self.predicate, Predicate) else {self.predicate.path}


@dataclass(frozen=True, slots=True)
class Constraints:
    """All constraints of a table."""

    constraints: tuple[Constraint, ...]

    @classmethod
    def of(cls, schema: StructType, metadata: Metadata) -> Constraints:
        """The constraints in the table's metadata. Raises UnsupportedFeature, with the reason, for one that cannot be evaluated."""
        listed = [
            (key[len(_CHECK_PREFIX) :], expression)
            for key, expression in sorted(metadata.configuration.items())
            if key.lower().startswith(_CHECK_PREFIX)
        ]
        for path, field in fields_inside(schema):
            if INVARIANTS_KEY not in field.metadata:
                continue
            text = field.metadata[INVARIANTS_KEY]
            try:
                expression = orjson.loads(text)["expression"]["expression"]
            except (orjson.JSONDecodeError, KeyError, TypeError):
                expression = None
            if not isinstance(expression, str):
                raise UnsupportedFeature(
                    f"the invariant of column {path} is {text!r}, and not an SQL expression as Delta defines them: write with Spark",
                    features=("invariants",),
                    access="write",
                    column=path,
                )
            listed.append((f"invariant of {path}", expression))
        for field in schema.fields:
            if (limit := length_limit(field)) is not None:
                name = quoted_name(field.name)
                listed.append((f"{column_type_sql(field)} of {field.name}", f"{name} IS NULL OR length({name}) <= {limit}"))
        texts = [
            Constraint(f"length of {name}", f"{name} IS NULL OR length({name}) <= {limit}", TextsInside(field.name, steps, limit))
            for field in schema.fields
            for name, steps, limit in nested_limits(field)
        ]
        return cls((*(_constraint(name, expression, schema) for name, expression in listed), *texts))

    @classmethod
    def of_generated(cls, schema: StructType) -> Constraints:
        """That generated columns have the values of their expressions. Raises UnsupportedFeature for one that only Spark evaluates."""
        found = [(each.name, text) for each in schema.fields if (text := generated_of(each)) is not None]
        return cls(tuple(_constraint(f"{_GENERATED} {name}", f"{quoted_name(name)} <=> ({text})", schema) for name, text in found))

    def __add__(self, other: Constraints) -> Constraints:
        return Constraints((*self.constraints, *other.constraints))

    def check(self, table: pa.Table) -> None:
        """Raise ConstraintViolated, naming the constraint and the first row that breaks it, unless every row satisfies all."""
        for constraint in self.constraints:
            try:
                broken = pc.invert(pc.fill_null(constraint.predicate.mask(table), False))
            except PredicateError as error:
                raise ConstraintViolated(
                    f"the constraint {constraint.name} ({constraint.expression}) cannot be evaluated for every row: {error.message}",
                    constraint=constraint.name,
                    expression=constraint.expression,
                ) from error
            row = pc.index(broken, True).as_py()
            if row < 0:
                continue
            by_name = {name.lower(): index for index, name in enumerate(table.column_names)}
            values = {name: table.column(by_name[name.lower()])[row].as_py() for name in sorted(constraint.predicate.columns)}
            shown = ", ".join(f"{name} = {value!r}" for name, value in values.items())
            is_generated, count = constraint.name.startswith(_GENERATED), pc.sum(broken).as_py()
            remedy = "leave the column out, and it is computed" if is_generated else "correct or leave out those rows"
            raise ConstraintViolated(
                f"row {row} breaks the constraint {constraint.name} ({constraint.expression}): {shown or 'it is never true'};"
                f" {count} of {table.num_rows} rows break it; {remedy}",
                constraint=constraint.name,
                expression=constraint.expression,
                row=row,
                values=values,
                count=count,
            )


def _constraint(name: str, expression: str, schema: StructType) -> Constraint:
    try:
        return Constraint(name, expression, Predicate.parse(expression, schema))
    except PredicateError as error:
        feature = (
            "generatedColumns" if name.startswith(_GENERATED) else "invariants" if name.startswith("invariant") else "checkConstraints"
        )
        remedy = "write with Spark" if feature == "generatedColumns" else "drop the constraint or write with Spark"
        raise UnsupportedFeature(
            f"sluice cannot enforce the constraint {name} ({expression}), so it does not write this table: {error.message}; {remedy}",
            features=(feature,),
            access="write",
            constraint=name,
            expression=expression,
        ) from error
