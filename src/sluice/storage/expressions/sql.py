"""SQL text to nodes and back. The parser (sqlglot) is loaded with the first text: most appends and reads have none."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import pyarrow as pa

from .nodes import Node

if TYPE_CHECKING:
    from .parse import Outline


def parse(text: str, schema: pa.Schema, *, noun: str = "predicate", now: datetime | None = None) -> Node:
    """Translate an expression over the columns of `schema`; see `sluice.storage.expressions.parse`."""
    from .parse import parse as implementation

    return implementation(text, schema, noun=noun, now=now)


def parse_widely(text: str, schema: pa.Schema) -> Node:
    """Translate a condition, with TRUE for parts that cannot be evaluated; see `sluice.storage.expressions.parse`."""
    from .parse import parse_widely as implementation

    return implementation(text, schema)


def outline_of(text: str, *, clock: bool) -> Outline:
    """What an expression is made of; see `sluice.storage.expressions.parse`."""
    from .parse import outline_of as implementation

    return implementation(text, clock=clock)


def to_sql(node: Node) -> str:
    """Write a node as SQL that parses to the same node; see `sluice.storage.expressions.render`."""
    from .render import to_sql as implementation

    return implementation(node)
