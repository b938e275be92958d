"""Check points: comments in the source that name a check, so that it can be switched off.

A check point is a comment line of its own, directly above the construct that makes the check:

    # check: NAME                   switched off, the construct below does nothing: a condition is false, an `except` catches nothing,
                                    a function returns None, a block is entered without its `with`, a statement is not executed,
                                    an operand or an item is left out
    # check: NAME (always)          switched off, the condition below is true
    # check: NAME (A -> B)          switched off, B replaces A in the statement or item below
    # check: NAME (without A)       switched off, A is missing there
    # check: NAME (after the next)  switched off, the statement or operand below comes after the one that follows it

A and B are pieces of Python; A occurs once there, however the lines are broken. Points with one name are switched off together.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from sluice.storage.dataclass import dataclass

__all__ = ["Points", "points_below", "switched_off"]

_MARKER: Final = re.compile(r"# check: (?P<name>[a-z]+(?:-[a-z]+)*)(?: \((?P<how>.+)\))?")
_LIKE_A_MARKER: Final = re.compile(r"#\s*check\s*:", re.IGNORECASE)
_LAYOUT: Final = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
_ITEM_OF: Final = (ast.BoolOp, ast.List, ast.Tuple, ast.Set, ast.Call)
_Node = ast.stmt | ast.expr | ast.ExceptHandler | ast.keyword
_Change = tuple[int, int, str]
"""Where a text begins, where it ends, and what replaces it."""


@dataclass(frozen=True, slots=True)
class _Point:
    """A check point: how the check is switched off, and where the construct below begins."""

    how: str
    line: int
    column: int


class Points:
    """The check points of a module. Raises ValueError for a comment that only looks like one."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._lines = source.splitlines(keepends=True)
        self._points: dict[str, list[_Point]] = {}
        self._parents: dict[ast.AST, ast.AST] = {}
        if _LIKE_A_MARKER.search(source):
            self._parents = {child: node for node in ast.walk(ast.parse(source)) for child in ast.iter_child_nodes(node)}
            self._find()

    @property
    def names(self) -> frozenset[str]:
        """The checks that are made in this module."""
        return frozenset(self._points)

    def without(self, name: str) -> str:
        """The module with this check switched off. Raises ValueError for a point that switches nothing off."""
        text = self._source
        try:
            for begin, end, instead in sorted((self._change(point) for point in self._points[name]), reverse=True):
                text = text[:begin] + instead + text[end:]
        except ValueError as problem:
            raise ValueError(f"{name}: {problem}") from problem
        return text

    def _find(self) -> None:
        tokens = list(tokenize.generate_tokens(io.StringIO(self._source).readline))
        below = end = len(tokens) - 1
        for n in range(end, -1, -1):
            token = tokens[n]
            if token.type == tokenize.COMMENT and _LIKE_A_MARKER.match(token.string):
                said = _MARKER.fullmatch(token.string)
                if said is None or below == end or token.line[: token.start[1]].strip():
                    raise ValueError(f"line {token.start[0]} is no check point: {token.string}")
                construct = tokens[below + 1] if tokens[below].string in ("and", "or") else tokens[below]
                self._points.setdefault(said["name"], []).append(_Point(said["how"] or "", *construct.start))
            elif token.type not in _LAYOUT:
                below = n

    def _construct(self, point: _Point) -> _Node:
        """The largest statement, `except`, operand or item that begins where the point says."""
        for node, parent in self._parents.items():  # in the order of a walk: the larger come first
            decorators = getattr(node, "decorator_list", None)
            begins = (getattr(node, "lineno", 0), getattr(node, "col_offset", 0)) == (point.line, point.column)
            if not begins and not (decorators and decorators[0].lineno == point.line):
                continue
            if isinstance(node, ast.stmt | ast.ExceptHandler | ast.keyword):
                return node
            if isinstance(node, ast.expr) and isinstance(parent, _ITEM_OF):
                return node
        raise ValueError(f"line {point.line} begins nothing that can be switched off")

    def _change(self, point: _Point) -> _Change:
        node = self._construct(point)
        if point.how == "after the next":
            return self._swapped(node)
        if point.how not in ("", "always"):
            return self._replaced(node, point.how)
        if point.how and not isinstance(node, ast.If):
            raise ValueError("(always) is for conditions")
        match node, self._parents[node]:
            case (ast.If(test=condition), _) | (ast.While(test=condition), _):
                return *self._span(condition), str(bool(point.how))
            case ast.ExceptHandler(type=ast.expr() as caught), _:
                return *self._span(caught), "()"
            case ast.With(items=items), _:
                return self._span(node)[0], self._span(items[-1].optional_vars or items[-1].context_expr)[1], "if True"
            case ast.FunctionDef(body=body), _:
                return self._span(body[0])[0], self._span(body[-1])[1], "return None"
            case ast.stmt(), _:
                return *self._span(node), "pass"
            case _, ast.BoolOp(op=operator):
                return *self._span(node), str(isinstance(operator, ast.And))
            case _:
                begin, end = self._span(node)
                comma = re.match(r"\s*,", self._source[end:])
                return begin, end + comma.end() if comma else end, ""

    def _swapped(self, node: _Node) -> _Change:
        """The construct and the next one of the same block, or of the same `and` or `or`, in the other order."""
        row = next(each for each in vars(self._parents[node]).values() if isinstance(each, list) and node in each)
        if node is row[-1]:
            raise ValueError("nothing follows")
        this, following = self._span(node), self._span(row[row.index(node) + 1])
        return this[0], following[1], "".join(self._source[slice(*each)] for each in (following, (this[1], following[0]), this))

    def _replaced(self, node: _Node, how: str) -> _Change:
        """A piece of the construct, of a compound statement of its head alone, and what replaces it."""
        old, arrow, new = how.partition(" -> ")
        if not arrow and not how.startswith("without "):
            raise ValueError(f"({how}) says nothing")
        begin, end = self._span(node)
        body = getattr(node, "body", None)
        text = self._source[begin : self._span(body[0])[0] if isinstance(body, list) else end]
        tokens, sought = _code(text), [token.string for token in _code(old if arrow else how.removeprefix("without "))]
        found = [n for n in range(len(tokens)) if [token.string for token in tokens[n : n + len(sought)]] == sought]
        if len(found) != 1:
            raise ValueError(f"({how}) is about something that is there {len(found)} times, not once")
        first, last = tokens[found[0]], tokens[found[0] + len(sought) - 1]
        return begin + _offset(text, *first.start), begin + _offset(text, *last.end), new

    def _span(self, node: _Node) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._place(node.lineno, node.col_offset), self._place(node.end_lineno, node.end_col_offset)

    def _place(self, line: int, column: int) -> int:
        """The offset of a place whose column ast counts in bytes."""
        return sum(map(len, self._lines[: line - 1])) + len(self._lines[line - 1].encode()[:column].decode())


def points_below(folder: Path) -> dict[Path, Points]:
    found = {path: Points(path.read_text()) for path in sorted(folder.rglob("*.py"))}
    return {path: points for path, points in found.items() if points.names}


def switched_off(name: str, modules: Mapping[Path, Points]) -> dict[Path, str]:
    """The modules that make a check, without it. Raises ValueError if none does, or a point switches nothing off."""
    found = {path: points.without(name) for path, points in modules.items() if name in points.names}
    if not found:
        raise ValueError(f"no comment in the source says '# check: {name}'")
    return found


def _code(text: str) -> Sequence[tokenize.TokenInfo]:
    """The tokens of a piece of a module, whose brackets may be open."""
    return [token for token in _as_far_as_it_goes(text) if token.type not in _LAYOUT]


def _as_far_as_it_goes(text: str) -> Iterator[tokenize.TokenInfo]:
    with suppress(tokenize.TokenError, IndentationError):
        yield from tokenize.generate_tokens(io.StringIO(text).readline)


def _offset(text: str, line: int, column: int) -> int:
    return sum(map(len, text.splitlines(keepends=True)[: line - 1])) + column
