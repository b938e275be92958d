"""Several statements in one text."""

from __future__ import annotations

import pytest

from sluice.statements.parse.cursor import is_complete, statements_in


@pytest.mark.parametrize(
    ("text", "statements"),
    [
        ("", []),
        (" ;; ", []),
        ("SELECT 1", ["SELECT 1"]),
        ("SELECT ';' ; -- a; b\n SELECT `;` /* ; */ ;", ["SELECT ';'", "SELECT `;`"]),
        ("BEGIN ATOMIC a; SELECT CASE x WHEN 1 THEN 2 END; c; END; d", ["BEGIN ATOMIC a; SELECT CASE x WHEN 1 THEN 2 END; c; END", "d"]),
        ("BEGIN a; b", ["BEGIN a; b"]),
        ("SELECT 'a; b", ["SELECT 'a; b"]),
    ],
)
def test_statements_are_found(text: str, statements: list[str]) -> None:
    assert [each.of(text) for each in statements_in(text)] == statements


@pytest.mark.parametrize(
    ("text", "complete"),
    [
        ("", True),
        ("SELECT 1", False),
        ("SELECT ';", False),
        ("SELECT 1;", True),
        ("SELECT 1; SELECT", False),
        ("BEGIN ATOMIC a;", False),
        ("BEGIN ATOMIC a; END;", True),
    ],
)
def test_a_text_that_is_typed_ends_with_its_last_statement(text: str, complete: bool) -> None:
    assert is_complete(text) == complete
