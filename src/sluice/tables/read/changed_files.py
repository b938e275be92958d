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

from ...coordinator.rules.intent import Kind
from ...coordinator.rules.winner import winner_of
from ...storage.actions import Action, AddCDCFile, AddFile, CommitInfo, Metadata, Protocol, RemoveFile
from ...storage.arguments import checked
from ...storage.dataclass import dataclass

ALL: Final = range(1 << 62)
"""All files of a version."""
# The names of Delta's operations that change rows.
_DELETE: Final = "DELETE"
_ROW_CHANGES: Final = frozenset({_DELETE, "UPDATE", "MERGE"})

ChangedFile: TypeAlias = "AddCDCFile | RemoveFile | AddFile"


@checked
@dataclass(frozen=True, slots=True, order=True)
class ChangePlace:
    """A place in a table's changes: after those of `version`, and of the first `files` of the files in which those of the next one lie."""

    version: int
    files: int = 0


@dataclass(slots=True)
class VersionContents:
    """What a version has, by kind of action; of files only those whose rows changed."""

    recorded: int = 0
    """Change data files."""
    removed: int = 0
    """Files that it removed."""
    added: int = 0
    """Files that it added."""
    info: CommitInfo | None = None
    """Its commitInfo."""
    metadata: Metadata | None = None
    """The metadata that it set."""
    protocol: Protocol | None = None
    """The protocol that it set."""

    @staticmethod
    def of(actions: Iterable[Action]) -> VersionContents:
        """What these actions are, in one pass."""
        contents = VersionContents()
        for each in actions:
            match each:
                case AddFile():
                    contents.added += each.data_change
                case RemoveFile():
                    contents.removed += each.data_change
                case AddCDCFile():
                    contents.recorded += 1
                case CommitInfo():
                    contents.info = each
                case Metadata():
                    contents.metadata = each
                case Protocol():
                    contents.protocol = each
                case _:
                    pass
        return contents


@dataclass(frozen=True)
class ChangedFiles:
    """A version's change data files; if it has none, the files it removed, then the files it added. Iterates over those numbered in `part`.

    Each question iterates over the actions again, because a version may have too many files to keep them in memory.
    """

    version: int
    actions: Iterable[Action]
    part: range = ALL

    @cached_property
    def contents(self) -> VersionContents:
        """What the version has."""
        return VersionContents.of(self.actions)

    @cached_property
    def both(self) -> frozenset[str]:
        """The paths that the version removes and adds again. Only the paths of the rarer kind are kept in memory."""
        has = self.contents
        if has.recorded or not has.added or not has.removed:
            return frozenset()
        fewer, other = (AddFile, RemoveFile) if has.added <= has.removed else (RemoveFile, AddFile)
        paths = {each.path for each in self.actions if isinstance(each, fewer) and each.data_change}
        return frozenset(each.path for each in self.actions if isinstance(each, other) and each.data_change and each.path in paths)

    @cached_property
    def copies(self) -> bool:
        """Whether the deleted and inserted rows may include rows that were only copied. Such a version is read as a whole.

        It deleted or updated rows without replacing them, and wrote new files.
        """
        has = self.contents
        if has.recorded or len(self.both) >= min(has.added, has.removed):
            return False
        commit = winner_of(self.version, self.actions)
        return commit.operation in _ROW_CHANGES if commit.kind is None else commit.kind is Kind.CHANGE

    @cached_property
    def divides(self) -> bool:
        """Whether its first files may be read now and the others later: no row's new values come before its old ones.

        Removed files come before added ones. Change data files have both values of a row, in any order: they divide if the version is
        a DELETE, which has no new values.
        """
        if self.contents.recorded:
            return self.contents.info is not None and self.contents.info.operation == _DELETE
        return not self.copies

    def __iter__(self) -> Iterator[ChangedFile]:
        kinds = (AddCDCFile,) if self.contents.recorded else (RemoveFile, AddFile)
        files = (each for kind in kinds for each in self.actions if isinstance(each, kind) and (kind is AddCDCFile or each.data_change))
        return islice(files, self.part.start, self.part.stop)

    @property
    def total(self) -> int:
        """How many files the version has, within this part or not."""
        return self.contents.recorded or self.contents.removed + self.contents.added

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
