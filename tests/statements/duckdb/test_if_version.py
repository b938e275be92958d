"""IF VERSION n before a statement: it commits as version n + 1, or not at all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest

import sluice

from .conftest import Warehouse

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
