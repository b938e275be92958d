"""SQL text to nodes and back. The parser (sqlglot) is loaded with the first text: most appends and reads have none."""

from __future__ import annotations

from datetime import datetime

import pyarrow as pa

from .nodes import Node

__all__ = ["parse", "parse_widely", "to_sql"]


def parse(text: str, schema: pa.Schema, *, noun: str = "predicate", now: datetime | None = None) -> Node:
    """Translate an expression over the columns of `schema`; see `sluice.storage.expressions.parse`."""
    from .parse import parse as implementation

    return implementation(text, schema, noun=noun, now=now)


def parse_widely(text: str, schema: pa.Schema) -> Node:
    """Translate a condition, with TRUE for parts that cannot be evaluated; see `sluice.storage.expressions.parse`."""
    from .parse import parse_widely as implementation

    return implementation(text, schema)


def to_sql(node: Node) -> str:
    """Write a node as SQL that parses to the same node; see `sluice.storage.expressions.render`."""
    from .render import to_sql as implementation

    return implementation(node)
