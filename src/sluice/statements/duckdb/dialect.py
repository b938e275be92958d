"""Spark's SQL in DuckDB: which functions give the same answers, and how operators that would not are rewritten.

sqlglot translates names. A list says here which functions mean the same; a text with any other function needs Spark. So an
answer, or a value that a statement writes, does not depend on the engine. Arithmetic is Spark's ANSI: a division by zero is an error.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from sqlglot import exp

DIVISION_BY_ZERO: Final = "sluice: division by zero"
OTHER_CAST: Final = "sluice: other cast"
"""What DuckDB's error says when a value comes that it would cast otherwise than Spark."""

_SAME: Final = (
    exp.Abs,
    exp.And,
    exp.AnyValue,
    exp.Array,
    exp.Avg,
    exp.Case,
    exp.Cast,
    exp.Ceil,
    exp.Coalesce,
    exp.Concat,
    exp.ConcatWs,
    exp.Count,
    exp.CountIf,
    exp.CumeDist,
    exp.CurrentDate,
    exp.CurrentTimestamp,
    exp.DateDiff,
    exp.Day,
    exp.DenseRank,
    exp.EndsWith,
    exp.Exists,
    exp.Exp,
    exp.Explode,
    exp.Extract,
    exp.FirstValue,
    exp.Floor,
    exp.Greatest,
    exp.Hour,
    exp.If,
    exp.Lag,
    exp.LastDay,
    exp.LastValue,
    exp.Lead,
    exp.Least,
    exp.Left,
    exp.Length,
    exp.Ln,
    exp.LogicalAnd,
    exp.LogicalOr,
    exp.Lower,
    exp.Max,
    exp.Min,
    exp.Minute,
    exp.Month,
    exp.NthValue,
    exp.Ntile,
    exp.Nullif,
    exp.Or,
    exp.PercentRank,
    exp.Pow,
    exp.Quarter,
    exp.Rank,
    exp.RegexpLike,
    exp.Replace,
    exp.Round,
    exp.RowNumber,
    exp.SafeDivide,
    exp.Sign,
    exp.Sqrt,
    exp.StartsWith,
    exp.Stddev,
    exp.StddevPop,
    exp.StddevSamp,
    exp.StrPosition,
    exp.Struct,
    exp.Substring,
    exp.Sum,
    exp.TimestampTrunc,
    exp.Trim,
    exp.TryCast,
    exp.TsOrDsAdd,
    exp.TsOrDsToDate,
    exp.Upper,
    exp.Variance,
    exp.VariancePop,
    exp.VarMap,
    exp.Xor,
    exp.Year,
)
_HAVE_NAMES: Final = (exp.Alias, exp.Aliases, exp.Column, exp.Dot, exp.Bracket, exp.Explode, exp.Subquery)
_WHOLE: Final = frozenset({exp.DataType.Type.TINYINT, exp.DataType.Type.SMALLINT, exp.DataType.Type.INT, exp.DataType.Type.BIGINT})
_UNITS: Final = frozenset({"YEAR", "QUARTER", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND"})
_FRACTION: Final = "[.]0*[1-9]|[0-9][eE]"
"""Texts of numbers that are not whole, or that do not show whether they are."""


def other_meaning(tree: exp.Expr) -> exp.Expr | None:
    """The first function that DuckDB may compute otherwise; None if there is none."""
    for node in tree.find_all(exp.Func, exp.Like):
        is_same = not isinstance(node, exp.Func) or isinstance(node, _SAME)
        if isinstance(node, exp.Anonymous) or not is_same or not _has_same_arguments(node):
            return node
    return None


def doubled(tree: exp.Expr) -> str | None:
    """A name that an inner query gives to two columns, in lower case: DuckDB renames the second one, where Spark refuses to choose."""
    for inner in tree.find_all(exp.Subquery, exp.CTE):
        if isinstance(inner.this, exp.Query) and not inner.alias_column_names:
            names = Counter(name.lower() for name in inner.this.named_selects if name not in ("", "*"))
            if names and max(names.values()) > 1:
                return max(names, key=lambda name: names[name])
    return None


def names_of(node: exp.Expr) -> tuple[str, ...]:
    """What a function may be called in SQL: as Spark calls it, then as sqlglot does."""
    if isinstance(node, exp.Anonymous):
        return (node.name,)
    return (_text(node).partition("(")[0], *node.sql_names()) if isinstance(node, exp.Func) else ("LIKE",)


def _text(node: exp.Expr) -> str:
    return node.sql("spark", normalize_functions="lower")


def named_as_in_spark(tree: exp.Query) -> exp.Query:
    """The query with names for results that have none, as Spark calls them in the common cases: `count(1)`, `sum(v)`, `(id + 1)`."""
    for each in list(tree.find_all(exp.Select)):
        each.set("expressions", [_named(result) for result in each.expressions])
    return tree


def _named(node: exp.Expr) -> exp.Expr:
    if isinstance(node, exp.Subquery) and not node.alias:
        return exp.alias_(node, "scalarsubquery()", quoted=True)
    if isinstance(node, exp.Exists):
        return exp.alias_(node, "exists()", quoted=True)
    if node.is_star or isinstance(node, _HAVE_NAMES) or node.find(exp.Placeholder, exp.Query) is not None:
        return node
    is_count = isinstance(node, exp.Count) and isinstance(node.this, exp.Star)
    text = node.name if isinstance(node, exp.Literal) else "count(1)" if is_count else _text(node)
    return exp.alias_(node, f"({text})" if isinstance(node, exp.Binary) else text, quoted=True)


def _has_same_arguments(node: exp.Expr) -> bool:
    """Whether a function in the list means the same with these arguments."""
    match node:
        case exp.Substring():
            return _is_number(node.args.get("start"), at_least=1)
        case exp.Left():
            return _is_number(node.expression, at_least=0)
        case exp.Ceil() | exp.Floor():
            return node.args.get("decimals") is None
        case exp.TimestampTrunc():
            return node.text("unit").upper() in _UNITS
        case exp.Extract():
            return node.name.upper() in _UNITS - {"SECOND"}
        case exp.DateDiff():
            return node.text("unit").upper() in ("", "DAY")
        case exp.TsOrDsToDate():
            return node.args.get("format") is None
        case exp.Like():
            return isinstance(node.expression, exp.Literal) and "\\" not in node.expression.name
        case _:
            return True


def _is_number(node: object, *, at_least: int) -> bool:
    return isinstance(node, exp.Literal) and not node.is_string and node.name.isdigit() and int(node.name) >= at_least


def as_in_spark(node: exp.Expr) -> exp.Expr:
    """A part of a query with the operator or cast that gives Spark's answer, or an error."""
    match node:
        case exp.Div() | exp.IntDiv() | exp.Mod():
            node.set("safe", False)
            node.set("expression", _not_zero(node.expression))
        case exp.Ceil() | exp.Floor() if node.parent is None or not isinstance(node.parent, exp.Cast):
            return exp.cast(node, "BIGINT")
        case exp.TsOrDsAdd():
            return exp.cast(node, "DATE")
        case exp.TsOrDsToDate():
            return exp.cast(node.this, "DATE")
        case exp.Cast():
            return _checked_cast(node)
        case _:
            pass
    return node


def _not_zero(divisor: exp.Expr) -> exp.Expr:
    inner = divisor.unnest()
    if isinstance(inner, exp.Literal) and not inner.is_string and inner.name.strip("0.") != "":
        return divisor
    is_zero = exp.EQ(this=exp.paren(divisor.copy()), expression=exp.Literal.number(0))
    return exp.If(this=is_zero, true=_error(DIVISION_BY_ZERO), false=divisor.copy())


def _checked_cast(node: exp.Cast) -> exp.Expr:
    """A fraction becomes a whole number by rounding in DuckDB, and by cutting in Spark; doubles have other texts."""
    kind, value = node.to.this, node.this
    if isinstance(value, exp.Literal) and not value.is_string and value.name.isdigit():
        return node
    if kind in _WHOLE:
        other: exp.Expr = exp.Anonymous(
            this="REGEXP_MATCHES", expressions=[exp.cast(value.copy(), "VARCHAR"), exp.Literal.string(_FRACTION)]
        )
    elif kind in exp.DataType.TEXT_TYPES:
        kinds = [exp.Literal.string("DOUBLE"), exp.Literal.string("FLOAT")]
        other = exp.In(this=exp.Anonymous(this="TYPEOF", expressions=[value.copy()]), expressions=kinds)
    else:
        return node
    return exp.If(this=other, true=_error(OTHER_CAST), false=node.copy())


def _error(text: str) -> exp.Expr:
    return exp.Anonymous(this="ERROR", expressions=[exp.Literal.string(text)])
