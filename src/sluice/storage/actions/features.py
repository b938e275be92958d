"""Which tables sluice can read and write: table features ("Table Features" and "Protocol Evolution" in PROTOCOL.md).

A table names what its clients must implement, by features or, in old tables, by version numbers that imply features. A
feature that is named but not in use requires nothing of most clients; `_IN_USE` says how to tell.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from itertools import accumulate
from typing import Any, Final

from ..constants import DELETION_VECTORS_KEY, ICT_ENABLED_KEY
from ..errors import CorruptLogFile, UnsupportedFeature
from ..jsontext import loads
from ..schema.computed import features_of_columns
from ..schema.datatypes import StructType, schema_to_json
from .records import Metadata, Protocol

# Keeps out writers that do not use the coordinator; readers need not know it.
SLUICE_FEATURE: Final = "sluice"

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

_READABLE: Final = frozenset({"deletionVectors", "timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"})
_WRITABLE: Final = _READABLE | {
    "allowColumnDefaults",
    "appendOnly",
    "changeDataFeed",
    "checkConstraints",
    "clustering",
    "domainMetadata",
    "generatedColumns",
    "inCommitTimestamp",
    "invariants",
    "rowTracking",
    SLUICE_FEATURE,
}


def _is_on(key: str, metadata: Metadata) -> bool:
    return metadata.configuration.get(key, "false").lower() == "true"


def _has_identity_columns(metadata: Metadata) -> bool:
    try:
        schema = loads(metadata.schema_string.encode()) if metadata.schema_string else None
    except ValueError as cause:
        raise CorruptLogFile(
            f"the schema in the newest metaData action is not JSON: {cause}; ask the engine that wrote it", reason=str(cause)
        ) from cause
    structs = [node for node in _nodes(schema) if isinstance(node, dict) and node.get("type") == "struct"]
    fields = [each for node in structs for each in node.get("fields") or []]
    return any(key.startswith("delta.identity.") for each in fields for key in each.get("metadata") or {})


def _maps_columns(metadata: Metadata) -> bool:
    return metadata.configuration.get("delta.columnMapping.mode", "none").lower() != "none"


# Features that require nothing until something uses them; a table with any other unsupported feature is refused.
_IN_USE: Final[Mapping[str, Callable[[Metadata], bool]]] = {
    "columnMapping": _maps_columns,
    "identityColumns": _has_identity_columns,
}


# Properties that need a feature when they are on ("Table Properties" of Delta); `delta.feature.<name>` requests it by name.
FEATURE_PREFIX: Final = "delta.feature."
_ASKED_BY: Final = {
    "delta.appendOnly": "appendOnly",
    "delta.columnMapping.mode": "columnMapping",
    "delta.enableChangeDataFeed": "changeDataFeed",
    DELETION_VECTORS_KEY: "deletionVectors",
    "delta.enableIcebergCompatV1": "icebergCompatV1",
    "delta.enableIcebergCompatV2": "icebergCompatV2",
    "delta.enableRowTracking": "rowTracking",
    "delta.enableTypeWidening": "typeWidening",
}
_CONSTRAINT_PREFIX: Final = "delta.constraints."
_REQUIRES: Final = {"clustering": "domainMetadata", "rowTracking": "domainMetadata"}


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
    # The mode says whether columns are mapped, whatever features the protocol lists.
    # check: the-mode-maps-columns (without {"columnMapping"} if _maps_columns(metadata) else)
    mapped = {"columnMapping"} if _maps_columns(metadata) else set[str]()
    if lacking := reader_features(protocol) - _READABLE - {"columnMapping"} | mapped:
        raise _refusal("read", sorted(lacking))


def check_writable(protocol: Protocol, metadata: Metadata) -> None:
    """Raise UnsupportedFeature, naming the features, if reading or writing the table needs features that sluice lacks.

    A feature that a property switches on is needed whether the protocol lists it or not.
    """
    check_readable(protocol, metadata)
    if protocol.min_writer_version > FEATURE_WRITER_VERSION:
        raise _refusal("write", [f"writer version {protocol.min_writer_version}"])
    lacking = {name for name in writer_features(protocol) - _WRITABLE if name not in _IN_USE or _IN_USE[name](metadata)}
    # check: properties-ask-for-features
    lacking |= _switched_on_by(metadata.configuration) - _WRITABLE
    if lacking:
        raise _refusal("write", sorted(lacking))


def new_protocol(schema: StructType, configuration: Mapping[str, str] | None = None) -> Protocol:
    """The protocol of a new table of this schema and these properties.

    Reader version 1 unless a type needs a reader feature, so that every Delta reader can read the table.
    """
    features = {
        "appendOnly",
        "inCommitTimestamp",
        "invariants",
        SLUICE_FEATURE,
        *asked_features(configuration or {}),
        *features_of_columns(schema),
    }
    if "timestamp_ntz" in _nodes(loads(schema_to_json(schema).encode())):
        features.add("timestampNtz")
    return with_features(Protocol(1, FEATURE_WRITER_VERSION, None, ()), features)


def asked_features(configuration: Mapping[str, str]) -> frozenset[str]:
    """The features that properties need, by what they switch on or by name (`delta.feature.<name>`), and those they depend on."""
    asked = _switched_on_by(configuration)
    asked |= {key[len(FEATURE_PREFIX) :] for key in configuration if key.startswith(FEATURE_PREFIX)}
    return frozenset(asked | {_REQUIRES[name] for name in asked if name in _REQUIRES})


def _switched_on_by(configuration: Mapping[str, str]) -> set[str]:
    """The features that properties use."""
    used = {feature for key, feature in _ASKED_BY.items() if configuration.get(key, "false").lower() not in ("false", "none")}
    return used | {"checkConstraints"} if any(key.lower().startswith(_CONSTRAINT_PREFIX) for key in configuration) else used


def with_features(protocol: Protocol, features: Collection[str]) -> Protocol:
    """The protocol with these features added by name; features implied by version numbers are now named."""
    readers = reader_features(protocol) | _READABLE.intersection(features)
    writers = writer_features(protocol) | readers | frozenset(features)
    named = bool(readers) or protocol.min_reader_version >= FEATURE_READER_VERSION
    return replace(
        protocol,
        min_reader_version=FEATURE_READER_VERSION if named else protocol.min_reader_version,
        min_writer_version=FEATURE_WRITER_VERSION,
        reader_features=tuple(sorted(readers)) if named else None,
        writer_features=tuple(sorted(writers)),
    )


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
    kept = writer_features(protocol) - {SLUICE_FEATURE, *also}
    return replace(protocol, writer_features=tuple(sorted(kept)))


def is_managed(protocol: Protocol) -> bool:
    """Whether only sluice may write the table."""
    return SLUICE_FEATURE in writer_features(protocol)


def in_commit_timestamps(protocol: Protocol | None, metadata: Metadata | None) -> bool:
    """Whether the table's commits have in-commit timestamps: the property says so, and the protocol lists the feature.

    False as long as one of the two actions is not known.
    """
    return (
        protocol is not None
        and metadata is not None
        and "inCommitTimestamp" in writer_features(protocol)
        and _is_on(ICT_ENABLED_KEY, metadata)
    )


def deletion_vectors(protocol: Protocol, metadata: Metadata) -> bool:
    """Whether new deletion vectors may be written; existing ones are applied in any case."""
    named = "deletionVectors" in reader_features(protocol) & writer_features(protocol)
    return named and _is_on(DELETION_VECTORS_KEY, metadata)


def _refusal(access: str, features: list[str]) -> UnsupportedFeature:
    verb = {"read": "reading", "write": "writing"}[access]
    versions = all(" version " in each for each in features)
    remedy = "a newer sluice may" if versions else "or drop the table feature there first"
    return UnsupportedFeature(
        f"{verb} this table needs {', '.join(features)}, which sluice does not support; use an engine that does, {remedy}",
        features=features,
        access=access,
    )


def _nodes(kind: Any) -> Iterator[Any]:
    """A type and all types inside it."""
    yield kind
    if isinstance(kind, dict):
        fields = [each.get("type") for each in kind.get("fields") or []]
        for inner in [*fields, *(kind.get(name) for name in ("elementType", "keyType", "valueType"))]:
            yield from _nodes(inner)
