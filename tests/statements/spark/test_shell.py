"""`sluice sql` with Spark for what needs it."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

import sluice
from sluice.shell.engines import Engines
from sluice.shell.printing import as_json

from .conftest import Warehouse
from .test_same_answers import listed

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


SAME = listed(
    """
    CAST(1 AS TINYINT); 9223372036854775807; CAST(0.1 AS FLOAT); CAST('NaN' AS DOUBLE); CAST('-Infinity' AS DOUBLE);
    CAST(1.10 AS DECIMAL(10, 2)); X'00FF'; DATE'2024-02-29'; TIMESTAMP_NTZ'2024-02-29 13:00:00.5'; INTERVAL '1' DAY;
    INTERVAL '14' MONTH; array(1, 2); map('a', 1); named_struct('a', 1, 'b', DATE'2024-01-01'); array(INTERVAL '1' HOUR); true;
    'text'
    """
)
ON_SPARK = {
    "INTERVAL '1-2' YEAR TO MONTH": "P1Y2M",
    "INTERVAL '1 02:03:04.5' DAY TO SECOND": "P1DT2H3M4.5S",
    "make_interval(1, 2, 0, 3)": "1 years 2 months 3 days",
    "parse_json('{\"a\":1}')": '{"a":1}',
    "array(INTERVAL '3' MONTH)": "[INTERVAL '3' MONTH]",
    "NULL": None,
}


@pytest.mark.costly
def test_json_has_one_form_on_both_engines(warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Engines, "_started", lambda _: warehouse.spark)
    here, spark = (Engines(choice, coordinator=warehouse.coordinator) for choice in ("local", "spark"))
    for value in SAME:
        [mine], [theirs] = (list(as_json(each.run(f"SELECT {value} AS a").rows)) for each in (here, spark))
        assert mine == theirs, value
    for value, form in ON_SPARK.items():
        [line] = as_json(spark.run(f"SELECT {value} AS a, 1 AS b").rows)
        assert json.loads(line) == {"a": form, "b": 1}, value
    with pytest.raises(sluice.errors.InvalidRequest, match="2 columns are called 'a'"):
        list(as_json(spark.run("SELECT 1 AS a, 2 AS a").rows))
