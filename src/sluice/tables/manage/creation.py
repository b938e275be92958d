"""Bringing tables under the coordinator and giving them back: create, attach, detach."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from ...coordinator.commit.committer import Committer
from ...coordinator.commit.outcomes import Commit
from ...coordinator.errors import ProtocolChangedException
from ...coordinator.limits import LONGEST_PUT_S, LONGEST_SESSION_S
from ...coordinator.nodes.context import TableContext
from ...coordinator.nodes.coordinator_id import stamp
from ...coordinator.nodes.creation import check_tree, make_tree, remove_new_tree, reopen_tree, require_head
from ...coordinator.nodes.deletion_claim import deletion, require_no_deleter
from ...coordinator.nodes.presence import list_clients
from ...coordinator.nodes.records import Head
from ...coordinator.nodes.removal import Tombstone, read_tombstone, remove_closed_tree
from ...coordinator.service.clock import DEFAULT_TIMEOUT_S, Timeout
from ...storage.actions import Action, Metadata
from ...storage.actions.features import (
    FEATURE_PREFIX,
    check_asked_features,
    check_writable,
    downgrade_for_detach,
    is_managed,
    new_protocol,
    upgrade_for_attach,
)
from ...storage.actions.row_tracking import ROW_TRACKING_KEY, first_domain, materialized_columns, row_id_high_water_mark, tracks_rows
from ...storage.constants import ADDRESS_KEY, COORDINATOR_KEY, PROBE_PREFIX
from ...storage.data.constraints import Constraints
from ...storage.errors import AccessDenied, InvalidRequest, NotATable, TableExists, Unavailable
from ...storage.log.paths import commit_path
from ...storage.log.segment import latest_version, list_versions
from ...storage.log.snapshot import Snapshot
from ...storage.schema.schema import StructType, check_new_schema, from_arrow, parse_schema, schema_to_json
from ...storage.stores.objects import ObjectStore
from ..client.access import Access, require_own_coordinator
from ..client.address import TableAddress
from ..client.property_rules import check_asked, check_settings, is_on, with_defaults
from ..client.unpublished_versions import all_published
from ..maintain.garbage import first_stranger
from ..write.change import Change, Reads
from ..write.commit_change import commit_change, new_transaction_id

__all__ = ["access_for_creation", "attach", "create", "detach", "first_actions", "named_after_coordinator", "new_table", "require_empty"]

_log = logging.getLogger(__name__)
_ICT_KEY = "delta.enableInCommitTimestamps"
_ICT_VERSION_KEY = "delta.inCommitTimestampEnablementVersion"
_ICT_TIMESTAMP_KEY = "delta.inCommitTimestampEnablementTimestamp"


def new_table(schema: pa.Schema | StructType, partition_by: Sequence[str], properties: Mapping[str, str]) -> Metadata:
    """The metadata of a table to be: `first_actions` makes a version of it. Raises InvalidRequest or UnsupportedFeature."""
    if hasattr(schema, "__arrow_c_schema__"):
        schema = pa.schema(schema)
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


def named_after_coordinator(context: TableContext, coordinator: str | None, metadata: Metadata) -> Metadata:
    """The metadata with the properties that name the table's coordinator."""
    configuration = context.in_session(lambda session: stamp(session, coordinator, metadata.configuration))
    return replace(metadata, configuration=configuration)


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


def require_empty(store: ObjectStore) -> None:
    """Raise InvalidRequest where files lie that a table would take for its own, or a person would not look for in one."""
    key = first_stranger(store.list_from("", recursive=True))
    if key is not None:
        raise InvalidRequest(
            f"{store.location} is not empty: it holds {key!r}, which no table of sluice's wrote. Choose an empty place; bring a Delta "
            "table in with attach; or say that the files may stay beside the table's (allow_nonempty=True, in Spark "
            "allowNonEmpty=true): then a vacuum reports them, and deletes them only with include_foreign",
            location=store.location,
            key=key,
        )


def access_for_creation(address: TableAddress, *, allow_nonempty: bool) -> Access:
    """A way to commit the first version at a location where no table is, nor other files, unless these are allowed.

    Raises TableExists; InvalidRequest where there are files, and when the coordinator remembers a former table there and clients of
    it may live.
    """
    if type(allow_nonempty) is not bool:
        raise InvalidRequest(f"allow_nonempty is {allow_nonempty!r}; give True or False", allow_nonempty=allow_nonempty)
    store, context = address.store(), address.context()
    remove_closed_tree(context)
    tombstone = read_tombstone(context)
    if tombstone is not None:
        _require_settled(address, context, tombstone)
    _require_no_log(address, store)
    if not allow_nonempty:
        require_empty(store)
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


def _require_settled(address: TableAddress, context: TableContext, tombstone: Tombstone) -> None:
    """Raise where what is left of the former table, or a client of it that is not done, may get into the new one's way.

    A client of the former table that was paused may still put a version that was published long ago. Where the store has conditional
    put it harms nothing that is there. A version that it put into the empty folder is removed here, by one client at a time: a new table
    may have one of that name before a client that is paused removes it.
    """
    if tombstone.deleting:
        raise InvalidRequest(
            f"the table at {address.location} is being dropped, and its data are not all deleted yet: wait, or finish it with sluice drop",
            location=address.location,
        )
    require_no_deleter(context)
    store = context.objects
    left_ms = tombstone.at_ms + round((LONGEST_SESSION_S + LONGEST_PUT_S) * 1000) - context.clock.now_ms()
    if not store.atomic_put_if_absent and left_ms > 0:
        raise Unavailable(
            f"the table at {address.location} was dropped a moment ago, and its store has no conditional put: a client of it may overwrite "
            f"what a new one writes. Repeat this in {left_ms / 1000:.0f} s, or use another location",
            location=address.location,
            wait_s=left_ms / 1000,
        )
    if _stray(context, tombstone) is None:
        return
    with deletion(context, tombstone) as held:
        stray = _stray(context, tombstone)
        if stray is not None:
            held.require()
            store.delete(stray)


def _stray(context: TableContext, tombstone: Tombstone) -> str | None:
    """The version of a former table that lies where no table is: a single one, from which nothing can be read.

    Whatever else lies there is a table of its own, which was made or moved there since, or what is left of one; so is what lies there
    while the coordinator knows a table.
    """
    known, listing = check_tree(context), list_versions(context.objects)
    alone = not known and len(listing.commits) == 1 and not listing.checkpoints and 0 not in listing.commits
    return commit_path(max(listing.commits)) if alone and max(listing.commits) <= tombstone.last else None


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
        f"({others} other clients are connected). Restore the log; or let go of that table first: sluice forget {address.location}",
        location=address.location,
        version=head.version,
    )


def create(
    address: TableAddress,
    schema: pa.Schema | StructType,
    partition_by: Sequence[str],
    properties: Mapping[str, str],
    *,
    allow_nonempty: bool = False,
    timeout_s: Timeout = DEFAULT_TIMEOUT_S,
) -> tuple[Access, Commit]:
    """Create a table: version 0 holds its protocol and metadata. Of two who create one table, one gets TableExists."""
    metadata = new_table(schema, partition_by, properties)
    access = access_for_creation(address, allow_nonempty=allow_nonempty)
    metadata = named_after_coordinator(access.ours.context, address.coordinator, metadata)
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
    Nothing happens when the table is attached already and names this coordinator. Raises WrongCoordinator, TableNotFound, NotATable,
    UnsupportedFeature (for writing), and ForeignCommit when another engine writes the very next version meanwhile.
    """
    store = address.store()
    snapshot = Snapshot.load(store)
    context = address.context()
    remove_closed_tree(context)
    snapshot = all_published(context, snapshot)
    if is_managed(snapshot.protocol):
        require_own_coordinator(address, context, snapshot)
        if check_tree(context):
            return _named(Access.coordinated(address), timeout_s=timeout_s)
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
    configuration = dict(named_after_coordinator(context, address.coordinator, snapshot.metadata).configuration)
    if configuration.get(_ICT_KEY) != "true":
        configuration |= {_ICT_KEY: "true", _ICT_VERSION_KEY: str(version), _ICT_TIMESTAMP_KEY: str(claimed_ms)}
    access = Access(address, store, Committer(context))
    change = Change(
        new_transaction_id(access),
        "ATTACH",
        snapshot,
        (upgrade_for_attach(snapshot.protocol, configuration), replace(snapshot.metadata, configuration=configuration)),
        reads=Reads(),
        expected_version=version,
        table_id=snapshot.metadata.id,
        claimed_ms=claimed_ms,
    )
    return access, commit_change(access, change, timeout_s=timeout_s)


def _named(access: Access, *, timeout_s: Timeout) -> tuple[Access, Commit | None]:
    """See to it that an attached table names its coordinator: one of an earlier release does not."""
    snapshot = access.latest()
    metadata = named_after_coordinator(access.ours.context, access.address.coordinator, snapshot.metadata)
    if metadata == snapshot.metadata:
        return access, None
    change = Change(new_transaction_id(access), "ATTACH", snapshot, (metadata,), reads=Reads())
    return access, commit_change(access, change, timeout_s=timeout_s)


def detach(access: Access, *, operation: str = "DETACH", timeout_s: Timeout = DEFAULT_TIMEOUT_S) -> Commit:
    """Give a table back: a last commit takes sluice's writer feature (and in-commit timestamps) out of the protocol.

    Every Delta engine may write the table from then on, and sluice commits nothing to it until it is attached again.
    """
    snapshot = access.latest()
    ours = (_ICT_KEY, _ICT_VERSION_KEY, _ICT_TIMESTAMP_KEY, COORDINATOR_KEY, ADDRESS_KEY)
    configuration = {k: v for k, v in snapshot.configuration.items() if k not in ours}
    change = Change(
        new_transaction_id(access),
        operation,
        snapshot,
        (downgrade_for_detach(snapshot.protocol, also=("inCommitTimestamp",)), replace(snapshot.metadata, configuration=configuration)),
        reads=Reads(),
        detach=True,
    )
    return commit_change(access, change, timeout_s=timeout_s)
