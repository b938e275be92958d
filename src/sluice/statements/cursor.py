"""A place in a statement's tokens, from which readers take words, names and expressions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from ..storage.dataclass import dataclass
from .tokens import NAME, NUMBER, STRING, WORD, Token

OPENING: Final = frozenset("([{")
CLOSING: Final = frozenset(")]}")
# Deeper nesting is left to Spark's own parser.
DEPTH_MAX: Final = 200
_PATHS: Final = ("sluice", "delta")


class Unreadable(Exception):
    """Raised by readers for a text that is not their statement: what they expected, and the place of what they found."""

    def __init__(self, message: str, start: int, end: int) -> None:
        super().__init__(message)
        self.message = message
        self.start = start
        self.end = end


@dataclass(frozen=True, slots=True)
class Span:
    """The part `text[start:end]` of a statement."""

    start: int
    end: int

    def of(self, text: str) -> str:
        """That part."""
        return text[self.start : self.end]


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
    def quoted(self) -> str:
        """As Spark's parser takes it for exactly these parts."""
        return ".".join("`" + part.replace("`", "``") + "`" for part in self.parts)


def words_in(text: str) -> frozenset[str]:
    """The words of a list that is written as a text."""
    return frozenset(text.split())


class Cursor:
    """Goes through tokens from `at` to `end`."""

    def __init__(self, text: str, tokens: Sequence[Token], at: int = 0, end: int | None = None) -> None:
        self.text = text
        self.tokens = tokens
        self.at = at
        self.end = len(tokens) if end is None else end

    def peek(self, ahead: int = 0) -> Token | None:
        """The token at the place, or so many after it."""
        number = self.at + ahead
        return self.tokens[number] if self.at <= number < self.end else None

    def sees(self, *words: str) -> bool:
        """Whether these words and symbols come next."""
        return all((token := self.peek(number)) is not None and token.upper == word for number, word in enumerate(words))

    def take(self, *words: str) -> bool:
        """Go past these words, if they come next."""
        found = self.sees(*words)
        self.at += len(words) if found else 0
        return found

    def take_one(self, *words: str) -> str | None:
        """Go past that one of these words which comes next."""
        return next((word for word in words if self.take(*word.split())), None)

    def expect(self, *words: str) -> None:
        """Go past these words. Raises Unreadable."""
        for word in words:
            if not self.take(word):
                raise self.unreadable(f"expected {word}")

    def is_done(self) -> bool:
        """Whether no token is left."""
        return self.at >= self.end

    def finish(self) -> None:
        """Raise Unreadable unless the statement ends here."""
        while self.take(";"):
            pass
        if not self.is_done():
            raise self.unreadable("the statement should end here")

    def unreadable(self, message: str) -> Unreadable:
        """The refusal of what is at the place."""
        token = self.peek()
        if token is None:
            end = self.tokens[self.end - 1].end if 0 < self.end <= len(self.tokens) else 0
            return Unreadable(f"{message}, but the statement ends", end, end)
        return Unreadable(message, token.start, token.end)

    def name(self) -> Name:
        """A name of one or more parts. Raises Unreadable."""
        first = self.peek()
        if first is None or not first.names:
            raise self.unreadable("expected the name of a table")
        parts, end = [first.value], first.end
        self.at += 1
        while self.sees(".") and (part := self.peek(1)) is not None and (part.names or part.kind == NUMBER):
            parts.append(part.value)
            end = part.end
            self.at += 2
        return Name(tuple(parts), first.start, end)

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

    def closing(self, at: int | None = None) -> int:
        """The number of the token that closes the bracket at the place. Raises Unreadable."""
        depth, number = 0, self.at if at is None else at
        while number < self.end:
            symbol = self.tokens[number].upper
            depth += (symbol in OPENING) - (symbol in CLOSING)
            if depth == 0:
                return number
            number += 1
        opened = self.tokens[self.at if at is None else at]
        raise Unreadable("this bracket is not closed", opened.start, opened.end)

    def inside(self) -> Cursor:
        """Go past the brackets that begin here; returns a cursor over what is inside. Raises Unreadable."""
        if not self.sees("("):
            raise self.unreadable("expected (")
        close = self.closing()
        within = Cursor(self.text, self.tokens, self.at + 1, close)
        self.at = close + 1
        return within

    def until(self, stops: Callable[[Cursor], bool], what: str) -> Span:
        """Go to the first place outside of brackets and CASE ... END where `stops` is true, or to the end.

        Raises Unreadable if that is the present place, and for brackets that do not match.
        """
        begin, cases = self.at, 0
        while not self.is_done():
            token = self.tokens[self.at]
            if cases == 0 and (stops(self) or token.upper == ";"):
                break
            if token.upper in CLOSING:
                raise self.unreadable("this bracket was not opened")
            if token.upper in OPENING:
                self.at = self.closing()
            elif token.kind == WORD and not self._is_part_of_name():
                cases += (token.upper == "CASE") - (token.upper == "END" and cases > 0)
            self.at += 1
        if self.at == begin:
            raise self.unreadable(f"expected {what}")
        return Span(self.tokens[begin].start, self.tokens[self.at - 1].end)

    def _is_part_of_name(self) -> bool:
        before = self.tokens[self.at - 1] if self.at > 0 else None
        return before is not None and before.upper == "."

    def rest(self, what: str) -> Span:
        """Everything up to the end. Raises Unreadable if there is nothing."""
        return self.until(lambda _: False, what)

    def listed(self, what: str) -> list[Span]:
        """The parts between commas, up to the end. Raises Unreadable if one is empty."""
        parts = [self.until(lambda here: here.sees(","), what)]
        while self.take(","):
            parts.append(self.until(lambda here: here.sees(","), what))
        return parts

    def names(self, what: str) -> tuple[str, ...]:
        """Names in brackets, between commas. Raises Unreadable."""
        within = self.inside()
        found = [within.word(what)]
        while within.take(","):
            found.append(within.word(what))
        within.finish()
        return tuple(found)

    def alias(self, stops: frozenset[str]) -> str | None:
        """The name that follows, with or without AS, unless it is one of these words. Raises Unreadable for AS without a name."""
        if self.take("AS"):
            return self.word("an alias")
        token = self.peek()
        if token is None or not token.names or (token.kind == WORD and token.upper in stops):
            return None
        self.at += 1
        return token.value

    def quotes(self) -> bool:
        """Whether a quoted name comes next."""
        token = self.peek()
        return token is not None and token.kind == NAME
