from __future__ import annotations

import json
import pickle

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.storage.errors import Corrupt, InvalidRequest, NotATable, SchemaMismatch, UnsupportedFeature
from sluice.storage.schema.schema import (
    ArrayType,
    DataType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    check_new_schema,
    from_arrow,
    merge,
    parse_schema,
    schema_to_json,
    stored_schema,
    to_arrow,
)
from tests.storage.strategies import data_types, schemas, unhurried

LONG = PrimitiveType("long")
STRING = PrimitiveType("string")

# As Delta-Spark writes it: an invariant, a comment, nested types with their own nullability.
SPARK = json.dumps(
    {
        "type": "struct",
        "fields": [
            {
                "name": "id",
                "type": "long",
                "nullable": False,
                "metadata": {"delta.invariants": '{"expression":{"expression":"id > 0"}}', "n": 2**60, "nested": {"a": [1, None]}},
            },
            {"name": "price", "type": "decimal(38,18)", "nullable": True, "metadata": {}},
            {"name": "tags", "type": {"type": "array", "elementType": "string", "containsNull": False}, "nullable": True, "metadata": {}},
            {
                "name": "m",
                "type": {
                    "type": "map",
                    "keyType": "string",
                    "valueType": {"type": "struct", "fields": [{"name": "at", "type": "timestamp_ntz", "nullable": False, "metadata": {}}]},
                    "valueContainsNull": True,
                },
                "nullable": True,
                "metadata": {"comment": "é"},
            },
        ],
    },
    separators=(",", ":"),
    ensure_ascii=False,
)


def struct(**fields: DataType) -> StructType:
    return StructType(StructField(name, dtype) for name, dtype in fields.items())


def test_json_survives_unchanged_metadata_included() -> None:
    assert schema_to_json(parse_schema(SPARK)) == SPARK
    assert parse_schema(SPARK).fields[0].metadata["delta.invariants"] == '{"expression":{"expression":"id > 0"}}'


@unhurried
@given(schemas())
def test_any_schema_survives_json(made: tuple[StructType, list[str]]) -> None:
    assert parse_schema(schema_to_json(made[0])) == made[0]


@unhurried
@given(schemas())
def test_any_schema_survives_a_trip_to_another_process(made: tuple[StructType, list[str]]) -> None:
    found = pickle.loads(pickle.dumps(made[0]))
    assert found == made[0]
    assert hash(found) == hash(made[0])
    assert str(hash(made[0])).encode() not in pickle.dumps(made[0], protocol=0), "the hash of text is another one there"


@unhurried
@given(schemas())
def test_any_schema_survives_arrow(made: tuple[StructType, list[str]]) -> None:
    assert from_arrow(to_arrow(made[0])) == made[0]


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
    inner = StructType([StructField("v", ArrayType(PrimitiveType("variant")))])
    nested = StructType([StructField("a", PrimitiveType("long")), StructField("s", MapType(PrimitiveType("string"), inner))])
    with pytest.raises(UnsupportedFeature, match=r"column 's\.value\.v\.element' has the type 'variant'") as caught:
        to_arrow(nested)
    assert caught.value.column == "s.value.v.element"


VOID = PrimitiveType("void")


def test_void_columns_hold_nulls_and_are_made_by_nobody() -> None:
    schema = struct(a=PrimitiveType("long"), v=VOID, s=struct(x=PrimitiveType("long"), y=VOID))
    assert to_arrow(schema).field("v").type == pa.null()
    assert stored_schema(schema, ()) == struct(a=PrimitiveType("long"), s=struct(x=PrimitiveType("long")))
    plain = struct(a=PrimitiveType("long"))
    assert stored_schema(plain, ()) == plain
    with pytest.raises(SchemaMismatch, match=r"column 'v' has no type \(void\)"):
        check_new_schema(schema, [])
    with pytest.raises(SchemaMismatch, match=r"column 's.y' has no type \(void\)"):
        merge(struct(s=struct(x=PrimitiveType("long"))), struct(s=struct(x=PrimitiveType("long"), y=VOID)))
    assert merge(plain, struct(a=VOID)) is plain, "nulls alone fit every column"
    for bad in (struct(v=VOID), struct(a=PrimitiveType("long"), l=ArrayType(VOID)), struct(a=PrimitiveType("long"), s=struct(y=VOID))):
        with pytest.raises(UnsupportedFeature, match="which Parquet cannot represent"):
            stored_schema(bad, ())


@pytest.mark.parametrize("name", ["variant", "interval day", "decimal(39,0)", "decimal(5,6)", "geometry(4326)"])
def test_a_type_of_another_age_can_be_looked_at_but_not_used(name: str) -> None:
    schema = parse_schema('{"type":"struct","fields":[{"name":"v","type":"' + name + '","nullable":true,"metadata":{}}]}')
    assert str(schema) == f"struct<v: {name}>"
    with pytest.raises(UnsupportedFeature, match=name.replace("(", r"\(").replace(")", r"\)")):
        to_arrow(schema)


@pytest.mark.parametrize(
    ("arrow", "name"),
    [
        (pa.uint8(), "short"),
        (pa.uint16(), "integer"),
        (pa.uint32(), "long"),
        (pa.uint64(), "decimal(20,0)"),
        (pa.float16(), "float"),
        (pa.large_string(), "string"),
        (pa.string_view(), "string"),
        (pa.dictionary(pa.int8(), pa.string()), "string"),
        (pa.run_end_encoded(pa.int32(), pa.int16()), "short"),
        (pa.binary(16), "binary"),
        (pa.large_binary(), "binary"),
        (pa.binary_view(), "binary"),
        (pa.date64(), "date"),
        (pa.timestamp("ns"), "timestamp_ntz"),
        (pa.timestamp("s", "Europe/Berlin"), "timestamp"),
        (pa.decimal256(38, 2), "decimal(38,2)"),
        (pa.uuid(), "binary"),
    ],
)
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
    assert [PrimitiveType(name).name for name in ("decimal", "decimal( 5 , 2 )", "int", "bigint")] == [
        "decimal(10,0)",
        "decimal(5,2)",
        "integer",
        "long",
    ]


def test_merging_adds_columns_at_the_end_and_in_nested_structs() -> None:
    table = StructType(
        [StructField("id", LONG, nullable=False), StructField("s", struct(a=LONG)), StructField("l", ArrayType(struct(a=LONG)))]
    )
    added = StructType([StructField("z", STRING, nullable=False), StructField("w", ArrayType(LONG, contains_null=False))])
    data = StructType(
        [
            StructField("NEW", added, nullable=False),
            StructField("L", ArrayType(struct(b=MapType(STRING, LONG, value_contains_null=False)))),
            StructField("S", struct(b=LONG, A=LONG)),
        ]
    )
    assert merge(table, data) == StructType(
        [
            StructField("id", LONG, nullable=False),
            StructField("s", struct(a=LONG, b=LONG)),
            StructField("l", ArrayType(struct(a=LONG, b=MapType(STRING, LONG)))),
            StructField("NEW", struct(z=STRING, w=ArrayType(LONG))),
        ]
    )


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
        (struct(a=PrimitiveType("variant")), [], "'variant'"),
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
