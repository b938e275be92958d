"""`sluice tables` and `sluice namespaces`: the names of a coordinator's tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from functools import wraps
from typing import Any

import click

from ..storage.times import text_of as time_text
from ..tables.catalog import Catalog, NamedTable
from . import parts
from .parts import Checked


def _in_catalog(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command its `catalog`, and `as_json`, from the options shared by all."""

    @wraps(command)
    def with_catalog(coordinator: str | None, storage_options: dict[str, str], **given: Any) -> None:
        command(Catalog(coordinator, storage_options=storage_options), **given)

    return parts.all_of(parts.coordinator_option, parts.storage_option, parts.json_option)(with_catalog)


def _print_named(done: str, table: NamedTable, *, as_json: bool) -> None:
    parts.print_facts(asdict(table), as_json=as_json, text=f"{done}: {table.full_name} at {table.location}")


@click.group(cls=parts.ListsByItself, no_args_is_help=False)
def tables_command() -> None:
    """List the tables that have names, name tables, rename and drop them, and bring dropped ones back.

    `sluice tables` lists all of them, `sluice tables NAMESPACE` those of one namespace.
    """


@tables_command.command("list")
@click.argument("namespace", required=False)
@_in_catalog
def list_tables(catalog: Catalog, as_json: bool, namespace: str | None) -> None:
    """List the tables of a namespace, or of all."""
    spaces = [namespace] if namespace is not None else [each.name for each in catalog.namespaces()]
    named = [each for space in spaces for each in catalog.tables(space)]
    if as_json:
        parts.print_json([asdict(each) for each in named])
        return
    rows = [{"name": each.full_name, "kind": _kind(each), "location": each.location} for each in named]
    parts.print_grid(("name", "kind", "location"), rows)


@tables_command.command("show")
@click.argument("name")
@_in_catalog
def show_table(catalog: Catalog, as_json: bool, name: str) -> None:
    """Show where the table of a name is."""
    table = catalog.describe(name)
    facts = {"name": table.full_name, "location": table.location, "kind": _kind(table), "named": time_text(table.named_ms)}
    parts.print_facts(facts, as_json=as_json)


@tables_command.command("register")
@click.argument("name")
@click.argument("location")
@_in_catalog
def register_table(catalog: Catalog, as_json: bool, name: str, location: str) -> None:
    """Give a name to the table at a location; a plain Delta table is attached first."""
    _print_named("registered", catalog.register(name, location), as_json=as_json)


@tables_command.command("rename")
@click.argument("name")
@click.argument("new_name")
@_in_catalog
def rename_table(catalog: Catalog, as_json: bool, name: str, new_name: str) -> None:
    """Give a table another name; its data stay where they are."""
    _print_named("renamed", catalog.rename(name, new_name), as_json=as_json)


@tables_command.command("drop")
@click.argument("name")
@click.option(
    "--keep-data/--with-data", default=None, help="Take only the name away, or drop the data, too. Default: as the table is kept."
)
@parts.yes_option
@_in_catalog
def drop_table(catalog: Catalog, as_json: bool, name: str, keep_data: bool | None, yes: bool) -> None:
    """Drop a table by its name. Its data can be brought back until `sluice tables vacuum`; an external table only loses its name."""
    table = catalog.describe(name)
    parts.confirm(f"drop {table.full_name} at {table.location}?", yes=yes)
    dropped = catalog.drop(name, keep_data=keep_data)
    if dropped is None:
        facts, text = {"dropped": None, **asdict(table)}, f"name taken away: {table.full_name}; the table stays at {table.location}"
    else:
        facts, text = asdict(dropped), f"dropped: {dropped.full_name}; sluice tables undrop {dropped.full_name} brings it back"
    parts.print_facts(facts, as_json=as_json, text=text)


@tables_command.command("dropped")
@_in_catalog
def list_dropped(catalog: Catalog, as_json: bool) -> None:
    """List the dropped tables whose data are still there, latest first."""
    dropped = catalog.dropped()
    rows = [asdict(each) for each in dropped]
    if as_json:
        parts.print_json(rows)
        return
    for row, each in zip(rows, dropped, strict=True):
        state = "its data are being deleted" if each.deleting else "can be brought back"
        row |= {"name": each.full_name, "dropped": time_text(each.dropped_ms), "state": state}
    parts.print_grid(("name", "dropped", "by", "state", "id", "location"), rows)


@tables_command.command("undrop")
@click.argument("name")
@click.option("--as", "new_name", metavar="NAME", help="Another name, if the old one is taken.")
@click.option(
    "--id", "drop_id", metavar="ID", help="The drop to undo, as `sluice tables dropped` lists it; default: the last one of this name."
)
@_in_catalog
def undrop_table(catalog: Catalog, as_json: bool, name: str, new_name: str | None, drop_id: str | None) -> None:
    """Bring a dropped table back."""
    _print_named("brought back", catalog.undrop(name, new_name=new_name, drop_id=drop_id), as_json=as_json)


@tables_command.command("vacuum")
@click.argument("name", required=False)
@click.option("--retain-hours", type=Checked("retain_hours"), default=168.0, show_default=True, help="Keep tables dropped more recently.")
@parts.yes_option
@_in_catalog
def vacuum_dropped(catalog: Catalog, as_json: bool, name: str | None, retain_hours: float, yes: bool) -> None:
    """Delete the data of tables that were dropped by their names (of one name only, if given)."""
    which = "of dropped tables" if name is None else f"of tables dropped as {name}"
    parts.confirm(f"delete the data {which}, dropped more than {retain_hours:g} hours ago?", yes=yes)
    reports = catalog.vacuum(retain_hours, name=name)
    lines = [f"deleted: {each.location}; {each.deleted} files, {each.size_bytes} bytes" for each in reports]
    parts.print_facts([asdict(each) for each in reports], as_json=as_json, text="\n".join(lines) or "nothing to delete")


@click.group(cls=parts.ListsByItself, no_args_is_help=False)
def namespaces_command() -> None:
    """List, create and drop namespaces of tables."""


@namespaces_command.command("list")
@_in_catalog
def list_namespaces(catalog: Catalog, as_json: bool) -> None:
    """List the namespaces, and where their managed tables are made."""
    parts.print_grid(("name", "comment", "location"), [asdict(each) for each in catalog.namespaces()], as_json=as_json)


@namespaces_command.command("create")
@click.argument("name")
@click.option("--comment", default="", help="What it is for.")
@click.option("--location", metavar="LOCATION", help="Where its managed tables are made; default: below the root.")
@click.option("--property", "properties", metavar="NAME=VALUE", multiple=True, callback=parts.pairs, help="A property; may be repeated.")
@_in_catalog
def create_namespace(catalog: Catalog, as_json: bool, name: str, comment: str, location: str | None, properties: dict[str, str]) -> None:
    """Create a namespace."""
    catalog.create_namespace(name, comment=comment, location=location, properties=properties)
    parts.print_facts(asdict(catalog.namespace(name)), as_json=as_json, text=f"created: {name}")


@namespaces_command.command("drop")
@click.argument("name")
@_in_catalog
def drop_namespace(catalog: Catalog, as_json: bool, name: str) -> None:
    """Drop a namespace that has no tables."""
    catalog.drop_namespace(name)
    parts.print_facts({"dropped": name}, as_json=as_json, text=f"dropped: {name}")


@namespaces_command.command("root")
@click.argument("location", required=False)
@_in_catalog
def root(catalog: Catalog, as_json: bool, location: str | None) -> None:
    """Show the location below which managed tables are made, or set it."""
    if location is not None:
        catalog.set_root(location)
    parts.print_facts({"root": catalog.root}, as_json=as_json, text=f"root: {catalog.root or 'none'}")


def _kind(table: NamedTable) -> str:
    return "managed" if table.managed else "external"
