"""Queries by DuckDB: one moment, other versions, and nothing of the machine but the tables."""

from __future__ import annotations

from datetime import date, datetime, timezone
from typing import Any

import pytest

import sluice
from sluice.statements import places
from sluice.statements.duckdb.engine import run
from sluice.statements.places import at_one_moment
from sluice.tables.read.table_snapshot import TableSnapshot

from .conftest import Warehouse

ORDERS = (
    "CREATE TABLE sales.orders (id BIGINT NOT NULL, day DATE, amount DOUBLE) USING sluice PARTITIONED BY (day)",
    "INSERT INTO sales.orders VALUES (1, DATE'2026-01-01', 9.5), (2, DATE'2026-01-01', 20), (3, DATE'2026-01-02', 5)",
)


@pytest.fixture
def orders(warehouse: Warehouse) -> Warehouse:
    warehouse.sql(*ORDERS)
    return warehouse


def test_queries_with_joins_parameters_and_versions(orders: Warehouse) -> None:
    assert orders.rows("SELECT sum(amount), count(*) FROM sales.orders WHERE day = CAST(? AS DATE)", ["2026-01-01"]) == [(29.5, 2)]
    orders.sql("CREATE TABLE sales.refunds USING sluice AS SELECT id, amount / 2 AS back FROM sales.orders WHERE id = 2")
    both = "WITH r AS (SELECT * FROM sales.refunds) SELECT o.id, o.amount - coalesce(r.back, 0) FROM sales.orders o LEFT JOIN r USING (id)"
    assert orders.rows(both) == [(1, 9.5), (2, 10.0), (3, 5.0)]
    assert orders.rows("SELECT count(*) FROM sales.orders VERSION AS OF :v", {"v": 0}) == [(0,)]
    assert orders.rows("TABLE sales.refunds") == [(2, 10.0)]
    assert orders.rows("FROM sales.orders SELECT orders.id LIMIT 0") == []
    moment = datetime.fromtimestamp(orders.catalog.open("sales.orders").snapshot(1).timestamp / 1000, timezone.utc)
    assert orders.rows(f"SELECT count(*) FROM sales.orders TIMESTAMP AS OF '{moment.isoformat()}'") == [(3,)]
    with pytest.raises(sluice.errors.VersionNotFound):
        orders.rows("SELECT * FROM sales.orders TIMESTAMP AS OF '2020-01-01'")


def test_all_tables_of_a_query_are_read_as_of_one_moment(orders: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    orders.sql("CREATE TABLE sales.copy USING sluice AS SELECT * FROM sales.orders")
    together = at_one_moment

    def moved(tables: Any, *rest: Any) -> Any:
        found = together(tables, *rest)
        with sluice.transaction(coordinator=orders.coordinator) as both:  # between the moment and the reading
            for table in tables:
                both[table].delete("id = 1")
        return found

    monkeypatch.setattr(places, "at_one_moment", moved)
    counts = "SELECT (SELECT count(*) FROM sales.orders), (SELECT count(*) FROM sales.copy)"
    assert orders.rows(counts) == [(3, 3)]
    monkeypatch.undo()
    assert orders.rows(counts) == [(2, 2)]


def test_only_columns_and_files_that_matter_are_read(orders: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[tuple[Any, Any]] = []
    real = TableSnapshot.to_arrow

    def noted(self: TableSnapshot, columns: Any = None, where: Any = None) -> Any:
        read.append((columns, where))
        return real(self, columns, where)

    monkeypatch.setattr(TableSnapshot, "to_arrow", noted)
    one = "SELECT o.amount FROM sales.orders o WHERE o.day = DATE'2026-01-02' AND length(cast(o.id AS STRING)) = 1"
    assert orders.rows(one) == [(5.0,)]
    [(columns, where)] = read
    assert columns == ["id", "day", "amount"]
    assert "day = DATE '2026-01-02'" in where
    read.clear()
    assert orders.rows("SELECT count(*), max(day) FROM sales.orders") == [(3, date(2026, 1, 2))]
    assert read == [(["day"], None)]
    for text in ("SELECT *", "SELECT orders", "SELECT a.id FROM sales.orders a NATURAL JOIN sales.orders b --"):
        read.clear()
        orders.rows(f"{text} FROM sales.orders")
        assert read[0][0] == ["id", "day", "amount"]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM '/etc/hostname'",
        "SELECT * FROM read_csv('/etc/hostname')",
        "SELECT * FROM read_text('/etc/hostname')",
        "SELECT * FROM csv.`/etc/hostname`",
        "SELECT * FROM duckdb_settings()",
        "SELECT * FROM warehouse",
        "SELECT getenv('HOME')",
        "COPY (SELECT 1) TO '/tmp/x'",
        "INSTALL httpfs",
        "ATTACH '/tmp/x.db'",
        "SELECT 1; SELECT 2",
        "SET enable_external_access = true",
    ],
)
def test_a_query_reaches_nothing_but_tables(warehouse: Warehouse, text: str) -> None:
    with pytest.raises(sluice.errors.InvalidRequest):
        warehouse.rows(text)


def test_values_of_parameters_stay_values(orders: Warehouse) -> None:
    for value in ("'; DROP TABLE sales.orders; --", "\\'", "$$", "a\x00b", "1 OR 1=1", "é\n"):
        assert orders.rows("SELECT :x", {"x": value}) == [(value,)]
        assert orders.rows("SELECT id FROM sales.orders WHERE cast(id AS STRING) = ?", [value]) == []
        assert orders.rows("DELETE FROM sales.orders WHERE cast(id AS STRING) = :x", {"x": value}) == [(0,)]
    assert orders.rows("SELECT count(*) FROM sales.orders") == [(3,)]
    with pytest.raises(sluice.errors.InvalidRequest, match="line 2, column 8: this parameter has no value"):
        orders.rows("SELECT 1,\n       :y", {"x": 1})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT id FROM sales.order", "line 1, column 16: there is no table sales.order; did you mean sales.orders"),
        ("SELECT amunt\nFROM sales.orders", r"line 1, column 8: there is no column amunt; did you mean amount\?"),
        ("SELECT o.unlike FROM sales.orders o", "column 10: there is no column unlike; the columns are id, day, amount"),
        ("SELECT id FROM sales.orders WHERE", "column 29: the statement is not complete: something is missing after WHERE"),
        ("SELECT id FROM sales.orders\nWHERE", "line 2, column 1: the statement is not complete: something is missing after WHERE"),
        ("SELECT 'a", "does not end"),
        ("SELECT id, FROM sales.orders", "column 10: this comma separates nothing"),
        ("SELECT id,, day FROM sales.orders", "column 11: this comma separates nothing"),
        ("SELECT id FROM sales.orders WHERE id IN (1, 2,)", "column 46: this comma separates nothing"),
        ("SELECT id FROM sales.orders GROUP BY id, ORDER BY id", "column 40: this comma separates nothing"),
        ("COMMIT", "column 1: a transaction is one statement here: BEGIN ATOMIC"),
        ("begin transaction", "a transaction is one statement here"),
        ("SELECT * FROM sales.orders TIMESTAMP AS OF 'yesterday'", "column 44: this is no time; write it as '2026-01-31'"),
        ("SELECT date_format(day, 'yyyy') FROM sales.orders", "column 8: DuckDB has no date_format"),
        (" selec 1", "line 1, column 2: no statement begins with this word; did you mean SELECT"),
        ("'a'", "no statement begins with this word"),
        ("SELECT cast('a' AS INT)", "DuckDB says: Conversion Error"),
    ],
)
def test_errors_show_the_place(orders: Warehouse, text: str, message: str) -> None:
    with pytest.raises(sluice.errors.InvalidRequest, match=message):
        orders.rows(text)


def test_results_have_sparks_names(orders: Warehouse) -> None:
    results = (
        "count(*), SUM(amount), id + 1, upper('x'), 1, 'x', CAST(id AS STRING), max(id) - min(id), day, (SELECT count(*) FROM sales.orders)"
    )
    found = run(f"SELECT {results} FROM sales.orders GROUP BY id, day", coordinator=orders.coordinator).column_names
    assert found == [
        *("count(1)", "sum(amount)", "(id + 1)", "upper('x')", "1", "x", "CAST(id AS STRING)", "(max(id) - min(id))", "day"),
        "scalarsubquery()",
    ]
    text = "WITH q AS (SELECT count(*) FROM sales.orders) SELECT * FROM q UNION ALL SELECT 1"
    assert run(text, coordinator=orders.coordinator).column_names == ["count(1)"]


def test_changes_between_versions_and_times(orders: Warehouse) -> None:
    orders.sql("DELETE FROM sales.orders WHERE id = 1", "INSERT INTO sales.orders VALUES (4, NULL, 1)")
    table = orders.catalog.open("sales.orders")
    moments = [datetime.fromtimestamp(table.snapshot(each).timestamp / 1000, timezone.utc) for each in range(4)]
    changed, last = "SELECT id, _change_type FROM sales.orders", [(4, "insert")]
    assert orders.rows(f"{changed} VERSION BETWEEN 1 AND 3") == [(1, "delete"), *last]
    assert orders.rows(f"{changed} FOR VERSION BETWEEN :a AND :a + 1", {"a": 2}) == last
    assert orders.rows(f"{changed} VERSION BETWEEN 3 AND 3") == []
    assert orders.rows(f"{changed} TIMESTAMP BETWEEN '{moments[2].isoformat()}' AND '{moments[3].isoformat()}'") == last
    since = f"SELECT id, _change_type FROM table_changes('sales.orders', '{moments[3].isoformat()}'"
    assert orders.rows(f"{since})") == orders.rows(f"{since}, '{moments[3].isoformat()}')") == last
    marked = moments[1].astimezone().strftime("%Y%m%d%H%M%S%f")[:17]
    assert orders.rows(f"SELECT count(*) FROM sales.orders@{marked}") == [(3,)]
    for text, message in (
        (f"{changed} VERSION BETWEEN 3 AND 1", "column 65: this is before the first bound, 3"),
        (f"{since}, 3)", "one bound is a version and the other one a time"),
        ("SELECT * FROM sales.orders@2026", "yyyyMMddHHmmssSSS"),
    ):
        with pytest.raises(sluice.errors.InvalidRequest, match=message):
            orders.rows(text)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT frobnicate(id) FROM sales.orders",
        "EXPLAIN SELECT 1",
        "SHOW VIEWS",
        "SELECT a FROM (SELECT 1 AS a, 2 AS A)",
        "WITH q AS (SELECT id, amount AS id FROM sales.orders) SELECT id FROM q",
    ],
)
def test_what_needs_spark_says_so(orders: Warehouse, text: str) -> None:
    with pytest.raises(sluice.errors.UnsupportedFeature, match="needs Spark") as refused:
        orders.rows(text)
    assert refused.value.features == ["Spark"]


def test_columns_of_one_name_that_nothing_confuses(orders: Warehouse) -> None:
    assert orders.rows("SELECT a FROM (SELECT 1, 2) AS q(a, b)") == [(1,)]
    assert orders.rows("SELECT b FROM (SELECT 1 AS a, 2 AS a) AS q(a, b)") == [(2,)]
    assert run("SELECT 1 AS a, 2 AS a", coordinator=orders.coordinator).column_names == ["a", "a"]


def test_a_query_of_much_data_is_left_to_spark(orders: Warehouse) -> None:
    with pytest.raises(sluice.errors.UnsupportedFeature, match="reads 0 MiB of data files"):
        orders.rows("SELECT * FROM sales.orders", max_bytes=10)
    assert orders.rows("SELECT id FROM sales.orders WHERE day = DATE'2030-01-01'", max_bytes=10) == []


def test_a_path_may_name_a_version(orders: Warehouse) -> None:
    table = orders.catalog.open("sales.orders")
    place, before = table.location.removeprefix("file://"), table.version
    at = datetime.fromtimestamp(table.snapshot(before).timestamp / 1000).strftime("%Y%m%d%H%M%S%f")[:17]  # noqa: DTZ006 - local, as in Spark
    count = orders.rows("SELECT count(*) FROM sales.orders")
    table.delete("true")
    for name in (f"{place}@v{before}", f"{place}@V{before}", f"{place}@{at}"):
        assert orders.rows(f"SELECT count(*) FROM sluice.`{name}`") == count
        assert orders.rows(f"SELECT count(*) FROM sluice.`{name}` AS a, sluice.`{place}` AS b") == [(0,)]
    orders.sql(f"INSERT INTO sales.orders SELECT * FROM sluice.`{place}@v{before}`")
    assert table.refresh().history(limit=1)[0].is_blind_append is True, "a version never changes"
    assert orders.rows("SELECT count(*) FROM sales.orders") == count
    with pytest.raises(sluice.errors.VersionNotFound):
        orders.rows(f"SELECT * FROM sluice.`{place}@v99`")
    with pytest.raises(sluice.errors.TableNotFound):
        orders.sql(f"INSERT INTO sluice.`{place}@v{before}` SELECT 1, NULL, 1")
    orders.sql(f"CREATE TABLE sluice.`{place}@v{before}` (id INT)")
    assert orders.rows(f"SELECT count(*) FROM sluice.`{place}@v{before}`") == [(0,)], "what exists wins"
