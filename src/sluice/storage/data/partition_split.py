"""Splits rows by partition, without a Python step per row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from ..errors import NullNotAllowed
from ..schema.datatypes import PrimitiveType, StructType
from ..schema.partitions import encode_column

PartitionKey: TypeAlias = tuple[str | None, ...]  # the texts of the values, in the order of the partition columns

# Combined codes are renumbered before they could exceed 64 bits.
_CODES_MAX: Final = 2**31


def split(table: pa.Table, schema: StructType, partition_columns: Sequence[str]) -> Iterator[tuple[PartitionKey, pa.Table]]:
    """The rows of each partition, in their order, without the partition columns."""
    if not partition_columns:
        yield (), table
        return
    coded = [_codes(table.column(name), schema, name) for name in partition_columns]
    rows = table.drop_columns(list(partition_columns))
    if all(len(texts) == 1 for _, texts in coded):
        yield tuple(texts[0] for _, texts in coded), rows
        return
    combined = _combined(coded)
    order = pc.sort_indices(combined)  # stable
    ends = pc.run_end_encode(combined.take(order)).run_ends.to_pylist()
    starts = [0, *ends[:-1]]
    firsts = order.take(pa.array(starts, pa.int64()))
    keys = zip(*([texts[code] for code in codes.take(firsts).to_pylist()] for codes, texts in coded), strict=True)
    rows = rows.combine_chunks()
    for key, start, end in zip(keys, starts, ends, strict=True):
        # Copied, not sliced: a slice of a few rows would keep the memory of all of them.
        yield key, rows.take(order.slice(start, end - start))


def _codes(column: pa.ChunkedArray, schema: StructType, name: str) -> tuple[pa.Array, list[str | None]]:
    """A number for each row's value, and the values' texts by number."""
    field = next(each for each in schema.fields if each.name == name)
    assert isinstance(field.type, PrimitiveType)
    values: Any = column.combine_chunks()
    if isinstance(values, pa.ChunkedArray):
        values = pa.concat_arrays(values.chunks)
    encoded = values.dictionary_encode()
    texts = encode_column(encoded.dictionary, field.type)
    if values.null_count:
        texts.append(None)
    distinct = list(dict.fromkeys(texts))
    if not field.nullable and None in distinct:
        raise NullNotAllowed(
            f"partition column {name!r} is NOT NULL and the data has an empty value in it, which is null as a partition; give it a value",
            column=name,
        )
    if len(distinct) == 1:
        return pa.repeat(pa.scalar(0, pa.int64()), len(values)), distinct
    position = {text: number for number, text in enumerate(distinct)}
    codes = encoded.indices.fill_null(len(texts) - 1)
    return pa.array([position[text] for text in texts], pa.int64()).take(codes), distinct


def _combined(coded: Sequence[tuple[pa.Array, list[str | None]]]) -> pa.Array:
    combined, size = coded[0][0], len(coded[0][1])
    for codes, texts in coded[1:]:
        if size * len(texts) > _CODES_MAX:
            encoded = combined.dictionary_encode()
            combined, size = encoded.indices.cast(pa.int64()), len(encoded.dictionary)
        combined = pc.add(pc.multiply(combined, len(texts)), codes)
        size *= len(texts)
    return combined
