"""`sluice drop` and `sluice forget`: remove tables, and the nodes of tables whose folders are gone."""

from __future__ import annotations

from dataclasses import asdict

import click

from .cli_parts import all_of, coordinator_option, json_option, on_table, print_json, storage_option
from .tables.client.address import TableAddress
from .tables.manage.dropping import drop, forget

__all__ = ["drop_command", "forget_command"]


@click.command("drop")
@on_table
@click.option("--keep-data", is_flag=True, help="Keep the files as a Delta table that any engine may write.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def drop_command(
    location: str, coordinator: str | None, storage_options: dict[str, str], as_json: bool, keep_data: bool, yes: bool
) -> None:
    """Remove a table from the coordinator and delete its files. Finishes an interrupted drop.

    Files that nothing attributes to the table stay, and are listed.
    """
    address = TableAddress.of(location, coordinator, storage_options)
    if not yes:
        click.confirm(f"drop {address.location} and {'keep' if keep_data else 'delete'} its files?", abort=True, err=True)
    report = drop(address, keep_data=keep_data)
    if as_json:
        print_json(asdict(report))
        return
    click.echo(f"dropped: {report.location} at version {report.version}; {report.deleted} files deleted, {report.size_bytes} bytes")
    for key in report.kept:
        click.echo(f"left alone: {key}")


@click.command("forget")
@all_of(click.argument("location"), coordinator_option, storage_option, json_option)
def forget_command(location: str, coordinator: str | None, storage_options: dict[str, str], as_json: bool) -> None:
    """Remove the coordinator's nodes of a table whose folder is gone."""
    version = forget(location, coordinator=coordinator, storage_options=storage_options)
    if as_json:
        print_json({"forgotten": location, "version": version})
    else:
        click.echo(f"forgotten: {location}, which was at version {version}")
