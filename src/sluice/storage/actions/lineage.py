"""Where the rows of a compacted file went: what carries a concurrent delete over to the new file without reading data.

A compaction keeps the order of the live rows of its source files and says in each remove action, in the tag `sluice.moved`,
which of them became which rows of which new file. Tags of removes are not kept in checkpoints: the record lives as long as
the commit file, which is as long as a concurrent transaction may ask for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, astuple, replace

import orjson

from ..dataclass import dataclass
from ..errors import CorruptLogFile
from .records import DeletionVector, RemoveFile

__all__ = ["MOVED_TAG", "Moved", "moved_from", "moved_rows", "with_base", "with_moves"]

MOVED_TAG = "sluice.moved"
_BASE_TAG = "sluice.movedFrom"


@dataclass(frozen=True, slots=True)
class Moved:
    """Live rows [`first`, `first` + `count`) of a source are rows [`offset`, `offset` + `count`) of the file at `path`.

    Live rows are counted in the source's order without those that its deletion vector (the remove's) lists; rows of the new
    file are counted physically, from 0.
    """

    path: str
    first: int
    count: int
    offset: int


def with_moves(remove: RemoveFile, moves: Sequence[Moved]) -> RemoveFile:
    """The remove action of a compacted source, saying where its live rows went."""
    text = orjson.dumps([astuple(each) for each in moves]).decode()
    return replace(remove, tags={**(remove.tags or {}), MOVED_TAG: text})


def moved_rows(remove: RemoveFile) -> tuple[Moved, ...] | None:
    """Where a removed file's live rows went, in their order; None when the commit does not say. Raises CorruptLogFile."""
    text = (remove.tags or {}).get(MOVED_TAG)
    if text is None:
        return None
    try:
        return tuple(Moved(str(path), int(first), int(count), int(offset)) for path, first, count, offset in orjson.loads(text))
    except (ValueError, TypeError) as cause:
        raise CorruptLogFile(
            f"the tag {MOVED_TAG} of the removed file {remove.path!r} is no list of moves: {text!r}", path=remove.path
        ) from cause


def with_base(remove: RemoveFile, vector: DeletionVector | None) -> RemoveFile:
    """The same for a source that got a newer vector since it was compacted; `vector` is the one it had then."""
    text = orjson.dumps(None if vector is None else asdict(vector)).decode()
    return replace(remove, tags={**(remove.tags or {}), _BASE_TAG: text})


def moved_from(remove: RemoveFile) -> DeletionVector | None:
    """The vector of a source when it was compacted: its rows were dead then and went nowhere. Raises CorruptLogFile."""
    text = (remove.tags or {}).get(_BASE_TAG)
    if text is None:
        return remove.deletion_vector
    try:
        fields = orjson.loads(text)
        return None if fields is None else DeletionVector(**fields)
    except (ValueError, TypeError) as cause:
        raise CorruptLogFile(f"the tag {_BASE_TAG} of the removed file {remove.path!r} is no vector: {text!r}", path=remove.path) from cause
