"""Creates tables by a definition, whose columns statements give, or opens the existing ones that it allows."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from ...coordinator.api import DEFAULT_TIMEOUT_S, bounding
from ...storage.dataclass import dataclass
from ...storage.errors import InvalidRequest, SchemaMismatch, TableNotFound
from ...storage.schema.computed import DEFAULT_KEY, GENERATED_KEY
from ...storage.schema.datatypes import StructField, StructType
from ...storage.schema.sqltypes import LENGTH_KEY, parse_sql_type
from ...tables.catalog import Catalog
from ...tables.client.address import TableAddress
from ...tables.manage.creation import TableArgs, beside_others, create, new_table
from ...tables.table import Table
from ..parse.columns import Column
from ..places import exists, opened
from ..request import Place, Request


@dataclass(frozen=True, slots=True)
class Definition:
    """A table to make: `how` is "create", "createIfNotExists", "replace" or "createOrReplace"."""

    how: str
    name: str | None
    location: str | None
    schema: StructType
    partition_by: tuple[str, ...]
    properties: dict[str, str]
    comment: str | None
    cluster_by: tuple[str, ...] = ()

    @property
    def described(self) -> TableArgs:
        """What the table is, beside its schema, whose spelling its columns have: case does not count in Spark."""
        spelled = [(name, self.schema.get(name)) for name in self.partition_by]
        return {
            "partition_by": [name if field is None else field.name for name, field in spelled],
            "cluster_by": self.cluster_by,
            "properties": self.properties,
            "comment": self.comment,
        }


def made(place: Place, definition: Definition) -> Table:
    """The table of a path, as the definition says.

    Raises TableExists, TableNotFound, SchemaMismatch, InvalidRequest, UnsupportedFeature.
    """

    def attempt() -> Table:
        if definition.how != "create" and exists(place):
            return _adapted(opened(place), definition)
        if definition.how == "replace":
            raise _lacking(place.location)
        address = TableAddress.of(place.location, place.coordinator, place.storage_options)
        with bounding(DEFAULT_TIMEOUT_S) as limit:
            access, _ = create(address, new_table(definition.schema, **definition.described), timeout_s=limit)
        return Table(access)

    return settled(definition.how, attempt, lambda: exists(place))


def named(catalog: Catalog, definition: Definition) -> Table:
    """The table of a name, as the definition says; at its location, or else where the catalog keeps its own. Raises what `made` does."""
    name = definition.name or ""

    def attempt() -> Table:
        if definition.how != "create" and catalog.exists(name):
            return _adapted(catalog.open(name), definition)
        if definition.how == "replace":
            raise _lacking(name)
        return catalog.create(name, definition.schema, location=definition.location, **definition.described)

    return settled(definition.how, attempt, lambda: catalog.exists(name))


T = TypeVar("T")


def settled(how: str, attempt: Callable[[], T], exists: Callable[[], bool]) -> T:
    """What `attempt` gives; of several clients that create a table at once, only those that ask for a new one raise TableExists."""
    if how in ("create", "replace"):
        return attempt()
    return beside_others(attempt, exists, replaces=how == "createOrReplace")


def _lacking(name: str) -> TableNotFound:
    return TableNotFound(f"the table {name}, which is to be replaced, cannot be found: createOrReplace makes it", name=name)


def _adapted(table: Table, definition: Definition) -> Table:
    """The table that is there: as it is, or replaced with all its rows in one commit."""
    if definition.how == "createIfNotExists":
        return table
    table.replace(definition.schema, create=definition.how == "createOrReplace", **definition.described)
    return table


_FEATURES: Final = {"IDENTITY": "identityColumns"}
_VARCHAR: Final = re.compile(r"\s*varchar\s*\(\s*([1-9][0-9]{0,8})\s*\)\s*", re.IGNORECASE)
_LIMITED: Final = re.compile(r"\b(?:var)?char(?:acter)?\s*\(", re.IGNORECASE)


def struct_of(request: Request, columns: Sequence[Column]) -> StructType:
    """The columns as a schema. Raises InvalidRequest for one without a type, and for what sluice does not keep."""
    return StructType(field_of(request, each) for each in columns)


def field_of(request: Request, column: Column) -> StructField:
    """A column of a schema."""
    if column.refused is not None:
        words, at = column.refused
        feature = _FEATURES.get(words)
        why = (
            f"a column's {words} needs the table feature {feature}, which sluice does not write yet"
            if feature
            else f"sluice keeps no {words}"
        )
        raise request.unsupported(at, f"{why}: leave it out, and compute values in the query", feature or words)
    if column.type is None:
        raise InvalidRequest(f"column {column.name!r} has no type; write it as {column.name} BIGINT", column=column.name)
    written = column.type.of(request.text)
    limited = _VARCHAR.fullmatch(written)
    if limited is None and _LIMITED.search(written):
        said = "sluice keeps the length of a whole column, and pads no text: write VARCHAR(n), or STRING inside of others"
        raise request.unsupported(column.type, said, "CHAR(n), and VARCHAR(n) in structs, arrays and maps")
    try:
        kind = parse_sql_type(written)
    except SchemaMismatch as error:
        raise request.error(SchemaMismatch, column.type, error.message, **error.details) from error
    metadata = {} if column.comment is None else {"comment": column.comment}
    if limited is not None:
        metadata[LENGTH_KEY] = f"varchar({limited[1]})"
    for key, place in ((DEFAULT_KEY, column.default), (GENERATED_KEY, column.generated)):
        if place is not None:
            metadata[key] = request.expression(place)
    return StructField(column.name, kind, column.nullable, metadata)
