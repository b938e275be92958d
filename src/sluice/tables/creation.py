"""Bringing tables under the coordinator and giving them back: create, attach, detach."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from ..coordinator.bootstrap import check_tree, make_tree, remove_new_tree, reopen_tree, require_head
from ..coordinator.clock import Timeout
from ..coordinator.committer import Committer
from ..coordinator.context import TableContext
from ..coordinator.errors import ProtocolChangedException
from ..coordinator.outcomes import Commit
from ..coordinator.presence import list_clients
from ..coordinator.records import Head
from ..storage.actions import Action, Metadata
from ..storage.constants import PROBE_PREFIX
from ..storage.constraints import Constraints
from ..storage.errors import AccessDenied, InvalidRequest, NotATable, TableExists
from ..storage.features import (
    FEATURE_PREFIX,
    check_asked_features,
    check_writable,
    downgrade_for_detach,
    is_managed,
    new_protocol,
    upgrade_for_attach,
)
from ..storage.objects import ObjectStore
from ..storage.row_tracking import ROW_TRACKING_KEY, first_domain, materialized_columns, row_id_high_water_mark, tracks_rows
from ..storage.schema import StructType, check_new_schema, from_arrow, parse_schema, schema_to_json
from ..storage.segment import latest_version
from ..storage.snapshot import Snapshot
from .access import Access, TableAddress
from .opening import all_published
from .property_rules import check_asked, check_settings, is_on, with_defaults
from .transactions import DEFAULT_TIMEOUT_S, Change, Reads, commit_change, new_transaction_id

__all__ = ["access_for_creation", "attach", "create", "detach", "first_actions", "new_table"]

_log = logging.getLogger(__name__)
_ICT_KEY = "delta.enableInCommitTimestamps"
_ICT_VERSION_KEY = "delta.inCommitTimestampEnablementVersion"
_ICT_TIMESTAMP_KEY = "delta.inCommitTimestampEnablementTimestamp"


def new_table(schema: pa.Schema | StructType, partition_by: Sequence[str], properties: Mapping[str, str]) -> Metadata:
    """The metadata of a table to be: `first_actions` makes a version of it. Raises InvalidRequest or UnsupportedFeature."""
    if not isinstance(schema, (pa.Schema, StructType)):
        raise InvalidRequest(f"the schema is of type {type(schema).__name__}; give a pyarrow.schema([...])")
    struct = schema if isinstance(schema, StructType) else from_arrow(schema)
    check_new_schema(struct, partition_by)
    if isinstance(properties, Mapping):
        check_asked_features({key: value for key, value in properties.items() if isinstance(key, str) and isinstance(value, str)})
    check_asked(properties, creating=True)
    configuration = {**with_defaults(properties), _ICT_KEY: "true"}
    if is_on(configuration, ROW_TRACKING_KEY):
        configuration |= materialized_columns()
    check_settings(configuration, struct)
    metadata = Metadata(
        id=str(uuid.uuid4()), schema_string=schema_to_json(struct), partition_columns=tuple(partition_by), configuration=configuration
    )
    check_writable(new_protocol(struct, configuration), metadata)
    Constraints.of(struct, metadata)
    return metadata


def first_actions(metadata: Metadata, clock_ms: int) -> tuple[Action, ...]:
    """What the first version of a table holds: its protocol, its metadata, and where row ids begin if it has any."""
    protocol = new_protocol(parse_schema(metadata.schema_string), metadata.configuration)
    # features that were asked for by name stand in the protocol now
    kept = {key: value for key, value in metadata.configuration.items() if not key.startswith(FEATURE_PREFIX)}
    metadata = replace(metadata, configuration=kept, created_time=clock_ms)
    return (protocol, metadata, *([first_domain()] if tracks_rows(metadata, protocol) else []))


def _require_writable(store: ObjectStore) -> None:
    """Put a throw-away object, so that a place that takes none is refused before anything is decided about it."""
    probe = PROBE_PREFIX + uuid.uuid4().hex
    store.put(probe, b"a place for a table")
    try:
        store.delete(probe)
    except AccessDenied as error:  # whoever may not delete can write a table all the same
        _log.warning("%s/%s was left behind: %s", store.location, probe, error)


def access_for_creation(address: TableAddress) -> Access:
    """A way to commit the first version at a location where no table is.

    Raises TableExists; InvalidRequest when the coordinator remembers a former table there and clients of it may live.
    """
    store = address.store()
    _require_no_log(address, store)
    context = address.context()
    known = check_tree(context)
    if known:
        _require_no_former_table(address, store, context)
    _require_writable(store)
    if not known:  # in place of nodes that were lost meanwhile none are made
        make_tree(context, Head())
    try:
        _require_no_log(address, store)
    except TableExists:  # it was created since that look, and the coordinator lost its data: those nodes are not for this log
        remove_new_tree(context)
        raise
    return Access(address, store, Committer(context))


def _require_no_log(address: TableAddress, store: ObjectStore) -> None:
    if latest_version(store) is not None:
        raise TableExists(f"there is a table at {address.location} already; open it, or choose another location", location=address.location)


def _require_no_former_table(address: TableAddress, store: ObjectStore, context: TableContext) -> None:
    head, published = require_head(context), context.read_published()
    if head.version < 0:
        return
    if published is None or published[0].version < 0 or latest_version(store) is not None:
        raise _created_meanwhile(address)
    others = len(list_clients(context.coordination)) - 1
    raise InvalidRequest(
        f"the coordinator knows a table at {address.location} with version {head.version}, but its log is gone "
        f"({others} other clients are connected). A location's versions never start again while a writer of the former table "
        "may live: use another location, or restore the log",
        location=address.location,
        version=head.version,
    )


def create(
    address: TableAddress,
    schema: pa.Schema | StructType,
    partition_by: Sequence[str],
    properties: Mapping[str, str],
    *,
    timeout_s: Timeout = DEFAULT_TIMEOUT_S,
) -> tuple[Access, Commit]:
    """Create a table: version 0 holds its protocol and metadata. Of two who create one table, one gets TableExists."""
    metadata = new_table(schema, partition_by, properties)
    access = access_for_creation(address)
    change = Change(
        new_transaction_id(access),
        "CREATE TABLE",
        None,
        first_actions(metadata, access.ours.context.clock.now_ms()),
        reads=Reads(),
        parameters={"partitionBy": str(list(partition_by))},
        expected_version=0,
        table_id=metadata.id,
    )
    try:
        return access, commit_change(access, change, timeout_s=timeout_s)
    except ProtocolChangedException as lost:
        raise _created_meanwhile(address) from lost


def _created_meanwhile(address: TableAddress) -> TableExists:
    return TableExists(
        f"somebody else created a table at {address.location} at the same moment; open it, or choose another location",
        location=address.location,
    )


def attach(address: TableAddress, *, timeout_s: Timeout = DEFAULT_TIMEOUT_S) -> tuple[Access, Commit | None]:
    """Bring an existing Delta table in: from now on only sluice may write it, and every Delta reader reads it as before.

    The commit after its latest version adds the writer feature and in-commit timestamps; what is ratified is published before.
    Nothing happens when the table is attached already. Raises TableNotFound, NotATable, UnsupportedFeature (for writing), and
    ForeignCommit when another engine writes the very next version meanwhile.
    """
    store = address.store()
    snapshot = Snapshot.load(store)
    context = address.context()
    snapshot = all_published(context, snapshot)
    if is_managed(snapshot.protocol):
        if check_tree(context):
            return Access.coordinated(address), None
        raise NotATable(
            f"{address.location} is managed by sluice, but not by this coordinator; name the one its writers use, or detach it there first",
            location=address.location,
        )
    check_writable(snapshot.protocol, snapshot.metadata)
    check_settings(snapshot.configuration, parse_schema(snapshot.metadata.schema_string))
    _require_writable(store)
    version = snapshot.version + 1
    claimed_ms = max(context.clock.now_ms(), snapshot.timestamp_ms + 1)
    start = Head(
        version=snapshot.version,
        timestamp_ms=claimed_ms - 1,
        metadata_version=snapshot.version,
        table_id=snapshot.metadata.id,
        row_ids=row_id_high_water_mark(snapshot.domains, snapshot.metadata, snapshot.protocol),
    )
    remove_new_tree(context)  # somebody began to create a table here and saw no log: those nodes are not for this one
    make_tree(context, start)
    reopen_tree(context, start)
    configuration = dict(snapshot.configuration)
    if configuration.get(_ICT_KEY) != "true":
        configuration |= {_ICT_KEY: "true", _ICT_VERSION_KEY: str(version), _ICT_TIMESTAMP_KEY: str(claimed_ms)}
    access = Access(address, store, Committer(context))
    change = Change(
        new_transaction_id(access),
        "ATTACH",
        snapshot,
        (upgrade_for_attach(snapshot.protocol), replace(snapshot.metadata, configuration=configuration)),
        reads=Reads(),
        expected_version=version,
        table_id=snapshot.metadata.id,
        claimed_ms=claimed_ms,
    )
    return access, commit_change(access, change, timeout_s=timeout_s)


def detach(access: Access, *, timeout_s: Timeout = DEFAULT_TIMEOUT_S) -> Commit:
    """Give a table back: a last commit takes sluice's writer feature (and in-commit timestamps) out of the protocol.

    Every Delta engine may write the table from then on, and sluice commits nothing to it until it is attached again.
    """
    snapshot = access.latest()
    configuration = {k: v for k, v in snapshot.configuration.items() if k not in (_ICT_KEY, _ICT_VERSION_KEY, _ICT_TIMESTAMP_KEY)}
    change = Change(
        new_transaction_id(access),
        "DETACH",
        snapshot,
        (downgrade_for_detach(snapshot.protocol, also=("inCommitTimestamp",)), replace(snapshot.metadata, configuration=configuration)),
        reads=Reads(),
        detach=True,
    )
    return commit_change(access, change, timeout_s=timeout_s)
