"""Queries over tables of sluice: natively, at one moment, at versions; what is Spark's stays Spark's."""

from __future__ import annotations

import datetime as dt
import re
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import SparkSession

import sluice
from sluice.statements import places
from sluice.statements.parse.cursor import Cursor, tokens_of
from sluice.statements.parse.relations import relations_in
from sluice.statements.spark.queries import SparkRequest, quoted_text
from sluice.tables.read.table_snapshot import TableSnapshot

from ...spark_integration.conftest import is_native
from .conftest import Warehouse

pytestmark = [pytest.mark.spark, pytest.mark.zookeeper]

ORDERS = pa.schema([pa.field("id", pa.int64()), pa.field("v", pa.string())])


def views_of(warehouse: Warehouse) -> set[str]:
    return {row["viewName"] for row in SparkSession.sql(warehouse.spark, "SHOW VIEWS").collect()}


@pytest.mark.costly
def test_queries_name_tables_in_every_way(warehouse: Warehouse) -> None:
    views = views_of(warehouse)
    orders = warehouse.made("sales.orders", ORDERS, (1, "a"), (2, "b"))
    warehouse.made("shops", ORDERS, (1, "x"), (3, "y"))
    warehouse.spark.createDataFrame([(1,), (3,)], "id long").createOrReplaceTempView("these")
    frame = warehouse.sql("SELECT orders.id, v FROM sales.orders WHERE orders.v = :v", {"v": "b"})
    assert is_native(frame)
    assert frame.collect() == [(2, "b")]
    assert warehouse.rows("SELECT o.v, s.v FROM Sales.ORDERS o JOIN shops s USING (id) JOIN these USING (id)") == [("a", "x")]
    assert warehouse.rows(f"SELECT id FROM sluice.`{orders.location}` WHERE id > ?", [1]) == [(2,)]
    nested = "WITH q AS (SELECT * FROM sales.orders) SELECT id FROM q WHERE EXISTS (SELECT 1 FROM shops s WHERE s.id = q.id)"
    assert warehouse.rows(nested) == [(1,)]
    assert warehouse.rows("SELECT (SELECT max(id) FROM shops) - id FROM sales.orders") == [(1,), (2,)]
    assert warehouse.rows("TABLE sales.orders UNION ALL SELECT id, 'these' FROM these") == [
        (1, "a"),
        (1, "these"),
        (2, "b"),
        (3, "these"),
    ]
    assert views_of(warehouse) == views | {"these"}
    warehouse.spark.catalog.dropTempView("these")


@pytest.mark.costly
def test_versions_times_and_changes(warehouse: Warehouse) -> None:
    table = warehouse.made("sales.orders", ORDERS, (1, "a"))
    table.append(pa.table({"id": [2], "v": ["b"]}, schema=ORDERS))
    for text in ("sales.orders FOR VERSION AS OF :v", "sales.orders VERSION AS OF '1' o"):
        assert warehouse.rows(f"SELECT id FROM {text}", {"v": 1}) == [(1,)], text
    assert warehouse.rows("SELECT id, ? FROM sales.orders VERSION AS OF ? WHERE id < ?", ["x", 2, 2]) == [(1, "x")]
    at = dt.datetime.fromtimestamp(table.snapshot(1).timestamp / 1000, dt.timezone.utc)
    assert warehouse.rows("SELECT id FROM sales.orders TIMESTAMP AS OF :at", {"at": at}) == [(1,)]
    computed = "SELECT count(*) FROM sales.orders TIMESTAMP AS OF timestamp_millis(:at) + INTERVAL 0 SECONDS o WHERE o.id < 9"
    assert warehouse.rows(computed, {"at": table.snapshot(2).timestamp}) == [(2,)]
    changes = "SELECT id, _change_type, _commit_version FROM table_changes('sales.orders', 1, :to)"
    assert warehouse.rows(changes, {"to": 1}) == [(1, "insert", 1)]
    assert warehouse.rows("SELECT count(*) FROM table_changes('sales.orders', 0) c WHERE c.id > 0") == [(2,)]
    first, second = (table.snapshot(version).timestamp for version in (1, 2))
    for between, expected in (
        ("VERSION BETWEEN :low AND 1 + 1 AS c", [(2, "insert")]),
        ("VERSION BETWEEN 2 AND 2", []),
        (f"FOR TIMESTAMP BETWEEN timestamp_millis({first}) AND timestamp_millis({second})", [(2, "insert")]),
    ):
        assert warehouse.rows(f"SELECT id, _change_type FROM sales.orders {between}", {"low": 1}) == expected, between
    with pytest.raises(sluice.errors.InvalidRequest, match=r"column 54: this is before the first bound, 2"):
        warehouse.sql("SELECT * FROM sales.orders VERSION BETWEEN 1 + 1 AND 1")


def test_all_tables_of_a_query_are_read_at_one_moment(warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    """A transaction that commits in both tables while a statement opens them is in both, or in none."""
    one, other = (warehouse.made(name, ORDERS, (1, "a")) for name in ("sales.one", "sales.other"))
    before = sluice.read_together
    moments: list[list[int]] = []

    def late(tables: list[sluice.Table], **options: Any) -> list[TableSnapshot]:
        snapshots = before(tables, **options)
        with sluice.transaction(warehouse.coordinator) as both:
            for table in (one, other):
                both.part(table).append(pa.table({"id": [2], "v": ["b"]}, schema=ORDERS))
        moments.append([each.version for each in snapshots])
        return snapshots

    monkeypatch.setattr(places, "read_together", late)
    frame = warehouse.sql("SELECT (SELECT count(*) FROM sales.one), count(*) FROM sales.other")
    assert frame.collect() == [(1, 1)]
    assert moments == [[1, 1]]


@pytest.mark.costly
def test_what_is_sparks_stays_sparks(warehouse: Warehouse) -> None:
    """Spark's own names come first; its statements run unchanged, and may read tables of sluice."""
    warehouse.made("mine", ORDERS, (1, "a"))
    warehouse.spark.createDataFrame([(9, "view")], "id long, v string").createOrReplaceTempView("mine")
    try:
        assert warehouse.rows("SELECT * FROM mine") == [(9, "view")]
    finally:
        warehouse.spark.catalog.dropTempView("mine")
    assert warehouse.rows("SELECT * FROM mine") == [(1, "a")]
    assert warehouse.rows("SELECT 1 AS x, :a", {"a": 2}) == [(1, 2)]
    warehouse.sql(f"CREATE TABLE copied USING parquet LOCATION '{warehouse.folder}/copied' AS SELECT * FROM mine")
    try:
        assert warehouse.rows("SELECT * FROM copied") == [(1, "a")]
        warehouse.sql("INSERT INTO copied SELECT id + 1, v FROM mine")
        assert warehouse.rows("SELECT id FROM copied JOIN mine USING (id)") == [(1,)]
        assert "FileScan" in warehouse.sql("EXPLAIN SELECT * FROM mine").collect()[0][0]
    finally:
        warehouse.sql("DROP TABLE copied")


def test_unknown_names_get_the_nearest(warehouse: Warehouse) -> None:
    warehouse.made("sales.orders", ORDERS)
    with pytest.raises(
        AnalysisException, match=r"(?s)line 2, column 6: .*sales.order; did you mean sales.orders\?\n  FROM sales.order"
    ) as failed:
        warehouse.sql("SELECT *\nFROM sales.order")
    assert isinstance(failed.value, sluice.errors.TableNotFound)
    assert failed.value.getCondition() == "TABLE_OR_VIEW_NOT_FOUND"
    with pytest.raises(AnalysisException, match="UNRESOLVED_COLUMN"):
        warehouse.sql("SELECT nothing FROM sales.orders")
    for text in ("CREATE TEMP VIEW v AS SELECT * FROM sales.orders", "CACHE TABLE c AS SELECT * FROM sales.orders"):
        with pytest.raises(sluice.errors.UnsupportedFeature, match="a view keeps its text"):
            warehouse.sql(text)
    with pytest.raises(ParseException) as unreadable:
        warehouse.sql("SELECT id, FROM sales.orders")
    assert "__sluice" not in str(unreadable.value)


def test_a_routed_session_has_it_as_its_own(warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLUICE_COORDINATOR", warehouse.coordinator)
    warehouse.made("sales.orders", ORDERS, (1, "a"))
    frame = warehouse.spark.createDataFrame([(1,)], "id long")
    assert warehouse.spark.sql("SELECT v FROM sales.orders JOIN {frame} USING (id)", frame=frame).collect() == [("a",)]
    assert warehouse.spark.sql("SELECT id FROM {text}", text=frame).collect() == frame.collect()  # as one of its own parameters is called
    warehouse.spark.sql("INSERT INTO sales.orders VALUES (?, ?)", [2, "b"])
    assert warehouse.held("sales.orders") == [(1, "a"), (2, "b")]
    try:
        warehouse.spark.conf.set("spark.sluice.routing", "false")
        with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
            warehouse.spark.sql("SELECT v FROM sales.orders")
    finally:
        warehouse.spark.conf.set("spark.sluice.routing", "true")


VALUES = [
    "it's",
    "a\\",
    "x' OR '1'='1",
    "'; DROP TABLE t --",
    "\n\t\0",
    "ü",
    "",
    '"`',
    1,
    2.5,
    True,
    None,
    dt.date(2026, 1, 31),
    b"\x00'",
]


@pytest.mark.parametrize("escaped", ["false", "true"])
def test_no_value_can_end_its_literal(spark: SparkSession, escaped: str) -> None:
    spark.conf.set("spark.sql.parser.escapedStringLiterals", escaped)
    try:
        texts = ", ".join(SparkRequest(spark, "", None).literal(value) for value in VALUES)
        [row] = SparkSession.sql(spark, f"SELECT {texts}").collect()
    finally:
        spark.conf.unset("spark.sql.parser.escapedStringLiterals")
    assert [bytes(each) if isinstance(each, bytearray) else each for each in row] == VALUES
    assert quoted_text("plain") == "'plain'"


QUERIES = [
    "SELECT * FROM a, b.c x JOIN d USING (id) LEFT ANTI JOIN e ON e.i = d.i",
    "WITH q AS (SELECT * FROM a), r AS (SELECT * FROM q JOIN b) SELECT * FROM Q, r, c WHERE x IN (SELECT y FROM d)",
    "SELECT extract(YEAR FROM a), trim(BOTH FROM b), c IS DISTINCT FROM d FROM e TABLESAMPLE (10 PERCENT) x, f",
    "SELECT * FROM a VERSION AS OF 3 x, b TIMESTAMP AS OF current_timestamp() - INTERVAL 1 HOUR JOIN c",
    "SELECT * FROM (a JOIN b ON a.i = b.i), LATERAL (SELECT * FROM c WHERE c.i = a.i) LATERAL VIEW explode(m) l AS k, v",
    "FROM a |> WHERE x > (SELECT 1 FROM b) |> JOIN c ON true |> SELECT y",
    "SELECT * FROM VALUES (1, 2), (3, 4) AS v(x, y), a PIVOT (sum(v) FOR k IN ('x', 'y'))",
    "(TABLE a UNION ALL TABLE b) EXCEPT (SELECT CASE WHEN x THEN (SELECT 1 FROM c) END FROM d GROUP BY ALL ORDER BY x, y)",
    "SELECT sum(x) FILTER (WHERE y IN (SELECT z FROM b)) OVER (PARTITION BY w ORDER BY v) FROM a, range(3) WINDOW w2 AS (ORDER BY q)",
]


@pytest.mark.parametrize("text", QUERIES)
def test_sparks_own_parser_finds_the_same_tables(spark: SparkSession, text: str) -> None:
    tokens = tokens_of(text)
    assert tokens is not None
    jvm: Any = spark._jsparkSession
    shown = str(jvm.sessionState().sqlParser().parsePlan(text).treeString())
    ours = sorted(".".join(each.name.parts).lower() for each in relations_in(Cursor(text, tokens)))
    theirs = [found.replace(", ", ".").lower() for found in re.findall(r"UnresolvedRelation \[([^]]*)\]", shown)]
    assert ours == sorted(name for name in theirs if name not in ("q", "r"))  # WITH defines these
