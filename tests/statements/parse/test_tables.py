"""Statements about tables as they are read. COPY INTO, columns, namespaces and comments, as they are read."""

from __future__ import annotations

import pytest

from sluice.statements.parse.cursor import Name, Span
from sluice.statements.parse.maintenance import (
    Analyze,
    Attach,
    Compact,
    Convert,
    CopyInto,
    Detach,
    Generate,
    Optimize,
    Reorganise,
    Repair,
    Restore,
    Vacuum,
)
from sluice.statements.parse.namespaces import Comment, CreateNamespace, DropNamespace, ShowNamespaces
from sluice.statements.parse.reading import Malformed, Other, read
from sluice.statements.parse.tables import Alter, Clone, Create, Describe, Drop, DropPartitions, Like, Show, ShowTables, Undrop
from tests.statements.parse.reader import names, of, read_as

CREATE = """
CREATE OR REPLACE TABLE sales.orders (
  id BIGINT NOT NULL COMMENT 'the ''id''', s STRUCT<a: INT NOT NULL, b: ARRAY<STRING>>, d DECIMAL(10, 2) CHECK (d > 0),
  CONSTRAINT positive CHECK (id > 0), PRIMARY KEY (id, `d`)
) USING sluice PARTITIONED BY (id, day DATE) TBLPROPERTIES ('a.b' = 'c', d.e = true, f 1) COMMENT 'hey' LOCATION 's3://x'
AS SELECT * FROM raw
"""


def test_create() -> None:
    found = read_as(Create, CREATE)
    assert (found.target.parts, found.how, found.provider) == (("sales", "orders"), "createOrReplace", "sluice")
    columns = [(each.name, each.type and each.type.of(CREATE), each.nullable) for each in found.columns]
    assert columns == [("id", "BIGINT", False), ("s", "STRUCT<a: INT NOT NULL, b: ARRAY<STRING>>", True), ("d", "DECIMAL(10, 2)", True)]
    assert [(each.name, each.condition.of(CREATE)) for each in found.columns[2].checks] == [("d_1", "d > 0")]
    assert [(each.name, each.condition.of(CREATE)) for each in found.checks] == [("positive", "id > 0")]
    assert found.key == ("id", "d")
    assert [(each.name, each.type and each.type.of(CREATE)) for each in found.partitioned_by] == [("id", None), ("day", "DATE")]
    assert found.properties == {"a.b": "c", "d.e": "true", "f": "1"}
    assert (found.comment, found.location) == ("hey", "s3://x")
    assert (of(CREATE, found.query), names(found.relations)) == ("SELECT * FROM raw", "raw")


@pytest.mark.parametrize("text", ["VACUUM '/a/t'", "OPTIMIZE '/a/t'", "DESCRIBE DETAIL '/a/t'", "DESC HISTORY '/a/t' LIMIT 3"])
def test_a_location_as_a_string(text: str) -> None:
    found = read(text)
    assert isinstance(found, (Vacuum, Optimize, Describe))
    assert found.target.path == "/a/t"
    assert text[found.target.start : found.target.end] == "'/a/t'"


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("(a INT) USING sluice CLUSTER BY AUTO", "CLUSTER BY AUTO"),
        ("(a INT) USING sluice PARTITIONED BY (years(d))", "PARTITIONED BY with functions of columns"),
        ("(a INT) USING sluice OPTIONS (x = 1)", "OPTIONS"),
        ("(a INT UNIQUE) USING sluice", "UNIQUE"),
    ],
)
def test_clauses_and_columns_that_are_refused(said: str, words: str) -> None:
    found = read_as(Create, f"CREATE TABLE t {said}")
    refused = found.refused or found.columns[0].refused
    assert (refused and refused[0], found.provider) == (words, "sluice")


@pytest.mark.parametrize(
    ("said", "default", "generated"),
    [
        ("DEFAULT 1 COMMENT 'x'", "1", None),
        ("NOT NULL DEFAULT concat('a', 'b')", "concat('a', 'b')", None),
        ("DEFAULT (1 IS NOT NULL) NOT NULL CHECK (a)", "(1 IS NOT NULL)", None),
        ("DEFAULT CASE WHEN true THEN 1 ELSE 2 END PRIMARY KEY", "CASE WHEN true THEN 1 ELSE 2 END", None),
        ("GENERATED ALWAYS AS (b + (1)) NOT NULL COMMENT 'x'", None, "b + (1)"),
    ],
)
def test_columns_that_are_filled_in(said: str, default: str | None, generated: str | None) -> None:
    text = f"CREATE TABLE t (a INT {said}, b INT) USING sluice"
    found = read_as(Create, text)
    column = found.columns[0]
    assert (column.default and column.default.of(text), column.generated and column.generated.of(text)) == (default, generated)
    assert (column.nullable, column.comment) == ("NOT NULL" not in said.replace("IS NOT NULL", ""), "x" if "COMMENT" in said else None)
    assert [each.name for each in found.columns] == ["a", "b"]


STATEMENTS = [
    ("CREATE TABLE t SHALLOW CLONE u VERSION AS OF 3 LOCATION 's3://x'", Clone, {"how": "create", "shallow": True, "location": "s3://x"}),
    ("CREATE OR REPLACE TABLE t DEEP CLONE u TBLPROPERTIES ('a' = 'b')", Clone, {"shallow": False, "properties": {"a": "b"}}),
    ("DROP TABLE IF EXISTS t PURGE", Drop, {"if_exists": True, "purge": True}),
    ("UNDROP TABLE t", Undrop, {"new_name": None}),
    ("ALTER TABLE t SET TBLPROPERTIES ('a' = 'b')", Alter, {"action": "set properties", "properties": {"a": "b"}}),
    ("ALTER TABLE t UNSET TBLPROPERTIES IF EXISTS ('a', b.c)", Alter, {"names": ("a", "b.c"), "if_exists": True}),
    ("ALTER TABLE t DROP CONSTRAINT IF EXISTS c", Alter, {"action": "drop constraint", "names": ("c",)}),
    ("ALTER TABLE t SWAP COLUMN a TO b", Alter, {"action": "other", "other": "SWAP COLUMN"}),
    ("ALTER TABLE t DROP COLUMNS IF EXISTS (a, b.c)", Alter, {"action": "drop columns", "if_exists": True}),
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
    ("GENERATE symlink_format_manifest FOR TABLE t", Generate, {"mode": "symlink_format_manifest"}),
    (
        "ALTER TABLE t DROP IF EXISTS PARTITION (a = 1, b = 'x'), PARTITION (a = 2) PURGE",
        DropPartitions,
        {"if_exists": True, "purge": True},
    ),
    ("RESTORE TABLE t TO VERSION AS OF 3", Restore, {"is_version": True}),
    ("RESTORE t TIMESTAMP AS OF :at", Restore, {"is_version": False}),
    (
        "COPY INTO t FROM 's3://b/p' FILEFORMAT = CSV PATTERN = '*.csv' FORMAT_OPTIONS ('header' = 'true') COPY_OPTIONS ('force' = 'true')",
        CopyInto,
        {"path": "s3://b/p", "format": "CSV", "pattern": "*.csv", "format_options": {"header": "true"}, "copy_options": {"force": "true"}},
    ),
    ("COPY INTO t FROM 'p' FILEFORMAT = parquet FILES = ('a', 'b')", CopyInto, {"format": "PARQUET", "files": ("a", "b")}),
    ("COPY INTO t FROM (SELECT a, f(b) FROM 'p') FILEFORMAT = csv", CopyInto, {"path": "p", "format": "CSV", "columns": Span(25, 32)}),
    ("COMPACT TABLE t MINOR", Compact, {"mode": "minor", "partition": ()}),
    ("COMPACT t PARTITION (d = 1) MAJOR;", Compact, {"mode": "major", "partition": (("d", Span(25, 26)),)}),
    ("ALTER TABLE t COMPACT 'major'", Compact, {"mode": "major"}),
    ("alter table t partition (d = 1) compact minor", Compact, {"mode": "minor", "partition": (("d", Span(29, 30)),)}),
    ("REORG TABLE t WHERE d > 1 APPLY (PURGE)", Reorganise, {}),
    ("FSCK REPAIR TABLE t DRY RUN", Repair, {"dry_run": True}),
    ("ANALYZE TABLE t COMPUTE STATISTICS FOR ALL COLUMNS", Analyze, {"columns": None, "refused": None}),
    ("ANALYZE TABLE t COMPUTE DELTA STATISTICS", Analyze, {"columns": None}),
    ("ANALYZE TABLE t COMPUTE STATISTICS FOR COLUMNS a, `b c`.d", Analyze, {"columns": ("`a`", "`b c`.`d`")}),
    ("ANALYZE TABLE t COMPUTE STATISTICS FOR COLUMNS (a)", Analyze, {"columns": ("`a`",)}),
    ("DETACH TABLE t", Detach, {}),
    ("CREATE TABLE t LIKE u TBLPROPERTIES (a = 'b') LOCATION 'l'", Like, {"properties": {"a": "b"}, "location": "l", "how": "create"}),
    ("COMMENT ON TABLE t IS 'it''s'", Comment, {"what": "table", "comment": "its"}),
    ("ALTER TABLE t ADD FEATURE deletionVectors", Alter, {"action": "add feature", "names": ("deletionVectors",)}),
]


@pytest.mark.parametrize(("text", "kind", "said"), STATEMENTS, ids=[text for text, _, _ in STATEMENTS])
def test_statements(text: str, kind: type, said: dict[str, object]) -> None:
    found = read(text)
    assert type(found) is kind
    assert {name: getattr(found, name) for name in said} == said
    assert getattr(found, "target").parts == ("t",)  # noqa: B009 - of any of the kinds


def test_added_columns_and_checks() -> None:
    text = "ALTER TABLE t ADD COLUMNS (a INT COMMENT 'x', b STRING)"
    found = read_as(Alter, text)
    assert [(each.column.name, each.column.comment) for each in found.added] == [("a", "x"), ("b", None)]
    text = "ALTER TABLE t ADD CONSTRAINT c CHECK (a > 1 AND b IN (2, 3))"
    found = read_as(Alter, text)
    assert found.check
    assert (found.check.name, found.check.condition.of(text)) == ("c", "a > 1 AND b IN (2, 3)")


def test_show_tables_and_convert() -> None:
    found = read_as(ShowTables, "SHOW TABLES IN sales LIKE 'o*'")
    assert (found.namespace and found.namespace.parts, found.pattern) == (("sales",), "o*")
    converted = read_as(Convert, "CONVERT TO DELTA parquet.`/p` PARTITIONED BY (d DATE)")
    assert (converted.target.parts, [each.name for each in converted.partitioned_by]) == (("parquet", "/p"), ["d"])
    text = "OPTIMIZE t WHERE d > 1 ZORDER BY (a)"
    assert of(text, read_as(Optimize, text).where) == "d > 1"


ENGINES = ("CREATE VIEW v AS SELECT 1", "DROP VIEW v", "ALTER VIEW v AS SELECT 1", "SHOW FUNCTIONS", "DESCRIBE FUNCTION f", "SET a = b")


@pytest.mark.parametrize("text", [*ENGINES, "", ";", "'"])
def test_what_is_not_about_tables_is_the_engines(text: str) -> None:
    assert isinstance(read(text), Other)


def test_columns() -> None:
    text = "ALTER TABLE t ADD COLUMNS (a INT COMMENT 'x' FIRST, s.`b c` STRUCT<x: INT, y: INT> AFTER z, d DATE)"
    added = read_as(Alter, text)
    assert [(each.path, each.column.name, each.first, each.after) for each in added.added] == [
        ((), "a", True, None),
        (("s",), "b c", False, "z"),
        ((), "d", False, None),
    ]
    actions = "s.a COMMENT 'x', b SET NOT NULL, c AFTER d, e TYPE BIGINT, f SET DEFAULT (1, 2), g DROP NOT NULL"
    text = f"ALTER TABLE t ALTER COLUMN {actions}"
    changed = read_as(Alter, text)
    assert [(".".join(each.path), each.comment, each.nullable, each.after, each.type is not None) for each in changed.changes] == [
        *(("s.a", "x", None, None, False), ("b", None, False, None, False), ("c", None, None, "d", False)),
        *(("e", None, None, None, True), ("f", None, None, None, False), ("g", None, True, None, False)),
    ]
    assert {each.other for each in changed.changes} == {""}
    assert [(of(text, each.default), each.drops_default) for each in changed.changes[4:]] == [("(1, 2)", False), (None, False)]
    assert read_as(Alter, "ALTER TABLE t ALTER COLUMN a DROP DEFAULT").changes[0].drops_default


def test_namespaces() -> None:
    name = Name(("n",), 28, 29)
    made = CreateNamespace(name, True, None, "c", "l", {"a": "b"})
    assert read("CREATE SCHEMA IF NOT EXISTS n COMMENT 'c' LOCATION 'l' WITH DBPROPERTIES (a = 'b')") == made
    dropped = read_as(DropNamespace, "DROP DATABASE IF EXISTS n CASCADE")
    assert (dropped.if_exists, dropped.cascade) == (True, True)
    assert read("SHOW DATABASES LIKE 'a*'") == ShowNamespaces("a*")
    attached = read_as(Attach, "ATTACH TABLE sluice.`/p` AS a.b")
    assert (attached.target.path, attached.name and attached.name.parts) == ("/p", ("a", "b"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("COPY INTO t FROM (SELECT 1) FILEFORMAT = CSV", "expected FROM, but the statement ends"),
        ("COPY INTO t FROM 'p'", "expected FILEFORMAT"),
        ("COPY INTO t FROM 'p' FILEFORMAT = CSV SPEED = 1", "expected FILES, PATTERN"),
        ("REORG TABLE t APPLY (UPGRADE UNIFORM)", "expected PURGE"),
        ("FSCK t", "expected REPAIR"),
        ("CREATE TABLE t LIKE u COMMENT 'c'", "takes USING, TBLPROPERTIES and LOCATION only"),
        ("ALTER TABLE t ALTER COLUMN a", "expected COMMENT"),
        ("COMMENT ON VIEW v IS 'x'", "expected TABLE, COLUMN or NAMESPACE"),
        ("CREATE SCHEMA n MANAGED", "expected USING"),
        ("CREATE TABLE t (a INT NOT NULL;)", "this bracket is not closed"),
        ("CREATE TABLE t (a INT, CHECK (a > 0; b))", "this bracket is not closed"),
        ("ALTER TABLE t ADD COLUMNS (a INT DEFAULT 1;)", "this bracket is not closed"),
        ("COPY INTO t FROM (SELECT a FROM 'p'; WHERE a = 1) FILEFORMAT = CSV", "this bracket is not closed"),
    ],
)
def test_mistakes_have_a_place(text: str, message: str) -> None:
    found = read_as(Malformed, text)
    assert message in found.message


@pytest.mark.parametrize("text", ["ALTER TABLE t ALTER COLUMN a TYPE BIGINT", "ALTER TABLE t ADD COLUMNS a BIGINT"])
def test_a_semicolon_is_no_part_of_a_type(text: str) -> None:
    assert read(f"{text};") == read(text)
