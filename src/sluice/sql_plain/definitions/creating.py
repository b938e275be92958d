"""Creates tables by a definition, or opens the existing ones that it allows."""

from __future__ import annotations

from ...coordinator.facade.values import DEFAULT_TIMEOUT_S, SystemClock, bounding
from ...storage.dataclass import dataclass
from ...storage.errors import TableExists
from ...storage.schema.datatypes import StructType
from ...tables.catalog.catalog import Catalog
from ...tables.client.address import TableAddress
from ...tables.manage.creation import create
from ...tables.table import Table
from ..place import Place, exists, opened


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
    def partition_columns(self) -> tuple[str, ...]:
        """The columns to partition by, as the schema spells them: case does not count in Spark."""
        return tuple(name if found is None else found.name for name, found in ((each, self.schema.get(each)) for each in self.partition_by))


def made(place: Place, wanted: Definition) -> Table:
    """The table of a path, as the definition says.

    Raises TableExists, TableNotFound, SchemaMismatch, InvalidRequest, UnsupportedFeature.
    """
    if wanted.how == "replace" or (wanted.how != "create" and exists(place)):
        return _adapted(opened(place), wanted)
    address = TableAddress.of(place.location, place.coordinator, place.storage_options)
    try:
        with bounding(DEFAULT_TIMEOUT_S, SystemClock()) as limit:
            access, _ = create(
                address,
                wanted.schema,
                wanted.partition_columns,
                wanted.properties,
                cluster_by=wanted.cluster_by,
                comment=wanted.comment,
                timeout_s=limit,
            )
        return Table(access)
    except TableExists:
        if wanted.how == "create":
            raise
        return _adapted(opened(place), wanted)  # another client created it meanwhile


def named(catalog: Catalog, wanted: Definition) -> Table:
    """The table of a name, as the definition says; at its location, or else where the catalog keeps its own. Raises what `made` does."""
    name = wanted.name or ""
    if wanted.how == "replace" or (wanted.how != "create" and catalog.exists(name)):
        return _adapted(catalog.open(name), wanted)
    try:
        return catalog.create(
            name,
            wanted.schema,
            location=wanted.location,
            partition_by=wanted.partition_columns,
            cluster_by=wanted.cluster_by,
            properties=wanted.properties,
            comment=wanted.comment,
        )
    except TableExists:
        if wanted.how == "create" or not catalog.exists(name):
            raise
        return _adapted(catalog.open(name), wanted)


def _adapted(table: Table, wanted: Definition) -> Table:
    """The table that is there: as it is, or replaced with all its rows in one commit."""
    if wanted.how == "createIfNotExists":
        return table
    table.replace(
        wanted.schema,
        partition_by=wanted.partition_columns,
        cluster_by=wanted.cluster_by,
        properties=wanted.properties,
        comment=wanted.comment,
        create=wanted.how == "createOrReplace",
    )
    return table
