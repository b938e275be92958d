"""What of a table's objects is needed, and by which rule the others may go. Pure: nothing is asked, nothing is deleted.

========================  ============================================================================================
an object is              when
========================  ============================================================================================
needed                    a version within retention, or one that somebody pinned, shows it
replaced                  the log says that it was removed, longer ago than files are retained
an orphan                 no version shows it, and its transaction can never be filed any more (identity.py, presence.py); a file
                          that another engine names is one when it is older than files are retained (Delta's rule)
staged actions            the same, of the actions of a transaction; what is not published yet needs them
change data               the same; what a version of the log names is kept for as long as replaced files are
unfinished                it is no object yet, but an upload in parts or a temporary file, and its transaction can never be filed
                          any more; where its name tells no owner it goes by its age, too
foreign                   nothing accounts for it: no version, no transaction id in its name, and no engine that could have written it
                          for this table. Such files are reported; they go, by their age, only when the caller says so
========================  ============================================================================================

An engine could have written a file for this table when it names files so and the file is not older than the table.

Hidden files and folders (names that begin with `_` or `.`) belong to somebody else, but for the two of the protocol; so does
everything in a folder below that is a table of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field
from enum import Enum
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from ...coordinator.nodes.identity import Owner, id_in, owner_of, term_of
from ...storage.actions import Action, AddCDCFile, DeletionVector, RemoveFile
from ...storage.actions.uris import key_inside
from ...storage.constants import CHANGE_DATA_FOLDER, LOG_FOLDER, PROBE_PREFIX, STAGED_FOLDER
from ...storage.data.vectors import vector_key
from ...storage.dataclass import dataclass
from ...storage.log.snapshot import Snapshot
from ...storage.stores.objects import ObjectInfo, Unfinished

__all__ = ["Candidate", "Garbage", "Reason", "Shown", "belongs_to", "candidates", "first_stranger", "inner_tables", "judge", "named_by"]


_DAY_MS: Final = 24 * 3600 * 1000
"""No upload takes that long: what goes on at this moment is left alone, whatever the retention."""

_UUID: Final = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_BY_AN_ENGINE: Final = re.compile(
    rf"(part|cdc)-[0-9]+-.*{_UUID}.*\.parquet"  # Spark, delta-rs, Databricks, Flink
    rf"|{_UUID}(-[0-9]+)?\.parquet"  # Delta Kernel
    rf"|[0-9]{{8}}_[0-9]{{6}}_[0-9]{{5}}_[a-z0-9]{{5}}_{_UUID}(\.parquet)?"  # Trino
    rf"|deletion_vector_{_UUID}.*\.bin",  # PROTOCOL, "Deletion Vector Descriptor Schema"
    re.IGNORECASE,
)
_OUR_TEMPORARY: Final = ".sluice-"


class Reason(Enum):
    """Why an object may go."""

    REPLACED = "replaced"
    ORPHAN = "orphan"
    STAGED = "staged actions"
    CHANGES = "change data"
    UNFINISHED = "unfinished"
    FOREIGN = "foreign"


@dataclass(frozen=True, slots=True)
class Garbage:
    """An object that may go: its key below the table's root, its size in bytes, and why.

    `unfinished` is what is no object yet: the parts of an upload, or a temporary file; then the size is not known.
    """

    key: str
    size: int
    reason: Reason
    unfinished: Unfinished | None = None


@dataclass(frozen=True, slots=True)
class Candidate:
    """An object that no version shows: whose it is, in which term of its owner it was begun, and its reason if it is garbage."""

    info: ObjectInfo
    reason: Reason
    owner: Owner | None
    term: int
    unfinished: Unfinished | None = None


@dataclass(slots=True)
class Shown:
    """The keys that versions need, and those that the log says were replaced long enough ago."""

    location: str
    needed: set[str] = field(default_factory=set[str])
    replaced: set[str] = field(default_factory=set[str])

    def add_files(self, snapshot: Snapshot) -> None:
        """The live files of a version are needed."""
        self.needed.update(self._keys(snapshot.files))

    def add_tombstones(self, snapshot: Snapshot, cutoff_ms: int) -> None:
        """Files that were removed after `cutoff_ms` are needed, by versions before; a removal that tells no time was long ago."""
        removed = snapshot.tombstones
        recent = pc.greater(pc.fill_null(removed.column("deletion_timestamp"), 0), cutoff_ms)
        self.needed.update(self._keys(removed.filter(recent)))
        self.replaced.update(self._keys(removed.filter(pc.invert(recent))))

    def keep_what_went_after(self, horizon: Snapshot) -> None:
        """What was removed by later versions than this one is needed, whatever time its removal tells: that is of its writer's clock."""
        gone = set(self._keys(horizon.tombstones))
        self.needed.update(self.replaced - gone)
        self.replaced &= gone

    def add_names(self, uris: Iterable[str]) -> None:
        """Files that are named otherwise."""
        self.needed.update(key for uri in uris if (key := key_inside(self.location, uri)) is not None)

    def _keys(self, files: pa.Table) -> Iterator[str]:
        for uri in files.column("path").to_pylist():
            key = key_inside(self.location, uri)
            if key is not None:
                yield key
        vectors = files.column("deletion_vector").drop_null()
        for vector in vectors.to_pylist():
            key = _vector_key(self.location, vector)
            if key is not None:
                yield key


def _vector_key(location: str, fields: dict[str, Any]) -> str | None:
    return vector_key(DeletionVector(**fields), location)


def named_by(commits: Iterable[Iterable[Action]]) -> Iterator[str]:
    """The files that commits removed, and their change data."""
    for actions in commits:
        for action in actions:
            if isinstance(action, (RemoveFile, AddCDCFile)):
                yield action.path


def candidates(
    objects: Iterable[ObjectInfo], shown: Shown, partition_columns: Sequence[str], unfinished: Iterable[Unfinished] = ()
) -> list[Candidate]:
    """The objects that are the table's own and that nothing shows, and what is unfinished there."""
    listed = list(objects)
    nested = inner_tables(listed)
    found: list[Candidate] = []
    for each in listed:
        reason = _reason(each.key, partition_columns)
        if reason is None or each.key in shown.needed or (nested and _below(each.key, nested)):
            continue
        found.append(Candidate(each, reason, *_owner(each.key)))
    for begun in unfinished:
        folder = begun.key.rpartition("/")[0]
        ours = f"{folder}/".startswith(LOG_FOLDER) or _reason(f"{folder}/file" if folder else "file", partition_columns) is not None
        if ours and not (nested and _below(begun.key, nested)):
            info = ObjectInfo(begun.key, 0, begun.begun_ms)
            found.append(Candidate(info, Reason.UNFINISHED, *_owner(begun.key), begun))
    return found


def _owner(key: str) -> tuple[Owner | None, int]:
    """Whose the transaction is that an object's key names, and in which term of that one it was begun."""
    transaction = id_in(key)
    return (None, 0) if transaction is None else (owner_of(transaction), term_of(transaction))


def _below(key: str, folders: set[str]) -> bool:
    return any(key.startswith(folder) for folder in folders)


def _reason(key: str, partition_columns: Sequence[str]) -> Reason | None:
    """What an object would be if it were garbage; None for what is not ours to judge."""
    if key.startswith(STAGED_FOLDER):
        return Reason.STAGED
    if key.startswith(PROBE_PREFIX):
        return Reason.ORPHAN
    changes = key.startswith(CHANGE_DATA_FOLDER)
    parts = (key[len(CHANGE_DATA_FOLDER) :] if changes else key).split("/")
    if any(part[0] in "_." and not any(part.startswith(f"{column}=") for column in partition_columns) for part in parts):
        return None
    return Reason.CHANGES if changes else Reason.ORPHAN


def judge(
    found: Iterable[Candidate],
    shown: Shown,
    *,
    gone: dict[Owner, int | None],
    busy: frozenset[Owner],
    cutoff_ms: int,
    created_ms: int,
) -> Iterator[Garbage]:
    """Those of the candidates that are garbage, or would be if they were the table's (Reason.FOREIGN).

    `gone` are the owners of which nothing can be filed any more that was begun before a term (None: nothing at all); `busy` those
    with something that is filed and not published. What has no owner goes by its age. `created_ms` is when the table was created.
    """
    for each in found:
        key, size = each.info.key, each.info.size
        if each.unfinished is None and key in shown.needed:
            continue
        if each.unfinished is None and key in shown.replaced:
            yield Garbage(key, size, Reason.REPLACED)
        elif each.owner is None:
            brief = each.unfinished is not None or key.startswith(PROBE_PREFIX)  # somebody may be at it just now
            if each.info.modified_ms < (cutoff_ms - _DAY_MS if brief else cutoff_ms):
                ours = _by_sluice(key) or _by_an_engine(each.info, created_ms)
                yield Garbage(key, size, each.reason if ours else Reason.FOREIGN, each.unfinished)
        elif each.owner in gone and each.owner not in busy:
            before = gone[each.owner]
            if before is None or each.term < before:
                yield Garbage(key, size, each.reason, each.unfinished)


def _by_sluice(key: str) -> bool:
    """Whether a name without a transaction's id is one of sluice's: in the log's folder, or of a file that is being written."""
    return key.startswith(LOG_FOLDER) or key.rpartition("/")[2].startswith(_OUR_TEMPORARY)


def _by_an_engine(info: ObjectInfo, created_ms: float) -> bool:
    """Whether a Delta engine that we know gives its data files, change data files or deletion vectors such names, in this table's time."""
    return _BY_AN_ENGINE.fullmatch(info.key.rpartition("/")[2]) is not None and info.modified_ms >= created_ms


def belongs_to(info: ObjectInfo, shown: Shown, created_ms: float) -> bool:
    """Whether an object is the table's that `shown` is of: it is in the log's folder, the log or a transaction names it, or an engine.

    `created_ms` is when the table was created. Hidden files and others without any of that are somebody's, who did not ask for the
    table to be dropped.
    """
    key = info.key
    if key.startswith((LOG_FOLDER, CHANGE_DATA_FOLDER)) or key in shown.needed or key in shown.replaced:
        return True
    return id_in(key) is not None or _by_an_engine(info, created_ms)


def inner_tables(objects: Iterable[ObjectInfo]) -> set[str]:
    """The folders below this one that are tables of their own."""
    return {key[: key.rindex("/" + LOG_FOLDER) + 1] for each in objects if "/" + LOG_FOLDER in (key := each.key)}


def first_stranger(objects: Iterable[ObjectInfo]) -> str | None:
    """The first key, if there is one, that somebody would miss if the folder became a table.

    Hidden files are nobody's data, and no vacuum takes them. What carries the id of a transaction was left by a write of ours that
    was to create the table.
    """
    for each in objects:
        hidden = any(part[0] in "_." for part in each.key.split("/"))
        if not each.key.startswith(LOG_FOLDER) and (not hidden or "/" + LOG_FOLDER in each.key) and id_in(each.key) is None:
            return each.key
    return None
