"""How large an expression may be. Each level of nesting takes some twenty of Python's thousand frames to parse, each AND a millisecond."""

from __future__ import annotations

from typing import Final

from sqlglot import TokenType
from sqlglot.dialects.spark import Spark
from sqlglot.errors import TokenError

LEVELS_MAX: Final = 30
"""Brackets and CASE ... END inside of one another."""
TERMS_MAX: Final = 10_000
"""ANDs and ORs of one text."""
OPERATORS_MAX: Final = 200
"""Operators in a row, such as a + b + c, and functions of functions."""

_OPENING: Final = (TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE, TokenType.CASE)
_CLOSING: Final = (TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE, TokenType.END)
_SHORTEST: Final = len("a or")


def beyond_limits(text: str) -> str | None:
    """Why a text of SQL is too large to be parsed; None if it is not, or is no SQL at all."""
    openings = sum(map(text.count, "([{")) + text.upper().count("CASE")
    if openings <= LEVELS_MAX and len(text) <= TERMS_MAX * _SHORTEST:
        return None
    try:
        kinds = [token.token_type for token in Spark().tokenize(text)]
    except TokenError:
        return None
    depth = deepest = 0
    for kind in kinds:
        depth += (kind in _OPENING) - (kind in _CLOSING)
        deepest = max(deepest, depth)
    if deepest > LEVELS_MAX:
        return f"it is nested too deeply, {deepest} brackets where at most {LEVELS_MAX} are read: leave out those that change nothing"
    terms = kinds.count(TokenType.AND) + kinds.count(TokenType.OR)
    if terms > TERMS_MAX:
        return (
            f"it has {terms} ANDs and ORs, and at most {TERMS_MAX} are read: write x IN (...), or put the values into a table and use MERGE"
        )
    return None
