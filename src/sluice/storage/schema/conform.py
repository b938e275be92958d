"""Fits data to a schema: columns by name, lossless casts, no nulls in NOT NULL columns.

`conform` is for incoming data and refuses what does not fit; `adapt` is for rows read from files and fills in what older
files lack. `check_values` checks the limits of new values beyond their type, so that every reader of the table can read them.
Dates and timestamps are in the years 1 to 9999: many readers, Python's among them, know no others. A map has each key once:
readers differ in what they make of a duplicate.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import date
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from ..dataclass import dataclass
from ..errors import NullNotAllowed, SchemaMismatch, UnsupportedFeature
from .datatypes import (
    ACCEPTS,
    VARIANT,
    VARIANT_PARTS,
    ArrayType,
    DataType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    arrow_kind,
    arrow_type,
    is_list,
    kind,
    to_arrow,
    types_inside,
)

_ANOTHER_SCHEMA: Final = "the file was written with another schema: ask the engine that wrote it"


def conform(data: pa.RecordBatch | pa.Table, schema: StructType) -> pa.Table:
    """The rows of `data` as a table of exactly `to_arrow(schema)`; columns are matched by name, ignoring case.

    Raises SchemaMismatch, naming the column, for a column the schema lacks, a missing or null NOT NULL one (nested ones
    too), a type that does not fit, and a value that a cast would change. Missing nullable columns become null.
    """
    table = data if isinstance(data, pa.Table) else pa.Table.from_batches([data])
    if not table.schema.equals(to_arrow(schema), check_metadata=True):
        table = _STRICT.table(table, schema)
    for each in _fields_with_duties(schema):
        _check_nulls(table.column(each.name), each.type, each.nullable, each.name)
    return table


def adapt(data: pa.RecordBatch | pa.Table, schema: StructType) -> pa.Table:
    """Rows read from a file as a table of exactly `to_arrow(schema)`. Like `conform`, but columns the schema lacks are dropped, missing
    ones are null, and timestamps without a zone are read as UTC (the meaning of Parquet's old INT96).
    """
    table = data if isinstance(data, pa.Table) else pa.Table.from_batches([data])
    return table if table.schema.equals(to_arrow(schema), check_metadata=True) else _LENIENT.table(table, schema)


def other_number_of_columns(names: Sequence[str], columns: Sequence[str]) -> SchemaMismatch:
    """The refusal of rows that fill columns by position, and have too many or too few."""
    which = "NOT_ENOUGH" if len(names) < len(columns) else "TOO_MANY"
    return SchemaMismatch(
        f"these rows have {len(names)} columns ({', '.join(names)}) for {len(columns)} of the table ({', '.join(columns)}); "
        "give as many, in this order",
        condition=f"INSERT_COLUMN_ARITY_MISMATCH.{which}_DATA_COLUMNS",
    )


@dataclass(frozen=True, slots=True)
class _Fitting:
    strict: bool

    def table(self, table: pa.Table, schema: StructType) -> pa.Table:
        target, columns = to_arrow(schema), []
        for each, wanted, source in zip(schema.fields, target, self.sources(table.column_names, schema, ""), strict=True):
            column = pa.nulls(table.num_rows, wanted.type) if source is None else table.column(source)
            if column.type != wanted.type:
                chunks = [self.array(chunk, each.type, wanted.type, each.name) for chunk in column.chunks]
                column = pa.chunked_array(chunks, type=wanted.type)
            columns.append(column)
        return pa.Table.from_arrays(columns, schema=target)

    def sources(self, names: Iterable[str], schema: StructType, path: str) -> list[int | None]:
        """For each field of the schema, the position of its column."""
        positions: dict[str, int] = {}
        for position, name in enumerate(names):
            if name.lower() in positions and self.strict:
                raise SchemaMismatch(f"the data has column {path + name!r} twice (case does not count); leave one out", column=path + name)
            positions.setdefault(name.lower(), position)
        found = [positions.pop(each.name.lower(), None) for each in schema.fields]
        if not self.strict:
            return found
        for name in positions:
            raise SchemaMismatch(
                f"the data has column {path + name!r}, which the table lacks (it has {', '.join(schema.names)}); "
                "leave it out, or write with merge_schema=True",
                column=path + name,
            )
        for each, place in zip(schema.fields, found, strict=True):
            if place is None and not each.nullable:
                missing = path + each.name
                raise SchemaMismatch(f"column {missing!r} is NOT NULL and missing in the data; give it a value", column=missing)
        return found

    def array(self, array: pa.Array, dtype: DataType, target: pa.DataType, path: str) -> pa.Array:
        array = _decoded(array)
        source = array.type
        if source == target:
            return array
        if pa.types.is_null(source):
            return pa.nulls(len(array), target)
        match dtype:
            case PrimitiveType("variant") if pa.types.is_struct(source):
                # check: no-shredded-variants
                if source.get_field_index("typed_value") >= 0:
                    said = f"column {path!r} is a shredded variant in the data, whose parts only Spark puts together: use sluice.read there"
                    raise UnsupportedFeature(said, features=("variantShredding",), column=path)
                return self.struct(array, VARIANT_PARTS, target, path)
            case PrimitiveType():
                return self.primitive(array, dtype, target, path)
            case StructType() if pa.types.is_struct(source):
                return self.struct(array, dtype, target, path)
            case ArrayType() if is_list(source):
                elements = self.array(pc.list_flatten(array), dtype.element_type, target.value_type, f"{path}.element")
                return pa.ListArray.from_arrays(_offsets(array), elements, type=target, mask=_mask(array))
            case MapType() if pa.types.is_map(source):
                key_lists, value_lists = (_lists(array, each) for each in (array.keys, array.items))
                keys = self.array(key_lists.flatten(), dtype.key_type, target.key_type, f"{path}.key")
                values = self.array(value_lists.flatten(), dtype.value_type, target.item_type, f"{path}.value")
                return pa.MapArray.from_arrays(_offsets(key_lists), keys, values, type=target, mask=_mask(array))
        raise self.wrong_type(source, dtype, path)

    def struct(self, array: pa.StructArray, dtype: StructType, target: pa.DataType, path: str) -> pa.Array:
        sources = self.sources([each.name for each in array.type.fields], dtype, f"{path}.")
        children = [
            pa.nulls(len(array), wanted.type)
            if source is None
            else self.array(array.field(source), each.type, wanted.type, f"{path}.{each.name}")
            for each, wanted, source in zip(dtype.fields, target.fields, sources, strict=True)
        ]
        return pa.StructArray.from_arrays(children, fields=target.fields, mask=_mask(array))

    def primitive(self, array: pa.Array, dtype: PrimitiveType, target: pa.DataType, path: str) -> pa.Array:
        source, own = arrow_kind(array.type), array.type
        from_file = source == "timestamp_ntz" and dtype.name == "timestamp" and not self.strict
        if source not in ACCEPTS[kind(dtype)] and not from_file and (source, dtype.name) != ("date", "timestamp_ntz"):
            raise self.wrong_type(own, dtype, path)
        try:
            if source == "integer" and pa.types.is_decimal(target):
                # Arrow checks the type's widest value instead of the actual ones; after a cast to a wide type, the second cast
                # checks the values.
                array = array.cast(pa.decimal256(76, target.scale))
            cast = array.cast(target)
            is_narrower = source == "float" and own.bit_width > target.bit_width
            if is_narrower and pc.all(pc.or_(pc.equal(cast.cast(own), array), pc.is_nan(array))).as_py() is False:
                raise pa.ArrowInvalid(f"not every value is a {target}")
            return cast
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as cause:
            remedy = "cast the data yourself, or widen the column" if self.strict else _ANOTHER_SCHEMA
            raise SchemaMismatch(
                f"column {path!r} is {dtype}, and a value of the data ({own}) would not survive the cast: {cause}; {remedy}", column=path
            ) from cause

    def wrong_type(self, source: pa.DataType, dtype: DataType, path: str) -> SchemaMismatch:
        if not self.strict:
            remedy = _ANOTHER_SCHEMA
        elif arrow_kind(source) == "timestamp_ntz" and dtype == PrimitiveType("timestamp"):
            remedy = "say which zone its times are in, with pyarrow.compute.assume_timezone for instance"
        else:
            remedy = f"cast it to {arrow_type(dtype, path)}"
        return SchemaMismatch(f"column {path!r} is {dtype} in the table and {source} in the data; {remedy}", column=path)


_STRICT = _Fitting(strict=True)
_LENIENT = _Fitting(strict=False)


def _decoded(array: pa.Array) -> pa.Array:
    """The array without Arrow's own encodings."""
    if isinstance(array, pa.ExtensionArray):
        return _decoded(array.storage)
    if isinstance(array, pa.DictionaryArray):
        return _decoded(array.dictionary_decode())
    return _decoded(pc.run_end_decode(array)) if isinstance(array, pa.RunEndEncodedArray) else array


def _lists(array: pa.MapArray, part: pa.Array) -> pa.ListArray:
    """The keys or the values of maps as lists, which can be flattened without what is under nulls and outside slices."""
    return pa.ListArray.from_arrays(pc.add(array.offsets, 0), part, mask=_mask(array))  # a mask needs offsets that begin at their array's


def _offsets(lists: pa.Array) -> pa.Array:
    lengths = pc.fill_null(pc.list_value_length(lists), 0).cast(pa.int32())
    return pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths)])


def _mask(array: pa.Array) -> pa.Array | None:
    return array.is_null() if array.null_count else None


@lru_cache(maxsize=256)
def _fields_with_duties(schema: StructType) -> tuple[StructField, ...]:
    """The fields that are NOT NULL, or contain one that is."""
    return tuple(each for each in schema.fields if not each.nullable or _has_duties(each.type))


def _has_duties(dtype: DataType) -> bool:
    match dtype:
        case PrimitiveType():
            # check: nulls-in-variants (dtype == VARIANT -> False)
            return dtype == VARIANT
        case ArrayType(element, nulls):
            return not nulls or _has_duties(element)
        case MapType(key, value, nulls):
            return not nulls or _has_duties(key) or _has_duties(value)
        case StructType():
            return bool(_fields_with_duties(dtype))


def without_hidden_nulls(table: pa.Table, schema: StructType) -> pa.Table:
    """The rows, which fit the schema, in a form that can be written: no null under a null struct in a NOT NULL field. Parquet cannot
    represent such a null, and the struct's null says everything.
    """
    for each in _fields_with_duties(schema):
        position = table.schema.get_field_index(each.name)
        column = table.column(position)
        if any(_hides_nulls(chunk, each.type) for chunk in column.chunks):
            chunks = [pa.array(chunk.to_pylist(), chunk.type) for chunk in column.chunks]
            table = table.set_column(position, table.schema.field(position), pa.chunked_array(chunks, column.type))
    return table


def _hides_nulls(array: pa.Array, dtype: DataType) -> bool:
    return any((part.null_count and not nullable) or _hides_nulls(part, kind) for part, kind, nullable, _ in _parts(array, dtype, ""))


def _check_nulls(values: pa.Array | pa.ChunkedArray, dtype: DataType, nullable: bool, path: str) -> None:
    if not nullable and values.null_count:
        raise NullNotAllowed(
            f"column {path!r} is NOT NULL and the data has {values.null_count} null(s) in it; give them a value, or leave the rows out",
            column=path,
        )
    if _has_duties(dtype):
        for chunk in values.chunks if isinstance(values, pa.ChunkedArray) else [values]:
            # Without the null rows, whose children have no meaning.
            for part in _parts(chunk.drop_null() if chunk.null_count else chunk, dtype, path):
                _check_nulls(*part)


def _parts(array: pa.Array, dtype: DataType, path: str) -> Iterator[tuple[pa.Array, DataType, bool, str]]:
    """The parts of nested values, without those in null lists: each with its type, whether it may have nulls, and its path."""
    match VARIANT_PARTS if dtype == VARIANT else dtype:
        case ArrayType(element, nulls):
            yield array.flatten(), element, nulls, f"{path}.element"
        case MapType(key, value, nulls):
            start, end = array.offsets[0].as_py(), array.offsets[-1].as_py()
            yield array.keys.slice(start, end - start), key, False, f"{path}.key"
            yield array.items.slice(start, end - start), value, nulls, f"{path}.value"
        case StructType(fields):
            for position, each in enumerate(fields):
                yield array.field(position), each.type, each.nullable, f"{path}.{each.name}"
        case _:
            return


_DAYS: Final = tuple((each - date(1970, 1, 1)).days for each in (date.min, date.max))
_DAY_US: Final = 24 * 3600 * 1_000_000
_MICROSECONDS: Final = (_DAYS[0] * _DAY_US, (_DAYS[1] + 1) * _DAY_US - 1)
_RANGES: Final = {"date": (pa.int32(), _DAYS), "timestamp": (pa.int64(), _MICROSECONDS), "timestamp_ntz": (pa.int64(), _MICROSECONDS)}


def check_values(table: pa.Table, schema: StructType) -> None:
    """Raise SchemaMismatch, naming the column and the value, for a value that some readers cannot read. `table` fits the schema."""
    for each in schema.fields:
        for chunk in table.column(each.name).chunks if is_limited(each.type) else ():
            _check(chunk, each.type, each.name)


def is_legal(value: Any, dtype: PrimitiveType) -> bool:
    """Whether a value is within these limits: a date in days or a time in microseconds since the epoch; others have no limit."""
    if dtype.name not in _RANGES:
        return True
    first, last = _RANGES[dtype.name][1]
    return bool(first <= value <= last)


@lru_cache(maxsize=1024)
def is_limited(dtype: DataType) -> bool:
    """Whether a value, or a part of it, has limits: dates and times have, and the keys of maps are distinct."""
    kinds = (kind for _, kind in types_inside(dtype))
    return any(isinstance(kind, MapType) or (isinstance(kind, PrimitiveType) and kind.name in _RANGES) for kind in kinds)


def _check(array: pa.Array, dtype: DataType, path: str) -> None:
    if array.null_count:
        array = array.drop_null()  # values under a null have no meaning
    if isinstance(dtype, MapType):
        _check_keys(array, path)
    for part, part_type, _, name in _parts(array, dtype, path):
        if is_limited(part_type):
            _check(part, part_type, name)
    if not isinstance(dtype, PrimitiveType):
        return
    number, (first, last) = _RANGES[dtype.name]
    bounds = pc.min_max(array.cast(number))
    for bound in (bounds["min"].as_py(), bounds["max"].as_py()):
        if bound is not None and not first <= bound <= last:
            value = pa.array([bound], number).cast(array.type).cast(pa.string())[0].as_py()
            raise SchemaMismatch(
                f"column {path!r} has the {dtype} {value}, outside of the years 1 to 9999, which not every reader of the table can read; "
                "give another value, or null",
                column=path,
                value=value,
            )


def _check_keys(array: pa.MapArray, path: str) -> None:
    lists = pa.ListArray.from_arrays(array.offsets, array.keys)
    if (pc.max(pc.list_value_length(lists)).as_py() or 0) <= 1:
        return
    rows, keys = pc.list_parent_indices(lists), lists.flatten()
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
            f"column {path!r} has a map with a duplicate key, and readers differ in which value counts; give each key once", column=path
        )
