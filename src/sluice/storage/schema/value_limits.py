"""Limits of new values beyond their type, so that every reader of the table can read them.

Dates and timestamps are in the years 1 to 9999: many readers, Python's among them, know no others. A map has each key once:
readers differ in what they make of a duplicate.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from ..errors import SchemaMismatch
from .datatypes import ArrayType, DataType, MapType, PrimitiveType, StructField, StructType, types_inside

_DAYS: Final = tuple((each - date(1970, 1, 1)).days for each in (date.min, date.max))
_DAY_US: Final = 24 * 3600 * 1_000_000
_MICROSECONDS: Final = (_DAYS[0] * _DAY_US, (_DAYS[1] + 1) * _DAY_US - 1)
_RANGES: Final = {
    "date": (pa.int32(), _DAYS),
    "timestamp": (pa.int64(), _MICROSECONDS),
    "timestamp_ntz": (pa.int64(), _MICROSECONDS),
}


def check_values(table: pa.Table, schema: StructType) -> None:
    """Raise SchemaMismatch, naming the column and the value, for a value that some readers cannot read. `table` fits the schema."""
    for each in _limited(schema):
        for chunk in table.column(each.name).chunks:
            _check(chunk, each.type, each.name)


def is_legal(value: Any, dtype: PrimitiveType) -> bool:
    """Whether a value is within these limits: a date in days or a time in microseconds since the epoch; others have no limit."""
    if dtype.name not in _RANGES:
        return True
    first, last = _RANGES[dtype.name][1]
    return bool(first <= value <= last)


@lru_cache(maxsize=256)
def _limited(schema: StructType) -> tuple[StructField, ...]:
    """The fields that need a check."""
    return tuple(each for each in schema.fields if _is_limited(each.type))


def _is_limited(dtype: DataType) -> bool:
    kinds = (kind for _, kind in types_inside(dtype))
    return any(isinstance(kind, MapType) or (isinstance(kind, PrimitiveType) and kind.name in _RANGES) for kind in kinds)


def _check(array: pa.Array, dtype: DataType, path: str) -> None:
    if array.null_count:
        array = array.drop_null()  # values under a null have no meaning
    if isinstance(dtype, PrimitiveType):
        _check_range(array, dtype, path)
        return
    if isinstance(dtype, MapType):
        _check_keys(array, path)
    for part, kind, name in _parts(array, dtype, path):
        if _is_limited(kind):
            _check(part, kind, name)


def _parts(array: pa.Array, dtype: DataType, path: str) -> Iterator[tuple[pa.Array, DataType, str]]:
    match dtype:
        case ArrayType(element, _):
            yield array.flatten(), element, f"{path}.element"
        case MapType(key, value, _):
            start, end = array.offsets[0].as_py(), array.offsets[-1].as_py()
            yield array.keys.slice(start, end - start), key, f"{path}.key"
            yield array.items.slice(start, end - start), value, f"{path}.value"
        case StructType(fields):
            for position, each in enumerate(fields):
                yield array.field(position), each.type, f"{path}.{each.name}"
        case _:
            return


def _check_range(array: pa.Array, dtype: PrimitiveType, path: str) -> None:
    number, (first, last) = _RANGES[dtype.name]
    bounds = pc.min_max(array.cast(number))
    for found in (bounds["min"].as_py(), bounds["max"].as_py()):
        if found is not None and not first <= found <= last:
            value = pa.array([found], number).cast(array.type).cast(pa.string())[0].as_py()
            raise SchemaMismatch(
                f"column {path!r} has the {dtype} {value}, outside of the years 1 to 9999, which not every reader of the table can read; "
                "give another value, or null",
                column=path,
                value=value,
            )


def _check_keys(array: pa.MapArray, path: str) -> None:
    lists = array.cast(pa.list_(pa.struct([("key", array.type.key_type), ("value", array.type.item_type)])))
    if (pc.max(pc.list_value_length(lists)).as_py() or 0) <= 1:
        return
    rows, keys = pc.list_parent_indices(lists), lists.flatten().field(0)
    try:
        encoded = keys.dictionary_encode()
        pairs = pc.add(pc.multiply(rows.cast(pa.int64()), len(encoded.dictionary)), encoded.indices.cast(pa.int64()))
        ordered = pairs.take(pc.sort_indices(pairs))
        twice = pc.any(pc.equal(ordered[1:], ordered[:-1])).as_py()
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
        # Keys that are structs or lists.
        twice = len({(row, repr(key)) for row, key in zip(rows.to_pylist(), keys.to_pylist(), strict=True)}) < len(keys)
    if twice:
        raise SchemaMismatch(
            f"column {path!r} has a map with a duplicate key, and readers differ in which value counts; give each key once",
            column=path,
        )
