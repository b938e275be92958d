"""Table features ("Table Features" and "Protocol Evolution" in PROTOCOL.md): which tables sluice can read and write.

A table names what its clients must implement, by features or, in old tables, by version numbers that imply features. A
feature that is named but not in use requires nothing of most clients; `_LIMITS` says of what use sluice does not write.

Two features have a metadata domain: row tracking and clustering.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from itertools import accumulate
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from ..constants import CHECKPOINT_POLICY_KEY, DELETION_VECTORS_KEY, ICT_ENABLED_KEY, LONG_MAX
from ..dataclass import dataclass
from ..errors import CorruptLogFile, InvalidRequest, SchemaMismatch, UnsupportedFeature
from ..jsontext import dumps, loads
from ..schema.datatypes import ArrayType, MapType, PrimitiveType, StructField, StructType, features_of_columns, fields_inside, types_inside
from ..schema.mapping import MAPPING_MODES, MODE_KEY, logical_path, physical_path
from ..schema.widening import CHANGES_KEY, WIDENING_KEY, in_iceberg, unreadable_changes
from .records import DomainMetadata, Metadata, Protocol

# Keeps out writers that do not use the coordinator; readers need not know it.
SLUICE_FEATURE: Final = "sluice"

PROTECTED_BEFORE_KEY: Final = "delta.requireCheckpointProtectionBeforeVersion"
"""Up to which version the log may only be cleaned up as a whole ("checkpointProtection")."""

FEATURE_READER_VERSION: Final = 3
FEATURE_WRITER_VERSION: Final = 7


def _by_number(*added: Collection[str]) -> Mapping[int, frozenset[str]]:
    """The features that each old version number implies: those that it `added`, and those of the lower numbers."""
    return dict(enumerate(accumulate(map(frozenset[str], added), frozenset[str].union), start=1))


_LEGACY_READER: Final = _by_number((), ("columnMapping",))
_LEGACY_WRITER: Final = _by_number(
    (),
    ("appendOnly", "invariants"),
    ("checkConstraints",),
    ("changeDataFeed", "generatedColumns"),
    ("columnMapping",),
    ("identityColumns",),
)

_WIDENING: Final = frozenset({"typeWidening", "typeWidening-preview"})
_OF_TYPES: Final = {"timestamp_ntz": "timestampNtz", "variant": "variantType"}
_READABLE: Final = _WIDENING.union(
    ("columnMapping", "deletionVectors", "v2Checkpoint", "vacuumProtocolCheck", "variantType-preview"), _OF_TYPES.values()
)
_WRITABLE: Final = _READABLE | {
    "allowColumnDefaults",
    "appendOnly",
    "changeDataFeed",
    "checkConstraints",
    "checkpointProtection",
    "clustering",
    "collations",
    "domainMetadata",
    "generatedColumns",
    "icebergCompatV1",
    "icebergCompatV2",
    "identityColumns",
    "inCommitTimestamp",
    "invariants",
    "materializePartitionColumns",
    "rowTracking",
    SLUICE_FEATURE,
}


def is_on(configuration: Mapping[str, str], key: str) -> bool:
    """Whether a boolean property is true."""
    return configuration.get(key, "false").lower() == "true"


ICEBERG_KEYS: Final = tuple(f"delta.enableIcebergCompatV{version}" for version in (1, 2, 3))
MATERIALIZE_KEY: Final = "delta.enableMaterializePartitionColumnsFeature"
_IN_FILES_KEYS: Final = (MATERIALIZE_KEY, "delta.writePartitionColumnsToParquet", *ICEBERG_KEYS)


def in_data_files(configuration: Mapping[str, str]) -> bool:
    """Whether new data files have the partition columns, too, after the others ("materializePartitionColumns")."""
    return any(map(partial(is_on, configuration), _IN_FILES_KEYS))


def _beyond_iceberg(protocol: Protocol, metadata: Metadata) -> str | None:
    """What the table has that Iceberg cannot have, or whose fields need numbers of their own ("Iceberg Compatibility" in PROTOCOL.md)."""
    configuration, schema = metadata.configuration, metadata.schema
    active = [each for each in ICEBERG_KEYS if is_on(configuration, each)]
    if len(active) != 1:
        return "of two versions" if active else None
    if configuration.get(MODE_KEY, "none").lower() == "none":
        return "without column mapping"
    if is_on(configuration, DELETION_VECTORS_KEY) or (active == [ICEBERG_KEYS[0]] and "deletionVectors" in writer_features(protocol)):
        return "with deletion vectors"
    for path, dtype in types_inside(schema):
        if isinstance(dtype, ArrayType | MapType) or dtype in (PrimitiveType("void"), PrimitiveType("variant")):
            return f"with column {path} of type {dtype}"
    changes = [each for _, field in fields_inside(schema) for each in field.metadata.get(CHANGES_KEY, ())]
    odd = next((each for each in changes if not in_iceberg(PrimitiveType(each["fromType"]), PrimitiveType(each["toType"]))), None)
    return None if odd is None else f"with a column that was {odd['fromType']} and is {odd['toType']}"


def _compared_by_others(_: Protocol, metadata: Metadata) -> str | None:
    """What an engine that compares texts by their collation would check otherwise."""
    if "__COLLATIONS" not in metadata.schema_string:
        return None
    text = "\n".join([*metadata.configuration, metadata.schema_string])
    used = [key for key in (_CONSTRAINT_PREFIX, "delta.generationExpression", "delta.invariants") if key in text]
    return f"in a table with {used[0].rstrip('.')}" if used else None


# What sluice does not write of features, although it knows them. One that is neither supported nor here is refused wherever it is named.
_LIMITS: Final[Mapping[str, Callable[[Protocol, Metadata], str | None]]] = {
    "collations": _compared_by_others,
    "icebergCompatV1": _beyond_iceberg,
    "icebergCompatV2": _beyond_iceberg,
    "icebergCompatV3": lambda _, metadata: "with Iceberg's row ids" if is_on(metadata.configuration, ICEBERG_KEYS[2]) else None,
    "materializePartitionColumns": lambda _, metadata: (
        f"without the property {MATERIALIZE_KEY}" if metadata.id and not is_on(metadata.configuration, MATERIALIZE_KEY) else None
    ),
}


# Properties that need a feature when they are on ("Table Properties" of Delta); `delta.feature.<name>` requests it by name.
FEATURE_PREFIX: Final = "delta.feature."
_ASKED_BY: Final = {
    "delta.appendOnly": "appendOnly",
    CHECKPOINT_POLICY_KEY: "v2Checkpoint",
    MODE_KEY: "columnMapping",
    "delta.enableChangeDataFeed": "changeDataFeed",
    DELETION_VECTORS_KEY: "deletionVectors",
    **{key: f"icebergCompatV{version}" for version, key in enumerate(ICEBERG_KEYS, 1)},
    MATERIALIZE_KEY: "materializePartitionColumns",
    "delta.enableRowTracking": "rowTracking",
    WIDENING_KEY: "typeWidening",
}
_CONSTRAINT_PREFIX: Final = "delta.constraints."
_REQUIRES: Final = {
    "clustering": "domainMetadata",
    "collations": "domainMetadata",
    "icebergCompatV1": "columnMapping",
    "icebergCompatV2": "columnMapping",
    "icebergCompatV3": "columnMapping",
    "rowTracking": "domainMetadata",
}


def reader_features(protocol: Protocol) -> frozenset[str]:
    """The features a reader must implement, named or implied."""
    if protocol.min_reader_version >= FEATURE_READER_VERSION:
        return frozenset(protocol.reader_features or ())
    return _LEGACY_READER.get(protocol.min_reader_version, frozenset())


def writer_features(protocol: Protocol) -> frozenset[str]:
    """The features a writer must implement, named or implied."""
    if protocol.min_writer_version >= FEATURE_WRITER_VERSION:
        return frozenset(protocol.writer_features or ())
    implied = _LEGACY_WRITER.get(protocol.min_writer_version, frozenset[str]())
    # A feature of readers and writers needs both numbers.
    return implied - {"columnMapping"} if protocol.min_reader_version < 2 else implied


def check_readable(protocol: Protocol, metadata: Metadata) -> None:
    """Raise UnsupportedFeature, naming the features, if reading the table needs features that sluice lacks."""
    if protocol.min_reader_version > FEATURE_READER_VERSION:
        raise _refusal("read", [f"reader version {protocol.min_reader_version}"])
    mode = metadata.configuration.get(MODE_KEY, "none")
    # check: only-known-ways-of-mapping
    if mode.lower() not in MAPPING_MODES:
        raise _refusal("read", [f"column mapping by {mode!r}"])
    lacking = set(reader_features(protocol) - _READABLE)
    if reader_features(protocol) & _WIDENING and CHANGES_KEY in metadata.schema_string:
        # check: types-changed-by-the-protocol
        lacking |= {f"typeWidening of {each}" for each in unreadable_changes(metadata.schema)}
    if lacking:
        raise _refusal("read", sorted(lacking))


def check_writable(protocol: Protocol, metadata: Metadata) -> None:
    """Raise UnsupportedFeature, naming them, if reading or writing needs features that sluice lacks, listed or on by a property."""
    check_readable(protocol, metadata)
    if protocol.min_writer_version > FEATURE_WRITER_VERSION:
        raise _refusal("write", [f"writer version {protocol.min_writer_version}"])
    # check: properties-ask-for-features (_switched_on_by(metadata.configuration) -> frozenset())
    used = writer_features(protocol) | _switched_on_by(metadata.configuration)
    lacking = {name: name for name in used - _WRITABLE - {*_LIMITS}}
    # check: limits-of-features-are-kept ({*_LIMITS} -> set())
    for name in used & {*_LIMITS}:
        if (limit := _LIMITS[name](protocol, metadata)) is not None:
            lacking[name] = f"{name} {limit}"
    if lacking:
        raise _refusal("write", sorted(lacking.values()), sorted(lacking))


def new_protocol(schema: StructType, configuration: Mapping[str, str] | None = None) -> Protocol:
    """The protocol of a new table: reader version 1 unless a type needs a reader feature, so that every Delta reader can read it."""
    features = {
        "appendOnly",
        "inCommitTimestamp",
        "invariants",
        SLUICE_FEATURE,
        *asked_features(configuration or {}),
        *features_of_columns(schema),
    }
    if any(CHANGES_KEY in field.metadata for _, field in fields_inside(schema)):  # of the table whose columns it gets
        features.add("typeWidening")
    return with_features(Protocol(1, FEATURE_WRITER_VERSION, None, ()), features | features_of_types(schema))


def features_of_types(schema: StructType) -> frozenset[str]:
    """The table features that the columns' types need."""
    kinds = {dtype.name for _, dtype in types_inside(schema) if isinstance(dtype, PrimitiveType)}
    return frozenset(feature for name, feature in _OF_TYPES.items() if name in kinds)


def asked_features(configuration: Mapping[str, str]) -> frozenset[str]:
    """The features that properties need, by what they switch on or by name (`delta.feature.<name>`), and those they depend on."""
    asked = _switched_on_by(configuration)
    asked |= {key[len(FEATURE_PREFIX) :] for key in configuration if key.startswith(FEATURE_PREFIX)}
    return frozenset(asked | {_REQUIRES[name] for name in asked if name in _REQUIRES})


def _switched_on_by(configuration: Mapping[str, str]) -> set[str]:
    used = {feature for key, feature in _ASKED_BY.items() if configuration.get(key, "false").lower() not in ("false", "none", "classic")}
    return used | {"checkConstraints" for key in configuration if key.lower().startswith(_CONSTRAINT_PREFIX)}


def with_features(protocol: Protocol, features: Collection[str]) -> Protocol:
    """The protocol with these features added by name; features implied by version numbers are now named."""
    readers = reader_features(protocol) | _READABLE.intersection(features)
    named = bool(readers) or protocol.min_reader_version >= FEATURE_READER_VERSION
    return replace(
        protocol,
        min_reader_version=FEATURE_READER_VERSION if named else protocol.min_reader_version,
        min_writer_version=FEATURE_WRITER_VERSION,
        reader_features=tuple(sorted(readers)) if named else None,
        writer_features=tuple(sorted(writer_features(protocol) | readers | frozenset(features))),
    )


def needing(feature: str) -> frozenset[str]:
    """The features that need this one."""
    return frozenset(name for name, needed in _REQUIRES.items() if needed == feature)


def supported_feature(name: str) -> str:
    """The name of a table feature as Delta spells it; case does not count. Raises UnsupportedFeature for one that sluice lacks."""
    found = next((each for each in _WRITABLE if each.lower() == name.lower()), None)
    if found is None:
        raise UnsupportedFeature(
            f"sluice does not support the table feature {name!r}; those that a table can have are {', '.join(sorted(_WRITABLE))}",
            features=[name],
            access="write",
        )
    return found


def check_asked_features(configuration: Mapping[str, str]) -> None:
    """Raise UnsupportedFeature, naming the features, if properties need features that sluice lacks."""
    if lacking := asked_features(configuration) - _WRITABLE:
        raise UnsupportedFeature(
            f"the properties ask for {', '.join(sorted(lacking))}, which sluice does not support; leave them out, or make the table "
            "with an engine that does",
            features=sorted(lacking),
            access="write",
        )


def upgrade_for_attach(protocol: Protocol, configuration: Mapping[str, str]) -> Protocol:
    """The protocol with in-commit timestamps and sluice's own feature; features implied by version numbers are now named.

    Adds writer features that the table's properties need (change data, constraints, append-only) if the protocol lacks them.
    It does not add reader features, nor row ids, which the existing rows do not have.
    """
    asked = (_switched_on_by(configuration) & _WRITABLE) - _READABLE - {"rowTracking"}
    return with_features(protocol, {"inCommitTimestamp", SLUICE_FEATURE, *asked})


def downgrade_for_detach(protocol: Protocol, *, also: Collection[str] = ()) -> Protocol:
    """The protocol without sluice's own feature, and without the writer features in `also`."""
    return replace(protocol, writer_features=tuple(sorted(writer_features(protocol) - {SLUICE_FEATURE, *also})))


def is_managed(protocol: Protocol) -> bool:
    """Whether only sluice may write the table."""
    return SLUICE_FEATURE in writer_features(protocol)


def in_commit_timestamps(protocol: Protocol | None, metadata: Metadata | None) -> bool:
    """Whether commits have in-commit timestamps: the property says so, and the protocol lists the feature. False while one is unknown."""
    return (
        protocol is not None
        and metadata is not None
        and "inCommitTimestamp" in writer_features(protocol)
        and is_on(metadata.configuration, ICT_ENABLED_KEY)
    )


def writes_v2(protocol: Protocol, metadata: Metadata) -> bool:
    """Whether checkpoints are V2: the property says so, and the protocol lists the feature."""
    named = "v2Checkpoint" in reader_features(protocol) & writer_features(protocol)
    # check: shared-checkpoints-need-the-feature (named and metadata -> metadata)
    return named and metadata.configuration.get(CHECKPOINT_POLICY_KEY, "").lower() == "v2"


def widens_types(protocol: Protocol, metadata: Metadata) -> bool:
    """Whether columns may get wider types. Of the preview, whose histories name versions that a commit does not know yet, they may not."""
    return is_on(metadata.configuration, WIDENING_KEY) and writer_features(protocol) & _WIDENING == {"typeWidening"}


def deletion_vectors(protocol: Protocol, metadata: Metadata) -> bool:
    """Whether new deletion vectors may be written; existing ones are applied in any case."""
    named = "deletionVectors" in reader_features(protocol) & writer_features(protocol)
    return named and is_on(metadata.configuration, DELETION_VECTORS_KEY)


def _refusal(access: str, uses: list[str], features: list[str] | None = None) -> UnsupportedFeature:
    verb = {"read": "reading", "write": "writing"}[access]
    remedy = "a newer sluice may" if all(" version " in each for each in uses) else "or drop the table feature there first"
    return UnsupportedFeature(
        f"{verb} this table needs {', '.join(uses)}, which sluice does not support; use an engine that does, {remedy}",
        features=features or uses,
        access=access,
    )


# -- row tracking ("Row Tracking" in PROTOCOL.md) ---------------------------------------------------------------------------
#
# A table that names the feature needs a base row id for every file, whether or not row tracking is enabled; a metadata domain records the
# highest id given so far. Enabling it adds two column names: files with copied rows keep the rows' former ids there.
#
# A row's id is the value of the file's column, and where it is null, or the file has no such column, the file's base row id plus
# the row's position. In the same way its commit version, in which it was inserted or last updated, is by default the file's. The
# table's schema does not have these columns; its configuration names them.

ROW_TRACKING_DOMAIN: Final = "delta.rowTracking"
ROW_TRACKING_KEY: Final = "delta.enableRowTracking"
ROW_ID_COLUMN_KEY: Final = "delta.rowTracking.materializedRowIdColumnName"
COMMIT_VERSION_COLUMN_KEY: Final = "delta.rowTracking.materializedRowCommitVersionColumnName"
_MARK: Final = "rowIdHighWaterMark"
ROW_ID: Final = "_row_id"
"""The name under which users get a row's id (int64)."""
COMMIT_VERSION: Final = "_row_commit_version"
"""The name under which users get the version that inserted or last updated a row (int64)."""


def tracks_rows(metadata: Metadata, protocol: Protocol) -> bool:
    """Whether every new file needs row ids: the table names the feature, and it is not suspended."""
    return "rowTracking" in writer_features(protocol) and not is_on(metadata.configuration, "delta.rowTrackingSuspended")


def row_id_high_water_mark(domains: Mapping[str, DomainMetadata], metadata: Metadata, protocol: Protocol) -> int | None:
    """The highest row id given so far, -1 if none; None if the table does not track rows. Raises CorruptLogFile."""
    if not tracks_rows(metadata, protocol):
        return None
    domain = domains.get(ROW_TRACKING_DOMAIN)
    if domain is None:
        return -1
    mark = _configured(domain, _MARK)
    if type(mark) is not int or not -1 <= mark <= LONG_MAX:
        raise CorruptLogFile(
            f"the metadata domain {ROW_TRACKING_DOMAIN} is {domain.configuration!r}, without {_MARK}: no row id is known to be free; "
            "ask the engine that wrote it",
            domain=ROW_TRACKING_DOMAIN,
        )
    return mark


def _configured(domain: DomainMetadata, name: str) -> Any:
    """A field of the domain's configuration; None if it lacks the field, or is no JSON object."""
    try:
        parsed = loads(domain.configuration.encode())
    except ValueError:
        return None
    return parsed.get(name) if isinstance(parsed, dict) else None


def first_domain() -> DomainMetadata:
    """The domain of a new table, in which no row has an id yet."""
    return DomainMetadata(ROW_TRACKING_DOMAIN, dumps({_MARK: -1}).decode(), removed=False)


def materialized_columns() -> dict[str, str]:
    """The properties that name the columns for copied rows' ids and commit versions; no other column can have these names."""
    return {
        ROW_ID_COLUMN_KEY: f"_row-id-col-{uuid.uuid4()}",
        COMMIT_VERSION_COLUMN_KEY: f"_row-commit-version-col-{uuid.uuid4()}",
    }


@dataclass(frozen=True, slots=True)
class RowIdColumns:
    """The names of the columns in a table's data files: of the rows' ids, and of their commit versions."""

    row_id: str
    commit_version: str

    @staticmethod
    def of(metadata: Metadata, protocol: Protocol) -> RowIdColumns | None:
        """Those of a table; None if its rows do not keep their ids: row tracking is not enabled, or the names are missing."""
        row_id, commit_version = map(metadata.configuration.get, (ROW_ID_COLUMN_KEY, COMMIT_VERSION_COLUMN_KEY))
        if not is_on(metadata.configuration, ROW_TRACKING_KEY) or not tracks_rows(metadata, protocol) or not (row_id and commit_version):
            return None
        return RowIdColumns(row_id, commit_version)

    @staticmethod
    def to_show(metadata: Metadata, protocol: Protocol, schema: StructType) -> RowIdColumns:
        """Those of a table whose users ask for ids. Raises InvalidRequest if there are none, or a column has the name of one."""
        columns = RowIdColumns.of(metadata, protocol)
        if columns is None:
            raise InvalidRequest(
                f"row_ids=True: the rows of this table keep no ids, for {ROW_TRACKING_KEY} is not true; it can be enabled only when a "
                "table is created",
                property=ROW_TRACKING_KEY,
            )
        if taken := [name for name in (ROW_ID, COMMIT_VERSION) if schema.get(name) is not None]:
            raise InvalidRequest(f"row_ids=True: its columns {', '.join(taken)} have the ids' names; leave row_ids out", columns=taken)
        return columns

    @property
    def names(self) -> tuple[str, str]:
        """Both names."""
        return self.row_id, self.commit_version

    def filled(self, rows: pa.Table, positions: pa.Array, base_row_id: int | None, commit_version: int | None) -> pa.Table:
        """The rows of one file, with what its columns leave open: these get the file's `base_row_id` and `commit_version`.

        Rows of files without them, which are not committed yet, stay null. `rows` has one of the columns, or both.
        """
        ids = pc.add(positions, pa.scalar(base_row_id, pa.int64()))  # null if there is none
        for name, default in ((self.row_id, ids), (self.commit_version, pa.scalar(commit_version, pa.int64()))):
            if (place := rows.schema.get_field_index(name)) >= 0:
                rows = rows.set_column(place, rows.schema.field(place), pc.coalesce(rows.column(place), default))
        return rows

    def shown(self, names: Iterable[str]) -> list[str]:
        """Names of columns, with those that users see in place of these."""
        return [{self.row_id: ROW_ID, self.commit_version: COMMIT_VERSION}.get(name, name) for name in names]


@lru_cache(maxsize=256)
def with_row_ids(schema: StructType, ids: RowIdColumns | None) -> StructType:
    """The columns of a schema and, after them, those of row ids, if any, as files with copied rows have them."""
    return schema if ids is None else StructType([*schema.fields, *(StructField(name, PrimitiveType("long")) for name in ids.names)])


def refuse_reserved(configuration: Mapping[str, str], schema: StructType) -> None:
    """Raise SchemaMismatch if the schema has a column whose name belongs to the rows' ids."""
    for key in (ROW_ID_COLUMN_KEY, COMMIT_VERSION_COLUMN_KEY):
        if (name := configuration.get(key)) and schema.get(name) is not None:
            raise SchemaMismatch(f"the column name {name!r} is reserved for the rows' ids ({key}); rename the column", column=name)


# -- clustered tables ("Clustered Table" in PROTOCOL.md) -------------------------------------------------------------------
#
# A metadata domain names the columns. A file that an OPTIMIZE has clustered names who did so, and its tags say in which run and by which
# columns. The tags are Delta Lake's own, so each knows the other's clusters.

CLUSTERING_DOMAIN: Final = "delta.clustering"
CLUSTERING_FEATURE: Final = "clustering"
CLUSTERING_PROVIDER: Final = "sluice"
"""The name of this implementation in the add actions of files that it has clustered."""
CLUSTER_TAG: Final = "ZCUBE_ID"
"""The tag that identifies the run that clustered a file."""
CLUSTER_COLUMNS_TAG: Final = "ZCUBE_ZORDER_BY"
CLUSTER_CURVE_TAG: Final = "ZCUBE_ZORDER_CURVE"
CLUSTER_CURVE: Final = "hilbert"
_COLUMNS: Final = "clusteringColumns"

Path: TypeAlias = tuple[str, ...]
"""The names that lead to a column, through structs."""


def clustering_columns(domains: Mapping[str, DomainMetadata], schema: StructType) -> tuple[Path, ...]:
    """The columns by which a table with these domains is clustered; () if it is not. Raises CorruptLogFile."""
    domain = domains.get(CLUSTERING_DOMAIN)
    if domain is None:
        return ()
    listed = _configured(domain, _COLUMNS)
    # PROTOCOL.md shows names, Delta Lake writes lists of names
    paths = [[each] if isinstance(each, str) else each for each in listed] if isinstance(listed, list) else [[]]
    if not all(isinstance(path, list) and path and all(isinstance(name, str) for name in path) for path in paths):
        raise CorruptLogFile(
            f"the metadata domain {CLUSTERING_DOMAIN} is {domain.configuration!r}, which names no columns; ask the engine that wrote it",
            domain=CLUSTERING_DOMAIN,
        )
    return tuple(logical_path(path, schema) for path in paths)


def clustering_domain(columns: Sequence[Path], schema: StructType) -> DomainMetadata:
    """The domain of a table that is clustered by these columns."""
    configuration = {_COLUMNS: [list(physical_path(path, schema)) for path in columns], "domainName": CLUSTERING_DOMAIN}
    return DomainMetadata(CLUSTERING_DOMAIN, dumps(configuration).decode(), removed=False)


def cluster_tags(cluster: str, columns: Sequence[Path]) -> dict[str, str]:
    """The tags of a file that the run `cluster` has ordered along the Hilbert curve of these columns."""
    return {CLUSTER_TAG: cluster, CLUSTER_COLUMNS_TAG: columns_tag(columns), CLUSTER_CURVE_TAG: CLUSTER_CURVE}


def columns_tag(columns: Sequence[Path]) -> str:
    """The columns, as a tag names them."""
    return dumps(list(map(dotted, columns))).decode()


def dotted(path: Path) -> str:
    """A column's path as SQL writes it."""
    return ".".join(name if name.isidentifier() else f"`{name.replace('`', '``')}`" for name in path)
