"""SQL text as tokens with their places, and the cursor that reads them. sqlglot's tokeniser knows strings, quoted names and comments.

Its keywords are left out: here each word is one token, and readers compare words. So no word changes how the rest of the
text is cut, as sqlglot's commands do, and a name may be spelled like any keyword.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from functools import lru_cache
from itertools import pairwise
from typing import ClassVar, Final, TypeVar

from sqlglot import TokenType
from sqlglot.dialects.spark import Spark
from sqlglot.errors import TokenError

from ...storage.dataclass import dataclass

WORD: Final = "word"
NAME: Final = "name"
STRING: Final = "string"
NUMBER: Final = "number"
SYMBOL: Final = "symbol"

T = TypeVar("T")
_STRINGS: Final = frozenset({TokenType.STRING, TokenType.RAW_STRING, TokenType.HEX_STRING, TokenType.NATIONAL_STRING})


@dataclass(frozen=True, slots=True)
class Span:
    """The part `text[start:end]` of a statement."""

    start: int
    end: int

    def of(self, text: str) -> str:
        """That part."""
        return text[self.start : self.end]


@dataclass(frozen=True, slots=True)
class Token:
    """`text[start:end]`: a WORD, a NAME in backticks, a STRING, a NUMBER or a SYMBOL. `value` is the content of a quoted name or string,
    otherwise the text itself; `upper` is a word in upper case, and a symbol. `names`: it can be a part of a name.
    """

    kind: str
    value: str
    start: int
    end: int
    upper: str
    names: bool


class _Tokenizer(Spark.Tokenizer):
    """Symbols only: words are words."""

    KEYWORDS = {word: kind for word, kind in Spark.Tokenizer.KEYWORDS.items() if not word[:1].isalpha()}  # noqa: RUF012 - sqlglot's own form
    COMMANDS: ClassVar[set[TokenType]] = set()


@lru_cache(maxsize=16)
def tokens_of(text: str) -> tuple[Token, ...] | None:
    """The tokens of a text without its comments; None if a string, a quoted name or a comment in it does not end."""
    try:
        tokens = _Tokenizer(dialect=Spark()).tokenize(text)
    except TokenError:
        return None
    read: list[Token] = []
    for each in tokens:
        start, end = each.start, each.end + 1
        raw = text[start:end]
        if each.token_type in _STRINGS and raw[-1:] in ("'", '"'):
            read.append(Token(STRING, each.text, start, end, "", False))
        elif each.token_type == TokenType.IDENTIFIER:
            read.append(Token(NAME, each.text, start, end, "", True))
        elif each.token_type == TokenType.NUMBER:
            read.append(Token(NUMBER, raw, start, end, "", False))
        else:
            is_word = raw[:1].isalnum() or raw[:1] == "_"
            read.append(Token(WORD if is_word else SYMBOL, raw, start, end, raw.upper(), is_word))
    return tuple(read)


def qualified_in(tokens: Sequence[Token]) -> Iterator[Sequence[Token]]:
    """The names with several parts, without their points; the last part may be a star."""
    parts: list[Token] = []
    for before, token in pairwise([*tokens[:1], *tokens, *tokens[:1]]):
        if parts and before.upper == "." and (token.names or token.upper == "*"):
            parts.append(token)
        elif token.upper != ".":
            if len(parts) > 1:
                yield parts
            parts = [token] if token.names else []


def statements_in(text: str) -> tuple[Span, ...]:
    """The statements, without their semicolons; BEGIN ... END is one, and so is a text in which a string or a comment does not end."""
    tokens = tokens_of(text)
    if tokens is None:
        return (Span(0, len(text)),)
    statements: list[Span] = []
    begin = depth = 0
    for at, token in enumerate(tokens):
        if depth or (at == begin and token.upper == "BEGIN"):
            before = tokens[at - 1].upper if at > begin else ""
            if before != "." and (before, token.upper) != ("END", "CASE"):  # END CASE closes a CASE, which has an END, too
                depth += (token.upper in ("BEGIN", "CASE")) - (token.upper == "END")
        elif token.upper == ";":
            if at > begin:
                statements.append(Span(tokens[begin].start, tokens[at - 1].end))
            begin = at + 1
    if begin < len(tokens):
        statements.append(Span(tokens[begin].start, tokens[-1].end))
    return tuple(statements)


def is_complete(text: str) -> bool:
    """Whether a text that is being typed ends with the semicolon of its last statement, or is empty."""
    tokens, statements = tokens_of(text), statements_in(text)
    if not tokens or tokens[-1].upper != ";":
        return not text.strip()
    return not statements or statements[-1].end <= tokens[-1].start


OPENING: Final = frozenset("([{")
CLOSING: Final = frozenset(")]}")
# Deeper nesting is left to Spark's own parser.
DEPTH_MAX: Final = 200
_PATHS: Final = ("sluice", "delta")
_LOCATION: Final = re.compile(r"""(['"`])([^'"`]*[/\\][^'"`]*)\1|(?:\w+:/)?/[^\s'"`;,()]+""")


class Unreadable(Exception):
    """Raised by readers for a text that is not their statement: what they expected, and the place of what they found."""

    def __init__(self, message: str, at: Span) -> None:
        super().__init__(message)
        self.message = message
        self.at = at


@dataclass(frozen=True, slots=True)
class Name:
    """The name of a table, in parts without quotes, at `text[start:end]`."""

    parts: tuple[str, ...]
    start: int
    end: int

    @property
    def path(self) -> str | None:
        """The location in sluice.`/a/path` or delta.`/a/path`; None for a name."""
        first, *rest = self.parts
        return rest[0] if len(rest) == 1 and first.lower() in _PATHS else None

    @property
    def title(self) -> str:
        """As it is shown."""
        return ".".join(self.parts)

    @property
    def quoted(self) -> str:
        """As Spark's parser takes it for exactly these parts."""
        return ".".join(["`" + part.replace("`", "``") + "`" for part in self.parts])


def location_hint(text: str, start: int) -> str:
    """How the location is written that begins here, as a string, in backticks alone or bare; "" if there is none."""
    location = _LOCATION.match(text, start)
    return "" if location is None else f"; a location is written sluice.`{location[2] or location[0]}`"


def position(text: str, at: Span) -> str:
    """The line and the column of a place, from 1 on."""
    return f"line {text.count(chr(10), 0, at.start) + 1}, column {at.start - text.rfind(chr(10), 0, at.start)}"


@dataclass(frozen=True, slots=True)
class Once:
    """What may come once in a statement, or in a list of it, with its place: clauses, columns, keys. Case does not count."""

    places: dict[str, Span] = field(default_factory=dict)

    def note(self, here: Cursor, name: str, begin: int, what: str = "") -> None:
        """Keep the place of what was read from the token `begin` on. Raises Unreadable with both places if it came before."""
        at = here.since(begin)
        if (first := self.places.setdefault(name.lower(), at)) is not at:
            raise here.twice(f"{what} {name}".strip(), first, at)

    def repeated(self, here: Cursor) -> tuple[str, Span] | None:
        """The name that came already and begins at the cursor's place, too, with its first place."""
        return next(((name.upper(), at) for name, at in self.places.items() if here.sees(*name.upper().split())), None)


def words_in(text: str) -> frozenset[str]:
    """The words of a list that is written as a text."""
    return frozenset(text.split())


# Words that follow a table and are not what it is called.
_NO_ALIAS: Final = words_in(
    """ANTI CLUSTER CROSS DISTRIBUTE EXCEPT FOR FULL GROUP HAVING INNER INSERT INTERSECT JOIN LATERAL LEFT LIMIT MINUS NATURAL OFFSET ON
    ORDER PIVOT QUALIFY RIGHT SELECT SEMI SET SETMINUS SORT TABLESAMPLE UNION UNPIVOT USING VALUES WHEN WHERE WINDOW WITH"""
)
_OPERATORS: Final = words_in("AND OR NOT IN LIKE ILIKE RLIKE REGEXP BETWEEN IS DIV ESCAPE DISTINCT FROM")


class Cursor:
    """Goes through tokens from `at` to `end`."""

    def __init__(self, text: str, tokens: Sequence[Token], at: int = 0, end: int | None = None) -> None:
        self.text = text
        self.tokens = tokens
        self.at = at
        self.end = len(tokens) if end is None else end
        self.clauses = Once()

    def peek(self, ahead: int = 0) -> Token | None:
        """The token at the place, or so many after it."""
        number = self.at + ahead
        return self.tokens[number] if self.at <= number < self.end else None

    def sees(self, *words: str) -> bool:
        """Whether these words and symbols come next."""
        return [token.upper for token in self.tokens[self.at : min(self.at + len(words), self.end)]] == list(words)

    def sees_one(self, *phrases: str) -> str | None:
        """That one of these phrases which comes next."""
        for each in phrases:
            if self.sees(*each.split()):
                return each
        return None

    def take(self, *words: str) -> bool:
        """Go past these words, if they come next."""
        is_next = self.sees(*words)
        self.at += len(words) if is_next else 0
        return is_next

    def take_one(self, *words: str) -> str | None:
        """Go past that one of these words which comes next."""
        phrase = self.sees_one(*words)
        self.at += 0 if phrase is None else len(phrase.split())
        return phrase

    def clause(self, *words: str, of: str = "") -> bool:
        """Go past the words of a clause, if they come next; clauses `of` one kind exclude one another. Raises Unreadable for a second."""
        begin = self.at
        if not self.take(*words):
            return False
        said = " ".join(words)
        if (first := self.clauses.places.get((of or said).lower())) is not None:
            is_same = first.of(self.text).upper().split() == list(words)
            raise self.twice(said, first, self.since(begin)) if is_same else self.contradicting(said, self.since(begin), first)
        self.clauses.note(self, of or said, begin)
        return True

    def choice(self, *clauses: str) -> str | None:
        """Go past that one of these clauses which comes next. Raises Unreadable if a second one follows, with both places."""
        of = " or ".join(clauses)
        chosen = next((each for each in clauses if self.clause(*each.split(), of=of)), None)
        if chosen is not None:
            any(self.clause(*each.split(), of=of) for each in clauses)
        return chosen

    def required(self, *words: str) -> None:
        """Go past a clause that has to come. Raises Unreadable."""
        if not self.clause(*words):
            self.expect(*words)

    def expect(self, *words: str) -> None:
        """Go past these words. Raises Unreadable."""
        for word in words:
            if not self.take(word):
                raise self.unreadable(f"expected {word}")

    def is_done(self) -> bool:
        """Whether no token is left, or a semicolon comes next."""
        return self.at >= self.end or self.sees(";")

    def finish(self) -> None:
        """Raise Unreadable unless the statement ends here."""
        while self.take(";"):
            pass
        if self.peek() is not None:
            raise self.unreadable("the statement should end here")

    def unreadable(self, message: str) -> Unreadable:
        """The refusal of what is at the place."""
        token = self.peek()
        repeated = self.clauses.repeated(self)
        if repeated is not None and token is not None:
            return self.twice(*repeated, Span(token.start, self.tokens[self.at + len(repeated[0].split()) - 1].end))
        if token is None:
            end = self.tokens[self.end - 1].end if 0 < self.end <= len(self.tokens) else 0
            return Unreadable(f"{message}, but the statement ends", Span(end, end))
        return Unreadable(message, Span(token.start, token.end))

    def since(self, begin: int) -> Span:
        """The part from a token up to the place."""
        return Span(self.tokens[begin].start, self.tokens[max(begin, self.at - 1)].end)

    def twice(self, what: str, first: Span, second: Span) -> Unreadable:
        """The refusal of what came before."""
        return Unreadable(f"{what} is given twice, first at {position(self.text, first)}; give it once", second)

    def contradicting(self, what: str, at: Span, other: Span) -> Unreadable:
        """The refusal of one of two parts that exclude one another."""
        return Unreadable(f"{what} contradicts {other.of(self.text)!r} at {position(self.text, other)}; give one of them", at)

    def name(self) -> Name:
        """A name of one or more parts. Raises Unreadable."""
        first = self.peek()
        if first is None or not first.names:
            hint = "" if first is None else location_hint(self.text, first.start)
            raise self.unreadable(f"expected the name of a table{hint}")
        parts, end = [first.value], first.end
        self.at += 1
        while self.sees(".") and (part := self.peek(1)) is not None and (part.names or part.kind == NUMBER):
            parts.append(part.value)
            end = part.end
            self.at += 2
        return Name(tuple(parts), first.start, end)

    def table(self) -> Name:
        """A name, or a location as a string, which is as in delta.`/a/path`. Raises Unreadable."""
        token = self.peek()
        if token is None or token.kind != STRING:
            return self.name()
        self.at += 1
        return Name(("delta", token.value), token.start, token.end)

    def word(self, what: str) -> str:
        """One name. Raises Unreadable."""
        token = self.peek()
        if token is None or not token.names:
            raise self.unreadable(f"expected {what}")
        self.at += 1
        return token.value

    def string(self, what: str) -> str:
        """A string, or several side by side, which are one. Raises Unreadable."""
        token = self.peek()
        if token is None or token.kind != STRING:
            raise self.unreadable(f"expected {what} as a string")
        parts: list[str] = []
        while token is not None and token.kind == STRING:
            parts.append(token.value)
            self.at += 1
            token = self.peek()
        return "".join(parts)

    def number(self, what: str) -> str:
        """A number, as it is written. Raises Unreadable."""
        token = self.peek()
        if token is None or token.kind != NUMBER:
            raise self.unreadable(f"expected {what} as a number")
        self.at += 1
        return token.value

    def value(self, literal: Callable[[str], str], what: str) -> Span:
        """A parameter, or what `literal` reads. Raises Unreadable."""
        begin = self.at
        if self.take(":"):
            self.word("the name of a parameter")
        elif not self.take("?"):
            literal(what)
        return self.since(begin)

    def closing(self) -> int:
        """The number of the token that closes the bracket at the place, within the statement. Raises Unreadable."""
        depth = 0
        for number in range(self.at, self.end):
            symbol = self.tokens[number].upper
            if symbol == ";":
                break
            depth += (symbol in OPENING) - (symbol in CLOSING)
            if depth == 0:
                return number
        opened = self.tokens[self.at]
        raise Unreadable("this bracket is not closed", Span(opened.start, opened.end))

    def inside(self) -> Cursor:
        """Go past the brackets that begin here; returns a cursor over what is inside. Raises Unreadable."""
        if not self.sees("("):
            raise self.unreadable("expected (")
        close = self.closing()
        within = Cursor(self.text, self.tokens, self.at + 1, close)
        self.at = close + 1
        return within

    def until(self, what: str, *stops: str, ends: Callable[[Cursor], bool] | None = None) -> Span:
        """Go to the first place outside of brackets and CASE ... END where one of the phrases `stops` comes, or `ends` is true, or the end.
        Raises Unreadable if that is the present place, and for brackets that do not match.
        """
        begin, cases = self.at, 0
        while not self.is_done():
            token, before = self.tokens[self.at], self.tokens[max(0, self.at - 1)]
            if cases == 0 and (self.sees_one(*stops) is not None or (ends is not None and ends(self))):
                break
            if token.upper in CLOSING:
                raise self.unreadable("this bracket was not opened")
            is_operand = before.upper in CLOSING or (before.kind != SYMBOL and before.upper not in _OPERATORS)
            # After an operand an expression can have an operator only.
            if cases == 0 and self.at > begin and token.kind == WORD and is_operand and self.clauses.repeated(self) is not None:
                raise self.unreadable("this clause was given before")
            if token.upper in OPENING:
                self.at = self.closing()
            elif token.kind == WORD and before.upper != ".":
                cases += (token.upper == "CASE") - (token.upper == "END" and cases > 0)
            self.at += 1
        if self.at == begin:
            raise self.unreadable(f"expected {what}")
        return self.since(begin)

    def listed(self, what: str) -> list[Span]:
        """The parts between commas, up to the end. Raises Unreadable if one is empty."""
        parts: list[Span] = []
        while not parts or self.take(","):
            parts.append(self.until(what, ","))
        return parts

    def names(self) -> tuple[str, ...]:
        """Names of columns in brackets, between commas, each once. Raises Unreadable."""
        return self.bracketed(lambda within: within.word("the name of a column"), "column")

    def each_once(self, read: Callable[[Cursor], T], what: str, name_of: Callable[[T], str] = str) -> tuple[T, ...]:
        """What is read between commas; the name of each comes once. Raises Unreadable."""
        items: list[T] = []
        once = Once()
        while not items or self.take(","):
            begin = self.at
            items.append(read(self))
            once.note(self, name_of(items[-1]), begin, what)
        return tuple(items)

    def bracketed(self, read: Callable[[Cursor], T], what: str, name_of: Callable[[T], str] = str) -> tuple[T, ...]:
        """What is read in brackets, as `each_once` reads it. Raises Unreadable."""
        within = self.inside()
        items = within.each_once(read, what, name_of)
        within.finish()
        return items

    def has_alias(self) -> bool:
        """Whether an alias follows, with or without AS."""
        token = self.peek()
        return token is not None and (token.upper == "AS" or (token.names and not (token.kind == WORD and token.upper in _NO_ALIAS)))

    def alias(self) -> str | None:
        """The alias that follows, if one does. Raises Unreadable for AS without a name."""
        if not self.has_alias():
            return None
        self.take("AS")
        return self.word("an alias")
