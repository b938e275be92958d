"""Every predicate here must select exactly what Spark itself selects, over values chosen to disagree about."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sluice.storage.errors import PredicateError
from sluice.storage.predicate import Predicate
from sluice.storage.schema import from_arrow

pyspark = pytest.importorskip("pyspark")
pytestmark = pytest.mark.spark

UTC = timezone.utc
NAN = float("nan")
INF = float("inf")
COLUMNS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "id": (pa.int32(), list(range(12))),
    "t": (pa.int8(), [None, 0, 1, -1, 127, -128, 5, 7, None, 2, 3, 100]),
    "h": (pa.int16(), [None, 0, 1, -1, 32767, -32768, 5, 128, None, 2, 3, 300]),
    "i": (pa.int32(), [None, 0, 1, -1, 2**31 - 1, -(2**31), 5, 70000, None, 2, 3, 2013]),
    "l": (pa.int64(), [None, 0, 1, -1, 2**63 - 1, -(2**63), 2**53 + 1, 2**53, None, 2, 3, 10**12]),
    "f": (pa.float32(), [None, 0.0, -0.0, 1.5, NAN, INF, -INF, 0.1, 3.4e38, 16777217.0, None, 2.0]),
    "d": (pa.float64(), [None, 0.0, -0.0, 1.5, NAN, INF, -INF, 0.1, 1e300, 9007199254740993.0, None, 2.0]),
    "m": (pa.decimal128(10, 2), [None, *map(Decimal, "0 1.50 -1.50 99999999.99 -99999999.99 0.01 0.10 2 3.33 7 10".split())]),
    "w": (
        pa.decimal128(38, 18),
        [None, *map(Decimal, "0 1.5 -1.5 99999999999999999999.999999999999999999 0.000000000000000001 0.1 2 3 5 7 -0.1".split())],
    ),
    "s": (pa.string(), [None, "", "a", "A", "abc", "a_c", "a%c", "Straße", "éa", "日本", "it's \\ok", " 12 "]),
    "n": (pa.string(), [None, "1", "-5", " 7 ", "2147483648", "0", "12", "3", "100", "-0", "+4", "8"]),
    "x": (pa.binary(), [None, b"", b"a", b"\x00", b"\xff", b"ab", b"\x7f", b"\x80", b"abc", b"z", b"A", b"\x01\x02"]),
    "b": (pa.bool_(), [None, True, False, True, False, None, True, False, True, True, False, None]),
    "day": (
        pa.date32(),
        [None, date(1970, 1, 1), date(2020, 2, 29), date(1969, 12, 31), date(1600, 1, 1), date(9999, 12, 31), date(2013, 1, 1)]
        + [date(2013, 12, 31), date(2000, 1, 1), date(2024, 12, 30), date(1999, 12, 31), date(2013, 6, 15)],
    ),
    "ts": (
        pa.timestamp("us", "UTC"),
        [None, *(datetime(*parts, tzinfo=UTC) for parts in [(1970, 1, 1), (2020, 2, 29, 12, 30, 15, 123456), (1969, 12, 31, 23, 59, 59, 999999)])]
        + [datetime(*parts, tzinfo=UTC) for parts in [(1900, 1, 1), (2262, 4, 12), (2013, 1, 1), (2013, 12, 31, 23, 59, 59), (2000, 1, 1, 1)]]
        + [datetime(*parts, tzinfo=UTC) for parts in [(2024, 12, 30), (1960, 5, 5, 5, 5, 5, 5), (2013, 6, 15, 8)]],
    ),
    "tn": (
        pa.timestamp("us"),
        [None, *(datetime(*parts) for parts in [(1970, 1, 1), (2020, 2, 29, 12, 30, 15, 123456), (1969, 12, 31, 23, 59, 59, 999999)])]
        + [datetime(*parts) for parts in [(1900, 1, 1), (2262, 4, 12), (2013, 1, 1), (2013, 12, 31, 23, 59, 59), (2000, 1, 1, 1)]]
        + [datetime(*parts) for parts in [(2024, 12, 30), (1960, 5, 5, 5, 5, 5, 5), (2013, 6, 15, 8)]],
    ),
    "r": (
        pa.struct([("a", pa.int32()), ("q q", pa.struct([("z", pa.string())]))]),
        [None, {"a": None, "q q": None}, *({"a": n, "q q": {"z": str(n)}} for n in range(10))],
    ),
    "arr": (pa.list_(pa.int32()), [None, [], [1], [1, 2], *[[3]] * 8]),
}

PREDICATES = """
i = 1
i == 1
i != 1
i <> 1
i < 1
i <= 1
i > 1
i >= 1
i <=> 1
i <=> NULL
i = NULL
NOT i = NULL
i IS NULL
i IS NOT NULL
NOT (i IS NULL)
t = 1
t < 128
t > 127
t >= -128
t = -128Y
t < 1000
t IN (1, 300, NULL)
h = 128S
h > 70000
i < 3000000000
i = 2147483648
l = 9223372036854775807
l = 9223372036854775807L
l > 9223372036854775806
l = 9007199254740992D
l = 9007199254740993
l > 1.5
l = 1e0
i = 1.0
i < 1.5
i > 0.5 AND i < 2.5
i IN (1.0, 2.5)
i = '1'
i IN ('1', '2')
i IN ('1', 2)
i BETWEEN 0 AND 5
i NOT BETWEEN 0 AND 5
i BETWEEN NULL AND 5
i IN (1, 2, 3)
i IN (1, NULL)
i NOT IN (1, 2)
i NOT IN (1, NULL)
i IN (NULL)
NULL IN (1)
1 IN (i, t)
i IN (t, l)
i = t
l = i
d = i
d > f
f = 0.1
f = 0.1D
f = CAST(0.1 AS FLOAT)
f > 1
f < 1
f >= 1.5
f <= 1.5
f <> 1.5
NOT f = 1.5
NOT (f > 1)
f = 16777216
d = 0
d = -0.0
d = 0.1
d > 1
d >= 1
d < 1
d <= 1
d <> 1.5
NOT (d < 1)
NOT (d >= 1)
d = CAST('NaN' AS DOUBLE)
d <> CAST('NaN' AS DOUBLE)
d < CAST('NaN' AS DOUBLE)
d <= CAST('NaN' AS DOUBLE)
d > CAST('NaN' AS DOUBLE)
d >= CAST('NaN' AS DOUBLE)
d <=> CAST('NaN' AS DOUBLE)
d = f
d <=> f
d < f
d <= f
d IN (1.5, 0)
d IN (CAST('NaN' AS DOUBLE), 2)
d NOT IN (1.5)
d = CAST('Infinity' AS DOUBLE)
d BETWEEN 0 AND 1e300
d = '1.5'
isnan(d)
NOT isnan(f)
m = 1.5
m = 1.50
m = 1
m > 0.005
m < 99999999.991
m = 100000000000
m IN (1.5, 2, 3.33)
m = '1.5'
m = 1.5D
m = i
m > w
m = w
w = 0.1
w < 0.0000000000000000005
w = 99999999999999999999.999999999999999999
m = 0.1F
s = 'a'
s = 'A'
s < 'a'
s > 'a'
s >= 'a' AND s < 'b'
s = ''
s <> 'a'
s > 'Z'
s < '日'
s IN ('a', '日本', 'x')
s LIKE 'a%'
s LIKE '%c'
s LIKE '%b%'
s LIKE 'a_c'
s LIKE 'a\\_c'
s LIKE 'a\\%c'
s LIKE 'a!%c' ESCAPE '!'
s LIKE 'a!_%' ESCAPE '!'
s LIKE '_'
s LIKE '__'
s LIKE '%'
s LIKE ''
s LIKE '%a_%'
s LIKE 'it\\'s%'
s LIKE '%\\\\\\\\%'
s NOT LIKE 'a%'
s LIKE NULL
s = 'it\\'s \\\\ok'
s = "a"
s = r'a'
startswith(s, 'a')
endswith(s, 'c')
contains(s, 'b')
contains(s, '')
lower(s) = 'a'
upper(s) = 'STRASSE'
upper(s) = 'ÉA'
length(s) = 2
length(s) > 3
trim(s) = '12'
ltrim(s) = '12 '
substring(s, 1, 1) = 'a'
substring(s, 2) = 'bc'
substring(s, 0, 1) = 'a'
substring(s, -2, 1) = 'b'
substring(s, -5, 4) = 'ab'
substr(s, -1) = 'c'
substring(s, 2, -1) = ''
left(s, 2) = 'ab'
right(s, 2) = 'bc'
s || 'x' = 'ax'
concat(s, n) = 'a-5'
'x' 'y' = 'xy'
n = 1
n > 5
n = 7L
n IN (1, 7)
CAST(n AS BIGINT) = 2147483648
CAST(n AS DOUBLE) = -5
CAST(n AS DECIMAL(12,2)) = 12.00
CAST(i AS STRING) = '2013'
CAST(m AS STRING) = '1.50'
CAST(b AS STRING) = 'true'
CAST(day AS STRING) = '2020-02-29'
CAST(i AS BIGINT) + 1 = 2147483648
CAST(m AS INT) = -1
CAST(m AS DOUBLE) = 0.01
CAST(t AS DECIMAL(5,1)) = 127
CAST(b AS INT) = 1
CAST(t AS BOOLEAN)
CAST(f AS DOUBLE) = 0.1
CAST(l AS FLOAT) = CAST(1e12 AS FLOAT)
CAST(l AS DOUBLE) = 9007199254740992
CAST(ts AS DATE) = DATE '2013-01-01'
CAST(ts AS DATE) = '1969-12-31'
CAST(tn AS DATE) < DATE '1970-01-01'
CAST(day AS TIMESTAMP) = ts
CAST(tn AS TIMESTAMP) = ts
CAST(ts AS TIMESTAMP_NTZ) = tn
x = X'61'
x > X'7F'
x < X'61'
x = ''
x IN (X'', X'FF')
x = 'a'
b
NOT b
!b
b = true
b = 'false'
b <> false
b IS TRUE
b IS NOT TRUE
b IS FALSE
b IS NOT FALSE
b > false
b AND i > 0
b OR i > 0
NOT (b AND i > 0)
NOT (b OR i > 0)
b AND NULL
b OR NULL
(b OR i IS NULL) AND NOT (s LIKE 'a%' AND d > 0)
b = (i > 0)
i = 1 OR i = 2 AND b
NOT i = 1 AND b
day = DATE '2020-02-29'
day = '2020-02-29'
day > '2013'
day >= '2013-6'
day < '1970-01-01T12:00:00'
day BETWEEN '2013-01-01' AND '2013-12-31'
day IN ('2013-01-01', DATE '2000-01-01')
day < ts
day = tn
day = TIMESTAMP '2013-01-01 00:00:00'
day < TIMESTAMP '2013-01-01 00:00:01'
ts = TIMESTAMP '2020-02-29 12:30:15.123456'
ts = TIMESTAMP '2020-02-29T14:30:15.123456+02:00'
ts >= '2013-01-01'
ts >= '2013-01-01 01:00:00+01:00'
ts < '2013-06-15 08:00:00 UTC'
ts < DATE '2013-06-15'
ts = tn
ts < '1970-01-01 00:00:00'
ts >= TIMESTAMP '2013-06-15 04:00:00 America/New_York'
tn = TIMESTAMP_NTZ '2013-06-15 08:00:00'
tn < '2000-01-01 01:00:00.000001'
tn > TIMESTAMP '2013-01-01 00:00:00Z'
year(day) = 2013
month(day) = 12
day(day) = 31
dayofmonth(ts) = 29
quarter(day) = 4
dayofweek(day) = 7
weekday(day) = 0
dayofyear(day) = 366
dayofyear(day) = 60
weekofyear(day) = 1
year(ts) = 1969
hour(ts) = 23
minute(ts) = 59
second(ts) = 59
hour(tn) = 12
date(ts) = DATE '2013-06-15'
date_trunc('month', ts) = '2013-06-01'
date_trunc('WEEK', ts) = '2024-12-30'
date_trunc('hour', ts) < '1970-01-01'
trunc(day, 'YEAR') = '2013-01-01'
trunc(day, 'MM') = day
trunc(day, 'week') = day
date_add(day, 1) = '2020-03-01' AND day < '9999-01-01'
date_sub(day, 1) = '1969-12-31'
datediff(day, DATE '2013-01-01') = 364
day < '9999-01-01' AND date_add(day, 31) > '2024-01-01'
l % 2 = 1
l % -2 = -1
i % 10 = 3
i % -1 = 0
mod(i, 3) = 2
i / 2 = 0.5
i / 2 > 1
i DIV 2 = 1
l DIV 10 = 100000000000
- m = 1.5
i > -5 AND -i = 1
i < 5 AND i + 1 = 2
t BETWEEN 0 AND 50 AND t + t = 10
i > -5 AND abs(i) = 1
m BETWEEN -1000 AND 1000 AND CAST(m AS DECIMAL(9,1)) = 0
n LIKE '%12%' AND CAST(n AS INT) = 12
m + 1 = 2.5
m * 2 = 3
m * m = 2.25
m - 0.5 = 1
m / 3 = 1.11
m / 3 = 0.666666667
m <> 0 AND 10 / m < 5
i <> 0 AND 10 / i > 1
i = 0 OR 10 / i > 1
CASE WHEN i <> 0 THEN 10 / i > 1 ELSE FALSE END
IF(i = 0, NULL, 1 / i) = 1
CASE i WHEN 1 THEN 'one' WHEN 2 THEN 'two' END = 'two'
CASE WHEN b THEN i ELSE l END > 1
coalesce(i, t, 9) = 9
nvl(s, 'none') = 'none'
ifnull(i, l) IS NULL
nullif(i, 1) IS NULL
nullif(s, '') = 'a'
coalesce(b, FALSE)
isnull(i) OR isnotnull(s)
d * 2 = 3
d + f > 1
d / 2 = 0.75
r.a = 3
R.A IN (1, 2)
r.`q q`.z = '4'
r IS NULL
r.a IS NULL
arr IS NULL
arr IS NOT NULL
I = 1
`i` = 1
1 = 1
1 = 2
NULL
TRUE
1 < i
2 >= i AND 0 <= i
i = 1 -- comment
i IS DISTINCT FROM 1
i IS NOT DISTINCT FROM NULL
i = t IS NULL
""".strip().splitlines()

FAILING = [
    "1 / i > 0",
    "i DIV 0 = 1",
    "l % 0 = 1",
    "i + 1 > 0",
    "i - 1 < 0",
    "l * 2 > 0",
    "-i > 0",
    "abs(l) > 0",
    "s = 1",
    "CAST(s AS DATE) IS NULL",
    "CAST(i AS TINYINT) = 1",
    "CAST(d AS INT) = 1",
    "CAST(m AS DECIMAL(4,2)) = 1",
    "d / 0 = 1",
    "m / 0 = 1",
    "CAST(n AS INT) IS NULL",
    "CAST(m AS DECIMAL(9,1)) = 0",
    "to_date(n) IS NULL",
    "t + t = 10 AND t = 5",
    "1 / m > 1 AND m <> 0",
    "CAST(day AS STRING) = 1",
]


@pytest.fixture(scope="session")
def table() -> pa.Table:
    return pa.table({name: pa.array(values, kind) for name, (kind, values) in COLUMNS.items()})


@pytest.fixture(scope="session")
def rows(table: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The table as a Spark data frame."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    path = Path(tmp_path_factory.mktemp("values")) / "values.parquet"
    pq.write_table(table, path)
    session = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.ansi.enabled", "true")
        .config("spark.sql.codegen.wholeStage", "false")
        # Expressions asked for together would share parts, and a division be done for rows that do not reach it.
        .config("spark.sql.subexpressionElimination.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )
    yield session.read.parquet(str(path)).orderBy("id").cache()
    session.stop()


@pytest.fixture(scope="session")
def answers(rows: Any) -> dict[str, list[bool | None]]:
    """Spark's answer to every predicate, asked for many at a time: one query each takes a minute, one query for all takes longer."""
    found: dict[str, list[bool | None]] = {}
    for start in range(0, len(PREDICATES), 32):
        asked = PREDICATES[start : start + 32]
        collected = rows.selectExpr(*(f"({sql.split('--')[0]}) AS c{n}" for n, sql in enumerate(asked))).collect()
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
def test_null_stays_null_where_spark_forgets_it(sql: str, table: pa.Table, rows: Any) -> None:
    # Spark folds a BIGINT beside a DECIMAL beyond its range to TRUE or FALSE, for nulls too.
    ours = Predicate.parse(sql, from_arrow(table.schema)).mask(table).to_pylist()
    theirs = [row.answer for row in rows.selectExpr(f"({sql}) AS answer").collect()]
    assert ours == [None if value is None else answer for value, answer in zip(table["l"].to_pylist(), theirs, strict=True)]
    assert None not in theirs


@pytest.mark.parametrize("sql", FAILING)
def test_fails_where_spark_fails(sql: str, table: pa.Table, rows: Any) -> None:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    with pytest.raises((PySparkException, Py4JError)):
        rows.selectExpr(f"({sql}) AS answer").collect()
    with pytest.raises(PredicateError):
        Predicate.parse(sql, from_arrow(table.schema)).mask(table)
