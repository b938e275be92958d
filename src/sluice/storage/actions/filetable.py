"""Files of a table as rows of Arrow tables: made from records, converted back, and replaced by key.

A snapshot may have a million files, so Python objects are made only for rows that are requested.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cache, partial, reduce
from typing import Any, Final, Generic, TypeAlias, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from ..caches import Once
from ..dataclass import dataclass
from ..jsontext import dumps, loads
from .records import AddFile, DeletionVector, FileKey, RemoveFile

TEXT_MAP: Final = pa.map_(pa.string(), pa.string())
VECTOR: Final = pa.struct(
    {
        "storage_type": pa.string(),
        "path_or_inline_dv": pa.string(),
        "offset": pa.int32(),
        "size_in_bytes": pa.int32(),
        "cardinality": pa.int64(),
    }
)

# The fields of AddFile in order; `extra_json` is its `extra` as JSON, null if empty.
FILES_SCHEMA: Final = pa.schema(
    [
        ("path", pa.string()),
        ("partition_values", TEXT_MAP),
        ("size", pa.int64()),
        ("modification_time", pa.int64()),
        ("data_change", pa.bool_()),
        ("stats", pa.string()),
        ("tags", TEXT_MAP),
        ("deletion_vector", VECTOR),
        ("base_row_id", pa.int64()),
        ("default_row_commit_version", pa.int64()),
        ("clustering_provider", pa.string()),
        ("extra_json", pa.string()),
    ]
)

# The fields of RemoveFile without `stats` and `tags`, which checkpoints do not keep for removed files.
TOMBSTONES_SCHEMA: Final = pa.schema(
    [
        ("path", pa.string()),
        ("data_change", pa.bool_()),
        ("deletion_timestamp", pa.int64()),
        ("extended_file_metadata", pa.bool_()),
        ("partition_values", TEXT_MAP),
        ("size", pa.int64()),
        ("deletion_vector", VECTOR),
        ("base_row_id", pa.int64()),
        ("default_row_commit_version", pa.int64()),
        ("extra_json", pa.string()),
    ]
)

# Tables are kept in chunks of at most this many rows: a change rewrites only the chunks it touches.
_CHUNK_ROWS_MAX: Final = 16_384
# Above this number changes are merged at once, so that copying them for the next version stays cheap.
_PENDING_MAX: Final = 16_384

_FEW: Final = 2

# Checkpoints have row groups of about this size.
_SHARED_NULLS: Final = 131_072

# Approximate sizes of a key, and of a change as a record.
_KEY_BYTES: Final = 250
_RECORD_BYTES: Final = 1500

_Row = TypeVar("_Row", AddFile, RemoveFile)
_Source = TypeVar("_Source")


def add_rows(adds: Sequence[AddFile]) -> pa.Table:
    """One row per add."""
    return _rows(adds, FILES_SCHEMA)


def remove_rows(removes: Sequence[RemoveFile]) -> pa.Table:
    """One row per remove."""
    return _rows(removes, TOMBSTONES_SCHEMA)


def adds_of(table: pa.Table) -> Iterator[AddFile]:
    """One record per row of a table in FILES_SCHEMA."""
    for batch in table.to_batches(max_chunksize=4096):
        for row in batch.to_pylist():
            row["partition_values"] = dict(row["partition_values"] or ())  # null in some writers' checkpoints
            tags, vector, extra = row["tags"], row["deletion_vector"], row.pop("extra_json")
            row["tags"] = None if tags is None else dict(tags)
            row["deletion_vector"] = None if vector is None else DeletionVector(**vector)
            yield AddFile(**row, extra={} if extra is None else loads(extra.encode()))


def picked(table: pa.Table, mask: pa.BooleanArray) -> pa.Table:
    """The rows of `table` where the mask (without nulls) is true; usually all of them or none."""
    if mask.true_count == len(mask):
        return table
    return table.filter(mask) if mask.true_count else table.slice(0, 0)


def rows_at(table: pa.Table, places: Sequence[int]) -> pa.Table:
    """The rows at these places, each named once, in their order.

    `Table.take` would join the whole table into one piece first, and fails if its texts are larger than 2 GiB.
    """
    bits = bytearray(table.num_rows // 8 + 1)
    for place in places:
        bits[place >> 3] |= 1 << (place & 7)
    kept = picked(table, pa.Array.from_buffers(pa.bool_(), table.num_rows, [None, pa.py_buffer(bits)]))
    ordered = sorted(places)
    return (
        kept if ordered == list(places) else kept.take(pc.index_in(pa.array(places, pa.int64()), value_set=pa.array(ordered, pa.int64())))
    )


def nulls(length: int, kind: pa.DataType) -> pa.Array:
    """An array of nulls; arrays of one type share their memory, since whole columns of a snapshot are often null."""
    return _shared_nulls(kind).slice(0, length) if length <= _SHARED_NULLS else pa.nulls(length, kind)


_shared_nulls: Final = cache(partial(pa.nulls, _SHARED_NULLS))


def without(table: pa.Table, keys: Collection[FileKey]) -> list[pa.RecordBatch]:
    """The batches of `table` without the rows with one of `keys`; batches without such rows are returned unchanged."""
    batches: list[pa.RecordBatch] = table.to_batches(max_chunksize=_CHUNK_ROWS_MAX)
    if not keys:
        return batches
    paths = list({path for path, _ in keys})
    of_whole_files = [path for path, vector in keys if not vector]
    kept: list[pa.RecordBatch] = []
    for batch in batches:
        if batch.column("deletion_vector").null_count == batch.num_rows:
            gone = _is_any(batch.column("path"), of_whole_files)
        else:
            # First by path alone, vectorised; only the few matches are compared with their deletion vectors.
            candidates = pc.indices_nonzero(_is_any(batch.column("path"), paths))
            rows = batch.select(["path", "deletion_vector"]).take(candidates).to_pylist()
            matches = [index for index, row in zip(candidates.to_pylist(), rows, strict=True) if _key_of(row) in keys]
            gone = pc.is_in(pa.array(range(batch.num_rows), pa.int64()), value_set=pa.array(matches, pa.int64()))
        if gone.true_count:
            batch = batch.filter(pc.invert(gone))
        if batch.num_rows:
            kept.append(batch)
    return kept


def _is_any(texts: pa.StringArray, wanted: Sequence[str]) -> pa.BooleanArray:
    """Which texts are wanted. Comparing with one text takes a third of the time of hashing all of them."""
    if 0 < len(wanted) <= _FEW:
        return reduce(pc.or_, [pc.equal(texts, each) for each in wanted])
    return pc.is_in(texts, value_set=pa.array(wanted, pa.string()))


def _key_of(row: Mapping[str, Any]) -> FileKey:
    return row["path"], "" if row["deletion_vector"] is None else DeletionVector(**row["deletion_vector"]).unique_id


@dataclass(frozen=True, slots=True)
class Deferred(Generic[_Source]):
    """Rows that are read on first use: those that `rows_of` finds in what `source` has then."""

    source: Once[_Source]
    rows_of: Callable[[_Source], LayeredTable[Any]]

    @property
    def table(self) -> pa.Table:
        """The rows. Raises the errors of reading them."""
        return self.rows_of(self.source.value).table

    @property
    def held(self) -> Mapping[int, int]:
        """The bytes of each table in memory, by its identity, since tables share others."""
        made = self.source.made
        return {} if made is None else self.rows_of(made).held


_NOTHING: Final[Mapping[FileKey, Any]] = {}
# Keys with their current rows.
_Sealed: TypeAlias = "tuple[Collection[FileKey], pa.Table]"


@dataclass(frozen=True, slots=True)
class _Layers:
    """A table and its changes in order: the `sealed` ones, then the `pending` ones."""

    base: pa.Table | Deferred[Any] | LayeredTable[Any]
    sealed: tuple[_Sealed, ...]
    pending: Mapping[FileKey, Any]


class LayeredTable(Generic[_Row]):
    """An immutable table of files plus changes by key; reading and merging happen on first use.

    Applying changes costs time in proportion to the changes, not to the table. A change is a key's new row, or None if it
    has none any more.
    """

    def __init__(
        self,
        base: pa.Table | Deferred[Any] | LayeredTable[Any],
        make: Callable[[Sequence[_Row]], pa.Table],
        sealed: tuple[_Sealed, ...] = (),
        pending: Mapping[FileKey, Any] = _NOTHING,
    ) -> None:
        # One attribute for all state, so that a thread sees either the layers before merging or the table after it.
        self._layers: _Layers = _Layers(base, sealed, pending)
        self._make: Callable[[Sequence[_Row]], pa.Table] = make

    @property
    def is_read(self) -> bool:
        """Whether all rows are in memory, though perhaps not merged."""
        base = self._layers.base
        return isinstance(base, pa.Table) or (base.is_read if isinstance(base, LayeredTable) else base.source.made is not None)

    @property
    def table(self) -> pa.Table:
        """The rows, read and merged on first use."""
        layers: _Layers = self._layers
        rows: pa.Table = layers.base if isinstance(layers.base, pa.Table) else layers.base.table
        rows = reduce(_merged, (*layers.sealed, *self._sealed(layers.pending)), rows)
        if rows is not layers.base:
            self._layers = _Layers(rows, (), _NOTHING)
        return rows

    @property
    def held(self) -> Mapping[int, int]:
        """The bytes of each table in memory, by its identity."""
        layers: _Layers = self._layers
        base = {id(layers.base): layers.base.nbytes} if isinstance(layers.base, pa.Table) else layers.base.held
        sealed = {id(rows): rows.nbytes + len(keys) * _KEY_BYTES for keys, rows in layers.sealed}
        return {**base, **sealed, id(layers.pending): len(layers.pending) * _RECORD_BYTES}

    def apply(self, changes: Mapping[FileKey, _Row | None]) -> LayeredTable[_Row]:
        """The table after `changes`."""
        layers: _Layers = self._layers
        pending: dict[FileKey, Any] = {**layers.pending, **changes}
        if len(pending) <= _PENDING_MAX:
            return LayeredTable(layers.base, self._make, layers.sealed, pending)
        result = LayeredTable(layers.base, self._make, (*layers.sealed, *self._sealed(pending)))
        if isinstance(layers.base, pa.Table):  # else it has not been used yet, and may never be: do not read it for this
            _ = result.table
        return result

    def on(self, base: LayeredTable[_Row]) -> LayeredTable[_Row]:
        """The same changes on another table, which may already have the first ones. What was read stays available."""
        layers: _Layers = self._layers
        return self if isinstance(layers.base, pa.Table) else LayeredTable(base, self._make, layers.sealed, layers.pending)

    def _sealed(self, changes: Mapping[FileKey, _Row | None]) -> list[_Sealed]:
        """The changes as one layer; no layer if there are none."""
        made = [row for row in changes.values() if row is not None]
        return [(frozenset(changes), self._make(made))] if changes else []


def _merged(table: pa.Table, change: _Sealed) -> pa.Table:
    """The table after a change, in few batches: neighbours are joined while the earlier one is not much larger."""
    keys, rows = change
    merged: list[pa.RecordBatch] = []
    for batch in (*without(table, keys), *rows.to_batches()):
        merged.append(batch)
        while len(merged) > 1:
            earlier, later = merged[-2].num_rows, merged[-1].num_rows
            if earlier > 2 * later or earlier + later > _CHUNK_ROWS_MAX:
                break
            merged[-2:] = [pa.concat_batches(merged[-2:])]
    return pa.Table.from_batches(merged, table.schema)


def _rows(records: Sequence[AddFile] | Sequence[RemoveFile], schema: pa.Schema) -> pa.Table:
    columns: dict[str, pa.Array] = {}
    for field in schema:
        if field.name == "extra_json":
            values: list[Any] = [dumps(each.extra).decode() if each.extra else None for each in records]
        else:
            values = [getattr(each, field.name) for each in records]
        if values.count(None) == len(values):
            columns[field.name] = nulls(len(values), field.type)
            continue
        if field.name == "deletion_vector":
            values = [None if value is None else {part: getattr(value, part) for part in VECTOR.names} for value in values]
        elif pa.types.is_map(field.type):
            values = [None if value is None else list(value.items()) for value in values]
        columns[field.name] = pa.array(values, field.type)
    return pa.table(columns, schema=schema)
