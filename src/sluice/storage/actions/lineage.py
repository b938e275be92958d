"""Lineage: where the rows of a compacted file went, so that a concurrent delete can be carried over without reading data.

A compaction keeps the order of its sources' live rows. The tag `sluice.moved` of each remove action records which of them
became which rows of which new file. Checkpoints do not keep tags of removes: the record lives as long as the commit file,
which is as long as a concurrent transaction may need it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, astuple, replace

import orjson

from ..dataclass import dataclass
from ..errors import CorruptLogFile
from .records import DeletionVector, RemoveFile

MOVED_TAG = "sluice.moved"
_BASE_TAG = "sluice.movedFrom"


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
