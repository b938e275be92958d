"""Overwrites that replace a table's schema, partitioning or properties together with all its data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from ...storage.actions import DomainMetadata, Metadata, features
from ...storage.constants import NESTING_MAX
from ...storage.data.assignments import check_definitions
from ...storage.data.constraints import Constraints
from ...storage.dataclass import dataclass
from ...storage.errors import InvalidRequest, SchemaMismatch
from ...storage.log.snapshot import Snapshot
from ...storage.schema.datatypes import defined
from ...storage.schema.identity import counted_anew, identities
from ...storage.schema.mapping import with_columns_of
from ...storage.schema.schema import StructType, check_new_schema, from_arrow
from ..client.property_rules import check_asked, check_settings, clustered_by, clustering_names, is_kept_by_sluice, with_defaults
from .data_writing import Redefinition


def struct_of(schema: pa.Schema | StructType) -> StructType:
    """The schema that a caller gave, as Delta's type. Raises InvalidRequest, UnsupportedFeature for a type that Delta lacks."""
    if hasattr(schema, "__arrow_c_schema__"):
        try:
            schema = defined(pa.schema(schema))
        except pa.ArrowInvalid as error:  # of types nested too deeply
            raise SchemaMismatch(f"Arrow cannot hand this schema over: {error}; a type has at most {NESTING_MAX} levels") from error
    if not isinstance(schema, StructType):
        raise InvalidRequest(f"the schema is of type {type(schema).__name__}; give a pyarrow.schema([...])")
    return schema


def redefined(
    base: Snapshot,
    schema: pa.Schema | StructType,
    partition_by: Sequence[str] | None,
    properties: Mapping[str, str] | None,
    operation: str = "WRITE",
    cluster_by: str | Sequence[str] | None = None,
    comment: str | None = None,
) -> Redefinition:
    """The table of `base` with another schema and partitioning (None: the same columns), and other properties (None: the same).

    It is clustered by `cluster_by` (None: as it is; by nothing if its properties change, as its table is another one then, which
    `comment` describes). It keeps its id, its row ids and what only sluice sets; its protocol is never lowered. Raises InvalidRequest,
    SchemaMismatch, UnsupportedFeature.
    """
    struct = struct_of(schema)
    columns = _partitioning(base, struct, partition_by)
    configuration, name, description = dict(base.configuration), base.metadata.name, base.metadata.description
    requested: Mapping[str, str] = {}
    if properties is not None:
        configuration, requested, name, description = _configuration(base, properties), properties, None, comment
    if columns != base.partition_columns and any(features.is_on(base.configuration, key) for key in features.ICEBERG_KEYS):
        raise InvalidRequest(
            f"{base.location} keeps to what Iceberg can have, which never changes the columns of a partitioning: drop that feature first",
            columns=list(base.partition_columns),
        )
    before = base.metadata.schema
    metadata = replace(base.metadata, partition_columns=columns, configuration=configuration, name=name, description=description)
    if struct != before or identities(struct):
        metadata = metadata.with_schema(counted_anew(with_columns_of(struct, before)))
        struct = metadata.schema
    check_new_schema(struct, columns)
    check_definitions(struct)
    check_settings(metadata.configuration, struct)
    clustering = _clustering(base, metadata, struct, () if cluster_by is None and properties is not None else cluster_by)
    if clustering:
        requested = {**requested, features.FEATURE_PREFIX + features.CLUSTERING_FEATURE: "supported"}
    lacking = features.writer_features(features.new_protocol(struct, {**metadata.configuration, **requested})) - features.writer_features(
        base.protocol
    )
    protocol = features.with_features(base.protocol, lacking) if lacking else base.protocol
    features.check_writable(protocol, metadata)
    Constraints.of(struct, metadata)
    return Redefinition(metadata, protocol, operation, clustering)


@dataclass(frozen=True, slots=True)
class Replaced:
    """What an overwrite makes of the table, which takes the schema of the rows."""

    partition_by: str | Sequence[str] | None = None
    """The columns by which it is partitioned then; None: those by which it is."""
    cluster_by: str | Sequence[str] | None = None
    """The columns by which it is clustered then; None: those by which it is, or none if it gets other properties."""
    properties: Mapping[str, str] | None = None
    """All its properties: the table is replaced as a whole; None: it keeps those that it has."""

    @staticmethod
    def of(overwrite_schema: bool, partition_by: Sequence[str] | None, cluster_by: str | Sequence[str] | None) -> Replaced | None:
        """What arguments ask for; None: the table stays as it is. Raises InvalidRequest for columns without `overwrite_schema`."""
        named = next((name for name, value in (("partition_by", partition_by), ("cluster_by", cluster_by)) if value is not None), None)
        if not overwrite_schema and named is not None:
            raise InvalidRequest(f"{named} of an existing table changes only with all its data: give overwrite_schema=True, too")
        return Replaced(partition_by, cluster_by) if overwrite_schema else None

    def by(self, base: Snapshot, schema: pa.Schema | None) -> Redefinition:
        """The table of `base` with the schema of new rows. Raises InvalidRequest."""
        if schema is None:
            raise InvalidRequest("overwrite_schema needs data whose schema is known before it is read: a table, a batch or a reader")
        operation = "WRITE" if self.properties is None else "REPLACE TABLE AS SELECT"
        return redefined(base, from_arrow(schema), self.partition_by, self.properties, operation, self.cluster_by)


def _partitioning(base: Snapshot, struct: StructType, partition_by: Sequence[str] | None) -> tuple[str, ...]:
    if partition_by is not None:
        return (partition_by,) if isinstance(partition_by, str) else tuple(partition_by)
    gone = [name for name in base.partition_columns if name not in struct.names]
    if gone:
        raise InvalidRequest(
            f"{base.location} is partitioned by {', '.join(base.partition_columns)}, and the new schema has no column "
            f"{', '.join(map(repr, gone))}: say by which columns it is partitioned then, partition_by=[...] ([] for none)",
            columns=gone,
        )
    return base.partition_columns


def _clustering(
    base: Snapshot, metadata: Metadata, struct: StructType, cluster_by: str | Sequence[str] | None
) -> tuple[DomainMetadata, ...]:
    """How the table is clustered then; () if it never was. One that was says it again, so that a concurrent CLUSTER BY meets it."""
    columns = clustering_names(base) if cluster_by is None else cluster_by
    try:
        paths = clustered_by(columns, struct, metadata.partition_columns, metadata.configuration)
    except InvalidRequest as unfit:
        if cluster_by is None:
            unfit.tell("; the table is clustered so now: say by which columns it is clustered then, cluster_by=[...] ([] for none)")
        raise
    return (features.clustering_domain(paths, struct),) if paths or features.CLUSTERING_DOMAIN in base.domains else ()


def refuse_row_tracking(base: Snapshot, properties: Mapping[str, str]) -> None:
    """Raise InvalidRequest if properties, or features named in them, enable row tracking in a table without it."""
    named = features.FEATURE_PREFIX + "rowTracking" in properties and "rowTracking" not in features.writer_features(base.protocol)
    if named or (
        features.is_on(properties, features.ROW_TRACKING_KEY) and not features.is_on(base.configuration, features.ROW_TRACKING_KEY)
    ):
        raise InvalidRequest(
            f"row tracking can be enabled only when a table is created: the existing files of {base.location} have no row ids, or have not "
            "kept them; create a table with it and copy the rows",
            property=features.ROW_TRACKING_KEY,
        )


def _configuration(base: Snapshot, properties: Mapping[str, str]) -> dict[str, str]:
    """The given properties, with what sluice keeps of the present ones."""
    check_asked(properties, creating=True)
    features.check_asked_features(properties)
    refuse_row_tracking(base, properties)
    kept = {key: value for key, value in base.configuration.items() if is_kept_by_sluice(key)}
    return {**kept, **with_defaults({key: value for key, value in properties.items() if not key.startswith(features.FEATURE_PREFIX)})}
