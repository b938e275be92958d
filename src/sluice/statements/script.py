"""Several statements in one text, between semicolons."""

from __future__ import annotations

from collections.abc import Sequence

from .cursor import Span
from .tokens import WORD, Token, tokens_of


def statements_in(text: str) -> tuple[Span, ...]:
    """The places of the statements, without their semicolons; those inside of BEGIN ... END belong to that statement.

    A text in which a string or a comment does not end is one statement.
    """
    tokens = tokens_of(text)
    if tokens is None:
        return (Span(0, len(text)),)
    found: list[Span] = []
    begin = at = 0
    while at < len(tokens):
        if tokens[at].upper == ";":
            if at > begin:
                found.append(Span(tokens[begin].start, tokens[at - 1].end))
            begin = at + 1
        elif at == begin and _is_word(tokens, at, "BEGIN"):
            at = _end(tokens, at)
        at += 1
    if begin < len(tokens):
        found.append(Span(tokens[begin].start, tokens[-1].end))
    return tuple(found)


def is_complete(text: str) -> bool:
    """Whether a text that is being typed ends with the semicolon of its last statement, or is empty."""
    tokens = tokens_of(text)
    if not text.strip():
        return True
    if not tokens or tokens[-1].upper != ";":
        return False
    return not (_is_word(tokens, 0, "BEGIN") and _end(tokens, 0) >= len(tokens) - 1 and not _is_word(tokens, len(tokens) - 2, "END"))


def _is_word(tokens: Sequence[Token], at: int, word: str) -> bool:
    return 0 <= at < len(tokens) and tokens[at].kind == WORD and tokens[at].upper == word


def _end(tokens: Sequence[Token], at: int) -> int:
    """The index of the END that closes this BEGIN; the index of the last token if none does. CASE has an END, too."""
    depth = 0
    while at < len(tokens):
        depth += _is_word(tokens, at, "BEGIN") + _is_word(tokens, at, "CASE") - _is_word(tokens, at, "END")
        if depth == 0:
            return at
        at += 1
    return len(tokens) - 1
