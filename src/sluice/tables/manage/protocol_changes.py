"""Changes of a table's protocol: a feature added or taken out, versions raised. None where nothing would change."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from ...coordinator.api import Change
from ...coordinator.rules.intent import Kind, Terms
from ...storage.actions import Protocol
from ...storage.actions.clustering import CLUSTERING_FEATURE
from ...storage.actions.features import (
    FEATURE_PREFIX,
    asked_features,
    reader_features,
    supported_feature,
    with_features,
    writer_features,
)
from ...storage.errors import InvalidRequest, UnsupportedFeature
from ...storage.jsontext import dumps
from ...storage.log.snapshot import Snapshot
from ...storage.schema.computed import features_of_columns
from ...storage.schema.schema import parse_schema
from ..client.open_table import OpenTable
from ..client.property_rules import CHANGE_DATA_FEED, CONSTRAINT_PREFIX, is_on
from ..write.requirements import snapshot_for_change

_READER_VERSION: Final = 3
_WRITER_VERSION: Final = 7
_MAPPING_VERSION: Final = 2


def _constraints(snapshot: Snapshot) -> str | None:
    named = [key for key in snapshot.configuration if key.lower().startswith(CONSTRAINT_PREFIX)]
    return f"the table has {', '.join(named)}; unset_properties first" if named else None


def _domains(snapshot: Snapshot) -> str | None:
    if "rowTracking" in writer_features(snapshot.protocol):
        return "the feature rowTracking needs it"
    if CLUSTERING_FEATURE in writer_features(snapshot.protocol):
        return "the feature clustering needs it"
    return f"the table has the domains {', '.join(snapshot.domains)}; remove_domain first" if snapshot.domains else None


def _defaults(snapshot: Snapshot) -> str | None:
    used = "allowColumnDefaults" in features_of_columns(parse_schema(snapshot.metadata.schema_string))
    return "a column has a DEFAULT; drop it with alter_columns first" if used else None


def _switched(key: str) -> Callable[[Snapshot], str | None]:
    return lambda snapshot: f"{key} is true; unset_properties first" if is_on(snapshot.configuration, key) else None


DROPPABLE: Final[Mapping[str, Callable[[Snapshot], str | None]]] = {
    "allowColumnDefaults": _defaults,
    "appendOnly": _switched("delta.appendOnly"),
    "changeDataFeed": _switched(CHANGE_DATA_FEED),
    "checkConstraints": _constraints,
    "domainMetadata": _domains,
    "vacuumProtocolCheck": lambda _: None,
}
"""The features that can be dropped: what still uses one, and the remedy (None: nothing does).

The others are sluice's own, or older versions still use them, and readers meet these in the log.
"""


def add_feature(table: OpenTable, name: str) -> Change | None:
    """Add a feature, and those it needs; None if the protocol has them. Raises UnsupportedFeature for one that sluice lacks."""
    asked = {FEATURE_PREFIX + supported_feature(name): "supported"}
    snapshot = snapshot_for_change(table)
    needed = asked_features(asked)
    if needed <= writer_features(snapshot.protocol):
        return None
    if "rowTracking" in needed:
        raise InvalidRequest("rowTracking can be added only when a table is created, since the existing rows have no ids", feature=name)
    return _upgrade(table, snapshot, with_features(snapshot.protocol, needed))


def drop_feature(table: OpenTable, name: str) -> Change | None:
    """Take a feature out of the protocol; None if it has none of that name.

    Nothing may be committed in between (ConcurrentModification). Raises UnsupportedFeature for a feature that cannot be dropped, or that
    sluice does not know; InvalidRequest for one in use.
    """
    snapshot = snapshot_for_change(table)
    present = writer_features(snapshot.protocol) | reader_features(snapshot.protocol)
    name = next((each for each in present if each.lower() == name.lower()), name)
    if name not in present:
        supported_feature(name)  # refuses a misspelt name
        return None
    if name not in DROPPABLE:
        raise UnsupportedFeature(
            f"{name} cannot be dropped from {table.location}: those that can are {', '.join(DROPPABLE)}",
            features=[name],
            table="write",
        )
    used = DROPPABLE[name](snapshot)
    if used is not None:
        raise InvalidRequest(f"{name} cannot be dropped from {table.location}: {used}", feature=name)
    readers = tuple(sorted(reader_features(snapshot.protocol) - {name}))
    after = Protocol(
        _READER_VERSION if readers else 1,
        _WRITER_VERSION,
        readers or None,
        tuple(sorted(writer_features(snapshot.protocol) - {name})),
        snapshot.protocol.extra,
    )
    return Change(
        table.new_transaction_id(),
        "DROP FEATURE",
        snapshot,
        (after,),
        parameters={"featureName": name},
        kind=Kind.OTHER,
        terms=Terms(if_version=snapshot.version),
    )


def upgrade_protocol(table: OpenTable, reader: int, writer: int) -> Change | None:
    """Raise the protocol to at least these versions; None if it has them. A table of sluice's has writer version 7."""
    if reader == _READER_VERSION and writer < _WRITER_VERSION:
        raise InvalidRequest(f"reader version {_READER_VERSION} goes with writer version {_WRITER_VERSION}, and {writer} was given")
    snapshot = snapshot_for_change(table)
    if reader <= snapshot.protocol.min_reader_version:
        return None
    if reader == _MAPPING_VERSION:
        raise UnsupportedFeature(
            "reader version 2 means column mapping, which sluice does not support; add features by name (add_feature)",
            features=["columnMapping"],
            table="write",
        )
    after = replace(snapshot.protocol, min_reader_version=reader, reader_features=tuple(sorted(reader_features(snapshot.protocol))))
    return _upgrade(table, snapshot, after)


def _upgrade(table: OpenTable, snapshot: Snapshot, after: Protocol) -> Change:
    protocol = {
        "minReaderVersion": after.min_reader_version,
        "minWriterVersion": after.min_writer_version,
        "readerFeatures": list(after.reader_features or ()),
        "writerFeatures": list(after.writer_features or ()),
    }
    parameters = {"newProtocol": dumps(protocol).decode()}
    return Change(table.new_transaction_id(), "UPGRADE PROTOCOL", snapshot, (after,), parameters=parameters, kind=Kind.OTHER)
