from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.storage.errors import Corrupt, SchemaMismatch
from sluice.storage.schema.arrow_schema import arrow_type
from sluice.storage.schema.partitions import decode_column, decode_value, encode_value, folder, path_to_uri, uri_to_path
from sluice.storage.schema.schema import PrimitiveType
from tests.storage.strategies import TEXT, comparable, naive, primitive_types, primitive_values, unhurried

UTC = dt.timezone.utc


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("string", "a b", "a b"),
        ("string", "", None),
        ("binary", b"ab", "ab"),
        ("binary", b"", None),
        ("boolean", True, "true"),
        ("boolean", False, "false"),
        ("byte", -128, "-128"),
        ("long", 2**63 - 1, "9223372036854775807"),
        ("float", 0.10000000149011612, "0.1"),
        ("double", 0.1, "0.1"),
        ("double", float("nan"), "NaN"),
        ("double", float("inf"), "Infinity"),
        ("float", float("-inf"), "-Infinity"),
        ("decimal(10,2)", Decimal("1.5"), "1.50"),
        ("decimal(38,38)", Decimal("-1E-38"), "-0." + "0" * 37 + "1"),
        ("decimal(5,0)", Decimal("1E+2"), "100"),
        ("date", dt.date(1, 2, 3), "0001-02-03"),
        ("timestamp", dt.datetime(2020, 1, 1, 2, tzinfo=dt.timezone(dt.timedelta(hours=2))), "2020-01-01T00:00:00.000000Z"),
        ("timestamp_ntz", naive(2020, 1, 1, 0, 0, 0, 5), "2020-01-01 00:00:00.000005"),
        ("timestamp_ntz", naive(2020, 1, 1), "2020-01-01 00:00:00"),
    ],
)
def test_values_are_written_as_the_protocol_says(name: str, value: Any, text: str | None) -> None:
    assert encode_value(value, PrimitiveType(name)) == text


@unhurried
@given(st.data(), primitive_types())
def test_a_value_comes_back_from_its_text(data: st.DataObject, dtype: PrimitiveType) -> None:
    pool = TEXT.map(str.encode) if dtype.name == "binary" else primitive_values(dtype)
    value = pa.scalar(data.draw(pool), arrow_type(dtype)).as_py()
    expected = None if value in ("", b"") else value
    assert comparable(decode_value(encode_value(value, dtype), dtype)) == comparable(expected)


@unhurried
@given(st.data(), primitive_types())
def test_a_column_is_decoded_as_its_values_are(data: st.DataObject, dtype: PrimitiveType) -> None:
    pool = TEXT.map(str.encode) if dtype.name == "binary" else primitive_values(dtype)
    texts = [encode_value(value, dtype) for value in data.draw(st.lists(st.none() | pool, max_size=5))]
    column = decode_column(pa.array(texts, pa.string()), dtype)
    assert column.type == arrow_type(dtype)
    assert comparable(column.to_pylist()) == comparable([decode_value(text, dtype) for text in texts])


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
