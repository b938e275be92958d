"""The sidecars of V2 checkpoints ("V2 Spec" in PROTOCOL.md): which ones the next checkpoint names again, and which nobody names any more.

A checkpoint takes over the sidecars of the newest one before it. Only those with a file that the commits since then name are written anew,
without it; what these commits left goes to new sidecars. Many small sidecars are joined, and one whose tombstones have all expired is left
out.

An index says what each sidecar of a checkpoint has: adds or removes, how many, when the newest of these removes was made, and digests of
all paths. So a checkpoint reads this one file, however many sidecars there are, and then the sidecars that have a file of the commits. The
index lies beside the sidecars, and a tag of the checkpoint names it. Checkpoints of other engines have none: after them all is written
anew.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from itertools import accumulate
from typing import Final
from urllib.parse import unquote
from zlib import crc32

import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap

from ..actions.filetable import without
from ..actions.records import Action, AddFile, CheckpointMetadata, FileKey, Metadata, RemoveFile, Sidecar
from ..actions.uris import spellings
from ..caches import at_once
from ..constants import SIDECAR_FOLDER
from ..dataclass import dataclass
from ..errors import Corrupt, CorruptLogFile, ObjectNotFound, SluiceError
from ..jsontext import dumps, loads
from ..stores.objects import ObjectStore
from .checkpoint_part import CheckpointPart, FileColumn
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

SINCE_CLASSIC: Final = "sluice.sinceClassic"
"""The tag of a checkpoint that counts those since the last one with the classic name."""
INDEX: Final = "sluice.index"
"""The tag of a checkpoint that names its index."""
_INDEX_SUFFIX: Final = ".index"
# Of a path not in it, a full sidecar has the digest once in a thousand times. More bits would make the index larger.
_DIGEST_MAX: Final = (1 << 24) - 1


@dataclass(frozen=True, slots=True)
class Indexed:
    """A sidecar, and what the index says of it: when its newest remove was made (0 for adds), and a bitmap of its paths' digests."""

    sidecar: Sidecar
    kind: FileColumn
    rows: int
    newest_ms: int
    digests: bytes | memoryview


@dataclass(frozen=True, slots=True)
class Plan:
    """What a checkpoint has: sidecars that are there already, and rows to write. It has the classic name if `since_classic` is 0."""

    kept: Sequence[Indexed]
    adds: pa.Table
    removes: pa.Table
    since_classic: int = 0


@dataclass(frozen=True, slots=True)
class _Former:
    """The newest checkpoint before a version, with the files of the log since."""

    segment: LogSegment
    sidecars: Sequence[Indexed]
    since_classic: int


def indexed(sidecar: Sidecar, kind: FileColumn, rows: pa.Table) -> Indexed:
    """A sidecar that has these rows."""
    newest_ms = pc.max(rows.column("deletion_timestamp")).as_py() or 0 if kind == "remove" else 0
    return Indexed(sidecar, kind, rows.num_rows, newest_ms, _digests_of(rows.column("path").to_pylist()).serialize())


def _digests_of(paths: Iterable[str]) -> BitMap:
    return BitMap([digest & _DIGEST_MAX for digest in map(crc32, map(str.encode, paths))])


def write_index(store: ObjectStore, sidecars: Sequence[Indexed]) -> str:
    """Write the index of these sidecars: a checksum, a line that tells of each, and the digests of each. Returns its name."""
    name = f"{uuid.uuid4()}{_INDEX_SUFFIX}"
    line = dumps([(each.sidecar.path, each.kind, each.rows, each.newest_ms, len(each.digests)) for each in sidecars])
    pieces = [line, b"\n", *(each.digests for each in sidecars)]
    checksum = reduce(lambda former, piece: crc32(piece, former), pieces, 0)
    store.put(SIDECAR_FOLDER + name, b"".join([b"%08x" % checksum, *pieces]))
    return name


def _read_index(store: ObjectStore, name: str, sidecars: Sequence[Sidecar]) -> Sequence[Indexed]:
    """These sidecars, with what the index says of them. Raises CorruptLogFile unless it is whole and about them, ObjectNotFound."""
    key = SIDECAR_FOLDER + name
    content = store.get(key)
    view = memoryview(content)
    # check: indexes-are-whole
    if content[:8] != b"%08x" % crc32(view[8:]):
        raise CorruptLogFile(f"{key} is truncated or damaged", file=key, line=None, reason="its checksum is another one")
    end = content.index(b"\n")
    lines = loads(content[8:end])
    # check: only-own-sidecars-are-shared
    if [path for path, *_ in lines] != [each.path for each in sidecars]:
        raise CorruptLogFile(f"{key} is about other sidecars", file=key, line=1, reason="another engine wrote the checkpoint")
    ends = accumulate((size for *_, size in lines), initial=end + 1)
    return [
        Indexed(sidecar, kind, rows, newest_ms, view[at : at + size])
        for sidecar, (_, kind, rows, newest_ms, size), at in zip(sidecars, lines, ends, strict=False)
    ]


def plan_sidecars(store: ObjectStore, snapshot: Snapshot, cutoff_ms: int) -> Plan:
    """What the checkpoint of a published version consists of; removes before `cutoff_ms` have expired."""
    try:
        if (former := _newest_before(store, snapshot)) is not None:
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
    tags = next((each.tags or {} for each in actions if isinstance(each, CheckpointMetadata)), {})
    index = tags.get(INDEX)
    if index is None or not any(isinstance(each, Metadata) and each.id == snapshot.metadata.id for each in actions):
        return None
    return _Former(segment, _read_index(store, index, sidecars), int(tags.get(SINCE_CLASSIC) or 0))


def _changed(store: ObjectStore, former: _Former, cutoff_ms: int) -> Plan:
    named: set[FileKey] = set()
    commits = fetch_actions(store, former.segment.commits)
    since = ReplayState().after(_noting(actions, named) for actions in commits)
    live = [each for each in former.sidecars if each.kind == "add" or each.newest_ms > cutoff_ms]
    _require_all(store, live)
    paths = [path for path, _ in named]
    digests, names = _digests_of(paths), pa.array(paths, pa.string())
    # check: changed-files-leave-their-sidecar (not digests.isdisjoint -> False and digests.isdisjoint)
    likely = [each for each in live if named and not digests.isdisjoint(BitMap.deserialize(each.digests))]  # type: ignore[arg-type]  # it takes any buffer
    changed = at_once(lambda each: _part(store, each).has_any(each.kind, names), likely, *_THREADS)
    again = [each for each, changes in zip(likely, changed, strict=True) if changes]
    again += [each for kind in ("add", "remove") for each in _many_small(live, kind) if each not in again]
    read = at_once(lambda each: _part(store, each).files(each.kind), again, *_THREADS)
    tables = {"add": [since.files.table], "remove": [since.tombstones.table]}
    for each, batches in zip(again, read, strict=True):
        schema = tables[each.kind][0].schema
        tables[each.kind].append(pa.Table.from_batches(without(pa.Table.from_batches(batches, schema), named), schema))
    kept = [each for each in live if each not in again]
    adds, removes = map(pa.concat_tables, tables.values())
    return Plan(kept, adds, removes, (former.since_classic + 1) % _CLASSIC_EVERY)


def _require_all(store: ObjectStore, sidecars: Sequence[Indexed]) -> None:
    """Raise ObjectNotFound unless all are there, in full size."""
    there = {info.key: info.size for info in store.list_from(SIDECAR_FOLDER)}
    # check: shared-sidecars-are-there
    for each in sidecars:
        key, size = SIDECAR_FOLDER + each.sidecar.path, each.sidecar.size_in_bytes
        if there.get(key) != size:
            raise ObjectNotFound(f"{key} in {store.location} has {there.get(key, 'no')} bytes, not {size}", path=key)


def _many_small(sidecars: Sequence[Indexed], kind: FileColumn) -> Sequence[Indexed]:
    """The small sidecars of a kind, if there are many."""
    small = [each for each in sidecars if each.kind == kind and each.rows < ROWS_MAX // 2]
    return small if len(small) > _SMALL_MAX else ()


def _noting(actions: Iterable[Action], named: set[FileKey]) -> Iterator[Action]:
    """The actions; the keys of files that they name, however spelled, are added to `named`."""
    for each in actions:
        if isinstance(each, (AddFile, RemoveFile)):
            named.add(each.key)
            named.update((spelled, each.key[1]) for spelled in spellings(each.path))
        yield each


def _part(store: ObjectStore, each: Indexed) -> CheckpointPart:
    return CheckpointPart(store, SIDECAR_FOLDER + each.sidecar.path, whole=False, size=each.sidecar.size_in_bytes)


# -- clean-up ("Metadata Cleanup" in PROTOCOL.md) --------------------------------------------------------------------------


def unnamed_sidecars(store: ObjectStore, cutoff_ms: int) -> list[str]:
    """The keys of sidecars and indexes written before `cutoff_ms` that no checkpoint names; none if a checkpoint cannot be read."""
    # listed first: what is written from now on is not among them
    old = [
        info.key
        for info in store.list_from(SIDECAR_FOLDER)
        if info.key.endswith((".parquet", _INDEX_SUFFIX)) and info.modified_ms < cutoff_ms
    ]
    if not old:
        return []
    try:
        read = at_once(lambda each: main_actions(store, each, whole=False)[0], list_versions(store).checkpoints, *_THREADS)
    except SluiceError as trouble:
        _log.warning("the sidecars of %s are not cleaned up: %s", store.location, trouble)
        return []
    # check: named-sidecars-are-kept (unquote(name).rpartition("/")[2] -> "")
    named = {unquote(name).rpartition("/")[2] for actions in read for name in _names_in(actions)}
    return [key for key in old if key.removeprefix(SIDECAR_FOLDER) not in named]


def _names_in(checkpoint: Iterable[Action]) -> Iterator[str]:
    """The sidecars and the index that a checkpoint names."""
    for each in checkpoint:
        if isinstance(each, Sidecar):
            yield each.path
        elif isinstance(each, CheckpointMetadata):
            yield (each.tags or {}).get(INDEX) or ""
