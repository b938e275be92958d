"""The SQL of Delta Lake's documentation (docs.delta.io), as it is there but for places, versions and times."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sluice
from sluice.statements.duckdb.running import run

from .conftest import Warehouse
from .delta_merges import MERGES

PEOPLE = """
(
  id INT,
  firstName STRING,
  middleName STRING,
  lastName STRING,
  gender STRING,
  birthDate TIMESTAMP,
  ssn STRING,
  salary INT
) USING DELTA
"""


@pytest.fixture
def people(warehouse: Warehouse) -> Warehouse:
    warehouse.sql(
        f"CREATE TABLE IF NOT EXISTS default.people10m {PEOPLE}",
        f"CREATE OR REPLACE TABLE default.morePeople {PEOPLE} PARTITIONED BY (gender)",
        """INSERT INTO default.morePeople VALUES
             (9999998, 'Billy', 'Tommie', 'Luppitt', 'M', TIMESTAMP'1992-09-17T04:00:00.000+0000', '953-38-9452', 55250),
             (9999999, 'Elias', 'Cyril', 'Leadbetter', 'F', TIMESTAMP'1954-05-22T04:00:00.000+0000', '906-51-2137', 48500)""",
    )
    return warehouse


def test_batch_reads_and_writes(people: Warehouse) -> None:
    people.sql(
        "INSERT INTO default.people10m SELECT * FROM default.morePeople",
        "INSERT OVERWRITE TABLE default.people10m SELECT * FROM default.morePeople",
    )
    assert people.rows("SELECT count(*) FROM default.people10m") == [(2,)]
    at = people.rows("DESCRIBE HISTORY default.people10m LIMIT 1")[0][1]
    for moment in ("VERSION AS OF 2", f"TIMESTAMP AS OF '{at.isoformat()}'"):
        assert people.rows(f"SELECT count(*) FROM default.people10m {moment}") == [(2,)]
    assert people.rows("SELECT count(*) FROM default.people10m@v0") == [(0,)]
    assert people.rows("SELECT count(*) - (SELECT count(*) FROM default.people10m VERSION AS OF 0) FROM default.people10m") == [(2,)]
    people.sql("ALTER TABLE default.people10m SET TBLPROPERTIES ('department' = 'accounting', 'delta.appendOnly' = 'true')")
    with pytest.raises(sluice.errors.InvalidRequest, match="append"):
        people.sql("DELETE FROM default.people10m WHERE id = 1")
    assert people.rows("SHOW TBLPROPERTIES default.people10m ('department')") == [("department", "accounting")]


def test_deletes_updates_and_constraints(people: Warehouse) -> None:
    people.sql(
        "ALTER TABLE default.morePeople ADD CONSTRAINT dateWithinRange CHECK (birthDate > '1900-01-01')",
        "UPDATE morePeople SET gender = 'Female' WHERE gender = 'F'",
        "UPDATE morePeople SET gender = 'Male' WHERE gender = 'M'",
        "DELETE FROM morePeople WHERE birthDate < '1955-01-01'",
        "ALTER TABLE default.morePeople DROP CONSTRAINT dateWithinRange",
        "ALTER TABLE default.morePeople CHANGE COLUMN middleName SET NOT NULL",
        "ALTER TABLE default.morePeople CHANGE COLUMN middleName DROP NOT NULL",
    )
    assert people.rows("SELECT gender FROM morePeople") == [("Male",)]
    merge = """
        MERGE INTO default.people10m AS people USING default.morePeople AS updates ON people.id = updates.id
        WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *
    """
    assert (people.rows(merge), people.rows(merge)) == ([(1, 0, 0, 1)], [(1, 1, 0, 0)])


def test_schemas(warehouse: Warehouse) -> None:
    warehouse.sql(
        "CREATE TABLE boxes (colA STRING, colB STRUCT<field1: STRING, field2: STRING>) USING DELTA",
        "ALTER TABLE boxes ADD COLUMNS (colB.nested STRING AFTER field1)",
        "ALTER TABLE boxes ALTER COLUMN colB.field2 FIRST",
        "ALTER TABLE boxes ALTER COLUMN colA COMMENT 'a'",
    )
    assert [str(each) for each in warehouse.catalog.open("boxes").struct.fields] == [
        "colA: string",
        "colB: struct<field2: string, field1: string, nested: string>",
    ]
    for text, feature in (
        ("ALTER TABLE boxes RENAME COLUMN colB.field1 TO field001", "column mapping"),
        ("ALTER TABLE boxes DROP COLUMNS (colA)", "column mapping"),
        ("ALTER TABLE boxes ALTER COLUMN colA TYPE INT", "typeWidening"),
        ("CREATE TABLE i (id BIGINT GENERATED ALWAYS AS IDENTITY) USING DELTA", "identityColumns"),
    ):
        with pytest.raises(sluice.errors.UnsupportedFeature, match=feature):
            warehouse.sql(text)


def test_clusters(warehouse: Warehouse, tmp_path: Path) -> None:
    warehouse.sql(
        "CREATE TABLE table1(col0 int, col1 string) USING DELTA CLUSTER BY (col0)",
        "INSERT INTO table1 VALUES (2, 'b'), (1, 'a')",
        f"CREATE TABLE table2 CLUSTER BY (col0, col1) LOCATION '{tmp_path}/table2' AS SELECT * FROM table1",
        "OPTIMIZE table1",
        "ALTER TABLE table1 CLUSTER BY (col1, col0)",
        "OPTIMIZE table1 FULL",
    )
    table = warehouse.catalog.open("table1")
    assert [each.operation for each in table.history()] == ["OPTIMIZE", "CLUSTER BY", "OPTIMIZE", "WRITE", "CREATE TABLE"]
    assert warehouse.catalog.open("table2").clustering_columns == ("col0", "col1")
    assert "CLUSTER BY (col1, col0)" in warehouse.rows("SHOW CREATE TABLE table1")[0][0]
    detail = run("DESCRIBE DETAIL table1", coordinator=warehouse.coordinator).to_pylist()[0]
    assert detail["clusteringColumns"] == ["col1", "col0"]
    assert ("# Clustering Information", "", "") in warehouse.rows("DESCRIBE TABLE table1")
    warehouse.sql(
        "CREATE TABLE table3 LIKE table1", "ALTER TABLE table1 CLUSTER BY NONE", "REPLACE TABLE table2 (a STRUCT<b: INT>) CLUSTER BY (a.b)"
    )
    assert [warehouse.catalog.open(name).clustering_columns for name in ("table1", "table2", "table3")] == [(), ("a.b",), ("col1", "col0")]
    for text, message in (
        ("CREATE TABLE e (a INT) USING DELTA CLUSTER BY AUTO", "column 36: sluice's tables have no CLUSTER BY AUTO"),
        (
            "CREATE TABLE e (a INT, b INT) USING DELTA PARTITIONED BY (a) CLUSTER BY (b)",
            "CLUSTER BY contradicts 'PARTITIONED BY' at line 1, column 43",
        ),
        ("ALTER TABLE table3 CLUSTER BY (nothing)", "column 'nothing' is not in the table"),
        ("OPTIMIZE table3 ZORDER BY (col0)", "clustered by col1, col0, and a file has one order"),
        ("OPTIMIZE table1 FULL", "the table is not clustered"),
    ):
        with pytest.raises(sluice.errors.InvalidRequest, match=message):
            warehouse.sql(text)


def test_columns_that_are_filled_in(warehouse: Warehouse) -> None:
    warehouse.sql(
        """CREATE TABLE events (id BIGINT, at TIMESTAMP, day DATE GENERATED ALWAYS AS (CAST(at AS DATE)) COMMENT 'of at',
           status STRING NOT NULL DEFAULT 'new', n INT DEFAULT 41 + 1) USING DELTA PARTITIONED BY (day)""",
        "INSERT INTO events VALUES (1, TIMESTAMP'2024-05-01 08:00:00', DEFAULT, DEFAULT, 7), (2, NULL, DEFAULT, 'old', DEFAULT)",
        "INSERT INTO events (id, at) SELECT 3, TIMESTAMP'2024-05-03 08:00:00'",
        "UPDATE events SET status = DEFAULT, at = TIMESTAMP'2024-05-09 08:00:00', n = 0 WHERE id = 2",
        "ALTER TABLE events ALTER COLUMN n SET DEFAULT 5",
        "INSERT INTO events (id) VALUES (4)",
        "ALTER TABLE events ALTER COLUMN n DROP DEFAULT",
        "INSERT INTO events (id, status) VALUES (5, 'last')",
    )
    assert warehouse.rows("SELECT id, CAST(day AS STRING), status, n FROM events ORDER BY id") == [
        (1, "2024-05-01", "new", 7),
        (2, "2024-05-09", "new", 0),
        (3, "2024-05-03", "new", 42),
        (4, None, "new", 5),
        (5, None, "last", None),
    ]
    with pytest.raises(sluice.errors.ConstraintViolated, match="generated column day"):
        warehouse.sql("INSERT INTO events VALUES (6, NULL, DATE'2024-05-01', 'x', 1)")
    with pytest.raises(sluice.errors.InvalidRequest, match="column 'day' is generated: give it in no row"):
        warehouse.sql("INSERT INTO events VALUES (6, NULL, DEFAULT, 'x', 1), (7, NULL, NULL, 'x', 1)")
    warehouse.sql("CREATE TABLE buckets (id BIGINT, b INT GENERATED ALWAYS AS (pmod(hash(id), 4))) USING DELTA")
    for statement in ("INSERT INTO buckets (id) VALUES (1)", "UPDATE buckets SET id = 1"):
        with pytest.raises(sluice.errors.UnsupportedFeature, match="pmod") as refused:
            warehouse.sql(statement)
        assert refused.value.features == ["Spark"]
    [(text,)] = warehouse.rows("SHOW CREATE TABLE events")
    assert "`day` date GENERATED ALWAYS AS (CAST(at AS DATE)) COMMENT 'of at'" in text
    assert "`status` string NOT NULL DEFAULT 'new'" in text
    warehouse.sql(text.replace("events", "again", 1))
    assert [each.metadata for each in warehouse.catalog.open("again").struct.fields] == [
        each.metadata for each in warehouse.catalog.open("events").struct.fields
    ]
    assert ("generated_always_as", "CAST(at AS DATE)") in warehouse.rows("DESCRIBE events day")
    assert ("status", "string", "'new'") in warehouse.rows("DESCRIBE EXTENDED events")


def test_utilities(people: Warehouse, tmp_path: Path) -> None:
    location = people.catalog.locate("morePeople")
    people.sql(
        f"VACUUM delta.`{location}`",
        "VACUUM morePeople RETAIN 200 HOURS",
        "VACUUM morePeople DRY RUN",
        "DESCRIBE DETAIL default.morePeople",
        f"DESCRIBE HISTORY delta.`{location}`",
        "OPTIMIZE morePeople",
        "OPTIMIZE morePeople WHERE gender >= 'F'",
        "OPTIMIZE morePeople ZORDER BY (birthDate, id)",
        "REORG TABLE morePeople APPLY (PURGE)",
        "REORG TABLE morePeople WHERE gender >= 'F' APPLY (PURGE)",
        f"CREATE TABLE delta.`{tmp_path}/clone` SHALLOW CLONE default.morePeople VERSION AS OF 1",
        "RESTORE TABLE default.morePeople TO VERSION AS OF 0",
    )
    assert people.rows("SELECT count(*) FROM morePeople") == [(0,)]
    assert people.rows(f"SELECT count(*) FROM delta.`{tmp_path}/clone`") == [(2,)]
    (tmp_path / "plain" / "part=1").mkdir(parents=True)
    pq.write_table(pa.table({"id": [7]}), tmp_path / "plain" / "part=1" / "one.parquet")
    people.sql(f"CONVERT TO DELTA parquet.`{tmp_path}/plain` PARTITIONED BY (part int)")
    assert people.rows(f"SELECT id, part FROM delta.`{tmp_path}/plain`") == [(7, 1)]
    assert people.rows("SELECT count(*) FROM table_changes('default.morePeople', 0, 1)") == [(2,)]


@pytest.mark.parametrize("name", MERGES)
def test_merges(warehouse: Warehouse, name: str) -> None:
    MERGES[name](warehouse.sql, warehouse.rows)
