"""Statements about tables without Spark."""

from __future__ import annotations

import pytest

import sluice

from .conftest import Warehouse


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
    assert warehouse.rows("SHOW TABLES IN sales LIKE 't|x*'") == [("sales", "t", False)]
    assert warehouse.rows("DESCRIBE sales.t id") == [("col_name", "id"), ("comment", "it's"), ("data_type", "bigint")]
    assert warehouse.rows("SHOW TBLPROPERTIES sales.t (owner)") == [("owner", "me")]
    assert {row[0] for row in warehouse.rows("DESCRIBE EXTENDED sales.t")} >= {"id", "Location", "# Partition Information"}
    assert warehouse.rows("DESCRIBE HISTORY sales.t LIMIT 1")[0][4] == "CREATE TABLE"
    assert warehouse.rows("DESCRIBE DETAIL sales.t")[0][:3:2] == ("delta", "sales.t")


def test_partitions_are_shown_from_the_log(warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    warehouse.sql(
        "CREATE TABLE sales.t (id INT, a STRING, n INT) USING sluice PARTITIONED BY (a, n)",
        "INSERT INTO sales.t VALUES (1, 'x', 1), (2, 'x', 1), (3, 'y', NULL)",
    )
    monkeypatch.setattr("sluice.storage.data.scan.TableScan.read", None)
    assert warehouse.rows("SHOW PARTITIONS sales.t") == [("x", 1), ("y", None)]
    assert warehouse.rows("SHOW PARTITIONS sales.t PARTITION (n = 1, A = 'x')") == [("x", 1)]
    assert warehouse.rows("SHOW COLUMNS FROM t IN sales") == [("a",), ("id",), ("n",)]


def test_tables_are_altered_cared_for_and_dropped(warehouse: Warehouse) -> None:
    warehouse.sql(
        "CREATE TABLE IF NOT EXISTS sales.t (id BIGINT) USING delta",
        "INSERT INTO sales.t VALUES (1)",
        "INSERT INTO sales.t VALUES (2)",
        "OPTIMIZE sales.t",
        "ALTER TABLE sales.t COMPACT MINOR",
        "VACUUM sales.t RETAIN 200 HOURS",
        "ALTER TABLE sales.t ADD CONSTRAINT small CHECK (id < 10)",
        "RESTORE TABLE sales.t TO VERSION AS OF 1",
        "ALTER TABLE sales.t RENAME TO u",
        f"CREATE TABLE sales.c SHALLOW CLONE sales.u LOCATION '{warehouse.folder}/c'",
        "DROP TABLE sales.u",
        "DROP TABLE IF EXISTS sales.u",
        "UNDROP TABLE sales.u AS sales.v",
        "TRUNCATE TABLE sales.v",
        "CREATE OR REPLACE TABLE sales.v USING sluice TBLPROPERTIES (owner = 'me') AS SELECT id AS n FROM sales.c",
    )
    assert warehouse.rows("SELECT n FROM sales.v") == [(1,)]
    assert warehouse.catalog.open("sales.v").properties["owner"] == "me"
    with pytest.raises(sluice.errors.InvalidRequest, match="hours"):
        warehouse.sql("VACUUM sales.v RETAIN 0 HOURS")
    with pytest.raises(sluice.errors.TableExists, match=r"line 1, column 14: a table sales\.v already exists"):
        warehouse.sql("CREATE TABLE sales.v USING sluice AS SELECT 1 AS a")
    with pytest.raises(sluice.errors.UnsupportedFeature, match="a table of parquet; that needs Spark"):
        warehouse.sql("CREATE TABLE p (a INT) USING parquet")
    for text in (
        "CREATE TABLE sales.p (a CHAR(10)) USING sluice",
        "CREATE TABLE sales.p (a STRUCT<b: VARCHAR(10)>) USING sluice",
        "ALTER TABLE sales.v ADD COLUMN (a ARRAY<VARCHAR(10)>)",
    ):
        with pytest.raises(sluice.errors.UnsupportedFeature, match="write VARCHAR\\(n\\), or STRING inside of others"):
            warehouse.sql(text)


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
        ("ALTER TABLE sales.t ADD CONSTRAINT c CHECK (nam > 'a')", "column 45: column 'nam' is not in the table; did you mean name"),
        ("ALTER TABLE sales.t ALTER COLUMN nam COMMENT 'x'", "column 34: column 'nam' is not in the table; did you mean name"),
    ],
)
def test_wrong_definitions_show_the_place(warehouse: Warehouse, text: str, message: str) -> None:
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


def test_what_the_coordinator_knows_is_shown(warehouse: Warehouse) -> None:
    warehouse.sql("CREATE TABLE sales.t (id INT) USING sluice", "INSERT INTO sales.t VALUES (1)")
    with warehouse.catalog.open("sales.t").lease():
        [held] = warehouse.rows("SHOW LOCKS IN sales.t")
        assert held[:1] + held[2:3] == ("sales.t", "held")
    assert warehouse.rows("SHOW LOCKS") == warehouse.rows("SHOW QUEUE IN sales.t") == []
    assert [row[3] for row in warehouse.rows("SHOW TRANSACTIONS IN sales.t LIMIT 1")] == ["WRITE"]
    with pytest.raises(sluice.errors.TableNotFound):
        warehouse.rows("SHOW LOCKS IN sales.none")
    with pytest.raises(sluice.errors.UnsupportedFeature, match="a lock belongs to a session"):
        warehouse.sql("LOCK TABLE sales.t")


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
