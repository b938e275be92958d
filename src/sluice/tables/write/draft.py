"""The table as an open transaction sees it: a snapshot without what the transaction removed, with what it added.

Row deletions are kept in memory as sets of positions, so that operations of one transaction see each other's effects. `finish` turns
everything into the actions of one commit, once: with deletion vectors a changed file gets a new vector, without them its remaining rows
are copied to new files.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from dataclasses import replace
from itertools import chain
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from ...storage.actions import Action, AddCDCFile, AddFile, DomainMetadata, Metadata, Protocol
from ...storage.actions.features import RowIdColumns, deletion_vectors, features_of_types, is_on, with_features, writer_features
from ...storage.actions.file_removals import Actions, Removals, removal
from ...storage.actions.filetable import add_rows, adds_of, picked, without
from ...storage.actions.records import record_count, wide
from ...storage.caches import at_once
from ...storage.data.datafiles import write_files
from ...storage.data.scan import TableScan
from ...storage.data.vectors import Rows, plan_vector, read_vector, rows_at
from ...storage.dataclass import dataclass
from ...storage.errors import SluiceError
from ...storage.log.snapshot import Snapshot
from ...storage.pruning.predicate import Predicate
from ...storage.schema.partitions import uri_to_path
from ...storage.schema.schema import StructType
from ...storage.stores.objects import ObjectStore
from ..client.property_rules import CHANGE_DATA_FEED, layout_of
from .data_writing import Redefinition

_THREADS: Final = 8, "sluice-vectors"
"""An object store's time is mostly waiting."""
_COUNTED_AT_ONCE: Final = 16_384
_OUTLASTS_FAILURES: Final = ("_physical", "_vectors", "_written", "staged")
"""What stays as it is when an operation fails: what was read of files, and the keys of what was stored."""


@dataclass(frozen=True, slots=True)
class MatchingRows:
    """Rows of one file that satisfy a condition, with their positions in it (int64)."""

    file: AddFile
    rows: pa.Table
    positions: pa.Array


@dataclass(frozen=True, slots=True)
class Finished:
    """The result of a draft: so many files are `removed` for good; those `added` have new or copied rows."""

    actions: Collection[Action] = ()
    removed: int = 0
    removed_bytes: int = 0
    added: tuple[AddFile, ...] = ()
    copied_rows: int = 0
    vectors_added: int = 0
    vectors_updated: int = 0
    vectors_removed: int = 0


class Draft:
    """The files and rows of one open transaction. Not thread-safe.

    `metadata` is the table's after the commit; `base` the snapshot the transaction was begun on; `row_ids` the columns of the ids that
    its rows keep, None if they keep none.
    """

    def __init__(
        self, store: ObjectStore, base: Snapshot, transaction_id: str, require_room: Callable[[int], object] = lambda _: None
    ) -> None:
        """`require_room` raises if actions of that many bytes exceed a transaction's limit."""
        self.require_room = require_room
        self.store = store
        self.base = base
        self.transaction_id = transaction_id
        self.metadata: Metadata = base.metadata
        self.partition_columns: tuple[str, ...] = base.partition_columns
        self.protocol: Protocol = base.protocol
        self.clustering: tuple[DomainMetadata, ...] = ()
        self.schema: StructType = base.metadata.schema
        self.uses_vectors = deletion_vectors(base.protocol, base.metadata)
        self.captures_changes = is_on(base.configuration, CHANGE_DATA_FEED)
        self.row_ids = RowIdColumns.of(base.metadata, base.protocol)
        self._added: dict[str, AddFile] = {}
        # Files of the base by path: removed ones, and those with deleted rows. The keys of `_deleted` are changed files of
        # the base and files of this transaction; the rows include those of a file's own vector.
        self._removed: dict[str, AddFile] = {}
        # The same for very many whole files, as rows of the base's files.
        self._dropped: list[pa.Table] = []
        self._changed: dict[str, AddFile] = {}
        self._deleted: dict[str, Rows] = {}
        # The base's lost rows that were changed, and the files with the changed ones.
        self._replaced: dict[str, Rows] = {}
        self._successors: set[str] = set()
        self._physical: dict[str, int] = {}
        self._vectors: dict[str, Rows] = {}
        # Copies of the remaining rows of some files, made ahead: they are good as long as those files lost no more rows.
        self._copies: list[tuple[dict[str, Rows], tuple[AddFile, ...]]] = []
        self.recorded: tuple[AddCDCFile, ...] | None = None
        """The files with the change data of everything so far, if somebody wrote them; any further change makes them incomplete."""
        self._written: set[str] = set()
        """The keys of everything that this transaction stored, also for operations that failed."""
        self.staged: set[str] = set()
        """Those of them that its caller brought, and may bring again."""

    # -- what is there -----------------------------------------------------------------------------------------------

    @property
    def files(self) -> pa.Table:
        """The live files, in `filetable.FILES_SCHEMA`; those with deleted rows in their former state."""
        files = self.base.files
        if self._removed:
            files = pa.Table.from_batches(without(files, {add.key for add in self._removed.values()}), files.schema)
        for dropped in self._dropped:
            files = picked(files, pc.invert(pc.is_in(files["path"], value_set=dropped["path"].combine_chunks())).combine_chunks())
        return pa.concat_tables([files, add_rows(list(self._added.values()))]) if self._added else files

    @property
    def untouched(self) -> pa.BooleanArray:
        """For each file of the base whether it is unchanged."""
        touched = pa.concat_arrays(
            [pa.array([*self._removed, *self._changed], pa.string()), *(each["path"].combine_chunks() for each in self._dropped)]
        )
        return pc.invert(pc.is_in(self.base.files["path"], value_set=touched)).combine_chunks()

    @property
    def _scan(self) -> TableScan:
        return TableScan(self.store, self.schema, self.partition_columns, self.base.version)

    def candidates(self, predicate: Predicate | None) -> pa.Table:
        """The files that may have rows satisfying the predicate."""
        files = self.files
        if predicate is None:
            return files
        return picked(files, predicate.may_match(files, schema=self.schema, partition_columns=self.partition_columns))

    def is_own(self, path: str) -> bool:
        """Whether a file was added by this transaction."""
        return path in self._added

    def count(self, files: pa.Table, *, exactly: bool) -> int:
        """The number of remaining rows in files. One whose statistics do not say is read, or (not `exactly`) counts none."""
        rows = 0
        for start in range(0, files.num_rows, _COUNTED_AT_ONCE):
            adds = list(adds_of(files.slice(start, _COUNTED_AT_ONCE)))
            if exactly:
                at_once(self._rows_in, [add for add in adds if record_count(add.stats) is None], *_THREADS)
            for add in adds:
                if exactly or record_count(add.stats) is not None:
                    deleted, vector = self._deleted.get(add.path), add.deletion_vector
                    gone = len(deleted) if deleted is not None else 0 if vector is None else vector.cardinality
                    rows += self._rows_in(add) - gone
        return rows

    def find(
        self, predicate: Predicate | None, files: pa.Table, *, columns: Sequence[str] | None = None, with_ids: bool = False
    ) -> Iterator[MatchingRows]:
        """The rows of `files`, from its candidates, that satisfy the predicate (None: all), file by file; omits files without any.

        `with_ids`: they have the columns `row_ids`, too, if there are any.
        """
        adds = list(adds_of(files))
        scan = self._scan
        if with_ids and self.row_ids is not None:
            scan = replace(scan, row_ids=self.row_ids)
            columns = None if columns is None else [*columns, *self.row_ids.names]
        found = scan.positions(files, columns, predicate, chosen=True, deleted={**self._known_vectors(adds), **self._deleted})
        for number, rows, positions in found:
            if len(positions):
                yield MatchingRows(adds[number], rows, positions)

    def deleted_in(self, files: pa.Table) -> dict[str, Rows]:
        """The rows that files, from its candidates, have lost, by path; those that lost none are left out."""
        paths = frozenset(files["path"].to_pylist())
        with_vector = picked(files, pc.is_valid(files["deletion_vector"]).combine_chunks())
        return {**self._known_vectors(list(adds_of(with_vector))), **{path: rows for path, rows in self._deleted.items() if path in paths}}

    def _known_vectors(self, adds: Sequence[AddFile]) -> dict[str, Rows]:
        """The rows that files of the base had already lost, by path; each vector is read once."""
        with_vector = {add.path: add.deletion_vector for add in adds if add.deletion_vector is not None}
        unread = [(path, vector) for path, vector in with_vector.items() if path not in self._vectors]
        read = at_once(lambda each: read_vector(self.store, each[1]), unread, *_THREADS)
        self._vectors.update(zip([path for path, _ in unread], read, strict=True))
        return {path: self._vectors[path] for path in with_vector}

    def read(self, columns: Sequence[str] | None, predicate: Predicate | None, files: pa.Table) -> pa.Table:
        """The rows of `files`, from its candidates, that satisfy the predicate, as one table."""
        if not self._deleted:
            return self._scan.read(files, columns, predicate, chosen=True)
        nothing = self._scan.read(files.slice(0, 0), columns)
        return pa.concat_tables([nothing, *(found.rows for found in self.find(predicate, files, columns=columns))])

    def read_rows(self, columns: Sequence[str] | None, predicate: Predicate, files: pa.Table) -> tuple[pa.Table, dict[str, Rows]]:
        """Like `read`, with the positions of those rows in each file of the base."""
        parts = [self.read(columns, None, files.slice(0, 0))]
        positions: dict[str, Rows] = {}
        for found in self.find(predicate, files, columns=columns):
            parts.append(found.rows)
            if not self.is_own(found.file.path):
                positions[found.file.path] = rows_at(found.positions)
        return pa.concat_tables(parts), positions

    @contextmanager
    def atomically(self) -> Iterator[None]:
        """Make the block atomic: if it raises, the draft is what it was before."""
        # Sets of rows are never changed in place, so copying the containers is enough.
        before = {
            name: copy(value) if isinstance(value, (dict, list, set)) else value
            for name, value in vars(self).items()
            if name not in _OUTLASTS_FAILURES
        }
        try:
            yield
        except BaseException:
            vars(self).update(before)
            raise

    # -- changing it -------------------------------------------------------------------------------------------------

    def add(self, files: Sequence[AddFile]) -> None:
        """Add files that this transaction wrote."""
        self.recorded = None
        for add in files:
            self._written.add(uri_to_path(add.path))
            self._added[add.path] = add

    def drop(self, add: AddFile) -> None:
        """Remove a file with all its rows."""
        self.recorded = None
        self._deleted.pop(add.path, None)
        if self._added.pop(add.path, None) is None:
            self._changed.pop(add.path, None)
            self._removed[add.path] = add

    def drop_all(self, files: pa.Table) -> None:
        """Remove files, from its candidates, with all their rows."""
        self.recorded = None
        mine = pc.is_in(files["path"], value_set=pa.array([*self._added, *self._changed], pa.string())).combine_chunks()
        for add in adds_of(picked(files, mine)):
            self.drop(add)
        others = picked(files, pc.invert(mine))
        if others.num_rows:
            self._dropped.append(others)

    def delete(self, add: AddFile, positions: pa.Array | Rows) -> None:
        """Delete rows of a file by position; the whole file if none is left."""
        self.recorded = None
        rows = self._deleted.get(add.path)
        if rows is None:
            rows = self._known_vectors([add]).get(add.path, Rows())
        rows = rows | (positions if isinstance(positions, Rows) else rows_at(positions))
        self._deleted[add.path] = rows
        if add.path not in self._added:
            self._changed[add.path] = add
        if len(rows) >= self._rows_in(add):
            self.drop(add)

    def foresee(self, files: Iterable[AddFile] = ()) -> None:
        """Announce changes of these files: raises InvalidRequest, before rows are written, if they are too many for one commit."""
        changed = {add.path: add for add in (*files, *self._removed.values(), *self._changed.values()) if add.path not in self._added}
        self.require_room(Removals.least_bytes_of(changed.values()) + sum(map(Removals.least_bytes, self._dropped)))

    def replace(self, gone: Sequence[tuple[AddFile, pa.Array | Rows]], successors: Sequence[AddFile]) -> None:
        """Record that rows of some files, by position, became the rows of others."""
        for add, positions in gone:
            if add.path not in self._added:
                rows = positions if isinstance(positions, Rows) else rows_at(positions)
                self._replaced[add.path] = self._replaced.get(add.path, Rows()) | rows
            self.delete(add, positions)
        self.add(successors)
        self._successors.update([add.path for add in successors])

    def adopt(self, metadata: Metadata, redefines: Redefinition | None = None) -> None:
        """Set the table's metadata, and what else an overwrite makes of the table (None: nothing)."""
        if metadata.schema_string != self.metadata.schema_string:
            self.schema = metadata.schema
        self.metadata, self.partition_columns = metadata, metadata.partition_columns
        if lacking := features_of_types(self.schema) - writer_features(self.protocol):
            self.protocol = with_features(self.protocol, lacking)
        if redefines is not None:
            self.protocol, self.clustering = redefines.protocol, redefines.clustering
            self.uses_vectors = deletion_vectors(self.protocol, metadata)
            self.captures_changes = is_on(metadata.configuration, CHANGE_DATA_FEED)

    def write(
        self, batches: Iterable[pa.Table], *, label: str, check: Callable[[pa.Table], None] | None = None, with_ids: bool = False
    ) -> list[AddFile]:
        """Write rows to new files, which are not part of the draft yet; `label` distinguishes the calls of one transaction.

        `with_ids`: some of them were in the table before, and bring their ids along in the columns `row_ids`, if there are any.
        """
        layout = layout_of(self.metadata, row_ids=self.row_ids if with_ids else None)
        written = write_files(self.store, batches, layout, transaction_id=self.transaction_id, label=label, check=check)
        self._written.update([uri_to_path(add.path) for add in written])
        return written

    def discard(self, others: Iterable[str] = ()) -> None:
        """Delete what this transaction stored, and these other keys, of no commit: only names that hold its id."""
        for key in sorted(key for key in {*self._written, *others} - self.staged if self.transaction_id in key):
            with suppress(SluiceError):  # garbage collection finds it by the id
                self.store.delete(key)

    def copy_of(self, files: Sequence[AddFile], copies: Sequence[AddFile]) -> None:
        """Take `copies` as the remaining rows of these changed files, so that `finish` need not copy them."""
        self._copies.append(({add.path: self._deleted[add.path] for add in files}, tuple(copies)))

    # -- what became of rows -----------------------------------------------------------------------------------------

    def is_new(self, path: str) -> bool:
        """Whether the rows of a file are new to the table, rather than changed rows of the base."""
        return path in self._added and path not in self._successors

    @property
    def is_pristine(self) -> bool:
        """Whether no file was added, removed or changed yet."""
        return not (self._added or self._removed or self._dropped or self._changed)

    @property
    def changes_rows(self) -> bool:
        """Whether rows were changed, or a file lost some of its rows: the log itself shows whole files."""
        return bool(self._replaced or self._changed)

    def lost(self) -> Iterator[tuple[AddFile, Rows | None, Rows]]:
        """The files of the base that lost rows: which rows (None: all that were left), and which of these were changed."""
        for add in chain(self._removed.values(), *(adds_of(dropped) for dropped in self._dropped)):
            yield add, None, self._replaced.get(add.path, Rows())
        for add in self._changed.values():
            yield add, self._deleted[add.path], self._replaced.get(add.path, Rows())

    @property
    def own_files(self) -> pa.Table:
        """The files that this transaction added, in `filetable.FILES_SCHEMA`."""
        return add_rows(list(self._added.values()))

    # -- what it comes to --------------------------------------------------------------------------------------------

    @property
    def uncopied(self) -> list[AddFile]:
        """The files whose remaining rows have yet to be copied: none with deletion vectors."""
        if self.uses_vectors or not self._deleted:
            return []
        copied = {path for originals, _ in self._good_copies() for path in originals}
        return [add for path in self._deleted if path not in copied for add in (self._changed.get(path) or self._added[path],)]

    def _good_copies(self) -> list[tuple[dict[str, Rows], tuple[AddFile, ...]]]:
        return [each for each in self._copies if all(self._deleted.get(path) == rows for path, rows in each[0].items())]

    def outline(self, now_ms: int) -> Collection[Action]:
        """The commit's actions as far as other transactions are concerned; copies no rows."""
        if self.uses_vectors:
            return self.finish(now_ms).actions
        removals = [removal(add, now_ms) for add in (*self._removed.values(), *self._changed.values())]
        return Actions(*(Removals(dropped, now_ms) for dropped in self._dropped), removals, list(self._added.values()))

    def finish(self, now_ms: int) -> Finished:
        """The actions of the commit; writes the vectors, or the files with the remaining rows."""
        if not (self._removed or self._dropped or self._changed or self._deleted):
            added = list(self._added.values())
            return Finished(added, added=tuple(added))
        changed, removed, dropped = list(self._changed.values()), list(self._removed.values()), self._dropped
        changes: list[Action] = []
        copied_rows = updated = 0
        if self.uses_vectors:
            both = [*changed, *[add for add in self._added.values() if add.path in self._deleted]]
            reduced = dict(zip([add.path for add in both], at_once(self._reduced, both, *_THREADS), strict=True))
            changes += [action for add in changed for action in (removal(add, now_ms), reduced[add.path])]
            added = [reduced.get(add.path, add) for add in self._added.values()]
            updated = sum([add.deletion_vector is not None for add in changed])
        else:
            added, copied_rows = self._copied()
            added += [add for add in self._added.values() if add.path not in self._deleted]
            removed += changed
        vectors = sum([add.deletion_vector is not None for add in removed])
        return Finished(
            Actions(*[Removals(each, now_ms) for each in dropped], [removal(add, now_ms) for add in removed], [*changes, *added]),
            removed=len(removed) + sum(map(len, dropped)),
            removed_bytes=sum([add.size for add in removed]) + sum([pc.sum(each["size"]).as_py() or 0 for each in dropped]),
            added=tuple(added),
            copied_rows=copied_rows,
            vectors_added=len(changed) if self.uses_vectors else 0,
            vectors_updated=updated,
            vectors_removed=updated + vectors + sum([len(each) - each["deletion_vector"].null_count for each in dropped]),
        )

    def _copied(self) -> tuple[list[AddFile], int]:
        """The files with the remaining rows of files that lost some, and how many rows these are."""
        copied = [add for _, copies in self._good_copies() for add in copies]
        rows = sum([record_count(add.stats) or 0 for add in copied])
        changed = self.uncopied
        for number, found in enumerate(self.find(None, add_rows(changed), with_ids=True) if changed else ()):
            copied += self.write([found.rows], label=f"d{number}", with_ids=True)
            rows += found.rows.num_rows
        return copied, rows

    def _reduced(self, add: AddFile) -> AddFile:
        """The file with a vector of its deleted rows; its statistics' bounds are not tight any more."""
        vector, stored = plan_vector(self._deleted[add.path], owner=self.transaction_id)
        if stored is not None:
            self.store.put(*stored)
            self._written.add(stored[0])
        stats = wide(add.stats) if record_count(add.stats) is not None else f'{{"numRecords":{self._rows_in(add)},"tightBounds":false}}'
        return replace(add, deletion_vector=vector, data_change=True, stats=stats)

    def _rows_in(self, add: AddFile) -> int:
        """The rows in a file, including deleted ones; from its footer if statistics do not say."""
        known = self._physical.get(add.path)
        if known is None:
            known = record_count(add.stats)
            if known is None:
                read = self._scan.read(add_rows([replace(add, deletion_vector=None)]), [])
                self._physical[add.path] = known = int(read.num_rows)
        return known
