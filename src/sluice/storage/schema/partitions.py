"""Partition values as the log's text, the folders and paths named after them ("Partition Value Serialization"), and the rows of each.

An empty string is null, since the protocol has one text for both; so is empty binary. Binary is written as UTF-8 text, like
Spark does; other bytes are refused. Timestamps are written in UTC with a Z; older text without a zone is read as UTC.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime, timezone
from decimal import Context, Decimal, Inexact, InvalidOperation
from hashlib import sha256
from typing import Any, Final, TypeAlias
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.compute as pc

from ..errors import Corrupt, NullNotAllowed, SchemaMismatch
from .datatypes import PrimitiveType, StructType, arrow_type, kind

HIVE_DEFAULT_PARTITION: Final = "__HIVE_DEFAULT_PARTITION__"

# Spark's ExternalCatalogUtils.charToEscape, and NUL, which paths cannot contain.
_ESCAPED: Final = {ord(char): f"%{ord(char):02X}" for char in (*map(chr, range(0x20)), *"\"#%'*/:=?\\\x7f{[]^")}
# File systems limit a name to 255 bytes.
_FOLDER_BYTES_MAX: Final = 240
_ZONE: Final = r"(Z|[+-]\d{2}:?\d{2})$"


def encode_value(value: Any, dtype: PrimitiveType) -> str | None:
    """The text of one partition value, None for null. Raises SchemaMismatch for a value of another type."""
    if value is None:
        return None
    try:
        return _encode(value, dtype) or None
    except (TypeError, ValueError, AttributeError, OverflowError, InvalidOperation, struct.error) as cause:
        raise SchemaMismatch(
            f"{value!r} cannot be a partition value of type {dtype}: {cause}; give a value of that type", value=value, type=str(dtype)
        ) from cause


def _encode(value: Any, dtype: PrimitiveType) -> str:
    match kind(dtype):
        case "string" if isinstance(value, str):
            return value
        case "binary":
            try:
                return bytes(value).decode()
            except UnicodeDecodeError as cause:
                raise ValueError("its bytes are not UTF-8 text, and the log can only store text") from cause
        case "boolean" if isinstance(value, bool):
            return "true" if value else "false"
        case "integer" if isinstance(value, int) and not isinstance(value, bool):
            return str(value)
        case "float":
            return _encode_float(float(value), dtype)
        case "decimal":
            return _encode_decimal(Decimal(value), dtype)
        case "date" if isinstance(value, date) and not isinstance(value, datetime):
            return value.isoformat()
        case "timestamp" if isinstance(value, datetime) and value.tzinfo is not None:
            return f"{value.astimezone(timezone.utc).replace(tzinfo=None).isoformat(timespec='microseconds')}Z"
        case "timestamp_ntz" if isinstance(value, datetime) and value.tzinfo is None:
            return value.isoformat(sep=" ")
    raise TypeError(f"it is a {value.__class__.__name__}")


def _encode_float(value: float, dtype: PrimitiveType) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if dtype.name == "double":
        return repr(value)
    single = struct.pack("<f", value)
    return next(text for digits in range(6, 10) if struct.pack("<f", float(text := f"{value:.{digits}g}")) == single)


def _encode_decimal(value: Decimal, dtype: PrimitiveType) -> str:
    if not value.is_finite():
        raise ValueError("it is not finite")
    try:
        exact = value.quantize(Decimal(1).scaleb(-dtype.scale), context=Context(prec=dtype.precision, traps=[Inexact, InvalidOperation]))
    except (Inexact, InvalidOperation):
        raise ValueError("it has more digits than the type") from None
    return format(exact or abs(exact), "f")


def decode_value(text: str | None, dtype: PrimitiveType) -> Any:
    """The value of a text in the log. Raises Corrupt if it is not a value of the type."""
    return decode_column(pa.array([text], pa.string()), dtype)[0].as_py()


def decode_column(texts: pa.Array, dtype: PrimitiveType) -> pa.Array:
    """The values of texts in the log, in the column's Arrow type. Raises Corrupt if one is not a value of the type."""
    if isinstance(texts, pa.ChunkedArray):
        texts = texts.combine_chunks()
    texts, target = pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.string()), texts), arrow_type(dtype)
    try:
        match kind(dtype):
            case "string":
                return texts
            case "void":
                return pa.nulls(len(texts), target)
            case "timestamp":
                return pc.if_else(pc.match_substring_regex(texts, _ZONE), texts, pc.binary_join_element_wise(texts, "Z", "")).cast(target)
            case "timestamp_ntz":
                return pc.replace_substring_regex(texts, "Z$", "").cast(target)
            case "decimal":
                return texts.cast(pa.decimal256(76, target.scale)).cast(target)
            case _:
                return texts.cast(target)
    except pa.ArrowInvalid as cause:
        raise Corrupt(
            f"the log has a partition value that is not of type {dtype}: {cause}; look at its commits", type=str(dtype)
        ) from cause


def folder(partition_columns: Sequence[str], values: Mapping[str, str | None]) -> str:
    """The folder of a partition, named like Spark's: `origin=JFK/month=1`; "" for a table without partitions. `values` are texts made by
    `encode_value`. A name too long for a file system is cut and ends in a digest; nobody reads values from folders.
    """
    parts: list[str] = []
    for name in partition_columns:
        value = values[name]
        text = f"{name.translate(_ESCAPED)}={value.translate(_ESCAPED) if value else HIVE_DEFAULT_PARTITION}"
        encoded = text.encode()
        if len(encoded) > _FOLDER_BYTES_MAX:
            text = encoded[: _FOLDER_BYTES_MAX - 17].decode(errors="ignore") + "-" + sha256(encoded).hexdigest()[:16]
        parts.append(text)
    return "/".join(parts)


def path_to_uri(key: str) -> str:
    """The `path` of an action for an object's key: a relative URI, percent-encoded."""
    return quote(key, safe="/=")


def uri_to_path(uri: str) -> str:
    """The key of an object from the relative `path` of an action."""
    return unquote(uri, errors="strict")


# -- rows by partition, without a Python step per row -----------------------------------------------------------------------

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
    combined, size = coded[0][0], len(coded[0][1])
    for codes, texts in coded[1:]:
        if size * len(texts) > _CODES_MAX:
            encoded = combined.dictionary_encode()
            combined, size = encoded.indices.cast(pa.int64()), len(encoded.dictionary)
        combined = pc.add(pc.multiply(combined, len(texts)), codes)
        size *= len(texts)
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
    field = schema.named(name)
    assert isinstance(field.type, PrimitiveType)
    values: Any = column.combine_chunks()
    if isinstance(values, pa.ChunkedArray):
        values = pa.concat_arrays(values.chunks)
    encoded = values.dictionary_encode()
    try:
        plain = encoded.dictionary.to_pylist()
    except (ValueError, OverflowError) as cause:
        raise SchemaMismatch(f"a partition value of type {field.type} is outside the years 1 to 9999: {cause}; leave it out") from cause
    texts = [encode_value(value, field.type) for value in plain]
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
    return pa.array([position[text] for text in texts], pa.int64()).take(encoded.indices.fill_null(len(texts) - 1)), distinct


def partition_texts(maps: pa.ChunkedArray, names: Sequence[str]) -> list[pa.Array]:
    """For each name the values in the maps (`add.partitionValues`), null where a map lacks it.

    A look-up by name scans the keys of every map, for a hundred names a hundred times. Writers put the same keys in the same
    order into every map: then each column is a stride through the values, which is checked, not assumed.
    """
    columns: list[list[pa.Array]] = [[] for _ in names]
    for chunk in maps.chunks:
        by_stride = _by_stride(chunk, names) if len(names) > 1 else {}
        for column, name in zip(columns, names, strict=True):
            column.append(by_stride[name] if name in by_stride else pc.map_lookup(chunk, name, "first"))
    return [pa.concat_arrays(column) if column else pa.array([], pa.string()) for column in columns]


def _by_stride(maps: pa.MapArray, names: Sequence[str]) -> dict[str, pa.Array]:
    """The values of those names that are at the same place in all maps; none of maps of different sizes, and of empty ones."""
    offsets = maps.offsets
    if maps.null_count or not len(maps):
        return {}
    sizes = pc.min_max(pc.subtract(offsets.slice(1), offsets.slice(0, len(maps)))).as_py()
    width = sizes["min"]
    if not width or width != sizes["max"]:
        return {}
    start, count = offsets[0].as_py(), len(maps) * width
    keys, items = maps.keys.slice(start, count), maps.items.slice(start, count)
    places = {name: place for place, name in reversed(list(enumerate(keys.slice(0, width).to_pylist())))}
    starts = pa.array(range(0, count, width), pa.int64())
    values: dict[str, pa.Array] = {}
    for name in names:
        if name in places:
            rows = pc.add(starts, places[name])
            if pc.all(pc.equal(keys.take(rows), name)).as_py():
                values[name] = items.take(rows)
    return values
