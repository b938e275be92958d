"""The end of a stream's batch, and the files between two offsets. Pure: the caller provides the files of each version.

A batch takes files in the order of versions, and within one in the order of its commit, until a limit is reached: one large version
becomes several batches, several small ones become one. A version's changes come together unless they alone exceed the limits, so that
a row's old and new values do; a larger version begins a batch, and becomes several if its changes can be divided. The same two offsets
always name the same files, so a batch that is repeated after a failure has the same rows.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from itertools import islice
from typing import TypeAlias

from ....storage.dataclass import dataclass
from .offsets import Limits, StreamOffset
from .version_files import StreamFiles

Lookup: TypeAlias = Callable[[StreamOffset], StreamFiles]
"""The files of an offset's version, or of its first snapshot."""


@dataclass(frozen=True, slots=True)
class Portion:
    """Some files of one version: those from `start` up to `stop`, without that one."""

    version: int
    first: bool
    files: StreamFiles
    start: int
    stop: int


class _Room:
    """The room that a batch has left."""

    def __init__(self, limits: Limits) -> None:
        self._files, self._size = limits.files, limits.size
        self._empty = True

    @property
    def is_full(self) -> bool:
        """Whether no further file fits. The first file always does; the last one may exceed the bytes."""
        return not self._empty and ((self._files is not None and self._files <= 0) or (self._size is not None and self._size <= 0))

    def take(self, files: StreamFiles, index: int) -> int:
        """How many of the files from `index` on the batch takes."""
        rest, taken = files.count - index, self._fitting(files, index)
        if files.changed is not None and taken < rest:  # it begins the next batch, and is divided only if it can be
            taken = 0 if not self._empty else rest if files.whole else taken
        if taken:
            self._empty = False
            self._files = None if self._files is None else self._files - taken
            self._size = None if self._size is None else self._size - files.size_from(index) + files.size_from(index + taken)
        return taken

    def _fitting(self, files: StreamFiles, index: int) -> int:
        """How many of the files from `index` on fit."""
        rest = files.count - index
        if self._files is not None:
            rest = min(rest, max(self._files, self._empty))
        if self._size is None:
            return rest
        left = self._size
        for number, size in enumerate(islice(files.sizes(index), rest)):
            if left <= 0 and (number or not self._empty):
                return number
            left -= size
        return rest


def end_of_batch(start: StreamOffset, latest: int, limits: Limits, lookup: Lookup) -> StreamOffset:
    """Where the batch that begins at `start` ends; `start` itself if the versions up to `latest` have nothing for the stream.

    Raises the error of a version that stops the stream, when all before it is read.
    """
    room, end, place = _Room(limits), start, start
    while place.first or place.version <= latest:
        files = lookup(place)
        if files.stop is not None:
            if end == start:
                raise files.stop
            break
        read = place.index + room.take(files, place.index)
        if files.ends is not None:
            read = files.ends[bisect_left(files.ends, read)]
        following = place.version + 1 if files.following is None else files.following
        if read > place.index:
            end = place.after(read, files.count, following)
        if read < files.count:
            break
        place = place.after(read, files.count, following)
        if room.is_full:
            break
    return end


def portions(start: StreamOffset, end: StreamOffset, lookup: Lookup) -> Iterator[Portion]:
    """The files between two offsets, version by version. Raises the error of a version that stops the stream."""
    place = start
    while place.place < end.place:
        files = lookup(place)
        if files.stop is not None:
            raise files.stop
        last = (place.version, place.first) == (end.version, end.first)
        read = min(end.index, files.count) if last else files.count
        if read > place.index:
            yield Portion(place.version, place.first, files, place.index, read)
        place = end if last else place.after(files.count, files.count, place.version + 1 if files.following is None else files.following)
