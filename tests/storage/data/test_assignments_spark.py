"""What an assignment makes of a row is what Spark makes of it: the values of expressions, their types, and what may be stored where."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sluice.storage.data.assignments import Assignments, assignment
from sluice.storage.errors import PredicateError, SchemaMismatch
from sluice.storage.expressions.evaluate import run
from sluice.storage.expressions.parse import parse
from sluice.storage.schema.schema import StructField, StructType, from_arrow
from tests.spark_integration.conftest import spark
from tests.storage.pruning.test_predicate_spark import spark_rows, table

__all__ = ["spark", "spark_rows", "table"]

pytestmark = pytest.mark.spark

# One a line, as in spark_predicates.sql.
EXPRESSIONS = Path(__file__).with_name("spark_expressions.sql").read_text().splitlines()


@pytest.fixture(scope="session")
def values(spark_rows: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, pa.ChunkedArray]:
    """Spark's value of every expression for every row."""
    spark_rows.sparkSession.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    found: dict[str, pa.ChunkedArray] = {}
    for start in range(0, len(EXPRESSIONS), 32):
        asked = EXPRESSIONS[start : start + 32]
        folder = tmp_path_factory.mktemp("expressions") / "parquet"
        spark_rows.selectExpr(*(f"({sql}) AS c{n}" for n, sql in enumerate(asked))).write.parquet(str(folder))
        answers = pq.read_table(folder)
        found |= {sql: answers.column(n) for n, sql in enumerate(asked)}
    return found


def plain(value: Any) -> Any:
    return "NaN" if isinstance(value, float) and math.isnan(value) else value


def same_type(ours: pa.DataType, theirs: pa.DataType) -> bool:
    return ours == theirs or (pa.types.is_timestamp(ours) and pa.types.is_timestamp(theirs) and bool(ours.tz) == bool(theirs.tz))


@pytest.mark.parametrize("sql", EXPRESSIONS)
def test_gives_what_spark_gives(sql: str, table: pa.Table, values: dict[str, pa.ChunkedArray]) -> None:
    node = parse(sql, table.schema)
    ours = run(node, table)
    theirs = values[sql]
    assert same_type(ours.type, theirs.type)
    assert [plain(value) for value in ours.to_pylist()] == [plain(value) for value in theirs.to_pylist()]


FAILING = ["floor(d)", "ceil(f)", "round(t, -1)", "CAST(n AS INT)", "i + 1", "i / (i - i)", "abs(t)"]
FAILING += ["round(CAST('2147483647' AS INT), -1)"]


@pytest.mark.parametrize("sql", FAILING)
def test_fails_where_spark_fails(sql: str, table: pa.Table, spark_rows: Any) -> None:
    from pyspark.errors import PySparkException

    answer: Any = None
    try:
        answer = spark_rows.selectExpr(f"({sql}) AS answer").collect()
    except PySparkException:
        with pytest.raises(PredicateError):
            run(parse(sql, table.schema), table)
    assert answer is None, "Spark does not fail"


SOURCES = ["t", "i", "l", "f", "d", "m", "w", "s", "'5'", "b", "day", "ts", "tn", "x", "r", "arr", "NULL", "1.005"]
TARGETS = ["t", "i", "l", "f", "d", "m", "s", "b", "day", "ts", "tn", "x", "r", "arr"]
# What Spark stores and sluice refuses by name: texts that depend on the version of Java, and bytes that may be no text.
NOT_EVALUATED = {("f", "s"), ("d", "s"), ("x", "s")}


@pytest.fixture(scope="session")
def targets(spark_rows: Any, table: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """One table of Spark's for each type that is stored into; the first column is the number of the row."""
    schema = dict(zip(table.column_names, spark_rows.schema, strict=True))
    for name in TARGETS:
        folder = tmp_path_factory.mktemp("target")
        kind = schema[name].dataType.simpleString().replace("q q", "`q q`")
        spark_rows.sparkSession.sql(f"CREATE TABLE IF NOT EXISTS into_{name} (id INT, c {kind}) USING parquet LOCATION '{folder}'")
    spark_rows.createOrReplaceTempView("source")
    return TARGETS


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.many
def test_stores_what_spark_stores(target: str, targets: list[str], table: pa.Table, spark_rows: Any) -> None:
    column = from_arrow(table.schema).get(target)
    assert column is not None
    schema = StructType([*(each for each in from_arrow(table.schema).fields if each.name != "id"), StructField("c", column.type)])
    for source in SOURCES:
        [plan] = spark_rows.sparkSession.sql(f"EXPLAIN INSERT INTO into_{target} SELECT id, {source} FROM source").collect()[0]
        refused = plan.startswith("Error occurred during query planning")
        assert refused or plan.startswith("== Physical Plan =="), plan
        stores = not refused and (source, target) not in NOT_EVALUATED
        try:
            assignment(StructField("c", column.type), source, schema)
        except SchemaMismatch:
            assert not stores, source
        else:
            assert stores, source


STORED = [("t", "i"), ("i", "m"), ("m", "t"), ("1.005", "m"), ("d", "f"), ("l", "f"), ("m", "d"), ("i", "s"), ("m", "s"), ("b", "s")]
STORED += [("day", "ts"), ("ts", "day"), ("tn", "ts"), ("ts", "s"), ("-1.5D", "i"), ("1.5", "l"), ("l", "t"), ("300", "t"), ("d", "l")]
STORED += [("w", "m")]


@pytest.mark.parametrize(("source", "target"), STORED)
@pytest.mark.many
def test_stores_the_values_that_spark_stores(source: str, target: str, targets: list[str], table: pa.Table, spark_rows: Any) -> None:
    from pyspark.errors import PySparkException

    kind = table.schema.field(target).type
    data = table.append_column("c", pa.nulls(table.num_rows, kind))
    assignments = Assignments.parse({"c": source}, from_arrow(data.schema))
    session = spark_rows.sparkSession
    try:
        session.sql(f"INSERT OVERWRITE into_{target} SELECT id, {source} FROM source")
        theirs = session.sql(f"SELECT CAST(c AS STRING) AS c FROM (SELECT * FROM into_{target} ORDER BY id)").collect()
    except PySparkException:
        with pytest.raises(SchemaMismatch, match=r"does not fit"):
            assignments.apply(data)
        return
    ours = session.createDataFrame(assignments.apply(data).select(["id", "c"])).orderBy("id").selectExpr("CAST(c AS STRING) AS c")
    assert ours.collect() == theirs
