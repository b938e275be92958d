"""The translation of Java's regular expressions; that Spark finds the same is told by spark_predicates.sql."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from sluice.storage.errors import PredicateError
from sluice.storage.expressions.regex import to_re2

NEL, SEPARATOR = "\x85", "\u2028"


@pytest.mark.parametrize(
    ("pattern", "found", "missed"),
    [
        ("", ["", "a"], []),
        ("b.d", ["abxde", "b\td"], ["b\nd", "b\rd", f"b{NEL}d", f"b{SEPARATOR}d"]),
        ("^a", ["ab"], ["ba", "\na"]),
        ("a$", ["a", "ba", "a\n", "a\r\n", "a\r", f"a{NEL}", f"a{SEPARATOR}"], ["ab", "a\n\n", "a\nb"]),
        ("^(?:a|b$|c)", ["ax", "b\n", "c"], ["bx"]),
        (r"\Aa\z", ["a"], ["a\n"]),
        (r"^\s$", [" ", "\x0b", "\t"], ["a", "\u00a0"]),
        (r"^\S+$", ["ab"], ["a\x0bb"]),
        (r"^[\s\d]+$", ["1 \x0b2"], ["a"]),
        (r"^\w{2,3}?$", ["ab", "a_1"], ["a", "é1", "abcd"]),
        ("a{2}", ["aa"], ["a"]),
        ("[^a-c\\-\\]]", ["d", "\n"], ["a-]"]),
        ("日.", ["日本"], ["日"]),
        ("\\x41\\u65e5", ["A日"], ["A"]),
        ("(?:ab)+|x", ["abab", "x"], ["a"]),
        (r"\.\\\$", [r".\$"], [".$"]),
        ("a b-c&d", ["a b-c&d"], []),
        ("[|]$|[)]x", ["|", ")x"], ["|)"]),
    ],
)
def test_what_java_finds_is_found(pattern: str, found: list[str], missed: list[str]) -> None:
    def hits(texts: list[str]) -> list[bool]:
        answers: list[bool] = pc.match_substring_regex(pa.array(texts, pa.string()), pattern=to_re2(pattern)).to_pylist()
        return answers

    assert hits(found) == [True] * len(found)
    assert hits(missed) == [False] * len(missed)


@pytest.mark.parametrize(
    "pattern",
    [
        *(r"(a)\1", r"\k<n>", "(?=a)", "(?!a)", "(?<=a)", "(?<!a)", "(?<n>a)", "(?i)a", "(?>a)", "a++", "a*+", "a?+", "a{1}+"),
        *(r"\ba", r"\B", r"\p{L}", r"\pL", r"\h", r"\R", r"\Z", r"\G", r"\Q.\E", r"\uD83D", "[a[b]]", "[a&&b]", "[]a]", "[", "[a", r"[\S]"),
        *("a**", "*a", "+", "(", ")", "a)", "a{", "a{,2}", "a{2", "\\", "a$b", "a$\n", "(a$)\n", "(a$)*", "(a$|b)c", "a{1001}", "[b-a]"),
    ],
)
def test_what_cannot_be_said_in_re2_is_refused(pattern: str) -> None:
    with pytest.raises(PredicateError, match="of RLIKE"):
        to_re2(pattern)
