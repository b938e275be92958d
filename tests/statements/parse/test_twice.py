"""No statement takes a clause twice, or two that contradict one another: it would have to pass over one of them."""

from __future__ import annotations

import re
from typing import Final

import pytest

from sluice.statements.parse import concurrency, maintenance, namespaces, rows, tables
from sluice.statements.parse.reading import Malformed, read
from tests.statements.parse.reader import read_as

FORMS: Final[dict[str, tuple[str, ...]]] = {
    "INSERT INTO t {} SELECT 1": ("PARTITION (a = 1)", "IF NOT EXISTS", "BY NAME"),
    "INSERT OVERWRITE t {} SELECT 1": ("PARTITION (a = 1)", "BY NAME"),
    "INSERT INTO t {} SELECT 2": ("REPLACE WHERE a = 1",),
    "UPDATE t {}": ("SET a = 1",),
    "UPDATE t SET a = 1 {}": ("WHERE b = 2",),
    "DELETE FROM t {}": ("WHERE b = 2",),
    "TRUNCATE TABLE t {}": ("PARTITION (a = 1)",),
    "OPTIMIZE t {}": ("FULL", "WHERE a = 1", "ZORDER BY (a, b)"),
    "COMPACT TABLE t {} MAJOR": ("PARTITION (a = 1)",),
    "ALTER TABLE t {} COMPACT MINOR": ("PARTITION (a = 1)",),
    "VACUUM t {}": ("RETAIN 7 HOURS", "DRY RUN", "FULL"),
    "RESTORE TABLE t TO {}": ("VERSION AS OF 1",),
    "RESTORE TABLE t TO {} ": ("TIMESTAMP AS OF '2020-01-01'",),
    "CONVERT TO DELTA parquet.`/p` {}": ("NO STATISTICS", "PARTITIONED BY (a INT)"),
    "CREATE TABLE t (a INT, b INT) {}": ("USING sluice", "PARTITIONED BY (a)", "LOCATION '/p'", "COMMENT 'c'", "TBLPROPERTIES ('k' = 'v')"),
    "CREATE TABLE t (a INT, b INT) USING sluice {}": ("CLUSTER BY (a)", "COMMENT 'c'"),
    "CREATE TABLE t {} AS SELECT 1 AS a": ("USING sluice", "LOCATION '/p'"),
    "CREATE TABLE t LIKE u {}": ("USING sluice", "TBLPROPERTIES ('k' = 'v')", "LOCATION '/p'"),
    "CREATE TABLE t SHALLOW CLONE u {}": ("VERSION AS OF 1", "TBLPROPERTIES ('k' = 'v')", "LOCATION '/p'"),
    "CREATE TABLE t (a INT {})": ("NOT NULL", "COMMENT 'c'", "PRIMARY KEY", "DEFAULT 1"),
    "CREATE TABLE t (a INT {}, b INT)": ("GENERATED ALWAYS AS (b)", "COMMENT 'c'"),
    "CREATE TABLE t (a INT, b INT, {} )": ("PRIMARY KEY (a)",),
    "ALTER TABLE t ADD COLUMNS (a INT {})": ("NOT NULL", "COMMENT 'c'", "DEFAULT 1"),
    "DROP TABLE t {}": ("PURGE",),
    "ALTER TABLE t DROP PARTITION (a = 1), PARTITION (a = 2) {}": ("PURGE",),
    "DESCRIBE HISTORY t {}": ("LIMIT 1",),
    "SHOW PARTITIONS t {}": ("PARTITION (a = 1)",),
    "SHOW TABLES {}": ("IN x", "LIKE 'a*'"),
    "CREATE NAMESPACE n {}": ("USING sluice", "COMMENT 'c'", "LOCATION '/p'", "WITH PROPERTIES ('k' = 'v')"),
    "DROP NAMESPACE n {}": ("CASCADE",),
    "DROP NAMESPACE IF EXISTS n {}": ("RESTRICT",),
    "SHOW NAMESPACES {}": ("LIKE 'a*'",),
    "COPY INTO t FROM '/p' {}": ("FILEFORMAT = CSV",),
    "COPY INTO t FROM '/p' FILEFORMAT = CSV {}": ("FILES = ('a')", "FORMAT_OPTIONS ('k' = 'v')", "COPY_OPTIONS ('k' = 'v')"),
    "COPY INTO t FROM '/q' FILEFORMAT = CSV {}": ("PATTERN = '*'", "COPY_OPTIONS ('k' = 'v')"),
    "REORG TABLE t {}": ("WHERE a = 1", "APPLY (PURGE)"),
    "FSCK REPAIR TABLE t {}": ("DRY RUN",),
    "ANALYZE TABLE t COMPUTE STATISTICS {}": ("FOR ALL COLUMNS",),
    "ANALYZE TABLE t COMPUTE DELTA STATISTICS {}": ("FOR COLUMNS a",),
    "LOCK TABLE t {}": ("SHARED", "NOWAIT"),
    "LOCK TABLE u {}": ("WHERE a = 1", "IN EXCLUSIVE MODE", "WAIT 2 SECONDS"),
    "SHOW LOCKS IN t {}": ("LIMIT 1",),
    "BEGIN ATOMIC {} DELETE FROM t; END": ("ISOLATION LEVEL SNAPSHOT", "ATTEMPTS 2", "KEY 'a'"),
}
"""Statements, and the clauses that may come in their places."""
LISTS: Final = (
    *("INSERT INTO t PARTITION (s = 'a', {S} = 'b') SELECT 1", "INSERT INTO t (s, {S}) VALUES (1, 2)"),
    *("TRUNCATE TABLE t PARTITION (s = 'a', {S} = 'b')", "SHOW PARTITIONS t PARTITION (s = 'a', {S} = 'b')"),
    *("ALTER TABLE t PARTITION (s = 'a', {S} = 'b') COMPACT MAJOR", "ALTER TABLE t DROP PARTITION (s = 'a', {S} = 'b')"),
    *("UPDATE t SET s = 1, {S} = 2", "UPDATE t AS x SET x.s = 1, {S} = 2"),
    "MERGE INTO t USING u ON a = b WHEN MATCHED THEN UPDATE SET s = 1, t.{S} = 2",
    *("MERGE INTO t USING u ON a = b WHEN NOT MATCHED THEN INSERT (s, {S}) VALUES (1, 2)", "CREATE TABLE t (s INT, {S} INT)"),
    *("CREATE TABLE t (s INT) PARTITIONED BY (s, {S})", "CREATE TABLE t (s INT) CLUSTER BY (s, {S})"),
    *("CREATE TABLE t (s INT, PRIMARY KEY (s, {S}))", "CREATE TABLE t (s INT) TBLPROPERTIES ('s' = '1', '{S}' = '2')"),
    *("ALTER TABLE t SET TBLPROPERTIES (s = '1', '{S}' = '2')", "ALTER TABLE t UNSET TBLPROPERTIES ('s', '{S}')"),
    *("ALTER TABLE t ADD COLUMNS (s INT, {S} INT)", "ALTER TABLE t ALTER COLUMN s COMMENT 'x', {S} COMMENT 'y'"),
    *("ALTER TABLE t CLUSTER BY (s, {S})", "OPTIMIZE t ZORDER BY (s, {S})", "OPTIMIZE t ZORDER BY s, {S}"),
    *("CONVERT TO DELTA parquet.`/p` PARTITIONED BY (s INT, {S} INT)", "COPY INTO t FROM '/p' FILEFORMAT = CSV FILES = ('s', '{S}')"),
    "COPY INTO t FROM '/p' FILEFORMAT = CSV FORMAT_OPTIONS ('s' = '1', '{S}' = '2')",
    "COPY INTO t FROM '/p' FILEFORMAT = CSV COPY_OPTIONS ('s' = '1', '{S}' = '2')",
    *("CREATE NAMESPACE n WITH DBPROPERTIES ('s' = '1', '{S}' = '2')", "ANALYZE TABLE t COMPUTE STATISTICS FOR COLUMNS s, {S}"),
    *("LOCK TABLE s, {S}", "UNLOCK TABLE s, {S}"),
)
"""Statements whose lists name one thing twice, once in lower case and once in either."""
CONTRADICTIONS: Final = (
    *("INSERT INTO t PARTITION (s = 'x') (id, [s]) VALUES (5, 'y')", "INSERT INTO t BY NAME [(id)] SELECT 5 AS id"),
    *("INSERT INTO t PARTITION (s = 'x') [REPLACE WHERE] s = 'y' SELECT 1", "UPDATE t SET s = 1, [s.a] = 2"),
    *("UPDATE t SET s.a = 1, [s] = 2", "MERGE INTO t USING u ON a = b WHEN MATCHED THEN UPDATE SET s.a.b = 1, [s.a] = 2"),
    *("CREATE TABLE sluice.`/p` (a INT) [LOCATION '/q']", "CREATE TABLE delta.`/p` SHALLOW CLONE t [LOCATION '/q']"),
    *("CREATE TABLE sluice.`/p` LIKE t [LOCATION '/q']", "CREATE TABLE t (a INT, b INT) PARTITIONED BY (a) [CLUSTER BY] (b)"),
    *("CREATE TABLE t (a INT NOT NULL [NULL])", "CREATE TABLE t (a INT DEFAULT 1 [GENERATED ALWAYS AS] (b))"),
    *("CREATE TABLE t (a INT PRIMARY KEY, [b INT PRIMARY KEY])", "CREATE TABLE t (a INT PRIMARY KEY, [PRIMARY KEY] (a))"),
    "CREATE TABLE t SHALLOW CLONE u VERSION AS OF 1 [TIMESTAMP AS OF] '2020-01-01'",
    *("RESTORE TABLE t TO TIMESTAMP AS OF '2020-01-01' [VERSION AS OF] 1", "VACUUM t FULL [LITE]"),
    "COPY INTO t FROM '/p' FILEFORMAT = CSV FILES = ('a') [PATTERN] = '*'",
    *("CREATE NAMESPACE n WITH PROPERTIES ('k' = 'v') [WITH DBPROPERTIES] ('j' = 'w')", "DROP NAMESPACE n CASCADE [RESTRICT]"),
    *("SHOW COLUMNS IN a.t IN [b]", "LOCK TABLE t SHARED [EXCLUSIVE]", "LOCK TABLE t NOWAIT [WAIT] 2 SECONDS"),
)
"""Statements with two parts that exclude one another: the second is in brackets."""


TWICE: Final = [(form, clause, clauses) for form, clauses in FORMS.items() for clause in clauses]


@pytest.mark.parametrize("form", FORMS)
def test_each_clause_once_is_read(form: str) -> None:
    assert not isinstance(read(form.format(" ".join(FORMS[form]))), Malformed)


@pytest.mark.parametrize(("form", "clause", "clauses"), TWICE)
def test_a_clause_given_twice_is_refused_with_both_places(form: str, clause: str, clauses: tuple[str, ...]) -> None:
    """Right after the first, and after all others."""
    for given in (f"{clause} {clause}", " ".join([*clauses, clause])):
        text = form.format(given)
        first = text.index(clause, form.index("{}")) + 1
        found = read_as(Malformed, text)
        assert re.search(rf"line 1, column {first}\b", found.message), (text, found.message)
        assert text.index(clause, first) <= found.at.start, (text, found.message)


@pytest.mark.parametrize("text", LISTS)
@pytest.mark.parametrize("second", ["s", "S"])
def test_a_name_given_twice_in_a_list_is_refused_with_both_places(text: str, second: str) -> None:
    text = text.replace("{S}", second)
    found = read_as(Malformed, text)
    assert re.search(r"given twice, first at line 1, column \d+; give it once", found.message), found.message
    assert second in text[found.at.start : found.at.end]


@pytest.mark.parametrize("text", CONTRADICTIONS)
def test_parts_that_contradict_are_refused_with_both_places(text: str) -> None:
    written = text.replace("[", "").replace("]", "")
    found = read_as(Malformed, written)
    assert re.search(r"at line 1, column \d+", found.message), found.message
    begin, length = text.index("["), text.index("]") - text.index("[") - 1
    assert found.at.start <= begin < found.at.end or found.message.startswith("column"), (found.message, found.at, begin, length)


def test_every_kind_of_statement_is_tried() -> None:
    """Those that are not here have no clause that could come twice."""
    modules = (rows, maintenance, tables, namespaces, concurrency)
    kinds = {getattr(each, "__name__", "") for module in modules for each in getattr(getattr(module, "Statement", None), "__args__", ())}
    texts = [*(form.format(" ".join(clauses)) for form, clauses in FORMS.items()), *(each.replace("{S}", "other") for each in LISTS)]
    tried = {type(read(text)).__name__ for text in texts}
    without = {"Undrop", "Attach", "Detach", "Comment", "Foreign", "ExplainConflict", "Generate"}
    assert kinds - tried - without == set()


@pytest.mark.parametrize(
    "text",
    [
        "INSERT INTO t (id, where) SELECT a comment, b partition FROM u WHERE comment = 1",
        "CREATE TABLE t COMMENT 'c' LOCATION '/p' AS SELECT a comment, b location FROM u",
        "DELETE FROM t WHERE where = 1 AND where IN (SELECT a FROM u WHERE b = 1)",
        "UPDATE t SET a = CASE WHEN b THEN 1 ELSE 2 END, s.a = 1, s.b = 2 WHERE set = 1",
        "MERGE INTO t USING u ON a = b WHEN MATCHED AND a > 1 THEN UPDATE SET a = 1 WHEN MATCHED THEN UPDATE SET a = 2",
        "CREATE TABLE t (a INT CHECK (a > 0) CHECK (a < 9), b INT COMMENT 'b', c INT COMMENT 'b')",
        "LOCK TABLE t WHERE a = 1, t WHERE a = 2",
    ],
)
def test_words_of_clauses_are_names_elsewhere(text: str) -> None:
    assert not isinstance(read(text), Malformed)
