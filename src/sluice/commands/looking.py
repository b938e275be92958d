"""`sluice show`, `history`, `outcome`, `attach`, `detach`, `drop` and `forget`: what there is of a table, and whether there is one."""

from __future__ import annotations

from dataclasses import asdict

import click

from ..coordinator.times import text_of as time_text
from ..tables.client.address import TableAddress
from ..tables.manage.dropping import drop, forget
from ..tables.table import Table
from ..tables.write.operation_records import row_count
from .parts import At, Checked, on_table, print_facts, print_grid, print_json, yes_option


@click.command("show")
@on_table
def show_command(at: At, as_json: bool) -> None:
    """Show a table: version, files, rows, properties.

    Works on any Delta table. With a coordinator it shows the latest ratified version, else the latest published one.
    """
    with at.open_to_read() as table:
        snapshot = table.snapshot()
        counted = snapshot.raw.files["stats"].null_count == 0 and snapshot.raw.files["deletion_vector"].null_count == snapshot.num_files
        facts = {
            "location": table.location,
            "version": snapshot.version,
            "time": time_text(snapshot.timestamp),
            "files": snapshot.num_files,
            "bytes": snapshot.raw.size_bytes,
            "rows": row_count(snapshot.raw.add_files()) if counted else None,
            "partitioned_by": list(snapshot.partition_columns) if as_json else ", ".join(snapshot.partition_columns) or "nothing",
            "column": {field.name: f"{field.type}{'' if field.nullable else ' not null'}" for field in snapshot.schema},
            "property": dict(table.properties),
        }
        print_facts(facts, as_json=as_json)


@click.command("history")
@on_table
@click.option("--limit", type=Checked("history.limit"), default=20, show_default=True, help="How many transactions to show.")
def history_command(at: At, as_json: bool, limit: int) -> None:
    """Show the latest transactions of a table, newest first: who did what, and how long each waited."""
    with at.open_to_read() as table:
        rows = [{**asdict(entry), "time": time_text(entry.timestamp)} for entry in table.history(limit)]
    columns = {
        "version": "version",
        "ordinal": "ordinal",
        "time": "time",
        "operation": "operation",
        "application": "application",
        "host": "host",
        "pid": "process",
        "waited_ms": "waited ms",
        "rebased_over": "rebased over",
        "transaction_id": "transaction",
    }
    print_grid(columns, rows, as_json=as_json)


@click.command("outcome")
@on_table
@click.argument("transaction_id")
def outcome_command(at: At, as_json: bool, transaction_id: str) -> None:
    """Show the outcome of any client's transaction; an undecided one is decided now."""
    with at.open() as table:
        told = table.outcome(transaction_id)
    facts: dict[str, object] = {"transaction": transaction_id, "state": told.state}
    if told.commit is not None:
        facts |= {"version": told.commit.version, "ordinal": told.commit.ordinal, "time": time_text(told.commit.timestamp)}
    if told.error is not None:
        facts |= {"error": type(told.error).__name__, "reason": str(told.error)}
    print_facts(facts, as_json=as_json)


@click.command("attach")
@on_table
def attach_command(at: At, as_json: bool) -> None:
    """Bring an existing Delta table under sluice: from then on only sluice writes it, and everybody can read it."""
    with Table.attach(at.location, **at.reached) as table:
        print_facts({"attached": table.location, "version": table.refresh().version}, as_json=as_json)


@click.command("detach")
@on_table
def detach_command(at: At, as_json: bool) -> None:
    """Give a table back to all Delta engines; sluice commits nothing to it from then on."""
    with at.open() as table:
        print_facts({"detached": table.location, "version": table.detach().version}, as_json=as_json)


@click.command("drop")
@on_table
@click.option("--keep-data", is_flag=True, help="Keep the files as a Delta table that any engine may write.")
@yes_option
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
