"""Changes of a table's protocol: a feature added or taken out, versions raised."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from ...coordinator.facade.values import DEFAULT_TIMEOUT_S, Change, Commit, Timeout
from ...coordinator.rules.operation_kinds import Kind
from ...storage.actions import Protocol
from ...storage.actions.clustering import CLUSTERING_FEATURE
from ...storage.actions.features import (
    FEATURE_PREFIX,
    asked_features,
    check_writable,
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
from ..client.access import Access
from ..client.property_rules import CHANGE_DATA_FEED, CONSTRAINT_PREFIX, is_on

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


def _of_columns(feature: str, uses: str) -> Callable[[Snapshot], str | None]:
    return lambda snapshot: f"a column {uses}" if feature in features_of_columns(parse_schema(snapshot.metadata.schema_string)) else None


def _switched(key: str) -> Callable[[Snapshot], str | None]:
    return lambda snapshot: f"{key} is true; unset_properties first" if is_on(snapshot.configuration, key) else None


DROPPABLE: Final[Mapping[str, Callable[[Snapshot], str | None]]] = {
    "allowColumnDefaults": _of_columns("allowColumnDefaults", "has a DEFAULT; drop it with alter_columns first"),
    "appendOnly": _switched("delta.appendOnly"),
    "changeDataFeed": _switched(CHANGE_DATA_FEED),
    "checkConstraints": _constraints,
    "domainMetadata": _domains,
    "vacuumProtocolCheck": lambda _: None,
}
"""The features that can be dropped: what still uses one, and the remedy (None: nothing does).

The others are sluice's own, or older versions still use them, and readers meet these in the log.
"""


def add_feature(access: Access, name: str, *, ack: str = "published", timeout_s: Timeout = DEFAULT_TIMEOUT_S) -> Commit | None:
    """Add a feature, and those it needs; None if the protocol has them. Raises UnsupportedFeature for one that sluice lacks."""
    _check_name(name)
    asked = {FEATURE_PREFIX + supported_feature(name): "supported"}
    snapshot = _latest(access)
    needed = asked_features(asked)
    if needed <= writer_features(snapshot.protocol):
        return None
    if "rowTracking" in needed:
        raise InvalidRequest("rowTracking can be added only when a table is created, since the existing rows have no ids", feature=name)
    return _commit_protocol(access, snapshot, with_features(snapshot.protocol, needed), ack=ack, timeout_s=timeout_s)


def drop_feature(access: Access, name: str, *, ack: str = "published", timeout_s: Timeout = DEFAULT_TIMEOUT_S) -> Commit | None:
    """Take a feature out of the protocol; None if it has none of that name.

    Nothing may be committed in between (ConcurrentModification). Raises UnsupportedFeature for a feature that cannot be dropped,
    InvalidRequest for one in use.
    """
    _check_name(name)
    snapshot = _latest(access)
    present = writer_features(snapshot.protocol) | reader_features(snapshot.protocol)
    name = next((each for each in present if each.lower() == name.lower()), name)
    if name not in present:
        return None
    if name not in DROPPABLE:
        raise UnsupportedFeature(
            f"{name} cannot be dropped from {access.address.location}: those that can are {', '.join(DROPPABLE)}",
            features=[name],
            access="write",
        )
    used = DROPPABLE[name](snapshot)
    if used is not None:
        raise InvalidRequest(f"{name} cannot be dropped from {access.address.location}: {used}", feature=name)
    readers = tuple(sorted(reader_features(snapshot.protocol) - {name}))
    after = Protocol(
        _READER_VERSION if readers else 1,
        _WRITER_VERSION,
        readers or None,
        tuple(sorted(writer_features(snapshot.protocol) - {name})),
        snapshot.protocol.extra,
    )
    change = Change(
        access.new_transaction_id(),
        "DROP FEATURE",
        snapshot,
        (after,),
        parameters={"featureName": name},
        kind=Kind.OTHER,
        expected_version=snapshot.version + 1,
    )
    return access.ours.commit(change, ack=ack, timeout_s=timeout_s)


def upgrade_protocol(
    access: Access, reader: int, writer: int, *, ack: str = "published", timeout_s: Timeout = DEFAULT_TIMEOUT_S
) -> Commit | None:
    """Raise the protocol to at least these versions; None if it has them. A table of sluice's has writer version 7."""
    for what, given, most in (("reader", reader, _READER_VERSION), ("writer", writer, _WRITER_VERSION)):
        if type(given) is not int or not 1 <= given <= most:
            raise InvalidRequest(f"the {what} version is {given!r}; give a whole number from 1 to {most}")
    if reader == _READER_VERSION and writer < _WRITER_VERSION:
        raise InvalidRequest(f"reader version {_READER_VERSION} goes with writer version {_WRITER_VERSION}, and {writer} was given")
    snapshot = _latest(access)
    if reader <= snapshot.protocol.min_reader_version:
        return None
    if reader == _MAPPING_VERSION:
        raise UnsupportedFeature(
            "reader version 2 means column mapping, which sluice does not support; add features by name (add_feature)",
            features=["columnMapping"],
            access="write",
        )
    after = replace(snapshot.protocol, min_reader_version=reader, reader_features=tuple(sorted(reader_features(snapshot.protocol))))
    return _commit_protocol(access, snapshot, after, ack=ack, timeout_s=timeout_s)


def _latest(access: Access) -> Snapshot:
    _ = access.ours  # fails before anything is read if the table was opened for reading only
    snapshot = access.latest()
    check_writable(snapshot.protocol, snapshot.metadata)
    return snapshot


def _check_name(name: object) -> None:
    if not isinstance(name, str) or not name:
        raise InvalidRequest(f"{name!r} is not a name of a table feature; give a text that is not empty", feature=name)


def _commit_protocol(access: Access, snapshot: Snapshot, after: Protocol, *, ack: str, timeout_s: Timeout) -> Commit:
    protocol = {
        "minReaderVersion": after.min_reader_version,
        "minWriterVersion": after.min_writer_version,
        "readerFeatures": list(after.reader_features or ()),
        "writerFeatures": list(after.writer_features or ()),
    }
    parameters = {"newProtocol": dumps(protocol).decode()}
    change = Change(access.new_transaction_id(), "UPGRADE PROTOCOL", snapshot, (after,), parameters=parameters, kind=Kind.OTHER)
    return access.ours.commit(change, ack=ack, timeout_s=timeout_s)
