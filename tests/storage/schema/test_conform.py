from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.storage.errors import SchemaMismatch
from sluice.storage.schema.conform import adapt
from sluice.storage.schema.schema import ArrayType, DataType, MapType, PrimitiveType, StructField, StructType, arrow_type, conform, to_arrow
from tests.storage.strategies import data_types, naive, rows_of, schemas, tables, unhurried, values

LONG = PrimitiveType("long")


def one(dtype: DataType, nullable: bool = True) -> StructType:
    return StructType([StructField("c", dtype, nullable)])


def fit(array: pa.Array, dtype: DataType | str, nullable: bool = True) -> list[Any]:
    schema = one(PrimitiveType(dtype) if isinstance(dtype, str) else dtype, nullable)
    table = conform(pa.record_batch([array], ["c"]), schema)
    assert table.schema.equals(to_arrow(schema), check_metadata=True)
    table.validate(full=True)
    return table.column("c").to_pylist()


@unhurried
@given(st.data())
def test_data_that_fits_is_not_touched_and_in_another_guise_becomes_the_same(data: st.DataObject) -> None:
    schema, _ = data.draw(schemas())
    table = data.draw(tables(schema))
    assert conform(table, schema) is table
    skip = data.draw(st.integers(0, table.num_rows))
    columns = {name.upper(): disguise(table.column(name).combine_chunks(), data.draw).slice(skip) for name in reversed(table.column_names)}
    found = conform(pa.table(columns).replace_schema_metadata({"pandas": "{}"}), schema)
    found.validate(full=True)
    assert found.schema.equals(to_arrow(schema), check_metadata=True)
    assert rows_of(found) == rows_of(table.slice(skip))


def disguise(array: pa.Array, draw: Callable[[Any], Any]) -> pa.Array:
    """The same values in another Arrow type."""
    dtype = array.type
    types = pa.types
    if types.is_list(dtype):
        inner = disguise(array.values, draw)
        made = pa.LargeListArray if draw(st.booleans()) else pa.ListArray
        offsets = array.offsets.cast(pa.int64()) if made is pa.LargeListArray else array.offsets
        return made.from_arrays(offsets, inner, mask=array.is_null() if array.null_count else None)
    if types.is_map(dtype):
        keys, items = disguise(array.keys, draw), disguise(array.items, draw)
        return pa.MapArray.from_arrays(array.offsets, keys, items, mask=array.is_null() if array.null_count else None)
    if types.is_struct(dtype):
        order = draw(st.permutations(range(dtype.num_fields)))
        children = [disguise(array.field(index), draw) for index in order]
        names = [dtype.field(index).name.upper() for index in order]
        return pa.StructArray.from_arrays(children, names, mask=array.is_null() if array.null_count else None)
    wanted = draw(st.sampled_from(guises(dtype)))
    return array.dictionary_encode() if types.is_dictionary(wanted) else array.cast(wanted)


def guises(dtype: pa.DataType) -> list[pa.DataType]:
    types = pa.types
    others = {
        types.is_string: [pa.large_string(), pa.string_view(), pa.dictionary(pa.int16(), pa.string())],
        types.is_binary: [pa.large_binary(), pa.binary_view()],
        types.is_signed_integer: [pa.int64(), pa.decimal128(38, 2), pa.dictionary(pa.int16(), dtype)],
        types.is_float32: [pa.float64()],
        types.is_decimal: [pa.decimal256(76, 38)],
        types.is_date: [pa.date64()],
        lambda each: types.is_timestamp(each) and each.tz: [pa.timestamp("us", "America/New_York")],
    }
    return [dtype, *next((each for fits, each in others.items() if fits(dtype)), [])]


@unhurried
@given(data_types())
def test_a_missing_nullable_column_becomes_null_nested_or_not(dtype: DataType) -> None:
    schema = StructType([StructField("a", LONG), StructField("b", dtype)])
    assert conform(pa.table({"a": [1]}), schema).to_pylist() == [{"a": 1, "b": None}]
    table = pa.table({"s": pa.array([{"a": 1}, None], pa.struct([("a", pa.int64())]))})
    found = conform(table, one_struct := StructType([StructField("s", schema)]))
    assert (found.schema, found.to_pylist()) == (to_arrow(one_struct), [{"s": {"a": 1, "b": None}}, {"s": None}])


@pytest.mark.parametrize("texts", [pa.string(), pa.large_string(), pa.string_view()], ids=str)
@pytest.mark.parametrize("bounds", [(0, 3), (1, 3), (2, 3), (0, 1), (3, 3)], ids=str)
def test_maps_lose_what_is_under_nulls_and_outside_slices(texts: pa.DataType, bounds: tuple[int, int]) -> None:
    keys, values = pa.array(["a", "b", "c", "d"], texts), pa.array(["x", None, "z", "w"], texts)
    maps = pa.MapArray.from_arrays(pa.array([0, 1, 2, 4], pa.int32()), keys, values, mask=pa.array([False, True, False]))
    part = maps.slice(bounds[0], bounds[1] - bounds[0])
    conformed = conform(pa.table({"c": part}), one(MapType(PrimitiveType("string"), PrimitiveType("string"), True)))
    conformed.validate(full=True)
    assert conformed["c"].to_pylist() == part.to_pylist()


def test_an_extra_column_one_given_twice_and_a_missing_not_null_one_are_refused_by_name() -> None:
    with pytest.raises(SchemaMismatch, match=r"'d'.*merge_schema") as caught:
        conform(pa.table({"c": [1], "d": [1]}), one(LONG))
    assert caught.value.column == "d"
    with pytest.raises(SchemaMismatch, match=r"'c\.b'"):
        fit(pa.array([{"a": 1, "b": 2}]), StructType([StructField("a", LONG)]))
    with pytest.raises(SchemaMismatch, match="'C' twice"):
        conform(pa.table({"c": [1], "C": [1]}), one(LONG))
    with pytest.raises(SchemaMismatch, match="'c' is NOT NULL and missing"):
        conform(pa.table({"d": [1]}).drop_columns(["d"]), one(LONG, nullable=False))


@pytest.mark.parametrize(
    ("dtype", "value", "path"),
    [
        (LONG, None, "c"),
        (StructType([StructField("a", LONG, nullable=False)]), {"a": None}, r"c\.a"),
        (ArrayType(LONG, contains_null=False), [1, None], r"c\.element"),
        (MapType(LONG, LONG, value_contains_null=False), [(1, None)], r"c\.value"),
        (ArrayType(MapType(LONG, StructType([StructField("x", LONG, nullable=False)]))), [[(1, {"x": None})]], r"c\.element\.value\.x"),
    ],
)
def test_a_null_where_none_may_be_is_refused(dtype: DataType, value: Any, path: str) -> None:
    loose = pa.array([value], _loose(arrow_type(dtype)))
    with pytest.raises(SchemaMismatch, match=f"'{path}' is NOT NULL and the data has 1 null"):
        fit(loose, dtype, nullable=value is not None)


def _loose(dtype: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(dtype):
        return pa.struct([pa.field(each.name, _loose(each.type)) for each in dtype.fields])
    if pa.types.is_map(dtype):
        return pa.map_(dtype.key_type, _loose(dtype.item_type))
    return pa.list_(_loose(dtype.value_type)) if pa.types.is_list(dtype) else dtype


@unhurried
@given(st.data())
def test_nulls_above_a_not_null_field_are_no_nulls_of_it(data: st.DataObject) -> None:
    dtype = StructType([StructField("a", ArrayType(StructType([StructField("x", LONG, nullable=False)])), nullable=False)])
    given_values = data.draw(st.lists(st.none() | values(dtype), max_size=6))
    array = pa.array(given_values, _loose(arrow_type(dtype)))
    skip = data.draw(st.integers(0, len(given_values)))
    assert fit(array.slice(skip), dtype) == given_values[skip:]


@pytest.mark.parametrize(
    ("array", "dtype", "message"),
    [
        (pa.array(["1"]), "long", "cast it to int64"),
        (pa.array([1]), "string", "cast it to string"),
        (pa.array([1.0]), "long", "cast it to int64"),
        (pa.array([1.0]), "decimal(5,2)", "decimal128"),
        (pa.array([True]), "integer", "int32"),
        (pa.array([1]), "boolean", "bool"),
        (pa.array([b"a"]), "string", "string"),
        (pa.array(["a"]), "binary", "binary"),
        (pa.array([naive(2020, 1, 1)]), "timestamp", "zone"),
        (pa.array([naive(2020, 1, 1)]), "date", "date32"),
        (pa.array([naive(2020, 1, 1)], pa.timestamp("us", "UTC")), "timestamp_ntz", "timestamp"),
        (pa.array([[1]]), "long", "int64"),
        (pa.array([{"a": 1}]), "long", "int64"),
        (pa.array([dt.time(1)]), "long", "int64"),
        (pa.array([1]), ArrayType(LONG), "list"),
        (pa.array([1]), MapType(LONG, LONG), "map"),
        (pa.array([[1]]), StructType([StructField("a", LONG)]), "struct"),
    ],
)
def test_a_wrong_type_is_refused_with_the_remedy(array: pa.Array, dtype: DataType | str, message: str) -> None:
    with pytest.raises(SchemaMismatch, match=f"'c' is .* in the table and .* in the data; .*{message}") as caught:
        fit(array, dtype)
    assert caught.value.column == "c"


@pytest.mark.parametrize(
    ("array", "dtype"),
    [
        (pa.array([128]), "byte"),
        (pa.array([2**63], pa.uint64()), "long"),
        (pa.array([2**53 + 1]), "double"),
        (pa.array([2**24 + 1], pa.int32()), "float"),
        (pa.array([0.1]), "float"),
        (pa.array([1e300]), "float"),
        (pa.array([100]), "decimal(2,0)"),
        (pa.array([Decimal("0.01")]), "decimal(5,1)"),
        (pa.array([Decimal("100.0")]), "decimal(3,1)"),
        (pa.array([Decimal("0.5")]), "long"),
        (pa.array([1], pa.timestamp("ns")), "timestamp_ntz"),
        (pa.array([2**62], pa.timestamp("s", "UTC")), "timestamp"),
        (pa.array([1], pa.date64()), "date"),
    ],
)
def test_a_value_that_would_change_is_refused(array: pa.Array, dtype: str) -> None:
    with pytest.raises(SchemaMismatch, match=r"'c' is .*would not survive the cast"):
        fit(array, dtype)


@pytest.mark.parametrize(
    ("array", "dtype", "expected"),
    [
        (pa.array([127, None]), "byte", [127, None]),
        (pa.array([1, None], pa.uint64()), "long", [1, None]),
        (pa.array([3]), "double", [3.0]),
        (pa.array([0.5, None, float("inf")]), "float", [0.5, None, float("inf")]),
        (pa.array([2**63 - 1]), "decimal(38,19)", [Decimal("9223372036854775807.0000000000000000000")]),
        (pa.array([7]), "decimal(2,1)", [Decimal("7.0")]),
        (pa.array([Decimal("7.00")]), "integer", [7]),
        (pa.array([1000], pa.timestamp("ns")), "timestamp_ntz", [naive(1970, 1, 1, 0, 0, 0, 1)]),
        (pa.array([None, None]), "date", [None, None]),
        (pa.array([None, [1]], pa.list_(pa.int8(), 1)), ArrayType(LONG), [None, [1]]),
        (pa.array([[1], None, []], pa.list_view(pa.int8())), ArrayType(LONG), [[1], None, []]),
        (pa.array([[None], None]), ArrayType(LONG), [[None], None]),
    ],
)
def test_a_value_that_stays_the_same_is_taken(array: pa.Array, dtype: DataType | str, expected: list[Any]) -> None:
    assert fit(array, dtype) == expected


def test_extension_types_are_taken_for_what_they_store() -> None:
    ids = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"0123456789abcdef", None], pa.binary(16)))
    assert fit(ids, "binary") == [b"0123456789abcdef", None]


def test_chunks_and_slices_are_all_looked_at() -> None:
    column = pa.chunked_array([pa.array([1, 2], pa.int32()), pa.array([], pa.int32()), pa.array([3], pa.int32())])
    assert conform(pa.table({"c": column}).slice(1), one(LONG)).column("c").to_pylist() == [2, 3]
    maps = pa.array([[("a", 1)], None, [("b", None), ("c", 2)]], pa.map_(pa.string(), pa.int32()))
    assert fit(maps.slice(1), MapType(PrimitiveType("string"), LONG)) == [None, [("b", None), ("c", 2)]]


def test_rows_of_a_file_are_taken_as_they_are() -> None:
    schema = StructType([StructField("t", PrimitiveType("timestamp")), StructField("n", LONG, nullable=False)])
    found = adapt(pa.table({"gone": [1], "T": pc.cast(pa.array([0]), pa.timestamp("us"))}), schema)
    assert found.schema == to_arrow(schema)
    assert found.to_pylist() == [{"t": dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc), "n": None}]
