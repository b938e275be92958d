"""Clones: tables of their own with the rows of a version of another table.

A shallow clone names the original's files by absolute URIs. It never deletes them, for garbage collection looks below its own location
only; but the original's garbage collection does not know of its clones, and deletes what the original no longer needs.

A deep clone copies them, by the store itself where it can. The name of a copy tells which file it was made from, and whose it is::

    <partition folders>/clone-<digest of the file's URI and size>-<plan>.parquet

The plan (`coordinator/nodes/plans.py`) lives until the clone is committed. A run that was killed leaves it, and the next run of the same
clone takes it up with all that was copied: nothing is copied twice. Garbage collection spares what has the id of an open plan, and closes a
plan that nobody took up for as long as files are retained. A clone that replaces an earlier one keeps the copies that are in the table
already, copies what is new, and removes what is gone, in one commit. While files are copied their version is pinned.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Final, TypedDict

import pyarrow as pa

from ...coordinator.api import Change, Commit, Reads, Timeout, close_plan, pin_version, run_of, submit, take_up_plan
from ...coordinator.rules.intent import IsolationLevel, Kind, Terms
from ...storage.actions import Action, AddFile, DeletionVector, DomainMetadata, Metadata, features
from ...storage.actions.file_removals import Actions, Removals
from ...storage.actions.filetable import adds_of
from ...storage.actions.records import readable_stats
from ...storage.actions.uris import absolute, object_at
from ...storage.caches import at_once
from ...storage.data.vectors import plan_vector, read_vector, vector_key
from ...storage.dataclass import dataclass
from ...storage.errors import InvalidRequest, MissingObject, ObjectNotFound
from ...storage.log.snapshot import Snapshot
from ...storage.schema.identity import next_number
from ...storage.schema.mapping import HIGHEST_ID_KEY
from ...storage.schema.partitions import folder, path_to_uri
from ...storage.stores.objects import copy_object
from ..client.address import TableAddress
from ..client.open_table import OpenTable, ReadTable
from ..client.property_rules import clustering_names, first_clustering, is_kept_by_sluice
from ..client.published_table import PublishedTable
from ..write.numbering import with_numbers
from ..write.redefinition import redefined
from ..write.requirements import require_replaceable
from .creation import NewName, NewTable, commit_first, created_or_found, first_change, new_table, table_for_creation
from .definition import domains_of
from .naming import give_name

_COPIES_AT_ONCE: Final = 8
_COPY: Final = re.compile(r"(?:^|/)clone-([0-9a-f]{32})-[0-9a-f-]{36}\.parquet$")


@dataclass(frozen=True, slots=True)
class _Original:
    """A version to clone, how, the clone's properties and domains, and what the history says of it."""

    source: ReadTable
    version: Snapshot
    deep: bool
    name: NewName | None
    settings: Mapping[str, str]
    domains: Collection[DomainMetadata]
    parameters: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _Files:
    """The files of the clone: for a deep one of `plan`, with the numbers and bytes of those that were not in the clone before."""

    adds: Sequence[AddFile]
    transaction_id: str
    plan: str = ""
    copied: int = 0
    copied_bytes: int = 0


class CloneArgs(TypedDict, total=False):
    """What kind of clone it is."""

    deep: bool
    """Whether it has copies of the files."""
    replace: bool
    """Whether it may replace the table that is there, in one commit."""
    properties: Mapping[str, str] | None
    """Set in addition to the original's."""


def purpose_of(location: str, name: NewName | None) -> str:
    """The purpose of the plan of a deep clone of the table there; under one `name` the catalog chooses one place."""
    return f"clone {location}" if name is None or not name.managed else f"clone {location} as {name.name}".lower()


def clone(
    source: ReadTable, version: int, target: TableAddress, how: CloneArgs, name: NewName | None, timeout_s: Timeout
) -> tuple[OpenTable, Commit]:
    """Make a clone of a version at another location; a new table gets the `name`, if there is one.

    Raises TableExists, MissingObject for a file that is gone, UnsupportedFeature, and InvalidRequest for a shallow clone in another kind of
    store.
    """
    then, deep = source.at(version), how.get("deep", False)
    location = source.location
    if target.location == location:
        raise InvalidRequest(f"{location} cannot be its own clone; name another location, or use restore()", location=location)
    if not deep and target.location.partition(":")[0] != location.partition(":")[0]:
        raise InvalidRequest(
            f"a shallow clone of {location} at {target.location} would name files in another kind of store; clone within the store, or "
            "make a deep clone, which copies them",
            location=target.location,
        )
    features.check_writable(then.protocol, then.metadata)
    settings = {key: value for key, value in then.configuration.items() if not is_kept_by_sluice(key)}
    settings |= dict(how.get("properties") or {})
    if then.files["deletion_vector"].null_count < then.num_files:
        settings[features.FEATURE_PREFIX + "deletionVectors"] = "supported"
    domains = [DomainMetadata(each, text, removed=False) for each, text in domains_of(then).items()]
    if domains:
        settings[features.FEATURE_PREFIX + "domainMetadata"] = "supported"
    parameters = {"source": location, "sourceVersion": str(version), "isShallow": str(not deep).lower()}
    original = _Original(source, then, deep, name, settings, domains, parameters)
    with nullcontext() if isinstance(source, PublishedTable) else pin_version(source.context, version):
        mode = "or_replace" if how.get("replace") else "create"
        table, made = created_or_found(target, mode, partial(_created, target, original, timeout_s))
        return table, _replaced(table, original, timeout_s) if made is None else made


def _created(target: TableAddress, original: _Original, timeout_s: Timeout) -> tuple[OpenTable, Commit]:
    then, name = original.version, original.name
    tracked = {features.ROW_TRACKING_KEY: "true"} if features.is_on(then.configuration, features.ROW_TRACKING_KEY) else {}
    metadata = new_table(then.metadata.schema, then.partition_columns, {**original.settings, **tracked}).metadata
    if tracked:  # files with copied rows keep their ids in columns of these names
        names = {key: value for key, value in then.configuration.items() if key.startswith("delta.rowTracking.")}
        metadata = replace(metadata, configuration={**metadata.configuration, **names})
    metadata = _numbered_as(then, replace(metadata, name=then.metadata.name, description=then.metadata.description))
    table = table_for_creation(target, allow_nonempty=False, name=name)
    files = _files_of(table, original, None)
    new = NewTable(metadata, first_clustering(clustering_names(then), metadata))
    adds = files.adds if tracked else [_without_row_ids(add) for add in files.adds]
    change = first_change(
        table, new, adds, name, operation="CLONE", row_ids=then.domains.get(features.ROW_TRACKING_DOMAIN) if tracked else None
    )
    change = replace(
        change,
        transaction_id=files.transaction_id,
        actions=Actions(change.actions, original.domains),
        parameters=original.parameters,
        metrics=_metrics(original, files, 0, 0),
    )
    commit = commit_first(table, change, timeout_s=timeout_s)
    close_plan(table.context, files.plan)
    if name is not None:
        give_name(table, name, timeout_s=timeout_s)
    return table, commit


def _replaced(table: OpenTable, original: _Original, timeout_s: Timeout) -> Commit:
    then, settings = original.version, original.settings
    latest = table.latest()
    features.check_writable(latest.protocol, latest.metadata)
    require_replaceable(table.location, latest)
    becomes = redefined(latest, then.metadata.schema, then.partition_columns, settings, "CLONE", clustering_names(then))
    metadata = _numbered_as(then, becomes.metadata)
    if metadata.configuration.get(features.ROW_ID_COLUMN_KEY, "") == then.configuration.get(features.ROW_ID_COLUMN_KEY):
        # a former clone of that table: ids that its files carry could be given to other rows here
        metadata = replace(metadata, configuration={**metadata.configuration, **features.materialized_columns()})
    actions: list[Action] = [] if becomes.protocol == latest.protocol else [becomes.protocol]
    actions += [each for each in original.domains if latest.domains.get(each.domain) != each]
    files = _files_of(table, original, latest)
    # a file that both hold is removed and added again, which one commit must not do
    kept = {add.key for add in files.adds}
    keys = [add.key for add in adds_of(latest.files)]
    gone, there = latest.files.filter(pa.array([key not in kept for key in keys], pa.bool_())), frozenset(keys)
    change = Change(
        files.transaction_id,
        "CLONE",
        latest,
        Actions(
            [*actions, metadata, *becomes.clustering],
            Removals(gone, table.clock.now_ms()),
            [_without_row_ids(add) for add in files.adds if add.key not in there],
        ),
        reads=Reads(predicates=("",), whole_table=True),
        parameters=original.parameters,
        metrics=_metrics(original, files, gone.num_rows, sum(gone["size"].to_pylist())),
        schema=latest.metadata.schema,
        kind=Kind.CHANGE,
        scope="",
        terms=Terms(IsolationLevel.SERIALIZABLE.value),
    )
    commit = submit(table, change, timeout_s=timeout_s)
    close_plan(table.context, files.plan)
    return commit


def _metrics(original: _Original, files: _Files, removed: int, removed_bytes: int) -> dict[str, str]:
    """What the history says of a clone, under Delta Lake's names."""
    numbers = {
        "sourceTableSize": original.version.size_bytes,
        "sourceNumOfFiles": original.version.num_files,
        "numCopiedFiles": files.copied,
        "copiedFilesSize": files.copied_bytes,
        "numRemovedFiles": removed,
        "removedFilesSize": removed_bytes,
    }
    return {name: str(value) for name, value in numbers.items()}


def _files_of(table: OpenTable, original: _Original, latest: Snapshot | None) -> _Files:
    """The clone's files as its log names them; those of a deep one are copied, unless `latest` has them, or an earlier run did it."""
    location, files = original.source.location, original.version.files
    if not original.deep:
        return _Files([_at_home(location, add) for add in adds_of(files)], table.new_transaction_id())

    def used(plan: str) -> bool:
        tables = () if latest is None else (latest.files, latest.tombstones)
        paths = (path for each in tables for path in each["path"].to_pylist())
        vectors = (each["path_or_inline_dv"] for listed in tables for each in listed["deletion_vector"].drop_null().to_pylist())
        return any(plan in each for each in (*paths, *vectors))

    plan, again = take_up_plan(table.context, purpose_of(location, original.name), used)
    there = frozenset(each.key for each in table.store.list_from("", recursive=True) if plan in each.key) if again else frozenset()
    copies = {} if latest is None else {match[1]: add for add in adds_of(latest.files) if (match := _COPY.search(add.path)) is not None}
    copying = _Copying(table, original, plan, there, copies)
    adds = at_once(copying.copied, list(adds_of(files)), _COPIES_AT_ONCE, "sluice-clone", "files copied")
    before = {add.path for add in copies.values()}
    new = [add.size for add in adds if add.path not in before]
    return _Files(adds, run_of(plan, table.clock.now_ms()), plan, len(new), sum(new))


@dataclass(frozen=True, slots=True)
class _Copying:
    """A deep clone's copies in progress, under the id of `plan`.

    The keys `there` were copied by an earlier run. `copies` are the files of the clone as it is, by the digests of their originals.
    """

    table: OpenTable
    original: _Original
    plan: str
    there: Collection[str]
    copies: Mapping[str, AddFile]

    def copied(self, add: AddFile) -> AddFile:
        """The copy of a file and its deletion vector, which exist when this returns. Raises MissingObject. Thread-safe."""
        source, then = self.original.source, self.original.version
        store, origin = object_at(source.store, add.path)
        digest = hashlib.blake2b(f"{store.location}/{origin}\n{add.size}".encode(), digest_size=16).hexdigest()
        before = self.copies.get(digest)
        below = folder(then.metadata.physical_partitions, add.partition_values)
        key = f"{below}/clone-{digest}-{self.plan}.parquet".removeprefix("/")
        # check: copies-are-made-once (before is None and key not in self.there -> before is None)
        if before is None and key not in self.there:
            try:
                copy_object(store, origin, self.table.store, key)
            except ObjectNotFound as gone:
                raise MissingObject(
                    f"version {then.version} of {source.location} cannot be cloned: its file {add.path!r} is gone; clone a later "
                    "version, or repair the table",
                    path=add.path,
                    version=then.version,
                    location=source.location,
                ) from gone
        path = path_to_uri(key) if before is None else before.path
        vector = self._copied_vector(add.deletion_vector, None if before is None else before.deletion_vector)
        return replace(add, path=path, deletion_vector=vector, data_change=True, stats=readable_stats(add.stats))

    def _copied_vector(self, vector: DeletionVector | None, before: DeletionVector | None) -> DeletionVector | None:
        """The same rows by a vector of the clone: the one that its file has, if it lists them."""
        if vector is None or vector.storage_type == "i":
            return vector
        store = self.table.store
        rows = read_vector(self.original.source.store, vector)
        if before is not None and before.cardinality == vector.cardinality and read_vector(store, before) == rows:
            return before
        planned, stored = plan_vector(rows, owner=self.plan)
        if stored is not None and stored[0] not in self.there:
            store.put_if_absent(*stored)
        return planned


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
