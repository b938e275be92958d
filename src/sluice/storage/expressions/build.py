"""Makers of typed nodes: each one checks the types of its operands, coerces literals and folds constants.

`call` makes the node of a function: alternative spellings of an expression become that expression, others are looked up in `functions`.

A literal in a comparison takes the other side's type if its value is exactly one of that type: `small = 5L` compares
SMALLINTs, so that statistics and Parquet's own pruning apply. Otherwise (`small < 70000`, `whole = 1.5`) both sides are
converted to a type that holds both, so that nothing wraps around. Refusals are PredicateErrors.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import date, datetime, timezone
from decimal import Decimal

import pyarrow as pa

from ..errors import PredicateError
from ..schema.datatypes import is_variant
from . import casts, evaluate, types
from .functions import AGGREGATES, ALIASES, FUNCTIONS, NOT_DETERMINISTIC
from .nodes import And, Arithmetic, Call, Case, Cast, Column, Compare, In, IsNull, Like, Literal, Node, Not, Or, Value, columns
from .regex import to_re2

NULL = Literal(None, pa.null())
TRUE = Literal(True, pa.bool_())
FALSE = Literal(False, pa.bool_())

# Functions without a name in SQL, written as operators.
_OPERATORS = frozenset({"&", "|", "^", "~"})
_REWRITTEN = (
    *("coalesce", "if", "nullif", "nvl2", "isnull", "isnotnull", "mod", "negative"),
    *("startswith", "endswith", "contains", "date", "ilike"),
)


def column(path: Sequence[str], schema: pa.Schema) -> Column:
    """The column (or nested field) of that name, ignoring case."""
    fields: Iterable[pa.Field] = schema
    found: list[str] = []
    kind: pa.DataType = pa.null()
    for step in path:
        # check: variants-are-one-value
        if is_variant(kind):
            raise PredicateError(
                f"{'.'.join(found)} is a VARIANT, in which no field has a name: variant_get looks into it, in Spark", wrong=True
            )
        known = list(fields)
        same = [field for field in known if field.name == step] or [field for field in known if field.name.lower() == step.lower()]
        if len(same) != 1:
            asked, where = ".".join(path), f"fields of {'.'.join(found)}" if found else "columns"
            what = f"names several {where} that differ only in case" if same else "is unknown"
            names = tuple(field.name for field in known)
            raise PredicateError(f"the column {asked!r} {what}; the {where} are {', '.join(names) or 'none'}", column=asked, columns=names)
        kind = same[0].type
        found.append(same[0].name)
        fields = kind if pa.types.is_struct(kind) else ()
    return Column(tuple(found), kind)


def number(text: str) -> Literal:
    """A numeric literal, with or without sign, as Spark reads it: INT, BIGINT or DECIMAL by size, DOUBLE with an exponent."""
    return Literal(float(text), pa.float64()) if "e" in text.lower() else literal(Decimal(text) if "." in text else int(text))


def literal(value: Value) -> Literal:
    """A Python value as a literal; an integer beyond BIGINT is a decimal, a naive datetime has no time zone."""
    match value:
        case None:
            return NULL
        case bool():
            return TRUE if value else FALSE
        case int():
            for kind in (pa.int32(), pa.int64()):
                low, high = types.integer_bounds(kind)
                if low <= value <= high:
                    return Literal(value, kind)
            return literal(Decimal(value))
        case Decimal():
            _, digits, exponent = value.as_tuple()
            if not isinstance(exponent, int) or max(len(digits) + max(exponent, 0), -exponent) > 38:
                raise PredicateError(f"{value} is no DECIMAL: it has more than 38 digits; write it as a DOUBLE", value=value)
            scale = max(-exponent, 0)
            return Literal(value, pa.decimal128(max(len(digits) + max(exponent, 0), scale, 1), scale))
        case float():
            return Literal(value, pa.float64())
        case str():
            return Literal(value, pa.string())
        case bytes():
            return Literal(value, pa.binary())
        case datetime():
            return Literal(value.astimezone(timezone.utc), types.TIMESTAMP) if value.tzinfo else Literal(value, types.TIMESTAMP_NTZ)
        case date():
            return Literal(value, pa.date32())
    raise PredicateError(f"{value!r} is no value a predicate can hold: use a number, string, bytes, date or datetime", value=value)


def require_boolean(node: Node) -> Node:
    """`node` as a condition; NULL is allowed."""
    if pa.types.is_null(node.type):
        return Literal(None, pa.bool_())
    if not pa.types.is_boolean(node.type):
        raise PredicateError(f"a condition must be BOOLEAN, and this is {types.name(node.type)}: compare it with something", wrong=True)
    return node


def compare(op: str, left: Node, right: Node) -> Node:
    """`left op right` for = <> < <= > >= <=>, with literals converted to the type of the comparison."""
    if isinstance(right, Literal) and not isinstance(left, Literal):
        right = _fitted(right, left.type)
    elif isinstance(left, Literal) and not isinstance(right, Literal):
        left = _fitted(left, right.type)
    at = types.common(left.type, right.type)
    if at is not None and pa.types.is_null(at):
        at = pa.bool_()
    if at is None or not types.is_atomic(at):
        kinds = f"{types.name(left.type)} {op} {types.name(right.type)}"
        raise PredicateError(f"{kinds} cannot be evaluated: CAST one side to the type of the other, or name a field")
    left, right = as_literal(left, at), as_literal(right, at)
    # A string constant is a number by now, and may fit the column's own type.
    if isinstance(right, Literal) and not isinstance(left, Literal):
        right = _fitted(right, left.type)
    elif isinstance(left, Literal) and not isinstance(right, Literal):
        left = _fitted(left, right.type)
    return folded(Compare(op, left, right, left.type if left.type == right.type else at))


def _fitted(term: Literal, kind: pa.DataType) -> Literal:
    """The literal at type `kind`, if comparing at `kind` has the same results as at the common type."""
    value = term.value
    if not isinstance(value, (int, float, Decimal)) or isinstance(value, bool) or not types.is_numeric(kind) or term.type == kind:
        return term
    if isinstance(value, float) and (not math.isfinite(value) or pa.types.is_decimal(kind) or abs(value) >= 2**53):
        return term  # a DECIMAL or a large BIGINT is rounded to a DOUBLE before a comparison with one
    if pa.types.is_float64(kind):
        return Literal(float(value), kind)
    try:
        fitted = casts.convert(value, kind)
    except PredicateError:
        return term
    return Literal(fitted, kind) if fitted == value else term


def as_literal(term: Node, kind: pa.DataType) -> Node:
    """A constant converted to type `kind`; anything else, and a decimal beside a decimal, stays unchanged."""
    if isinstance(term, Literal) and term.type != kind and not (pa.types.is_decimal(kind) and pa.types.is_decimal(term.type)):
        return Literal(casts.convert(term.value, kind), kind)
    return term


def and_(*terms: Node) -> Node:
    """The conjunction; nested ones are flattened, TRUE terms dropped."""
    flat = [part for term in map(require_boolean, terms) for part in (term.terms if isinstance(term, And) else (term,))]
    kept = tuple([term for term in flat if term != TRUE])
    return And(kept) if len(kept) > 1 else kept[0] if kept else TRUE


def or_(*terms: Node) -> Node:
    """The disjunction; nested ones are flattened, FALSE terms dropped."""
    flat = [part for term in map(require_boolean, terms) for part in (term.terms if isinstance(term, Or) else (term,))]
    kept = tuple([term for term in flat if term != FALSE])
    return Or(kept) if len(kept) > 1 else kept[0] if kept else FALSE


def not_(term: Node) -> Node:
    """NOT term."""
    term = require_boolean(term)
    return term.term if isinstance(term, Not) else folded(Not(term))


def is_null(term: Node) -> Node:
    """`term` IS NULL."""
    return folded(IsNull(term))


def in_(term: Node, options: Sequence[Node]) -> Node:
    """`term IN (options)`; options that are not constants become comparisons."""
    if not options:
        raise PredicateError("IN needs at least one value in its list")
    constants = [option for option in options if isinstance(option, Literal)]
    if isinstance(term, Literal) or len(constants) < len(options):
        return or_(*(compare("=", term, option) for option in options))
    fitted = [_fitted(option, term.type) for option in constants if option.value is not None]
    at: pa.DataType | None = term.type
    for option in fitted:
        at = types.common(at, option.type) if at is not None else None
    if at is None or not types.is_atomic(at):
        kinds = ", ".join(dict.fromkeys(types.name(option.type) for option in fitted))
        raise PredicateError(f"{types.name(term.type)} IN a list of {kinds} cannot be evaluated: write the list as {types.name(term.type)}")
    converted = [Literal(casts.convert(option.value, at), at) for option in fitted]
    refitted = [_fitted(option, term.type) for option in converted]
    if {option.type for option in refitted} <= {term.type}:
        converted, at = refitted, term.type
    return In(term, tuple(dict.fromkeys(converted)), len(converted) < len(constants), at)


def like(term: Node, pattern: Node, escape: str = "\\") -> Node:
    """`term LIKE pattern ESCAPE escape`."""
    if not isinstance(pattern, Literal) or not isinstance(pattern.value, (str, type(None))):
        raise PredicateError("the pattern of LIKE must be a string constant")
    term = as_string(term, "LIKE")
    if pattern.value is None:
        return Literal(None, pa.bool_())
    parts: list[str | bool] = []
    letters = iter(pattern.value)
    for letter in letters:
        if letter == escape:
            letter = next(letters, "")
            if letter not in ("%", "_", escape) or not letter:
                raise PredicateError(
                    f"the LIKE pattern {pattern.value!r} has {escape!r} before {letter!r}: it may stand before %, _ and itself only"
                )
        elif letter in "%_":
            parts.append(letter == "%")
            continue
        if parts and isinstance(parts[-1], str):
            parts[-1] += letter
        else:
            parts.append(letter)
    return match(term, tuple(parts))


def match(term: Node, parts: tuple[str | bool, ...]) -> Node:
    """`term` LIKE a pattern that is already split into parts (see `Like`)."""
    if all(isinstance(part, str) for part in parts):
        return compare("=", term, literal("".join(map(str, parts))))
    return folded(Like(term, parts))


def as_string(term: Node, what: str) -> Node:
    """`term`, which must be a STRING or NULL as required by `what`."""
    if pa.types.is_null(term.type):
        return Literal(None, pa.string())
    if not pa.types.is_string(term.type):
        raise PredicateError(f"{what} needs a STRING, and this is {types.name(term.type)}: CAST it to STRING")
    return term


def cast(term: Node, kind: pa.DataType) -> Node:
    """CAST(term AS kind); PredicateError if sluice does not evaluate that cast exactly."""
    if term.type == kind:
        return term
    if isinstance(term, Literal):
        return Literal(casts.convert(term.value, kind), kind)
    casts.check(term.type, kind)
    return Cast(term, kind)


def try_cast(term: Node, kind: pa.DataType) -> Node:
    """TRY_CAST(term AS kind): NULL for a value that CAST refuses."""
    if term.type == kind:
        return term
    if isinstance(term, Literal):
        return Literal(casts.converted(term.value, kind), kind)
    casts.check(term.type, kind)
    return Call("try_cast", (term,), kind)


def negate(term: Node) -> Node:
    """`-term`."""
    if isinstance(term, Literal) and isinstance(term.value, (int, float, Decimal)) and not isinstance(term.value, bool):
        return Literal(-term.value, term.type)
    if pa.types.is_decimal(term.type):
        return folded(Arithmetic("-", Literal(Decimal(0), term.type), term, term.type))
    return arithmetic("-", Literal(0, pa.int8()), term)


def arithmetic(op: str, left: Node, right: Node) -> Node:
    """`left op right` for + - * / % div; integers overflow, and division by zero fails, when a row is evaluated."""
    if pa.types.is_null(left.type) or pa.types.is_null(right.type):
        return NULL
    kinds = [types.operand(one.type, getattr(one, "value", None), other.type) for one, other in ((left, right), (right, left))]
    kind = types.arithmetic(op, *kinds)
    if kind is None:
        what = f"{types.name(left.type)} {op} {types.name(right.type)}"
        raise PredicateError(f"{what} cannot be evaluated exactly: CAST the operands to BIGINT, DOUBLE or narrower decimals")
    return folded(Arithmetic(op, left, right, kind))


def case(branches: Iterable[tuple[Node, Node]], otherwise: Node = NULL) -> Node:
    """CASE WHEN condition THEN value ... ELSE otherwise END."""
    checked = tuple((require_boolean(condition), value) for condition, value in branches)
    kind = common_of([*(value for _, value in checked), otherwise], "CASE")
    return folded(Case(tuple((condition, as_literal(value, kind)) for condition, value in checked), as_literal(otherwise, kind), kind))


def common_of(terms: Iterable[Node], what: str) -> pa.DataType:
    """The common type of all terms."""
    kind: pa.DataType | None = pa.null()
    for term in terms:
        kind = types.common(kind, term.type) if kind is not None else None
    if kind is None or (not types.is_atomic(kind) and not pa.types.is_null(kind)) or (pa.types.is_decimal(kind) and kind.precision > 38):
        raise PredicateError(f"the values of {what} have no common type: CAST them to one")
    return kind


def folded(node: Node) -> Node:
    """The node's value if it depends on no column. Errors are left to the rows that reach it."""
    if columns(node) or isinstance(node, Literal):
        return node
    try:
        return Literal(evaluate.constant(node), node.type)
    except PredicateError:
        return node


def call(name: str, args: Sequence[Node]) -> Node:
    """A function by its SQL name; PredicateError for functions that sluice does not evaluate."""
    known = ALIASES.get(name.lower(), name.lower())
    match known, args:
        case "coalesce", [_, *_]:
            kind = common_of(args, "COALESCE")
            return folded(Call("coalesce", tuple(as_literal(arg, kind) for arg in args), kind))
        case "if", [condition, yes, no]:
            return case([(condition, yes)], no)
        case "nullif", [value, other]:
            return case([(compare("=", value, other), NULL)], value)
        case "nvl2", [value, yes, no]:
            return case([(not_(is_null(value)), yes)], no)
        case "isnull", [value]:
            return is_null(value)
        case "isnotnull", [value]:
            return not_(is_null(value))
        case "mod", [left, right]:
            return arithmetic("%", left, right)
        case "negative", [value]:
            return negate(value)
        case (("startswith" | "endswith" | "contains"), [term, text]):
            return _search(known, term, text)
        case (("date" | "timestamp" | "string" | "int" | "bigint" | "smallint" | "tinyint" | "double" | "float" | "boolean"), [value]):
            return cast(value, types.parse(known.upper()))
        case (("greatest" | "least"), [_, _, *_]):
            args = _at_one_type(args, name)
            return folded(Call(known, tuple(args), args[0].type))
        case "ilike", [term, pattern]:
            return ilike(term, pattern)
        case "rlike", [term, pattern]:
            args = [as_string(term, "RLIKE"), as_string(pattern, "the pattern of RLIKE")]
            if isinstance(args[1], Literal):
                if args[1].value is None:
                    return Literal(None, pa.bool_())
                to_re2(str(args[1].value))  # raises if it cannot be evaluated
        case "size", [value]:
            if not (pa.types.is_list(value.type) or pa.types.is_map(value.type)):
                raise PredicateError(f"size needs an array or a map, and this is {types.name(value.type)}", function="size")
            return folded(Call("size", (value,), pa.int32()))
        case (("shiftleft" | "shiftright"), [value, places]):
            kind = _whole_number([value, Literal(0, pa.int32())], name)
            places = _argument(places, pa.int32(), name)
            return folded(Call(known, (cast(value, kind), places), kind))
        case "concat", _:
            args = [cast(arg, pa.string()) if types.is_atomic(arg.type) and not pa.types.is_binary(arg.type) else arg for arg in args]
    function = FUNCTIONS.get(known) if known not in _OPERATORS else None
    if function is None:
        raise PredicateError(_unknown(name), function=name)
    if len(args) not in function.arity:
        raise PredicateError(f"{name} takes {' or '.join(map(str, function.arity))} arguments, not {len(args)}", function=name)
    last = len(function.takes) - 1
    coerced = tuple([_argument(arg, function.takes[min(place, last)], name) for place, arg in enumerate(args)])
    for place, arg in enumerate(coerced):
        if place in function.constant and (not isinstance(arg, Literal) or arg.value is None):
            raise PredicateError(f"argument {place + 1} of {name} must be a constant that is not NULL", function=name)
    kind = coerced[0].type if function.gives is None else function.gives(coerced) if callable(function.gives) else function.gives
    return folded(Call(known, coerced, kind))


def bits(sign: str, args: Sequence[Node]) -> Node:
    """`left & right`, `left | right`, `left ^ right`, or `~term`, depending on `sign`."""
    kind = _whole_number(args, sign)
    return folded(Call(sign, tuple(cast(arg, kind) for arg in args), kind))


def ilike(term: Node, pattern: Node, escape: str = "\\") -> Node:
    """`term ILIKE pattern ESCAPE escape`: Spark compares both in lower case."""
    return like(call("lower", [as_string(term, "ILIKE")]), call("lower", [as_string(pattern, "ILIKE")]), escape)


def _whole_number(args: Sequence[Node], name: str) -> pa.DataType:
    """The common type of whole numbers; a NULL takes the other operands' type."""
    kinds = [arg.type for arg in args if not pa.types.is_null(arg.type)]
    for kind in kinds:
        if not pa.types.is_signed_integer(kind):
            raise PredicateError(f"{name} needs whole numbers, and this is {types.name(kind)}: CAST it", function=name)
    return max(kinds, key=lambda kind: kind.bit_width, default=pa.int32())


def _at_one_type(args: Sequence[Node], name: str) -> list[Node]:
    """The arguments at their common type; text has none with other types here."""
    kind = common_of(args, name.upper())
    if any(pa.types.is_string(arg.type) != pa.types.is_string(kind) and not pa.types.is_null(arg.type) for arg in args):
        raise PredicateError(f"the values of {name.upper()} have no common type: CAST them to one", function=name)
    return [cast(arg, kind) for arg in args]


def _argument(arg: Node, kind: pa.DataType | None, name: str) -> Node:
    """The argument at the function's type; None takes any number."""
    if kind is None:
        if not types.is_numeric(arg.type):
            raise PredicateError(f"{name} needs a number, and this is {types.name(arg.type)}: CAST it", function=name)
        return arg
    if not (
        arg.type == kind
        or pa.types.is_null(arg.type)
        or (kind in types.MOMENTS and (arg.type in types.MOMENTS or pa.types.is_string(arg.type)))
        or (pa.types.is_integer(kind) and pa.types.is_integer(arg.type))
        or (pa.types.is_floating(kind) and types.is_numeric(arg.type))
    ):
        raise PredicateError(f"{name} needs {types.name(kind)}, and this is {types.name(arg.type)}: CAST it", function=name)
    return cast(arg, kind)


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
    return match(as_string(term, name), (*before, *part, *after) if part else (True,))
