"""The partition values of many files, as one column of texts per partition column."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["partition_texts"]


def partition_texts(maps: pa.ChunkedArray, names: Sequence[str]) -> list[pa.Array]:
    """For each name the values in the maps (`add.partitionValues`), null where a map lacks it.

    A look-up by name scans the keys of every map, for a hundred names a hundred times. Writers put the same keys in the same
    order into every map: then each column is a stride through the values, which is checked, not assumed.
    """
    columns: list[list[pa.Array]] = [[] for _ in names]
    for chunk in maps.chunks:
        strides = _Strides.of(chunk) if len(names) > 1 else None
        for column, name in zip(columns, names, strict=True):
            texts = None if strides is None else strides.values(name)
            column.append(pc.map_lookup(chunk, name, "first") if texts is None else texts)
    return [pa.concat_arrays(column) if column else pa.array([], pa.string()) for column in columns]


class _Strides:
    """Maps with equal numbers of entries."""

    def __init__(self, keys: pa.Array, items: pa.Array, width: int) -> None:
        self._keys = keys
        self._items = items
        self._places = {name: place for place, name in reversed(list(enumerate(keys.slice(0, width).to_pylist())))}
        self._starts = pa.array(range(0, len(keys), width), pa.int64())

    @staticmethod
    def of(maps: pa.MapArray) -> _Strides | None:
        """None for maps of different sizes, and for empty ones."""
        offsets = maps.offsets
        if maps.null_count or not len(maps):
            return None
        sizes = pc.min_max(pc.subtract(offsets.slice(1), offsets.slice(0, len(maps)))).as_py()
        width = sizes["min"]
        if not width or width != sizes["max"]:
            return None
        start = offsets[0].as_py()
        return _Strides(maps.keys.slice(start, len(maps) * width), maps.items.slice(start, len(maps) * width), width)

    def values(self, name: str) -> pa.Array | None:
        """The values of a name; None if it is not at the same place in all maps."""
        place = self._places.get(name)
        if place is None:
            return None
        rows = pc.add(self._starts, place)
        return self._items.take(rows) if pc.all(pc.equal(self._keys.take(rows), name)).as_py() else None
