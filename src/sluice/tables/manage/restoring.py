"""RESTORE: an older version's state becomes the latest one again, in one commit.

Files come back that the log says were removed, which no other operation does, so garbage collection must not delete them at the same
time. Four things see to it:

1. the version is pinned before its files are looked for: a collection that reads the pins later keeps them, and one that read them
   earlier had raised the horizon, which the pin is compared with;
2. files that were removed before the horizon count as missing, even if they are still there;
3. the commit depends on a lease of this client's session, with which the pin ends, too: nobody ratifies the commit of a client that died;
4. a collection reads the latest version once more after the pins (`vacuum`), so it sees the files of a restore whose pin is gone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from ...coordinator.api import Change, Commit, Deadline, Reads, bounding, lease_on_table, leases, pin_version, submit
from ...coordinator.rules.intent import IsolationLevel, Kind, Terms, table_policy
from ...storage.actions import Action, AddFile
from ...storage.actions.features import (
    check_writable,
    clustering_columns,
    clustering_domain,
    reader_features,
    with_features,
    writer_features,
)
from ...storage.actions.file_removals import Actions, Removals
from ...storage.actions.filetable import adds_of, picked
from ...storage.actions.records import readable_stats
from ...storage.actions.uris import object_at
from ...storage.caches import at_once
from ...storage.data.vectors import vector_key
from ...storage.errors import MissingObject, ObjectNotFound, VersionNotFound
from ...storage.log.snapshot import Snapshot
from ...storage.schema.identity import counter_of, next_number
from ...storage.stores.objects import ObjectStore
from ...storage.times import Moment, milliseconds_of, text_of
from ..client.open_table import OpenTable, ReadTable
from ..client.property_rules import is_kept_by_sluice
from ..write.numbering import with_numbers
from ..write.requirements import require_replaceable, snapshot_for_change

_LOOKS_AT_ONCE: Final = 16
_NAMED_MAX: Final = 5


def restore(
    table: OpenTable, version: int, terms: Terms, *, timestamp: Moment | None = None, ignore_missing_files: bool = False
) -> Commit | None:
    """Make the table what it was at `version`, which the caller may have named by a `timestamp`; None if it is that already.

    Others' commits wait while it runs. Raises VersionNotFound, MissingObject (naming files that are gone, before anything is written),
    UnsupportedFeature for an append-only table, LeaseHeld.
    """
    with bounding(terms.timeout_s, table.clock) as deadline, alone(table, deadline, "RESTORE"):
        table.fresh_head()
        latest = snapshot_for_change(table, terms.if_version)
        require_replaceable(table.location, latest)
        with _pinned(table, version, latest) as pinned:
            change = _change(table, latest, table.at(version), pinned, ignore_missing=ignore_missing_files)
            if change is None:
                return None
            parameters = {"version": str(version)}
            if timestamp is not None:
                parameters["timestamp"] = text_of(milliseconds_of(timestamp))
            return submit(table, replace(change.on(terms), parameters=parameters), timeout_s=deadline)


@contextmanager
def alone(table: OpenTable, deadline: Deadline, why: str) -> Iterator[None]:
    """Hold an exclusive lease on the table, unless this thread holds one of this coordinator already."""
    with ExitStack() as held:
        # check: restores-depend-on-their-session (not table.leases.of_this_thread() -> False)
        if not table.leases.of_this_thread():
            held.enter_context(leases([lease_on_table(table.leases, table.current(), "exclusive", None, why)], wait_s=deadline))
        yield


@contextmanager
def _pinned(table: OpenTable, version: int, latest: Snapshot) -> Iterator[Snapshot]:
    """Pin the version, or the first later one whose files are certainly kept; yields its snapshot."""
    table.at(version)  # raises for a version that cannot be read
    at, pin = version, None
    while pin is None:
        try:
            # check: restored-files-are-pinned (pin_version(table.context, at) -> pin_version(table.context, latest.version))
            pin = pin_version(table.context, at)
        except VersionNotFound as low:
            earliest = low.details.get("earliest")
            if type(earliest) is not int or not at < earliest <= latest.version:
                raise
            at = earliest
    with pin:
        yield table.at(at)


def _change(table: OpenTable, latest: Snapshot, then: Snapshot, pinned: Snapshot, *, ignore_missing: bool) -> Change | None:
    keys = _keys(latest.files), _keys(then.files)
    gone = picked(latest.files, pc.invert(pc.is_in(keys[0], value_set=keys[1])))
    back = picked(then.files, pc.invert(pc.is_in(keys[1], value_set=keys[0])))
    certain = None if pinned.version == then.version else set(pinned.files["path"].to_pylist())
    adds = [replace(add, data_change=True, stats=readable_stats(add.stats)) for add in adds_of(back)]
    missing = missing_files(table.store, adds, certain)
    if missing and not ignore_missing:
        raise _files_are_gone(table, then.version, missing)
    adds = [add for add in adds if add.path not in missing]
    if "rowTracking" not in writer_features(latest.protocol):  # it was dropped since: nothing counts ids any more
        adds = [replace(add, base_row_id=None, default_row_commit_version=None) for add in adds]
    # what sluice keeps in the properties is as it is now
    kept = {key: value for key, value in latest.configuration.items() if is_kept_by_sluice(key)}
    settings = {key: value for key, value in then.configuration.items() if not is_kept_by_sluice(key)}
    metadata = replace(then.metadata, id=latest.metadata.id, configuration={**settings, **kept})
    if counter_of(metadata.schema) == counter_of(latest.metadata.schema):
        # check: restored-marks-stay
        metadata = with_numbers(metadata, next_number(latest.metadata.schema))
    # a protocol is never lowered
    features = (writer_features(then.protocol) | reader_features(then.protocol)) - writer_features(latest.protocol) - {"rowTracking"}
    protocol = with_features(latest.protocol, features) if features else latest.protocol
    check_writable(protocol, metadata)
    actions: list[Action] = [each for each, old in ((protocol, latest.protocol), (metadata, latest.metadata)) if each != old]
    clustered = clustering_columns(then.domains, then.metadata.schema)
    if clustered != clustering_columns(latest.domains, latest.metadata.schema):
        actions.append(clustering_domain(clustered, then.metadata.schema))
    if not (actions or adds or gone.num_rows):
        return None
    sizes = (pc.sum(gone["size"]).as_py() or 0, sum(add.size for add in adds))
    metrics = {
        "numRestoredFiles": len(adds),
        "numRemovedFiles": gone.num_rows,
        "restoredFilesSize": sizes[1],
        "removedFilesSize": sizes[0],
        "tableSizeAfterRestore": latest.size_bytes - sizes[0] + sizes[1],
        "numOfFilesAfterRestore": latest.num_files - gone.num_rows + len(adds),
    }
    return Change(
        table.new_transaction_id(),
        "RESTORE",
        latest,
        Actions(actions, Removals(gone, table.clock.now_ms()), adds),
        reads=Reads(predicates=("",), whole_table=True),
        metrics={name: str(value) for name, value in metrics.items()},
        schema=latest.metadata.schema,
        # A matrix would let an overwrite replace whatever came first, and this one keeps files that may be gone then.
        kind=Kind.CHANGE if table_policy(latest.configuration).by_classes else Kind.OVERWRITE,
        scope="",
        terms=Terms(IsolationLevel.SERIALIZABLE.value),
    )


def _keys(files: pa.Table) -> pa.Array:
    """For each file its path and deletion vector, as one text."""
    vectors = files["deletion_vector"].combine_chunks()
    parts = [pc.struct_field(vectors, name).cast(pa.string()) for name in ("storage_type", "path_or_inline_dv", "offset")]
    return pc.binary_join_element_wise(files["path"].combine_chunks().cast(pa.string()), *[pc.fill_null(part, "") for part in parts], "\n")


def missing_files(store: ObjectStore, adds: Sequence[AddFile], certain: set[str] | None) -> dict[str, str]:
    """Why files cannot come back, by their log path; `certain` are the paths that garbage collection surely kept (None: all)."""
    # check: files-given-up-are-missing (certain is not None and add.path not in certain -> False)
    given_up = [add.path for add in adds if certain is not None and add.path not in certain]
    missing = dict.fromkeys(given_up, "given up by garbage collection")
    left = [add for add in adds if add.path not in missing]
    reasons = at_once(partial(_why_missing, store), left, _LOOKS_AT_ONCE, "sluice-restore", "files looked for")
    return missing | {add.path: why for add, why in zip(left, reasons, strict=True) if why is not None}


def _why_missing(store: ObjectStore, add: AddFile) -> str | None:
    """Why the store lacks a file or its deletion vector; None if it has them."""
    places, vector = [object_at(store, add.path)], add.deletion_vector
    if vector is not None and vector.storage_type == "p":
        places.append(object_at(store, vector.path_or_inline_dv))
    elif vector is not None and (key_of_vector := vector_key(vector)) is not None:
        places.append((store, key_of_vector))
    for place, key in places:
        try:
            place.head(key)
        except ObjectNotFound:
            return f"{key} does not exist"
    return None


def _files_are_gone(table: OpenTable, version: int, missing: Mapping[str, str]) -> MissingObject:
    named = "; ".join(f"{path} ({why})" for path, why in list(missing.items())[:_NAMED_MAX])
    more = f"; and {len(missing) - _NAMED_MAX} more" if len(missing) > _NAMED_MAX else ""
    return MissingObject(
        f"version {version} of {table.location} cannot be restored, for {len(missing)} of its files are gone: {named}{more}. "
        "Restore a later version; or give ignore_missing_files=True, and the rows of these files stay lost",
        location=table.location,
        version=version,
        paths=tuple(missing),
    )


def lacking(table: ReadTable, snapshot: Snapshot) -> dict[str, str]:
    """Why files of a version cannot be read, by their path in the log; asks the store for each file."""
    return missing_files(table.store, list(adds_of(snapshot.files)), None)


def repair(table: OpenTable) -> Change | None:
    """Take the files that are gone out of the table; None if there are none. Their rows stay lost."""
    snapshot = snapshot_for_change(table)
    missing = lacking(table, snapshot)
    if not missing:
        return None
    require_replaceable(table.location, snapshot)
    paths = snapshot.files["path"].combine_chunks().cast(pa.string())
    gone = picked(snapshot.files, pc.is_in(paths, value_set=pa.array(list(missing), pa.string())))
    return Change(
        table.new_transaction_id(),
        "FSCK REPAIR",
        snapshot,
        Actions((), Removals(gone, table.clock.now_ms())),
        reads=Reads(files=tuple(missing)),
        metrics={"numRemovedFiles": str(gone.num_rows)},
        schema=snapshot.metadata.schema,
        kind=Kind.CHANGE,
        terms=Terms(IsolationLevel.SERIALIZABLE.value),
    )
