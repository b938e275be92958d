"""Tables of files that are there already, and stay where they are: CONVERT and CLONE; and lists of a table's files: GENERATE.

CONVERT makes a folder of Parquet files a table in place.

CLONE makes another table with the rows of a version (a shallow clone). Its log names their files by absolute URIs. It never deletes
them, for garbage collection looks below its own location only; but the original's garbage collection does not know of its clones, and
deletes what the original no longer needs.

GENERATE writes manifests, for engines that read files by lists (Presto, Athena, Redshift: "symlink format").
`_symlink_format_manifest/<partition folders>/manifest` has the absolute URI of each file of a version, one a line. Nothing of it is part of
the log.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Final
from urllib.parse import unquote

import pyarrow as pa

from ...coordinator.api import DEFAULT_TIMEOUT_S, Change, Commit, Reads, Timeout, pin_version, submit
from ...coordinator.rules.intent import IsolationLevel, Kind, Terms
from ...storage.actions import Action, AddFile, DeletionVector, Metadata
from ...storage.actions.features import (
    FEATURE_PREFIX,
    ROW_ID_COLUMN_KEY,
    ROW_TRACKING_DOMAIN,
    ROW_TRACKING_KEY,
    check_writable,
    is_on,
    materialized_columns,
)
from ...storage.actions.file_removals import Actions, Removals
from ...storage.actions.filetable import adds_of
from ...storage.actions.records import readable_stats
from ...storage.actions.uris import absolute
from ...storage.caches import at_once
from ...storage.constants import LOG_FOLDER
from ...storage.data.statistics import Footer, read_footer
from ...storage.data.vectors import vector_key
from ...storage.dataclass import dataclass
from ...storage.errors import Corrupt, InvalidRequest, SchemaMismatch, TableNotFound, UnsupportedFeature
from ...storage.log.snapshot import Snapshot
from ...storage.schema.identity import next_number
from ...storage.schema.mapping import HIGHEST_ID_KEY, MODE_KEY, mapping_mode
from ...storage.schema.partitions import HIVE_DEFAULT_PARTITION, decode_value, encode_value, folder, path_to_uri, uri_to_path
from ...storage.schema.schema import PrimitiveType, StructField, StructType, merge
from ...storage.stores.objects import ObjectInfo, ObjectStore
from ..client.address import TableAddress
from ..client.open_table import OpenTable, ReadTable
from ..client.property_rules import (
    CONSTRAINT_PREFIX,
    PRIMARY_KEY,
    clustering_names,
    first_clustering,
    indexed_columns_of,
    is_kept_by_sluice,
)
from ..client.published_table import PublishedTable
from ..maintain.garbage import is_hidden
from ..write.numbering import with_numbers
from ..write.redefinition import redefined, struct_of
from ..write.requirements import require_replaceable
from .creation import NewTable, commit_first, created_or_found, first_change, new_table, require_no_log, table_for_creation

MODE: Final = "symlink_format_manifest"
_MANIFESTS: Final = "_symlink_format_manifest/"
_MANIFEST: Final = "manifest"
_READ_AT_ONCE: Final = 16


def convert(
    address: TableAddress,
    partition_schema: pa.Schema | StructType | None,
    properties: Mapping[str, str],
    *,
    timeout_s: Timeout = DEFAULT_TIMEOUT_S,
) -> tuple[OpenTable, Commit]:
    """Make a table of the Parquet files at a location: its version 0 adds them all, with the statistics of their footers.

    Raises TableExists, TableNotFound if there is no file, InvalidRequest and SchemaMismatch, naming a file that does not fit.
    """
    if mapping_mode(properties) != "none":
        raise InvalidRequest(f"the files have the columns' names: convert first, and then set {MODE_KEY} to 'name'", property=MODE_KEY)
    unchecked = [key for key in properties if str(key).startswith(CONSTRAINT_PREFIX) or key == PRIMARY_KEY]
    if unchecked:
        raise InvalidRequest(
            f"convert() reads no rows, so it cannot check that they satisfy {', '.join(unchecked)}: convert first, then set_properties() "
            "checks a constraint (a primary key needs an empty table)",
            properties=unchecked,
        )
    partitions = StructType([]) if partition_schema is None else struct_of(partition_schema)
    for each in partitions.fields:
        if not isinstance(each.type, PrimitiveType):
            raise InvalidRequest(f"partition column {each.name!r} is {each.type}; folders hold values of primitive types", column=each.name)
    partitions = StructType([StructField(each.name, each.type) for each in partitions.fields])
    store = address.store()
    require_no_log(address, store)
    listed = _data_files(store, partitions.names)
    if not listed:
        raise TableNotFound(f"there is no Parquet file at {address.location} to make a table of", location=address.location)
    values = [_values(each.key, partitions) for each in listed]
    footers = at_once(partial(read_footer, store), [each.key for each in listed], _READ_AT_ONCE, "sluice-convert")
    schema = _merged(listed, footers, partitions)
    new = new_table(schema, partitions.names, properties)
    table = table_for_creation(address, allow_nonempty=True)
    indexed = indexed_columns_of(new.metadata.configuration)
    adds = [
        AddFile(
            path=path_to_uri(info.key),
            partition_values=texts,
            size=info.size,
            modification_time=info.modified_ms,
            data_change=True,
            stats=footer.statistics(schema, partitions.names, indexed),
        )
        for info, texts, footer in zip(listed, values, footers, strict=True)
    ]
    count, columns = str(len(adds)), str(list(partitions.names))
    parameters = {"numFiles": count, "partitionedBy": columns, "collectStats": "true", "sourceFormat": "parquet"}
    metrics = {"numConvertedFiles": count}
    change = replace(first_change(table, new, adds, operation="CONVERT"), parameters=parameters, metrics=metrics)
    return table, commit_first(table, change, timeout_s=timeout_s)


def _data_files(store: ObjectStore, partition_columns: Sequence[str]) -> list[ObjectInfo]:
    """The files that are not hidden. Raises InvalidRequest for one that is no Parquet file by its name."""
    files: list[ObjectInfo] = []
    for each in store.list_from("", recursive=True):
        if "/" + LOG_FOLDER in each.key:
            raise InvalidRequest(f"{store.location} holds another table: {each.key.partition('/' + LOG_FOLDER)[0]}", key=each.key)
        if is_hidden(each.key, partition_columns):
            continue
        if not each.key.lower().endswith((".parquet", ".parq")):
            raise InvalidRequest(
                f"{store.location} holds {each.key!r}, which is no Parquet file by its name: move it away, or rename it; files and folders "
                "whose names begin with _ or . are ignored",
                key=each.key,
            )
        files.append(each)
    return files


def _values(key: str, partitions: StructType) -> dict[str, str | None]:
    """The partition values in a file's folders, as the log writes them. Raises InvalidRequest."""
    folders = [part.partition("=") for part in key.split("/")[:-1]]
    named = [unquote(name) for name, _, _ in folders]
    if [name.lower() for name in named] != [name.lower() for name in partitions.names] or not all(sign for _, sign, _ in folders):
        shown = "/".join(f"{name}=..." for name in partitions.names) or "no folders"
        raise InvalidRequest(
            f"{key!r} is not in folders of the partition columns ({shown}): give partition_schema the columns of the "
            "folders, in their order and with their types",
            key=key,
            partition_columns=list(partitions.names),
        )
    values: dict[str, str | None] = {}
    for each, (_, _, text) in zip(partitions.fields, folders, strict=True):
        value = None if text == HIVE_DEFAULT_PARTITION else unquote(text)
        assert isinstance(each.type, PrimitiveType)
        try:
            values[each.name] = encode_value(decode_value(value, each.type), each.type)
        except (Corrupt, SchemaMismatch, pa.ArrowException) as unfit:
            raise InvalidRequest(
                f"{key!r}: {value!r} is no value of the partition column {each.name!r}, which is {each.type}", key=key, column=each.name
            ) from unfit
    return values


def _merged(listed: Iterable[ObjectInfo], footers: Iterable[Footer], partitions: StructType) -> StructType:
    """The columns of all files, and the partition columns after them. Raises SchemaMismatch."""
    own = {name.lower() for name in partitions.names}
    schema: StructType | None = None
    for info, footer in zip(listed, footers, strict=True):
        columns = StructType([each for each in footer.schema.fields if each.name.lower() not in own])
        try:
            schema = columns if schema is None else merge(schema, columns)
        except SchemaMismatch as unfit:
            raise SchemaMismatch(f"{info.key!r} does not fit the files before it: {unfit.message}", key=info.key) from unfit
    return StructType([*(() if schema is None else schema.fields), *partitions.fields])


@dataclass(frozen=True, slots=True)
class _Original:
    """A version to clone: its files by absolute URIs, the clone's properties, and what the history says of it."""

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

    `properties` are set in addition to the original's. Raises TableExists, InvalidRequest for another kind of store, UnsupportedFeature.
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
    settings = {key: value for key, value in then.configuration.items() if not is_kept_by_sluice(key)}
    settings |= dict(properties or {})
    if any(add.deletion_vector is not None for add in adds):
        settings[FEATURE_PREFIX + "deletionVectors"] = "supported"
    parameters = {"source": location, "sourceVersion": str(version), "isShallow": "true"}
    sizes = {"sourceTableSize": then.size_bytes, "sourceNumOfFiles": then.num_files, "numCopiedFiles": 0, "copiedFilesSize": 0}
    original = _Original(then, adds, settings, parameters, sizes)
    with nullcontext() if isinstance(source, PublishedTable) else pin_version(source.context, version):
        table, made = created_or_found(target, "or_replace" if over else "create", partial(_created, target, original, timeout_s))
        return table, _replaced(table, original, timeout_s) if made is None else made


def _created(target: TableAddress, original: _Original, timeout_s: Timeout) -> tuple[OpenTable, Commit]:
    then, adds = original.version, original.adds
    tracked = {ROW_TRACKING_KEY: "true"} if is_on(then.configuration, ROW_TRACKING_KEY) else {}
    metadata = new_table(then.metadata.schema, then.partition_columns, {**original.settings, **tracked}).metadata
    if tracked:  # files with copied rows keep their ids in columns of these names
        names = {key: value for key, value in then.configuration.items() if key.startswith("delta.rowTracking.")}
        metadata = replace(metadata, configuration={**metadata.configuration, **names})
    metadata = _numbered_as(then, replace(metadata, name=then.metadata.name, description=then.metadata.description))
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
    struct = then.metadata.schema
    becomes = redefined(latest, struct, then.partition_columns, settings, "CLONE", clustering_names(then))
    metadata = _numbered_as(then, becomes.metadata)
    if metadata.configuration.get(ROW_ID_COLUMN_KEY, "") == then.configuration.get(ROW_ID_COLUMN_KEY):
        # a former clone of that table: ids that its files carry could be given to other rows here
        metadata = replace(metadata, configuration={**metadata.configuration, **materialized_columns()})
    metrics = {**original.sizes, "numRemovedFiles": latest.num_files, "removedFilesSize": latest.size_bytes}
    actions: list[Action] = [] if becomes.protocol == latest.protocol else [becomes.protocol]
    # a file that both hold is removed and added again, which one commit must not do
    kept = {add.key for add in adds}
    keys = [add.key for add in adds_of(latest.files)]
    gone, there = latest.files.filter(pa.array([key not in kept for key in keys], pa.bool_())), frozenset(keys)
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
        schema=latest.metadata.schema,
        kind=Kind.CHANGE,
        scope="",
        terms=Terms(IsolationLevel.SERIALIZABLE.value),
    )
    return submit(table, change, timeout_s=timeout_s)


def _numbered_as(then: Snapshot, metadata: Metadata) -> Metadata:
    """The metadata of a clone, whose new columns get no number that a column of the original's files has or had, nor rows one of those."""
    metadata = with_numbers(metadata, next_number(then.metadata.schema))
    highest = max(int(each.get(HIGHEST_ID_KEY, 0)) for each in (then.configuration, metadata.configuration))
    return replace(metadata, configuration={**metadata.configuration, **({HIGHEST_ID_KEY: str(highest)} if highest else {})})


def _without_row_ids(add: AddFile) -> AddFile:
    return replace(add, base_row_id=None, default_row_commit_version=None)


def _at_home(location: str, add: AddFile) -> AddFile:
    """The file and its deletion vector with absolute URIs; without statistics that cannot be read."""
    vector = add.deletion_vector
    if vector is not None and vector.storage_type == "u":
        key = vector_key(vector)
        assert key is not None
        vector = DeletionVector("p", _uri(location, path_to_uri(key)), vector.size_in_bytes, vector.cardinality, vector.offset)
    return replace(add, path=_uri(location, add.path), deletion_vector=vector, data_change=True, stats=readable_stats(add.stats))


def _uri(location: str, path: str) -> str:
    """The absolute URI of a path of the log, percent-encoded."""
    if absolute(location, path) is not None:
        return path
    scheme, _, rest = location.partition("://")
    return f"{scheme}://{path_to_uri(rest)}/{path}"


def generate(store: ObjectStore, snapshot: Snapshot, mode: str) -> int:
    """Write the manifests of a version, and remove those of partitions without files; returns how many there are.

    Raises InvalidRequest for an unknown mode, UnsupportedFeature for a table with deletion vectors: a list of files cannot say
    which rows are deleted.
    """
    if mode != MODE:
        raise InvalidRequest(f"the mode is {mode!r}; use {MODE!r}", mode=mode)
    if snapshot.files["deletion_vector"].null_count < snapshot.num_files:
        raise UnsupportedFeature(
            f"files of {snapshot.location} have deletion vectors, and who reads files by a list would read deleted rows: compact('major') "
            "first, with delta.enableDeletionVectors off",
            features=("deletionVectors",),
            access="read",
        )
    listed: dict[str, list[str]] = defaultdict(list)
    for add in snapshot.add_files():
        below = folder(snapshot.metadata.physical_partitions, add.partition_values)
        listed[f"{_MANIFESTS}{below}/{_MANIFEST}" if below else f"{_MANIFESTS}{_MANIFEST}"].append(
            absolute(snapshot.location, add.path) or f"{snapshot.location}/{uri_to_path(add.path)}"
        )
    if not snapshot.partition_columns and not listed:
        listed[f"{_MANIFESTS}{_MANIFEST}"] = []
    for key, files in listed.items():
        store.put(key, "".join(f"{file}\n" for file in sorted(files)).encode())
    for each in list(store.list_from(_MANIFESTS, recursive=True)):
        if each.key not in listed:
            store.delete(each.key)
    return len(listed)
