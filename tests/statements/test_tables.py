"""Statements about tables as they are read."""

from __future__ import annotations

import pytest

from sluice.statements.altering import Alter
from sluice.statements.care import Convert, Optimize, Restore, Vacuum
from sluice.statements.reading import Other, read
from sluice.statements.tables import Clone, Create, Describe, Drop, Show, ShowTables, Undrop

CREATE = """
CREATE OR REPLACE TABLE sales.orders (
  id BIGINT NOT NULL COMMENT 'the ''id''', s STRUCT<a: INT NOT NULL, b: ARRAY<STRING>>, d DECIMAL(10, 2) CHECK (d > 0),
  CONSTRAINT positive CHECK (id > 0), PRIMARY KEY (id, `d`)
) USING sluice PARTITIONED BY (id, day DATE) TBLPROPERTIES ('a.b' = 'c', d.e = true, f 1) COMMENT 'hey' LOCATION 's3://x'
AS SELECT * FROM raw
"""


def test_create() -> None:
    found = read(CREATE)
    assert isinstance(found, Create)
    assert (found.target.parts, found.how, found.provider) == (("sales", "orders"), "createOrReplace", "sluice")
    columns = [(each.name, each.type and each.type.of(CREATE), each.nullable) for each in found.columns]
    assert columns == [("id", "BIGINT", False), ("s", "STRUCT<a: INT NOT NULL, b: ARRAY<STRING>>", True), ("d", "DECIMAL(10, 2)", True)]
    assert [each.of(CREATE) for each in found.columns[2].checks] == ["d > 0"]
    assert [(each.name, each.condition.of(CREATE)) for each in found.checks] == [("positive", "id > 0")]
    assert found.key == ("id", "d")
    assert [(each.name, each.type and each.type.of(CREATE)) for each in found.partitioned_by] == [("id", None), ("day", "DATE")]
    assert found.properties == {"a.b": "c", "d.e": "true", "f": "1"}
    assert (found.comment, found.location) == ("hey", "s3://x")
    assert found.query is not None
    assert found.query.of(CREATE) == "SELECT * FROM raw"
    assert [each.name.parts for each in found.relations] == [("raw",)]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("CREATE TABLE t (a INT) USING sluice CLUSTER BY AUTO", "CLUSTER BY AUTO"),
        ("CREATE TABLE t (a INT) USING sluice PARTITIONED BY (years(d))", "PARTITIONED BY with functions of columns"),
        ("CREATE TABLE t (a INT) USING sluice OPTIONS (x = 1)", "OPTIONS"),
    ],
)
def test_clauses_that_are_refused(text: str, words: str) -> None:
    found = read(text)
    assert isinstance(found, Create)
    assert found.refused is not None
    assert found.refused[0] == words
    assert found.provider == "sluice"


@pytest.mark.parametrize(
    ("text", "word"),
    [("a INT DEFAULT 1 COMMENT 'x'", "DEFAULT"), ("a INT GENERATED ALWAYS AS (b + 1)", "GENERATED"), ("a INT UNIQUE", "UNIQUE")],
)
def test_columns_that_are_refused(text: str, word: str) -> None:
    found = read(f"CREATE TABLE t ({text}) USING sluice")
    assert isinstance(found, Create)
    assert found.columns[0].refused is not None
    assert found.columns[0].refused[0] == word


STATEMENTS = [
    ("CREATE TABLE t SHALLOW CLONE u VERSION AS OF 3 LOCATION 's3://x'", Clone, {"how": "create", "shallow": True, "location": "s3://x"}),
    ("CREATE OR REPLACE TABLE t DEEP CLONE u TBLPROPERTIES ('a' = 'b')", Clone, {"shallow": False, "properties": {"a": "b"}}),
    ("DROP TABLE IF EXISTS t PURGE", Drop, {"if_exists": True, "purge": True}),
    ("UNDROP TABLE t", Undrop, {"new_name": None}),
    ("ALTER TABLE t SET TBLPROPERTIES ('a' = 'b')", Alter, {"action": "set properties", "properties": {"a": "b"}}),
    ("ALTER TABLE t UNSET TBLPROPERTIES IF EXISTS ('a', b.c)", Alter, {"names": ("a", "b.c"), "if_exists": True}),
    ("ALTER TABLE t DROP CONSTRAINT IF EXISTS c", Alter, {"action": "drop constraint", "names": ("c",)}),
    ("ALTER TABLE t RENAME COLUMN a TO b", Alter, {"action": "other", "other": "RENAME COLUMN"}),
    ("SHOW COLUMNS IN t", Show, {"what": "columns"}),
    ("SHOW PARTITIONS t", Show, {"what": "partitions"}),
    ("SHOW TBLPROPERTIES t ('a.b')", Show, {"what": "properties", "key": "a.b"}),
    ("SHOW CREATE TABLE t", Show, {"what": "create"}),
    ("DESCRIBE DETAIL t", Describe, {"what": "detail"}),
    ("DESC HISTORY t LIMIT 3", Describe, {"what": "history", "limit": "3"}),
    ("DESCRIBE TABLE EXTENDED t", Describe, {"what": "table", "extended": True}),
    ("desc t c.d", Describe, {"what": "table", "column": "c.d"}),
    ("OPTIMIZE t ZORDER BY a, b", Optimize, {"where": None, "z_order_by": ("a", "b")}),
    ("VACUUM t RETAIN 1.5 HOURS DRY RUN", Vacuum, {"hours": "1.5", "dry_run": True}),
    ("VACUUM t", Vacuum, {"hours": None, "dry_run": False}),
    ("RESTORE TABLE t TO VERSION AS OF 3", Restore, {"is_version": True}),
    ("RESTORE t TIMESTAMP AS OF :at", Restore, {"is_version": False}),
]


@pytest.mark.parametrize(("text", "kind", "said"), STATEMENTS, ids=[text for text, _, _ in STATEMENTS])
def test_statements(text: str, kind: type, said: dict[str, object]) -> None:
    found = read(text)
    assert type(found) is kind
    assert {name: getattr(found, name) for name in said} == said
    assert getattr(found, "target").parts == ("t",)  # noqa: B009 - of any of the kinds


def test_added_columns_and_checks() -> None:
    text = "ALTER TABLE t ADD COLUMNS (a INT COMMENT 'x', b STRING)"
    found = read(text)
    assert isinstance(found, Alter)
    assert [(each.column.name, each.column.comment) for each in found.added] == [("a", "x"), ("b", None)]
    text = "ALTER TABLE t ADD CONSTRAINT c CHECK (a > 1 AND b IN (2, 3))"
    found = read(text)
    assert isinstance(found, Alter)
    assert found.check is not None
    assert (found.check.name, found.check.condition.of(text)) == ("c", "a > 1 AND b IN (2, 3)")


def test_show_tables_and_convert() -> None:
    found = read("SHOW TABLES IN sales LIKE 'o*'")
    assert isinstance(found, ShowTables)
    assert found.namespace is not None
    assert (found.namespace.parts, found.pattern) == (("sales",), "o*")
    converted = read("CONVERT TO DELTA parquet.`/p` PARTITIONED BY (d DATE)")
    assert isinstance(converted, Convert)
    assert converted.target.parts == ("parquet", "/p")
    assert [each.name for each in converted.partitioned_by] == ["d"]
    optimized = read("OPTIMIZE t WHERE d > 1 ZORDER BY (a)")
    assert isinstance(optimized, Optimize)
    assert optimized.where is not None


@pytest.mark.parametrize(
    "text",
    [
        "CREATE VIEW v AS SELECT 1",
        "DROP VIEW v",
        "ALTER VIEW v AS SELECT 1",
        "SHOW FUNCTIONS",
        "DESCRIBE FUNCTION f",
        "SET a = b",
        "",
        ";",
        "'",
    ],
)
def test_what_is_not_about_tables_is_the_engines(text: str) -> None:
    assert isinstance(read(text), Other)
