"""What one version gives a stream: the files with its new rows, or the reason why the stream stops before it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import field
from itertools import islice
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from ....storage.actions import Action, AddFile, CommitInfo, Metadata, Protocol, RemoveFile
from ....storage.actions.features import check_readable
from ....storage.actions.filetable import FILES_SCHEMA, add_rows
from ....storage.actions.metadata_change import describe
from ....storage.dataclass import dataclass
from ....storage.errors import InvalidRequest, SchemaMismatch, SluiceError, UnsupportedFeature
from ....storage.schema.schema import StructType, parse_schema
from ..changed_files import ChangedFiles
from .offsets import another_table
from .rules import StreamRules

__all__ = ["StreamFiles", "StreamedTable"]

_COLUMNS: Final = ("path", "partition_values", "size", "stats", "deletion_vector")
_AT_ONCE: Final = 4096


def _nothing() -> pa.Table:
    return FILES_SCHEMA.empty_table().select(_COLUMNS)


@dataclass(frozen=True, slots=True)
class StreamFiles:
    """The files of one version, in the order in which a stream reads them.

    ``files``      rows of a file table; those that the stream leaves out are among them, so that options do not move offsets
    ``changed``    for changes: the bytes of each file in which they lie, also of removed ones; `files` is empty then
    ``whole``      whether they are read in one batch: changes that cannot be divided
    ``stop``       the error that ends the stream before this version
    ``following``  the version that comes next, if it is not the next number: those between are gone
    ``ends``       the indices at which a batch may end; None: at each
    """

    files: pa.Table = field(default_factory=_nothing)
    changed: pa.Array | None = None
    whole: bool = False
    stop: SluiceError | None = None
    following: int | None = None
    ends: tuple[int, ...] | None = None

    @staticmethod
    def of_table(files: pa.Table, ends: tuple[int, ...] | None = None) -> StreamFiles:
        """The files of a snapshot, in their order."""
        return StreamFiles(files.select(_COLUMNS), ends=ends)

    @property
    def count(self) -> int:
        """How many files they are."""
        return len(self._sizes)

    def size_from(self, index: int) -> int:
        """The bytes of the files from `index` on."""
        return pc.sum(self._sizes.slice(index)).as_py() or 0

    def sizes(self, index: int) -> Iterator[int]:
        """The bytes of each file from `index` on."""
        return (size for batch in self._sizes.slice(index).chunks for size in batch.to_pylist())

    @property
    def _sizes(self) -> pa.ChunkedArray:
        return self.files["size"] if self.changed is None else pa.chunked_array([self.changed])


@dataclass(frozen=True, slots=True)
class StreamedTable:
    """The table as a stream shows it: with the schema of the version that was current when the query was made."""

    location: str
    version: int
    metadata: Metadata
    rules: StreamRules

    @property
    def struct(self) -> StructType:
        """The schema of the rows."""
        return parse_schema(self.metadata.schema_string)

    def files(self, version: int, actions: Iterable[Action]) -> StreamFiles:
        """What this version gives the stream."""
        seen = _Seen()
        for each in actions:
            seen.note(each)
        stop = self._other_metadata(version, seen) if version > self.version else None
        if stop is not None:
            return StreamFiles(stop=stop)
        if self.rules.changes:
            changed = ChangedFiles(version, actions)
            return StreamFiles(changed=pa.array((each.size or 0 for each in changed), pa.int64()), whole=not changed.divides)
        if seen.removed:
            rules = self.rules
            if rules.skip_change_commits:
                return StreamFiles()
            only_deletes = not seen.added or seen.deletes_by_vectors(actions)
            if only_deletes and (rules.ignore_deletes or rules.ignore_changes):
                return StreamFiles()
            if not rules.ignore_changes:
                return StreamFiles(stop=self._change(version, seen, only_deletes=only_deletes))
        added = (each for each in actions if isinstance(each, AddFile) and each.data_change)
        return StreamFiles.of_table(_table(added)) if seen.added else StreamFiles()

    def _change(self, version: int, seen: _Seen, *, only_deletes: bool) -> InvalidRequest:
        """The error for a version that did more than add rows."""
        operation = (seen.info.operation if seen.info is not None else None) or "an operation without a name"
        did = "deleted rows" if only_deletes else "changed rows"
        remedy = "ignoreDeletes=true passes over it" if only_deletes else "ignoreChanges=true reads the rows of its new files again"
        return InvalidRequest(
            f"version {version} of {self.location} ({operation}) {did}, and a stream of new rows cannot tell that: {remedy}, "
            "skipChangeCommits=true passes over every such version, and with readChangeFeed=true and a new checkpoint the stream has the "
            "deleted rows, too",
            location=self.location,
            version=version,
            operation=operation,
        )

    def _other_metadata(self, version: int, seen: _Seen) -> SluiceError | None:
        """The error for a version that changed what the stream's rows look like."""
        new = seen.metadata or self.metadata
        if new.id != self.metadata.id:
            return another_table(self.location, self.metadata.id, new.id)
        if seen.protocol is not None:
            try:
                check_readable(seen.protocol, new)
            except UnsupportedFeature as lacking:
                return lacking
        change = describe(self.metadata, new)
        if change["schema"] != "changed" and new.partition_columns == self.metadata.partition_columns:
            return None
        what = "schema" if change["schema"] == "changed" else "partitioning"
        return SchemaMismatch(
            f"version {version} of {self.location} changed the {what}, and the query shows that of version {self.version}. All rows before "
            "it were read: make the query again with spark.readStream and start it with the same checkpoint; it goes on from here with "
            "the new columns, null in older rows",
            location=self.location,
            version=version,
        )


class _Seen:
    """What the actions of a version are, counted."""

    def __init__(self) -> None:
        self.added = self.removed = 0
        self.info: CommitInfo | None = None
        self.metadata: Metadata | None = None
        self.protocol: Protocol | None = None

    def note(self, action: Action) -> None:
        match action:
            case AddFile() if action.data_change:
                self.added += 1
            case RemoveFile() if action.data_change:
                self.removed += 1
            case CommitInfo():
                self.info = action
            case Metadata():
                self.metadata = action
            case Protocol():
                self.protocol = action
            case _:
                pass

    def deletes_by_vectors(self, actions: Iterable[Action]) -> bool:
        """Whether the version added nothing but files that it removed, with more of their rows deleted."""
        if self.added > self.removed or self.info is None or self.info.operation != "DELETE":
            return False
        lost = {each.path: _deleted(each) for each in actions if isinstance(each, RemoveFile) and each.data_change}
        return all(_deleted(each) > lost.get(each.path, _ALL) for each in actions if isinstance(each, AddFile) and each.data_change)


_ALL: Final = 1 << 62


def _deleted(file: AddFile | RemoveFile) -> int:
    return 0 if file.deletion_vector is None else file.deletion_vector.cardinality


def _table(adds: Iterator[AddFile]) -> pa.Table:
    """The files as rows, without keeping an object of each: there may be millions."""
    tables = []
    while some := list(islice(adds, _AT_ONCE)):
        tables.append(add_rows(some).select(_COLUMNS))
    return pa.concat_tables(tables)
