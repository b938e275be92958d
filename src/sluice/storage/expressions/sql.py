"""Nodes as SQL that parses to the same nodes, and back. The parser (sqlglot) is loaded with the first text: most appends have none."""

from __future__ import annotations

import math
import re
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from . import build, types
from .nodes import And, Arithmetic, Call, Case, Cast, Column, Compare, In, IsNull, Like, Literal, Node, Not, Or, Value

if TYPE_CHECKING:
    from .parse import Outline

_PLAIN: Final = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_SUFFIXES: Final = {pa.int8(): "Y", pa.int16(): "S", pa.int64(): "L"}


def parse(text: str, schema: pa.Schema, *, noun: str = "predicate", now: datetime | None = None) -> Node:
    """See `sluice.storage.expressions.parse`."""
    from .parse import parse as implementation

    return implementation(text, schema, noun=noun, now=now)


def parse_widely(text: str, schema: pa.Schema) -> Node:
    """See `sluice.storage.expressions.parse`."""
    from .parse import parse_widely as implementation

    return implementation(text, schema)


def outline_of(text: str, *, clock: bool) -> Outline:
    """See `sluice.storage.expressions.parse`."""
    from .parse import outline_of as implementation

    return implementation(text, clock=clock)


def to_sql(node: Node) -> str:
    """`node` in Spark's SQL, with parentheses wherever a reader could be in doubt."""
    match node:
        case Column():
            return name_sql(node.path)
        case Literal():
            return literal_sql(node.value, node.type)
        case Compare():
            return f"{_operand(node.left, node.right)} {node.op} {_operand(node.right, node.left)}"
        case And():
            return " AND ".join(_inner(term, Or, Not) for term in node.terms)
        case Or():
            return " OR ".join(_inner(term, And, Not) for term in node.terms)
        case Not(term=IsNull(term=term)):
            return f"{_inner(term)} IS NOT NULL"
        case Not(term=In() as term):
            return _in_sql(term, "NOT IN")
        case Not(term=Like() as term):
            return _like_sql(term, "NOT LIKE")
        case Not():
            return f"NOT ({to_sql(node.term)})"
        case In():
            return _in_sql(node, "IN")
        case IsNull():
            return f"{_inner(node.term)} IS NULL"
        case Like():
            return _like_sql(node, "LIKE")
        case Cast():
            return f"CAST({to_sql(node.term)} AS {types.name(node.type)})"
        case Arithmetic(op="-", left=Literal(value=0, type=kind), right=right) if kind == (
            node.type if pa.types.is_decimal(kind) and node.type == right.type else pa.int8()
        ):
            return f"-{_inner(right)}"
        case Arithmetic(left=left):
            # a + b + c is a chain, and no deeper for a parser than a + b
            is_chain = isinstance(left, Arithmetic) and left.op == node.op and not isinstance(left.left, Literal)
            return f"{to_sql(left) if is_chain else _inner(left)} {node.op.upper()} {_inner(node.right)}"
        case Call(name="try_cast", args=(term,)):
            return f"TRY_CAST({to_sql(term)} AS {types.name(node.type)})"
        case Call(name="&" | "|" | "^", args=(left, right)):
            return f"({_inner(left)} {node.name} {_inner(right)})"
        case Call(name="~", args=(term,)):
            return f"(~{_inner(term)})"
        case Call():
            return f"{node.name}({', '.join(map(to_sql, node.args))})"
        case Case():
            branches = " ".join(f"WHEN {to_sql(condition)} THEN {to_sql(value)}" for condition, value in node.branches)
            return f"CASE {branches} ELSE {to_sql(node.otherwise)} END"
    raise TypeError(f"not a node: {node!r}")


def name_sql(path: tuple[str, ...]) -> str:
    """A column's name, in backquotes if needed."""
    from .parse import KEYWORDS

    plain = [bool(_PLAIN.fullmatch(name)) and name.lower() not in KEYWORDS for name in path]
    return ".".join([name if is_plain else f"`{name.replace('`', '``')}`" for name, is_plain in zip(path, plain, strict=True)])


def literal_sql(value: Value, kind: pa.DataType) -> str:
    """A literal with exactly that value and type."""
    match value:
        case None:
            return "NULL" if pa.types.is_null(kind) else f"CAST(NULL AS {types.name(kind)})"
        case bool():
            return "TRUE" if value else "FALSE"
        case int():
            return f"{value}{_SUFFIXES.get(kind, '')}"
        case float():
            return f"{value!r}D" if pa.types.is_float64(kind) and math.isfinite(value) else f"CAST('{value!r}' AS {types.name(kind)})"
        case Decimal():
            text = f"{value:f}BD"
            return text if build.literal(Decimal(f"{value:f}")).type == kind else f"CAST({text} AS {types.name(kind)})"
        case str():
            return _string(value)
        case bytes():
            return f"X'{value.hex().upper()}'"
        case datetime():
            if value.tzinfo is None:
                return f"TIMESTAMP_NTZ '{value.isoformat(' ')}'"
            return f"TIMESTAMP '{value.astimezone(timezone.utc).replace(tzinfo=None).isoformat(' ')}Z'"
        case date():
            return f"DATE '{value.isoformat()}'"
    raise TypeError(f"no literal: {value!r}")


def _string(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _operand(node: Node, sibling: Node) -> str:
    if isinstance(node, Literal) and node.type == sibling.type and not isinstance(sibling, Literal):
        return _bare(node)
    return _inner(node, Compare, IsNull)


def _bare(node: Literal) -> str:
    """A constant that takes its type from the other side of a comparison: a number of that type needs no suffix."""
    if isinstance(node.value, int) and not isinstance(node.value, bool):
        return str(node.value)
    return f"{node.value:f}BD" if isinstance(node.value, Decimal) else literal_sql(node.value, node.type)


def _inner(node: Node, *also: type[object]) -> str:
    text = to_sql(node)
    plain = isinstance(node, (Column, Literal, Call, Cast, Case))
    return text if plain or (also and isinstance(node, (Compare, In, IsNull, Like, Not)) and not isinstance(node, also)) else f"({text})"


def _in_sql(node: In, operator: str) -> str:
    bare = node.at == node.term.type
    options = [_bare(option) if bare else literal_sql(option.value, option.type) for option in node.options]
    return f"{_inner(node.term)} {operator} ({', '.join([*options, *(['NULL'] if node.with_null else [])])})"


def _like_sql(node: Like, operator: str) -> str:
    pattern = "".join(re.sub(r"[\\%_]", r"\\\g<0>", part) if isinstance(part, str) else "%" if part else "_" for part in node.parts)
    return f"{_inner(node.term)} {operator} {_string(pattern)}"
