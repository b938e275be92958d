"""USE: names of one part in a statement are those of a namespace."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any, Final

from ..statements.parse.cursor import Name, Span
from ..statements.parse.loading import Attach
from ..statements.parse.namespaces import Comment, CreateNamespace, DropNamespace
from ..statements.parse.reading import read
from ..statements.parse.relations import Changes
from ..statements.parse.tables import Clone, Create, Like, ShowTables, Undrop
from ..statements.places import parts_of

_MAKES: Final = (Create, Clone, Like, Undrop)
_NO_TABLES: Final = (CreateNamespace, DropNamespace, ShowTables)


def in_namespace(text: str, namespace: str, exists: Callable[[str], bool]) -> str:
    """The text with the namespace before the names of tables that it makes, and of those that are there (`exists` says of a whole name)."""
    statement, quoted = read(text), "`" + namespace.replace("`", "``") + "`"
    if isinstance(statement, ShowTables) and statement.namespace is None:
        at = text.upper().index("TABLES") + len("TABLES")
        return f"{text[:at]} IN {quoted}{text[at:]}"
    for name, is_made in sorted(_names(statement, text), key=lambda each: each[0].start, reverse=True):
        if len(name.parts) == 1 and (is_made or exists(f"{quoted}.{name.quoted}")):
            text = f"{text[: name.start]}{quoted}.{text[name.start :]}"
    return text


def _names(part: Any, text: str) -> Iterator[tuple[Name, bool]]:
    """The names of tables in a statement, each once, and whether the statement makes that table."""
    if isinstance(part, _NO_TABLES) or (isinstance(part, Comment) and part.what == "namespace"):
        return
    if isinstance(part, tuple):
        for each in part:
            yield from _names(each, text)
    elif isinstance(part, Changes):
        first = part.arguments[0]
        if first.of(text)[0] in "'\"":  # the name of a table in a string; a parameter may be one, too, and names it whole
            inside = Span(first.start + 1, first.end - 1)
            yield Name(parts_of(inside.of(text)), inside.start, inside.end), False
    elif isinstance(part, Name):
        yield part, False
    elif is_dataclass(part):
        for field in fields(part):
            value = getattr(part, field.name)
            is_made = (isinstance(part, _MAKES) and field.name == "target") or (isinstance(part, Attach) and field.name == "name")
            if isinstance(value, Name) and is_made:
                yield value, True
            else:
                yield from _names(value, text)
