"""What a table's schema becomes by rows of other columns or wider types, and by a change of a column's type."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from ...coordinator.rules.intent import table_policy
from ...storage.actions import Metadata
from ...storage.actions.features import check_writable, refuse_reserved, widens_types
from ...storage.data.constraints import Constraints
from ...storage.errors import InvalidRequest
from ...storage.expressions.sql import outline_of
from ...storage.log.snapshot import Snapshot
from ...storage.schema.datatypes import PrimitiveType, generated_of, types_inside
from ...storage.schema.schema import StructType, merge, retyped
from ...storage.schema.sqltypes import type_sql
from ...storage.schema.widening import WIDENING_KEY, widened, widens
from .draft import Draft

_WIDER: Final = (
    "TINYINT, SMALLINT, INT and BIGINT in this order; all but BIGINT to DOUBLE; these to DECIMAL(10,0), BIGINT to DECIMAL(20,0), or wider; "
    "DECIMAL, if no digit is lost; FLOAT to DOUBLE; DATE to TIMESTAMP_NTZ"
)


def types_for(base: Snapshot | Draft, schema: StructType, data: StructType) -> StructType:
    """The schema with the types that become wider when such data are written and the schema may change."""
    return widened(schema, data, by_itself=True) if widens_types(base.protocol, base.metadata) else schema


def evolved(base: Snapshot | Draft, metadata: Metadata, data: StructType) -> Metadata:
    """The metadata with the new columns of the data and their wider types; the same object if there are none. Raises InvalidRequest."""
    schema = metadata.schema
    wider = types_for(base, schema, data)
    _require_free(metadata, schema, wider)
    merged = merge(wider, widened(data, wider))
    if merged == schema:
        return metadata
    refuse_reserved(metadata.configuration, merged)
    check_writable(base.protocol, changed := metadata.with_schema(merged))
    return changed


def with_type(base: Snapshot, schema: StructType, path: Sequence[str], dtype: PrimitiveType) -> StructType:
    """The schema in which the part at the path (arrays: `element`, maps: `key` and `value`) has a wider type.

    Raises InvalidRequest, naming the types, unless the table may widen it so.
    """
    target, old = retyped(schema, path, dtype)
    name = ".".join(path)
    if old == dtype:
        return schema
    said = f"column {name} is {type_sql(old)} and cannot become {type_sql(dtype)}"
    if not isinstance(old, PrimitiveType) or not widens(old, dtype):
        raise InvalidRequest(
            f"{said}: types only become wider ({_WIDER}). Add a column of that type, or write the table anew with CREATE OR REPLACE TABLE "
            "... AS SELECT",
            column=name,
        )
    if not widens_types(base.protocol, base.metadata):
        preview = "typeWidening-preview" in (base.protocol.writer_features or ())
        remedy = "drop its feature typeWidening-preview with Delta Lake first" if preview else f"set its property {WIDENING_KEY} to true"
        raise InvalidRequest(f"{said}, because the table does not widen types: {remedy}", column=name, property=WIDENING_KEY)
    wider = widened(schema, target)
    _require_free(base.metadata, schema, wider)
    return wider


def _require_free(metadata: Metadata, old: StructType, new: StructType) -> None:
    """Raise InvalidRequest if a type was changed on whose values something else depends, in the way that it has them."""
    if old == new:
        return
    before = dict(types_inside(old))
    changed = [path for path, dtype in types_inside(new) if isinstance(dtype, PrimitiveType) and before[path] != dtype]
    for what, named in _dependents(metadata, old):
        for path in changed:
            if f"{path}.".lower().startswith(f"{named}.".lower()) or f"{named}.".lower().startswith(f"{path}.".lower()):
                # check: what-depends-keeps-its-type
                raise InvalidRequest(f"the type of column {path} cannot change: {what} depends on it; take that away first", column=path)
    for name in metadata.partition_columns if table_policy(metadata.configuration).by_classes else ():
        if name in changed:
            raise InvalidRequest(
                f"the type of column {name} cannot change: the conflict policy compares partitions by the texts of their values, which "
                "another type writes differently",
                column=name,
            )


def _dependents(metadata: Metadata, schema: StructType) -> Iterator[tuple[str, str]]:
    """What depends on a column, and the column's path."""
    for each in Constraints.of(schema, metadata).constraints:
        yield from ((f"the constraint {each.name} ({each.expression})", ".".join(path)) for path in each.paths)
    for field in schema.fields:
        if (text := generated_of(field)) is not None:
            yield from ((f"the generated column {field.name} ({text})", each) for each in outline_of(text, clock=False).columns)
