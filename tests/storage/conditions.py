"""Random conditions, each as SQL and as a plain Python function of a row: the slow and obvious evaluator that sluice is compared with."""

from __future__ import annotations

import json
import math
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any, TypeAlias

import pyarrow as pa
from hypothesis import strategies as st

from sluice.storage.schema.schema import PrimitiveType, StructField, StructType, to_arrow

Row: TypeAlias = Mapping[str, Any]

KINDS = {"part": "integer", "place": "string", "i": "integer", "l": "long", "f": "float", "d": "double", "m": "decimal(8,2)"}
KINDS |= {"s": "string", "day": "date", "ts": "timestamp", "tn": "timestamp_ntz", "b": "boolean", "x": "binary"}
PARTITIONS = ("part", "place")
SCHEMA = StructType([StructField(name, PrimitiveType(kind)) for name, kind in KINDS.items()])
EPOCH = datetime(2020, 1, 1, tzinfo=timezone.utc)

# Few values of each type, so that they meet often; the edges among them.
VALUES: dict[str, list[Any]] = {
    "integer": [-(2**31), -1, 0, 1, 2, 7, 2**31 - 1],
    "long": [-(2**63), -1, 0, 1, 2**53, 2**53 + 1, 2**63 - 1],
    "float": [-math.inf, -1.5, 0.0, -0.0, 0.5, 2.0, math.inf, math.nan],
    "double": [-math.inf, -1.5, 0.0, -0.0, 0.1, 2.0, math.inf, math.nan],
    "decimal(8,2)": [Decimal(text) for text in ("-999999.99", "-0.01", "0.00", "0.10", "2.00", "999999.99")],
    "string": ["", "a", "ab", "abc", "abd", "b", "Z", "a_c", "é", "日本", "\U0001f600", "a" * 40, "a" * 39 + "b"],
    "date": [date(1969, 12, 31), date(2020, 1, 1), date(2020, 1, 2), date(9999, 12, 31)],
    "timestamp": [EPOCH + timedelta(microseconds=n) for n in (-1, 0, 1, 999, 1000, 1001, 86_400_000_000)] + [EPOCH.replace(year=1960)],
    "timestamp_ntz": [(EPOCH + timedelta(microseconds=n)).replace(tzinfo=None) for n in (-1, 0, 1, 999, 1001)],
    "boolean": [True, False],
    "binary": [b"", b"a", b"\xff", b"ab"],
}


@dataclass(frozen=True)
class Condition:
    sql: str
    holds: Callable[[Row], bool | None]

    def __repr__(self) -> str:
        return self.sql


def value(kind: str) -> st.SearchStrategy[Any]:
    return st.one_of(st.none(), st.sampled_from(VALUES[kind]))


def row(kinds: Mapping[str, str] = KINDS) -> st.SearchStrategy[Row]:
    return st.fixed_dictionaries({name: value(kind) for name, kind in kinds.items()})


def table(rows: list[Row]) -> pa.Table:
    return pa.Table.from_pylist([dict(each) for each in rows], to_arrow(SCHEMA))


def literal(value: Any, kind: str) -> str:
    if value is None:
        return "NULL"
    match kind:
        case "string":
            return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
        case "float" | "double":
            return f"CAST('{value!r}' AS {kind})"
        case "date":
            return f"DATE '{value}'"
        case "timestamp":
            return f"TIMESTAMP '{value.replace(tzinfo=None).isoformat(' ')}Z'"
        case "timestamp_ntz":
            return f"TIMESTAMP_NTZ '{value.isoformat(' ')}'"
        case "binary":
            return f"X'{value.hex()}'"
    return str(value)


def ordered(value: Any) -> Any:
    """A key that orders as SQL does: NaN last, strings by their bytes."""
    if isinstance(value, float):
        return (math.isnan(value), 0.0 if math.isnan(value) else value)
    return value.encode() if isinstance(value, str) else value


COMPARISONS: dict[str, Callable[[Any, Any], bool]]
COMPARISONS = {"=": operator.eq, "<>": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


def compared(op: str, left: Any, right: Any) -> bool | None:
    if op == "<=>":
        return left is right if left is None or right is None else ordered(left) == ordered(right)
    return None if left is None or right is None else COMPARISONS[op](ordered(left), ordered(right))


def negated(truth: bool | None) -> bool | None:
    return None if truth is None else not truth


def both(*truths: bool | None) -> bool | None:
    return False if False in truths else None if None in truths else True


def either(*truths: bool | None) -> bool | None:
    return negated(both(*map(negated, truths)))


@st.composite
def comparison(draw: st.DrawFn, name: str) -> Condition:
    kind = KINDS[name]
    op = draw(st.sampled_from([*COMPARISONS, "<=>"]))
    right = draw(value(kind))
    if draw(st.booleans()):
        return Condition(f"{name} {op} {literal(right, kind)}", lambda row: compared(op, row[name], right))
    return Condition(f"{literal(right, kind)} {op} {name}", lambda row: compared(op, right, row[name]))


@st.composite
def of_two_columns(draw: st.DrawFn, name: str) -> Condition:
    other = draw(st.sampled_from([each for each in KINDS if KINDS[each] == KINDS[name]]))
    op = draw(st.sampled_from([*COMPARISONS, "<=>"]))
    return Condition(f"{name} {op} {other}", lambda row: compared(op, row[name], row[other]))


@st.composite
def membership(draw: st.DrawFn, name: str) -> Condition:
    kind = KINDS[name]
    options = draw(st.lists(value(kind), min_size=1, max_size=20))
    no = draw(st.booleans())

    def holds(row: Row) -> bool | None:
        found = either(*(compared("=", row[name], option) for option in options))
        return negated(found) if no else found

    return Condition(f"{name} {'NOT ' * no}IN ({', '.join(literal(option, kind) for option in options)})", holds)


@st.composite
def between(draw: st.DrawFn, name: str) -> Condition:
    kind = KINDS[name]
    low, high = draw(value(kind)), draw(value(kind))
    sql = f"{name} BETWEEN {literal(low, kind)} AND {literal(high, kind)}"
    return Condition(sql, lambda row: both(compared(">=", row[name], low), compared("<=", row[name], high)))


@st.composite
def null_test(draw: st.DrawFn, name: str) -> Condition:
    no = draw(st.booleans())
    return Condition(f"{name} IS {'NOT ' * no}NULL", lambda row: (row[name] is None) != no)


@st.composite
def pattern(draw: st.DrawFn, name: str) -> Condition:
    parts = draw(
        st.lists(st.sampled_from(["%", "_", "a", "b", "ab", "abc", "c", "é", "日", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"]), max_size=4)
    )
    regex = re.compile("".join({"%": ".*", "_": "."}.get(part, re.escape(part)) for part in parts), re.DOTALL)
    no = draw(st.booleans())

    def holds(row: Row) -> bool | None:
        return None if row[name] is None else (regex.fullmatch(row[name]) is not None) != no

    return Condition(f"{name} {'NOT ' * no}LIKE '{''.join(parts)}'", holds)


@st.composite
def of_a_wider_type(draw: st.DrawFn) -> Condition:
    """A comparison of a column with a number that is not of its type."""
    name = draw(st.sampled_from(["part", "i", "l", "m"]))
    number = draw(st.sampled_from(["-9223372036854775808", "3000000000", "1.5", "-0.5", "0.005", "99999999999999999999", "2.0", "7"]))
    op = draw(st.sampled_from([*COMPARISONS, "<=>"]))
    exact = Decimal(number)
    return Condition(f"{name} {op} {number}", lambda row: compared(op, row[name], exact))


@st.composite
def computed(draw: st.DrawFn) -> Condition:
    match draw(st.integers(0, 4)):
        case 0:
            year = draw(st.sampled_from([1960, 1969, 2020, 9999]))
            op = draw(st.sampled_from(list(COMPARISONS)))
            name = draw(st.sampled_from(["day", "ts"]))
            return Condition(f"year({name}) {op} {year}", lambda row: compared(op, row[name] and row[name].year, year))
        case 1:
            op = draw(st.sampled_from(list(COMPARISONS)))
            return Condition(f"CAST(ts AS DATE) {op} day", lambda row: compared(op, row["ts"] and row["ts"].date(), row["day"]))
        case 2:
            divisor = draw(st.sampled_from([2, 3, -7]))
            return Condition(
                f"i % {divisor} = 1", lambda row: None if row["i"] is None else row["i"] - int(Decimal(row["i"]) / divisor) * divisor == 1
            )
        case 3:
            return Condition("part <> 0 AND 10 DIV part >= 5", _guarded_division)
    return Condition("coalesce(s, place, 'b') < 'abd'", _first_text)


@st.composite
def of_bits_texts_and_tries(draw: st.DrawFn) -> Condition:
    no = draw(st.booleans())
    text = draw(st.sampled_from([name for name, kind in KINDS.items() if kind == "string"]))
    match draw(st.integers(0, 3)):
        case 0:
            name, mask = draw(st.sampled_from(["part", "i"])), draw(st.sampled_from([0, 1, -1, 6, 2**31 - 1]))
            sign, join = draw(st.sampled_from([("&", int.__and__), ("|", int.__or__), ("^", int.__xor__)]))
            return Condition(f"{name} {sign} {mask} = 1", lambda row: None if row[name] is None else join(row[name], mask) == 1)
        case 1:
            start = draw(st.sampled_from(["A", "AB", "É", "z"]))
            return Condition(
                f"{text} {'NOT ' * no}ILIKE '{start}%'",
                lambda row: None if row[text] is None else row[text].lower().startswith(start.lower()) != no,
            )
        case 2:
            pattern = draw(st.sampled_from(["^a", "b.?", "[^a-z]", "c$", "日|é", ""]))
            regex = re.compile(pattern)
            return Condition(
                f"{text} {'NOT ' * no}RLIKE '{pattern}'",
                lambda row: None if row[text] is None else (regex.search(row[text]) is not None) != no,
            )
    limit = draw(st.sampled_from([-1, 0, 100]))

    def narrow(row: Row) -> bool | None:
        return None if row["l"] is None or not -(2**15) <= row["l"] < 2**15 else row["l"] > limit

    return Condition(f"TRY_CAST(l AS SMALLINT) > {limit}", narrow)


def _guarded_division(row: Row) -> bool | None:
    part = row["part"]
    return None if part is None else part != 0 and int(Decimal(10) / part) >= 5


def _first_text(row: Row) -> bool:
    return next((text for text in (row["s"], row["place"]) if text is not None), "b").encode() < b"abd"


def atom() -> st.SearchStrategy[Condition]:
    names = st.sampled_from(list(KINDS))
    texts = st.sampled_from([name for name, kind in KINDS.items() if kind == "string"])
    return st.one_of(
        names.flatmap(comparison),
        names.flatmap(of_two_columns),
        names.flatmap(membership),
        names.flatmap(between),
        names.flatmap(null_test),
        texts.flatmap(pattern),
        of_a_wider_type(),
        computed(),
        of_bits_texts_and_tries(),
        st.just(Condition("b", lambda row: row["b"])),
        st.sampled_from(
            [Condition("TRUE", lambda _: True), Condition("FALSE", lambda _: False), Condition("CAST(NULL AS BOOLEAN)", lambda _: None)]
        ),
    )


def _joined(terms: list[Condition], word: str, join: Callable[..., bool | None]) -> Condition:
    sql = f" {word} ".join(f"({term.sql})" for term in terms)
    return Condition(sql, lambda row: join(*(term.holds(row) for term in terms)))


def condition() -> st.SearchStrategy[Condition]:
    return st.recursive(
        atom(),
        lambda inner: st.one_of(
            st.lists(inner, min_size=2, max_size=3).map(lambda terms: _joined(terms, "AND", both)),
            st.lists(inner, min_size=2, max_size=3).map(lambda terms: _joined(terms, "OR", either)),
            inner.map(lambda term: Condition(f"NOT ({term.sql})", lambda row: negated(term.holds(row)))),
        ),
        max_leaves=6,
    )


@st.composite
def stats(draw: st.DrawFn, rows: list[Row]) -> str | None:
    """Statistics that some Delta writer could have written about these rows: bounds may be missing, cut off or wide."""
    if draw(st.integers(0, 9)) == 0:
        return draw(st.sampled_from([None, "", "{}", "{bad", "[]", '{"numRecords": "x"}', '{"minValues": {"i": "a"}}\n']))
    wide = draw(st.booleans())
    low: dict[str, Any] = {}
    high: dict[str, Any] = {}
    nulls: dict[str, Any] = {}
    for name, kind in KINDS.items():
        values = [each[name] for each in rows]
        present = sorted((v for v in values if v is not None and v == v), key=ordered)
        missing = sum(v is None for v in values)
        if draw(st.integers(0, 9)):
            nulls[name] = missing if not wide or missing in (0, len(rows)) else draw(st.integers(1, len(rows) - 1))
        if name in PARTITIONS or not present or kind == "binary":
            continue
        if draw(st.integers(0, 9)) and (bound := _bound(present[0], up=False)) is not None:
            low[name] = bound
        if draw(st.integers(0, 9)) and (bound := _bound(present[-1], up=True)) is not None:
            high[name] = bound
    body = {"numRecords": len(rows), "tightBounds": not wide, "minValues": low, "maxValues": high, "nullCount": nulls}
    return re.sub(r'"#(-?[\d.]+)"', r"\1", json.dumps(body, allow_nan=False))


def _bound(value: Any, *, up: bool) -> Any:
    match value:
        case str() if len(value) > 32:
            return value[:31] + chr(ord(value[31]) + 1) if up else value[:32]
        case float() if math.isinf(value):
            return repr(value)  # some writers do; it is no number in JSON
        case Decimal():
            return f"#{value}"
        case datetime():
            return value.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        case date():
            return value.isoformat()
    return value
