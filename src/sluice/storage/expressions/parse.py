"""Translates SQL text to typed nodes. sqlglot parses; every construct it can return is translated here or refused by name."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, ClassVar, Final, NoReturn

import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.dialects.spark import Spark

from ..caches import cached_by_size
from ..errors import PredicateError
from . import build, types
from .calls import bits, call, clock, ilike
from .limits import OPERATORS_MAX, beyond_limits
from .nodes import Node

__all__ = ["parse", "parse_widely", "trees"]

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
    """The expression `text` over the columns of `schema`; PredicateError says what cannot be parsed or evaluated, and where.

    Errors call the text `noun`. `now` is the value of `current_timestamp()` and the like; without it they are refused.
    """
    why = beyond_limits(text)
    if why is not None:
        raise PredicateError(f"the {noun} {_shown(text)!r} cannot be used: {why}", **{noun: _shown(text)})
    found = trees(text, noun)
    try:
        return _Translator(schema, now).node(_only(found))
    except RecursionError:
        raise _too_deep(text, noun) from None
    except PredicateError as error:
        raise PredicateError(f"the {noun} {_shown(text)!r} cannot be used: {error.message}", **{noun: text}, **error.details) from None


def parse_widely(text: str, schema: pa.Schema) -> Node:
    """A condition that is TRUE wherever `text` is: under ANDs and ORs, parts that cannot be evaluated become TRUE.

    PredicateError if the text is not an expression.
    """
    found = trees(text, "predicate")
    try:
        return _Translator(schema).widened(_only(found))
    except RecursionError:
        return build.TRUE


@cached_by_size(_PARSED_BYTES_MAX)
def trees(text: str, noun: str) -> tuple[Any, ...]:
    """The parsed trees, which must not be changed. Raises PredicateError."""
    try:
        return tuple(sqlglot.parse(text, dialect=_Dialect))
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


def _too_deep(text: str, noun: str) -> PredicateError:
    return PredicateError(
        f"the {noun} {_shown(text)!r} is nested too deeply to be evaluated, as with more than {OPERATORS_MAX} operators in a row: "
        "leave out what changes nothing, or write it in parts",
        **{noun: _shown(text)},
    )


def _shown(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _only(found: Sequence[Any]) -> Any:
    if len(found) != 1 or found[0] is None:
        raise PredicateError("it must be exactly one expression")
    return found[0]


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
_ARITHMETIC: Final[dict[type[Any], str]] = {
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.Mod: "%",
    exp.IntDiv: "div",
}
_TYPES: Final = {
    "TIMESTAMPTZ": "TIMESTAMP",
    "TIMESTAMPLTZ": "TIMESTAMP",
    "TIMESTAMPNTZ": "TIMESTAMP_NTZ",
    "TEXT": "STRING",
}
_BITS: Final[dict[type[Any], str]] = {
    exp.BitwiseAnd: "&",
    exp.BitwiseOr: "|",
    exp.BitwiseXor: "^",
    exp.BitwiseLeftShift: "shiftleft",
    exp.BitwiseRightShift: "shiftright",
}
_MIXED: Final = (*_BITS, exp.DPipe)
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

    def _paren(self, tree: exp.Paren) -> Node:
        return self.node(tree.this)

    def _column(self, tree: exp.Column) -> Node:
        if not all(isinstance(part, exp.Identifier) for part in tree.parts):
            self._unknown(tree)
        path = [part.name for part in tree.parts]
        clock = self._clock(path[0]) if len(path) == 1 and not tree.this.quoted else None
        if clock is not None and path[0].lower() not in map(str.lower, self.schema.names):
            return clock
        return build.column(path, self.schema)

    def _clock(self, name: str) -> Node | None:
        """The value of a function that returns the time, if the time is known."""
        return None if self.now is None else clock(name, self.now)

    def _dot(self, tree: exp.Dot) -> Node:
        if not all(isinstance(part, exp.Identifier) for part in tree.parts):
            self._unknown(tree)
        return build.column([part.name for part in tree.parts], self.schema)

    def _literal(self, tree: exp.Literal) -> Node:
        return build.literal(tree.this) if tree.is_string else build.number(tree.this)

    def _rawstring(self, tree: exp.RawString) -> Node:
        return build.literal(tree.this)

    def _hexstring(self, tree: exp.HexString) -> Node:
        digits = tree.this
        try:
            return build.literal(bytes.fromhex(digits if len(digits) % 2 == 0 else f"0{digits}"))
        except ValueError:
            raise PredicateError(f"X'{digits}' is no binary: use pairs of hexadecimal digits") from None

    def _boolean(self, tree: exp.Boolean) -> Node:
        return build.TRUE if tree.this else build.FALSE

    def _null(self, tree: exp.Null) -> Node:
        return build.NULL

    def _and(self, tree: exp.And) -> Node:
        return build.and_(*map(self.node, tree.flatten()))

    def _or(self, tree: exp.Or) -> Node:
        return build.or_(*map(self.node, tree.flatten()))

    def _not(self, tree: exp.Not) -> Node:
        return build.not_(self.node(tree.this))

    def _is(self, tree: exp.Is) -> Node:
        term, kind = self.node(tree.this), tree.expression
        if isinstance(kind, exp.Null):
            return build.is_null(term)
        if isinstance(kind, exp.Boolean):
            return build.compare("<=>", build.require_boolean(term), self.node(kind))
        return self._unknown(tree)

    def _nullsafeneq(self, tree: exp.NullSafeNEQ) -> Node:
        return build.not_(build.compare("<=>", self.node(tree.this), self.node(tree.expression)))

    def _between(self, tree: exp.Between) -> Node:
        if tree.args.get("symmetric"):
            self._unknown(tree)
        term, low, high = (self.node(tree.args[part]) for part in ("this", "low", "high"))
        return build.and_(build.compare(">=", term, low), build.compare("<=", term, high))

    def _in(self, tree: exp.In) -> Node:
        if {key for key, value in tree.args.items() if value} - {"this", "expressions", "negate"}:
            self._unknown(tree.args.get("query") or tree)
        return build.in_(self.node(tree.this), [self.node(option) for option in tree.expressions])

    def _like(self, tree: exp.Like | exp.ILike, escape: str = "\\") -> Node:
        if isinstance(tree.expression, (exp.Any, exp.All)):
            self._unknown(tree)
        term, pattern = self.node(tree.this), self.node(tree.expression)
        return ilike(term, pattern, escape) if isinstance(tree, exp.ILike) else build.like(term, pattern, escape)

    _ilike = _like

    def _regexplike(self, tree: exp.RegexpLike) -> Node:
        if isinstance(tree.expression, (exp.Any, exp.All)):
            self._unknown(tree)
        return call("rlike", [self.node(tree.this), self.node(tree.expression)])

    def _bits(self, tree: Any) -> Node:
        """The parser gives all of these the same precedence, Spark does not."""
        for side in (tree.this, tree.expression):
            if type(side) is not type(tree) and isinstance(side, _MIXED):
                raise PredicateError(f"{tree.sql(dialect='spark')} mixes operators of different strength: write parentheses")
        sign, args = _BITS[type(tree)], [self.node(tree.this), self.node(tree.expression)]
        return call(sign, args) if sign.isalpha() else bits(sign, args)

    def _bitwisenot(self, tree: exp.BitwiseNot) -> Node:
        return bits("~", [self.node(tree.this)])

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
        if isinstance(term, exp.Literal) and not term.is_string:
            return build.number(f"-{term.this}")
        return build.negate(self.node(term))

    def _cast(self, tree: exp.Cast) -> Node:
        return build.cast(self.node(tree.this), _type(tree.to))

    def _trycast(self, tree: exp.TryCast) -> Node:
        return build.try_cast(self.node(tree.this), _type(tree.to)) if tree.args.get("safe") else self._cast(tree)

    def _dpipe(self, tree: exp.DPipe) -> Node:
        return call("concat", [self.node(tree.this), self.node(tree.expression)])

    def _concat(self, tree: exp.Concat) -> Node:
        return call("concat", [self.node(part) for part in tree.expressions])

    def _anonymous(self, tree: exp.Anonymous) -> Node:
        clock = self._clock(str(tree.this)) if not tree.expressions else None
        return clock if clock is not None else call(str(tree.this), [self.node(arg) for arg in tree.expressions])

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
