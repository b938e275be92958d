"""Rows of other types than the table's: taken in or refused as Spark's own tables do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, ArithmeticException
from pyspark.sql import DataFrame

import sluice

from ..conftest import Place

pytestmark = pytest.mark.spark

TAKEN = {
    "a BIGINT": "CAST(7 AS INT)",
    "b INT": "7L",
    "c INT": "-7.9D",
    "d STRING": "12",
    "e STRING": "DATE'2026-01-02'",
    "f DECIMAL(5, 2)": "1.239BD",
    "g DATE": "TIMESTAMP'2026-01-02 23:30:00'",
    "h TIMESTAMP": "DATE'2026-01-02'",
    "i ARRAY<INT>": "array(1L, NULL)",
    "j FLOAT": "0.1D",
    "k STRUCT<x: INT, y: STRING>": "named_struct('x', 1L, 'y', 2)",
    "l TINYINT": "NULL",
    "m DOUBLE": "3L",
    "n TIMESTAMP_NTZ": "TIMESTAMP'2026-01-02 23:30:00'",
}
REFUSED = {"b": ("'7'", "true", "DATE'2026-01-02'", "array(1)"), "g": ("'2026-01-02'", "5"), "i": ("array('1')", "1"), "k": ("'x'",)}
TOO_LARGE = {"b": ("3000000000L", "CAST('NaN' AS DOUBLE)"), "f": ("12345.6BD",), "i": ("array(3000000000L)",)}
TOO_LARGE_FOR = "CAST_OVERFLOW_IN_TABLE_INSERT"
UNSAFE = "INCOMPATIBLE_DATA_FOR_TABLE.CANNOT_SAFELY_CAST"


@pytest.fixture
def native(place: Place, tmp_path: Path) -> Iterator[str]:
    """A table of Spark's own with the same columns."""
    place.spark.sql(f"CREATE TABLE taken ({', '.join(TAKEN)}) USING parquet LOCATION '{tmp_path}/native'")
    yield "taken"
    place.spark.sql("DROP TABLE taken")


def rows(place: Place, **others: str) -> DataFrame:
    values = {name.split()[0]: value for name, value in TAKEN.items()} | others
    return place.spark.sql("SELECT " + ", ".join(f"{value} AS {name}" for name, value in values.items()))


def refusal(frame: DataFrame, place: Place | str) -> str | None:
    try:
        if isinstance(place, str):
            frame.write.insertInto(place)
        else:
            frame.write.format("sluice").option("coordinator", place.coordinator).mode("append").save(place.location)
    except (AnalysisException, ArithmeticException) as error:
        return error.getCondition()
    return None


def test_values_are_stored_as_sparks_own_tables_store_them(place: Place, native: str) -> None:
    frame = rows(place)
    place.write(place.spark.table(native))
    assert refusal(frame, native) is refusal(frame, place) is None
    kept = place.scan()
    assert kept.collect() == place.spark.table(native).collect()
    assert kept.dtypes == place.spark.table(native).dtypes
    for name, values in REFUSED.items():
        for value in values:
            assert refusal(rows(place, **{name: value}), native) == refusal(rows(place, **{name: value}), place) == UNSAFE, value
    place.spark.conf.set("spark.sql.ansi.enabled", "false")  # the rule for storing does not depend on it
    try:
        for name, values in TOO_LARGE.items():
            for value in values:
                assert refusal(rows(place, **{name: value}), native) == refusal(rows(place, **{name: value}), place) == TOO_LARGE_FOR, value
    finally:
        place.spark.conf.unset("spark.sql.ansi.enabled")
    assert kept.count() == place.scan().count() == 1


def test_only_what_does_not_fit_is_cast(place: Place) -> None:
    place.create(pa.schema([("Id", pa.int64()), ("s", pa.struct([("x", pa.int32())])), ("n", pa.int16())]))
    frame = place.spark.sql("SELECT 1 AS id, named_struct('x', 1, 'y', 2) AS s, 5L AS n, 'more' AS more")
    with pytest.raises(sluice.errors.SchemaMismatch, match="'s' has no field y"):
        place.write(frame)
    place.write(frame, mergeSchema=True)
    assert place.rows() == [{"Id": 1, "s": {"x": 1, "y": 2}, "n": 5, "more": "more"}]
    place.write(place.spark.sql("SELECT 2L AS n"), "overwrite", replaceWhere="n < 10")
    assert [row["n"] for row in place.rows()] == [2]
