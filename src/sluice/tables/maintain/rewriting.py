"""Rewrites files with the same rows: the bins of a compaction, recording where every row went.

A bin's files are read one after the other, live rows only, and written to new files of the same partition. If the order is
kept, each source's rows become a range of one or more new files. For a z-order they are distributed to the new files through
temporary local files, so that memory holds at most one new file's rows.

For a z-order every column's values become ranks, the ranks are scaled to as many bits as fit, and the bits of all columns are interleaved
into one number, most significant first: rows sorted by it are close in several columns at once.
"""

from __future__ import annotations

import math
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import field, replace
from itertools import islice
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from ...storage.actions import AddFile
from ...storage.actions.clustering import CLUSTERING_PROVIDER, cluster_tags
from ...storage.actions.clustering import Path as ColumnPath
from ...storage.actions.lineage import Moved
from ...storage.data.datafiles import FileFormat, OpenFile
from ...storage.data.scan import TableScan
from ...storage.dataclass import dataclass
from ...storage.errors import InvalidRequest, SluiceError, StorageFull
from ...storage.schema.partitions import PartitionKey
from ...storage.schema.schema import PrimitiveType, StructType
from ...storage.stores.objects import ObjectStore
from ...storage.threads import threads
from .bins import Bin

Z_COLUMNS_MAX: Final = 8
# A scaled rank times the number of rows stays below 64 bits.
_BITS_MAX: Final = 31
_WORD_BITS: Final = 64


def z_columns(names: str | Sequence[str], schema: StructType, partition_columns: Sequence[str]) -> tuple[str, ...]:
    """The columns to order by, as the schema spells them. Raises InvalidRequest for columns without an order."""
    column_names = [names] if isinstance(names, str) else list(names)
    if not 0 < len(column_names) <= Z_COLUMNS_MAX:
        raise InvalidRequest(f"z_order_by names {len(column_names)} columns; name 1 to {Z_COLUMNS_MAX}, or leave it out")
    columns: list[str] = []
    for name in column_names:
        field = schema.get(name) if isinstance(name, str) else None
        if field is None:
            raise InvalidRequest(f"z_order_by names {name!r}, which is not in the table; its columns are {', '.join(schema.names)}")
        if field.name in partition_columns:
            raise InvalidRequest(
                f"z_order_by names the partition column {field.name!r}: all rows of a file have one value of it; leave it out",
                column=field.name,
            )
        if not isinstance(field.type, PrimitiveType):
            raise InvalidRequest(
                f"z_order_by names {field.name!r} of type {field.type}, whose values have no order; name columns of plain values",
                column=field.name,
            )
        if field.name in columns:
            raise InvalidRequest(f"z_order_by names {field.name!r} twice; name it once", column=field.name)
        columns.append(field.name)
    return tuple(columns)


def z_values(columns: Sequence[pa.Array | pa.ChunkedArray]) -> pa.Array:
    """Each row's place on the curve, as 64-bit numbers; nulls come before all values of a column.

    With one column this is its order, except for ties in the scaled ranks; all columns have one length, below 2**31.
    """
    bits = min(_BITS_MAX, _WORD_BITS // len(columns))
    z: Any = None
    for number, column in enumerate(columns):
        ranks = _scaled_ranks(column, bits)
        for bit in range(bits):
            place = bit * len(columns) + len(columns) - 1 - number
            part = pc.shift_left(pc.bit_wise_and(pc.shift_right(ranks, _word(bit)), _word(1)), _word(place))
            z = part if z is None else pc.bit_wise_or(z, part)
    return z


def z_positions(columns: Sequence[pa.Array | pa.ChunkedArray]) -> pa.Array:
    """For each row its position in the new order, from 0; rows at the same place keep their order."""
    return pc.sort_indices(pc.sort_indices(z_values(columns)))


def _scaled_ranks(column: pa.Array | pa.ChunkedArray, bits: int) -> pa.Array:
    """How many rows have a smaller value, scaled to [0, 2**bits); equal values have equal ranks, nulls have 0."""
    ranks = pc.rank(column, sort_keys="ascending", tiebreaker="min")  # from 1; nulls would be last
    before = pc.add(pc.subtract(ranks, _word(1)), pa.scalar(column.null_count, pa.uint64()))
    before = pc.if_else(_flat(pc.is_null(column)), _word(0), before)
    return pc.divide(pc.shift_left(before, _word(bits)), _word(max(1, len(column))))


def _flat(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    return values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values


def _word(number: int) -> pa.Scalar:
    return pa.scalar(number, pa.uint64())


# Small sources are fetched ahead, this many at once; larger ones are streamed one at a time.
_READERS: Final = 4
_SMALL_BYTES: Final = 4 * 1024 * 1024
# The number of new files that one pass over the sources fills.
_DEALT_MAX: Final = 128


@dataclass(frozen=True, slots=True)
class Output:
    """The new files of a bin, and where the live rows of each of its files went (None if their order changed)."""

    adds: tuple[AddFile, ...]
    moves: tuple[tuple[Moved, ...], ...] | None


@dataclass(slots=True)
class Rewriter:
    """Rewrites bins of one snapshot, under one transaction; thread-safe.

    `tag` is the transaction's id, with a label if the transaction writes other files, too; it is part of the files' names.
    `version` is the snapshot's number, `z_order` the columns to order by (none: keep the order); if the table `is_clustered` by them,
    the new files say so. `check` is called between two pieces of work, and raises to stop it.
    """

    store: ObjectStore
    version: int
    schema: StructType
    layout: FileFormat
    tag: str
    z_order: tuple[ColumnPath, ...]
    check: Callable[[], None]
    is_clustered: bool = False
    _started: list[OpenFile] = field(default_factory=list)

    def rewrite(self, number: int, one: Bin, sources: pa.Table) -> Output:
        """Write the live rows of a bin's files, `sources`, to new files; `number` distinguishes the bins of a transaction."""
        if self.z_order:
            return self._in_z_order(number, one, sources)
        return self._in_order(number, one, sources)

    def discard(self) -> None:
        """Remove everything written so far."""
        for file in self._started:
            file.discard()
        # Files that cannot be deleted now are found later by the transaction's id; the pending error matters more.
        with suppress(SluiceError):
            for file in self._started:
                self.store.delete(file.key)

    def _in_order(self, number: int, one: Bin, sources: pa.Table) -> Output:
        count = one.file_count(self.layout.target_file_bytes)
        rows_max = None
        if count > 1:
            rows_max = math.ceil(sum(batch.num_rows for batch in self._scan.batches(sources, self._columns()[:1])) / count)
        out = _Sequence(self, one.partition, number, rows_max)
        moves: list[list[tuple[int, Moved]]] = [[] for _ in one.indices]
        taken = [0] * len(one.indices)
        for source, rows in self._live_rows(sources):
            for part, offset, piece in out.add(rows):
                moves[source].append((part, Moved("", taken[source], piece, offset)))
                taken[source] += piece
        adds = out.close()
        return Output(adds, tuple(_joined(each, adds) for each in moves))

    def _in_z_order(self, number: int, one: Bin, sources: pa.Table) -> Output:
        columns = list(dict.fromkeys(path[0] for path in self.z_order))
        keys = [batch for _, batch in self._live_rows(sources, columns)]
        if not keys:
            return Output((), None)
        positions = z_positions([_at(pa.concat_tables(keys), path) for path in self.z_order])
        del keys
        count = one.file_count(self.layout.target_file_bytes)
        share = math.ceil(len(positions) / count)
        out = _Sequence(self, one.partition, number, share)
        starts = range(0, len(positions), share)
        for first in range(0, len(starts), _DEALT_MAX):
            for rows in self._dealt(sources, positions, starts[first : first + _DEALT_MAX], share):
                step = _rows_in(rows, self.layout.row_group_bytes)
                for start in range(0, rows.num_rows, step):
                    out.add(rows.slice(start, step))
        adds = out.close()
        if self.is_clustered:
            tags = cluster_tags(f"{self.tag}-{number}", self.z_order)
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
                    _deal(placed, pc.divide(pc.subtract(place, pa.scalar(first, pa.uint64())), pa.scalar(share, pa.uint64())), decks)
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

        def whole(number: int) -> pa.Table:
            return self._scan.read(sources.slice(number, 1), wanted)

        with threads(_READERS, "sluice-rewrite") as pool:
            waiting = iter(range(len(sizes)))
            ahead: deque[tuple[int, Future[pa.Table] | None]] = deque()

            def fetch(count: int) -> None:
                for each in islice(waiting, count):
                    ahead.append((each, pool.submit(whole, each) if sizes[each] <= _SMALL_BYTES else None))

            fetch(2 * _READERS)
            while ahead:
                self.check()
                number, fetched = ahead.popleft()
                fetch(1)
                pieces = self._streamed(sources.slice(number, 1), wanted) if fetched is None else iter([fetched.result()])
                yield from ((number, rows) for rows in pieces if rows.num_rows)

    def _streamed(self, source: pa.Table, columns: Sequence[str]) -> Iterator[pa.Table]:
        for batch in self._scan.batches(source, columns):
            self.check()
            yield pa.Table.from_batches([batch])

    def _start(self, partition: PartitionKey, number: int, part: int) -> OpenFile:
        name = f"part-{number:05d}-{self.tag}-c{part:03d}{self.layout.suffix}"
        file = OpenFile(self.store, self.layout, partition, name)
        self._started.append(file)
        return file


class _Sequence:
    """New files of one partition, filled one after the other: each with `rows_max` rows (None: all in one)."""

    def __init__(self, rewriter: Rewriter, partition: PartitionKey, number: int, rows_max: int | None) -> None:
        self._rewriter = rewriter
        self._partition = partition
        self._number = number
        self._rows_max = rows_max
        self._open: OpenFile | None = None
        self._rows = 0
        self._adds: list[AddFile] = []

    def add(self, rows: pa.Table) -> list[tuple[int, int, int]]:
        """Add rows; returns (new file, physical row where they begin, how many) for each piece."""
        pieces: list[tuple[int, int, int]] = []
        layout = self._rewriter.layout
        while rows.num_rows:
            if self._open is None:
                self._open = self._rewriter._start(self._partition, self._number, len(self._adds))
            piece = rows if self._rows_max is None else rows.slice(0, self._rows_max - self._rows)
            self._open.add(piece, piece.nbytes)
            pieces.append((len(self._adds), self._rows, piece.num_rows))
            self._rows += piece.num_rows
            if self._open.pending_bytes >= layout.row_group_bytes:
                self._open.flush()
            if self._rows == self._rows_max:
                self._finish(self._open)
            rows = rows.slice(piece.num_rows)
        return pieces

    def close(self) -> tuple[AddFile, ...]:
        if self._open is not None:
            self._finish(self._open)
        return tuple(self._adds)

    def _finish(self, file: OpenFile) -> None:
        self._adds.append(replace(file.close(), data_change=False))
        self._open, self._rows = None, 0


class _Deck:
    """Rows of one future file, on the local disk; the last column is their new position."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._writer: pa.RecordBatchStreamWriter | None = None

    def add(self, rows: pa.Table) -> None:
        with _room_for(self._path):
            if self._writer is None:
                options = pa.ipc.IpcWriteOptions(compression="lz4")
                self._writer = pa.ipc.new_stream(str(self._path), rows.schema, options=options)
            self._writer.write_table(rows)

    def close(self) -> None:
        if self._writer is not None:
            with _room_for(self._path):
                self._writer.close()

    def sorted(self) -> pa.Table:
        """All of them by position, without that column. Every deck got at least one row."""
        with pa.OSFile(str(self._path)) as file, pa.ipc.open_stream(file) as reader:
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


def _deal(rows: pa.Table, numbers: pa.ChunkedArray, decks: Sequence[_Deck]) -> None:
    """Add each row to the deck with its number."""
    order = pc.sort_indices(numbers)
    rows, numbers = rows.take(order), numbers.take(order)
    runs = pc.value_counts(numbers.combine_chunks())
    start = 0
    for run in runs.to_pylist():
        decks[run["values"]].add(rows.slice(start, run["counts"]))
        start += run["counts"]


def _at(rows: pa.Table, path: ColumnPath) -> pa.ChunkedArray:
    """The column at a path; null where a struct on the way is."""
    column = rows.column(path[0])
    return column if len(path) == 1 else pc.struct_field(column, list(path[1:]))


def _joined(moves: Sequence[tuple[int, Moved]], adds: Sequence[AddFile]) -> tuple[Moved, ...]:
    """Moves with their files' paths; those of one source into one file are neighbours, and are joined."""
    joined: list[Moved] = []
    for part, move in moves:
        path = adds[part].path
        last = joined[-1] if joined else None
        if last is not None and last.path == path:
            joined[-1] = replace(last, count=last.count + move.count)
        else:
            joined.append(replace(move, path=path))
    return tuple(joined)


def _rows_in(rows: pa.Table, nbytes: int) -> int:
    rows_of_that_size: int = rows.num_rows * nbytes // max(1, rows.nbytes)
    return max(1, rows_of_that_size)
