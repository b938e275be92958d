"""The SQL functions that sluice evaluates exactly like Spark. Dates and hours are in UTC.

A function is one row of `FUNCTIONS`; alternative spellings of an expression (`nvl`, `if`, `mod`) are in `calls.call`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from ..dataclass import dataclass
from ..errors import PredicateError
from . import elementwise, types
from .elementwise import Term
from .nodes import Literal, Node
from .regex import to_re2

__all__ = ["AGGREGATES", "ALIASES", "FUNCTIONS", "NOT_DETERMINISTIC", "Function"]

Run: TypeAlias = Callable[[Sequence[Term], Sequence[Node]], Term]


@dataclass(frozen=True, slots=True)
class Function:
    """One function.

    `takes` has the argument types by their number (None: any numeric type), `gives` the type of the result. `run` gets the
    arguments compiled and as nodes. The arguments at the places `constant` must be constants. `fails`: it raises for some
    rows.
    """

    arity: Sequence[int]
    takes: Callable[[int], Sequence[pa.DataType | None]]
    gives: Callable[[Sequence[Node]], pa.DataType]
    run: Run
    fails: bool = False
    constant: Sequence[int] = ()


def _constant(node: Node) -> Any:
    """The value of an argument that `calls.call` has checked to be a constant."""
    return node.value if isinstance(node, Literal) else None


def _simple(takes: pa.DataType, gives: pa.DataType, run: Callable[[Term], Term]) -> Function:
    return Function((1,), lambda _: (takes,), lambda _: gives, lambda terms, _: run(terms[0]))


def _calendar(part: Callable[[Term], Term]) -> Function:
    return _simple(pa.date32(), pa.int32(), lambda term: part(term).cast(pa.int32()))


def _clock(part: Callable[[Term], Term]) -> Function:
    return _simple(types.TIMESTAMP, pa.int32(), lambda term: part(term).cast(pa.int32()))


def _letters(name: str, ascii_only: Callable[[pa.Array], pa.Array], change: Callable[[str], str]) -> Function:
    """Case mapping of whole strings: one letter may become two, which Arrow's own mapping does not support."""

    def run(values: pa.Array) -> pa.Array:
        if pc.all(pc.string_is_ascii(values), min_count=0).as_py():
            return ascii_only(values)
        return pa.array([None if value is None else change(value) for value in values.to_pylist()], pa.string())

    return _simple(pa.string(), pa.string(), lambda term: elementwise.per_array(name, run, term, pa.string(), pa.string()))


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


def _left(terms: Sequence[Term], nodes: Sequence[Node]) -> Term:
    return _slice(terms[0], 1, _constant(nodes[1]))


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
    nans = [pc.coalesce(elementwise.is_nan(term, kind), pa.scalar(False)) for term in terms]
    return pc.if_else(reduce(pc.or_kleene, nans), pa.scalar(float("nan"), kind), largest)


def _least(terms: Sequence[Term], nodes: Sequence[Node]) -> Term:
    return _extreme(pc.min_element_wise, terms, nodes[0].type)


def _days(sign: int) -> Function:
    def run(terms: Sequence[Term], _: Sequence[Node]) -> Term:
        change = pc.add_checked if sign > 0 else pc.subtract_checked
        return change(terms[0].cast(pa.int32()), terms[1]).cast(pa.date32())

    return Function((2,), lambda _: (pa.date32(), pa.int32()), lambda _: pa.date32(), run, fails=True)


def _date_difference(terms: Sequence[Term], _: Sequence[Node]) -> Term:
    return pc.subtract(terms[0].cast(pa.int32()), terms[1].cast(pa.int32()))


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
    known = _UNITS.get(text.upper())
    if known not in units:
        raise PredicateError(f"cannot truncate to {text!r}: use one of {', '.join(key for key, unit in _UNITS.items() if unit in units)}")
    return pc.floor_temporal(term, unit=known)


def _number(args: Sequence[Node]) -> pa.DataType:
    return args[0].type


def _whole(change: Callable[[Term], Term]) -> Function:
    def run(terms: Sequence[Term], nodes: Sequence[Node]) -> Term:
        return elementwise.whole(change, terms[0], nodes[0].type)

    return Function((1,), lambda _: (None,), elementwise.whole_type, run, fails=True)


def _found(terms: Sequence[Term], nodes: Sequence[Node]) -> Term:
    return pc.match_substring_regex(terms[0], pattern=to_re2(_constant(nodes[1])))


def _size(terms: Sequence[Term], nodes: Sequence[Node]) -> Term:
    kind = nodes[0].type
    if not pa.types.is_map(kind):
        return pc.list_value_length(terms[0]).cast(pa.int32())

    def lengths(values: pa.MapArray) -> pa.Array:
        # Arrow only counts the entries of lists.
        entries = pa.list_(pa.struct([("key", kind.key_type), ("value", kind.item_type)]))
        return pc.list_value_length(values.cast(entries)).cast(pa.int32())

    return elementwise.per_array("size", lengths, terms[0], kind, pa.int32())


def _bits(change: Callable[..., Term]) -> Function:
    return Function((2,), lambda _: (None, None), _number, lambda terms, _: change(*terms))


def _shifted(change: Callable[..., Term]) -> Function:
    def run(terms: Sequence[Term], nodes: Sequence[Node]) -> Term:
        # Java uses only the lowest bits of the shift count, as many as the width of the value needs.
        kind = nodes[0].type
        places = pc.bit_wise_and(terms[1], pa.scalar(kind.bit_width - 1, pa.int32()))
        return change(terms[0], places.cast(kind))

    return Function((2,), lambda _: (None, pa.int32()), _number, run)


def _strings(count: int) -> Sequence[pa.DataType]:
    return (pa.string(),) * count


FUNCTIONS: Final[dict[str, Function]] = {
    "lower": _letters("lower", pc.ascii_lower, str.lower),
    "upper": _letters("upper", pc.ascii_upper, str.upper),
    "length": _simple(pa.string(), pa.int32(), pc.utf8_length),
    "trim": _simple(pa.string(), pa.string(), lambda term: pc.utf8_trim(term, characters=" ")),
    "ltrim": _simple(pa.string(), pa.string(), lambda term: pc.utf8_ltrim(term, characters=" ")),
    "rtrim": _simple(pa.string(), pa.string(), lambda term: pc.utf8_rtrim(term, characters=" ")),
    "substring": Function((2, 3), lambda n: (pa.string(), pa.int32(), pa.int32())[:n], lambda _: pa.string(), _substring, constant=(1, 2)),
    "left": Function((2,), lambda _: (pa.string(), pa.int32()), lambda _: pa.string(), _left, constant=(1,)),
    "right": Function((2,), lambda _: (pa.string(), pa.int32()), lambda _: pa.string(), _right, constant=(1,)),
    "concat": Function(range(1, 100), _strings, lambda _: pa.string(), lambda terms, _: pc.binary_join_element_wise(*terms, "")),
    "replace": Function((2, 3), _strings, lambda _: pa.string(), _replace, constant=(1, 2)),
    "greatest": Function(range(2, 100), lambda n: (None,) * n, _number, _greatest),
    "least": Function(range(2, 100), lambda n: (None,) * n, _number, _least),
    "round": Function((1, 2), lambda n: (None, pa.int32())[:n], elementwise.round_type, elementwise.rounded, fails=True, constant=(1,)),
    "floor": _whole(pc.floor),
    "ceil": _whole(pc.ceil),
    "abs": Function((1,), lambda _: (None,), _number, lambda terms, _: pc.abs_checked(terms[0]), fails=True),
    "rlike": Function((2,), _strings, lambda _: pa.bool_(), _found, constant=(1,)),
    "size": Function((1,), lambda _: (None,), lambda _: pa.int32(), _size),
    "&": _bits(pc.bit_wise_and),
    "|": _bits(pc.bit_wise_or),
    "^": _bits(pc.bit_wise_xor),
    "~": Function((1,), lambda _: (None,), _number, lambda terms, _: pc.bit_wise_not(terms[0])),
    "shiftleft": _shifted(pc.shift_left),
    "shiftright": _shifted(pc.shift_right),
    "isnan": _simple(pa.float64(), pa.bool_(), lambda term: pc.coalesce(elementwise.is_nan(term, pa.float64()), pa.scalar(False))),
    "year": _calendar(pc.year),
    "quarter": _calendar(pc.quarter),
    "month": _calendar(pc.month),
    "day": _calendar(pc.day),
    "dayofweek": _calendar(lambda term: pc.day_of_week(term, count_from_zero=False, week_start=7)),
    "weekday": _calendar(pc.day_of_week),
    "dayofyear": _calendar(pc.day_of_year),
    "weekofyear": _calendar(pc.iso_week),
    "hour": _clock(pc.hour),
    "minute": _clock(pc.minute),
    "second": _clock(pc.second),
    "date_add": _days(1),
    "date_sub": _days(-1),
    "datediff": Function((2,), lambda _: (pa.date32(), pa.date32()), lambda _: pa.int32(), _date_difference),
    "trunc": Function(
        (2,),
        lambda _: (pa.date32(), pa.string()),
        lambda _: pa.date32(),
        lambda terms, nodes: _truncated(terms[0], nodes[1], ("year", "quarter", "month", "week")),
        constant=(1,),
    ),
    "date_trunc": Function(
        (2,),
        lambda _: (pa.string(), types.TIMESTAMP),
        lambda _: types.TIMESTAMP,
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
