"""Names in statements: where their tables are, similar ones, and the text and the versions that come in their places."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from difflib import get_close_matches

from ..statements.cursor import Name, Span, location_hint, position
from ..statements.relations import AsOf, Relation
from ..statements.rows import Merge
from ..storage.dataclass import dataclass
from ..storage.errors import InvalidRequest, TableNotFound
from ..storage.log.segment import latest_version
from ..storage.schema.datatypes import StructType
from ..tables.catalog.catalog import Catalog
from ..tables.client.address import TableAddress, version_of_path
from ..tables.joint_transaction import read_together
from ..tables.read.table_snapshot import TableSnapshot
from ..tables.table import Table
from .request import Edit, Request


def _nothing() -> dict[str, str]:
    return {}


@dataclass(frozen=True, slots=True)
class Place:
    """A table's location, and how to reach it; `name` if it was found by one."""

    location: str
    coordinator: str | None = None
    storage_options: Mapping[str, str] = field(default_factory=_nothing, repr=False)
    name: str | None = None


def opened(place: Place) -> Table:
    """The table there. Raises TableNotFound, NotATable and the other errors of `Table.open`."""
    return Table.open(place.location, coordinator=place.coordinator, storage_options=place.storage_options)


def exists(place: Place) -> bool:
    """Whether there is a Delta log, be the table sluice's or not."""
    return latest_version(TableAddress.of(place.location, None, place.storage_options).store()) is not None


def catalog_of(asked: Request) -> Catalog:
    """The coordinator's names."""
    return Catalog(asked.coordinator, storage_options=asked.options)


def known_place(asked: Request, name: Name) -> Place | None:
    """Where the table is that has this name, or this location; None if the coordinator gives the name to none."""
    if name.path is not None:
        return Place(name.path, asked.coordinator, asked.options)
    try:
        if not catalog_of(asked).exists(name.quoted):
            return None
        location = catalog_of(asked).locate(name.quoted)
    except InvalidRequest:
        return None
    return Place(location, asked.coordinator, asked.options, title(name))


def with_version(asked: Request, relation: Relation) -> Relation:
    """The relation, in which sluice.`path@v3` is version 3 of the table at the path, unless that path exists."""
    name = relation.name
    named = None if name.path is None or not relation.is_current else version_of_path(name.path, asked.options)
    if named is None:
        return relation
    as_of = AsOf(named.version is not None, Span(name.start, name.end), named.time if named.version is None else str(named.version))
    return replace(relation, name=replace(name, parts=(name.parts[0], named.path)), as_of=as_of)


def current_of(asked: Request, relations: Sequence[Relation]) -> list[Relation]:
    """Those that mean a table as it is now."""
    return [each for each in (with_version(asked, one) for one in relations) if each.is_current]


def title(name: Name) -> str:
    """A name as it is shown."""
    return ".".join(name.parts)


def called(name: Name) -> str | None:
    """What a table is called in a statement that gives it no alias."""
    return None if name.path is not None else name.parts[-1]


def source_called(statement: Merge) -> str | None:
    """What the source of a MERGE is called; None if it has no name."""
    if statement.source_alias is not None:
        return statement.source_alias
    first = next((each for each in statement.relations if each.start == statement.source.start and each.changes is None), None)
    return None if first is None else called(first.name)


def near(asked: Request, name: Name) -> list[str]:
    """Names of tables that are spelled like this one, the most similar first."""
    if name.path is not None or len(name.parts) > 2:
        return []
    catalog, (table, *_) = catalog_of(asked), (*reversed(name.parts), "")
    known: dict[str, str] = {}
    for each in catalog.namespaces():
        for one in catalog.tables(each.name):
            shown = one.full_name if len(name.parts) > 1 or each.name != "default" else one.name
            known[shown.lower()] = shown
    found = difflib.get_close_matches(title(name).lower(), known, 3, 0.6)
    found += [each for each in known if each.rpartition(".")[2] == table.lower() and each not in found]
    return [known[each] for each in found[:3]]


def not_found(asked: Request, name: Name) -> TableNotFound:
    """The refusal of an unknown name."""
    similar = near(asked, name)
    is_path = asked.text[: name.start].endswith((" /", "\n/"))  # FROM /a/path
    location = location_hint(asked.text, name.start - is_path)
    hint = f"; did you mean {' or '.join(similar)}?" if similar else location or "; SHOW TABLES IN a namespace lists what there is"
    return TableNotFound(asked.shown(name, f"there is no table {title(name)}{hint}"), name=title(name))


def require_one_moment(asked: Request, relation: Relation) -> None:
    """Raise InvalidRequest for a table with two versions, times or ranges."""
    if relation.again is not None:
        first = position(asked.text, Span(relation.start, relation.name.end))
        raise asked.refused(relation.again, f"the table at {first} has a version or a time already; give one of them")


def edits_of(relation: Relation, view: str) -> list[Edit]:
    """The view's name in place of the table's; a table without an alias keeps its name as one."""
    plain = Edit(relation.start, relation.end, f"`{view}`")
    if relation.has_alias or relation.changes is not None or relation.name.path is not None:
        return [plain]
    alias = " AS `" + relation.name.parts[-1].replace("`", "``") + "`"
    if relation.alias_at == relation.end:
        return [Edit(relation.start, relation.end, plain.new + alias)]
    return [plain, Edit(relation.alias_at, relation.alias_at, alias)]


def parts_of(text: str) -> tuple[str, ...]:
    """The parts of a table's name in a string, such as the first argument of `table_changes`."""
    parts = text.split(".") if "`" not in text else [part.strip("`") for part in text.split(".", 1)]
    return tuple(part.replace("``", "`") for part in parts)


def at_one_moment(tables: Sequence[Table], target: Table | None = None, if_version: int | None = None) -> Mapping[str, TableSnapshot]:
    """The latest versions of several tables, at one moment; of the `target` the version after which the statement is to commit, if any."""
    by_location = {each.location: each for each in tables}
    if target is not None and if_version is not None and by_location.pop(target.location, None) is not None:
        return {**at_one_moment(list(by_location.values())), target.location: target.snapshot(if_version)}
    if len(by_location) == 1:
        return {location: table.snapshot() for location, table in by_location.items()}
    return dict(zip(by_location, read_together(list(by_location.values())), strict=True)) if by_location else {}


def unknown_column(asked: Request, at: Span | Name, name: str, schema: StructType) -> InvalidRequest:
    """The refusal of a column that a table lacks."""
    known = {each.lower(): each for each in schema.names}
    near = [known[each] for each in get_close_matches(name.lower(), known, 3, 0.6)]
    hint = f"did you mean {' or '.join(near)}?" if near else f"its columns are {', '.join(schema.names)}"
    return asked.refused(at, f"column {name!r} is not in the table; {hint}")
