"""Any text is read without an error; parameters and places are found."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice.statements.parse.cursor import Span, tokens_of, words_in
from sluice.statements.parse.reading import Malformed, parameters_in, pointed, read

from .test_compound import BLOCK, CONFLICT, LOCK
from .test_loading import STATEMENTS as LOADING
from .test_rows import MERGE
from .test_tables import CREATE, STATEMENTS

WORDS = sorted(
    {
        word
        for text in (
            MERGE,
            CREATE,
            BLOCK,
            CONFLICT,
            LOCK,
            *(text for text, _, _ in (*STATEMENTS, *LOADING)),
            "WITH q AS (SELECT 1) INSERT OVERWRITE t PARTITION (d) SELECT x",
        )
        for word in text.split()
    }
    | words_in("( ) [ ] , . ; * = ? : @ ' \" ` < > -- /* */ |> `a` 'b' 1 CASE END FROM JOIN LATERAL VIEW VALUES AS OF")
)
texts = st.one_of(
    st.lists(st.sampled_from(WORDS), max_size=25).map(" ".join),
    st.tuples(st.sampled_from([MERGE, CREATE, BLOCK, CONFLICT, LOCK]), st.integers(0, 400), st.integers(0, 40), st.sampled_from(WORDS)).map(
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
    assert [(each.name, each.number, each.at.of(text)) for each in parameters_in(text)] == [
        ("a", 0, ":a"),
        (None, 0, "?"),
        ("b c", 0, ":`b c`"),
        (None, 1, "?"),
    ]


def test_the_place_of_a_mistake_is_shown() -> None:
    text = "UPDATE t\n\tSET a 1\nWHERE b"
    found = read(text)
    assert isinstance(found, Malformed)
    assert pointed(text, found.at, found.message) == "line 2, column 8: expected =\n  \tSET a 1\n  \t      ^"
    assert pointed("", Span(0, 0), "empty") == "line 1, column 1: empty\n  \n  ^"


@pytest.mark.parametrize("text", ["(" * 3000, "CASE " * 3000, "SELECT " + "(SELECT " * 2000, "UPDATE t SET a = " + "(" * 3000 + ")" * 3000])
def test_long_and_deep_texts_are_read(text: str) -> None:
    read(text)
