"""Types as Spark SQL writes them."""

from __future__ import annotations

import pytest

from sluice.storage.errors import SchemaMismatch
from sluice.storage.schema.datatypes import ArrayType, DataType, MapType, PrimitiveType, StructField, StructType
from sluice.storage.schema.sqltypes import parse_sql_type

INT, TEXT, DECIMAL = (PrimitiveType(name) for name in ("integer", "string", "decimal(10,2)"))


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("int", INT),
        (" BigInt ", PrimitiveType("long")),
        ("TINYINT", PrimitiveType("byte")),
        ("real", PrimitiveType("float")),
        ("timestamp_ltz", PrimitiveType("timestamp")),
        ("timestamp_ntz", PrimitiveType("timestamp_ntz")),
        ("varchar(10)", TEXT),
        ("char( 3 )", TEXT),
        ("decimal", PrimitiveType("decimal(10,0)")),
        ("numeric(12)", PrimitiveType("decimal(12,0)")),
        ("DEC(38, 38)", PrimitiveType("decimal(38,38)")),
        ("array<int>", ArrayType(INT)),
        ("MAP<string, array<int>>", MapType(TEXT, ArrayType(INT))),
        ("struct<>", StructType(())),
        ("struct<A: int, b string>", StructType((StructField("A", INT), StructField("b", TEXT)))),
        ("struct<`a ``, b`: int NOT NULL>", StructType((StructField("a `, b", INT, False),))),
        ("struct<d: decimal(10, 2) COMMENT 'the, \\'sum'>", StructType((StructField("d", DECIMAL, True, {"comment": "the, 'sum"}),))),
        (
            "array<struct<a: map<string, int>, b: int>>",
            ArrayType(StructType((StructField("a", MapType(TEXT, INT)), StructField("b", INT)))),
        ),
    ],
)
def test_types_are_read(text: str, kind: DataType) -> None:
    assert parse_sql_type(text) == kind


REFUSED = ("varchar(0)", "char(0)", "varchar()", "", "strng", "decimal(39,0)", "decimal(5,6)", "decimal(0)")


@pytest.mark.parametrize("text", [*REFUSED, "array<int, int>", "map<int>", "array<>", "int>"])
def test_what_is_no_type_is_refused_by_name(text: str) -> None:
    with pytest.raises(SchemaMismatch, match="is not a type of Spark SQL; write one like") as raised:
        parse_sql_type(text)
    assert raised.value.type == text


@pytest.mark.parametrize(
    ("text", "field"), [("struct<id bigint,,x int>", ""), ("struct<,id int>", ""), ("struct<id int,>", ""), ("struct<a>", "a")]
)
def test_a_field_that_is_missing_or_none_is_refused(text: str, field: str) -> None:
    with pytest.raises(SchemaMismatch, match=f"'{field}' in '{text}' is not a field"):
        parse_sql_type(text)
