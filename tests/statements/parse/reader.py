"""What a text is read as."""

from __future__ import annotations

from typing import TypeVar

from sluice.statements.parse.cursor import Span
from sluice.statements.parse.reading import read
from sluice.statements.parse.relations import Relation

T = TypeVar("T")


def read_as(kind: type[T], text: str) -> T:
    """The statement, which is of this kind."""
    statement = read(text)
    assert isinstance(statement, kind), text
    return statement


def of(text: str, span: Span | None) -> str | None:
    """What is at a place, if there is one."""
    return None if span is None else span.of(text)


def names(relations: tuple[Relation, ...] | list[Relation]) -> str:
    """The names of tables, with spaces between them."""
    return " ".join(".".join(each.name.parts) for each in relations)
