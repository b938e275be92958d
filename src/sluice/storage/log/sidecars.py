"""The sidecars of V2 checkpoints ("V2 Spec" in PROTOCOL.md): which ones the next checkpoint names again, and which nobody names any more.

A checkpoint takes over the sidecars of the newest one before it. Only those with a file that the commits since then name are written anew,
without it; what these commits left goes to new sidecars. So a checkpoint costs what changed, and a look at the paths in each sidecar. Many
small sidecars are joined, and one whose tombstones have all expired is left out.

Tags of each sidecar say what it has: adds or removes, how many, and when the newest of these removes was made. Those of other engines lack
them: after their checkpoint all is written anew.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from ..actions.filetable import without
from ..actions.records import Action, AddFile, CheckpointMetadata, FileKey, Metadata, RemoveFile, Sidecar
from ..actions.uris import spellings
from ..caches import at_once
from ..constants import SIDECAR_FOLDER
from ..dataclass import dataclass
from ..errors import Corrupt, ObjectNotFound, SluiceError
from ..stores.objects import ObjectStore
from .checkpoint_part import CheckpointPart, FileColumn, digests_of
from .replay import ReplayState, fetch_actions, main_actions
from .segment import LogSegment, list_segment, list_versions
from .snapshot import Snapshot

_log = logging.getLogger(__name__)

ROWS_MAX: Final = 16_384
"""Rows of one sidecar: a change of one file writes so many anew."""
_SMALL_MAX: Final = 8
"""More sidecars with less than half of these rows are joined."""
_COMMITS_BYTES_MAX: Final = 64 * 1024 * 1024
"""After more commits all is written anew: the keys of what they change are in memory."""
_CLASSIC_EVERY: Final = 10
"""So often a checkpoint has the classic name, by which readers that do not know V2 checkpoints find the protocol that says so."""
_THREADS: Final = 4, "sluice-sidecar"

_KIND: Final = "sluice.kind"
_ROWS: Final = "sluice.rows"
_NEWEST: Final = "sluice.newestRemove"
SINCE_CLASSIC: Final = "sluice.sinceClassic"
"""The tag of a checkpoint that counts those since the last one with the classic name."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a checkpoint has: sidecars that are there already, and rows to write. It has the classic name if `since_classic` is 0."""

    kept: Sequence[Sidecar]
    adds: pa.Table
    removes: pa.Table
    since_classic: int = 0


@dataclass(frozen=True, slots=True)
class _Former:
    """The newest checkpoint before a version, with the files of the log since."""

    segment: LogSegment
    sidecars: Sequence[Sidecar]
    since_classic: int


def tags_of(kind: FileColumn, rows: pa.Table) -> dict[str, str]:
    """The tags of a sidecar with these rows."""
    newest = {_NEWEST: str(pc.max(rows.column("deletion_timestamp")).as_py() or 0)} if kind == "remove" else {}
    return {_KIND: kind, _ROWS: str(rows.num_rows), **newest}


def count(sidecars: Iterable[Sidecar], kind: FileColumn) -> int:
    """How many adds, or removes, these sidecars have."""
    return sum(_rows(each) for each in sidecars if _tag(each, _KIND) == kind)


def plan_sidecars(store: ObjectStore, snapshot: Snapshot, cutoff_ms: int) -> Plan:
    """What the checkpoint of a published version consists of; removes before `cutoff_ms` have expired."""
    try:
        former = _newest_before(store, snapshot)
        if former is not None:
            return _changed(store, former, cutoff_ms)
    except (Corrupt, ObjectNotFound) as trouble:
        _log.info("the checkpoint of version %d of %s shares no file with the one before: %s", snapshot.version, store.location, trouble)
    return Plan((), snapshot.files, snapshot.tombstones)


def _newest_before(store: ObjectStore, snapshot: Snapshot) -> _Former | None:
    segment = list_segment(store, snapshot.version)
    if segment.checkpoint is None or sum(each.size for each in segment.commits) > _COMMITS_BYTES_MAX:
        return None
    actions, _ = main_actions(store, segment.checkpoint, whole=False)
    sidecars = [each for each in actions if isinstance(each, Sidecar)]
    marks = [each for each in actions if isinstance(each, CheckpointMetadata)]
    same = any(isinstance(each, Metadata) and each.id == snapshot.metadata.id for each in actions)
    if not marks or not sidecars or not same:
        return None
    # check: only-own-sidecars-are-shared
    if not all({_KIND, _ROWS} <= (each.tags or {}).keys() for each in sidecars):
        return None
    return _Former(segment, sidecars, int((marks[0].tags or {}).get(SINCE_CLASSIC) or 0))


def _changed(store: ObjectStore, former: _Former, cutoff_ms: int) -> Plan:
    named: set[FileKey] = set()
    commits = fetch_actions(store, former.segment.commits)
    since = ReplayState().after(_noting(actions, named) for actions in commits)
    paths = pa.array({path for path, _ in named}, pa.string())
    digests = digests_of(paths.to_pylist())

    def has_changed(sidecar: Sidecar) -> bool:
        # check: changed-files-leave-their-sidecar (bool(named) -> False)
        return bool(named) and _part(store, sidecar).has_any(_column(sidecar), paths, digests)

    live = [each for each in former.sidecars if _column(each) == "add" or int(_tag(each, _NEWEST) or 0) > cutoff_ms]
    _require_all(store, live)
    changed = at_once(has_changed, live, *_THREADS)
    small = [each for kind in ("add", "remove") for each in _many_small(live, kind)]
    again = [each for each, changes in zip(live, changed, strict=True) if changes or each in small]
    read = at_once(lambda each: _part(store, each).files(_column(each)), again, *_THREADS)
    tables = {"add": [since.files.table], "remove": [since.tombstones.table]}
    for sidecar, batches in zip(again, read, strict=True):
        schema = tables[_column(sidecar)][0].schema
        tables[_column(sidecar)].append(pa.Table.from_batches(without(pa.Table.from_batches(batches, schema), named), schema))
    kept = [each for each in live if each not in again]
    adds, removes = map(pa.concat_tables, tables.values())
    return Plan(kept, adds, removes, (former.since_classic + 1) % _CLASSIC_EVERY)


def _require_all(store: ObjectStore, sidecars: Sequence[Sidecar]) -> None:
    """Raise ObjectNotFound unless all are there, in full size."""
    there = {info.key: info.size for info in store.list_from(SIDECAR_FOLDER)}
    # check: shared-sidecars-are-there
    for each in sidecars:
        key = SIDECAR_FOLDER + each.path
        if there.get(key) != each.size_in_bytes:
            raise ObjectNotFound(f"{key} in {store.location} has {there.get(key, 'no')} bytes, not {each.size_in_bytes}", path=key)


def _many_small(sidecars: Sequence[Sidecar], kind: FileColumn) -> Sequence[Sidecar]:
    """The small sidecars of a kind, if there are many."""
    small = [each for each in sidecars if _column(each) == kind and _rows(each) < ROWS_MAX // 2]
    return small if len(small) > _SMALL_MAX else ()


def _noting(actions: Iterable[Action], named: set[FileKey]) -> Iterator[Action]:
    """The actions; the keys of files that they name, however spelled, are added to `named`."""
    for each in actions:
        if isinstance(each, (AddFile, RemoveFile)):
            named.add(each.key)
            named.update((spelled, each.key[1]) for spelled in spellings(each.path))
        yield each


def _part(store: ObjectStore, sidecar: Sidecar) -> CheckpointPart:
    return CheckpointPart(store, SIDECAR_FOLDER + sidecar.path, whole=False, size=sidecar.size_in_bytes)


def _column(sidecar: Sidecar) -> FileColumn:
    return "remove" if _tag(sidecar, _KIND) == "remove" else "add"


def _rows(sidecar: Sidecar) -> int:
    return int(_tag(sidecar, _ROWS) or 0)


def _tag(sidecar: Sidecar, name: str) -> str | None:
    return (sidecar.tags or {}).get(name)


# -- clean-up ("Metadata Cleanup" in PROTOCOL.md) --------------------------------------------------------------------------


def unnamed_sidecars(store: ObjectStore, cutoff_ms: int) -> list[str]:
    """The keys of sidecars written before `cutoff_ms` that no checkpoint names; none if one of the checkpoints cannot be read."""
    # listed first: what is written from now on is not among them
    old = [info.key for info in store.list_from(SIDECAR_FOLDER) if info.key.endswith(".parquet") and info.modified_ms < cutoff_ms]
    if not old:
        return []
    try:
        read = at_once(lambda each: main_actions(store, each, whole=False)[0], list_versions(store).checkpoints, *_THREADS)
    except SluiceError as trouble:
        _log.warning("the sidecars of %s are not cleaned up: %s", store.location, trouble)
        return []
    # check: named-sidecars-are-kept (unquote(each.path).rpartition("/")[2] -> "")
    named = {unquote(each.path).rpartition("/")[2] for actions in read for each in actions if isinstance(each, Sidecar)}
    return [key for key in old if key.removeprefix(SIDECAR_FOLDER) not in named]
