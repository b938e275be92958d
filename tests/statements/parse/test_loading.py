"""COPY INTO, columns, namespaces and comments, as they are read."""

from __future__ import annotations

import pytest

from sluice.statements.parse.altering import Alter
from sluice.statements.parse.cursor import Name, Span
from sluice.statements.parse.maintenance import Analyze, Attach, Compact, CopyInto, Detach, Reorganise, Repair
from sluice.statements.parse.namespaces import Comment, CreateNamespace, DropNamespace, ShowNamespaces
from sluice.statements.parse.reading import Malformed, read
from sluice.statements.parse.tables import Like

STATEMENTS = [
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


def test_columns() -> None:
    text = "ALTER TABLE t ADD COLUMNS (a INT COMMENT 'x' FIRST, s.`b c` STRUCT<x: INT, y: INT> AFTER z, d DATE)"
    added = read(text)
    assert isinstance(added, Alter)
    assert [(each.path, each.column.name, each.first, each.after) for each in added.added] == [
        ((), "a", True, None),
        (("s",), "b c", False, "z"),
        ((), "d", False, None),
    ]
    actions = "s.a COMMENT 'x', b SET NOT NULL, c AFTER d, e TYPE BIGINT, f SET DEFAULT (1, 2), g DROP NOT NULL"
    text = f"ALTER TABLE t ALTER COLUMN {actions}"
    changed = read(text)
    assert isinstance(changed, Alter)
    assert [(each.path, each.comment, each.nullable, each.after, each.type is not None, each.other) for each in changed.changes] == [
        (("s", "a"), "x", None, None, False, ""),
        (("b",), None, False, None, False, ""),
        (("c",), None, None, "d", False, ""),
        (("e",), None, None, None, True, ""),
        (("f",), None, None, None, False, ""),
        (("g",), None, True, None, False, ""),
    ]
    assert [(each.default and each.default.of(text), each.drops_default) for each in changed.changes[4:]] == [
        ("(1, 2)", False),
        (None, False),
    ]
    dropped = read("ALTER TABLE t ALTER COLUMN a DROP DEFAULT")
    assert isinstance(dropped, Alter)
    assert dropped.changes[0].drops_default


def test_namespaces() -> None:
    assert read("CREATE SCHEMA IF NOT EXISTS n COMMENT 'c' LOCATION 'l' WITH DBPROPERTIES (a = 'b')") == CreateNamespace(
        read_name("CREATE SCHEMA IF NOT EXISTS n"), True, None, "c", "l", {"a": "b"}
    )
    dropped = read("DROP DATABASE IF EXISTS n CASCADE")
    assert isinstance(dropped, DropNamespace)
    assert (dropped.if_exists, dropped.cascade) == (True, True)
    assert read("SHOW DATABASES LIKE 'a*'") == ShowNamespaces("a*")
    attached = read("ATTACH TABLE sluice.`/p` AS a.b")
    assert isinstance(attached, Attach)
    assert (attached.target.path, attached.name and attached.name.parts) == ("/p", ("a", "b"))


def read_name(text: str) -> Name:
    found = read(text)
    assert isinstance(found, CreateNamespace)
    return found.name


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
    ],
)
def test_mistakes_have_a_place(text: str, message: str) -> None:
    found = read(text)
    assert isinstance(found, Malformed)
    assert message in found.message
