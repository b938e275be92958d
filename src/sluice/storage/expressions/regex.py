r"""Translates Java's regular expressions, which Spark's RLIKE takes, to RE2's, which Arrow evaluates.

Only constructs with the same meaning, or with an equivalent, are translated: `.`, `$` and `\s` differ in their details.
Everything else is refused by name: back references, lookaround, possessive quantifiers and flags, which RE2 lacks; `\b` and
`\p{..}`, whose tables of letters differ; nested classes.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from ..dataclass import dataclass
from ..errors import PredicateError

_LINE_ENDS: Final = r"\n\r\x{85}\x{2028}\x{2029}"
_ANY: Final = f"[^{_LINE_ENDS}]"
# Java's $ also matches before a line terminator at the end of the text.
_END: Final = rf"(?:(?:\r\n|[{_LINE_ENDS}])?\z)"
_SPACES: Final = r"\t\n\x0b\f\r "
_SAME: Final = frozenset("dDwWtnrfaAz")
_SAME_IN_CLASS: Final = frozenset("dDwWtnrfa")
_HEX: Final = re.compile(r"\\x([0-9A-Fa-f]{2})|\\u([0-9A-Fa-f]{4})")
_COUNT: Final = re.compile(r"\{(\d{1,4})(,(\d{1,4})?)?\}")
_QUANTIFIERS: Final = frozenset("*+?{")


@lru_cache(maxsize=256)
def to_re2(pattern: str) -> str:
    """The equivalent RE2 pattern: it matches exactly the texts that Java's `pattern` does. Raises PredicateError for refused constructs."""
    translator = _Translator(pattern)
    translated = translator.alternatives()
    if translator.at < len(pattern):
        raise translator.refuse("a parenthesis without its other one")
    try:
        pc.match_substring_regex(pa.array([""]), pattern=translated)
    except pa.ArrowInvalid as cause:
        raise PredicateError(f"the pattern {pattern!r} of RLIKE is no regular expression that can be evaluated: {cause}") from None
    return translated


@dataclass(frozen=False, slots=True)
class _Translator:
    text: str
    at: int = 0
    has_end: bool = False

    def refuse(self, what: str) -> PredicateError:
        return PredicateError(
            f"the pattern {self.text!r} of RLIKE has {what} at position {self.at}, which cannot be evaluated exactly as Spark does: "
            "write it in another way, or compute the condition in a column first"
        )

    def peek(self, ahead: int = 0) -> str:
        place = self.at + ahead
        return self.text[place] if place < len(self.text) else ""

    def alternatives(self) -> str:
        branches = [self.sequence()]
        while self.peek() == "|":
            self.at += 1
            branches.append(self.sequence())
        return "|".join(branches)

    def sequence(self) -> str:
        parts: list[str] = []
        while (char := self.peek()) and char not in "|)":
            before, self.has_end = self.has_end, char == "$"
            part = self.atom(char)
            # The replacement of a `$` consumes the line terminator, Java's does not: nothing may follow it, or the group that it is in.
            if self.has_end and self.peek() not in ("", "|", ")"):
                raise self.refuse("something behind a $")
            self.has_end |= before
            parts.append(part + self.quantifier())
        return "".join(parts)

    def atom(self, char: str) -> str:
        if char in _QUANTIFIERS:
            raise self.refuse(f"a {char!r} that repeats nothing")
        if char == "[":
            return self.characters()
        if char == "\\":
            return self.escaped(in_class=False)
        self.at += 1
        if char != "(":
            return _ANY if char == "." else _END if char == "$" else char if char == "^" else re.escape(char)
        if self.peek() == "?":
            if self.peek(1) != ":":
                raise self.refuse("lookaround, a name or a flag")
            self.at += 2
        inner = self.alternatives()
        if self.peek() != ")":
            raise self.refuse("a parenthesis without its other one")
        self.at += 1
        return f"(?:{inner})"

    def quantifier(self) -> str:
        char = self.peek()
        if not char or char not in _QUANTIFIERS:
            return ""
        if char == "{":
            count = _COUNT.match(self.text, self.at)
            if count is None:
                raise self.refuse("a '{' that counts nothing")
            found = count[0]
        else:
            found = char
        self.at += len(found)
        if self.peek() == "+":
            raise self.refuse("a possessive quantifier")
        if self.peek() == "?":  # reluctant: finds the same texts
            self.at += 1
        if self.peek() and self.peek() in _QUANTIFIERS:
            raise self.refuse("a quantifier of a quantifier")
        return found

    def characters(self) -> str:
        self.at += 1
        parts = ["["]
        if self.peek() == "^":
            self.at += 1
            parts.append("^")
        if self.peek() == "]":
            raise self.refuse("a class that begins with ']'")
        while (char := self.peek()) != "]":
            if not char:
                raise self.refuse("a class without its end")
            if char == "[" or (char == "&" and self.peek(1) == "&"):
                raise self.refuse("a class inside of a class")
            if char == "\\":
                parts.append(self.escaped(in_class=True))
                continue
            self.at += 1
            parts.append(char if char == "-" else re.escape(char))
        self.at += 1
        return "".join([*parts, "]"])

    def escaped(self, *, in_class: bool) -> str:
        if code := _HEX.match(self.text, self.at):
            point = int(code[1] or code[2], 16)
            if 0xD800 <= point < 0xE000:
                raise self.refuse("half a character")
            self.at += len(code[0])
            return f"\\x{{{point:x}}}"
        char = self.peek(1)
        if char == "s" or (char == "S" and not in_class):
            found = _SPACES if in_class else f"[{'^' if char == 'S' else ''}{_SPACES}]"
        elif char in (_SAME_IN_CLASS if in_class else _SAME) and char:
            found = f"\\{char}"
        elif not char or (char.isascii() and char.isalnum()):
            raise self.refuse(f"\\{char}")
        else:
            found = re.escape(char)
        self.at += 2
        return found
