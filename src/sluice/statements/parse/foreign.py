"""Spark's statements that mean nothing for a table of sluice, although they may name one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from ...storage.dataclass import dataclass
from .cursor import Cursor, Name
from .relations import Relation, relations_in


@dataclass(frozen=True, slots=True)
class Foreign:
    """Such a statement about a table; `what` is "REPAIR", "REFRESH", "CACHE", "LOAD" or "EXPLAIN".

    `relations` are the tables that it reads.
    """

    target: Name
    what: str
    relations: tuple[Relation, ...] = ()


Statement: TypeAlias = Foreign


def _repair(here: Cursor) -> Foreign | None:
    """MSCK REPAIR TABLE t."""
    here.take("REPAIR")
    return _named(here, "REPAIR") if here.take("TABLE") else None


def _refresh(here: Cursor) -> Foreign | None:
    """REFRESH TABLE t."""
    return _named(here, "REFRESH") if here.take("TABLE") else None


def _cache(here: Cursor) -> Foreign | None:
    """CACHE [LAZY] TABLE t, UNCACHE TABLE [IF EXISTS] t; with a query it makes a view, as always."""
    here.take("LAZY")
    has_query = any(token.upper in ("AS", "SELECT", "WITH", "FROM", "VALUES") for token in here.tokens[here.at : here.end])
    if has_query or not here.take("TABLE"):
        return None
    here.take("IF", "EXISTS")
    return _named(here, "CACHE")


def _load(here: Cursor) -> Foreign | None:
    """LOAD DATA [LOCAL] INPATH '...' [OVERWRITE] INTO TABLE t."""
    while not here.is_done() and not here.take("INTO", "TABLE"):
        here.at += 1
    return None if here.is_done() else _named(here, "LOAD")


def _explain(here: Cursor) -> Foreign | None:
    """EXPLAIN [EXTENDED ...] of a statement that changes rows."""
    here.take_one("EXTENDED", "FORMATTED", "CODEGEN", "COST")
    verb = here.take_one("DELETE FROM", "UPDATE", "MERGE INTO", "MERGE WITH SCHEMA EVOLUTION INTO", "INSERT INTO", "INSERT OVERWRITE")
    if verb is None:
        return None
    here.take("TABLE")
    return _named(here, "EXPLAIN")


def _named(here: Cursor, what: str) -> Foreign:
    target = here.name()
    statement = Foreign(target, what, relations_in(here))
    here.at = here.end
    return statement


READERS: Final[Mapping[tuple[str, ...], Callable[[Cursor], Foreign | None]]] = {
    ("MSCK",): _repair,
    ("REPAIR",): _repair,
    ("REFRESH",): _refresh,
    ("CACHE",): _cache,
    ("UNCACHE",): _cache,
    ("LOAD", "DATA"): _load,
    ("EXPLAIN",): _explain,
}
"""The reader of what follows these words."""
