r"""Changes of two transactions in one file, row by row: merged, carried over, or in conflict. Reads only the log.

A transaction's actions say which rows of a file it deleted (a deletion vector), that it deleted all of them (a
remove), or where it moved them to (a compaction). If both changed the same file, the later one's actions are adapted::

    earlier \ later   deletes rows                        compacts the file
    deletes rows      vectors united; the same row: no    its output gets a vector
    compacts          vector carried over to the output   the rows leave its output
    removes           no                                  the rows leave its output

Source: the deletion vectors and `dataChange` rules of PROTOCOL.md; behaviour as Databricks documents row-level concurrency.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from ...storage.actions import Action, AddFile, DeletionVector, RemoveFile
from ...storage.actions.file_removals import moved_from, moved_rows, removal, with_base
from ...storage.actions.records import record_count, wide
from ...storage.data.row_moves import VectorLookup, all_moved, followed
from ...storage.data.vectors import Rows, from_text, plan_vector, to_text
from ...storage.errors import Corrupt, MissingObject
from .winner import Winner


class _Irreconcilable(Exception):
    """Raised inside a merge if the changes of one file are incompatible; `rows` were changed by both."""

    def __init__(self, rows: int = 0) -> None:
        super().__init__(rows)
        self.rows = rows


def merge(actions: Sequence[Action], winner: Winner, owner: str, lookup: VectorLookup) -> Merge:
    """Adapt `actions` to what `winner` did to the same files; `owner` is the transaction, for the names of new vectors."""
    merged = Merge(actions, owner, lookup)
    for path in sorted(merged.removes.keys() & winner.removed.keys()):
        try:
            merged.what.append(merged.meet(path, winner))
            merged.reconciled.add(path)
        except _Irreconcilable as conflict:
            if conflict.rows:
                merged.shared[path] = conflict.rows
    return merged


def replace_all(
    actions: Sequence[Action], winner: Winner, inside: Callable[[list[AddFile]], Iterable[AddFile]], now_ms: int, lookup: VectorLookup
) -> Merge:
    """Adapt an overwrite that replaces everything: remove what `winner` added inside its scope."""
    merged = Merge(actions, "", lookup)
    removes = merged.removes
    added = {add.path: add for add in winner.adds if add.path not in merged.adds}
    for path in sorted(removes.keys() & winner.removed.keys()):
        if path not in added:
            del removes[path]
            merged.reconciled.add(path)
    gone = [add for add in inside(list(added.values())) if add.path not in merged.adds]
    gone += [add for path, add in added.items() if path in removes and add not in gone]
    for add in gone:
        removes[add.path] = removal(add, now_ms)
        merged.reconciled.add(add.path)
    if merged.reconciled:
        merged.what.append(f"files of version {winner.version} replaced ({len(gone)} files)")
    return merged


def lost_rows(read: Mapping[str, str], winner: Winner, lookup: VectorLookup) -> dict[str, int]:
    """How many of the rows read (by file, as `vectors.to_text` writes them) a winner deleted; omits files without any. Moved rows are not
    lost.

    If rows or a vector cannot be read, all of the file's rows count.
    """
    lost: dict[str, int] = {}
    for path in read.keys() & winner.removed.keys():
        if not winner.removed[path].data_change:
            continue
        again = next((add for add in winner.adds if add.path == path), None)
        try:
            rows = from_text(read[path])
            if again is not None:
                rows = rows & lookup(again.deletion_vector) if again.deletion_vector is not None else Rows()
            count = len(rows)
        except (MissingObject, Corrupt, ValueError):
            count = 1
        # check: rows-that-were-read-count
        if count:
            lost[path] = count
    return lost


def rows_moved(text: str, source: RemoveFile, outputs: Collection[str], lookup: VectorLookup) -> dict[str, str] | None:
    """The new files, with positions, of the rows read from a compacted file; None if that is unknown."""
    try:
        moves, base = moved_rows(source), moved_from(source)
        if moves is None:
            return None
        dead, rows = Rows() if base is None else lookup(base), from_text(text)
        if rows & dead:
            return None
        places = followed(rows, moves, dead, lookup)
    except (MissingObject, Corrupt, ValueError):
        return None
    return {path: to_text(rows) for path, rows in places.items()} if places.keys() <= set(outputs) else None


class Merge:
    """The actions of a transaction, by path, while they are adapted to one winner."""

    def __init__(self, actions: Sequence[Action], owner: str, lookup: VectorLookup) -> None:
        self._owner, self._lookup = owner, lookup
        self.removes, self.adds, self._others = dict[str, RemoveFile](), dict[str, AddFile](), list[Action]()
        for action in actions:
            if isinstance(action, RemoveFile):
                self.removes[action.path] = action
            elif isinstance(action, AddFile):
                self.adds[action.path] = action
            else:
                self._others.append(action)
        self.reconciled: set[str] = set()
        """The files that both changed compatibly."""
        self.shared: dict[str, int] = {}
        """How many rows both changed, by file, of the other files."""
        self.what: list[str] = []
        """The adaptations in words."""
        self.objects: dict[str, bytes] = {}
        """The vectors to store before the actions are used."""
        self.planned: dict[str, Rows] = {}
        """The rows of the new vectors, by unique id: they are not in the store yet."""

    def actions(self) -> tuple[Action, ...]:
        """The adapted actions."""
        return (*self._others, *self.removes.values(), *self.adds.values())

    def meet(self, path: str, winner: Winner) -> str:
        """Adapt the changes to one file that the winner changed, too; returns what was done. Raises _Irreconcilable."""
        mine, theirs = self.removes[path], winner.removed[path]
        base, other = ("" if each.deletion_vector is None else each.deletion_vector.unique_id for each in (mine, theirs))
        # check: vectors-have-one-base
        if base != other:
            raise _Irreconcilable
        again = next((a for a in winner.adds if a.path == path), None)
        try:
            if not mine.data_change and path not in self.adds:
                return self._compaction_meets(mine, winner, again)
            if again is not None:
                return self._deletion_meets_deletion(mine, winner, again)
            if not theirs.data_change:
                return self._deletion_meets_compaction(mine, winner)
            raise _Irreconcilable(self._deleted_count(mine))
        except (MissingObject, Corrupt) as unreadable:
            raise _Irreconcilable from unreadable

    def _deletion_meets_deletion(self, mine: RemoveFile, winner: Winner, again: AddFile) -> str:
        base = self._rows(mine.deletion_vector)
        theirs = self._rows(again.deletion_vector) - base
        deleted = self._deleted(mine, base)
        both = theirs if deleted is None else deleted & theirs
        # check: the-same-row-is-a-conflict (without both or)
        if both or base - self._rows(again.deletion_vector):
            raise _Irreconcilable(len(both))
        self.removes[mine.path] = removal(again, mine.deletion_timestamp, data_change=mine.data_change)
        if deleted is not None:
            # check: vectors-are-united (without theirs |)
            self._set_vector(replace(again, data_change=True), base | theirs | deleted)
        return f"deletion vector of {mine.path} united with that of version {winner.version}"

    def _deletion_meets_compaction(self, mine: RemoveFile, winner: Winner) -> str:
        moves = moved_rows(winner.removed[mine.path])
        if moves is None:
            raise _Irreconcilable(self._deleted_count(mine))
        outputs = {add.path: add for add in winner.adds}
        deleted = self._deleted(mine, self._rows(mine.deletion_vector))
        base = moved_from(winner.removed[mine.path])
        positions = all_moved(moves, self._lookup) if deleted is None else followed(deleted, moves, self._rows(base), self._lookup)
        if deleted is not None and not positions.keys() <= outputs.keys():
            raise _Irreconcilable  # an output is omitted only if all its rows are deleted, but these are live
        del self.removes[mine.path]
        self.adds.pop(mine.path, None)
        for path in sorted(positions.keys() & outputs.keys()):
            output, changed = outputs[path], self.adds.get(path)
            before = self._rows((changed or output).deletion_vector)  # rows of several of its sources may be in it
            self.removes[path] = removal(output, mine.deletion_timestamp)
            self._set_vector(replace(output, data_change=True), before | positions[path])
        return f"deletion carried over from {mine.path} to what version {winner.version} made of it"

    def _deleted(self, mine: RemoveFile, base: Rows) -> Rows | None:
        """The rows of a file that this transaction deleted; None for all of them."""
        left = self.adds.get(mine.path)
        if left is None:
            return None
        after = self._rows(left.deletion_vector)
        if base - after:
            raise _Irreconcilable  # rows reappear: not a deletion
        return after - base

    def _deleted_count(self, mine: RemoveFile) -> int:
        deleted = self._deleted(mine, self._rows(mine.deletion_vector))
        if deleted is not None:
            return len(deleted)
        count = record_count(mine.stats)
        return 0 if count is None else count - (mine.deletion_vector.cardinality if mine.deletion_vector else 0)

    def _compaction_meets(self, mine: RemoveFile, winner: Winner, again: AddFile | None) -> str:
        moves = moved_rows(mine)
        if moves is None:
            raise _Irreconcilable
        if again is None:
            del self.removes[mine.path]
            for path, rows in all_moved(moves, self._lookup).items():
                self._mask(path, rows)
            return f"rows of {mine.path} left out, which version {winner.version} removed"
        base = moved_from(mine)
        known, now = self._rows(mine.deletion_vector), self._rows(again.deletion_vector)
        if known - now:
            raise _Irreconcilable
        for path, rows in followed(now - known, moves, self._rows(base), self._lookup).items():
            self._mask(path, rows)
        self.removes[mine.path] = with_base(replace(mine, deletion_vector=again.deletion_vector), base)
        return f"rows of {mine.path} left out, which version {winner.version} deleted"

    def _mask(self, path: str, rows: Rows) -> None:
        """Delete rows from a file that this compaction wrote."""
        output = self.adds.get(path)
        # check: deleted-rows-leave-a-compaction
        if output is not None:
            self._set_vector(output, self._rows(output.deletion_vector) | rows)

    def _rows(self, vector: DeletionVector | None) -> Rows:
        if vector is None:
            return Rows()
        planned = self.planned.get(vector.unique_id)
        return self._lookup(vector) if planned is None else planned

    def _set_vector(self, add: AddFile, rows: Rows) -> None:
        """Set a file's vector, or remove the file if no row is left."""
        count = record_count(add.stats)
        if count is not None and len(rows) >= count:
            self.adds.pop(add.path, None)
            return
        vector, stored = plan_vector(rows, owner=self._owner)
        self.planned[vector.unique_id] = rows
        if stored is not None:
            key, data = stored
            self.objects[key] = data
        self.adds[add.path] = replace(add, deletion_vector=vector, stats=wide(add.stats))
