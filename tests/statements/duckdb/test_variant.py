"""Variants without Spark: queries give them on as single values, statements keep them, and what looks at a value needs Spark."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from sluice import errors
from tests.fixtures.variants import NUMBER, OBJECT, PLAIN
from tests.statements.duckdb.conftest import Warehouse


@pytest.fixture
def variants(warehouse: Warehouse) -> Warehouse:
    warehouse.sql("CREATE TABLE sales.t (id BIGINT, v VARIANT)")
    table = warehouse.catalog.open("sales.t")
    table.append(pa.table({"id": [1, 2, 3], "v": pa.array([NUMBER, None, OBJECT], PLAIN)}))
    return warehouse


def test_queries_read_variants(variants: Warehouse) -> None:
    assert variants.rows("SELECT * FROM sales.t") == [(1, NUMBER), (2, None), (3, OBJECT)]
    assert variants.rows("SELECT id FROM sales.t WHERE v IS NULL") == [(2,)]


def test_changes_keep_variants(variants: Warehouse) -> None:
    variants.sql(
        "UPDATE sales.t SET id = 11 WHERE id = 1",
        "DELETE FROM sales.t WHERE id = 2",
        "INSERT INTO sales.t SELECT id + 20, v FROM sales.t",
        "INSERT INTO sales.t (id) VALUES (9)",
        "INSERT INTO sales.t VALUES (10, NULL)",
        "MERGE INTO sales.t AS t USING (SELECT 3 AS id UNION ALL SELECT 4) AS s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET id = 30 WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)",
        "UPDATE sales.t SET v = NULL WHERE id = 23",
    )
    rows = variants.catalog.open("sales.t").snapshot().to_arrow().sort_by("id").to_pylist()
    assert [(each["id"], each["v"]) for each in rows] == [
        (4, None),
        (9, None),
        (10, None),
        (11, NUMBER),
        (23, None),
        (30, OBJECT),
        (31, NUMBER),
    ]


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("SELECT count(v), count(*), count_if(v IS NULL) FROM sales.t", [(2, 3, 1)]),
        ("SELECT coalesce(v, (SELECT any_value(v) FROM sales.t WHERE id = 1)) AS v FROM sales.t WHERE id = 2", [(NUMBER,)]),
        ("SELECT CASE WHEN id = 1 THEN v END AS a, if(id = 3, v, NULL) AS b FROM sales.t WHERE id <> 2", [(NUMBER, None), (None, OBJECT)]),
        ("SELECT lag(v) OVER (ORDER BY id) AS a FROM sales.t", [(None,), (None,), (NUMBER,)]),
        (
            "SELECT array(v)[0] AS a, named_struct('x', v).x AS b, map('k', v)['k'] AS c FROM sales.t WHERE id = 1",
            [(NUMBER, NUMBER, NUMBER)],
        ),
        ("SELECT id FROM sales.t LATERAL VIEW explode(array(v)) e AS w WHERE w IS NULL", [(2,)]),
        ("WITH c AS (SELECT id, v AS w FROM sales.t) SELECT id, w FROM c ORDER BY 1", [(1, NUMBER), (2, None), (3, OBJECT)]),
        ("SELECT v FROM sales.t WHERE id = 1 UNION ALL SELECT v FROM sales.t WHERE id = 3", [(NUMBER,), (OBJECT,)]),
        ("SELECT a.v FROM sales.t AS a JOIN sales.t AS b ON a.id = b.id AND b.v IS NOT NULL", [(NUMBER,), (OBJECT,)]),
        ("SELECT DISTINCT id FROM sales.t", [(1,), (2,), (3,)]),
        ("SELECT id, any_value(v) FROM sales.t WHERE id = 1 GROUP BY 1", [(1, NUMBER)]),
        ("SELECT id FROM sales.t WHERE EXISTS (SELECT v FROM sales.t)", [(1,), (2,), (3,)]),
    ],
)
def test_queries_give_on_variants_as_they_are(variants: Warehouse, text: str, rows: list[tuple[Any, ...]]) -> None:
    assert variants.rows(text) == sorted(rows, key=repr)


@pytest.mark.notices("variants-are-not-computed-with")
@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM sales.t WHERE v = v",
        "SELECT * FROM sales.t WHERE v IN (SELECT v FROM sales.t)",
        "SELECT * FROM sales.t WHERE CASE v WHEN v THEN TRUE END",
        "SELECT v <=> NULL FROM sales.t",
        "SELECT id FROM sales.t ORDER BY v",
        "SELECT id, v FROM sales.t ORDER BY 2",
        "SELECT v FROM sales.t GROUP BY v",
        "SELECT v, count(*) FROM sales.t GROUP BY ALL",
        "SELECT DISTINCT v FROM sales.t",
        "SELECT DISTINCT * FROM sales.t",
        "SELECT v FROM sales.t UNION SELECT v FROM sales.t",
        "SELECT v FROM sales.t EXCEPT ALL SELECT v FROM sales.t",
        "SELECT count(DISTINCT v) FROM sales.t",
        "SELECT max(v) FROM sales.t",
        "SELECT min(named_struct('x', v)) FROM sales.t",
        "SELECT row_number() OVER (ORDER BY v) FROM sales.t",
        "SELECT CAST(v AS STRING) FROM sales.t",
        "SELECT concat(v, 'x') FROM sales.t",
        "SELECT v:a FROM sales.t",
        "CREATE TABLE sales.u AS SELECT CAST(5 AS VARIANT) AS a",
        "INSERT INTO sales.t SELECT 4, CAST(array(5) AS ARRAY<VARIANT>)[0]",
        "SELECT a.id FROM sales.t a JOIN sales.t b USING (v)",
        "SELECT id FROM sales.t NATURAL JOIN (SELECT v FROM sales.t)",
        "SELECT w FROM (SELECT v AS w FROM sales.t) WHERE w = w",
        "WITH c(w) AS (SELECT v FROM sales.t) SELECT 1 FROM c ORDER BY w",
        "SELECT 1 FROM sales.t LATERAL VIEW explode(array(v)) e AS w WHERE w = 1",
        "MERGE INTO sales.t AS t USING sales.t AS s ON t.v = s.v WHEN MATCHED THEN DELETE",
        "UPDATE sales.t SET id = (SELECT count(*) FROM sales.t WHERE v = v)",
        "DELETE FROM sales.t WHERE v IN (SELECT v FROM sales.t)",
        "UPDATE sales.t SET v = parse_json('1')",
    ],
)
def test_queries_that_look_at_the_value_of_a_variant_need_spark(variants: Warehouse, text: str) -> None:
    with pytest.raises(errors.UnsupportedFeature, match="that needs Spark") as refused:
        variants.sql(text)
    assert refused.value.features == ["Spark"]
    assert variants.catalog.open("sales.t").version == 1


@pytest.mark.notices("variants-are-not-taken-apart", "variants-are-one-value")
@pytest.mark.parametrize(
    "text",
    [
        "SELECT v.value FROM sales.t",
        "SELECT * FROM sales.t WHERE t.v.metadata IS NULL",
        "SELECT v['value'] FROM sales.t",
        "SELECT v.* FROM sales.t",
        "SELECT w.value FROM (SELECT v AS w FROM sales.t)",
        "UPDATE sales.t SET id = 1 WHERE v.value IS NULL",
        "DELETE FROM sales.t WHERE v.metadata IS NULL",
        "MERGE INTO sales.t AS t USING (SELECT 1 AS id) AS s ON t.id = s.id AND t.v.value IS NULL WHEN MATCHED THEN DELETE",
    ],
)
def test_no_field_of_a_variant_has_a_name(variants: Warehouse, text: str) -> None:
    with pytest.raises(errors.InvalidRequest, match=r"VARIANT.*, in which no field has a name: variant_get looks into it, in Spark"):
        variants.sql(text)
    assert variants.catalog.open("sales.t").version == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("INSERT INTO sales.t VALUES (4, 'x')", "column 'v' is variant, and these values are string"),
        ("INSERT INTO sales.t VALUES (4, 5)", "column 'v' is variant, and these values are int32"),
        ("INSERT INTO sales.t SELECT 4, named_struct('value', X'0c01', 'metadata', X'010000')", "column 'v' is variant, and these values"),
        ("UPDATE sales.t SET v = 'x'", "column 'v' is VARIANT"),
        ("UPDATE sales.t SET id = v", "column 'id' is BIGINT, and 'v' is VARIANT"),
    ],
)
def test_what_is_no_variant_becomes_none(variants: Warehouse, text: str, said: str) -> None:
    with pytest.raises(errors.SluiceError) as refused:
        variants.sql(text)
    assert said in str(refused.value)
    assert variants.catalog.open("sales.t").version == 1


def test_queries_make_columns_of_variants(variants: Warehouse) -> None:
    variants.sql(
        "CREATE TABLE sales.u AS SELECT id, v, array(v) AS l, named_struct('x', v) AS s, map('k', v) AS m FROM sales.t",
        "INSERT WITH SCHEMA EVOLUTION INTO sales.t BY NAME SELECT id + 10 AS id, v, v AS w FROM sales.t WHERE id = 1",
        "CREATE OR REPLACE TABLE sales.w AS SELECT v FROM sales.t WHERE id = 1",
    )
    made = variants.catalog.open("sales.u")
    assert str(made.struct) == "struct<id: long, v: variant, l: array<variant>, s: struct<x: variant>, m: map<string, variant>>"
    assert made.snapshot().to_arrow(where="id = 1").to_pylist() == [
        {"id": 1, "v": NUMBER, "l": [NUMBER], "s": {"x": NUMBER}, "m": [("k", NUMBER)]}
    ]
    assert str(variants.catalog.open("sales.t").struct) == "struct<id: long, v: variant, w: variant>"
    assert variants.rows("SELECT w FROM sales.t WHERE id = 11") == variants.rows("SELECT * FROM sales.w") == [(NUMBER,)]
    assert variants.rows("SELECT m['k'] FROM sales.u WHERE l[0] IS NOT NULL AND s.x IS NOT NULL") == [(OBJECT,), (NUMBER,)]
