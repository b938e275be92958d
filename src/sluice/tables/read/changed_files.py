"""The files that hold one version's changes, in the order in which readers read them. Pure.

The order is the order of actions in the version's commit file, which never changes. So the number of files read is a position within the
version: it means the same for every filter, every choice of columns, every size of pieces and every release.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cached_property
from itertools import islice
from typing import Final, TypeAlias

from ...coordinator.rules.operation_kinds import Kind
from ...coordinator.rules.winner import winner_of
from ...storage.actions import Action, AddCDCFile, AddFile, CommitInfo, RemoveFile
from ...storage.dataclass import dataclass

ALL: Final = range(1 << 62)
"""All files of a version."""
# The names of Delta's operations that change rows.
_DELETE: Final = "DELETE"
_ROW_CHANGES: Final = frozenset({_DELETE, "UPDATE", "MERGE"})

ChangedFile: TypeAlias = "AddCDCFile | RemoveFile | AddFile"


@dataclass(frozen=True)
class ChangedFiles:
    """A version's change data files; if it has none, the files it removed, then the files it added. Iterates over those numbered in `part`.

    Each question iterates over the actions again, because a version may have too many files to keep them in memory.
    """

    version: int
    actions: Iterable[Action]
    part: range = ALL

    @cached_property
    def counts(self) -> tuple[int, int, int]:
        """How many change data files, removed files and added files the version has."""
        recorded = removed = added = 0
        for each in self.actions:
            recorded += isinstance(each, AddCDCFile)
            removed += isinstance(each, RemoveFile) and each.data_change
            added += isinstance(each, AddFile) and each.data_change
        return recorded, removed, added

    @cached_property
    def both(self) -> frozenset[str]:
        """The paths that the version removes and adds again. Only the paths of the rarer kind are kept in memory."""
        recorded, removed, added = self.counts
        if recorded or not added or not removed:
            return frozenset()
        fewer, other = (AddFile, RemoveFile) if added <= removed else (RemoveFile, AddFile)
        paths = {each.path for each in self.actions if isinstance(each, fewer) and each.data_change}
        return frozenset(each.path for each in self.actions if isinstance(each, other) and each.data_change and each.path in paths)

    @cached_property
    def copies(self) -> bool:
        """Whether the deleted and inserted rows may include rows that were only copied. Such a version is read as a whole."""
        recorded, removed, added = self.counts
        return not recorded and len(self.both) < min(added, removed) and self._changes_rows()

    @cached_property
    def divides(self) -> bool:
        """Whether its first files may be read now and the others later: no row's new values come before its old ones.

        Removed files come before added ones. Change data files have both values of a row, in any order: they divide if the version is
        a DELETE, which has no new values.
        """
        if self.copies or not self.counts[0]:
            return not self.copies
        info = next((each for each in self.actions if isinstance(each, CommitInfo)), None)
        return info is not None and info.operation == _DELETE

    def __iter__(self) -> Iterator[ChangedFile]:
        return islice(self._all(), self.part.start, self.part.stop)

    @property
    def total(self) -> int:
        """How many files the version has, within this part or not."""
        recorded, removed, added = self.counts
        return recorded or removed + added

    @property
    def reaches_end(self) -> bool:
        """Whether the version has no file after this part."""
        return self.part.stop >= self.total

    def within(self, size: int) -> tuple[ChangedFiles, int]:
        """The first files of this part, until they have `size` bytes, but at least one file; and how many bytes they have.

        All of them, unless the version `divides`.
        """
        if not self.divides:
            return self, sum(each.size or 0 for each in self)
        stop, taken = self.part.start, 0
        for each in self:
            if taken >= size and stop > self.part.start:
                break
            taken += each.size or 0
            stop += 1
        return replace(self, part=range(self.part.start, stop)), taken

    def _all(self) -> Iterator[ChangedFile]:
        recorded, removed, added = self.counts
        if recorded:
            yield from (each for each in self.actions if isinstance(each, AddCDCFile))
            return
        if removed:
            yield from (each for each in self.actions if isinstance(each, RemoveFile) and each.data_change)
        if added:
            yield from (each for each in self.actions if isinstance(each, AddFile) and each.data_change)

    def _changes_rows(self) -> bool:
        """Whether the version deleted or updated rows without replacing them: then it may have copied rows to new files."""
        commit = winner_of(self.version, self.actions)
        return commit.operation in _ROW_CHANGES if commit.kind is None else commit.kind is Kind.CHANGE
