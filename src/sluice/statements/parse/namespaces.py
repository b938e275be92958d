"""Statements about namespaces, and comments on anything."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from ...storage.dataclass import dataclass
from .columns import properties_in
from .cursor import Cursor, Name

_WORDS: Final = ("NAMESPACE", "SCHEMA", "DATABASE")


@dataclass(frozen=True, slots=True)
class CreateNamespace:
    """CREATE NAMESPACE|SCHEMA|DATABASE [IF NOT EXISTS] name [USING ...] [COMMENT ...] [LOCATION ...] [WITH [DB]PROPERTIES (...)]."""

    name: Name
    if_not_exists: bool
    provider: str | None = None
    comment: str = ""
    location: str | None = None
    properties: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class DropNamespace:
    """DROP NAMESPACE|SCHEMA|DATABASE [IF EXISTS] name [RESTRICT|CASCADE]."""

    name: Name
    if_exists: bool
    cascade: bool


@dataclass(frozen=True, slots=True)
class ShowNamespaces:
    """SHOW NAMESPACES|SCHEMAS|DATABASES [LIKE 'pattern']."""

    pattern: str | None


@dataclass(frozen=True, slots=True)
class Comment:
    """COMMENT ON TABLE|COLUMN|NAMESPACE name IS '...' or NULL; `what` is "table", "column" or "namespace"."""

    what: str
    target: Name
    comment: str | None


Statement: TypeAlias = CreateNamespace | DropNamespace | ShowNamespaces | Comment


def create(here: Cursor) -> CreateNamespace:
    """CREATE NAMESPACE."""
    if_not_exists = here.take("IF", "NOT", "EXISTS")
    name = here.name()
    provider, comment, location = None, "", None
    properties: Mapping[str, str] | None = None
    while not here.is_done():
        if here.clause("USING"):
            provider = here.word("a provider")
        elif here.clause("COMMENT"):
            comment = here.string("a comment")
        elif here.clause("LOCATION"):
            location = here.string("a location")
        elif here.clause("WITH", "DBPROPERTIES", of="properties") or here.clause("WITH", "PROPERTIES", of="properties"):
            properties = properties_in(here)
        else:
            raise here.unreadable("expected USING, COMMENT, LOCATION or WITH PROPERTIES")
    return CreateNamespace(name, if_not_exists, provider, comment, location, properties)


def drop(here: Cursor) -> DropNamespace:
    """DROP NAMESPACE."""
    if_exists = here.take("IF", "EXISTS")
    return DropNamespace(here.name(), if_exists, here.choice("RESTRICT", "CASCADE") == "CASCADE")


def show(here: Cursor) -> ShowNamespaces:
    """SHOW NAMESPACES."""
    has_pattern = here.clause("LIKE") or not here.is_done()
    return ShowNamespaces(here.string("a pattern") if has_pattern else None)


def comment_on(here: Cursor) -> Comment:
    """COMMENT ON."""
    what = here.take_one("TABLE", "COLUMN", *_WORDS)
    if what is None:
        raise here.unreadable("expected TABLE, COLUMN or NAMESPACE")
    name = here.name()
    here.expect("IS")
    comment = None if here.take("NULL") else here.string("a comment, or NULL,")
    return Comment("namespace" if what in _WORDS else what.lower(), name, comment)


READERS: Final[Mapping[tuple[str, ...], Callable[[Cursor], Statement]]] = {
    **{("CREATE", word): create for word in _WORDS},
    **{("DROP", word): drop for word in _WORDS},
    **{("SHOW", word + "S"): show for word in _WORDS},
    ("COMMENT", "ON"): comment_on,
}
