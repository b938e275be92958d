"""The files that a commit removed, by path: a dictionary, or for very many of them compressed blocks with an index.

A million removals are 1.5 GB of Python objects, but some 50 MB in this form. Conflict rules look up only a few paths, which
is quick in both.
"""

from __future__ import annotations

import zlib
from array import array
from bisect import bisect_left
from collections.abc import ItemsView, Iterator, Mapping, ValuesView
from typing import Final

from ...storage.actions import RemoveFile, decode, encode

_LISTED_MAX: Final = 4096
"""Up to this number they are kept as objects; also the size of a block."""
_PLACE_BITS: Final = 28
_HASH_MASK: Final = (1 << (63 - _PLACE_BITS)) - 1


class Removals:
    """Collects the removals of a commit one by one, and returns them as a mapping by path."""

    def __init__(self) -> None:
        self._listed: dict[str, RemoveFile] = {}
        self._blocks: list[_Block] = []
        self._index: list[int] = []
        self._changing = 0

    def add(self, remove: RemoveFile) -> None:
        """Add one; the later of two with one path counts."""
        self._listed[remove.path] = remove
        if len(self._listed) > _LISTED_MAX:
            self._pack()

    def files(self) -> Mapping[str, RemoveFile]:
        """All of them. Nothing may be added afterwards."""
        if not self._blocks:
            return self._listed
        self._pack()
        self._index.sort()
        return RemovedFiles(self._blocks, array("q", self._index), self._changing)

    def _pack(self) -> None:
        place = len(self._blocks) * (_LISTED_MAX + 1)
        self._index += [_hashed(path) << _PLACE_BITS | place + number for number, path in enumerate(self._listed)]
        self._changing += sum(remove.data_change for remove in self._listed.values())
        self._blocks.append(_Block(self._listed))
        self._listed = {}


class _Block:
    """Up to 4097 removals, as their compressed log lines and paths."""

    __slots__ = ("_lines", "_paths")

    def __init__(self, removes: Mapping[str, RemoveFile]) -> None:
        self._lines = zlib.compress(b"\n".join(map(encode, removes.values())), 1)
        self._paths = zlib.compress("\0".join(removes).encode("utf-8", "surrogatepass"), 1)

    @property
    def nbytes(self) -> int:
        return len(self._lines) + len(self._paths)

    def paths(self) -> list[str]:
        return zlib.decompress(self._paths).decode("utf-8", "surrogatepass").split("\0")

    def removes(self) -> Iterator[RemoveFile]:
        for line in zlib.decompress(self._lines).split(b"\n"):
            action = decode(line)
            assert isinstance(action, RemoveFile)
            yield action

    def remove(self, number: int) -> RemoveFile:
        action = decode(zlib.decompress(self._lines).split(b"\n")[number])
        assert isinstance(action, RemoveFile)
        return action


class RemovedFiles(Mapping[str, RemoveFile]):
    """Very many removals by path; made by `Removals`."""

    def __init__(self, blocks: list[_Block], index: array[int], changing: int) -> None:
        self._blocks, self._index, self._changing = blocks, index, changing
        self._looked_at: tuple[int, list[str]] = (-1, [])

    @property
    def changes_data(self) -> bool | None:
        """Whether they are removed together with their rows: all (True), none (False), or some (None)."""
        return self._changing == len(self) if self._changing in (0, len(self)) else None

    @property
    def nbytes(self) -> int:
        """Its approximate size in memory."""
        return self._index.itemsize * len(self._index) + sum(block.nbytes for block in self._blocks)

    def __len__(self) -> int:
        return len(self._index)

    def __iter__(self) -> Iterator[str]:
        for block in self._blocks:
            yield from block.paths()

    def __contains__(self, path: object) -> bool:
        return self._place(path) is not None

    def __getitem__(self, path: str) -> RemoveFile:
        place = self._place(path)
        if place is None:
            raise KeyError(path)
        block, number = place
        return self._blocks[block].remove(number)

    def items(self) -> ItemsView[str, RemoveFile]:
        """The removals with their paths, in the order of the commit."""
        return _Items(self)

    def removes(self) -> Iterator[RemoveFile]:
        """The removals, in the order of the commit."""
        for block in self._blocks:
            yield from block.removes()

    def values(self) -> ValuesView[RemoveFile]:
        """The removals, in the order of the commit."""
        return _Values(self)

    def _place(self, path: object) -> tuple[int, int] | None:
        if not isinstance(path, str):
            return None
        prefix = _hashed(path)
        at = bisect_left(self._index, prefix << _PLACE_BITS)
        while at < len(self._index) and self._index[at] >> _PLACE_BITS == prefix:
            block, number = divmod(self._index[at] & ((1 << _PLACE_BITS) - 1), _LISTED_MAX + 1)
            looked_at, paths = self._looked_at
            if looked_at != block:
                paths = self._blocks[block].paths()
                self._looked_at = block, paths
            if paths[number] == path:
                return block, number
            at += 1
        return None


class _Items(ItemsView[str, RemoveFile]):
    """Reads the blocks once; looking up each path would unpack a block for each."""

    def __init__(self, files: RemovedFiles) -> None:
        super().__init__(files)
        self._files = files

    def __iter__(self) -> Iterator[tuple[str, RemoveFile]]:
        return ((remove.path, remove) for remove in self._files.removes())


class _Values(ValuesView[RemoveFile]):
    """Like `_Items`, for the removals alone."""

    def __init__(self, files: RemovedFiles) -> None:
        super().__init__(files)
        self._files = files

    def __iter__(self) -> Iterator[RemoveFile]:
        return self._files.removes()


def _hashed(path: str) -> int:
    """An index only: paths with equal hashes are compared."""
    return hash(path) & _HASH_MASK
