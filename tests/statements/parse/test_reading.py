"""Any text is read without an error; parameters and places are found.

Where the words, names and strings of a text are. Several statements in one text. Which tables a query names, and where.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice.statements.parse.cursor import NAME, NUMBER, STRING, SYMBOL, WORD, Cursor, Span, is_complete, statements_in, tokens_of, words_in
from sluice.statements.parse.reading import Malformed, parameters_in, pointed, read
from sluice.statements.parse.relations import Relation, relations_in
from tests.statements.parse.reader import names, read_as
from tests.statements.parse.test_concurrency import BLOCK, CONFLICT, LOCK
from tests.statements.parse.test_rows import MERGE
from tests.statements.parse.test_tables import CREATE, STATEMENTS

LONG = [MERGE, CREATE, BLOCK, CONFLICT, LOCK]
SAID = [*LONG, *(text for text, _, _ in STATEMENTS), "WITH q AS (SELECT 1) INSERT OVERWRITE t PARTITION (d) SELECT x"]
SIGNS = words_in("( ) [ ] , . ; * = ? : @ ' \" ` < > -- /* */ |> `a` 'b' 1 CASE END FROM JOIN LATERAL VIEW VALUES AS OF")
WORDS = sorted({word for text in SAID for word in text.split()} | SIGNS)
texts = st.one_of(
    st.lists(st.sampled_from(WORDS), max_size=25).map(" ".join),
    st.tuples(st.sampled_from(LONG), st.integers(0, 400), st.integers(0, 40), st.sampled_from(WORDS)).map(
        lambda cut: cut[0][: cut[1]] + cut[3] + cut[0][cut[1] + cut[2] :]
    ),
    st.lists(st.sampled_from(WORDS), max_size=12).map(lambda words: f"BEGIN ATOMIC {' '.join(words)}; END"),
    st.text(max_size=60),
)


@settings(max_examples=300, deadline=None)
@given(texts)
def test_no_text_makes_the_reader_fail_and_all_places_are_in_it(text: str) -> None:
    found = read(text)
    for parameter in parameters_in(text):
        assert text[parameter.at.start] in ":?"
    if isinstance(found, Malformed):
        assert 0 <= found.at.start <= found.at.end <= len(text)
        assert found.message in pointed(text, found.at, found.message)
    for part in getattr(found, "parts", ()):
        assert 0 <= part.at.start < part.at.end <= len(text)
        check_relations(text, part.statement)
    check_relations(text, found)


def check_relations(text: str, found: object) -> None:
    end = 0
    for relation in getattr(found, "relations", ()):
        assert end <= relation.start < relation.end <= relation.alias_at <= len(text)
        end = relation.end
        tokens = tokens_of(text[relation.name.start : relation.name.end])
        assert tokens is not None
        assert tuple(each.value for each in tokens if each.upper != ".") == relation.name.parts


def test_parameters_and_what_only_looks_like_them() -> None:
    text = "SELECT :a, b:c, d[1]:e, ?, CAST(x AS STRUCT<q: INT>), ':no', :`b c`, ? -- :no\n, f(x):g"
    parameters = [(each.name, each.number, each.at.of(text)) for each in parameters_in(text)]
    assert parameters == [("a", 0, ":a"), (None, 0, "?"), ("b c", 0, ":`b c`"), (None, 1, "?")]


def test_the_place_of_a_mistake_is_shown() -> None:
    text = "UPDATE t\n\tSET a 1\nWHERE b"
    found = read_as(Malformed, text)
    assert pointed(text, found.at, found.message) == "line 2, column 8: expected =\n  \tSET a 1\n  \t      ^"
    assert pointed("", Span(0, 0), "empty") == "line 1, column 1: empty\n  \n  ^"


@pytest.mark.parametrize("text", ["(" * 3000, "CASE " * 3000, "SELECT " + "(SELECT " * 2000, "UPDATE t SET a = " + "(" * 3000 + ")" * 3000])
def test_long_and_deep_texts_are_read(text: str) -> None:
    read(text)


def kinds(text: str) -> list[tuple[str, str]]:
    tokens = tokens_of(text)
    assert tokens is not None
    return [(each.kind, each.value) for each in tokens]


def test_every_word_is_a_token_and_knows_its_place() -> None:
    text = "OPTIMIZE t -- c;\n WHERE d >= 1 ORDER BY `a``b`.c /* x /* y */ */ ;"
    tokens = tokens_of(text)
    assert tokens is not None
    assert [text[each.start : each.end] for each in tokens] == [
        "OPTIMIZE", "t", "WHERE", "d", ">=", "1", "ORDER", "BY", "`a``b`", ".", "c", ";",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("'it\\'s'", STRING, "it's"),
        ('"a;b"', STRING, "a;b"),
        ("r'a\\b'", STRING, "a\\b"),
        ("X'1F'", STRING, "1F"),
        ("`a``b`", NAME, "a`b"),
        ("1.5", NUMBER, "1.5"),
        ("10L", WORD, "10L"),
        ("ünï", WORD, "ünï"),
        ("<=>", SYMBOL, "<=>"),
    ],
)
def test_kinds(text: str, kind: str, value: str) -> None:
    assert kinds(text) == [(kind, value)]


@pytest.mark.parametrize("text", ["'abc", "`abc", "/* abc", "select 'a\\'"])
def test_what_does_not_end_has_no_tokens(text: str) -> None:
    assert tokens_of(text) is None


def test_strings_and_comments_hide_what_is_in_them() -> None:
    assert kinds("'select' -- from t\n /* join u */ \"x\"") == [(STRING, "select"), (STRING, "x")]


@pytest.mark.parametrize(
    ("text", "statements"),
    [
        ("", []),
        (" ;; ", []),
        ("SELECT 1", ["SELECT 1"]),
        ("SELECT ';' ; -- a; b\n SELECT `;` /* ; */ ;", ["SELECT ';'", "SELECT `;`"]),
        ("BEGIN ATOMIC a; SELECT CASE x WHEN 1 THEN 2 END; c; END; d", ["BEGIN ATOMIC a; SELECT CASE x WHEN 1 THEN 2 END; c; END", "d"]),
        (
            "BEGIN CASE WHEN a THEN b; END CASE; SELECT t.begin, t.end; END; d",
            ["BEGIN CASE WHEN a THEN b; END CASE; SELECT t.begin, t.end; END", "d"],
        ),
        ("BEGIN a; b", ["BEGIN a; b"]),
        ("SELECT 'a; b", ["SELECT 'a; b"]),
    ],
)
def test_statements_are_found(text: str, statements: list[str]) -> None:
    assert [each.of(text) for each in statements_in(text)] == statements


COMPLETE = (
    "",
    "SELECT 1;",
    "BEGIN ATOMIC a; END;",
    "SELECT 1; BEGIN ATOMIC a; END;",
    "BEGIN CASE WHEN a THEN b; END CASE; SELECT t.begin; END;",
)
INCOMPLETE = ("SELECT 1", "SELECT ';", "SELECT 1; SELECT", "BEGIN ATOMIC a;", "SELECT 1; BEGIN ATOMIC a;")


@pytest.mark.parametrize(("text", "complete"), [*((text, True) for text in COMPLETE), *((text, False) for text in INCOMPLETE)])
def test_a_text_that_is_typed_ends_with_its_last_statement(text: str, complete: bool) -> None:
    assert is_complete(text) == complete


def found(text: str) -> list[Relation]:
    tokens = tokens_of(text)
    assert tokens is not None
    return list(relations_in(Cursor(text, tokens)))


@pytest.mark.parametrize(
    ("text", "tables"),
    [
        ("SELECT 1", ""),
        ("select * from a, b.c x join d using (id) left anti join e on e.i = d.i", "a b.c d e"),
        ("SELECT * FROM a WHERE x IN (SELECT y FROM b WHERE EXISTS (SELECT 1 FROM c))", "a b c"),
        ("SELECT (SELECT max(v) FROM b) FROM a", "b a"),
        ("SELECT * FROM (a JOIN b ON a.i = b.i), (SELECT * FROM c) d, ((SELECT * FROM e))", "a b c e"),
        ("((SELECT * FROM a) UNION ALL (SELECT * FROM b)) ORDER BY (SELECT max(x) FROM c)", "a b c"),
        ("WITH q AS (SELECT * FROM a), r AS (SELECT * FROM q JOIN b) SELECT * FROM Q, r, c", "a b c"),
        ("WITH q AS (WITH q AS (SELECT * FROM a) SELECT * FROM q) SELECT * FROM q", "a"),
        ("WITH q AS (SELECT * FROM q) SELECT * FROM q", "q"),
        ("WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT * FROM r", ""),
        ("SELECT * FROM a WHERE x IN (WITH q AS (SELECT * FROM b) SELECT y FROM q) AND z IN (SELECT z FROM q)", "a b q"),
        ("SELECT extract(YEAR FROM a), trim(BOTH FROM b), substring(c FROM 2 FOR 3), overlay(d PLACING 'x' FROM 1) FROM e", "e"),
        ("SELECT a IS DISTINCT FROM b, a IS NOT DISTINCT FROM c FROM d WHERE e IS DISTINCT FROM f", "d"),
        ("SELECT a.from, b.join FROM c", "c"),
        ("SELECT `from` FROM `a.b`.`c d`", "a.b.c d"),
        ("SELECT * FROM sluice.`s3://lake/t`", "sluice.s3://lake/t"),
        ("SELECT * FROM range(3), explode(array(1)) AS t(x), a", "a"),
        ("SELECT * FROM VALUES (1, 2), (3, 4) AS v(x, y), a", "a"),
        ("SELECT * FROM a LATERAL VIEW explode(m) l AS k, v WHERE k IN (SELECT x FROM b)", "a b"),
        ("SELECT * FROM a, LATERAL (SELECT * FROM b WHERE b.i = a.i)", "a b"),
        ("SELECT * FROM a PIVOT (sum(v) FOR k IN ('x', 'y')) JOIN b", "a b"),
        ("SELECT * FROM a TABLESAMPLE (10 PERCENT) REPEATABLE (3) x, b", "a b"),
        ("TABLE a UNION ALL TABLE b", "a b"),
        ("FROM a |> WHERE x > (SELECT 1 FROM b) |> JOIN c ON true |> SELECT y", "a b c"),
        ("SELECT * FROM f(TABLE a), g(TABLE(SELECT * FROM b), 1)", "a b"),
        ("SELECT 'from x', \"join y\", /* from z */ 1 -- from w\nFROM a", "a"),
        ("SELECT * FROM STREAM a", "a"),
        ("CACHE TABLE c AS SELECT * FROM a", "a"),
        ("SELECT sum(x) FILTER (WHERE y IN (SELECT z FROM b)) OVER (PARTITION BY w ORDER BY v) FROM a", "b a"),
        ("SELECT CASE WHEN x THEN (SELECT 1 FROM b) END FROM a GROUP BY ALL HAVING x, y LIMIT 1", "b a"),
        ("SELECT * FROM a ORDER BY x, y", "a"),
        ("SELECT * FROM ((((a))))", "a"),
    ],
)
def test_the_tables_of_a_query(text: str, tables: str) -> None:
    assert names(found(text)) == tables


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("SELECT * FROM t VERSION AS OF 3", (True, "3")),
        ("SELECT * FROM t FOR SYSTEM_VERSION AS OF :v AS x", (True, ":v")),
        ("SELECT * FROM t@v12 x", (True, "12")),
        ("SELECT * FROM t@20260131000000000", (False, "20260131000000000")),
        ("SELECT * FROM t TIMESTAMP AS OF '2026-01-31' WHERE x", (False, "'2026-01-31'")),
        ("SELECT * FROM t TIMESTAMP AS OF current_timestamp() - INTERVAL 1 HOUR JOIN u", (False, "current_timestamp() - INTERVAL 1 HOUR")),
        ("SELECT * FROM t TIMESTAMP AS OF date_sub(current_date(), 1) d", (False, "date_sub(current_date(), 1)")),
        ("FROM t TIMESTAMP AS OF TIMESTAMP '2026-01-31' - INTERVAL '1' DAY d", (False, "TIMESTAMP '2026-01-31' - INTERVAL '1' DAY")),
        ("SELECT * FROM t FOR TIMESTAMP AS OF ? d", (False, "?")),
        ("SELECT * FROM t version", None),
        ("SELECT * FROM t @v1", None),
    ],
)
def test_versions_and_times(text: str, asked: tuple[bool, str] | None) -> None:
    first = found(text)[0]
    assert first.name.parts == ("t",)
    told = first.as_of and (first.as_of.is_version, first.as_of.literal or first.as_of.value.of(text))
    assert told == asked


WITH_ALIAS = ("FROM t x", "FROM t AS x", "FROM t VERSION AS OF 1 x", "FROM t TABLESAMPLE (1 ROWS) x", "FROM t `where`", "FROM f(TABLE t)")
WITHOUT = ("FROM t", "FROM t VERSION AS OF 1 WHERE x", "FROM t JOIN u", "FROM t LEFT JOIN u")


@pytest.mark.parametrize(("text", "has"), [*((text, True) for text in WITH_ALIAS), *((text, False) for text in WITHOUT)])
def test_aliases(text: str, has: bool) -> None:
    assert found("SELECT * " + text)[0].has_alias == has


@pytest.mark.parametrize(
    ("text", "called"),
    [
        ("SELECT s.t.v FROM s.t", ["t"]),
        ("SELECT s.t.v FROM s.t JOIN o.u", ["t", "u"]),
        ("SELECT t.v FROM s.t JOIN o.t", ["t", "t"]),
        ("SELECT s.t.v FROM s.t JOIN o.t", ["s.t", "t"]),
        ("SELECT `S`.T.v, o.t.* FROM s.t JOIN o.t", ["s.t", "o.t"]),
        ("SELECT s.t.v FROM s.t JOIN s.t", ["t", "t"]),
        ("SELECT s.t.v FROM s.t JOIN o.t AS x", ["t", "t"]),
    ],
)
def test_what_tables_without_an_alias_are_called(text: str, called: list[str]) -> None:
    assert [each.called for each in found(text)] == called


def test_changes_of_a_table() -> None:
    text = "SELECT * FROM table_changes('s.t', 1, :to) c, u"
    changes, other = found(text)
    assert changes.changes
    assert [each.of(text) for each in changes.changes.arguments] == ["'s.t'", "1", ":to"]
    assert (changes.has_alias, text[changes.start : changes.end]) == (True, "table_changes('s.t', 1, :to)")
    assert other.name.parts == ("u",)


def test_deep_nesting_is_left_to_the_engine() -> None:
    assert names(found("SELECT * FROM " + "(" * 150 + "t" + ")" * 150)) == "t"
    for text in ("(" * 5000 + "t" + ")" * 5000, "(" * 5000):
        assert found(f"SELECT * FROM {text}") == []
