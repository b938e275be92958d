"""Where a table is, and names similar to an unknown one."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import field

from ..statements.cursor import Name
from ..storage.dataclass import dataclass
from ..storage.errors import InvalidRequest, TableNotFound
from ..storage.log.segment import latest_version
from ..tables.catalog.catalog import Catalog
from ..tables.client.address import TableAddress
from ..tables.table import Table
from .request import Request


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


def title(name: Name) -> str:
    """A name as it is shown."""
    return ".".join(name.parts)


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
    hint = f"; did you mean {' or '.join(similar)}?" if similar else "; SHOW TABLES IN a namespace lists what there is"
    return TableNotFound(asked.shown(name, f"there is no table {title(name)}{hint}"), name=title(name))
