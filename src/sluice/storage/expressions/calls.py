"""Function calls: alternative spellings of an expression become that expression, others are looked up in `functions`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import pyarrow as pa

from ..errors import PredicateError
from . import build, types
from .functions import AGGREGATES, ALIASES, FUNCTIONS, NOT_DETERMINISTIC
from .nodes import Call, Literal, Node
from .regex import to_re2

__all__ = ["bits", "call", "clock", "ilike"]

# Functions without a name in SQL, written as operators.
_OPERATORS = frozenset({"&", "|", "^", "~"})
_REWRITTEN = (
    "coalesce",
    "if",
    "nullif",
    "nvl2",
    "isnull",
    "isnotnull",
    "mod",
    "negative",
    "startswith",
    "endswith",
    "contains",
    "date",
    "ilike",
)


def call(name: str, args: Sequence[Node]) -> Node:
    """A function by its SQL name; PredicateError for functions that sluice does not evaluate."""
    known = ALIASES.get(name.lower(), name.lower())
    match known, args:
        case "coalesce", [_, *_]:
            kind = build.common_of(args, "COALESCE")
            return build.folded(Call("coalesce", tuple(build.as_literal(arg, kind) for arg in args), kind))
        case "if", [condition, yes, no]:
            return build.case([(condition, yes)], no)
        case "nullif", [value, other]:
            return build.case([(build.compare("=", value, other), build.NULL)], value)
        case "nvl2", [value, yes, no]:
            return build.case([(build.not_(build.is_null(value)), yes)], no)
        case "isnull", [value]:
            return build.is_null(value)
        case "isnotnull", [value]:
            return build.not_(build.is_null(value))
        case "mod", [left, right]:
            return build.arithmetic("%", left, right)
        case "negative", [value]:
            return build.negate(value)
        case (("startswith" | "endswith" | "contains"), [term, text]):
            return _search(known, term, text)
        case (("date" | "timestamp" | "string" | "int" | "bigint" | "smallint" | "tinyint" | "double" | "float" | "boolean"), [value]):
            return build.cast(value, types.parse(known.upper()))
        case (("greatest" | "least"), [_, _, *_]):
            args = _at_one_type(args, name)
            return build.folded(Call(known, tuple(args), args[0].type))
        case "ilike", [term, pattern]:
            return ilike(term, pattern)
        case "rlike", [term, pattern]:
            args = [build.as_string(term, "RLIKE"), build.as_string(pattern, "the pattern of RLIKE")]
            if isinstance(args[1], Literal):
                if args[1].value is None:
                    return Literal(None, pa.bool_())
                to_re2(str(args[1].value))  # raises if it cannot be evaluated
        case "size", [value]:
            return build.folded(Call("size", (_of_many(value),), pa.int32()))
        case (("shiftleft" | "shiftright"), [value, places]):
            kind = _whole_number([value, Literal(0, pa.int32())], name)
            places = _argument(places, pa.int32(), name)
            return build.folded(Call(known, (build.cast(value, kind), places), kind))
        case "concat", _:
            args = [_as_text(arg) for arg in args]
    function = FUNCTIONS.get(known) if known not in _OPERATORS else None
    if function is None:
        raise PredicateError(_unknown(name), function=name)
    if len(args) not in function.arity:
        raise PredicateError(f"{name} takes {' or '.join(map(str, function.arity))} arguments, not {len(args)}", function=name)
    coerced = tuple(_argument(arg, kind, name) for arg, kind in zip(args, function.takes(len(args)), strict=True))
    for place, arg in enumerate(coerced):
        if place in function.constant and (not isinstance(arg, Literal) or arg.value is None):
            raise PredicateError(f"argument {place + 1} of {name} must be a constant that is not NULL", function=name)
    return build.folded(Call(known, coerced, function.gives(coerced)))


def bits(sign: str, args: Sequence[Node]) -> Node:
    """`left & right`, `left | right`, `left ^ right`, or `~term`, depending on `sign`."""
    kind = _whole_number(args, sign)
    return build.folded(Call(sign, tuple(build.cast(arg, kind) for arg in args), kind))


def ilike(term: Node, pattern: Node, escape: str = "\\") -> Node:
    """`term ILIKE pattern ESCAPE escape`: Spark compares both in lower case."""
    return build.like(call("lower", [build.as_string(term, "ILIKE")]), call("lower", [build.as_string(pattern, "ILIKE")]), escape)


def _of_many(value: Node) -> Node:
    kind = value.type
    if not (pa.types.is_list(kind) or pa.types.is_map(kind)):
        raise PredicateError(f"size needs an array or a map, and this is {types.name(kind)}", function="size")
    return value


def _whole_number(args: Sequence[Node], name: str) -> pa.DataType:
    """The common type of whole numbers; a NULL takes the other operands' type."""
    kinds = [arg.type for arg in args if not pa.types.is_null(arg.type)]
    for kind in kinds:
        if not pa.types.is_signed_integer(kind):
            raise PredicateError(f"{name} needs whole numbers, and this is {types.name(kind)}: CAST it", function=name)
    return max(kinds, key=lambda kind: kind.bit_width, default=pa.int32())


def _at_one_type(args: Sequence[Node], name: str) -> list[Node]:
    """The arguments at their common type; text has none with other types here."""
    kind = build.common_of(args, name.upper())
    if any(pa.types.is_string(arg.type) != pa.types.is_string(kind) and not pa.types.is_null(arg.type) for arg in args):
        raise PredicateError(f"the values of {name.upper()} have no common type: CAST them to one", function=name)
    return [build.cast(arg, kind) for arg in args]


def _as_text(arg: Node) -> Node:
    """An argument of concat, which converts other types to text."""
    return arg if pa.types.is_binary(arg.type) or not types.is_atomic(arg.type) else build.cast(arg, pa.string())


def clock(name: str, now: datetime) -> Node | None:
    """The value at the moment `now` (in UTC, like everything) of a function that returns the time; None for any other name."""
    match name.lower():
        case "current_timestamp" | "now":
            return build.literal(now)
        case "current_date" | "curdate":
            return build.cast(build.literal(now), pa.date32())
        case "localtimestamp":
            return build.cast(build.literal(now), types.TIMESTAMP_NTZ)
    return None


def _argument(arg: Node, kind: pa.DataType | None, name: str) -> Node:
    """The argument at the function's type; None takes any number."""
    if kind is None:
        if not types.is_numeric(arg.type):
            raise PredicateError(f"{name} needs a number, and this is {types.name(arg.type)}: CAST it", function=name)
        return arg
    moments = (pa.date32(), types.TIMESTAMP, types.TIMESTAMP_NTZ)
    fits = (
        arg.type == kind
        or pa.types.is_null(arg.type)
        or (kind in moments and (arg.type in moments or pa.types.is_string(arg.type)))
        or (pa.types.is_integer(kind) and pa.types.is_integer(arg.type))
        or (pa.types.is_floating(kind) and types.is_numeric(arg.type))
    )
    if not fits:
        raise PredicateError(f"{name} needs {types.name(kind)}, and this is {types.name(arg.type)}: CAST it", function=name)
    return build.cast(arg, kind)


def _unknown(name: str) -> str:
    if name.lower() in NOT_DETERMINISTIC:
        return f"{name} has no fixed value, and must mean the same to everybody and at every attempt: write the value itself"
    if name.lower() in AGGREGATES:
        return f"{name} is an aggregate, which sums up many rows, and here is one: compute it first, and write the value"
    known = ", ".join(sorted({*FUNCTIONS, *ALIASES, *_REWRITTEN} - _OPERATORS))
    return f"sluice does not evaluate the function {name}: compute it in a column first; it knows {known}"


def _search(name: str, term: Node, text: Node) -> Node:
    """startswith, endswith and contains, which are patterns."""
    if not isinstance(text, Literal) or not isinstance(text.value, (str, type(None))):
        raise PredicateError(f"the text {name} looks for must be a string constant", function=name)
    if text.value is None:
        return Literal(None, pa.bool_())
    part = (text.value,) if text.value else ()
    before, after = (() if name == "startswith" else (True,)), (() if name == "endswith" else (True,))
    return build.match(build.as_string(term, name), (*before, *part, *after) if part else (True,))
