"""Expressions that run without Spark give the answers of Spark, or say that they need it."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import sluice
from sluice.statements.duckdb.engine import run

pytestmark = pytest.mark.spark


def listed(text: str) -> tuple[str, ...]:
    """The expressions of a text, which has semicolons between them."""
    return tuple(each.strip() for each in text.split(";"))


VALUES = (
    "(CAST(7 AS INT), CAST(-3 AS BIGINT), CAST(2.5 AS DOUBLE), CAST('1.25' AS DECIMAL(10,2)), 'Abc', DATE'2024-02-29', TRUE), "
    "(NULL, CAST(4 AS BIGINT), CAST(-2.5 AS DOUBLE), CAST('-0.75' AS DECIMAL(10,2)), '', DATE'2023-12-31', FALSE), "
    "(-8, NULL, NULL, NULL, NULL, NULL, NULL), "
    "(10, CAST(3 AS BIGINT), CAST(0.5 AS DOUBLE), CAST('100.00' AS DECIMAL(10,2)), 'a_b%', DATE'1999-01-01', NULL)"
)
FROM = f" FROM (VALUES {VALUES}) AS v(i, l, d, n, s, t, b)"
SAME = listed(
    """
    i / l; i % l; i DIV l; mod(i, l); -i; abs(i); sign(d); i + l * 2 - 1; try_divide(i, 0); ceil(d); floor(d); round(d);
    round(n, 1); power(i, 2); sqrt(abs(d)); exp(d); ln(abs(d)); coalesce(i, l, 0); nvl(s, 'none'); ifnull(s, 'none');
    nullif(s, ''); greatest(i, l); least(i, l); if(b, 1, 2); CASE WHEN i > 0 THEN 'up' WHEN i < 0 THEN 'down' END; i IS NULL OR b;
    NOT b AND i > 0; i BETWEEN 1 AND 9; i IN (7, 10); s LIKE 'a%'; s LIKE '_bc'; s RLIKE '^[aA]'; upper(s); lower(s); length(s);
    trim(' ' || s || ' '); concat(s, '-', s); s || i; concat_ws(',', s, 'x'); substring(s, 2); substring(s, 2, 1); left(s, 2);
    replace(s, 'b', 'B'); instr(s, 'b'); locate('c', s); startswith(s, 'A'); endswith(s, 'c'); year(t); month(t); day(t);
    quarter(t); extract(MONTH FROM t); date_add(t, 1); date_sub(t, 1); datediff(t, DATE'2024-01-01'); last_day(t);
    to_date('2024-05-06'); CAST(i AS STRING); CAST(n AS STRING); CAST(t AS STRING); CAST(b AS STRING); CAST('12' AS INT);
    CAST(i AS BIGINT); CAST(floor(d) AS INT); CAST(i AS DOUBLE); CAST(n AS DOUBLE); CAST('2024-01-31' AS DATE);
    TRY_CAST(s AS INT); array(i, l)[0]; named_struct('a', i).a
    """
)
TOGETHER = listed(
    """
    count(*); count(i); count(DISTINCT b); count_if(i > 0); sum(i); sum(n); sum(d); avg(i); min(s); max(t); bool_and(b);
    bool_or(b); stddev(d); stddev_pop(d); variance(d); var_pop(d)
    """
)
IN_A_WINDOW = listed(
    """
    row_number(); rank(); dense_rank(); lag(l); lead(l, 2); ntile(2); first_value(l); sum(l); percent_rank(); cume_dist()
    """
)


def same(mine: Any, theirs: Any) -> bool:
    if isinstance(mine, (float, Decimal)) or isinstance(theirs, (float, Decimal)):
        return mine is not None and theirs is not None and math.isclose(mine, theirs, rel_tol=1e-12)
    return type(mine) is type(theirs) and bool(mine == theirs)


def both(spark: SparkSession, expressions: tuple[str, ...], rest: str) -> dict[str, tuple[list[Any], list[Any]]]:
    """The values of each expression, by DuckDB and by Spark."""
    text = "SELECT " + ", ".join(f"{each} AS e{number}" for number, each in enumerate(expressions)) + rest
    theirs = [tuple(row) for row in spark.sql(text).collect()]
    mine = [tuple(row.values()) for row in run(text).to_pylist()]
    return {each: ([row[n] for row in mine], [row[n] for row in theirs]) for n, each in enumerate(expressions)}


@pytest.mark.costly
def test_answers_are_those_of_spark(spark: SparkSession) -> None:
    found = {
        **both(spark, SAME, FROM + " ORDER BY l"),
        **both(spark, TOGETHER, FROM),
        **both(spark, tuple(f"{each} OVER (ORDER BY i)" for each in IN_A_WINDOW), FROM + " ORDER BY i"),
    }
    unlike = {name: values for name, values in found.items() if not all(map(same, *values))}
    assert not unlike


@pytest.mark.parametrize(
    "expression",
    [
        "substring(s, -2)",
        "dayofweek(t)",
        "weekday(t)",
        "s LIKE 'a\\\\_%'",
        "datediff(MONTH, t, t)",
        "bround(d)",
        "collect_list(i)",
        "CAST(d AS INT)",
    ],
)
def test_what_duckdb_computes_otherwise_needs_spark(expression: str) -> None:
    with pytest.raises(sluice.errors.UnsupportedFeature, match="needs Spark"):
        run(f"SELECT {expression}{FROM}")


@pytest.mark.parametrize("expression", ["i / 0", "i % (l - l)", "i DIV 0"])
def test_a_division_by_zero_is_an_error_on_both(spark: SparkSession, expression: str) -> None:
    with pytest.raises(sluice.errors.InvalidRequest, match="division by zero"):
        run(f"SELECT {expression}{FROM}")
    with pytest.raises(PySparkException, match=r"DIVIDE_BY_ZERO|REMAINDER_BY_ZERO"):
        spark.sql(f"SELECT {expression}{FROM}").collect()
