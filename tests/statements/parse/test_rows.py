"""INSERT, UPDATE, DELETE, MERGE and TRUNCATE as they are read."""

from __future__ import annotations

import pytest

from sluice.statements.parse.reading import Malformed
from sluice.statements.parse.rows import Assignment, Delete, Insert, Merge, Truncate, Update
from tests.statements.parse.reader import names, of, read_as


def texts(text: str, assignments: tuple[Assignment, ...]) -> dict[str, str]:
    return {each.column.of(text): each.value.of(text) for each in assignments}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("INSERT INTO t VALUES (1, 2)", "t|INTO|VALUES (1, 2)"),
        ("insert into table a.b (x, `y z`) select * from c;", "a.b|INTO|x,y z|select * from c"),
        ("INSERT INTO t (SELECT 1)", "t|INTO|(SELECT 1)"),
        ("INSERT INTO t (WITH q AS (SELECT 1) SELECT * FROM q)", "t|INTO|(WITH q AS (SELECT 1) SELECT * FROM q)"),
        ("INSERT INTO t BY NAME SELECT 1 AS a", "t|INTO|BY NAME|SELECT 1 AS a"),
        ("INSERT WITH SCHEMA EVOLUTION INTO t BY NAME TABLE c", "t|INTO|evolves|BY NAME|TABLE c"),
        ("INSERT OVERWRITE t SELECT 1", "t|OVERWRITE|SELECT 1"),
        ("INSERT OVERWRITE TABLE t PARTITION (d = '1', e) IF NOT EXISTS SELECT 1", "t|OVERWRITE|d='1',e|IF NOT EXISTS|SELECT 1"),
        ("INSERT INTO t REPLACE WHERE a IS DISTINCT FROM b AND c SELECT 1", "t|INTO|a IS DISTINCT FROM b AND c|SELECT 1"),
        ("INSERT INTO sluice.`/a/b` FROM c SELECT d", "sluice./a/b|INTO|FROM c SELECT d"),
    ],
)
def test_insert(text: str, said: str) -> None:
    found = read_as(Insert, text)
    parts = [
        ".".join(found.target.parts),
        "OVERWRITE" if found.overwrite else "INTO",
        "evolves" if found.evolves else None,
        ",".join(name + ("" if value is None else f"={value.of(text)}") for name, value in found.partition) or None,
        "IF NOT EXISTS" if found.if_not_exists else None,
        "BY NAME" if found.by_name else None,
        None if found.columns is None else ",".join(found.columns),
        of(text, found.where),
        found.query.of(text),
    ]
    assert "|".join(part for part in parts if part is not None) == said


def test_an_insert_after_definitions_knows_them() -> None:
    text = "WITH q AS (SELECT * FROM a) INSERT INTO t SELECT * FROM q JOIN b"
    found = read_as(Insert, text)
    assert (of(text, found.prefix), names(found.relations)) == ("WITH q AS (SELECT * FROM a)", "a b")


def test_update() -> None:
    text = "UPDATE a.t AS x SET x.v = CASE WHEN w = 1 THEN 2 ELSE f(3, 4) END, `c d` = NULL WHERE id IN (SELECT id FROM u);"
    found = read_as(Update, text)
    assert (found.target.parts, found.called, names(found.relations)) == (("a", "t"), "x", "u")
    assert texts(text, found.assignments) == {"x.v": "CASE WHEN w = 1 THEN 2 ELSE f(3, 4) END", "`c d`": "NULL"}
    assert of(text, found.where) == "id IN (SELECT id FROM u)"


@pytest.mark.parametrize(
    ("text", "called", "where"),
    [
        ("DELETE FROM t", "t", None),
        ("DELETE FROM t x WHERE x.a = ':b'", "x", "x.a = ':b'"),
        ("delete from t where a = 1 -- all\n and b", "t", "a = 1 -- all\n and b"),
    ],
)
def test_delete(text: str, called: str, where: str | None) -> None:
    found = read_as(Delete, text)
    assert (found.target.parts, found.called, of(text, found.where)) == (("t",), called, where)


MERGE = """
MERGE WITH SCHEMA EVOLUTION INTO t AS x USING (SELECT * FROM s JOIN u) y
ON x.id = y.id AND CASE WHEN matched THEN true END
WHEN MATCHED AND y.gone THEN DELETE
WHEN MATCHED THEN UPDATE SET x.a = y.a, b = CASE WHEN y.c THEN 1 ELSE 2 END
WHEN NOT MATCHED AND y.id > 0 THEN INSERT (id, a) VALUES (y.id, f(y.a, 1))
WHEN NOT MATCHED BY TARGET THEN INSERT *
WHEN NOT MATCHED BY SOURCE AND x.z THEN UPDATE SET a = 0
WHEN NOT MATCHED BY SOURCE THEN DELETE
"""


def test_merge() -> None:
    found = read_as(Merge, MERGE)
    assert (found.called, found.source.of(MERGE), found.source_called) == ("x", "(SELECT * FROM s JOIN u)", "y")
    assert (found.evolves, names(found.relations)) == (True, "s u")
    assert found.on.of(MERGE) == "x.id = y.id AND CASE WHEN matched THEN true END"
    assert [(each.matched, each.action, of(MERGE, each.condition), texts(MERGE, each.assignments)) for each in found.clauses] == [
        ("matched", "delete", "y.gone", {}),
        ("matched", "update", None, {"x.a": "y.a", "b": "CASE WHEN y.c THEN 1 ELSE 2 END"}),
        ("not_matched", "insert", "y.id > 0", {"id": "y.id", "a": "f(y.a, 1)"}),
        ("not_matched", "insert_all", None, {}),
        ("not_matched_by_source", "update", "x.z", {"a": "0"}),
        ("not_matched_by_source", "delete", None, {}),
    ]


def test_the_source_of_a_merge_may_be_a_version() -> None:
    text = "MERGE INTO t USING a.s VERSION AS OF 3 AS y ON t.i = y.i WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    found = read_as(Merge, text)
    assert (found.source.of(text), found.source_called) == ("a.s VERSION AS OF 3", "y")
    assert [each.action for each in found.clauses] == ["update_all", "insert_all"]


def test_truncate() -> None:
    text = "TRUNCATE TABLE t PARTITION (d = 'x')"
    found = read_as(Truncate, text)
    assert [(name, of(text, value)) for name, value in found.partition] == [("d", "'x'")]


@pytest.mark.parametrize(
    ("text", "message", "at"),
    [
        ("UPDATE t SETT a = 1", "expected SET", "a"),
        ("UPDATE t SET a 1", "expected =", "1"),
        ("UPDATE t SET a = 1, WHERE b", "expected =", "b"),
        ("UPDATE t SET a = (1", "this bracket is not closed", "("),
        ("DELETE t", "expected FROM", "t"),
        ("DELETE FROM t WHERE", "expected a condition, but the statement ends", ""),
        ("DELETE FROM t x y", "the statement should end here", "y"),
        ("INSERT INTO t (a) 1", "expected VALUES, SELECT or another query", "1"),
        ("MERGE INTO t USING s ON a WHEN MATCHED THEN INSERT *", "expected UPDATE SET or DELETE", "INSERT"),
        ("MERGE INTO t USING s ON a WHEN NOT MATCHED THEN INSERT (a, b) VALUES (1)", "there are 1 values for 2 columns", "("),
        ("WITH q AS (SELECT 1) DELETE FROM t", "DELETE takes no WITH in front of it: put the query", "WITH q AS (SELECT 1)"),
    ],
)
def test_what_is_wrong_and_where(text: str, message: str, at: str) -> None:
    found = read_as(Malformed, text)
    assert found.message.startswith(message)
    assert (found.at.of(text), found.target and found.target.parts) == (at, ("t",))
