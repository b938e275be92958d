"""Translates SQL text to typed nodes. sqlglot parses; every construct it can return is translated here or refused by name.

An expression has limits: each level of nesting takes some twenty of Python's thousand frames to parse, each AND a millisecond.
The outline says what an expression is made of, whether or not it can be evaluated here.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from typing import Any, ClassVar, Final, NoReturn

import pyarrow as pa
import sqlglot
from sqlglot import TokenType, exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import TokenError

from ..caches import cached_by_size
from ..dataclass import dataclass
from ..errors import PredicateError
from . import build, types
from .functions import AGGREGATES, NOT_DETERMINISTIC
from .nodes import Node

LEVELS_MAX: Final = 30
"""Brackets and CASE ... END inside of one another."""
TERMS_MAX: Final = 10_000
"""ANDs and ORs of one text."""
OPERATORS_MAX: Final = 200
"""Operators in a row, such as a + b + c, and functions of functions."""

_OPENING: Final = (TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE, TokenType.CASE)
_CLOSING: Final = (TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE, TokenType.END)
_SHORTEST: Final = len("a or")

_OPERAND: Final = re.compile(r"Required keyword: '\w+' missing for <class '[\w.]*'>")
"""What sqlglot says of an operator without an operand."""
_PARSED_BYTES_MAX: Final = 64 * 1024 * 1024
"""The memory for recently parsed trees, each of which takes some hundred times its text."""


class _Dialect(Spark):
    """Spark's grammar with functions kept as written: sqlglot would rewrite `year(x)` and the like."""

    class Parser(Spark.Parser):  # type: ignore[misc,valid-type]
        # sqlglot names its dialects' parsers at run time.
        FUNCTIONS: ClassVar[dict[str, Any]] = {}
        FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {name: Spark.Parser.FUNCTION_PARSERS[name] for name in ("CAST", "TRY_CAST")}
        NO_PAREN_FUNCTIONS: ClassVar[dict[Any, Any]] = {}


def parse(text: str, schema: pa.Schema, *, noun: str = "predicate", now: datetime | None = None) -> Node:
    """The expression `text` over the columns of `schema`; PredicateError says what cannot be parsed or evaluated, and where. Errors call
    the text `noun`. `now` is the value of `current_timestamp()` and the like; without it they are refused.
    """
    if (why := beyond_limits(text)) is not None:
        raise PredicateError(f"the {noun} {_shown(text)!r} cannot be used: {why}", **{noun: _shown(text)})
    tree = _tree(text, noun)
    try:
        return _Translator(schema, now).node(tree)
    except RecursionError:
        raise _too_deep(text, noun) from None
    except PredicateError as error:
        raise PredicateError(f"the {noun} {_shown(text)!r} cannot be used: {error.message}", **{noun: text}, **error.details) from None


def beyond_limits(text: str) -> str | None:
    """Why a text of SQL is too large to be parsed; None if it is not, or is no SQL at all."""
    if sum(map(text.count, "([{")) + text.upper().count("CASE") <= LEVELS_MAX and len(text) <= TERMS_MAX * _SHORTEST:
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
    if (terms := kinds.count(TokenType.AND) + kinds.count(TokenType.OR)) > TERMS_MAX:
        return (
            f"it has {terms} ANDs and ORs, and at most {TERMS_MAX} are read: write x IN (...), or put the values into a table and use MERGE"
        )
    return None


def parse_widely(text: str, schema: pa.Schema) -> Node:
    """A condition that is TRUE wherever `text` is: parts that cannot be evaluated become TRUE. PredicateError if it is no expression."""
    tree = _tree(text, "predicate")
    try:
        return _Translator(schema).widened(tree)
    except RecursionError:
        return build.TRUE


@cached_by_size(_PARSED_BYTES_MAX)
def _tree(text: str, noun: str) -> Any:
    """The parsed tree, which must not be changed. Raises PredicateError unless the text is one expression."""
    try:
        trees = sqlglot.parse(text, dialect=_Dialect)
    except RecursionError:
        raise _too_deep(text, noun) from None
    except sqlglot.errors.SqlglotError as error:
        where: dict[str, Any] = next(iter(getattr(error, "errors", ())), {})
        line, column, near = where.get("line", 1), where.get("col", 1), where.get("highlight", "")
        what = _OPERAND.sub("an operand is missing", where.get("description", str(error)))
        raise PredicateError(
            f"the {noun} {_shown(text)!r} does not parse: {what} at line {line}, column {column} (near {near!r});"
            f" write it as {'in a WHERE clause of' if noun == 'predicate' else 'an expression of'} Spark SQL",
            **{noun: text},
            line=line,
            column=column,
        ) from None
    if len(trees) != 1 or trees[0] is None:
        raise PredicateError(f"the {noun} {_shown(text)!r} cannot be used: it must be exactly one expression", **{noun: text})
    return trees[0]


def _too_deep(text: str, noun: str) -> PredicateError:
    return PredicateError(
        f"the {noun} {_shown(text)!r} is nested too deeply to be evaluated, as with more than {OPERATORS_MAX} operators in a row: "
        "leave out what changes nothing, or write it in parts",
        **{noun: _shown(text)},
    )


def _shown(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


_SHOWN: Final = 200
_COMPARISONS: Final[dict[type[Any], str]] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.NullSafeEQ: "<=>",
}
_ARITHMETIC: Final[dict[type[Any], str]] = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%", exp.IntDiv: "div"}
_TYPES: Final = {"TIMESTAMPTZ": "TIMESTAMP", "TIMESTAMPLTZ": "TIMESTAMP", "TIMESTAMPNTZ": "TIMESTAMP_NTZ", "TEXT": "STRING"}
_BITS: Final[dict[type[Any], str]] = {
    exp.BitwiseAnd: "&",
    exp.BitwiseOr: "|",
    exp.BitwiseXor: "^",
    exp.BitwiseLeftShift: "shiftleft",
    exp.BitwiseRightShift: "shiftright",
}
_MIXED: Final = (*_BITS, exp.DPipe)
KEYWORDS: Final = frozenset(
    word.lower()
    for known in (Spark.Tokenizer.KEYWORDS, Spark.Parser.NO_PAREN_FUNCTION_PARSERS)
    for words in known
    for word in words.split()
)
"""All words that the tokenizer knows (`show`, `order by`, ...), and those the parser treats as functions without parentheses."""
# SQL's names for constructs that people are likely to try.
_NAMES: Final = {"Subquery": "a subquery", "Select": "a subquery", "Exists": "a subquery", "Bracket": "an element of an array or map"}


class _Translator:
    def __init__(self, schema: pa.Schema, now: datetime | None = None) -> None:
        self.schema = schema
        self.now = now
        self._depth = 0

    def node(self, tree: Any) -> Node:
        """The node of a tree. Raises RecursionError beyond OPERATORS_MAX, whatever the depth of the caller."""
        if self._depth >= OPERATORS_MAX:
            raise RecursionError
        self._depth += 1
        found = self._node(tree)
        self._depth -= 1
        return found

    def _node(self, tree: Any) -> Node:
        kind = type(tree)
        if kind in _COMPARISONS:
            return build.compare(_COMPARISONS[kind], self.node(tree.this), self.node(tree.expression))
        if kind in _ARITHMETIC:
            return build.arithmetic(_ARITHMETIC[kind], self.node(tree.this), self.node(tree.expression))
        if kind in _BITS:
            return self._bits(tree)
        match kind:
            case exp.Paren:
                return self.node(tree.this)
            case exp.Literal:
                return build.literal(tree.this) if tree.is_string else build.number(tree.this)
            case exp.RawString:
                return build.literal(tree.this)
            case exp.Boolean:
                return build.TRUE if tree.this else build.FALSE
            case exp.Null:
                return build.NULL
            case exp.And:
                return build.and_(*map(self.node, tree.flatten()))
            case exp.Or:
                return build.or_(*map(self.node, tree.flatten()))
            case exp.Not:
                return build.not_(self.node(tree.this))
            case exp.NullSafeNEQ:
                return build.not_(build.compare("<=>", self.node(tree.this), self.node(tree.expression)))
            case exp.BitwiseNot:
                return build.bits("~", [self.node(tree.this)])
            case exp.Cast | exp.TryCast:
                cast = build.try_cast if tree.args.get("safe") and kind is exp.TryCast else build.cast
                return cast(self.node(tree.this), _type(tree.to))
            case exp.DPipe:
                return build.call("concat", [self.node(tree.this), self.node(tree.expression)])
            case exp.Concat:
                return build.call("concat", [self.node(part) for part in tree.expressions])
        translate: Callable[[Any], Node] = getattr(self, f"_{kind.__name__.lower()}", self._unknown)
        node = translate(tree)
        return build.not_(node) if tree.args.get("negate") else node

    def widened(self, tree: Any) -> Node:
        """See `parse_widely`."""
        match tree:
            case exp.Paren():
                return self.widened(tree.this)
            case exp.And():
                return build.and_(*map(self.widened, tree.flatten()))
            case exp.Or():
                return build.or_(*map(self.widened, tree.flatten()))
        try:
            return build.require_boolean(self.node(tree))
        except PredicateError:
            return build.TRUE

    def _unknown(self, tree: Any) -> NoReturn:
        what = _NAMES.get(type(tree).__name__, type(tree).__name__.upper())
        raise PredicateError(f"{what} ({tree.sql(dialect='spark')}) cannot be evaluated: compute it first, or write the value")

    def _column(self, tree: exp.Column | exp.Dot) -> Node:
        if not all(isinstance(part, exp.Identifier) for part in tree.parts):
            self._unknown(tree)
        path = [part.name for part in tree.parts]
        clock = self._clock(path[0]) if len(path) == 1 and not tree.this.quoted else None
        return clock if clock is not None and path[0].lower() not in map(str.lower, self.schema.names) else build.column(path, self.schema)

    _dot = _column

    def _clock(self, name: str) -> Node | None:
        """The value of a function that returns the time (in UTC, like everything); None for another name, or without the time."""
        kind = _CLOCKS.get(name.lower())
        return None if kind is None or self.now is None else build.cast(build.literal(self.now), kind)

    def _hexstring(self, tree: exp.HexString) -> Node:
        digits = tree.this
        try:
            return build.literal(bytes.fromhex(digits if len(digits) % 2 == 0 else f"0{digits}"))
        except ValueError:
            raise PredicateError(f"X'{digits}' is no binary: use pairs of hexadecimal digits") from None

    def _is(self, tree: exp.Is) -> Node:
        term, kind = self.node(tree.this), tree.expression
        if isinstance(kind, exp.Null):
            return build.is_null(term)
        if isinstance(kind, exp.Boolean):
            return build.compare("<=>", build.require_boolean(term), self.node(kind))
        return self._unknown(tree)

    def _between(self, tree: exp.Between) -> Node:
        if tree.args.get("symmetric"):
            self._unknown(tree)
        term, low, high = (self.node(tree.args[part]) for part in ("this", "low", "high"))
        return build.and_(build.compare(">=", term, low), build.compare("<=", term, high))

    def _in(self, tree: exp.In) -> Node:
        if {key for key, value in tree.args.items() if value} - {"this", "expressions", "negate"}:
            self._unknown(tree.args.get("query") or tree)
        return build.in_(self.node(tree.this), [self.node(option) for option in tree.expressions])

    def _like(self, tree: exp.Like | exp.ILike | exp.RegexpLike, escape: str = "\\") -> Node:
        if isinstance(tree.expression, (exp.Any, exp.All)):
            self._unknown(tree)
        term, pattern = self.node(tree.this), self.node(tree.expression)
        if isinstance(tree, exp.RegexpLike):
            return build.call("rlike", [term, pattern])
        return build.ilike(term, pattern, escape) if isinstance(tree, exp.ILike) else build.like(term, pattern, escape)

    _ilike = _regexplike = _like

    def _bits(self, tree: Any) -> Node:
        """The parser gives all of these the same precedence, Spark does not."""
        for side in (tree.this, tree.expression):
            if type(side) is not type(tree) and isinstance(side, _MIXED):
                raise PredicateError(f"{tree.sql(dialect='spark')} mixes operators of different strength: write parentheses")
        sign, args = _BITS[type(tree)], [self.node(tree.this), self.node(tree.expression)]
        return build.call(sign, args) if sign.isalpha() else build.bits(sign, args)

    def _escape(self, tree: exp.Escape) -> Node:
        like, escape = tree.this, tree.expression
        if not isinstance(like, (exp.Like, exp.ILike)) or not isinstance(escape, exp.Literal) or len(escape.this) != 1:
            raise PredicateError("ESCAPE follows LIKE and takes one character")
        node = self._like(like, escape.this)
        return build.not_(node) if like.args.get("negate") else node

    def _neg(self, tree: exp.Neg) -> Node:
        term = tree.this
        if isinstance(term, exp.TryCast) and isinstance(term.this, exp.Literal) and not term.args.get("safe") and not term.this.is_string:
            # -128Y is one literal: 128 would not fit
            return build.cast(build.negate(self.node(term.this)), _type(term.to))
        return build.number(f"-{term.this}") if isinstance(term, exp.Literal) and not term.is_string else build.negate(self.node(term))

    def _anonymous(self, tree: exp.Anonymous) -> Node:
        clock = self._clock(str(tree.this)) if not tree.expressions else None
        return clock if clock is not None else build.call(str(tree.this), [self.node(arg) for arg in tree.expressions])

    def _if(self, tree: exp.If) -> Node:
        otherwise = tree.args.get("false")
        return build.case([(self.node(tree.this), self.node(tree.args["true"]))], self.node(otherwise) if otherwise else build.NULL)

    def _case(self, tree: exp.Case) -> Node:
        subject = self.node(tree.this) if tree.this else None
        branches = []
        for branch in tree.args["ifs"]:
            condition = self.node(branch.this)
            branches.append((condition if subject is None else build.compare("=", subject, condition), self.node(branch.args["true"])))
        default = tree.args.get("default")
        return build.case(branches, self.node(default) if default else build.NULL)


def _type(tree: exp.DataType) -> pa.DataType:
    name = str(getattr(tree.this, "value", tree.this)).upper()
    sizes = [int(size.this.this) for size in tree.expressions if isinstance(getattr(size, "this", None), exp.Literal)]
    return types.parse(_TYPES.get(name, name), *sizes[:2])


_CLOCKS: Final = {
    **dict.fromkeys(("current_timestamp", "now"), types.TIMESTAMP),
    **dict.fromkeys(("current_date", "curdate"), pa.date32()),
    "localtimestamp": types.TIMESTAMP_NTZ,
}


@dataclass(frozen=True, slots=True)
class Outline:
    """The first parts of the names of its columns; and the words of what has no value that is the same for everybody (`changing`), or is
    not made of one row (`several`).
    """

    columns: frozenset[str]
    changing: tuple[str, ...]
    several: tuple[str, ...]


def outline_of(text: str, *, clock: bool) -> Outline:
    """The outline of an expression. `clock`: functions that return the time are allowed. Raises PredicateError if it is none."""
    columns: set[str] = set()
    changing: list[str] = []
    several: list[str] = []
    for node in _tree(text, "expression").walk():
        if isinstance(node, exp.Column):
            first = node.parts[0]
            name = str(getattr(first, "name", first))
            if not (len(node.parts) == 1 and not node.this.quoted and name.lower() in _CLOCKS):
                columns.add(name)
            elif not clock:
                changing.append(name)
        elif isinstance(node, (exp.Subquery, exp.Select, exp.Exists)):
            several.append("a subquery")
        elif isinstance(node, exp.Window):
            several.append("a window function")
        elif isinstance(node, exp.Anonymous):
            if (name := str(node.this).lower()) in AGGREGATES:
                several.append(f"the aggregate {name}")
            elif name in NOT_DETERMINISTIC and not (clock and name in _CLOCKS):
                changing.append(name)
    return Outline(frozenset(columns), tuple(changing), tuple(several))
