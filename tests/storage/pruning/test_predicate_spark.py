"""Every predicate here must select exactly what Spark itself selects, over values chosen to disagree about."""

from __future__ import annotations

from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from sluice.storage.errors import PredicateError
from sluice.storage.pruning.predicate import Predicate
from sluice.storage.schema.schema import from_arrow
from tests.spark_integration.conftest import spark

__all__ = ["spark"]

pytestmark = pytest.mark.spark

UTC = timezone.utc
NAN = float("nan")
INF = float("inf")
MOMENTS = [
    *(datetime(1970, 1, 1, tzinfo=UTC), datetime(2020, 2, 29, 12, 30, 15, 123456, UTC), datetime(1969, 12, 31, 23, 59, 59, 999999, UTC)),
    *(datetime(1900, 1, 1, tzinfo=UTC), datetime(2262, 4, 12, tzinfo=UTC), datetime(2013, 1, 1, tzinfo=UTC)),
    *(datetime(2013, 12, 31, 23, 59, 59, tzinfo=UTC), datetime(2000, 1, 1, 1, tzinfo=UTC), datetime(2024, 12, 30, tzinfo=UTC)),
    *(datetime(1960, 5, 5, 5, 5, 5, 5, UTC), datetime(2013, 6, 15, 8, tzinfo=UTC)),
]


def decimals(text: str) -> list[Decimal | None]:
    """Numbers, the first of them null."""
    return [None, *map(Decimal, text.split())]


COLUMNS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "id": (pa.int32(), list(range(12))),
    "t": (pa.int8(), [None, 0, 1, -1, 127, -128, 5, 7, None, 2, 3, 100]),
    "h": (pa.int16(), [None, 0, 1, -1, 32767, -32768, 5, 128, None, 2, 3, 300]),
    "i": (pa.int32(), [None, 0, 1, -1, 2**31 - 1, -(2**31), 5, 70000, None, 2, 3, 2013]),
    "l": (pa.int64(), [None, 0, 1, -1, 2**63 - 1, -(2**63), 2**53 + 1, 2**53, None, 2, 3, 10**12]),
    "f": (pa.float32(), [None, 0.0, -0.0, 1.5, NAN, INF, -INF, 0.1, 3.4e38, 16777217.0, None, 2.0]),
    "d": (pa.float64(), [None, 0.0, -0.0, 1.5, NAN, INF, -INF, 0.1, 1e300, 9007199254740993.0, None, 2.0]),
    "m": (pa.decimal128(10, 2), decimals("0 1.50 -1.50 99999999.99 -99999999.99 0.01 0.10 2 3.33 7 10")),
    "w": (pa.decimal128(38, 18), decimals("0 1.5 -1.5 99999999999999999999.999999999999999999 0.000000000000000001 0.1 2 3 5 7 -0.1")),
    "s": (pa.string(), [None, "", "a", "A", "abc", "a_c", "a%c", "Straße", "éa", "日本", "it's \\ok", " 12 "]),
    "n": (pa.string(), [None, "1", "-5", " 7 ", "2147483648", "0", "12", "3", "100", "-0", "+4", "8"]),
    "x": (pa.binary(), [None, b"", b"a", b"\x00", b"\xff", b"ab", b"\x7f", b"\x80", b"abc", b"z", b"A", b"\x01\x02"]),
    "b": (pa.bool_(), [None, True, False, True, False, None, True, False, True, True, False, None]),
    "day": (
        pa.date32(),
        [
            *(None, date(1970, 1, 1), date(2020, 2, 29), date(1969, 12, 31), date(1600, 1, 1), date(9999, 12, 31), date(2013, 1, 1)),
            *(date(2013, 12, 31), date(2000, 1, 1), date(2024, 12, 30), date(1999, 12, 31), date(2013, 6, 15)),
        ],
    ),
    "ts": (pa.timestamp("us", "UTC"), [None, *MOMENTS]),
    "tn": (pa.timestamp("us"), [None, *(moment.replace(tzinfo=None) for moment in MOMENTS)]),
    "r": (
        pa.struct([("a", pa.int32()), ("q q", pa.struct([("z", pa.string())]))]),
        [None, {"a": None, "q q": None}, *({"a": n, "q q": {"z": str(n)}} for n in range(10))],
    ),
    "arr": (pa.list_(pa.int32()), [None, [], [1], [1, 2], *[[3]] * 8]),
    "mp": (pa.map_(pa.string(), pa.int32()), [None, [], [("a", 1)], [("a", 1), ("b", None)], *[[("c", 3)]] * 8]),
}

# One a line. The file is text, so that a backslash is just one.
PREDICATES = Path(__file__).with_name("spark_predicates.sql").read_text().splitlines()

FAILING = [
    *("1 / i > 0", "i DIV 0 = 1", "l % 0 = 1", "i + 1 > 0", "i - 1 < 0", "l * 2 > 0", "-i > 0", "abs(l) > 0", "s = 1", "d / 0 = 1"),
    *("m / 0 = 1", "CAST(s AS DATE) IS NULL", "CAST(i AS TINYINT) = 1", "CAST(d AS INT) = 1", "CAST(m AS DECIMAL(4,2)) = 1"),
    *("CAST(n AS INT) IS NULL", "CAST(m AS DECIMAL(9,1)) = 0", "to_date(n) IS NULL", "t + t = 10 AND t = 5", "1 / m > 1 AND m <> 0"),
    *("CAST(day AS STRING) = 1", "TRY_CAST(1 / i AS INT) = 1"),
]


@pytest.fixture(scope="session")
def table() -> pa.Table:
    return pa.table({name: pa.array(values, kind) for name, (kind, values) in COLUMNS.items()})


SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.codegen.wholeStage": "false",
    # Expressions asked for together would share parts, and a division be done for rows that do not reach it.
    "spark.sql.subexpressionElimination.enabled": "false",
}


@pytest.fixture(scope="session")
def spark_rows(spark: SparkSession, table: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> DataFrame:
    """The table as a Spark data frame."""
    path = Path(tmp_path_factory.mktemp("values")) / "values.parquet"
    pq.write_table(table, path)
    session = spark.newSession()  # other tests of this process have other settings and views
    for name, value in SETTINGS.items():
        session.conf.set(name, value)
    return session.read.parquet(str(path)).coalesce(1)  # one row group in one task: the rows keep their order


@pytest.fixture(scope="session")
def answers(spark_rows: Any) -> dict[str, list[bool | None]]:
    """Spark's answer to every predicate, asked for many at a time: one query each takes a minute, one query for all takes longer."""
    found: dict[str, list[bool | None]] = {}
    for start in range(0, len(PREDICATES), 32):
        asked = PREDICATES[start : start + 32]
        collected = spark_rows.selectExpr(*(f"({sql.split('--')[0]}) AS c{n}" for n, sql in enumerate(asked))).collect()
        found |= {sql: [row[n] for row in collected] for n, sql in enumerate(asked)}
    return found


@pytest.mark.parametrize("sql", PREDICATES)
def test_selects_what_spark_selects(sql: str, table: pa.Table, answers: dict[str, list[bool | None]]) -> None:
    predicate = Predicate.parse(sql, from_arrow(table.schema))
    assert predicate.mask(table).to_pylist() == answers[sql]
    again = Predicate.parse(predicate.to_sql(), from_arrow(table.schema))
    assert again.mask(table).to_pylist() == answers[sql]
    selected = [row for row, hit in zip(table["id"].to_pylist(), answers[sql], strict=True) if hit]
    assert table.filter(predicate.to_arrow())["id"].to_pylist() == selected


@pytest.mark.parametrize("sql", ["l < 9223372036854775808", "l > 99999999999999999999"])
def test_null_stays_null_where_spark_forgets_it(sql: str, table: pa.Table, spark_rows: Any) -> None:
    # Spark folds a BIGINT beside a DECIMAL beyond its range to TRUE or FALSE, for nulls too.
    ours = Predicate.parse(sql, from_arrow(table.schema)).mask(table).to_pylist()
    theirs = [row.answer for row in spark_rows.selectExpr(f"({sql}) AS answer").collect()]
    assert ours == [None if value is None else answer for value, answer in zip(table["l"].to_pylist(), theirs, strict=True)]
    assert None not in theirs


@pytest.mark.parametrize("sql", FAILING)
def test_fails_where_spark_fails(sql: str, table: pa.Table, spark_rows: Any) -> None:
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException):
        spark_rows.selectExpr(f"({sql}) AS answer").collect()
    with pytest.raises(PredicateError):
        Predicate.parse(sql, from_arrow(table.schema)).mask(table)
