"""Statements about tables without Spark.

Columns that are added and changed, namespaces, comments, and tables like others.
Several clients that create one table, or one namespace, at the same moment: all succeed, and there is one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest

import sluice
from sluice.coordinator.nodes.creation import known_locations
from sluice.coordinator.service.connect import connect
from tests.statements.duckdb.conftest import Warehouse


def test_tables_are_made_and_described(warehouse: Warehouse) -> None:
    made = r"""
        CREATE TABLE sales.t (id BIGINT COMMENT 'it\'s', s STRUCT<`x-y`: INT NOT NULL COMMENT 'a, b', z: ARRAY<STRING>>, day DATE)
        USING sluice PARTITIONED BY (day) COMMENT 'all' TBLPROPERTIES (owner = 'me')
    """
    warehouse.sql(made)
    [(shown,)] = warehouse.rows("SHOW CREATE TABLE sales.t")
    assert "`s` struct<`x-y`:int NOT NULL COMMENT 'a, b',z:array<string>>" in shown
    warehouse.sql(shown.replace("sales.t", "sales.u"))
    tables = [warehouse.catalog.open(name) for name in ("sales.t", "sales.u")]
    assert tables[0].struct == tables[1].struct
    assert tables[1].struct.named("id").metadata == {"comment": "it's"}
    assert warehouse.catalog.comment("sales.t") == "all"
    assert warehouse.rows("DESCRIBE sales.t id") == [("col_name", "id"), ("comment", "it's"), ("data_type", "bigint")]
    assert warehouse.rows("SHOW TBLPROPERTIES sales.t (owner)") == [("owner", "me")]
    assert {row[0] for row in warehouse.rows("DESCRIBE EXTENDED sales.t")} >= {"id", "Location", "# Partition Information"}
    assert warehouse.rows("DESCRIBE HISTORY sales.t LIMIT 1")[0][4] == "CREATE TABLE"


def test_partitions_are_shown_from_the_log(warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    warehouse.sql(
        "CREATE TABLE sales.t (id INT, a STRING, n INT) USING sluice PARTITIONED BY (a, n)",
        "INSERT INTO sales.t VALUES (1, 'x', 1), (2, 'x', 1), (3, 'y', NULL)",
    )
    monkeypatch.setattr("sluice.storage.data.scan.TableScan.read", None)
    assert warehouse.rows("SHOW PARTITIONS sales.t") == [("x", 1), ("y", None)]
    assert warehouse.rows("SHOW PARTITIONS sales.t PARTITION (n = 1, A = 'x')") == [("x", 1)]
    assert warehouse.rows("SHOW COLUMNS FROM t IN sales") == [("a",), ("id",), ("n",)]


def test_texts_of_limited_length(warehouse: Warehouse) -> None:
    warehouse.sql("CREATE TABLE sales.l (`a_b` VARCHAR( 3 ) COMMENT 'short', s STRUCT<x: INT>) USING sluice")
    warehouse.sql("INSERT INTO sales.l VALUES ('äöü', NULL), (NULL, NULL)", "ALTER TABLE sales.l ADD COLUMN more varchar(1)")
    table = warehouse.catalog.open("sales.l")
    assert [dict(each.metadata) for each in table.struct.fields] == [
        {"comment": "short", "__CHAR_VARCHAR_TYPE_STRING": "varchar(3)"},
        {},
        {"__CHAR_VARCHAR_TYPE_STRING": "varchar(1)"},
    ]
    with pytest.raises(sluice.errors.ConstraintViolated, match=r"varchar\(3\) of a_b .*length\(`a_b`\) <= 3"):
        warehouse.sql("INSERT INTO sales.l VALUES ('ok', NULL, NULL), ('long', NULL, NULL)")
    with pytest.raises(sluice.errors.ConstraintViolated, match=r"varchar\(1\) of more"):
        table.update({"more": "'xy'"})
    shown = warehouse.rows("SHOW CREATE TABLE sales.l")[0][0]
    assert "`a_b` varchar(3) COMMENT 'short'" in shown
    assert ("a_b", "varchar(3)", "short") in warehouse.rows("DESCRIBE TABLE sales.l")
    warehouse.sql("ALTER TABLE sales.l ALTER COLUMN `a_b` COMMENT 'shorter'", "CREATE TABLE sales.k LIKE sales.l")
    assert warehouse.catalog.open("sales.k").struct == table.refresh().struct
    with pytest.raises(sluice.errors.UnsupportedFeature, match="the length of its texts stays as it is"):
        warehouse.sql("ALTER TABLE sales.l ALTER COLUMN more TYPE VARCHAR(2)")
    with pytest.raises(sluice.errors.UnsupportedFeature, match="no length of a text in another column"):
        warehouse.sql("ALTER TABLE sales.l ADD COLUMN s.y VARCHAR(2)")
    assert len(warehouse.rows("SELECT * FROM sales.l")) == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("CREATE TABLE sales.u (a INT, CHECK (b > 1)) USING sluice", "column 37: column 'b' is not in the table; its columns are a"),
        ("CREATE TABLE sales.u (amount INT CHECK (amunt > 1)) USING sluice", "column 41: .* did you mean amount"),
        ("CREATE TABLE sales.u (a INTT) USING sluice", "column 25: 'INTT' is not a type of Spark SQL"),
        ("CREATE TABLE sales.t USING sluice AS SELECT 1 AS a", r"line 1, column 14: a table sales\.t already exists"),
        ("CREATE TABLE p (a INT) USING parquet", "a table of parquet; that needs Spark"),
        *[
            (text, "write VARCHAR\\(n\\), or STRING inside of others")
            for text in (
                "CREATE TABLE sales.p (a STRUCT<b: VARCHAR(10)>) USING sluice",
                "ALTER TABLE sales.t ADD COLUMN (a ARRAY<VARCHAR(10)>)",
            )
        ],
        ("ALTER TABLE sales.t ADD CONSTRAINT c CHECK (nam > 'a')", "column 45: column 'nam' is not in the table; did you mean name"),
        ("ALTER TABLE sales.t ALTER COLUMN nam COMMENT 'x'", "column 34: column 'nam' is not in the table; did you mean name"),
    ],
)
def test_wrong_definitions_are_refused(warehouse: Warehouse, text: str, message: str) -> None:
    warehouse.sql("CREATE TABLE sales.t (id INT, name STRING) USING sluice")
    with pytest.raises(sluice.errors.InvalidRequest, match=message):
        warehouse.sql(text)
    assert [each.full_name for each in warehouse.catalog.tables("sales")] == ["sales.t"]
    assert warehouse.catalog.open("sales.t").version == 0


def test_compactions_of_a_partition(warehouse: Warehouse) -> None:
    warehouse.sql(
        "CREATE TABLE sales.t (id INT, p STRING) USING sluice PARTITIONED BY (p) TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')",
        *("INSERT INTO sales.t VALUES (1, 'a'), (2, 'a'), (1, 'b')" for _ in range(2)),
        "DELETE FROM sales.t WHERE id = 2",
        "ALTER TABLE sales.t PARTITION (p = 'b') COMPACT MINOR",
    )
    files = warehouse.catalog.open("sales.t").snapshot().files
    assert [files(f"p = '{each}'").num_rows for each in "ab"] == [2, 1]
    [(_, metrics)] = warehouse.rows("COMPACT TABLE sales.t PARTITION (p = :p) MAJOR", {"p": "a"})
    assert (metrics["numFilesAdded"], metrics["numFilesRemoved"]) == (1, 2)
    assert metrics["deletionVectorStats"]["numDeletionVectorsRemoved"] == 2
    for text, message in (
        ("ALTER TABLE sales.t COMPACT", "expected MINOR or MAJOR, but the statement ends"),
        ("COMPACT sales.t FULL", "column 17: expected MINOR or MAJOR"),
        ("COMPACT sales.t PARTITION (id = 1) MINOR", "id is no partition column; those are p"),
        ("COMPACT sales.tt MINOR", "did you mean sales.t"),
    ):
        with pytest.raises(sluice.errors.InvalidRequest, match=message):
            warehouse.sql(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("MSCK REPAIR TABLE sales.t", "column 19: this is a table of sluice: the log lists the partitions"),
        ("REFRESH TABLE sales.t", "each statement reads the latest version by itself"),
        ("CACHE LAZY TABLE sales.t", "cache the rows of a query"),
        ("EXPLAIN EXTENDED DELETE FROM sales.t WHERE id = 1", "column 30: this is a table of sluice: Spark has no plan for a change"),
        ("LOAD DATA INPATH '/x' OVERWRITE INTO TABLE sales.t", "COPY INTO t FROM 'path'"),
        ("ALTER TABLE sales.t SET LOCATION 'x'", "a table stays where its log is"),
    ],
)
def test_statements_without_a_meaning_here_are_explained(warehouse: Warehouse, text: str, message: str) -> None:
    warehouse.sql("CREATE TABLE sales.t (id INT, p INT) USING sluice PARTITIONED BY (p)")
    with pytest.raises(sluice.errors.UnsupportedFeature, match=message) as refused:
        warehouse.sql(text)
    assert refused.value.features != ["Spark"]


def test_a_namespace_goes_with_its_tables(warehouse: Warehouse) -> None:
    warehouse.sql("CREATE TABLE sales.t (id INT) USING sluice", "INSERT INTO sales.t VALUES (1)")
    warehouse.sql(f"CREATE TABLE sales.own (id INT) USING sluice LOCATION '{warehouse.folder}/own'")
    with pytest.raises(sluice.errors.NamespaceNotEmpty, match="sales has tables"):
        warehouse.sql("DROP NAMESPACE sales RESTRICT")
    warehouse.sql("DROP SCHEMA sales CASCADE", "DROP DATABASE IF EXISTS sales CASCADE")
    assert [each.name for each in warehouse.catalog.namespaces()] == ["default"]
    assert warehouse.rows(f"SELECT * FROM sluice.`{warehouse.folder}/own`") == []
    warehouse.sql("UNDROP TABLE sales.t AS back")
    assert warehouse.rows("SELECT id FROM back") == [(1,)]
    with pytest.raises(sluice.errors.InvalidRequest, match="default cannot be dropped"):
        warehouse.sql("DROP NAMESPACE default CASCADE")
    assert warehouse.rows("SELECT id FROM back") == [(1,)]


def test_a_table_its_name_and_its_rows_are_one_commit(warehouse: Warehouse) -> None:
    warehouse.sql("CREATE TABLE sales.n USING sluice PARTITIONED BY (odd) AS SELECT 1 AS id, true AS odd UNION ALL SELECT 2, false")
    table = warehouse.catalog.open("sales.n")
    assert (table.version, table.partition_columns, table.snapshot().to_arrow().num_rows) == (0, ("odd",), 2)
    warehouse.sql("CREATE OR REPLACE TABLE sales.n USING sluice TBLPROPERTIES (owner = 'me') AS SELECT id FROM sales.n WHERE odd")
    assert (table.refresh().properties["owner"], warehouse.rows("SELECT * FROM sales.n")) == ("me", [(1,)])


@pytest.mark.parametrize(
    ("definition", "message"),
    [
        ("(a INT, CONSTRAINT c CHECK (a > 0), CONSTRAINT C CHECK (a < 9)) USING sluice", "column 58: .* constraint C .* line 1, column 30"),
        (
            "(a INT CONSTRAINT c CHECK (a > 0), CONSTRAINT c CHECK (a < 9)) USING sluice",
            "there is a constraint c already, by the one at line",
        ),
        ("(a INT CHECK (a > 0), CONSTRAINT a_1 CHECK (a < 9)) USING sluice", "there is a constraint a_1 already"),
        ("(a INT, CONSTRAINT c CHECK (a > 0)) USING sluice TBLPROPERTIES ('delta.constraints.c' = 'a < 9')", "c already, by TBLPROPERTIES"),
        ("(a INT PRIMARY KEY) USING sluice TBLPROPERTIES ('sluice.primaryKey' = 'a')", "are the same; give one of them"),
    ],
)
def test_a_table_keeps_each_of_its_constraints(warehouse: Warehouse, definition: str, message: str) -> None:
    with pytest.raises(sluice.errors.InvalidRequest, match=message):
        warehouse.sql(f"CREATE TABLE sales.c {definition}")
    assert not warehouse.catalog.exists("sales.c")


def test_a_columns_constraint_keeps_its_name(warehouse: Warehouse) -> None:
    warehouse.sql("CREATE TABLE sales.c (a INT CONSTRAINT pos CHECK (a > 0) CHECK (a < 9)) USING sluice TBLPROPERTIES ('x.y' = '07')")
    properties = warehouse.catalog.open("sales.c").properties
    assert {key: value for key, value in properties.items() if "constraints" in key or key == "x.y"} == {
        "delta.constraints.pos": "a > 0",
        "delta.constraints.a_2": "a < 9",
        "x.y": "07",
    }


@pytest.mark.parametrize(
    "change",
    [
        "ADD COLUMN b INT CHECK (b > 0)",
        "ADD COLUMN b INT PRIMARY KEY",
        "ALTER COLUMN a TYPE INT COMMENT 'x'",
        "CHANGE COLUMN a a INT NOT NULL",
    ],
)
def test_what_a_change_of_columns_would_not_keep_is_refused(warehouse: Warehouse, change: str) -> None:
    warehouse.sql("CREATE TABLE sales.c (a INT) USING sluice")
    with pytest.raises(sluice.errors.InvalidRequest, match=r"a column takes no [A-Z ]+ here; leave it out"):
        warehouse.sql(f"ALTER TABLE sales.c {change}")


@pytest.fixture
def table(warehouse: Warehouse) -> sluice.Table:
    warehouse.sql(
        "CREATE TABLE sales.t (id BIGINT, s STRUCT<a: INT>, l ARRAY<STRUCT<x: INT>>, m MAP<STRING, STRUCT<v: INT>>) USING sluice",
        "INSERT INTO sales.t SELECT 1, named_struct('a', 1), array(named_struct('x', 2)), map('k', named_struct('v', 3))",
    )
    return warehouse.catalog.open("sales.t")


def test_columns_are_added_at_any_depth_and_place(warehouse: Warehouse, table: sluice.Table) -> None:
    warehouse.sql(
        "ALTER TABLE sales.t ADD COLUMNS (name STRING COMMENT 'n' AFTER id, s.b DOUBLE FIRST, l.element.y DATE, m.value.w INT)",
        "ALTER TABLE sales.t ADD COLUMN IF NOT EXISTS name STRING",
        "INSERT INTO sales.t (id, name) VALUES (2, 'two')",
    )
    assert table.refresh().schema.names == ["id", "name", "s", "l", "m"]
    assert table.snapshot().to_arrow(where="id = 1").to_pylist() == [
        {"id": 1, "name": None, "s": {"b": None, "a": 1}, "l": [{"x": 2, "y": None}], "m": [("k", {"v": 3, "w": None})]}
    ]
    assert [entry.operation for entry in table.history(2)] == ["WRITE", "ADD COLUMNS"]
    assert warehouse.rows("SELECT id, name FROM sales.t VERSION AS OF 2 WHERE name IS NULL") == [(1, None)]


def test_columns_come_from_arrow_too(table: sluice.Table) -> None:
    table.add_columns(
        [sluice.NewColumn(pa.field("at", pa.timestamp("us")), first=True), sluice.NewColumn(pa.field("w", pa.int8()), ("s",))]
    )
    assert str(table.struct.fields[0]) == "at: timestamp_ntz"
    assert "timestampNtz" in table.detail().features
    assert table.alter_columns([sluice.ColumnChange(("at",), after="id")]) is not None
    assert table.alter_columns([sluice.ColumnChange(("at",), after="id", nullable=True)]) is None
    assert table.struct.names[:2] == ("id", "at")


def test_columns_are_changed(warehouse: Warehouse, table: sluice.Table) -> None:
    warehouse.sql(
        "ALTER TABLE sales.t ALTER COLUMN s.a COMMENT 'inner', id COMMENT 'the id'",
        "ALTER TABLE sales.t CHANGE COLUMN id id BIGINT COMMENT 'it' AFTER s",
        "ALTER TABLE sales.t ALTER COLUMN id SET NOT NULL",
        "ALTER TABLE sales.t ALTER COLUMN id TYPE BIGINT",
    )
    assert [str(each) for each in table.refresh().struct.fields[:2]] == ["s: struct<a: integer>", "id: long NOT NULL"]
    assert table.struct.named("id").metadata == {"comment": "it"}
    version = table.version
    with pytest.raises(sluice.errors.SluiceError, match="id"):
        warehouse.sql("INSERT INTO sales.t (s) VALUES (NULL)")
    warehouse.sql("ALTER TABLE sales.t ALTER COLUMN id DROP NOT NULL", "INSERT INTO sales.t (id) VALUES (NULL)")
    with pytest.raises(sluice.errors.ConstraintViolated, match="column id cannot become NOT NULL"):
        warehouse.sql("ALTER TABLE sales.t ALTER COLUMN id SET NOT NULL")
    assert table.refresh().version == version + 2


def test_a_column_is_required_of_rows_that_are_added_meanwhile(table: sluice.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    from sluice.tables.manage import definition

    real = definition._change_columns

    def checked(*arguments: Any, **more: Any) -> Any:
        table.append(pa.table({"id": pa.array([None], pa.int64())}))
        return real(*arguments, **more)

    monkeypatch.setattr(definition, "_change_columns", checked)
    with pytest.raises(sluice.errors.ConcurrentModification):
        table.alter_columns([definition.ColumnChange(("id",), nullable=False)])
    assert table.refresh().struct.named("id").nullable


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("ADD COLUMN id INT", "there is a column id already"),
        ("ADD COLUMN s.A INT", "there is a column s.A already"),
        ("ADD COLUMN q INT NOT NULL", "column q is NOT NULL, but the rows that are there have no value"),
        ("ADD COLUMN q INT DEFAULT 3", "column q has a DEFAULT, which the rows that are there do not get"),
        ("ADD COLUMN q BIGINT GENERATED ALWAYS AS (id)", "column q is GENERATED, but the rows that are there"),
        ("ADD COLUMN id.x INT", "id is long, which has no fields"),
        ("ADD COLUMN q INT AFTER nothing", "column 'nothing' is not in the table"),
        ("ADD COLUMN `a b` INT", "which Delta allows with column mapping only"),
        ("ALTER COLUMN nothing COMMENT 'x'", "column 'nothing' is not in the table; its columns are id, s, l, m"),
        ("ALTER COLUMN s.a SET NOT NULL", "only columns of the table itself"),
        ("ALTER COLUMN id TYPE INT", "id is bigint and cannot become int: types only become wider"),
        ("ALTER COLUMN id SET DEFAULT 'x'", "the DEFAULT of column 'id', 'x', cannot be used"),
        ("CHANGE COLUMN id number BIGINT", "column id cannot be called number: the files of the table have the columns' names"),
        ("ALTER COLUMN id", "expected COMMENT, SET NOT NULL"),
        ("RENAME COLUMN id TO x", "Set the property delta.columnMapping.mode to 'name' first"),
        ("REPLACE COLUMNS (id BIGINT FIRST)", "REPLACE COLUMNS gives id another place"),
        ("CLUSTER BY AUTO", "sluice does not choose the columns by itself"),
    ],
)
def test_changes_that_cannot_be_are_refused(warehouse: Warehouse, table: sluice.Table, change: str, message: str) -> None:
    with pytest.raises(sluice.errors.InvalidRequest, match=message.replace("...", r"\.\.\.")):
        warehouse.sql(f"ALTER TABLE sales.t {change}")
    assert table.refresh().version == 1


def test_a_table_like_another_one(warehouse: Warehouse, table: sluice.Table) -> None:
    warehouse.sql(
        "ALTER TABLE sales.t ADD CONSTRAINT positive CHECK (id > 0)",
        "COMMENT ON TABLE sales.t IS 'all of them'",
        "COMMENT ON COLUMN sales.t.s.a IS 'inner'",
        "CREATE TABLE sales.u LIKE sales.t TBLPROPERTIES (owner = 'me')",
        "CREATE TABLE IF NOT EXISTS sales.u LIKE sales.t",
    )
    like = warehouse.catalog.open("sales.u")
    assert (like.struct, like.version) == (table.refresh().struct, 0)
    assert (like.properties["owner"], like.properties["delta.constraints.positive"]) == ("me", "id > 0")
    assert warehouse.catalog.comment("sales.u") == "all of them"
    assert warehouse.rows("SELECT count(*) FROM sales.u") == [(0,)]
    warehouse.sql("COMMENT ON TABLE sales.u IS NULL")
    assert warehouse.catalog.comment("sales.u") is None


def test_namespaces(warehouse: Warehouse) -> None:
    warehouse.sql(
        "CREATE SCHEMA shop COMMENT 'c' WITH DBPROPERTIES (owner = 'me')",
        "CREATE NAMESPACE IF NOT EXISTS shop",
        f"CREATE DATABASE far LOCATION '{warehouse.folder}/far'",
        "COMMENT ON NAMESPACE shop IS 'the shop'",
    )
    found = warehouse.catalog.namespace("shop")
    assert (found.comment, dict(found.properties)) == ("the shop", {"owner": "me"})
    assert warehouse.rows("SHOW NAMESPACES LIKE 's*'") == [("sales",), ("shop",)]
    with pytest.raises(sluice.errors.NamespaceExists):
        warehouse.sql("CREATE NAMESPACE shop")
    with pytest.raises(sluice.errors.InvalidRequest, match=r"column 15: a\.b has 2 parts"):
        warehouse.sql("CREATE SCHEMA a.b")
    warehouse.sql("CREATE TABLE shop.t (id INT) USING sluice")
    with pytest.raises(sluice.errors.NamespaceNotEmpty):
        warehouse.sql("DROP SCHEMA shop")
    warehouse.sql("DROP TABLE shop.t", "DROP SCHEMA shop", "DROP SCHEMA IF EXISTS shop")
    with pytest.raises(sluice.errors.NamespaceNotFound):
        warehouse.sql("DROP NAMESPACE shop")


CLIENTS = 6


def at_once(work: Callable[[int], Any]) -> list[Any]:
    """What `work` gives each of some threads that begin together; raises the first error."""
    begin = threading.Barrier(CLIENTS)

    def each(number: int) -> Any:
        begin.wait()
        return work(number)

    with ThreadPoolExecutor(CLIENTS) as pool:
        return list(pool.map(each, range(CLIENTS)))


COLUMNS = "(id BIGINT, n INT)"
QUERY = "AS SELECT CAST({n} AS BIGINT) AS id, {n} AS n"


@pytest.mark.parametrize("target", ["sales.orders", "sluice.`{folder}/orders`"], ids=["name", "path"])
@pytest.mark.parametrize(
    ("text", "rows"),
    [
        (f"CREATE TABLE IF NOT EXISTS {{target}} {COLUMNS}", 0),
        (f"CREATE TABLE IF NOT EXISTS {{target}} {QUERY}", 1),
        (f"CREATE OR REPLACE TABLE {{target}} {COLUMNS}", 0),
        (f"CREATE OR REPLACE TABLE {{target}} {QUERY}", 1),
    ],
    ids=["if not exists", "if not exists as select", "or replace", "or replace as select"],
)
@pytest.mark.parametrize("attempt", [0, *(pytest.param(attempt, marks=pytest.mark.long) for attempt in (1, 2))])
def test_all_statements_succeed_and_there_is_one_table(warehouse: Warehouse, target: str, text: str, rows: int, attempt: int) -> None:
    name = target.format(folder=warehouse.folder)
    at_once(lambda n: warehouse.sql(text.format(target=name, n=n)))
    held = warehouse.rows(f"SELECT id, n FROM {name}")
    assert len(held) == rows
    assert all(id_ == n for id_, n in held), "the rows of one of them"
    if target == "sales.orders":
        [table] = warehouse.catalog.tables("sales")
        assert table.name == "orders"
        assert known_locations(connect(warehouse.coordinator)) == [table.location], "who lost the race dropped its own"


def test_all_namespaces_if_not_exists_succeed(warehouse: Warehouse) -> None:
    for number in range(5):
        at_once(lambda _, number=number: warehouse.sql(f"CREATE NAMESPACE IF NOT EXISTS n{number}"))  # type: ignore[misc]
        at_once(lambda _, number=number: warehouse.sql(f"CREATE DATABASE IF NOT EXISTS d{number}"))  # type: ignore[misc]
        assert warehouse.catalog.create_namespace(f"n{number}", if_not_exists=True) is False
    assert len(warehouse.catalog.namespaces()) == 12


def test_without_such_words_one_succeeds(warehouse: Warehouse) -> None:
    def create(_: int) -> bool:
        try:
            warehouse.sql("CREATE TABLE sales.orders (id BIGINT)")
        except sluice.errors.TableExists:
            return False
        return True

    assert at_once(create).count(True) == 1


@pytest.mark.parametrize("mode", ["if_not_exists", "or_replace"])
def test_the_python_api_creates_one_table(warehouse: Warehouse, mode: str) -> None:
    schema = pa.schema([("id", pa.int64())])
    for number in range(5):
        place = warehouse.folder / f"table{number}"
        tables = at_once(lambda _, place=place: sluice.Table.create(place, schema, coordinator=warehouse.coordinator, mode=mode))  # type: ignore[misc]
        assert len({each.properties.get("delta.columnMapping.maxColumnId") for each in tables}) == 1
        assert len({each.snapshot().raw.metadata.id for each in tables}) == 1
