"""`sluice drop` and `sluice forget`: remove tables, and the nodes of tables whose folders are gone."""

from __future__ import annotations

from dataclasses import asdict

import click

from ..tables.client.address import TableAddress
from ..tables.manage.dropping import drop, forget
from .parts import At, on_table, print_facts, print_json


@click.command("drop")
@on_table
@click.option("--keep-data", is_flag=True, help="Keep the files as a Delta table that any engine may write.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def drop_command(at: At, as_json: bool, keep_data: bool, yes: bool) -> None:
    """Remove a table from the coordinator and delete its files. Finishes an interrupted drop.

    Files that nothing attributes to the table stay, and are listed.
    """
    address = TableAddress.of(at.location, **at.reached)
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
@on_table
@click.option("--lose-unpublished", is_flag=True, help="Also if versions are lost that were ratified and not published.")
def forget_command(at: At, as_json: bool, lose_unpublished: bool) -> None:
    """Remove the coordinator's nodes of a table whose folder is gone."""
    version = forget(at.location, **at.reached, lose_unpublished=lose_unpublished)
    text = f"forgotten: {at.location}, which was at version {version}"
    print_facts({"forgotten": at.location, "version": version}, as_json=as_json, text=text)
