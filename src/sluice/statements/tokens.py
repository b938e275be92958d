"""SQL text as tokens with their places in the text. sqlglot's tokeniser for Spark knows strings, quoted names and comments.

Its keywords are left out: here each word is one token, and readers compare words. So no word changes how the rest of the
text is cut, as sqlglot's commands do, and a name may be spelled like any keyword.
"""

from __future__ import annotations

from functools import lru_cache
from typing import ClassVar, Final

from sqlglot import TokenType
from sqlglot.dialects.spark import Spark
from sqlglot.errors import TokenError

from ..storage.dataclass import dataclass

WORD: Final = "word"
NAME: Final = "name"
STRING: Final = "string"
NUMBER: Final = "number"
SYMBOL: Final = "symbol"

_STRINGS: Final = frozenset({TokenType.STRING, TokenType.RAW_STRING, TokenType.HEX_STRING, TokenType.NATIONAL_STRING})


@dataclass(frozen=True, slots=True)
class Token:
    """`text[start:end]`: a WORD, a NAME in backticks, a STRING, a NUMBER or a SYMBOL.

    `value` is the content of a quoted name or string, otherwise the text itself; `upper` is a word in upper case, and a symbol.
    """

    kind: str
    value: str
    start: int
    end: int
    upper: str

    @property
    def names(self) -> bool:
        """Whether it can be a part of a name."""
        return self.kind in (WORD, NAME)


class _Tokenizer(Spark.Tokenizer):
    """Symbols only: words are words."""

    KEYWORDS = {word: kind for word, kind in Spark.Tokenizer.KEYWORDS.items() if not word[:1].isalpha()}  # noqa: RUF012 - sqlglot's own form
    COMMANDS: ClassVar[set[TokenType]] = set()


class _Dialect(Spark):
    """Spark's dialect with that tokeniser."""

    Tokenizer = _Tokenizer


@lru_cache(maxsize=16)
def tokens_of(text: str) -> tuple[Token, ...] | None:
    """The tokens of a text without its comments; None if a string, a quoted name or a comment in it does not end."""
    try:
        found = _Dialect().tokenize(text)
    except TokenError:
        return None
    return tuple(_token(text, each.token_type, each.text, each.start, each.end + 1) for each in found)


def _token(text: str, kind: TokenType, value: str, start: int, end: int) -> Token:
    raw = text[start:end]
    if kind in _STRINGS and raw[-1:] in ("'", '"'):
        return Token(STRING, value, start, end, "")
    if kind == TokenType.IDENTIFIER:
        return Token(NAME, value, start, end, "")
    if kind == TokenType.NUMBER:
        return Token(NUMBER, raw, start, end, "")
    first = raw[:1]
    return Token(WORD if first.isalnum() or first == "_" else SYMBOL, raw, start, end, raw.upper())
