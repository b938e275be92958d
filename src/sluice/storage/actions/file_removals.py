"""The actions that take files out of a table ("Add File and Remove File" in PROTOCOL.md), and where their rows went.

A compaction says where the live rows of each source went, so that a concurrent delete can be carried over without reading data. If it keeps
their order, the tag `sluice.moved` of the remove action lists which of them became which rows of which new file. If it shuffles them, the
tag `sluice.shuffled` names two stored sets of numbers instead (`Shuffled`). Checkpoints do not keep tags of removes: the record lives as
long as the commit file, which is as long as a concurrent transaction may need it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, astuple, replace
from itertools import chain
from typing import Any, Final, TypeAlias

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from ..dataclass import dataclass
from ..errors import CorruptLogFile
from .records import Action, AddFile, DeletionVector, RemoveFile, record_count

MOVED_TAG = "sluice.moved"
# A tag of its own: releases that cannot read it take the rows' places for unknown, and refuse.
SHUFFLED_TAG = "sluice.shuffled"
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
        moves: Sequence[Moves] | None = None,
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
    for part in actions._parts if isinstance(actions, Actions) else (actions,):
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


@dataclass(frozen=True, slots=True)
class Shuffled:
    """Where the live rows of a source went that were sorted into pieces of new files; `data.row_moves` writes and follows it.

    `order` is a stored set of numbers, one for each live row: sorted, and taken modulo how many they are, they list the live rows in their
    new order. `places` is the set of their new places, which belong to them in that order. Places are counted over all new files: each
    has `file_rows` of them, and file number n has the path `prefix` + n in three digits or more + `suffix`.
    """

    order: DeletionVector
    places: DeletionVector
    prefix: str
    suffix: str
    file_rows: int


Moves: TypeAlias = Sequence[Moved] | Shuffled


def with_moves(remove: RemoveFile, moves: Moves) -> RemoveFile:
    """The remove action of a compacted source, with the new places of its live rows."""
    name, said = (SHUFFLED_TAG, asdict(moves)) if isinstance(moves, Shuffled) else (MOVED_TAG, [astuple(each) for each in moves])
    others = {tag: text for tag, text in (remove.tags or {}).items() if tag not in (MOVED_TAG, SHUFFLED_TAG)}
    return replace(remove, tags={**others, name: orjson.dumps(said).decode()})


def moved_rows(remove: RemoveFile) -> tuple[Moved, ...] | Shuffled | None:
    """Where a removed file's live rows went; None if the commit does not say. Raises CorruptLogFile."""
    tags = remove.tags or {}
    name = SHUFFLED_TAG if SHUFFLED_TAG in tags else MOVED_TAG
    text = tags.get(name)
    if text is None:
        return None
    try:
        said = orjson.loads(text)
        if name == SHUFFLED_TAG:
            return _shuffled(**said)
        return tuple(Moved(str(path), int(first), int(count), int(offset)) for path, first, count, offset in said)
    except (ValueError, TypeError) as cause:
        raise CorruptLogFile(
            f"the tag {name} of the removed file {remove.path!r} does not say where rows went ({cause}): {text!r}", path=remove.path
        ) from cause


def _shuffled(order: Any, places: Any, prefix: Any, suffix: Any, file_rows: Any) -> Shuffled:
    said = Shuffled(DeletionVector(**order), DeletionVector(**places), str(prefix), str(suffix), int(file_rows))
    if said.file_rows <= 0 or not 0 < int(said.order.cardinality) == int(said.places.cardinality):
        raise ValueError(f"{said} places no rows")
    return said


def with_base(remove: RemoveFile, vector: DeletionVector | None) -> RemoveFile:
    """The remove action for a source that got a newer vector since it was compacted; `vector` is the one at compaction."""
    return replace(remove, tags={**(remove.tags or {}), _BASE_TAG: orjson.dumps(None if vector is None else asdict(vector)).decode()})


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
