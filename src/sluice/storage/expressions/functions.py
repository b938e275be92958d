"""The SQL functions that sluice evaluates exactly like Spark. Dates and hours are in UTC.

A function is one row of `FUNCTIONS`; alternative spellings of an expression (`nvl`, `if`, `mod`) are in `build.call`.

A term is an array, a scalar, or an expression of a dataset's filter. For expressions, exact Python functions are registered
with Arrow under their own names (`sluice.<name>:<takes>-><gives>`). A scan raises their exceptions unchanged. `round`, `floor` and `ceil`
have the types of results that Spark gives them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import ROUND_HALF_UP, Context, Decimal
from functools import partial, reduce
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from ..caches import ForkSafeLock
from ..dataclass import dataclass
from ..errors import PredicateError
from . import types
from .nodes import Literal, Node
from .regex import to_re2

Term: TypeAlias = pa.Array | pa.Scalar | pc.Expression

_REGISTERED: Final[set[str]] = set()
_LOCK: Final = ForkSafeLock()
_MAX_DIGITS: Final = 38
_EXACT: Final = Context(prec=800)  # the largest double has 309 digits, the smallest 324 after the point and 17 more
_MOST_PLACES: Final = 400  # more change nothing


def or_(left: Term, right: Term) -> Term:
    """Null if either side is null; for expressions, pyarrow's own wrapper calls a function that does not exist."""
    return pc.Expression._call("or", [left, right]) if isinstance(left, pc.Expression) else pc.or_(left, right)


def and_(left: Term, right: Term) -> Term:
    """Null if either side is null."""
    return pc.Expression._call("and", [left, right]) if isinstance(left, pc.Expression) else pc.and_(left, right)


def is_nan(term: Term, kind: pa.DataType) -> Term:
    """Whether the float `term` is NaN, computed so that Arrow cannot use Parquet's statistics, which omit NaN.

    If a row group's smallest and largest value are equal, Arrow assumes that value for every row. The result of a random
    number (always less than 2) cannot be known beforehand.
    """
    if not isinstance(term, pc.Expression):
        return pc.is_nan(term)
    always = pc.less(pc.Expression._call("random", [], pc.RandomOptions(initializer=0)), 2.0)
    return pc.is_nan(pc.if_else(always, term, pa.scalar(None, kind)))


def with_room(term: Term, kind: pa.DataType) -> Term:
    """The decimal `term` with one more digit: rounding up may need it, and Arrow requires it for any rounding."""
    return term.cast(types.decimal(kind.precision + 1, kind.scale))


def per_value(name: str, change: Callable[[Any], Any], term: Term, takes: pa.DataType, gives: pa.DataType) -> Term:
    """`change` applied to every non-null value of `term`, once per distinct value of a batch."""

    def run(values: pa.Array) -> pa.Array:
        encoded = values.dictionary_encode()
        changed = [None if value is None else change(value) for value in encoded.dictionary.to_pylist()]
        return pa.array(changed, gives).take(encoded.indices)

    return per_array(name, run, term, takes, gives)


def per_array(name: str, change: Callable[[pa.Array], pa.Array], term: Term, takes: pa.DataType, gives: pa.DataType) -> Term:
    """`change` applied to the whole of `term`, batch by batch; it must preserve the length."""

    def run(_: Any, values: pa.Array | pa.Scalar) -> pa.Array | pa.Scalar:
        return change(pa.array([values.as_py()], takes))[0] if isinstance(values, pa.Scalar) else change(values)

    if not isinstance(term, pc.Expression):
        return run(None, term)
    full = f"sluice.{name}:{takes}->{gives}"
    with _LOCK:
        if full not in _REGISTERED:
            about = {"summary": f"{name} as Spark does it", "description": f"from {takes} to {gives}"}
            pc.register_scalar_function(run, full, about, {"values": takes}, gives)
            _REGISTERED.add(full)
    return pc.Expression._call(full, [term])


Run: TypeAlias = Callable[[Sequence[Term], Sequence[Node]], Term]


@dataclass(frozen=True, slots=True)
class Function:
    """One function, of as many arguments as `arity` says.

    `takes` has the types of the arguments (None: any numeric type), the last one also that of all further ones, and `gives` the type of the
    result, or what computes it (None: the type of the first argument). `run` gets the arguments compiled and as nodes. The arguments at the
    places `constant` must be constants. `fails`: it raises for some rows.
    """

    arity: Sequence[int]
    takes: Sequence[pa.DataType | None]
    gives: pa.DataType | Callable[[Sequence[Node]], pa.DataType] | None
    run: Run
    fails: bool = False
    constant: Sequence[int] = ()


def _constant(node: Node) -> Any:
    """The value of an argument that `build.call` has checked to be a constant."""
    return node.value if isinstance(node, Literal) else None


def _simple(takes: pa.DataType, gives: pa.DataType, run: Callable[[Term], Term]) -> Function:
    return Function((1,), (takes,), gives, lambda terms, _: run(terms[0]))


def _part(of: pa.DataType, part: Callable[[Term], Term]) -> Function:
    """A part of a date or of a time, as a number."""
    return _simple(of, pa.int32(), lambda term: part(term).cast(pa.int32()))


def _letters(name: str, ascii_only: Callable[[pa.Array], pa.Array], change: Callable[[str], str]) -> Function:
    """Case mapping of whole strings: one letter may become two, which Arrow's own mapping does not support."""

    def run(values: pa.Array) -> pa.Array:
        if pc.all(pc.string_is_ascii(values), min_count=0).as_py():
            return ascii_only(values)
        return pa.array([None if value is None else change(value) for value in values.to_pylist()], pa.string())

    return _simple(pa.string(), pa.string(), lambda term: per_array(name, run, term, pa.string(), pa.string()))


def _slice(term: Term, position: int, length: int | None) -> Term:
    """Positions count from 1; 0 means 1; negative ones count from the end, and may be before the beginning."""
    if length is not None and length <= 0:
        return pc.utf8_slice_codeunits(term, 0, 0)
    start = position - 1 if position > 0 else position
    stop = None if length is None else start + length
    return pc.utf8_slice_codeunits(term, start, None if stop is not None and start < 0 <= stop else stop)


def _substring(terms: Sequence[Term], nodes: Sequence[Node]) -> Term:
    position, *length = (_constant(node) for node in nodes[1:])
    return _slice(terms[0], position, length[0] if length else None)


def _right(terms: Sequence[Term], nodes: Sequence[Node]) -> Term:
    length = _constant(nodes[1])
    return _slice(terms[0], -length if length > 0 else 1, max(length, 0))


def _replace(terms: Sequence[Term], nodes: Sequence[Node]) -> Term:
    search, *new = (_constant(node) for node in nodes[1:])
    return pc.replace_substring(terms[0], pattern=search, replacement=new[0] if new else "") if search else terms[0]


def _extreme(choose: Callable[..., Term], terms: Sequence[Term], kind: pa.DataType) -> Term:
    """The largest or smallest; null only if all are. Arrow supports neither for timestamps and booleans."""
    stand_in = pa.int64() if pa.types.is_timestamp(kind) else pa.int8() if pa.types.is_boolean(kind) else None
    if stand_in is None:
        return choose(*terms, skip_nulls=True)
    return choose(*(term.cast(stand_in) for term in terms), skip_nulls=True).cast(kind)


def _greatest(terms: Sequence[Term], nodes: Sequence[Node]) -> Term:
    """NaN is greater than every number, unlike in Arrow's own maximum."""
    kind = nodes[0].type
    largest = _extreme(pc.max_element_wise, terms, kind)
    if not pa.types.is_floating(kind):
        return largest
    nans = [pc.coalesce(is_nan(term, kind), pa.scalar(False)) for term in terms]
    return pc.if_else(reduce(pc.or_kleene, nans), pa.scalar(float("nan"), kind), largest)


def _days(sign: int) -> Function:
    def run(terms: Sequence[Term], _: Sequence[Node]) -> Term:
        change = pc.add_checked if sign > 0 else pc.subtract_checked
        return change(terms[0].cast(pa.int32()), terms[1]).cast(pa.date32())

    return Function((2,), (pa.date32(), pa.int32()), pa.date32(), run, fails=True)


_UNITS: Final = {
    **dict.fromkeys(("YEAR", "YYYY", "YY"), "year"),
    "QUARTER": "quarter",
    **dict.fromkeys(("MONTH", "MM", "MON"), "month"),
    "WEEK": "week",
    **dict.fromkeys(("DAY", "DD"), "day"),
    "HOUR": "hour",
    "MINUTE": "minute",
    "SECOND": "second",
}


def _truncated(term: Term, unit: Node, units: Sequence[str]) -> Term:
    text = _constant(unit)
    name = _UNITS.get(text.upper())
    if name not in units:
        raise PredicateError(f"cannot truncate to {text!r}: use one of {', '.join(key for key, unit in _UNITS.items() if unit in units)}")
    return pc.floor_temporal(term, unit=name)


def _whole(change: Callable[[Term], Term]) -> Function:
    """`floor` or `ceil`; a float beyond BIGINT overflows, but NaN becomes 0."""

    def gives(nodes: Sequence[Node]) -> pa.DataType:
        kind = nodes[0].type
        if not pa.types.is_decimal(kind):
            return pa.int64()
        return kind if kind.scale == 0 else pa.decimal128(kind.precision - kind.scale + 1, 0)

    def run(terms: Sequence[Term], nodes: Sequence[Node]) -> Term:
        term, kind = terms[0], nodes[0].type
        if pa.types.is_integer(kind):
            return term.cast(pa.int64())
        if pa.types.is_decimal(kind):
            return term if kind.scale == 0 else change(with_room(term, kind)).cast(gives(nodes))
        number = term.cast(pa.float64())
        return change(pc.if_else(pc.is_nan(number), pa.scalar(0.0), number)).cast(pa.int64())

    return Function((1,), (None,), gives, run, fails=True)


def _places(args: Sequence[Node]) -> int:
    """The second argument of `round`, which `build.call` has checked to be a constant."""
    value = args[1].value if len(args) > 1 and isinstance(args[1], Literal) else 0
    return max(-_MOST_PLACES, min(value, _MOST_PLACES)) if isinstance(value, int) else 0


def _round_type(args: Sequence[Node]) -> pa.DataType:
    """The type of `round(number, places)`: a decimal may need one more digit."""
    kind, places = args[0].type, _places(args)
    if not pa.types.is_decimal(kind):
        return kind
    digits, scale = kind.precision - kind.scale + 1, min(kind.scale, max(places, 0))
    return pa.decimal128(min(max(digits + scale, 1 - places), _MAX_DIGITS), scale)


def _rounded(terms: Sequence[Term], args: Sequence[Node]) -> Term:
    """`round(number, places)`: half away from zero; a float by its shortest decimal text, like BigDecimal."""
    kind, places, result_type = args[0].type, _places(args), _round_type(args)
    if pa.types.is_integer(kind) and places >= 0:
        return terms[0]
    if pa.types.is_decimal(kind) and places >= 0:
        return pc.round(with_room(terms[0], kind), ndigits=min(places, kind.scale), round_mode="half_towards_infinity").cast(result_type)
    return per_value(f"round.{places}", partial(_rounded_value, places=places, kind=result_type), terms[0], kind, result_type)


def _rounded_value(value: float | Decimal, places: int, kind: pa.DataType) -> float | Decimal:
    if isinstance(value, float) and not math.isfinite(value):
        return value
    exact = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
    rounded = exact.quantize(Decimal(1).scaleb(-places), ROUND_HALF_UP, _EXACT)
    if isinstance(value, float):
        return float(rounded) + 0.0  # decimals have no -0.0
    whole = int(rounded)
    low, high = types.integer_bounds(kind) if pa.types.is_integer(kind) else (1 - 10**kind.precision, 10**kind.precision - 1)
    if not low <= whole <= high:
        raise PredicateError(f"round({value}, {places}) is no {types.name(kind)}: it overflows", value=value)
    return whole if pa.types.is_integer(kind) else Decimal(whole)


def _matches(terms: Sequence[Term], nodes: Sequence[Node]) -> Term:
    return pc.match_substring_regex(terms[0], pattern=to_re2(_constant(nodes[1])))


def _size(terms: Sequence[Term], nodes: Sequence[Node]) -> Term:
    kind = nodes[0].type
    if not pa.types.is_map(kind):
        return pc.list_value_length(terms[0]).cast(pa.int32())

    def lengths(values: pa.MapArray) -> pa.Array:
        # Arrow only counts the entries of lists.
        entries = pa.list_(pa.struct([("key", kind.key_type), ("value", kind.item_type)]))
        return pc.list_value_length(values.cast(entries)).cast(pa.int32())

    return per_array("size", lengths, terms[0], kind, pa.int32())


def _bits(change: Callable[..., Term]) -> Function:
    return Function((2,), (None,), None, lambda terms, _: change(*terms))


def _shifted(change: Callable[..., Term]) -> Function:
    def run(terms: Sequence[Term], nodes: Sequence[Node]) -> Term:
        # Java uses only the lowest bits of the shift count, as many as the width of the value needs.
        kind = nodes[0].type
        return change(terms[0], pc.bit_wise_and(terms[1], pa.scalar(kind.bit_width - 1, pa.int32())).cast(kind))

    return Function((2,), (None, pa.int32()), None, run)


FUNCTIONS: Final[dict[str, Function]] = {
    "lower": _letters("lower", pc.ascii_lower, str.lower),
    "upper": _letters("upper", pc.ascii_upper, str.upper),
    "length": _simple(pa.string(), pa.int32(), pc.utf8_length),
    "trim": _simple(pa.string(), pa.string(), lambda term: pc.utf8_trim(term, characters=" ")),
    "ltrim": _simple(pa.string(), pa.string(), lambda term: pc.utf8_ltrim(term, characters=" ")),
    "rtrim": _simple(pa.string(), pa.string(), lambda term: pc.utf8_rtrim(term, characters=" ")),
    "substring": Function((2, 3), (pa.string(), pa.int32()), pa.string(), _substring, constant=(1, 2)),
    "left": Function(
        (2,), (pa.string(), pa.int32()), pa.string(), lambda terms, nodes: _slice(terms[0], 1, _constant(nodes[1])), constant=(1,)
    ),
    "right": Function((2,), (pa.string(), pa.int32()), pa.string(), _right, constant=(1,)),
    "concat": Function(range(1, 100), (pa.string(),), pa.string(), lambda terms, _: pc.binary_join_element_wise(*terms, "")),
    "replace": Function((2, 3), (pa.string(),), pa.string(), _replace, constant=(1, 2)),
    "greatest": Function(range(2, 100), (None,), None, _greatest),
    "least": Function(range(2, 100), (None,), None, lambda terms, nodes: _extreme(pc.min_element_wise, terms, nodes[0].type)),
    "round": Function((1, 2), (None, pa.int32()), _round_type, _rounded, fails=True, constant=(1,)),
    "floor": _whole(pc.floor),
    "ceil": _whole(pc.ceil),
    "abs": Function((1,), (None,), None, lambda terms, _: pc.abs_checked(terms[0]), fails=True),
    "rlike": Function((2,), (pa.string(),), pa.bool_(), _matches, constant=(1,)),
    "size": Function((1,), (None,), pa.int32(), _size),
    "&": _bits(pc.bit_wise_and),
    "|": _bits(pc.bit_wise_or),
    "^": _bits(pc.bit_wise_xor),
    "~": Function((1,), (None,), None, lambda terms, _: pc.bit_wise_not(terms[0])),
    "shiftleft": _shifted(pc.shift_left),
    "shiftright": _shifted(pc.shift_right),
    "isnan": _simple(pa.float64(), pa.bool_(), lambda term: pc.coalesce(is_nan(term, pa.float64()), pa.scalar(False))),
    "year": _part(pa.date32(), pc.year),
    "quarter": _part(pa.date32(), pc.quarter),
    "month": _part(pa.date32(), pc.month),
    "day": _part(pa.date32(), pc.day),
    "dayofweek": _part(pa.date32(), lambda term: pc.day_of_week(term, count_from_zero=False, week_start=7)),
    "weekday": _part(pa.date32(), pc.day_of_week),
    "dayofyear": _part(pa.date32(), pc.day_of_year),
    "weekofyear": _part(pa.date32(), pc.iso_week),
    "hour": _part(types.TIMESTAMP, pc.hour),
    "minute": _part(types.TIMESTAMP, pc.minute),
    "second": _part(types.TIMESTAMP, pc.second),
    "date_add": _days(1),
    "date_sub": _days(-1),
    "datediff": Function(
        (2,), (pa.date32(),), pa.int32(), lambda terms, _: pc.subtract(terms[0].cast(pa.int32()), terms[1].cast(pa.int32()))
    ),
    "trunc": Function(
        (2,),
        (pa.date32(), pa.string()),
        pa.date32(),
        lambda terms, nodes: _truncated(terms[0], nodes[1], ("year", "quarter", "month", "week")),
        constant=(1,),
    ),
    "date_trunc": Function(
        (2,),
        (pa.string(), types.TIMESTAMP),
        types.TIMESTAMP,
        lambda terms, nodes: _truncated(terms[1], nodes[0], tuple(_UNITS.values())),
        constant=(0,),
    ),
}

ALIASES: Final[dict[str, str]] = {
    "regexp": "rlike",
    "regexp_like": "rlike",
    "cardinality": "size",
    "lcase": "lower",
    "ucase": "upper",
    "char_length": "length",
    "character_length": "length",
    "len": "length",
    "substr": "substring",
    "dayofmonth": "day",
    "dateadd": "date_add",
    "date_diff": "datediff",
    "to_date": "date",
    "nvl": "coalesce",
    "ifnull": "coalesce",
    "iff": "if",
    "btrim": "trim",
    "ceiling": "ceil",
    "to_timestamp": "timestamp",
}

NOT_DETERMINISTIC: Final = frozenset(
    {
        *("rand", "random", "randn", "uuid", "shuffle", "monotonically_increasing_id", "spark_partition_id", "input_file_name"),
        *("now", "current_date", "curdate", "current_timestamp", "localtimestamp", "current_timezone", "unix_timestamp"),
        *("current_user", "user", "session_user", "current_database"),
    }
)

AGGREGATES: Final = frozenset(
    {
        *("sum", "avg", "mean", "count", "count_if", "min", "max", "min_by", "max_by", "first", "last", "any_value", "median", "mode"),
        *("stddev", "stddev_pop", "stddev_samp", "variance", "var_pop", "var_samp", "collect_list", "collect_set", "array_agg"),
        *("approx_count_distinct", "percentile", "percentile_approx", "bool_and", "bool_or", "every", "some", "any", "listagg"),
        *("row_number", "rank", "dense_rank", "lag", "lead", "ntile"),
    }
)
