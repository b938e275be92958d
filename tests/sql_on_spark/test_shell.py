"""`sluice sql` with Spark for what needs it."""

from __future__ import annotations

import pyarrow as pa
import pytest

from sluice.shell.engines import Engines

from .conftest import Warehouse

pytestmark = [pytest.mark.spark, pytest.mark.zookeeper]


def test_what_needs_spark_is_carried_out_there(warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    warehouse.made("sales.t", pa.schema([("id", pa.int64()), ("v", pa.string())]), (1, "a"), (2, "b"))
    monkeypatch.setattr(Engines, "_started", lambda _: warehouse.spark)
    shell = Engines(coordinator=warehouse.coordinator, args={"v": "it's"})
    assert shell.run("SELECT count(*) AS n FROM sales.t").engine == "DuckDB"
    changed = shell.run("UPDATE sales.t SET v = concat(:v, hex(id)) WHERE id IN (SELECT max(id) FROM sales.t)")
    assert (changed.engine.split()[0], changed.why, changed.rows.to_pylist()) == (
        "Spark",
        "DuckDB has no hex, or one that may give another answer than Spark's",
        [{"num_affected_rows": 1}],
    )
    assert warehouse.held("sales.t") == [(1, "a"), (2, "it's2")]
    assert shell.run("CREATE TEMPORARY VIEW mine AS SELECT 7 AS x").rows.num_columns == 0
    assert shell.run("SELECT x FROM mine").rows.to_pylist() == [{"x": 7}]
    assert shell.run("SELECT map('k', id) AS m, named_struct('d', DATE'2026-01-01') AS s FROM sales.t LIMIT 0").rows.num_rows == 0
