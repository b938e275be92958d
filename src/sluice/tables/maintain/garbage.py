"""Which of a table's objects are needed, and by which rule others may be deleted. Pure, without I/O.

========================  ============================================================================================
an object is              if
========================  ============================================================================================
needed                    a version within retention, or a pinned version, shows it
replaced                  the log says that it was removed, longer ago than files are retained
an orphan                 no version shows it, and its transaction can never be filed any more (presence.py); a file
                          named by another engine is an orphan if it is older than files are retained (Delta's rule)
staged actions            likewise, for the actions of a transaction; versions that are not published yet need them
where rows went           likewise, but kept as long as replaced files are: who changes them, and began before, follows them
change data               likewise; those named by a version of the log are kept as long as replaced files are
unfinished                it is an upload in parts or a temporary file, not an object yet, and its transaction can never be filed
                          any more; if its name has no owner, its age decides, too
foreign                   nothing accounts for it: no version, no transaction id in its name, and no engine that could have written it
                          for this table. Such files are reported; only if the caller asks for it, they are deleted by age
========================  ============================================================================================

An engine could have written a file for this table if it names files like this and the file is not older than the table.

Hidden files and folders (names that begin with `_` or `.`) are not the table's, except the two of the protocol; nor is
anything in a sub-folder that is a table of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field
from enum import Enum
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from ...coordinator.api import Owner, id_in, owner_of, term_of
from ...storage.actions import Action, AddCDCFile, DeletionVector, RemoveFile
from ...storage.actions.uris import key_inside
from ...storage.constants import CHANGE_DATA_FOLDER, LOG_FOLDER, PROBE_PREFIX, STAGED_FOLDER
from ...storage.data.vectors import vector_key
from ...storage.dataclass import dataclass
from ...storage.log.snapshot import Snapshot
from ...storage.stores.objects import ObjectInfo, Unfinished

_DAY_MS: Final = 24 * 3600 * 1000
"""No upload takes this long: younger objects are left alone, whatever the retention."""

_UUID: Final = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_BY_AN_ENGINE: Final = re.compile(
    rf"(part|cdc)-[0-9]+-.*{_UUID}.*\.parquet"  # Spark, delta-rs, Databricks, Flink
    rf"|{_UUID}(-[0-9]+)?\.parquet"  # Delta Kernel
    rf"|[0-9]{{8}}_[0-9]{{6}}_[0-9]{{5}}_[a-z0-9]{{5}}_{_UUID}(\.parquet)?"  # Trino
    rf"|deletion_vector_{_UUID}.*\.bin",  # PROTOCOL, "Deletion Vector Descriptor Schema"
    re.IGNORECASE,
)
_OUR_TEMPORARY: Final = ".sluice-"


MOVES_FOLDER: Final = "moves"
"""The folder, in a transaction's own, of the objects that say where rows went. No version shows them: they are kept as long as replaced
files are, since a change that began before the rows moved may have to follow them."""


class Reason(Enum):
    """Why an object may be deleted."""

    REPLACED = "replaced"
    ORPHAN = "orphan"
    STAGED = "staged actions"
    CHANGES = "change data"
    UNFINISHED = "unfinished"
    FOREIGN = "foreign"


@dataclass(frozen=True, slots=True)
class Garbage:
    """An object that may be deleted: its key below the table's root, its size in bytes, and why.

    What is `unfinished` is no object yet: the parts of an upload, or a temporary file; its size is unknown.
    """

    key: str
    size: int
    reason: Reason
    unfinished: Unfinished | None = None


@dataclass(frozen=True, slots=True)
class Candidate:
    """An object that no version shows: its owner, the owner's term in which it was begun, and its reason if it is garbage."""

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

    def add_files(self, snapshot: Snapshot, cutoff_ms: int | None = None) -> None:
        """The live files of a version are needed, and with `cutoff_ms` those that were removed after it.

        Those that were removed before, or at an unknown time, count as replaced.
        """
        self.needed.update(self._keys(snapshot.files))
        if cutoff_ms is None:
            return
        removed = snapshot.tombstones
        # check: replaced-files-are-kept-for-a-time (cutoff_ms -> 2**62)
        recent = pc.greater(pc.fill_null(removed.column("deletion_timestamp"), 0), cutoff_ms)
        self.needed.update(self._keys(removed.filter(recent)))
        self.replaced.update(self._keys(removed.filter(pc.invert(recent))))

    def keep_what_went_after(self, horizon: Snapshot) -> None:
        """Files removed after this version are needed, whatever the removal's time, by its writer's clock."""
        gone = set(self._keys(horizon.tombstones))
        self.needed.update(self.replaced - gone)
        self.replaced &= gone

    def add_named_by(self, commits: Iterable[tuple[int, Iterable[Action]]]) -> None:
        """The files that commits removed are needed, and their change data."""
        for _, actions in commits:
            uris = (action.path for action in actions if isinstance(action, (RemoveFile, AddCDCFile)))
            self.needed.update(key for uri in uris if (key := key_inside(self.location, uri)) is not None)

    def _keys(self, files: pa.Table) -> Iterator[str]:
        for uri in files.column("path").to_pylist():
            key = key_inside(self.location, uri)
            if key is not None:
                yield key
        for vector in files.column("deletion_vector").drop_null().to_pylist():
            if (key := vector_key(DeletionVector(**vector), self.location)) is not None:
                yield key


def candidates(
    objects: Iterable[ObjectInfo], shown: Shown, partition_columns: Sequence[str], unfinished: Iterable[Unfinished] = ()
) -> list[Candidate]:
    """The table's own objects that nothing shows, and its unfinished ones."""
    listed = list(objects)
    nested = inner_tables(listed)
    found: list[Candidate] = []
    for each in listed:
        reason = _reason(each.key, partition_columns)
        if reason is None or each.key in shown.needed or each.key.startswith(nested):
            continue
        found.append(Candidate(each, reason, *_owner(each.key)))
    for begun in unfinished:
        folder = begun.key.rpartition("/")[0]
        ours = f"{folder}/".startswith(LOG_FOLDER) or _reason(f"{folder}/file" if folder else "file", partition_columns) is not None
        if ours and not begun.key.startswith(nested):
            found.append(Candidate(ObjectInfo(begun.key, 0, begun.begun_ms), Reason.UNFINISHED, *_owner(begun.key), begun))
    return found


def _owner(key: str) -> tuple[Owner | None, int]:
    """The owner of the transaction in an object's key, and the owner's term in which it was begun."""
    transaction = id_in(key)
    return (None, 0) if transaction is None else (owner_of(transaction), term_of(transaction))


def _reason(key: str, partition_columns: Sequence[str]) -> Reason | None:
    """The reason for an object if it is garbage; None for objects that are not the table's."""
    if key.startswith(STAGED_FOLDER):
        return Reason.STAGED
    if key.startswith(PROBE_PREFIX):
        return Reason.ORPHAN
    if is_hidden(key.removeprefix(CHANGE_DATA_FOLDER), partition_columns):
        return None
    return Reason.CHANGES if key.startswith(CHANGE_DATA_FOLDER) else Reason.ORPHAN


def is_hidden(key: str, partition_columns: Sequence[str]) -> bool:
    """Whether a folder of a key, or its name, says that it is no data file; the folders of partition columns do not."""
    own = tuple(f"{column}=" for column in partition_columns)
    return any(part[0] in "_." and not part.startswith(own) for part in key.split("/"))


def judge(
    found: Iterable[Candidate], shown: Shown, *, gone: dict[Owner, int | None], busy: frozenset[Owner], cutoff_ms: int, created_ms: int
) -> Iterator[Garbage]:
    """The candidates that are garbage, or would be if they were the table's (Reason.FOREIGN).

    `gone` are the owners that can file nothing begun before a term (None: nothing at all) any more; `busy` those with something filed but
    not published. Objects without an owner are judged by age. `created_ms` is when the table was created.
    """
    for each in found:
        key, size = each.info.key, each.info.size
        if each.unfinished is None and key in shown.needed:
            continue
        if each.unfinished is None and key in shown.replaced:
            yield Garbage(key, size, Reason.REPLACED)
        elif each.owner is None:
            brief = each.unfinished is not None or key.startswith(PROBE_PREFIX)  # another client may be using it now
            # check: files-of-others-go-by-age (always)
            if each.info.modified_ms < (cutoff_ms - _DAY_MS if brief else cutoff_ms):
                # in the log's folder, or a file being written
                by_sluice = key.startswith(LOG_FOLDER) or key.rpartition("/")[2].startswith(_OUR_TEMPORARY)
                ours = by_sluice or _by_an_engine(each.info, created_ms)
                # check: foreign-files-need-a-word (without if ours else Reason.FOREIGN)
                yield Garbage(key, size, each.reason if ours else Reason.FOREIGN, each.unfinished)
        # check: where-rows-went-is-kept (without and each.info.modified_ms >= cutoff_ms)
        elif f"/{MOVES_FOLDER}/" in key and each.info.modified_ms >= cutoff_ms:
            continue
        elif each.owner in gone and each.owner not in busy:
            before = gone[each.owner]
            # check: present-terms-are-kept (always)
            if before is None or each.term < before:
                yield Garbage(key, size, each.reason, each.unfinished)


def _by_an_engine(info: ObjectInfo, created_ms: float) -> bool:
    """Whether a known Delta engine gives its data files, change data files or deletion vectors such names, in this table's time."""
    return is_by_an_engine(info.key) and info.modified_ms >= created_ms


def is_by_an_engine(key: str) -> bool:
    """Whether a known Delta engine gives its data files, change data files or deletion vectors such names."""
    return _BY_AN_ENGINE.fullmatch(key.rpartition("/")[2]) is not None


def belongs_to(info: ObjectInfo, shown: Shown, created_ms: float) -> bool:
    """Whether an object belongs to the table of `shown`: it is in the log's folder, or the log, a transaction or an engine accounts for it.

    Other files, and hidden ones, belong to somebody who did not ask for the table to be dropped.
    """
    key = info.key
    if key.startswith((LOG_FOLDER, CHANGE_DATA_FOLDER)) or key in shown.needed or key in shown.replaced:
        return True
    return id_in(key) is not None or _by_an_engine(info, created_ms)


def inner_tables(objects: Iterable[ObjectInfo]) -> tuple[str, ...]:
    """The sub-folders that are tables of their own."""
    return tuple({key[: key.rindex("/" + LOG_FOLDER) + 1] for each in objects if "/" + LOG_FOLDER in (key := each.key)})
