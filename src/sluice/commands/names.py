"""`sluice tables` and `sluice namespaces`: the names of a coordinator's tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

import click

from ..coordinator.times import text_of as time_text
from ..tables.catalog import Catalog, DroppedTable, NamedTable
from .parts import Checked, ListsByItself, all_of, coordinator_option, json_option, pairs, print_grid, print_json, storage_option

_TABLES: Final = {"name": "name", "kind": "kind", "location": "location"}
_DROPPED: Final = {"name": "name", "dropped": "dropped", "by": "by", "state": "state", "id": "id", "location": "location"}
_NAMESPACES: Final = {"name": "name", "comment": "comment", "location": "location"}


_options = all_of(coordinator_option, storage_option, json_option)
_yes = click.option("--yes", is_flag=True, help="Do not ask.")


def _catalog(coordinator: str | None, storage_options: Mapping[str, str]) -> Catalog:
    return Catalog(coordinator, storage_options=storage_options)


def _tell(facts: Any, line: str, *, as_json: bool) -> None:
    if as_json:
        print_json(facts)
    else:
        click.echo(line)


def _tell_named(done: str, table: NamedTable, *, as_json: bool) -> None:
    _tell(asdict(table), f"{done}: {table.full_name} at {table.location}", as_json=as_json)


@click.group(cls=ListsByItself, no_args_is_help=False)
def tables() -> None:
    """List the tables that have names, name tables, rename and drop them, and bring dropped ones back.

    `sluice tables` lists all of them, `sluice tables NAMESPACE` those of one namespace.
    """


@tables.command("list")
@click.argument("namespace", required=False)
@_options
def list_tables(namespace: str | None, coordinator: str | None, storage_options: dict[str, str], as_json: bool) -> None:
    """List the tables of a namespace, or of all."""
    catalog = _catalog(coordinator, storage_options)
    spaces = [namespace] if namespace is not None else [each.name for each in catalog.namespaces()]
    found = [each for space in spaces for each in catalog.tables(space)]
    if as_json:
        print_json([asdict(each) for each in found])
        return
    print_grid(_TABLES, [{"name": each.full_name, "kind": _kind(each), "location": each.location} for each in found])


@tables.command("show")
@click.argument("name")
@_options
def show_table(name: str, coordinator: str | None, storage_options: dict[str, str], as_json: bool) -> None:
    """Show where the table of a name is."""
    found = _catalog(coordinator, storage_options).describe(name)
    facts = {"name": found.full_name, "location": found.location, "kind": _kind(found), "named": time_text(found.named_ms)}
    _tell(facts, "\n".join(f"{key}: {value}" for key, value in facts.items()), as_json=as_json)


@tables.command("register")
@click.argument("name")
@click.argument("location")
@_options
def register_table(name: str, location: str, coordinator: str | None, storage_options: dict[str, str], as_json: bool) -> None:
    """Give a name to the table at a location; a plain Delta table is attached first."""
    found = _catalog(coordinator, storage_options).register(name, location)
    _tell_named("registered", found, as_json=as_json)


@tables.command("rename")
@click.argument("name")
@click.argument("new_name")
@_options
def rename_table(name: str, new_name: str, coordinator: str | None, storage_options: dict[str, str], as_json: bool) -> None:
    """Give a table another name; its data stay where they are."""
    found = _catalog(coordinator, storage_options).rename(name, new_name)
    _tell_named("renamed", found, as_json=as_json)


@tables.command("drop")
@click.argument("name")
@click.option(
    "--keep-data/--with-data", default=None, help="Take only the name away, or drop the data, too. Default: as the table is kept."
)
@_yes
@_options
def drop_table(
    name: str, keep_data: bool | None, yes: bool, coordinator: str | None, storage_options: dict[str, str], as_json: bool
) -> None:
    """Drop a table by its name. Its data can be brought back until `sluice tables vacuum`; an external table only loses its name."""
    catalog = _catalog(coordinator, storage_options)
    found = catalog.describe(name)
    if not yes:
        click.confirm(f"drop {found.full_name} at {found.location}?", abort=True, err=True)
    dropped = catalog.drop(name, keep_data=keep_data)
    if dropped is None:
        _tell(
            {"dropped": None, **asdict(found)}, f"name taken away: {found.full_name}; the table stays at {found.location}", as_json=as_json
        )
    else:
        _tell(asdict(dropped), f"dropped: {dropped.full_name}; sluice tables undrop {dropped.full_name} brings it back", as_json=as_json)


@tables.command("dropped")
@_options
def list_dropped(coordinator: str | None, storage_options: dict[str, str], as_json: bool) -> None:
    """List the dropped tables whose data are still there, latest first."""
    found = _catalog(coordinator, storage_options).dropped()
    if as_json:
        print_json([asdict(each) for each in found])
    else:
        print_grid(_DROPPED, [_dropped_row(each) for each in found])


@tables.command("undrop")
@click.argument("name")
@click.option("--as", "new_name", metavar="NAME", help="Another name, if the old one is taken.")
@click.option(
    "--id", "drop_id", metavar="ID", help="The drop to undo, as `sluice tables dropped` lists it; default: the last one of this name."
)
@_options
def undrop_table(
    name: str, new_name: str | None, drop_id: str | None, coordinator: str | None, storage_options: dict[str, str], as_json: bool
) -> None:
    """Bring a dropped table back."""
    found = _catalog(coordinator, storage_options).undrop(name, new_name=new_name, drop_id=drop_id)
    _tell_named("brought back", found, as_json=as_json)


@tables.command("vacuum")
@click.argument("name", required=False)
@click.option(
    "--retain-hours",
    type=Checked("retain_hours"),
    default=168.0,
    show_default=True,
    help="Keep tables dropped more recently.",
)
@_yes
@_options
def vacuum_dropped(
    name: str | None, retain_hours: float, yes: bool, coordinator: str | None, storage_options: dict[str, str], as_json: bool
) -> None:
    """Delete the data of tables that were dropped by their names (of one name only, if given)."""
    catalog = _catalog(coordinator, storage_options)
    if not yes:
        which = "of dropped tables" if name is None else f"of tables dropped as {name}"
        click.confirm(f"delete the data {which}, dropped more than {retain_hours:g} hours ago?", abort=True, err=True)
    reports = catalog.vacuum(retain_hours, name=name)
    lines = [f"deleted: {each.location}; {each.deleted} files, {each.size_bytes} bytes" for each in reports]
    _tell([asdict(each) for each in reports], "\n".join(lines) or "nothing to delete", as_json=as_json)


@click.group(cls=ListsByItself, no_args_is_help=False)
def namespaces() -> None:
    """List, create and drop namespaces of tables."""


@namespaces.command("list")
@_options
def list_namespaces(coordinator: str | None, storage_options: dict[str, str], as_json: bool) -> None:
    """List the namespaces, and where their managed tables are made."""
    found = _catalog(coordinator, storage_options).namespaces()
    if as_json:
        print_json([asdict(each) for each in found])
    else:
        print_grid(_NAMESPACES, [{"name": each.name, "comment": each.comment, "location": each.location} for each in found])


@namespaces.command("create")
@click.argument("name")
@click.option("--comment", default="", help="What it is for.")
@click.option("--location", metavar="LOCATION", help="Where its managed tables are made; default: below the root.")
@click.option("--property", "properties", metavar="NAME=VALUE", multiple=True, callback=pairs, help="A property; may be repeated.")
@_options
def create_namespace(
    name: str,
    comment: str,
    location: str | None,
    properties: dict[str, str],
    coordinator: str | None,
    storage_options: dict[str, str],
    as_json: bool,
) -> None:
    """Create a namespace."""
    catalog = _catalog(coordinator, storage_options)
    catalog.create_namespace(name, comment=comment, location=location, properties=properties)
    _tell(asdict(catalog.namespace(name)), f"created: {name}", as_json=as_json)


@namespaces.command("drop")
@click.argument("name")
@_options
def drop_namespace(name: str, coordinator: str | None, storage_options: dict[str, str], as_json: bool) -> None:
    """Drop a namespace that has no tables."""
    _catalog(coordinator, storage_options).drop_namespace(name)
    _tell({"dropped": name}, f"dropped: {name}", as_json=as_json)


@namespaces.command("root")
@click.argument("location", required=False)
@_options
def root(location: str | None, coordinator: str | None, storage_options: dict[str, str], as_json: bool) -> None:
    """Show the location below which managed tables are made, or set it."""
    catalog = _catalog(coordinator, storage_options)
    if location is not None:
        catalog.set_root(location)
    _tell({"root": catalog.root}, f"root: {catalog.root or 'none'}", as_json=as_json)


def _kind(table: NamedTable) -> str:
    return "managed" if table.managed else "external"


def _dropped_row(each: DroppedTable) -> dict[str, object]:
    state = "its data are being deleted" if each.deleting else "can be brought back"
    return {**asdict(each), "name": each.full_name, "dropped": time_text(each.dropped_ms), "state": state}
