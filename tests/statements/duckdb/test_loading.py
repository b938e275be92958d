"""COPY INTO, and statements that repair and hand over tables.

The SQL of Delta Lake's documentation (docs.delta.io), as it is there but for places, versions and times.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sluice
from sluice.statements import loading
from sluice.statements.duckdb.engine import run
from tests.statements.duckdb.conftest import Warehouse
from tests.statements.duckdb.delta_merges import MERGES


@pytest.fixture
def folder(warehouse: Warehouse, tmp_path: Path) -> Path:
    warehouse.sql("CREATE TABLE sales.t (id BIGINT, name STRING) USING sluice")
    folder = tmp_path / "in"
    (folder / "sub").mkdir(parents=True)
    pq.write_table(pa.table({"id": [1, 2], "name": ["a", "b"]}), folder / "a.parquet")
    pq.write_table(pa.table({"ID": pa.array([3], pa.int32())}), folder / "sub" / "b.parquet")
    (folder / "_ignored").write_text("no file of any format")
    (folder / "c.csv").write_text('id;name\n4;"x; y"\n5;\n')
    (folder / "d.json").write_text('{"id": 6, "name": "j"}\n{"id": 7}\n')
    return folder


def test_files_are_loaded_once(warehouse: Warehouse, folder: Path) -> None:
    copy = f"COPY INTO sales.t FROM '{folder}' FILEFORMAT = PARQUET PATTERN = '*.parquet'"
    assert warehouse.rows(copy) == [(3, 3, 2, 0)]
    assert warehouse.rows(copy) == [(0, 0, 0, 2)]
    pq.write_table(pa.table({"id": [8]}), folder / "c.parquet")
    table = warehouse.catalog.open("sales.t")
    for _ in range(12):  # a checkpoint, and a client that begins with it
        table.append(pa.table({"id": [0]}))
    assert warehouse.rows(copy) == [(1, 1, 1, 2)]
    assert warehouse.rows(f"{copy} COPY_OPTIONS ('force' = 'true')") == [(4, 4, 3, 0)]
    assert warehouse.rows("SELECT id FROM sales.t WHERE id > 0 ORDER BY id") == [(each,) for each in (1, 1, 2, 2, 3, 3, 8, 8)]
    version = table.refresh().version
    assert warehouse.rows(copy) == [(0, 0, 0, 3)]
    assert table.refresh().version == version


def test_many_files_are_several_commits(warehouse: Warehouse, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "_FILES_PER_COMMIT", 1)
    copy = f"COPY INTO sales.t FROM '{folder}' FILEFORMAT = PARQUET PATTERN = '*.parquet'"
    assert (warehouse.rows(copy), warehouse.rows(copy)) == ([(3, 3, 2, 0)], [(0, 0, 0, 2)])
    assert warehouse.catalog.open("sales.t").version == 2


def test_files_of_all_formats(warehouse: Warehouse, folder: Path) -> None:
    options = "FORMAT_OPTIONS ('header' = 'true', 'sep' = ';')"
    assert warehouse.rows(f"COPY INTO sales.t FROM '{folder}/c.csv' FILEFORMAT = CSV {options}") == [(2, 2, 1, 0)]
    assert warehouse.rows(f"COPY INTO sales.t FROM '{folder}' FILEFORMAT = JSON FILES = ('d.json')") == [(2, 2, 1, 0)]
    (folder / "e.csv").write_text("9,nine\n")
    assert warehouse.rows(f"COPY INTO sales.t FROM '{folder}/e.csv' FILEFORMAT = CSV") == [(1, 1, 1, 0)]
    assert warehouse.rows("SELECT * FROM sales.t") == [(4, "x; y"), (5, None), (6, "j"), (7, None), (9, "nine")]
    pq.write_table(pa.table({"id": [10], "more": [True]}), folder / "m.parquet")
    with pytest.raises(sluice.errors.SchemaMismatch, match=r"m\.parquet: the data has column 'more'"):
        warehouse.sql(f"COPY INTO sales.t FROM '{folder}/m.parquet' FILEFORMAT = PARQUET")
    warehouse.sql(f"COPY INTO sales.t FROM '{folder}/m.parquet' FILEFORMAT = PARQUET COPY_OPTIONS ('mergeSchema' = 'true')")
    assert warehouse.rows("SELECT id, more FROM sales.t WHERE more") == [(10, True)]


def test_columns_are_made_of_a_files_columns(warehouse: Warehouse, folder: Path) -> None:
    (folder / "e.csv").write_text("9,nine\n10,\n")
    copy = f"COPY INTO sales.t FROM (SELECT CAST(_c0 AS BIGINT) + :more AS id, upper(_c1) AS name FROM '{folder}/e.csv') FILEFORMAT = CSV"
    assert (warehouse.rows(copy, {"more": 1}), warehouse.rows(copy, {"more": 2})) == ([(2, 2, 1, 0)], [(0, 0, 0, 1)])
    text = f"(SELECT name, id::BIGINT * 2 AS id FROM '{folder}/c.csv') FILEFORMAT = CSV FORMAT_OPTIONS ('header' = 'true', 'sep' = ';')"
    assert warehouse.rows(f"COPY INTO sales.t FROM {text}") == [(2, 2, 1, 0)]
    assert warehouse.rows(f"COPY INTO sales.t FROM (SELECT * FROM '{folder}') FILEFORMAT = JSON PATTERN = '*.json'") == [(2, 2, 1, 0)]
    assert warehouse.rows(f"COPY INTO sales.t FROM (SELECT ID AS id FROM '{folder}') FILEFORMAT = PARQUET PATTERN = 's*'") == [(1, 1, 1, 0)]
    found = [(10, "NINE"), (11, None), (8, "x; y"), (10, None), (6, "j"), (7, None), (3, None)]
    assert warehouse.rows("SELECT * FROM sales.t") == sorted(found, key=repr)


def test_columns_that_files_lack_are_filled_in(warehouse: Warehouse, folder: Path) -> None:
    warehouse.sql("CREATE TABLE sales.f (id BIGINT, name STRING DEFAULT 'none', twice BIGINT GENERATED ALWAYS AS (id * 2)) USING sluice")
    (folder / "e.csv").write_text("id\n1\n")
    (folder / "e.json").write_text('{"id": 2}\n{"id": 3}\n')
    for text in (
        f"'{folder}/e.csv' FILEFORMAT = CSV FORMAT_OPTIONS ('header' = 'true')",
        f"'{folder}/e.json' FILEFORMAT = JSON",
        f"'{folder}/d.json' FILEFORMAT = JSON",
        f"(SELECT ID + 7 AS id FROM '{folder}/sub') FILEFORMAT = PARQUET",
    ):
        warehouse.sql(f"COPY INTO sales.f FROM {text}")
    held = [(1, "none", 2), (10, "none", 20), (2, "none", 4), (3, "none", 6), (6, "j", 12), (7, None, 14)]
    assert warehouse.rows("SELECT * FROM sales.f") == held


def test_of_two_copies_at_once_one_loads_a_file(warehouse: Warehouse, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    both_read = threading.Barrier(2, timeout=30)
    waited = threading.local()
    real = loading._rows

    def rows(*arguments: Any, **options: Any) -> Any:
        if not getattr(waited, "once", False):  # both have looked before one commits
            waited.once = True
            both_read.wait()
        return real(*arguments, **options)

    monkeypatch.setattr(loading, "_rows", rows)
    copy = f"COPY INTO sales.t FROM '{folder}/a.parquet' FILEFORMAT = PARQUET"
    told: list[tuple[Any, ...]] = []
    threads = [threading.Thread(target=lambda: told.extend(warehouse.rows(copy))) for _ in range(2)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(60)
    assert sorted(told) == [(0, 0, 0, 1), (2, 2, 1, 0)]
    assert warehouse.rows("SELECT id FROM sales.t") == [(1,), (2,)]


def test_a_copy_that_fails_loads_nothing(warehouse: Warehouse, folder: Path) -> None:
    (folder / "bad.parquet").write_bytes(b"PAR1 no")
    for text, message in (
        (f"FROM '{folder}' FILEFORMAT = PARQUET PATTERN = '*.parquet'", r"bad\.parquet cannot be read as PARQUET"),
        (f"FROM '{folder}/c.csv' FILEFORMAT = CSV", "cannot be read as CSV"),
        (f"FROM '{folder}/none' FILEFORMAT = JSON", "column 24: there is no such file"),
        (f"FROM '{folder}' FILEFORMAT = AVRO", "COPY INTO reads PARQUET, CSV, JSON"),
        (f"FROM '{folder}' FILEFORMAT = JSON FILES = ('x')", "x is not there"),
        (f"FROM '{folder}' FILEFORMAT = JSON FILES = ('d.json') PATTERN = '*'", "PATTERN contradicts 'FILES'"),
        (f"FROM '{folder}' FILEFORMAT = JSON FORMAT_OPTIONS ('multiLine' = 'true')", "no option 'multiline' here"),
        (f"FROM '{folder}' FILEFORMAT = CSV COPY_OPTIONS ('forse' = 'true')", "no option 'forse' here; it has force, mergeschema"),
        ("FROM (SELECT 1) FILEFORMAT = CSV", "expected FROM"),
        (f"FROM (SELECT id FROM '{folder}' WHERE id > 1) FILEFORMAT = JSON", "SELECT columns FROM 'path', and nothing more"),
        (f"FROM (SELECT idd FROM '{folder}/d.json') FILEFORMAT = JSON", "column 32: there is no column idd; did you mean id"),
        (f"FROM (SELECT id, 1 AS more FROM '{folder}/d.json') FILEFORMAT = JSON", "d.json: the data has column 'more'"),
        (f"FROM '{folder}' PATTERN = '*'", "expected FILEFORMAT"),
    ):
        with pytest.raises(sluice.errors.InvalidRequest, match=message):
            warehouse.sql(f"COPY INTO sales.t {text}")
    assert warehouse.catalog.open("sales.t").version == 0


def test_files_that_are_gone_are_named_and_taken_out(warehouse: Warehouse) -> None:
    warehouse.sql("CREATE TABLE sales.t (id INT) USING sluice", "INSERT INTO sales.t VALUES (1)", "INSERT INTO sales.t VALUES (2)")
    table = warehouse.catalog.open("sales.t")
    assert warehouse.rows("FSCK REPAIR TABLE sales.t") == []
    path = table.snapshot().files("id = 1")["path"][0].as_py()
    (Path(table.location.removeprefix("file://")) / path).unlink()
    assert [row[0] for row in warehouse.rows("FSCK REPAIR TABLE sales.t DRY RUN")] == [path]
    with pytest.raises(sluice.errors.MissingObject):
        warehouse.rows("SELECT id FROM sales.t")
    assert [row[0] for row in warehouse.rows("FSCK REPAIR TABLE sales.t")] == [path]
    assert warehouse.rows("SELECT id FROM sales.t") == [(2,)]
    assert table.history(1)[0].operation == "FSCK REPAIR"
    assert table.repair() is None


def test_deleted_rows_are_purged_and_tables_handed_over(warehouse: Warehouse) -> None:
    warehouse.sql(
        "CREATE TABLE sales.t (id INT) USING sluice TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')",
        "INSERT INTO sales.t VALUES (1), (2), (3)",
        "DELETE FROM sales.t WHERE id = 1",
    )
    table = warehouse.catalog.open("sales.t")
    assert table.snapshot().raw.files["deletion_vector"].null_count == 0
    warehouse.sql("REORG TABLE sales.t APPLY (PURGE)")
    assert table.refresh().snapshot().raw.files["deletion_vector"].null_count == 1
    assert [row[1:] for row in warehouse.rows("ANALYZE TABLE sales.t COMPUTE STATISTICS FOR ALL COLUMNS")] == [(0, 0, 0, 0)]
    for clause in ("COMPUTE STATISTICS NOSCAN", "PARTITION (v = 1) COMPUTE STATISTICS"):
        with pytest.raises(sluice.errors.UnsupportedFeature, match=f"without {clause.split()[-1 if 'NOSCAN' in clause else 0]}"):
            warehouse.sql(f"ANALYZE TABLE sales.t {clause}")
    with pytest.raises(sluice.errors.InvalidRequest, match="column 'missing' is not in the table"):
        warehouse.sql("ANALYZE TABLE sales.t COMPUTE STATISTICS FOR COLUMNS missing")
    warehouse.sql("DETACH TABLE sales.t", f"ATTACH TABLE delta.`{table.location}` AS sales.back")
    assert warehouse.rows("SELECT id FROM sales.back") == [(2,), (3,)]
    assert [each.full_name for each in warehouse.catalog.tables("sales")] == ["sales.back"]
    with pytest.raises(sluice.errors.InvalidRequest, match="name the table by its location"):
        warehouse.sql("ATTACH TABLE sales.t")


PEOPLE = """
(id INT, firstName STRING, middleName STRING, lastName STRING, gender STRING, birthDate TIMESTAMP, ssn STRING, salary INT) USING DELTA
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
