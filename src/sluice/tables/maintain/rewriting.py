"""Rewrites files with the same rows: the bins of a compaction, recording where every row went.

A bin's files are read one after the other, live rows only, and written to new files of the same partition. If the order is kept, each
source's rows become a range of one or more new files. For a z-order they are distributed to the new files through temporary local files,
so that memory holds at most one new file's rows.

For a z-order every column's values become ranks, the ranks are scaled to as many bits as fit, and the bits of all columns are interleaved
into one number, most significant first: rows sorted by it are close in several columns at once.
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
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from ...storage.actions import AddFile
from ...storage.actions.features import CLUSTERING_PROVIDER, cluster_tags
from ...storage.actions.features import Path as ColumnPath
from ...storage.actions.file_removals import Moved
from ...storage.caches import threads
from ...storage.data.datafiles import FileFormat, OpenFile
from ...storage.data.scan import TableScan
from ...storage.dataclass import dataclass
from ...storage.errors import InvalidRequest, SluiceError, StorageFull
from ...storage.schema.mapping import physical_path
from ...storage.schema.partitions import PartitionKey, path_to_uri
from ...storage.schema.schema import StructType
from ...storage.stores.objects import ObjectStore
from ..write.merging import plain_columns
from .bins import Bin

Z_COLUMNS_MAX: Final = 8
_BITS_MAX: Final = 31
"""A scaled rank times the number of rows stays below 64 bits."""
_WORD_BITS: Final = 64
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


def z_values(columns: Sequence[pa.Array | pa.ChunkedArray]) -> pa.Array:
    """Each row's place on the curve, as 64-bit numbers; nulls come before all values of a column. Columns are shorter than 2**31."""
    bits = min(_BITS_MAX, _WORD_BITS // len(columns))
    z: Any = None
    for number, column in enumerate(columns):
        # How many rows have a smaller value, scaled to [0, 2**bits); equal values have equal ranks, nulls have 0.
        ranks = pc.rank(column, sort_keys="ascending", tiebreaker="min")  # from 1; nulls would be last
        before = pc.add(pc.subtract(ranks, _word(1)), pa.scalar(column.null_count, pa.uint64()))
        is_null = pc.is_null(column)
        is_null = is_null.combine_chunks() if isinstance(is_null, pa.ChunkedArray) else is_null
        scaled = pc.divide(pc.shift_left(pc.if_else(is_null, _word(0), before), _word(bits)), _word(max(1, len(column))))
        for bit in range(bits):
            place = bit * len(columns) + len(columns) - 1 - number
            part = pc.shift_left(pc.bit_wise_and(pc.shift_right(scaled, _word(bit)), _word(1)), _word(place))
            z = part if z is None else pc.bit_wise_or(z, part)
    return z


def z_positions(columns: Sequence[pa.Array | pa.ChunkedArray]) -> pa.Array:
    """For each row its position in the new order, from 0; rows at the same place keep their order."""
    return pc.sort_indices(pc.sort_indices(z_values(columns)))


def _word(number: int) -> pa.Scalar:
    return pa.scalar(number, pa.uint64())


@dataclass(frozen=True, slots=True)
class Output:
    """The new files of a bin, and where the live rows of each of its files went (None if their order changed)."""

    adds: tuple[AddFile, ...]
    moves: tuple[tuple[Moved, ...], ...] | None


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
    begun: list[OpenFile] = field(default_factory=list)
    """All new files so far."""

    def rewrite(self, number: int, one: Bin, sources: pa.Table) -> Output:
        """Write the live rows of a bin's files, `sources`, to new files; `number` distinguishes the bins of a transaction."""
        if self.z_order:
            return self._in_z_order(number, one, sources)
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
            for file in self.begun:
                self.store.delete(file.key)

    def _in_z_order(self, number: int, one: Bin, sources: pa.Table) -> Output:
        columns = list(dict.fromkeys(path[0] for path in self.z_order))
        keys = [batch for _, batch in self._live_rows(sources, columns)]
        if not keys:
            return Output((), None)
        rows = pa.concat_tables(keys)
        # null where a struct on the way is
        positions = z_positions(
            [rows[path[0]] if len(path) == 1 else pc.struct_field(rows[path[0]], list(path[1:])) for path in self.z_order]
        )
        del keys, rows
        count = one.file_count(self.layout.target_file_bytes)
        share = math.ceil(len(positions) / count)
        out = _Sequence(self, one.partition, number, share)
        starts = range(0, len(positions), share)
        for first in range(0, len(starts), _DEALT_MAX):
            for rows in self._dealt(sources, positions, starts[first : first + _DEALT_MAX], share):
                step = max(1, rows.num_rows * self.layout.row_group_bytes // max(1, rows.nbytes))
                for start in range(0, rows.num_rows, step):
                    out.add(rows.slice(start, step))
        adds = out.close()
        if self.is_clustered:
            tags = cluster_tags(f"{self.tag}-{number}", [physical_path(path, self.schema) for path in self.z_order])
            adds = tuple(replace(add, tags={**(add.tags or {}), **tags}, clustering_provider=CLUSTERING_PROVIDER) for add in adds)
        return Output(adds, None)

    def _dealt(self, sources: pa.Table, positions: pa.Array, starts: Sequence[int], share: int) -> Iterator[pa.Table]:
        """For each start, the rows whose new positions are [start, start + share), in that order."""
        first, last = starts[0], starts[-1] + share
        with tempfile.TemporaryDirectory(prefix="sluice-zorder-") as folder:
            decks = [_Deck(Path(folder) / str(number)) for number in range(len(starts))]
            with ExitStack() as closing:
                for deck in decks:
                    closing.callback(deck.close)
                seen = 0
                for _, rows in self._live_rows(sources):
                    placed = rows.append_column("", positions.slice(seen, rows.num_rows))
                    seen += rows.num_rows
                    place = placed.column(placed.num_columns - 1)
                    if len(starts) * share < len(positions):
                        mine = pc.and_(pc.greater_equal(place, first), pc.less(place, last))
                        placed, place = placed.filter(mine), place.filter(mine)
                    numbers = pc.divide(pc.subtract(place, _word(first)), _word(share))
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
                name = f"part-{self.number:05d}-{rewriter.tag}-c{len(self._adds):03d}{layout.suffix}"
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
    """Rows of one future file, on the local disk; the last column is their new position."""

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
        """All of them by position, without that column; every deck got at least one row."""
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
            f"the temporary rows of the z-order do not fit into {path.parent.parent}: {cause}; make room there, let TMPDIR name another "
            "folder, or order one partition at a time (where=...)"
        ) from cause
