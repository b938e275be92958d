"""COPY INTO, and statements that repair and hand over tables."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sluice
from sluice.statements import loading

from .conftest import Warehouse


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
