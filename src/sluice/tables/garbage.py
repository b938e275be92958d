"""What of a table's objects is needed, and by which rule the others may go. Pure: nothing is asked, nothing is deleted.

========================  ============================================================================================
an object is              when
========================  ============================================================================================
needed                    a version within retention, or one that somebody pinned, shows it
replaced                  the log says that it was removed, longer ago than files are retained
an orphan                 no version shows it, and its transaction can never be filed any more (identity.py, presence.py)
staged actions            the same, of the actions of a transaction; what is not published yet needs them
change data               the same; what a version of the log names is kept for as long as replaced files are
foreign                   no version shows it, its name tells no owner, and it is older than files are retained (Delta's rule)
unfinished                it is no object yet, but an upload in parts or a temporary file, and its transaction can never be filed
                          any more; where its name tells no owner it goes by its age, too
========================  ============================================================================================

Hidden files and folders (names that begin with `_` or `.`) belong to somebody else, but for the two of the protocol; so does
everything in a folder below that is a table of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from ..coordinator.identity import Owner, id_in, owner_of, term_of
from ..storage.actions import Action, AddCDCFile, DeletionVector, RemoveFile
from ..storage.constants import CHANGE_DATA_FOLDER, LOG_FOLDER, PROBE_PREFIX, STAGED_FOLDER
from ..storage.objects import ObjectInfo, Unfinished
from ..storage.partitions import key_inside
from ..storage.snapshot import Snapshot
from ..storage.vectors import vector_key

__all__ = ["Candidate", "Garbage", "Reason", "Shown", "candidates", "judge", "named_by"]


_DAY_MS: Final = 24 * 3600 * 1000
"""No upload takes that long: what goes on at this moment is left alone, whatever the retention."""


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
    vector = DeletionVector(**fields)
    if vector.storage_type == "p":
        return key_inside(location, vector.path_or_inline_dv)
    return vector_key(vector)


def named_by(commits: Iterable[Sequence[Action]]) -> Iterator[str]:
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
    nested = {key[: key.rindex("/" + LOG_FOLDER) + 1] for each in listed if "/" + LOG_FOLDER in (key := each.key)}
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
        return Reason.FOREIGN
    changes = key.startswith(CHANGE_DATA_FOLDER)
    parts = (key[len(CHANGE_DATA_FOLDER) :] if changes else key).split("/")
    if any(part[0] in "_." and not any(part.startswith(f"{column}=") for column in partition_columns) for part in parts):
        return None
    return Reason.CHANGES if changes else Reason.ORPHAN


def judge(
    found: Iterable[Candidate], shown: Shown, *, gone: dict[Owner, int | None], busy: frozenset[Owner], cutoff_ms: int
) -> Iterator[Garbage]:
    """Those of the candidates that are garbage.

    `gone` are the owners of which nothing can be filed any more that was begun before a term (None: nothing at all); `busy` those
    with something that is filed and not published. What has no owner goes by its age.
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
                yield Garbage(key, size, Reason.FOREIGN if each.unfinished is None else each.reason, each.unfinished)
        elif each.owner in gone and each.owner not in busy:
            before = gone[each.owner]
            if before is None or each.term < before:
                yield Garbage(key, size, each.reason, each.unfinished)
