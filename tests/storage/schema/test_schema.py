""" """

from __future__ import annotations

import datetime as dt
import pickle
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.storage.errors import Corrupt, InvalidRequest, NotATable, SchemaMismatch, UnsupportedFeature
from sluice.storage.schema.datatypes import ArrayType, DataType, MapType, PrimitiveType, StructField, StructType, arrow_type
from sluice.storage.schema.partitions import decode_column, decode_value, encode_value, folder, path_to_uri, uri_to_path
from sluice.storage.schema.schema import check_new_schema, from_arrow, merge, parse_schema, schema_to_json, stored_schema, to_arrow
from tests.storage.strategies import TEXT, comparable, data_types, naive, primitive_types, primitive_values, schemas, unhurried

LONG = PrimitiveType("long")
STRING = PrimitiveType("string")

# As Delta-Spark writes it: an invariant, a comment, nested types with their own nullability.
SPARK = (
    '{"type":"struct","fields":['
    '{"name":"id","type":"long","nullable":false,"metadata":{"delta.invariants":"{\\"expression\\":{\\"expression\\":\\"id > 0\\"}}",'
    '"n":1152921504606846976,"nested":{"a":[1,null]}}},'
    '{"name":"price","type":"decimal(38,18)","nullable":true,"metadata":{}},'
    '{"name":"tags","type":{"type":"array","elementType":"string","containsNull":false},"nullable":true,"metadata":{}},'
    '{"name":"m","type":{"type":"map","keyType":"string","valueType":{"type":"struct","fields":['
    '{"name":"at","type":"timestamp_ntz","nullable":false,"metadata":{}}]},"valueContainsNull":true},"nullable":true,"metadata":{"comment":"é"}}]}'
)


def struct(**fields: DataType) -> StructType:
    return StructType(StructField(name, dtype) for name, dtype in fields.items())


def test_json_survives_unchanged_metadata_included() -> None:
    assert schema_to_json(parse_schema(SPARK)) == SPARK
    assert parse_schema(SPARK).fields[0].metadata["delta.invariants"] == '{"expression":{"expression":"id > 0"}}'


@unhurried
@given(schemas())
def test_any_schema_survives_json_arrow_and_a_trip_to_another_process(made: tuple[StructType, list[str]]) -> None:
    found = pickle.loads(pickle.dumps(made[0]))
    assert (found, hash(found)) == (made[0], hash(made[0]))
    assert str(hash(made[0])).encode() not in pickle.dumps(made[0], protocol=0), "the hash of text is another one there"
    assert parse_schema(schema_to_json(made[0])) == from_arrow(to_arrow(made[0])) == made[0]


def test_arrow_types_are_the_ones_readers_expect() -> None:
    assert to_arrow(parse_schema(SPARK)) == pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            pa.field("price", pa.decimal128(38, 18)),
            pa.field("tags", pa.list_(pa.field("element", pa.string(), nullable=False))),
            pa.field("m", pa.map_(pa.string(), pa.struct([pa.field("at", pa.timestamp("us"), nullable=False)]))),
        ]
    )
    assert to_arrow(struct(t=PrimitiveType("timestamp"))).field("t").type == pa.timestamp("us", "UTC")


@pytest.mark.parametrize(
    "text", ["[]", '"long"', '{"type":"struct"}', '{"type":"list","fields":[]}', '{"type":"struct","fields":[{"name":"a"}]}']
)
def test_what_is_no_schema_is_corrupt(text: str) -> None:
    with pytest.raises(Corrupt, match="not a Delta schema"):
        parse_schema(text)


def test_a_table_may_have_no_schema_yet() -> None:
    with pytest.raises(NotATable, match="has no columns yet"):
        parse_schema("")


def test_a_type_that_is_not_known_is_told_with_its_column() -> None:
    nested = struct(a=LONG, s=MapType(STRING, struct(v=ArrayType(PrimitiveType("hologram")))))
    with pytest.raises(UnsupportedFeature, match=r"column 's\.value\.v\.element' has the type 'hologram'") as caught:
        to_arrow(nested)
    assert caught.value.column == "s.value.v.element"


VOID = PrimitiveType("void")


def test_void_columns_hold_nulls_and_are_made_by_nobody() -> None:
    schema = struct(a=LONG, v=VOID, s=struct(x=LONG, y=VOID))
    plain = struct(a=LONG)
    assert to_arrow(schema).field("v").type == pa.null()
    assert (stored_schema(schema, ()), stored_schema(plain, ())) == (struct(a=LONG, s=struct(x=LONG)), plain)
    with pytest.raises(SchemaMismatch, match=r"column 'v' has no type \(void\)"):
        check_new_schema(schema, [])
    with pytest.raises(SchemaMismatch, match=r"column 's.y' has no type \(void\)"):
        merge(struct(s=struct(x=LONG)), struct(s=struct(x=LONG, y=VOID)))
    assert merge(plain, struct(a=VOID)) is plain, "nulls alone fit every column"
    for bad in (struct(v=VOID), struct(a=LONG, l=ArrayType(VOID)), struct(a=LONG, s=struct(y=VOID))):
        with pytest.raises(UnsupportedFeature, match="which Parquet cannot represent"):
            stored_schema(bad, ())


@pytest.mark.parametrize("name", ["hologram", "interval day", "decimal(39,0)", "decimal(5,6)", "geometry(4326)"])
def test_a_type_of_another_age_can_be_looked_at_but_not_used(name: str) -> None:
    schema = parse_schema('{"type":"struct","fields":[{"name":"v","type":"' + name + '","nullable":true,"metadata":{}}]}')
    assert str(schema) == f"struct<v: {name}>"
    with pytest.raises(UnsupportedFeature, match=name.replace("(", r"\(").replace(")", r"\)")):
        to_arrow(schema)


WIDER: dict[str, list[pa.DataType]] = {
    "short": [pa.uint8(), pa.run_end_encoded(pa.int32(), pa.int16())],
    "integer": [pa.uint16()],
    "long": [pa.uint32()],
    "decimal(20,0)": [pa.uint64()],
    "decimal(38,2)": [pa.decimal256(38, 2)],
    "float": [pa.float16()],
    "string": [pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())],
    "binary": [pa.binary(16), pa.large_binary(), pa.binary_view(), pa.uuid()],
    "date": [pa.date64()],
    "timestamp": [pa.timestamp("s", "Europe/Berlin")],
    "timestamp_ntz": [pa.timestamp("ns")],
}


@pytest.mark.parametrize(("arrow", "name"), [(arrow, name) for name, types in WIDER.items() for arrow in types])
def test_arrow_types_without_a_twin_become_the_next_wider_one(arrow: pa.DataType, name: str) -> None:
    assert from_arrow(pa.schema([("c", arrow)])) == struct(c=PrimitiveType(name))


@pytest.mark.parametrize("arrow", [pa.time64("us"), pa.duration("s"), pa.decimal256(39, 0), pa.decimal128(5, -2), pa.dense_union([])])
def test_arrow_types_delta_has_no_place_for_are_refused(arrow: pa.DataType) -> None:
    with pytest.raises(SchemaMismatch, match=r"'s\.c' has the Arrow type"):
        from_arrow(pa.schema([("s", pa.struct([("c", arrow)]))]))


def test_every_list_type_is_an_array() -> None:
    for made in (pa.list_, pa.large_list, pa.list_view, pa.large_list_view, lambda inner: pa.list_(inner, 3)):
        assert from_arrow(pa.schema([("c", made(pa.int64()))])) == struct(c=ArrayType(LONG))


def test_fields_are_found_whatever_their_case_but_the_exact_one_first() -> None:
    schema = struct(a=LONG, A=STRING)
    assert [found and found.type for found in (schema.get("A"), schema.get("a"), schema.get("b"))] == [STRING, LONG, None]


def test_names_of_types_are_made_uniform() -> None:
    names = {"decimal": "decimal(10,0)", "decimal( 5 , 2 )": "decimal(5,2)", "int": "integer", "bigint": "long"}
    assert {name: PrimitiveType(name).name for name in names} == names


def test_merging_adds_columns_at_the_end_and_in_nested_structs() -> None:
    key = StructField("id", LONG, nullable=False)
    table = StructType([key, *struct(s=struct(a=LONG), l=ArrayType(struct(a=LONG))).fields])
    added = StructType([StructField("z", STRING, nullable=False), StructField("w", ArrayType(LONG, contains_null=False))])
    inner = MapType(STRING, LONG, value_contains_null=False)
    data = StructType([StructField("NEW", added, nullable=False), *struct(L=ArrayType(struct(b=inner)), S=struct(b=LONG, A=LONG)).fields])
    lists, new = ArrayType(struct(a=LONG, b=MapType(STRING, LONG))), struct(z=STRING, w=ArrayType(LONG))
    assert merge(table, data) == StructType([key, *struct(s=struct(a=LONG, b=LONG), l=lists, NEW=new).fields])


def test_merging_keeps_metadata_and_the_tables_types() -> None:
    table = parse_schema(SPARK)
    assert merge(table, StructType([StructField("ID", PrimitiveType("integer"), metadata={"comment": "mine"})])) is table


@unhurried
@given(schemas(), schemas())
def test_merging_twice_is_merging_once(table: tuple[StructType, list[str]], data: tuple[StructType, list[str]]) -> None:
    renamed = StructType(StructField(each.name + "x", each.type, each.nullable) for each in data[0].fields if each.name.startswith("c"))
    merged = merge(table[0], renamed)
    assert merge(merged, renamed) == merged
    assert merged.names == table[0].names + renamed.names


@pytest.mark.parametrize(
    ("mine", "theirs", "column"),
    [
        (LONG, STRING, "c"),
        (STRING, LONG, "c"),
        (LONG, PrimitiveType("double"), "c"),
        (PrimitiveType("timestamp"), PrimitiveType("timestamp_ntz"), "c"),
        (LONG, ArrayType(LONG), "c"),
        (struct(a=LONG), struct(a=STRING), r"c\.a"),
        (ArrayType(LONG), ArrayType(STRING), r"c\.element"),
        (MapType(STRING, LONG), MapType(STRING, STRING), r"c\.value"),
    ],
)
def test_merging_changes_no_type(mine: DataType, theirs: DataType, column: str) -> None:
    with pytest.raises(SchemaMismatch, match=f"'{column}' is .* in the table"):
        merge(struct(c=mine), struct(c=theirs))


def test_merging_refuses_names_delta_does_not_allow() -> None:
    with pytest.raises(SchemaMismatch, match="'a b' contains"):
        merge(struct(c=LONG), StructType([StructField("a b", LONG)]))
    with pytest.raises(SchemaMismatch, match="'n' and 'N' are the same"):
        merge(struct(c=LONG), struct(n=LONG, N=LONG))


@pytest.mark.parametrize(
    ("schema", "partitions", "message"),
    [
        (struct(), [], "no column"),
        (struct(a=LONG, A=LONG), [], "'a' and 'A' are the same"),
        (struct(s=struct(x=LONG, X=LONG)), [], r"'s\.x' and 's\.X' are the same"),
        (StructType([StructField("", LONG)]), [], "empty name"),
        (StructType([StructField("a,b", LONG)]), [], "'a,b' contains"),
        (struct(a=PrimitiveType("hologram")), [], "'hologram'"),
        (struct(a=LONG), ["b"], "'b' is not in the schema; its columns are a"),
        (struct(a=ArrayType(LONG), b=LONG), ["a"], "only columns of primitive types"),
        (struct(a=LONG, b=LONG), ["a", "a"], "named twice"),
        (struct(a=LONG), ["a"], "every column is a partition column"),
    ],
)
def test_a_table_cannot_be_made_with_everything(schema: StructType, partitions: list[str], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        check_new_schema(schema, partitions)


@unhurried
@given(st.lists(data_types(), min_size=1, max_size=3))
def test_a_table_can_be_made_with_every_type(types: list[DataType]) -> None:
    schema = StructType(StructField(f"c{index}", dtype) for index, dtype in enumerate(types))
    check_new_schema(schema, [])
    assert len(to_arrow(schema)) == len(types)


UTC = dt.timezone.utc


TEXTS: dict[str, dict[Any, str | None]] = {
    "string": {"a b": "a b", "": None},
    "binary": {b"ab": "ab", b"": None},
    "boolean": {True: "true", False: "false"},
    "byte": {-128: "-128"},
    "long": {2**63 - 1: "9223372036854775807"},
    "float": {0.10000000149011612: "0.1", float("-inf"): "-Infinity"},
    "double": {0.1: "0.1", float("nan"): "NaN", float("inf"): "Infinity"},
    "decimal(10,2)": {Decimal("1.5"): "1.50", Decimal("-0.001E1"): "-0.01", Decimal("-0"): "0.00"},
    "decimal(38,38)": {Decimal("-1E-38"): "-0." + "0" * 37 + "1"},
    "decimal(5,0)": {Decimal("1E+2"): "100"},
    "date": {dt.date(1, 2, 3): "0001-02-03"},
    "timestamp": {dt.datetime(2020, 1, 1, 2, tzinfo=dt.timezone(dt.timedelta(hours=2))): "2020-01-01T00:00:00.000000Z"},
    "timestamp_ntz": {naive(2020, 1, 1, 0, 0, 0, 5): "2020-01-01 00:00:00.000005", naive(2020, 1, 1): "2020-01-01 00:00:00"},
}


@pytest.mark.parametrize(("name", "value", "text"), [(name, *each) for name, texts in TEXTS.items() for each in texts.items()])
def test_values_are_written_as_the_protocol_says(name: str, value: Any, text: str | None) -> None:
    assert encode_value(value, PrimitiveType(name)) == text


@unhurried
@given(st.data(), primitive_types())
def test_values_come_back_from_their_texts_one_by_one_and_as_a_column(data: st.DataObject, dtype: PrimitiveType) -> None:
    pool = TEXT.map(str.encode) if dtype.name == "binary" else primitive_values(dtype)
    values = pa.array(data.draw(st.lists(st.none() | pool, max_size=5)), arrow_type(dtype)).to_pylist()
    texts = [encode_value(value, dtype) for value in values]
    column = decode_column(pa.array(texts, pa.string()), dtype)
    assert column.type == arrow_type(dtype)
    assert comparable(column.to_pylist()) == comparable([None if value in ("", b"") else value for value in values])
    assert comparable([decode_value(text, dtype) for text in texts]) == comparable(column.to_pylist())


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2020-01-02 03:04:05", dt.datetime(2020, 1, 2, 3, 4, 5, tzinfo=UTC)),
        ("2020-01-02 03:04:05.123456", dt.datetime(2020, 1, 2, 3, 4, 5, 123456, tzinfo=UTC)),
        ("2020-01-02T03:04:05.123Z", dt.datetime(2020, 1, 2, 3, 4, 5, 123000, tzinfo=UTC)),
        ("2020-01-02T03:04:05+02:00", dt.datetime(2020, 1, 2, 1, 4, 5, tzinfo=UTC)),
        ("", None),
        (None, None),
    ],
)
def test_timestamps_of_other_writers_are_understood(text: str | None, moment: dt.datetime | None) -> None:
    assert decode_value(text, PrimitiveType("timestamp")) == moment


def test_a_text_that_is_no_value_is_corruption() -> None:
    with pytest.raises(Corrupt, match=r"not of type integer.*twelve"):
        decode_value("twelve", PrimitiveType("integer"))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("binary", b"\xff"),
        ("long", "1"),
        ("long", True),
        ("boolean", 1),
        ("date", naive(2020, 1, 1)),
        ("timestamp", naive(2020, 1, 1)),
        ("timestamp_ntz", dt.datetime(2020, 1, 1, tzinfo=UTC)),
        ("decimal(3,1)", Decimal(100)),
        ("decimal(3,1)", Decimal("0.01")),
        ("decimal(3,1)", Decimal("NaN")),
        ("string", 1),
        ("float", 1e300),
    ],
)
def test_a_value_of_another_type_is_refused(name: str, value: Any) -> None:
    with pytest.raises(SchemaMismatch, match=r"cannot be a partition value of type " + name.replace("(", r"\(").replace(")", r"\)")):
        encode_value(value, PrimitiveType(name))


def test_folders_are_named_as_spark_names_them() -> None:
    # ExternalCatalogUtils.escapePathName of Spark 4.1, asked for every character below 200.
    escaped = {*range(1, 32), 34, 35, 37, 39, 42, 47, 58, 61, 63, 91, 92, 93, 94, 123, 127}
    for code in range(1, 200):
        char = chr(code)
        assert folder(["k"], {"k": "x" + char}) == "k=x" + (f"%{code:02X}" if code in escaped else char)


def test_folders_of_several_columns_and_of_none() -> None:
    assert folder(["origin", "a/b"], {"a/b": None, "origin": "JFK", "other": "x"}) == "origin=JFK/a%2Fb=__HIVE_DEFAULT_PARTITION__"
    assert folder(["a"], {"a": ""}) == "a=__HIVE_DEFAULT_PARTITION__"
    assert folder([], {}) == ""


def test_a_folder_of_a_long_value_fits_into_a_file_system_and_stays_its_own() -> None:
    one, other = (folder(["k"], {"k": "é" * 200 + end}) for end in "ab")
    assert one != other
    assert len(one.encode()) <= 255


@unhurried
@given(st.lists(TEXT.filter(bool), min_size=1, max_size=3))
def test_a_path_comes_back_from_its_uri(parts: list[str]) -> None:
    key = "/".join(parts)
    uri = path_to_uri(key)
    assert uri.isascii()
    assert not set(uri) & set(' #?%[]<>"\\^`{|}\n:') - {"%"}
    assert uri_to_path(uri) == key
