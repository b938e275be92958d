"""BEGIN ATOMIC, LOCK and EXPLAIN CONFLICT without Spark.

IF VERSION n before a statement: it commits as version n + 1, or not at all.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final

import pytest

import sluice
from sluice.statements import concurrency
from sluice.statements.duckdb.engine import run
from sluice.statements.request import Locks
from tests.sql_block import BLOCK, ORDERS_AFTER, ROWS, TOTALS_AFTER, VALUES, answer
from tests.statements.duckdb.conftest import Warehouse


@pytest.fixture(params=[False, True], ids=["copies", "vectors"])
def orders(warehouse: Warehouse, request: pytest.FixtureRequest) -> Warehouse:
    return made(warehouse, vectors=request.param)


def made(warehouse: Warehouse, *, vectors: bool = False) -> Warehouse:
    features = ", ".join(f"'delta.enable{each}' = '{str(vectors).lower()}'" for each in ("DeletionVectors", "RowTracking"))
    warehouse.sql(
        f"CREATE TABLE sales.orders (id BIGINT, day STRING, v DOUBLE) USING sluice PARTITIONED BY (day) TBLPROPERTIES ({features})",
        "CREATE TABLE sales.totals (day STRING, v DOUBLE) USING sluice",
        "INSERT INTO sales.orders VALUES (1, 'mo', 1), (2, 'mo', 2), (3, 'tu', 3)",
    )
    return warehouse


def test_a_block_is_one_commit_and_its_statements_see_one_another(orders: Warehouse) -> None:
    assert orders.rows(BLOCK, VALUES) == answer(orders=2, totals=1)
    assert orders.rows("SELECT * FROM sales.orders") == ORDERS_AFTER
    assert orders.rows("SELECT * FROM sales.totals") == TOTALS_AFTER


@pytest.mark.parametrize(
    ("last", "message"),
    [
        ("SELECT * FROM sales.orders", r"^line 3, column 1: a query's rows have nowhere to go"),
        ("DROP TABLE sales.orders", r"^line 3, column 1: the statements of a block are INSERT, UPDATE"),
        ("INSERT INTO sales.order SELECT 1", r"^line 3, column 13: there is no table sales.order; did you mean sales.orders"),
        ("INSERT INTO sales.totals SELECT 1", r"^line 3, column 26: these rows have 1 columns .* for 2 of the table"),
        ("INSERT INTO sales.totals (dya) SELECT 'x'", r"column 'dya' is not in the table; did you mean day\?"),
        ("UPDATE sales.orders SET v = 1000", r"^line 3, column 1: (.|\n)*v < 100"),
        ("UPDATE sales.orders SET v = frobnicate(v)", r"^line 3, column 8: (.|\n)*needs Spark"),
    ],
)
def test_a_statement_that_fails_takes_the_whole_block_back(warehouse: Warehouse, last: str, message: str) -> None:
    made(warehouse).sql("ALTER TABLE sales.orders ADD CONSTRAINT small CHECK (v < 100)")
    with pytest.raises(sluice.errors.SluiceError, match=message):
        warehouse.sql(f"BEGIN ATOMIC\nDELETE FROM sales.totals; DELETE FROM sales.orders WHERE id = 1;\n{last};\nEND")
    assert warehouse.rows("SELECT * FROM sales.orders") == ROWS
    assert warehouse.catalog.open("sales.totals").version == 0


def test_a_block_under_a_key_happens_once_and_values_stay_values(warehouse: Warehouse) -> None:
    made(warehouse)
    evil = "x'); DELETE FROM sales.orders; END -- \\"
    text = "BEGIN ATOMIC KEY :night INSERT INTO sales.totals VALUES (:night, 1); UPDATE sales.totals SET v = 2 WHERE day = :night; END"
    first, again = (warehouse.rows(text, {"night": evil}) for _ in range(2))
    assert [row[3] for row in first] == [1, 1]
    assert [row[3] for row in again] == [None, None]
    assert warehouse.rows("SELECT * FROM sales.totals") == [(evil, 2.0)]


def test_a_block_that_lost_is_repeated(warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    """A blind append to a table that the block only reads."""
    made(warehouse)
    real, ran = concurrency._run, [0]

    def late(*args: Any) -> Any:
        done = real(*args)
        ran[0] += 1
        if ran[0] == 1:
            warehouse.sql("INSERT INTO sales.orders VALUES (9, 'mo', 1)")
        return done

    monkeypatch.setattr(concurrency, "_run", late)
    rest = "INSERT INTO sales.totals SELECT day, sum(v) FROM sales.orders GROUP BY day; DELETE FROM sales.totals WHERE v > 100; END"
    with pytest.raises(sluice.errors.ConcurrentModification, match="orders"):
        warehouse.sql(f"BEGIN ATOMIC ATTEMPTS 1 {rest}")
    assert warehouse.rows("SELECT * FROM sales.totals") == []
    ran[0] = 0
    warehouse.sql(f"BEGIN ATOMIC {rest}")
    assert ran == [4]
    assert warehouse.rows("SELECT * FROM sales.totals") == [("mo", 5.0), ("tu", 3.0)]


def test_a_lock_is_the_sessions(warehouse: Warehouse) -> None:
    made(warehouse)
    mine, others = Locks(), Locks()

    def sql(locks: Locks, text: str, args: Any = None) -> list[Any]:
        return run(text, args, coordinator=warehouse.coordinator, locks=locks).to_pylist()

    nasty = "it's \\ mo"
    taken = sql(mine, "LOCK TABLE sales.orders WHERE day = :day, sales.totals SHARED NOWAIT", {"day": nasty})
    assert [(row["table"], row["mode"]) for row in taken] == [("sales.orders", "exclusive"), ("sales.totals", "shared")]
    assert {row["table"]: row["state"] for row in sql(mine, "SHOW LOCKS")} == {"sales.orders": "held", "sales.totals": "held"}
    sql(mine, "INSERT INTO sales.orders VALUES (4, :day, 4)", {"day": nasty})

    def apart(locks: Locks, text: str) -> BaseException | None:
        raised: list[BaseException] = []

        def work() -> None:
            try:
                sql(locks, text)
            except BaseException as error:  # noqa: BLE001 - the test looks at it
                raised.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        return raised[0] if raised else None

    assert isinstance(apart(others, "LOCK TABLE sales.totals NOWAIT"), sluice.errors.LeaseHeld)
    assert apart(mine, "DELETE FROM sales.totals") is None, "another thread of the session"
    with pytest.raises(sluice.errors.InvalidRequest, match=r"it was locked together with sales\.totals"):
        sql(mine, "UNLOCK TABLE sales.orders")
    with pytest.raises(sluice.errors.InvalidRequest, match=r"this session holds no lock on sales\.orders"):
        sql(others, "UNLOCK TABLE sales.orders")
    assert len(sql(mine, "UNLOCK")) == 2
    with pytest.raises(sluice.errors.InvalidRequest, match=r"line 1, column 31: .*depends on rows"):
        sql(mine, "LOCK TABLE sales.orders WHERE id = 3")
    sql(mine, "LOCK TABLE sales.totals")
    mine.release()
    assert sql(others, "SHOW LOCKS") == []
    with pytest.raises(sluice.errors.UnsupportedFeature, match="a lock belongs to a session"):
        warehouse.sql("LOCK TABLE sales.totals")


@pytest.mark.parametrize(
    ("one", "other", "verdicts"),
    [
        ("DELETE FROM {} WHERE day = 'mo'", "INSERT INTO {} VALUES (9, 'mo', 1)", {(2, False), (1, True)}),
        ("DELETE FROM {} WHERE day = 'mo'", "INSERT INTO {} VALUES (9, 'tu', 1)", {(2, False), (1, False)}),
        ("UPDATE {} SET v = 0 WHERE day = 'mo'", "DELETE FROM {} x WHERE x.day = 'mo'", {(2, True), (1, True)}),
        (
            "UPDATE {} SET v = 0 WHERE day = 'mo'",
            "MERGE INTO {} t USING sales.totals s ON t.day = s.day AND t.day = 'tu' WHEN MATCHED THEN DELETE",
            {(2, False), (1, False)},
        ),
        ("INSERT OVERWRITE {} PARTITION (day = 'mo') SELECT 1, 1", "TRUNCATE TABLE {} PARTITION (day = 'tu')", {(2, False), (1, False)}),
        (
            "INSERT WITH SCHEMA EVOLUTION INTO {} BY NAME SELECT day, 1 AS w FROM sales.totals",
            "DELETE FROM {} WHERE day = 'mo'",
            {(2, True), (1, False)},
        ),
    ],
)
def test_conflicts_are_foreseen(warehouse: Warehouse, one: str, other: str, verdicts: set[tuple[int, bool]]) -> None:
    made(warehouse)
    one, other = one.format("sales.orders"), other.format("sales.orders")
    told = run(f"EXPLAIN CONFLICT {one} WITH {other} AT LEVEL SERIALIZABLE", coordinator=warehouse.coordinator).to_pylist()
    assert {(row["second"], row["verdict"] == "may conflict") for row in told} == verdicts
    assert warehouse.rows("SELECT * FROM sales.orders") == ROWS


def test_a_wrong_column_is_no_unknown_condition(warehouse: Warehouse) -> None:
    made(warehouse)
    for text, message in (
        ("DELETE FROM sales.orders WHERE dya = 'mo'", "there is no column dya; did you mean day"),
        ("DELETE FROM sales.orders x WHERE x.dya IN (SELECT day FROM sales.totals)", "column 53: there is no column dya; did you mean day"),
        ("DELETE FROM sales.orders WHERE day IN (SELECT dya FROM sales.totals)", "there is no column dya; did you mean day"),
        ("UPDATE sales.orders SET vv = 1", "did you mean v"),
        ("MERGE INTO sales.orders o USING sales.totals s ON o.day = s.dya WHEN MATCHED THEN DELETE", "there is no column dya"),
    ):
        with pytest.raises(sluice.errors.InvalidRequest, match=message):
            warehouse.sql(f"EXPLAIN CONFLICT {text} WITH DELETE FROM sales.orders")
    sparks = "UPDATE sales.orders SET v = 1 WHERE soundex(day) IN (SELECT soundex(day) FROM sales.totals)"
    warehouse.sql(f"EXPLAIN CONFLICT {sparks} WITH DELETE FROM sales.orders")


STATEMENTS: Final = (
    "INSERT INTO sales.t VALUES (9, 'z')",
    "INSERT INTO sales.t SELECT id + 10, s FROM sales.t",
    "INSERT OVERWRITE sales.t SELECT id, s FROM sales.t WHERE id = 1",
    "INSERT INTO sales.t REPLACE WHERE id = 1 VALUES (1, 'y')",
    "UPDATE sales.t SET s = 'c' WHERE id = 1",
    "UPDATE sales.t SET s = 'd' WHERE id = (SELECT max(id) FROM sales.t)",
    "DELETE FROM sales.t WHERE id = 1",
    "MERGE INTO sales.t USING (SELECT 1 AS id) AS u ON t.id = u.id WHEN MATCHED THEN UPDATE SET s = 'm'",
    "WITH w AS (SELECT 5 AS id, 'w' AS s) INSERT INTO sales.t SELECT * FROM w",
    "TRUNCATE TABLE sales.t",
    "OPTIMIZE sales.t ZORDER BY (id)",
    "COMPACT TABLE sales.t MAJOR",
    "RESTORE TABLE sales.t TO VERSION AS OF 0",
    "ALTER TABLE sales.t SET TBLPROPERTIES ('a' = '2')",
    "ALTER TABLE sales.t UNSET TBLPROPERTIES ('other')",
    "ALTER TABLE sales.t ADD COLUMNS (more INT)",
    "ALTER TABLE sales.t ALTER COLUMN s COMMENT 'a text'",
    "ALTER TABLE sales.t ADD CONSTRAINT positive CHECK (id > 0)",
    "ALTER TABLE sales.t CLUSTER BY (id)",
    "ALTER TABLE sales.t ADD FEATURE deletionVectors",
)
REFUSED: Final = {
    "SELECT * FROM sales.t": "commits no version",
    "VACUUM sales.t": "commits no version",
    "DESCRIBE HISTORY sales.t": "commits no version",
    "ALTER TABLE sales.t RENAME TO u": "commits no version",
    "IF VERSION 2 DELETE FROM sales.t": "commits no version",
    "CREATE OR REPLACE TABLE sales.t (id INT)": r"sluice\.Table\.replace",
    "BEGIN ATOMIC DELETE FROM sales.t; END": "before each statement of the block",
    "DELETE FORM sales.t": "expected FROM",
}


def prepare(sql: Callable[[str], object]) -> None:
    """Version 3 of a table, with two files."""
    sql("CREATE TABLE sales.t (id INT, s STRING) USING sluice")
    sql("INSERT INTO sales.t VALUES (1, 'a')")
    sql("INSERT INTO sales.t VALUES (2, 'b')")
    sql("ALTER TABLE sales.t SET TBLPROPERTIES ('other' = '1')")


@pytest.mark.parametrize("statement", STATEMENTS)
@pytest.mark.many
def test_it_commits_as_the_next_version_or_not_at_all(warehouse: Warehouse, statement: str) -> None:
    prepare(warehouse.sql)
    with pytest.raises(sluice.errors.ConcurrentModification, match=r"expected-version: version 3 .*came first"):
        warehouse.sql(f"IF VERSION 2 {statement}")
    with pytest.raises(sluice.errors.VersionNotFound):
        warehouse.sql(f"IF VERSION 4 {statement}")
    table = warehouse.catalog.open("sales.t")
    assert table.version == 3
    warehouse.sql(f"if version 3 {statement};")
    assert table.refresh().version == 4


@pytest.mark.parametrize("statement", REFUSED)
def test_what_takes_no_version_is_refused(warehouse: Warehouse, statement: str) -> None:
    prepare(warehouse.sql)
    with pytest.raises(sluice.errors.InvalidRequest, match=REFUSED[statement]):
        warehouse.sql(f"IF VERSION 3 {statement}")
    assert warehouse.catalog.open("sales.t").version == 3


def test_the_version_is_a_number_or_a_parameter(warehouse: Warehouse) -> None:
    prepare(warehouse.sql)
    for wrong in ("", "x", "'3'", "-1", "1.5e0"):
        with pytest.raises(sluice.errors.InvalidRequest):
            warehouse.sql(f"IF VERSION {wrong} DELETE FROM sales.t")
    warehouse.rows("IF VERSION :v DELETE FROM sales.t WHERE id = :id", {"v": 3, "id": 1})
    warehouse.rows("IF VERSION ? DELETE FROM sales.t WHERE id = ?", [4, 2])
    assert warehouse.rows("SELECT * FROM sales.t") == []
    with pytest.raises(sluice.errors.InvalidRequest, match="there is no version -1"):
        warehouse.rows("IF VERSION ? DELETE FROM sales.t", [-1])


def test_the_statements_of_a_block_say_the_version_of_their_table(warehouse: Warehouse) -> None:
    prepare(warehouse.sql)
    warehouse.sql("CREATE TABLE sales.u (id INT) USING sluice")
    block = "BEGIN ATOMIC IF VERSION {} DELETE FROM sales.t WHERE id = 1; IF VERSION {} INSERT INTO sales.u VALUES (1); END"
    for versions in ((2, 0), (3, 1)):
        with pytest.raises((sluice.errors.ConcurrentModification, sluice.errors.VersionNotFound)):
            warehouse.sql(block.format(*versions))
    with pytest.raises(sluice.errors.InvalidRequest, match=r"an earlier statement of the block says IF VERSION 3"):
        warehouse.sql("BEGIN ATOMIC IF VERSION 3 DELETE FROM sales.t; IF VERSION 2 INSERT INTO sales.t VALUES (1, 'a'); END")
    assert [warehouse.catalog.open(name).version for name in ("sales.t", "sales.u")] == [3, 0]
    warehouse.sql(block.format(3, 0))
    assert [warehouse.catalog.open(name).version for name in ("sales.t", "sales.u")] == [4, 1]
