"""CLONE: another table with the rows of a version, whose files stay where they are (a shallow clone).

The clone's log names them by absolute URIs. It never deletes them, for garbage collection looks below its own location only; but
the original's garbage collection does not know of its clones, and deletes what the original no longer needs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace

import pyarrow as pa

from ...coordinator.api import DEFAULT_TIMEOUT_S, Change, Commit, Reads, Timeout, pin_version, submit
from ...coordinator.rules.intent import Kind, Terms
from ...coordinator.rules.isolation import IsolationLevel
from ...storage.actions import Action, AddFile, DeletionVector
from ...storage.actions.features import FEATURE_PREFIX, check_writable
from ...storage.actions.file_removals import Actions, Removals
from ...storage.actions.filetable import adds_of
from ...storage.actions.uris import absolute
from ...storage.data.row_ids import ROW_ID_COLUMN_KEY, ROW_TRACKING_DOMAIN, ROW_TRACKING_KEY, materialized_columns
from ...storage.data.vectors import vector_key
from ...storage.dataclass import dataclass
from ...storage.errors import InvalidRequest
from ...storage.log.snapshot import Snapshot
from ...storage.schema.partitions import path_to_uri
from ...storage.schema.schema import parse_schema
from ..client.address import TableAddress
from ..client.clustering_rules import clustering_names, first_clustering
from ..client.open_table import OpenTable, ReadTable
from ..client.property_rules import is_kept_by_sluice
from ..client.published_table import PublishedTable
from ..write.redefinition import redefined
from ..write.requirements import require_replaceable
from .creation import NewTable, commit_first, created_or_found, first_change, new_table, table_for_creation


@dataclass(frozen=True, slots=True)
class _Original:
    """A version to clone: its files by absolute URIs, the properties asked for, and what the history says of the clone."""

    version: Snapshot
    adds: Sequence[AddFile]
    settings: Mapping[str, str]
    parameters: Mapping[str, str]
    sizes: Mapping[str, int]


def clone(
    source: ReadTable,
    version: int,
    target: TableAddress,
    *,
    over: bool = False,
    properties: Mapping[str, str] | None = None,
    timeout_s: Timeout = DEFAULT_TIMEOUT_S,
) -> tuple[OpenTable, Commit]:
    """Make a shallow clone of a version at another location; `over` lets it replace the table there, in one commit.

    `properties` are set in addition to the original's. Raises TableExists, InvalidRequest for a location in another kind of
    store, UnsupportedFeature.
    """
    then = source.at(version)
    location = source.location
    if target.location == location:
        raise InvalidRequest(f"{location} cannot be its own clone; name another location, or use restore()", location=location)
    if target.location.partition(":")[0] != location.partition(":")[0]:
        raise InvalidRequest(
            f"a shallow clone of {location} at {target.location} would name files in another kind of store; clone within the store, or "
            "copy the rows",
            location=target.location,
        )
    check_writable(then.protocol, then.metadata)
    adds = [_at_home(location, add) for add in adds_of(then.files)]
    vectors = any(add.deletion_vector is not None for add in adds)
    settings = {key: value for key, value in then.configuration.items() if not is_kept_by_sluice(key)}
    settings |= dict(properties or {})
    if vectors:
        settings[FEATURE_PREFIX + "deletionVectors"] = "supported"
    parameters = {"source": location, "sourceVersion": str(version), "isShallow": "true"}
    sizes = {"sourceTableSize": then.size_bytes, "sourceNumOfFiles": then.num_files, "numCopiedFiles": 0, "copiedFilesSize": 0}

    original = _Original(then, adds, settings, parameters, sizes)

    def create() -> tuple[OpenTable, Commit]:
        return _created(target, original, timeout_s)

    with nullcontext() if isinstance(source, PublishedTable) else pin_version(source.context, version):
        if not over:
            return create()
        return _created_or_replaced(target, create, lambda table: _replaced(table, original, timeout_s))


def _created_or_replaced(
    target: TableAddress, create: Callable[[], tuple[OpenTable, Commit]], replace_table: Callable[[OpenTable], Commit]
) -> tuple[OpenTable, Commit]:
    made: list[Commit] = []

    def create_noting() -> tuple[OpenTable, Commit]:
        table, commit = create()
        made.append(commit)
        return table, commit

    table, existed = created_or_found(target, "or_replace", create_noting)
    return table, replace_table(table) if existed else made[-1]


def _created(target: TableAddress, original: _Original, timeout_s: Timeout) -> tuple[OpenTable, Commit]:
    then, adds = original.version, original.adds
    tracked = {ROW_TRACKING_KEY: "true"} if then.configuration.get(ROW_TRACKING_KEY, "false").lower() == "true" else {}
    metadata = new_table(parse_schema(then.metadata.schema_string), then.partition_columns, {**original.settings, **tracked}).metadata
    if tracked:  # files with copied rows keep their ids in columns of these names
        names = {key: value for key, value in then.configuration.items() if key.startswith("delta.rowTracking.")}
        metadata = replace(metadata, configuration={**metadata.configuration, **names})
    metadata = replace(metadata, name=then.metadata.name, description=then.metadata.description)
    mark = then.domains.get(ROW_TRACKING_DOMAIN) if tracked else None
    table = table_for_creation(target, allow_nonempty=False)
    metrics = {name: str(value) for name, value in {**original.sizes, "numRemovedFiles": 0, "removedFilesSize": 0}.items()}
    new = NewTable(metadata, first_clustering(clustering_names(then), metadata))
    files = adds if tracked else [_without_row_ids(add) for add in adds]
    change = first_change(table, new, files, operation="CLONE", row_ids=mark)
    change = replace(change, parameters=original.parameters, metrics=metrics)
    return table, commit_first(table, change, timeout_s=timeout_s)


def _replaced(table: OpenTable, original: _Original, timeout_s: Timeout) -> Commit:
    then, adds, settings = original.version, original.adds, original.settings
    latest = table.latest()
    check_writable(latest.protocol, latest.metadata)
    require_replaceable(table.location, latest)
    struct = parse_schema(then.metadata.schema_string)
    becomes = redefined(latest, struct, then.partition_columns, settings, "CLONE", clustering_names(then))
    metadata = becomes.metadata
    if metadata.configuration.get(ROW_ID_COLUMN_KEY, "") == then.configuration.get(ROW_ID_COLUMN_KEY):
        # a former clone of that table: ids that its files carry could be given to other rows here
        metadata = replace(metadata, configuration={**metadata.configuration, **materialized_columns()})
    metrics = {**original.sizes, "numRemovedFiles": latest.num_files, "removedFilesSize": latest.size_bytes}
    actions: list[Action] = [] if becomes.protocol == latest.protocol else [becomes.protocol]
    # a file that both hold is removed and added again, which one commit must not do
    kept = {add.key for add in adds}
    gone = latest.files.filter(pa.array([add.key not in kept for add in adds_of(latest.files)], pa.bool_()))
    there = {add.key for add in adds_of(latest.files)}
    change = Change(
        table.new_transaction_id(),
        "CLONE",
        latest,
        Actions(
            [*actions, metadata, *becomes.clustering],
            Removals(gone, table.clock.now_ms()),
            [_without_row_ids(add) for add in adds if add.key not in there],
        ),
        reads=Reads(predicates=("",), whole_table=True),
        parameters=original.parameters,
        metrics={name: str(value) for name, value in metrics.items()},
        schema=parse_schema(latest.metadata.schema_string),
        kind=Kind.CHANGE,
        scope="",
        terms=Terms(IsolationLevel.SERIALIZABLE.value),
    )
    return submit(table, change, timeout_s=timeout_s)


def _without_row_ids(add: AddFile) -> AddFile:
    return replace(add, base_row_id=None, default_row_commit_version=None)


def _at_home(location: str, add: AddFile) -> AddFile:
    """The file and its deletion vector with absolute URIs."""
    vector = add.deletion_vector
    if vector is not None and vector.storage_type == "u":
        key = vector_key(vector)
        assert key is not None
        vector = DeletionVector("p", _uri(location, path_to_uri(key)), vector.size_in_bytes, vector.cardinality, vector.offset)
    return replace(add, path=_uri(location, add.path), deletion_vector=vector, data_change=True)


def _uri(location: str, path: str) -> str:
    """The absolute URI of a path of the log, percent-encoded."""
    if absolute(location, path) is not None:
        return path
    scheme, _, rest = location.partition("://")
    return f"{scheme}://{path_to_uri(rest)}/{path}"
