"""The actions that take files out of a table ("Add File and Remove File" in PROTOCOL.md), and where their rows went.

A compaction keeps the order of its sources' live rows, so that a concurrent delete can be carried over without reading data. The tag
`sluice.moved` of each remove action records which of them became which rows of which new file. Checkpoints do not keep tags of removes:
the record lives as long as the commit file, which is as long as a concurrent transaction may need it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, astuple, replace
from itertools import chain
from typing import Final

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from ..dataclass import dataclass
from ..errors import CorruptLogFile
from .records import Action, AddFile, DeletionVector, RemoveFile, record_count

MOVED_TAG = "sluice.moved"
_BASE_TAG = "sluice.movedFrom"

_ROWS_AT_ONCE: Final = 4096
_COLUMNS: Final = ("path", "partition_values", "size", "stats", "deletion_vector", "base_row_id", "default_row_commit_version")
_LEAST_BYTES: Final = 140
"""The line of a removal without its path and partition."""


def removal(add: AddFile, now_ms: int | None, *, data_change: bool = True) -> RemoveFile:
    """The action that removes a file, with everything needed to find the file, count its space and rows, and tell its row ids.

    Of the statistics only the number of rows is kept: no reader prunes removed files, and a commit may remove millions.
    """
    return RemoveFile(
        path=add.path,
        data_change=data_change,
        deletion_timestamp=now_ms,
        extended_file_metadata=True,
        partition_values=add.partition_values,
        size=add.size,
        deletion_vector=add.deletion_vector,
        base_row_id=add.base_row_id,
        default_row_commit_version=add.default_row_commit_version,
        stats=_row_count(add.stats),
    )


def _row_count(stats: str | None) -> str | None:
    rows = record_count(stats)
    return None if rows is None else f'{{"numRecords":{rows}}}'


class Removals(Collection[RemoveFile]):
    """The removals of all files in a table of `filetable.FILES_SCHEMA`, made on access. `moves` says where each file's live rows went."""

    def __init__(
        self,
        files: pa.Table,
        now_ms: int | None,
        *,
        moves: Sequence[Sequence[Moved]] | None = None,
        data_change: bool = True,
    ) -> None:
        self._files, self._now_ms = files.select(_COLUMNS), now_ms
        self._moves, self._data_change = moves, data_change

    def __len__(self) -> int:
        return int(self._files.num_rows)

    def __iter__(self) -> Iterator[RemoveFile]:
        moves = None if self._moves is None else iter(self._moves)
        for batch in self._files.to_batches(max_chunksize=_ROWS_AT_ONCE):
            for row in batch.to_pylist():
                vector = row["deletion_vector"]
                row["deletion_vector"] = None if vector is None else DeletionVector(**vector)
                row["partition_values"] = dict(row["partition_values"] or ())  # null in some writers' checkpoints
                row["stats"] = _row_count(row["stats"])
                remove = RemoveFile(data_change=self._data_change, deletion_timestamp=self._now_ms, extended_file_metadata=True, **row)
                yield remove if moves is None else with_moves(remove, next(moves))

    def __contains__(self, action: object) -> bool:
        return any(each == action for each in self)

    @staticmethod
    def least_bytes(files: pa.Table) -> int:
        """The minimum size of the files' removals in the log, without making them."""
        return int(files.num_rows) * _LEAST_BYTES + (pc.sum(pc.binary_length(files["path"])).as_py() or 0)

    @staticmethod
    def least_bytes_of(adds: Iterable[AddFile]) -> int:
        """Like `least_bytes`, for files as records."""
        return sum([_LEAST_BYTES + len(add.path) for add in adds])


def besides_removals(actions: Collection[Action]) -> Iterator[Action]:
    """The actions without those of `Removals`, for callers that need others: making a million removals takes seconds."""
    parts = actions._parts if isinstance(actions, Actions) else (actions,)
    for part in parts:
        if isinstance(part, Actions):
            yield from besides_removals(part)
        elif not isinstance(part, Removals):
            yield from part


class Actions(Collection[Action]):
    """A sequence of actions, some of which are made on access."""

    def __init__(self, *parts: Collection[Action]) -> None:
        self._parts = parts

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    def __iter__(self) -> Iterator[Action]:
        return chain.from_iterable(self._parts)

    def __contains__(self, action: object) -> bool:
        return any(action in part for part in self._parts)


# -- where rows went -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Moved:
    """Live rows [`first`, `first` + `count`) of a source are rows [`offset`, `offset` + `count`) of the file at `path`.

    Live rows are counted in the source's order, without those in its deletion vector (the remove's); rows of the new file
    are counted physically, from 0.
    """

    path: str
    first: int
    count: int
    offset: int


def with_moves(remove: RemoveFile, moves: Sequence[Moved]) -> RemoveFile:
    """The remove action of a compacted source, with the new places of its live rows."""
    text = orjson.dumps([astuple(each) for each in moves]).decode()
    return replace(remove, tags={**(remove.tags or {}), MOVED_TAG: text})


def moved_rows(remove: RemoveFile) -> tuple[Moved, ...] | None:
    """Where a removed file's live rows went, in order; None if the commit does not say. Raises CorruptLogFile."""
    text = (remove.tags or {}).get(MOVED_TAG)
    if text is None:
        return None
    try:
        return tuple(Moved(str(path), int(first), int(count), int(offset)) for path, first, count, offset in orjson.loads(text))
    except (ValueError, TypeError) as cause:
        raise CorruptLogFile(
            f"the tag {MOVED_TAG} of the removed file {remove.path!r} is not a list of moves: {text!r}", path=remove.path
        ) from cause


def with_base(remove: RemoveFile, vector: DeletionVector | None) -> RemoveFile:
    """The remove action for a source that got a newer vector since it was compacted; `vector` is the one at compaction."""
    text = orjson.dumps(None if vector is None else asdict(vector)).decode()
    return replace(remove, tags={**(remove.tags or {}), _BASE_TAG: text})


def moved_from(remove: RemoveFile) -> DeletionVector | None:
    """A source's vector when it was compacted: its rows were already deleted and moved nowhere. Raises CorruptLogFile."""
    text = (remove.tags or {}).get(_BASE_TAG)
    if text is None:
        return remove.deletion_vector
    try:
        fields = orjson.loads(text)
        return None if fields is None else DeletionVector(**fields)
    except (ValueError, TypeError) as cause:
        raise CorruptLogFile(
            f"the tag {_BASE_TAG} of the removed file {remove.path!r} is not a vector: {text!r}", path=remove.path
        ) from cause
