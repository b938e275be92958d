"""Puts changes that an engine outside of this process made to a table's rows into a draft.

The engine (Spark's tasks) finds rows by file and position and writes the files with new rows; here they become part of an open
transaction, as if one of its own operations had done it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field

import pyarrow as pa
import pyarrow.compute as pc

from ...coordinator.facade.values import Reads
from ...storage.actions import AddCDCFile, AddFile
from ...storage.actions.filetable import adds_of, picked
from ...storage.data.vectors import Rows
from ...storage.dataclass import dataclass
from ...storage.errors import InvariantBroken
from ...storage.pruning.predicate import Predicate
from .draft import Draft
from .row_operations import reads_in

__all__ = ["RowChanges", "Target", "apply_changes", "files_of", "target_of"]


@dataclass(frozen=True, slots=True)
class Target:
    """The files in which an engine looks for rows: those that may satisfy the predicate, and the rows they have lost already.

    `reads` is what the engine will have read of the table. No other rows than those that satisfy `predicate` (None: any) change.
    """

    files: pa.Table
    lost: Mapping[str, Rows]
    reads: Reads
    predicate: Predicate | None = None


@dataclass(frozen=True, slots=True)
class RowChanges:
    """Rows by path and position that were `deleted`, or `replaced` by the rows of the files `successors`; `added` has new rows.

    `recorded` are the change data files of all of it; None if there are none.
    """

    deleted: Mapping[str, Rows] = field(default_factory=dict)
    replaced: Mapping[str, Rows] = field(default_factory=dict)
    successors: Sequence[AddFile] = ()
    added: Sequence[AddFile] = ()
    recorded: Sequence[AddCDCFile] | None = None


def target_of(draft: Draft, predicate: Predicate | None, read: Predicate | None) -> Target:
    """The target of a change of rows that satisfy `predicate` (None: any); `read` is the condition to remember as read."""
    files = draft.candidates(predicate)
    return Target(files, draft.deleted_in(files), reads_in(draft, read, files), predicate)


def files_of(draft: Draft, paths: Iterable[str]) -> dict[str, AddFile]:
    """The draft's files with these paths. Raises InvariantBroken if it lacks one."""
    wanted = set(paths)
    files = draft.files
    chosen = pc.is_in(files["path"], value_set=pa.array(sorted(wanted), pa.string())).combine_chunks()
    found = {add.path: add for add in adds_of(picked(files, chosen))}
    if missing := wanted - found.keys():
        raise InvariantBroken(f"rows were changed in files that the transaction does not know: {', '.join(sorted(missing)[:3])}")
    return found


def apply_changes(draft: Draft, changes: RowChanges) -> None:
    """Make the changes part of the draft. Raises InvalidRequest if they are more than one commit can have."""
    pristine = draft.is_pristine
    files = files_of(draft, {*changes.deleted, *changes.replaced})
    draft.foresee(files.values())
    draft.replace([(files[path], rows) for path, rows in changes.replaced.items()], changes.successors)
    for path, rows in changes.deleted.items():
        # the same row is either replaced or deleted, so the file may be gone only if all its rows are
        draft.delete(files[path], rows)
    draft.add(changes.added)
    if changes.recorded is not None and pristine:
        draft.record(changes.recorded)
