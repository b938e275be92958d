"""Namespaces, and comments on tables, columns and namespaces."""

from __future__ import annotations

from collections.abc import Callable

from ...coordinator.errors import NamespaceNotFound
from ...statements.cursor import Name
from ...statements.namespaces import Comment, CreateNamespace, DropNamespace, ShowNamespaces
from ...storage.errors import InvalidRequest
from ...tables.manage.columns import ColumnChange
from ..place import Place, catalog_of, opened, title
from ..reports import NOTHING, Answer
from ..request import Request
from .showing import matches


def is_known(asked: Request, name: Name) -> bool:
    """Whether the coordinator keeps a namespace of this name."""
    return title(name).lower() in {each.name.lower() for each in catalog_of(asked).namespaces()}


def create(asked: Request, statement: CreateNamespace) -> Answer:
    """Make a namespace."""
    catalog_of(asked).create_namespace(
        _single(asked, statement.name),
        comment=statement.comment,
        properties=statement.properties,
        location=statement.location,
        if_not_exists=statement.if_not_exists,
    )
    return NOTHING


def drop(asked: Request, statement: DropNamespace) -> Answer:
    """Remove a namespace; with CASCADE its tables are dropped before, one by one."""
    name = _single(asked, statement.name)
    try:
        catalog_of(asked).drop_namespace(name, cascade=statement.cascade)
    except NamespaceNotFound:
        if not statement.if_exists:
            raise
    return NOTHING


def show(asked: Request, statement: ShowNamespaces) -> Answer:
    """The coordinator's namespaces."""
    names = [each.name for each in catalog_of(asked).namespaces()]
    return Answer("namespace string", tuple((each,) for each in names if matches(each, statement.pattern)))


def comment_on_namespace(asked: Request, statement: Comment) -> Answer:
    """Set or remove a namespace's comment."""
    catalog_of(asked).alter_namespace(_single(asked, statement.target), comment=statement.comment or "")
    return NOTHING


def comment_on_table(asked: Request, statement: Comment, place: Place) -> Answer:
    """Set or remove a table's comment, which is its description in the log."""
    if place.name is None:
        raise asked.refused(statement.target, "a table without a name gets no comment here: ATTACH TABLE ... AS gives it a name")
    catalog_of(asked).set_comment(statement.target.quoted, statement.comment)
    return NOTHING


def comment_on_column(statement: Comment, place: Place, path: tuple[str, ...]) -> Answer:
    """Set or remove the comment of a column, which may be in a struct."""
    opened(place).alter_columns([ColumnChange(path, comment=statement.comment or "")])
    return NOTHING


def split_column(name: Name, place_of: Callable[[Name], Place | None]) -> tuple[Place, tuple[str, ...]] | None:
    """The table and the column in it that a name of several parts means; None if no table of sluice is in it."""
    for length in (2, 1):
        table = Name(name.parts[:length], name.start, name.end)
        place = place_of(table) if len(name.parts) > length else None
        if place is not None:
            return place, name.parts[length:]
    return None


def _single(asked: Request, name: Name) -> str:
    if len(name.parts) != 1:
        raise asked.refused(name, f"{title(name)} has {len(name.parts)} parts; the name of a namespace has one")
    if not name.parts[0].strip():
        raise InvalidRequest("the name of a namespace is empty; give it one")
    return name.parts[0]
