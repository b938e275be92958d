"""Rewrites files with the same rows: the bins of a compaction, recording where every row went.

A bin's files are read one after the other, live rows only, and written to new files of the same partition. If the order is kept, each
source's rows become a range of one or more new files. Otherwise the rows are sorted along a curve (`curves.py`), and cut into pieces of
some ten thousand rows, a few for each new file. They are distributed to the new files through temporary local files, so that memory holds
at most one new file's rows. Inside a piece they keep the order of the sources: so two small sets say where the rows of a source went
(`storage.data.row_moves`), and statistics, of files and of row groups, are what they would be in the order of the curve.
"""

from __future__ import annotations

import math
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import field, replace
from itertools import islice
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from ...storage.actions import AddFile
from ...storage.actions.features import CLUSTERING_PROVIDER, cluster_tags
from ...storage.actions.features import Path as ColumnPath
from ...storage.actions.file_removals import Moved, Moves, Shuffled
from ...storage.caches import threads
from ...storage.data.datafiles import FileFormat, OpenFile
from ...storage.data.row_moves import Sorting
from ...storage.data.scan import TableScan
from ...storage.data.vectors import VectorFile
from ...storage.dataclass import dataclass
from ...storage.errors import InvalidRequest, SluiceError, StorageFull
from ...storage.schema.mapping import physical_path
from ...storage.schema.partitions import PartitionKey, path_to_uri
from ...storage.schema.schema import StructType
from ...storage.stores.objects import ObjectStore
from ..write.merging import plain_columns
from .bins import Bin
from .curves import places_on_curve, word
from .garbage import MOVES_FOLDER

Z_COLUMNS_MAX: Final = 8
_PIECE_ROWS: Final = 32_768
"""The most rows that keep the order of their sources when the others come into a new one."""
_READERS: Final = 4
"""Small sources are fetched ahead, this many at once; larger ones are streamed one at a time."""
_SMALL_BYTES: Final = 4 * 1024 * 1024
_DEALT_MAX: Final = 128
"""The number of new files that one pass over the sources fills."""


def z_columns(names: str | Sequence[str], schema: StructType, partition_columns: Sequence[str]) -> tuple[str, ...]:
    """The columns to order by, as the schema spells them. Raises InvalidRequest for columns without an order."""
    column_names = [names] if isinstance(names, str) else list(names)
    if not 0 < len(column_names) <= Z_COLUMNS_MAX:
        raise InvalidRequest(f"z_order_by names {len(column_names)} columns; name 1 to {Z_COLUMNS_MAX}, or leave it out")
    columns = plain_columns(column_names, schema)
    for name in columns:
        if name in partition_columns:
            raise InvalidRequest(
                f"z_order_by names the partition column {name!r}: all rows of a file have one value of it; leave it out", column=name
            )
    return columns


@dataclass(frozen=True, slots=True)
class Output:
    """The new files of a bin, and where the live rows of each of its files went (None if nobody can follow them)."""

    adds: tuple[AddFile, ...]
    moves: tuple[Moves, ...] | None


@dataclass(slots=True)
class Rewriter:
    """Rewrites bins of one snapshot, under one transaction; thread-safe."""

    store: ObjectStore
    version: int
    schema: StructType
    layout: FileFormat
    tag: str
    """The transaction's id, with a label if it writes other files, too, for the files' names."""
    z_order: tuple[ColumnPath, ...]
    """The columns to order by; (): keep the order."""
    check: Callable[[], None]
    """Is called between two pieces of work, and raises to stop it."""
    is_clustered: bool = False
    """Whether the table is clustered by these columns, which the new files say then."""
    is_followed: bool = False
    """Whether rows that are ordered anew can be followed: then it stores where they went."""
    begun: list[OpenFile] = field(default_factory=list)
    """All new files so far."""
    noted: list[str] = field(default_factory=list)
    """The objects that say where rows went."""

    def rewrite(self, number: int, one: Bin, sources: pa.Table) -> Output:
        """Write the live rows of a bin's files, `sources`, to new files; `number` distinguishes the bins of a transaction."""
        if self.z_order:
            return self._in_new_order(number, one, sources)
        files, rows_max = one.file_count(self.layout.target_file_bytes), None
        if files > 1:
            rows_max = math.ceil(sum(batch.num_rows for batch in self._scan.batches(sources, self._columns()[:1])) / files)
        out = _Sequence(self, one.partition, number, rows_max)
        moves: list[list[Moved]] = [[] for _ in one.indices]
        for source, rows in self._live_rows(sources):
            of_source = moves[source]
            for path, offset, count in out.add(rows):
                last = of_source[-1] if of_source else None
                if last is not None and last.path == path:  # neighbours there, too
                    of_source[-1] = replace(last, count=last.count + count)
                else:
                    of_source.append(Moved(path, 0 if last is None else last.first + last.count, count, offset))
        return Output(out.close(), tuple(map(tuple, moves)))

    def discard(self) -> None:
        """Remove everything written so far."""
        for file in self.begun:
            file.discard()
        # Files that cannot be deleted now are found later by the transaction's id; the pending error matters more.
        with suppress(SluiceError):
            for key in (*(file.key for file in self.begun), *self.noted):
                self.store.delete(key)

    def _in_new_order(self, number: int, one: Bin, sources: pa.Table) -> Output:
        keys: list[pa.Table] = []
        counts = [0] * sources.num_rows
        for source, rows in self._live_rows(sources, list(dict.fromkeys(path[0] for path in self.z_order))):
            keys.append(rows)
            counts[source] += rows.num_rows
        if not keys:
            return Output((), tuple(() for _ in counts))
        rows = pa.concat_tables(keys)
        # null where a struct on the way is
        places = places_on_curve(
            [rows[path[0]] if len(path) == 1 else pc.struct_field(rows[path[0]], list(path[1:])) for path in self.z_order],
            hilbert=self.is_clustered,
        )
        del keys, rows
        share = math.ceil(len(places) / one.file_count(self.layout.target_file_bytes))
        pieces_each = math.ceil(share / _PIECE_ROWS)
        piece_rows = math.ceil(share / pieces_each)
        pieces = pc.divide(places, word(piece_rows))
        out = _Sequence(self, one.partition, number, pieces_each * piece_rows)
        del places
        files = range(0, math.ceil(len(pieces) / piece_rows), pieces_each)
        for first in range(0, len(files), _DEALT_MAX):
            for rows in self._dealt(sources, pieces, files[first : first + _DEALT_MAX], pieces_each):
                step = max(1, min(piece_rows, rows.num_rows * self.layout.row_group_bytes // max(1, rows.nbytes)))
                for start in range(0, rows.num_rows, step):
                    out.add(rows.slice(start, step))
        adds = out.close()
        moves = (
            self._noted(number, Sorting(piece_rows), pieces, counts, adds[0].path, pieces_each * piece_rows) if self.is_followed else None
        )
        if self.is_clustered:
            tags = cluster_tags(f"{self.tag}-{number}", [physical_path(path, self.schema) for path in self.z_order])
            adds = tuple(replace(add, tags={**(add.tags or {}), **tags}, clustering_provider=CLUSTERING_PROVIDER) for add in adds)
        return Output(adds, moves)

    def _noted(
        self, number: int, sorting: Sorting, pieces: pa.Array, counts: Sequence[int], first: str, file_rows: int
    ) -> tuple[Moves, ...]:
        """Store where the sources' live rows went, in one object: into which pieces, of files of which this is the first one's path."""
        file = VectorFile(f"{self.tag}/{MOVES_FOLDER}")
        self.noted.append(file.key)
        prefix = first.removesuffix(_numbered(0, self.layout.suffix))
        moves: list[Moves] = []
        seen = 0
        with self.store.upload(file.key) as sink:
            for count in counts:
                self.check()
                if not count:
                    moves.append(())
                    continue
                sets = [file.framed(rows) for rows in sorting.of(pieces.slice(seen, count))]
                sink.writelines(content for _, content in sets)
                moves.append(Shuffled(sets[0][0], sets[1][0], prefix, self.layout.suffix, file_rows))
                seen += count
        return tuple(moves)

    def _dealt(self, sources: pa.Table, pieces: pa.Array, files: Sequence[int], pieces_each: int) -> Iterator[pa.Table]:
        """For each new file, which begins with a piece of that number, its rows: piece after piece, each in the order of the sources."""
        first, end = files[0], files[-1] + pieces_each
        with tempfile.TemporaryDirectory(prefix="sluice-order-") as folder:
            decks = [_Deck(Path(folder) / str(number)) for number in range(len(files))]
            with ExitStack() as closing:
                for deck in decks:
                    closing.callback(deck.close)
                seen = 0
                for _, rows in self._live_rows(sources):
                    placed = rows.append_column("", pieces.slice(seen, rows.num_rows))
                    seen += rows.num_rows
                    piece = placed.column(placed.num_columns - 1)
                    mine = pc.and_(pc.greater_equal(piece, word(first)), pc.less(piece, word(end)))
                    placed, piece = placed.filter(mine), piece.filter(mine)
                    numbers = pc.divide(pc.subtract(piece, word(first)), word(pieces_each))
                    order = pc.sort_indices(numbers)
                    placed, start = placed.take(order), 0
                    for run in pc.value_counts(numbers.take(order).combine_chunks()).to_pylist():
                        decks[run["values"]].add(placed.slice(start, run["counts"]))
                        start += run["counts"]
            for deck in decks:
                yield deck.sorted()

    @property
    def _scan(self) -> TableScan:
        return TableScan(self.store, self.schema, self.layout.partition_columns, self.version, self.layout.row_ids)

    def _columns(self) -> list[str]:
        ids = () if self.layout.row_ids is None else self.layout.row_ids.names
        return [*(name for name in self.schema.names if name not in self.layout.partition_columns), *ids]

    def _live_rows(self, sources: pa.Table, columns: Sequence[str] | None = None) -> Iterator[tuple[int, pa.Table]]:
        """(source, rows), source after source, each in order; never empty, and without partition columns."""
        wanted = self._columns() if columns is None else list(columns)
        sizes = sources.column("size").to_pylist()
        with threads(_READERS, "sluice-rewrite") as pool:
            waiting = iter(range(len(sizes)))
            ahead: deque[tuple[int, Future[pa.Table] | None]] = deque()

            def fetch(count: int) -> None:
                for each in islice(waiting, count):
                    is_small = sizes[each] <= _SMALL_BYTES
                    ahead.append((each, pool.submit(self._scan.read, sources.slice(each, 1), wanted) if is_small else None))

            fetch(2 * _READERS)
            while ahead:
                self.check()
                number, fetched = ahead.popleft()
                fetch(1)
                pieces: Iterable[pa.Table]
                if fetched is None:
                    pieces = (pa.Table.from_batches([batch]) for batch in self._scan.batches(sources.slice(number, 1), wanted))
                else:
                    pieces = [fetched.result()]
                for rows in pieces:
                    self.check()
                    if rows.num_rows:
                        yield number, rows


def _numbered(number: int, suffix: str) -> str:
    """The end of the name of a bin's new file: `Shuffled` counts by it."""
    return f"{number:03d}{suffix}"


@dataclass(slots=True)
class _Sequence:
    """New files of one partition, filled one after the other: each with `rows_max` rows (None: all in one)."""

    rewriter: Rewriter
    partition: PartitionKey
    number: int
    rows_max: int | None
    _open: OpenFile | None = None
    _adds: list[AddFile] = field(default_factory=list)

    def add(self, rows: pa.Table) -> list[tuple[str, int, int]]:
        """Add rows; returns (path of the new file, physical row where they begin, how many) for each piece."""
        pieces: list[tuple[str, int, int]] = []
        rewriter, layout = self.rewriter, self.rewriter.layout
        while rows.num_rows:
            if self._open is None:
                name = f"part-{self.number:05d}-{rewriter.tag}-c{_numbered(len(self._adds), layout.suffix)}"
                self._open = OpenFile(rewriter.store, layout, self.partition, name)
                rewriter.begun.append(self._open)
            file = self._open
            piece = rows if self.rows_max is None else rows.slice(0, self.rows_max - file.rows)
            pieces.append((path_to_uri(file.key), file.rows, piece.num_rows))
            file.add(layout.in_files(piece), piece.nbytes)
            if file.pending_bytes >= layout.row_group_bytes:
                file.flush()
            if file.rows == self.rows_max:
                self.close()
            rows = rows.slice(piece.num_rows)
        return pieces

    def close(self) -> tuple[AddFile, ...]:
        """Make the open file visible; returns all files."""
        if self._open is not None:
            self._adds.append(replace(self._open.close(), data_change=False))
            self._open = None
        return tuple(self._adds)


@dataclass(slots=True)
class _Deck:
    """Rows of one future file, on the local disk; the last column is the number of their piece."""

    path: Path
    _writer: pa.RecordBatchStreamWriter | None = None

    def add(self, rows: pa.Table) -> None:
        with _room_for(self.path):
            options = pa.ipc.IpcWriteOptions(compression="lz4")
            writer = self._writer = self._writer or pa.ipc.new_stream(str(self.path), rows.schema, options=options)
            writer.write_table(rows)

    def close(self) -> None:
        if self._writer is not None:
            with _room_for(self.path):
                self._writer.close()

    def sorted(self) -> pa.Table:
        """All of them by piece, without that column; every deck got at least one row."""
        with pa.OSFile(str(self.path)) as file, pa.ipc.open_stream(file) as reader:
            rows = reader.read_all()
        last = rows.num_columns - 1
        return rows.take(pc.sort_indices(rows.column(last))).remove_column(last)


@contextmanager
def _room_for(path: Path) -> Iterator[None]:
    """Raise StorageFull if the local disk is full."""
    try:
        yield
    except OSError as cause:
        raise StorageFull(
            f"the temporary rows of the new order do not fit into {path.parent.parent}: {cause}; make room there, let TMPDIR name another "
            "folder, or order one partition at a time (where=...)"
        ) from cause
