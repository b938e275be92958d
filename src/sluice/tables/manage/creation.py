"""Bringing tables under the coordinator and detaching them: create, attach, detach."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final, TypedDict, TypeVar

import pyarrow as pa

from ...coordinator import api
from ...coordinator.api import Commit, Timeout
from ...coordinator.errors import ConcurrentModification, LeaseHeld, ProtocolChangedException
from ...coordinator.rules.intent import NOTHING_YET, Terms
from ...storage.actions import Action, AddFile, DomainMetadata, Metadata
from ...storage.actions.features import (
    CLUSTERING_FEATURE,
    FEATURE_PREFIX,
    ROW_TRACKING_KEY,
    check_asked_features,
    check_writable,
    clustering_columns,
    dotted,
    downgrade_for_detach,
    first_domain,
    is_managed,
    is_on,
    materialized_columns,
    new_protocol,
    row_id_high_water_mark,
    tracks_rows,
    upgrade_for_attach,
)
from ...storage.actions.file_removals import Actions
from ...storage.constants import (
    ADDRESS_KEY,
    COORDINATOR_KEY,
    ICT_ENABLED_KEY,
    ICT_ENABLEMENT_TIMESTAMP_KEY,
    ICT_ENABLEMENT_VERSION_KEY,
    LOG_FOLDER,
    MANAGED_KEY,
    NAME_KEY,
    NAMED_MS_KEY,
    PROBE_PREFIX,
)
from ...storage.data.assignments import check_definitions
from ...storage.data.constraints import Constraints
from ...storage.dataclass import dataclass
from ...storage.errors import AccessDenied, InvalidRequest, NotATable, SluiceError, TableExists, TableNotFound
from ...storage.jsontext import dumps
from ...storage.log.segment import latest_version
from ...storage.log.snapshot import Snapshot
from ...storage.schema.identity import counted_anew
from ...storage.schema.schema import StructType, check_new_schema, to_arrow
from ...storage.stores.objects import ObjectStore
from ..client.address import TableAddress
from ..client.open_table import OpenTable, all_published, open_coordinated
from ..client.property_rules import check_asked, check_settings, first_clustering, with_defaults
from ..maintain.garbage import is_hidden
from ..write.numbering import counted_exactly
from ..write.redefinition import struct_of

CREATION_MODES: Final = ("create", "if_not_exists", "or_replace", "replace")

_AGAIN_S: Final = 0.05

T = TypeVar("T")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class NewTable:
    """What a table is made of: it is checked, and nobody else knows of it yet."""

    metadata: Metadata
    clustering: tuple[DomainMetadata, ...] = ()
    """The metadata domain with the columns by which it is clustered."""


@dataclass(frozen=True, slots=True)
class NewName:
    """A name for a new table, whose log repeats it from the beginning."""

    name: api.TableName
    managed: bool
    """Whether the catalog chose the location."""
    named_ms: int
    """When the name was given, by the creator's clock."""


class TableArgs(TypedDict, total=False):
    """What a new table is, beside its schema."""

    partition_by: str | Sequence[str]
    """The columns by which its files are in folders."""
    cluster_by: str | Sequence[str]
    """Up to 4 columns, instead of partitions: `compact` brings rows together that are close in them."""
    properties: Mapping[str, str] | None
    comment: str | None
    """Its description."""


def new_table(
    schema: pa.Schema | StructType,
    partition_by: str | Sequence[str] = (),
    properties: Mapping[str, str] | None = None,
    *,
    cluster_by: str | Sequence[str] = (),
    comment: str | None = None,
) -> NewTable:
    """A new table of this schema; `comment` is its description. Raises InvalidRequest or UnsupportedFeature."""
    properties = {} if properties is None else properties
    columns = (partition_by,) if isinstance(partition_by, str) else tuple(partition_by)
    struct = struct_of(schema)
    if isinstance(properties, Mapping):
        check_asked_features({key: value for key, value in properties.items() if isinstance(key, str) and isinstance(value, str)})
    check_asked(properties, creating=True)
    configuration = {**with_defaults(properties), ICT_ENABLED_KEY: "true"}
    if is_on(configuration, ROW_TRACKING_KEY):
        configuration |= materialized_columns()
    metadata = Metadata(str(uuid.uuid4()), "", columns, description=comment, configuration=configuration).with_schema(counted_anew(struct))
    check_new_schema(struct := metadata.schema, columns)
    check_settings(configuration, struct)
    check_definitions(struct)
    check_writable(new_protocol(struct, configuration), metadata)
    Constraints.of(struct, metadata)
    return NewTable(metadata, first_clustering(cluster_by, metadata))


def _require_writable(store: ObjectStore) -> None:
    """Put a throw-away object, so that a read-only location is refused before anything is decided about it."""
    probe = PROBE_PREFIX + uuid.uuid4().hex
    store.put(probe, b"a place for a table")
    try:
        store.delete(probe)
    except AccessDenied as error:  # a client that may not delete can still write a table
        _log.warning("%s/%s was left behind: %s", store.location, probe, error)


def require_empty(store: ObjectStore) -> None:
    """Raise InvalidRequest if there are files that a table would take for its own, or that nobody would look for in one.

    No vacuum deletes hidden files, and an earlier attempt to create the table left those with a transaction id.
    """
    for each in store.list_from("", recursive=True):
        key = each.key
        # check: no-table-around-a-table (without or "/" + LOG_FOLDER in key)
        if not key.startswith(LOG_FOLDER) and (not is_hidden(key, ()) or "/" + LOG_FOLDER in key) and api.id_in(key) is None:
            raise InvalidRequest(
                f"{store.location} is not empty: it has {key!r}, which no table of sluice's wrote. Choose an empty place; bring a Delta "
                "table in with attach; or say that the files may stay beside the table's (allow_nonempty=True, in Spark "
                "allowNonEmpty=true): then a vacuum reports them, and deletes them only with include_foreign",
                location=store.location,
                key=key,
            )


def table_for_creation(address: TableAddress, *, allow_nonempty: bool, name: NewName | None = None) -> OpenTable:
    """The table, for committing the first version at a location without a table or, unless allowed, other files.

    Raises TableExists, also if the `name` that it is to get is taken; InvalidRequest if there are files, or if the coordinator remembers a
    former table there that may have live clients.
    """
    if type(allow_nonempty) is not bool:
        raise InvalidRequest(f"allow_nonempty is {allow_nonempty!r}; give True or False", allow_nonempty=allow_nonempty)
    table = OpenTable.of(address)
    store = table.store
    api.require_settled(table.context)
    try:
        require_no_log(address, store)
        # check: no-table-among-files
        if not allow_nonempty:
            require_empty(store)
        has_nodes = api.check_tree(table.context)
        head = table.head() if has_nodes else api.Head()
        if head.version >= 0:
            if table.published_version() < 0 or latest_version(store) is not None:
                raise _created_meanwhile(address)
            others = len(api.list_clients(api.connect(address.coordinator))) - 1
            raise InvalidRequest(
                f"the coordinator knows a table at {address.location} with version {head.version}, but its log is gone ({others} other "
                f"clients are connected). Restore the log; or let go of that table first: sluice forget {address.location}",
                location=address.location,
                version=head.version,
            )
    except TableExists:
        if name is not None:
            finish_naming(address, name.name)
        raise
    if name is not None:
        api.require_free(api.look_up(api.CatalogClient.of(table.context), name.name))
    _require_writable(store)  # after the name: a creation that cannot have it leaves no folder behind
    if not has_nodes:  # nodes that were lost meanwhile must not be replaced
        api.make_new_tree(table.context)
    try:
        require_no_log(address, store)
    except TableExists:  # it was created since that look, and the coordinator lost its data: these nodes do not belong to that log
        api.remove_new_tree(table.context)
        raise
    return table


def require_no_log(address: TableAddress, store: ObjectStore) -> None:
    """Raise TableExists if there is a Delta table."""
    if latest_version(store) is not None:
        raise TableExists(f"a table already exists at {address.location}; open it, or choose another location", location=address.location)


def create(
    address: TableAddress,
    new: NewTable,
    *,
    name: NewName | None = None,
    allow_nonempty: bool = False,
    timeout_s: Timeout = api.DEFAULT_TIMEOUT_S,
) -> tuple[OpenTable, Commit]:
    """Create a table: version 0 has its protocol and metadata, and repeats a `name`, which the caller gives (`naming.give_name`).

    If two clients create one table, one gets TableExists.
    """
    table = table_for_creation(address, allow_nonempty=allow_nonempty, name=name)
    return table, commit_first(table, first_change(table, new, (), name, operation="CREATE TABLE"), timeout_s=timeout_s)


def first_change(
    table: OpenTable,
    new: NewTable,
    files: Sequence[AddFile],
    name: NewName | None = None,
    *,
    operation: str,
    row_ids: DomainMetadata | None = None,
) -> api.Change:
    """The change that becomes version 0: the table's protocol, metadata and clustering, and its files.

    The metadata name its coordinator, and the table's `name`, if it gets one. `row_ids` says where the ids of the files' rows end.
    """
    metadata = api.named_after_coordinator(table.context, new.metadata)
    configuration = dict(metadata.configuration)
    if name is not None:
        configuration |= properties_of_name(str(name.name), name.named_ms, managed=name.managed)
    features = {FEATURE_PREFIX + CLUSTERING_FEATURE: "supported"} if new.clustering else {}
    protocol = new_protocol(metadata.schema, {**configuration, **features})
    # features requested by name are in the protocol now
    kept = {key: value for key, value in configuration.items() if not key.startswith(FEATURE_PREFIX)}
    metadata = replace(metadata, configuration=kept, created_time=table.clock.now_ms())
    actions: list[Action] = [protocol, metadata, *new.clustering]
    if row_ids is not None or tracks_rows(metadata, protocol):
        actions.append(row_ids or first_domain())
    parameters = {"partitionBy": dumps(list(metadata.partition_columns)).decode()}
    columns = [dotted(path) for path in clustering_columns({each.domain: each for each in new.clustering}, metadata.schema)]
    if columns:
        parameters["clusterBy"] = dumps(columns).decode()
    terms = Terms(if_version=NOTHING_YET)
    return api.Change(
        table.new_transaction_id(), operation, None, Actions(actions, files), terms=terms, parameters=parameters, table_id=metadata.id
    )


def commit_first(table: OpenTable, change: api.Change, *, timeout_s: Timeout) -> Commit:
    """Commit version 0. Raises TableExists for a table that is there."""
    try:
        return api.submit(table, change, timeout_s=timeout_s)
    except ProtocolChangedException as lost:
        raise _created_meanwhile(table.address) from lost


def properties_of_name(name: str, named_ms: int, *, managed: bool) -> dict[str, str]:
    """The properties that repeat a table's name in its log, for recovery; "" for a name taken away."""
    return {NAME_KEY: name, NAMED_MS_KEY: str(named_ms), MANAGED_KEY: str(managed).lower()}


def finish_naming(address: TableAddress, name: api.TableName) -> None:
    """Give the table at a location this name, if its log repeats it: its creator has not done it yet, or died before."""
    with suppress(SluiceError):  # the table has a name, or another one has this name, or it is not ours: then there is nothing to finish
        table = open_coordinated(address)
        configuration = table.latest().configuration
        if configuration.get(NAME_KEY, "").lower() == str(name).lower():
            api.register_name(api.CatalogClient.of(table.context), name, table.location, named_ms=int(configuration[NAMED_MS_KEY]))


def created_or_found(address: TableAddress, mode: str, create: Callable[[], tuple[OpenTable, Commit]]) -> tuple[OpenTable, Commit | None]:
    """The table, and the commit that made it, None if it was there before: `create` makes it where the mode says so.

    Raises InvalidRequest for an unknown mode, TableExists for "create", TableNotFound for "replace", and NotATable for a Delta table
    that is not attached.
    """
    if mode not in CREATION_MODES:
        raise InvalidRequest(f"mode is {mode!r}; use one of {', '.join(CREATION_MODES)}", mode=mode)
    if mode == "create":
        return create()
    for may_create in (mode != "replace", False):
        try:
            return open_coordinated(address), None
        except (TableNotFound, NotATable):
            if not may_create:
                raise
            if latest_version(address.store()) is not None:
                continue  # another client created it since that look, or it is a Delta table that is not attached: the second look tells
        try:
            return create()
        except TableExists:
            _log.info("%s was created by another client at the same moment", address.location)
    raise AssertionError("the second look returns or raises")


def beside_others(
    attempt: Callable[[], T], exists: Callable[[], bool], *, replaces: bool = False, timeout_s: Timeout = api.DEFAULT_TIMEOUT_S
) -> T:
    """What `attempt` gives, which takes a table that is there or creates it; it is repeated where another client was faster.

    `exists` says whether the table is there. With `replaces` it replaces the table, whatever that holds by then. Raises TableExists if
    something else is in its place, and if another client does not finish its table in time.
    """
    ends = api.Deadline.of(timeout_s)
    while True:
        try:
            return attempt()
        except TableExists as taken:
            if ends.over or not (taken.details.get("unfinished") or exists()):
                raise
            _log.info("another client was faster: %s", taken)
        except (ConcurrentModification, LeaseHeld) as lost:  # LeaseHeld: the other client lost before, and now has priority
            if ends.over or not replaces:
                raise
            _log.info("another client was faster: %s", lost)
        time.sleep(_AGAIN_S)


def _created_meanwhile(address: TableAddress) -> TableExists:
    return TableExists(
        f"another client created a table at {address.location} at the same moment; open it, or choose another location",
        location=address.location,
        unfinished=True,
    )


def attach(address: TableAddress, *, timeout_s: Timeout = api.DEFAULT_TIMEOUT_S) -> tuple[OpenTable, Commit | None]:
    """Bring in an existing Delta table: from now on only sluice may write it, and every Delta reader reads it as before.

    The commit after its latest version adds the writer feature and in-commit timestamps; ratified versions are published before. Nothing
    happens if the table is attached and names this coordinator. Raises WrongCoordinator, TableNotFound, NotATable, UnsupportedFeature
    (for writing), and ForeignCommit if another engine writes the very next version meanwhile.
    """
    store = address.store()
    snapshot = Snapshot.load(store)
    snapshot.require_order()
    table = OpenTable.of(address)
    api.remove_closed_tree(table.context)
    snapshot = all_published(table, snapshot)
    if is_managed(snapshot.protocol):
        api.require_own_coordinator(table.context, snapshot)
        if api.check_tree(table.context):
            table = open_coordinated(address)
            snapshot = table.latest()
            metadata = api.named_after_coordinator(table.context, snapshot.metadata)
            if metadata == snapshot.metadata:
                return table, None
            # an earlier release attached it, and did not name the coordinator
            change = api.Change(table.new_transaction_id(), "ATTACH", snapshot, (metadata,))
            return table, api.submit(table, change, timeout_s=timeout_s)
        raise NotATable(
            f"{address.location} is managed by sluice, but not by this coordinator; name the one its writers use, or detach it there first",
            location=address.location,
        )
    check_writable(snapshot.protocol, snapshot.metadata)
    check_settings(snapshot.configuration, snapshot.metadata.schema)
    # check: unknown-types-are-not-attached
    to_arrow(snapshot.metadata.schema)
    _require_writable(store)
    version = snapshot.version + 1
    claimed_ms = max(table.clock.now_ms(), snapshot.timestamp_ms + 1)
    start = api.Head(
        version=snapshot.version,
        timestamp_ms=claimed_ms - 1,
        metadata_version=snapshot.version,
        table_id=snapshot.metadata.id,
        row_ids=row_id_high_water_mark(snapshot.domains, snapshot.metadata, snapshot.protocol),
    )
    api.register_beside_log(table.context, start)
    configuration = dict(api.named_after_coordinator(table.context, snapshot.metadata).configuration)
    if configuration.get(ICT_ENABLED_KEY) != "true":
        configuration |= {ICT_ENABLED_KEY: "true", ICT_ENABLEMENT_VERSION_KEY: str(version), ICT_ENABLEMENT_TIMESTAMP_KEY: str(claimed_ms)}
    change = api.Change(
        table.new_transaction_id(),
        "ATTACH",
        snapshot,
        (upgrade_for_attach(snapshot.protocol, configuration), replace(snapshot.metadata, configuration=configuration)),
        terms=Terms(if_version=version - 1),
        table_id=snapshot.metadata.id,
        claimed_ms=claimed_ms,
    )
    return table, api.submit(table, change, timeout_s=timeout_s)


def detach(table: OpenTable, *, operation: str = "DETACH", for_good: bool = False, timeout_s: Timeout = api.DEFAULT_TIMEOUT_S) -> Commit:
    """Detach a table: a last commit removes sluice's writer feature (and in-commit timestamps) from the protocol.

    Every Delta engine may write the table from then on, sluice only when it is attached again. With `for_good` the log forgets its name.
    """
    snapshot = table.latest()
    ours = (ICT_ENABLED_KEY, ICT_ENABLEMENT_VERSION_KEY, ICT_ENABLEMENT_TIMESTAMP_KEY, COORDINATOR_KEY, ADDRESS_KEY)
    gone = (*ours, NAME_KEY, NAMED_MS_KEY, MANAGED_KEY) if for_good else ours
    configuration = {k: v for k, v in snapshot.configuration.items() if k not in gone}
    protocol = downgrade_for_detach(snapshot.protocol, also=("inCommitTimestamp",))
    metadata = counted_exactly(table, replace(snapshot.metadata, configuration=configuration))
    return api.submit(
        table, api.Change(table.new_transaction_id(), operation, snapshot, (protocol, metadata), detach=True), timeout_s=timeout_s
    )
