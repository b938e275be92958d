"""The actions that take files out of a table ("Add File and Remove File" in PROTOCOL.md)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from .lineage import Moved, with_moves
from .records import Action, AddFile, DeletionVector, RemoveFile, record_count

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
    """The removals of all files in a table of `filetable.FILES_SCHEMA`; each is made on access.

    `moves` returns where a file's live rows went, if anywhere.
    """

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
        batches = self._files.to_batches(max_chunksize=_ROWS_AT_ONCE)
        removals = (self._removal(row) for batch in batches for row in batch.to_pylist())
        return removals if self._moves is None else map(with_moves, removals, self._moves)

    def __contains__(self, action: object) -> bool:
        return any(each == action for each in self)

    def _removal(self, row: dict[str, Any]) -> RemoveFile:
        vector = row["deletion_vector"]
        return RemoveFile(
            path=row["path"],
            data_change=self._data_change,
            deletion_timestamp=self._now_ms,
            extended_file_metadata=True,
            partition_values=dict(row["partition_values"] or ()),  # null in some writers' checkpoints
            size=row["size"],
            deletion_vector=None if vector is None else DeletionVector(**vector),
            base_row_id=row["base_row_id"],
            default_row_commit_version=row["default_row_commit_version"],
            stats=_row_count(row["stats"]),
        )

    @staticmethod
    def least_bytes(files: pa.Table) -> int:
        """The minimum size of the files' removals in the log, without making them."""
        return int(files.num_rows) * _LEAST_BYTES + (pc.sum(pc.binary_length(files["path"])).as_py() or 0)

    @staticmethod
    def least_bytes_of(adds: Iterable[AddFile]) -> int:
        """Like `least_bytes`, for files as records."""
        return sum(_LEAST_BYTES + len(add.path) for add in adds)


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
