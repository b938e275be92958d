"""INSERT, UPDATE, DELETE, MERGE and statements about tables without Spark.

MERGE, and subqueries in changes, without Spark: random ones against a reference in plain Python, and those that are refused.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import sluice
from sluice.statements.duckdb import engine
from sluice.statements.duckdb.database import LocalRequest, run_query
from sluice.statements.parse.cursor import Span
from sluice.tables.transaction import Transaction
from tests.spark_integration.rows.model import Ambiguous, Row, Ruled, changes
from tests.spark_integration.rows.random_operations import Operation, operation, rows
from tests.statements.duckdb.conftest import Warehouse
from tests.statements.duckdb.test_queries import ORDERS


@pytest.fixture
def orders(warehouse: Warehouse) -> Warehouse:
    warehouse.sql(*ORDERS)
    return warehouse


@pytest.mark.parametrize(
    "query",
    [
        "SELECT id + 10 AS id, day, amount FROM sales.orders WHERE id = 2",
        "WITH c AS (SELECT * FROM sales.orders) SELECT c.* FROM c JOIN sales.orders AS o USING (id) WHERE o.id = 2",
        "SELECT (SELECT max(id) FROM sales.orders) AS id, NULL, 0",
    ],
)
@pytest.mark.parametrize("level", ["Serializable", "WriteSerializable", "SnapshotIsolation"])
@pytest.mark.many
def test_an_insert_depends_on_the_rows_of_its_own_table_that_it_reads(
    orders: Warehouse, monkeypatch: pytest.MonkeyPatch, level: str, query: str
) -> None:
    table = orders.catalog.open("sales.orders")
    table.set_properties({"delta.isolationLevel": level})
    orders.sql(f"INSERT INTO sales.orders {query}")
    assert table.refresh().history(limit=1)[0].is_blind_append is False
    orders.sql("INSERT INTO sales.orders SELECT 30, NULL, 1")
    assert table.refresh().history(limit=1)[0].is_blind_append is True
    append = Transaction.append

    def late(*given: Any, **named: Any) -> None:
        table.delete("id = 2")
        append(*given, **named)

    monkeypatch.setattr(Transaction, "append", late)
    with pytest.raises(sluice.errors.ConcurrentModification):
        orders.sql(f"INSERT INTO sales.orders {query}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("INSERT INTO sales.orders VALUES ('a', NULL, 1)", "column 'id' is bigint, and these values are string: CAST them"),
        ("INSERT INTO sales.orders VALUES (99999999999999999999, NULL, 1)", "DuckDB says"),
        ("INSERT INTO sales.orders VALUES (NULL, NULL, 1)", "id"),
    ],
)
def test_rows_that_do_not_fit_are_refused(orders: Warehouse, text: str, message: str) -> None:
    with pytest.raises(sluice.errors.SluiceError, match=message):
        orders.sql(text)
    assert orders.catalog.open("sales.orders").version == 1


def test_numbers_are_stored_as_spark_stores_them(warehouse: Warehouse) -> None:
    warehouse.sql(
        "CREATE TABLE sales.n (i INT, d DECIMAL(6, 2), f FLOAT, s STRING, at TIMESTAMP_NTZ) USING sluice",
        "INSERT INTO sales.n VALUES (-1.7, 2.345, 1, 12, DATE'2026-01-01'), (1.7, 3, 0.5, 13, NULL)",
    )
    found = warehouse.rows("SELECT i, d, f, s FROM sales.n")
    assert found == [(-1, Decimal("2.35"), 1.0, "12"), (1, Decimal("3.00"), 0.5, "13")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("UPDATE sales.orders SET amount = frobnicate(id)", "frobnicate"),
        ("UPDATE sales.orders SET amount = 1 WHERE id IN (SELECT frobnicate(id) FROM sales.orders)", "frobnicate"),
        (
            "MERGE WITH SCHEMA EVOLUTION INTO sales.orders t USING sales.orders s ON t.id = s.id WHEN MATCHED THEN UPDATE SET *",
            "SCHEMA EVOLUTION",
        ),
        ("BEGIN ATOMIC DELETE FROM sales.orders; UPDATE sales.orders SET amount = frobnicate(id); END", "frobnicate"),
    ],
)
def test_changes_that_need_spark_say_so(orders: Warehouse, text: str, message: str) -> None:
    with pytest.raises(sluice.errors.UnsupportedFeature, match=f"{message}.*needs Spark") as refused:
        orders.sql(text)
    assert refused.value.features == ["Spark"]


NAMES = "k, p, v, tag"


def values(found: Sequence[Row]) -> str:
    """Rows as VALUES writes them."""

    def literal(value: object) -> str:
        return "NULL" if value is None else f"'{value}'" if isinstance(value, str) else f"{value}L"

    return ", ".join(f"({', '.join(map(literal, row))})" for row in found)


def clause_sql(rule: Ruled) -> str:
    clause = rule.clause
    condition = "" if clause.condition is None else f" AND {clause.condition}"
    if clause.action == "insert":
        what = f"INSERT ({', '.join(clause.assignments)}) VALUES ({', '.join(map(str, clause.assignments.values()))})"
    else:
        listed = ", ".join(f"{name} = {value}" for name, value in clause.assignments.items())
        what = f"UPDATE SET {listed}" if listed else "DELETE"
    return f"WHEN {clause.matched.replace('_', ' ').upper()}{condition} THEN {what}"


def as_sql(wanted: Operation) -> str:
    clauses = " ".join(map(clause_sql, wanted.rules))
    if wanted.source:
        source = f"(SELECT * FROM VALUES {values(wanted.source)} AS x(k, p, w, tag))"
        return f"MERGE INTO sales.t t USING {source} s ON {wanted.on.sql} {clauses}"
    [rule] = wanted.rules
    where = "" if rule.clause.condition is None else f" WHERE {rule.clause.condition}"
    if wanted.kind == "delete":
        return f"DELETE FROM sales.t t{where}"
    return f"UPDATE sales.t t SET {', '.join(f'{name} = {value}' for name, value in rule.clause.assignments.items())}{where}"


@pytest.mark.costly
@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed", "vectors", "count"),
    [(1, True, 8), *(pytest.param(seed, seed % 2 == 0, 15, marks=pytest.mark.long) for seed in range(1, 9))],
)
def test_random_merges_are_what_the_reference_says(warehouse: Warehouse, seed: int, vectors: bool, count: int) -> None:
    features = ", ".join(
        f"'delta.enable{each}' = '{str(vectors).lower()}'" for each in ("DeletionVectors", "RowTracking", "ChangeDataFeed")
    )
    held = Counter(rows(random.Random(seed), "first", 20))
    warehouse.sql(
        f"CREATE TABLE sales.t (k BIGINT, p STRING, v BIGINT, tag STRING) USING sluice PARTITIONED BY (p) TBLPROPERTIES ({features})",
        f"INSERT INTO sales.t VALUES {values(list(held.elements()))}",
    )
    refused = 0
    for number in range(count):
        wanted = operation(seed, "sql", number)
        text = as_sql(wanted)
        try:
            found = changes(list(held.elements()), wanted.source, wanted.on, wanted.rules)
        except Ambiguous:
            refused += 1
            with pytest.raises(sluice.errors.InvalidRequest, match="several rows of the source change the same row"):
                warehouse.sql(text)
            continue
        version = warehouse.catalog.open("sales.t").version
        warehouse.sql(text)
        for before, after in found:
            held.subtract([] if before is None else [before])
            held.update([] if after is None else [after])
        held = +held
        assert Counter(warehouse.rows(f"SELECT {NAMES} FROM sales.t")) == held, text
        assert warehouse.catalog.open("sales.t").version == version + bool(found), text
    assert refused < count


@pytest.fixture
def tables(warehouse: Warehouse) -> Warehouse:
    warehouse.sql(
        """CREATE TABLE sales.t (id INT NOT NULL, s STRUCT<a: INT>, n INT CHECK (n < 100)) USING sluice
           TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')""",
        "CREATE TABLE sales.u (id INT, n INT) USING sluice",
        "INSERT INTO sales.t VALUES (1, named_struct('a', 1), 1), (2, NULL, 2)",
        "INSERT INTO sales.u VALUES (1, 10), (3, 30)",
    )
    return warehouse


def test_subqueries_in_changes(tables: Warehouse) -> None:
    changed = tables.rows("UPDATE sales.t x SET n = (SELECT max(u.n) FROM sales.u u WHERE u.id = x.id) + :more WHERE id = 1", {"more": 5})
    assert changed == [(1,)]
    assert tables.rows("SELECT id, s, n FROM sales.t") == [(1, {"a": 1}, 15), (2, None, 2)]
    assert tables.rows("DELETE FROM sales.t WHERE id NOT IN (SELECT id FROM sales.u) AND n = (SELECT min(n) FROM sales.t)") == [(1,)]
    assert tables.rows("DELETE FROM sales.t WHERE EXISTS (SELECT 1 FROM sales.u WHERE n > 1000)") == [(0,)]
    assert tables.catalog.open("sales.t").version == 3
    assert tables.rows("MERGE INTO sales.t USING sales.u ON t.id = u.id WHEN MATCHED THEN UPDATE SET t.n = u.n") == [(1, 1, 0, 0)]
    assert tables.rows("SELECT id, n FROM sales.t") == [(1, 10)]


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM sales.o WHERE day = 'tu' AND v = (SELECT max(v) FROM sales.o)",
        "UPDATE sales.o SET v = (SELECT count(*) FROM sales.o) WHERE day = 'tu'",
        "MERGE INTO sales.o t USING (SELECT 'tu' AS d, max(v) AS v FROM sales.o) s ON t.day = s.d AND t.v = s.v WHEN MATCHED THEN DELETE",
    ],
)
def test_what_a_statement_reads_of_its_own_table_counts_as_read(
    warehouse: Warehouse, statement: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of other partitions that change meanwhile could change what the subquery gives: so the statement loses against them."""
    orders = warehouse.catalog.create("sales.o", pa.schema({"id": pa.int64(), "day": pa.string(), "v": pa.int64()}), partition_by=["day"])
    orders.append(pa.table({"id": [1, 2], "day": ["mo", "tu"], "v": [1, 5]}))
    change = engine.ENGINE.change

    def late(*arguments: Any) -> Any:
        counts = change(*arguments)
        warehouse.catalog.open("sales.o").delete("id = 1")
        return counts

    monkeypatch.setattr(engine, "ENGINE", replace(engine.ENGINE, change=late))
    with pytest.raises(sluice.errors.ConcurrentModification):
        warehouse.sql(statement)
    assert warehouse.rows("SELECT id, v FROM sales.o") == [(2, 5)]


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM sales.t WHERE id = (SELECT max(id) FROM sales.u)",
        "UPDATE sales.t SET id = 7 WHERE id = (SELECT max(id) FROM sales.u)",
        "MERGE INTO sales.t USING (SELECT max(id) AS id FROM sales.u) s ON t.id = s.id WHEN MATCHED THEN DELETE",
    ],
)
def test_a_statement_reads_all_tables_as_of_one_moment(warehouse: Warehouse, statement: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = pa.table({"id": [1, 2]})
    for name in ("sales.t", "sales.u"):
        warehouse.catalog.create(name, ids.schema).append(ids)
    change = engine.ENGINE.change

    def beside(*arguments: Any) -> Any:
        warehouse.catalog.open("sales.u").append(pa.table({"id": [3]}))  # after the moment, before it is read
        return change(*arguments)

    monkeypatch.setattr(engine, "ENGINE", replace(engine.ENGINE, change=beside))
    assert warehouse.rows(statement)[0][0] == 1


@pytest.mark.costly
def test_names_of_columns_stay_names(warehouse: Warehouse) -> None:
    for name in ('a"b', "c``d", "e'f", "g--h", "i/*j", "select", ":k", "?l"):
        warehouse.sql(
            f"CREATE OR REPLACE TABLE sales.n (id INT, `{name}` STRING) USING sluice",
            f"INSERT INTO sales.n (id, `{name}`) VALUES (1, 'x')",
            f"UPDATE sales.n SET `{name}` = 'y' WHERE `{name}` = 'x'",
            f"UPDATE sales.n t SET t.`{name}` = (SELECT max(s.`{name}`) FROM sales.n s) WHERE t.`{name}` IN (SELECT `{name}` FROM sales.n)",
            f"""MERGE INTO sales.n t USING (SELECT 1 AS id, 'z' AS `{name}`) s ON t.id = s.id AND t.`{name}` = 'y'
                WHEN MATCHED THEN UPDATE SET `{name}` = s.`{name}` WHEN NOT MATCHED THEN INSERT (id, `{name}`) VALUES (s.id, s.`{name}`)""",
        )
        assert warehouse.rows(f"SELECT id, `{name}` FROM sales.n ORDER BY `{name}`") == [(1, "z")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("MERGE INTO sales.t t USING sales.u u ON t.id = u.id WHEN MATCHED THEN UPDATE SET *", "the source has no column 's'"),
        ("MERGE INTO sales.t t USING sales.u u ON t.id = u.id WHEN MATCHED THEN UPDATE SET nn = 1", "did you mean n"),
        ("MERGE INTO sales.t t USING sales.u u ON t.id = u.id WHEN MATCHED THEN UPDATE SET n = 'x'", "'x', a value of 'n', does not fit"),
        ("MERGE INTO sales.t t USING sales.u u ON t.id = u.id WHEN MATCHED THEN UPDATE SET n = u.n * 10", "n < 100"),
        ("MERGE INTO sales.t t USING sales.u u ON t.id = u.id WHEN MATCHED THEN UPDATE SET s.a = 1", "field of a struct"),
        ("MERGE INTO sales.t t USING sales.u u ON t.id = u.idd WHEN MATCHED THEN DELETE", "idd"),
        ("MERGE INTO sales.t t USING sales.u u ON t.id = u.id WHEN NOT MATCHED THEN INSERT (n) VALUES (u.n)", "id"),
        ("MERGE INTO sales.t t USING sales.u u ON id = u.id WHEN MATCHED THEN DELETE", "(?i)ambiguous"),
        ("MERGE INTO sales.t t USING sales.u u ON t.id = u.id WHEN MATCHED THEN DELETE WHEN MATCHED THEN DELETE", "has no condition"),
        ("MERGE INTO sales.t t USING sales.u u ON t.id = u.id WHEN MATCHED THEN UPDATE SET n = sum(u.n)", "sum|aggregate|GROUP BY"),
        ("UPDATE sales.t SET n = (SELECT u.n FROM sales.u u)", "More than one row"),
        ("UPDATE sales.t SET id = NULL WHERE id IN (SELECT u.id FROM sales.u u)", "id"),
    ],
)
@pytest.mark.many
def test_a_change_that_fails_changes_nothing(tables: Warehouse, text: str, message: str) -> None:
    with pytest.raises(sluice.errors.SluiceError, match=message):
        tables.sql(text)
    assert tables.catalog.open("sales.t").version == 1


def test_a_merge_by_keys_disturbs_nobody_else(tables: Warehouse) -> None:
    """Another key's rows may change between what a merge reads and its commit."""
    table = tables.catalog.open("sales.t")
    with table.begin(isolation="Serializable") as other:
        other.update({"n": "n + 1"}, "id = 2")
        tables.sql(
            """MERGE INTO sales.t t USING sales.u u ON t.id = u.id
               WHEN MATCHED THEN UPDATE SET n = u.n WHEN NOT MATCHED THEN INSERT (id, n) VALUES (u.id, u.n)"""
        )
    assert tables.rows("SELECT id, n FROM sales.t") == [(1, 10), (2, 3), (3, 30)]


def test_rows_with_a_primary_key(warehouse: Warehouse) -> None:
    warehouse.sql(
        """CREATE TABLE sales.k (id INT NOT NULL, p STRING, n INT, PRIMARY KEY (id)) USING sluice PARTITIONED BY (p)
           TBLPROPERTIES ('sluice.conflictPolicy' = 'maxcompute-delta')""",
        "INSERT INTO sales.k VALUES (1, 'a', 1), (2, 'a', 2), (2, NULL, 3)",
    )
    rows = "(SELECT * FROM VALUES (1, 'a', 10), (3, 'a', 30), (3, 'a', 31), (2, NULL, 20) AS v(id, p, n)) s"
    merge = (
        f"MERGE INTO sales.k t USING {rows} ON t.id = s.id AND t.p <=> s.p WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )
    held = [(1, "a", 10), (2, "a", 2), (2, None, 20), (3, "a", 31)]
    assert warehouse.rows(merge)[0][1:] == (2, 0, 2)
    assert warehouse.rows("SELECT * FROM sales.k") == sorted(held, key=repr)
    for values in ("id = t.id + 1", "p = 'b'"):
        with pytest.raises(sluice.errors.InvalidRequest, match="a row is identified by its partition and its primary key"):
            warehouse.sql(
                f"MERGE INTO sales.k t USING {rows} ON t.id = s.id AND t.p = s.p WHEN MATCHED AND s.n = 10 THEN UPDATE SET {values}"
            )
    warehouse.sql("MERGE INTO sales.k t USING (SELECT 1 AS id) s ON false WHEN NOT MATCHED THEN INSERT (id, p, n) VALUES (s.id, 'a', 11)")
    assert warehouse.rows("SELECT n FROM sales.k WHERE id = 1") == [(11,)]


def test_a_row_with_a_primary_key_in_the_partition_of_nan_keeps_its_place(warehouse: Warehouse) -> None:
    warehouse.sql(
        """CREATE TABLE sales.k (id INT NOT NULL, p DOUBLE, n INT, PRIMARY KEY (id)) USING sluice PARTITIONED BY (p)
           TBLPROPERTIES ('sluice.conflictPolicy' = 'maxcompute-delta')""",
        "INSERT INTO sales.k VALUES (1, CAST('NaN' AS DOUBLE), 1), (2, 2, 2), (3, NULL, 3)",
        "UPDATE sales.k SET n = n + 10 WHERE id IN (SELECT id FROM sales.k VERSION AS OF 1)",
        "MERGE INTO sales.k t USING (SELECT * FROM sales.k VERSION AS OF 1) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET n = t.n + s.n",
    )
    assert warehouse.rows("SELECT id, n FROM sales.k") == [(1, 12), (2, 14), (3, 16)]
    for values in ("p = 3", "p = NULL", "p = CAST('NaN' AS DOUBLE)"):
        with pytest.raises(sluice.errors.InvalidRequest, match="update sets 'p'"):
            warehouse.sql(f"MERGE INTO sales.k t USING (SELECT 2 AS id) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET {values}")


def test_a_statement_has_one_connection(warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of its queries sees its own tables only, and with the statement the connection ends, also with one that fails."""
    made: list[duckdb.DuckDBPyConnection] = []
    connect = duckdb.connect

    def connecting(*values: Any, **named: Any) -> duckdb.DuckDBPyConnection:
        for each in made:
            with pytest.raises(duckdb.ConnectionException, match="closed"):
                each.execute("SELECT 1")
        made.append(connect(*values, **named))
        return made[-1]

    create = "CREATE TABLE sales.{0} USING sluice AS SELECT * FROM VALUES {1} AS x(id)"
    warehouse.sql(create.format("t", "(1L), (2L)"), create.format("s", "(2L), (3L)"))
    monkeypatch.setattr(duckdb, "connect", connecting)
    warehouse.sql("MERGE INTO sales.t USING sales.s ON t.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *")
    assert len(made) == 1
    with pytest.raises(sluice.errors.InvalidRequest, match="__sluice_source"):
        warehouse.sql("DELETE FROM sales.t WHERE id IN (SELECT __sluice_source.id FROM sales.s)")
    assert len(made) == 2
    assert warehouse.rows("SELECT count(*) FROM sales.t") == [(3,)]


def test_views_of_a_query_are_gone_after_it() -> None:
    request = LocalRequest("SELECT 1")
    assert run_query(request, Span(0, 8), "SELECT a FROM one", {"one": pa.table({"a": [1]})}).to_pylist() == [{"a": 1}]
    for text in ("SELECT a FROM one", "SELECT a FROM two"):
        with pytest.raises(sluice.errors.InvalidRequest, match="does not exist"):
            run_query(request, Span(0, 8), text, {"three": pa.table({"a": [3]})})
    [connection] = request.connections
    assert connection.sql("SHOW ALL TABLES").fetchall() == []
