"""DEFAULT and GENERATED ALWAYS AS in SQL on Spark."""

from __future__ import annotations

import pytest
from pyspark.errors import AnalysisException, SparkRuntimeException

from .conftest import Warehouse

pytestmark = pytest.mark.spark


@pytest.mark.long
def test_statements_fill_columns_in(warehouse: Warehouse) -> None:
    warehouse.sql(
        """CREATE TABLE sales.t (id BIGINT, bucket INT GENERATED ALWAYS AS (pmod(hash(id), 4)), state STRING NOT NULL DEFAULT :state,
           n INT DEFAULT 40 + 2, twice INT GENERATED ALWAYS AS (n * 2)) USING sluice PARTITIONED BY (bucket)""",
        {"state": "new"},
    )
    warehouse.sql("INSERT INTO sales.t VALUES (1, DEFAULT, DEFAULT, 7, DEFAULT), (2, DEFAULT, 'old', DEFAULT, DEFAULT)")
    warehouse.sql("INSERT INTO sales.t (id) SELECT 3")
    warehouse.sql("UPDATE sales.t SET n = n + 1, state = DEFAULT WHERE id = 2")
    warehouse.sql("CREATE TEMP VIEW filled_source AS SELECT * FROM VALUES (3, 5), (4, 6), (5, 9) AS s(id, n)")
    warehouse.sql(
        """MERGE INTO sales.t USING filled_source AS s ON t.id = s.id
           WHEN MATCHED THEN UPDATE SET n = s.n, state = DEFAULT
           WHEN NOT MATCHED AND s.id = 4 THEN INSERT (id, n, state) VALUES (s.id, DEFAULT, 'four')
           WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)"""
    )
    warehouse.sql("ALTER TABLE sales.t ALTER COLUMN n SET DEFAULT CAST(crc32('x') % 10 AS INT)")  # which only Spark evaluates
    warehouse.sql("BEGIN ATOMIC INSERT INTO sales.t (id, n) VALUES (6, 1); INSERT INTO sales.t (id, n) VALUES (7, DEFAULT); END")
    found = warehouse.rows("SELECT id, state, n, twice FROM sales.t")
    assert found[:6] == [
        (1, "new", 7, 14),
        (2, "new", 43, 86),
        (3, "new", 5, 10),
        (4, "four", 42, 84),
        (5, "new", 42, 84),
        (6, "new", 1, 2),
    ]
    assert found[6][1:] == ("new", 3, 6)  # the last digit of the checksum of x
    assert warehouse.rows("SELECT count(*) FROM sales.t WHERE bucket <=> pmod(hash(id), 4)") == [(7,)]
    for text, error, why in (
        ("INSERT INTO sales.t VALUES (8, 9, 'x', 1, 2)", SparkRuntimeException, "generated column bucket"),
        ("UPDATE sales.t SET twice = 1", SparkRuntimeException, "generated column twice"),
        (
            "INSERT INTO sales.t VALUES (8, NULL, 'x', 1, DEFAULT), (9, DEFAULT, 'x', 1, DEFAULT)",
            AnalysisException,
            "column 'bucket' is gen",
        ),
        ("ALTER TABLE sales.t ALTER COLUMN n SET DEFAULT nosuch(1)", AnalysisException, "nosuch"),
        ("CREATE TABLE sales.u (a BIGINT, b INT GENERATED ALWAYS AS (a)) USING sluice", AnalysisException, "write CAST.a AS int."),
    ):
        with pytest.raises(error, match=why):
            warehouse.sql(text)
    assert len(warehouse.held("sales.t")) == 7
