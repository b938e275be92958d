"""BEGIN ATOMIC ... END, EXPLAIN CONFLICT, LOCK TABLE, SHOW ...: the statements in them, and where they end."""

from __future__ import annotations

import pytest

from sluice.statements.parse.concurrency import Atomic, ExplainConflict, Lock, ShowState, Unlock
from sluice.statements.parse.reading import Malformed, Other, read
from sluice.statements.parse.relations import Between
from sluice.statements.parse.rows import Delete, Insert, Merge, Update
from tests.statements.parse.reader import names, of, read_as

BLOCK = """
BEGIN ATOMIC ISOLATION LEVEL WRITE SERIALIZABLE ATTEMPTS 3 KEY :night
  WITH q AS (SELECT ';' AS x) INSERT INTO a SELECT * FROM q, c; -- a comment; with END
  UPDATE `b;` SET x = CASE WHEN y THEN 1 ELSE 2 END WHERE z IN (SELECT i FROM d);
  DELETE FROM end WHERE f = 'END;';;
END;
"""
CONFLICT = """
EXPLAIN CONFLICT INSERT WITH SCHEMA EVOLUTION INTO a WITH q AS (SELECT 1) SELECT * FROM q
WITH MERGE WITH SCHEMA EVOLUTION INTO b USING c ON b.i = c.i WHEN MATCHED THEN DELETE AT LEVEL SNAPSHOT
"""
LOCK = "LOCK TABLES a WHERE day IN ('x', 'y') AND `wait` = 1 SHARED, b IN EXCLUSIVE MODE, c WAIT 2.5 SECONDS"


def test_the_parts_of_a_block() -> None:
    block = read_as(Atomic, BLOCK)
    assert (block.isolation, block.attempts, of(BLOCK, block.key)) == ("WriteSerializable", "3", ":night")
    insert, update, delete = (part.statement for part in block.parts)
    assert isinstance(insert, Insert)
    assert isinstance(update, Update)
    assert isinstance(delete, Delete)
    assert (of(BLOCK, insert.prefix), names(insert.relations)) == ("WITH q AS (SELECT ';' AS x)", "c")
    assert (update.target.parts, names(update.relations)) == (("b;",), "d")
    assert update.assignments[0].value.of(BLOCK) == "CASE WHEN y THEN 1 ELSE 2 END"
    assert (delete.target.parts, block.parts[2].at.of(BLOCK)) == (("end",), "DELETE FROM end WHERE f = 'END;'")


@pytest.mark.parametrize(
    ("text", "message", "at"),
    [
        ("BEGIN ATOMIC END", "expected a statement", 13),
        ("BEGIN ATOMIC DELETE FROM a", "expected a semicolon after each statement of the block, and END, but the statement ends", 26),
        ("BEGIN ATOMIC DELETE FROM a;", "expected END after the last semicolon of the block, but the statement ends", 27),
        ("BEGIN ATOMIC DELETE FROM a; END x", "expected a semicolon", 33),
        ("BEGIN ATOMIC KEY night DELETE FROM a; END", "expected a key as a string", 17),
        ("BEGIN ATOMIC ISOLATION LEVEL any DELETE FROM a; END", "expected SERIALIZABLE, WRITE SERIALIZABLE or SNAPSHOT", 29),
        ("BEGIN ATOMIC BEGIN DELETE FROM a; END; END", "a block has no blocks in it", 13),
        ("EXPLAIN CONFLICT DELETE FROM a WITH SELECT 1", "expected WITH and another statement, but the statement ends", 44),
        ("EXPLAIN CONFLICT SELECT 1", "expected INSERT, UPDATE, DELETE, MERGE, TRUNCATE or OPTIMIZE", 17),
        ("LOCK TABLE a WHERE SHARED", "expected a condition", 19),
        ("LOCK TABLE a IN any MODE", "expected SHARED or EXCLUSIVE", 16),
        ("UNLOCK TABLE a b", "the statement should end here", 15),
        ("SHOW LOCKS b", "the statement should end here", 11),
    ],
)
def test_what_is_wrong_with_it_and_where(text: str, message: str, at: int) -> None:
    found = read_as(Malformed, text)
    assert (found.message[: len(message)], found.at.start) == (message, at)


def test_a_statement_within_is_read_by_itself() -> None:
    text = "BEGIN ATOMIC UPDATE a SET x 1; DROP TABLE b; SELECT * FROM c; END"
    block = read_as(Atomic, text)
    wrong, _, query = (part.statement for part in block.parts)
    assert isinstance(wrong, Malformed)
    assert (wrong.message, wrong.at.of(text), wrong.target and wrong.target.parts) == ("expected =", "1", ("a",))
    assert isinstance(query, Other)
    assert names(query.relations) == "c"
    assert isinstance(read("BEGIN SELECT 1; END"), Other), "Spark's own"


def test_two_statements_and_the_word_between_them() -> None:
    found = read_as(ExplainConflict, CONFLICT)
    one, other = found.one.statement, found.other.statement
    assert isinstance(one, Insert)
    assert isinstance(other, Merge)
    assert (one.evolves, one.query.of(CONFLICT)) == (True, "WITH q AS (SELECT 1) SELECT * FROM q")
    assert (other.evolves, other.target.parts, found.isolation) == (True, ("b",), "SnapshotIsolation")


def test_locks() -> None:
    lock = read_as(Lock, LOCK)
    assert [(each.target.parts, each.shared) for each in lock.tables] == [(("a",), True), (("b",), False), (("c",), False)]
    assert (of(LOCK, lock.tables[0].where), lock.wait_s) == ("day IN ('x', 'y') AND `wait` = 1", "2.5")
    assert read("LOCK TABLE a NOWAIT") == Lock((read("LOCK TABLE a").tables[0],), "0")  # type: ignore[union-attr]
    unlock = read_as(Unlock, "UNLOCK TABLES a, b")
    assert [each.parts for each in unlock.targets] == [("a",), ("b",)]
    assert read("UNLOCK TABLES;") == read("unlock") == Unlock()
    assert read("SHOW LOCKS") == ShowState("locks")
    shown = read_as(ShowState, "SHOW TRANSACTIONS FOR a.b LIMIT 3")
    assert (shown.what, shown.target and shown.target.parts, shown.limit) == ("transactions", ("a", "b"), "3")


def test_ranges_of_changes() -> None:
    text = "SELECT * FROM a VERSION BETWEEN 1 AND :to + 1 x, b FOR TIMESTAMP BETWEEN DATE'2026-01-01' AND now() JOIN c VERSION BETWEEN 1"
    found = read_as(Other, text)
    a, b, c = found.relations[:3]
    assert isinstance(a.between, Between)
    assert (a.between.is_version, a.between.after.of(text), a.between.up_to.of(text), a.has_alias) == (True, "1", ":to + 1", True)
    assert isinstance(b.between, Between)
    assert (b.between.is_version, b.between.after.of(text), b.between.up_to.of(text)) == (False, "DATE'2026-01-01'", "now()")
    assert (c.between, a.is_current, c.is_current) == (None, False, True)
