"""Where the words, names and strings of a text are."""

from __future__ import annotations

import pytest

from sluice.statements.parse.cursor import NAME, NUMBER, STRING, SYMBOL, WORD, tokens_of


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
