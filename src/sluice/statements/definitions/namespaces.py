"""Namespaces, and comments on tables, columns and namespaces."""

from __future__ import annotations

from ...coordinator.errors import NamespaceNotFound
from ...storage.errors import InvalidRequest
from ...tables.manage.columns import ColumnChange
from ..parse.cursor import Name
from ..parse.namespaces import Comment, CreateNamespace, DropNamespace, ShowNamespaces
from ..places import catalog_of, opened, title
from ..reports import NOTHING, Answer
from ..request import Request
from .showing import matches


def is_known(request: Request, name: Name) -> bool:
    """Whether the coordinator keeps a namespace of this name."""
    return title(name).lower() in {each.name.lower() for each in catalog_of(request).namespaces()}


def create(request: Request, statement: CreateNamespace) -> Answer:
    """Make a namespace."""
    catalog_of(request).create_namespace(
        _single(request, statement.name),
        comment=statement.comment,
        properties=statement.properties,
        location=statement.location,
        if_not_exists=statement.if_not_exists,
    )
    return NOTHING


def drop(request: Request, statement: DropNamespace) -> Answer:
    """Remove a namespace; with CASCADE its tables are dropped before, one by one."""
    name = _single(request, statement.name)
    try:
        catalog_of(request).drop_namespace(name, cascade=statement.cascade)
    except NamespaceNotFound:
        if not statement.if_exists:
            raise
    return NOTHING


def show(request: Request, statement: ShowNamespaces) -> Answer:
    """The coordinator's namespaces."""
    names = [each.name for each in catalog_of(request).namespaces()]
    return Answer("namespace string", tuple((each,) for each in names if matches(each, statement.pattern)))


def comment(request: Request, statement: Comment) -> Answer | None:
    """Set or remove the comment of a namespace, a table or a column, which may be in a struct; None if there is no such table here."""
    if statement.what == "namespace":
        catalog_of(request).alter_namespace(_single(request, statement.target), comment=statement.comment or "")
        return NOTHING
    if statement.what == "table":
        place = request.place_of(statement.target)
        if place is None:
            return None
        if place.name is None:
            said = "a table without a name gets no comment here: ATTACH TABLE ... AS gives it a name"
            raise request.refused(statement.target, said)
        catalog_of(request).set_comment(statement.target.quoted, statement.comment)
        return NOTHING
    return _comment_on_column(request, statement)


def _comment_on_column(request: Request, statement: Comment) -> Answer | None:
    """The name has the table's parts, two or one, and then the column's."""
    name = statement.target
    for length in (2, 1):
        place = request.place_of(Name(name.parts[:length], name.start, name.end)) if len(name.parts) > length else None
        if place is not None:
            opened(place).alter_columns([ColumnChange(name.parts[length:], comment=statement.comment or "")])
            return NOTHING
    return None


def _single(request: Request, name: Name) -> str:
    if len(name.parts) != 1:
        raise request.refused(name, f"{title(name)} has {len(name.parts)} parts; the name of a namespace has one")
    if not name.parts[0].strip():
        raise InvalidRequest("the name of a namespace is empty; give it one")
    return name.parts[0]
